//! How names resolve, by small C programs: with us preloaded everything is as without, but that the driver's function is our hook (R8, S2–S6).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

mod machine;
use machine::Machine;

impl Machine {
    /// A directory with a small driver, libraries around it, and the programs.
    fn new() -> Machine {
        let machine = Machine::empty();
        machine.compile(
            "driver.c",
            "whole/libcuda.so.1",
            &["-shared", "-fPIC", "-DWHOLE", "-Wl,-soname,libcuda.so.1"],
        );
        machine.compile(
            "driver.c",
            "libcuda.so.1",
            &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"],
        );
        std::os::unix::fs::symlink("libcuda.so.1", machine.path("libcuda.so")).expect("a link");
        let driver = machine.path("libcuda.so.1");
        let driver = driver.to_str().expect("a path in UTF-8");
        machine.compile(
            "wrapper.c",
            "libwrap.so",
            &["-shared", "-fPIC", "-Wl,--no-as-needed", driver],
        );
        machine.compile("module.c", "module.so", &["-shared", "-fPIC", driver]);
        machine.compile("program.c", "program", &["-pthread", "-ldl"]);
        machine.compile("alone.c", "alone", &["-ldl"]);
        let whole = machine.path("whole/libcuda.so.1");
        machine.compile(
            "linked.c",
            "linked",
            &["-Wl,-z,lazy", whole.to_str().expect("a path in UTF-8")],
        );
        machine
    }

    /// The `key=value` lines of a program.
    fn run(
        &self,
        program: &str,
        arguments: &[&str],
        preload: &[PathBuf],
        budget: Option<&str>,
    ) -> BTreeMap<String, String> {
        let mut command = Command::new(self.path(program));
        command
            .args(arguments)
            .current_dir(self.directory.path())
            .env_clear()
            .env("LD_LIBRARY_PATH", self.directory.path());
        let preload: Vec<_> = preload
            .iter()
            .map(|path| path.to_str().expect("a path in UTF-8"))
            .collect();
        if !preload.is_empty() {
            command.env("LD_PRELOAD", preload.join(":"));
        }
        if let Some(budget) = budget {
            command
                .env("CUDA_DEVICE_MEMORY_LIMIT", budget)
                .env("RINGFENCE_LEDGER", self.path("ledger"));
        }
        let output = command.output().expect("the program runs");
        assert!(
            output.status.success(),
            "{program}: {:?} {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            "",
            "a guest says nothing"
        );
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        text.lines()
            .filter_map(|line| line.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    /// Every key as without us, where the driver's function is ours, and the program's own dlsym too.
    fn resolves_as_without_us(&self, arguments: &[&str], preload: &[PathBuf]) {
        let mut bare = self.run("program", arguments, preload, None);
        let mut ours = vec![ours()];
        ours.extend_from_slice(preload);
        let preloaded = self.run("program", arguments, &ours, None);
        for (key, value) in &mut bare {
            let is_driver = value.starts_with("libcuda.so") && key != "unhooked";
            if is_driver || key == "dlsym" {
                *value = "libvgpu.so".to_owned();
            }
        }
        assert_eq!(preloaded, bare);
    }
}

fn ours() -> PathBuf {
    let mut path = std::env::current_exe().expect("this executable has a path");
    path.set_file_name("libvgpu.so");
    path
}

#[test]
fn without_a_driver_nothing_is_changed() {
    Machine::new().resolves_as_without_us(&[], &[]);
}

#[test]
fn a_driver_opened_by_name_or_by_path_is_hooked_for_all_who_see_it() {
    let machine = Machine::new();
    machine.resolves_as_without_us(&["libcuda.so.1"], &[]);
    let path = machine.path("libcuda.so");
    machine.resolves_as_without_us(&[path.to_str().expect("a path in UTF-8")], &[]);
}

#[test]
fn a_local_extension_module_reaches_the_hook() {
    Machine::new().resolves_as_without_us(&["-", "./module.so"], &[]);
}

#[test]
fn a_wrapper_keeps_its_function_and_its_next_is_the_hook() {
    let machine = Machine::new();
    machine.resolves_as_without_us(&["-", "-", "./libwrap.so"], &[]);
    machine.resolves_as_without_us(&["-", "-", "-"], &[machine.path("libwrap.so")]);
    machine.resolves_as_without_us(&["libcuda.so.1", "./module.so", "./libwrap.so"], &[]);
}

/// A preload with a dlsym of its own, which finds the one behind itself as such libraries do: by dlvsym, or by the name alone.
#[test]
fn another_preload_that_has_a_dlsym_goes_on_to_libcs() {
    let machine = Machine::new();
    for how in ["-DVERSIONED", "-DBY_NAME"] {
        let flags = ["-shared", "-fPIC", "-ldl", how];
        machine.compile("lookup.c", "liblookup.so", &flags);
        let preload = [machine.path("liblookup.so")];
        machine.resolves_as_without_us(&["libcuda.so.1", "./module.so", "./libwrap.so"], &preload);
    }
}

#[test]
fn a_linked_program_may_call_anything_first_and_what_the_driver_lacks_is_one_documented_error() {
    let machine = Machine::new();
    let answers = machine.run("linked", &[], &[ours()], None);
    assert_eq!(answers["alloc"], "77");
    assert_eq!(answers["absent"], "500");
}

#[test]
fn an_export_called_without_a_driver_says_that_nothing_is_initialised() {
    let machine = Machine::new();
    std::fs::remove_file(machine.path("libcuda.so.1")).expect("the driver was there");
    let ours = ours();
    let answers = machine.run(
        "alone",
        &[ours.to_str().expect("a path in UTF-8")],
        &[],
        Some("1g"),
    );
    assert_eq!(
        (answers["init"].as_str(), answers["memory"].as_str()),
        ("3", "12")
    );
    assert!(
        !machine.path("ledger").exists(),
        "nothing was to be accounted for"
    );
}
