//! Link arguments of `libvgpu_vk.so`.

use build_support::link;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    link::layer();
}
