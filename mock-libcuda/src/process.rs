//! What one process holds of the devices: contexts, allocations, pools. One lock guards it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use abi::cuda::CUresult;
use mock_device::{Bytes, Kind};

use crate::arena::{Blocks, Holes};
use crate::array::Arrays;
use crate::boundary::Backing;
use crate::capture::Captures;
use crate::contents::Contents;
use crate::driver::{Driver, Ordinal};
use crate::event::Event;
use crate::external::Imports;
use crate::external_semaphore::Semaphores;
use crate::graph::Graphs;
use crate::green::{Green, Sms};
use crate::host::{HostAllocation, PageTables};
use crate::ipc::Opened;
use crate::managed::Managed;
use crate::module::Modules;
use crate::movement::Movements;
use crate::narrow::Narrow;
use crate::pool::{Pool, PoolPlace};
use crate::reservation::Reservations;
use crate::sharing::Sharing;
use crate::stream::Stream;
use crate::texture_reference::References;
use crate::timeline::Timeline;
use crate::view::Views;
use crate::vmm::PhysicalMemory;

/// Index into [`Process::contexts`]; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextId(pub u32);

/// Index into [`Process::pools`]; the devices' default pools come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolId(pub u32);

pub struct Context {
    pub device: Ordinal,
    pub flags: u32,
    pub primary: bool,
    /// Made by the first generation's cuCtxCreate.
    pub legacy: bool,
    pub alive: bool,
    pub limits: HashMap<i32, usize>,
    /// Blocks that this context's small allocations share.
    pub small: Blocks,
    /// Blocks that its small arrays share, by bytes of an element.
    pub array_blocks: BTreeMap<u64, Blocks>,
    /// A number that no context of the process had before.
    pub number: u64,
    /// Calls of cuCtxAttach that no cuCtxDetach has taken back.
    pub attached: u32,
    /// Contexts whose memory this one may reach.
    pub peers: BTreeSet<ContextId>,
    /// Of a green context: what it is a part of.
    pub green: Option<Green>,
    /// Green contexts that were made of this one; of a green one, its streams.
    pub greens: u32,
    /// What they took, which goes back when this one ends.
    pub green_memory: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Primary {
    pub retained: u32,
    pub flags: u32,
    pub context: Option<ContextId>,
}

/// Who gave an allocation its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A part of a block of its context.
    Shared,
    /// Whole blocks of its own.
    Blocks,
    Managed,
    Pool(PoolId),
    /// A graph's; [`crate::graph_memory`] keeps its books.
    Graph,
    /// A module's variable: it goes with its module.
    Module,
    /// Another process's, opened by IPC.
    Opened,
    /// A 32-bit context's; [`crate::narrow`] knows what lies behind it.
    Narrow,
    /// A buffer of imported memory, by the import's id.
    External(u32),
}

#[derive(Clone, Copy, Debug)]
pub struct Allocation {
    /// As asked for.
    pub size: u64,
    /// As taken.
    pub taken: u64,
    pub context: ContextId,
    pub device: Ordinal,
    pub owner: Owner,
    pub id: u64,
}

/// Bytes of address space that a device has at least.
const LEAST_SPAN: u64 = 4 << 40;

/// The device addresses of one device.
pub struct Arena {
    pub holes: Holes,
    pub contents: Contents,
    span: u64,
}

pub struct Process {
    pub contexts: Vec<Context>,
    pub primaries: Vec<Primary>,
    pub allocations: BTreeMap<u64, Allocation>,
    pub pools: Vec<Pool>,
    /// The pool that cuMemAllocAsync uses, by device.
    pub current_pools: Vec<PoolId>,
    /// Each device's default pool of managed memory and its current one, once anybody asked.
    pub pools_of: BTreeMap<PoolPlace, [PoolId; 2]>,
    pub streams: HashMap<u32, Stream>,
    /// Streams that ended with their context.
    pub lost_streams: std::collections::HashSet<u32>,
    /// Contexts of which a thread sets the stack, and waits until they are idle.
    pub restacking: std::collections::HashSet<ContextId>,
    /// Device memory that each context's executable graphs took for what runs side by side.
    pub branch_memory: HashMap<ContextId, u64>,
    /// Device memory that each context's streams took.
    pub stream_memory: HashMap<ContextId, u64>,
    pub events: HashMap<u32, Event>,
    /// What CUdevResourceDesc handles stand for.
    pub partitions: Vec<(Ordinal, Sms)>,
    pub event_objects: crate::ipc_event::Kept,
    pub timeline: Timeline,
    pub movements: Movements,
    pub captures: Captures,
    pub graphs: Graphs,
    pub arrays: Arrays,
    pub views: Views,
    pub references: References,
    pub physical: PhysicalMemory,
    pub reservations: Reservations,
    pub host: BTreeMap<u64, HostAllocation>,
    /// By device.
    pub page_tables: Vec<PageTables>,
    pub managed: Managed,
    pub sharing: Sharing,
    pub opened: Opened,
    pub imports: Imports,
    pub semaphores: Semaphores,
    pub modules: Modules,
    /// The 32-bit addresses of each device.
    pub narrow: BTreeMap<Ordinal, Narrow>,
    arenas: Vec<Option<Arena>>,
    next_handle: u32,
    next_buffer: u64,
    /// Stream-ordered frees so far.
    pub frees: u64,
}

thread_local! {
    static STACK: RefCell<Vec<ContextId>> = const { RefCell::new(Vec::new()) };
}

/// The calling thread's stack of contexts; an empty one while the thread's own data is being destroyed, when clients'
/// destructors still call.
pub fn with_stack<R>(act: impl FnOnce(&mut Vec<ContextId>) -> R) -> R {
    let mut act = Some(act);
    let mut once = |stack: &mut Vec<ContextId>| act.take().map(|act| act(stack));
    let done = STACK.try_with(|stack| once(&mut stack.borrow_mut()));
    done.ok()
        .flatten()
        .or_else(|| once(&mut Vec::new()))
        .expect("called once")
}

impl Process {
    pub fn new(devices: usize) -> Process {
        Process {
            contexts: Vec::new(),
            primaries: vec![Primary::default(); devices],
            allocations: BTreeMap::new(),
            pools: (0..devices)
                .map(|device| Pool::new(Ordinal(device), 0))
                .collect(),
            current_pools: (0..devices as u32).map(PoolId).collect(),
            pools_of: BTreeMap::new(),
            streams: HashMap::new(),
            lost_streams: Default::default(),
            restacking: Default::default(),
            branch_memory: HashMap::new(),
            stream_memory: HashMap::new(),
            events: HashMap::new(),
            partitions: Vec::new(),
            event_objects: Default::default(),
            timeline: Timeline::default(),
            movements: Movements::default(),
            captures: Captures::default(),
            graphs: Graphs::default(),
            arrays: Arrays::default(),
            views: Views::default(),
            references: References::default(),
            physical: PhysicalMemory::default(),
            reservations: Reservations::default(),
            host: BTreeMap::new(),
            page_tables: (0..devices).map(|_| PageTables::default()).collect(),
            managed: Managed::default(),
            sharing: Sharing::default(),
            opened: Opened::default(),
            imports: Imports::default(),
            semaphores: Semaphores::default(),
            modules: Modules::default(),
            narrow: BTreeMap::new(),
            arenas: (0..devices).map(|_| None).collect(),
            next_handle: 0,
            next_buffer: 0,
            frees: 0,
        }
    }

    /// The calling thread's context, a green one's primary; INVALID_CONTEXT without one.
    pub fn current(&self) -> Result<ContextId, CUresult> {
        let top =
            with_stack(|stack| stack.last().copied()).ok_or(CUresult::ERROR_INVALID_CONTEXT)?;
        if self.context(top).alive {
            Ok(self.based(top))
        } else {
            Err(CUresult::ERROR_CONTEXT_IS_DESTROYED)
        }
    }

    pub fn context(&self, id: ContextId) -> &Context {
        &self.contexts[id.0 as usize]
    }

    pub fn context_mut(&mut self, id: ContextId) -> &mut Context {
        &mut self.contexts[id.0 as usize]
    }

    pub fn next_handle(&mut self) -> u32 {
        self.next_handle += 1;
        self.next_handle
    }

    /// The device whose address space holds `address`.
    pub fn device_at(&self, address: u64) -> Option<Ordinal> {
        let inside = |arena: &Option<Arena>| {
            arena
                .as_ref()
                .is_some_and(|arena| address.wrapping_sub(arena.contents.base()) < arena.span)
        };
        self.arenas.iter().position(inside).map(Ordinal)
    }

    /// The live allocation that holds all of a range.
    pub fn holding(&self, address: u64, len: u64) -> Option<(u64, &Allocation)> {
        let (&base, allocation) = self.allocations.range(..=address).next_back()?;
        let end = address.checked_add(len)?;
        (address < base + allocation.size && end <= base + allocation.size)
            .then_some((base, allocation))
    }

    pub fn arena(&mut self, driver: &Driver, device: Ordinal) -> Result<&mut Arena, CUresult> {
        let slot = &mut self.arenas[device.0];
        if slot.is_none() {
            // Room for fragmentation and for pools, each of which may grow to the whole: a card's address space is far
            // larger than its memory too.
            let span = driver.profile(device).cuda_total.0 * 16;
            let span = span.next_power_of_two().max(LEAST_SPAN);
            let backing = Backing::reserve(span).map_err(|_| CUresult::ERROR_OPERATING_SYSTEM)?;
            let contents = Contents::new(backing);
            *slot = Some(Arena {
                holes: Holes::new(contents.base(), span),
                contents,
                span,
            });
        }
        Ok(slot.as_mut().expect("just made"))
    }

    /// A pool, and the addresses of its device.
    pub fn pool_and_arena(
        &mut self,
        driver: &Driver,
        id: PoolId,
    ) -> Result<(&mut Pool, &mut Arena), CUresult> {
        let device = self.pools[id.0 as usize].device;
        self.arena(driver, device)?;
        let arena = self.arenas[device.0].as_mut().expect("just made");
        Ok((&mut self.pools[id.0 as usize], arena))
    }

    /// Whole blocks of device memory, counted by the world. Before it is refused, what this process's pools hold
    /// unused goes back.
    pub fn take(
        &mut self,
        driver: &Driver,
        device: Ordinal,
        kind: Kind,
        len: u64,
    ) -> Result<u64, CUresult> {
        self.charge(driver, device, kind, len)?;
        let taken = self.take_addresses(driver, device, len);
        if taken.is_err() {
            let index = driver.index(device);
            driver.world.give_back(index, kind, Bytes(len));
        }
        taken
    }

    /// Addresses of a device; those of graphs that are gone are given back where there are no others.
    pub fn take_addresses(
        &mut self,
        driver: &Driver,
        device: Ordinal,
        len: u64,
    ) -> Result<u64, CUresult> {
        if let Some(base) = self.arena(driver, device)?.holes.take(len) {
            return Ok(base);
        }
        crate::graph_memory::give_addresses_back(self, driver, device)?;
        let holes = &mut self.arena(driver, device)?.holes;
        holes.take(len).ok_or(CUresult::ERROR_OUT_OF_MEMORY)
    }

    /// Counts memory that has no address.
    pub fn charge(
        &mut self,
        driver: &Driver,
        device: Ordinal,
        kind: Kind,
        len: u64,
    ) -> Result<(), CUresult> {
        let index = driver.index(device);
        if driver.world.take(index, kind, Bytes(len)).is_ok() {
            return Ok(());
        }
        if self.trim_pools(driver, device) == 0 {
            return Err(CUresult::ERROR_OUT_OF_MEMORY);
        }
        driver
            .world
            .take(index, kind, Bytes(len))
            .map_err(|_| CUresult::ERROR_OUT_OF_MEMORY)
    }

    pub fn give_back(&mut self, driver: &Driver, device: Ordinal, kind: Kind, base: u64, len: u64) {
        if let Some(arena) = self.arenas[device.0].as_mut() {
            arena.contents.forget(base, base + len);
            arena.holes.give(base, len);
        }
        // What became an object counts as long as others hold it.
        if !self.sharing.end(base) {
            let index = driver.index(device);
            driver.world.give_back(index, kind, Bytes(len));
        }
    }

    /// A number for memory that no other memory of the process had.
    pub fn next_buffer(&mut self) -> u64 {
        self.next_buffer += 1;
        self.next_buffer
    }

    /// Enters an allocation into the books.
    pub fn enter(&mut self, address: u64, size: u64, taken: u64, context: ContextId, owner: Owner) {
        let id = self.next_buffer();
        // A pool's memory and another process's lie where they lie, whatever context asks.
        let device = match owner {
            Owner::Pool(id) => self.pools[id.0 as usize].device,
            Owner::Opened => self
                .device_at(address)
                .unwrap_or(self.context(context).device),
            _ => self.context(context).device,
        };
        self.allocations.insert(
            address,
            Allocation {
                size,
                taken,
                context,
                device,
                owner,
                id,
            },
        );
    }

    /// All of a context's memory, as its end returns it.
    pub fn release_context_memory(&mut self, driver: &Driver, id: ContextId) {
        self.unload_context(driver, id);
        self.end_allocations(driver, id);
        self.drop_streams(driver, id);
        self.unmap_host_of(driver, id);
        self.end_arrays(driver, id);
    }
}
