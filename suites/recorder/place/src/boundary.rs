//! All the unsafe of the recorders: the driver's addresses, and the C functions that call through them.

// Loaded objects look the same to the enforcer.
#[path = "../../../../enforcement/interposer/src/boundary/elf.rs"]
#[expect(dead_code, reason = "the enforcer asks more of it")]
mod elf;
/// What the enforcer's reader of objects asks of its loader. A recorder reads one object alone, which it has opened itself and never closes.
mod loader {
    use super::elf::LinkMap;

    pub fn locked(work: &mut dyn FnMut()) {
        work();
    }

    pub fn own() -> Option<&'static LinkMap> {
        None
    }

    pub fn is_unloading() -> bool {
        false
    }

    pub fn started() -> usize {
        0
    }

    pub fn start_of(_: usize) -> Option<usize> {
        None
    }
}
mod next;
mod record;

pub use next::{Address, Driver};
pub use record::{Code, exchange, record, write};

/// The exports of a recorder: every row of an `abi` table records and asks the driver, every further name is a jump.
#[macro_export]
macro_rules! stand_in {
    (
        ($driver:expr, $jumps:tt)
        $($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*
    ) => {
        $crate::stand_in!(@tables $driver, $jumps; $($name)*);

        #[allow(non_snake_case, reason = "C names stay exact")]
        mod exports {
            use super::*;
            $(
                /// # Safety
                /// As the driver's function of this name.
                #[unsafe(no_mangle)]
                pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
                    // SAFETY: the driver's function of this name has the row's signature, and these are the caller's arguments.
                    let call = |next: usize| unsafe {
                        let answer = ::std::mem::transmute::<usize, fns::$name>(next)($($arg),*);
                        $crate::stand_in!(@after $name ($($arg)*) answer);
                        answer
                    };
                    $crate::boundary::record(&DRIVER, Entry::$name as usize, call, |list| {
                        $( ::trace::shape!(list, $arg); )*
                    })
                }
            )*
        }
    };
    (@tables $driver:expr, [$($jump:ident)*]; $($name:ident)*) => {
        #[allow(non_camel_case_types, clippy::enum_variant_names, reason = "C names stay exact")]
        #[derive(Clone, Copy)]
        #[repr(usize)]
        enum Entry { $($name,)* $($jump,)* }

        const NAMES: &[&::std::ffi::CStr] = &[$($crate::stand_in!(@text $name),)* $($crate::stand_in!(@text $jump),)*];
        static NEXT: [::std::sync::atomic::AtomicUsize; NAMES.len()] =
            [const { ::std::sync::atomic::AtomicUsize::new(0) }; NAMES.len()];
        static EXPORTS: [$crate::boundary::Address; NAMES.len()] = [
            $($crate::boundary::Address(exports::$name as *const ()),)*
            $($crate::boundary::Address(jumps::$jump as *const ()),)*
        ];
        static DRIVER: $crate::boundary::Driver = $driver;

        /// Before any of the exports can be called.
        extern "C" fn open() {
            DRIVER.open();
        }
        #[used]
        #[unsafe(link_section = ".init_array")]
        static OPEN: extern "C" fn() = open;

        #[allow(non_snake_case, reason = "C names stay exact")]
        mod jumps {
            use super::*;
            $(
                /// # Safety
                /// As the driver's function of this name: the arguments go through untouched.
                #[unsafe(no_mangle)]
                #[unsafe(naked)]
                pub unsafe extern "C" fn $jump() {
                    ::std::arch::naked_asm!(
                        "endbr64",
                        "jmp qword ptr [rip + {next} + {at}]",
                        next = sym NEXT,
                        at = const Entry::$jump as usize * 8,
                    )
                }
            )*
        }
    };
    // What a look-up found is exchanged on its way out.
    (@after cuGetProcAddress ($symbol:ident $found:ident $($rest:ident)*) $answer:ident) => {
        if $crate::boundary::Code::code($answer) == 0 {
            $crate::boundary::exchange(&DRIVER, $symbol, $found);
        }
    };
    (@after cuGetProcAddress_v2 ($($arg:ident)*) $answer:ident) => {
        $crate::stand_in!(@after cuGetProcAddress ($($arg)*) $answer)
    };
    (@after $name:ident ($($arg:ident)*) $answer:ident) => {};
    (@text $name:ident) => {
        match ::std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a name holds no NUL"),
        }
    };
}
