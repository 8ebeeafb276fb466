//! What is called of the driver, past the hooks or through them.

use std::ffi::CStr;

use abi::cuda::{CUresult, CUstream, fns};

use crate::driver::Driver;

#[derive(Clone, Copy)]
pub struct Calls {
    alloc: fns::cuMemAllocAsync,
    free: fns::cuMemFreeAsync,
    information: fns::cuMemGetInfo_v2,
    look_up: fns::cuGetProcAddress_v2,
}

impl Calls {
    /// The driver's own, and those that any program finds.
    pub fn of(driver: &Driver) -> [Self; 2] {
        // SAFETY: the types are those that `abi` gives the names.
        let [bare, ours] = unsafe {
            [
                Self {
                    alloc: driver.bare(c"cuMemAllocAsync"),
                    free: driver.bare(c"cuMemFreeAsync"),
                    information: driver.bare(c"cuMemGetInfo_v2"),
                    look_up: driver.bare(c"cuGetProcAddress_v2"),
                },
                Self {
                    alloc: driver.hooked(c"cuMemAllocAsync"),
                    free: driver.hooked(c"cuMemFreeAsync"),
                    information: driver.hooked(c"cuMemGetInfo_v2"),
                    look_up: driver.hooked(c"cuGetProcAddress_v2"),
                },
            ]
        };
        assert_ne!(
            bare.alloc as usize, ours.alloc as usize,
            "nothing is hooked"
        );
        [bare, ours]
    }

    pub fn allocate(&self) -> u64 {
        let mut pointer = 0;
        // SAFETY: a live out-parameter and the NULL stream.
        let code = unsafe { (self.alloc)(&mut pointer, 4096, CUstream::NULL) };
        assert_eq!(code, CUresult::SUCCESS);
        pointer
    }

    pub fn pair(&self) {
        let pointer = self.allocate();
        // SAFETY: the pointer just granted, and the NULL stream.
        let code = unsafe { (self.free)(pointer, CUstream::NULL) };
        assert_eq!(code, CUresult::SUCCESS);
    }

    pub fn ask(&self) {
        let (mut free, mut total) = (0, 0);
        // SAFETY: live out-parameters.
        let code = unsafe { (self.information)(&mut free, &mut total) };
        assert_eq!(code, CUresult::SUCCESS);
    }

    pub fn proc_address(&self, name: &CStr) {
        let (mut found, mut status) = (std::ptr::null_mut(), 0);
        // SAFETY: a C string and live out-parameters.
        let code = unsafe {
            (self.look_up)(
                name.as_ptr(),
                &mut found,
                12000,
                0,
                (&raw mut status).cast(),
            )
        };
        assert_eq!(code, CUresult::SUCCESS);
    }
}
