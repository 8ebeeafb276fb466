//! Debian's ffmpeg, unmodified, as a tenant: frames go up to Vulkan images and come down as they were, with the layer in
//! between as without it. Skipped, aloud, where it is not installed.

use std::path::Path;
use std::process::Command;

#[path = "../../missing.rs"]
mod missing;

const FFMPEG: &str = "/usr/bin/ffmpeg";

/// One line per frame, with its checksum.
fn frames(target: &str, filter: &str) -> Vec<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_ringfence"))
        .args(["exec", "--profile", "h200", "--memory", "0=4GiB"])
        .args(["--target", target, "--", FFMPEG])
        .args(["-hide_banner", "-loglevel", "error"])
        .args(["-init_hw_device", "vulkan=v:0", "-filter_hw_device", "v"])
        .args([
            "-f",
            "lavfi",
            "-i",
            "testsrc2=size=322x242:rate=5:duration=1",
        ])
        .args(["-vf", filter, "-f", "framemd5", "-"])
        .output()
        .expect("ringfence starts");
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{target}, {filter}: {}\n{err}",
        output.status
    );
    let lines = out
        .lines()
        .filter(|line| line.starts_with(|first: char| first.is_ascii_digit()));
    lines.map(str::to_owned).collect()
}

#[test]
fn frames_come_down_as_they_went_up_with_and_without_the_layer() {
    if !Path::new(FFMPEG).exists() {
        return missing::skip(format_args!("{FFMPEG} is not there"));
    }
    let there = frames("none", "format=nv12");
    assert_eq!(there.len(), 5);
    for target in ["none", "ours"] {
        let back = frames(target, "format=nv12,hwupload,hwdownload,format=nv12");
        assert_eq!(back, there, "{target}");
    }
}
