//! The name by which programs ask for a driver.

use build_support::link;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    link::called("libcuda.so.1");
}
