//! The exports of what is simulated, expanded from `table.rs`.

#![allow(non_snake_case, reason = "C names stay exact")]

use abi::nvml::enumerations::*;
use abi::nvml::*;

use crate::boundary::export;
use crate::{
    device, error, event, field, gpm, memory, mig, private, process, system, topology, utilization,
    vgpu,
};

macro_rules! entry_points {
    ($($noun:ident { $($name:ident => $($handler:ident)::+;)* })*) => {
        $($( abi::nvml_signature!($name => export!($($handler)::+)); )*)*
    };
}
include!("table.rs");
