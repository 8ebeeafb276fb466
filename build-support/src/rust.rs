//! The oracle's rows as Rust: calls of macros and tables that a mock defines and includes from OUT_DIR.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::oracle::{self, Export, GENERATIONS, Recorded};

/// The files of a mock's build script: tables in, Rust out.
pub struct Tables {
    oracle: PathBuf,
    out: PathBuf,
}

impl Tables {
    /// `oracle`: the folder of the tables, from the package's own.
    ///
    /// # Panics
    /// Outside a build script.
    #[must_use]
    pub fn new(oracle: &str) -> Tables {
        let variable =
            |name: &str| env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name}"));
        println!("cargo::rerun-if-changed=build.rs");
        println!("cargo::rerun-if-changed=src/table.rs");
        Tables {
            oracle: Path::new(&variable("CARGO_MANIFEST_DIR")).join(oracle),
            out: variable("OUT_DIR").into(),
        }
    }

    /// # Panics
    /// Where the table cannot be read.
    #[must_use]
    pub fn read(&self, name: &str) -> String {
        let path = self.oracle.join(name);
        println!("cargo::rerun-if-changed={}", path.display());
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// # Panics
    /// Where OUT_DIR cannot be written.
    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.out.join(name), text).expect("OUT_DIR is writable");
    }
}

/// `entries!` with every function, `stubs!` with those that are not simulated (`undeclared!` where no header says their
/// arguments), `data!` with the variables.
///
/// An entry's body is `{ first, last, [before of 470, …, of 580], [the other columns] }`.
///
/// # Panics
/// Where something is simulated that no driver exports.
#[must_use]
pub fn entries(table: &str, simulated: &[&str], undeclared: &[&str], data: &[&str]) -> String {
    let rows = oracle::exports(table);
    let simulated: BTreeSet<&str> = simulated.iter().copied().collect();
    let known: BTreeSet<&str> = rows.iter().map(|row| row.name).collect();
    let unknown: Vec<_> = simulated.difference(&known).collect();
    assert!(
        unknown.is_empty(),
        "simulated, but exported by no driver: {unknown:?}"
    );

    let (variables, functions): (Vec<&Export>, Vec<&Export>) =
        rows.iter().partition(|row| data.contains(&row.name));
    let mut text = String::from("entries! {\n");
    for row in &functions {
        let before = GENERATIONS
            .map(|generation| answer(row.presumed_before(generation)))
            .join(", ");
        let after: Vec<String> = row.after.iter().copied().map(answer).collect();
        let _ = writeln!(
            text,
            "    {} {{ {}, {}, [{before}], [{}] }}",
            row.name,
            row.span.first,
            row.span.last,
            after.join(", ")
        );
    }
    let names = |rows: &[&Export], wanted: &dyn Fn(&str) -> bool| -> String {
        rows.iter()
            .filter(|row| wanted(row.name))
            .map(|row| format!("    {}\n", row.name))
            .collect()
    };
    let declared = |name: &str| !undeclared.contains(&name);
    let stubs = names(&functions, &|name| {
        !simulated.contains(name) && declared(name)
    });
    let _ = write!(text, "}}\nstubs! {{\n{stubs}}}\n");
    let unknown = names(&functions, &|name| {
        !simulated.contains(name) && !declared(name)
    });
    if !unknown.is_empty() {
        let _ = write!(text, "undeclared! {{\n{unknown}}}\n");
    }
    if !variables.is_empty() {
        let _ = writeln!(text, "data! {{\n{}}}", names(&variables, &|_| true));
    }
    text
}

fn answer(recorded: Recorded) -> String {
    format!("Recorded::{recorded:?}")
}

/// `TABLE` of `Name { base, runs: [Run { from, by_flags: [Option<Entry>; 3] }] }`, sorted by base name.
#[must_use]
pub fn look_ups(table: &str) -> String {
    let found = |symbol: &Option<String>| match symbol {
        Some(symbol) => format!("Some(Entry::{symbol})"),
        None => "None".to_owned(),
    };
    let mut text = String::from("pub const TABLE: &[Name] = &[\n");
    for row in oracle::look_ups(table) {
        let _ = write!(text, "    Name {{ base: \"{}\", runs: &[", row.base);
        for run in &row.runs {
            let three = [0, 1, 2]
                .map(|flags| found(&run.by_flags[flags]))
                .join(", ");
            let _ = write!(text, "Run {{ from: {}, by_flags: [{three}] }}, ", run.from);
        }
        text.push_str("] },\n");
    }
    text.push_str("];\n");
    text
}

/// `TABLE` of (code, the first generation that knows it, its texts …), sorted by code.
#[must_use]
pub fn errors(table: &str, texts: usize) -> String {
    let kinds = ", &CStr".repeat(texts);
    let mut text = format!("pub const TABLE: &[(u32, u16{kinds})] = &[\n");
    for row in oracle::errors(table, texts) {
        let texts: String = row
            .texts
            .iter()
            .map(|text| format!(", c{text:?}"))
            .collect();
        let _ = writeln!(text, "    ({}, {}{texts}),", row.code, row.since);
    }
    text.push_str("];\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_simulated_becomes_a_stub() {
        let text = entries(
            "cuA 470 3 3 1 1\ncuB 550 - S S -\ncuV 470 - - - -\n",
            &["cuA"],
            &["cuB"],
            &["cuV"],
        );
        assert!(text.contains("cuA { 470, 65535, [Recorded::Code(3), Recorded::Code(3), Recorded::Code(3), Recorded::Code(3), Recorded::Code(3), Recorded::Code(1), Recorded::Code(1), Recorded::Code(1)], [Recorded::Code(1)] }"));
        assert!(
            text.contains("stubs! {\n}\nundeclared! {\n    cuB\n}\ndata! {\n    cuV\n}\n"),
            "{text}"
        );
    }

    #[test]
    #[should_panic(expected = "exported by no driver: [\"cuC\"]")]
    fn what_no_driver_exports_cannot_be_simulated() {
        let _ = entries("cuA 470 3 3 1 1\n", &["cuC"], &[], &[]);
    }
}
