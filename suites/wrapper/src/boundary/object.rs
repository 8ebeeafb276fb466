//! The handles that are given out, and what each of them is below.

use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ash::vk::{self, Handle};

use super::chain::Chain;

const ALIVE: u64 = 0x7772_6170_7065_6420;
const GONE: u64 = 0x676f_6e65_676f_6e65;
/// What a driver writes into the first word of a new queue or command buffer (ICD_LOADER_MAGIC).
const NOBODYS: usize = 0x01cd_c0de;

/// What a dispatchable handle points to. Never freed, so that a handle that is used too late is known.
#[repr(C)]
pub struct Object {
    /// The loader's, by which it dispatches.
    loader: AtomicUsize,
    state: AtomicU64,
    kind: i32,
    pub below: u64,
    pub chain: &'static Chain,
}

/// A handle of a kind that is wrapped.
pub trait Wrapped: Handle + Copy {
    /// What it is below; null is null.
    fn below(self) -> Self;
}

/// Ends the process: a promise about handles is broken.
pub fn die(what: &str, handle: u64) -> ! {
    eprintln!("wrapper: {what}: {handle:#x}");
    std::process::abort()
}

/// The object of a dispatchable handle.
///
/// # Safety
/// A handle of somebody's: memory of two words at least.
pub unsafe fn object<H: Handle>(handle: H) -> &'static Object {
    let raw = handle.as_raw();
    let object = ptr::with_exposed_provenance::<Object>(raw as usize);
    if object.is_null() {
        die("a null handle", raw);
    }
    // SAFETY: the caller's obligation as far as the state; the rest is there if that is ours.
    unsafe {
        let state = &raw const (*object).state;
        match (*state).load(Ordering::Acquire) {
            ALIVE if (*object).kind == H::TYPE.as_raw() => &*object,
            GONE => die("a handle that is gone", raw),
            _ => die(&format!("no {:?} of this layer's", H::TYPE), raw),
        }
    }
}

/// The first word of a dispatchable handle.
///
/// # Safety
/// A living handle.
pub unsafe fn word<H: Handle>(handle: H) -> &'static AtomicUsize {
    // SAFETY: the caller's obligation: every dispatchable object begins with the loader's word.
    unsafe { &*ptr::with_exposed_provenance::<AtomicUsize>(handle.as_raw() as usize) }
}

/// A new handle for one of below.
pub fn wrap<H: Handle>(below: H, loader: usize, chain: &'static Chain) -> H {
    let object: &'static Object = Box::leak(Box::new(Object {
        loader: AtomicUsize::new(loader),
        state: AtomicU64::new(ALIVE),
        kind: H::TYPE.as_raw(),
        below: below.as_raw(),
        chain,
    }));
    H::from_raw(ptr::from_ref(object).expose_provenance() as u64)
}

/// The same for a handle that below may give out more than once: a physical device or a queue.
pub fn wrap_known<H: Handle + Copy>(below: H, loader: usize, chain: &'static Chain) -> H {
    let mut known = chain.known.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (H::TYPE.as_raw(), below.as_raw());
    let handle = known
        .entry(key)
        .or_insert_with(|| wrap(below, loader, chain).as_raw());
    H::from_raw(*handle)
}

/// The loader's word for what is below a queue or command buffer, which the loader itself will never see.
///
/// # Safety
/// A living handle of below.
pub unsafe fn pass_word_on<H: Handle>(below: H, loader: usize) {
    // SAFETY: the caller's obligation.
    let word = unsafe { word(below) };
    if !crate::settings::leaves_lower_words() && word.load(Ordering::Relaxed) == NOBODYS {
        word.store(loader, Ordering::Relaxed);
    }
}

impl Object {
    /// The handle is destroyed: who uses it from now on is told.
    pub fn end(&self) {
        self.state.store(GONE, Ordering::Release);
    }

    pub fn loader(&self) -> usize {
        self.loader.load(Ordering::Relaxed)
    }
}

/// Numbers that stand for non-dispatchable handles, and what each is below.
static NUMBERS: Mutex<Option<HashMap<u64, (i32, u64)>>> = Mutex::new(None);
static NEXT: AtomicU64 = AtomicU64::new(0x5752_0000_0000_0001);

fn numbers() -> MutexGuard<'static, Option<HashMap<u64, (i32, u64)>>> {
    NUMBERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new number for a handle of below.
pub fn number<H: Handle + Copy>(below: H) -> H {
    if below.is_null() {
        return below;
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    numbers()
        .get_or_insert_default()
        .insert(number, (H::TYPE.as_raw(), below.as_raw()));
    H::from_raw(number)
}

/// The handle of below, whose number is given up.
pub fn give_up<H: Handle + Copy>(handle: H) -> H {
    let below = of_number(handle);
    if let Some(numbers) = numbers().as_mut() {
        numbers.remove(&handle.as_raw());
    }
    below
}

fn of_number<H: Handle + Copy>(handle: H) -> H {
    let raw = handle.as_raw();
    if raw == 0 {
        return handle;
    }
    let found = numbers()
        .as_ref()
        .and_then(|numbers| numbers.get(&raw).copied());
    match found {
        Some((kind, below)) if kind == H::TYPE.as_raw() => H::from_raw(below),
        _ => die(&format!("no {:?} of this layer's", H::TYPE), raw),
    }
}

macro_rules! dispatchable {
    ($($handle:ident)*) => { $(
        impl Wrapped for vk::$handle {
            fn below(self) -> Self {
                if self.is_null() {
                    return self;
                }
                // SAFETY: a handle of the caller's, as the specification wants it.
                Self::from_raw(unsafe { object(self) }.below)
            }
        }
    )* };
}

macro_rules! numbered {
    ($($handle:ident)*) => { $(
        impl Wrapped for vk::$handle {
            fn below(self) -> Self {
                of_number(self)
            }
        }
    )* };
}

dispatchable!(Instance PhysicalDevice Device Queue CommandBuffer);
numbered!(DeviceMemory Buffer Image Fence);
