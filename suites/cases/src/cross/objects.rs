//! Memory that several processes hold: charged once, to the tenant, until the last of them has let go.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use abi::cuda::{CUdeviceptr, CUresult};
use harness::Libraries::LayerOnly;
use harness::{
    Bytes, Failure, Launch, Parent, Peer, Session, cases, ensure, ensure_eq, fail, roles,
};

use super::external;
use crate::clients::{Gpu, context, cuda, cuda_without_context, fill, nvml};
use crate::ffi::cuda::{Cuda, IpcHandle, Open, Pool, PoolPointer, Purpose, Stream, UNTOUCHED};
use crate::ffi::process;
use crate::ffi::vulkan::{Code, Route};
use crate::greed::{CONTEXT_ROOM, VULKAN_ROOM, budget, fills};
use crate::vulkan::asked::Asker;
use crate::vulkan::floor::{row, rows};

pub(super) const OK: CUresult = CUresult::SUCCESS;
pub(super) const OUT_OF_MEMORY: CUresult = CUresult::ERROR_OUT_OF_MEMORY;

pub(super) const SHARED: Bytes = Bytes::gib(4);
/// Does not fit beside [`SHARED`] and two contexts under 8 GiB.
const MOST: Bytes = Bytes::gib(3);
/// What two processes' contexts may take.
const ROOM: Bytes = Bytes(2 * CONTEXT_ROOM.0);

/// Command buffers that are recorded, of 4,096 dispatches or half a MiB and more.
const RECORDED: u32 = 768;
const DISPATCHES: u32 = 4096;
/// Taken unasked since the last look.
const UNSEEN: Bytes = Bytes::mib(32);

/// What makes memory that is shared by a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Maker {
    /// cuMemCreate.
    Cuda,
    /// vkAllocateMemory.
    Vulkan,
}

/// Another process of the tenant, which makes memory and opens that of others.
pub(super) struct Holder(pub(super) Peer);

impl Holder {
    pub(super) fn start(session: &Session) -> Result<Holder, Failure> {
        Holder::launch(session.launch("holder"))
    }

    /// A process that nothing of ours is in, and that is no tenant's of this ledger: one of the tenant's would be charged what it holds.
    pub(super) fn stranger(session: &Session) -> Result<Holder, Failure> {
        let theirs = session.directory().join("strangers.ledger");
        let launch = session.launch("holder").libraries(LayerOnly);
        Holder::launch(launch.env("RINGFENCE_LEDGER", &theirs.display().to_string()))
    }

    pub(super) fn launch(launch: Launch<'_>) -> Result<Holder, Failure> {
        Ok(Holder(launch.start()?))
    }

    fn ask(&mut self, command: &str) -> Result<String, Failure> {
        self.0.say(command)?;
        self.0.line()
    }

    pub(super) fn does(&mut self, command: &str, code: CUresult) -> Result<(), Failure> {
        let answer = self.ask(command)?;
        ensure_eq!(
            answer,
            code.0.to_string(),
            "\"{command}\" in another process"
        );
        Ok(())
    }

    pub(super) fn allocates(&mut self, bytes: Bytes, code: CUresult) -> Result<(), Failure> {
        self.does(&format!("allocate {}", bytes.0), code)
    }

    /// Has it allocate and export.
    fn export(&mut self) -> Result<IpcHandle, Failure> {
        self.allocates(SHARED, OK)?;
        let text = self.ask("export")?;
        match IpcHandle::parse(&text) {
            Some(handle) => Ok(handle),
            None => fail!("a process exported \"{text}\""),
        }
    }

    /// A socket to it, for descriptors. It listens before anybody waits: what ends it then ends the connection.
    fn connected(&mut self, session: &Session) -> Result<UnixStream, Failure> {
        let path = session.directory().join(format!("{}.socket", self.0.pid()));
        self.does(&format!("listen {}", path.display()), OK)?;
        let socket = UnixStream::connect(&path)?;
        std::fs::remove_file(&path)?;
        Ok(socket)
    }

    /// Has it create memory, export it, and send the descriptor.
    pub(super) fn sends(&mut self, session: &Session, maker: Maker) -> Result<OwnedFd, Failure> {
        let socket = self.connected(session)?;
        let verb = format!("send-{maker:?}");
        self.0.say(&verb)?;
        let descriptor = process::receive_descriptor(&socket)?;
        ensure_eq!(self.0.line()?, "0", "\"{verb}\" in another process");
        Ok(descriptor)
    }

    /// Has it take from a pool that it shares; the pool, and what names the allocation.
    pub(super) fn lends(&mut self, session: &Session) -> Result<(OwnedFd, PoolPointer), Failure> {
        self.lends_of(session, SHARED)
    }

    pub(super) fn lends_of(
        &mut self,
        session: &Session,
        bytes: Bytes,
    ) -> Result<(OwnedFd, PoolPointer), Failure> {
        let socket = self.connected(session)?;
        self.0.say(&format!("lend {}", bytes.0))?;
        let descriptor = process::receive_descriptor(&socket)?;
        let text = self.0.line()?;
        match PoolPointer::parse(&text) {
            Some(data) => Ok((descriptor, data)),
            None => fail!("a process exported \"{text}\""),
        }
    }

    /// Has it import a pool and what it exported.
    pub(super) fn borrows(
        &mut self,
        session: &Session,
        pool: &OwnedFd,
        data: PoolPointer,
    ) -> Result<(), Failure> {
        let socket = self.connected(session)?;
        self.0.say(&format!("borrow {}", data.text()))?;
        process::send_descriptor(&socket, pool)?;
        ensure_eq!(self.0.line()?, "0", "\"borrow\" in another process");
        Ok(())
    }

    /// Has it import what a descriptor stands for.
    fn imports(&mut self, session: &Session, descriptor: &OwnedFd) -> Result<(), Failure> {
        let socket = self.connected(session)?;
        self.0.say("import")?;
        process::send_descriptor(&socket, descriptor)?;
        ensure_eq!(self.0.line()?, "0", "\"import\" in another process");
        Ok(())
    }

    fn opens(&mut self, handle: &IpcHandle, code: CUresult) -> Result<(), Failure> {
        self.does(&format!("open {}", handle.text()), code)
    }
}

/// This process has imported a maker's memory, then another has: the two, and its descriptor.
fn imported_around(session: &Session, cuda: &Cuda) -> Result<(Holder, Holder, OwnedFd), Failure> {
    let (mut maker, mut other) = (Holder::start(session)?, Holder::start(session)?);
    let descriptor = maker.sends(session, Maker::Cuda)?;
    ensure_eq!(cuda.import_memory(&descriptor).code, OK, "the first import");
    other.imports(session, &descriptor)?;
    Ok((maker, other, descriptor))
}

/// Whoever made the memory is gone, and no descriptor is left.
fn is_shown_by_another(
    session: &Session,
    cuda: &Cuda,
    maker: Holder,
    other: &mut Holder,
    descriptor: OwnedFd,
) -> Result<(), Failure> {
    drop(descriptor);
    let (world, gone) = (session.world()?, maker.0.pid());
    maker.0.finish()?;
    session.eventually("the maker has given everything back", || {
        let processes = world.processes(mock_device::DeviceIndex(0));
        processes.iter().all(|process| process.pid != gone)
    })?;
    is_charged(cuda, other, "two have imported")
}

fn opened(cuda: &Cuda, way: Open, handle: &IpcHandle) -> Result<CUdeviceptr, Failure> {
    let opened = cuda.open_ipc(way, handle);
    ensure_eq!(opened.code, OK, "cuIpcOpenMemHandle, {way:?}");
    Ok(opened.out)
}

pub(super) fn available(cuda: &Cuda) -> Result<Bytes, Failure> {
    let free = cuda.memory_info_free();
    ensure_eq!(free.code, OK, "cuMemGetInfo_v2");
    Ok(Bytes(free.out))
}

/// 3 GiB are refused, to this process and to another, beside 4 that somebody holds under 8; 1 is not: what NVML's row says, which both looked
/// at, is in no account yet.
pub(super) fn is_charged(cuda: &Cuda, other: &mut Holder, what: &str) -> Result<(), Failure> {
    ensure_eq!(
        cuda.allocate(MOST.0).code,
        OUT_OF_MEMORY,
        "3 GiB beside 4 that {what}"
    );
    other.allocates(MOST, OUT_OF_MEMORY)?;
    let least = cuda.allocate(Bytes::gib(1).0);
    ensure_eq!(least.code, OK, "1 GiB beside 4 that {what}");
    ensure_eq!(cuda.free(least.out), OK, "cuMemFree_v2");
    Ok(())
}

/// Nothing of the 4 GiB is charged any longer.
pub(super) fn is_given_back(
    session: &Session,
    cuda: &Cuda,
    other: &mut Holder,
) -> Result<(), Failure> {
    other.allocates(MOST, OK)?;
    fills(fill(cuda).bytes + MOST, budget(session, 0)?, ROOM)
}

cases! {
    /// Memory that a process imported before it has a context is charged once with that context, though its maker has just died and the driver has not
    /// taken that apart.
    imported_memory_of_a_dead_maker_is_no_part_of_a_context {
        kind: Budget, defects: ["R118"], budget: "0=8GiB",
        entry_points: ["cuMemImportFromShareableHandle", "cuDevicePrimaryCtxRetain", "cuMemRelease"],
        needs: ["cuMemImportFromShareableHandle"], unordered: "asks while the driver takes a process apart",
    } (session) {
        let cuda = cuda_without_context()?;
        let mut maker = Holder::start(session)?;
        let descriptor = maker.sends(session, Maker::Cuda)?;
        let imported = cuda.import_memory(&descriptor);
        ensure_eq!(imported.code, OK, "cuMemImportFromShareableHandle without a context");
        drop(descriptor);
        maker.0.kill()?;
        context(&cuda, 0)?;
        ensure_eq!(cuda.release_memory(imported.out), OK, "cuMemRelease");
        std::thread::sleep(std::time::Duration::from_millis(500));
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Memory that its maker freed is charged once, whoever of those that opened it is killed and whoever looks while the driver takes that one apart.
    memory_of_a_dead_opener_is_charged_once {
        kind: Budget, defects: ["R121"], budget: "0=8GiB",
        entry_points: ["cuIpcGetMemHandle", "cuIpcOpenMemHandle_v2", "cuMemAlloc_v2"], unordered: "asks while the driver takes a process apart",
    } (session) {
        let cuda = cuda()?;
        let (mut maker, mut other) = (Holder::start(session)?, Holder::start(session)?);
        let handle = maker.export()?;
        let address = opened(&cuda, Open::Second, &handle)?;
        other.opens(&handle, OK)?;
        maker.does("free", OK)?;
        let (world, dead) = (session.world()?, other.0.pid());
        other.0.kill()?;
        ensure_eq!(cuda.allocate(Bytes::gib(5).0).code, OUT_OF_MEMORY, "5 GiB of 8 beside 4");
        session.eventually("the dead one has given everything back", || {
            world.processes(mock_device::DeviceIndex(0)).iter().all(|process| process.pid != dead)
        })?;
        maker.allocates(Bytes::gib(2), OK)?;
        ensure_eq!(cuda.close_ipc(address), OK, "cuIpcCloseMemHandle");
        maker.0.finish()
    }

    /// Who opens a handle once more is given the same address again, and is no more the last that opened it: what several hold is charged once.
    memory_that_is_opened_once_more_is_charged_once {
        kind: Budget, defects: ["R122"], budget: "0=8GiB", entry_points: ["cuIpcGetMemHandle", "cuIpcOpenMemHandle_v2", "cuMemAlloc_v2"],
    } (session) {
        let cuda = cuda()?;
        let (mut maker, mut other) = (Holder::start(session)?, Holder::start(session)?);
        let handle = maker.export()?;
        other.opens(&handle, OK)?;
        opened(&cuda, Open::Second, &handle)?;
        other.opens(&handle, OK)?;
        maker.does("free", OK)?;
        for _ in 0..2 {
            ensure_eq!(cuda.allocate(Bytes::gib(5).0).code, OUT_OF_MEMORY, "5 GiB of 8 beside 4");
            other.allocates(Bytes::gib(5), OUT_OF_MEMORY)?;
        }
        maker.allocates(Bytes::gib(2), OK)?;
        maker.0.finish()?;
        other.0.finish()
    }

    /// Of two imports of this process the later one is over: who imported the memory in between is the last that did, and its row shows it. It is charged once.
    memory_that_is_imported_twice_and_released_once_is_charged_once {
        kind: Budget, defects: ["R125"], budget: "0=8GiB",
        entry_points: ["cuMemImportFromShareableHandle", "cuMemRelease", "cuMemAlloc_v2"],
    } (session) {
        let cuda = cuda()?;
        let (maker, mut other, descriptor) = imported_around(session, &cuda)?;
        let later = cuda.import_memory(&descriptor);
        ensure_eq!(later.code, OK, "the second import");
        ensure_eq!(cuda.release_memory(later.out), OK, "cuMemRelease of the second import");
        is_shown_by_another(session, &cuda, maker, &mut other, descriptor)
    }

    /// So it is where the later one was refused.
    memory_whose_second_import_is_refused_is_charged_once {
        kind: Budget, defects: ["R125"], budget: "0=8GiB", on_real: No("which sizes a card imports is not recorded"),
        entry_points: ["cuMemImportFromShareableHandle", "cuImportExternalMemory", "cuMemAlloc_v2"],
    } (session) {
        let cuda = cuda()?;
        let (maker, mut other, descriptor) = imported_around(session, &cuda)?;
        let copy = descriptor.try_clone()?;
        ensure!(cuda.import_external(copy, 2 * SHARED.0).is_err(), "twice as much as there is was imported");
        is_shown_by_another(session, &cuda, maker, &mut other, descriptor)
    }

    /// What another process exported and this one opened is charged once, outlives its maker's death, and is given back when
    /// this one closes it.
    opened_memory_outlives_its_makers_death_and_is_charged_once {
        kind: Budget, defects: ["R9"], budget: "0=8GiB",
        entry_points: ["cuIpcGetMemHandle", "cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle"],
    } (session) {
        let cuda = cuda()?;
        let (mut maker, mut other) = (Holder::start(session)?, Holder::start(session)?);
        other.allocates(Bytes::mib(2), OK)?;
        let handle = maker.export()?;
        let before = available(&cuda)?;
        let address = opened(&cuda, Open::Second, &handle)?;
        ensure_eq!(available(&cuda)?, before, "free when it is opened");
        is_charged(&cuda, &mut other, "two hold")?;
        maker.0.kill()?;
        is_charged(&cuda, &mut other, "their maker's death left to this process")?;
        ensure_eq!(cuda.close_ipc(address), OK, "cuIpcCloseMemHandle");
        is_given_back(session, &cuda, &mut other)
    }

    /// What its maker frees stays charged as long as somebody has it open, whether that ends by closing, with its context, or
    /// with its process.
    opened_memory_outlives_its_makers_free {
        kind: Budget, defects: ["R9"], budget: "0=8GiB",
        entry_points: ["cuIpcGetMemHandle", "cuIpcOpenMemHandle", "cuIpcCloseMemHandle", "cuMemFree_v2", "cuDevicePrimaryCtxReset_v2"],
    } (session) {
        let cuda = cuda_without_context()?;
        let (mut maker, mut other) = (Holder::start(session)?, Holder::start(session)?);
        other.allocates(Bytes::mib(2), OK)?;
        for end in ["a closing", "a reset", "a death"] {
            context(&cuda, 0)?;
            let handle = maker.export()?;
            let mut third = match end {
                "a death" => Some(Holder::start(session)?),
                _ => None,
            };
            let address = match &mut third {
                Some(third) => {
                    third.opens(&handle, OK)?;
                    0
                }
                None => opened(&cuda, Open::First, &handle)?,
            };
            maker.does("free", OK)?;
            ensure_eq!(cuda.allocate(SHARED.0).code, OUT_OF_MEMORY, "4 GiB beside 4 that are open, before {end}");
            other.allocates(SHARED, OUT_OF_MEMORY)?;
            match (end, third) {
                (_, Some(mut third)) => drop(third.0.kill()?),
                ("a closing", None) => ensure_eq!(cuda.close_ipc(address), OK, "cuIpcCloseMemHandle"),
                _ => ensure_eq!(cuda.reset_primary(0), OK, "cuDevicePrimaryCtxReset_v2"),
            }
            context(&cuda, 0)?;
            let plain = cuda.allocate(SHARED.0);
            ensure_eq!(plain.code, OK, "4 GiB after {end}");
            ensure_eq!(cuda.free(plain.out), OK, "cuMemFree_v2");
        }
        maker.0.finish()?;
        is_given_back(session, &cuda, &mut other)
    }

    /// A handle is open in one context of a process: in another it is none, and what closes it there is the first one's. It is charged to nobody then, once
    /// its maker has died.
    opened_memory_is_one_contexts_of_a_process {
        kind: Budget, defects: ["R9"], budget: "0=8GiB",
        entry_points: ["cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle", "cuCtxDestroy_v2"],
    } (session) {
        let cuda = cuda_without_context()?;
        for closes in [false, true] {
            let (mut maker, mut other) = (Holder::start(session)?, Holder::start(session)?);
            other.allocates(Bytes::mib(2), OK)?;
            let handle = maker.export()?;
            let (first, second) = (cuda.create_context(0), cuda.create_context(0));
            ensure_eq!((first.code, second.code), (OK, OK), "cuCtxCreate_v2");
            cuda.set_current(first.out);
            let address = opened(&cuda, Open::Second, &handle)?;
            cuda.set_current(second.out);
            let code = cuda.open_ipc(Open::Second, &handle).code;
            ensure_eq!(code, CUresult::ERROR_INVALID_HANDLE, "cuIpcOpenMemHandle_v2 in another context");
            maker.0.kill()?;
            let ended = if closes { cuda.close_ipc(address) } else { cuda.destroy_context(first.out) };
            ensure_eq!(ended, OK, "cuIpcCloseMemHandle in another context, {closes}, or cuCtxDestroy_v2");
            if closes {
                ensure_eq!(cuda.destroy_context(first.out), OK, "cuCtxDestroy_v2");
            }
            cuda.set_current(second.out);
            is_given_back(session, &cuda, &mut other)?;
            ensure_eq!(cuda.destroy_context(second.out), OK, "cuCtxDestroy_v2");
            other.0.finish()?;
        }
        Ok(())
    }

    /// What several hold explains the row that it is in, and no other's: while its maker lives that one's, then that of who opened it last. What a driver
    /// takes unasked beside it is charged to each of them.
    held_memory_explains_no_row_that_it_is_not_in {
        kind: Budget, defects: ["R17e"], entry_points: ["cuIpcOpenMemHandle", "vkEndCommandBuffer", "vkAllocateMemory"], budget: "0=8GiB",
    } (session) {
        let (cuda, nvml) = (cuda()?, nvml()?);
        for (dies, is_last) in [(false, true), (true, false), (true, true)] {
            let what = format!("its maker dies: {dies}, opened here at last: {is_last}");
            let (mut maker, mut other) = (Holder::start(session)?, Holder::start(session)?);
            let tenants = [std::process::id(), maker.0.pid(), other.0.pid()];
            let handle = maker.export()?;
            if is_last {
                other.opens(&handle, OK)?;
            }
            let address = opened(&cuda, Open::Second, &handle)?;
            if !is_last {
                other.opens(&handle, OK)?;
            }
            if dies {
                let pid = maker.0.pid();
                maker.0.kill()?;
                while rows(&nvml)?.iter().any(|(of, _)| *of == pid) {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
            let gpu = Gpu::first()?;
            let worker = gpu.instance.worker(gpu.physical, Route::Submit)?;
            let before = row(&nvml)?;
            for _ in 0..RECORDED {
                worker.record_dispatches(DISPATCHES)?;
            }
            let taken = row(&nvml)?.saturating_sub(before);
            ensure!(taken >= Bytes(u64::from(RECORDED) << 19), "{RECORDED} command buffers took {taken}; {what}");
            let filled = gpu.fill();
            filled.refused_with(Code::OUT_OF_DEVICE_MEMORY)?;
            // A card has other cases' processes, too.
            let of_tenant = rows(&nvml)?.into_iter().filter(|(pid, _)| tenants.contains(pid));
            let held = of_tenant.fold(Bytes::ZERO, |sum, (_, used)| sum + Bytes(used));
            let budget = budget(session, 0)?;
            ensure!(held <= budget + UNSEEN, "{held} in NVML's rows under {budget}; {what}");
            fills(held, budget, Bytes(CONTEXT_ROOM.0 + VULKAN_ROOM.0))?;
            drop((filled, worker, gpu));
            ensure_eq!(cuda.close_ipc(address), OK, "cuIpcCloseMemHandle; {what}");
            other.0.finish()?;
        }
        Ok(())
    }

    /// So does what another process exported as a descriptor, also while nothing but the descriptor holds it.
    imported_memory_outlives_its_makers_death_and_is_charged_once {
        kind: Budget, defects: ["R9", "R5"], budget: "0=8GiB",
        entry_points: ["cuMemExportToShareableHandle", "cuMemImportFromShareableHandle", "cuMemRelease"],
    } (session) {
        let cuda = cuda()?;
        let mut other = Holder::start(session)?;
        other.allocates(Bytes::mib(2), OK)?;
        for imports_first in [true, false] {
            let mut maker = Holder::start(session)?;
            let descriptor = maker.sends(session, Maker::Cuda)?;
            let before = available(&cuda)?;
            let mut imported = None;
            if imports_first {
                imported = Some(cuda.import_memory(&descriptor));
                ensure_eq!(available(&cuda)?, before, "free when it is imported");
            }
            is_charged(&cuda, &mut other, "two hold")?;
            maker.0.kill()?;
            is_charged(&cuda, &mut other, "their maker's death left to this process")?;
            let handle = imported.unwrap_or_else(|| cuda.import_memory(&descriptor));
            ensure_eq!(handle.code, OK, "cuMemImportFromShareableHandle");
            is_charged(&cuda, &mut other, "this process imported")?;
            drop(descriptor);
            is_charged(&cuda, &mut other, "this process imported, its descriptor closed")?;
            ensure_eq!(cuda.release_memory(handle.out), OK, "cuMemRelease");
            let plain = cuda.allocate(SHARED.0);
            ensure_eq!(plain.code, OK, "4 GiB when it is released");
            ensure_eq!(cuda.free(plain.out), OK, "cuMemFree_v2");
        }
        is_given_back(session, &cuda, &mut other)
    }

    /// A descriptor that is closed holds nothing any longer, whoever closed it, and whether its maker lives.
    closed_descriptors_are_charged_no_longer {
        kind: Budget, defects: ["R9", "R5"], budget: "0=8GiB", entry_points: ["cuMemExportToShareableHandle", "cuMemRelease"],
    } (session) {
        let cuda = cuda()?;
        let mut other = Holder::start(session)?;
        other.allocates(Bytes::mib(2), OK)?;
        let created = cuda.create_memory_for(Purpose::Sharing, 0, SHARED.0);
        ensure_eq!(created.code, OK, "cuMemCreate");
        let descriptors = [cuda.export_memory(created.out), cuda.export_memory(created.out)];
        ensure_eq!(cuda.release_memory(created.out), OK, "cuMemRelease");
        for descriptor in descriptors {
            ensure_eq!(descriptor.as_ref().err(), None, "cuMemExportToShareableHandle");
            is_charged(&cuda, &mut other, "a descriptor holds")?;
        }
        let plain = cuda.allocate(SHARED.0);
        ensure_eq!(plain.code, OK, "4 GiB when both are closed");
        ensure_eq!(cuda.free(plain.out), OK, "cuMemFree_v2");
        let mut maker = Holder::start(session)?;
        let descriptor = maker.sends(session, Maker::Cuda)?;
        maker.0.kill()?;
        is_charged(&cuda, &mut other, "the descriptor of a dead process holds")?;
        drop(descriptor);
        is_given_back(session, &cuda, &mut other)
    }

    /// What descriptors hold is granted to nobody again, however small the pieces: 64 MiB at a time, created, exported and released, come to the budget. Of
    /// more closed descriptors than the ledger has rows nothing stays charged.
    exported_pieces_come_to_the_budget_and_closed_ones_to_nothing {
        kind: Budget, defects: ["R9", "R5"], budget: "0=3GiB", entry_points: ["cuMemCreate", "cuMemExportToShareableHandle", "cuMemRelease"],
    } (session) {
        let cuda = cuda()?;
        let piece = |bytes: Bytes| -> Result<Option<OwnedFd>, Failure> {
            let created = cuda.create_memory_for(Purpose::Sharing, 0, bytes.0);
            if created.code == OUT_OF_MEMORY {
                return Ok(None);
            }
            ensure_eq!(created.code, OK, "cuMemCreate");
            let descriptor = cuda.export_memory(created.out);
            ensure_eq!(cuda.release_memory(created.out), OK, "cuMemRelease");
            match descriptor {
                Ok(descriptor) => Ok(Some(descriptor)),
                Err(code) => fail!("cuMemExportToShareableHandle answered {code:?}"),
            }
        };
        for _ in 0..1100 {
            ensure_eq!(piece(Bytes::mib(2))?.is_some(), true, "2 MiB beside closed descriptors");
        }
        let mut held = Vec::new();
        while held.len() < 100 {
            let Some(descriptor) = piece(Bytes::mib(64))? else { break };
            held.push(descriptor);
        }
        fills(Bytes::mib(64 * held.len() as u64), budget(session, 0)?, ROOM)
    }

    /// A handle that nobody in the ledger made is charged to who opens it, and refused where that does not fit.
    memory_of_nobody_known_is_charged_to_who_opens_it {
        kind: Budget, defects: ["R9"], budget: "0=8GiB",
        entry_points: ["cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle"],
    } (session) {
        let cuda = cuda()?;
        let mut stranger = Holder::stranger(session)?;
        let mut other = Holder::start(session)?;
        let handle = stranger.export()?;
        other.opens(&handle, OK)?;
        let refused = cuda.open_ipc(Open::Second, &handle);
        ensure_eq!((refused.code, refused.out), (OUT_OF_MEMORY, UNTOUCHED), "4 GiB of 8 beside 4");
        other.0.finish()?;
        // It does not fit before the other's is back, so that nothing changes any more after.
        let address = opened(&cuda, Open::Second, &handle)?;
        let left = available(&cuda)?;
        ensure_eq!(cuda.close_ipc(address), OK, "cuIpcCloseMemHandle");
        ensure_eq!(available(&cuda)?, left + SHARED, "free when it is closed");
        stranger.0.finish()
    }

    /// What was opened and refused is closed again even where the driver fails to at first: nobody holds it uncharged.
    a_refused_opening_that_will_not_close_at_once_is_closed_all_the_same {
        kind: Budget, defects: ["R9"], budget: "0=8GiB",
        entry_points: ["cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle"],
        faults: r#"fault = [{ at = "cuIpcCloseMemHandle", when = "1", then = "result:999", role = "case" }]"#,
    } (session) {
        let cuda = cuda()?;
        let mut stranger = Holder::stranger(session)?;
        let mut other = Holder::start(session)?;
        let handle = stranger.export()?;
        other.opens(&handle, OK)?;
        let refused = cuda.open_ipc(Open::Second, &handle);
        ensure_eq!((refused.code, refused.out), (OUT_OF_MEMORY, UNTOUCHED), "4 GiB of 8 beside 4");
        other.0.finish()?;
        stranger.0.finish()?;
        // What is left of the memory would be held by this process.
        let device = mock_device::DeviceIndex(0);
        let world = session.world()?;
        let mut code = OK;
        session.eventually("nobody holds the stranger's memory", || {
            code = cuda.memory_info().code;
            code != OK || world.used(device) < SHARED
        })?;
        ensure_eq!(code, OK, "cuMemGetInfo_v2 while it is waited for");
        Ok(())
    }
}

/// What the role holds.
#[derive(Default)]
struct Hands {
    cuda: Option<Cuda>,
    listener: Option<UnixListener>,
    pointer: CUdeviceptr,
    pool: Option<Pool>,
    asker: Option<Asker>,
}

impl Hands {
    fn obey(&mut self, command: &str) -> Result<String, Failure> {
        let (verb, object) = command.split_once(' ').unwrap_or((command, ""));
        if verb == "listen" {
            self.listener = Some(UnixListener::bind(object)?);
            return Ok(OK.0.to_string());
        }
        if self.cuda.is_none() {
            self.cuda = Some(cuda()?);
        }
        let Some(cuda) = &self.cuda else {
            fail!("no CUDA");
        };
        let code = match verb {
            "allocate" => {
                let bytes = object
                    .parse()
                    .map_err(|_| Failure::Broken(command.to_owned()))?;
                let answer = cuda.allocate(bytes);
                if answer.code == OK {
                    self.pointer = answer.out;
                }
                answer.code
            }
            "export" => {
                let answer = cuda.export_ipc(self.pointer);
                ensure_eq!(answer.code, OK, "cuIpcGetMemHandle");
                return Ok(answer.out.text());
            }
            "open" => match IpcHandle::parse(object) {
                Some(handle) => cuda.open_ipc(Open::Second, &handle).code,
                None => fail!("\"{command}\" names no handle"),
            },
            "free" => cuda.free(self.pointer),
            "send-Vulkan" => {
                let socket = accepted(&mut self.listener)?;
                let asker = Asker::new()?;
                let descriptor = external::exported(&asker, SHARED)?.1;
                process::send_descriptor(&socket, &descriptor)?;
                self.asker = Some(asker);
                OK
            }
            "send-Cuda" => {
                let socket = accepted(&mut self.listener)?;
                let created = cuda.create_memory_for(Purpose::Sharing, 0, SHARED.0);
                ensure_eq!(created.code, OK, "cuMemCreate");
                match cuda.export_memory(created.out) {
                    Ok(descriptor) => process::send_descriptor(&socket, &descriptor)?,
                    Err(code) => fail!("cuMemExportToShareableHandle answered {code:?}"),
                }
                OK
            }
            "import" => {
                let descriptor = process::receive_descriptor(&accepted(&mut self.listener)?)?;
                cuda.import_memory(&descriptor).code
            }
            "lend" => {
                let socket = accepted(&mut self.listener)?;
                let pool = cuda.create_shared_pool(0);
                let bytes = Bytes(object.parse().unwrap_or(SHARED.0));
                let taken = cuda.allocate_from_pool(Stream::Legacy, pool.out, bytes.0);
                ensure_eq!(
                    (pool.code, taken.code, cuda.synchronize()),
                    (OK, OK, OK),
                    "{bytes} of a shared pool"
                );
                (self.pointer, self.pool) = (taken.out, Some(pool.out));
                match cuda.export_pool(pool.out) {
                    Ok(descriptor) => process::send_descriptor(&socket, &descriptor)?,
                    Err(code) => fail!("cuMemPoolExportToShareableHandle answered {code:?}"),
                }
                let exported = cuda.export_pool_pointer(taken.out);
                ensure_eq!(exported.code, OK, "cuMemPoolExportPointer");
                return Ok(exported.out.text());
            }
            "borrow" => {
                let descriptor = process::receive_descriptor(&accepted(&mut self.listener)?)?;
                let pool = cuda.import_pool(&descriptor);
                ensure_eq!(pool.code, OK, "cuMemPoolImportFromShareableHandle");
                match PoolPointer::parse(object) {
                    Some(data) => cuda.import_pool_pointer(pool.out, data).code,
                    None => fail!("\"{command}\" names no pointer"),
                }
            }
            "free-pool" => {
                ensure_eq!(cuda.free(self.pointer), OK, "cuMemFree_v2 in a holder");
                self.pool.take().map_or(OK, |pool| cuda.destroy_pool(pool))
            }
            _ => fail!("a holder cannot \"{command}\""),
        };
        Ok(code.0.to_string())
    }
}

/// The other end of the socket that a holder listens for.
fn accepted(listener: &mut Option<UnixListener>) -> Result<UnixStream, Failure> {
    match listener.take() {
        Some(listener) => Ok(listener.accept()?.0),
        None => fail!("nobody asked a holder to listen"),
    }
}

roles! {
    /// Makes memory, exports it and opens that of others, a command a line.
    holder(_session, parent) {
        let mut hands = Hands::default();
        serve(parent, &mut hands)
    }
}

fn serve(parent: &mut Parent, hands: &mut Hands) -> Result<(), Failure> {
    while let Some(command) = parent.hear() {
        let answer = hands.obey(&command)?;
        parent.say(&answer)?;
    }
    Ok(())
}
