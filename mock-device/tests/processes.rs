//! Deaths, forks, exec: a process's memory is there exactly as long as the process image, plus the teardown.

#[path = "support/child.rs"]
mod child;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use child::{Child, End, fork};
use mock_device::{
    Bytes, DeviceIndex, Engine, Kind, Nanos, ProcessUsage, World, WorldSpec, profile,
};

const DEV0: DeviceIndex = DeviceIndex(0);
const HELD: Bytes = Bytes::mib(700);

struct Scene {
    _folder: tempfile::TempDir,
    path: PathBuf,
    world: World,
}

fn scene_in(folder: tempfile::TempDir, lag_ms: u64) -> Scene {
    let path = folder.path().join("world");
    let mut machine = profile::embedded("tiny").unwrap();
    machine.devices[0].teardown_lag_ms = lag_ms;
    let world = World::create(&path, &WorldSpec::new(machine)).unwrap();
    Scene {
        _folder: folder,
        path,
        world,
    }
}

fn scene(lag_ms: u64) -> Scene {
    scene_in(tempfile::tempdir().unwrap(), lag_ms)
}

/// A process that holds HELD through a world of its own, says so, and then does `then`.
fn holder(path: &Path, then: impl FnOnce(&World, &mut child::Line) -> i32) -> Child {
    let mut holder = fork(|line| {
        let world = World::open(path).unwrap();
        world.take(DEV0, Kind::Memory, HELD).unwrap();
        line.say(b'h');
        then(&world, line)
    });
    assert_eq!(holder.line.hear(), b'h');
    holder
}

fn wait(_: &World, line: &mut child::Line) -> i32 {
    i32::from(line.hear())
}

/// Asks until the device is empty.
fn until_empty(world: &World) {
    let began = Instant::now();
    while world.used(DEV0) > Bytes::ZERO {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "never came back: {:#?}",
            world.audit()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_killed_process_memory_comes_back_after_the_teardown_lag_and_not_before() {
    const LAG: u64 = 400;
    let scene = scene(LAG);
    let victim = holder(&scene.path, wait);
    assert_eq!(scene.world.used(DEV0), HELD);
    let lived = Instant::now();
    assert_eq!(victim.kill(), End::Signal(libc::SIGKILL));
    let refused = scene.world.take(DEV0, Kind::Memory, HELD).is_err();
    let listed = scene.world.processes(DEV0);
    let listed = listed.iter().map(ProcessUsage::total).sum();
    let seen = (refused, scene.world.used(DEV0), listed);
    // A machine that took longer than that for the five lines above has shown nothing.
    if lived.elapsed() < Duration::from_millis(LAG) {
        assert_eq!(
            seen,
            (true, HELD, HELD),
            "the driver has not let go yet, and its row is there as long as its memory"
        );
    }
    if refused {
        until_empty(&scene.world);
        assert!(lived.elapsed() >= Duration::from_millis(LAG));
    } else {
        scene.world.give_back(DEV0, Kind::Memory, HELD);
    }
    scene.world.take(DEV0, Kind::Memory, HELD).unwrap();
    assert!(scene.world.audit().is_consistent());
}

#[test]
fn a_teardown_that_is_watched_begins_and_ends_though_nobody_looks() {
    let scene = scene(20);
    let (stopped, stop) = std::io::pipe().unwrap();
    // A peak that was set back is what is held by the counters, which asking for it does not bring up to date.
    let held = || {
        scene.world.reset_peak();
        scene.world.peak(DEV0)
    };
    std::thread::scope(|scope| {
        scope.spawn(|| scene.world.keep_watch(&stopped));
        let victim = holder(&scene.path, wait);
        assert_eq!(held(), HELD);
        assert_eq!(victim.kill(), End::Signal(libc::SIGKILL));
        let began = Instant::now();
        while held() > Bytes::ZERO && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(held(), Bytes::ZERO);
        drop(stop);
    });
}

#[test]
fn an_unreaped_zombie_holds_nothing() {
    let scene = scene(0);
    let mut victim = holder(&scene.path, |_, _| 0);
    until_empty(&scene.world);
    assert_eq!(victim.reap(), End::Exit(0));
}

#[test]
fn a_fork_child_holds_nothing_and_takes_nothing_from_its_parent() {
    let scene = scene(0);
    scene.world.take(DEV0, Kind::Memory, Bytes(100)).unwrap();
    let mut child = fork(|line| {
        let mine = |world: &World| world.used_by(DEV0, std::process::id());
        let before = mine(&scene.world);
        scene.world.take(DEV0, Kind::Memory, Bytes(11)).unwrap();
        let after = mine(&scene.world);
        line.say(b'h');
        line.hear();
        i32::from((before, after) != (Bytes::ZERO, Bytes(11)))
    });
    assert_eq!(child.line.hear(), b'h');
    assert_eq!(scene.world.used(DEV0), Bytes(111));
    assert_eq!(scene.world.used_by(DEV0, std::process::id()), Bytes(100));
    child.line.say(b'x');
    assert_eq!(child.reap(), End::Exit(0));
    let began = Instant::now();
    while scene.world.used(DEV0) != Bytes(100) {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "never came back: {:#?}",
            scene.world.audit()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_surviving_fork_child_keeps_its_dead_parents_memory() {
    let scene = scene(0);
    let end = scene.path.with_extension("end");
    let parent = holder(&scene.path, |_, line| {
        let mut idle = fork(|line| {
            child::outlives();
            line.say(1);
            // Or until the test's folder is gone.
            while scene.path.exists() && !end.exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            0
        });
        let there = idle.line.hear();
        line.say(there);
        line.hear();
        0
    });
    let mut parent = parent;
    assert_eq!(parent.line.hear(), 1);
    assert_eq!(parent.kill(), End::Signal(libc::SIGKILL));
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(scene.world.used(DEV0), HELD);
    std::fs::write(&end, "").expect("a file");
    until_empty(&scene.world);
}

#[test]
fn a_process_that_calls_exec_gives_everything_back() {
    let scene = scene(0);
    let sleeper = holder(&scene.path, |_, line| {
        line.hear();
        // SAFETY: the argument list is NULL-terminated; nothing after a successful exec is ours.
        unsafe {
            libc::execl(
                c"/bin/sleep".as_ptr(),
                c"sleep".as_ptr(),
                c"60".as_ptr(),
                std::ptr::null::<libc::c_char>(),
            );
        }
        1
    });
    let mut sleeper = sleeper;
    assert_eq!(scene.world.used(DEV0), HELD);
    sleeper.line.say(b'x');
    until_empty(&scene.world);
    assert_eq!(
        sleeper.kill(),
        End::Signal(libc::SIGKILL),
        "it still ran when its memory was gone"
    );
}

#[test]
fn a_stopped_process_and_one_without_descriptors_keep_theirs() {
    let scene = scene(0);
    let mut guest = holder(&scene.path, |world, line| {
        // SAFETY: closes every descriptor but the line's and the standard ones, as daemons do; none is used again.
        unsafe {
            (3..1024)
                .filter(|fd| !line.uses(*fd))
                .for_each(|fd| assert!(libc::close(fd) <= 0))
        };
        world.take(DEV0, Kind::Pool, Bytes(5)).unwrap();
        line.say(b'c');
        line.hear();
        0
    });
    assert_eq!(guest.line.hear(), b'c');
    // SAFETY: the child was not waited for, so that the number is its own.
    unsafe { libc::kill(guest.pid, libc::SIGSTOP) };
    assert!(scene.world.take(DEV0, Kind::Memory, HELD).is_err());
    assert_eq!(scene.world.audit().deaths, 0);
    assert_eq!(scene.world.used(DEV0), HELD + Bytes(5));
    assert_eq!(guest.kill(), End::Signal(libc::SIGKILL));
    until_empty(&scene.world);
}

/// Decision 1: the place of the file decides which of the two signs of life counts; both must be right.
#[test]
fn deaths_are_seen_on_tmpfs_as_well() {
    let scene = scene_in(tempfile::tempdir_in("/dev/shm").unwrap(), 0);
    let victim = holder(&scene.path, wait);
    assert!(scene.world.take(DEV0, Kind::Memory, HELD).is_err());
    assert_eq!(victim.kill(), End::Signal(libc::SIGKILL));
    until_empty(&scene.world);
}

#[test]
fn fork_while_eight_threads_allocate_leaves_the_books_in_order() {
    let scene = scene(0);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    if scene.world.take(DEV0, Kind::Memory, Bytes(4096)).is_ok() {
                        scene.world.give_back(DEV0, Kind::Memory, Bytes(4096));
                    }
                }
            });
        }
        for _ in 0..40 {
            let mut child = fork(|_| {
                let taken = scene.world.take(DEV0, Kind::Memory, Bytes(8192)).is_ok();
                i32::from(!taken || scene.world.used_by(DEV0, std::process::id()) != Bytes(8192))
            });
            assert_eq!(child.reap(), End::Exit(0));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    until_empty(&scene.world);
    assert!(scene.world.audit().is_consistent());
    assert_eq!(scene.world.audit().deaths, 40);
}

/// A process number means nothing across PID namespaces; skips, saying so, where the test may not make one. Every other
/// victim is killed while it closes its world: whatever it had undone by then, its row must still be seen as a dead one's.
#[test]
fn deaths_are_seen_across_pid_namespaces() {
    for round in 0..100 {
        let scene = scene(0);
        let path = scene.path.clone();
        let mut outer = fork(|line| {
            // SAFETY: concerns the children of this process only.
            if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
                line.say(b's');
                return 0;
            }
            let mut inner = holder(&path, wait);
            line.say(b'h');
            line.hear();
            if round % 2 == 1 {
                inner.line.say(b'x');
                let said = Instant::now();
                while said.elapsed() < Duration::from_micros(5 * round) {}
            }
            inner.kill();
            0
        });
        if outer.line.hear() == b's' {
            eprintln!("skipped: no right to make a PID namespace");
            assert_eq!(outer.reap(), End::Exit(0));
            return;
        }
        assert!(
            scene.world.take(DEV0, Kind::Memory, HELD).is_err(),
            "the foreign process lives"
        );
        assert_eq!(scene.world.audit().deaths, 0);
        outer.line.say(b'k');
        until_empty(&scene.world);
        assert_eq!(outer.reap(), End::Exit(0));
    }
}

/// A device knows no time namespaces; skips, saying so, where the test may not make one.
#[test]
fn all_time_namespaces_have_one_clock() {
    let scene = scene(0);
    let (path, before) = (scene.path.clone(), scene.world.now());
    let mut outer = fork(|line| {
        // SAFETY: concerns the children of this process only.
        let made = unsafe { libc::unshare(libc::CLONE_NEWTIME) } == 0;
        if !made || std::fs::write("/proc/self/timens_offsets", "monotonic 1000000 0").is_err() {
            line.say(b's');
            return 0;
        }
        let mut inner = fork(|line| {
            let now = World::open(&path).unwrap().now();
            let near = now.0 >= before.0 && now.0 - before.0 < 100_000_000_000_000;
            line.say(if near { b'y' } else { b'n' });
            0
        });
        line.say(inner.line.hear());
        i32::from(inner.reap() != End::Exit(0))
    });
    match outer.line.hear() {
        b's' => eprintln!("skipped: no right to make a time namespace"),
        said => assert_eq!(said, b'y', "another clock in another time namespace"),
    }
    assert_eq!(outer.reap(), End::Exit(0));
}

/// Decision 1: on overlayfs a lock ends with its descriptor, so that process numbers must do. In a mount namespace of its
/// own; skips, saying so, where the test may not make one.
#[test]
fn deaths_are_seen_on_overlayfs() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut observer = fork(|line| {
        let Some(merged) = overlay(folder.path()) else {
            line.say(b's');
            return 0;
        };
        let scene = scene_in(tempfile::tempdir_in(merged).unwrap(), 0);
        let victim = holder(&scene.path, wait);
        assert!(scene.world.take(DEV0, Kind::Memory, HELD).is_err());
        assert_eq!(scene.world.audit().deaths, 0);
        assert_eq!(victim.kill(), End::Signal(libc::SIGKILL));
        until_empty(&scene.world);
        line.say(b'd');
        0
    });
    let said = observer.line.hear();
    assert_eq!(observer.reap(), End::Exit(0));
    if said == b's' {
        eprintln!("skipped: no right to mount an overlay");
    } else {
        assert_eq!(said, b'd');
    }
}

/// An overlay over three folders under `folder`, for this process alone.
fn overlay(folder: &Path) -> Option<PathBuf> {
    let [lower, upper, work, merged] =
        ["lower", "upper", "work", "merged"].map(|name| folder.join(name));
    for made in [&lower, &upper, &work, &merged] {
        std::fs::create_dir(made).unwrap();
    }
    let text = |path: &Path| std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        upper.display(),
        work.display()
    );
    let options = text(Path::new(&options));
    let (root, at) = (text(Path::new("/")), text(&merged));
    // SAFETY: every argument is a C string that outlives the call; the namespace is this process's own.
    let mounted = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                std::ptr::null(),
                root.as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ) == 0
            && libc::mount(
                c"overlay".as_ptr(),
                at.as_ptr(),
                c"overlay".as_ptr(),
                0,
                options.as_ptr().cast(),
            ) == 0
    };
    mounted.then_some(merged)
}

#[test]
fn a_killed_process_unfinished_work_leaves_the_engine_to_others() {
    let scene = scene(0);
    let ms = |count: u64| Nanos(count * 1_000_000);
    let far = ms(3_600_000);
    let submit = |world: &World, cost| world.submit(DEV0, Engine::Compute, Nanos::ZERO, cost);
    let victim = holder(&scene.path, |world, line| {
        submit(world, far);
        line.say(b's');
        wait(world, line)
    });
    let mut victim = victim;
    assert_eq!(victim.line.hear(), b's');
    let shared = submit(&scene.world, ms(1));
    assert_eq!(
        shared.end.saturating_sub(shared.start),
        ms(2),
        "half of the engine"
    );
    let began = scene.world.now();
    let pid = u32::try_from(victim.pid).unwrap();
    assert_eq!(victim.kill(), End::Signal(libc::SIGKILL));
    until_empty(&scene.world);
    std::thread::sleep(Duration::from_millis(5));
    let alone = submit(&scene.world, ms(1));
    assert_eq!(alone.end.saturating_sub(alone.start), ms(1));
    let long_after = began + ms(10_000);
    let busy = scene.world.busy(DEV0, Engine::Compute, began, long_after);
    assert!(busy < ms(5_000), "the dead one's hour is not counted");
    assert_eq!(
        scene
            .world
            .busy_by(DEV0, pid, Engine::Compute, began, long_after),
        Nanos::ZERO
    );
}
