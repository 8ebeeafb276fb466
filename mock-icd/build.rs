//! Binds the library's own names to itself, as the vendor's driver does: nothing preloaded gets between the table of
//! commands and the functions it names.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    build_support::link::bound_to_itself();
    build_support::link::old_glibc();
}
