//! A copy of the built library for each driver generation, made as the harness makes them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use build_support::oracle::GENERATIONS;
use harness::symbols;
use mock_device::Api;

use crate::boundary::{Ended, Library, built, in_child, set_environment};
use crate::told::told;

static COPIES: LazyLock<BTreeMap<u16, Library>> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a directory");
    let copy = |generation: u16| {
        let path = directory.path().join(generation.to_string());
        less(&symbols::not_of_generation(Api::Cuda, generation), &path);
        (generation, Library::open(&path))
    };
    GENERATIONS.into_iter().map(copy).collect()
});

fn less(missing: &[&str], path: &Path) {
    symbols::copy_without(&built("libmock_libcuda.so"), path, missing).expect("a copy");
}

pub fn library(generation: u16) -> &'static Library {
    &COPIES[&generation]
}

/// In a child whose machine has a driver of that generation.
pub fn on(generation: u16, act: impl FnOnce(&Library) -> u64) -> Ended {
    let library = library(generation);
    in_child(|| {
        become_a_machine_of(generation);
        act(library)
    })
}

/// As [`on`], with lines brought back.
pub fn told_on(generation: u16, act: impl FnOnce(&Library) -> Vec<String>) -> Vec<String> {
    let library = library(generation);
    told(|| {
        become_a_machine_of(generation);
        act(library)
    })
}

fn become_a_machine_of(generation: u16) {
    set_environment("RINGFENCE_MACHINE", format!("h200+{generation}").as_bytes());
}

#[test]
fn the_driver_says_its_generations_version() {
    let versions = [
        (470, 11040),
        (525, 12000),
        (535, 12020),
        (550, 12040),
        (555, 12050),
        (580, 13000),
        (615, 13050),
        (999, 99000),
    ];
    for (generation, expected) in versions {
        let ended = on(generation, |cuda| {
            let mut version = 0u64;
            assert_eq!(
                cuda.call("cuDriverGetVersion", &[crate::out(&mut version)]),
                0
            );
            version
        });
        assert_eq!(ended, Ended::Answered(expected), "{generation}");
    }
}
