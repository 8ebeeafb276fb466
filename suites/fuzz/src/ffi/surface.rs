//! Every entry point of libcuda's signature table as something that is called with values made by its parameters' types.
//!
//! Nothing here knows which of them the enforcer hooks: the table is the ABI's, what a parameter is made of follows from the spelling of its type.

use std::ffi::c_int;
use std::ptr;

use abi::cuda::enumerations::*;
use abi::cuda::*;
use abi::layout::Layout;

use super::argument::{Argument, PATHS, image_path};
use super::calls::{self, Answer, Place};
use super::frame::{self, PATTERN};
use super::structures;
use crate::maker::{Habit, Kind, Maker, Out};

/// Words of the largest parameter that is passed by value.
const WORDS: usize = 16;
/// Bytes of what a pointer leads to, if nothing says how long it is.
const ROOM: usize = 4096;
/// Bytes of the client's memory that copies read and write.
const HOST: usize = 64 << 20;

/// A parameter as the table spells it.
#[derive(Debug)]
pub struct Parameter {
    pub name: &'static str,
    pub kind: &'static str,
}

/// What is passed for one parameter.
#[derive(Clone, Copy)]
pub struct Value([u64; WORDS]);

/// An entry point of the table.
pub struct Export {
    pub name: &'static str,
    pub parameters: Vec<Parameter>,
    call: fn(usize, &[Value]) -> u32,
}

/// A row of the table: name, parameters with their types, the call.
type Row = (
    &'static str,
    &'static [(&'static str, &'static str)],
    fn(usize, &[Value]) -> u32,
);

impl Value {
    fn of<T: Copy>(value: T) -> Self {
        const { assert!(size_of::<T>() <= size_of::<[u64; WORDS]>() && align_of::<T>() <= 8) };
        let mut words = [0; WORDS];
        // SAFETY: room for as many bytes, aligned for any of C's types.
        unsafe { words.as_mut_ptr().cast::<T>().write(value) };
        Self(words)
    }

    fn to<T: Copy>(self) -> T {
        const { assert!(size_of::<T>() <= size_of::<[u64; WORDS]>() && align_of::<T>() <= 8) };
        // SAFETY: every type of the table is numbers, pointers, optional functions, or structures of such; what lies here was written as one of them, or
        // is zeros behind it.
        unsafe { self.0.as_ptr().cast::<T>().read() }
    }
}

impl Parameter {
    /// What a handle or an address that stands here, or lies where it points, is of.
    pub fn about(&self) -> Option<Kind> {
        let (pointer, pointee) = match self.kind.split_once(' ') {
            Some((pointer @ ("*mut" | "*const"), pointee)) => (Some(pointer), pointee),
            _ => (None, self.kind),
        };
        let named = kind_of(pointee);
        named.or(match (pointer, pointee, self.name) {
            (_, "CUdeviceptr", _) => Some(Kind::Address),
            (_, "CUdeviceptr_v1", _) => Some(Kind::Low),
            (Some("*mut"), "*mut c_void", "pp") => Some(Kind::Host),
            (Some("*mut"), "c_void", "p") => Some(Kind::Host),
            (Some("*mut"), "c_void", "addr") => Some(Kind::Address),
            (
                Some("*mut"),
                "c_void",
                "os_handle" | "handle" | "shareable_handle" | "handle_out",
            ) => Some(Kind::Descriptor),
            (_, "CUDA_EXTERNAL_MEMORY_HANDLE_DESC", _) => Some(Kind::Descriptor),
            (_, "CUarrayMapInfo", _) => Some(Kind::Array),
            (_, "CUmemPoolPtrExportData", _) => Some(Kind::Pool),
            _ => None,
        })
    }

    /// The structure without handles and addresses that stands here, or lies where it points.
    fn plain(&self) -> Option<&'static Layout> {
        let pointee = self
            .kind
            .split_once(' ')
            .map_or(self.kind, |(_, pointee)| pointee);
        layout(pointee).filter(|layout| is_plain(layout))
    }
}

fn is_plain(layout: &Layout) -> bool {
    layout
        .types
        .iter()
        .all(|(kind, _)| match self::layout(kind) {
            Some(inner) => is_plain(inner),
            None => {
                kind_of(kind).is_none()
                    && !kind.starts_with(['*', '('])
                    && !["CUdeviceptr", "Option", "fn", "Fn"]
                        .iter()
                        .any(|part| kind.contains(part))
            }
        })
}

/// What the driver wrote before, where a structure is read, now and then; and where it may write one, what it is.
fn written(maker: &mut Maker<'_>, parameter: &'static Parameter) -> Option<Value> {
    let layout = parameter.plain()?;
    let mut same = Vec::new();
    for (kind, bytes) in &maker.handles.written {
        if *kind == layout.rust {
            same.push(bytes.clone());
        }
    }
    if same.is_empty() || maker.byte() < 96 {
        return None;
    }
    let bytes = &same[usize::from(maker.byte()) % same.len()];
    maker.no_list = false;
    if !parameter.kind.starts_with('*') {
        let mut value = Value([0; WORDS]);
        let room = size_of_val(&value.0);
        // SAFETY: as many bytes of both as the shorter has.
        unsafe {
            ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                value.0.as_mut_ptr().cast(),
                bytes.len().min(room),
            );
        }
        return Some(value);
    }
    let place = frame::room(ROOM, 0);
    // SAFETY: a place of this call's own, longer than any structure.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len().min(ROOM)) };
    if parameter.kind.starts_with("*mut") {
        maker
            .written
            .push((layout.rust, place.expose_provenance(), layout.size));
    }
    Some(Value::of(place))
}

/// What a granted call wrote is kept for calls that read it.
pub fn keep_written(places: &[(&'static str, usize, usize)], handles: &mut crate::maker::Handles) {
    for &(kind, place, size) in places {
        let mut bytes = vec![0; size.min(ROOM)];
        let from: *const u8 = ptr::with_exposed_provenance(place);
        // SAFETY: a place of the last call's own, as long as this structure at least.
        unsafe { ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
        handles.enter_written(kind, bytes);
    }
}

macro_rules! exports {
    ($($name:ident($($arg:ident : $ty:ty),*) -> $ret:ty;)*) => {
        static ROWS: &[Row] = &[$((
            stringify!($name),
            &[$((stringify!($arg), stringify!($ty))),*],
            |_address, _values| {
                let mut _values = _values.iter();
                $( let $arg: $ty = _values.next().map_or_else(|| Value([0; WORDS]), |value| *value).to(); )*
                // SAFETY: the address of the function whose signature is the row's.
                let function = unsafe { std::mem::transmute::<usize, fns::$name>(_address) };
                // SAFETY: what `make` made of the parameters: places that are as long as the function may read or write, handles such as the driver survives.
                unsafe { function($($arg),*).0 }
            },
        )),*];
    };
}
abi::cuda_signatures!(exports);

/// All of them. A type is spelled as `rustfmt` does, without a blank behind a pointer's star.
pub fn exports() -> &'static [Export] {
    static ALL: std::sync::OnceLock<Vec<Export>> = std::sync::OnceLock::new();
    ALL.get_or_init(|| {
        let parameter = |&(name, kind): &(&'static str, &'static str)| Parameter {
            name,
            kind: kind.replace("* ", "*").leak(),
        };
        let export = |&(name, parameters, call): &Row| Export {
            name,
            parameters: parameters.iter().map(parameter).collect(),
            call,
        };
        ROWS.iter().map(export).collect()
    })
}

impl Export {
    /// Where the loaded libcuda has it; 0 where it lacks it.
    pub fn address(&self) -> usize {
        calls::address(self.name, Place::Cuda)
    }

    /// Calls the function at `address` with what [`Export::make`] made.
    pub fn run(&self, address: usize, values: &[Value]) -> Answer {
        calls::around(|| (self.call)(address, values))
    }

    /// Whether it may give something that a client ends again: by its parameters alone.
    pub fn makes(&self) -> bool {
        self.parameters
            .iter()
            .any(|parameter| match parameter.kind.strip_prefix("*mut ") {
                Some("CUdeviceptr" | "CUdeviceptr_v1" | "*mut c_void") => true,
                Some(pointee) => kind_of(pointee).is_some(),
                None => false,
            })
    }

    /// What it is about: whatever it takes, gives or writes, by its parameters alone.
    pub fn about(&self) -> Vec<Kind> {
        self.parameters
            .iter()
            .filter_map(Parameter::about)
            .collect()
    }

    /// What no grant is without: the handles and addresses that it takes by value, but for a stream and a context, which need not be any where they do not come first.
    pub fn needs(&self) -> Vec<Kind> {
        let needs = |(nth, parameter): (usize, &Parameter)| {
            let kind = parameter.about()?;
            let by_value = !parameter.kind.starts_with('*')
                || parameter.kind.ends_with("c_void") && !parameter.name.ends_with("_out")
                || parameter.kind == "*const CUDA_EXTERNAL_MEMORY_HANDLE_DESC"
                || parameter.kind == "*mut CUarrayMapInfo";
            let is_optional = nth > 0 && matches!(kind, Kind::Stream | Kind::Context);
            let is_host = matches!(parameter.name, "dst" | "src");
            (by_value && !is_optional && !is_host && parameter.name != "shareable_handle")
                .then_some(kind)
        };
        let ranges = self.ranges();
        let needed = self.parameters.iter().enumerate().filter_map(needs);
        let needed = needed.map(|kind| match ranges {
            Some(ranges) if kind == Kind::Address => ranges,
            _ => kind,
        });
        needed.collect()
    }

    /// What its addresses are of, where that is ranges and no memory of their own: what physical memory is put into is reserved, and what tells of physical
    /// memory, or takes an address and how much of it and nothing else that is ended, is mapped.
    pub fn ranges(&self) -> Option<Kind> {
        let has = |kind: &str, name: &str| {
            let mut all = self.parameters.iter();
            all.any(|one| one.kind == kind && (name.is_empty() || one.name == name))
        };
        let by_value = has("CUdeviceptr", "ptr");
        if by_value && has("CUmemGenericAllocationHandle", "") {
            return Some(Kind::Reserved);
        }
        let told = has("*mut CUmemGenericAllocationHandle", "") && has("*mut c_void", "addr");
        let whole = by_value && has("usize", "size") && !has("CUstream", "");
        (told || whole).then_some(Kind::Mapped)
    }

    /// Whether it may give one of these.
    pub fn gives(&self, kind: Kind) -> bool {
        match kind {
            Kind::Reserved => return self.reserves(),
            Kind::Mapped => return self.ranges() == Some(Kind::Reserved),
            _ => {}
        }
        self.parameters.iter().any(|parameter| {
            let given = match kind {
                Kind::Descriptor => matches!(parameter.name, "shareable_handle" | "handle_out"),
                Kind::Host => parameter.name == "pp",
                _ => parameter.kind.starts_with("*mut ") && !is_list(parameter.name),
            };
            given && parameter.about() == Some(kind)
        })
    }

    /// Whether it gives a range of addresses: one of which is said where it is to lie.
    fn reserves(&self) -> bool {
        let has = |name: &str| self.parameters.iter().any(|one| one.name == name);
        has("alignment") && has("addr")
    }

    /// Whether it takes or gives addresses of 32 bits, which only contexts of 32 bits have.
    pub fn narrow(&self) -> bool {
        self.about().contains(&Kind::Low)
    }

    /// Whether it puts work on a stream, or asks one.
    pub fn queues(&self) -> bool {
        let by_value = |parameter: &Parameter| parameter.kind == "CUstream";
        self.parameters.iter().any(by_value) || self.name.ends_with("_ptds")
    }

    /// Whether one of its arguments says how much is to be taken.
    pub fn sized(&self) -> bool {
        let is_size = |parameter: &Parameter| {
            matches!(
                parameter.name,
                "bytesize" | "size" | "value" | "min_bytes_to_keep"
            ) && parameter.kind == "usize"
        };
        self.parameters.iter().any(is_size)
    }

    /// A value for each parameter; none where the driver would not survive what could be made.
    pub fn make(&'static self, maker: &mut Maker<'_>) -> Option<Vec<Value>> {
        maker.ranges = self.ranges();
        let copies = self.name.contains("Memcpy") || self.parameters.iter().any(is_host);
        let mut values = Vec::with_capacity(self.parameters.len());
        for parameter in &self.parameters {
            let told = maker.told.as_ref().map_or(0, String::len);
            let value = match written(maker, parameter) {
                Some(value) => value,
                None => make(maker, self.name, parameter, copies),
            };
            if maker.told.as_ref().map_or(0, String::len) == told {
                maker.tell(parameter.name, format_args!("{:#x}", value.0[0]));
            }
            if parameter.kind.starts_with("*mut ")
                && value.0[0] != 0
                && let Some(layout) = parameter.plain()
                && !maker.written.iter().any(|one| one.1 == value.0[0] as usize)
            {
                maker
                    .written
                    .push((layout.rust, value.0[0] as usize, layout.size));
            }
            values.push(value);
            maker.place += 1;
        }
        self.fit(&mut values, maker);
        maker.skip |= self.dies_of(&values, maker);
        (!maker.skip).then_some(values)
    }
}

impl Export {
    /// Half of the calls that say how much beside something that has a size say that size: a range is mapped, opened or let go of as a whole.
    fn fit(&'static self, values: &mut [Value], maker: &mut Maker<'_>) {
        let is_size = |parameter: &Parameter| {
            parameter.kind == "usize" && matches!(parameter.name, "bytesize" | "size")
        };
        let Some(at) = self.parameters.iter().position(is_size) else {
            return;
        };
        if maker.byte() < 128 {
            return;
        }
        let by_value = self.parameters.iter().zip(&*values);
        let by_value = by_value.filter(|(parameter, _)| !parameter.kind.starts_with('*'));
        let mut sizes = by_value.filter_map(|(parameter, value)| {
            let kind = parameter.about()?;
            maker.handles.size_of(kind, value.0[0])
        });
        // What comes last is put into what comes first.
        let Some(size) = sizes.next_back() else {
            return;
        };
        let before = values[at].0[0];
        values[at] = Value::of(size);
        maker.tell("and that is", format_args!("{size:#x}"));
        maker.asked = maker.asked.map(|_| size);
        for one in maker.sizes.iter_mut().skip(1).filter(|one| **one == before) {
            *one = size;
        }
    }
}

impl Export {
    /// What the driver was seen to die of that no list of single arguments says (`fixtures/oracle`).
    fn dies_of(&self, values: &[Value], maker: &Maker<'_>) -> bool {
        let word = |nth: usize| values.get(nth).map_or(0, |value| value.0[0]);
        let by_number = |nth| maker.deaths.by_number(nth, word(nth));
        if (0..values.len()).any(by_number) {
            return true;
        }
        match self.name {
            // It follows lists of options that are none.
            "cuLibraryLoadData" | "cuLibraryLoadFromFile" => {
                word(4) as u32 != 0 && (word(2) == 0 || word(3) == 0)
                    || word(7) as u32 != 0 && (word(5) == 0 || word(6) == 0)
            }
            // It follows what the description says is an array.
            "cuTexObjectCreate" | "cuSurfObjectCreate" => !viewable(word(1), maker),
            // The simulated one follows what is a mipmapped array as an array.
            "cuMemMapArrayAsync" | "cuMemMapArrayAsync_ptsz" => {
                word(0) != 0 && !(0..word(1)).all(|nth| is_array(word(0), nth, maker))
            }
            // It follows a graph into itself.
            "cuGraphAddChildGraphNode" => word(1) == word(4),
            // No resources at all.
            "cuDevResourceGenerateDesc" => word(2) as u32 == 0,
            // It follows what an operand says is an array.
            "cuMemcpy3DBatchAsync"
            | "cuMemcpy3DBatchAsync_ptsz"
            | "cuMemcpy3DBatchAsync_v2"
            | "cuMemcpy3DBatchAsync_v2_ptsz" => !copyable(word(0), word(1), maker),
            _ => false,
        }
    }
}

/// Whether one of a list of at most four CUarrayMapInfo, of which the type stands first and a handle behind it, names an array that lives.
fn is_array(list: u64, nth: u64, maker: &Maker<'_>) -> bool {
    let words: *const u64 = ptr::with_exposed_provenance(list as usize);
    let at = nth.min(3) as usize * (size_of::<CUarrayMapInfo>() / 8);
    // SAFETY: a place of this call's own, of four of them.
    let (kind, named) = unsafe { (words.add(at).read() as u32, words.add(at + 1).read()) };
    kind == 0 && maker.handles.live(Kind::Array).contains(&named)
}

/// Whether all operands of a list of so many CUDA_MEMCPY3D_BATCH_OP that are said to be arrays are some that live.
fn copyable(count: u64, list: u64, maker: &Maker<'_>) -> bool {
    /// CU_MEMCPY_OPERAND_TYPE_ARRAY.
    const ARRAY: u32 = 2;
    const SIZE: usize = size_of::<CUDA_MEMCPY3D_BATCH_OP>();
    if list == 0 {
        return true;
    }
    let words: *const u64 = ptr::with_exposed_provenance(list as usize);
    let known = |operand: usize| {
        // SAFETY: a place of this call's own, of `ROOM` bytes, in which the operation lies.
        let (kind, named) = unsafe {
            (
                words.add(operand).read() as u32,
                words.add(operand + 1).read(),
            )
        };
        kind != ARRAY || maker.handles.live(Kind::Array).contains(&named)
    };
    let (size, operand) = (SIZE / 8, size_of::<CUmemcpy3DOperand>() / 8);
    let operations = (0..count).take(ROOM / SIZE);
    operations
        .map(|nth| nth as usize * size)
        .all(|first| known(first) && known(first + operand))
}

/// Whether a CUDA_RESOURCE_DESC, of which the type stands first and a handle or an address behind it, names what lives.
fn viewable(description: u64, maker: &Maker<'_>) -> bool {
    if description == 0 {
        return true;
    }
    let words: *const u64 = ptr::with_exposed_provenance(description as usize);
    // SAFETY: a place of this call's own, of more than two words.
    let (kind, named) = unsafe { (words.read() as u32, words.add(1).read()) };
    match kind {
        0 => maker.handles.live(Kind::Array).contains(&named),
        1 => maker.handles.live(Kind::Mipmap).contains(&named),
        _ => true,
    }
}

/// The client's own memory, read or written by a copy.
fn is_host(parameter: &Parameter) -> bool {
    let is_void = matches!(parameter.kind, "*mut c_void" | "*const c_void");
    is_void
        && matches!(
            parameter.name,
            "dst" | "src" | "dst_host" | "src_host" | "p" | "ptr" | "global_address"
        )
}

/// Memory of the client's as long as copies may read and write, all zeros at first.
fn host() -> *mut c_void {
    static HOST_MEMORY: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    let address = HOST_MEMORY.get_or_init(|| {
        // SAFETY: asks for fresh pages, which nobody else has and which stay.
        let pages = unsafe {
            libc::mmap(
                ptr::null_mut(),
                HOST,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        pages.expose_provenance()
    });
    ptr::with_exposed_provenance_mut(*address)
}

/// What is ended by a call of its own, by the type's name.
pub fn kind_of(name: &str) -> Option<Kind> {
    Some(match name {
        "CUcontext" => Kind::Context,
        "CUgreenCtx" => Kind::Green,
        "CUstream" => Kind::Stream,
        "CUevent" => Kind::Event,
        "CUmemoryPool" => Kind::Pool,
        "CUarray" => Kind::Array,
        "CUmipmappedArray" => Kind::Mipmap,
        "CUmemGenericAllocationHandle" => Kind::Physical,
        "CUmodule" => Kind::Module,
        "CUfunction" => Kind::Function,
        "CUlibrary" => Kind::Library,
        "CUkernel" => Kind::Kernel,
        "CUgraph" => Kind::Graph,
        "CUgraphNode" => Kind::Node,
        "CUgraphExec" => Kind::Exec,
        "CUexternalMemory" => Kind::External,
        "CUtexObject" => Kind::Texture,
        "CUsurfObject" => Kind::Surface,
        "CUlinkState" => Kind::Link,
        "CUuserObject" => Kind::UserObject,
        "CUdevResourceDesc" => Kind::ResourceDescription,
        _ => return None,
    })
}

/// Those of which the fuzzer's families know how to make one that a driver may grant.
macro_rules! made_by_families {
    ($maker:ident, $parameter:ident, $($ty:ty;)*) => {
        match $parameter.kind {
            $( stringify!($ty) => return Value::of(<$ty as Argument>::make($maker, $parameter.name)), )*
            _ => {}
        }
    };
}

fn make(
    maker: &mut Maker<'_>,
    function: &'static str,
    parameter: &'static Parameter,
    copies: bool,
) -> Value {
    let (name, kind) = (parameter.name, parameter.kind);
    if kind == "*const c_char"
        && ["path", "file", "fname"]
            .iter()
            .any(|part| name.contains(part))
    {
        let path = match maker.byte() {
            0..=159 => image_path(),
            _ => None,
        };
        let path = path.unwrap_or_else(|| maker.one_of(&PATHS));
        return Value::of(path.as_ptr());
    }
    if function == "cuMemGetHandleForAddressRange" && name == "handle" {
        return Value::of(<*mut c_void as Argument>::make(maker, "handle_out"));
    }
    if is_host(parameter) {
        return match name {
            "p" if maker.byte() < 160 => Value::of(maker.handle(Kind::Host)),
            _ if maker.is_null() => Value::of(0_u64),
            _ => Value::of(host()),
        };
    }
    made_by_families!(maker, parameter,
        *const CUDA_ARRAY_DESCRIPTOR; *const CUDA_ARRAY_DESCRIPTOR_v1; *const CUDA_ARRAY3D_DESCRIPTOR; *const CUDA_ARRAY3D_DESCRIPTOR_v1;
        *const CUmemLocation; *mut CUmemLocation; *const CUmemAllocationProp; *const CUmemPoolProps; *const CUlaunchConfig;
        *mut CUDA_GRAPH_INSTANTIATE_PARAMS; *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC; *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC;
        *const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC; *const CUgraphEdgeData; *mut CUDA_LAUNCH_PARAMS; *mut CUarrayMapInfo;
        *const CUmemAccessDesc; *mut CUDA_MEM_ALLOC_NODE_PARAMS; *mut CUgraphNodeParams; *mut CUmemPoolPtrExportData; *mut CUipcMemHandle;
        CUipcMemHandle; *const c_void; *mut c_void; *const c_char; u8; u16;
    );
    if let Some(kind) = kind_of(kind) {
        return Value::of(maker.handle(kind));
    }
    match kind.split_once(' ') {
        Some(("*mut", "*mut c_void")) if name == "pp" => out(maker, Some(Kind::Host)),
        Some(("*mut", "*mut c_void")) => {
            Value::of(<*mut *mut c_void as Argument>::make(maker, name))
        }
        Some((pointer @ ("*mut" | "*const"), pointee)) => {
            pointed(maker, name, pointer == "*const", pointee)
        }
        _ => by_value(maker, function, name, kind, copies),
    }
}

/// A place that the driver may write a value to.
fn out(maker: &mut Maker<'_>, kind: Option<Kind>) -> Value {
    if maker.is_null() {
        return Value::of(0_u64);
    }
    let place = frame::room(ROOM, PATTERN);
    maker.outs.push(Out {
        address: place.expose_provenance(),
        bytes: 8,
        kind,
        exact: false,
    });
    Value::of(place)
}

/// Whether what a parameter of this name points to is read, as many as another says.
fn is_list(name: &str) -> bool {
    name.contains("depend") || ["srcs", "dsts", "dptrs"].contains(&name)
}

fn pointed(maker: &mut Maker<'_>, name: &'static str, is_const: bool, pointee: &str) -> Value {
    let is_list = is_const || is_list(name);
    match (kind_of(pointee), pointee) {
        (Some(kind), _) if is_list => list(maker, kind),
        (Some(kind), _) => out(maker, Some(kind)),
        (None, "CUdeviceptr") if is_list => list(maker, Kind::Address),
        (None, "CUdeviceptr") => out(maker, Some(Kind::Address)),
        (None, "CUdeviceptr_v1") => {
            let place = out(maker, Some(Kind::Low));
            if let Some(out) = maker.outs.last_mut() {
                out.bytes = 4;
            }
            place
        }
        // Counts are read before they are written: how much room there is.
        (
            None,
            "usize" | "c_uint" | "c_int" | "u64" | "cuuint64_t" | "c_ulonglong" | "c_char" | "f32",
        ) => {
            if maker.is_null() {
                maker.no_list = true;
                return Value::of(0_u64);
            }
            maker.no_list = false;
            let place: *mut u64 = frame::room(ROOM, 0).cast();
            let value = u64::from(maker.byte() % 5);
            for nth in 0..8 {
                // SAFETY: within the place's first 64 bytes.
                unsafe { place.add(nth).write(value) };
            }
            Value::of(place)
        }
        (None, other) => {
            if maker.is_null() {
                maker.no_list = true;
                return Value::of(0_u64);
            }
            maker.no_list = false;
            let place = frame::room(ROOM, 0);
            if let Some(layout) = layout(other)
                && (is_const || maker.byte() < 128)
            {
                let first = maker.first;
                fill(maker, layout, place, 0);
                maker.first = first;
            }
            Value::of(place)
        }
    }
}

/// Four that live; none where there is none.
fn list(maker: &mut Maker<'_>, kind: Kind) -> Value {
    let first = maker.first;
    let list: [u64; 4] = std::array::from_fn(|_| maker.handle(kind));
    maker.first = first;
    maker.no_list = list.contains(&0);
    match maker.no_list {
        true => Value::of(0_u64),
        false => Value::of(frame::put(list)),
    }
}

unsafe extern "C" fn client_function(_: *mut c_void) {}
unsafe extern "C" fn client_callback(_: CUstream, _: CUresult, _: *mut c_void) {}
unsafe extern "C" fn client_size(_: c_int) -> usize {
    0
}

fn by_value(
    maker: &mut Maker<'_>,
    function: &'static str,
    name: &'static str,
    kind: &str,
    copies: bool,
) -> Value {
    match kind {
        // An address at which nothing lives is the host's to the driver, which follows it and dies (oracle, `cuMemcpy 1=stale`).
        "CUdeviceptr" if matches!(name, "dst" | "src") => Value::of(host().expose_provenance()),
        "CUdeviceptr" => Value::of(maker.address(Kind::Address)),
        "CUdeviceptr_v1" => Value::of(maker.address(Kind::Low) as u32),
        "c_ulonglong" if name == "object" => {
            let kind = if function.starts_with("cuSurf") {
                Kind::Surface
            } else {
                Kind::Texture
            };
            Value::of(maker.handle(kind))
        }
        "c_ulonglong" | "cuuint64_t" => Value::of(maker.flags()),
        // Copies are short: what they take is time alone.
        "usize" if copies && !name.contains("count") && !name.starts_with("num") => {
            let size = maker.number(256);
            maker.sizes.push(size);
            Value::of(size & 0xffff)
        }
        "usize" if name == "bytesize" || name == "size" => {
            // A range of addresses is made of whole blocks.
            let size = match function.contains("Reserve") && maker.byte() < 192 {
                true => (u64::from(maker.byte() % 64) + 1) << 21,
                false => large(maker, function),
            };
            maker.asked = Some(size);
            if maker.sizes.last() != Some(&size) {
                maker.sizes.push(size);
            }
            Value::of(size)
        }
        "usize" if name.starts_with("num") => Value::of(maker.length(4)),
        // So many bytes are written, whatever there is to say.
        "usize" if name == "data_size" => Value::of(maker.length(64)),
        "usize" => Value::of(<usize as Argument>::make(maker, name)),
        "c_uint" if name.starts_with("num") || name == "nb_resources" => {
            Value::of(maker.length(4) as u32)
        }
        "c_uint" if copies => Value::of(maker.number(256) as u32 & 0xffff),
        "c_uint" => Value::of(<u32 as Argument>::make(maker, name)),
        "CUdevice" => Value::of(match maker.byte() {
            0..=247 => i32::from(maker.byte() % 2),
            _ => maker.word() as i32,
        }),
        "c_int" => Value::of(<i32 as Argument>::make(maker, name)),
        "f32" => Value::of(f32::from(maker.byte())),
        "CUmemLocation" => Value::of(structures::location(maker)),
        "CUhostFn" => Value::of(Some(
            client_function as unsafe extern "C" fn(*mut std::ffi::c_void),
        )),
        "CUstreamCallback" => Value::of(Some(
            client_callback as unsafe extern "C" fn(CUstream, CUresult, *mut std::ffi::c_void),
        )),
        "CUoccupancyB2DSize" => {
            Value::of(Some(client_size as unsafe extern "C" fn(c_int) -> usize))
        }
        // Descriptors, of which alone this driver makes any.
        _ if kind.ends_with("HandleType")
            && (maker.byte() < 160 || maker.habit == Habit::Sharing) =>
        {
            Value::of(1_i32)
        }
        "CUarray_format" => Value::of(maker.one_of(&[1, 2, 3, 8, 9, 10, 16, 32])),
        "CUdevice_attribute" => Value::of(maker.number(150) as i32),
        "CUipcEventHandle" => Value::of([u64::from(maker.byte()); 8]),
        _ if kind.starts_with("CU") && is_enumeration(kind) => Value::of(maker.number(10) as i32),
        // Handles of what a machine without a display has none of, callbacks and frames: none.
        _ => {
            if maker.deaths.by_null(maker.place) {
                maker.skip = true;
            }
            Value::of(0_u64)
        }
    }
}

/// What is neither a handle nor a structure nor a function is one of C's enumerations.
fn is_enumeration(kind: &str) -> bool {
    let none = ["CUgraphicsResource", "CUeglFrame", "CUeglStreamConnection"];
    let handles = ["Handle", "Callback", "CUtexref", "CUsurfref", "CUexternal"];
    !none.contains(&kind) && !handles.iter().any(|part| kind.contains(part))
        || kind.ends_with("HandleType")
}

/// How much is asked for: small, odd, an edge of what rounds, or a part of a budget.
fn large(maker: &mut Maker<'_>, function: &str) -> u64 {
    let chosen = maker.byte();
    let granted = &maker.handles.sizes;
    let size = match chosen {
        // As much as something that was granted.
        0..=47 if !granted.is_empty() => granted[usize::from(chosen) % granted.len()],
        0..=95 => maker.size(),
        96..=175 => (u64::from(maker.byte() % 64) + 1) << 20,
        176..=231 => (u64::from(maker.byte()) + 1) << 21,
        _ => (u64::from(maker.byte()) << 24) + u64::from(maker.byte() % 3),
    };
    maker.sizes.push(size);
    maker.asked = Some(size);
    // A range of the client's own that is locked lies where it is.
    match function.starts_with("cuMemHostRegister") {
        true => size.min(HOST as u64),
        false => size,
    }
}

fn layout(name: &str) -> Option<&'static Layout> {
    LAYOUTS.iter().find(|layout| layout.rust == name)
}

/// Fills a structure field by field; of a union one member by chance.
fn fill(maker: &mut Maker<'_>, layout: &'static Layout, place: *mut u8, depth: u32) {
    let is_union = layout.fields.len() > 1 && layout.fields.iter().all(|(_, offset)| *offset == 0);
    let chosen = usize::from(maker.byte()) % layout.fields.len().max(1);
    for (nth, ((name, offset), (kind, bytes))) in layout.fields.iter().zip(layout.types).enumerate()
    {
        if is_union && nth != chosen || name.contains("reserved") || name.contains("pad") {
            continue;
        }
        // SAFETY: within the structure, for which there is room.
        let at = unsafe { place.add(*offset) };
        field(maker, name, kind, *bytes, at, depth);
    }
}

fn field(
    maker: &mut Maker<'_>,
    name: &str,
    kind: &'static str,
    bytes: usize,
    at: *mut u8,
    depth: u32,
) {
    if let Some(inner) = layout(kind) {
        fill(maker, inner, at, depth);
        return;
    }
    let value: u64 = match kind {
        _ if kind_of(kind).is_some() => kind_of(kind).map_or(0, |kind| {
            // None that is gone: what a structure names the driver follows.
            maker.handles.live(kind).last().copied().unwrap_or(0)
        }),
        // As by value: what a copy is told lies on a device may be the host's.
        "CUdeviceptr" if matches!(name, "srcDevice" | "dstDevice") => {
            host().expose_provenance() as u64
        }
        "CUdeviceptr" => maker
            .handles
            .live(Kind::Address)
            .last()
            .copied()
            .unwrap_or(0),
        "*mut c_void" | "*const c_void" if name.ends_with("Host") => {
            host().expose_provenance() as u64
        }
        "*mut *mut c_void" if name == "kernelParams" => {
            structures::kernel_arguments(maker).expose_provenance() as u64
        }
        "CUhostFn" => client_function as *const () as u64,
        "CUmemLocation" => {
            let location = structures::location(maker);
            location.type_ as u32 as u64 | (location.id as u32 as u64) << 32
        }
        _ if kind.starts_with('*') => {
            let pointee = kind.split_once(' ').map_or("", |(_, pointee)| pointee);
            match layout(pointee) {
                Some(inner) if depth < 2 => {
                    let place = frame::room(ROOM, 0);
                    fill(maker, inner, place, depth + 1);
                    place.expose_provenance() as u64
                }
                _ => 0,
            }
        }
        // Lists, of which the first is meant.
        _ if kind.starts_with('[') || kind.starts_with("Option") => 0,
        _ if name.starts_with("num") || name.to_lowercase().contains("count") => {
            u64::from(maker.byte() % 2)
        }
        _ if name.starts_with("block") || name.starts_with("grid") => {
            u64::from(maker.byte() % 4) + 1
        }
        "usize" => u64::from(maker.byte() % 65),
        "c_uint" | "c_int" => u64::from(maker.byte() % 5),
        _ => u64::from(maker.byte() % 16),
    };
    if bytes <= 8 {
        // SAFETY: the field is as long, within a structure for which there is room.
        unsafe { ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), at, bytes) };
    }
}

macro_rules! leftovers {
    ($($field:ident: $name:ident;)*) => {
        /// Ends what only this surface makes, and says which context is current.
        pub struct Leftovers { $($field: fns::$name,)* }

        impl Leftovers {
            /// None where the driver lacks one of them.
            pub fn open() -> Option<Self> {
                $(
                    let $field = calls::address(stringify!($name), Place::Cuda);
                    if $field == 0 { return None; }
                )*
                // SAFETY: each address is paired with its own type from the one table of signatures.
                Some(unsafe { Self { $($field: std::mem::transmute::<usize, fns::$name>($field),)* } })
            }
        }
    };
}

leftovers! {
    get_current: cuCtxGetCurrent; get_device: cuCtxGetDevice; set_current: cuCtxSetCurrent; alloc: cuMemAlloc_v2; free: cuMemFree_v2; free_host: cuMemFreeHost;
    unregister: cuMemHostUnregister; destroy_texture: cuTexObjectDestroy; destroy_surface: cuSurfObjectDestroy; destroy_link: cuLinkDestroy;
    release_object: cuUserObjectRelease; wait_for_stream: cuStreamSynchronize; retain: cuDevicePrimaryCtxRetain;
    set_limit: cuCtxSetLimit; create_narrow: cuCtxCreate; get_state: cuDevicePrimaryCtxGetState;
}

impl Leftovers {
    /// The context that is current to this thread.
    pub fn current(&self) -> u64 {
        let mut context = CUcontext::NULL;
        // SAFETY: a place of our own.
        unsafe { (self.get_current)(&raw mut context) };
        context.0.expose_provenance() as u64
    }

    /// Its device.
    pub fn current_device(&self) -> Option<u32> {
        let mut device = -1;
        // SAFETY: a place of our own.
        let answer = unsafe { (self.get_device)(&raw mut device) };
        (answer == CUresult::SUCCESS).then_some(device as u32)
    }

    /// Makes a context that [`Leftovers::current`] told of current to this thread.
    pub fn make_current(&self, context: u64) {
        // SAFETY: a context that the driver gave, which it remembers where it is gone.
        unsafe {
            (self.set_current)(CUcontext(ptr::with_exposed_provenance_mut(
                context as usize,
            )))
        };
    }

    /// A device's primary context, current.
    pub fn enter(&self, device: i32) -> CUresult {
        let mut context = CUcontext::NULL;
        // SAFETY: a place of our own, and the context that was given.
        unsafe {
            match (self.retain)(&raw mut context, device) {
                CUresult::SUCCESS => (self.set_current)(context),
                refused => refused,
            }
        }
    }

    /// Whether a device's primary context is active.
    pub fn is_active(&self, device: u32) -> bool {
        let (mut flags, mut active) = (0, 0);
        // SAFETY: places of our own.
        let answer = unsafe { (self.get_state)(device as i32, &raw mut flags, &raw mut active) };
        answer == CUresult::SUCCESS && active != 0
    }

    /// A context of 32 bits on a device, current: some calls are granted in no other. None where it is refused.
    pub fn enter_narrow(&self, device: i32) -> Option<u64> {
        let mut context = CUcontext::NULL;
        // SAFETY: a place of our own.
        let answer = unsafe { (self.create_narrow)(&raw mut context, 0, device) };
        (answer == CUresult::SUCCESS).then(|| context.0.expose_provenance() as u64)
    }

    /// The current context's threads have the smallest stack there is.
    pub fn least_stack(&self) -> CUresult {
        // SAFETY: no precondition; the limit is CU_LIMIT_STACK_SIZE.
        unsafe { (self.set_limit)(0, 0) }
    }

    /// Memory of the current context's device, if it grants so much.
    pub fn allocate(&self, bytes: u64) -> Option<u64> {
        let mut address = 0;
        // SAFETY: a place of our own.
        let answer = unsafe { (self.alloc)(&raw mut address, bytes as usize) };
        (answer == CUresult::SUCCESS).then_some(address)
    }

    /// Takes and gives back so much of the current context's device.
    pub fn take(&self, bytes: u64) -> CUresult {
        let mut address = 0;
        // SAFETY: a place of our own, and the address that was given.
        unsafe {
            match (self.alloc)(&raw mut address, bytes as usize) {
                CUresult::SUCCESS => (self.free)(address),
                refused => refused,
            }
        }
    }

    /// Waits for each stream that lives, and for the two that have no handle. Never for a context. The last answer of those two.
    pub fn wait_for_streams(&self, handles: &crate::maker::Handles) -> u32 {
        let live = handles.live(Kind::Stream).iter().copied();
        let wait = |stream: u64| {
            let stream = CUstream(ptr::without_provenance_mut(stream as usize));
            // SAFETY: a stream that lives or that its context took along, which the driver remembers.
            unsafe { (self.wait_for_stream)(stream) }
        };
        live.for_each(|stream| {
            wait(stream);
        });
        wait(0);
        wait(2).0
    }

    /// What the families do not make.
    pub fn end(&self, handles: &crate::maker::Handles) {
        let live = |kind| handles.live(kind).iter().copied();
        let pointer = |value: u64| ptr::with_exposed_provenance_mut::<c_void>(value as usize);
        // SAFETY: handles that the driver gave and that nothing ended but a context, which the driver remembers.
        unsafe {
            live(Kind::Texture).for_each(|one| {
                (self.destroy_texture)(one);
            });
            live(Kind::Surface).for_each(|one| {
                (self.destroy_surface)(one);
            });
            live(Kind::Link).for_each(|one| {
                (self.destroy_link)(CUlinkState(pointer(one)));
            });
            live(Kind::UserObject).for_each(|one| {
                (self.release_object)(CUuserObject(pointer(one)), 1);
            });
            live(Kind::Host).for_each(|one| {
                (self.free_host)(pointer(one));
            });
            (self.unregister)(host());
        }
    }
}
