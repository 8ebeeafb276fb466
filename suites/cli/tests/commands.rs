//! The commands as a user types them: a program's exit status is passed on, and what is wrong is named.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn ringfence(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ringfence"))
        .args(arguments)
        .output()
        .expect("ringfence starts")
}

/// Status 2, nothing on stdout, and the wrong word on stderr.
fn assert_names(arguments: &[&str], wrong: &str) {
    let output = ringfence(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert!(stderr.contains(wrong), "{arguments:?}: {stderr}");
}

#[test]
fn the_programs_exit_status_is_passed_on() {
    let status = |script| {
        ringfence(&["exec", "--target", "none", "--", "sh", "-c", script])
            .status
            .code()
    };
    assert_eq!(status("exit 0"), Some(0));
    assert_eq!(status("exit 9"), Some(9));
    assert_eq!(status("kill -KILL $$"), Some(128 + 9));
}

/// A thread that did would be ended by them, or drop the word of the program's end, which exec waits for.
#[test]
fn no_other_thread_of_exec_takes_the_signals_that_it_waits_for() {
    let waited = [1, 2, 3, 15, 17].map(|signal: u32| 1_u64 << (signal - 1));
    let script = "for task in /proc/$PPID/task/*; do
        [ ${task##*/} = $PPID ] || grep SigBlk $task/status
    done";
    let output = ringfence(&["exec", "--target", "none", "--", "sh", "-c", script]);
    let told = String::from_utf8_lossy(&output.stdout);
    let masks = told.lines().filter_map(|line| {
        let mask = line.strip_prefix("SigBlk:")?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    let masks: Vec<u64> = masks.collect();
    assert!(!masks.is_empty(), "one watches the world");
    for mask in masks {
        assert!(
            waited.iter().all(|signal| mask & signal != 0),
            "blocked are {mask:x}"
        );
    }
}

/// The program ends by it, and its environment does not stay behind.
#[test]
fn whoever_ends_exec_ends_its_program() {
    let script = "echo $RINGFENCE_WORLD; exec sleep 1000";
    let mut exec = Command::new(env!("CARGO_BIN_EXE_ringfence"))
        .args(["exec", "--target", "none", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .expect("ringfence starts");
    let mut world = String::new();
    BufReader::new(exec.stdout.take().expect("its output"))
        .read_line(&mut world)
        .expect("a line");
    let world = Path::new(world.trim_end());
    assert!(world.exists(), "{}", world.display());
    let sent = Command::new("sh")
        .args(["-c", &format!("kill -TERM {}", exec.id())])
        .status();
    assert!(sent.expect("sh starts").success());
    let status = exec.wait().expect("its end");
    assert_eq!(status.code(), Some(128 + 15));
    assert!(!world.parent().expect("a folder").exists());
}

#[test]
fn a_program_that_does_not_exist_is_named_with_the_shells_status() {
    let output = ringfence(&["exec", "--target", "none", "--", "no-such-program"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such-program"));
}

#[test]
fn the_program_sees_the_simulated_machine_and_the_budget() {
    let script = "echo $LD_PRELOAD $CUDA_DEVICE_MEMORY_LIMIT_0 $HAMI_VULKAN_ENABLE; test -e $RINGFENCE_WORLD";
    let output = ringfence(&["exec", "--memory", "0=4GiB", "--", "sh", "-c", script]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}");
    assert!(
        stdout.trim_end().ends_with("libvgpu.so 4294967296 1"),
        "{stdout}"
    );
}

#[test]
fn a_wrong_word_is_named() {
    assert_names(&["exec", "--profile", "rtx9000", "--", "true"], "rtx9000");
    assert_names(&["exec", "--profile", "rtx9000", "--", "true"], "h200-mig");
    assert_names(&["exec", "--memory", "0=4Gi", "--", "true"], "0=4Gi");
    assert_names(&["exec", "--memory", "7=4GiB", "--", "true"], "7=4GiB");
    assert_names(
        &["exec", "--fault", "/no/such/plan", "--", "true"],
        "/no/such/plan",
    );
    assert_names(&["exec", "--target", "theirs", "--", "true"], "theirs");
    assert_names(&["test", "--driver", "mock:h200+471"], "471");
    assert_names(
        &["exec", "--driver", "mock:h200+535-cuNope", "--", "true"],
        "cuNope",
    );
    assert_names(&["exec", "--profile", "h200+", "--", "true"], "h200+");
    assert_names(&["test", "--report", "pdf=x"], "pdf=x");
    assert_names(
        &["test", "--report", "html=/no/such/folder/x"],
        "/no/such/folder",
    );
    assert_names(&["test", "--shard", "9/8"], "9/8");
    assert_names(&["report", "merge", "/no/such/report"], "/no/such/report");
    assert_names(&["test", "no-such-case"], "no-such-case");
    assert_names(
        &["trace-diff", "/no/such/trace", "/"],
        "/no/such/trace: No such file",
    );
    assert_names(&["ledger", "show", "/no/such/ledger"], "/no/such/ledger");
    assert_names(&["frobnicate"], "frobnicate");
}

/// A filter is a part of a case's name or of where it stands.
#[test]
fn a_filter_names_cases_by_their_modules_too() {
    let listed = |filter: &str| {
        let output = ringfence(&["list", filter]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let all = listed("workloads");
    let embedders = listed("embedder");
    assert!(embedders.lines().count() > 20, "{embedders}");
    assert!(
        embedders.lines().count() < all.lines().count(),
        "{embedders}"
    );
}

/// A part that no case of the filter belongs to is no time, not less than none.
#[test]
fn an_empty_shard_took_no_time() {
    let one = ["test", "a_refusal_looks_like_a_full_card", "--shard"];
    let parts = ["1/2", "2/2"].map(|shard| ringfence(&[&one[..], &[shard]].concat()));
    let said = parts.map(|part| String::from_utf8_lossy(&part.stdout).into_owned());
    let empty = said.iter().find(|said| said.contains("0 of 0 as expected"));
    let empty = empty.expect("one of the two has no case");
    assert!(
        empty.contains(" 0.0\n") && !empty.contains("-0.0"),
        "{empty}"
    );
}

/// An enforcer that refuses whatever asks for memory keeps no promise of a budget, but for those that promise a refusal or a figure alone.
#[test]
fn who_grants_nothing_is_found_out() {
    let cases = ["no_way_past", "allocates_to_the_budget", "tells_the_budget"];
    let asked = ["test", "--target", "refusing"];
    let output = ringfence(&[&asked[..], &cases].concat());
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("nothing is granted here"), "{said}");
}

/// A run goes on when its program's file is replaced, as `cargo test` does beside it.
#[test]
fn a_run_outlives_its_programs_file() {
    let built = Path::new(env!("CARGO_BIN_EXE_ringfence"));
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("ringfence");
    std::fs::copy(built, &program).expect("a copy");
    let libraries = built.parent().expect("a folder").join("deps");
    let run = Command::new(&program)
        .args(["test", "a_refusal_looks_like_a_full_card", "two_processes"])
        .env("RINGFENCE_LIB_DIR", libraries)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    std::fs::remove_file(&program).expect("it can be removed");
    let output = run.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(!said.contains("Missing"), "{said}");
}

/// A thread may end when the driver that it called, and that wrote a trace of it, is no longer mapped: the loader unmaps an ICD with its last instance.
#[test]
fn a_traced_thread_may_end_after_its_driver() {
    let directory = tempfile::tempdir().expect("a directory");
    let report = directory.path().join("report.json");
    let report = format!("json={}", report.display());
    let name = "recurring_dispatch_keys_meet_their_own_device";
    let output = ringfence(&["test", name, "--target", "none", "--report", &report]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
}

/// Every hook and every known defect has a case, and every export of libcuda and every command of Vulkan its class.
#[test]
fn the_coverage_is_whole() {
    let output = ringfence(&["list", "--coverage"]);
    assert!(output.status.success(), "{output:?}");
}

/// All Rust below a folder, but what is built or fetched there.
fn sources(folder: &Path, all: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            sources(&path, all);
        } else if name.ends_with(".rs") {
            all.push_str(&std::fs::read_to_string(&path).expect("a file"));
        }
    }
}

/// Whatever `docs/holes.md` says to hold a row is a case or a test.
#[test]
fn what_holds_the_holes_is_there() {
    let table = include_str!("../../../docs/holes.md");
    let output = ringfence(&["list"]);
    let listed = String::from_utf8_lossy(&output.stdout);
    let cases: BTreeSet<&str> = listed
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    let mut all = String::new();
    sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
        &mut all,
    );
    let rows: Vec<&str> = table
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(1)
        .collect();
    assert_eq!(rows.len(), 53);
    for row in rows {
        let holds = row.split(" | ").nth(2).unwrap_or_default();
        let names: Vec<&str> = holds.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "{row}");
        for name in names {
            let is_test = || {
                [format!("fn {name}("), format!("\"{name}\"")]
                    .iter()
                    .any(|word| all.contains(word))
            };
            let is_there = cases.contains(name) || is_test();
            assert!(is_there, "{name}: {row}");
        }
    }
}

/// The lines that a script says under `exec`, with variables set for it.
fn lines(arguments: &[&str], variables: &[(&str, &str)], script: &str) -> Vec<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
    command
        .arg("exec")
        .args(arguments)
        .args(["--", "sh", "-c", script]);
    for name in [
        "LD_LIBRARY_PATH",
        "XDG_DATA_HOME",
        "XDG_DATA_DIRS",
        "XDG_CONFIG_HOME",
        "XDG_CONFIG_DIRS",
    ] {
        command.env_remove(name);
    }
    let output = command
        .envs(variables.iter().copied())
        .output()
        .expect("ringfence starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let stdout = String::from_utf8_lossy(&output.stdout);
    stdout.lines().map(str::to_owned).collect()
}

/// What a user's program finds by these variables it finds under `exec` too: ours stands before it, never in its place (K11).
#[test]
fn what_the_user_set_stays_behind_what_is_put_before_it() {
    let script = "printf '%s\\n' \"$LD_LIBRARY_PATH\" \"$XDG_DATA_DIRS\" \"$XDG_CONFIG_DIRS\" \"$XDG_DATA_HOME\" \"$XDG_CONFIG_HOME\"";
    let theirs = [
        ("LD_LIBRARY_PATH", "/opt/theirs/lib:/opt/more"),
        ("XDG_DATA_DIRS", "/opt/theirs/data"),
        ("XDG_CONFIG_DIRS", "/opt/theirs/etc"),
        ("XDG_DATA_HOME", "/home/theirs/data"),
        ("XDG_CONFIG_HOME", "/home/theirs/etc"),
    ];
    for target in ["ours", "none", "proxy"] {
        let seen = lines(&["--target", target], &theirs, script);
        for (line, (name, value)) in seen.iter().zip(theirs) {
            assert!(
                line == value || line.ends_with(&format!(":{value}")),
                "{target}: {name}={line}"
            );
        }
        assert!(
            seen[0].starts_with('/') && seen[0] != theirs[0].1,
            "{target}: the drivers: {}",
            seen[0]
        );
        assert_eq!(seen[3..], [theirs[3].1, theirs[4].1], "{target}");
        let unset = lines(&["--target", target], &[], script);
        assert!(
            !unset[0].ends_with(':'),
            "{target}: an empty entry means the working directory: {}",
            unset[0]
        );
        assert!(
            unset[1].ends_with("/usr/local/share:/usr/share"),
            "{target}: {}",
            unset[1]
        );
        assert!(unset[2].ends_with("/etc/xdg"), "{target}: {}", unset[2]);
        assert_eq!(unset[3..], ["", ""], "{target}");
    }
}

/// Programs that look at files find the simulated GPUs, and not this machine's: on the PCI bus, in what the kernel module says, among the
/// device nodes; the rest of the machine stays (K10).
#[test]
fn the_simulated_gpus_are_where_programs_look_for_files() {
    let script = "for device in /sys/bus/pci/devices/*; do
            [ $(cat $device/vendor) = 0x10de ] && echo $(cat $device/device) $(od -An -tx1 -N4 $device/config)
        done
        cat /proc/driver/nvidia/gpus/*/information | grep UUID
        ls /dev | grep '^nvidia[0-9]'
        ls /dev/nvidiactl /dev/nvidia-uvm /proc/driver/nvidia/capabilities/mig/config
        echo kept > /dev/null && test -d /dev/shm && test -e /dev/fd && echo kept
        ls /sys/bus/pci/devices | wc -l";
    let seen = lines(
        &["--profile", "rtx6000-ada*2", "--target", "none"],
        &[],
        script,
    );
    let here = std::fs::read_dir("/sys/bus/pci/devices")
        .expect("the bus")
        .count();
    assert_eq!(seen[..2], ["0x26b1 de 10 b1 26"; 2], "{seen:?}");
    let uuids: Vec<_> = seen[2..4]
        .iter()
        .filter(|line| line.contains("GPU-"))
        .collect();
    assert!(uuids.len() == 2 && uuids[0] != uuids[1], "{seen:?}");
    assert_eq!(seen[4..6], ["nvidia0", "nvidia1"], "{seen:?}");
    assert_eq!(seen[9], "kept", "{seen:?}");
    let count: usize = seen[10].parse().expect("a number");
    assert!(count >= 2 && count <= here + 2, "{seen:?}");
    let left = lines(
        &["--host-files", "--target", "none"],
        &[],
        "ls /sys/bus/pci/devices | wc -l; ls /dev | wc -l",
    );
    let own = Command::new("sh")
        .args(["-c", "ls /dev | wc -l"])
        .output()
        .expect("sh");
    assert_eq!(
        left,
        [
            here.to_string(),
            String::from_utf8_lossy(&own.stdout).trim().to_owned()
        ]
    );
    let mig = "cat /proc/driver/nvidia/capabilities/gpu0/mig/gi*/access | grep Minor; ls /dev/nvidia-caps";
    let mig = lines(&["--profile", "h200-mig", "--target", "none"], &[], mig);
    let (minors, nodes): (Vec<_>, Vec<_>) = mig
        .iter()
        .partition(|line| line.starts_with("DeviceFileMinor"));
    assert!(
        !minors.is_empty() && nodes.len() > minors.len() + 2,
        "{mig:?}"
    );
    for minor in minors {
        let number = minor.rsplit(' ').next().expect("a number");
        assert!(
            nodes
                .iter()
                .any(|node| **node == format!("nvidia-cap{number}")),
            "{minor}: {nodes:?}"
        );
    }
}
