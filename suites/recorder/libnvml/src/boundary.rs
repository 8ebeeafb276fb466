//! The table, expanded.

use abi::nvml::enumerations::*;
use abi::nvml::*;
use recorder::boundary::Driver;

macro_rules! table {
    ($($rows:tt)*) => {
        recorder::stand_in! {
            (
                Driver {
                    api: trace::nvml::API,
                    variable: "RINGFENCE_RECORDED_LIBNVML",
                    ends: trace::nvml::ends,
                    names: NAMES,
                    next: &NEXT,
                    exports: &EXPORTS,
                    by_address: std::sync::OnceLock::new(),
                },
                []
            )
            $($rows)*
        }
    };
}
abi::nvml_signatures!(table);
