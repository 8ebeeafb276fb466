//! Link arguments of `libvgpu.so`.

use build_support::link;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    link::bound_to_itself();
    // A hook's address may be anywhere once it was handed out.
    link::never_unmapped();
    // dlsym is called before lazy binding could be trusted.
    link::bound_at_once();
    // The naked entries keep it.
    link::with_shadow_stack();
    link::needing_libc_alone();
}
