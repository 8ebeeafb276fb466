//! Real CUDA and NVML clients, unmodified, on the simulated machine under the enforcer.
//!
//! Promise: each allocates to its budget, is refused with CUDA_ERROR_OUT_OF_MEMORY, gets memory again after a
//! free, and is told one total by every API. Without the enforcer they get the whole card.

use std::path::Path;

#[path = "../../missing.rs"]
mod missing;
#[path = "clients/tenant.rs"]
mod tenant;

use tenant::{BUDGET, MIB, assert_held_to_the_budget};

fn python(target: &str, script: &str) -> Option<serde_json::Value> {
    python_of("venv", target, script)
}

fn python_of(venv: &str, target: &str, script: &str) -> Option<serde_json::Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let interpreter = root.join("../../.clients").join(venv).join("bin/python");
    if !interpreter.exists() {
        missing::skip(format_args!("{} is not there", interpreter.display()));
        return None;
    }
    Some(tenant::run(
        target,
        &interpreter,
        &[&root.join("tests/clients").join(script)],
    ))
}

#[test]
fn cuda_bindings_is_held_to_the_budget() {
    let Some(seen) = python("ours", "cuda_bindings.py") else {
        return;
    };
    assert_held_to_the_budget(&seen);
    assert_eq!(seen["refusal_name"], "CUDA_ERROR_OUT_OF_MEMORY");
}

#[test]
fn cuda_bindings_without_the_enforcer_gets_the_card() {
    let Some(seen) = python("none", "cuda_bindings.py") else {
        return;
    };
    assert!(seen["granted"].as_u64() > Some(BUDGET), "{seen}");
}

/// Detects, copies both ways, compiles and launches, and runs out of memory at its budget.
#[test]
fn numba_cuda_works_within_the_budget() {
    let Some(seen) = python_of("numba", "ours", "numba_client.py") else {
        return;
    };
    assert_eq!(seen["detected"], true, "{seen}");
    assert_eq!(seen["copied"], true, "{seen}");
    assert_eq!(seen["launched"], 1, "{seen}");
    assert_eq!(seen["refusal"], 2, "{seen}");
    assert_eq!(seen["total"], BUDGET, "{seen}");
    assert!(seen["granted"].as_u64() <= Some(BUDGET), "{seen}");
}

#[test]
fn numba_cuda_without_the_enforcer_gets_the_card() {
    let Some(seen) = python_of("numba", "none", "numba_client.py") else {
        return;
    };
    assert_eq!(seen["copied"], true, "{seen}");
    assert_eq!(seen["launched"], 1, "{seen}");
    assert!(seen["granted"].as_u64() > Some(BUDGET), "{seen}");
}

/// Work is on the device for as long as its events say, the caller waits no shorter, and NVML reports it as it runs.
#[test]
fn events_waits_and_utilisation_tell_of_the_same_work() {
    let Some(seen) = python("none", "utilisation.py") else {
        return;
    };
    let number = |name: &str| {
        seen[name]
            .as_f64()
            .unwrap_or_else(|| panic!("{name}: {seen}"))
    };
    let kernels = number("one_ms") * number("launches");
    assert!(
        (0.99..1.01).contains(&(number("elapsed_ms") / kernels)),
        "{seen}"
    );
    assert!(number("waited_ms") >= number("elapsed_ms"), "{seen}");
    assert_eq!(seen["still_busy"], true, "{seen}");
    assert_eq!(number("idle"), 0.0, "before any work: {seen}");
    assert!(number("busy") >= 95.0, "{seen}");
    assert!(number("mine") >= 95.0, "{seen}");
}

#[test]
fn nvidia_ml_py_sees_the_budget_as_the_total() {
    let Some(seen) = python("ours", "nvidia_ml.py") else {
        return;
    };
    assert_eq!(seen["total"], BUDGET, "{seen}");
    assert_eq!(seen["v2_total"], BUDGET, "{seen}");
    assert_eq!(seen["v2_reserved"], 0, "{seen}");
    assert_eq!(seen["free"], BUDGET, "{seen}");
    assert_eq!(
        seen["uuid"], "GPU-07ac64f7-ff7f-d9fb-9bcb-7afb7720386f",
        "{seen}"
    );
}

#[test]
fn nvidia_ml_py_without_the_enforcer_sees_the_card() {
    let Some(seen) = python("none", "nvidia_ml.py") else {
        return;
    };
    assert_eq!(seen["total"], 46_068 * MIB, "{seen}");
    assert_eq!(seen["driver"], "580.142", "{seen}");
}

/// What its caller has to fill first; the script has nothing to fill it with.
const NEED_A_STRUCTURE: &[&str] = &[
    "nvmlDeviceGetConfComputeGpuAttestationReport",
    "nvmlDeviceGetRunningProcessDetailList",
    "nvmlDeviceReadWritePRM_v1",
    "nvmlDeviceSetHostname_v1",
    "nvmlDeviceSetNvLinkUtilizationControl",
    "nvmlDeviceSetVgpuSchedulerState",
    "nvmlGetVgpuCompatibility",
    "nvmlGpmMetricsGet",
    "nvmlGpuInstanceGetActiveVgpus",
    "nvmlGpuInstanceGetCreatableVgpus",
    "nvmlGpuInstanceGetVgpuSchedulerLog",
    "nvmlGpuInstanceGetVgpuSchedulerState",
    "nvmlGpuInstanceGetVgpuTypeCreatablePlacements",
    "nvmlGpuInstanceSetVgpuSchedulerState",
    "nvmlSetVgpuVersion",
];

#[test]
fn every_function_of_nvidia_ml_py_answers_or_raises_nvmls_own_error() {
    let Some(said) = python("none", "nvidia_ml_all.py") else {
        return;
    };
    let wrong: Vec<&String> = said["wrong"].as_object().expect("a table").keys().collect();
    assert_eq!(wrong, NEED_A_STRUCTURE, "{said}");
    let answered = said["answered"].as_array().expect("a list").len();
    assert!(answered >= 150, "{answered}: {said}");
    let unknown: Vec<_> = said["raised"]
        .as_object()
        .expect("a table")
        .iter()
        .filter(|(_, code)| !matches!(code.as_u64(), Some(2..=31 | 999)))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
