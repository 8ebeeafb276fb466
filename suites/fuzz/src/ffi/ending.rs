//! Begins and ends what a sequence works with: contexts before it, everything that it left after it.

use std::ptr;

use abi::cuda::enumerations::CUstreamCaptureMode;
use abi::cuda::*;

use super::calls::{self, Place};
use crate::maker::{Handles, Kind};

macro_rules! table {
    ($($name:ident)*) => {
        /// What ends things, as this process finds it.
        #[allow(non_snake_case, reason = "C names stay exact")]
        pub struct Ending { $($name: fns::$name,)* }

        impl Ending {
            /// None where the driver lacks one of them.
            #[allow(non_snake_case, reason = "as above")]
            pub fn open() -> Option<Self> {
                $(
                    let $name = calls::address(stringify!($name), Place::Cuda);
                    if $name == 0 { return None; }
                )*
                // SAFETY: each address is paired with its own type from the one table of signatures.
                Some(unsafe { Self { $($name: std::mem::transmute::<usize, fns::$name>($name),)* } })
            }
        }
    };
}

table! {
    cuInit cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset_v2 cuCtxSetCurrent cuCtxPopCurrent_v2
    cuCtxDestroy_v2 cuStreamEndCapture cuGraphExecDestroy cuGraphDestroy cuMemUnmap cuMemRelease cuMemAddressFree cuMemFree_v2 cuMemFree
    cuArrayDestroy cuMipmappedArrayDestroy cuDestroyExternalMemory cuStreamDestroy_v2 cuEventDestroy_v2 cuMemPoolDestroy cuModuleUnload cuLibraryUnload
    cuCtxSynchronize cuDeviceGetDefaultMemPool cuDeviceGetMemPool cuDeviceSetMemPool cuMemPoolTrimTo cuMemAllocManaged cuMemsetD8_v2
    cuThreadExchangeStreamCaptureMode cuDeviceGraphMemTrim
}

/// Times that something is given back at most that counts its holders.
const HOLDS: usize = 65_536;
/// Times that a context is pushed at most.
const PUSHES: usize = 32_768;
/// Of managed memory: as much as a device's first takes ahead of need (docs/concepts/charging.md).
const MANAGED: usize = 64 << 20;

/// Of CUstreamCaptureMode.
const GLOBAL: CUstreamCaptureMode = 0;
const RELAXED: CUstreamCaptureMode = 2;

fn handle(value: u64) -> *mut c_void {
    ptr::without_provenance_mut(value as usize)
}

#[allow(non_snake_case, reason = "an answer of the driver's")]
fn SUCCESS(code: CUresult) -> bool {
    code == CUresult::SUCCESS
}

impl Ending {
    pub fn init(&self) -> CUresult {
        // SAFETY: no precondition.
        unsafe { (self.cuInit)(0) }
    }

    /// A primary context on each device; the first's becomes current.
    pub fn begin(&self, devices: i32) -> CUresult {
        let mut outcome = CUresult::SUCCESS;
        for device in (0..devices).rev() {
            let mut context = CUcontext::NULL;
            // SAFETY: a place of our own, and a context that was just given.
            outcome = unsafe {
                match (self.cuDevicePrimaryCtxRetain)(&raw mut context, device) {
                    CUresult::SUCCESS => (self.cuCtxSetCurrent)(context),
                    refused => refused,
                }
            };
        }
        outcome
    }

    /// What each device keeps for managed memory until the process ends it keeps from here on, in the contexts that were begun.
    pub fn keep_for_managed(&self, devices: i32) -> Result<(), (&'static str, CUresult)> {
        for device in (0..devices).rev() {
            let mut context = CUcontext::NULL;
            let mut address = 0;
            // SAFETY: places of our own, the context that is given, and memory of that size until it is freed.
            let answers = unsafe {
                [
                    (
                        "cuDevicePrimaryCtxRetain",
                        (self.cuDevicePrimaryCtxRetain)(&raw mut context, device),
                    ),
                    ("cuCtxSetCurrent", (self.cuCtxSetCurrent)(context)),
                    (
                        "cuMemAllocManaged",
                        (self.cuMemAllocManaged)(&raw mut address, MANAGED, 1),
                    ),
                    ("cuMemsetD8_v2", (self.cuMemsetD8_v2)(address, 0, MANAGED)),
                    ("cuMemFree_v2", (self.cuMemFree_v2)(address)),
                ]
            };
            if let Some(refused) = answers.into_iter().find(|(_, code)| !SUCCESS(*code)) {
                return Err(refused);
            }
        }
        Ok(())
    }

    /// All memory, and what takes memory: graphs, modules, arrays, objects. Contexts and streams stay, and nothing is waited for.
    pub fn free(&self, handles: &Handles) {
        let live = |kind| handles.live(kind).iter().map(|&value| handle(value));
        self.capture_mode(RELAXED);
        // SAFETY: as in `end`.
        unsafe {
            self.end_captures(handles);
            live(Kind::Exec).for_each(|one| {
                (self.cuGraphExecDestroy)(CUgraphExec(one));
            });
            live(Kind::Graph).for_each(|one| {
                (self.cuGraphDestroy)(CUgraph(one));
            });
            live(Kind::Library).for_each(|one| {
                (self.cuLibraryUnload)(CUlibrary(one));
            });
            live(Kind::Module).for_each(|one| {
                (self.cuModuleUnload)(CUmodule(one));
            });
            self.free_memory(handles);
            live(Kind::Pool).for_each(|one| {
                (self.cuMemPoolTrimTo)(CUmemoryPool(one), 0);
            });
        }
    }

    /// What this thread may call while something captures.
    fn capture_mode(&self, mode: CUstreamCaptureMode) {
        let mut mode = mode;
        // SAFETY: a place of our own.
        unsafe { (self.cuThreadExchangeStreamCaptureMode)(&raw mut mode) };
    }

    unsafe fn end_captures(&self, handles: &Handles) {
        let live = handles
            .live(Kind::Stream)
            .iter()
            .map(|&value| handle(value));
        for stream in live.chain([handle(2)]) {
            let mut graph = CUgraph::NULL;
            // SAFETY: as in `end`.
            unsafe {
                if SUCCESS((self.cuStreamEndCapture)(CUstream(stream), &raw mut graph))
                    && !graph.is_null()
                {
                    (self.cuGraphDestroy)(graph);
                }
            }
        }
    }

    unsafe fn free_memory(&self, handles: &Handles) {
        let live = |kind| handles.live(kind).iter().map(|&value| handle(value));
        // SAFETY: as in `end`.
        unsafe {
            for &(address, size) in &handles.mapped {
                (self.cuMemUnmap)(address, size as usize);
            }
            for &address in handles.live(Kind::Address) {
                (self.cuMemFree_v2)(address);
            }
            for &address in handles.live(Kind::Low) {
                (self.cuMemFree)(address as u32);
            }
            live(Kind::Array).for_each(|one| {
                (self.cuArrayDestroy)(CUarray(one));
            });
            live(Kind::Mipmap).for_each(|one| {
                (self.cuMipmappedArrayDestroy)(CUmipmappedArray(one));
            });
            live(Kind::External).for_each(|one| {
                (self.cuDestroyExternalMemory)(CUexternalMemory(one));
            });
            let physical = [handles.live(Kind::Physical), handles.gone(Kind::Physical)].concat();
            for one in physical {
                (0..HOLDS)
                    .take_while(|_| SUCCESS((self.cuMemRelease)(one)))
                    .count();
            }
            for &(address, size) in &handles.reserved {
                (self.cuMemAddressFree)(address, size as usize);
            }
        }
    }

    unsafe fn destroy_pools(&self, handles: &Handles) {
        // An imported one as often as it was imported: once may have been already.
        for one in [handles.live(Kind::Pool), handles.gone(Kind::Pool)].concat() {
            let pool = CUmemoryPool(handle(one));
            (0..HOLDS)
                // SAFETY: as in `end`.
                .take_while(|_| SUCCESS(unsafe { (self.cuMemPoolDestroy)(pool) }))
                .count();
        }
    }

    /// Everything that was given and is not ended, then the contexts. Answers are as may be: half of it is gone with the other half. Answers whether the
    /// contexts' work was done without an error.
    pub fn end(&self, handles: &Handles, devices: i32) -> CUresult {
        // A capture that nobody can end any more, in a context that is gone or begun by a thread that is, forbids nothing then.
        self.capture_mode(RELAXED);
        let done = self.end_once(handles, devices);
        self.capture_mode(GLOBAL);
        for &descriptor in handles.live(Kind::Descriptor) {
            // SAFETY: a descriptor that the driver gave to us.
            unsafe { libc::close(descriptor as i32) };
        }
        done
    }

    /// No context is current to this thread afterwards.
    fn pop_all(&self) {
        let mut context = CUcontext::NULL;
        (0..PUSHES)
            .take_while(|_| {
                // SAFETY: a place of our own.
                SUCCESS(unsafe { (self.cuCtxPopCurrent_v2)(&raw mut context) })
                    && !context.is_null()
            })
            .count();
    }

    fn end_once(&self, handles: &Handles, devices: i32) -> CUresult {
        let live = |kind| handles.live(kind).iter().map(|&value| handle(value));
        // SAFETY: handles that the driver gave and that nothing ended, but with their contexts, which it remembers; places of our own.
        unsafe {
            // Whatever became of the contexts, there is one to work in. Where the budget has no room for it the others go first: of 32 bits, one refuses all
            // that follows.
            let mut began = self.begin(devices);
            if !SUCCESS(began) {
                self.pop_all();
                self.free_memory(handles);
                live(Kind::Context).for_each(|one| {
                    (self.cuCtxDestroy_v2)(CUcontext(one));
                });
                began = self.begin(devices);
            }
            self.end_captures(handles);
            live(Kind::Exec).for_each(|one| {
                (self.cuGraphExecDestroy)(CUgraphExec(one));
            });
            live(Kind::Graph).for_each(|one| {
                (self.cuGraphDestroy)(CUgraph(one));
            });
            // An error that stays is told whoever asks first.
            let done = match (self.cuCtxSynchronize)() {
                CUresult::SUCCESS | CUresult::ERROR_INVALID_CONTEXT => began,
                code => code,
            };
            live(Kind::Library).for_each(|one| {
                (self.cuLibraryUnload)(CUlibrary(one));
            });
            live(Kind::Module).for_each(|one| {
                (self.cuModuleUnload)(CUmodule(one));
            });
            self.free_memory(handles);
            self.destroy_pools(handles);
            live(Kind::Stream).for_each(|one| {
                (self.cuStreamDestroy_v2)(CUstream(one));
            });
            live(Kind::Event).for_each(|one| {
                (self.cuEventDestroy_v2)(CUevent(one));
            });
            (self.cuCtxSynchronize)();
            live(Kind::Context).for_each(|one| {
                (self.cuCtxDestroy_v2)(CUcontext(one));
            });
            live(Kind::Green).for_each(|one| {
                let destroy = calls::address("cuGreenCtxDestroy", Place::Cuda);
                if destroy != 0 {
                    std::mem::transmute::<usize, fns::cuGreenCtxDestroy>(destroy)(CUgreenCtx(one));
                }
            });
            for device in 0..devices {
                (self.cuDevicePrimaryCtxReset_v2)(device);
                (0..HOLDS)
                    .take_while(|_| SUCCESS((self.cuDevicePrimaryCtxRelease_v2)(device)))
                    .count();
            }
            self.pop_all();
            // What lives in pools outlives the contexts, of which some (of 32 bits) let none of it be freed in them; and what
            // pools keep does, where they are not destroyed, as a default one.
            for &address in handles.live(Kind::Address) {
                (self.cuMemFree_v2)(address);
            }
            // An imported one that such an address was of could not be.
            self.destroy_pools(handles);
            // Graphs may have been launched that allocate on a device without a context.
            for device in 0..devices {
                (self.cuDeviceGraphMemTrim)(device);
                let mut pool = CUmemoryPool::NULL;
                if SUCCESS((self.cuDeviceGetMemPool)(&raw mut pool, device)) {
                    (self.cuMemPoolTrimTo)(pool, 0);
                }
                if SUCCESS((self.cuDeviceGetDefaultMemPool)(&raw mut pool, device)) {
                    (self.cuDeviceSetMemPool)(device, pool);
                    (self.cuMemPoolTrimTo)(pool, 0);
                }
            }
            live(Kind::Pool).for_each(|one| {
                (self.cuMemPoolTrimTo)(CUmemoryPool(one), 0);
            });
            done
        }
    }
}
