//! What processes do to themselves and to others: fork, signals, descriptors, names.

use std::ffi::{CString, OsString, c_char, c_int};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How a forked child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Exit(i32),
    Signal(i32),
    /// It did not end in time and was killed.
    Hung,
}

/// Why a case with a process that hides is alone on a real machine: others' tenants are charged for it, too.
pub const HIDES: &str = "who hides may be of any tenant of its user, control groups and namespace";

/// Lets nobody without privileges look at this process: its environment, its memory map, its namespaces.
pub fn hide() -> std::io::Result<()> {
    // SAFETY: changes a flag of this process.
    match unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Does `work` in another thread, while the first one ends, and the process after it, with 0 or, by a failure, 1.
#[expect(
    clippy::disallowed_methods,
    reason = "the program's main has no thread left to end it"
)]
pub fn without_first_thread(work: impl FnOnce() -> Result<(), String> + Send) -> ! {
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let code = work().map_or_else(
                |failure| {
                    eprintln!("without its first thread: {failure}");
                    1
                },
                |()| 0,
            );
            std::process::exit(code)
        });
        // SAFETY: ends the calling thread alone, whose stack stays: the other's work may borrow from it.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
        unreachable!("a thread that has ended")
    })
}

/// Gives up the calling thread's privilege to look at processes that hide, as programs in a container mostly lack it.
pub fn give_up_looking() -> std::io::Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    const CAP_SYS_PTRACE: u32 = 19;
    let mut header = [VERSION_3, 0];
    // Effective, permitted and inheritable, of the first 32 and of the rest.
    let mut sets = [0_u32; 6];
    let of = |number, header: &mut [u32; 2], sets: &mut [u32; 6]| {
        // SAFETY: the structures of linux/capability.h, version 3, of the calling thread.
        match unsafe { libc::syscall(number, header.as_mut_ptr(), sets.as_mut_ptr()) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    of(libc::SYS_capget, &mut header, &mut sets)?;
    sets[0] &= !(1 << CAP_SYS_PTRACE);
    of(libc::SYS_capset, &mut header, &mut sets)
}

/// Forks; the child runs `body` and ends with its answer, without running the parent's exit handlers.
///
/// `body` may call the driver; it must not rely on locks that other threads of the parent may have held.
pub fn in_fork(seconds: u32, body: impl FnOnce() -> u8) -> std::io::Result<Ending> {
    Ok(in_fork_named(seconds, body)?.1)
}

/// The same, with the child's pid.
pub fn in_fork_named(
    seconds: u32,
    body: impl FnOnce() -> u8,
) -> std::io::Result<(libc::pid_t, Ending)> {
    // SAFETY: the child only runs `body`, which its caller keeps to what a fork child may do, and _exit.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(std::io::Error::last_os_error()),
        0 => {
            let code = body();
            // SAFETY: ends the child at once; nothing of the parent's is flushed twice.
            unsafe { libc::_exit(c_int::from(code)) }
        }
        child => Ok((child, wait(child, seconds)?)),
    }
}

fn wait(child: libc::pid_t, seconds: u32) -> std::io::Result<Ending> {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(seconds.into());
    loop {
        let mut status = 0;
        // SAFETY: the status is a local; the pid is our own child's.
        let seen = unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) };
        if seen == child && libc::WIFEXITED(status) {
            return Ok(Ending::Exit(libc::WEXITSTATUS(status)));
        }
        if seen == child {
            return Ok(Ending::Signal(libc::WTERMSIG(status)));
        }
        if seen < 0 {
            return Err(std::io::Error::last_os_error());
        }
        if std::time::Instant::now() > end {
            // SAFETY: the pid is our own unreaped child's, so it cannot have been reused.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, &mut status, 0);
            }
            return Ok(Ending::Hung);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Replaces this process by its own program with the same arguments, and `variable` set to `value`: execve, by which it keeps its pid and loses all that it held.
pub fn run_again(variable: &str, value: &str) -> std::io::Error {
    use std::os::unix::process::CommandExt;
    let arguments = std::env::args_os().skip(1);
    std::process::Command::new("/proc/self/exe")
        .args(arguments)
        .env(variable, value)
        .exec()
}

/// Runs `body` in a thread whose root directory is `root` (chroot(2)), without the process's other threads.
pub fn in_root<T: Send>(
    root: &std::path::Path,
    body: impl FnOnce() -> T + Send,
) -> std::io::Result<T> {
    let root = CString::new(root.as_os_str().as_encoded_bytes())?;
    let rooted = || {
        // SAFETY: gives this thread a root and a directory of its own; the paths end in NUL.
        let done = unsafe {
            libc::unshare(libc::CLONE_FS) == 0
                && libc::chroot(root.as_ptr()) == 0
                && libc::chdir(c"/".as_ptr()) == 0
        };
        match done {
            true => Ok(body()),
            false => Err(std::io::Error::last_os_error()),
        }
    };
    std::thread::scope(|scope| scope.spawn(rooted).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Stops a process (which must be the caller's own child).
pub fn stop(pid: u32) {
    // SAFETY: signals a child that its owner has not reaped.
    unsafe { libc::kill(pid.cast_signed(), libc::SIGSTOP) };
}

/// Lets a stopped child go on.
pub fn go_on(pid: u32) {
    // SAFETY: as for `stop`.
    unsafe { libc::kill(pid.cast_signed(), libc::SIGCONT) };
}

/// Sends a descriptor to whoever reads the socket's other end.
pub fn send_descriptor(socket: &UnixStream, descriptor: &OwnedFd) -> std::io::Result<()> {
    let fd = descriptor.as_raw_fd();
    with_message(|message, space| {
        // SAFETY: the message has a control buffer with room for one descriptor, which the first header lies in.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<c_int>() as u32) as _;
            libc::CMSG_DATA(header).cast::<c_int>().write_unaligned(fd);
            message.msg_controllen = space as _;
            libc::sendmsg(socket.as_raw_fd(), message, 0)
        }
    })
    .map(drop)
}

/// Waits for a descriptor that somebody sends.
pub fn receive_descriptor(socket: &UnixStream) -> std::io::Result<OwnedFd> {
    let mut received = -1;
    with_message(|message, _| {
        // SAFETY: the message has a control buffer; what the kernel put there is read only if it is a descriptor.
        unsafe {
            let length = libc::recvmsg(socket.as_raw_fd(), message, libc::MSG_CMSG_CLOEXEC);
            let header = libc::CMSG_FIRSTHDR(message);
            if length > 0 && !header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS {
                received = libc::CMSG_DATA(header).cast::<c_int>().read_unaligned();
            }
            length
        }
    })?;
    match received {
        -1 => Err(std::io::Error::other("no descriptor came")),
        // SAFETY: the kernel made it for this process.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

/// A message of one byte, with room for one descriptor beside it.
fn with_message(act: impl FnOnce(&mut libc::msghdr, usize) -> isize) -> std::io::Result<isize> {
    let mut byte = [0_u8];
    let mut part = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: 1,
    };
    let mut control = [0_u64; 8];
    // SAFETY: plain integers and pointers.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: computes a size.
    let space = unsafe { libc::CMSG_SPACE(size_of::<c_int>() as u32) } as usize;
    match act(&mut message, space) {
        -1 => Err(std::io::Error::last_os_error()),
        length => Ok(length),
    }
}

/// How a child is born that does nothing but live.
#[derive(Clone, Copy, Debug)]
pub enum Birth {
    Fork,
    /// posix_spawn, which is a vfork and an exec.
    Spawn,
    /// clone(2) itself: no handler of pthread_atfork runs.
    Clone,
}

impl Birth {
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "fork" => Self::Fork,
            "spawn" => Self::Spawn,
            "clone" => Self::Clone,
            _ => return None,
        })
    }
}

/// A child that lives for two minutes or until it is ended, with nothing of its parent's stdin, stdout and stderr; its pid.
pub fn born(birth: Birth) -> std::io::Result<libc::pid_t> {
    let (program, time) = (c"/bin/sleep", c"120");
    let arguments = [program.as_ptr(), time.as_ptr(), std::ptr::null()];
    // SAFETY: children make system calls only. The arrays end in NULL.
    let child = unsafe {
        match birth {
            Birth::Fork => match libc::fork() {
                0 => live(),
                child => child,
            },
            Birth::Clone => {
                let none = std::ptr::null_mut::<c_int>();
                match libc::syscall(libc::SYS_clone, libc::SIGCHLD, none, none, none, none) {
                    0 => live(),
                    child => child as libc::pid_t,
                }
            }
            Birth::Spawn => {
                let mut child = -1;
                let arguments = arguments.map(<*const _>::cast_mut);
                let environment = [std::ptr::null_mut()];
                match libc::posix_spawn(
                    &mut child,
                    program.as_ptr(),
                    std::ptr::null(),
                    std::ptr::null(),
                    arguments.as_ptr(),
                    environment.as_ptr(),
                ) {
                    0 => child,
                    code => return Err(std::io::Error::from_raw_os_error(code)),
                }
            }
        }
    };
    match child {
        -1 => Err(std::io::Error::last_os_error()),
        child => Ok(child),
    }
}

/// Two minutes of a child's life.
fn live() -> ! {
    // SAFETY: system calls of the child's own.
    unsafe {
        for descriptor in 0..3 {
            libc::close(descriptor);
        }
        libc::sleep(120);
        libc::_exit(0)
    }
}

/// Ends a process that `born` made, whosever child it is by now.
pub fn end(pid: libc::pid_t) {
    let mut status = 0;
    // SAFETY: a pid that nobody else can have: who had it was not waited for by anybody. Waiting fails where it is another's child.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, &mut status, 0);
    }
}

/// The calling process is killed.
pub fn die() -> ! {
    // SAFETY: a signal to this very process, which nobody can catch.
    unsafe {
        libc::kill(libc::getpid(), libc::SIGKILL);
        libc::_exit(1)
    }
}

/// Has the next process of this PID namespace be called so.
pub fn name_next(pid: libc::pid_t) -> std::io::Result<()> {
    std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string())
}

/// The main thread's name, which is the process's in /proc.
pub fn rename(name: &str) {
    let name = CString::new(name).unwrap_or_default();
    // SAFETY: the kernel copies at most 16 bytes of a string that ends in NUL.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// A copy of a descriptor in stdin's place: 0. Whoever is given it closes it.
pub fn as_descriptor_0(descriptor: &OwnedFd) -> std::io::Result<c_int> {
    // SAFETY: both are numbers; what was open as 0 is the process's own stdin, which a case that calls this does not read.
    match unsafe { libc::dup2(descriptor.as_raw_fd(), 0) } {
        0 => Ok(0),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Closes every descriptor above stderr, as daemons do.
pub fn close_descriptors() {
    for descriptor in 3..4096 {
        // SAFETY: closing what others of this process opened is what the case is about; it uses none of them after.
        unsafe { libc::close(descriptor) };
    }
}

/// Replaces this process by another program; returns only if that failed.
pub fn replace_by(program: &str, argument: &str) -> std::io::Error {
    let (program, argument) = (
        CString::new(program).unwrap_or_default(),
        CString::new(argument).unwrap_or_default(),
    );
    let arguments = [program.as_ptr(), argument.as_ptr(), std::ptr::null()];
    // SAFETY: both arrays end in NULL and outlive the call.
    unsafe { libc::execv(program.as_ptr(), arguments.as_ptr()) };
    std::io::Error::last_os_error()
}

/// What a library loaded into a process must leave alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manners {
    pub umask: u32,
    pub directory: Option<std::path::PathBuf>,
    /// Each signal's handler, as an address, and its flags; `None` where it can have none.
    pub handlers: Vec<Option<(usize, c_int)>>,
    /// Which signals the calling thread has blocked, one bit each.
    pub blocked: u64,
    pub locale: Vec<u8>,
    pub environment: Vec<(OsString, OsString)>,
    /// What the descriptors that programs number by themselves refer to, the simulated driver's and the recorders' left out.
    pub descriptors: Vec<(u32, std::path::PathBuf)>,
    pub threads: usize,
}

impl Manners {
    pub fn now() -> Self {
        Self {
            umask: umask(),
            directory: std::env::current_dir().ok(),
            handlers: (1..=64).map(handler).collect(),
            blocked: blocked(),
            locale: locale(),
            environment: std::env::vars_os().collect(),
            descriptors: low_descriptors(),
            threads: std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count),
        }
    }
}

fn low_descriptors() -> Vec<(u32, std::path::PathBuf)> {
    let target = |descriptor| std::fs::read_link(format!("/proc/self/fd/{descriptor}")).ok();
    (0..200)
        .filter_map(|descriptor| Some((descriptor, target(descriptor)?)))
        .filter(|(_, target)| {
            let target = target.to_string_lossy();
            // The simulated devices, and what is written of the calls that drivers get.
            !["mock-device", "/trace.jsonl", "/record.jsonl"]
                .iter()
                .any(|own| target.contains(own))
        })
        .collect()
}

fn blocked() -> u64 {
    // SAFETY: asks without setting; an all-zero set is a value to be overwritten.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut set);
        (1..=64)
            .filter(|&signal| libc::sigismember(&set, signal) == 1)
            .fold(0, |bits, signal| bits | 1 << (signal - 1))
    }
}

fn umask() -> u32 {
    // SAFETY: reading the mask means setting it; it is put back at once.
    unsafe {
        let mask = libc::umask(0o077);
        libc::umask(mask);
        mask
    }
}

fn handler(signal: c_int) -> Option<(usize, c_int)> {
    // SAFETY: asks without setting; an all-zero sigaction is a valid value to be overwritten.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let asked = libc::sigaction(signal, std::ptr::null(), &mut action);
        (asked == 0).then_some((action.sa_sigaction, action.sa_flags))
    }
}

fn locale() -> Vec<u8> {
    // SAFETY: a NULL locale asks; the answer is a C string that lives until the next call.
    unsafe {
        let name = libc::setlocale(libc::LC_ALL, std::ptr::null());
        if name.is_null() {
            Vec::new()
        } else {
            std::ffi::CStr::from_ptr(name).to_bytes().to_vec()
        }
    }
}

/// Runs `body` in this thread; a signal (SIGUSR1) comes to it after so long, and its handler runs `handler`.
pub fn interrupted<T>(
    after: Duration,
    handler: &dyn Fn(),
    body: impl FnOnce() -> T,
) -> std::io::Result<T> {
    static HANDLER: AtomicPtr<&dyn Fn()> = AtomicPtr::new(std::ptr::null_mut());
    extern "C" fn handle(_: c_int) {
        // SAFETY: set below to a reference that outlives the signal, before it is sent.
        if let Some(handler) = unsafe { HANDLER.load(Ordering::SeqCst).as_ref() } {
            handler();
        }
    }
    HANDLER.store((&raw const handler).cast_mut().cast(), Ordering::SeqCst);
    // SAFETY: an action of zeros is a value; the thread that is signalled is this one, which ends no sooner than the other is joined, and by then the
    // signal was handled: it is pending for this thread, which unblocks nothing.
    unsafe {
        let (mut action, mut before): (libc::sigaction, libc::sigaction) = std::mem::zeroed();
        action.sa_sigaction = handle as extern "C" fn(c_int) as usize;
        if libc::sigaction(libc::SIGUSR1, &raw const action, &raw mut before) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let thread = libc::pthread_self();
        let answer = std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(after);
                libc::pthread_kill(thread, libc::SIGUSR1)
            });
            body()
        });
        libc::sigaction(libc::SIGUSR1, &raw const before, std::ptr::null_mut());
        Ok(answer)
    }
}

/// A thread that writes into a named pipe as soon as somebody reads there.
pub struct Feeder {
    path: PathBuf,
    thread: JoinHandle<std::io::Result<()>>,
}

/// Makes a named pipe for whoever reads it first.
pub fn feed_pipe(path: &Path, bytes: Vec<u8>) -> std::io::Result<Feeder> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a NUL-terminated path.
    if unsafe { libc::mkfifo(name.as_ptr(), 0o600) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let path = path.to_owned();
    let to = path.clone();
    let thread = std::thread::spawn(move || std::fs::write(to, bytes));
    Ok(Feeder { path, thread })
}

impl Feeder {
    /// Reads what nobody has read, so that the thread ends.
    pub fn end(self) {
        while !self.thread.is_finished() {
            let _ = std::fs::OpenOptions::new()
                .read(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(&self.path)
                .and_then(|mut pipe| std::io::copy(&mut pipe, &mut std::io::sink()));
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.thread.join();
    }
}

/// While it lives, this process has no more descriptors to be had than it was made with.
pub struct Exhausted {
    held: Vec<File>,
    before: libc::rlimit,
}

impl Exhausted {
    /// All but so many are used up.
    pub fn but(free: usize) -> std::io::Result<Exhausted> {
        /// Below what is allowed anywhere.
        const FEW: libc::rlim_t = 256;
        // SAFETY: plain integers.
        let mut before: libc::rlimit = unsafe { std::mem::zeroed() };
        // SAFETY: fills the limits.
        let asked = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut before) };
        let few = libc::rlimit {
            rlim_cur: FEW.min(before.rlim_max),
            ..before
        };
        // SAFETY: reads the limits; what is open stays open.
        if asked != 0 || unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const few) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let mut exhausted = Exhausted {
            held: Vec::new(),
            before,
        };
        while let Ok(file) = File::open("/dev/null") {
            exhausted.held.push(file);
        }
        let kept = exhausted.held.len().saturating_sub(free);
        exhausted.held.truncate(kept);
        Ok(exhausted)
    }
}

impl Drop for Exhausted {
    fn drop(&mut self) {
        // SAFETY: reads the limits, which were allowed before.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const self.before) };
    }
}

/// Runs `body` with stdout and stderr going to files; what each holds then.
pub fn overhear<T>(body: impl FnOnce() -> T) -> std::io::Result<(T, [String; 2])> {
    let mut overheard = Vec::new();
    for descriptor in [1, 2] {
        overheard.push(Diversion::of(descriptor)?);
    }
    let answer = body();
    let mut texts = overheard.into_iter().map(Diversion::end);
    let stdout = texts.next().unwrap_or_else(|| Ok(String::new()))?;
    let stderr = texts.next().unwrap_or_else(|| Ok(String::new()))?;
    Ok((answer, [stdout, stderr]))
}

struct Diversion {
    descriptor: c_int,
    saved: File,
    file: File,
}

impl Diversion {
    fn of(descriptor: c_int) -> std::io::Result<Self> {
        // SAFETY: memfd_create and dup answer fresh descriptors that nobody else owns.
        let (file, saved) = unsafe {
            let file = libc::memfd_create(c"overheard".as_ptr(), libc::MFD_CLOEXEC);
            let saved = libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 64);
            if file < 0 || saved < 0 {
                return Err(std::io::Error::last_os_error());
            }
            (File::from_raw_fd(file), File::from_raw_fd(saved))
        };
        // SAFETY: both descriptors are open.
        unsafe { libc::dup2(file.as_raw_fd(), descriptor) };
        Ok(Self {
            descriptor,
            saved,
            file,
        })
    }

    fn end(mut self) -> std::io::Result<String> {
        // SAFETY: both descriptors are open.
        unsafe { libc::dup2(self.saved.as_raw_fd(), self.descriptor) };
        self.file.rewind()?;
        let mut text = String::new();
        self.file.read_to_string(&mut text)?;
        Ok(text)
    }
}

/// A named pipe that nobody has open.
pub fn make_pipe(path: &std::path::Path) -> std::io::Result<()> {
    let path = CString::new(path.as_os_str().as_encoded_bytes()).unwrap_or_default();
    // SAFETY: a path that ends in NUL.
    match unsafe { libc::mkfifo(path.as_ptr(), 0o600) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// A file without a name, which can be sealed.
pub fn sealed_file() -> std::io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a name that ends in NUL.
    match unsafe { libc::memfd_create(c"sealed".as_ptr(), flags) } {
        -1 => Err(std::io::Error::last_os_error()),
        // SAFETY: the kernel made it for this process.
        fd => Ok(unsafe { File::from_raw_fd(fd) }),
    }
}

/// From now on nobody writes that file.
pub fn seal(file: &File) -> std::io::Result<()> {
    // SAFETY: changes our own file.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_WRITE) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Locks one byte of a file for its open file description, as a ledger's processes do; whether it was free.
pub fn lock_byte(file: &File, at: i64) -> bool {
    // SAFETY: plain integers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = at;
    lock.l_len = 1;
    // SAFETY: an open file, and a description that is read.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) == 0 }
}

/// What a program makes of the variables that say its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvironmentChange {
    /// unsetenv.
    Unset,
    /// setenv: 40 GiB of memory.
    Raised,
    /// `environ` leads to an array without them.
    Replaced,
    /// Their bytes are written over, as who changes its title does.
    Overwritten,
}

impl EnvironmentChange {
    pub const ALL: [EnvironmentChange; 4] =
        [Self::Unset, Self::Raised, Self::Replaced, Self::Overwritten];

    pub fn named(name: &str) -> Option<EnvironmentChange> {
        Self::ALL
            .into_iter()
            .find(|change| format!("{change:?}") == name)
    }
}

/// Changes this process's environment while no other thread runs.
#[expect(
    clippy::disallowed_methods,
    reason = "the process is a tenant of a case's, and this is what the case is about"
)]
pub fn change_environment(change: EnvironmentChange) {
    const BEGIN: [&str; 4] = [
        "CUDA_DEVICE_",
        "RINGFENCE_MEMORY",
        "RINGFENCE_COMPUTE",
        "RINGFENCE_LEDGER",
    ];
    unsafe extern "C" {
        static mut environ: *mut *mut c_char;
    }
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let names: Vec<String> = names
        .filter(|name| BEGIN.iter().any(|begin| name.starts_with(begin)))
        .collect();
    // SAFETY: no other thread runs; the array and its strings are the process's, and what replaces the array is leaked.
    unsafe {
        let entry = |at: usize| {
            let entry = *environ.add(at);
            (!entry.is_null()).then_some(entry)
        };
        let is_budget = |entry: *mut c_char| {
            let text = std::ffi::CStr::from_ptr(entry).to_bytes();
            BEGIN.iter().any(|begin| text.starts_with(begin.as_bytes()))
        };
        match change {
            EnvironmentChange::Unset => names.iter().for_each(|name| std::env::remove_var(name)),
            EnvironmentChange::Raised => {
                for name in ["RINGFENCE_MEMORY_0", "CUDA_DEVICE_MEMORY_LIMIT_0"] {
                    std::env::set_var(name, "40g");
                }
            }
            EnvironmentChange::Replaced => {
                let kept = (0..).map_while(entry).filter(|entry| !is_budget(*entry));
                let kept: Vec<*mut c_char> = kept.chain([std::ptr::null_mut()]).collect();
                environ = kept.leak().as_mut_ptr();
            }
            EnvironmentChange::Overwritten => {
                for entry in (0..).map_while(entry).filter(|entry| is_budget(*entry)) {
                    let length = std::ffi::CStr::from_ptr(entry).to_bytes().len();
                    entry.write_bytes(b'-', length);
                }
            }
        }
    }
}
