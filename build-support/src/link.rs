//! Link arguments, as lines that a build script prints to cargo.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
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
    old_glibc();
}

/// What every build of the layer's source is linked with.
pub fn layer() {
    bound_to_itself();
    // The loader unmaps a layer at every vkDestroyInstance; the ledger's slot and the table of chains outlive that (decision 27).
    never_unmapped();
    needing_libc_alone();
    old_glibc();
}

/// Names the conditions under which the interposer's source becomes a proxy (`enforcement/proxy`).
pub fn proxy_cfg() {
    println!("cargo::rustc-check-cfg=cfg(proxy)");
    println!("cargo::rustc-check-cfg=cfg(stands_for, values(\"libcuda\", \"libnvml\"))");
}

/// DT_NEEDED on `name`, looked for in `directory`, without the library being there when this one is linked.
///
/// # Panics
/// As [`stand_in`].
pub fn needing(name: &str, directory: &str) {
    let library = stand_in(name, name, "", None);
    argument(&format!(
        "--push-state,--no-as-needed,{},--pop-state",
        library.display()
    ));
    argument(&format!("-rpath,{directory}"));
}

/// References to the library's own exports reach those, as in the vendor's libraries (decision 18).
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

/// Keeps the shadow stack of a program that has one: without the mark one library turns it off for its host (decision 26).
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
    found_first(out);
}

/// What glibc 2.34 moved into libc, by the library and the version that it had before: [`OLD_NAMES`]. A library so linked loads under both, because
/// a newer glibc keeps the old names, and `libpthread.so.0` and `libdl.so.2` for those who need them. What else keeps a library on old ground is the
/// crate `floor`.
///
/// # Panics
/// As [`stand_in`].
pub fn old_glibc() {
    // Nothing there is older than the machine's own first version.
    let arch = env::var_os("CARGO_CFG_TARGET_ARCH").expect("cargo names the machine");
    let first = match arch.to_str() {
        Some("x86_64") => "GLIBC_2.2.5",
        Some("aarch64") => "GLIBC_2.17",
        _ => panic!("nobody wrote down glibc's first version on {arch:?}"),
    };
    for (file, soname, versions) in OLD_NAMES {
        let mut source = String::new();
        let mut script = BTreeMap::<&str, String>::new();
        for (version, names) in versions {
            let version = if arch == "x86_64" { version } else { first };
            for name in *names {
                source += &format!("void {name}(void) {{}}\n");
                *script.entry(version).or_default() += &format!(" {name};");
            }
        }
        let script: String = script
            .iter()
            .map(|(version, names)| format!("{version} {{ global:{names} }};\n"))
            .collect();
        // Found before the system's own, by the -lpthread and -ldl that std asks for.
        let library = stand_in(file, soname, &source, Some(&script));
        found_first(library.parent().expect("OUT_DIR"));
    }
}

/// Names by their version.
type Versions = &'static [(&'static str, &'static [&'static str])];

/// File for the linker, SONAME, and by version, as on x86-64, what of it our libraries and the mocks use.
const OLD_NAMES: [(&str, &str, Versions); 2] = [
    (
        "libpthread.so",
        "libpthread.so.0",
        &[
            (
                "GLIBC_2.2.5",
                &[
                    "__pthread_key_create",
                    "pthread_attr_getguardsize",
                    "pthread_attr_getstack",
                    "pthread_attr_setstacksize",
                    "pthread_create",
                    "pthread_detach",
                    "pthread_getattr_np",
                    "pthread_join",
                    "pthread_key_create",
                    "pthread_key_delete",
                    "pthread_mutexattr_destroy",
                    "pthread_mutexattr_init",
                    "pthread_mutexattr_setpshared",
                    "pthread_once",
                    "pthread_setspecific",
                ],
            ),
            (
                "GLIBC_2.12",
                &[
                    "pthread_mutex_consistent",
                    "pthread_mutexattr_setrobust",
                    "pthread_setname_np",
                ],
            ),
        ],
    ),
    (
        "libdl.so",
        "libdl.so.2",
        &[("GLIBC_2.2.5", &["dladdr", "dlopen", "dlsym"])],
    ),
];

/// A library in OUT_DIR that is there for the linker alone: its SONAME, names and versions.
///
/// # Panics
/// Where OUT_DIR cannot be written or `cc`, rustc's own linker, makes no library.
fn stand_in(file: &str, soname: &str, source: &str, versions: Option<&str>) -> PathBuf {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let library = out.join(file);
    let written = out.join(file).with_extension("c");
    fs::write(&written, source).expect("OUT_DIR is writable");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-nostdlib", "-w", "-fno-builtin"])
        .arg(&written)
        .arg("-o")
        .arg(&library);
    cc.arg(format!("-Wl,-soname,{soname}"));
    if let Some(versions) = versions {
        let script = out.join(file).with_extension("map");
        fs::write(&script, versions).expect("OUT_DIR is writable");
        cc.arg(format!("-Wl,--version-script,{}", script.display()));
    }
    let made = cc.status();
    assert!(
        made.is_ok_and(|status| status.success()),
        "cc made no {}",
        library.display()
    );
    library
}

/// The linker looks for libraries there before anywhere else.
fn found_first(directory: &Path) {
    println!("cargo::rustc-link-search=native={}", directory.display());
}

fn argument(argument: &str) {
    println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
}
