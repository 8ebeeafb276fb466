//! How arguments and answers look in the trace: handles by canonical names, pointers only as given or not, never an
//! address. What a command wrote is shown only when it succeeded.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ::trace::Names;
use ash::vk::{self, Handle};
use mock_device::{Parameter, Parameters, Value};

use crate::boundary::{Allocator, In, List, New, Out, OutList, Raw, Text};
use crate::state::STATE;

/// An owned [`Value`].
pub enum Shown {
    Null,
    Unsigned(u64),
    Signed(i64),
    Name(String),
}

impl Shown {
    pub fn value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Unsigned(value) => Value::Unsigned(*value),
            Self::Signed(value) => Value::Signed(*value),
            Self::Name(name) => Value::Name(name),
        }
    }
}

/// The arguments of one call, in the order of the C signature.
pub struct Line(Vec<(&'static str, Shown)>);

impl Line {
    /// Read before the command acts: a freed handle still has its name, an in/out structure its question.
    pub fn before(args: &[(&'static str, &dyn Traced)]) -> Self {
        let mut line = Self(Vec::with_capacity(args.len() + 2));
        for (name, value) in args {
            value.show(name, &mut line);
        }
        line
    }

    /// Fills in what the command made.
    pub fn after(&mut self, args: &[(&'static str, &dyn Traced)], wrote: bool) {
        for (name, value) in args.iter().filter(|_| wrote) {
            if let Some(made) = value.made()
                && let Some(slot) = self.0.iter_mut().find(|(known, _)| known == name)
            {
                slot.1 = made;
            }
        }
    }

    pub fn push(&mut self, name: &'static str, value: Shown) {
        self.0.push((name, value));
    }

    pub fn values(&self) -> Vec<(&str, Value<'_>)> {
        self.0
            .iter()
            .map(|(name, value)| (*name, value.value()))
            .collect()
    }
}

/// The arguments as faults see them.
pub fn parameters(args: &[(&'static str, &dyn Traced)]) -> Parameters {
    let parameter = |(name, argument): &(&'static str, &dyn Traced)| {
        let mut all = vec![Parameter {
            name,
            kind: "",
            value: argument.place().0,
            size: argument.place().1,
        }];
        all.extend(argument.asked().map(|bytes| Parameter {
            name: "allocation_size",
            kind: "",
            value: bytes,
            size: 0,
        }));
        all
    };
    Parameters(args.iter().flat_map(parameter).collect())
}

pub trait Traced {
    fn show(&self, name: &'static str, line: &mut Line);

    /// What it is in C, as bits, and how large is what an out-param points to: for faults.
    fn place(&self) -> (u64, usize) {
        (0, 0)
    }

    /// How many bytes it asks for.
    fn asked(&self) -> Option<u64> {
        None
    }

    /// For out-params: what the successful command put there.
    fn made(&self) -> Option<Shown> {
        None
    }
}

fn names() -> MutexGuard<'static, Option<Names>> {
    static NAMES: Mutex<Option<Names>> = Mutex::new(None);
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The handle is gone; what recurs at its value is another thing.
pub fn forget(kind: &'static str, handle: u64) {
    if let Some(names) = names().as_mut() {
        names.forget(kind, handle);
    }
}

pub fn result_name(result: vk::Result) -> String {
    if result == vk::Result::SUCCESS {
        "VK_SUCCESS".to_owned()
    } else {
        format!("VK_{result:?}")
    }
}

/// Handle types with the word that the trace uses for them.
pub trait Named: Handle + Copy {
    const WORD: &'static str;

    fn shown(self) -> Shown {
        match self.as_raw() {
            0 => Shown::Null,
            raw if Self::TYPE == vk::ObjectType::PHYSICAL_DEVICE => Shown::Name(
                STATE
                    .physical_devices
                    .find(raw)
                    .map_or_else(|_| "dev?".to_owned(), |device| device.index.to_string()),
            ),
            raw => Shown::Name(
                names()
                    .get_or_insert_default()
                    .of(Self::WORD, raw)
                    .to_owned(),
            ),
        }
    }
}

macro_rules! handles {
    ($($kind:ident $word:literal)+) => {$(
        impl Named for vk::$kind {
            const WORD: &'static str = $word;
        }
        impl Traced for vk::$kind {
            fn show(&self, name: &'static str, line: &mut Line) {
                line.push(name, self.shown());
            }
            fn place(&self) -> (u64, usize) {
                (self.as_raw(), 0)
            }
        }
    )+};
}
handles! {
    Instance "instance" PhysicalDevice "dev" Device "device" Queue "queue" CommandBuffer "cmd" DeviceMemory "mem"
    Buffer "buffer" Image "image" Fence "fence" Semaphore "semaphore" Event "event" QueryPool "queries" BufferView "bufview"
    ImageView "view" ShaderModule "shader" PipelineCache "cache" PipelineLayout "layout" Pipeline "pipeline"
    RenderPass "pass" DescriptorSetLayout "setlayout" Sampler "sampler" DescriptorPool "setpool" DescriptorSet "set"
    Framebuffer "framebuffer" CommandPool "cmdpool" SamplerYcbcrConversion "ycbcr"
    DescriptorUpdateTemplate "template" PrivateDataSlot "slot"
}

macro_rules! numbers {
    ($variant:ident via $convert:ident: $($kind:ty),+ $(,)?) => {$(
        impl Traced for $kind {
            fn show(&self, name: &'static str, line: &mut Line) {
                line.push(name, Shown::$variant($convert(*self)));
            }
        }
    )+};
}
fn unsigned(value: impl Into<u64>) -> u64 {
    value.into()
}
fn signed(value: impl Into<i64>) -> i64 {
    value.into()
}
fn size(value: usize) -> u64 {
    value as u64
}
/// In thousandths: the trace has no fractions.
#[expect(
    clippy::cast_possible_truncation,
    reason = "saturates, which is good enough for a viewport"
)]
fn thousandths(value: f32) -> i64 {
    (f64::from(value) * 1000.0) as i64
}
numbers!(Unsigned via unsigned: u16, u32, u64);
numbers!(Signed via signed: i32);
numbers!(Unsigned via size: usize);
numbers!(Signed via thousandths: f32);

macro_rules! raw_numbers {
    ($variant:ident: $($kind:ident),+ $(,)?) => {$(
        impl Traced for vk::$kind {
            fn show(&self, name: &'static str, line: &mut Line) {
                line.push(name, Shown::$variant(self.as_raw().into()));
            }
        }
    )+};
}
raw_numbers!(Unsigned: ImageUsageFlags, ImageCreateFlags, MemoryMapFlags, QueryResultFlags, DescriptorPoolResetFlags,
    CommandPoolResetFlags, CommandBufferResetFlags, StencilFaceFlags, PipelineStageFlags, PipelineStageFlags2,
    DependencyFlags, ShaderStageFlags, QueryControlFlags, CommandPoolTrimFlags, PeerMemoryFeatureFlags, CullModeFlags,
    SampleCountFlags, ExternalMemoryHandleTypeFlags, ImageAspectFlags);
raw_numbers!(Signed: Format, ImageType, ImageTiling, PipelineBindPoint, IndexType, ImageLayout, Filter, SubpassContents,
    ObjectType, FrontFace, PrimitiveTopology, CompareOp, StencilOp, DiscardRectangleModeEXT, LogicOp, PolygonMode,
    TessellationDomainOrigin, ConservativeRasterizationModeEXT, ProvokingVertexModeEXT, LineRasterizationModeKHR,
    CoverageModulationModeNV, CoverageReductionModeNV);

fn given(is: bool) -> Shown {
    if is {
        Shown::Name("given".to_owned())
    } else {
        Shown::Null
    }
}

impl<T> Traced for In<T> {
    fn show(&self, name: &'static str, line: &mut Line) {
        line.push(name, given(self.get().is_some()));
    }
}

impl<T> Traced for List<T> {
    fn show(&self, name: &'static str, line: &mut Line) {
        line.push(name, given(!self.is_null()));
    }
}

impl<T> Traced for Out<T> {
    fn show(&self, name: &'static str, line: &mut Line) {
        line.push(name, given(!self.is_null()));
    }
    fn place(&self) -> (u64, usize) {
        (self.address(), size_of::<T>())
    }
}

impl<T> Traced for OutList<T> {
    fn show(&self, name: &'static str, line: &mut Line) {
        line.push(name, given(!self.is_null()));
    }
    fn place(&self) -> (u64, usize) {
        (self.address(), size_of::<T>())
    }
}

impl<T: Named> Traced for New<T> {
    fn show(&self, name: &'static str, line: &mut Line) {
        line.push(name, Shown::Null);
    }
    fn made(&self) -> Option<Shown> {
        (*self).made().map(Named::shown)
    }
    fn place(&self) -> (u64, usize) {
        (self.address(), size_of::<T>())
    }
}

impl Traced for Text {
    fn show(&self, name: &'static str, line: &mut Line) {
        line.push(
            name,
            self.get()
                .map_or(Shown::Null, |text| Shown::Name(text.to_owned())),
        );
    }
}

impl Traced for Raw {
    fn show(&self, name: &'static str, line: &mut Line) {
        line.push(name, given(!self.0.is_null()));
    }
}

/// Whether callbacks were given changes nothing the device does.
impl Traced for Allocator {
    fn show(&self, _: &'static str, _: &mut Line) {}
}

/// A structure whose content is worth a place in the trace.
#[repr(transparent)]
pub struct Told<T>(pub In<T>);

impl<T> Clone for Told<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Told<T> {}

impl Traced for Told<vk::MemoryAllocateInfo<'_>> {
    fn asked(&self) -> Option<u64> {
        self.0.get().map(|info| info.allocation_size)
    }
    fn show(&self, name: &'static str, line: &mut Line) {
        let Some(info) = self.0.get() else {
            return line.push(name, Shown::Null);
        };
        line.push("allocation_size", Shown::Unsigned(info.allocation_size));
        line.push(
            "memory_type_index",
            Shown::Unsigned(info.memory_type_index.into()),
        );
    }
}

impl Traced for Told<vk::BufferCreateInfo<'_>> {
    fn show(&self, name: &'static str, line: &mut Line) {
        let Some(info) = self.0.get() else {
            return line.push(name, Shown::Null);
        };
        line.push("size", Shown::Unsigned(info.size));
        line.push("usage", Shown::Unsigned(info.usage.as_raw().into()));
    }
}
