//! What the libraries tell of their decisions, and to whom: LIBCUDA_LOG_LEVEL by HAMi-core's levels, RINGFENCE_TRACE.

use abi::cuda::CUresult;
use harness::{Bytes, Failure, Session, cases, ensure, ensure_eq};

use crate::clients::cuda;
use crate::ffi::process::{make_pipe, overhear};
use crate::tenant::Tenant;

const OK: CUresult = CUresult::SUCCESS;
const OUT_OF_MEMORY: CUresult = CUresult::ERROR_OUT_OF_MEMORY;
/// A setting without meaning: a warning.
const ODD: (&str, &str) = ("GPU_CORE_UTILIZATION_POLICY", "sometimes");

/// How many lines of each kind a process said that was granted 1 GiB and refused 8 of 4 twice.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    warnings: usize,
    refusals: usize,
    /// What was found out of budgets and devices.
    facts: usize,
    /// Whether decisions of hooks are told that refuse nothing.
    decisions: bool,
}

fn told() -> Result<Told, Failure> {
    let (used, [stdout, stderr]) = overhear(|| -> Result<(), Failure> {
        let cuda = cuda()?;
        ensure_eq!(cuda.allocate(Bytes::gib(1).0).code, OK, "1 of 4 GiB");
        for _ in 0..2 {
            ensure_eq!(
                cuda.allocate(Bytes::gib(8).0).code,
                OUT_OF_MEMORY,
                "8 of 4 GiB"
            );
        }
        Ok(())
    })?;
    used?;
    ensure!(stdout.is_empty(), "on stdout: {stdout}");
    let ours = |line: &&str| line.starts_with("ringfence: ");
    ensure_eq!(
        stderr.lines().filter(|line| !ours(line)).count(),
        0,
        "lines that do not say whose they are: {stderr}"
    );
    let count = |words: &[&str]| {
        stderr
            .lines()
            .filter(|line| words.iter().all(|word| line.contains(word)))
            .count()
    };
    Ok(Told {
        warnings: count(&["GPU_CORE_UTILIZATION_POLICY"]),
        refusals: count(&["cuMemAlloc_v2: 8589934592 bytes do not fit"]),
        facts: count(&["device 0 has a budget of 4294967296 bytes"])
            + count(&["CUDA device 0 is device 0"]),
        decisions: count(&["cuMemAlloc_v2: Done"]) > 0,
    })
}

fn tells(warnings: usize, refusals: usize, facts: usize, decisions: bool) -> Result<(), Failure> {
    let told = told()?;
    ensure_eq!(
        told,
        Told {
            warnings,
            refusals,
            facts,
            decisions
        },
        "what was told"
    );
    Ok(())
}

/// The lines of a file, each an object with these keys.
fn decisions(text: &str) -> Result<Vec<(String, String)>, Failure> {
    let field = |line: &str, key: &str| -> Option<String> {
        let (_, rest) = line.split_once(&format!("\"{key}\":\""))?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    text.lines()
        .map(|line| match (field(line, "hook"), field(line, "outcome")) {
            (Some(hook), Some(outcome)) if line.starts_with('{') && line.ends_with('}') => {
                Ok((hook, outcome))
            }
            _ => harness::fail!("no decision: {line}"),
        })
        .collect()
}

cases! {
    /// Without LIBCUDA_LOG_LEVEL warnings are said, and no refusal: a program that tries how much it gets hears nothing of it.
    without_a_log_level_only_warnings_are_said {
        kind: Own, defects: ["P9"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", env: [ODD], libraries: PreloadOnly,
    } (_session) {
        tells(1, 0, 0, false)
    }

    /// LIBCUDA_LOG_LEVEL=0: errors alone, so nothing here.
    log_level_0_says_errors_alone {
        kind: Own, defects: ["P9"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", libraries: PreloadOnly,
        env: [ODD, ("LIBCUDA_LOG_LEVEL", "0")],
    } (_session) {
        tells(0, 0, 0, false)
    }

    /// An error is said at level 0 too, once.
    log_level_0_says_why_nothing_is_granted {
        kind: Own, defects: ["P9", "R11"], entry_points: ["cuMemAlloc_v2"], libraries: PreloadOnly,
        env: [("CUDA_DEVICE_MEMORY_LIMIT_0", "junk"), ("LIBCUDA_LOG_LEVEL", "0")], unaccounted: "nothing is granted",
    } (_session) {
        crate::process::settings::cuda_fails_closed("CUDA_DEVICE_MEMORY_LIMIT_0")
    }

    /// LIBCUDA_LOG_LEVEL=1: warnings, and each refusal.
    log_level_1_says_warnings_and_refusals {
        kind: Own, defects: ["P9"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", libraries: PreloadOnly,
        env: [ODD, ("LIBCUDA_LOG_LEVEL", "1")],
    } (_session) {
        tells(1, 2, 0, false)
    }

    /// LIBCUDA_LOG_LEVEL=2 is 1, as with HAMi-core.
    log_level_2_is_level_1 {
        kind: Own, defects: ["P9"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", libraries: PreloadOnly,
        env: [ODD, ("LIBCUDA_LOG_LEVEL", "2")],
    } (_session) {
        tells(1, 2, 0, false)
    }

    /// LIBCUDA_LOG_LEVEL=3: what was found out as well: budgets, and which device an ordinal is.
    log_level_3_says_what_was_found_out {
        kind: Own, defects: ["P9"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", libraries: PreloadOnly,
        env: [ODD, ("LIBCUDA_LOG_LEVEL", "3")],
    } (_session) {
        tells(1, 2, 2, false)
    }

    /// LIBCUDA_LOG_LEVEL=4: every decision of every hook.
    log_level_4_says_every_decision {
        kind: Own, defects: ["P9"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", libraries: PreloadOnly,
        env: [ODD, ("LIBCUDA_LOG_LEVEL", "4")],
    } (_session) {
        tells(1, 2, 2, true)
    }

    /// RINGFENCE_TRACE=FILE holds each decision as a line of JSON, also of a program that closes all its descriptors and goes elsewhere, and
    /// stderr hears nothing.
    a_trace_holds_every_decision {
        kind: Own, defects: ["P9"], entry_points: ["cuMemAlloc_v2", "cuMemFree_v2"], budget: "0=4GiB", libraries: PreloadOnly,
        on_real: No("the vendor's driver itself does not survive its descriptors"),
    } (session) {
        let path = session.directory().join("decisions.jsonl");
        let launch = session.launch("tenant").env("RINGFENCE_TRACE", &path.display().to_string());
        let (done, [_, stderr]) = overhear(|| -> Result<(), Failure> {
            let mut tenant = Tenant::launch(launch)?;
            ensure_eq!(tenant.cuda(Bytes::gib(1))?, OK, "1 of 4 GiB");
            tenant.ask("close-descriptors")?;
            ensure_eq!(tenant.cuda(Bytes::gib(8))?, OUT_OF_MEMORY, "8 of 4 GiB");
            tenant.free()?;
            tenant.peer.finish()
        })?;
        done?;
        ensure!(stderr.is_empty(), "on stderr: {stderr}");
        let decisions = decisions(&std::fs::read_to_string(&path)?)?;
        let of = |hook: &str| -> Vec<&str> {
            decisions.iter().filter(|(name, _)| name == hook).map(|(_, outcome)| outcome.as_str()).collect()
        };
        ensure_eq!(of("cuMemAlloc_v2"), ["done", "refused"], "decisions on cuMemAlloc_v2");
        ensure_eq!(of("cuMemFree_v2"), ["done"], "decisions on cuMemFree_v2");
        Ok(())
    }

    /// A trace that cannot be written holds nobody up: a pipe that nobody reads, a full disk, a directory, a place that is not there.
    a_trace_that_cannot_be_written_holds_nobody_up {
        kind: Own, defects: ["P9"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", libraries: PreloadOnly,
    } (session) {
        let pipe = session.directory().join("unread");
        make_pipe(&pipe)?;
        for place in [&pipe.display().to_string(), "/dev/full", "/", "/no/such/place"] {
            let (answer, stderr) = traced_to(session, place)?;
            ensure_eq!(answer, OK, "1 of 4 GiB, traced to {place}");
            ensure!(stderr.is_empty(), "traced to {place}, on stderr: {stderr}");
        }
        Ok(())
    }
}

fn traced_to(session: &Session, place: &str) -> Result<(CUresult, String), Failure> {
    let launch = session.launch("tenant").env("RINGFENCE_TRACE", place);
    let (answer, [_, stderr]) = overhear(|| -> Result<CUresult, Failure> {
        let mut tenant = Tenant::launch(launch)?;
        let answer = tenant.cuda(Bytes::gib(1))?;
        tenant.peer.finish()?;
        Ok(answer)
    })?;
    Ok((answer?, stderr))
}
