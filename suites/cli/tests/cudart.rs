//! The CUDA runtime's own library on the simulated machine.
//!
//! Promise: what cannot work there says so. libcudart begins with private tables of the vendor's driver, which the simulated one has not; its
//! programs are told no more than an error's number, so that the mock names itself, the reason and what works instead, once a process (docs/holes.md, K2).

use std::path::Path;
use std::process::{Command, Output};

#[path = "../../missing.rs"]
mod missing;

const PYTHON: &str = "/usr/bin/python3";
const LIBRARIES: [&str; 2] = [
    "headers/nvidia/cuda_runtime/lib/libcudart.so.12",
    "headers13/nvidia/cu13/lib/libcudart.so.13",
];

/// Loads it and asks twice for memory; prints the answers.
const CLIENT: &str = "import ctypes, sys
runtime = ctypes.CDLL(sys.argv[1])
pointer = ctypes.c_void_p()
print(*(runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(4096)) for _ in range(2)))";

/// Calls the driver itself; prints how many devices it has.
const DRIVER_CLIENT: &str = "import ctypes
cuda, count = ctypes.CDLL('libcuda.so.1'), ctypes.c_int()
cuda.cuInit(0)
cuda.cuDeviceGetCount(ctypes.byref(count))
print(count.value)";

fn python(target: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ringfence"))
        .args(["exec", "--target", target, "--", PYTHON, "-c"])
        .args(arguments)
        .output()
        .expect("ringfence starts")
}

#[test]
fn a_runtimes_program_is_told_once_why_it_cannot_begin() {
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.clients");
    for library in LIBRARIES {
        let library = clients.join(library);
        if !library.exists() || !Path::new(PYTHON).exists() {
            missing::skip(format_args!(
                "{} or python3 is not there",
                library.display()
            ));
            return;
        }
        for target in ["none", "ours"] {
            let output = python(target, &[CLIENT, library.to_str().expect("UTF-8")]);
            let answers = String::from_utf8_lossy(&output.stdout).into_owned();
            let answers: Vec<&str> = answers.split_whitespace().collect();
            assert_eq!(answers.len(), 2, "{output:?}");
            assert!(!answers.contains(&"0"), "{output:?}");
            let stderr = String::from_utf8_lossy(&output.stderr);
            let told: Vec<&str> = stderr
                .lines()
                .filter(|line| line.starts_with("mock-libcuda: "))
                .collect();
            let [told] = told[..] else {
                panic!("{target}: {stderr}")
            };
            for word in [
                "libcudart",
                "cuGetExportTable",
                "driver API",
                "NVML",
                "Vulkan",
                "real driver",
            ] {
                assert!(told.contains(word), "{word} is missing in {told}");
            }
        }
    }
    let driver = python("none", &[DRIVER_CLIENT]);
    assert_eq!(String::from_utf8_lossy(&driver.stdout), "1\n");
    assert_eq!(
        String::from_utf8_lossy(&driver.stderr),
        "",
        "nothing to say to who needs no runtime"
    );
}
