//! Each entry point of a family as something that makes its arguments and calls.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

use super::argument;
use crate::maker::{Maker, Out};

/// Where an entry point is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Cuda,
    Nvml,
    /// The dynamic loader.
    Loader,
}

/// What a call came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    pub code: u32,
    /// What errno was left at, where that is not as it was.
    pub errno: Option<i32>,
}

/// Where the function of a [`Call`] lies.
#[derive(Clone, Copy, Debug)]
pub struct Address(usize);

/// An entry point.
pub struct Call {
    pub name: &'static str,
    pub place: Place,
    run: fn(&mut Maker<'_>, usize) -> Option<Answer>,
}

impl Call {
    /// None where no arguments could be made that the driver survives.
    pub fn run(&self, maker: &mut Maker<'_>, address: Address) -> Option<Answer> {
        (self.run)(maker, address.0)
    }

    /// Where its function lies; none where the driver lacks it.
    pub fn address(&self) -> Option<Address> {
        Some(address(self.name, self.place))
            .filter(|&address| address != 0)
            .map(Address)
    }

    pub const fn new(
        name: &'static str,
        place: Place,
        run: fn(&mut Maker<'_>, usize) -> Option<Answer>,
    ) -> Self {
        Self { name, place, run }
    }
}

/// A value that no call of libc's sets.
const OWN: i32 = 0x5a5a;

/// Runs `call` with errno set to a value of our own.
pub fn around(call: impl FnOnce() -> u32) -> Answer {
    // SAFETY: the thread's own errno.
    let errno = unsafe { &mut *libc::__errno_location() };
    *errno = OWN;
    let code = call();
    // SAFETY: as above; read anew, because the call may have written it.
    let left = unsafe { libc::__errno_location().read_volatile() };
    Answer {
        code,
        errno: Some(left).filter(|left| *left != OWN),
    }
}

macro_rules! run {
    ($fns:path, $name:ident($($arg:ident : $ty:ty),*)) => {
        |maker, address| {
            $(
                let $arg = <$ty as $crate::ffi::argument::Argument>::make(maker, stringify!($arg));
                maker.place += 1;
            )*
            if maker.skip {
                return None;
            }
            // SAFETY: the address of the function whose signature is the row's.
            let function = unsafe { std::mem::transmute::<usize, $fns>(address) };
            // SAFETY: pointers are NULL, or to places of this call's own that are as long as the function may read or write; handles are such as the
            // driver was seen to survive.
            Some($crate::ffi::calls::around(|| unsafe { function($($arg),*).0 }))
        }
    };
}
pub(crate) use run;

macro_rules! cuda {
    { () $name:ident($($arg:ident : $ty:ty),*) -> $ret:ty } => {{
        #[allow(unused_imports, reason = "a row without such a type")]
        use abi::cuda::enumerations::*;
        #[allow(unused_imports, reason = "as above")]
        use abi::cuda::*;
        $crate::ffi::calls::Call::new(
            stringify!($name),
            $crate::ffi::calls::Place::Cuda,
            $crate::ffi::calls::run!(abi::cuda::fns::$name, $name($($arg : $ty),*)),
        )
    }};
}
pub(crate) use cuda;

macro_rules! nvml {
    { () $name:ident($($arg:ident : $ty:ty),*) -> $ret:ty } => {{
        use abi::nvml::*;
        $crate::ffi::calls::Call::new(
            stringify!($name),
            $crate::ffi::calls::Place::Nvml,
            $crate::ffi::calls::run!(abi::nvml::fns::$name, $name($($arg : $ty),*)),
        )
    }};
}
pub(crate) use nvml;

/// dlsym with a library's handle, or the loader's own two: whether anything is found.
pub const DLSYM: Call = Call::new("dlsym", Place::Loader, |maker, _| {
    let name = argument::symbol(maker);
    let handle = match maker.byte() % 4 {
        0 => libc::RTLD_DEFAULT,
        1 => libc::RTLD_NEXT,
        2 => opened(c"libnvidia-ml.so.1"),
        _ => opened(c"libcuda.so.1"),
    };
    // SAFETY: a handle that is open for good, and a name that ends in NUL.
    let found = unsafe { libc::dlsym(handle, name) };
    // The loader itself is no guest: it may set errno.
    Some(Answer {
        code: u32::from(found.is_null()),
        errno: None,
    })
});

/// A library that is never closed.
pub fn opened(name: &'static CStr) -> *mut c_void {
    static CUDA: OnceLock<usize> = OnceLock::new();
    static NVML: OnceLock<usize> = OnceLock::new();
    let kept = if name == c"libcuda.so.1" {
        &CUDA
    } else {
        &NVML
    };
    let handle = kept.get_or_init(|| {
        // SAFETY: the drivers' constructors are what every client runs too.
        unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) }.expose_provenance()
    });
    std::ptr::with_exposed_provenance_mut(*handle)
}

/// Where the function of a call lies; 0 where the driver lacks it.
pub fn address(name: &str, place: Place) -> usize {
    let Ok(text) = std::ffi::CString::new(name) else {
        return 0;
    };
    let library = match place {
        Place::Cuda => c"libcuda.so.1",
        Place::Nvml => c"libnvidia-ml.so.1",
        Place::Loader => return 1,
    };
    // SAFETY: a handle that is open for good, and a name that ends in NUL.
    unsafe { libc::dlsym(opened(library), text.as_ptr()) }.expose_provenance()
}

/// The states that a library of the enforcer's has reached, if it tells: only what is built to have known defects does.
pub fn marks() -> u64 {
    static TELLS: OnceLock<usize> = OnceLock::new();
    // SAFETY: a name that ends in NUL, looked for among all libraries of the process.
    let tells = TELLS.get_or_init(|| unsafe {
        libc::dlsym(libc::RTLD_DEFAULT, c"ringfence_marks".as_ptr()).expose_provenance()
    });
    match *tells {
        0 => 0,
        // SAFETY: the address of a function without arguments that answers a number of that size.
        tells => unsafe { std::mem::transmute::<usize, extern "C" fn() -> u64>(tells)() },
    }
}

/// NVML's devices, by its own handles.
pub fn nvml_devices() -> Vec<u64> {
    let address = |name| address(name, Place::Nvml);
    let (init, by_index) = (
        address("nvmlInit_v2"),
        address("nvmlDeviceGetHandleByIndex_v2"),
    );
    if init == 0 || by_index == 0 {
        return Vec::new();
    }
    // SAFETY: both addresses are of the functions whose signatures these are; a place of our own.
    unsafe {
        let init = std::mem::transmute::<usize, abi::nvml::fns::nvmlInit_v2>(init);
        let by_index =
            std::mem::transmute::<usize, abi::nvml::fns::nvmlDeviceGetHandleByIndex_v2>(by_index);
        init();
        let handle = |index| {
            let mut device = abi::nvml::nvmlDevice_t(std::ptr::null_mut());
            (by_index(index, &raw mut device).0 == 0).then(|| device.0.expose_provenance() as u64)
        };
        (0..).map_while(handle).collect()
    }
}

/// Asks NVML for each device's memory: whoever asks has the enforcer look for what is gone.
pub fn nvml_looks(devices: &[u64]) {
    let ask = address("nvmlDeviceGetMemoryInfo", Place::Nvml);
    if ask == 0 {
        return;
    }
    for &device in devices {
        let mut told = abi::nvml::nvmlMemory_t::default();
        let device = std::ptr::with_exposed_provenance_mut(device as usize);
        // SAFETY: the address is of the function whose signature this is; a device that NVML gave, and a place of our own.
        unsafe {
            let ask = std::mem::transmute::<usize, abi::nvml::fns::nvmlDeviceGetMemoryInfo>(ask);
            ask(abi::nvml::nvmlDevice_t(device), &raw mut told);
        }
    }
}

/// What stands in a place that the driver may have written to.
pub fn written(out: &Out) -> [u8; 8] {
    super::frame::bytes(out.address, out.bytes)
}
