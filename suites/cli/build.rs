//! Has the program give instrumented libraries the functions by which they tell their counters (`fuzz::ffi::coverage`).

fn main() {
    for name in [
        "__sanitizer_cov_8bit_counters_init",
        "__sanitizer_cov_pcs_init",
    ] {
        println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol={name}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
