//! The trace as several processes write it.

#[path = "support/child.rs"]
mod child;

use child::{End, fork};
use mock_device::{Api, TraceRecord, World, WorldSpec, profile};

fn record(entry: &str, size: u64) -> impl Fn(&World) + '_ {
    move |world| {
        let args = [("bytesize", size.into()), ("dptr", "mem#1".into())];
        world.trace(&TraceRecord {
            api: Api::Cuda.name(),
            entry,
            args: &args,
            answer: 0.into(),
        });
    }
}

#[test]
fn a_world_without_a_trace_file_traces_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::create(
        &folder.path().join("world"),
        &WorldSpec::new(profile::embedded("tiny").unwrap()),
    )
    .unwrap();
    assert!(!world.tracing());
    record("cuInit", 0)(&world);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn lines_of_many_processes_never_mix_and_say_nothing_of_the_machine() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.jsonl");
    let spec = WorldSpec {
        trace: Some(trace.clone()),
        ..WorldSpec::new(profile::embedded("tiny").unwrap())
    };
    let world = World::create(&folder.path().join("world"), &spec).unwrap();
    assert!(world.tracing());
    let name = "x".repeat(300);
    let children: Vec<_> = (0..4)
        .map(|_| {
            fork(|_| {
                let own = World::open(&folder.path().join("world")).unwrap();
                (0..200).for_each(|_| record(&name, 7)(&own));
                0
            })
        })
        .collect();
    for mut child in children {
        assert_eq!(child.reap(), End::Exit(0));
    }
    let expected = format!(
        "{{\"api\":\"cuda\",\"entry\":\"{name}\",\"args\":{{\"bytesize\":7,\"dptr\":\"mem#1\"}},\"answer\":0}}"
    );
    let text = std::fs::read_to_string(&trace).unwrap();
    assert_eq!(text.lines().filter(|line| *line == expected).count(), 800);
    assert_eq!(text.lines().count(), 800);
}

/// Daemons close every descriptor, and open files of their own under the same numbers.
#[test]
fn a_guest_that_reuses_the_descriptor_neither_loses_the_trace_nor_finds_it_in_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, own) = (folder.path().join("trace.jsonl"), folder.path().join("own"));
    let spec = WorldSpec {
        trace: Some(trace.clone()),
        ..WorldSpec::new(profile::embedded("tiny").unwrap())
    };
    let world = World::create(&folder.path().join("world"), &spec).unwrap();
    let mut guest = fork(|line| {
        // SAFETY: no descriptor closed here is used again, but by the trace, which must notice.
        unsafe {
            (3..256)
                .filter(|fd| !line.uses(*fd))
                .for_each(|fd| assert!(libc::close(fd) <= 0))
        };
        let files: Vec<_> = (0..32)
            .map(|_| {
                std::fs::OpenOptions::new()
                    .create(true)
                    .append(true)
                    .open(&own)
                    .unwrap()
            })
            .collect();
        record("cuInit", 0)(&world);
        i32::from(files.len() != 32)
    });
    assert_eq!(guest.reap(), End::Exit(0));
    assert_eq!(std::fs::read_to_string(&own).unwrap(), "");
    assert_eq!(std::fs::read_to_string(&trace).unwrap().lines().count(), 1);
}
