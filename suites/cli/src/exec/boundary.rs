//! The unsafe of `ringfence exec`: signals that would end it before its environment is cleared away, and mounts of its own.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus};

use super::host_files::Node;

/// What asks a program to end.
const ENDING: [libc::c_int; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// Runs a program to its end. Whoever asks this process to end meanwhile asks the program: it is its parent that has to
/// outlive it. What a terminal sends goes to the program anyway.
///
/// The calling thread must be the only one that takes signals, as it alone holds them back: one that comes to another thread ends this
/// process, and the child's end would be told to nobody.
pub fn run_to_its_end(command: &mut Command) -> io::Result<ExitStatus> {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: sigemptyset fills the set that the others then change; each pointer is valid.
    let (all, before) = unsafe {
        libc::sigemptyset(all.as_mut_ptr());
        for signal in ENDING {
            libc::sigaddset(all.as_mut_ptr(), signal);
        }
        libc::sigaddset(all.as_mut_ptr(), libc::SIGCHLD);
        let code = libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        if code != 0 {
            return Err(io::Error::from_raw_os_error(code));
        }
        (all.assume_init(), before.assume_init())
    };
    // SAFETY: between fork and exec, one call that is async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
            Ok(())
        });
    }
    let mut child = command.spawn()?;
    loop {
        let mut how = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: a valid set, and room for what came.
        let (signal, how) = unsafe {
            let signal = libc::sigwaitinfo(&raw const all, how.as_mut_ptr());
            (signal, how.assume_init())
        };
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        // From a process, not from the kernel on the terminal's behalf.
        if ENDING.contains(&signal) && how.si_code <= 0 {
            // SAFETY: the child was just seen not to be reaped, so that the number is its own.
            unsafe { libc::kill(child.id().cast_signed(), signal) };
        }
    }
}

/// Gives this process mounts of its own, which its children have too and nobody else sees: as root, or in a user namespace in which it
/// stays who it is. To be called while there is one thread.
///
/// # Errors
/// Neither is allowed here.
pub fn own_mounts() -> io::Result<()> {
    // SAFETY: no pointers; what it changes is this process's own.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    if unshare(libc::CLONE_NEWNS).is_err() {
        unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)?;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    mount(None, Path::new("/"), None, libc::MS_REC | libc::MS_PRIVATE)
}

fn unshare(what: libc::c_int) -> io::Result<()> {
    // SAFETY: no pointers; files and memory stay as they are.
    match unsafe { libc::unshare(what) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn mount(
    from: Option<&Path>,
    over: &Path,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
) -> io::Result<()> {
    let from = from
        .map(|from| CString::new(from.as_os_str().as_bytes()))
        .transpose()?;
    let over = CString::new(over.as_os_str().as_bytes())?;
    let pointer = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: C strings, or NULL where mount(2) looks at none; it changes this process's own mounts alone.
    let code = unsafe {
        libc::mount(
            pointer(from.as_deref()),
            over.as_ptr(),
            pointer(kind),
            flags,
            std::ptr::null(),
        )
    };
    match code {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Puts a file or a folder, with what is mounted below it, over another.
pub fn bind(from: &Path, over: &Path) -> io::Result<()> {
    mount(Some(from), over, None, libc::MS_BIND | libc::MS_REC)
}

/// Puts another /dev over the host's: all that is there but for NVIDIA's nodes, and these instead. Nobody can open them, as no driver is
/// behind them; who may make no device nodes gets plain files of their names.
pub fn replace_nodes(nodes: &[Node]) -> io::Result<()> {
    // Not in a folder that is removed with what is in it: what is bound there is the host's.
    let mut place = *b"/tmp/ringfence-dev-XXXXXX\0";
    // SAFETY: a template as mkdtemp(3) wants it, in this frame.
    if unsafe { libc::mkdtemp(place.as_mut_ptr().cast()) }.is_null() {
        return Err(io::Error::last_os_error());
    }
    let place = Path::new(std::ffi::OsStr::from_bytes(&place[..place.len() - 1]));
    let none = Some(Path::new("none"));
    let made = mount(
        none,
        place,
        Some(c"tmpfs"),
        libc::MS_NODEV | libc::MS_NOSUID,
    )
    .and_then(|()| {
        let moved = copy_nodes(place, nodes)
            .and_then(|()| mount(Some(place), Path::new("/dev"), None, libc::MS_MOVE));
        if moved.is_err() {
            let place = CString::new(place.as_os_str().as_bytes())?;
            // SAFETY: a C string; the mount was made above.
            unsafe { libc::umount2(place.as_ptr(), libc::MNT_DETACH) };
        }
        moved
    });
    // Only if it is empty.
    let _stays = fs::remove_dir(place);
    made
}

fn copy_nodes(place: &Path, nodes: &[Node]) -> io::Result<()> {
    // As /dev has it. In a folder that everybody may write to, nobody may open another's node with O_CREAT, as a shell does for `> /dev/null`.
    fs::set_permissions(place, fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir("/dev")? {
        let entry = entry?;
        let (to, kind) = (place.join(entry.file_name()), entry.file_type()?);
        if entry.file_name().as_bytes().starts_with(b"nvidia") {
            continue;
        }
        if kind.is_symlink() {
            symlink(fs::read_link(entry.path())?, &to)?;
            continue;
        }
        match kind.is_dir() {
            true => fs::create_dir(&to)?,
            false => drop(fs::File::create(&to)?),
        }
        bind(&entry.path(), &to)?;
    }
    for node in nodes {
        let path = place.join(&node.path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let name = CString::new(path.as_os_str().as_bytes())?;
        let device = libc::makedev(node.major, node.minor);
        // SAFETY: a C string; the node is below a folder of this process's own.
        if unsafe { libc::mknod(name.as_ptr(), libc::S_IFCHR | node.mode, device) } != 0 {
            fs::write(&path, "")?;
        }
        // Whatever the process's mask of modes is.
        fs::set_permissions(&path, fs::Permissions::from_mode(node.mode))?;
    }
    Ok(())
}
