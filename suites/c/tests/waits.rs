//! Threads that are cancelled (pthread_cancel) in the driver's functions end there, with a budget as without. The mocks' frames are Rust's, which no
//! cancellation may unwind: the driver is a C library of a few functions.

use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{Library, artifacts};

/// The driver and the program, in a folder of their own.
fn built() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let witness = Path::new(env!("CARGO_MANIFEST_DIR")).join("witness");
    let headers = c_witness::Headers::usual().unwrap_or_else(|error| panic!("{error}"));
    let compile = |source: &str, output: &Path, flags: &[&str]| {
        // A driver of a few functions uses few of their parameters.
        let flags = [flags, &["-Wno-unused-parameter"]].concat();
        c_witness::compile(&headers, &witness.join(source), output, &flags)
            .unwrap_or_else(|error| panic!("{error}"));
    };
    compile(
        "waits_driver.c",
        &folder.path().join("libcuda.so.1"),
        &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"],
    );
    let program = folder.path().join("waits");
    compile("waits.c", &program, &["-lpthread", "-ldl"]);
    (folder, program)
}

/// What the program says and how it ended, without us and with a budget.
fn said(arguments: &[&str]) -> [String; 2] {
    let (folder, program) = built();
    let interposer = artifacts::find(Library::Interposer).unwrap_or_else(|error| panic!("{error}"));
    [false, true].map(|ours| {
        let mut command = Command::new(&program);
        command
            .args(arguments)
            .env("LD_LIBRARY_PATH", folder.path());
        if ours {
            command
                .env("LD_PRELOAD", &interposer)
                .env("RINGFENCE_LEDGER", folder.path().join("ledger"))
                .env("CUDA_DEVICE_MEMORY_LIMIT_0", "4g");
        }
        let output = command.output().expect("the program starts");
        let text = String::from_utf8_lossy(&output.stdout);
        format!("{}{}", text, output.status)
    })
}

#[test]
fn a_thread_that_waits_in_the_driver_is_cancelled_there() {
    for function in [
        "cuStreamSynchronize",
        "cuCtxSynchronize",
        "cuEventSynchronize",
    ] {
        let [bare, ours] = said(&["wait", function]);
        assert_eq!(
            bare,
            "1 of 1 cancelled, 1 cleaned up, then 0\nexit status: 0"
        );
        assert_eq!(ours, bare, "{function} with a budget");
    }
}

#[test]
fn a_thread_that_is_cancelled_at_once_wherever_it_is_ends_the_thread_alone() {
    let [bare, ours] = said(&["at-once"]);
    assert_eq!(
        bare,
        "100 of 100 cancelled, 100 cleaned up, then 0\nexit status: 0"
    );
    assert_eq!(ours, bare, "with a budget");
}
