//! Makes of the enforcer's own source a build that can have a known defect (`enforcement/seeds`).

use std::env;

use build_support::link;

fn main() {
    println!("cargo::rerun-if-changed=../build.rs");
    println!("cargo::rustc-cfg=seeded");
    let package = env::var_os("CARGO_PKG_NAME").expect("cargo names the package");
    match package.to_str() {
        Some("seeded-interposer") => {
            link::proxy_cfg();
            link::interposer();
        }
        Some("seeded-layer") => link::layer(),
        _ => {}
    }
}
