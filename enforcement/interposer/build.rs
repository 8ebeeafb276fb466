//! Link arguments of `libvgpu.so`.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // A preloaded library with a missing dependency ends every program: the unwinder comes from the static library, so that libc alone is needed.
    fs::write(out.join("libgcc_s.so"), "GROUP ( -lgcc_eh -lgcc )\n").expect("OUT_DIR is writable");
    println!("cargo::rustc-link-search=native={}", out.display());
    let arguments = [
        // Our own references reach our own exports (FINDINGS 18).
        "-Bsymbolic",
        // A hook's address may be anywhere once it was handed out.
        "-znodelete",
        // dlsym is called before lazy binding could be trusted.
        "-znow",
    ];
    for argument in arguments {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
    if env::var_os("CARGO_CFG_TARGET_ARCH").is_some_and(|arch| arch == "x86_64") {
        // The naked entries keep the shadow stack: without the mark one library would turn it off for its host (FINDINGS 26).
        println!("cargo::rustc-cdylib-link-arg=-Wl,-zshstk");
    }
}
