//! Link arguments of `libvgpu.so`.

use build_support::link;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    link::proxy_cfg();
    link::interposer();
}
