//! Where the driver itself dies: rows of the oracle, which a fuzzer leaves out. By list: a row that goes is fuzzed again.

use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Argument by argument.
const ARGUMENTS: &str = include_str!("../../../fixtures/oracle/cuda-arguments-h200.txt");
/// Ten zeros, or a device and NULLs, at once.
const ZEROS: [&str; 2] = [
    include_str!("../../../fixtures/oracle/libcuda.txt"),
    include_str!("../../../fixtures/oracle/nvml.txt"),
];
/// What the enforcer is known to do wrong.
const KNOWN: &str = include_str!("../../../fixtures/fuzz-known.txt");
/// Places that an argument can have.
const PLACES: usize = 12;

/// What a function of the driver does not survive, by the argument's place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deaths {
    null: [bool; PLACES],
    /// A handle that is gone, or an address that is none.
    stale: [bool; PLACES],
    numbers: Vec<(usize, u64)>,
    /// A thread without a current context, whatever the arguments.
    no_context: bool,
}

impl Deaths {
    pub fn without_context(&self) -> bool {
        self.no_context
    }

    pub fn by_null(&self, place: usize) -> bool {
        self.null.get(place).copied().unwrap_or(true)
    }

    pub fn by_stale(&self, place: usize) -> bool {
        self.stale.get(place).copied().unwrap_or(true)
    }

    pub fn by_number(&self, place: usize, number: u64) -> bool {
        self.numbers.contains(&(place, number))
    }

    /// Flags without those that are left out.
    pub fn without(&self, place: usize, flags: u64) -> u64 {
        let left_out = self.numbers.iter().filter(|(at, _)| *at == place);
        left_out.fold(flags, |flags, (_, bits)| flags & !bits)
    }

    fn enter(&mut self, call: &str) {
        self.no_context |= call == "noctx";
        let call = call.strip_prefix("noctx ").unwrap_or(call);
        let Some((place, what)) = call.split_once('=') else {
            return;
        };
        let Some(place) = place.parse().ok().filter(|&place: &usize| place < PLACES) else {
            return;
        };
        match what.strip_prefix("0x") {
            None if what == "NULL" => self.null[place] = true,
            None => self.stale[place] = true,
            Some(digits) => {
                let number = u64::from_str_radix(digits, 16).unwrap_or_default();
                self.numbers.push((place, number));
            }
        }
    }
}

/// What a function does not survive, with what other versions of it do not: they are one body.
pub fn deaths(name: &str) -> &'static Deaths {
    static ALL: OnceLock<BTreeMap<&str, Deaths>> = OnceLock::new();
    static NONE: OnceLock<Deaths> = OnceLock::new();
    let all = ALL.get_or_init(read);
    all.get(base(name))
        .unwrap_or_else(|| NONE.get_or_init(Deaths::default))
}

fn read() -> BTreeMap<&'static str, Deaths> {
    let mut all: BTreeMap<&str, Deaths> = BTreeMap::new();
    for line in ARGUMENTS.lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split('\t');
        let (Some(function), Some(answer), Some(calls)) =
            (columns.next(), columns.next(), columns.next())
        else {
            continue;
        };
        if answer == "died" {
            let function = function.split('#').next().unwrap_or(function);
            let deaths = all.entry(base(function)).or_default();
            calls.split(';').for_each(|call| deaths.enter(call));
        }
    }
    // With all arguments zero: which of them it was is not known, so none of its pointers is NULL.
    for line in ZEROS.iter().flat_map(|table| table.lines()) {
        let mut columns = line.split_whitespace();
        let function = columns.next().unwrap_or("#");
        if !function.starts_with('#') && columns.any(|answer| answer == "S") {
            all.entry(base(function)).or_default().null = [true; PLACES];
        }
    }
    for line in KNOWN.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        if let (Some(function), Some(call)) = (words.next(), words.next()) {
            all.entry(base(function)).or_default().enter(call);
        }
    }
    all
}

/// The name without version and stream variant.
fn base(name: &str) -> &str {
    let name = name.strip_suffix("_ptsz").unwrap_or(name);
    let name = name.strip_suffix("_ptds").unwrap_or(name);
    match name.rsplit_once("_v") {
        Some((base, version)) if version.parse::<u8>().is_ok() => base,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oracle_says_where_a_driver_dies() {
        let capture = deaths("cuStreamBeginCapture");
        assert!(capture.by_stale(0) && !capture.by_stale(1));
        assert!(deaths("cuMemPoolSetAttribute").by_null(2));
        assert!(deaths("cuMemImportFromShareableHandle").by_number(2, 8));
        assert!(deaths("cuGetProcAddress_v2").by_null(1));
        assert!(deaths("cuGraphAddKernelNode_v2").without_context());
        assert_eq!(deaths("cuMemAlloc_v2"), &Deaths::default());
    }

    #[test]
    fn every_row_of_a_dead_driver_is_read() {
        let died = ARGUMENTS
            .lines()
            .filter(|line| line.split('\t').nth(1) == Some("died"));
        for line in died {
            let function = line.split(['\t', '#']).next().unwrap_or_default();
            let calls = line.split('\t').nth(2).unwrap_or_default();
            let lone = calls.split(';').all(|call| !call.contains('='));
            assert!(lone || deaths(function) != &Deaths::default(), "{line}");
        }
    }
}
