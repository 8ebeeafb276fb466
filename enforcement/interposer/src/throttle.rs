//! Launches under a compute budget: every kind of launch, and every memset, comes through [`Tenant::pace`].
//!
//! Most are covered by the process's lease and cost a look-up and one compare-and-swap. The others ask `throttle`, the crate, what is to
//! be done: wait, launch, or launch between marks. Nothing is waited for with a lock held, and a launch that is captured does no work yet:
//! it is the graph's launch that pays.

use core::cell::Cell;
use core::ffi::{c_int, c_uint, c_void};
use ledger::KeptErrno;

use abi::cuda::{CUDA_LAUNCH_PARAMS, CUfunction, CUgraphExec, CUlaunchConfig, CUresult, CUstream};
use budget::DeviceIndex;
use seeds::{Seed, planted};
use throttle::{Budget, Key, Mark, Marks, Nanos, Paced, Share, Shared, Site, Slot, Told};

use crate::boundary::arena::{Held, Lock};
use crate::boundary::cross::{In, Out};
use crate::boundary::entries::next;
use crate::boundary::time;
use crate::devices::{Device, current_context};
use crate::function::Launched;
use crate::marks::{Line, MarksByContext, NoStream};
use crate::nvml::Session;
use crate::outcome::{Outcome, Reason, Refused};
use crate::process::{self, ORDINALS, Standing, Tenant, is_paced};

const _: () = assert!(throttle::WORDS == ledger::PACE_WORDS);

/// What a process does on one device. All zeros is nothing yet.
#[repr(C)]
pub struct Lane {
    pace: throttle::Lane,
    /// Held while a lease's state changes, never while anything waits.
    turn: Lock,
    marks: MarksByContext,
}

/// Work that is about to be given to a device.
#[derive(Clone, Copy)]
struct Work {
    key: Key,
    launched: Launched<'static>,
    line: Line,
    at: At,
}

/// Whose context it is done in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    /// The current one; where there is none, its stream's.
    Current,
    /// Its stream's, whichever is current; where nobody knows that, the current one.
    Stream,
}

/// Where a launch happens.
struct Place<'a> {
    tenant: Tenant,
    lane: &'a Lane,
    device: &'a Device,
    line: Line,
    context: u64,
}

impl Tenant {
    /// Lets `call`, which gives `work` to the device, happen when it may. Most work is covered: `call`, with all that it captures, is put
    /// together only for what is not.
    #[inline(always)]
    fn pace(self, work: Work, call: impl Fn() -> CUresult) -> Outcome<CUresult> {
        let context = || match current_context() {
            0 => work.line.context(),
            current => current,
        };
        // What is captured takes nothing before its graph is made executable.
        let is_captured = || work.line.is_captured() && !planted(Seed::R28d);
        self.with_local(
            work.launched,
            context,
            is_captured,
            || self.pace_alone(work, &call),
            &call,
        )
    }

    #[inline(always)]
    fn pace_alone(self, work: Work, call: impl Fn() -> CUresult) -> Outcome<CUresult> {
        let device = self.paced_device(work);
        let lane = device.and_then(|device| self.lane_of(device));
        if lane.is_some_and(|lane| lane.pace.pass(work.key)) {
            return Outcome::PassThrough(Reason::Covered);
        }
        let call = call;
        self.pace_slowly(work, device, &call)
    }

    #[inline]
    fn lane_of(self, device: &Device) -> Option<&'static Lane> {
        self.memory.lanes.get(device.ordinal as usize)
    }

    fn paced_device(self, work: Work) -> Option<&'static Device> {
        if let Some(only) = self.devices()?.only() {
            return Some(only);
        }
        let current = || self.current_device().ok();
        match work.at {
            At::Current => current().or_else(|| self.stream_device(work.line)),
            At::Stream => self.stream_device(work.line).or_else(current),
        }
    }

    #[cold]
    fn stream_device(self, line: Line) -> Option<&'static Device> {
        self.device(self.memory.contexts.ordinal_of(line.context())?)
    }

    /// A launch on several devices at once is paced on each of them, within the others; `refused` comes to say why it was not made.
    fn pace_all(
        self,
        parts: &[Work],
        refused: &Cell<Option<Refused>>,
        call: &dyn Fn() -> CUresult,
    ) -> CUresult {
        let Some((first, rest)) = parts.split_first() else {
            return call();
        };
        let inner = || self.pace_all(rest, refused, call);
        match self.pace(*first, inner) {
            Outcome::Done(code) => code,
            Outcome::PassThrough(_) => inner(),
            Outcome::Refused(why) => {
                refused.set(Some(why));
                CUresult::ERROR_OUT_OF_MEMORY
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn pace_slowly(
        self,
        work: Work,
        device: Option<&'static Device>,
        call: &dyn Fn() -> CUresult,
    ) -> Outcome<CUresult> {
        let Some(device) = device else {
            return Outcome::PassThrough(Reason::TakesNothing);
        };
        let Some(lane) = self.lane_of(device) else {
            return Outcome::PassThrough(Reason::NoBudget);
        };
        let errno = KeptErrno::keep();
        let Some(budget) = self.time_budget(device) else {
            return Outcome::PassThrough(Reason::NoBudget);
        };
        if work.line.is_captured() {
            return Outcome::PassThrough(Reason::TakesNothing);
        }
        let context = match (work.at, current_context()) {
            (At::Current, current) if current != 0 => current,
            (_, current) => match work.line.context() {
                0 => current,
                context => context,
            },
        };
        let place = Place {
            tenant: self,
            lane,
            device,
            line: work.line,
            context,
        };
        let (mut kept, mut answer) = (Some(errno), CUresult::SUCCESS);
        let paced = lane.pace.pace(&place, &budget, work.key, &mut || {
            drop(kept.take());
            answer = call();
            kept = Some(KeptErrno::keep());
            answer == CUresult::SUCCESS
        });
        match paced {
            Paced::Covered => Outcome::PassThrough(Reason::Covered),
            Paced::Made => Outcome::Done(answer),
        }
    }

    /// The strictest of the budgets of those devices that this one may be.
    fn time_budget(self, device: &Device) -> Option<Budget<'static>> {
        let ledger = self.ledger()?;
        let strictest = device.indices.iter().filter_map(|index: DeviceIndex| {
            let times = if planted(Seed::T2) { 2 } else { 1 };
            let part = if planted(Seed::T2a) { 10 } else { 1 };
            let share = Share::of_hundredths(u64::from(ledger.share(index)) * times / part)?;
            Some((share, ledger.pace_words(index)?))
        });
        let (share, words) = strictest.min_by_key(|(share, _)| *share)?;
        Some(Budget {
            shared: Shared::new(words),
            share,
        })
    }

    /// Whether no processes have a device but this tenant's, by the driver's list.
    fn has_alone(self, index: DeviceIndex, session: &Session) -> bool {
        let pids = || {
            let rows = session.rows(index)?;
            rows.own().map(|_| rows.pids())
        };
        self.ledger()
            .is_some_and(|ledger| ledger.has_all(index, pids))
    }

    /// A context is about to be destroyed: what the device has done in it is paid for, and nobody asks for its events meanwhile or afterwards. On which device
    /// [`Tenant::settle_marks`] is to be called when it is gone.
    pub fn forget_marks(self, context: u64) -> Option<&'static Device> {
        if !is_paced() {
            return None;
        }
        let device = self.device(self.memory.contexts.ordinal_of(context)?)?;
        self.settle_marks(device);
        let lane = self.lane_of(device)?;
        let _errno = KeptErrno::keep();
        let _held = lane.turn.hold();
        lane.marks.forget(context);
        Some(device)
    }

    /// What marks tell of what was launched on a device is paid for; of what was launched where there are none any more, all until now.
    pub fn settle_marks(self, device: &Device) {
        if planted(Seed::T11) {
            return;
        }
        let _errno = KeptErrno::keep();
        if let Some(lane) = self.lane_of(device)
            && let Some(budget) = self.time_budget(device)
        {
            let _held = lane.turn.hold();
            lane.pace.look(lane, &budget, time::now());
        }
    }
}

impl Marks for Lane {
    fn reached(&self, context: u64, slot: Slot, mark: Mark) -> Option<bool> {
        self.marks.of(context)?.of(slot, mark).reached()
    }

    fn between(&self, context: u64, from: (Slot, Mark), to: (Slot, Mark)) -> Option<Nanos> {
        if from.0 != to.0 && planted(Seed::T16) {
            return None;
        }
        let marks = self.marks.of(context)?;
        let [from, to] = [from, to].map(|(slot, mark)| marks.of(slot, mark));
        to.since(from)
    }
}

impl<'a> Site for Place<'a> {
    type Turn = Held<'a>;

    fn turn(&self) -> Held<'a> {
        self.lane.turn.hold()
    }

    fn now(&self) -> Nanos {
        time::now()
    }

    fn sleep_until(&self, until: Nanos) {
        time::sleep_until(until);
    }

    fn set(&self, slot: Slot, mark: Mark) -> u64 {
        let marks = self.lane.marks.of_living(self.context);
        if marks.is_some_and(|marks| marks.set(slot, mark, self.line)) {
            self.context
        } else {
            0
        }
    }

    /// Of a device that may be one of several nobody knows.
    fn told(&self, since: u64) -> Option<Told> {
        let mut indices = self.device.indices.iter();
        let (index, None) = (indices.next()?, indices.next()) else {
            return None;
        };
        if planted(Seed::T15) {
            return None;
        }
        let session = Session::open()?;
        let told = session.told(index, since)?;
        let alone = self.tenant.has_alone(index, &session);
        Some(Told { alone, ..told })
    }
}

impl Marks for Place<'_> {
    fn reached(&self, context: u64, slot: Slot, mark: Mark) -> Option<bool> {
        self.lane.reached(context, slot, mark)
    }

    fn between(&self, context: u64, from: (Slot, Mark), to: (Slot, Mark)) -> Option<Nanos> {
        self.lane.between(context, from, to)
    }

    fn is_idle(&self) -> Option<bool> {
        Some(self.line.is_idle())
    }

    fn stream(&self) -> u64 {
        if planted(Seed::T18) {
            return 0;
        }
        self.line.stream.0 as u64
    }
}

/// What a thread is about to give some stream may wait for something else than the device, or is no work.
#[cold]
#[inline(never)]
pub fn note_wait() {
    if let Standing::Enforce(tenant) = process::standing() {
        // Those that were never asked for have no launches.
        let devices = tenant.memory.devices.get();
        let lanes = devices.into_iter().flat_map(|devices| devices.iter());
        for lane in lanes.filter_map(|device| tenant.lane_of(device)) {
            lane.pace.note_wait();
        }
    }
}

/// The block of a function whose shape a call before its launch has set (cuFuncSetBlockShape).
const SHAPE_UNKNOWN: [c_uint; 3] = [1; 3];

/// A grid, and a block of it.
type Size = ([c_uint; 3], [c_uint; 3]);

fn kernel(function: CUfunction, (grid, block): Size, stream: CUstream, default: NoStream) -> Work {
    let volume = |sides: [c_uint; 3]| {
        sides
            .iter()
            .fold(1_u64, |all, side| all.saturating_mul(u64::from(*side)))
    };
    Work {
        key: Key::kernel(function.0 as u64, volume(grid), volume(block)),
        launched: Launched::One(function.0 as u64),
        line: Line { stream, default },
        at: At::Current,
    }
}

fn graph(exec: CUgraphExec, stream: CUstream, default: NoStream) -> Work {
    Work {
        key: Key::graph(exec.0 as u64),
        // Its own hook has seen to that.
        launched: Launched::None,
        line: Line { stream, default },
        at: if planted(Seed::T10) {
            At::Current
        } else {
            At::Stream
        },
    }
}

fn configured(
    function: CUfunction,
    config: In<'_, CUlaunchConfig>,
    default: NoStream,
) -> Option<Work> {
    let config = config.read()?;
    let grid = [config.gridDimX, config.gridDimY, config.gridDimZ];
    let block = [config.blockDimX, config.blockDimY, config.blockDimZ];
    Some(kernel(function, (grid, block), config.hStream, default))
}

type Parameters<'a> = Out<'a, *mut c_void>;

macro_rules! kernels {
    ($($hook:ident $next:ident $default:ident)*) => { $(
        #[expect(clippy::too_many_arguments, reason = "they are the driver's")]
        pub fn $hook(
            tenant: Tenant, function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
            block_z: c_uint, shared: c_uint, stream: CUstream, parameters: Parameters<'_>, extra: Parameters<'_>,
        ) -> Outcome<CUresult> {
            tenant.pace(kernel(function, ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]), stream, NoStream::$default), move || {
                next::$next(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, extra)
            })
        }
    )* };
}
kernels! {
    launch_kernel cuLaunchKernel Legacy
    launch_kernel_ptsz cuLaunchKernel_ptsz PerThread
}

macro_rules! cooperative_kernels {
    ($($hook:ident $next:ident $default:ident)*) => { $(
        #[expect(clippy::too_many_arguments, reason = "they are the driver's")]
        pub fn $hook(
            tenant: Tenant, function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
            block_z: c_uint, shared: c_uint, stream: CUstream, parameters: Parameters<'_>,
        ) -> Outcome<CUresult> {
            tenant.pace(kernel(function, ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]), stream, NoStream::$default), move || {
                next::$next(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters)
            })
        }
    )* };
}
cooperative_kernels! {
    launch_cooperative cuLaunchCooperativeKernel Legacy
    launch_cooperative_ptsz cuLaunchCooperativeKernel_ptsz PerThread
}

macro_rules! configured_kernels {
    ($($hook:ident $next:ident $default:ident)*) => { $(
        pub fn $hook(
            tenant: Tenant, config: In<'_, CUlaunchConfig>, function: CUfunction, parameters: Parameters<'_>, extra: Parameters<'_>,
        ) -> Outcome<CUresult> {
            match configured(function, config, NoStream::$default) {
                Some(work) => tenant.pace(work, move || next::$next(config, function, parameters, extra)),
                None => Outcome::PassThrough(Reason::TakesNothing),
            }
        }
    )* };
}
configured_kernels! {
    launch_configured cuLaunchKernelEx Legacy
    launch_configured_ptsz cuLaunchKernelEx_ptsz PerThread
}

/// A graph's launch, which `call` makes. It has its hook with the graphs' memory.
pub fn launch_graph(
    tenant: Tenant,
    exec: CUgraphExec,
    stream: CUstream,
    default: NoStream,
    call: &dyn Fn() -> CUresult,
) -> Outcome<CUresult> {
    tenant.pace(graph(exec, stream, default), call)
}

/// A memset, which `call` makes.
pub fn set_memory(
    tenant: Tenant,
    key: Key,
    line: Line,
    call: &dyn Fn() -> CUresult,
) -> Outcome<CUresult> {
    let work = Work {
        key,
        launched: Launched::None,
        line,
        at: At::Stream,
    };
    tenant.pace(work, call)
}

/// On several devices at once: each one's budget pays for its part.
pub fn launch_on_devices(
    tenant: Tenant,
    list: Out<'_, CUDA_LAUNCH_PARAMS>,
    count: c_uint,
    flags: c_uint,
) -> Outcome<CUresult> {
    if list.is_null() || count as usize > ORDINALS {
        // Refused, whatever the budget.
        return Outcome::PassThrough(Reason::TakesNothing);
    }
    let parts: Vec<Work> = list
        .read_list(count)
        .map(|part| Work {
            at: At::Stream,
            ..kernel(
                part.function,
                (
                    [part.gridDimX, part.gridDimY, part.gridDimZ],
                    [part.blockDimX, part.blockDimY, part.blockDimZ],
                ),
                part.hStream,
                NoStream::Legacy,
            )
        })
        .collect();
    let refused = Cell::new(None);
    let call = || next::cuLaunchCooperativeKernelMultiDevice(list, count, flags);
    let code = tenant.pace_all(&parts, &refused, &call);
    match refused.get() {
        Some(why) => Outcome::Refused(why),
        None => Outcome::Done(code),
    }
}

pub fn launch_one_block(tenant: Tenant, function: CUfunction) -> Outcome<CUresult> {
    tenant.pace(
        kernel(
            function,
            ([1; 3], SHAPE_UNKNOWN),
            CUstream::NULL,
            NoStream::Legacy,
        ),
        || next::cuLaunch(function),
    )
}

pub fn launch_grid(
    tenant: Tenant,
    function: CUfunction,
    width: c_int,
    height: c_int,
) -> Outcome<CUresult> {
    tenant.pace(plane(function, width, height, CUstream::NULL), || {
        next::cuLaunchGrid(function, width, height)
    })
}

pub fn launch_grid_async(
    tenant: Tenant,
    function: CUfunction,
    width: c_int,
    height: c_int,
    stream: CUstream,
) -> Outcome<CUresult> {
    tenant.pace(plane(function, width, height, stream), || {
        next::cuLaunchGridAsync(function, width, height, stream)
    })
}

fn plane(function: CUfunction, width: c_int, height: c_int, stream: CUstream) -> Work {
    kernel(
        function,
        (
            [width.unsigned_abs(), height.unsigned_abs(), 1],
            SHAPE_UNKNOWN,
        ),
        stream,
        NoStream::Legacy,
    )
}
