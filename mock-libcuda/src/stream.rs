//! Streams: their handles, their properties, waiting for them. When their work is done is the [timeline](crate::timeline)'s.

mod property;

pub use self::property::*;

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use abi::cuda::enumerations::*;
use abi::cuda::*;
use mock_device::{Bytes, Direction, Grid, Kind};

use crate::boundary::{Answer, In, Kept, Out, Slot, crash};
use crate::capture;
use crate::context;
use crate::driver::{self, Driver};
use crate::event;
use crate::handle;
use crate::launch::KernelCost;
use crate::process::{ContextId, Process};
use crate::timeline::{self, LineId, Load, Moment, Op};

pub struct Stream {
    pub context: ContextId,
    /// The green context that it belongs to, a part of `context`.
    pub green: Option<ContextId>,
    pub flags: u32,
    pub priority: i32,
    pub attributes: HashMap<CUlaunchAttributeID, Kept<CUkernelNodeAttrValue_v1>>,
}

const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;
/// Greatest priority; the least is 0.
const GREATEST: i32 = -5;
const NON_BLOCKING: u32 = 1;

/// Device memory that so many streams of a context take: each 512 KiB of one kind and 48 KiB of another, in blocks, the
/// first of which the context has already (H200, 580.159.04: every step of 1 to 271 streams).
fn stream_memory(count: u64) -> u64 {
    const BLOCK: u64 = 2 << 20;
    let blocks = |each: u64, had: u64| (count * each + had) / BLOCK;
    BLOCK * (blocks(512 << 10, 1024 << 10) + blocks(48 << 10, 320 << 10))
}

thread_local! {
    static NULL_IS_PER_THREAD: Cell<bool> = const { Cell::new(false) };
    static THREAD: Numbered = const { Numbered(Cell::new(0)) };
}

/// Runs an entry point's handler. In those that end in `_ptsz` and `_ptds` the NULL stream is the thread's own.
pub fn as_called<R>(name: &str, act: impl FnOnce() -> R) -> R {
    if !(name.ends_with("_ptsz") || name.ends_with("_ptds")) {
        return act();
    }
    let before = NULL_IS_PER_THREAD.try_with(|flag| flag.replace(true));
    let done = act();
    let _ = NULL_IS_PER_THREAD.try_with(|flag| flag.set(before.unwrap_or(false)));
    done
}

fn null_is_per_thread() -> bool {
    NULL_IS_PER_THREAD.try_with(Cell::get).unwrap_or(false)
}

/// A thread's number, and its end.
struct Numbered(Cell<u64>);

/// Threads that are gone, whose default streams serve the next (H200, 580.159.04: 200 threads after 200 took nothing more).
static GONE: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

impl Drop for Numbered {
    fn drop(&mut self) {
        let mut gone = GONE.lock().unwrap_or_else(PoisonError::into_inner);
        gone.insert(self.0.get());
    }
}

/// Whether a thread of that number is gone.
pub fn is_gone(thread: u64) -> bool {
    let gone = GONE.lock().unwrap_or_else(PoisonError::into_inner);
    gone.contains(&thread)
}

/// A number for the calling thread that no other thread of the process has had.
pub fn this_thread() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let numbered = THREAD.try_with(|thread| {
        if thread.0.get() == 0 {
            thread.0.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        thread.0.get()
    });
    numbered.unwrap_or(0)
}

/// What a handle says.
enum Named {
    Legacy,
    PerThread,
    Created(u32),
}

fn named(stream: CUstream) -> Result<Named, CUresult> {
    match stream.0 as u64 {
        0 if null_is_per_thread() => Ok(Named::PerThread),
        0 | LEGACY => Ok(Named::Legacy),
        PER_THREAD => Ok(Named::PerThread),
        other => handle::decode(handle::Kind::Stream, other)
            .map(Named::Created)
            // The driver follows what it is given; a number that never was a stream ends the process.
            .map_or_else(|| crate::boundary::crash(), Ok),
    }
}

/// What is put on a stream: what it costs and where.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    Copy {
        bytes: Bytes,
        direction: Direction,
        /// Host memory that is not page-locked: the call returns when it has been read or written.
        pageable: bool,
    },
    /// A memset.
    Fill {
        bytes: Bytes,
    },
    Kernel(KernelCost),
    /// Acts in order and takes no time.
    Nothing,
}

impl Work {
    pub fn load(&self, driver: &Driver, process: &Process, context: ContextId) -> Load {
        let profile = driver.profile(process.context(context).device);
        match self {
            Work::Copy {
                bytes,
                direction,
                pageable,
            } => Load::of(profile.cost.copying(*direction, *pageable, *bytes)),
            Work::Fill { bytes } => Load::of(profile.cost.filling(*bytes)),
            Work::Kernel(kernel) => {
                let grid = Grid {
                    blocks: kernel.blocks,
                    sms: kernel.sms,
                    blocks_per_sm: kernel.blocks_per_sm,
                    instructions: kernel.instructions.into(),
                };
                Load {
                    task: Some(profile.cost.launching(&grid)),
                    fault: kernel.fault.or_else(crate::admission::planned_fault),
                }
            }
            Work::Nothing => Load::nothing(),
        }
    }
}

impl Process {
    /// The context that a stream belongs to; INVALID_HANDLE for a number that is none.
    pub fn stream_context(&self, stream: CUstream) -> Result<ContextId, CUresult> {
        match named(stream)? {
            Named::Legacy | Named::PerThread => self.current(),
            Named::Created(id) => self.created(id).map(|stream| stream.context),
        }
    }

    fn created(&self, id: u32) -> Result<&Stream, CUresult> {
        match self.streams.get(&id) {
            Some(stream) => Ok(stream),
            None if self.lost_streams.contains(&id) => Err(CUresult::ERROR_CONTEXT_IS_DESTROYED),
            None => Err(CUresult::ERROR_INVALID_CONTEXT),
        }
    }

    /// A created stream; `None` for the default ones.
    fn stream_of(&self, stream: CUstream) -> Result<Option<&Stream>, CUresult> {
        match named(stream)? {
            Named::Created(id) => self.created(id).map(Some),
            _ => Ok(None),
        }
    }

    /// The line that a stream's work stands in.
    pub fn line_of(&mut self, stream: CUstream) -> Result<LineId, CUresult> {
        let context = self.stream_context(stream)?;
        Ok(match named(stream)? {
            Named::Legacy => self.legacy_line(context),
            Named::PerThread => match self.timeline.per_thread(context, this_thread()) {
                Some(line) => line,
                None => {
                    let line = match self.timeline.take_per_thread(context, is_gone) {
                        Some(line) => line,
                        None => self.open_stream_line(driver::get()?, context, true)?,
                    };
                    self.timeline.set_per_thread(context, this_thread(), line);
                    line
                }
            },
            Named::Created(id) => LineId(id),
        })
    }

    /// Whether a handle names the legacy stream.
    pub fn is_legacy(stream: CUstream) -> bool {
        matches!(named(stream), Ok(Named::Legacy))
    }

    /// A line for a created stream or for a thread's default one, with the device memory that it takes. What was taken
    /// for the most streams that there were at a time stays with the context.
    fn open_stream_line(
        &mut self,
        driver: &Driver,
        context: ContextId,
        blocking: bool,
    ) -> Result<LineId, CUresult> {
        let device = self.context(context).device;
        let (of_context, threads) = (
            self.context_streams(context),
            self.timeline.threads_of(context),
        );
        let needed = stream_memory(of_context + threads + 1);
        let taken = self.stream_memory.get(&context).copied().unwrap_or(0);
        if needed > taken {
            self.charge(driver, device, Kind::Context, needed - taken)?;
            self.stream_memory.insert(context, needed);
        }
        Ok(self.open_line(context, blocking))
    }

    fn context_streams(&self, context: ContextId) -> u64 {
        let own = self
            .streams
            .values()
            .filter(|stream| stream.context == context && stream.green.is_none());
        own.count() as u64
    }

    /// The green context that a stream's work runs in.
    pub fn green_of_stream(&self, stream: CUstream) -> Result<Option<ContextId>, CUresult> {
        Ok(match named(stream)? {
            Named::Legacy | Named::PerThread => self.green_current(),
            Named::Created(id) => self.created(id)?.green,
        })
    }

    /// How many SMs a stream's kernels run on, where it is not all of them.
    pub fn partition_of(&self, stream: CUstream) -> Option<u32> {
        let green = self.green_of_stream(stream).ok()??;
        self.context(green).green.map(|green| green.sms.count())
    }

    /// The streams of a green context that ends.
    pub fn lose_streams_of_green(&mut self, green: ContextId) {
        let own = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.green == Some(green));
        let gone: Vec<u32> = own.map(|(id, _)| *id).collect();
        for id in gone {
            self.streams.remove(&id);
            self.lost_streams.insert(id);
            self.timeline.close(LineId(id));
        }
    }

    /// All streams and events of a context that ends.
    pub fn drop_streams(&mut self, driver: &Driver, context: ContextId) {
        let own = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.context == context);
        let gone: Vec<u32> = own.map(|(id, _)| *id).collect();
        self.lost_streams.extend(&gone);
        self.streams.retain(|_, stream| stream.context != context);
        self.events.retain(|_, event| event.context != context);
        let streams = self.stream_memory.remove(&context).unwrap_or(0);
        let branches = self.branch_memory.remove(&context).unwrap_or(0);
        let taken = streams + branches + self.views.end(context);
        if taken > 0 {
            let device = self.context(context).device;
            driver
                .world
                .give_back(driver.index(device), Kind::Context, Bytes(taken));
        }
        self.drop_lines(context);
    }
}

/// Puts work on a stream. `act` moves its bytes: now, unless something on the stream is deferred, and again with each
/// launch of a graph that the call is captured into. What can be refused is refused before this is called.
///
/// # Errors
/// INVALID_HANDLE or INVALID_CONTEXT, or what a capture forbids.
pub fn enqueue(
    process: &mut Process,
    driver: &Driver,
    stream: CUstream,
    work: Work,
    act: impl Fn(&mut Process, &Driver) + Send + Sync + 'static,
) -> Answer {
    enqueue_as(process, driver, stream, work, capture::Shape::Plain, act)
}

/// As [`enqueue`], with the shape that a node of a captured graph shows.
pub fn enqueue_as(
    process: &mut Process,
    driver: &Driver,
    stream: CUstream,
    work: Work,
    shape: capture::Shape,
    act: impl Fn(&mut Process, &Driver) + Send + Sync + 'static,
) -> Answer {
    let context = process.stream_context(stream)?;
    let line = process.line_of(stream)?;
    if capture::takes(process, stream, line)? {
        return capture::add_work(process, line, context, work, shape, Arc::new(act));
    }
    let load = work.load(driver, process, context);
    let act = (!matches!(work, Work::Kernel(_))).then(|| Arc::new(act) as timeline::Act);
    process.put(driver, line, Op::Work { load, act });
    Ok(())
}

/// Puts work on the default stream and waits until it is done, as cuMemcpy does; the process is locked by the caller.
///
/// # Errors
/// As [`enqueue`].
pub fn enqueue_and_wait(
    driver: &Driver,
    mut process: MutexGuard<'_, Process>,
    work: Work,
    act: impl Fn(&mut Process, &Driver) + Send + Sync + 'static,
) -> Answer {
    let line = process.line_of(CUstream::NULL)?;
    enqueue(&mut process, driver, CUstream::NULL, work, act)?;
    let end = process.end_of(line);
    drop(timeline::wait(driver, process, &end));
    Ok(())
}

/// Puts a kernel that passed every check on a stream; `node` is what a captured graph shows of it.
pub fn enqueue_kernel(
    process: &mut Process,
    driver: &Driver,
    stream: CUstream,
    kernel: &KernelCost,
    node: CUDA_KERNEL_NODE_PARAMS,
) -> Answer {
    let shape = capture::Shape::Kernel(Kept(node));
    enqueue_as(
        process,
        driver,
        stream,
        Work::Kernel(*kernel),
        shape,
        |_, _| {},
    )
}

/// Waits until all work of a device's contexts is done, as cuMemFree does.
pub fn wait_for_context<'a>(
    driver: &'a Driver,
    mut process: MutexGuard<'a, Process>,
    context: ContextId,
) -> MutexGuard<'a, Process> {
    if process.timeline.is_done(context, || driver.world.now()) {
        return process;
    }
    let end = process.end_of_context(context);
    timeline::wait(driver, process, &end)
}

pub fn create(stream: Out<CUstream>, flags: c_uint) -> Answer {
    create_with_priority(stream, flags, 0)
}

pub fn create_with_priority(stream: Out<CUstream>, flags: c_uint, priority: c_int) -> Answer {
    let stream = stream.required()?;
    if flags & !NON_BLOCKING != 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let driver = driver::get()?;
    let mut process = driver.lock();
    let owner = (process.current()?, process.green_current());
    make(&mut process, driver, &stream, owner, flags, priority)
}

/// A stream of a context, or of a green part of it.
pub fn make(
    process: &mut Process,
    driver: &Driver,
    stream: &Slot<CUstream>,
    (context, green): (ContextId, Option<ContextId>),
    flags: c_uint,
    priority: c_int,
) -> Answer {
    let blocking = flags & NON_BLOCKING == 0;
    let line = match green {
        Some(green) => {
            process.charge_green_stream(driver, green)?;
            process.open_line(context, blocking)
        }
        None => process.open_stream_line(driver, context, blocking)?,
    };
    process.streams.insert(
        line.0,
        Stream {
            context,
            green,
            flags,
            priority: priority.clamp(GREATEST, 0),
            attributes: HashMap::new(),
        },
    );
    stream.set(CUstream(
        handle::encode(handle::Kind::Stream, line.0) as *mut c_void
    ));
    Ok(())
}

/// What is still to do is done; the handle is gone at once.
pub fn destroy(stream: CUstream) -> Answer {
    if stream.0 as u64 <= PER_THREAD {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    }
    let driver = driver::get()?;
    let mut process = driver.lock();
    let Named::Created(id) = named(stream)? else {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    };
    process.created(id)?;
    process.streams.remove(&id);
    capture::stream_destroyed(&mut process, LineId(id));
    process.timeline.close(LineId(id));
    Ok(())
}

pub fn synchronize(stream: CUstream) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let line = process.line_of(stream)?;
    capture::forbids_waiting(&mut process, stream, line)?;
    let end = process.end_of(line);
    let reached = process.reached_line(line);
    timeline::wait(driver, process, &end).settle_pools(driver, &reached);
    Ok(())
}

pub fn synchronize_context() -> Answer {
    let driver = driver::get()?;
    let process = driver.lock();
    let context = process.current()?;
    finish(driver, process, context)
}

pub fn synchronize_of_context(context: CUcontext) -> Answer {
    let driver = driver::get()?;
    let process = driver.lock();
    let context = process.context_or_current(context)?;
    finish(driver, process, context)
}

fn finish(driver: &Driver, mut process: MutexGuard<'_, Process>, context: ContextId) -> Answer {
    capture::forbids_context(&mut process, context)?;
    let reached = process.reached_context(context);
    wait_for_context(driver, process, context).settle_pools(driver, &reached);
    Ok(())
}

pub fn query(stream: CUstream) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let line = process.line_of(stream)?;
    capture::forbids_waiting(&mut process, stream, line)?;
    if process.is_idle(line, driver.world.now()) {
        Ok(())
    } else {
        Err(CUresult::ERROR_NOT_READY)
    }
}

pub fn wait_event(stream: CUstream, event: CUevent, flags: c_uint) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    if let Err(error) = process.event_of(event) {
        capture::refused(&mut process, stream);
        return Err(error);
    }
    let line = process.line_of(stream)?;
    if flags > event::EXTERNAL {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    if capture::event_waited(&mut process, stream, line, event, flags == event::EXTERNAL)? {
        return Ok(());
    }
    let id = process.event_id(event)?;
    event::wait_on(&mut process, driver, id, line);
    Ok(())
}

pub fn context(stream: CUstream, pctx: Out<CUcontext>) -> Answer {
    let pctx = pctx.required()?;
    let process = driver::get()?.lock();
    let context = process.stream_context(stream)?;
    let green = process.green_of_stream(stream)?;
    pctx.set(context::handle_of(green.unwrap_or(context)));
    Ok(())
}

/// The context is the primary one, whatever part of it the stream belongs to.
pub fn context_and_green(stream: CUstream, pctx: Out<CUcontext>, green: Out<CUgreenCtx>) -> Answer {
    let (pctx, green) = (pctx.required()?, green.required()?);
    let process = driver::get()?.lock();
    let context = process.stream_context(stream)?;
    pctx.set(context::handle_of(context));
    green.set(green_handle(process.green_of_stream(stream)?));
    Ok(())
}

fn green_handle(green: Option<ContextId>) -> CUgreenCtx {
    green.map_or(CUgreenCtx::NULL, |id| CUgreenCtx(context::handle_of(id).0))
}

pub fn green_context(stream: CUstream, green: Out<CUgreenCtx>) -> Answer {
    let green = green.required()?;
    let process = driver::get()?.lock();
    process.stream_context(stream)?;
    let found = process.green_of_stream(stream)?;
    // A thread's own stream in a green context is not looked for.
    if found.is_some() && matches!(named(stream), Ok(Named::PerThread)) {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    }
    green.set(green_handle(found));
    Ok(())
}

pub fn device(stream: CUstream, device: Out<CUdevice>) -> Answer {
    let device = device.required()?;
    let mut process = driver::get()?.lock();
    let context = process.stream_context(stream)?;
    let line = process.line_of(stream)?;
    capture::forbids_waiting(&mut process, stream, line)?;
    device.set(process.context(context).device.0 as CUdevice);
    Ok(())
}

pub fn id(stream: CUstream, id: Out<c_ulonglong>) -> Answer {
    let id = id.required()?;
    let mut process = driver::get()?.lock();
    let line = process.line_of(stream)?;
    capture::forbids_waiting(&mut process, stream, line)?;
    id.set(line.0.into());
    Ok(())
}

pub fn priority(stream: CUstream, priority: Out<c_int>) -> Answer {
    let priority = priority.required()?;
    let process = driver::get()?.lock();
    process.stream_context(stream)?;
    priority.set(
        process
            .stream_of(stream)?
            .map_or(0, |stream| stream.priority),
    );
    Ok(())
}

pub fn flags(stream: CUstream, flags: Out<c_uint>) -> Answer {
    let flags = flags.required()?;
    let mut process = driver::get()?.lock();
    let line = process.line_of(stream)?;
    capture::forbids_waiting(&mut process, stream, line)?;
    flags.set(process.stream_of(stream)?.map_or(0, |stream| stream.flags));
    Ok(())
}

pub fn priority_range(least: Out<c_int>, greatest: Out<c_int>) -> Answer {
    driver::get()?.lock().current()?;
    if let Some(least) = least.optional() {
        least.set(0);
    }
    if let Some(greatest) = greatest.optional() {
        greatest.set(GREATEST);
    }
    Ok(())
}

/// Managed memory of one context needs no attaching here: it is checked and forgotten.
pub fn attach(stream: CUstream, dptr: CUdeviceptr, length: usize, flags: c_uint) -> Answer {
    const HOW: std::ops::RangeInclusive<u32> = 1..=2;
    const SINGLE: u32 = 4;
    if stream.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let mut process = driver::get()?.lock();
    let line = process.line_of(stream)?;
    capture::forbids_waiting(&mut process, stream, line)?;
    let (base, allocation) = process
        .holding(dptr, 1)
        .filter(|(_, allocation)| allocation.owner == crate::process::Owner::Managed)
        .ok_or(CUresult::ERROR_INVALID_VALUE)?;
    if flags == 0 {
        crash();
    }
    let whole = base == dptr && (length == 0 || length as u64 == allocation.size);
    if !whole || !(HOW.contains(&flags) || flags == SINGLE) {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    Ok(())
}

/// The moment at which everything on a stream is done.
pub fn stamp(process: &mut Process, driver: &Driver, line: LineId) -> Moment {
    let moment = Moment::unknown();
    process.put(driver, line, Op::Stamp(moment.clone()));
    moment
}
