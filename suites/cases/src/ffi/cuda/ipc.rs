//! Memory of other processes by cuIpc handles.

use abi::cuda::{CUdeviceptr, CUipcMemHandle, CUresult};

use super::{Answer, Cuda, MISSING, UNTOUCHED};

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
