//! The promise by CUDA.

pub mod answers;
pub mod arguments;
pub mod arrays;
pub mod budget;
pub mod contexts;
pub mod devices;
pub mod faults;
pub mod floor;
pub mod free;
pub mod functions;
pub mod graphs;
pub mod green;
pub mod info;
pub mod launches;
pub mod memsets;
pub mod modules;
pub mod newer;
pub mod physical;
pub mod pinned;
pub mod pools;
pub mod routes;
pub mod share;
pub mod threads;
pub mod truth;
pub mod workers;
pub mod zeros;
