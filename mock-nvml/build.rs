//! Turns the oracle's table into Rust and sets the library's link options. See mock-libcuda's.

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
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");

    fs::write(out.join("entries.rs"), entries(&read("nvml-580.txt"))).expect("OUT_DIR is writable");
    fs::write(out.join("errors.rs"), errors(&read("nvml-errors.txt")))
        .expect("OUT_DIR is writable");
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with('#'))
}

/// An answer in parentheses is an older driver's.
fn answer(text: &str) -> String {
    match text.trim_matches(['(', ')']) {
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
    let known: BTreeSet<&str> = rows.iter().map(|row| row[0]).collect();
    let unknown: Vec<_> = simulated.difference(&known).collect();
    assert!(
        unknown.is_empty(),
        "simulated, but not exported by driver 580: {unknown:?}"
    );

    let mut text = String::from("entries! {\n");
    for row in &rows {
        let _ = writeln!(
            text,
            "    {} {{ {}, {}, {} }}",
            row[0],
            answer(row[1]),
            answer(row[2]),
            answer(row[3])
        );
    }
    text.push_str("}\nstubs! {\n");
    for row in rows.iter().filter(|row| !simulated.contains(row[0])) {
        let _ = writeln!(text, "    {}", row[0]);
    }
    text.push_str("}\n");
    text
}

fn errors(table: &str) -> String {
    let mut text = String::from("pub const TABLE: &[(u32, &CStr)] = &[\n");
    for line in lines(table) {
        let (code, words) = line.split_once('\t').expect("code, text");
        let _ = writeln!(text, "    ({code}, c\"{words}\"),");
    }
    text.push_str("];\n");
    text
}
