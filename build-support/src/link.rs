//! Link arguments, as lines that a build script prints to cargo.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// What every build of the interposer's source is linked with.
pub fn interposer() {
    bound_to_itself();
    // A hook's address may be anywhere once it was handed out.
    never_unmapped();
    // dlsym is called before lazy binding could be trusted.
    bound_at_once();
    // The naked entries keep it.
    with_shadow_stack();
    needing_libc_alone();
}

/// What every build of the layer's source is linked with.
pub fn layer() {
    bound_to_itself();
    // The loader unmaps a layer at every vkDestroyInstance; the ledger's slot and the table of chains outlive that (FINDINGS 27).
    never_unmapped();
    needing_libc_alone();
}

/// Names the conditions under which the interposer's source becomes a proxy (`enforcement/proxy`).
pub fn proxy_cfg() {
    println!("cargo::rustc-check-cfg=cfg(proxy)");
    println!("cargo::rustc-check-cfg=cfg(stands_for, values(\"libcuda\", \"libnvml\"))");
}

/// DT_NEEDED on `name`, looked for in `directory`, without the library being there when this one is linked.
///
/// # Panics
/// Where OUT_DIR cannot be written or `cc`, rustc's own linker, makes no library.
pub fn needing(name: &str, directory: &str) {
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let library = Path::new(&out).join(name);
    let made = Command::new("cc")
        .args(["-shared", "-nostdlib", "-x", "c", "/dev/null", "-o"])
        .arg(&library)
        .arg(format!("-Wl,-soname,{name}"))
        .status();
    assert!(
        made.is_ok_and(|status| status.success()),
        "cc made no {}",
        library.display()
    );
    argument(&format!(
        "--push-state,--no-as-needed,{},--pop-state",
        library.display()
    ));
    argument(&format!("-rpath,{directory}"));
}

/// References to the library's own exports reach those, as in the vendor's libraries (FINDINGS 18).
pub fn bound_to_itself() {
    argument("-Bsymbolic");
}

/// Mapped until the process ends, whoever closes it.
pub fn never_unmapped() {
    argument("-znodelete");
}

/// Nothing is left to be bound at the first call.
pub fn bound_at_once() {
    argument("-znow");
}

/// The name by which programs were linked to the library that this one stands for.
pub fn called(soname: &str) {
    argument(&format!("-soname,{soname}"));
}

/// Keeps the shadow stack of a program that has one: without the mark one library turns it off for its host (FINDINGS 26).
pub fn with_shadow_stack() {
    if env::var_os("CARGO_CFG_TARGET_ARCH").is_some_and(|arch| arch == "x86_64") {
        argument("-zshstk");
    }
}

/// Takes the unwinder from the compiler's archives, so that libc alone is needed at run time: a preloaded library with a
/// missing dependency ends every program.
///
/// # Panics
/// Where OUT_DIR cannot be written.
pub fn needing_libc_alone() {
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let out = Path::new(&out);
    // Found before the compiler's own libgcc_s.
    fs::write(out.join("libgcc_s.so"), "GROUP ( -lgcc_eh -lgcc )\n").expect("OUT_DIR is writable");
    println!("cargo::rustc-link-search=native={}", out.display());
}

fn argument(argument: &str) {
    println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
}
