//! The interposer is a guest in a stranger's process (CONTRIBUTING.md, style). The stranger is a C program with habits of its own, and Python.
//!
//! Each promise is kept by the preload and by the proxies; without any of them too, so that it is not the mocks that keep or break it.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use harness::environment::{Environment, Request};
use harness::{Driver, Libraries, Library, Target, artifacts, symbols};

#[path = "../../missing.rs"]
mod missing;
#[path = "guest/vulkan.rs"]
mod vulkan;

/// What the stranger ends with; nobody else does.
const STATUS: i32 = 37;

/// How one run of the stranger went.
#[derive(Debug)]
struct Run {
    status: Option<i32>,
    stdout: String,
    stderr: String,
    /// What it has to say, line by line.
    told: Vec<String>,
}

impl Run {
    /// It ended as it wished, came to its last line, and nobody spoke in its name.
    fn ends_as_it_wished(&self) {
        let last = self.told.last().map(String::as_str);
        assert_eq!(
            (last, self.status),
            (Some("kept"), Some(STATUS)),
            "{self:#?}"
        );
        assert!(
            self.stdout.is_empty() && self.stderr.is_empty(),
            "{self:#?}"
        );
    }
}

/// Which functions of libc the program brings along.
#[derive(Clone, Copy)]
enum Build {
    Plain,
    /// An allocator of its own.
    OwnMalloc,
    /// Those that a guest might call on the way of a hook, counted.
    Counts,
}

/// The program, each build once.
fn guest(build: Build) -> &'static Path {
    static BUILT: [OnceLock<(tempfile::TempDir, PathBuf)>; 3] = [const { OnceLock::new() }; 3];
    let built = BUILT[build as usize].get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory");
        for (library, name) in [
            (Library::MockLibcuda, "libcuda.so"),
            (Library::MockNvml, "libnvidia-ml.so"),
        ] {
            let built = artifacts::find(library).unwrap_or_else(|error| panic!("{error}"));
            symlink(built, directory.path().join(name)).expect("a link");
        }
        let program = directory.path().join("guest");
        let search = format!("-L{}", directory.path().display());
        let mut flags = vec![&search[..], "-lcuda", "-lnvidia-ml", "-lpthread", "-ldl"];
        flags.push("-Wl,--allow-shlib-undefined");
        flags.push("-Wno-unused-result");
        match build {
            Build::Plain => {}
            Build::OwnMalloc => flags.extend(["-DOWN_MALLOC", "-fno-builtin-malloc"]),
            Build::Counts => flags.extend(["-DCOUNTS", "-fno-builtin-malloc", "-rdynamic"]),
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("witness/guest.c");
        let headers = c_witness::Headers::usual().unwrap_or_else(|error| panic!("{error}"));
        c_witness::compile(&headers, &source, &program, &flags)
            .unwrap_or_else(|error| panic!("{error}"));
        (directory, program)
    });
    &built.1
}

/// How a program is to be run.
#[derive(Clone, Copy)]
struct Host<'a> {
    target: &'a str,
    program: &'a [&'a str],
    env: &'a [(&'a str, &'a str)],
    /// What a shell does with the descriptors first; `$0` is where the host tells what it saw.
    redirections: &'a str,
}

const TELLS: &str = "9>\"$0\"";

fn run(host: &Host<'_>) -> Run {
    run_with(host, Libraries::Both)
}

fn run_with(host: &Host<'_>, libraries: Libraries) -> Run {
    let target = Target::named(host.target).expect("a target");
    let environment = Environment::create(&Request {
        budget: "0=4GiB",
        libraries,
        env: host.env,
        ..Request::new("guest", &target, &Driver::default())
    })
    .unwrap_or_else(|error| panic!("{error}"));
    let told = environment.plan.root.join("told");
    let mut command = Command::new("/bin/sh");
    environment
        .plan
        .apply(&mut command, libraries)
        .unwrap_or_else(|error| panic!("{error}"));
    let script = format!("exec \"$@\" {}", host.redirections);
    let output = command
        .env("GUEST_TELLS", &told)
        .args(["-c", &script])
        .arg(&told)
        .args(host.program)
        .output()
        .expect("the host starts");
    let told = std::fs::read_to_string(&told).unwrap_or_default();
    Run {
        status: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        told: told.lines().map(str::to_owned).collect(),
    }
}

fn c(target: &str, promise: &[&str]) -> Run {
    let program = guest(Build::Plain).display().to_string();
    run(&Host {
        target,
        program: &[&[&program[..]], promise].concat(),
        env: &[],
        redirections: TELLS,
    })
}

/// With the preload and with the proxies the host sees exactly what it sees alone, where it may see no more than `alone`.
fn is_as_alone(host: &Host<'_>, alone: &[&str]) {
    let bare = run(&Host {
        target: "none",
        ..*host
    });
    bare.ends_as_it_wished();
    let unexpected = |line: &&String| !alone.iter().any(|begins| line.starts_with(begins));
    let seen: Vec<&String> = bare.told.iter().filter(unexpected).collect();
    assert_eq!(seen, ["kept"], "without us: {bare:#?}");
    for target in ["ours", "proxy"] {
        let seen = run(&Host { target, ..*host });
        seen.ends_as_it_wished();
        assert_eq!(seen.told, bare.told, "{target}: {seen:#?}");
    }
}

fn is_kept(promise: &str) {
    let program = guest(Build::Plain).display().to_string();
    is_as_alone(
        &Host {
            target: "none",
            program: &[&program, promise],
            env: &[],
            redirections: TELLS,
        },
        &[],
    );
}

/// What is preloaded or lies in the drivers' place hooks these.
fn hooks() -> Vec<String> {
    let library = artifacts::find(Library::Interposer).unwrap_or_else(|error| panic!("{error}"));
    let exports =
        symbols::exports(&std::fs::read(library).expect("the library")).expect("its symbols");
    // What a zero would end, and with it what the calls after it are about; and where the driver itself does not survive one.
    let ends = [
        "PrimaryCtxRelease",
        "PrimaryCtxReset",
        "PopCurrent",
        "nvmlShutdown",
        "GetProcAddress",
        // SIGSEGV on an H200, 580.159.04 (the oracle's NULLs).
        "cuMemcpy3DPeer",
    ];
    exports
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("cu") || name.starts_with("nvml"))
        .filter(|name| !ends.iter().any(|end| name.contains(end)))
        .collect()
}

#[test]
fn umask_directory_locale_signals_environment_and_threads_are_the_hosts() {
    is_kept("manners");
}

/// At every hook, before cuInit, with a context and with the budget used up, and at every look-up of a hook.
#[test]
fn errno_is_the_hosts_at_every_hook() {
    let hooks = hooks();
    assert!(hooks.len() > 100, "{hooks:?}");
    let names: Vec<&str> = std::iter::once("errno")
        .chain(hooks.iter().map(String::as_str))
        .collect();
    // The mocks, as drivers do, may leave what they like: only what is left beyond theirs is ours.
    let bare: BTreeSet<String> = c("none", &names).told.into_iter().collect();
    for target in ["ours", "proxy"] {
        let seen = c(target, &names);
        let beyond: Vec<&String> = seen
            .told
            .iter()
            .filter(|line| !bare.contains(*line))
            .collect();
        assert!(beyond.is_empty(), "{target}: {beyond:#?}");
        assert_eq!(
            seen.told.last().map(String::as_str),
            Some("kept"),
            "{target}: {seen:?}"
        );
        assert_eq!(seen.status, Some(STATUS), "{target}: {seen:?}");
    }
}

/// A program that was started without stdin, stdout and stderr finds their numbers free.
#[test]
fn the_low_descriptors_stay_free_where_the_host_has_none() {
    let program = guest(Build::Plain).display().to_string();
    is_as_alone(
        &Host {
            target: "none",
            program: &[&program, "closed"],
            env: &[],
            redirections: "9>\"$0\" 0<&- 1>&- 2>&-",
        },
        &[],
    );
}

#[test]
fn no_child_program_inherits_a_descriptor_of_ours() {
    is_kept("inherited");
}

#[test]
fn handlers_at_exit_run_in_the_hosts_order_and_may_still_call_the_driver() {
    let program = guest(Build::Plain).display().to_string();
    is_as_alone(
        &Host {
            target: "none",
            program: &[&program, "order"],
            env: &[],
            redirections: TELLS,
        },
        &["at exit "],
    );
}

#[test]
fn the_drivers_library_may_be_closed_and_opened_again() {
    is_kept("dlclose");
}

#[test]
fn fork_vfork_clone_spawn_system_and_popen_are_survived() {
    is_kept("children");
}

#[test]
fn a_daemon_that_closes_everything_is_a_tenant_like_any_other() {
    is_kept("daemon");
}

#[test]
fn every_entry_point_may_be_a_threads_first() {
    is_kept("threads");
}

/// An allocator that asks dlsym for libc's, before any constructor: no allocation of ours within.
#[test]
fn dlsym_allocates_nothing_before_libc_is_ready() {
    let program = guest(Build::OwnMalloc).display().to_string();
    is_as_alone(
        &Host {
            target: "none",
            program: &[&program, "malloc"],
            env: &[],
            redirections: TELLS,
        },
        &[],
    );
}

#[test]
fn a_constructor_before_main_may_be_the_first_to_use_the_driver() {
    let program = guest(Build::Plain).display().to_string();
    is_as_alone(
        &Host {
            target: "none",
            program: &[&program, "constructor"],
            env: &[("GUEST_CONSTRUCTS", "1")],
            redirections: TELLS,
        },
        &[],
    );
}

/// Where nothing can be granted the host lives on and ends as it wishes; two hundred refusals are one line.
#[test]
fn what_a_user_must_know_is_said_once_and_nobody_exits() {
    let program = guest(Build::Plain).display().to_string();
    for target in ["ours", "proxy"] {
        for (variable, value) in [
            ("RINGFENCE_LEDGER", "/proc/none/here"),
            ("CUDA_DEVICE_MEMORY_LIMIT_0", "much"),
        ] {
            let seen = run(&Host {
                target,
                program: &[&program, "alive"],
                env: &[(variable, value)],
                redirections: TELLS,
            });
            assert_eq!(seen.told, ["kept"], "{target}: {seen:?}");
            assert_eq!(seen.status, Some(STATUS), "{target}: {seen:?}");
            assert!(seen.stdout.is_empty(), "{target}: {seen:?}");
            let lines: Vec<&str> = seen.stderr.lines().collect();
            assert!(
                matches!(lines[..], [line] if line.contains(value)),
                "{target}: {seen:?}"
            );
        }
    }
}

/// A stderr that nobody reads, that is closed, or that is full is no reason to end the host or to keep it waiting.
#[test]
fn a_stderr_that_takes_nothing_does_not_end_the_host() {
    let program = guest(Build::Plain).display().to_string();
    for (promise, redirections) in [
        ("alive", "9>\"$0\" 2>&-"),
        ("alive", "9>\"$0\" 2>/dev/full"),
        ("unread", "9>\"$0\""),
        ("full", "9>\"$0\""),
    ] {
        let seen = run(&Host {
            target: "ours",
            program: &[&program, promise],
            env: &[("CUDA_DEVICE_MEMORY_LIMIT_0", "much")],
            redirections,
        });
        assert_eq!(seen.told, ["kept"], "{redirections}: {seen:?}");
        assert_eq!(seen.status, Some(STATUS), "{redirections}: {seen:?}");
    }
}

/// How a Python is started: this machine's, and one in a container of glibc 2.31 (`suites/older`). `None`, said aloud, where it is not there.
fn python(older: bool) -> Option<Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (needed, words) = if older {
        let python = "/usr/bin/python3";
        let needed = root.join(format!(".clients/debian-11{python}"));
        (
            needed,
            vec![root.join("suites/older"), PathBuf::from(python)],
        )
    } else {
        let python = root.join(".clients/venv/bin/python");
        (python.clone(), vec![python])
    };
    if !needed.exists() {
        missing::skip(format_args!("{} is not there", needed.display()));
        return None;
    }
    if older {
        let able = Command::new(&words[0]).arg("/bin/true").output();
        if !able.is_ok_and(|able| able.status.success()) {
            missing::skip("who runs this may not mount in a namespace of its own");
            return None;
        }
    }
    let words = words.iter().map(|word| word.display().to_string());
    Some(words.chain(["-B".to_owned()]).collect())
}

/// The program that one of our scripts is, by that Python.
fn script(older: bool, name: &str) -> Option<Vec<String>> {
    let mut words = python(older)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("witness")
        .join(name);
    words.push(script.display().to_string());
    Some(words)
}

fn a_host_in(older: bool) {
    let Some(program) = script(older, "guest.py") else {
        return;
    };
    let program: Vec<&str> = program.iter().map(String::as_str).collect();
    is_as_alone(
        &Host {
            target: "none",
            program: &program,
            env: &[],
            redirections: TELLS,
        },
        &[],
    );
}

/// The same of a host in Python: umask, directory, locale, signals, mask, environment, threads, descriptors, errno, fork, spawn, threads, its exit.
#[test]
fn a_host_in_python_is_left_as_it_was() {
    a_host_in(false);
}

/// And in a container whose glibc is older than the one that built us (decision 22): it is held to its budget there, and left as it was.
#[test]
fn a_host_in_an_older_debian_is_left_as_it_was() {
    a_host_in(true);
}

/// On the way of a call nothing is asked of the environment, the clock, files or the allocator; with a trace that is wanted there is.
#[test]
fn what_nobody_wants_to_know_costs_no_call_of_libc() {
    let program = guest(Build::Counts).display().to_string();
    let host = Host {
        target: "none",
        program: &[&program, "work"],
        env: &[],
        redirections: TELLS,
    };
    is_as_alone(&host, &[]);
    let traced = run(&Host {
        target: "ours",
        env: &[("RINGFENCE_TRACE", "/dev/null")],
        ..host
    });
    traced.ends_as_it_wished();
    assert!(
        traced
            .told
            .iter()
            .any(|line| line.starts_with("write was called")),
        "{traced:#?}"
    );
}
