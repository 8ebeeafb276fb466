//! What Vulkan's handles and results are called, and how its arguments look: pointers only as given or not. What a command
//! made is shown when it succeeded.

use ash::vk::{self, Handle};

use crate::arguments::{Arguments, Given, Shown, Traced};
use crate::boundary;

/// The API's name in a line.
pub const API: &str = "vulkan";

#[must_use]
pub fn result_name(result: vk::Result) -> String {
    if result == vk::Result::SUCCESS {
        "VK_SUCCESS".to_owned()
    } else {
        format!("VK_{result:?}")
    }
}

/// Whether this command ends the life of the last handle that it is given.
#[must_use]
pub fn ends(entry: &str) -> bool {
    entry.starts_with("vkDestroy") || entry == "vkFreeMemory"
}

/// What a command answers.
pub trait Answer: Copy {
    fn shown(self) -> Shown;
    /// Whether the out-params were written.
    fn wrote(self) -> bool;
}

impl Answer for vk::Result {
    fn shown(self) -> Shown {
        Shown::Text(result_name(self))
    }
    fn wrote(self) -> bool {
        self == Self::SUCCESS
    }
}

impl Answer for () {
    fn shown(self) -> Shown {
        Shown::Null
    }
    fn wrote(self) -> bool {
        true
    }
}

/// A device address or an opaque capture address: which one depends on the process, so a line says only that it is one.
impl Answer for u64 {
    fn shown(self) -> Shown {
        Shown::Text(if self == 0 { "none" } else { "address" }.to_owned())
    }
    fn wrote(self) -> bool {
        true
    }
}

impl Answer for u32 {
    fn shown(self) -> Shown {
        Shown::Unsigned(self.into())
    }
    fn wrote(self) -> bool {
        true
    }
}

/// Room for several things.
#[repr(transparent)]
pub struct Many<T>(pub *mut T);

impl<T> Clone for Many<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Many<T> {}

impl<T> Traced for Many<T> {
    fn trace(self, name: &'static str, list: &mut Arguments) {
        list.null_or(name, self.0.is_null(), "given");
    }
}

/// Handle types with the word that a trace uses for them.
pub trait Named: Handle + Copy {
    const WORD: &'static str;
}

macro_rules! handles {
    ($($kind:ident $word:literal)+) => {$(
        impl Named for vk::$kind {
            const WORD: &'static str = $word;
        }
        impl Traced for vk::$kind {
            fn trace(self, name: &'static str, list: &mut Arguments) {
                list.named(name, $word, self.as_raw());
            }
        }
        impl Traced for *mut vk::$kind {
            fn trace(self, name: &'static str, list: &mut Arguments) {
                list.made(name, self, |list, made| list.got(name, $word, made.as_raw()));
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
    DescriptorUpdateTemplate "template" PrivateDataSlot "slot" SurfaceKHR "surface" SwapchainKHR "swapchain"
    DebugUtilsMessengerEXT "messenger" DebugReportCallbackEXT "callback" AccelerationStructureKHR "acceleration"
    AccelerationStructureNV "accelerationnv" DeferredOperationKHR "operation" ValidationCacheEXT "validation"
    IndirectCommandsLayoutNV "commandslayout" DisplayKHR "display" DisplayModeKHR "mode" MicromapEXT "micromap"
    OpticalFlowSessionNV "flow" VideoSessionKHR "video" VideoSessionParametersKHR "videoparams" ShaderEXT "shaderobject"
    CuModuleNVX "cumodule" CuFunctionNVX "cufunction" PerformanceConfigurationINTEL "performance"
    CudaModuleNV "cudamodule" CudaFunctionNV "cudafunction"
}

/// Whether callbacks were given changes nothing that a device does.
impl Traced for *const vk::AllocationCallbacks<'_> {
    fn trace(self, _: &'static str, _: &mut Arguments) {}
}

impl Traced for *const vk::MemoryAllocateInfo<'_> {
    fn trace(self, name: &'static str, list: &mut Arguments) {
        let Some(info) = boundary::read(self, true) else {
            return list.push(name, Shown::Null);
        };
        list.push("allocation_size", Shown::Unsigned(info.allocation_size));
        list.push(
            "memory_type_index",
            Shown::Unsigned(info.memory_type_index.into()),
        );
    }
}

impl Traced for *const vk::BufferCreateInfo<'_> {
    fn trace(self, name: &'static str, list: &mut Arguments) {
        let Some(info) = boundary::read(self, true) else {
            return list.push(name, Shown::Null);
        };
        list.push("size", Shown::Unsigned(info.size));
        list.push("usage", Shown::Unsigned(info.usage.as_raw().into()));
    }
}

/// In thousandths: a trace has no fractions.
#[expect(
    clippy::cast_possible_truncation,
    reason = "saturates, which is good enough for a viewport"
)]
impl Traced for f32 {
    fn trace(self, name: &'static str, list: &mut Arguments) {
        list.push(name, Shown::Signed((f64::from(self) * 1000.0) as i64));
    }
}

/// As [`crate::arguments::ByPointer`], in Vulkan's words.
pub trait ByPointer {
    fn show(&self, name: &'static str, list: &mut Arguments);
}

impl<T> ByPointer for &Given<*mut T> {
    fn show(&self, name: &'static str, list: &mut Arguments) {
        list.null_or(name, self.0.is_null(), "given");
    }
}

impl<T> ByPointer for &Given<*const T> {
    fn show(&self, name: &'static str, list: &mut Arguments) {
        list.null_or(name, self.0.is_null(), "given");
    }
}

/// Flags and enumerations of 4 and 8 bytes.
pub trait BySize {
    fn show(&self, name: &'static str, list: &mut Arguments);
}

impl<T: Copy> BySize for Given<T> {
    fn show(&self, name: &'static str, list: &mut Arguments) {
        match boundary::number(self.0) {
            Some(number) => list.push(name, Shown::Unsigned(number)),
            None => list.text(name, "given"),
        }
    }
}

/// Numbers through pointers are only given: whether they were written is the command's affair.
macro_rules! given {
    ($($kind:ty),*) => { $(
        impl ByNumber for &&&Given<*mut $kind> {
            fn show(&self, name: &'static str, list: &mut Arguments) {
                list.null_or(name, self.0.is_null(), "given");
            }
        }
    )* };
}
pub trait ByNumber {
    fn show(&self, name: &'static str, list: &mut Arguments);
}
given! { u8, u16, u32, u64, i32, usize, std::ffi::c_void }

impl ByNumber for &&&Given<*const std::ffi::c_void> {
    fn show(&self, name: &'static str, list: &mut Arguments) {
        list.null_or(name, self.0.is_null(), "given");
    }
}

/// Shows one argument of a Vulkan command.
#[macro_export]
macro_rules! shape_vulkan {
    ($list:expr, $argument:ident) => {{
        #[allow(unused_imports, reason = "which of them fits depends on the type")]
        use $crate::{
            arguments::ByType as _,
            vulkan::{ByNumber as _, ByPointer as _, BySize as _},
        };
        (&&&&$crate::arguments::Given($argument)).show(stringify!($argument), $list)
    }};
}
