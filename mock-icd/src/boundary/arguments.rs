//! The arguments of a command as C sees them: for the trace, whose shapes are the `trace` crate's, and for faults.

use std::ffi::{c_char, c_void};

use ash::vk;
use mock_device::Parameter;
use mock_device::boundary::bits;
use trace::vulkan::Many;

use super::pointers::{Allocator, In, List, New, Out, OutList, Raw, Text};

/// A type of the table that stands for a pointer of C's.
pub trait Pointer: Copy {
    type C: Copy;
    /// Of what the command may write there; 0 for what it only reads.
    const SIZE: usize;
    fn in_c(self) -> Self::C;
}

macro_rules! pointers {
    ($($kind:ident => $c:ty, $size:expr;)+) => {$(
        impl<T> Pointer for $kind<T> {
            type C = $c;
            const SIZE: usize = $size;
            fn in_c(self) -> $c {
                self.raw()
            }
        }
    )+};
}
pointers! {
    In => *const T, 0;
    List => *const T, 0;
    Out => *mut T, size_of::<T>();
    New => *mut T, size_of::<T>();
    OutList => Many<T>, size_of::<T>();
}

macro_rules! plain_pointers {
    ($($kind:ident => $c:ty;)+) => {$(
        impl Pointer for $kind {
            type C = $c;
            const SIZE: usize = 0;
            fn in_c(self) -> $c {
                self.raw()
            }
        }
    )+};
}
plain_pointers! {
    Text => *const c_char;
    Raw => *mut c_void;
    Allocator => *const vk::AllocationCallbacks<'static>;
}

/// An argument of any type. The traits below are one choice by type, the first that fits.
pub struct Given<T>(pub T);

pub trait ByPointer<C> {
    fn in_c(&self) -> C;
    fn parameter(&self, name: &'static str) -> Parameter;
}

impl<T: Pointer> ByPointer<T::C> for Given<T> {
    fn in_c(&self) -> T::C {
        self.0.in_c()
    }
    fn parameter(&self, name: &'static str) -> Parameter {
        parameter(name, self.in_c(), T::SIZE)
    }
}

/// Numbers and handles are in C what they are here.
pub trait ByValue<C> {
    fn in_c(&self) -> C;
    fn parameter(&self, name: &'static str) -> Parameter;
}

impl<T: Copy> ByValue<T> for &Given<T> {
    fn in_c(&self) -> T {
        self.0
    }
    fn parameter(&self, name: &'static str) -> Parameter {
        parameter(name, self.0, 0)
    }
}

fn parameter<C: Copy>(name: &'static str, value: C, size: usize) -> Parameter {
    Parameter {
        name,
        kind: "",
        value: bits(&value),
        size,
    }
}

/// What an argument asks for that is a field of a structure.
pub trait ByRequest {
    fn asked(&self) -> Option<Parameter>;
}

impl ByRequest for &Given<In<vk::MemoryAllocateInfo<'_>>> {
    fn asked(&self) -> Option<Parameter> {
        let info = self.0.get()?;
        Some(parameter("allocation_size", info.allocation_size, 0))
    }
}

pub trait ByNothing {
    fn asked(&self) -> Option<Parameter> {
        None
    }
}

impl<T> ByNothing for Given<T> {}

/// An argument as C has it.
macro_rules! in_c {
    ($argument:ident) => {{
        #[allow(unused_imports, reason = "which of them fits depends on the type")]
        use $crate::boundary::arguments::{ByPointer as _, ByValue as _};
        (&$crate::boundary::arguments::Given($argument)).in_c()
    }};
}
pub(crate) use in_c;

/// All arguments as faults see them.
macro_rules! parameters {
    ($($argument:ident),*) => {{
        #[allow(unused_imports, reason = "which of them fits depends on the type")]
        use $crate::boundary::arguments::{ByNothing as _, ByPointer as _, ByRequest as _, ByValue as _};
        let mut all = Vec::new();
        $(
            let given = $crate::boundary::arguments::Given($argument);
            all.push((&given).parameter(stringify!($argument)));
            all.extend((&&given).asked());
        )*
        ::mock_device::Parameters(all)
    }};
}
pub(crate) use parameters;
