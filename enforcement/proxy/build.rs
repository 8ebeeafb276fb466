//! Makes of the interposer's source a library that stands in a driver's place: which driver, its name, and what it needs to reach the
//! driver itself.

use std::env;

use build_support::link;

fn main() {
    println!("cargo::rerun-if-changed=../build.rs");
    let package = env::var_os("CARGO_PKG_NAME").expect("cargo names the package");
    let (stands_for, soname, driver) = match package.to_str() {
        Some("proxy-libcuda") => ("libcuda", "libcuda.so.1", "libcuda.driver.so"),
        Some("proxy-libnvml") => ("libnvml", "libnvidia-ml.so.1", "libnvidia-ml.driver.so"),
        _ => panic!("{package:?} stands for no driver"),
    };
    println!("cargo::rustc-cfg=proxy");
    println!("cargo::rustc-cfg=stands_for=\"{stands_for}\"");
    link::proxy_cfg();
    link::interposer();
    link::called(soname);
    link::needing(driver, "$ORIGIN/driver");
}
