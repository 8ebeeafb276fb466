//! What NVML lists and what a device loses around contexts, VkInstances and VkDevices: the script that asked an H200 asks the mock.
//! Every row that differs has its reason in `nvml-rows-reasons.txt`, and every reason there a row.

use std::collections::BTreeMap;
use std::process::Command;

const RECORDED: &str = include_str!("../../../fixtures/oracle/nvml-rows-580.txt");
const REASONS: &str = include_str!("../../../fixtures/oracle/nvml-rows-reasons.txt");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../probe/rows.py");

/// By scenario and step: what stands behind them.
fn rows(table: &str) -> BTreeMap<(&str, &str), &str> {
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    let row = |line| {
        let (scenario, rest) = str::split_once(line, '\t')?;
        let (step, rest) = rest.split_once('\t')?;
        Some(((scenario, step), rest))
    };
    lines.filter_map(row).collect()
}

#[test]
fn clients_are_listed_as_on_the_card() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no python3 to run the script with");
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_ringfence"))
        .args(["exec", "--profile", "h200", "--target", "none", "--"])
        .args(["python3", SCRIPT])
        .output()
        .expect("ringfence starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("libvulkan.so.1: cannot open shared object file") {
        eprintln!("SKIPPED: there is no Vulkan loader");
        return;
    }
    assert!(output.status.success(), "{errors}");
    let told = String::from_utf8_lossy(&output.stdout);
    let (recorded, told, reasons) = (rows(RECORDED), rows(&told), rows(REASONS));
    assert_eq!(recorded.len(), 62);
    let mut findings = Vec::new();
    let mut same = 0;
    for (place, wanted) in &recorded {
        let got = told.get(place).copied().unwrap_or("nothing");
        match (got == *wanted, reasons.get(place)) {
            (true, None) => same += 1,
            (true, Some(_)) => findings.push(format!("{place:?} is as recorded, and has a reason")),
            (false, Some(reason)) => println!("{place:?}: {got}, recorded {wanted} # {reason}"),
            (false, None) => findings.push(format!("{place:?}: {got}, recorded {wanted}")),
        }
    }
    for place in told.keys().chain(reasons.keys()) {
        if !recorded.contains_key(place) {
            findings.push(format!("{place:?} is not recorded"));
        }
    }
    println!("rows: {same} of {} as on the card", recorded.len());
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
