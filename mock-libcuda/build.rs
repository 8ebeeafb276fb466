//! Turns the oracle's tables into Rust and sets the library's link options.
//!
//! Every name that driver 580 exports becomes a variant of `Entry`; those that `src/table.rs` does not simulate become
//! stubs. The table is included here as Rust, so that no text is parsed twice.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

macro_rules! entry_points {
    ($($noun:ident { $($name:ident => $handler:path;)* })*) => {
        const SIMULATED: &[&str] = &[$($(stringify!($name),)*)*];
    };
}
include!("src/table.rs");

/// `cudbg` symbols that are variables of a debugger's interface, not functions.
const DATA: &[&str] = &[
    "cudbgApiClientPid",
    "cudbgApiClientRevision",
    "cudbgAttachHandlerAvailable",
    "cudbgDebuggerCapabilities",
    "cudbgDebuggerInitialized",
    "cudbgDetachSuspendedDevicesMask",
    "cudbgEnableIntegratedMemcheck",
    "cudbgEnableLaunchBlocking",
    "cudbgEnablePreemptionDebugging",
    "cudbgInjectionPath",
    "cudbgIpcFlag",
    "cudbgReportDriverApiErrorFlags",
    "cudbgReportedDriverApiErrorCode",
    "cudbgReportedDriverApiErrorFuncNameAddr",
    "cudbgReportedDriverApiErrorFuncNameSize",
    "cudbgReportedDriverApiErrorNameAddr",
    "cudbgReportedDriverApiErrorNameSize",
    "cudbgReportedDriverApiErrorSource",
    "cudbgReportedDriverApiErrorStringAddr",
    "cudbgReportedDriverApiErrorStringSize",
    "cudbgReportedDriverInternalErrorCode",
    "cudbgResumeForAttachDetach",
    "cudbgRpcEnabled",
    "cudbgSessionId",
    "cudbgUseExternalDebugger",
];

fn main() {
    let oracle = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"))
        .join("../fixtures/oracle");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    let read = |name: &str| {
        let path = oracle.join(name);
        println!("cargo::rerun-if-changed={}", path.display());
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    println!("cargo::rerun-if-changed=src/table.rs");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");

    let answers = read("libcuda-580.txt");
    fs::write(out.join("entries.rs"), entries(&answers)).expect("OUT_DIR is writable");
    fs::write(out.join("lookup.rs"), lookup(&read("proc-address-580.txt")))
        .expect("OUT_DIR is writable");
    fs::write(out.join("errors.rs"), errors(&read("cuda-errors.txt")))
        .expect("OUT_DIR is writable");
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with('#'))
}

fn answer(text: &str) -> String {
    match text {
        "-" => "Recorded::NotCalled".into(),
        "S" => "Recorded::Crash".into(),
        code => format!(
            "Recorded::Code({})",
            code.parse::<u32>().expect("a result code")
        ),
    }
}

fn entries(answers: &str) -> String {
    let simulated: BTreeSet<&str> = SIMULATED.iter().copied().collect();
    let rows: Vec<Vec<&str>> = lines(answers)
        .map(|line| line.split(' ').collect())
        .collect();
    let functions: Vec<&Vec<&str>> = rows.iter().filter(|row| !DATA.contains(&row[0])).collect();
    let known: BTreeSet<&str> = functions.iter().map(|row| row[0]).collect();
    let unknown: Vec<_> = simulated.difference(&known).collect();
    assert!(
        unknown.is_empty(),
        "simulated, but not exported by driver 580: {unknown:?}"
    );

    let mut text = String::new();
    let _ = writeln!(text, "entries! {{");
    for row in &functions {
        let _ = writeln!(
            text,
            "    {} {{ {}, {} }}",
            row[0],
            answer(row[1]),
            answer(row[2])
        );
    }
    let _ = writeln!(text, "}}\nstubs! {{");
    for row in functions.iter().filter(|row| !simulated.contains(row[0])) {
        let _ = writeln!(text, "    {}", row[0]);
    }
    let _ = writeln!(text, "}}\ndata! {{");
    for row in rows.iter().filter(|row| DATA.contains(&row[0])) {
        let _ = writeln!(text, "    {}", row[0]);
    }
    text.push_str("}\n");
    text
}

fn lookup(table: &str) -> String {
    let mut text = String::from("pub const TABLE: &[Name] = &[\n");
    for line in lines(table) {
        let mut fields = line.split(' ');
        let name = fields.next().expect("a name");
        let _ = write!(text, "    Name {{ base: \"{name}\", runs: &[");
        for run in fields {
            let (from, spelled) = run.split_once(':').expect("version:answer");
            let mut three: Vec<String> = spelled
                .split(',')
                .map(|answer| found(name, answer))
                .collect();
            if three.len() == 1 {
                three = vec![three[0].clone(); 3];
            }
            let _ = write!(
                text,
                "Run {{ from: {from}, by_flags: [{}] }}, ",
                three.join(", ")
            );
        }
        text.push_str("] },\n");
    }
    text.push_str("];\n");
    text
}

fn found(name: &str, answer: &str) -> String {
    match answer {
        "?" => "Found::Newer".into(),
        "!" => "Found::Unknown".into(),
        "X" => "Found::Refused".into(),
        suffix => format!(
            "Found::Symbol(Entry::{name}{})",
            suffix.strip_prefix('+').expect("+suffix")
        ),
    }
}

fn errors(table: &str) -> String {
    let mut text = String::from("pub const TABLE: &[(u32, &CStr, &CStr)] = &[\n");
    for line in lines(table) {
        let fields: Vec<&str> = line.split('\t').collect();
        let _ = writeln!(
            text,
            "    ({}, c\"{}\", c\"{}\"),",
            fields[0], fields[1], fields[2]
        );
    }
    text.push_str("];\n");
    text
}
