//! The dynamic loader: its own functions, found without asking it (we export `dlsym`, so the name would find us), and its lock.
//!
//! Nothing here goes by the program's scope. A program may have functions called `dl_iterate_phdr` or `dlsym` itself, which ask the loader in turn
//! (C14 of `fixtures/defects.txt`), so addresses are read from libc's own symbol table.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use seeds::{Seed, planted};

use super::elf::{LinkMap, Object};
use super::sign;

pub type DlSym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
pub type DlVSym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;
type DlOpen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
pub type DlClose = unsafe extern "C" fn(*mut c_void) -> c_int;
type DlError = unsafe extern "C" fn() -> *mut c_char;
type DlAddr1 =
    unsafe extern "C" fn(*const c_void, *mut libc::Dl_info, *mut *const LinkMap, c_int) -> c_int;

/// `RTLD_DL_LINKMAP` of `<dlfcn.h>`.
const RTLD_DL_LINKMAP: c_int = 2;
/// `RT_CONSISTENT` of `<link.h>`.
const RT_CONSISTENT: c_int = 0;
/// `RT_DELETE` of `<link.h>`.
const RT_DELETE: c_int = 2;

/// `struct r_debug` of `<link.h>`.
#[repr(C)]
struct RDebug {
    version: c_int,
    map: *const LinkMap,
    breakpoint: usize,
    state: c_int,
    base: usize,
}

unsafe extern "C" {
    /// What the loader tells debuggers: the list of the program's objects. A name that C reserves, so no program's own.
    static _r_debug: RDebug;
    /// This library's own dynamic section, by the linker.
    static _DYNAMIC: u8;
}

/// A function of libc. Before glibc 2.34 they lived in libdl.
struct Function {
    name: &'static CStr,
    address: AtomicUsize,
}

/// A function of libc's that we stand before, and the one that a program would reach were we not there: another preload's behind us, else libc's.
pub struct LookUp {
    next: Function,
    last: Function,
}

pub static DLSYM: LookUp = LookUp::named(c"dlsym");
pub static DLVSYM: LookUp = LookUp::named(c"dlvsym");
pub static DLCLOSE: LookUp = LookUp::named(c"dlclose");
static DLOPEN: Function = Function::named(c"dlopen");
static DLERROR: Function = Function::named(c"dlerror");
static DLADDR1: Function = Function::named(c"dladdr1");
static FUNCTIONS: [&Function; 6] = [
    &DLSYM.last,
    &DLVSYM.last,
    &DLCLOSE.last,
    &DLOPEN,
    &DLERROR,
    &DLADDR1,
];

/// This library's `struct link_map`, 0 until [`begin`].
static OWN: AtomicUsize = AtomicUsize::new(0);
/// How many objects there were when this library's constructor ran, 0 until then.
static STARTED: AtomicUsize = AtomicUsize::new(0);

impl Function {
    const fn named(name: &'static CStr) -> Function {
        Function {
            name,
            address: AtomicUsize::new(0),
        }
    }

    fn address(&self) -> Option<usize> {
        if OWN.load(Ordering::Acquire) == 0 {
            find();
        }
        let known = self.address.load(Ordering::Acquire);
        (known != 0).then_some(known)
    }

    /// Keeps the first definition that is offered.
    fn offer(&self, object: &Object<'_>) {
        if !self.is_known()
            && let Some(found) = object.symbol(self.name)
        {
            self.address.store(found, Ordering::Release);
        }
    }

    fn is_known(&self) -> bool {
        self.address.load(Ordering::Acquire) != 0
    }
}

impl LookUp {
    const fn named(name: &'static CStr) -> LookUp {
        LookUp {
            next: Function::named(name),
            last: Function::named(name),
        }
    }

    pub fn name(&self) -> &'static CStr {
        self.last.name
    }

    /// What the program would reach without us.
    pub fn next(&self) -> Option<usize> {
        self.next.address()
    }

    /// libc's.
    pub fn last(&self) -> Option<usize> {
        self.last.address()
    }

    /// Whether an address is that of either.
    pub fn is(&self, address: usize) -> bool {
        [self.next(), self.last()].contains(&Some(address))
    }
}

/// Finds the loader's functions and this library's entry in its list. Threads that race find the same.
///
/// The list is read without a lock, and only as far as libc and this library. That is sound: before the constructor of a preload has run it holds
/// only what the program began with, which is never unmapped; a library that is opened later gets here first by its own constructor, in a
/// dlopen that holds the loader's lock.
fn find() {
    let mut own: *const LinkMap = core::ptr::null();
    let mut has_all = false;
    // SAFETY: the loader's own structure, filled before any code of ours can run.
    let mut at = unsafe { (&raw const _r_debug.map).read_volatile() };
    while !at.is_null() && (own.is_null() || !has_all) {
        // SAFETY: on the list, and not unmapped meanwhile, as said above.
        let (map, object) = unsafe { (&*at, Object::of(&*at)) };
        if core::ptr::eq(map.dynamic(), &raw const _DYNAMIC) {
            own = at;
        } else if let Some(object) = object {
            if !own.is_null() && !sign::is_ours(&object) {
                DLSYM.next.offer(&object);
                DLVSYM.next.offer(&object);
                DLCLOSE.next.offer(&object);
            }
            if matches!(object.soname(), Some(name) if name == c"libc.so.6" || name == c"libdl.so.2")
            {
                FUNCTIONS
                    .iter()
                    .for_each(|function| function.offer(&object));
                has_all = FUNCTIONS.iter().all(|function| function.is_known());
            }
        }
        at = map.next();
    }
    if own.is_null() {
        // Of another namespace (dlmopen), whose list the loader shows nobody; its members know one another.
        own = map_at(&raw const _DYNAMIC as usize).unwrap_or(core::ptr::null());
    }
    for look_up in [&DLSYM, &DLVSYM, &DLCLOSE] {
        if !look_up.next.is_known() {
            let address = look_up.last.address.load(Ordering::Relaxed);
            look_up.next.address.store(address, Ordering::Release);
        }
    }
    OWN.store(own as usize, Ordering::Release);
}

/// At this library's constructor.
pub fn begin() {
    let mut count = 0;
    super::elf::each_map(&mut |_| {
        count += 1;
        false
    });
    STARTED.store(count, Ordering::Relaxed);
}

/// How many objects there were when this library's constructor ran, 0 until then. They are the first of the list, and those of a preload are never
/// unmapped.
pub fn started() -> usize {
    STARTED.load(Ordering::Relaxed)
}

/// This library's entry in the loader's list, which is there for ever: it is never unmapped.
pub fn own() -> Option<&'static LinkMap> {
    if OWN.load(Ordering::Acquire) == 0 {
        find();
    }
    // SAFETY: null, or an entry of the loader's that stays.
    unsafe { (OWN.load(Ordering::Acquire) as *const LinkMap).as_ref() }
}

/// Whether the loader's list may have entries of what is unmapped already: in a child that was forked while another thread was unloading.
/// Nobody else who holds the loader's lock sees that state.
pub fn is_unloading() -> bool {
    // SAFETY: the loader's own structure.
    unsafe { (&raw const _r_debug.state).read_volatile() == RT_DELETE }
}

/// Whether the loader is neither adding nor removing objects, under this very thread.
pub fn is_at_rest() -> bool {
    // SAFETY: the loader's own structure.
    unsafe { (&raw const _r_debug.state).read_volatile() == RT_CONSISTENT }
}

/// The entry of the object that an address lies in. What may be unmapped by another thread is to be asked for with the lock held.
pub fn map_at(address: usize) -> Option<*const LinkMap> {
    object_at(address).map(|(map, _)| map)
}

/// Where the object that an address lies in begins: its ELF header, as linkers lay objects out.
pub fn start_of(address: usize) -> Option<usize> {
    object_at(address).map(|(_, start)| start)
}

fn object_at(address: usize) -> Option<(*const LinkMap, usize)> {
    // Not `Function::address`: `find` asks here too.
    let dladdr1 = DLADDR1.address.load(Ordering::Acquire);
    if dladdr1 == 0 {
        return None;
    }
    let mut info = core::mem::MaybeUninit::<libc::Dl_info>::uninit();
    let mut map = core::ptr::null();
    // SAFETY: libc's dladdr1, with room for what it answers.
    let found = unsafe {
        core::mem::transmute::<usize, DlAddr1>(dladdr1)(
            address as *const c_void,
            info.as_mut_ptr(),
            &raw mut map,
            RTLD_DL_LINKMAP,
        )
    };
    // SAFETY: not 0 says that it was written.
    (found != 0 && !map.is_null()).then(|| (map, unsafe { info.assume_init() }.dli_fbase as usize))
}

/// A dlsym's answer to `(handle, name)`, seen by the loader as asked from here.
pub fn symbol(dlsym: usize, handle: *mut c_void, name: &CStr) -> Option<usize> {
    // SAFETY: a dlsym; the handle is one of the loader's and the name ends with a NUL.
    let found = unsafe { core::mem::transmute::<usize, DlSym>(dlsym)(handle, name.as_ptr()) };
    (!found.is_null()).then_some(found as usize)
}

/// The loader's own answer to `dlsym(handle, name)`, seen as coming from here.
pub fn own_symbol(handle: *mut c_void, name: &CStr) -> Option<usize> {
    symbol(DLSYM.last()?, handle, name)
}

/// Opens a library, or with RTLD_NOLOAD finds it.
pub fn open(path: &CStr, flags: c_int) -> Option<*mut c_void> {
    let dlopen = DLOPEN.address()?;
    // SAFETY: libc's dlopen with a path that ends with a NUL.
    let handle = unsafe { core::mem::transmute::<usize, DlOpen>(dlopen)(path.as_ptr(), flags) };
    if handle.is_null() {
        forget_error();
    }
    (!handle.is_null()).then_some(handle)
}

/// Our own look-ups leave no message for the caller's next `dlerror`.
pub fn forget_error() {
    if let Some(dlerror) = DLERROR.address() {
        // SAFETY: libc's dlerror takes nothing.
        unsafe { core::mem::transmute::<usize, DlError>(dlerror)() };
    }
}

/// Leaves the message that a failed look-up of `name` leaves. Where nobody behind us has it that look-up fails by itself: glibc bears no dlopen within a
/// dlopen, whose malloc may be the program's and look names up (attack 27).
pub fn fail(name: &CStr) {
    if own_symbol(libc::RTLD_NEXT, name).is_none() {
        return;
    }
    if let Some(libc) = open(c"libc.so.6", libc::RTLD_LAZY | libc::RTLD_NOLOAD) {
        let _ = own_symbol(libc, name);
    }
}

/// Work that waits for the loader's lock.
struct Job<'a> {
    work: &'a mut dyn FnMut(),
    begun: bool,
}

/// Does some work while the loader's lock is held: nothing is loaded or unmapped meanwhile, but by the work itself.
///
/// `dl_iterate_phdr` holds another lock, which a child that is forked while any thread holds it keeps for ever, and which must not be held by who
/// allocates. The lock held here is dlopen's: recursive, made anew in a child, and held by glibc itself where it allocates. glibc takes it
/// around a dlsym and calls the resolver of an indirect function meanwhile, so this library has an indirect function of its own
/// ([`OWN_RESOLVED`]), whose resolver does the work.
pub fn locked(work: &mut dyn FnMut()) {
    let mut job = Job { work, begun: false };
    if planted(Seed::C14) {
        // SAFETY: as `begin_job` wants it.
        unsafe { libc::dl_iterate_phdr(Some(begin_job), (&raw mut job).cast()) };
        return;
    }
    if let Some(dlsym) = DLSYM.last() {
        let place = waiting();
        // SAFETY: this thread's own place. A signal's handler that comes between restores what it found. The job's lifetime ends after
        // the place has its former value again.
        let before = unsafe { place.replace((&raw mut job).cast()) };
        symbol(dlsym, libc::RTLD_DEFAULT, OWN_RESOLVED);
        // SAFETY: as above.
        unsafe { place.write(before) };
    }
    // Not exported in an executable of unit tests, where nobody unloads anything.
    if !job.begun {
        (job.work)();
    }
}

/// The work under another lock, of which no child is freed, and by way of the program's scope.
///
/// # Safety
/// `job` is one.
unsafe extern "C" fn begin_job(
    _: *mut libc::dl_phdr_info,
    _: libc::size_t,
    job: *mut c_void,
) -> c_int {
    // SAFETY: the caller's.
    let job = unsafe { &mut *job.cast::<Job<'_>>() };
    (job.work)();
    1
}

/// The names of the indirect functions of a preload and of the proxies. No program has such names: C has no dots.
pub const RESOLVED: [&CStr; 3] = [
    c"ringfence.libvgpu",
    c"ringfence.libcuda",
    c"ringfence.libnvml",
];

/// This library's of [`RESOLVED`]. Each has its own, as several of them may be in one process.
const OWN_RESOLVED: &CStr = if cfg!(stands_for = "libcuda") {
    RESOLVED[1]
} else if cfg!(stands_for = "libnvml") {
    RESOLVED[2]
} else {
    RESOLVED[0]
};

/// The resolver of an [`OWN_RESOLVED`], which is an indirect function: dlsym calls it and answers what it answers.
#[cfg(not(test))]
macro_rules! resolver {
    ($name:literal) => {
        #[unsafe(export_name = $name)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn under_loader_lock() -> usize {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                concat!(".type ", $name, ", @gnu_indirect_function"),
                "endbr64",
                "jmp {work}",
                work = sym do_waiting,
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(
                concat!(".type ", $name, ", %gnu_indirect_function"),
                "hint #34", // bti c
                "b {work}",
                work = sym do_waiting,
            );
        }
    };
}

#[cfg(all(not(test), not(proxy)))]
resolver!("ringfence.libvgpu");
#[cfg(all(not(test), stands_for = "libcuda"))]
resolver!("ringfence.libcuda");
#[cfg(all(not(test), stands_for = "libnvml"))]
resolver!("ringfence.libnvml");

/// Does the work that this thread waits with, if any: anybody may look the name up.
unsafe extern "C" fn do_waiting() -> usize {
    // SAFETY: this thread's own place, which holds null or a job that `locked` is waiting with, further up this very stack.
    let job = unsafe { waiting().read().cast::<Job<'_>>().as_mut() };
    if let Some(job) = job
        && !job.begun
    {
        job.begun = true;
        (job.work)();
    }
    do_waiting as *const () as usize
}

// Thread-local storage as a C compiler's `-ftls-model=initial-exec` has it: no call, no lock, nothing allocated, in a signal's handler too.
core::arch::global_asm!(
    ".pushsection .tbss, \"awT\", %nobits",
    ".balign 8",
    ".globl ringfence_waiting",
    ".hidden ringfence_waiting",
    "ringfence_waiting:",
    ".zero 8",
    ".popsection",
);

/// Where this thread keeps the job that it waits with.
fn waiting() -> *mut *mut c_void {
    let place: *mut *mut c_void;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: computes an address.
    unsafe {
        core::arch::asm!(
            "mov {place}, qword ptr [rip + ringfence_waiting@GOTTPOFF]",
            "add {place}, qword ptr fs:[0]",
            place = out(reg) place,
            options(pure, readonly, nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: computes an address.
    unsafe {
        core::arch::asm!(
            "adrp {place}, :gottprel:ringfence_waiting",
            "ldr {place}, [{place}, #:gottprel_lo12:ringfence_waiting]",
            "mrs {thread}, tpidr_el0",
            "add {place}, {place}, {thread}",
            place = out(reg) place,
            thread = out(reg) _,
            options(pure, readonly, nostack),
        );
    }
    place
}

/// A number of this thread's own.
pub fn thread() -> usize {
    waiting() as usize
}
