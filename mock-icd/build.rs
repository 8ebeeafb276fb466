//! Binds the library's own names to itself, as the vendor's driver does: nothing preloaded gets between the table of
//! commands and the functions it names.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
