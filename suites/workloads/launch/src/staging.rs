//! Arguments in places that are used again: a loop that launches a kernel puts its values where those of the last launch were, and asks nobody for
//! memory.

use std::cell::Cell;
use std::ffi::c_void;
use std::slice::Iter;
use std::sync::Arc;

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
    ($($kind:ident: $($byte:ident)*, $($filler:literal)*;)*) => { $(
        impl sealed::Word for $kind {
            const BYTES: usize = size_of::<$kind>();

            #[inline]
            fn word(self) -> u64 {
                // One by one: copying a slice is a call, which takes longer than all the rest.
                let [$($byte),*] = self.to_ne_bytes();
                u64::from_ne_bytes([$($byte,)* $($filler),*])
            }
        }
        impl Scalar for $kind {}
    )* };
}
scalars! {
    u32: a b c d, 0 0 0 0;
    i32: a b c d, 0 0 0 0;
    f32: a b c d, 0 0 0 0;
    u64: a b c d e f g h, ;
    i64: a b c d e f g h, ;
    f64: a b c d e f g h, ;
}

/// Where an argument goes.
#[derive(Debug, Default)]
struct Place {
    // A cell: the driver reads it by its address, while it is written by reference.
    word: Cell<u64>,
    /// How wide the kernel's parameter is.
    bytes: usize,
}

/// Room for arguments.
#[derive(Debug, Default)]
pub struct Staging {
    places: Vec<Place>,
    /// The words' addresses, as long as the signature stays.
    slots: Vec<*mut c_void>,
    signature: Option<Arc<Signature>>,
}

impl Staging {
    /// Makes room, so that launches with so many arguments ask for none.
    pub fn reserve(&mut self, arguments: usize) -> Result<(), ArgumentError> {
        let bytes = arguments.checked_mul(size_of::<Place>());
        if bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
            return Err(ArgumentError::CountOverflow { arguments });
        }
        let refused = |_| ArgumentError::Reservation { arguments };
        // The places may move.
        self.signature = None;
        self.places.clear();
        self.slots.clear();
        self.places.try_reserve(arguments).map_err(refused)?;
        self.slots.try_reserve(arguments).map_err(refused)
    }

    /// Begins a kernel's arguments; those of the last launch are forgotten.
    #[inline]
    pub fn begin<'s>(&'s mut self, kernel: &'s Kernel) -> Result<Filling<'s>, ArgumentError> {
        let signature = kernel.shared_signature();
        let known = |own: &Arc<Signature>| Arc::ptr_eq(own, signature);
        if !self.signature.as_ref().is_some_and(known) {
            self.take_up(signature)?;
        }
        Ok(Filling {
            left: self.places.iter(),
            slots: &self.slots,
            signature,
            odd: None,
        })
    }

    /// Another kernel than last time.
    #[cold]
    fn take_up(&mut self, signature: &Arc<Signature>) -> Result<(), ArgumentError> {
        let odd = |bytes: &usize| !matches!(bytes, 4 | 8);
        if let Some(index) = signature.0.iter().position(odd) {
            let bytes = signature.0[index];
            return Err(ArgumentError::Unstageable { index, bytes });
        }
        self.reserve(signature.0.len())?;
        let place = |&bytes: &usize| Place {
            word: Cell::new(0),
            bytes,
        };
        self.places.extend(signature.0.iter().map(place));
        let address = |place: &Place| place.word.as_ptr().cast();
        self.slots.extend(self.places.iter().map(address));
        self.signature = Some(Arc::clone(signature));
        Ok(())
    }
}

/// Arguments of one kernel, as far as they were put.
#[derive(Debug)]
pub struct Filling<'s> {
    /// Places for those to come.
    left: Iter<'s, Place>,
    slots: &'s [*mut c_void],
    signature: &'s Signature,
    /// The first value that did not fit.
    odd: Option<ArgumentError>,
}

impl<'s> Filling<'s> {
    /// The next argument. Whether it fits is told in the end, so that a row of them is one expression and one check.
    #[inline]
    #[must_use]
    pub fn put<T: Scalar>(mut self, value: T) -> Self {
        match self.left.as_slice().first() {
            Some(place) if place.bytes == T::BYTES => {
                place.word.set(value.word());
                self.left.next();
            }
            _ => self.misfit(T::BYTES),
        }
        self
    }

    #[cold]
    fn misfit(&mut self, given: usize) {
        let index = self.signature.0.len() - self.left.len();
        let error = match self.signature.0.get(index) {
            Some(&declared) => ArgumentError::Size {
                index,
                given,
                declared,
            },
            None => ArgumentError::Count {
                given: index + 1,
                declared: index,
            },
        };
        self.odd.get_or_insert(error);
    }

    /// The table of them all.
    #[inline]
    pub fn finish(self) -> Result<Arguments<'s>, ArgumentError> {
        if let Some(odd) = self.odd {
            return Err(odd);
        }
        let put = self.slots.len() - self.left.len();
        Arguments::of(&self.slots[..put], self.signature)
    }
}

/// A table of arguments that is complete: an address for each parameter of one kernel, and none of them NULL.
#[derive(Debug)]
pub struct Arguments<'s> {
    slots: &'s [*mut c_void],
    signature: &'s Signature,
}

impl<'s> Arguments<'s> {
    #[inline]
    pub(crate) fn of(
        slots: &'s [*mut c_void],
        signature: &'s Signature,
    ) -> Result<Self, ArgumentError> {
        let (given, declared) = (slots.len(), signature.0.len());
        if given == declared && given > 0 {
            return Ok(Self { slots, signature });
        }
        Err(match given {
            0 => ArgumentError::Empty,
            given => ArgumentError::Count { given, declared },
        })
    }

    /// As C has it. Nobody writes to the table.
    #[inline]
    pub(crate) fn slots(&self) -> *mut *mut c_void {
        self.slots.as_ptr().cast_mut()
    }

    #[inline]
    pub(crate) fn are_of(&self, signature: &Signature) -> bool {
        std::ptr::eq(self.signature, signature)
    }
}
