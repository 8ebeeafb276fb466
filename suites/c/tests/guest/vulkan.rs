//! The layer is a guest too: the same promises by Vulkan, of a stranger in C (`witness/guest_vulkan.c`) and in Python, with the layer enabled by
//! its manifest, alone and beside the preload.

use super::*;

/// With the preload beside the layer, and without: the layer alone is what a program meets that no preload reaches.
const PRESENT: [Libraries; 2] = [Libraries::Both, Libraries::LayerOnly];

/// The program, each build once.
fn stranger(build: Build) -> String {
    static BUILT: [OnceLock<(tempfile::TempDir, PathBuf)>; 3] = [const { OnceLock::new() }; 3];
    let built = BUILT[build as usize].get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let program = directory.path().join("guest_vulkan");
        let mut flags = vec!["-lvulkan", "-lpthread", "-ldl", "-Wno-unused-result"];
        if let Build::Counts = build {
            flags.extend(["-DCOUNTS", "-fno-builtin-malloc", "-rdynamic"]);
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("witness/guest_vulkan.c");
        let headers = c_witness::Headers::usual().unwrap_or_else(|error| panic!("{error}"));
        c_witness::compile(&headers, &source, &program, &flags)
            .unwrap_or_else(|error| panic!("{error}"));
        (directory, program)
    });
    built.1.display().to_string()
}

/// The host sees with the layer exactly what it sees without.
fn is_as_without(program: &[&str], env: &[(&str, &str)], redirections: &str) {
    let host = |target, libraries| {
        run_with(
            &Host {
                target,
                program,
                env,
                redirections,
            },
            libraries,
        )
    };
    let bare = host("none", Libraries::Both);
    bare.ends_as_it_wished();
    assert_eq!(bare.told, ["kept"], "without us: {bare:#?}");
    for libraries in PRESENT {
        let seen = host("ours", libraries);
        seen.ends_as_it_wished();
        assert_eq!(seen.told, bare.told, "{libraries:?}: {seen:#?}");
    }
}

fn is_kept(promise: &str) {
    is_as_without(&[&stranger(Build::Plain), promise], &[], TELLS);
}

#[test]
fn a_layer_leaves_umask_directory_locale_signals_environment_and_threads() {
    is_kept("manners");
}

/// At every command that the layer hooks, those of a compute budget among them. What drivers and loader leave in errno is theirs.
#[test]
fn a_layer_leaves_errno_at_every_hook() {
    let program = stranger(Build::Plain);
    for env in [&[][..], &[("CUDA_DEVICE_SM_LIMIT", "90")]] {
        let seen = |target, libraries| {
            let host = Host {
                target,
                program: &[&program, "errno"],
                env,
                redirections: TELLS,
            };
            run_with(&host, libraries)
        };
        let bare: BTreeSet<String> = seen("none", Libraries::Both).told.into_iter().collect();
        for libraries in PRESENT {
            let seen = seen("ours", libraries);
            let beyond: Vec<&String> = seen
                .told
                .iter()
                .filter(|line| !bare.contains(*line))
                .collect();
            assert!(beyond.is_empty(), "{libraries:?}: {beyond:#?}");
            seen.ends_as_it_wished();
        }
    }
}

#[test]
fn a_layer_leaves_the_low_descriptors_free() {
    let program = stranger(Build::Plain);
    is_as_without(&[&program, "closed"], &[], "9>\"$0\" 0<&- 1>&- 2>&-");
}

#[test]
fn no_child_program_inherits_a_descriptor_of_the_layers() {
    is_kept("inherited");
}

/// A handler at exit may still use its device and end it.
#[test]
fn handlers_at_exit_run_in_the_hosts_order_and_may_still_use_vulkan() {
    is_kept("order");
}

#[test]
fn instances_that_come_and_go_leave_nothing_of_the_layer_behind() {
    is_kept("cycles");
}

#[test]
fn every_kind_of_child_is_survived_by_a_user_of_vulkan() {
    is_kept("children");
}

#[test]
fn a_daemon_that_closes_everything_may_begin_with_vulkan() {
    is_kept("daemon");
}

#[test]
fn threads_may_each_begin_and_end_with_vulkan() {
    is_kept("threads");
}

/// Where nothing can be granted the host lives on and ends as it wishes; twenty refusals are one line.
#[test]
fn what_a_user_of_vulkan_must_know_is_said_once_and_nobody_exits() {
    let program = stranger(Build::Plain);
    for (variable, value) in [
        ("RINGFENCE_LEDGER", "/proc/none/here"),
        ("CUDA_DEVICE_MEMORY_LIMIT_0", "much"),
    ] {
        let host = Host {
            target: "ours",
            program: &[&program, "alive"],
            env: &[(variable, value)],
            redirections: TELLS,
        };
        let seen = run_with(&host, Libraries::LayerOnly);
        assert_eq!(seen.told, ["kept"], "{seen:?}");
        assert_eq!(seen.status, Some(STATUS), "{seen:?}");
        assert!(seen.stdout.is_empty(), "{seen:?}");
        let lines: Vec<&str> = seen.stderr.lines().collect();
        assert!(
            matches!(lines[..], [line] if line.contains(value)),
            "{seen:?}"
        );
    }
}

#[test]
fn a_stderr_that_takes_nothing_of_the_layers_does_not_end_the_host() {
    let program = stranger(Build::Plain);
    for (promise, redirections) in [
        ("alive", "9>\"$0\" 2>&-"),
        ("alive", "9>\"$0\" 2>/dev/full"),
        ("unread", "9>\"$0\""),
    ] {
        let host = Host {
            target: "ours",
            program: &[&program, promise],
            env: &[("CUDA_DEVICE_MEMORY_LIMIT_0", "much")],
            redirections,
        };
        let seen = run_with(&host, Libraries::LayerOnly);
        assert_eq!(seen.told, ["kept"], "{redirections}: {seen:?}");
        assert_eq!(seen.status, Some(STATUS), "{redirections}: {seen:?}");
    }
}

/// On the way of vkAllocateMemory, vkFreeMemory, vkGetMemoryFdKHR, vkQueueSubmit and what is told of heaps, granted or refused.
#[test]
fn what_nobody_wants_to_know_of_vulkan_costs_no_call_of_libc() {
    let program = stranger(Build::Counts);
    // Without the looks at the driver's figure, a few a second, which ask NVML.
    let unlooked = ("RINGFENCE_CONTEXT_CHARGE", "free");
    is_as_without(&[&program, "work"], &[unlooked], TELLS);
    let traced = Host {
        target: "ours",
        program: &[&program, "work"],
        env: &[("HAMI_VK_TRACE", "1"), ("GUEST_EXPECTED", "1")],
        redirections: "9>\"$0\" 2>/dev/null",
    };
    let traced = run_with(&traced, Libraries::LayerOnly);
    assert!(
        traced
            .told
            .iter()
            .any(|line| line.starts_with("write was called")),
        "{traced:#?}"
    );
}

fn a_user_of_vulkan_in(older: bool) {
    let Some(program) = script(older, "guest_vulkan.py") else {
        return;
    };
    let program: Vec<&str> = program.iter().map(String::as_str).collect();
    is_as_without(&program, &[], TELLS);
}

/// The same of a host in Python that calls Vulkan by ctypes.
#[test]
fn a_user_of_vulkan_in_python_is_left_as_it_was() {
    a_user_of_vulkan_in(false);
}

/// And in a container of glibc 2.31, whose Vulkan loader is 1.2.162's.
#[test]
fn a_user_of_vulkan_in_an_older_debian_is_left_as_it_was() {
    a_user_of_vulkan_in(true);
}
