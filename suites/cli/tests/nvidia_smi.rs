//! nvidia-smi 535 and 550, unmodified, on the simulated machine.
//!
//! Promise: it starts, shows the devices and who holds what of them, answers every question that it can be asked, and under
//! the enforcer its memory line is the tenant's (its process table reads rows that no symbol hook sees: decision 16).

use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../../missing.rs"]
mod missing;

const GENERATIONS: [&str; 2] = ["535", "550"];
const PYTHON: &str = "/usr/bin/python3";

/// What Debian's package of that generation holds, where suites/setup could fetch it.
fn nvidia_smi(generation: &str) -> Option<PathBuf> {
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.clients");
    let program = clients.join(format!(
        "nvidia-smi-{generation}/usr/lib/nvidia/current/nvidia-smi"
    ));
    if program.exists() && Path::new(PYTHON).exists() {
        return Some(program);
    }
    missing::skip(format_args!(
        "{} or python3 is not there",
        program.display()
    ));
    None
}

/// What it says on such a machine while processes hold `held` (device:MiB, …) there; their PIDs are `PID`.
fn said(
    generation: &str,
    machine: &str,
    ringfence: &[&str],
    held: &str,
    arguments: &[&str],
) -> Option<String> {
    let program = nvidia_smi(generation)?;
    let around = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/around.py");
    let output = Command::new(env!("CARGO_BIN_EXE_ringfence"))
        .args(["exec", "--driver", &format!("mock:{machine}+{generation}")])
        .args(ringfence)
        .args(["--", PYTHON])
        .arg(around)
        .arg(held)
        .arg(program)
        .args(arguments)
        .env("TZ", "UTC")
        .output()
        .expect("ringfence starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let said: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    assert_eq!(said["status"], 0, "{said}");
    assert_eq!(said["stderr"], "", "{said}");
    let mut text = said["stdout"].as_str().expect("text").to_owned();
    for pid in said["pids"].as_array().expect("a list") {
        let lines = text.split_inclusive('\n');
        text = lines
            .map(|line| without_pid(line, &pid.to_string()))
            .collect();
    }
    Some(text)
}

/// A process's line with `PID` in its number's place, as wide as that was in a table. Other figures may be the same number.
fn without_pid(line: &str, pid: &str) -> String {
    let of_process = line.contains("Process ID") || line.contains("/usr/bin/");
    let word = format!(" {pid}");
    let after = |at: usize| line[at + word.len()..].chars().next();
    let place = line
        .match_indices(&word)
        .find(|(at, _)| after(*at).is_none_or(|next| !next.is_ascii_digit()));
    match place.filter(|_| of_process) {
        None => line.to_owned(),
        Some((at, _)) => {
            let (before, rest) = (&line[..at + 1], &line[at + word.len()..]);
            // A table pads with blanks before.
            let wide = before.ends_with("  ");
            let more = pid.len().saturating_sub(3);
            let pad = if wide {
                " ".repeat(more)
            } else {
                String::new()
            };
            format!("{before}{pad}PID{rest}")
        }
    }
}

#[test]
fn a_number_that_happens_to_be_a_pid_stays() {
    let table = "|    0   N/A  N/A      4000      C   /usr/bin/python3     4000MiB |";
    let without = "|    0   N/A  N/A       PID      C   /usr/bin/python3     4000MiB |";
    assert_eq!(without_pid(table, "4000"), without);
    let other = "    Accounting Mode Buffer Size           : 4000\n";
    assert_eq!(without_pid(other, "4000"), other);
    assert_eq!(without_pid(other, "400"), other);
    let line = "        Process ID                        : 400\n";
    assert_eq!(without_pid(line, "400"), line.replace("400", "PID"));
    assert_eq!(
        without_pid("GPU-5, 400, /usr/bin/python3, 618 MiB", "400"),
        "GPU-5, PID, /usr/bin/python3, 618 MiB"
    );
}

const ALONE: &[&str] = &["--target", "none"];

/// Compares with the snapshot of that name, times left out.
macro_rules! assert_said {
    ($name:expr, $said:expr) => {
        insta::with_settings!({
            filters => vec![
                (r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \w{3} +\d+ \d\d:\d\d:\d\d \d{4} *", "[time] "),
                (r"Total Energy Consumption( *): \d+", "Total Energy Consumption$1: [moves]"),
                (r"(?m) +$", ""),
            ],
            prepend_module_to_snapshot => false,
        }, {
            insta::assert_snapshot!($name, $said);
        });
    };
}

#[test]
fn the_default_screen_shows_devices_and_processes() {
    for generation in GENERATIONS {
        let one = said(generation, "h200", ALONE, "0:512", &[]);
        let Some(one) = one else { return };
        assert_said!(format!("smi_{generation}_h200"), one);
        let two = said(generation, "h200x2", ALONE, "0:1024,1:2048", &[]).expect("as before");
        assert_said!(format!("smi_{generation}_h200x2"), two);
    }
}

#[test]
fn devices_are_listed_instances_of_mig_among_them() {
    for generation in GENERATIONS {
        let Some(two) = said(generation, "h200x2", ALONE, "", &["-L"]) else {
            return;
        };
        assert_said!(format!("smi_{generation}_list_h200x2"), two);
        let mig = said(generation, "h200-mig", ALONE, "", &["-L"]).expect("as before");
        assert_said!(format!("smi_{generation}_list_mig"), mig);
        let screen = said(generation, "h200-mig", ALONE, "0:512", &[]).expect("as before");
        assert_said!(format!("smi_{generation}_mig"), screen);
    }
}

#[test]
fn every_detail_is_told() {
    for generation in GENERATIONS {
        let Some(details) = said(generation, "h200", ALONE, "0:512", &["-q"]) else {
            return;
        };
        assert!(!details.contains("Unknown Error"), "{details}");
        assert!(!details.contains("Invalid Argument"), "{details}");
        assert_said!(format!("smi_{generation}_details"), details);
    }
}

const FIELDS: &str = "--query-gpu=index,name,uuid,serial,pci.bus_id,driver_version,pstate,temperature.gpu,power.draw,power.limit,\
    clocks.sm,clocks.mem,memory.total,memory.reserved,memory.used,memory.free,utilization.gpu,utilization.memory,\
    compute_mode,compute_cap,mig.mode.current,ecc.mode.current,pcie.link.gen.max,pcie.link.width.max,vbios_version";

#[test]
fn fields_can_be_queried() {
    for generation in GENERATIONS {
        let fields = said(
            generation,
            "h200x2",
            ALONE,
            "1:512",
            &[FIELDS, "--format=csv"],
        );
        let Some(fields) = fields else { return };
        assert_said!(format!("smi_{generation}_query"), fields);
        let apps = [
            "--query-compute-apps=gpu_uuid,pid,name,used_memory",
            "--format=csv",
        ];
        let apps = said(generation, "h200x2", ALONE, "0:100,1:200", &apps).expect("as before");
        assert_said!(format!("smi_{generation}_compute_apps"), apps);
    }
}

/// What `--query-gpu` says N/A to on the cards themselves: no fan, no memory sensor, no MIG; drivers of Windows; operation modes and
/// retired pages of older cards; counters that newer ones keep by kind of memory alone; a fabric that no manager runs.
const NOT_ON: [(&str, &[&str]); 2] = [
    ("h200", &["fan.speed"]),
    (
        "rtx6000-ada",
        &["temperature.memory", "mig.mode.current", "mig.mode.pending"],
    ),
];
const NOWHERE: [&str; 10] = [
    "driver_model.",
    "gom.",
    "retired_pages.",
    "inforom.pwr",
    "vgpu_driver_capability.",
    "vgpu_device_capability.",
    "fabric.",
    "ecc.errors.corrected.",
    "ecc.errors.uncorrected.",
    "reset_status.",
];
/// Of the counters, these are kept.
const COUNTED: [&str; 4] = [".device_memory", ".dram", ".sram", ".total"];

/// See docs/holes.md, K5.
#[test]
fn every_field_says_what_it_says_on_such_a_card() {
    for generation in GENERATIONS {
        for (machine, missing) in NOT_ON {
            let Some(help) = said(generation, machine, ALONE, "", &["--help-query-gpu"]) else {
                return;
            };
            let known = fields_of(&help);
            let query = format!("--query-gpu={}", known.join(","));
            let format = "--format=csv,noheader";
            let line = said(generation, machine, ALONE, "", &[&query, format]).expect("as before");
            let answers: Vec<&str> = line.trim().split(", ").collect();
            assert_eq!(answers.len(), known.len(), "{line}");
            let of = |name: &str| {
                let at = known.iter().position(|known| *known == name);
                answers[at.unwrap_or_else(|| panic!("no field {name}"))]
            };
            for (name, answer) in known.iter().zip(&answers) {
                let counter = name.starts_with("ecc.errors.");
                let counted = counter && COUNTED.iter().any(|kept| name.ends_with(kept));
                let nowhere = NOWHERE.iter().any(|group| name.starts_with(group)) && !counted;
                let absent = nowhere || missing.contains(name);
                assert!(
                    absent || !answer.contains("N/A"),
                    "{generation}, {machine}: {name} is {answer}"
                );
            }
            let (limit, generations, margin) = match machine {
                "h200" => ("700.00 W", "5", "47"),
                _ => ("300.00 W", "4", "58"),
            };
            assert_eq!(of("enforced.power.limit"), limit);
            assert_eq!(of("pcie.link.gen.hostmax"), generations);
            assert_eq!(of("temperature.gpu.tlimit"), margin);
            assert_eq!(of("ecc.mode.current"), "Enabled");
        }
    }
}

/// Subcommands that only ask, and what each says on two cards that NVLink joins, and on two that it does not.
const SUBCOMMANDS: [(&[&str], &str, &str); 12] = [
    (&["dmon", "-c", "1"], "    1    ", "    1    "),
    (&["pmon", "-c", "1"], "    1    ", "    1    "),
    (&["topo", "-m"], "NV18", "PHB"),
    (&["topo", "-mp"], "PHB", "PHB"),
    (&["topo", "-p2p", "r"], "OK", "OK"),
    (&["topo", "-p2p", "n"], "OK", "NS"),
    (&["nvlink", "-s"], "Link 17: 26.562 GB/s", ""),
    (&["nvlink", "-c"], "Link 17, P2P is supported: true", ""),
    (&["nvlink", "-e"], "Link 17: Replay Errors: 0", ""),
    (&["clocks"], "Usage", "Usage"),
    (
        &["--query-remapped-rows=gpu_uuid", "--format=csv"],
        "GPU-",
        "GPU-",
    ),
    (
        &["--query-supported-clocks=gr", "--format=csv"],
        "MHz",
        "MHz",
    ),
];

/// See docs/holes.md, K5.
#[test]
fn every_subcommand_answers_on_several_cards() {
    for generation in GENERATIONS {
        for (arguments, joined, apart) in SUBCOMMANDS {
            for (machine, wanted) in [("h200x2", joined), ("rtx6000-ada*2", apart)] {
                let Some(text) = said(generation, machine, ALONE, "", arguments) else {
                    return;
                };
                assert!(
                    text.contains(wanted) && wanted.is_empty() == text.trim().is_empty(),
                    "{generation}, {machine}: {arguments:?} says {text}"
                );
                for bad in [
                    "Failed",
                    "\tUnknown",
                    "Not supported on",
                    "Error:",
                    "Insufficient",
                ] {
                    assert!(
                        !text.contains(bad),
                        "{generation}, {machine}, {arguments:?}: {text}"
                    );
                }
            }
        }
    }
}

/// The names that a `--help-query-…` lists.
fn fields_of(help: &str) -> Vec<&str> {
    help.lines()
        .filter_map(|line| line.strip_prefix('"')?.split('"').next())
        // Legends of values stand in quotes too.
        .filter(|name| !name.contains([' ', ':']))
        .collect()
}

#[test]
fn every_field_that_it_knows_has_an_answer() {
    for generation in GENERATIONS {
        let Some(help) = said(generation, "h200", ALONE, "", &["--help-query-gpu"]) else {
            return;
        };
        let known = fields_of(&help);
        assert!(known.len() > 100, "{help}");
        let query = format!("--query-gpu={}", known.join(","));
        let answers = said(
            generation,
            "h200",
            ALONE,
            "",
            &[&query, "--format=csv,noheader"],
        )
        .expect("as before");
        for bad in [
            "[Unknown Error]",
            "[Invalid Argument]",
            "[Insufficient Size]",
        ] {
            assert!(!answers.contains(bad), "{generation}: {bad} in {answers}");
        }
    }
}

#[test]
fn a_tenants_memory_line_is_its_budget() {
    for generation in GENERATIONS {
        let ours = &["--target", "ours", "--memory", "0=4GiB"];
        let Some(screen) = said(generation, "h200", ours, "", &[]) else {
            return;
        };
        let squeezed = screen.replace(' ', "");
        assert!(squeezed.contains("|0MiB/4096MiB|"), "{screen}");
        let fields = [
            "--query-gpu=memory.total,memory.free",
            "--format=csv,noheader,nounits",
        ];
        let fields = said(generation, "h200", ours, "0:1024", &fields).expect("as before");
        let figures: Vec<u64> = fields
            .trim()
            .split(", ")
            .map(|figure| figure.parse().expect("a number"))
            .collect();
        assert_eq!(figures[0], 4096, "{fields}");
        // The holder's context counts too.
        assert!((2400..=3072).contains(&figures[1]), "{fields}");
    }
}

/// The command as the order states it: one binary under each of the two drivers that it may meet, its own and the newest.
#[test]
fn a_tenant_of_half_a_card_reads_its_budget_and_bare_the_card() {
    let fields = ["--query-gpu=memory.total,memory.free", "--format=csv"];
    for generation in GENERATIONS {
        let Some(program) = nvidia_smi(generation) else {
            return;
        };
        for profile in ["rtx6000-ada", &format!("rtx6000-ada+{generation}")] {
            for (target, figures) in [
                (&["--memory", "0=23552MiB"][..], "23552 MiB, 23552 MiB"),
                (&["--target", "none"][..], "46068 MiB, 45458 MiB"),
            ] {
                let output = Command::new(env!("CARGO_BIN_EXE_ringfence"))
                    .args(["exec", "--profile", profile])
                    .args(target)
                    .arg("--")
                    .arg(&program)
                    .args(fields)
                    .output()
                    .expect("ringfence starts");
                let said = String::from_utf8_lossy(&output.stdout);
                let promised = format!("memory.total [MiB], memory.free [MiB]\n{figures}\n");
                assert_eq!(said, promised, "{generation}, {profile}, {target:?}");
                assert_eq!(String::from_utf8_lossy(&output.stderr), "");
                assert!(output.status.success(), "{generation}, {profile}");
            }
        }
    }
}
