//! The exports of what is simulated, expanded from `table.rs`.

#![allow(non_snake_case, reason = "C names stay exact")]

use abi::cuda::enumerations::*;
use abi::cuda::*;

use crate::boundary::export;
use crate::{
    advice, array, batch, capture, conditional, context, copy, device, error, event, exec,
    external, external_semaphore, fill, function, graph, graph_memory, green, host, host_function,
    init, ipc, ipc_event, launch, library, limits, link, lookup, managed, memop, memory, module,
    narrow, node, occupancy, peer, pointer, pool, pool_sharing, prefetch, region, reservation,
    stream, texture_reference, unowned, user_object, view, vmm,
};

macro_rules! entry_points {
    ($($noun:ident { $($name:ident => $handler:path;)* })*) => {
        $($( abi::cuda_signature!($name => export!($handler)); )*)*
    };
}
include!("table.rs");
