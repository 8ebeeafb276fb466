//! A linked program as a cubin: what [`super::cubin`] reads, and no code.

use object::elf;

use super::cubin::{MACHINE, RESERVED_SHARED, eiattr};
use super::{Image, Kernel, Runner, Space, Variable};

struct Section {
    name: String,
    kind: u32,
    flags: u64,
    data: Vec<u8>,
    /// Of sections without data.
    size: u64,
    link: u32,
    info: u32,
    entry: u64,
}

#[derive(Default)]
struct Strings(Vec<u8>);

impl Strings {
    fn add(&mut self, text: &str) -> u32 {
        if self.0.is_empty() {
            self.0.push(0);
        }
        let at = self.0.len() as u32;
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
        at
    }
}

const INFO: u32 = 0x7000_0000;
const SYMTAB: u32 = 3;
const FIXED: u32 = 4;

fn words(values: &[u32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// An attribute with a value of its own length.
fn sized(attribute: u8, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![4, attribute];
    bytes.extend((value.len() as u16).to_le_bytes());
    bytes.extend(value);
    bytes
}

fn info_of(kernel: &Kernel) -> Vec<u8> {
    let mut info = Vec::new();
    for (ordinal, param) in kernel.params.iter().enumerate() {
        let place = ordinal as u32 | param.offset << 16;
        info.extend(sized(
            eiattr::KPARAM_INFO,
            &words(&[0, place, param.size << 18]),
        ));
    }
    let bounds = &kernel.bounds;
    if let Some(threads) = bounds.max_threads {
        info.extend(sized(eiattr::MAX_THREADS, &words(&[threads, 1, 1])));
    }
    if let Some(sides) = bounds.required {
        info.extend(sized(eiattr::REQNTID, &words(&sides)));
    }
    if let Some(sides) = bounds.cluster {
        info.extend(sized(eiattr::CTA_PER_CLUSTER, &words(&sides)));
    }
    if let Some(rank) = bounds.max_cluster {
        info.extend(sized(eiattr::MAX_CLUSTER_RANK, &words(&[rank])));
    }
    info
}

struct Writer {
    sections: Vec<Section>,
    strings: Strings,
    symbols: Vec<u8>,
    count: u32,
}

impl Writer {
    fn section(&mut self, name: &str, kind: u32, data: Vec<u8>) -> u32 {
        self.sections.push(Section {
            name: name.to_owned(),
            kind,
            flags: 0,
            size: data.len() as u64,
            data,
            link: 0,
            info: 0,
            entry: 0,
        });
        FIXED + self.sections.len() as u32 - 1
    }

    fn symbol(&mut self, name: &str, info: u8, section: u32, value: u64, size: u64) -> u32 {
        self.symbols.extend(self.strings.add(name).to_le_bytes());
        // STO_CUDA_ENTRY, on kernels.
        let other = if info & 0xf == elf::STT_FUNC { 0x10 } else { 0 };
        self.symbols.extend([info, other]);
        self.symbols.extend((section as u16).to_le_bytes());
        self.symbols.extend(value.to_le_bytes());
        self.symbols.extend(size.to_le_bytes());
        self.count += 1;
        self.count - 1
    }

    fn kernel(&mut self, kernel: &Kernel, all: &mut Vec<u8>, runner: &Runner) {
        const FUNCTION: u8 = elf::STB_GLOBAL << 4 | elf::STT_FUNC;
        const INSTRUCTION: u64 = 16;
        let name = kernel.name.to_string_lossy();
        let code = vec![0; kernel.instructions as usize * INSTRUCTION as usize];
        let size = code.len() as u64;
        let text = self.section(&format!(".text.{name}"), elf::SHT_PROGBITS, code);
        let symbol = self.symbol(&name, FUNCTION, text, 0, size);
        self.section(&format!(".nv.info.{name}"), INFO, info_of(kernel));
        let needs = &kernel.attributes;
        let reserved = if runner.architecture >= 90 {
            RESERVED_SHARED
        } else {
            0
        };
        self.section(&format!(".nv.shared.{name}"), elf::SHT_NOBITS, vec![]);
        self.sections.last_mut().expect("just added").size = u64::from(needs.shared + reserved);
        for (attribute, value) in [
            (eiattr::REGCOUNT, needs.registers),
            (eiattr::MIN_STACK_SIZE, needs.local),
        ] {
            all.extend(sized(attribute, &words(&[symbol, value])));
        }
    }

    /// All variables of a kind, in a section of their own.
    fn variables(&mut self, name: &str, kind: u32, list: &[&Variable]) {
        let (mut data, mut size) = (Vec::new(), 0u64);
        let at = FIXED + self.sections.len() as u32;
        let mut held = Vec::new();
        for variable in list {
            let start = size
                .checked_next_multiple_of(variable.align.max(1))
                .unwrap_or(size);
            size = start.saturating_add(variable.size);
            let bind = if variable.visible {
                elf::STB_GLOBAL
            } else {
                elf::STB_LOCAL
            };
            self.symbol(
                &variable.name,
                bind << 4 | elf::STT_OBJECT,
                at,
                start,
                variable.size,
            );
            if kind != elf::SHT_NOBITS {
                data.resize(start as usize, 0);
                data.extend(&variable.contents);
                data.resize(size as usize, 0);
                held.extend(
                    variable
                        .pointers
                        .iter()
                        .map(|pointer| (start + pointer.offset, pointer.clone())),
                );
            }
        }
        if list.is_empty() {
            return;
        }
        self.section(name, kind, data);
        self.sections.last_mut().expect("just added").size = size;
        let mut rela = Vec::new();
        for (offset, pointer) in held {
            // Its own undefined symbol: the reader goes by the name.
            let symbol = self.symbol(&pointer.target, 0, 0, 0, 0);
            rela.extend(u64::to_le_bytes(offset));
            rela.extend((u64::from(symbol) << 32 | 2).to_le_bytes());
            rela.extend(pointer.addend.to_le_bytes());
        }
        if !rela.is_empty() {
            self.section(&format!(".rela{name}"), elf::SHT_RELA, rela);
            let section = self.sections.last_mut().expect("just added");
            (section.link, section.info, section.entry) = (SYMTAB, at, 24);
        }
    }

    fn finish(self, runner: &Runner) -> Vec<u8> {
        const HEADER: usize = 64;
        let mut names = Strings::default();
        let fixed = |name: &str, kind, data: Vec<u8>, link, entry| Section {
            name: name.to_owned(),
            kind,
            flags: 0,
            size: data.len() as u64,
            data,
            link,
            info: 0,
            entry,
        };
        let mut all = vec![
            fixed("", elf::SHT_NULL, vec![], 0, 0),
            fixed(".shstrtab", elf::SHT_STRTAB, vec![], 0, 0),
            fixed(".strtab", elf::SHT_STRTAB, self.strings.0, 0, 0),
            fixed(".symtab", elf::SHT_SYMTAB, self.symbols, 2, 24),
        ];
        all.extend(self.sections);
        let places: Vec<u32> = all.iter().map(|section| names.add(&section.name)).collect();
        all[1].size = names.0.len() as u64;
        all[1].data = names.0;
        let mut bytes = vec![0; HEADER];
        let mut headers = Vec::new();
        for (section, name) in all.iter().zip(places) {
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            let offset = bytes.len() as u64;
            bytes.extend(&section.data);
            headers.extend(words(&[name, section.kind]));
            for value in [section.flags, 0, offset, section.size] {
                headers.extend(value.to_le_bytes());
            }
            headers.extend(words(&[section.link, section.info]));
            headers.extend(1u64.to_le_bytes());
            headers.extend(section.entry.to_le_bytes());
        }
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let sections = bytes.len() as u64;
        bytes.extend(headers);
        // One empty segment: code without any is still to be linked.
        let segments = bytes.len() as u64;
        bytes.extend([0; 56]);
        let mut head = Vec::with_capacity(HEADER);
        head.extend(b"\x7fELF\x02\x01\x01\x41\x08\0\0\0\0\0\0\0");
        head.extend(2u16.to_le_bytes());
        head.extend(MACHINE.to_le_bytes());
        head.extend(0x81u32.to_le_bytes());
        for value in [0, segments, sections] {
            head.extend(u64::to_le_bytes(value));
        }
        head.extend((runner.architecture << 8 | 2).to_le_bytes());
        for value in [64, 56, 1, 64, all.len() as u16, 1] {
            head.extend(u16::to_le_bytes(value));
        }
        bytes[..HEADER].copy_from_slice(&head);
        bytes
    }
}

pub fn write(image: &Image, runner: &Runner) -> Vec<u8> {
    let mut writer = Writer {
        sections: vec![],
        strings: Strings::default(),
        symbols: vec![0; 24],
        count: 1,
    };
    let mut all = Vec::new();
    for kernel in image.kernels.iter().rev() {
        writer.kernel(kernel, &mut all, runner);
    }
    writer.section(".nv.info", INFO, all);
    let of = |wanted: fn(&Variable) -> bool| {
        image
            .variables
            .iter()
            .filter(|known| wanted(known))
            .collect()
    };
    let constants: Vec<&Variable> = of(|known| known.space == Space::Constant);
    let begun: Vec<&Variable> =
        of(|known| known.space != Space::Constant && !known.contents.is_empty());
    let zeros: Vec<&Variable> =
        of(|known| known.space != Space::Constant && known.contents.is_empty());
    writer.variables(".nv.constant3", elf::SHT_PROGBITS, &constants);
    writer.variables(".nv.global.init", elf::SHT_PROGBITS, &begun);
    writer.variables(".nv.global", elf::SHT_NOBITS, &zeros);
    for (uses, name) in [
        (
            image
                .kernels
                .iter()
                .any(|kernel| kernel.attributes.calls_malloc),
            "malloc",
        ),
        (
            image
                .kernels
                .iter()
                .any(|kernel| kernel.attributes.calls_printf),
            "vprintf",
        ),
    ] {
        if uses {
            writer.symbol(name, elf::STB_GLOBAL << 4, 0, 0, 0);
        }
    }
    writer.finish(runner)
}
