//! A night on the mock: what it leaves behind, and what it says when something is worse than in the last good one.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const FEW: [&str; 2] = [
    "a_refusal_looks_like_a_full_card",
    "memory_holds_what_was_written",
];

fn night(out: &Path, further: &[&str], cases: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ringfence"))
        .args(["nightly", "--driver", "mock", "--target", "ours", "--out"])
        .arg(out)
        .args(further)
        .args(cases)
        .output()
        .expect("ringfence starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Where the last line says that the night is.
fn place(output: &Output) -> PathBuf {
    let text = String::from_utf8_lossy(&output.stdout);
    PathBuf::from(text.lines().last().expect("a line"))
}

#[test]
fn a_night_is_compared_with_the_last_good_one() {
    let folder = tempfile::tempdir().expect("a directory");
    let out = folder.path();
    let first = night(out, &[], &FEW);
    assert!(first.status.success(), "{}", said(&first));
    assert!(said(&first).contains("nothing to compare with"));
    let good = place(&first);
    for file in [
        "report.json",
        "report.html",
        "junit.xml",
        "probe.toml",
        "verdict.txt",
    ] {
        let file = good.join(file);
        let size = std::fs::metadata(&file).map_or(0, |file| file.len());
        assert!(size > 0, "{}: {}", file.display(), said(&first));
    }
    for case in FEW {
        let trace = good.join("traces").join(format!("{case}.jsonl"));
        assert!(trace.is_file(), "{}", trace.display());
    }
    let link = out.join("last-good");
    assert_eq!(link.canonicalize().ok(), good.canonicalize().ok());

    // The same again, but for a case that is run no longer, and a call that the driver answered otherwise then.
    let trace = good.join("traces").join(format!("{}.jsonl", FEW[0]));
    let text = std::fs::read_to_string(&trace).expect("a trace");
    let (before, after) = ("\"entry\":\"cuInit\"", "\"answer\":0");
    let at = text.find(before).expect("a first call");
    let answer = at + text[at..].find(after).expect("its answer");
    let planted = format!(
        "{}\"answer\":3{}",
        &text[..answer],
        &text[answer + after.len()..]
    );
    std::fs::write(&trace, planted).expect("it is written");
    let worse = night(out, &[], &FEW[..1]);
    assert_eq!(worse.status.code(), Some(1), "{}", said(&worse));
    for words in [
        format!(
            "REGRESSION: ours on mock:rtx6000-ada+580: {}: not run, it was Pass",
            FEW[1]
        ),
        format!("REGRESSION: trace of {}: cuInit: answers 3 | 0", FEW[0]),
        "verdict: 3 regressions".to_owned(),
    ] {
        assert!(said(&worse).contains(&words), "{words}: {}", said(&worse));
    }
    assert!(
        said(&worse).contains("driver: nothing that breaks a hook"),
        "{}",
        said(&worse)
    );
    assert_eq!(link.canonicalize().ok(), good.canonicalize().ok());

    // With that put right and all of the cases it is a good one.
    std::fs::write(&trace, text).expect("it is written");
    let again = night(out, &[], &FEW);
    assert!(again.status.success(), "{}", said(&again));
    assert!(said(&again).contains("compared with"), "{}", said(&again));
    assert_ne!(place(&again), good);
    assert_eq!(link.canonicalize().ok(), place(&again).canonicalize().ok());
}

#[test]
fn what_is_no_night_is_named_before_anything_is_run() {
    let folder = tempfile::tempdir().expect("a directory");
    let nowhere = folder.path().join("nowhere");
    let nowhere = nowhere.to_str().expect("a name");
    let output = night(folder.path(), &["--last-good", nowhere], &FEW);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains(nowhere), "{}", said(&output));

    let output = night(folder.path(), &["--target", "nobody"], &FEW);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("nobody"), "{}", said(&output));
    assert_eq!(folder.path().read_dir().expect("a directory").count(), 0);
}
