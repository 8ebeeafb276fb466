//! What cases promise the launch boundary: that kernels have the parameters they were declared with, and that handles are what they seem.

use std::ffi::c_void;
use std::sync::Arc;

use abi::cuda::{CUfunction, CUstream};
use harness::Failure;
use launch::{ArgumentError, Arguments, Device, Kernel, LaunchError, Module, Stream};

/// A kernel of a case's own PTX.
pub fn kernel(
    module: &Arc<Module>,
    name: &str,
    parameters: &[usize],
) -> Result<Arc<Kernel>, Failure> {
    Ok(declared(module, name, parameters)?)
}

/// The same, where the answer is what the case is about. Parameters may only be declared wrongly over a driver that is asked for them.
pub fn declared(
    module: &Arc<Module>,
    name: &str,
    parameters: &[usize],
) -> Result<Arc<Kernel>, LaunchError> {
    // SAFETY: cases declare what stands in their PTX, and kernels are given buffers that are as large as they are told.
    unsafe { module.kernel(name, parameters) }
}

pub fn null_function(device: &Arc<Device>) -> Result<Arc<Kernel>, LaunchError> {
    // SAFETY: NULL may be handed in.
    unsafe { Kernel::adopt(device, CUfunction::NULL, &[8]) }
}

/// A default stream by its number: 0, 1 the legacy one, 2 the thread's.
pub fn default_stream(device: &Arc<Device>, number: usize) -> Result<Stream, LaunchError> {
    // SAFETY: the numbers of the default streams stand for streams that are always there.
    unsafe { Stream::adopt(device, CUstream(std::ptr::without_provenance_mut(number))) }
}

/// A table with an address of each of the words, or NULL in its place.
pub fn table<'s>(
    kernel: &'s Kernel,
    words: &[Option<&'s u64>],
    slots: &'s mut Vec<*mut c_void>,
) -> Result<Arguments<'s>, ArgumentError> {
    let address = |word: &Option<&u64>| match word {
        Some(word) => (&raw const **word).cast_mut().cast(),
        None => std::ptr::null_mut(),
    };
    slots.clear();
    slots.extend(words.iter().map(address));
    // SAFETY: words are as large as any parameter of a case's kernel, and borrowed as long as the table.
    unsafe { Arguments::adopt(kernel, slots) }
}
