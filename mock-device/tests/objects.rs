//! Memory that several processes hold: counted once, as long as anybody or any descriptor has it.

#[path = "support/child.rs"]
mod child;

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use child::{Child, End, fork};
use mock_device::{
    Bytes, DeviceIndex, Kind, Object, ObjectError, ObjectId, OutOfDeviceMemory, World, WorldSpec,
    profile,
};

const DEV0: DeviceIndex = DeviceIndex(0);
const SIZE: Bytes = Bytes::mib(64);

struct Scene {
    _folder: tempfile::TempDir,
    path: PathBuf,
    world: World,
}

fn scene(lag_ms: u64) -> Scene {
    let folder = tempfile::tempdir().unwrap();
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

/// A process that makes object 1, writes its first bytes, and waits.
fn exporter(path: &Path) -> Child {
    let mut exporter = fork(|line| {
        let world = World::open(path).unwrap();
        world.take(DEV0, Kind::Memory, SIZE).unwrap();
        let object = world.share(DEV0, Kind::Memory, SIZE).unwrap();
        object.file().write_all_at(b"shared", 4096).unwrap();
        assert_eq!(object.id(), ObjectId(1));
        line.say(b'e');
        i32::from(line.hear())
    });
    assert_eq!(exporter.line.hear(), b'e');
    exporter
}

fn until(world: &World, wanted: Bytes) {
    let began = Instant::now();
    while world.used(DEV0) != wanted {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{:#?}",
            world.audit()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn holder_of(world: &World) -> Vec<(u32, Bytes)> {
    world
        .processes(DEV0)
        .iter()
        .map(|usage| (usage.pid, usage.total()))
        .collect()
}

fn beginning(object: &Object<'_>) -> [u8; 6] {
    let mut bytes = [0; 6];
    object.file().read_exact_at(&mut bytes, 4096).unwrap();
    bytes
}

#[test]
fn memory_opened_by_another_process_survives_its_exporter_and_becomes_the_openers() {
    let scene = scene(30);
    let mut exporter = exporter(&scene.path);
    let object = scene.world.open_object(ObjectId(1)).unwrap();
    assert_eq!(
        (object.size(), object.kind(), &beginning(&object)),
        (SIZE, Kind::Memory, b"shared")
    );
    assert_eq!(scene.world.used(DEV0), SIZE, "counted once");
    assert_eq!(
        holder_of(&scene.world),
        [(exporter.pid as u32, SIZE)],
        "the exporter's while it lives"
    );
    let pid = exporter.pid;
    assert_eq!(exporter_killed(&mut exporter), End::Signal(libc::SIGKILL));
    std::thread::sleep(Duration::from_millis(80));
    assert_eq!(scene.world.used(DEV0), SIZE);
    let own = std::process::id();
    assert_eq!(holder_of(&scene.world), [(own, SIZE)], "no longer {pid}'s");
    assert_eq!(&beginning(&object), b"shared");
    drop(object);
    // Or when the exporter's teardown ends, should that come later.
    until(&scene.world, Bytes::ZERO);
    assert!(matches!(
        scene.world.open_object(ObjectId(1)),
        Err(ObjectError::Gone(ObjectId(1)))
    ));
    assert!(
        scene.world.audit().is_consistent(),
        "{:#?}",
        scene.world.audit()
    );
}

fn exporter_killed(exporter: &mut Child) -> End {
    // SAFETY: the child was not waited for yet, so that the number is still its own.
    unsafe { libc::kill(exporter.pid, libc::SIGKILL) };
    exporter.reap()
}

#[test]
fn an_exported_descriptor_holds_the_memory_until_its_last_copy_is_closed() {
    let scene = scene(0);
    let world = &scene.world;
    let object = world.new_object(DEV0, Kind::Vmm, SIZE).unwrap();
    let descriptor = object.export().unwrap();
    drop(object);
    assert_eq!(world.used(DEV0), SIZE);
    assert_eq!(holder_of(world), [], "nobody's");
    let copy: OwnedFd = descriptor.try_clone().unwrap();
    drop(descriptor);
    until(world, SIZE);
    let imported = world.import_object(copy.as_fd()).unwrap();
    assert_eq!(holder_of(world), [], "nobody's while a descriptor is open");
    drop(copy);
    until(world, SIZE);
    assert_eq!(holder_of(world), [(std::process::id(), SIZE)]);
    drop(imported);
    until(world, Bytes::ZERO);
    let again = world.new_object(DEV0, Kind::Vmm, SIZE).unwrap();
    let descriptor = again.export().unwrap();
    drop(again);
    drop(descriptor);
    until(world, Bytes::ZERO);
}

#[test]
fn a_descriptor_of_something_else_is_no_object() {
    let scene = scene(0);
    let file = File::open("/dev/null").unwrap();
    assert!(matches!(
        scene.world.import_object(file.as_fd()),
        Err(ObjectError::Foreign(_))
    ));
}

#[test]
fn sharing_moves_a_charge_and_changes_no_sum() {
    let scene = scene(0);
    let world = &scene.world;
    world
        .take(DEV0, Kind::Memory, Bytes(SIZE.0 + 5000))
        .unwrap();
    let object = world.share(DEV0, Kind::Memory, SIZE).unwrap();
    assert_eq!(world.used(DEV0), Bytes(SIZE.0 + 5000));
    let second = object.again().unwrap();
    drop(object);
    assert_eq!(world.used(DEV0), Bytes(SIZE.0 + 5000), "a second hold");
    drop(second);
    assert_eq!(world.used(DEV0), Bytes(5000));
    assert!(matches!(
        world.share(DEV0, Kind::Memory, SIZE),
        Err(ObjectError::OutOfMemory(_))
    ));
    world.give_back(DEV0, Kind::Memory, Bytes(5000));
    assert!(world.audit().is_consistent());
}

#[test]
fn a_full_device_makes_no_object() {
    let scene = scene(0);
    let world = &scene.world;
    let all = world.free(DEV0);
    let object = world.new_object(DEV0, Kind::Vulkan, all).unwrap();
    assert!(matches!(
        world.new_object(DEV0, Kind::Vulkan, Bytes(1)),
        Err(ObjectError::OutOfMemory(_))
    ));
    assert!(world.take(DEV0, Kind::Memory, Bytes(1)).is_err());
    drop(object);
    world.take(DEV0, Kind::Memory, Bytes(1)).unwrap();
}

#[test]
fn a_killed_process_leaves_neither_bytes_nor_files() {
    let scene = scene(0);
    for _ in 0..3 {
        let mut exporter = fork(|line| {
            let world = World::open(&scene.path).unwrap();
            let objects: Vec<_> = (0..5)
                .map(|_| world.new_object(DEV0, Kind::Vmm, Bytes::mib(1)).unwrap())
                .collect();
            line.say(objects.len() as u8);
            i32::from(line.hear())
        });
        assert_eq!(exporter.line.hear(), 5);
        assert_eq!(scene.world.used(DEV0), Bytes::mib(5));
        assert_eq!(exporter_killed(&mut exporter), End::Signal(libc::SIGKILL));
        until(&scene.world, Bytes::ZERO);
    }
    let left: Vec<_> = std::fs::read_dir(scene.path.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name.to_string_lossy().contains("object"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(scene.world.audit().is_empty(), "{:#?}", scene.world.audit());
}

#[test]
fn a_fork_child_ends_nothing_of_its_parents() {
    let scene = scene(0);
    let object = scene.world.new_object(DEV0, Kind::Vmm, SIZE).unwrap();
    let inherited = std::mem::ManuallyDrop::new(object);
    let mut child = fork(|_| {
        // SAFETY: the parent's copy of the value is another one; each process drops its own once.
        drop(unsafe { std::ptr::read(&raw const *inherited) });
        0
    });
    assert_eq!(child.reap(), End::Exit(0));
    assert_eq!(scene.world.used(DEV0), SIZE);
    drop(std::mem::ManuallyDrop::into_inner(inherited));
    assert_eq!(scene.world.used(DEV0), Bytes::ZERO);
}

#[test]
fn of_a_store_its_makers_row_has_what_that_one_shows_and_nobodys_has_the_rest() {
    let scene = scene(0);
    let world = &scene.world;
    let own = std::process::id();
    world.take(DEV0, Kind::Pool, Bytes(SIZE.0 + 5000)).unwrap();
    let store = world.new_store(DEV0, Kind::Pool).unwrap();
    assert!(store.is_store() && store.size() == Bytes::ZERO);
    store.put(SIZE).unwrap();
    assert_eq!(world.used(DEV0), Bytes(SIZE.0 + 5000), "moved, not taken");
    assert_eq!(holder_of(world), [(own, Bytes(SIZE.0 + 5000))]);
    store.show(Bytes(1000));
    assert_eq!(holder_of(world), [(own, Bytes(6000))]);
    assert!(matches!(
        store.put(SIZE),
        Err(ObjectError::OutOfMemory(OutOfDeviceMemory {
            free: Bytes(5000),
            ..
        }))
    ));
    store.put(Bytes(5000)).unwrap();
    store.show(Bytes::ZERO);
    assert_eq!(holder_of(world), [], "nobody's, while its maker lives");
    let imported = world.open_object(store.id()).unwrap();
    drop(store);
    assert_eq!(world.used(DEV0), Bytes(SIZE.0 + 5000));
    drop(imported);
    assert_eq!(world.used(DEV0), Bytes::ZERO);
    assert!(world.audit().is_consistent(), "{:#?}", world.audit());
}

#[test]
fn a_store_outlives_its_killed_maker_and_is_no_importers() {
    let scene = scene(0);
    let world = &scene.world;
    let mut maker = fork(|line| {
        let world = World::open(&scene.path).unwrap();
        world.take(DEV0, Kind::Pool, Bytes(SIZE.0 + 5000)).unwrap();
        let store = world.new_store(DEV0, Kind::Pool).unwrap();
        store.put(SIZE).unwrap();
        line.say(1);
        i32::from(line.hear())
    });
    assert_eq!(maker.line.hear(), 1);
    let imported = world.open_object(ObjectId(1)).unwrap();
    assert!(imported.is_store());
    let pid = maker.pid as u32;
    assert_eq!(holder_of(world), [(pid, Bytes(SIZE.0 + 5000))]);
    assert_eq!(exporter_killed(&mut maker), End::Signal(libc::SIGKILL));
    until(world, SIZE);
    assert_eq!(holder_of(world), [], "not its importer's either");
    drop(imported);
    until(world, Bytes::ZERO);
    assert!(world.audit().is_consistent(), "{:#?}", world.audit());
}

#[test]
fn a_fork_child_shows_nothing_of_its_parents_store() {
    let scene = scene(0);
    let world = &scene.world;
    world.take(DEV0, Kind::Pool, SIZE).unwrap();
    let store = world.new_store(DEV0, Kind::Pool).unwrap();
    store.put(SIZE).unwrap();
    let mut child = fork(|_| {
        store.show(Bytes::ZERO);
        i32::from(store.put(Bytes(1)).is_ok())
    });
    assert_eq!(child.reap(), End::Exit(0));
    assert_eq!(holder_of(world), [(std::process::id(), SIZE)]);
}
