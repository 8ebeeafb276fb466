//! Cubins: ELF files of machine code for one architecture. What they tell of their kernels lies in `.nv.info` sections.

use std::collections::{HashMap, HashSet};
use std::ffi::CString;

use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym, SymbolTable};

use super::{Image, Kernel, Param, Pointer, Refusal, Runner, Space, Variable};

pub const MACHINE: u16 = 190;
/// e_ident[EI_OSABI] from which the architecture has another place in e_flags (CUDA 12.8 for sm_100).
const WIDE_FLAGS: u8 = 0x41;
/// In e_flags: code that runs on its own architecture only (sm_90a).
const SPECIFIC: u32 = 0x800;

pub const RESERVED_SHARED: u32 = 1024;

/// Attributes of `.nv.info`, as cuobjdump names them.
pub mod eiattr {
    pub const MAX_THREADS: u8 = 0x05;
    pub const REQNTID: u8 = 0x10;
    pub const FRAME_SIZE: u8 = 0x11;
    pub const MIN_STACK_SIZE: u8 = 0x12;
    pub const KPARAM_INFO: u8 = 0x17;
    pub const REGCOUNT: u8 = 0x2f;
    pub const CTA_PER_CLUSTER: u8 = 0x3d;
    pub const MAX_CLUSTER_RANK: u8 = 0x3f;
}

type Header = FileHeader64<Endianness>;

/// Whether code for `architecture` runs on the device: the same major version, no newer minor one.
pub fn runs(architecture: u32, specific: bool, runner: &Runner) -> bool {
    if specific {
        return architecture == runner.architecture;
    }
    architecture / 10 == runner.architecture / 10 && architecture <= runner.architecture
}

/// Bytes of a whole ELF file, by its first 64.
pub fn length(header: &[u8]) -> Option<usize> {
    let u16_at = |at: usize| {
        Some(u64::from(u16::from_le_bytes(
            header.get(at..at + 2)?.try_into().ok()?,
        )))
    };
    let u64_at = |at: usize| Some(u64::from_le_bytes(header.get(at..at + 8)?.try_into().ok()?));
    let sections = u64_at(40)?.checked_add(u16_at(58)? * u16_at(60)?)?;
    let segments = u64_at(32)?.checked_add(u16_at(54)? * u16_at(56)?)?;
    usize::try_from(sections.max(segments)).ok()
}

pub fn open(bytes: &[u8], runner: &Runner) -> Result<Image, Refusal> {
    read(bytes, runner, false).map_err(|error| error.unwrap_or(Refusal::Broken))
}

/// Code that is still to be linked; what is linked already cannot be linked again.
pub fn open_for_link(bytes: &[u8], runner: &Runner) -> Result<Image, Refusal> {
    read(bytes, runner, true).map_err(|error| error.unwrap_or(Refusal::Broken))
}

/// `Err(None)`: the file is broken.
fn read(bytes: &[u8], runner: &Runner, link: bool) -> Result<Image, Option<Refusal>> {
    const CLASS: usize = 4;
    if bytes.get(18..20) != Some(&MACHINE.to_le_bytes()) {
        return Err(Some(Refusal::NotAnImage));
    }
    if bytes.get(CLASS) == Some(&elf::ELFCLASS32) {
        return Err(Some(Refusal::UnknownArchitecture));
    }
    let header = Header::parse(bytes).map_err(|_| None)?;
    let endian = header.endian().map_err(|_| None)?;
    if endian != Endianness::Little || header.e_shnum(endian) == 0 {
        return Err(None);
    }
    let flags = header.e_flags(endian);
    let wide = header.e_ident().os_abi >= WIDE_FLAGS;
    let (architecture, ptx_version) = match wide {
        true => (flags >> 8 & 0xffff, flags >> 8 & 0xffff),
        false => (flags & 0xff, flags >> 16 & 0xff),
    };
    if architecture == 0 {
        return Err(Some(Refusal::UnknownArchitecture));
    }
    if !runs(architecture, !wide && flags & SPECIFIC != 0, runner) {
        return Err(Some(Refusal::Architecture));
    }
    // Code that is still to be linked has no segments.
    match (header.e_phnum(endian) == 0, link) {
        (true, false) => return Err(Some(Refusal::NotLinked)),
        (false, true) => return Err(Some(Refusal::Architecture)),
        _ => {}
    }
    let sections = header.sections(endian, bytes).map_err(|_| None)?;
    let symbols = sections
        .symbols(endian, bytes, elf::SHT_SYMTAB)
        .map_err(|_| None)?;
    let file = File {
        bytes,
        endian,
        sections,
        symbols,
        reserved_shared: if architecture >= 90 {
            RESERVED_SHARED
        } else {
            0
        },
    };
    let mut image = Image::default();
    file.kernels(&mut image).ok_or(None)?;
    file.variables(&mut image).ok_or(None)?;
    // The assembler writes its functions in reverse.
    image.kernels.reverse();
    for kernel in &mut image.kernels {
        kernel.attributes.ptx_version = ptx_version;
        kernel.attributes.binary_version = architecture;
        kernel.attributes.calls_malloc = file.names("malloc");
        kernel.attributes.calls_printf = file.names("vprintf");
    }
    Ok(image)
}

struct File<'b> {
    bytes: &'b [u8],
    endian: Endianness,
    sections: SectionTable<'b, Header>,
    symbols: SymbolTable<'b, Header>,
    /// The driver's part of every `.nv.shared.NAME`.
    reserved_shared: u32,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(
        bytes.get(at..at.checked_add(4)?)?.try_into().ok()?,
    ))
}

/// Three sides, or their product.
fn sides(value: &[u8]) -> Option<[u32; 3]> {
    Some([u32_at(value, 0)?, u32_at(value, 4)?, u32_at(value, 8)?])
}

/// Runs `met` for every attribute of an `.nv.info` section.
fn attributes(mut bytes: &[u8], mut met: impl FnMut(u8, &[u8])) -> Option<()> {
    const SIZED: u8 = 4;
    while let Some((head, rest)) = bytes.split_at_checked(4) {
        let value = usize::from(u16::from_le_bytes([head[2], head[3]]));
        let (value, rest) = match head[0] {
            SIZED => rest.split_at_checked(value)?,
            _ => (&head[2..], rest),
        };
        met(head[1], value);
        bytes = rest;
    }
    Some(())
}

impl<'b> File<'b> {
    /// Whether the file has a symbol of this name.
    fn names(&self, wanted: &str) -> bool {
        self.symbols
            .iter()
            .any(|symbol| self.symbols.symbol_name(self.endian, symbol) == Ok(wanted.as_bytes()))
    }

    fn name(&self, section: &<Header as FileHeader>::SectionHeader) -> Option<&'b str> {
        std::str::from_utf8(self.sections.section_name(self.endian, section).ok()?).ok()
    }

    /// A kernel's `.text.NAME`; its order is the file's.
    fn kernels(&self, image: &mut Image) -> Option<()> {
        let mut places: HashMap<&str, usize> = HashMap::new();
        let mut infos: HashMap<&str, &[u8]> = HashMap::new();
        let mut all: &[u8] = &[];
        let mut constant = 0;
        let mut shared: HashMap<&str, u32> = HashMap::new();
        for section in self.sections.iter() {
            let name = self.name(section)?;
            let size = u32::try_from(section.sh_size(self.endian)).ok()?;
            if let Some(kernel) = name.strip_prefix(".nv.info.") {
                infos.insert(kernel, section.data(self.endian, self.bytes).ok()?);
            } else if name == ".nv.info" {
                all = section.data(self.endian, self.bytes).ok()?;
            } else if name == ".nv.constant3" {
                constant = size;
            } else if let Some(kernel) = name.strip_prefix(".nv.shared.") {
                shared.insert(kernel, size.saturating_sub(self.reserved_shared));
            } else if let Some(kernel) = name.strip_prefix(".text.") {
                const INSTRUCTION: u32 = 16;
                // Up to sm_7x the section's own header holds the registers too.
                let registers = section.sh_info(self.endian) >> 24;
                places.insert(kernel, image.kernels.len());
                let mut entry = Kernel {
                    name: CString::new(kernel).ok()?,
                    instructions: size / INSTRUCTION,
                    ..Kernel::default()
                };
                entry.attributes.registers = registers;
                image.kernels.push(entry);
            }
        }
        for kernel in &mut image.kernels {
            let name = kernel.name.to_str().ok()?;
            kernel.attributes.constant = constant;
            kernel.attributes.shared = shared.get(name).copied().unwrap_or(0);
            if let Some(info) = infos.get(name) {
                let mut params: Vec<(u16, Param)> = Vec::new();
                let (attributes_of, bounds) = (&mut params, &mut kernel.bounds);
                attributes(info, |attribute, value| {
                    one(attribute, value, attributes_of, bounds)
                })?;
                params.sort_by_key(|(ordinal, _)| *ordinal);
                kernel.params = params.into_iter().map(|(_, param)| param).collect();
            }
        }
        attributes(all, |attribute, value| {
            self.of_symbol(attribute, value, &places, image);
        })?;
        // A device function has a `.text` of its own where it is not inlined; its symbol is no entry's.
        const ENTRY: u8 = 0x10;
        let entries: HashSet<&[u8]> = self
            .symbols
            .iter()
            .filter(|symbol| symbol.st_other() & ENTRY != 0)
            .filter_map(|symbol| self.symbols.symbol_name(self.endian, symbol).ok())
            .collect();
        image
            .kernels
            .retain(|kernel| entries.contains(kernel.name.to_bytes()));
        Some(())
    }

    /// (symbol, number): what `.nv.info` says of every function.
    fn of_symbol(
        &self,
        attribute: u8,
        value: &[u8],
        places: &HashMap<&str, usize>,
        image: &mut Image,
    ) -> Option<()> {
        let (symbol, number) = (u32_at(value, 0)?, u32_at(value, 4)?);
        let symbol = self
            .symbols
            .symbol(object::SymbolIndex(symbol as usize))
            .ok()?;
        let name = self.symbols.symbol_name(self.endian, symbol).ok()?;
        let kernel = &mut image.kernels[*places.get(std::str::from_utf8(name).ok()?)?];
        match attribute {
            eiattr::REGCOUNT => kernel.attributes.registers = number,
            eiattr::MIN_STACK_SIZE => kernel.attributes.local = number,
            eiattr::FRAME_SIZE if kernel.attributes.local == 0 => kernel.attributes.local = number,
            _ => {}
        }
        Some(())
    }

    fn variables(&self, image: &mut Image) -> Option<()> {
        let mut pointers: HashMap<usize, Vec<Pointer>> = HashMap::new();
        for section in self.sections.iter() {
            let Some((list, _)) = section.rela(self.endian, self.bytes).ok()? else {
                continue;
            };
            let target = section.sh_info(self.endian) as usize;
            for rela in list {
                let symbol = rela.r_sym(self.endian, false) as usize;
                let symbol = self.symbols.symbol(object::SymbolIndex(symbol)).ok()?;
                let name = self.symbols.symbol_name(self.endian, symbol).ok()?;
                pointers.entry(target).or_default().push(Pointer {
                    offset: rela.r_offset.get(self.endian),
                    target: String::from_utf8_lossy(name).into_owned(),
                    addend: rela.r_addend.get(self.endian),
                });
            }
        }
        for (index, symbol) in self.symbols.enumerate() {
            if symbol.st_type() != elf::STT_OBJECT {
                continue;
            }
            let Ok(Some(at)) = self.symbols.symbol_section(self.endian, symbol, index) else {
                continue;
            };
            let section = self.sections.section(at).ok()?;
            let space = match self.name(section)? {
                ".nv.global" | ".nv.global.init" => Space::Global,
                ".nv.constant3" => Space::Constant,
                _ => continue,
            };
            let (from, size) = (symbol.st_value(self.endian), symbol.st_size(self.endian));
            let end = from.checked_add(size)?;
            let data = section.data(self.endian, self.bytes).ok()?;
            let contents = match (usize::try_from(from), usize::try_from(end)) {
                (Ok(from), Ok(end)) => data.get(from..end).unwrap_or_default().to_vec(),
                _ => vec![],
            };
            let inside = |pointer: &&Pointer| (from..end).contains(&pointer.offset);
            let held = pointers.get(&at.0).map(Vec::as_slice).unwrap_or_default();
            image.variables.push(Variable {
                name: String::from_utf8_lossy(self.symbols.symbol_name(self.endian, symbol).ok()?)
                    .into_owned(),
                space,
                size,
                align: section.sh_addralign(self.endian).max(1),
                contents,
                pointers: held
                    .iter()
                    .filter(inside)
                    .map(|pointer| Pointer {
                        offset: pointer.offset - from,
                        ..pointer.clone()
                    })
                    .collect(),
                visible: symbol.st_bind() != elf::STB_LOCAL,
            });
        }
        Some(())
    }
}

/// One attribute of one kernel.
fn one(attribute: u8, value: &[u8], params: &mut Vec<(u16, Param)>, bounds: &mut super::Bounds) {
    let product = |sides: [u32; 3]| {
        sides
            .iter()
            .fold(1u32, |product, side| product.saturating_mul(*side))
    };
    match attribute {
        eiattr::KPARAM_INFO => {
            // u32 unused, u16 ordinal, u16 offset, u32 packed: the size is in its upper 14 bits.
            const SIZE_SHIFT: u32 = 18;
            if let (Some(place), Some(packed)) = (u32_at(value, 4), u32_at(value, 8)) {
                let param = Param {
                    offset: place >> 16,
                    size: packed >> SIZE_SHIFT,
                };
                params.push((place as u16, param));
            }
        }
        eiattr::MAX_THREADS => bounds.max_threads = sides(value).map(product),
        eiattr::REQNTID => bounds.required = sides(value),
        eiattr::CTA_PER_CLUSTER => bounds.cluster = sides(value),
        eiattr::MAX_CLUSTER_RANK => bounds.max_cluster = u32_at(value, 0),
        _ => {}
    }
}
