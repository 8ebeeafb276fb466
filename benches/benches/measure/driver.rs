//! The driver of this process, as any program finds it and past every hook.

use std::ffi::{CStr, c_void};
use std::path::Path;

use abi::cuda::{CUcontext, CUresult, fns};
use object::{Object, ObjectSymbol};

pub struct Driver {
    handle: *mut c_void,
    file: Vec<u8>,
    base: usize,
}

impl Driver {
    pub fn open() -> Self {
        // SAFETY: a constant name; the library's constructors are Rust's own.
        let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "libcuda.so.1 is in LD_LIBRARY_PATH");
        let maps = std::fs::read_to_string("/proc/self/maps").expect("our own maps");
        // The first mapping of a file is that of its beginning. Whatever else has the name in its path is no library.
        let is_driver = |path: &str| {
            let name = Path::new(path).file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.contains("libcuda.so") || name == "libnull_driver.so")
        };
        let line = maps
            .lines()
            .find(|line| line.find('/').is_some_and(|at| is_driver(&line[at..])))
            .expect("it is mapped");
        let path = &line[line.find('/').expect("just found")..];
        let base = line.split('-').next().expect("an address");
        Self {
            handle,
            file: std::fs::read(path).expect("a library"),
            base: usize::from_str_radix(base, 16).expect("a number"),
        }
    }

    /// As a program finds it.
    ///
    /// # Safety
    /// `F` is the type of the function of that name.
    pub unsafe fn hooked<F: Copy>(&self, name: &CStr) -> F {
        // SAFETY: a live handle and a C string.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        assert!(!address.is_null(), "{name:?}");
        // SAFETY: the caller's obligation.
        unsafe { std::mem::transmute_copy(&address) }
    }

    /// The driver's own, past every hook.
    ///
    /// # Safety
    /// As `hooked`.
    pub unsafe fn bare<F: Copy>(&self, name: &CStr) -> F {
        let file = object::File::parse(&*self.file).expect("an ELF file");
        let symbol = file
            .dynamic_symbols()
            .find(|symbol| symbol.name_bytes() == Ok(name.to_bytes()) && symbol.is_definition())
            .unwrap_or_else(|| panic!("{name:?}"));
        let address = self.base + symbol.address() as usize;
        // SAFETY: the caller's obligation.
        unsafe { std::mem::transmute_copy(&address) }
    }

    pub fn init(&self) {
        // SAFETY: the type is the one that `abi` gives the name.
        let code = unsafe { self.hooked::<fns::cuInit>(c"cuInit")(0) };
        assert_eq!(code, CUresult::SUCCESS);
    }

    /// Initialised, with the first device's primary context current.
    pub fn begin(&self) -> CUresult {
        self.init();
        // SAFETY: the types are those that `abi` gives the names; live out-parameters.
        unsafe {
            let retain: fns::cuDevicePrimaryCtxRetain = self.hooked(c"cuDevicePrimaryCtxRetain");
            let set: fns::cuCtxSetCurrent = self.hooked(c"cuCtxSetCurrent");
            let mut context = CUcontext::NULL;
            assert_eq!(retain(&mut context, 0), CUresult::SUCCESS);
            set(context)
        }
    }
}
