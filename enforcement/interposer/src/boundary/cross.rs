//! Arguments of C calls as types: a pointer that came from C is an [`Out`] or an [`In`], and only this file looks behind it.

use core::marker::PhantomData;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use abi::cuda::enumerations::{
    CU_GRAPH_NODE_TYPE_CONDITIONAL as CONDITIONAL, CU_GRAPH_NODE_TYPE_GRAPH as CHILD,
    CU_GRAPH_NODE_TYPE_KERNEL as KERNEL,
};
use abi::cuda::{
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC_handle,
    CUDA_KERNEL_NODE_PARAMS_v3, CUDA_LAUNCH_PARAMS, CUarray, CUarrayMapInfo, CUcontext,
    CUdevResourceDesc, CUevent, CUexternalMemory, CUfunction, CUgraph, CUgraphExec, CUgraphNode,
    CUgraphNodeParams, CUgreenCtx, CUipcMemHandle, CUkernel, CUlibrary,
    CUmemGenericAllocationHandle, CUmemoryPool, CUmipmappedArray, CUmodule, CUresult, CUstream,
};
use abi::nvml::{nvmlDevice_t, nvmlReturn_t};
use ledger::KeptErrno;
use seeds::{Seed, planted};

use crate::outcome::Refused;

/// A place for an answer, which a caller gave or we provide. It may be null.
pub struct Out<'a, T>(*mut T, PhantomData<&'a mut T>);

/// Something to read, which a caller gave. It may be null.
pub struct In<'a, T>(*const T, PhantomData<&'a T>);

impl<T> Clone for In<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<'_, T> {}

impl<T> Clone for Out<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<'_, T> {}

impl<'a, T> Out<'a, T> {
    /// A place of our own for one value.
    pub fn to(place: &'a mut T) -> Out<'a, T> {
        Out(place, PhantomData)
    }

    /// A place of our own for several; the call's length argument must not say more.
    pub fn buffer(places: &'a mut [T]) -> Out<'a, T> {
        Out(places.as_mut_ptr(), PhantomData)
    }

    /// No place at all.
    pub fn nowhere() -> Out<'a, T> {
        Out(core::ptr::null_mut(), PhantomData)
    }

    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl<'a, T> In<'a, T> {
    /// A value of our own.
    pub fn of(value: &'a T) -> In<'a, T> {
        In(value, PhantomData)
    }

    /// Several; the call's length argument must not say more.
    pub fn list(values: &'a [T]) -> In<'a, T> {
        In(values.as_ptr(), PhantomData)
    }
}

impl<T: Copy> In<'_, T> {
    /// What is there. The driver reads the same bytes.
    pub fn read(self) -> Option<T> {
        // SAFETY: by the C contract a non-null argument points to a value of its type; alignment is not relied on.
        (!self.0.is_null()).then(|| unsafe { self.0.read_unaligned() })
    }

    /// A copy of so many values that lie there one after another, to be judged and given to the driver. `None` of no pointer.
    pub fn copies(self, count: usize) -> Option<Vec<T>> {
        // SAFETY: as above, of each: the call's length argument says how many there are.
        let value = |at| unsafe { self.0.add(at).read_unaligned() };
        (!self.0.is_null()).then(|| (0..count).map(value).collect())
    }
}

/// Arguments behind pointers are looked at by us and then by the driver, and another thread may change them in between: what is judged is a copy, and the
/// driver gets that copy (R51 of `fixtures/defects.txt`).
impl<T: Copy> In<'_, T> {
    /// Does a call with a copy of the value. No pointer is no value.
    #[inline(always)]
    pub fn by_own<R>(self, call: impl FnOnce(In<'_, T>) -> R) -> R {
        match self.read() {
            Some(own) if !planted(Seed::R51) => call(In::of(&own)),
            _ => call(self),
        }
    }
}

impl<T: Copy + PartialEq> Out<'_, T> {
    /// Does a call that reads from a place of ours what the caller's holds, though C calls it no constant.
    #[inline(always)]
    pub fn by_own<R>(self, call: impl FnOnce(Out<'_, T>) -> R) -> R {
        match self.read() {
            Some(before) if !planted(Seed::R51) => self.by_place(before, call),
            _ => call(self),
        }
    }

    /// Does a call that answers to a place of ours; what the driver makes of it, which may be 0 where it refuses, the caller's gets afterwards. What the
    /// caller's place holds before is nobody's business: valgrind tells of each branch on what nobody has written (attack 24).
    #[inline(always)]
    pub fn answered_by_own<R>(self, call: impl FnOnce(Out<'_, T>) -> R) -> R {
        match self.is_null() || planted(Seed::R51) {
            true => call(self),
            false => self.by_place(unwritten(), call),
        }
    }

    #[inline(always)]
    fn by_place<R>(self, before: T, call: impl FnOnce(Out<'_, T>) -> R) -> R {
        let mut own = before;
        let outcome = call(Out::to(&mut own));
        if own != before {
            self.write(own);
        }
        outcome
    }
}

/// What a place of ours holds that the driver has not written: no handle, no address and no size of any.
fn unwritten<T: Copy>() -> T {
    let mut value = core::mem::MaybeUninit::<T>::uninit();
    // SAFETY: places of answers are numbers, handles and addresses, whose every pattern of bits is a value.
    unsafe {
        value.as_mut_ptr().write_bytes(0xA5, 1);
        value.assume_init()
    }
}

impl<'a> In<'a, core::ffi::c_char> {
    /// A name that the driver reads too.
    pub fn text(self) -> Option<&'a core::ffi::CStr> {
        // SAFETY: by the C contract a non-null argument of this type is a C string.
        (!self.0.is_null()).then(|| unsafe { core::ffi::CStr::from_ptr(self.0) })
    }
}

impl<'a> Out<'a, core::ffi::c_void> {
    /// The pointer as a number: an address of the device's.
    pub fn address(self) -> u64 {
        self.0 as u64
    }

    /// The place of a number that was such an address.
    pub fn at(address: u64) -> Out<'a, core::ffi::c_void> {
        Out(address as *mut core::ffi::c_void, PhantomData)
    }

    /// The descriptor that the driver has written there.
    pub fn descriptor(self) -> Option<i32> {
        // SAFETY: the driver has written a descriptor; alignment is not relied on.
        (!self.0.is_null()).then(|| unsafe { self.0.cast::<i32>().read_unaligned() })
    }

    /// Closes the descriptor that the driver has just written there, and puts back what was there before.
    pub fn take_back_descriptor(self, before: Option<i32>) {
        let Some(fd) = self.descriptor().filter(|fd| *fd >= 0) else {
            return;
        };
        // SAFETY: the driver made it for this call, and nobody else has been told of it.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
        if let Some(before) = before {
            // SAFETY: not null, and the driver has written there.
            unsafe { self.0.cast::<i32>().write_unaligned(before) };
        }
    }

    /// A place of our own for a value whose type an attribute decides: 64 bits.
    pub fn word(place: &'a mut u64) -> Out<'a, core::ffi::c_void> {
        Out((&raw mut *place).cast(), PhantomData)
    }
}

impl Out<'_, CUgraphNodeParams> {
    /// The bodies of the conditional node that a driver has just made of them; none of any other.
    pub fn bodies(self) -> Vec<CUgraph> {
        let Some(made) = self.read().filter(|made| made.type_ == CONDITIONAL) else {
            return Vec::new();
        };
        // SAFETY: any bits are a value of it; it is one where the type says so.
        let made = unsafe { made.anon.conditional };
        let count = if made.phGraph_out.is_null() {
            0
        } else {
            made.size as usize
        };
        // SAFETY: the driver's own list of so many, which lives as long as the node.
        (0..count)
            .map(|index| unsafe { made.phGraph_out.add(index).read() })
            .collect()
    }

    /// The graph that a child's node is to hold; `None` of any other.
    pub fn child(self) -> Option<CUgraph> {
        let asked = self.read().filter(|asked| asked.type_ == CHILD)?;
        // SAFETY: as above.
        Some(unsafe { asked.anon.graph.graph })
    }

    /// What a kernel's node is to run; `None` of any other.
    pub fn kernel(self) -> Option<CUDA_KERNEL_NODE_PARAMS_v3> {
        let asked = self.read().filter(|asked| asked.type_ == KERNEL)?;
        // SAFETY: as above.
        Some(unsafe { asked.anon.kernel })
    }
}

impl Out<'_, CUarrayMapInfo> {
    /// The memory that an entry of an array names, which has as many as its call says.
    pub fn memory_at(self, index: usize) -> Option<CUmemGenericAllocationHandle> {
        // SAFETY: by the C contract they are there, though the driver refused one before.
        let info = (!self.is_null()).then(|| unsafe { self.0.add(index).read_unaligned() })?;
        // SAFETY: the union has one member.
        Some(unsafe { info.memHandle.memHandle })
    }
}

/// CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD.
const OPAQUE_DESCRIPTOR: u32 = 1;

impl In<'_, CUDA_EXTERNAL_MEMORY_HANDLE_DESC> {
    /// The descriptor that an import is by, if it is by one.
    pub fn descriptor(self) -> Option<i32> {
        let asked = self.read()?;
        // SAFETY: any bits are a value of it; it is one where the kind says so.
        let fd = unsafe { asked.handle.fd };
        (asked.type_ as u32 == OPAQUE_DESCRIPTOR).then_some(fd)
    }
}

/// An import by a second descriptor of the same thing, closed at the end unless a driver has taken it.
pub struct Duplicate(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, OwnedFd);

impl Duplicate {
    pub fn of(asked: In<'_, CUDA_EXTERNAL_MEMORY_HANDLE_DESC>) -> Option<Duplicate> {
        let _errno = KeptErrno::keep();
        // SAFETY: asks the kernel for another descriptor of whatever the number stands for; where that is nothing it says so.
        let fd = unsafe { libc::fcntl(asked.descriptor()?, libc::F_DUPFD_CLOEXEC, 0) };
        // SAFETY: made just now, for us.
        let own = (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })?;
        let handle = CUDA_EXTERNAL_MEMORY_HANDLE_DESC_handle { fd };
        Some(Duplicate(
            CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
                handle,
                ..asked.read()?
            },
            own,
        ))
    }

    pub fn description(&self) -> &CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
        &self.0
    }

    /// The driver has accepted it, and closes it.
    pub fn leave(self) {
        let _ = self.1.into_raw_fd();
    }
}

impl Out<'_, CUDA_LAUNCH_PARAMS> {
    /// The parts of a launch on several devices. The driver reads the same bytes.
    pub fn read_list(self, count: u32) -> impl Iterator<Item = CUDA_LAUNCH_PARAMS> {
        let count = if self.is_null() { 0 } else { count as usize };
        // SAFETY: by the C contract the list has so many entries; alignment is not relied on.
        (0..count).map(move |index| unsafe { self.0.add(index).read_unaligned() })
    }
}

impl<T: Copy> Out<'_, T> {
    /// What is there, after the driver has accepted the pointer.
    pub fn read(self) -> Option<T> {
        // SAFETY: by the C contract a non-null out-param is a valid place, and the driver has just written to it or left it initialised; alignment is not relied on.
        (!self.is_null()).then(|| unsafe { self.0.read_unaligned() })
    }

    /// The value at an index of several, as many as the call's count says.
    pub fn read_at(self, index: usize) -> Option<T> {
        // SAFETY: as in `read`, of a place that the caller's count covers.
        (!self.0.is_null()).then(|| unsafe { self.0.add(index).read_unaligned() })
    }

    pub fn write_at(self, index: usize, value: T) {
        if !self.0.is_null() {
            // SAFETY: as in `read_at`.
            unsafe { self.0.add(index).write_unaligned(value) };
        }
    }

    pub fn write(self, value: T) {
        if !self.is_null() {
            // SAFETY: as in `read`.
            unsafe { self.0.write_unaligned(value) };
        }
    }
}

/// A C type and what safe code sees of it.
pub trait Cross {
    type Safe<'a>;
    /// # Safety
    /// A pointer is null or valid for `'a`, as the entry point's contract says.
    unsafe fn cross<'a>(self) -> Self::Safe<'a>;
    fn back(safe: Self::Safe<'_>) -> Self;
}

impl<T: 'static> Cross for *mut T {
    type Safe<'a> = Out<'a, T>;
    unsafe fn cross<'a>(self) -> Self::Safe<'a> {
        Out(self, PhantomData)
    }
    fn back(safe: Out<'_, T>) -> *mut T {
        safe.0
    }
}

impl<T: 'static> Cross for *const T {
    type Safe<'a> = In<'a, T>;
    unsafe fn cross<'a>(self) -> Self::Safe<'a> {
        In(self, PhantomData)
    }
    fn back(safe: In<'_, T>) -> *const T {
        safe.0
    }
}

macro_rules! plain {
    ($($ty:ty)*) => { $(
        impl Cross for $ty {
            type Safe<'a> = $ty;
            unsafe fn cross<'a>(self) -> Self::Safe<'a> {
                self
            }
            fn back(safe: Self::Safe<'_>) -> $ty {
                safe
            }
        }
    )* };
}
plain! {
    i32 u8 u16 u32 u64 usize
    CUarray CUcontext CUevent CUexternalMemory CUdevResourceDesc CUfunction CUgraph CUgraphExec CUgraphNode CUgreenCtx CUipcMemHandle CUkernel CUlibrary CUmemoryPool CUmipmappedArray CUmodule CUstream
    nvmlDevice_t
}

/// A result code: the one mapping from our outcomes to C.
pub trait Answer {
    /// There is no driver.
    const NO_DRIVER: Self;
    /// The driver lacks the function.
    const ABSENT: Self;
    fn refused(refused: Refused) -> Self;
}

impl Answer for CUresult {
    const NO_DRIVER: CUresult = CUresult::ERROR_NOT_INITIALIZED;
    const ABSENT: CUresult = CUresult::ERROR_NOT_FOUND;
    fn refused(_: Refused) -> CUresult {
        if planted(Seed::C3) {
            return CUresult(u32::MAX);
        }
        CUresult::ERROR_OUT_OF_MEMORY
    }
}

impl Answer for nvmlReturn_t {
    const NO_DRIVER: nvmlReturn_t = nvmlReturn_t::ERROR_LIBRARY_NOT_FOUND;
    const ABSENT: nvmlReturn_t = nvmlReturn_t::ERROR_FUNCTION_NOT_FOUND;
    fn refused(_: Refused) -> nvmlReturn_t {
        nvmlReturn_t::ERROR_UNKNOWN
    }
}

/// A value of NVML's that it says is unsigned.
pub fn unsigned(value: abi::nvml::nvmlValue_t) -> u32 {
    // SAFETY: every variant is a plain number, and the widest was written before NVML was asked.
    unsafe { value.uiVal }
}
