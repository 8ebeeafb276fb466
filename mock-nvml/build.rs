//! Turns the oracle's table into Rust and sets the library's link options. See mock-libcuda's.

use build_support::{link, rust};

macro_rules! entry_points {
    ($($noun:ident { $($name:ident => $handler:path;)* })*) => {
        const SIMULATED: &[&str] = &[$($(stringify!($name),)*)*];
    };
}
include!("src/table.rs");

fn main() {
    link::called("libnvidia-ml.so.1");
    link::bound_to_itself();
    link::old_glibc();
    let tables = rust::Tables::new("../fixtures/oracle");
    tables.write(
        "entries.rs",
        &rust::entries(&tables.read("nvml.txt"), SIMULATED, &[], &[]),
    );
    tables.write(
        "errors.rs",
        &rust::errors(&tables.read("nvml-errors.txt"), 1),
    );
}
