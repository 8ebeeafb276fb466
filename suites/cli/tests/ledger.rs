//! `ringfence ledger set` and `show` as an owner types them, beside a process of the tenant that runs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ledger::{Authority, Bytes, DeviceIndex, Ledger, Setup, View};

const FIRST: DeviceIndex = DeviceIndex(0);
const GIB: u64 = 1 << 30;

/// A tenant of a machine with two GPUs of 48 GiB: 4 GiB of the first, all of the second.
struct Tenant {
    _directory: tempfile::TempDir,
    path: PathBuf,
    ledger: Ledger,
}

impl Tenant {
    fn new() -> Tenant {
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let path = directory.path().join("ledger");
        let mut setup = Setup::default();
        setup.budgets[0] = Some(Bytes(4 * GIB));
        let ledger = Ledger::attach(&path, &setup).expect("a ledger");
        for device in [0, 1] {
            ledger.note_total(DeviceIndex(device), Bytes(48 * GIB));
        }
        Tenant {
            _directory: directory,
            path,
            ledger,
        }
    }

    fn set(&self, arguments: &[&str]) -> Output {
        set(&self.path, arguments)
    }

    /// Status 0; what it printed.
    fn sets(&self, arguments: &[&str]) -> String {
        let output = self.set(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {stderr}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn takes(&self, bytes: u64) -> bool {
        self.ledger
            .reserve(FIRST, Bytes(bytes))
            .map(ledger::Reservation::commit)
            .is_ok()
    }
}

fn set(path: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ringfence"))
        .args(["ledger", "set"])
        .arg(path)
        .args(arguments)
        .output()
        .expect("ringfence starts")
}

#[test]
fn a_running_process_obeys_at_once_and_keeps_what_it_has() {
    let tenant = Tenant::new();
    assert!(!tenant.takes(6 * GIB));
    let said = tenant.sets(&["--memory", "0=12GiB"]);
    assert_eq!(
        said,
        "device 0: memory budget 12884901888 bytes, was 4294967296 bytes; 0 bytes in use\n"
    );
    assert!(tenant.takes(6 * GIB));
    let said = tenant.sets(&["--memory", "0=2GiB"]);
    assert!(
        said.contains("6442450944 bytes in use: nothing more is granted until less is"),
        "{said}"
    );
    assert!(!tenant.takes(1));
    assert_eq!(tenant.ledger.usage(FIRST), Bytes(6 * GIB));
    tenant.ledger.release(FIRST, Bytes(5 * GIB));
    assert!(tenant.takes(GIB) && !tenant.takes(GIB));
    assert_eq!(tenant.ledger.budget(DeviceIndex(1)), None);
}

#[test]
fn a_size_is_read_as_in_the_settings_and_none_takes_a_budget_away() {
    let tenant = Tenant::new();
    for (text, bytes) in [
        ("0=4Gi", Some(4 * GIB)),
        ("0=1536m", Some(1536 << 20)),
        ("0=5368709120", Some(5 * GIB)),
        ("0=none", None),
        ("0=48g", Some(48 * GIB)),
    ] {
        tenant.sets(&["--memory", text]);
        assert_eq!(tenant.ledger.budget(FIRST), bytes.map(Bytes), "{text}");
    }
}

#[test]
fn compute_budgets_change_too_and_who_does_not_hear_of_them_is_said() {
    let tenant = Tenant::new();
    assert!(!tenant.ledger.is_timed());
    let said = tenant.sets(&["--compute", "0=25%"]);
    assert!(tenant.ledger.is_timed());
    assert!(
        said.starts_with(
            "device 0: compute budget 25%, was none; Vulkan processes that have begun are not"
        ),
        "{said}"
    );
    let said = tenant.sets(&["--compute", "0=12.5,1=100", "--memory", "1=8g"]);
    assert!(
        said.contains("device 0: compute budget 12.50%, was 25%\n"),
        "{said}"
    );
    assert_eq!(tenant.ledger.share(FIRST), 1_250);
    assert_eq!(tenant.ledger.share(DeviceIndex(1)), 0);
    assert_eq!(tenant.ledger.budget(DeviceIndex(1)), Some(Bytes(8 * GIB)));
    tenant.sets(&["--compute", "0=none"]);
    assert_eq!(tenant.ledger.share(FIRST), 0);
}

#[test]
fn what_is_wrong_is_named_and_nothing_is_changed() {
    let tenant = Tenant::new();
    for (arguments, wrong) in [
        (&["--memory", "1=1GiB,0=junk"][..], "\"0=junk\""),
        (&["--memory", "1=1GiB,0=4Gx"], "\"0=4Gx\""),
        (&["--memory", "1=1GiB,0=-4g"], "\"0=-4g\""),
        (&["--memory", "1=1GiB,0="], "\"0=\""),
        (&["--memory", "1=1GiB,0=0"], "write none"),
        (&["--memory", "1=1GiB,first=4g"], "\"first=4g\""),
        (&["--memory", "1=1GiB,4g"], "\"4g\""),
        (&["--memory", "1=1GiB,1=2GiB"], "before this one"),
        (
            &["--memory", "1=1GiB,2=1GiB"],
            "has seen a device 2, only 0, 1",
        ),
        (&["--memory", "1=1GiB,64=1GiB"], "64 devices"),
        (&["--memory", "1=1GiB,-1=1GiB"], "\"-1=1GiB\""),
        (
            &["--memory", "1=1GiB,0=49GiB"],
            "\"0=49GiB\": device 0 has 51539607552 bytes",
        ),
        (&["--memory", "1=1GiB", "--compute", "0=half"], "\"0=half\""),
        (
            &["--memory", "1=1GiB", "--compute", "0=101"],
            "more than 100%",
        ),
        (&["--memory", "1=1GiB", "--compute", "0=0"], "write none"),
        (&[], "--memory"),
    ] {
        let output = tenant.set(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(stderr.contains(wrong), "{arguments:?}: {stderr}");
        let budgets = [0, 1].map(|device| tenant.ledger.budget(DeviceIndex(device)));
        assert_eq!(budgets, [Some(Bytes(4 * GIB)), None], "{arguments:?}");
    }
}

#[test]
fn where_no_process_has_seen_a_device_only_the_ledger_bounds_a_budget() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let path = directory.path().join("ledger");
    drop(Ledger::attach(&path, &Setup::default()).expect("a ledger"));
    assert!(set(&path, &["--memory", "31=200GiB"]).status.success());
    let view = View::open(&path).expect("a ledger");
    assert_eq!(view.budget(DeviceIndex(31)), Some(Bytes(200 * GIB)));
    let output = set(&path, &["--memory", "31=4TiB"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("31=4TiB"));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn what_is_no_ledger_is_named_and_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("notes");
    std::fs::write(&path, "four lines of poetry").expect("a file");
    for (path, reason) in [
        (path.as_path(), "magic"),
        (Path::new("/no/such/ledger"), "No such file"),
    ] {
        let output = set(path, &["--memory", "0=4GiB"]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(
            stderr.contains(&path.display().to_string()) && stderr.contains(reason),
            "{stderr}"
        );
    }
    assert_eq!(
        std::fs::read_to_string(&path).expect("the file"),
        "four lines of poetry"
    );
}

#[test]
fn show_tells_what_was_set() {
    let tenant = Tenant::new();
    assert_eq!(
        tenant.ledger.join_share(FIRST, 5_000, Authority::Tenant),
        5_000
    );
    tenant.sets(&["--memory", "0=12GiB", "--compute", "0=12.5"]);
    assert!(tenant.takes(GIB));
    let shown = Command::new(env!("CARGO_BIN_EXE_ringfence"))
        .args(["ledger", "show"])
        .arg(&tenant.path)
        .output()
        .expect("ringfence starts");
    let text = String::from_utf8(shown.stdout).expect("text");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .take_while(|line| !line.is_empty())
        .map(|line| line.split_whitespace().collect())
        .collect();
    let first = [
        "0",
        "12884901888",
        "1073741824",
        "0",
        "12.50%",
        "51539607552",
    ];
    assert_eq!(rows[1], first, "{text}");
    assert_eq!(rows.len(), 2, "only what has a budget or is in use: {text}");
}
