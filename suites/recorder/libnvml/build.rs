//! Link arguments: the driver's own DT_SONAME, so that whoever asks for the driver by name finds the recorder.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for argument in ["-soname,libnvidia-ml.so.1", "-Bsymbolic", "-znodelete"] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
}
