//! Every hooked entry point argument by argument, by the program that asked a card: `suites/probe/arguments.py`, which also says what is asked.
//!
//! The same program asks the bare driver first. What ends the process there is left out; that a mock answers as the card did is mock-libcuda's test.

use std::collections::BTreeMap;
use std::fs;

use harness::{Failure, Libraries, Session, cases, ensure, fail};

use super::zeros;

const RECORDER: &str = include_str!("../../../probe/arguments.py");
/// How long a recording may take, and one call.
const SECONDS: [(&str, &str); 2] = [("PROBE_SECONDS", "400"), ("PROBE_ALARM", "60")];
const OK: &str = "0";
const OUT_OF_MEMORY: &str = "2";
/// How the names begin of what may be refused for the budget: nothing else looks at what is left.
const TAKING: [&str; 17] = [
    "cuArray",
    "cuCtxCreate",
    "cuCtxSetLimit",
    "cuDevicePrimaryCtxRetain",
    "cuGraphAdd",
    "cuGraphInstantiate",
    "cuGraphLaunch",
    "cuGraphUpload",
    "cuImportExternalMemory",
    "cuIpcOpenMemHandle",
    "cuLibraryLoad",
    "cuMemAlloc",
    "cuMemCreate",
    "cuMemMap",
    "cuMipmappedArrayCreate",
    "cuModuleLoad",
    "cuStreamCreate",
];

/// By function and call: the code, and what became of each out-parameter.
type Answers = BTreeMap<(String, String), (String, String)>;

fn recorded(session: &Session, libraries: Libraries, exhausted: bool) -> Result<Answers, Failure> {
    let program = session.directory().join("arguments.py");
    fs::write(&program, RECORDER)?;
    let told = session.directory().join(format!("{libraries:?}"));
    let mut python = session.program("python3", libraries)?;
    python.arg(&program).arg(&told).env("PROBE_WORKERS", "1");
    let hooked = zeros::CASES.iter().flat_map(|case| case.entry_points);
    python.args(
        hooked.filter(|name| !exhausted || TAKING.iter().any(|takes| name.starts_with(takes))),
    );
    python.envs(SECONDS);
    if exhausted {
        python.env("PROBE_EXHAUST", "1");
    }
    match python.output() {
        Err(error) => Err(Failure::Skip(format!("no python3 here: {error}"))),
        Ok(output) if !output.status.success() => {
            fail!(
                "{}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            )
        }
        Ok(_) => Ok(read(&fs::read_to_string(told.join("arguments.txt"))?)),
    }
}

fn read(text: &str) -> Answers {
    let line = |line| {
        let mut fields = str::split(line, '\t');
        let [function, call, code] = [fields.next()?, fields.next()?, fields.next()?];
        let outs = fields.next().unwrap_or_default().split_whitespace();
        let outs: String = outs
            .filter_map(|out| Some(kind(out.split_once(':')?.1)))
            .collect();
        Some((
            (function.to_owned(), call.to_owned()),
            (code.to_owned(), outs),
        ))
    };
    text.lines().filter_map(line).collect()
}

/// Left alone, zeroed or written.
fn kind(value: &str) -> char {
    match value {
        "=" => '=',
        zeros if zeros.bytes().all(|digit| digit == b'0') => '0',
        _ => 'x',
    }
}

fn as_the_driver(session: &Session, exhausted: bool) -> Result<(), Failure> {
    let bare = recorded(session, Libraries::Neither, false)?;
    let guest = recorded(session, Libraries::PreloadOnly, exhausted)?;
    let answered = bare.iter().filter(|(call, (code, _))| {
        code.parse::<u32>().is_ok() && (!exhausted || guest.contains_key(call))
    });
    let mut compared = 0;
    let mut wrong = Vec::new();
    for (call, wanted) in answered {
        let got = guest.get(call);
        // What a row needs may be refused before its call, where the row before has left nothing.
        if exhausted && got.is_some_and(|(code, _)| code.starts_with("setup")) {
            continue;
        }
        compared += 1;
        // A request that the driver would grant may lack memory now. One that it would refuse is refused for the same reason.
        let lacks =
            exhausted && wanted.0 == OK && got.is_some_and(|(code, _)| code == OUT_OF_MEMORY);
        if got != Some(wanted) && !lacks {
            wrong.push(format!("{call:?}: {got:?}, the driver {wanted:?}"));
        }
    }
    ensure!(
        compared > if exhausted { 300 } else { 900 },
        "only {compared} calls were answered by the driver"
    );
    ensure!(
        wrong.is_empty(),
        "{} of {compared} otherwise: {}",
        wrong.len(),
        wrong.join("; ")
    );
    Ok(())
}

cases! {
    /// With room, every hooked entry point answers NULL, odd and impossible values of each argument as the driver does, out-parameters too.
    every_argument_gets_the_drivers_answer {
        defects: ["C1"], entry_points: ["cuMemAlloc_v2", "cuMemCreate", "cuMemAllocPitch_v2"], budget: "0=120GiB", machine: "h200",
        unordered: "the bare driver is asked beside it", unaccounted: "the bare driver is asked beside it", seconds: 900,
        on_real: No("what a stale handle leads to depends on what was made since"),
    } (session) {
        as_the_driver(session, false)
    }

    /// The same with nothing left: what the driver refuses is refused for the driver's reason. (Without an enforcer the card itself would have nothing left.)
    every_argument_gets_the_drivers_answer_from_an_exhausted_budget {
        kind: Own, defects: ["C1"], entry_points: ["cuMemAlloc_v2", "cuMemCreate", "cuMemAllocPitch_v2"], budget: "0=120GiB", machine: "h200",
        unordered: "the bare driver is asked beside it", unaccounted: "the bare driver is asked beside it", seconds: 900,
        on_real: No("what a stale handle leads to depends on what was made since"),
    } (session) {
        as_the_driver(session, true)
    }
}
