//! What the built library shows to the loader: the table, and the name by which our libraries know one another.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, RelocationTarget};

#[path = "../src/hooks.rs"]
mod hooks;

macro_rules! names {
    (
        cuda { $($cuda:ident => $cuda_when:ident $cuda_body:path;)* }
        nvml { $($nvml:ident => $nvml_when:ident $nvml_body:path;)* }
        per_thread { $($thread:ident;)* }
        per_thread called { $($called_thread:ident;)* }
        $(called $library:ident { $($called:ident;)* })*
    ) => {
        (&[$(stringify!($cuda),)* $(stringify!($thread),)* $(stringify!($called_thread),)*], &[$(stringify!($nvml),)*])
    };
}

/// The hook table: libcuda's and NVML's.
const TABLE: (&[&str], &[&str]) = hooks::table!(names);

/// A library built from the table: its file, what it exports, what it needs besides libc and the loader.
struct Built {
    file: &'static str,
    exports: &'static [&'static [&'static str]],
    driver: Option<&'static str>,
}

const BUILT: [Built; 3] = [
    Built {
        file: "libvgpu.so",
        exports: &[
            TABLE.0,
            TABLE.1,
            &["dlclose", "dlsym", "dlvsym", "ringfence.libvgpu"],
        ],
        driver: None,
    },
    Built {
        file: "libvgpu_cuda.so",
        exports: &[TABLE.0, &["ringfence.libcuda"]],
        driver: Some("libcuda.driver.so"),
    },
    Built {
        file: "libvgpu_nvml.so",
        exports: &[TABLE.1, &["ringfence.libnvml"]],
        driver: Some("libnvidia-ml.driver.so"),
    },
];

fn with_each(check: impl Fn(&Built, &ElfFile64<'_, Endianness>, &[u8])) {
    for built in &BUILT {
        let mut path: PathBuf = std::env::current_exe().expect("this executable has a path");
        path.set_file_name(built.file);
        let data =
            std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let file = ElfFile64::parse(&*data).expect("an ELF file");
        check(built, &file, &data);
    }
}

fn exports(file: &ElfFile64<'_, Endianness>) -> BTreeMap<String, u64> {
    file.dynamic_symbols()
        .filter(|symbol| !symbol.is_undefined())
        .map(|symbol| (symbol.name().expect("a name").to_owned(), symbol.address()))
        .collect()
}

#[test]
fn exported_names_are_the_table() {
    with_each(|built, file, _| {
        let exported: BTreeSet<String> = exports(file).into_keys().collect();
        let names = built.exports.iter().copied().flatten();
        let table: BTreeSet<String> = names.map(|name| (*name).to_owned()).collect();
        assert_eq!(exported, table, "{}", built.file);
    });
}

#[test]
fn each_export_has_an_address_of_its_own() {
    with_each(|_, file, _| {
        let exports = exports(file);
        let addresses: BTreeSet<u64> = exports.values().copied().collect();
        assert_eq!(addresses.len(), exports.len());
    });
}

#[test]
fn no_relocation_names_an_own_export() {
    with_each(|_, file, _| {
        let own = exports(file);
        let mut seen = 0;
        for (_, relocation) in file.dynamic_relocations().expect("a dynamic object") {
            seen += 1;
            if let RelocationTarget::Symbol(index) = relocation.target() {
                let table = file.dynamic_symbol_table().expect("dynamic symbols");
                let symbol =
                    object::ObjectSymbolTable::symbol_by_index(&table, index).expect("a symbol");
                let name = symbol.name().expect("a name");
                assert!(!own.contains_key(name), "a relocation names {name}");
            }
        }
        assert!(seen > 0, "no relocations were read");
    });
}

#[test]
fn libc_the_loader_and_a_proxys_driver_alone_are_needed() {
    with_each(|built, file, data| {
        let endian = file.endian();
        let header = FileHeader64::<Endianness>::parse(data).expect("a header");
        let sections = header.sections(endian, data).expect("sections");
        let (dynamic, strings) = sections
            .dynamic(endian, data)
            .expect("a dynamic section")
            .expect("one");
        let strings = sections.strings(endian, data, strings).expect("strings");
        let needed: Vec<String> = dynamic
            .iter()
            .filter(|entry| entry.tag32(endian) == Some(object::elf::DT_NEEDED))
            .map(|entry| {
                String::from_utf8_lossy(entry.string(endian, strings).expect("a name")).into_owned()
            })
            .collect();
        assert!(needed.contains(&"libc.so.6".to_owned()), "{needed:?}");
        let others: Vec<&str> = needed
            .iter()
            .map(String::as_str)
            .filter(|name| *name != "libc.so.6" && !name.starts_with("ld-linux"))
            // Part of libc since glibc 2.34, and there for those who need it.
            .filter(|name| *name != "libpthread.so.0")
            .collect();
        assert_eq!(others, Vec::from_iter(built.driver), "{}", built.file);
        assert!(
            sections
                .iter()
                .all(|section| section.sh_type.get(endian) != object::elf::SHT_GNU_VERDEF),
            "exports have versions"
        );
    });
}

/// A preload that asks for a version which the container's glibc lacks ends every program (decision 22).
#[test]
fn no_glibc_newer_than_2_17_is_needed() {
    let parsed = |version: &str| -> Option<(u32, u32)> {
        let (major, rest) = version.strip_prefix("GLIBC_")?.split_once('.')?;
        let minor = rest.split('.').next()?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    with_each(|built, file, data| {
        let endian = file.endian();
        let sections = FileHeader64::<Endianness>::parse(data)
            .and_then(|header| header.sections(endian, data))
            .expect("sections");
        let versions = sections.versions(endian, data).expect("versions");
        let versions = versions.expect("symbols of glibc have versions");
        let mut seen = 0;
        for symbol in file
            .dynamic_symbols()
            .filter(|symbol| symbol.is_undefined())
        {
            let index = versions.version_index(endian, symbol.index());
            let Some(version) = versions.version(index).expect("a version") else {
                continue;
            };
            let version = String::from_utf8_lossy(version.name()).into_owned();
            let Some(version) = parsed(&version) else {
                continue;
            };
            seen += 1;
            let name = symbol.name().expect("a name");
            assert!(
                version <= (2, 17),
                "{}: {name} is of glibc {version:?}",
                built.file
            );
        }
        assert!(seen > 20, "{}: {seen} symbols with a version", built.file);
    });
}

#[test]
fn what_is_loaded_is_below_four_mebibytes() {
    with_each(|_, file, data| {
        let header = FileHeader64::<Endianness>::parse(data).expect("a header");
        let loaded: u64 = header
            .program_headers(file.endian(), data)
            .expect("program headers")
            .iter()
            .filter(|segment| segment.p_type(file.endian()) == PT_LOAD)
            .map(|segment| segment.p_filesz(file.endian()))
            .sum();
        assert!(loaded < 4 << 20, "{loaded} bytes");
    });
}
