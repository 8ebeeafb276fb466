//! Functions of the client that the driver calls.

use abi::cuda::enumerations::*;
use abi::cuda::*;

/// A value of C that this library only keeps and hands back: a structure with addresses in it, for example.
#[derive(Clone, Copy)]
pub struct Kept<T>(pub T);

// SAFETY: the addresses in it are numbers to us; nothing is read through them except where a client's own contract lets
// any thread do so (host functions, kernel parameters at the time of the call).
unsafe impl<T> Send for Kept<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Kept<T> {}

/// A host function with what it is to be given.
#[derive(Clone, Copy)]
pub enum ClientCall {
    Function(Kept<(CUhostFn, *mut c_void)>),
    Callback(Kept<(CUstreamCallback, CUstream, *mut c_void)>),
}

impl ClientCall {
    /// Of a context with an error functions are not called, and callbacks are told of it (H200, 580.159.04).
    pub fn call(self, error: Option<CUresult>) {
        match self {
            ClientCall::Function(_) if error.is_some() => {}
            // SAFETY: the client gave function and argument together, to be called once from a thread of the driver.
            ClientCall::Function(Kept((Some(function), data))) => unsafe { function(data) },
            // SAFETY: as above.
            ClientCall::Callback(Kept((Some(callback), stream, data))) => unsafe {
                callback(stream, error.unwrap_or(CUresult::SUCCESS), data)
            },
            ClientCall::Function(_) | ClientCall::Callback(_) => {}
        }
    }
}

/// Operation, address, value and flags of one of a batch's operations.
pub fn batch_fields(op: &CUstreamBatchMemOpParams) -> (CUstreamBatchMemOpType, u64, u64, u32) {
    // SAFETY: every member of the union is plain numbers, and waitValue and writeValue are laid out alike.
    unsafe {
        let wait = op.waitValue;
        (op.operation, wait.address, wait.anon.value64, wait.flags)
    }
}

/// The first number of an attribute's value.
pub fn first_word(value: &CUkernelNodeAttrValue_v1) -> i32 {
    // SAFETY: every member of the union begins with plain bytes, and all of them were read from the client.
    unsafe { value.priority }
}
