//! Binds the library's own names to itself, as the vendor's driver does: nothing preloaded gets between the table of
//! commands and the functions it names. It stays mapped when the loader closes it with the last instance, and the world that it maps
//! with it: opened anew it would map one more each time.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    build_support::link::bound_to_itself();
    build_support::link::never_unmapped();
    build_support::link::old_glibc();
}
