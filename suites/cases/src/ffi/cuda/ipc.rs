//! Memory of other processes by cuIpc handles.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::with_exposed_provenance_mut;

use abi::cuda::{CUdeviceptr, CUipcMemHandle, CUmemPoolPtrExportData, CUmemoryPool, CUresult};

use super::{Answer, Cuda, MISSING, Pool, UNTOUCHED};

/// 64 bytes that name an allocation.
#[derive(Clone, Copy)]
pub struct IpcHandle(CUipcMemHandle);

/// By which call it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    First,
    Second,
}

impl IpcHandle {
    /// As two hexadecimal digits a byte.
    pub fn text(&self) -> String {
        let bytes = self.0.reserved.iter();
        bytes.map(|byte| format!("{:02x}", *byte as u8)).collect()
    }

    pub fn parse(text: &str) -> Option<IpcHandle> {
        let mut handle = CUipcMemHandle { reserved: [0; 64] };
        if text.len() != 2 * handle.reserved.len() {
            return None;
        }
        for (at, byte) in handle.reserved.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()? as _;
        }
        Some(IpcHandle(handle))
    }
}

impl Cuda {
    pub fn export_ipc(&self, pointer: CUdeviceptr) -> Answer<IpcHandle> {
        let mut handle = CUipcMemHandle { reserved: [0; 64] };
        let code = call!(self.cuIpcGetMemHandle(&mut handle, pointer));
        Answer {
            code,
            out: IpcHandle(handle),
        }
    }

    pub fn open_ipc(&self, way: Open, handle: &IpcHandle) -> Answer<CUdeviceptr> {
        const LAZY_ENABLE_PEER_ACCESS: u32 = 1;
        let mut out = UNTOUCHED;
        let flags = LAZY_ENABLE_PEER_ACCESS;
        let code = match way {
            Open::First => call!(self.cuIpcOpenMemHandle(&mut out, handle.0, flags)),
            Open::Second => call!(self.cuIpcOpenMemHandle_v2(&mut out, handle.0, flags)),
        };
        Answer { code, out }
    }

    pub fn close_ipc(&self, pointer: CUdeviceptr) -> CUresult {
        call!(self.cuIpcCloseMemHandle(pointer))
    }
}

/// What names an allocation of a shared pool to another process.
#[derive(Clone, Copy)]
pub struct PoolPointer(CUmemPoolPtrExportData);

impl PoolPointer {
    pub fn text(&self) -> String {
        let bytes = self.0.reserved.iter();
        bytes.map(|byte| format!("{byte:02x}")).collect()
    }

    pub fn parse(text: &str) -> Option<Self> {
        let mut data = CUmemPoolPtrExportData { reserved: [0; 64] };
        if text.len() != 2 * data.reserved.len() {
            return None;
        }
        for (at, byte) in data.reserved.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        Some(Self(data))
    }
}

impl Cuda {
    /// A pool as a descriptor.
    pub fn export_pool(&self, pool: Pool) -> Result<OwnedFd, CUresult> {
        let mut out = -1_i32;
        let place = (&raw mut out).cast();
        match call!(self.cuMemPoolExportToShareableHandle(place, pool.0, POSIX_DESCRIPTOR as _, 0))
        {
            // SAFETY: the driver made it for the caller.
            CUresult::SUCCESS => Ok(unsafe { OwnedFd::from_raw_fd(out) }),
            refused => Err(refused),
        }
    }

    /// The pool behind a descriptor, which stays the caller's.
    pub fn import_pool(&self, descriptor: &OwnedFd) -> Answer<Pool> {
        let mut out = CUmemoryPool::NULL;
        let fd = with_exposed_provenance_mut(descriptor.as_raw_fd() as usize);
        let code =
            call!(self.cuMemPoolImportFromShareableHandle(&mut out, fd, POSIX_DESCRIPTOR as _, 0));
        Answer {
            code,
            out: Pool(out),
        }
    }

    pub fn export_pool_pointer(&self, pointer: CUdeviceptr) -> Answer<PoolPointer> {
        let mut out = CUmemPoolPtrExportData { reserved: [0; 64] };
        let code = call!(self.cuMemPoolExportPointer(&mut out, pointer));
        Answer {
            code,
            out: PoolPointer(out),
        }
    }

    pub fn import_pool_pointer(&self, pool: Pool, data: PoolPointer) -> Answer<CUdeviceptr> {
        let (mut out, mut data) = (UNTOUCHED, data.0);
        let code = call!(self.cuMemPoolImportPointer(&mut out, pool.0, &mut data));
        Answer { code, out }
    }
}

/// CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.
pub const POSIX_DESCRIPTOR: i32 = 1;
