//! Functions and kernels: a launch may need their local memory for every thread that can be resident (R12 of DEFECTS).
//!
//! It is charged where a function is obtained, once for the most that any needs, so that the launch needs no hook. A kernel
//! belongs to no context: each that there is, or will be, may launch it.

use core::ffi::{c_char, c_int, c_uint};
use core::sync::atomic::Ordering;

use abi::cuda::{CUdevice, CUfunction, CUkernel, CUlibrary, CUmodule, CUresult};

use crate::boundary::cross::{In, Out};
use crate::boundary::entries::next;
use crate::devices::{Device, NoDevice, current_context};
use crate::outcome::{Outcome, Refused};
use crate::process::Tenant;

/// CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES.
const LOCAL_SIZE: c_int = 3;

/// Code may be loaded with any function: after so many the driver's figure is looked at.
const LOOK_EVERY: u32 = 16;

pub fn module_function(
    tenant: Tenant,
    place: Out<'_, CUfunction>,
    module: CUmodule,
    name: In<'_, c_char>,
) -> Outcome<CUresult> {
    let context = tenant.context_of_module(module.0 as u64);
    one(
        tenant,
        place,
        || next::cuModuleGetFunction(place, module, name),
        |function| tenant.may_launch(context.unwrap_or_else(current_context), &[function]),
    )
}

pub fn library_kernel(
    tenant: Tenant,
    place: Out<'_, CUkernel>,
    library: CUlibrary,
    name: In<'_, c_char>,
) -> Outcome<CUresult> {
    one(
        tenant,
        place,
        || next::cuLibraryGetKernel(place, library, name),
        |kernel| tenant.may_launch_anywhere(&[kernel]),
    )
}

pub fn module_functions(
    tenant: Tenant,
    places: Out<'_, CUfunction>,
    count: c_uint,
    module: CUmodule,
) -> Outcome<CUresult> {
    let context = tenant.context_of_module(module.0 as u64);
    all(
        tenant,
        places,
        count.min(there(|count| next::cuModuleGetFunctionCount(count, module))),
        || next::cuModuleEnumerateFunctions(places, count, module),
        |functions| tenant.may_launch(context.unwrap_or_else(current_context), functions),
    )
}

pub fn library_kernels(
    tenant: Tenant,
    places: Out<'_, CUkernel>,
    count: c_uint,
    library: CUlibrary,
) -> Outcome<CUresult> {
    all(
        tenant,
        places,
        count.min(there(|count| next::cuLibraryGetKernelCount(count, library))),
        || next::cuLibraryEnumerateKernels(places, count, library),
        |kernels| tenant.may_launch_anywhere(kernels),
    )
}

/// Nobody gets a handle of what must not be launched.
fn one<T: Copy>(
    tenant: Tenant,
    place: Out<'_, T>,
    call: impl FnOnce() -> CUresult,
    may: impl FnOnce(T) -> Result<(), Refused>,
) -> Outcome<CUresult> {
    let before = place.read();
    let code = call();
    let Some(obtained) = place.read().filter(|_| code == CUresult::SUCCESS) else {
        return Outcome::Done(code);
    };
    match may(obtained) {
        Ok(()) => {
            tenant.obtained();
            Outcome::Done(code)
        }
        Err(refused) => {
            if let Some(before) = before {
                place.write(before);
            }
            Outcome::Refused(refused)
        }
    }
}

/// How many there are to list: a program may say that it has room for more than it has.
fn there(ask: impl FnOnce(Out<'_, c_uint>) -> CUresult) -> c_uint {
    let mut count = 0;
    match ask(Out::to(&mut count)) {
        CUresult::SUCCESS => count,
        _ => 0,
    }
}

fn all<T: Copy>(
    tenant: Tenant,
    places: Out<'_, T>,
    count: c_uint,
    call: impl FnOnce() -> CUresult,
    may: impl FnOnce(&[T]) -> Result<(), Refused>,
) -> Outcome<CUresult> {
    let listed = || (0..count as usize).map_while(|at| places.read_at(at));
    let before: Vec<T> = listed().collect();
    let code = call();
    if code != CUresult::SUCCESS {
        return Outcome::Done(code);
    }
    let obtained: Vec<T> = listed().collect();
    match may(&obtained) {
        Ok(()) => {
            tenant.obtained();
            Outcome::Done(code)
        }
        Err(refused) => {
            for (at, before) in before.into_iter().enumerate() {
                places.write_at(at, before);
            }
            Outcome::Refused(refused)
        }
    }
}

/// What a driver told of local memory: nothing where there is no such function, unknown where it fails.
fn told(code: CUresult, bytes: c_int) -> Result<u64, Refused> {
    match code {
        CUresult::SUCCESS => Ok(u64::try_from(bytes).unwrap_or(0)),
        CUresult::ERROR_INVALID_VALUE
        | CUresult::ERROR_INVALID_DEVICE
        | CUresult::ERROR_INVALID_CONTEXT
        | CUresult::ERROR_INVALID_HANDLE
        | CUresult::ERROR_NO_BINARY_FOR_GPU
        | CUresult::ERROR_NOT_FOUND => Ok(0),
        _ => Err(Refused::UnknownDevice),
    }
}

/// The most of them.
fn most(mut each: impl Iterator<Item = Result<u64, Refused>>) -> Result<u64, Refused> {
    each.try_fold(0, |most, local| Ok(most.max(local?)))
}

fn function_local(function: &CUfunction) -> Result<u64, Refused> {
    let mut bytes = 0;
    let code = next::cuFuncGetAttribute(Out::to(&mut bytes), LOCAL_SIZE, *function);
    told(code, bytes)
}

fn kernel_local(kernel: &CUkernel, ordinal: CUdevice) -> Result<u64, Refused> {
    let mut bytes = 0;
    let code = next::cuKernelGetAttribute(Out::to(&mut bytes), LOCAL_SIZE, *kernel, ordinal);
    told(code, bytes)
}

impl Tenant {
    /// These functions may be launched in a context.
    fn may_launch(self, context: u64, functions: &[CUfunction]) -> Result<(), Refused> {
        let local = most(functions.iter().map(function_local))?;
        let ordinal = self.memory.contexts.ordinal_of(context);
        let device = ordinal.and_then(|ordinal| self.device(ordinal));
        let device = match device.map_or_else(|| self.current_device(), Ok) {
            Ok(device) => device,
            Err(NoDevice::NoContext) => return Ok(()),
            Err(NoDevice::Unknown) => return Err(Refused::UnknownDevice),
        };
        match self.limits_of(context, device) {
            Some(limits) => self.raise_local(device, limits, local),
            None if context == 0 => Err(Refused::UnknownDevice),
            None => Ok(()),
        }
    }

    /// These kernels may be launched in any context.
    fn may_launch_anywhere(self, kernels: &[CUkernel]) -> Result<(), Refused> {
        let devices = || self.devices().into_iter().flat_map(|known| known.iter());
        let used = |ordinal| self.memory.contexts.has_any(ordinal);
        let asked = devices().filter(|device| used(device.ordinal));
        let asked = asked.chain(devices().take(1));
        let local = |device: &Device| {
            let ordinal = device.ordinal as CUdevice;
            most(kernels.iter().map(|kernel| kernel_local(kernel, ordinal)))
        };
        let most = most(asked.map(local))?;
        // First for contexts to come: one that is made meanwhile is charged by itself or found below.
        let before = self.memory.kernels_local.fetch_max(most, Ordering::AcqRel);
        if before >= most {
            return Ok(());
        }
        for context in self.memory.contexts.list() {
            let limits = self.memory.contexts.limits(context.handle);
            if let (Some(limits), Some(device)) = (limits, self.device(context.ordinal)) {
                self.raise_local(device, limits, most).inspect_err(|_| {
                    // Of two threads that are refused at once the other may be the larger: its next try decides again.
                    self.memory.kernels_local.store(before, Ordering::Release);
                })?;
            }
        }
        Ok(())
    }

    /// A function was obtained.
    fn obtained(self) {
        let count = &self.memory.obtained;
        if (count.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(LOOK_EVERY)
            && let Ok(device) = self.current_device()
        {
            self.look_at(device);
        }
    }
}
