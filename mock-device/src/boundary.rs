//! The arguments of a C call as faults see them: by name, as bits, and for pointers what they point to. The only place
//! where an effect touches a client's memory.

use std::marker::PhantomData;

use crate::units::Bytes;

/// One argument of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// As the mock's row of the entry point has it.
    pub name: &'static str,
    /// Its C type, as the row has it.
    pub kind: &'static str,
    /// The first eight bytes of it.
    pub value: u64,
    /// How large what it points to is; 0 for what is no pointer.
    pub size: usize,
}

/// All arguments of a call: made by [`parameters!`](crate::parameters), and only if a fault asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters(pub Vec<Parameter>);

/// Arguments of an export, by name and type.
#[macro_export]
macro_rules! parameters {
    ($($arg:ident: $kind:ty),*) => {{
        #[allow(unused_imports, reason = "an export may have no argument")]
        use $crate::boundary::Plain as _;
        $crate::Parameters(vec![$($crate::boundary::Parameter {
            name: stringify!($arg),
            kind: stringify!($kind),
            value: $crate::boundary::bits(&$arg),
            size: $crate::boundary::Pointee::<$kind>::new().size(),
        }),*])
    }};
}

/// How large what a pointer type points to is: the method of the type itself comes before the trait's.
pub struct Pointee<T>(PhantomData<T>);

impl<T> Pointee<T> {
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a question, not a value")]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T> Pointee<*mut T> {
    #[must_use]
    pub const fn size(&self) -> usize {
        size_of::<T>()
    }
}

impl<T> Pointee<*const T> {
    #[must_use]
    pub const fn size(&self) -> usize {
        size_of::<T>()
    }
}

/// What is no pointer points to nothing.
pub trait Plain {
    fn size(&self) -> usize {
        0
    }
}

impl<T> Plain for Pointee<T> {}

/// The first eight bytes of a C argument.
#[must_use]
pub fn bits<T: Copy>(value: &T) -> u64 {
    let mut bits = [0u8; 8];
    let length = size_of::<T>().min(8);
    // SAFETY: `length` bytes of a live value of plain C data (a number, a pointer, a structure of such without padding in
    // front) are copied into as many of ours.
    unsafe {
        std::ptr::copy_nonoverlapping(
            std::ptr::from_ref(value).cast::<u8>(),
            bits.as_mut_ptr(),
            length,
        );
    }
    u64::from_le_bytes(bits)
}

impl Parameters {
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Parameter> {
        self.0.iter().find(|parameter| parameter.name == name)
    }

    /// How many bytes the call asks for or moves, as far as its arguments say so themselves.
    #[must_use]
    pub fn asked(&self) -> Bytes {
        let value = |name: &str| {
            self.find(name)
                .filter(|found| found.size == 0)
                .map(|found| found.value)
        };
        let sizes = ["bytesize", "bytes", "size", "allocation_size"];
        let plain = sizes.iter().find_map(|name| value(name));
        let area = |width, height| Some(value(width)?.saturating_mul(value(height)?));
        let elements = || value("count").or_else(|| area("width", "height"));
        let filled = || {
            let width = match self.find("value")?.kind {
                "u8" => 1,
                "u16" => 2,
                _ => 4,
            };
            Some(elements()?.saturating_mul(width))
        };
        let asked = plain
            .or_else(|| area("width_in_bytes", "height"))
            .or_else(filled);
        Bytes(asked.unwrap_or(0))
    }
}

impl Parameter {
    /// Whether a number is to be written where this points to.
    #[must_use]
    pub fn is_number_out(&self) -> bool {
        self.size == size_of::<u64>() && self.kind.contains("mut")
    }

    /// Writes the low `width` bytes of `value`, `offset` bytes behind where this points to. Nothing where it is NULL.
    pub fn write(&self, offset: usize, width: usize, value: u64) {
        let bytes = value.to_le_bytes();
        let bytes = &bytes[..width.min(8)];
        if self.value == 0 || self.size == 0 {
            return;
        }
        // SAFETY: the argument of an export that C called: not NULL means that what it points to may be written. Whoever
        // wrote the fault plan vouches for the offset.
        unsafe {
            let to = (self.value as *mut u8).add(offset);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// The `width` bytes where this points to; `None` where it is NULL.
    #[must_use]
    pub fn read(&self, width: usize) -> Option<u64> {
        let width = width.min(8).min(self.size);
        if self.value == 0 || width == 0 {
            return None;
        }
        let mut bytes = [0u8; 8];
        // SAFETY: as for `write`; callers ask for what the call has just written.
        unsafe {
            std::ptr::copy_nonoverlapping(self.value as *const u8, bytes.as_mut_ptr(), width);
        }
        Some(u64::from_le_bytes(bytes))
    }

    /// Whether it is where a call says how many there are.
    #[must_use]
    pub fn is_count(&self) -> bool {
        let name = self.name.to_ascii_lowercase();
        matches!(self.size, 4 | 8) && (name.contains("count") || name.starts_with("num"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_known_by_name_type_and_what_they_point_to() {
        let (mut pointer, number) = (7u32, -1i32);
        let out = &raw mut pointer;
        let null: *const u64 = std::ptr::null();
        let list = parameters!(out: *mut u32, number: i32, null: *const u64);
        let shape: Vec<_> = list
            .0
            .iter()
            .map(|one| (one.name, one.kind, one.size))
            .collect();
        assert_eq!(
            shape,
            [
                ("out", "*mut u32", 4),
                ("number", "i32", 0),
                ("null", "*const u64", 8)
            ]
        );
        assert_eq!(list.find("number").unwrap().value, 0xffff_ffff);
        list.find("out").unwrap().write(0, 4, u64::MAX - 2);
        assert_eq!(pointer, u32::MAX - 2);
        list.find("null").unwrap().write(0, 8, 1);
        assert_eq!(list.find("null").unwrap().read(8), None);
        assert_eq!(parameters!(), Parameters::default());
    }

    #[test]
    fn a_call_says_how_many_bytes_it_asks_for() {
        let (bytesize, other) = (300usize, 5u32);
        assert_eq!(parameters!(other: u32, bytesize: usize).asked(), Bytes(300));
        let plain = |name, value| Parameter {
            name,
            kind: "usize",
            value,
            size: 0,
        };
        let pitched = Parameters(vec![plain("width_in_bytes", 4), plain("height", 5)]);
        assert_eq!(pitched.asked(), Bytes(20));
        let (value, count) = (7u16, 50usize);
        assert_eq!(parameters!(value: u16, count: usize).asked(), Bytes(100));
        assert_eq!(parameters!(other: u32).asked(), Bytes(0));
        let size: *mut usize = std::ptr::null_mut();
        assert_eq!(parameters!(size: *mut usize).asked(), Bytes(0), "an answer");
    }
}
