//! Arguments in places that are used again: a loop that launches a kernel puts its values where those of the last launch were, and asks nobody for
//! memory.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::rc::Rc;

use crate::error::ArgumentError;
use crate::kernel::Kernel;

/// The bytes of each of a kernel's parameters. One for each kernel: arguments are a kernel's if they have its signature, not one that is equal.
#[derive(Debug)]
pub(crate) struct Signature(pub Box<[usize]>);

/// A value that can be an argument: four or eight bytes.
pub trait Scalar: Copy + sealed::Word {}

mod sealed {
    pub trait Word {
        const BYTES: usize;
        /// The value's bytes, first in memory.
        fn word(self) -> u64;
    }
}

macro_rules! scalars {
    ($($kind:ident)*) => { $(
        impl sealed::Word for $kind {
            const BYTES: usize = size_of::<$kind>();

            #[inline]
            fn word(self) -> u64 {
                let mut bytes = [0; 8];
                bytes[..size_of::<$kind>()].copy_from_slice(&self.to_ne_bytes());
                u64::from_ne_bytes(bytes)
            }
        }
        impl Scalar for $kind {}
    )* };
}
scalars! { u32 i32 f32 u64 i64 f64 }

/// Room for arguments.
#[derive(Debug, Default)]
pub struct Staging {
    words: Vec<u64>,
    slots: Vec<*mut c_void>,
    signature: Option<Rc<Signature>>,
}

impl Staging {
    /// Makes room, so that launches with so many arguments ask for none.
    pub fn reserve(&mut self, arguments: usize) -> Result<(), ArgumentError> {
        // Both vectors hold what is as wide as an address.
        let bytes = arguments.checked_mul(size_of::<u64>());
        if bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
            return Err(ArgumentError::CountOverflow { arguments });
        }
        let refused = |_| ArgumentError::Reservation { arguments };
        self.words.clear();
        self.slots.clear();
        self.words.try_reserve(arguments).map_err(refused)?;
        self.slots.try_reserve(arguments).map_err(refused)
    }

    /// Begins a kernel's arguments; those of the last launch are forgotten.
    #[inline]
    pub fn begin<'s>(&'s mut self, kernel: &Kernel) -> Result<Filling<'s>, ArgumentError> {
        let signature = kernel.shared_signature();
        if !self
            .signature
            .as_ref()
            .is_some_and(|own| Rc::ptr_eq(own, signature))
        {
            self.take_up(signature)?;
        }
        self.words.clear();
        Ok(Filling { staging: self })
    }

    /// Another kernel than last time.
    #[cold]
    fn take_up(&mut self, signature: &Rc<Signature>) -> Result<(), ArgumentError> {
        let odd = |bytes: &usize| !matches!(bytes, 4 | 8);
        if let Some(index) = signature.0.iter().position(odd) {
            let bytes = signature.0[index];
            return Err(ArgumentError::Unstageable { index, bytes });
        }
        self.signature = None;
        self.reserve(signature.0.len())?;
        self.signature = Some(Rc::clone(signature));
        Ok(())
    }
}

/// Arguments of one kernel, as far as they were put.
#[derive(Debug)]
pub struct Filling<'s> {
    staging: &'s mut Staging,
}

impl<'s> Filling<'s> {
    /// The next argument.
    #[inline]
    pub fn put<T: Scalar>(self, value: T) -> Result<Self, ArgumentError> {
        let index = self.staging.words.len();
        let sizes = self.sizes();
        match sizes.get(index) {
            Some(&declared) if declared == T::BYTES => {
                self.staging.words.push(value.word());
                Ok(self)
            }
            Some(&declared) => Err(ArgumentError::Size {
                index,
                given: T::BYTES,
                declared,
            }),
            None => Err(ArgumentError::Count {
                given: index + 1,
                declared: sizes.len(),
            }),
        }
    }

    /// The table of them all.
    #[inline]
    pub fn finish(self) -> Result<Arguments<'s>, ArgumentError> {
        let Staging {
            words,
            slots,
            signature,
        } = self.staging;
        let values = words.as_mut_ptr();
        slots.clear();
        slots.extend((0..words.len()).map(|at| values.wrapping_add(at).cast::<c_void>()));
        match signature {
            Some(signature) => Arguments::of(slots, signature),
            None => Err(ArgumentError::Empty),
        }
    }

    fn sizes(&self) -> &[usize] {
        self.staging
            .signature
            .as_ref()
            .map_or(&[], |signature| &signature.0)
    }
}

/// A table of arguments that is complete: an address for each parameter of one kernel, and none of them NULL.
#[derive(Debug)]
pub struct Arguments<'s> {
    slots: *mut *mut c_void,
    signature: &'s Signature,
    values: PhantomData<&'s mut [u64]>,
}

impl<'s> Arguments<'s> {
    #[inline]
    pub(crate) fn of(
        slots: &'s mut [*mut c_void],
        signature: &'s Signature,
    ) -> Result<Self, ArgumentError> {
        let (given, declared) = (slots.len(), signature.0.len());
        if given == 0 {
            return Err(ArgumentError::Empty);
        }
        if given != declared {
            return Err(ArgumentError::Count { given, declared });
        }
        Ok(Self {
            slots: slots.as_mut_ptr(),
            signature,
            values: PhantomData,
        })
    }

    #[inline]
    pub(crate) fn slots(&self) -> *mut *mut c_void {
        self.slots
    }

    #[inline]
    pub(crate) fn are_of(&self, signature: &Signature) -> bool {
        std::ptr::eq(self.signature, signature)
    }
}
