//! Link options of `libvgpu_vk.so`: bound to itself, never unmapped, needing nothing but libc.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    // Found before the compiler's own libgcc_s: takes the unwinder from the archives, so that libc alone is needed at run time.
    fs::write(out.join("libgcc_s.so"), "GROUP ( -lgcc_eh -lgcc )\n").expect("OUT_DIR is writable");
    println!("cargo::rustc-link-search=native={}", out.display());
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // The loader unmaps a layer at every vkDestroyInstance; the ledger's slot and the table of chains outlive that (FINDINGS 27).
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
