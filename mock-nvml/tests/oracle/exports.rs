//! What the built library exports, and how it is linked.

use std::collections::{BTreeMap, BTreeSet};

use object::{Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, RelocationTarget};

use crate::boundary::{built, rows};
use crate::{ANSWERS, NVML};

#[test]
fn the_exports_are_those_of_driver_580_and_each_has_its_own_address() {
    let bytes = std::fs::read(built("libmock_nvml.so")).expect("the built library");
    let file = object::File::parse(&*bytes).expect("ELF");
    let defined = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition());
    let exported: BTreeSet<String> = defined
        .map(|symbol| symbol.name().unwrap().to_owned())
        .collect();
    let wanted: BTreeSet<String> = rows(ANSWERS)
        .into_iter()
        .map(|row| row[0].to_owned())
        .collect();
    assert_eq!(wanted.len(), 404);
    assert_eq!(exported, wanted);

    let mut by_address: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for name in &wanted {
        by_address
            .entry(NVML.address(name).expect("exported"))
            .or_default()
            .push(name);
    }
    let shared: Vec<_> = by_address
        .values()
        .filter(|names| names.len() > 1)
        .collect();
    assert!(shared.is_empty(), "one address for {shared:?}");
}

#[test]
fn no_relocation_names_an_own_export_and_no_symbol_has_a_version() {
    let bytes = std::fs::read(built("libmock_nvml.so")).expect("the built library");
    let file = object::File::parse(&*bytes).expect("ELF");
    let symbols = file
        .dynamic_symbol_table()
        .expect("a dynamic library has one");
    for (_, relocation) in file
        .dynamic_relocations()
        .expect("a dynamic library has some")
    {
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
    assert!(
        file.sections()
            .all(|section| section.name() != Ok(".gnu.version_d"))
    );
    let soname = b"libnvidia-ml.so.1\0";
    assert!(bytes.windows(soname.len()).any(|window| window == soname));
}
