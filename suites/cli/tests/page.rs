//! The HTML page in a real browser: headless Chromium shows a page of two targets, and what stands in it then is compared with the reports.

#[path = "../../missing.rs"]
mod missing;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const CASES: [&str; 3] = [
    "a_refusal_looks_like_a_full_card",
    "memory_holds_what_was_written",
    "a_refused_vulkan_allocation_writes_nothing",
];
const MIB: f64 = 1_048_576.0;

fn ringfence(arguments: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_ringfence"))
        .args(arguments)
        .output()
        .expect("ringfence starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
}

/// Starts of the browser: that it comes up on a loaded machine is not on trial.
const STARTS: u32 = 3;

fn browser(profile: &Path, arguments: &[&str]) -> Output {
    let mut last = None;
    for _ in 0..STARTS {
        let output = Command::new("timeout")
            .args(["--kill-after=5", "240", "chromium"])
            // Root has no sandbox, a container little of /dev/shm.
            .args(["--headless", "--no-sandbox", "--disable-gpu"])
            .args(["--disable-dev-shm-usage", "--no-first-run"])
            .args(["--disable-extensions", "--disable-background-networking"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .args(arguments)
            .output()
            .expect("timeout is part of coreutils");
        if output.status.success() {
            return output;
        }
        last = Some(output);
    }
    panic!("chromium {arguments:?}: {last:?}");
}

/// What the browser made of the page.
fn shown(profile: &Path, page: &Path, fragment: &str) -> String {
    let address = format!("file://{}#{fragment}", page.display());
    let output = browser(profile, &["--dump-dom", &address]);
    String::from_utf8(output.stdout).expect("text")
}

/// The values of an attribute in tags that begin so.
fn attributes<'a>(document: &'a str, tag: &str, name: &str) -> Vec<&'a str> {
    let name = format!(" {name}=\"");
    let tags = document.split(tag).skip(1).filter_map(|rest| {
        let rest = &rest[..rest.find('>')?];
        let value = &rest[rest.find(&name)? + name.len()..];
        value.split('"').next()
    });
    tags.collect()
}

fn rows(document: &str) -> Vec<&str> {
    attributes(document, "<tr class=\"case\"", "data-case")
}

/// Time and figure of every corner of a line.
fn corners(points: &str) -> Vec<(f64, f64)> {
    let number = |text: &str| text.parse::<f64>().expect("a number");
    let corner = |corner: &str| {
        let (x, y) = corner.split_once(',').expect("two numbers");
        (number(x), number(y))
    };
    points.split(' ').map(corner).collect()
}

/// The corners that a figure's readings come to: each holds until the next.
fn expected(course: &Value, figure: usize) -> Vec<(f64, f64)> {
    let mut corners: Vec<(f64, f64)> = Vec::new();
    for point in course["points"].as_array().expect("points") {
        let Some(bytes) = point[figure].as_f64() else {
            continue;
        };
        let (at, value) = (point[0].as_f64().expect("a time"), bytes / MIB);
        if let Some(&(_, last)) = corners.last()
            && last != value
        {
            corners.push((at, last));
        }
        corners.push((at, value));
    }
    corners
}

#[test]
fn the_page_shows_in_a_browser_what_the_reports_say() {
    let found = Command::new("chromium").arg("--version").output();
    if !found.is_ok_and(|output| output.status.success()) {
        return missing::skip("chromium is not installed");
    }
    let folder = tempfile::tempdir().expect("a directory");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (page, merged) = (folder.path().join("page.html"), path("merged.json"));
    for target in ["ours", "none"] {
        let report = format!("json={}", path(target));
        let tail = ["--target", target, "--report", &report];
        ringfence(&[&["test"], &CASES[..], &tail].concat());
    }
    let reports = [format!("html={}", page.display()), format!("json={merged}")];
    ringfence(&[
        "report",
        "merge",
        &path("ours"),
        &path("none"),
        "--report",
        &reports[0],
        &reports[1],
    ]);
    let text = std::fs::read_to_string(&merged).expect("a report");
    let results: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .filter(|value: &Value| value["line"] == "result")
        .collect();
    let profile = folder.path().join("profile");

    // Everything: a row for each case, a verdict for each result.
    let all = shown(&profile, &page, "");
    let mut names = rows(&all);
    names.sort_unstable();
    let mut promised = CASES;
    promised.sort_unstable();
    assert_eq!(names, promised);
    let count = |document: &str, words: &str| document.matches(words).count();
    let verdicts = attributes(&all, "<td class=\"verdict\"", "data-verdict");
    assert_eq!(verdicts.len(), results.len());
    let failed = results
        .iter()
        .filter(|of| of["verdict"] == "ExpectedFail")
        .count();
    assert!(failed > 0, "without an enforcer budget cases fail: {text}");
    assert_eq!(
        verdicts.iter().filter(|of| **of == "ExpectedFail").count(),
        failed
    );
    assert_eq!(count(&all, ">3 of 3 cases</output>"), 1);
    assert_eq!(count(&all, "<polyline"), 0);

    // A filter by area, one by text, and the plots of a case that is open.
    let vulkan = shown(&profile, &page, "area=vulkan&status=ExpectedFail");
    assert_eq!(rows(&vulkan), [CASES[2]]);
    let open = shown(
        &profile,
        &page,
        &format!("text=FULL+card&case={}", CASES[0]),
    );
    assert_eq!(rows(&open), [CASES[0]]);
    assert_eq!(count(&open, ">1 of 3 cases</output>"), 1);
    let of_case = results.iter().filter(|of| of["name"] == CASES[0]);
    let courses: Vec<&Value> = of_case
        .flat_map(|of| of["courses"].as_array().expect("what was held"))
        .collect();
    assert_eq!(courses.len(), 2, "one device under each target: {text}");
    for (class, figure) in [("held", 1), ("charged", 2)] {
        let tag = format!("<polyline class=\"{class}\"");
        let lines = attributes(&open, &tag, "points");
        assert_eq!(lines.len(), courses.len(), "{open}");
        for (line, course) in lines.iter().zip(&courses) {
            let expected = expected(course, figure);
            match expected[..] {
                [] => assert_eq!(*line, ""),
                _ => assert_eq!(corners(line), expected),
            }
        }
    }
    // Under ours there is a line of the ledger, and it rises above nothing.
    let ledger = expected(courses[0], 2);
    assert!(ledger.iter().any(|(_, mib)| *mib > 500.0), "{}", courses[0]);

    let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report.png");
    let _ = std::fs::remove_file(&picture);
    let address = format!("file://{}#case={}", page.display(), CASES[0]);
    let screenshot = format!("--screenshot={}", picture.display());
    browser(
        &profile,
        &["--window-size=1300,1500", &screenshot, &address],
    );
    let png = std::fs::read(&picture).expect("a picture");
    assert!(png.starts_with(b"\x89PNG"), "{}", picture.display());
}
