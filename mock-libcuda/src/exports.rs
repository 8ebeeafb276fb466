//! The exports of what is simulated, expanded from `table.rs`.

#![allow(non_snake_case, reason = "C names stay exact")]

use abi::cuda::enumerations::*;
use abi::cuda::*;

use crate::boundary::export;
use crate::{
    array, capture, context, copy, device, error, event, exec, fill, function, graph, graph_memory,
    host, host_function, init, launch, library, limits, link, lookup, memop, memory, module, node,
    occupancy, pointer, pool, stream, unowned, user_object, vmm,
};

macro_rules! entry_points {
    ($($noun:ident { $($name:ident => $handler:path;)* })*) => {
        $($( abi::cuda_signature!($name => export!($handler)); )*)*
    };
}
include!("table.rs");
