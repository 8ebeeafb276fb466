//! An argument by its type and name: so that an entry point needs nothing of its own to be fuzzed.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io::Write;
use std::mem::offset_of;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::ptr;
use std::sync::OnceLock;

use abi::cuda::enumerations::*;
use abi::cuda::*;
use abi::nvml::{nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t};

use super::frame::{self, PATTERN, ROOM};
use super::structures;
use crate::maker::{Kind, Maker, Out};

/// Half of the ample budgets, and more than any driver grants.
const MANAGED_MOST: u64 = 512 << 30;
const MANAGED_END: u64 = 1 << 52;

/// What a call takes.
pub trait Argument: Sized {
    fn make(maker: &mut Maker<'_>, name: &'static str) -> Self;
}

/// What a call takes by pointer: its place, which is NULL only where that says something.
pub trait Pointed: Sized {
    fn place(maker: &mut Maker<'_>, name: &'static str) -> *mut Self;
}

impl<T: Pointed> Argument for *mut T {
    fn make(maker: &mut Maker<'_>, name: &'static str) -> Self {
        if maker.is_null() {
            maker.no_list = true;
            maker.tell(name, format_args!("NULL"));
            return ptr::null_mut();
        }
        maker.no_list = false;
        let place = T::place(maker, name);
        if maker.told.is_some() && !place.is_null() {
            let words = frame::words(place.expose_provenance(), size_of::<T>());
            maker.tell(name, format_args!("{words}"));
        }
        place
    }
}

impl<T: Pointed> Argument for *const T {
    fn make(maker: &mut Maker<'_>, name: &'static str) -> Self {
        <*mut T>::make(maker, name)
    }
}

/// Where the driver writes one value.
fn out<T>(maker: &mut Maker<'_>, kind: Option<Kind>, exact: bool) -> *mut T {
    let place = frame::room(ROOM, PATTERN);
    maker.outs.push(Out {
        address: place.expose_provenance(),
        bytes: size_of::<T>().min(8),
        kind,
        exact,
    });
    place.cast()
}

/// A structure that the driver writes to, too: what it writes lies `offset` bytes from the beginning.
fn inout<T>(maker: &mut Maker<'_>, value: T, offset: usize, kind: Option<Kind>) -> *mut T {
    let place = frame::put(value);
    maker.outs.push(Out {
        address: place.expose_provenance() + offset,
        bytes: 8,
        kind,
        exact: false,
    });
    place
}

macro_rules! handles {
    ($($handle:ident $kind:ident;)*) => { $(
        impl Argument for $handle {
            fn make(maker: &mut Maker<'_>, name: &'static str) -> Self {
                let value = maker.handle(Kind::$kind);
                maker.tell(name, format_args!("{value:#x}"));
                $handle(ptr::without_provenance_mut(value as usize))
            }
        }
        impl Pointed for $handle {
            fn place(maker: &mut Maker<'_>, name: &'static str) -> *mut Self {
                match name {
                    // Four of them, of which the next argument says how many count.
                    "dependencies" => {
                        let first = maker.first;
                        let list: [u64; 4] = std::array::from_fn(|_| maker.handle(Kind::$kind));
                        maker.first = first;
                        // A list holds handles, or the driver follows what is none.
                        maker.no_list = list.contains(&0);
                        frame::put(list).cast()
                    }
                    "h_error_node_out" | "ph_error_node" => out(maker, None, false),
                    _ => out(maker, Some(Kind::$kind), false),
                }
            }
        }
    )* };
}

handles! {
    CUcontext Context; CUstream Stream; CUevent Event; CUmemoryPool Pool; CUarray Array; CUmipmappedArray Mipmap;
    CUmodule Module; CUfunction Function; CUlibrary Library; CUkernel Kernel; CUgraph Graph; CUgraphNode Node; CUgraphExec Exec;
    CUexternalMemory External; CUgreenCtx Green;
}

macro_rules! structure {
    ($($structure:ident $make:ident;)*) => { $(
        impl Pointed for $structure {
            fn place(maker: &mut Maker<'_>, _: &'static str) -> *mut Self {
                let first = maker.first;
                let value = structures::$make(maker);
                maker.first = first;
                frame::put(value)
            }
        }
    )* };
}

structure! {
    CUDA_ARRAY_DESCRIPTOR array; CUDA_ARRAY_DESCRIPTOR_v1 array_v1; CUDA_ARRAY3D_DESCRIPTOR array_3d; CUDA_ARRAY3D_DESCRIPTOR_v1 array_3d_v1;
    CUmemLocation location; CUmemAllocationProp allocation; CUmemPoolProps pool; CUlaunchConfig configuration;
    CUDA_GRAPH_INSTANTIATE_PARAMS instantiation; CUDA_EXTERNAL_MEMORY_HANDLE_DESC external; CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer;
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC mapped_array;
}

macro_rules! list {
    ($($structure:ident $make:ident;)*) => { $(
        impl Pointed for $structure {
            fn place(maker: &mut Maker<'_>, _: &'static str) -> *mut Self {
                let first = maker.first;
                let list = structures::$make(maker);
                maker.first = first;
                frame::put(list).cast()
            }
        }
    )* };
}

list! { CUgraphEdgeData edges; CUDA_LAUNCH_PARAMS launches; CUarrayMapInfo tiles; CUmemAccessDesc access_list; }

impl Pointed for CUDA_MEM_ALLOC_NODE_PARAMS {
    fn place(maker: &mut Maker<'_>, _: &'static str) -> *mut Self {
        let value = structures::allocation_node(maker);
        inout(maker, value, offset_of!(Self, dptr), Some(Kind::Address))
    }
}

impl Pointed for CUgraphNodeParams {
    fn place(maker: &mut Maker<'_>, _: &'static str) -> *mut Self {
        let first = maker.first;
        let value = structures::node(maker);
        maker.first = first;
        let kind = (value.type_ == CU_GRAPH_NODE_TYPE_MEM_ALLOC).then_some(Kind::Address);
        let within = offset_of!(CUDA_MEM_ALLOC_NODE_PARAMS_v2, dptr);
        inout(maker, value, offset_of!(Self, anon) + within, kind)
    }
}

impl Pointed for CUgraphExecUpdateResultInfo {
    fn place(maker: &mut Maker<'_>, _: &'static str) -> *mut Self {
        out(maker, None, false)
    }
}

impl Pointed for CUipcMemHandle {
    fn place(maker: &mut Maker<'_>, _: &'static str) -> *mut Self {
        out(maker, None, false)
    }
}

impl Pointed for CUmemPoolPtrExportData {
    /// Room, or bytes that were never given.
    fn place(maker: &mut Maker<'_>, name: &'static str) -> *mut Self {
        match name {
            "share_data" => {
                let reserved = [maker.byte(); 64];
                frame::put(Self { reserved })
            }
            _ => out(maker, None, false),
        }
    }
}

impl Argument for CUipcMemHandle {
    /// Nobody's: bytes that were never given, of which some are zeros.
    fn make(maker: &mut Maker<'_>, name: &'static str) -> Self {
        let fill = maker.byte();
        maker.tell(name, format_args!("{fill:#x}…"));
        let mut reserved = [fill as c_char; 64];
        reserved[0] = maker.byte() as c_char;
        Self { reserved }
    }
}

impl Argument for CUdevResourceDesc {
    /// The whole device: a part of one is described by a call of its own.
    fn make(maker: &mut Maker<'_>, name: &'static str) -> Self {
        maker.tell(name, format_args!("NULL"));
        Self(ptr::null_mut())
    }
}

impl Argument for u64 {
    fn make(maker: &mut Maker<'_>, name: &'static str) -> Self {
        let value = match name {
            "dptr" | "ptr" | "dst" => maker.address(Kind::Address),
            // Where a range is to be reserved: near nothing that is there.
            "addr" if maker.byte() < 240 => 0,
            "handle" => maker.handle(Kind::Physical),
            "flags" => maker.flags(),
            _ => maker.word(),
        };
        maker.tell(name, format_args!("{value:#x}"));
        value
    }
}

impl Argument for usize {
    fn make(maker: &mut Maker<'_>, name: &'static str) -> Self {
        let value = match name {
            "count" | "width" if is_memset(maker) => maker.size(),
            "height" if is_memset(maker) => maker.length(MOST_ROWS),
            "num_dependencies" | "count" => maker.length(4),
            "buffer_size" => maker.length(ROOM as u64 - 1),
            "alignment" => match maker.byte() {
                0..=200 => 0,
                _ => maker.size(),
            },
            "offset" => match maker.byte() {
                0..=200 => 0,
                _ => maker.size(),
            },
            // A limit: what it costs is multiplied by all threads of a device.
            "value" => match maker.byte() {
                0..=231 => u64::from(maker.byte()) << (maker.byte() % 20),
                _ => maker.word(),
            },
            // Managed memory may be larger than its device: what is beyond the ample budgets too is at stake, not alike.
            "bytesize" if maker.name == "cuMemAllocManaged" => match maker.size() {
                large @ MANAGED_MOST..MANAGED_END => large >> 16,
                size => size,
            },
            // What lies behind the client's own few bytes is another thing in each process: within them, or beyond all that there is.
            "bytesize" if maker.name.starts_with("cuMemHostRegister") => match maker.size() {
                no_range @ 0x8000_0000_0000.. => no_range,
                size => size % 64,
            },
            _ => maker.size(),
        };
        maker.tell(name, format_args!("{value:#x}"));
        value as usize
    }
}

/// Of a memset, each of which a simulated device looks at.
const MOST_ROWS: u64 = 200;

fn is_memset(maker: &Maker<'_>) -> bool {
    maker.name.starts_with("cuMemset")
}

/// What memory is set to.
macro_rules! elements {
    ($($element:ty)*) => { $(
        impl Argument for $element {
            fn make(maker: &mut Maker<'_>, name: &'static str) -> Self {
                let value = maker.word() as $element;
                maker.tell(name, format_args!("{value:#x}"));
                value
            }
        }
    )* };
}
elements! { u8 u16 }

impl Argument for c_uint {
    fn make(maker: &mut Maker<'_>, name: &'static str) -> Self {
        // What is attached to has to be detached from as often, of which a sequence keeps no count: it is refused by its flags.
        if maker.name == "cuCtxAttach" && !maker.surface {
            return 1;
        }
        let value = match name {
            "dptr" | "dst_device" => maker.address(Kind::Low) as u32,
            "flags" => maker.flags() as u32,
            "grid_dim_x" | "grid_dim_y" | "grid_dim_z" => structures::grid(maker),
            "block_dim_x" | "block_dim_y" | "block_dim_z" => structures::block(maker),
            "shared_mem_bytes" => structures::shared(maker),
            "count" => maker.length(4) as u32,
            "num_devices" => maker.length(3) as u32,
            "num_options" | "num_jit_options" | "num_library_options" => maker.length(1) as u32,
            "num_functions" | "num_kernels" => maker.length(60) as u32,
            "num_mipmap_levels" => maker.number(8) as u32,
            "height" if is_memset(maker) => maker.length(MOST_ROWS) as u32,
            "element_size_bytes" => match maker.byte() {
                0..=200 => maker.one_of(&[4, 8, 16]),
                _ => maker.word() as u32,
            },
            _ => maker.size() as u32,
        };
        maker.tell(name, format_args!("{value:#x}"));
        value
    }
}

impl Argument for c_int {
    fn make(maker: &mut Maker<'_>, name: &'static str) -> Self {
        let value = match name {
            // With a budget a 32-bit context is refused beside one of another device, which has the same addresses (R42 of `fixtures/defects.txt`).
            "dev" if maker.name == "cuCtxCreate" => maker.number(2) as i32 & !1,
            "dev" => maker.number(2) as i32,
            "limit" => maker.number(8) as i32,
            "attr" => maker.number(9) as i32,
            "mode" => maker.number(3) as i32,
            "handle_type" | "sh_handle_type" => maker.number(2) as i32,
            "cuda_version" => match maker.byte() {
                0..=223 => maker.one_of(&[
                    2000, 3020, 4000, 7000, 10_000, 11_020, 11_030, 12_000, 12_080, 13_000,
                ]),
                _ => maker.word() as i32,
            },
            "num_params" => maker.length(1) as i32,
            "grid_width" | "grid_height" => structures::grid(maker) as i32,
            "x" | "y" | "z" => structures::block(maker) as i32,
            "type_" => maker.number(3) as i32,
            _ => maker.number(4) as i32,
        };
        maker.tell(name, format_args!("{value}"));
        value
    }
}

impl Pointed for u64 {
    fn place(maker: &mut Maker<'_>, name: &'static str) -> *mut Self {
        let kind = match name {
            "dptr" | "pdptr" | "ptr" | "dev_ptr" => Some(Kind::Address),
            "handle" => Some(Kind::Physical),
            _ => None,
        };
        out(maker, kind, false)
    }
}

impl Pointed for usize {
    fn place(maker: &mut Maker<'_>, name: &'static str) -> *mut Self {
        out(maker, None, name == "pitch")
    }
}

impl Pointed for c_uint {
    fn place(maker: &mut Maker<'_>, name: &'static str) -> *mut Self {
        match name {
            "dptr" => out(maker, Some(Kind::Low), false),
            _ => out(maker, None, name == "p_pitch"),
        }
    }
}

impl Pointed for c_int {
    fn place(maker: &mut Maker<'_>, name: &'static str) -> *mut Self {
        match name {
            // CU_JIT_MAX_REGISTERS, _OPTIMIZATION_LEVEL, _TARGET_FROM_CUCONTEXT: their values are no pointers.
            "options" | "jit_options" => frame::put([maker.one_of(&[0, 7, 8]); 4]).cast(),
            "library_options" => frame::put([maker.one_of(&[1, 1, 64]); 4]).cast(),
            _ => out(maker, None, true),
        }
    }
}

impl Pointed for *mut c_void {
    fn place(maker: &mut Maker<'_>, name: &'static str) -> *mut Self {
        match name {
            "kernel_params" => structures::kernel_arguments(maker),
            "extra" => match maker.byte() {
                0..=199 => ptr::null_mut(),
                _ => structures::packed_arguments(maker),
            },
            "option_values" | "jit_options_values" | "library_option_values" => {
                frame::put([u64::from(maker.byte() % 5); 4]).cast()
            }
            // Whether something was found; where it lies differs.
            _ => out(maker, None, false),
        }
    }
}

impl Argument for *mut c_void {
    fn make(maker: &mut Maker<'_>, name: &'static str) -> Self {
        let value = match name {
            "addr" => maker.address(Kind::Address),
            "os_handle" | "handle" => match maker.byte() {
                // One that nobody opened.
                0..=63 => 1 << 20 | u64::from(maker.byte()),
                _ => maker.handle(Kind::Descriptor),
            },
            _ if maker.is_null() => 0,
            "params" => structures::context_parameters(maker).expose_provenance() as u64,
            "shareable_handle" | "handle_out" => {
                out::<c_int>(maker, Some(Kind::Descriptor), false).expose_provenance() as u64
            }
            _ => frame::put(maker.size()).expose_provenance() as u64,
        };
        maker.no_list = value == 0;
        maker.tell(name, format_args!("{value:#x}"));
        ptr::with_exposed_provenance_mut(value as usize)
    }
}

/// Images, as fixtures have them, each with a NUL behind it.
static IMAGES: [&[u8]; 6] = [
    concat!(include_str!("../../../../fixtures/images/basic.ptx"), "\0").as_bytes(),
    concat!(include_str!("../../../../fixtures/images/locals.ptx"), "\0").as_bytes(),
    include_bytes!("../../../../fixtures/images/basic.ptx.fatbin"),
    include_bytes!("../../../../fixtures/images/basic.bothz.fatbin"),
    include_bytes!("../../../../fixtures/images/basic.sm_80.cubin"),
    b".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .align 8 .b8 large[9000000];\n.visible .entry empty() { ret; }\n\0",
];

/// Those whose functions need little local memory: once a process has obtained one that needs more than a budget has, it makes no graph executable any more.
static SMALL_IMAGES: [&[u8]; 6] = [
    concat!(include_str!("../../../../fixtures/images/small.ptx"), "\0").as_bytes(),
    b".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .align 8 .b8 words[96];\n.visible .entry empty() { ret; }\n\0",
    concat!(include_str!("../../../../fixtures/images/small.ptx"), "\0").as_bytes(),
    concat!(include_str!("../../../../fixtures/images/local.ptx"), "\0").as_bytes(),
    b".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .align 8 .b8 wide[3000000];\n.visible .entry mixed() { ret; }\n\0",
    IMAGES[5],
];

/// A file of an image, as a path: of the descriptor by which this process has it in memory; none where it cannot.
pub fn image_path() -> Option<&'static CStr> {
    static FILE: OnceLock<Option<CString>> = OnceLock::new();
    let made = FILE.get_or_init(|| {
        // SAFETY: a name that ends; the descriptor is ours from here on, and stays.
        let file = unsafe { libc::memfd_create(c"image".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: just made, of nobody else's.
        let file = (file >= 0).then(|| unsafe { File::from_raw_fd(file) })?;
        let image = SMALL_IMAGES[0];
        (&file).write_all(&image[..image.len() - 1]).ok()?;
        CString::new(format!("/proc/self/fd/{}", file.into_raw_fd())).ok()
    });
    made.as_deref()
}

/// The images' files, which lie where the tree is; and what is none.
pub static PATHS: [&CStr; 4] = [c"", c"/nowhere/at/all", c"/", c"/proc/self/cmdline"];

impl Argument for *const c_void {
    /// An image: as it is, or text with some bytes changed. Bytes that say how long they are stay as they are.
    fn make(maker: &mut Maker<'_>, name: &'static str) -> Self {
        if maker.is_null() {
            maker.tell(name, format_args!("NULL"));
            return ptr::null();
        }
        let chosen = match maker.byte() {
            0..=127 => 0,
            128..=159 => 5,
            _ => usize::from(maker.byte()) % IMAGES.len(),
        };
        let changed = maker.byte();
        maker.tell(name, format_args!("image {chosen}"));
        let image = match maker.surface {
            true => SMALL_IMAGES[chosen % SMALL_IMAGES.len()],
            false => IMAGES[chosen],
        };
        if changed >= 48 || image[0] != b'.' || image.len() > 4 * ROOM {
            return image.as_ptr().cast();
        }
        let copy = frame::room(image.len(), 0);
        // SAFETY: room for as many bytes, of this call alone.
        let text = unsafe { std::slice::from_raw_parts_mut(copy, image.len()) };
        text.copy_from_slice(image);
        for _ in 0..changed % 8 {
            let at = maker.word() as usize % (text.len() - 1);
            text[at] = maker.byte().max(1);
        }
        // What begins otherwise would be taken for an image that says how long it is.
        text[0] = b'.';
        copy.cast_const().cast()
    }
}

static NAMES: [&CStr; 10] = [
    c"empty",
    c"one",
    c"mixed",
    c"bounded",
    c"capped",
    c"local1k",
    c"local64k",
    c"shared48k",
    c"l8192",
    c"nothing",
];

impl Pointed for c_char {
    fn place(maker: &mut Maker<'_>, name: &'static str) -> *mut Self {
        let text = match name {
            "log_buffer" => return out(maker, None, false),
            "symbol" => return symbol(maker).cast_mut(),
            "fname" | "file_name" => maker.one_of(&PATHS),
            _ => maker.one_of(&NAMES),
        };
        text.as_ptr().cast_mut()
    }
}

/// A name to look up: an entry point's, with another ending perhaps, or anything.
pub fn symbol(maker: &mut Maker<'_>) -> *const c_char {
    let mut text = [0_u8; 128];
    let names = abi::cuda::NAMES;
    let name = match maker.byte() {
        0..=239 => {
            names[usize::from(u16::from_le_bytes([maker.byte(), maker.byte()])) % names.len()]
        }
        _ => "",
    };
    let length = name.len();
    text[..length].copy_from_slice(name.as_bytes());
    match maker.byte() {
        // As programs ask: without its version.
        0..=95 => {
            let base = name.split("_v").next().map_or(0, str::len);
            text[base..].fill(0);
        }
        96..=111 => {
            let ending: &[u8] =
                maker.one_of(&[&b"_v2"[..], b"_v3", b"_ptsz", b"_ptds", b"\xff", b" "]);
            text[length..length + ending.len()].copy_from_slice(ending);
        }
        112..=127 if length > 0 => {
            let at = usize::from(maker.byte()) % length;
            text[at] = maker.byte();
        }
        128..=131 => {
            for byte in &mut text[..127] {
                *byte = maker.byte().max(1);
            }
        }
        _ => {}
    }
    if let Some(told) = &mut maker.told {
        let shown = text.split(|&byte| byte == 0).next().unwrap_or_default();
        told.push_str(&format!(" {}", shown.escape_ascii()));
    }
    frame::put(text).cast()
}

impl Argument for nvmlDevice_t {
    fn make(maker: &mut Maker<'_>, name: &'static str) -> Self {
        let value = maker.handle(Kind::Nvml);
        maker.tell(name, format_args!("{value:#x}"));
        nvmlDevice_t(ptr::with_exposed_provenance_mut(value as usize))
    }
}

impl Pointed for nvmlMemory_t {
    fn place(maker: &mut Maker<'_>, _: &'static str) -> *mut Self {
        out(maker, None, false)
    }
}

impl Pointed for nvmlMemory_v2_t {
    /// Its version is the caller's: its own, one of another size, or anything.
    fn place(maker: &mut Maker<'_>, _: &'static str) -> *mut Self {
        let own = 2 << 24 | size_of::<Self>() as u32;
        let version = match maker.byte() {
            0..=159 => own,
            160..=191 => 1 << 24 | size_of::<Self>() as u32,
            192..=215 => own + u32::from(maker.byte()),
            _ => maker.word() as u32,
        };
        maker.tell("version", format_args!("{version:#x}"));
        let place: *mut Self = out(maker, None, false);
        // SAFETY: the place is as long as the longest structure; its version is its first field.
        unsafe { place.cast::<u32>().write(version) };
        maker
            .outs
            .last_mut()
            .expect("the place was entered")
            .address += 8;
        place
    }
}
