//! Debian's ffmpeg, unmodified: frames go up to Vulkan images and come down again as they were. Skipped, aloud, where it
//! is not installed.

use std::path::Path;

use crate::environment::Environment;

const FFMPEG: &str = "/usr/bin/ffmpeg";

/// One line per frame, with its checksum.
fn frames(environment: &Environment, filter: &str) -> Vec<String> {
    let output = environment
        .command(FFMPEG)
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
        .expect("ffmpeg starts");
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{filter}: {}\n{err}",
        output.status
    );
    let lines = out.lines().filter(|line| !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

#[test]
fn frames_come_down_as_they_went_up() {
    if !Path::new(FFMPEG).exists() {
        return crate::missing::skip("ffmpeg is not installed (Debian: ffmpeg)");
    }
    let environment = Environment::new("h200");
    for format in ["nv12", "yuv420p", "rgba", "p010le", "gray", "yuv444p16le"] {
        let there = frames(&environment, &format!("format={format}"));
        let back = frames(
            &environment,
            &format!("format={format},hwupload,hwdownload,format={format}"),
        );
        assert_eq!(there.len(), 5);
        assert_eq!(back, there, "{format}");
    }
    assert!(
        environment
            .trace()
            .contains(r#""entry":"vkCmdCopyImageToBuffer""#),
        "the frames went through images"
    );
}
