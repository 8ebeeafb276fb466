//! Honest programs that the enforcer finds its way in (C14): each does under the preload what it does alone.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

mod machine;
use machine::Machine;

impl Machine {
    /// A directory with a small driver and the program, built with these definitions.
    fn new(definitions: &[&str]) -> Machine {
        let machine = Machine::empty();
        let driver = ["-shared", "-fPIC", "-DWHOLE", "-Wl,-soname,libcuda.so.1"];
        machine.compile("driver.c", "libcuda.so.1", &driver);
        let arguments = [definitions, &["-fno-builtin", "-pthread", "-ldl"]].concat();
        machine.compile("host.c", "host", &arguments);
        machine
    }

    /// What the program says, alone and then behind us.
    fn does(&self, arguments: &[&OsStr], behind: &[PathBuf]) {
        for preloads in [behind.to_vec(), [&[ours()], behind].concat()] {
            let preloads: Vec<_> = preloads
                .iter()
                .map(|path| path.to_str().expect("a path in UTF-8"))
                .collect();
            let output = Command::new(self.path("host"))
                .args(arguments)
                .env_clear()
                .env("LD_LIBRARY_PATH", self.directory.path())
                .env("LD_PRELOAD", preloads.join(":"))
                .env("CUDA_DEVICE_MEMORY_LIMIT", "1g")
                .env("RINGFENCE_LEDGER", self.path("ledger"))
                .output()
                .expect("the program runs");
            let said = |bytes| String::from_utf8_lossy(bytes).into_owned();
            let answer = (said(&output.stdout), said(&output.stderr));
            let expected = ("done\n".to_owned(), String::new());
            assert_eq!(
                answer, expected,
                "{arguments:?}, {preloads:?}: {}",
                output.status
            );
        }
    }
}

fn ours() -> PathBuf {
    let mut path = std::env::current_exe().expect("this executable has a path");
    path.set_file_name("libvgpu.so");
    path
}

#[test]
fn a_program_with_a_dl_iterate_phdr_of_its_own_starts() {
    Machine::new(&["-DOWN_ITERATE"]).does(&["iterates".as_ref()], &[]);
}

/// Its run-time library's dl_iterate_phdr asks dlsym for the real one before any constructor.
#[test]
fn a_program_built_with_a_thread_sanitizer_starts() {
    Machine::new(&["-fsanitize=thread"]).does(&["iterates".as_ref()], &[]);
}

/// What we keep until the process ends is no leak of the program's, which would end with an error (attack 24), whether the program exports the sanitizer's
/// functions or has them to itself (attack 35).
#[test]
fn a_program_built_with_a_leak_sanitizer_ends_well() {
    Machine::new(&["-fsanitize=leak"]).does(&["begins".as_ref()], &[]);
    Machine::new(&["-fsanitize=address", "-static-libasan"]).does(&["begins".as_ref()], &[]);
}

#[test]
fn a_child_that_is_forked_beside_a_look_up_looks_up() {
    let machine = Machine::new(&[]);
    machine.does(&["forks beside look-ups".as_ref()], &[]);
    machine.does(&["forks beside unwinding".as_ref()], &[]);
}

#[test]
fn names_are_found_while_libraries_come_and_go() {
    let machine = Machine::new(&[]);
    machine.compile("stub.c", "libstub.so", &["-shared", "-fPIC"]);
    let stub = machine.path("libstub.so");
    machine.does(&["looks up beside dlclose".as_ref(), stub.as_os_str()], &[]);
}

#[test]
fn a_look_up_waits_for_no_allocator_and_needs_none() {
    let machine = Machine::new(&["-DOWN_MALLOC"]);
    machine.does(&["looks up beside an allocator".as_ref()], &[]);
    machine.does(&["looks up without memory".as_ref()], &[]);
}

/// What is asked of us where malloc has nothing left may be refused, but the program lives.
#[test]
fn a_program_without_memory_lives() {
    let machine = Machine::new(&["-DOWN_MALLOC"]);
    machine.does(&["begins without memory".as_ref()], &[]);
}

#[test]
fn a_look_up_fits_on_a_signals_stack() {
    Machine::new(&[]).does(&["looks up on a signal's stack".as_ref()], &[]);
}

/// It has no other name by which the loader could tell that everybody sees it, or no GNU hash table.
#[test]
fn a_stub_that_everybody_sees_is_found() {
    let machine = Machine::new(&[]);
    for hash in ["-Wl,--hash-style=gnu", "-Wl,--hash-style=sysv"] {
        let arguments = ["-shared", "-fPIC", "-nostartfiles", hash];
        machine.compile("stub.c", "libstub.so", &arguments);
        let stub = machine.path("libstub.so");
        machine.does(&["sees a stub".as_ref(), stub.as_os_str()], &[]);
    }
}

/// A program asks by a weak reference whether its driver has a function; what nobody has is NULL (attack 25).
#[test]
fn a_weak_reference_to_what_no_driver_has_is_null() {
    let machine = Machine::new(&[]);
    let driver = machine.path("libcuda.so.1");
    let driver = driver.to_str().expect("a path in UTF-8");
    for linked in [&[][..], &["-DLINKED", "-Wl,--no-as-needed", driver]] {
        for way in [
            &["-fPIC", "-pie"][..],
            &["-fno-plt", "-fPIC", "-pie", "-Wl,-z,now"],
            &["-fPIC", "-pie", "-rdynamic"],
            &["-fPIC", "-pie", "-Wl,--hash-style=sysv"],
        ] {
            machine.compile("weak.c", "host", &[linked, way].concat());
            machine.does(&[], &[]);
        }
    }
}

#[test]
fn a_later_preloads_dlsym_is_asked() {
    let machine = Machine::new(&[]);
    machine.compile("tracer.c", "libtracer.so", &["-shared", "-fPIC"]);
    let tracer = machine.path("libtracer.so");
    machine.does(&["asks another preload".as_ref()], &[tracer]);
}
