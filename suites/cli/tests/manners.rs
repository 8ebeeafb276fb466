//! Programs that a guest must not hang and must not crash, under `ringfence exec` without a target and with ours.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a source of `tests/c`.
fn compile(source: &str, output: &Path, arguments: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/c")
        .join(source);
    let mut compiler = Command::new("cc");
    compiler
        .args(["-O1", "-Wall", "-o"])
        .arg(output)
        .arg(source);
    let compiled = compiler.args(arguments).output().expect("cc runs");
    let said = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{said}");
}

/// What a library is compiled with.
const LIBRARY: [&str; 3] = ["-shared", "-fPIC", "-ldl"];

/// A path as an argument.
fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// A library of a folder that uses the driver to which it is linked: the mock takes the place of the one that is linked to.
fn compile_linked_to_a_driver(folder: &Path, library: &str, arguments: &[&str]) {
    let driver = folder.join("libcuda.so.1");
    let named = ["-DCUDA", "-Wl,-soname,libcuda.so.1"];
    compile("dud.c", &driver, &[&LIBRARY[..], &named].concat());
    let linked = ["-DLIBRARY", "-Wl,--no-as-needed", text(&driver)];
    let arguments = [&LIBRARY[..], arguments, &linked].concat();
    compile("stubbed.c", &folder.join(library), &arguments);
}

/// The arguments of `opens.c`: what names a library is one of the folder's.
fn words_of(way: &str, folder: &Path) -> Vec<String> {
    let words = way
        .split_whitespace()
        .map(|word| match word.ends_with(".so") {
            true => text(&folder.join(word)).to_owned(),
            false => word.to_owned(),
        });
    words.collect()
}

/// What a program says within 30 seconds.
fn said(target: &str, program: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
    command.args(["exec", "--memory", "0=4GiB", "--target", target, "--"]);
    command.args(["timeout", "-s", "KILL", "30"]).arg(program);
    let output = command.args(arguments).output().expect("ringfence starts");
    let [told, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(
        output.status.success(),
        "{target}: {}, {told}{errors}",
        output.status
    );
    told.into_owned()
}

/// Who opens a library holds the loader's lock while its constructors run. Where the enforcer took that lock under one of its own, or one of its own under
/// it, each waited for the other (attack 24, b13 and b14).
#[test]
fn a_constructor_that_makes_the_first_context_hangs_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let (program, plugin): (PathBuf, PathBuf) = (
        folder.path().join("constructor"),
        folder.path().join("plugin.so"),
    );
    compile(
        "constructor.c",
        &program,
        &["-rdynamic", "-pthread", "-ldl"],
    );
    compile("plugin.c", &plugin, &["-shared", "-fPIC"]);
    let plugin = plugin.to_str().expect("a path in UTF-8");
    for (way, runs) in [("waits", 2), ("beside", 6)] {
        for target in ["none", "ours"].into_iter().chain(vec!["ours"; runs]) {
            assert_eq!(
                said(target, &program, &[plugin, way]),
                "done\n",
                "{way}, {target}"
            );
        }
    }
}

/// Nor does one that waits for a thread's call, be it the first of the process: what takes the loader's lock is asked before main (attack 25).
#[test]
fn a_constructor_that_waits_for_a_call_hangs_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    compile("plugin.c", &path("plugin.so"), &["-shared", "-fPIC"]);
    // To link to: the mock takes their places.
    for (soname, define) in [("libcuda.so.1", "-DCUDA"), ("libnvidia-ml.so.1", "-DNVML")] {
        let named = format!("-Wl,-soname,{soname}");
        compile(
            "dud.c",
            &path(soname),
            &["-shared", "-fPIC", define, &named],
        );
    }
    let drivers = ["libcuda.so.1", "libnvidia-ml.so.1"].map(path);
    let drivers = drivers
        .each_ref()
        .map(|path| path.to_str().expect("a path in UTF-8"));
    let arguments = [
        &["-rdynamic", "-pthread"][..],
        &drivers,
        &["-lvulkan", "-ldl"],
    ]
    .concat();
    compile("first.c", &path("first"), &arguments);
    // Linked to libcuda alone: NVML is the enforcer's to open.
    let without = ["-Wl,--unresolved-symbols=ignore-all", "-Wl,-z,lazy"];
    let alone = [
        &["-rdynamic", "-pthread", drivers[0]],
        &without[..],
        &["-lvulkan", "-ldl"],
    ];
    compile("first.c", &path("alone"), &alone.concat());
    let unlinked = [
        &["-rdynamic", "-pthread"],
        &without[..],
        &["-lvulkan", "-ldl"],
    ];
    compile("first.c", &path("unlinked"), &unlinked.concat());
    let plugin = path("plugin.so");
    let plugin = plugin.to_str().expect("a path in UTF-8");
    for (program, call) in [
        ("first", "cuInit"),
        ("alone", "cuInit"),
        ("unlinked", "cuInit that was looked up"),
        ("first", "nvmlDeviceGetMemoryInfo"),
        ("first", "vkAllocateMemory"),
        ("first", "a refusal"),
        ("first", "vkQueueSubmit"),
        ("first", "vkDestroyDevice"),
    ] {
        for target in ["none", "ours"] {
            assert_eq!(
                said(target, &path(program), &[plugin, call]),
                "done\n",
                "{program}, {call}, {target}"
            );
        }
    }
}

/// Libraries have stubs of the driver's functions, which open the driver when the first of them is called. What the program refers to is ours, which stands
/// before them; without a driver it goes on to the stub (attack 25).
#[test]
fn a_librarys_stubs_open_the_driver() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let text = |name: &str| path(name).to_str().expect("a path in UTF-8").to_owned();
    compile(
        "stubs.c",
        &path("libstubs.so"),
        &["-shared", "-fPIC", "-ldl"],
    );
    let linked = ["-L", &text(""), "-lstubs", "-Wl,-rpath", "-Wl,$ORIGIN"];
    compile("stubbed.c", &path("linked"), &linked);
    let library = ["-DLIBRARY", "-shared", "-fPIC"];
    let stubs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/stubs.c");
    let stubs = stubs.to_str().expect("a path in UTF-8");
    compile(
        "stubbed.c",
        &path("plugin.so"),
        &[&library[..], &[stubs, "-ldl"]].concat(),
    );
    compile("opens.c", &path("opens"), &["-ldl"]);
    for (program, arguments) in [("linked", vec![]), ("opens", vec![text("plugin.so")])] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let bare = said("none", &path(program), &arguments);
        assert_eq!(bare, "0 0 0 0 0 0\n", "{program} without us");
        let ours = said("ours", &path(program), &arguments);
        assert_eq!(ours, "0 0 0 0 0 2\n", "{program}");
    }
}

/// What a library has under a driver's names is its own, and so is what is linked to it: pointers, shims, doubles, weak references to what is not there. It is
/// bare as it is with us, which only what calls on the driver is held by (what was opened after the driver was bound crashed once).
#[test]
fn what_a_library_has_under_a_drivers_names_is_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    for (name, define) in [
        ("empty.so", "-DPOINTERS=1"),
        ("any.so", "-DPOINTERS=2"),
        ("known.so", "-DPOINTERS=3"),
        ("double.so", "-DDOUBLE"),
        ("weak.so", "-DWEAK"),
    ] {
        compile("named.c", &path(name), &[&LIBRARY[..], &[define]].concat());
    }
    // Addresses in what may not be written.
    let text_too = ["-fno-pic", "-mcmodel=large", "-Wl,-z,notext", "-shared"];
    for (name, define) in [("fixed.so", "-DPOINTERS=1"), ("weakly.so", "-DWEAK")] {
        compile("named.c", &path(name), &[&text_too[..], &[define]].concat());
    }
    compile("stubs.c", &path("libstubs.so"), &LIBRARY);
    let linked = [
        "-L",
        text(folder.path()),
        "-lstubs",
        "-Wl,-rpath",
        "-Wl,$ORIGIN",
    ];
    compile(
        "stubbed.c",
        &path("linked.so"),
        &[&LIBRARY[..], &["-DLIBRARY"], &linked].concat(),
    );
    let stubs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/stubs.c");
    let stubs = stubs.to_str().expect("a path in UTF-8");
    for name in ["shim.so", "second.so"] {
        compile(
            "stubbed.c",
            &path(name),
            &[&LIBRARY[..], &["-DLIBRARY", stubs]].concat(),
        );
    }
    compile_linked_to_a_driver(folder.path(), "driver.so", &[]);
    compile(
        "named.c",
        &path("libnext.so"),
        &[&LIBRARY[..], &["-DNEXT"]].concat(),
    );
    let next = [
        "-L",
        text(folder.path()),
        "-lnext",
        "-Wl,-rpath",
        "-Wl,$ORIGIN",
    ];
    compile_linked_to_a_driver(folder.path(), "wrapped.so", &next);
    compile("opens.c", &path("opens"), &["-ldl"]);
    compile(
        "stubbed.c",
        &path("user.so"),
        &[&LIBRARY[..], &["-DLIBRARY"]].concat(),
    );
    for way in [
        "fixed.so weakly.so fixed.so",
        "all shim.so alone user.so",
        "wrapped.so double.so wrapped.so",
        "later wrapped.so",
        "driver.so double.so driver.so",
        "deep driver.so",
        "later deep driver.so deep double.so later deep shim.so",
        "empty.so",
        "any.so known.so",
        "double.so weak.so shim.so double.so",
        "weak.so empty.so shim.so second.so weak.so",
        "later shim.so later double.so later known.so",
        "all shim.so second.so double.so",
        "deep double.so deep shim.so",
        "closed double.so closed shim.so closed double.so closed empty.so closed any.so",
        "linked.so double.so later linked.so",
    ] {
        let words = words_of(way, folder.path());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let bare = said("none", &path("opens"), &words);
        // 8 GiB of 4.
        let held = [
            ("0 0 0 0 0 0\n", "0 0 0 0 0 2\n"),
            ("wrapped 0\n", "wrapped 2\n"),
        ];
        let held = held
            .iter()
            .fold(bare, |told, (free, held)| told.replace(free, held));
        assert_eq!(said("ours", &path("opens"), &words), held, "{way}");
    }
}

/// A library that is linked to a driver comes and goes with it, as long as that cannot be initialised: it may come back elsewhere, and so may the driver
/// (attack 27: its former addresses were called). Another version of a library may come to lie where one was.
#[test]
fn what_is_closed_and_comes_again_is_bound_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    compile_linked_to_a_driver(folder.path(), "driver.so", &[]);
    for (name, define) in [("first.so", "-DPOINTERS=1"), ("second.so", "-DWEAK")] {
        compile("named.c", &path(name), &[&LIBRARY[..], &[define]].concat());
    }
    compile("opens.c", &path("opens"), &["-ldl"]);
    let (gone, back) = ("closed driver.so ", "closed first.so closed second.so ");
    for way in [
        gone.repeat(4),
        back.repeat(4),
        [gone, back].concat().repeat(3),
    ] {
        let script = format!(
            "CUDA_VISIBLE_DEVICES= exec {} {}",
            path("opens").display(),
            words_of(&way, folder.path()).join(" ")
        );
        let [bare, ours] =
            ["none", "ours"].map(|target| said(target, Path::new("sh"), &["-c", &script]));
        assert_eq!(ours, bare, "{way}");
    }
}

/// A program's own malloc may look names up, and the loader calls it in the middle of opening a library (attack 27: a message was made by another dlopen,
/// which the loader ends the process for, and objects were looked at that were not relocated yet).
#[test]
fn names_are_looked_up_while_a_library_is_opened() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let plugins = [
        ("indirect.so", "-DINDIRECT"),
        ("double.so", "-DDOUBLE"),
        ("weak.so", "-DWEAK"),
    ];
    for (name, define) in plugins {
        compile("named.c", &path(name), &[&LIBRARY[..], &[define]].concat());
    }
    compile("asks.c", &path("asks"), &["-fno-builtin", "-ldl"]);
    let plugins = plugins.map(|(name, _)| path(name).to_str().expect("a path in UTF-8").to_owned());
    let plugins = plugins.each_ref().map(String::as_str);
    let [bare, ours] = ["none", "ours"].map(|target| said(target, &path("asks"), &plugins));
    assert_eq!(ours, bare);
}

/// A Vulkan program lives where malloc has nothing for the layer, which has a reserve as the interposer does (attack 41).
#[test]
fn a_vulkan_program_without_memory_lives() {
    let folder = tempfile::tempdir().expect("a folder");
    let dry = folder.path().join("dry");
    compile("dry.c", &dry, &["-fno-builtin", "-lvulkan"]);
    let [bare, ours] = ["none", "ours"].map(|target| said(target, &dry, &[]));
    assert_eq!([bare.trim(), ours.trim()], ["none", "some"]);
}

/// A program tries several drivers until one can be initialised, and closes the others (attack 25: the first that was looked up in was bound for ever, and
/// stayed loaded). The one that it stays with is enforced.
#[test]
fn a_driver_that_cannot_be_initialised_is_let_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    compile("tries.c", &path("tries"), &["-ldl"]);
    for (soname, define, [failed, bare, ours]) in [
        ("libcuda.so.1", "-DCUDA", ["34", "0 0 0 0", "0 0 0 2"]),
        ("libnvidia-ml.so.1", "-DNVML", ["12", "0 0 0 44", "0 0 0 4"]),
    ] {
        let named = format!("-Wl,-soname,{soname}");
        let dud = path("dud").join(format!("{soname}.dud"));
        std::fs::create_dir_all(path("dud")).expect("a folder");
        compile("dud.c", &dud, &["-shared", "-fPIC", define, &named]);
        let dud = dud.to_str().expect("a path in UTF-8");
        // By its name, and by its path.
        let script = format!("exec {} \"$0\" \"$1\"", path("tries").display());
        let by_path = format!(
            "exec {} \"$0\" \"${{LD_LIBRARY_PATH%%:*}}/$1\"",
            path("tries").display()
        );
        for script in [script, by_path] {
            for (target, second) in [("none", bare), ("ours", ours)] {
                let arguments = ["-c", &script, dud, soname];
                let told = said(target, Path::new("sh"), &arguments);
                assert_eq!(
                    told,
                    format!("{failed}\n{second}\n"),
                    "{soname}, {target}: {script}"
                );
            }
        }
    }
}

/// Whichever way a program comes to libc's dlclose, as Python's ctypes does by a library's handle: what it closes is called no longer (attack 37: cuInit
/// jumped into an NVML that was gone).
#[test]
fn a_driver_that_is_closed_by_a_looked_up_dlclose_is_called_no_longer() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("closes");
    compile("closes.c", &program, &["-ldl"]);
    for way in ["own", "libc.so.6", "libdl.so.2"] {
        let [bare, ours] = ["none", "ours"].map(|target| said(target, &program, &[way]));
        assert_eq!(ours, bare, "by {way}");
        assert!(bare.lines().count() >= 2, "{bare}");
    }
}

/// A library that stands before dlclose itself, as compute-sanitizer's does, reaches libc's behind it, not ours again (H200: each program ended with SIGSEGV
/// at its end, its stack used up).
#[test]
fn a_library_that_stands_before_dlclose_goes_on_to_libcs() {
    let folder = tempfile::tempdir().expect("a folder");
    for way in ["-DBY_HANDLE", "-DBY_ORDER"] {
        let shim = folder.path().join(format!("libshim{way}.so"));
        compile("shim.c", &shim, &[&LIBRARY[..], &[way]].concat());
        let program = folder.path().join(format!("closes{way}"));
        let linked = ["-Wl,--no-as-needed", text(&shim), "-ldl"];
        compile("closes.c", &program, &linked);
        let [bare, ours] = ["none", "ours"].map(|target| said(target, &program, &["own"]));
        assert_eq!(ours, bare, "{way}");
        assert!(bare.ends_with("asked each time\n"), "{bare}");
    }
}

/// A program's threads have stacks as small as the driver lets them: what the enforcer needs beside is little (attack 24, b2 and b5: 48 KiB where the mock
/// needs 32).
#[test]
fn no_call_needs_much_more_stack_than_the_drivers() {
    const MORE: usize = 4 << 10;
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("stack");
    compile("stack.c", &program, &["-pthread", "-ldl"]);
    let depths = |target| {
        let told = said(target, &program, &[]);
        let lines = told.lines().map(|line| {
            let mut words = line.split(' ');
            let (name, answer) = (words.next().expect("a name"), words.next());
            assert!(answer == Some("0") || name == "refusal", "{target}: {line}");
            let depth = words.next().and_then(|depth| depth.parse().ok());
            (name.to_owned(), depth.expect("a depth"))
        });
        lines.collect::<Vec<(String, usize)>>()
    };
    let (bare, ours) = (depths("none"), depths("ours"));
    assert_eq!(bare.len(), 5, "{bare:?}");
    for ((name, least), (_, depth)) in bare.iter().zip(&ours) {
        assert!(
            *depth <= least + MORE,
            "{name}: {depth} bytes, {least} without us"
        );
    }
}

/// A thread that is cancelled in its first call never comes back from it, and what was kept for its stream is others' (attack 28).
#[test]
fn threads_that_are_cancelled_leave_room_for_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("cancelled");
    compile("cancelled.c", &program, &["-pthread", "-ldl"]);
    for target in ["none", "ours"] {
        assert_eq!(
            said(target, &program, &[]),
            "some cancelled, then 0\n",
            "{target}"
        );
    }
}

/// Of an image no more is read than there is (attack 28).
#[test]
fn images_are_read_as_far_as_they_are_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("image");
    compile("image.c", &program, &["-ldl"]);
    assert_eq!(said("ours", &program, &[]), said("none", &program, &[]));
}

/// Budgets are numbered as NVML numbers, which need not be the order of the kernel's list of addresses (attack 45).
#[test]
fn budgets_are_numbered_as_nvml_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("orders");
    compile("orders.c", &program, &["-ldl"]);
    let plan = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/faults/nvml-order-reversed.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
    let budgets = ["--memory", "0=2GiB,1=5GiB", "--driver", "mock:h200*2"];
    command.arg("exec").args(budgets).arg("--fault").arg(plan);
    let output = command.arg("--").arg(&program).output();
    let output = output.expect("ringfence starts");
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(told.trim(), "1=5120 0=2048", "{output:?}");
}
