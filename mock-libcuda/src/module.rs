//! Modules: images loaded into a context, and what they hold.

use std::collections::HashMap;

use abi::cuda::*;

use crate::handle;
use crate::process::ContextId;

/// What a process has loaded.
#[derive(Default)]
pub struct Modules {
    pub functions: HashMap<u32, Function>,
}

#[derive(Clone, Debug)]
pub struct Function {
    pub context: ContextId,
}

impl Modules {
    /// The function of a handle; INVALID_HANDLE for anything else.
    pub fn function(&self, function: CUfunction) -> Result<&Function, CUresult> {
        handle::decode(handle::Kind::Function, function.0 as u64)
            .and_then(|id| self.functions.get(&id))
            .ok_or(CUresult::ERROR_INVALID_HANDLE)
    }
}
