//! Link options: bound to itself, and never unmapped, because names of handles outlive an instance.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for argument in ["-Bsymbolic", "-znodelete"] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
}
