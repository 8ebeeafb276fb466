//! The probe's one room of unsafe: how a driver is asked. Runs in child processes only, which may die of it.

mod cost;
mod cuda;
mod nvml;
mod vulkan;

pub use cost::cost;
pub use cuda::{
    attributes, hold, identity as cuda_identity, memory as cuda_memory, proc_addresses,
};
pub use nvml::{Onlooker, identity as nvml_identity, structures};
pub use vulkan::facts as vulkan_facts;

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::io::Write;

use abi::cuda::{CUcontext, CUresult};
use abi::nvml::nvmlReturn_t;

/// A driver's library, opened for the rest of this process's life.
#[derive(Clone, Copy)]
pub struct Library {
    handle: *mut c_void,
}

/// Ten words in place of whatever the function takes.
type Ten = unsafe extern "C" fn(
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
) -> u32;

impl Library {
    /// # Errors
    /// The dynamic loader's words.
    pub fn open(soname: &str) -> Result<Self, String> {
        use libloading::os::unix as dl;
        // SAFETY: the driver's constructors are what every client runs too.
        let library = unsafe { dl::Library::open(Some(soname), dl::RTLD_NOW | dl::RTLD_LOCAL) };
        library
            .map(|library| Self {
                handle: library.into_raw(),
            })
            .map_err(|error| error.to_string())
    }

    pub fn address(self, name: &str) -> Option<usize> {
        let name = CString::new(name).ok()?;
        // SAFETY: an open handle and a C string.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!found.is_null()).then_some(found as usize)
    }

    /// The typed function of that name.
    ///
    /// # Safety
    /// `F` is the type of the function that the library exports under this name.
    unsafe fn function<F: Copy>(self, name: &str) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        // SAFETY: a function pointer has the size of an address; the type is the caller's obligation.
        self.address(name)
            .map(|address| unsafe { std::mem::transmute_copy(&address) })
    }

    /// Calls whatever lies under this name with one word and nine zeros.
    fn with(self, name: &str, first: usize) -> Option<u32> {
        self.with_two(name, first, 0)
    }

    /// The same with two words.
    fn with_two(self, name: &str, first: usize, second: usize) -> Option<u32> {
        // SAFETY: whatever comes of it, this process was started for it.
        unsafe {
            let call: Ten = self.function(name)?;
            Some(call(first, second, 0, 0, 0, 0, 0, 0, 0, 0))
        }
    }
}

/// Calls a function by its row in `abi`; a driver without it answers what no driver does.
macro_rules! call {
    ($library:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the row's own type; pointers are to places of ours that outlive the call.
        unsafe {
            match $library.function::<fns::$name>(stringify!($name)) {
                Some(function) => function($($argument),*),
                None => crate::probe::ffi::Missing::MISSING,
            }
        }
    }};
}
pub(crate) use call;

pub trait Missing {
    const MISSING: Self;
}
impl Missing for CUresult {
    const MISSING: Self = Self(u32::MAX);
}
impl Missing for nvmlReturn_t {
    const MISSING: Self = Self(u32::MAX);
}

/// Says one line to the parent, at once: the next call may end this process.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out
        .write_all(format!("@{line}\n").as_bytes())
        .and_then(|()| out.flush());
}

/// Calls each function with zeros in a fork of its own, before anything was initialised.
pub fn before_init(soname: &str, names: &[String]) -> Result<(), String> {
    let library = Library::open(soname)?;
    for name in names {
        // SAFETY: one thread; the child calls one function of the driver and leaves.
        let answer = unsafe {
            match libc::fork() {
                0 => {
                    libc::alarm(SECONDS);
                    let code = library.with(name, 0).unwrap_or(u32::MAX);
                    // An exit status has eight bits, result codes have more.
                    say(&format!("{name} {code}"));
                    libc::_exit(0)
                }
                child => ending(child),
            }
        };
        if let Some(answer) = answer {
            say(&format!("{name} {answer}"));
        }
    }
    Ok(())
}

/// How long a call may take before it counts as one that never ends.
const SECONDS: u32 = 5;

/// How a fork ended, if not by itself.
fn ending(child: libc::pid_t) -> Option<&'static str> {
    let mut status = 0;
    // SAFETY: a child of ours.
    unsafe { libc::waitpid(child, &mut status, 0) };
    match (libc::WIFSIGNALED(status), libc::WTERMSIG(status)) {
        (false, _) => None,
        (true, libc::SIGALRM) => Some("T"),
        (true, _) => Some("S"),
    }
}

/// Calls each function with zeros while a primary context is current, until one changes that. The parent goes on from there.
pub fn initialised_cuda(names: &[String]) -> Result<(), String> {
    use abi::cuda::fns;
    let library = Library::open("libcuda.so.1")?;
    let mut context = CUcontext::NULL;
    let ready = [
        call!(library, cuInit(0)),
        call!(library, cuDevicePrimaryCtxRetain(&mut context, 0)),
        call!(library, cuCtxSetCurrent(context)),
    ];
    if ready != [CUresult::SUCCESS; 3] {
        return Err(format!("no context to ask with: {ready:?}"));
    }
    let (mut free, mut total) = (0, 0);
    let _ = call!(library, cuMemGetInfo_v2(&mut free, &mut total));
    let held = free;
    for name in names {
        say(&format!("? {name}"));
        // SAFETY: ends this process if the call does not.
        unsafe { libc::alarm(SECONDS) };
        let code = library.with(name, 0).unwrap_or(u32::MAX);
        // SAFETY: as above.
        unsafe { libc::alarm(0) };
        say(&format!("{name} {code}"));
        let (mut current, mut flags, mut active) = (CUcontext::NULL, 0, 0);
        let same = call!(library, cuCtxGetCurrent(&mut current)) == CUresult::SUCCESS
            && current == context
            && call!(
                library,
                cuDevicePrimaryCtxGetState(0, &mut flags, &mut active)
            ) == CUresult::SUCCESS
            && active == 1
            && call!(library, cuCtxSynchronize()) == CUresult::SUCCESS
            && call!(library, cuMemGetInfo_v2(&mut free, &mut total)) == CUresult::SUCCESS
            && free == held;
        if !same {
            break;
        }
    }
    Ok(())
}

/// Calls each function of NVML with a device and zeros, or with zeros alone, until one dies of it.
pub fn initialised_nvml(names: &[String], with_device: bool) -> Result<(), String> {
    let (library, device) = nvml::device(0)?;
    for name in names {
        say(&format!("? {name}"));
        let first = match (with_device, takes_device(name)) {
            (false, _) => 0,
            (true, true) => device.0 as usize,
            // What is written there is nobody's.
            (true, false) => vec![0_u64; SCRATCH].leak().as_mut_ptr() as usize,
        };
        // SAFETY: ends this process if the call does not.
        unsafe { libc::alarm(SECONDS) };
        let code = library.with(name, first).unwrap_or(u32::MAX);
        // SAFETY: as above.
        unsafe { libc::alarm(0) };
        say(&format!("{name} {code}"));
    }
    Ok(())
}

/// Words of a place for whatever a call wants to write.
const SCRATCH: usize = 1024;

/// Getters whose first argument is a device; the look-ups take an index or a text first.
fn takes_device(name: &str) -> bool {
    name.starts_with("nvmlDeviceGet")
        && !name.starts_with("nvmlDeviceGetHandleBy")
        && !name.starts_with("nvmlDeviceGetCount")
}

/// The loaded library's exported functions by address.
fn by_address(library: Library, names: &[String]) -> HashMap<usize, Vec<&str>> {
    let mut found: HashMap<usize, Vec<&str>> = HashMap::new();
    for name in names {
        if let Some(address) = library.address(name) {
            found.entry(address).or_default().push(name);
        }
    }
    found
}

/// A fixed C text.
fn text(bytes: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = bytes
        .iter()
        .map(|&byte| byte as u8)
        .take_while(|&byte| byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `GPU-…` of sixteen bytes.
fn uuid(bytes: [u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "GPU-{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}
