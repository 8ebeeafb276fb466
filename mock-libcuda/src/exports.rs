//! The exports of what is simulated, expanded from `table.rs`.

#![allow(non_snake_case, reason = "C names stay exact")]

use abi::cuda::*;

use crate::boundary::export;
use crate::{
    array, context, copy, device, error, event, fill, host, init, launch, limits, lookup, memory,
    pointer, pool, stream, vmm,
};

macro_rules! entry_points {
    ($($noun:ident { $($name:ident => $handler:path;)* })*) => {
        $($( abi::cuda_signature!($name => export!($handler)); )*)*
    };
}
include!("table.rs");
