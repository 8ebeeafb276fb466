//! What the built library and its copies for each generation export, and how it is linked.

use std::collections::{BTreeMap, BTreeSet};

use build_support::oracle::GENERATIONS;
use object::{Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, RelocationTarget};

use crate::boundary::built;
use crate::generations::library;
use crate::score::Score;
use crate::{CUDA, EXPORTS};

#[test]
fn the_exports_are_those_of_all_generations_and_each_has_its_own_address() {
    let bytes = std::fs::read(built("libmock_libcuda.so")).expect("the built library");
    let file = object::File::parse(&*bytes).expect("ELF");
    let exported: BTreeSet<&str> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition())
        .map(|symbol| symbol.name().unwrap())
        .collect();
    let wanted: BTreeSet<&str> = EXPORTS.iter().map(|row| row.name).collect();
    let of_580 = EXPORTS.iter().filter(|row| row.span.contains(580));
    assert_eq!(of_580.count(), 707);
    assert_eq!(exported, wanted);

    let mut by_address: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for name in &wanted {
        by_address
            .entry(CUDA.address(name).expect("exported"))
            .or_default()
            .push(name);
    }
    let shared: Vec<_> = by_address
        .values()
        .filter(|names| names.len() > 1)
        .collect();
    assert!(shared.is_empty(), "one address for {shared:?}");
}

/// Every name, by dlsym on the copy, against the table; and all that it finds against the recorded list.
pub fn compare(generation: u16) -> Score {
    let mut score = Score::default();
    let mut found = BTreeSet::new();
    for row in EXPORTS.iter() {
        let here = library(generation).address(row.name).is_some();
        let there = row.span.contains(generation);
        score.checked += 1;
        if here {
            found.insert(row.name);
        }
        if here != there {
            let line = format!("{}: exported {here}, recorded {there}", row.name);
            score.wrong.push(line);
        }
    }
    score.whole_list("symbols-libcuda", generation, found.iter().copied());
    score
}

#[test]
fn each_generation_exports_what_its_driver_did() {
    for generation in GENERATIONS {
        compare(generation).all(&format!("exports of {generation}"));
    }
}

#[test]
fn no_relocation_names_an_own_export() {
    let bytes = std::fs::read(built("libmock_libcuda.so")).expect("the built library");
    let file = object::File::parse(&*bytes).expect("ELF");
    let symbols = file
        .dynamic_symbol_table()
        .expect("a dynamic library has one");
    let mut count = 0;
    for (_, relocation) in file
        .dynamic_relocations()
        .expect("a dynamic library has some")
    {
        count += 1;
        if let RelocationTarget::Symbol(index) = relocation.target()
            && let Ok(symbol) = symbols.symbol_by_index(index)
        {
            assert!(
                symbol.is_undefined(),
                "a relocation names {:?}",
                symbol.name()
            );
        }
    }
    assert!(count > 0);
}

#[test]
fn it_is_called_libcuda_and_has_no_symbol_versions() {
    let bytes = std::fs::read(built("libmock_libcuda.so")).expect("the built library");
    let text = |needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
    assert!(text(b"libcuda.so.1\0"));
    let file = object::File::parse(&*bytes).expect("ELF");
    assert!(
        file.sections()
            .all(|section| section.name() != Ok(".gnu.version_d")),
        "no version definitions"
    );
}
