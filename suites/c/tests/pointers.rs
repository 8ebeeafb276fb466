//! A library whose pointers are named like CUDA's functions, and which fills them by look-ups, lives under the preload and is held (C13).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use harness::environment::{Environment, Request};
use harness::{Driver, Libraries, Target};

fn compiled(directory: &Path, name: &str, flags: &[&str]) -> std::path::PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("witness/pointers.c");
    let output = directory.join(name);
    let headers = c_witness::Headers::usual().unwrap_or_else(|error| panic!("{error}"));
    c_witness::compile(&headers, &source, &output, flags).unwrap_or_else(|error| panic!("{error}"));
    output
}

/// How the program comes by the library.
#[derive(Clone, Copy)]
enum Program {
    Linked,
    Opens,
    /// And has a dlsym of its own, which finds libc's by its version.
    OwnLookUp,
}

/// What the program was told, by name.
fn told(target: &str, budget: &str, program: Program, flags: &[&str]) -> BTreeMap<String, i64> {
    let directory = tempfile::tempdir().expect("a directory");
    let shared = ["-shared", "-fPIC", "-ldl"].iter().chain(flags).copied();
    let library = compiled(
        directory.path(),
        "libpointers.so",
        &shared.collect::<Vec<_>>(),
    );
    let place = library.display().to_string();
    let rpath = format!("-Wl,-rpath,{}", directory.path().display());
    let program = match program {
        Program::Linked => vec![&place[..], &rpath],
        Program::Opens => vec!["-DPLUGIN", "-ldl"],
        Program::OwnLookUp => vec!["-DPLUGIN", "-DOWN_LOOK_UP", "-rdynamic", "-ldl"],
    };
    let program = compiled(
        directory.path(),
        "program",
        &[&["-DPROGRAM"], &program[..]].concat(),
    );
    let driver = Driver::default();
    let target = Target::named(target).expect("a target");
    let environment = Environment::create(&Request {
        budget,
        ..Request::new("pointers", &target, &driver)
    })
    .unwrap_or_else(|error| panic!("{error}"));
    let mut command = Command::new(program);
    command.arg(library);
    environment
        .plan
        .apply(&mut command, Libraries::Both)
        .unwrap_or_else(|error| panic!("{error}"));
    let output = command.output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}: {text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text.lines()
        .map(|line| {
            let (name, value) = line.split_once(' ').expect("a name and a number");
            (name.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

/// As bare: pointers are empty until they are filled, and call the driver then; `refused` is what 8 GiB are answered.
fn lives(told: &BTreeMap<String, i64>, refused: i64) {
    assert!(
        told.get("empty").is_none_or(|empty| *empty == 1),
        "{told:?}"
    );
    assert_eq!((told["filled"], told["emptied"]), (0, 0), "{told:?}");
    assert_eq!((told["granted"], told["refused"]), (0, refused), "{told:?}");
}

#[test]
fn a_linked_library_keeps_its_pointers() {
    for flags in [&[][..], &["-Wl,-z,relro,-z,now"]] {
        lives(&told("none", "", Program::Linked, flags), 0);
        lives(&told("ours", "0=4GiB", Program::Linked, flags), 2);
        lives(&told("passthrough", "", Program::Linked, flags), 0);
        lives(&told("proxy", "0=4GiB", Program::Linked, flags), 2);
    }
}

#[test]
fn a_plugin_keeps_its_pointers() {
    for (program, flags) in [
        (Program::Opens, &[][..]),
        (Program::Opens, &["-Wl,-z,relro,-z,now"]),
        (Program::OwnLookUp, &[]),
    ] {
        lives(&told("none", "", program, flags), 0);
        lives(&told("ours", "0=4GiB", program, flags), 2);
        lives(&told("passthrough", "", program, flags), 0);
    }
}
