//! Launches under a compute budget: every kind of launch comes through [`Tenant::pace`].
//!
//! Most are covered by the process's lease and cost a look-up and one compare-and-swap. The others ask `throttle`, the crate, what is to
//! be done: wait, launch, or launch between marks. Nothing is waited for with a lock held, and a launch that is captured does no work yet:
//! it is the graph's launch that pays.

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use abi::cuda::{CUDA_LAUNCH_PARAMS, CUfunction, CUgraphExec, CUlaunchConfig, CUresult, CUstream};
use budget::DeviceIndex;
use throttle::{Costs, Key, Launched, Measured, Nanos, Order, Share, Shared, Throttle};

use crate::boundary::arena::{Errno, Lock};
use crate::boundary::cross::{In, Out};
use crate::boundary::entries::next;
use crate::boundary::time;
use crate::devices::{Device, current_context};
use crate::marks::{Line, MarksByContext, NoStream};
use crate::outcome::{Outcome, Reason};
use crate::process::{ORDINALS, Tenant, is_paced};

const _: () = assert!(throttle::WORDS == ledger::PACE_WORDS);

/// What a process does on one device. All zeros is nothing yet.
#[repr(C)]
pub struct Lane {
    throttle: Throttle,
    costs: Costs,
    /// Held while the lease's state changes, never while anything waits.
    turn: Lock,
    /// The lease's last launch was its first, too; or there was none, and a mark alone ended it.
    alone: AtomicU32,
    ended: AtomicU32,
    /// Contexts in which the lease was opened and closed.
    opened_in: AtomicU64,
    closed_in: AtomicU64,
    /// How long the mark before the last launch had been reached when the launch was made.
    gap: AtomicU64,
    marks: MarksByContext,
}

/// Work that is about to be given to a device.
#[derive(Clone, Copy)]
struct Work {
    key: Key,
    line: Line,
    at: At,
}

/// Which device gets it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    /// The current context's; where there is none, its stream's.
    Current,
    Stream,
}

/// Whose time a launch takes.
struct Budget<'a> {
    shared: Shared<'a>,
    share: Share,
}

impl Tenant {
    /// Lets `call`, which gives `work` to the device, happen when it may.
    fn pace(self, work: Work, call: &dyn Fn() -> CUresult) -> Outcome<CUresult> {
        let Some(device) = self.paced_device(work) else {
            return Outcome::PassThrough(Reason::TakesNothing);
        };
        let Some(lane) = self.memory.lanes.get(device.ordinal as usize) else {
            return Outcome::PassThrough(Reason::NoBudget);
        };
        if lane.throttle.pass(lane.costs.of(work.key)) {
            return Outcome::PassThrough(Reason::Covered);
        }
        self.pace_slowly(device, lane, work, call)
    }

    fn paced_device(self, work: Work) -> Option<&'static Device> {
        if let Some(only) = self.devices()?.only() {
            return Some(only);
        }
        match work.at {
            At::Current => self
                .current_device()
                .ok()
                .or_else(|| self.stream_device(work.line)),
            At::Stream => self.stream_device(work.line),
        }
    }

    #[cold]
    fn stream_device(self, line: Line) -> Option<&'static Device> {
        self.device(self.memory.contexts.ordinal_of(line.context())?)
    }

    /// A launch on several devices at once is paced on each of them, within the others.
    fn pace_all(self, parts: &[Work], call: &dyn Fn() -> CUresult) -> CUresult {
        let Some((first, rest)) = parts.split_first() else {
            return call();
        };
        let inner = || self.pace_all(rest, call);
        match self.pace(*first, &inner) {
            Outcome::Done(code) => code,
            _ => inner(),
        }
    }

    #[cold]
    fn pace_slowly(
        self,
        device: &Device,
        lane: &Lane,
        work: Work,
        call: &dyn Fn() -> CUresult,
    ) -> Outcome<CUresult> {
        let errno = Errno::keep();
        let Some(budget) = self.time_budget(device) else {
            return Outcome::PassThrough(Reason::NoBudget);
        };
        if work.line.is_captured() {
            return Outcome::PassThrough(Reason::TakesNothing);
        }
        let context = match (work.at, current_context()) {
            (At::Stream, _) | (At::Current, 0) => work.line.context(),
            (At::Current, current) => current,
        };
        loop {
            let order = lane.order(&budget, work);
            match order {
                Order::Go => return Outcome::PassThrough(Reason::Covered),
                Order::Wait(until) => time::sleep_until(until),
                Order::Look => {}
                Order::End => lane.end(&budget, work.line, context),
                Order::Mark { opens, closes } => {
                    drop(errno);
                    let place = (work.line, context);
                    return Outcome::Done(lane.mark(&budget, place, opens, closes, call));
                }
            }
            if lane.throttle.pass(lane.costs.of(work.key)) {
                return Outcome::PassThrough(Reason::Covered);
            }
        }
    }

    /// The strictest of the budgets of those devices that this one may be.
    fn time_budget(self, device: &Device) -> Option<Budget<'static>> {
        let ledger = self.ledger()?;
        let strictest = device.indices.iter().filter_map(|index: DeviceIndex| {
            let share = Share::of_hundredths(u64::from(ledger.share(index)))?;
            Some((share, ledger.pace_words(index)?))
        });
        let (share, words) = strictest.min_by_key(|(share, _)| *share)?;
        Some(Budget {
            shared: Shared::new(words),
            share,
        })
    }

    /// A context is about to be destroyed. Nobody asks for its events meanwhile or afterwards.
    pub fn forget_marks(self, context: u64) {
        if !is_paced() {
            return;
        }
        let lane = self
            .memory
            .contexts
            .ordinal_of(context)
            .and_then(|ordinal| self.memory.lanes.get(ordinal as usize));
        if let Some(lane) = lane {
            let _errno = Errno::keep();
            let _held = lane.turn.hold();
            lane.marks.forget(context);
        }
    }
}

impl Lane {
    fn order(&self, budget: &Budget<'_>, work: Work) -> Order {
        let _held = self.turn.hold();
        let cost = self.costs.of(work.key);
        let order = self
            .throttle
            .submit(&budget.shared, budget.share, time::now(), work.key, cost);
        match order {
            Order::Look => self.look(budget),
            order => order,
        }
    }

    /// Whether the device is done with the closed lease, and what it took.
    fn look(&self, budget: &Budget<'_>) -> Order {
        let Budget { shared, share } = budget;
        let closed_in = self.closed_in.load(Ordering::Relaxed);
        let marks = self.marks.of(closed_in);
        if marks.and_then(|marks| marks.closed.reached()) == Some(false) {
            return Order::Wait(self.throttle.unfinished(shared, *share, time::now()));
        }
        let gap = Nanos(self.gap.load(Ordering::Relaxed));
        let (alone, ended) = (
            self.alone.load(Ordering::Relaxed) != 0,
            self.ended.load(Ordering::Relaxed) != 0,
        );
        let whole = marks
            .filter(|_| self.opened_in.load(Ordering::Relaxed) == closed_in)
            .and_then(|marks| marks.closed.since(&marks.opened));
        let last = match alone {
            true => whole,
            false => marks
                .filter(|_| !ended)
                .and_then(|marks| marks.closed.since(&marks.last)),
        };
        let last = last.map(|last| last.less(gap));
        let measured = Measured {
            lease: if alone { last } else { whole },
            last,
            found_idle: gap > Nanos::ZERO,
        };
        self.throttle
            .finished(shared, *share, &self.costs, time::now(), measured);
        Order::Look
    }

    /// A mark alone ends the lease.
    fn end(&self, budget: &Budget<'_>, line: Line, context: u64) {
        let marks = self.marks.of_living(context);
        let set = marks.is_some_and(|marks| marks.closed.set(line));
        let idle = marks.and_then(|marks| marks.closed.reached()) == Some(true);
        self.closed(
            budget,
            context,
            [0, 1, u64::from(idle)],
            match set {
                true => Launched::Marked,
                false => Launched::Unmarked,
            },
        );
    }

    /// Makes a launch between marks.
    fn mark(
        &self,
        budget: &Budget<'_>,
        (line, context): (Line, u64),
        opens: bool,
        closes: bool,
        call: &dyn Fn() -> CUresult,
    ) -> CUresult {
        let marks = self.marks.of_living(context);
        let before = marks.map(|marks| if opens { &marks.opened } else { &marks.last });
        let set = before.is_some_and(|before| before.set(line));
        if opens {
            self.opened_in
                .store(if set { context } else { 0 }, Ordering::Relaxed);
        }
        if !closes {
            return call();
        }
        let begun = time::now();
        let code = call();
        let errno = Errno::keep();
        let made = time::now();
        // An idle stream reaches a mark at once, and what it then waits for is the launch.
        let idle = before.and_then(|before| before.reached()) == Some(true);
        let gap = if idle { made.less(begun).0.max(1) } else { 0 };
        let launched = match code {
            CUresult::SUCCESS if marks.is_some_and(|marks| marks.closed.set(line)) && set => {
                Launched::Marked
            }
            CUresult::SUCCESS => Launched::Unmarked,
            _ => Launched::Failed,
        };
        self.closed(budget, context, [u64::from(opens), 0, gap], launched);
        drop(errno);
        code
    }

    fn closed(
        &self,
        budget: &Budget<'_>,
        context: u64,
        [alone, ended, gap]: [u64; 3],
        launched: Launched,
    ) {
        let _held = self.turn.hold();
        self.alone.store(alone as u32, Ordering::Relaxed);
        self.ended.store(ended as u32, Ordering::Relaxed);
        self.gap.store(gap, Ordering::Relaxed);
        self.closed_in.store(context, Ordering::Relaxed);
        self.throttle
            .launched(&budget.shared, budget.share, time::now(), launched);
    }
}

fn kernel(function: CUfunction, grid: [c_uint; 3], stream: CUstream, default: NoStream) -> Work {
    let blocks = grid.iter().fold(1_u64, |blocks, side| {
        blocks.saturating_mul(u64::from(*side))
    });
    Work {
        key: Key::kernel(function.0 as u64, blocks),
        line: Line { stream, default },
        at: At::Current,
    }
}

fn graph(exec: CUgraphExec, stream: CUstream, default: NoStream) -> Work {
    Work {
        key: Key::graph(exec.0 as u64),
        line: Line { stream, default },
        at: At::Current,
    }
}

fn configured(
    function: CUfunction,
    config: In<'_, CUlaunchConfig>,
    default: NoStream,
) -> Option<Work> {
    let config = config.read()?;
    let grid = [config.gridDimX, config.gridDimY, config.gridDimZ];
    Some(kernel(function, grid, config.hStream, default))
}

type Parameters<'a> = Out<'a, *mut c_void>;

macro_rules! kernels {
    ($($hook:ident $next:ident $default:ident)*) => { $(
        #[expect(clippy::too_many_arguments, reason = "they are the driver's")]
        pub fn $hook(
            tenant: Tenant, function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
            block_z: c_uint, shared: c_uint, stream: CUstream, parameters: Parameters<'_>, extra: Parameters<'_>,
        ) -> Outcome<CUresult> {
            tenant.pace(kernel(function, [grid_x, grid_y, grid_z], stream, NoStream::$default), &|| {
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
            tenant.pace(kernel(function, [grid_x, grid_y, grid_z], stream, NoStream::$default), &|| {
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
                Some(work) => tenant.pace(work, &|| next::$next(config, function, parameters, extra)),
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
                [part.gridDimX, part.gridDimY, part.gridDimZ],
                part.hStream,
                NoStream::Legacy,
            )
        })
        .collect();
    Outcome::Done(tenant.pace_all(&parts, &|| {
        next::cuLaunchCooperativeKernelMultiDevice(list, count, flags)
    }))
}

pub fn launch_one_block(tenant: Tenant, function: CUfunction) -> Outcome<CUresult> {
    tenant.pace(
        kernel(function, [1; 3], CUstream::NULL, NoStream::Legacy),
        &|| next::cuLaunch(function),
    )
}

pub fn launch_grid(
    tenant: Tenant,
    function: CUfunction,
    width: c_int,
    height: c_int,
) -> Outcome<CUresult> {
    tenant.pace(plane(function, width, height, CUstream::NULL), &|| {
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
    tenant.pace(plane(function, width, height, stream), &|| {
        next::cuLaunchGridAsync(function, width, height, stream)
    })
}

fn plane(function: CUfunction, width: c_int, height: c_int, stream: CUstream) -> Work {
    kernel(
        function,
        [width.unsigned_abs(), height.unsigned_abs(), 1],
        stream,
        NoStream::Legacy,
    )
}
