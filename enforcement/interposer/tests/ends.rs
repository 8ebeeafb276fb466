//! When a charge ends, by a driver whose streams never get on by themselves: not before the memory is certainly gone.

use std::path::{Path, PathBuf};
use std::process::Command;

fn compile(source: &str, output: &Path, arguments: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/c")
        .join(source);
    let status = Command::new("cc")
        .arg("-o")
        .arg(output)
        .arg(source)
        .args(arguments)
        .status()
        .expect("cc runs");
    assert!(status.success());
}

fn ours() -> PathBuf {
    let mut path = std::env::current_exe().expect("this executable has a path");
    path.set_file_name("libvgpu.so");
    path
}

/// What a program says under a budget of 6 GiB.
fn said(program: &str) -> String {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| directory.path().join(name);
    let soname = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"];
    compile("deferred.c", &at("libcuda.so.1"), &soname);
    compile(&format!("{program}.c"), &at(program), &["-ldl"]);
    let output = Command::new(at(program))
        .env_clear()
        .env("LD_LIBRARY_PATH", directory.path())
        .env("LD_PRELOAD", ours())
        .env("CUDA_DEVICE_MEMORY_LIMIT", "6g")
        .env("RINGFENCE_LEDGER", at("ledger"))
        .output()
        .expect("the program runs");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// 4 of 6 GiB are freed on a stream that does not get on: no wait for another stream, and no refusal, makes them free.
#[test]
fn memory_freed_in_a_streams_order_is_not_granted_again_before_its_context_was_waited_for() {
    assert_eq!(
        said("waits"),
        "begun=0\nfreed=0\nat once=2\nstream=0,2\nevent=0,2\ncontext=0,0\nmost=4\n"
    );
}

/// An allocation that turns out to cost more than was reserved for it is freed before the reservation is given up. Where nothing is left,
/// the driver still says what is wrong with a context's parameters.
#[test]
fn what_cannot_be_charged_is_freed_before_its_reservation_is_anybodys() {
    assert_eq!(
        said("straddles"),
        "begun=0\nstraddling=2\nwhile it was held=0\nafter=4\ncontexts=2,1,1\n"
    );
}

/// 5 of 6 GiB of a pool are freed on a stream that does not get on: what small requests of another stream take beside them ends with the budget,
/// less the context and cuInit, and the pool's last steps.
#[test]
fn small_requests_beside_memory_that_is_still_to_be_freed_end_with_the_budget() {
    const LEFT: u64 = 6 * 1024 - 672 - 4;
    let said = said("pools");
    let pool = said
        .lines()
        .find_map(|line| line.strip_prefix("pool=")?.parse::<u64>().ok())
        .expect("a figure");
    assert!((5 * 1024..=LEFT + 64).contains(&pool), "{said}");
}

/// A driver that calls the program back from its cuInit and its cuCtxCreate, where the program calls both again: nobody waits for himself, and
/// cuInit is charged once.
#[test]
fn a_driver_may_call_back_into_a_program_that_calls_it_again() {
    assert_eq!(
        said("reenters"),
        "init=0,0\nleft=0,3328 KiB taken\ncreate=0,0\n"
    );
}
