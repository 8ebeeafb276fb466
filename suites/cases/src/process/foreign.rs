//! What may lie at the ledger's path that is no ledger of ours, or a ledger that cannot be used. Each time nothing is granted, one line names the
//! file and what is wrong with it, and not a byte of it is changed.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;

use abi::cuda::CUresult;
use harness::{Bytes, Failure, Session, cases, ensure, ensure_eq};
use ledger::{Ledger, SLOTS, Setup};

use crate::activation::scrubbed::may;
use crate::clients::cuda;
use crate::ffi::process::{overhear, seal, sealed_file};
use crate::greed::{CONTEXT_ROOM, budget, fills};
use crate::tenant::Tenant;

const OUT_OF_MEMORY: CUresult = CUresult::ERROR_OUT_OF_MEMORY;

/// A tenant that is started like this is refused its context or its first byte; its stderr.
fn refused(launch: harness::Launch<'_>) -> Result<String, Failure> {
    let (answer, [stdout, stderr]) = overhear(|| -> Result<i64, Failure> {
        let mut tenant = Tenant::launch(launch)?;
        let answer = tenant.ask("first-byte")?;
        tenant.peer.finish()?;
        Ok(answer)
    })?;
    ensure_eq!(
        answer?,
        i64::from(OUT_OF_MEMORY.0),
        "the first byte, or the context before it"
    );
    ensure!(stdout.is_empty(), "on stdout: {stdout}");
    Ok(stderr)
}

/// One line, and it has all these words.
fn says(stderr: &str, words: &[&str]) -> Result<(), Failure> {
    let said: Vec<_> = stderr
        .lines()
        .filter(|line| line.starts_with("ringfence"))
        .collect();
    ensure_eq!(said.len(), 1, "lines on stderr: {stderr}");
    for word in words {
        ensure!(said[0].contains(word), "\"{word}\" is not in: {}", said[0]);
    }
    Ok(())
}

/// With that at the ledger's path nothing is granted, the line has these words, and the file is as it was.
fn refuses_beside(session: &Session, what: &[u8], words: &[&str]) -> Result<(), Failure> {
    let path = session.directory().join("other.ledger");
    fs::write(&path, what)?;
    let name = path.display().to_string();
    let launch = session.launch("tenant").env("RINGFENCE_LEDGER", &name);
    let stderr = refused(launch)?;
    says(
        &stderr,
        &[&[&name[..], "every allocation is refused"], words].concat(),
    )?;
    ensure!(fs::read(&path)? == what, "the file at {name} was changed");
    ensure_eq!(beside(&path)?, 1, "files of that name and beside it");
    Ok(fs::remove_file(&path)?)
}

/// The files whose names begin with this one's.
fn beside(path: &Path) -> Result<usize, Failure> {
    let (folder, name) = (path.parent(), path.file_name());
    let (Some(folder), Some(name)) = (folder, name) else {
        harness::fail!("{} has no folder", path.display())
    };
    let own = |entry: &fs::DirEntry| {
        entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(name.as_encoded_bytes())
    };
    Ok(fs::read_dir(folder)?.flatten().filter(own).count())
}

/// A ledger of ours, as bytes.
fn ours(session: &Session) -> Result<Vec<u8>, Failure> {
    let path = session.directory().join("model.ledger");
    let mut setup = Setup::default();
    setup.budgets[0] = Some(ledger::Bytes(budget(session, 0)?.0));
    drop(Ledger::attach(&path, &setup)?);
    let bytes = fs::read(&path)?;
    fs::remove_file(&path)?;
    Ok(bytes)
}

/// HAMi-core's shared region, version 1.1, as its public header lays it out: 16 devices, 1,024 processes of 1,960 bytes each, one of them alive.
fn hami_cores() -> Vec<u8> {
    const SIZE: usize = 2_008_912;
    const LIMITS: usize = 1_600;
    const PROCESSES: usize = 1_856;
    let mut region = vec![0; SIZE];
    let mut put = |at: usize, bytes: &[u8]| region[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &19_920_718_u32.to_le_bytes());
    put(4, &1_u32.to_le_bytes());
    put(8, &1_u32.to_le_bytes());
    put(56, &1_u64.to_le_bytes());
    put(64, b"GPU-07ac64f7-ff7f-d9fb-9bcb-7afb7720386f");
    put(LIMITS, &(23_552_u64 << 20).to_le_bytes());
    put(LIMITS + 128, &100_u64.to_le_bytes());
    put(PROCESSES, &std::process::id().to_le_bytes());
    put(PROCESSES + 8, &(300_u64 << 20).to_le_bytes());
    put(SIZE - 16, &1_u32.to_le_bytes());
    region
}

/// Runs a program with a file system of one MiB at `$1`; the fullness of disks is its own.
const ON_A_SMALL_DISK: &str = r#"
set -e
mount --make-rprivate /
mount -t tmpfs -o size=1m none "$1"; shift
exec "$@"
"#;

/// The same with a file system that may only be read.
const ON_A_DISK_TO_READ: &str = r#"
set -e
mount --make-rprivate /
mount --bind "$1" "$1"; mount -o remount,ro,bind "$1"; shift
exec "$@"
"#;

fn in_a_folder(session: &Session, script: &str, words: &[&str]) -> Result<(), Failure> {
    may("unshare", &["--mount"])?;
    let folder = session.directory().join("disk");
    fs::create_dir_all(&folder)?;
    let name = folder.display().to_string();
    let path = format!("{name}/ledger");
    let launch = session.launch("tenant").env("RINGFENCE_LEDGER", &path);
    let stderr = refused(launch.through("unshare", &["--mount", "sh", "-c", script, "sh", &name]))?;
    says(
        &stderr,
        &[&[&path[..], "every allocation is refused"], words].concat(),
    )?;
    ensure_eq!(fs::read_dir(&folder)?.count(), 0, "files that were left");
    Ok(())
}

cases! {
    /// HAMi-core's own region at the ledger's path.
    hami_cores_region_is_no_ledger {
        kind: Own, defects: ["P6", "R11"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", unaccounted: "there is no ledger",
    } (session) {
        refuses_beside(session, &hami_cores(), &["not a ledger of this version", "magic"])
    }

    /// A ledger of another version, or with other dimensions, is not understood, and the line says in what it differs.
    a_ledger_of_another_version_is_not_guessed_at {
        kind: Own, defects: ["P6", "R11"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", unaccounted: "there is no ledger",
    } (session) {
        let good = ours(session)?;
        for (word, name) in [(1, "version"), (3, "slots"), (4, "devices")] {
            let mut other = good.clone();
            other[word * 8] = other[word * 8].wrapping_add(1);
            refuses_beside(session, &other, &["not a ledger of this version", name])?;
        }
        Ok(())
    }

    /// Half a ledger, one byte less, one byte more, nothing at all, and bytes without meaning.
    a_truncated_ledger_is_none {
        kind: Own, defects: ["P6", "R11"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", unaccounted: "there is no ledger",
    } (session) {
        let good = ours(session)?;
        let more = [&good[..], &[0]].concat();
        let noise: Vec<u8> = (0..good.len()).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
        let size = "file size";
        for (bytes, word) in [
            (&good[..good.len() / 2], size), (&good[..good.len() - 1], size), (&more, size), (&[], "magic"), (&noise, "magic"),
        ] {
            refuses_beside(session, bytes, &[word])?;
        }
        Ok(())
    }

    /// What is no file: a directory, a pipe that nobody reads, a device.
    what_is_no_file_is_no_ledger {
        kind: Own, defects: ["P6", "R11"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", unaccounted: "there is no ledger",
    } (session) {
        let pipe = session.directory().join("pipe");
        crate::ffi::process::make_pipe(&pipe)?;
        let pipe = pipe.display().to_string();
        let folder = session.directory().display().to_string();
        for (path, word) in [(&folder[..], "Is a directory"), (&pipe, "regular file"), ("/dev/zero", "regular file")] {
            let stderr = refused(session.launch("tenant").env("RINGFENCE_LEDGER", path))?;
            says(&stderr, &[path, word])?;
        }
        Ok(())
    }

    /// A link that leads nowhere: the line says that it does, and nothing is made, neither where it leads nor beside it. One that leads to a ledger is as good as its path.
    a_link_to_nowhere_is_no_ledger {
        kind: Own, defects: ["P16"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", unaccounted: "there is no ledger",
    } (session) {
        let (folder, elsewhere) = (session.directory().join("links"), session.directory().join("elsewhere"));
        fs::create_dir_all(&folder)?;
        fs::create_dir_all(&elsewhere)?;
        let (path, target) = (folder.join("ledger"), elsewhere.join("ledger"));
        std::os::unix::fs::symlink(&target, &path)?;
        let name = path.display().to_string();
        let stderr = refused(session.launch("tenant").env("RINGFENCE_LEDGER", &name))?;
        says(&stderr, &[&name, "a symbolic link that leads nowhere", "every allocation is refused"])?;
        ensure_eq!((beside(&path)?, beside(&target)?), (1, 0), "what lies at the link, and where it leads");
        fs::write(&target, ours(session)?)?;
        let mut tenant = Tenant::launch(session.launch("tenant").env("RINGFENCE_LEDGER", &name))?;
        fills(tenant.fill_cuda()?, budget(session, 0)?, CONTEXT_ROOM)?;
        tenant.peer.finish()
    }

    /// A ledger that may not be written.
    a_ledger_that_may_not_be_written_is_none {
        kind: Own, defects: ["P6", "R11"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", unaccounted: "there is no ledger",
    } (session) {
        let good = ours(session)?;
        let mut file: File = sealed_file()?;
        std::io::Write::write_all(&mut file, &good)?;
        seal(&file)?;
        // Sealed against writing for everybody, root included; by its descriptor in this process it has a path.
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let stderr = refused(session.launch("tenant").env("RINGFENCE_LEDGER", &path))?;
        says(&stderr, &[&path, "every allocation is refused", "Operation not permitted"])
    }

    /// On a file system that may only be read no ledger can be made.
    on_a_disk_to_read_no_ledger_is_made {
        kind: Own, defects: ["P6"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", unaccounted: "there is no ledger",
    } (session) {
        in_a_folder(session, ON_A_DISK_TO_READ, &["Read-only file system"])
    }

    /// On a full disk no ledger can be made, and nothing of it is left there.
    on_a_full_disk_no_ledger_is_made {
        kind: Own, defects: ["P6"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", unaccounted: "there is no ledger",
    } (session) {
        in_a_folder(session, ON_A_SMALL_DISK, &["No space left on device"])
    }

    /// A process that may not write files as large as a ledger is told so, and is not ended by the kernel for it.
    where_files_may_not_be_so_large_no_ledger_is_made {
        kind: Own, defects: ["P6", "P9"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", unaccounted: "there is no ledger",
        on_real: No("the vendor's driver may write larger files"),
    } (session) {
        let path = session.directory().join("small.ledger").display().to_string();
        let launch = session.launch("tenant").env("RINGFENCE_LEDGER", &path);
        let stderr = refused(launch.through("sh", &["-c", "ulimit -f 1024; exec \"$@\"", "sh"]))?;
        says(&stderr, &[&path, "File too large"])?;
        ensure!(!Path::new(&path).exists(), "something was left at {path}");
        Ok(())
    }

    /// A file at the ledger's path that is none refuses a process too that was told of no budget: somebody's budget was kept there.
    what_lies_at_the_ledgers_path_refuses_who_was_told_of_nothing {
        kind: Own, defects: ["P6", "P8", "R11"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", unaccounted: "there is no ledger",
    } (session) {
        let path = session.directory().join("other.ledger");
        fs::write(&path, hami_cores())?;
        let name = path.display().to_string();
        let launch = session.launch("tenant").env("RINGFENCE_LEDGER", &name).without("CUDA_DEVICE_MEMORY_LIMIT_0");
        says(&refused(launch)?, &[&name, "magic", "every allocation is refused"])
    }

    /// With a process in every slot the next is refused, and one line says so; the others keep their slots and charges. Once a slot is free the
    /// same process is granted what it asks for.
    one_process_more_than_slots_is_refused_until_one_is_free {
        kind: Own, defects: ["P5", "P6"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB",
        unaccounted: "the other slots hold nothing of the device",
    } (session) {
        let mut setup = Setup::default();
        setup.budgets[0] = Some(ledger::Bytes(budget(session, 0)?.0));
        let attach = || Ledger::attach(session.ledger_path(), &setup);
        let mut others = (0..SLOTS).map(|_| attach()).collect::<Result<Vec<_>, _>>()?;
        let first = || others[0].reserve(ledger::DeviceIndex(0), ledger::Bytes(Bytes::mib(64).0));
        if let Ok(held) = first() {
            held.commit();
        }
        let before = session.ledger()?.slots();
        let stderr = refused(session.launch("tenant"))?;
        says(&stderr, &[&session.ledger_path().display().to_string(), "no free slot"])?;
        ensure!(session.ledger()?.slots() == before, "the others' slots were changed");
        let mut patient = Tenant::start(session)?;
        ensure_eq!(patient.ask("first-byte")?, i64::from(OUT_OF_MEMORY.0), "a byte with every slot taken");
        others.pop();
        fills(patient.fill_cuda()? + Bytes::mib(64), budget(session, 0)?, CONTEXT_ROOM)?;
        patient.peer.finish()?;
        others[0].release(ledger::DeviceIndex(0), ledger::Bytes(Bytes::mib(64).0));
        Ok(())
    }

    /// On a machine with more than 32 devices each has its budget.
    more_than_32_devices_have_their_budgets {
        kind: Budget, defects: ["P6", "C11"], entry_points: ["cuMemAlloc_v2"], machine: "tiny*34", needs_gpus: 34,
        env: [("CUDA_DEVICE_MEMORY_LIMIT", "256m"), ("RINGFENCE_CONTEXT_CHARGE", "free")],
    } (_session) {
        let cuda = cuda()?;
        for (device, granted) in [(0, 256), (31, 256), (32, 256), (33, 256)] {
            match cuda.retain_primary(device) {
                retained if retained.code == CUresult::SUCCESS => cuda.set_current(retained.out),
                refused => {
                    ensure_eq!(refused.code, OUT_OF_MEMORY, "cuDevicePrimaryCtxRetain of device {device}");
                    ensure_eq!(granted, 0, "MiB that device {device} should grant");
                    continue;
                }
            };
            let mut taken = 0;
            while taken <= 512 && cuda.allocate(Bytes::mib(2).0).code == CUresult::SUCCESS {
                taken += 2;
            }
            ensure_eq!(taken, granted, "MiB of device {device}");
        }
        Ok(())
    }
}
