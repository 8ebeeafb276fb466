//! Every function that a driver generation exports, with what the oracle recorded of it.

use std::sync::OnceLock;

use abi::cuda::CUresult;
use mock_device::generation;

use crate::driver;

/// The answer to ten zero arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    Code(u32),
    /// The real driver died of SIGSEGV.
    Crash,
    Unknown,
}

/// A row of the oracle's table.
struct Row {
    name: &'static str,
    /// The generations that export it.
    first: u16,
    last: u16,
    /// Before cuInit, by generation, the oldest first.
    before: [Recorded; generation::NUMBERS + 1],
    initialised: Recorded,
}

macro_rules! entries {
    ($($name:ident { $first:expr, $last:expr, $before:expr, [$after:expr] })*) => {
        /// One exported function.
        #[allow(non_camel_case_types, clippy::enum_variant_names, reason = "C names stay exact")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Entry { $($name,)* }

        const ROWS: &[Row] = &[$(Row {
            name: stringify!($name),
            first: $first,
            last: $last,
            before: $before,
            initialised: $after,
        },)*];
    };
}
macro_rules! stubs {
    ($($name:ident)*) => {};
}
macro_rules! undeclared {
    ($($name:ident)*) => {};
}
macro_rules! data {
    ($($name:ident)*) => {};
}
include!(concat!(env!("OUT_DIR"), "/entries.rs"));

impl Entry {
    pub fn name(self) -> &'static str {
        ROWS[self as usize].name
    }

    pub fn before_init(self) -> Recorded {
        ROWS[self as usize].before[generation().column]
    }

    pub fn initialised(self) -> Recorded {
        ROWS[self as usize].initialised
    }

    /// Whether this machine's driver looks at its own initialisation before it looks at the arguments.
    pub fn refuses_before_init(self) -> bool {
        self.before_init() == Recorded::Code(CUresult::ERROR_NOT_INITIALIZED.0)
    }

    /// Whether this machine's driver has it.
    pub fn exported(self) -> bool {
        let row = &ROWS[self as usize];
        (row.first..=row.last).contains(&generation().number)
    }
}

/// The driver generation that this machine says it has.
pub struct Generation {
    pub number: u16,
    column: usize,
    pub refuses_newer: bool,
    /// Runs of the numbers of device attributes that it knows.
    attributes: Vec<[i32; 2]>,
}

impl Generation {
    pub fn knows_attribute(&self, number: i32) -> bool {
        let mut runs = self.attributes.iter();
        runs.any(|[first, last]| (*first..=*last).contains(&number))
    }
}

pub fn generation() -> &'static Generation {
    static GENERATION: OnceLock<Generation> = OnceLock::new();
    GENERATION.get_or_init(|| {
        let numbers = generation::numbers();
        let newest = numbers.len() - 1;
        let driver = driver::world().map(|world| &world.machine().driver);
        let number = driver.map_or(numbers[newest], generation::number);
        Generation {
            number,
            column: numbers
                .iter()
                .position(|known| *known == number)
                .unwrap_or(newest),
            attributes: generation::cuda_attributes(number),
            refuses_newer: driver.is_none_or(|driver| generation::of(driver).refuses_newer),
        }
    })
}
