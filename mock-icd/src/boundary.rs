//! Where C comes in. Every command passes [`enter`]: the one place that consults the fault plan and writes the trace.
//! All unsafe code of this crate is here and in the two modules below. A panic ends the process at the command's own
//! `extern` frame (Rust aborts there): it never crosses into C, and a broken mock is never taken for a driver's answer.

pub mod arguments;
mod pointers;
mod reserve;

floor::provide!();

use std::sync::OnceLock;

use ash::vk;
use mock_device::fault::NO_FIELDS;
use mock_device::{Api, Bytes, Consultation, Nanos, Parameters, TraceRecord, World};
use trace::Arguments;
use trace::vulkan::Answer as Shown;

pub use pointers::{
    Allocator, Chain, ChainOut, Function, HostBytes, In, List, New, Out, OutList, Raw, Text,
    Vulkan14Properties,
};
pub use reserve::{Reserve, borrow, host_file};

use crate::{commands, loader, lost};

/// The answer of a command other than VK_SUCCESS is its error here, VK_INCOMPLETE and VK_TIMEOUT included.
pub type Outcome = Result<(), vk::Result>;

/// A type that a command can answer.
pub trait Answer: Shown {
    /// What a fault's result code looks like; `None` where the command cannot fail, and then it is carried out.
    fn fault(code: i32) -> Option<Self>;
}

impl Answer for vk::Result {
    fn fault(code: i32) -> Option<Self> {
        Some(Self::from_raw(code))
    }
}

impl Answer for () {
    fn fault(_: i32) -> Option<Self> {
        None
    }
}

impl Answer for u64 {
    fn fault(_: i32) -> Option<Self> {
        None
    }
}

/// Turns what a handler says into what its command answers.
pub trait Becomes<R> {
    fn answer(self) -> R;
}

impl<R: Answer> Becomes<R> for R {
    fn answer(self) -> R {
        self
    }
}

impl Becomes<vk::Result> for Outcome {
    fn answer(self) -> vk::Result {
        self.err().unwrap_or(vk::Result::SUCCESS)
    }
}

/// A command without a result does nothing where a handle is unknown.
impl Becomes<()> for Outcome {
    fn answer(self) {}
}

/// The world of this process; `None`, said once on stderr, if it cannot be opened. Then no instance can be made.
pub fn world() -> Option<&'static World> {
    static WORLD: OnceLock<Option<&'static World>> = OnceLock::new();
    *WORLD.get_or_init(|| match World::ambient() {
        Ok(world) => Some(world),
        Err(error) => {
            say(&format!("mock_icd: no simulated device: {error}\n"));
            None
        }
    })
}

/// Carries out one command: consultation, body, trace. Not inlined: entry points keep bodies of their own, one address
/// each (decision 19).
#[inline(never)]
pub fn enter<R: Answer>(
    entry: &'static str,
    body: impl FnOnce() -> R,
    parameters: &dyn Fn() -> Parameters,
    arguments: &dyn Fn(&mut Arguments<'_>),
) -> R {
    let Some(world) = world() else { return body() };
    let consultation = world.consult(Api::Vulkan, entry, || parameters().asked());
    let carried_out = || {
        let found = || lost::answer(world, entry, &parameters());
        let lost = world.any_lost().then(found).flatten();
        lost.and_then(|code| R::fault(code.as_raw()))
            .unwrap_or_else(body)
    };
    let answer = consultation.carry_out(R::fault, parameters, NO_FIELDS, carried_out);
    if world.tracing() {
        let wrote = answer.wrote() && consultation != Consultation::Untouched;
        let shown = (&answer.shown(), wrote);
        let write = |record: &TraceRecord<'_>| world.trace(record);
        // Which handles a command ended, the mock knows by itself: `trace::forget`.
        trace::arguments::answered(trace::vulkan::API, entry, shown, false, arguments, write);
    }
    consultation.afterwards();
    answer
}

/// As [`enter`] for the commands that only look addresses up. They leave no trace: which names are asked for depends on
/// the loader's version and on every layer between, and says nothing about the device. A fault's result is NULL.
#[inline(never)]
pub fn look_up(entry: &'static str, body: impl FnOnce() -> Function) -> Function {
    let Some(world) = world() else { return body() };
    let consultation = world.consult(Api::Vulkan, entry, || Bytes::ZERO);
    let null = |_| Some(Function::NULL);
    let answer = consultation.carry_out(null, Parameters::default, NO_FIELDS, body);
    consultation.afterwards();
    answer
}

/// The clock of the device's engines.
pub fn now() -> Nanos {
    world().map_or(Nanos::ZERO, World::now)
}

/// A clock's nanoseconds; 0 for a domain that is not the host's.
pub fn clock(domain: vk::TimeDomainKHR) -> u64 {
    let id = match domain {
        vk::TimeDomainKHR::CLOCK_MONOTONIC_RAW => libc::CLOCK_MONOTONIC_RAW,
        vk::TimeDomainKHR::DEVICE | vk::TimeDomainKHR::CLOCK_MONOTONIC => libc::CLOCK_MONOTONIC,
        _ => return 0,
    };
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a clock that every Linux has, and a structure of this frame.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}

/// The four words of a clear colour, whatever they mean.
pub fn clear_words(value: vk::ClearColorValue) -> [u32; 4] {
    // SAFETY: all members of the union are four words of 32 bits.
    unsafe { value.uint32 }
}

/// A clear value's words: of a colour, or depth and stencil in the first two.
pub fn clear_color_of(value: vk::ClearValue) -> vk::ClearColorValue {
    // SAFETY: either member of the union is the application's words, and words have no invalid value.
    unsafe { value.color }
}

/// write(2) to stderr: `eprintln!` panics where stderr is broken.
fn say(text: &str) {
    // SAFETY: a buffer of this length; a failed write is nobody's loss.
    unsafe {
        libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
    }
}

/// For handles whose descriptor was never needed, such as a signaled sync_fd's.
pub fn close(fd: i32) -> Outcome {
    if fd >= 0 {
        // SAFETY: the caller gave the descriptor away.
        unsafe { libc::close(fd) };
    }
    Ok(())
}

/// The loader's first call.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, expect(non_snake_case, reason = "the names of C"))]
pub extern "system" fn vk_icdNegotiateLoaderICDInterfaceVersion(version: Out<u32>) -> vk::Result {
    const ENTRY: &str = "vk_icdNegotiateLoaderICDInterfaceVersion";
    enter(
        ENTRY,
        || loader::negotiate(version).answer(),
        &Parameters::default,
        &|_| {},
    )
}

#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, expect(non_snake_case, reason = "the names of C"))]
pub extern "system" fn vk_icdGetInstanceProcAddr(instance: vk::Instance, name: Text) -> Function {
    look_up("vk_icdGetInstanceProcAddr", || {
        commands::for_instance(instance, name)
    })
}

/// Only commands whose first argument is a physical device.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, expect(non_snake_case, reason = "the names of C"))]
pub extern "system" fn vk_icdGetPhysicalDeviceProcAddr(
    instance: vk::Instance,
    name: Text,
) -> Function {
    look_up("vk_icdGetPhysicalDeviceProcAddr", || {
        commands::for_physical_device(instance, name)
    })
}
