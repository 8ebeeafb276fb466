//! What the headers of CUDA 13.5 declare, against the exports that the tables have: `fixtures/oracle/libcuda.txt` and `proc-address.txt`.

use std::collections::BTreeSet;
use std::path::Path;

use c_witness::Headers;
use harness::{Api, symbols};

const NEWEST: u16 = 615;

/// The names in a header that the preprocessor leaves, where they are functions' or types': `marker` says what stands in front.
fn preprocessed(header: &str) -> String {
    let headers = Headers::all().unwrap_or_else(|error| panic!("{error}"));
    let newest = headers.last().expect("three");
    assert_eq!(newest.version, "13.5");
    let scratch = tempfile::tempdir().expect("a directory");
    let (source, output) = (scratch.path().join("all.c"), scratch.path().join("all.i"));
    std::fs::write(&source, format!("#include <{header}>\n")).expect("a source");
    let flags = ["-E", "-P", "-D__CUDA_API_VERSION_INTERNAL"];
    c_witness::compile(newest, &source, &output, &flags).unwrap_or_else(|error| panic!("{error}"));
    std::fs::read_to_string(Path::new(&output)).expect("what the compiler wrote")
}

fn names(text: &str, wanted: impl Fn(&str, &str) -> bool) -> BTreeSet<String> {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut found = BTreeSet::new();
    let mut rest = text;
    while let Some(begin) = rest.find(is_word) {
        let word = &rest[begin..];
        let end = word.find(|letter| !is_word(letter)).unwrap_or(word.len());
        let (name, after) = word.split_at(end);
        if wanted(name, after.trim_start()) {
            found.insert(name.to_owned());
        }
        rest = after;
    }
    found
}

#[test]
fn every_function_that_cuda_13_5_declares_is_an_export_of_its_generation() {
    let text = preprocessed("cuda.h");
    let declared = names(&text, |name, after| {
        let function = name
            .strip_prefix("cu")
            .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_uppercase()));
        function && after.starts_with('(')
    });
    assert!(declared.len() > 600, "{} functions", declared.len());
    let listed = symbols::of_generation(Api::Cuda, NEWEST);
    let missing: Vec<_> = declared
        .iter()
        .filter(|name| !listed.contains(&name.as_str()))
        .collect();
    assert!(missing.is_empty(), "declared, and in no table: {missing:?}");
    // What 615 has beyond 580 is there because it is declared.
    let before = symbols::of_generation(Api::Cuda, 580);
    let invented: Vec<_> = listed
        .iter()
        .filter(|name| !before.contains(name) && !declared.contains(**name))
        .collect();
    assert!(
        invented.is_empty(),
        "in the table, and declared nowhere: {invented:?}"
    );
}

/// Each version at which a look-up changes is one that a type of cudaTypedefs.h is named by.
#[test]
fn every_look_up_beyond_13_0_is_a_type_of_cuda_13_5() {
    let text = preprocessed("cudaTypedefs.h");
    let types = names(&text, |name, _| name.starts_with("PFN_cu"));
    let table = include_str!("../../../fixtures/oracle/proc-address.txt");
    let mut checked = 0;
    for row in table.lines().filter(|row| !row.starts_with('#')) {
        let (base, runs) = row.split_once(' ').expect("a name and its runs");
        for run in runs.split(' ') {
            let (version, _) = run.split_once(':').expect("a version and its answers");
            let number: u32 = version.parse().expect("a number");
            if (13_001..=13_050).contains(&number) {
                let wanted = format!("PFN_{base}_v{version}");
                assert!(types.contains(&wanted), "{wanted}");
                checked += 1;
            }
        }
    }
    assert_eq!(checked, 43);
}
