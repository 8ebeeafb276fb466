//! Debian's ffmpeg, unmodified, as a tenant: frames go up to the card by CUDA and come down as they were, with the interposer
//! in between as without it. Skipped, aloud, where it is not installed.

use std::path::Path;
use std::process::{Command, Output};

#[path = "../../missing.rs"]
mod missing;

const FFMPEG: &str = "/usr/bin/ffmpeg";

/// What leads to a card: ffmpeg's own device for filters, or the one that `hwupload_cuda` opens by itself.
const DEVICE: &[&str] = &["-init_hw_device", "cuda=c:0", "-filter_hw_device", "c"];

/// ffmpeg on five pictures of odd chroma, with a checksum per frame on its standard output.
fn ffmpeg(target: &str, memory: &str, trace: &Path, device: &[&str], filter: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ringfence"))
        .args(["exec", "--profile", "h200", "--memory", memory])
        .arg("--trace")
        .arg(trace)
        .args(["--target", target, "--", FFMPEG])
        .args(["-hide_banner", "-loglevel", "error"])
        .args(device)
        .args([
            "-f",
            "lavfi",
            "-i",
            "testsrc2=size=322x242:rate=5:duration=1",
        ])
        .args(["-vf", filter, "-f", "framemd5", "-"])
        .output()
        .expect("ringfence starts")
}

/// One line per frame, and how many copies the driver was asked for.
fn frames(target: &str, device: &[&str], filter: &str) -> (Vec<String>, usize) {
    let directory = tempfile::tempdir().expect("a directory");
    let trace = directory.path().join("trace.json");
    let output = ffmpeg(target, "0=4GiB", &trace, device, filter);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && err.is_empty(),
        "{target}, {filter}: {}\n{err}",
        output.status
    );
    let lines = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|line| line.starts_with(|first: char| first.is_ascii_digit()))
        .map(str::to_owned)
        .collect();
    let asked = std::fs::read_to_string(&trace).unwrap_or_default();
    (lines, asked.matches("\"cuMemcpy2DAsync_v2\"").count())
}

fn is_installed() -> bool {
    let there = Path::new(FFMPEG).exists();
    if !there {
        missing::skip(format_args!("{FFMPEG} is not there"));
    }
    there
}

#[test]
fn frames_come_down_as_they_went_up_with_and_without_the_interposer() {
    if !is_installed() {
        return;
    }
    for format in ["nv12", "yuv420p", "p010le", "yuv444p", "bgr0"] {
        let (there, copies) = frames("none", &[], &format!("format={format}"));
        assert_eq!((there.len(), copies), (5, 0));
        for (device, upload) in [(DEVICE, "hwupload"), (&[], "hwupload_cuda")] {
            let filter = format!("format={format},{upload},hwdownload,format={format}");
            for target in ["none", "ours"] {
                let (back, copies) = frames(target, device, &filter);
                assert_eq!(back, there, "{target}, {filter}");
                // Each plane of each frame, up and down: at least one.
                assert!(copies >= 10, "{target}, {filter}: {copies}");
            }
        }
    }
}

/// Filters with kernels find them in their module and launch them; what they compute is not looked at.
#[test]
fn filters_with_kernels_run_to_the_end() {
    if !is_installed() {
        return;
    }
    // The last frees its memory without a current context.
    let kernels = [
        ("scale_cuda=160:120", 5),
        ("yadif_cuda", 5),
        ("thumbnail_cuda=2", 3),
    ];
    for (kernel, pictures) in kernels {
        let filter = format!("format=nv12,hwupload,{kernel},hwdownload,format=nv12");
        for target in ["none", "ours"] {
            let (back, _) = frames(target, DEVICE, &filter);
            assert_eq!(back.len(), pictures, "{target}, {kernel}");
        }
    }
}

#[test]
fn a_budget_too_small_is_out_of_memory_for_ffmpeg() {
    if !is_installed() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let trace = directory.path().join("trace.json");
    let filter = "scale=7680x4320,format=nv12,hwupload,hwdownload,format=nv12";
    let run = |target| ffmpeg(target, "0=256MiB", &trace, DEVICE, filter);
    assert!(run("none").status.success());
    let refused = run("ours");
    let err = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success());
    assert!(err.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{err}");
}
