//! The loader's interface, and names, by opening the built library (defects V5, V11, decisions 18, 19, 27).

#[path = "ffi/alone.rs"]
mod alone;
#[path = "ffi/driver.rs"]
#[expect(dead_code, reason = "each test executable uses a part")]
mod driver;

use std::collections::BTreeSet;
use std::ptr;

use ash::vk;
use driver::{Layer, NVIDIA, Negotiation, World, library_path};
use object::elf;
use object::read::elf::{Dyn as _, ElfFile64, FileHeader as _, SectionHeader as _, Sym as _};
use object::{Object as _, ObjectSymbol as _};

const EXPORTS: [&str; 3] = [
    "vkGetDeviceProcAddr",
    "vkGetInstanceProcAddr",
    "vkNegotiateLoaderLayerInterfaceVersion",
];

fn asked(s_type: u32, interface: u32) -> Negotiation {
    Negotiation {
        s_type,
        p_next: ptr::null_mut(),
        interface,
        get_instance_proc_addr: None,
        get_device_proc_addr: None,
        get_physical_device_proc_addr: None,
    }
}

#[test]
fn negotiation_agrees_on_interface_two() {
    let layer = Layer::open();
    for interface in [2, 3, u32::MAX] {
        let mut negotiation = asked(1, interface);
        assert_eq!(layer.negotiate(&mut negotiation), vk::Result::SUCCESS);
        assert_eq!(negotiation.interface, 2);
        assert!(
            negotiation.get_instance_proc_addr.is_some()
                && negotiation.get_device_proc_addr.is_some()
        );
        assert!(negotiation.get_physical_device_proc_addr.is_none());
    }
}

#[test]
fn negotiation_with_an_older_interface_is_refused() {
    let layer = Layer::open();
    for interface in [0, 1] {
        let mut negotiation = asked(1, interface);
        assert_eq!(
            layer.negotiate(&mut negotiation),
            vk::Result::ERROR_INITIALIZATION_FAILED
        );
        assert_eq!(negotiation.interface, interface);
        assert!(negotiation.get_instance_proc_addr.is_none());
    }
}

#[test]
fn negotiation_refuses_null_and_other_structures() {
    let layer = Layer::open();
    assert_eq!(
        layer.negotiate(ptr::null_mut()),
        vk::Result::ERROR_INITIALIZATION_FAILED
    );
    for s_type in [0, 2] {
        let mut negotiation = asked(s_type, 2);
        assert_eq!(
            layer.negotiate(&mut negotiation),
            vk::Result::ERROR_INITIALIZATION_FAILED
        );
        assert_eq!(negotiation.interface, 2);
        assert!(negotiation.get_instance_proc_addr.is_none());
    }
}

#[test]
fn creation_without_the_loaders_link_fails() {
    let layer = Layer::open();
    assert_eq!(
        layer.create_instance(0, false),
        Err(vk::Result::ERROR_INITIALIZATION_FAILED)
    );
    driver::make_world(World {
        gpus: vec![NVIDIA],
        ..World::default()
    });
    let instance = layer.create_instance(0, true).expect("an instance");
    let gpus = layer.physical_devices(instance);
    assert_eq!(
        layer.create_device(instance, &gpus, None, false),
        Err(vk::Result::ERROR_INITIALIZATION_FAILED)
    );
}

#[test]
fn before_any_instance_only_global_commands_are_there() {
    if alone::alone("before_any_instance_only_global_commands_are_there", &[]).is_some() {
        return;
    }
    let layer = Layer::open();
    let none = vk::Instance::null();
    assert!(layer.get(none, c"vkCreateInstance").is_some());
    assert!(
        layer
            .get(none, c"vkEnumerateInstanceExtensionProperties")
            .is_some()
    );
    for name in [
        c"vkCreateDevice",
        c"vkAllocateMemory",
        c"vkGetPhysicalDeviceMemoryProperties",
        c"vkNonsense",
        c"",
    ] {
        assert!(layer.get(none, name).is_none(), "{name:?}");
        assert!(
            layer.get_device(vk::Device::null(), name).is_none(),
            "{name:?}"
        );
    }
}

/// Exactly three names, three addresses, no versions; and nothing of ours is bound by name, so that nobody can get between.
#[test]
fn the_library_exports_the_loaders_three_names_and_needs_libc() {
    let data = std::fs::read(library_path()).expect("the built library");
    let file = ElfFile64::<object::Endianness>::parse(&*data).expect("an ELF file");
    let exported: Vec<_> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition())
        .collect();
    let names: BTreeSet<_> = exported
        .iter()
        .map(|symbol| symbol.name().expect("UTF-8"))
        .collect();
    assert_eq!(names, BTreeSet::from(EXPORTS));
    let addresses: BTreeSet<u64> = exported.iter().map(object::ObjectSymbol::address).collect();
    assert_eq!(
        addresses.len(),
        EXPORTS.len(),
        "two exports share an address"
    );

    let endian = file.endian();
    let sections = file.elf_section_table();
    let symbols = sections
        .symbols(endian, &*data, elf::SHT_DYNSYM)
        .expect("dynamic symbols");
    for section in sections.iter() {
        let Some((relocations, _)) = section.rela(endian, &*data).expect("readable") else {
            continue;
        };
        for relocation in relocations {
            let number = relocation.r_sym(endian, false) as usize;
            if number == 0 {
                continue;
            }
            let symbol = symbols
                .symbol(object::SymbolIndex(number))
                .expect("in the table");
            assert!(
                symbol.is_undefined(endian),
                "a relocation names our own {:?}",
                symbol.name(endian, symbols.strings())
            );
        }
        assert_ne!(
            section.sh_type(endian),
            elf::SHT_GNU_VERDEF,
            "the exports have versions"
        );
    }

    let (dynamic, strings) = sections
        .dynamic(endian, &*data)
        .expect("readable")
        .expect("a dynamic section");
    let strings = sections.strings(endian, &*data, strings).expect("readable");
    let entries = || dynamic.iter();
    let needed: BTreeSet<&str> = entries()
        .filter(|entry| entry.tag32(endian) == Some(elf::DT_NEEDED))
        .map(|entry| {
            std::str::from_utf8(entry.string(endian, strings).expect("a name")).expect("UTF-8")
        })
        .collect();
    assert!(
        // libpthread and libdl are part of libc since glibc 2.34, and there for those who need them.
        needed.iter().all(
            |name| ["libc.so.", "libpthread.so.", "libdl.so.", "ld-linux"]
                .iter()
                .any(|known| name.starts_with(known))
        ),
        "{needed:?}"
    );
    let flags = |tag: u32| {
        entries()
            .find(|entry| entry.tag32(endian) == Some(tag))
            .map_or(0, |entry| entry.d_val(endian))
    };
    assert_ne!(
        flags(elf::DT_FLAGS_1) & u64::from(elf::DF_1_NODELETE),
        0,
        "the loader could unmap it"
    );
    assert_ne!(
        flags(elf::DT_FLAGS) & u64::from(elf::DF_SYMBOLIC),
        0,
        "not bound to itself"
    );
    let _ = elf::FileHeader64::<object::Endianness>::e_ident(file.elf_header());
}
