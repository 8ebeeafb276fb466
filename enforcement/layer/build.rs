//! Link arguments of `libvgpu_vk.so`.

use build_support::link;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    link::bound_to_itself();
    // The loader unmaps a layer at every vkDestroyInstance; the ledger's slot and the table of chains outlive that (FINDINGS 27).
    link::never_unmapped();
    link::needing_libc_alone();
}
