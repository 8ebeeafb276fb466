//! What a program is answered and a driver is asked, call by call, with our libraries before the drivers and without: the pull request's case, and
//! tours of each API over machines of 1, 2 and 4 GPUs, over a driver without a `_v2`, with NULL where calls write, and with a UUID of zeros.

use std::process::ExitCode;

use harness::environment::{Environment, Request};
use harness::execution::{Look, execute};
use harness::{Driver, Status, Suite, Target, child_main, traces};
use libtest_mimic::{Arguments, Failed, Trial};
use similar::{ChangeTag, TextDiff};

#[path = "snapshots/tours.rs"]
mod tours;

/// What this program runs.
const SUITE: Suite = Suite {
    cases: &[cases::vulkan::budget::CASES, tours::CASES],
    ..cases::SUITE
};

const CASE: &str = "vulkan_pull_request";

fn main() -> ExitCode {
    if let Some(code) = child_main(&SUITE) {
        return code;
    }
    let arguments = Arguments::from_args();
    let mut trials = vec![
        Trial::test("the_pull_requests_case_under_our_libraries", || {
            // The driver is never asked for the 25 and 30 GiB.
            insta::assert_snapshot!("pull_request_ours", driver_calls("ours", Status::Pass)?);
            Ok(())
        }),
        Trial::test("the_pull_requests_case_on_the_bare_driver", || {
            insta::assert_snapshot!("pull_request_none", driver_calls("none", Status::Fail)?);
            Ok(())
        }),
        Trial::test("what_the_layer_decides_in_the_pull_requests_case", || {
            insta::assert_snapshot!("pull_request_decisions", decisions()?);
            Ok(())
        }),
    ];
    for (api, lacks, nameless) in APIS {
        for (place, gpus, faults) in [
            ("one_gpu", 1, ""),
            ("two_gpus", 2, ""),
            ("four_gpus", 4, ""),
            ("missing_v2", 1, lacks),
            ("zero_uuid", 1, nameless),
            ("nulls", 1, ""),
        ] {
            let name = format!("{api}_{place}");
            let case = match place {
                "nulls" => format!("{api}_nulls"),
                _ => format!("{api}_tour"),
            };
            trials.push(Trial::test(name.clone(), move || {
                let [bare, ours] =
                    ["none", "ours"].map(|target| tour(&case, target, api, gpus, faults));
                let (bare, ours) = (bare?, ours?);
                let text = compared("The program is answered", &bare.answers, &ours.answers)
                    + &compared("The driver is asked", &bare.asked, &ours.asked);
                insta::assert_snapshot!(name.as_str(), text);
                Ok(())
            }));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Each API, a fault by which its driver lacks what came with a second version, and one by which its devices have no UUID.
const APIS: [(&str, &str, &str); 3] = [
    (
        "cuda",
        r#"fault = [{ at = "cuMemAlloc_v2", then = "missing" }, { at = "cuDeviceTotalMem_v2", then = "missing" }]"#,
        r#"fault = [{ at = "cuda.identity", then = "uuid:zero" }]"#,
    ),
    (
        "nvml",
        r#"fault = [{ at = "nvmlDeviceGetMemoryInfo_v2", then = "missing" }]"#,
        r#"fault = [{ at = "nvml.identity", then = "uuid:zero" }]"#,
    ),
    (
        "vulkan",
        r#"fault = [{ at = "VK_EXT_memory_budget", then = "missing" }]"#,
        r#"fault = [{ at = "vulkan.identity", then = "uuid:zero" }]"#,
    ),
];

/// What came of a tour, a line a call.
struct Tour {
    answers: Vec<String>,
    asked: Vec<String>,
}

/// Runs a tour once.
fn tour(case: &str, target: &str, api: &str, gpus: usize, faults: &str) -> Result<Tour, Failed> {
    let case = SUITE.case(case).ok_or("no such tour")?;
    let (machine, budget) = (
        format!("rtx6000-ada*{gpus}"),
        tours::BUDGETS[..gpus].join(","),
    );
    let environment = Environment::create(&Request {
        machine: &machine,
        budget: &budget,
        faults,
        traced: true,
        ..Request::of(case, &Target::named(target)?, &Driver::default())
    })?;
    let ending = execute(case, &environment, Look::Away)?;
    if ending.status != Status::Pass {
        return Err(format!("{target}: {:?}, {}", ending.status, ending.detail).into());
    }
    let said = std::fs::read_to_string(environment.plan.root.join("stderr.txt"))?;
    let answers = said
        .lines()
        .filter_map(|line| line.strip_prefix(tours::SAYS));
    let traces = traces::read(&environment.plan.trace_path());
    let calls = traces.get("case").map(Vec::as_slice).unwrap_or_default();
    let asked: Result<Vec<_>, Failed> = calls.iter().map(|line| call(line, api)).collect();
    Ok(Tour {
        answers: answers.map(str::to_owned).collect(),
        asked: asked?.into_iter().flatten().collect(),
    })
}

/// A line of a trace as a call with its arguments and answer, if it is one of that API. What CUDA's and Vulkan's programs have NVML asked by our
/// libraries is left out (how often they look is no promise), and so is which properties the Vulkan loader asks for.
fn call(line: &str, api: &str) -> Result<Option<String>, Failed> {
    let record: serde_json::Value = serde_json::from_str(line)?;
    let text = |key: &str| record[key].as_str().unwrap_or_default();
    let verbs = ["vkCreate", "vkAllocate", "vkFree", "vkDestroy"];
    let entry = text("entry");
    if text("api") != api || api == "vulkan" && !verbs.iter().any(|verb| entry.starts_with(verb)) {
        return Ok(None);
    }
    let arguments = record["args"].as_object().ok_or("a call without args")?;
    let arguments: Vec<String> = arguments
        .iter()
        .map(|(name, value)| match value.as_str() {
            Some(text) => format!("{name}={text}"),
            None => format!("{name}={value}"),
        })
        .collect();
    let answer = match &record["answer"] {
        serde_json::Value::Null => String::new(),
        serde_json::Value::String(text) => format!(" = {text}"),
        number => format!(" = {number}"),
    };
    Ok(Some(format!("{entry}({}){answer}", arguments.join(", "))))
}

/// Two lists as one: `-` stands before what is there without our libraries alone, `+` before what is there with them alone.
fn compared(title: &str, bare: &[String], ours: &[String]) -> String {
    let [bare, ours] = [bare, ours].map(|lines| {
        lines
            .iter()
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    });
    let mut text = format!("{title}\n");
    for change in TextDiff::from_lines(&bare, &ours).iter_all_changes() {
        text += match change.tag() {
            ChangeTag::Equal => "  ",
            ChangeTag::Delete => "- ",
            ChangeTag::Insert => "+ ",
        };
        text += change.value();
    }
    text
}

/// Runs the case once.
fn run(target: &str, promised: Status, env: &[(&str, &str)]) -> Result<Environment, Failed> {
    let case = SUITE.case(CASE).ok_or("the suite has lost the case")?;
    let environment = Environment::create(&Request {
        env,
        traced: true,
        ..Request::of(case, &Target::named(target)?, &Driver::default())
    })?;
    let ending = execute(case, &environment, Look::Check)?;
    if ending.status != promised {
        return Err(format!("{target}: {:?}, {}", ending.status, ending.detail).into());
    }
    Ok(environment)
}

/// What the Vulkan driver was asked to create, allocate, free and destroy, a call a line. Which properties it is asked for
/// besides is the loader's affair and differs from one of its versions to the next.
fn driver_calls(target: &str, promised: Status) -> Result<String, Failed> {
    let environment = run(target, promised, &[])?;
    let traces = traces::read(&environment.plan.trace_path());
    let calls = traces
        .get("case")
        .ok_or("the case's process traced nothing")?;
    let verbs = ["vkCreate", "vkAllocate", "vkFree", "vkDestroy"];
    let told = |call: &&String| {
        verbs
            .iter()
            .any(|verb| call.contains(&format!("\"entry\":\"{verb}")))
    };
    Ok(calls
        .iter()
        .filter(told)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n"))
}

/// The layer's own account: identity, rule, budget, heaps, verdicts.
fn decisions() -> Result<String, Failed> {
    let environment = run("ours", Status::Pass, &[("HAMI_VK_TRACE", "1")])?;
    let said = std::fs::read_to_string(environment.plan.root.join("stderr.txt"))?;
    let lines: Vec<_> = said
        .lines()
        .filter(|line| line.starts_with("HAMI_VK_TRACE:"))
        .collect();
    Ok(lines.join("\n"))
}
