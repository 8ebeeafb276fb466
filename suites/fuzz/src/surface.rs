//! Sequences over every export of libcuda, hooked or not, judged by what no list of hooks enters: the simulated devices' own figure.
//!
//! Three promises, for a process with budgets:
//! * *the floor*: no device is further beyond its budget than the bound of docs/concepts/charging.md (*The floor*), and one that is takes nothing more;
//! * *the books*: after a look, which a refusal is, all that the device holds is charged;
//! * *everything back*: when all memory is freed and each stream waited for, but no context, what the device does not hold is granted.
//!
//! A call is made once or many times, by the sequence's own thread, by one of a few that stay, or each time by a fresh one that lives as long as the sequence.
//! A sequence begins without a context, with a device's primary one, with one of 32 bits, or with all primary ones and none current; all else it makes itself.
//!
//! Most calls have a *theme*, a handle or an address that they and some after them are about; what a call needs and nobody has is made before it; now and then the
//! device is filled first, so that what is taken unasked is beyond the budget. All of it by the signatures: nothing here knows of a hook.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use abi::cuda::CUresult;
use mock_device::DeviceIndex;

use crate::ffi::calls::Answer;
use crate::ffi::frame;
use crate::ffi::surface::{Export, Leftovers, Value, exports, keep_written};
use crate::input::CALL;
use crate::maker::{Habit, Handles, Kind, Maker};
use crate::oracle::{self, Deaths};
use crate::session::{STEP, Session, Verdict, fold, promise};

/// Bytes of a call that say what is called, how often and by which thread.
const HEAD: usize = 6;
/// Of a budget what a process may take between two looks (docs/concepts/charging.md, *The floor*).
const PART: u64 = 64;
/// What one call may take that nobody was asked for, until the look behind it.
const ONE_CALL: u64 = 64 << 20;
/// What the books may lack after a look: blocks whose owner is being settled.
const SETTLED: u64 = 4 << 20;
/// What a thread's own stream takes.
const OWN_STREAM: u64 = 560 << 10;
/// Threads that stay, and most that live at once for one call each.
const HELPERS: usize = 3;
const FRESH: usize = 128;
/// Times that a call is made at most in one sequence.
const CALLS: u64 = 20_000;

/// What a sequence may be about. A few more often: what they lead to needs most calls.
const THEMES: [Kind; 24] = [
    Kind::Context,
    Kind::Green,
    Kind::Stream,
    Kind::Stream,
    Kind::Event,
    Kind::Pool,
    Kind::Pool,
    Kind::Array,
    Kind::Mipmap,
    Kind::Physical,
    Kind::Physical,
    Kind::Module,
    Kind::Function,
    Kind::Library,
    Kind::Kernel,
    Kind::Graph,
    Kind::Graph,
    Kind::Node,
    Kind::Exec,
    Kind::Exec,
    Kind::Address,
    Kind::Descriptor,
    Kind::External,
    Kind::Host,
];
/// Of so many values of a byte calls are about nothing.
const NO_THEME: usize = 4;
/// How deep what is needed is made for what is needed, and how often it is tried.
const DEPTH: u32 = 4;
const TRIES: u8 = 12;
/// After so many refusals in one sequence nothing is needed of an entry point any more.
const VAIN: u8 = 4;
/// Of so many values of a byte, those with which a thread without a context gets one before a call.
const ENTERED: u8 = 64;
/// Blocks by which a device is filled, the largest first, and how many of each at most.
const FILLING: [u64; 4] = [256 << 20, 32 << 20, 8 << 20, 2 << 20];
const MOST_FILLING: usize = 16;

/// Entry points by the beginning of their names that are never called, and why.
const LEFT_OUT: [(&str, &str); 5] = [
    ("cuStreamWaitValue", "waits for what nobody writes"),
    ("cuStreamBatchMemOp", "the same"),
    ("cuGraphAddBatchMemOp", "the same"),
    ("cuWaitExternalSemaphores", "the same"),
    ("cuCheckpointProcess", "suspends processes"),
];

/// Whether a context keeps an error, and so every context of the process.
pub(crate) fn stays(code: u32) -> bool {
    matches!(code, 214 | 219 | 220 | 226 | 700 | 702 | 710 | 714..=719)
}

/// Whether a name is called by nobody here.
fn left_out(name: &str) -> bool {
    LEFT_OUT.iter().any(|(begins, _)| name.starts_with(begins))
}

/// What a process needs to run them.
pub struct Surface {
    leftovers: Arc<Leftovers>,
    /// With their numbers in the table and their addresses.
    all: Vec<(u16, &'static Export, usize)>,
    /// Of these those that may give something.
    makers: Vec<usize>,
    /// And those that are told how much.
    sized: Vec<usize>,
    /// By theme, those that are about it.
    themes: Vec<Vec<usize>>,
    /// What each of all needs.
    needs: Vec<Vec<Kind>>,
    /// Those that give one of a kind, by the kind.
    givers: Vec<Vec<usize>>,
    /// How often each of all was refused in this sequence when something was needed of it.
    vain: Vec<u8>,
    habit: Habit,
    /// Whether others than the sequence's own thread make calls.
    threads: bool,
    helpers: Vec<Helper>,
    fresh: Vec<Helper>,
    /// What each device had lost after the call before.
    before: Vec<u64>,
    /// What is charged of each device beyond what it lost, though there is nothing: for managed memory, which no look is mistaken by.
    untouched: Vec<u64>,
    /// What each device has lost to managed memory, though there is none.
    managed: Vec<u64>,
    /// What is charged of each device beyond that while it has a primary context and nothing else: where no row tells, a context is charged an upper bound.
    /// As long as there is the context it is charged and not taken, and hides nothing that is taken beside it.
    excess: Vec<u64>,
    /// The same where the context's stack, of which none is charged by itself, is as small as it can be.
    standing: Vec<u64>,
}

/// A call that another thread makes.
struct Job {
    export: &'static Export,
    address: usize,
    values: Vec<Value>,
    context: u64,
}

/// A thread that makes calls while its starter waits.
struct Helper {
    jobs: Option<Sender<Job>>,
    answers: Receiver<Answer>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    fn start(leftovers: Arc<Leftovers>) -> std::io::Result<Self> {
        let (jobs, todo) = channel::<Job>();
        let (done, answers) = channel();
        let serve = move || {
            for job in todo {
                leftovers.make_current(job.context);
                if done.send(job.export.run(job.address, &job.values)).is_err() {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new()
            .stack_size(256 << 10)
            .spawn(serve)?;
        Ok(Self {
            jobs: Some(jobs),
            answers,
            thread: Some(thread),
        })
    }

    /// None where the thread is gone.
    fn run(&self, job: Job) -> Option<Answer> {
        self.jobs.as_ref()?.send(job).ok()?;
        self.answers.recv().ok()
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// Other bytes that follow from these.
fn derived(bytes: &[u8; CALL], nth: u64) -> [u8; CALL] {
    let mut derived = [0; CALL];
    for (at, word) in derived.chunks_exact_mut(8).enumerate() {
        let own = bytes[at * 8..].first_chunk().expect("as many words");
        let mixed = fold(fold(u64::from_le_bytes(*own), nth), at as u64);
        word.copy_from_slice(&(mixed ^ mixed >> 32).to_le_bytes());
    }
    derived
}

/// Who makes a call.
#[derive(Clone, Copy)]
enum By {
    Own,
    Helper(usize),
    Fresh,
}

impl Surface {
    fn open() -> Option<Self> {
        let found = |(nth, export): (usize, &'static Export)| {
            let address = export.address();
            (address != 0 && !left_out(export.name)).then_some((nth as u16, export, address))
        };
        let all: Vec<_> = exports().iter().enumerate().filter_map(found).collect();
        let those = |which: fn(&Export) -> bool| {
            (0..all.len())
                .filter(|&nth| which(all[nth].1))
                .collect::<Vec<_>>()
        };
        let about = |kind: &Kind| {
            let all = all.iter().enumerate();
            let about = all.filter(|(_, (_, export, _))| export.about().contains(kind));
            about.map(|(nth, _)| nth).collect()
        };
        let givers = |kind: Kind| {
            let all = all.iter().enumerate();
            let gives = all.filter(|(_, (_, export, _))| export.gives(kind));
            gives.map(|(nth, _)| nth).collect()
        };
        Some(Self {
            leftovers: Arc::new(Leftovers::open()?),
            makers: those(Export::makes),
            sized: those(Export::sized),
            themes: THEMES.iter().map(about).collect(),
            needs: all.iter().map(|(_, export, _)| export.needs()).collect(),
            givers: Kind::ALL.into_iter().map(givers).collect(),
            all,
            habit: Habit::None,
            threads: true,
            helpers: Vec::new(),
            fresh: Vec::new(),
            before: Vec::new(),
            untouched: Vec::new(),
            managed: Vec::new(),
            excess: Vec::new(),
            vain: Vec::new(),
            standing: Vec::new(),
        })
    }

    /// Two thirds of the calls are about the theme, if there is one. Half of the others make something or are told how much, by their signatures; the rest is
    /// anything. Its place among all.
    fn chosen(&self, head: &[u8; HEAD], theme: Option<usize>) -> usize {
        let nth = usize::from(u16::from_le_bytes([head[1], head[2]]));
        let themed = theme.map_or(&[][..], |theme| &self.themes[theme]);
        match head[0] {
            0..=167 if !themed.is_empty() => themed[nth % themed.len()],
            0..=95 | 168..=207 => self.makers[nth % self.makers.len()],
            96..=127 | 208..=219 => self.sized[nth % self.sized.len()],
            _ => nth % self.all.len(),
        }
    }

    fn call(
        &mut self,
        by: By,
        export: &'static Export,
        address: usize,
        values: Vec<Value>,
    ) -> Option<Answer> {
        let job = |leftovers: &Leftovers| Job {
            export,
            address,
            values: values.clone(),
            context: leftovers.current(),
        };
        match by {
            By::Helper(nth) => {
                while self.helpers.len() <= nth {
                    self.helpers
                        .push(Helper::start(self.leftovers.clone()).ok()?);
                }
                self.helpers[nth].run(job(&self.leftovers))
            }
            By::Fresh if self.fresh.len() < FRESH => {
                let helper = Helper::start(self.leftovers.clone()).ok()?;
                let answer = helper.run(job(&self.leftovers));
                self.fresh.push(helper);
                answer
            }
            By::Own | By::Fresh => Some(export.run(address, &values)),
        }
    }
}

impl Session {
    /// Runs a sequence over all exports.
    pub(crate) fn surface(
        &mut self,
        bytes: &[u8],
        threads: bool,
        tell: bool,
        verdict: &mut Verdict,
    ) -> Result<(), String> {
        let mut surface = match self.surface.take() {
            Some(surface) => surface,
            None => {
                let mut surface =
                    Surface::open().ok_or("libcuda lacks a function that ends things")?;
                self.measure(&mut surface);
                surface
            }
        };
        self.pools = 0;
        surface.before = vec![0; self.devices().len()];
        surface.vain = vec![0; surface.all.len()];
        self.begin_in(&surface, bytes);
        // What calls are about is the last byte but one of the first; of each later one, if it is among the least.
        let first = usize::from(bytes.get(CALL - 2).copied().unwrap_or(u8::MAX));
        let mut theme = (first < 8 * THEMES.len()).then_some(first % THEMES.len());
        // And what the sequence is given to, the fifth last.
        let (habit, about) = match bytes.get(CALL - 5) {
            // Seldom: what is bound to tiles stays charged, and another process has to take over.
            Some(16..32) => (Habit::Sparse, Some(Kind::Array)),
            Some(32..64) => (Habit::Sharing, Some(Kind::Pool)),
            _ => (Habit::None, None),
        };
        (surface.habit, surface.threads) = (habit, threads);
        theme = about
            .and_then(|about| THEMES.iter().position(|kind| *kind == about))
            .or(theme);
        let mut outcome = Ok(());
        for call in bytes.chunks_exact(CALL) {
            let call = call.first_chunk::<CALL>().expect("a chunk of that size");
            match usize::from(call[CALL - 2]) {
                _ if habit != Habit::None => {}
                other if other < THEMES.len() => theme = Some(other),
                other if other < THEMES.len() + NO_THEME => theme = None,
                _ => {}
            }
            outcome = self.calls(&mut surface, call, theme, tell, verdict);
            if outcome.is_err() || self.spent || verdict.calls > CALLS {
                break;
            }
        }
        let outcome = outcome.and_then(|()| self.back(&surface));
        // Page-locked memory outlives the contexts that it was made in, and needs one to be freed.
        self.spent |= stays(surface.leftovers.enter(0).0);
        self.spent |= stays(surface.leftovers.wait_for_streams(&self.handles));
        surface.leftovers.end(&self.handles);
        surface.fresh.clear();
        self.surface = Some(surface);
        outcome
    }

    /// What contexts alone are charged beyond what they take.
    fn measure(&mut self, surface: &mut Surface) {
        let devices = self.devices();
        let baseline = self.figures().into_iter();
        let untouched: Vec<u64> = baseline
            .map(|(used, charged)| charged.saturating_sub(used))
            .collect();
        surface.managed = devices
            .clone()
            .map(|device| self.in_pools(device))
            .collect();
        self.ending.begin(devices.end as i32);
        let beyond = |session: &mut Self, device| {
            let used = session.world.used(DeviceIndex(device)).0 + untouched[device as usize];
            session.charged(device).saturating_sub(used)
        };
        surface.excess = devices.clone().map(|device| beyond(self, device)).collect();
        let standing = devices.clone().map(|device| {
            surface.leftovers.enter(device as i32);
            surface.leftovers.least_stack();
            beyond(self, device)
        });
        surface.standing = standing.collect();
        surface.untouched = untouched;
        self.ending.end(&self.handles, devices.end as i32);
    }

    /// Which contexts there are at first is the first call's last byte.
    fn begin_in(&mut self, surface: &Surface, bytes: &[u8]) {
        let devices = self.devices().end as i32;
        let chosen = bytes.get(CALL - 1).copied().unwrap_or(0);
        match chosen % 8 {
            0 | 1 => {}
            2 => {
                self.ending.begin(devices);
                surface.leftovers.make_current(0);
            }
            3 => {
                surface.leftovers.enter(devices - 1);
            }
            4 => {
                if let Some(context) = surface.leftovers.enter_narrow(0) {
                    self.handles.enter(Kind::Context, context);
                }
            }
            _ => {
                self.ending.begin(devices);
            }
        }
    }

    fn calls(
        &mut self,
        surface: &mut Surface,
        bytes: &[u8; CALL],
        theme: Option<usize>,
        tell: bool,
        verdict: &mut Verdict,
    ) -> Result<(), String> {
        let head = bytes.first_chunk::<HEAD>().expect("a call is longer");
        let at = surface.chosen(head, theme);
        let times: u64 = match head[3] {
            0..=191 => 1,
            192..=231 => 2 + u64::from(head[3] % 15),
            232..=249 => 64,
            250..=254 => 512,
            _ => 2048,
        };
        let by = match head[4] {
            _ if !surface.threads => By::Own,
            // Each thread has a stream of its own.
            0..=23 if surface.all[at].1.queues() => By::Fresh,
            0..=215 => By::Own,
            216..=239 => By::Helper(usize::from(head[4]) % HELPERS),
            _ => By::Fresh,
        };
        let times = match by {
            By::Fresh if head[4] < 8 => FRESH as u64,
            By::Fresh => times.min(FRESH as u64),
            _ => times,
        };
        if bytes[CALL - 3] < ENTERED && surface.leftovers.current() == 0 {
            self.enter(surface, at, bytes);
        }
        // Now and then without what it needs.
        if head[5] < 232 {
            self.provide(surface, at, bytes, DEPTH, tell, verdict)?;
        }
        if head[5] == 231 {
            self.fill(surface, verdict)?;
        }
        let made = self.repeated(surface, at, bytes, (times, by), tell, verdict)?;
        if head[5] < 24 || made >= 64 {
            self.looked_at(surface, surface.all[at].1.name)?;
        }
        Ok(())
    }

    /// A current context for a call: of 32 bits where its addresses are.
    fn enter(&mut self, surface: &mut Surface, at: usize, bytes: &[u8; CALL]) {
        surface.vain.fill(0);
        if !surface.all[at].1.narrow() {
            let device = i32::from(bytes[CALL - 4]) % self.devices().end as i32;
            self.spent |= stays(surface.leftovers.enter(device).0);
        } else if let Some(context) = surface.leftovers.enter_narrow(0) {
            self.handles.enter(Kind::Context, context);
        }
    }

    /// Makes what a call needs and nobody has, and before that what is needed for it.
    fn provide(
        &mut self,
        surface: &mut Surface,
        at: usize,
        bytes: &[u8; CALL],
        depth: u32,
        tell: bool,
        verdict: &mut Verdict,
    ) -> Result<(), String> {
        for nth in 0..surface.needs[at].len() {
            let kind = surface.needs[at][nth];
            for attempt in 0..TRIES {
                let is_there = |handles: &Handles| handles.has(kind);
                let givers = &surface.givers[kind as usize];
                if is_there(&self.handles) || givers.is_empty() || depth == 0 || self.spent {
                    break;
                }
                let bytes = &derived(bytes, u64::from(attempt) << 8 | u64::from(depth));
                let giver = givers[usize::from(bytes[1]) % givers.len()];
                // What is made of its own kind makes no first one.
                if surface.needs[giver].contains(&kind) || surface.vain[giver] >= VAIN {
                    continue;
                }
                self.provide(surface, giver, bytes, depth - 1, tell, verdict)?;
                self.repeated(surface, giver, bytes, (1, By::Own), tell, verdict)?;
                if !is_there(&self.handles) {
                    surface.vain[giver] += 1;
                }
            }
        }
        Ok(())
    }

    /// Makes a call so many times, or until it is refused. Answers how often.
    fn repeated(
        &mut self,
        surface: &mut Surface,
        at: usize,
        bytes: &[u8; CALL],
        (times, by): (u64, By),
        tell: bool,
        verdict: &mut Verdict,
    ) -> Result<u64, String> {
        let (number, export, address) = surface.all[at];
        let deaths: &'static Deaths = oracle::deaths(export.name);
        if deaths.without_context() && surface.leftovers.current() == 0 {
            return Ok(0);
        }
        let mut made = 0;
        let mut last = None;
        for nth in 0..times {
            frame::clear();
            let mut maker = Maker::after(
                HEAD,
                bytes,
                export.name,
                deaths,
                &mut self.handles,
                std::mem::take(&mut self.outs),
                tell && nth == 0,
            );
            maker.outs.clear();
            (maker.surface, maker.habit) = (true, surface.habit);
            let values = export.make(&mut maker);
            let lent = maker.lent.take();
            let (first, told) = (maker.first, maker.told.take());
            let (written, asked) = (std::mem::take(&mut maker.written), maker.asked);
            (self.outs, self.sizes) = (maker.outs, maker.sizes);
            let Some(values) = values else {
                break;
            };
            if let Some(told) = &told {
                let told = format!("{}({told}) × {times} …", export.name);
                // Who dies of it says what it was.
                eprintln!("{told}");
                verdict.told.push((told, String::new()));
            }
            let Some(answer) = surface.call(by, export, address, values) else {
                break;
            };
            if let Some(lent) = lent
                && answer.code == 0
            {
                // The driver has closed it.
                let _ = std::os::fd::IntoRawFd::into_raw_fd(lent);
            }
            verdict.calls += 1;
            made += 1;
            last = Some(answer.code);
            self.spent |= stays(answer.code);
            self.states(export.name, answer, first);
            if answer.code == 0 && export.name.starts_with("cuMemMapArrayAsync") {
                self.bound = self.bound.max(self.physical());
            }
            if answer.code == 0 {
                keep_written(&written, &mut self.handles);
                self.enter_sizes(asked);
                asked
                    .into_iter()
                    .for_each(|size| self.handles.enter_size(size));
            }
            self.bounded(surface, export.name, verdict)?;
            if answer.code != 0 {
                break;
            }
        }
        verdict.digest = fold(verdict.digest, u64::from(last.unwrap_or(u32::MAX)));
        if last == Some(0) || made > 1 {
            verdict.granted.push(number);
        }
        if let (Some((told, _)), Some(code)) = (verdict.told.last_mut(), last.filter(|_| tell)) {
            let lost = &surface.before;
            let charged: Vec<u64> = self.devices().map(|device| self.charged(device)).collect();
            told.push_str(&format!(
                " {made} made, the last = {code}, lost {lost:?}, charged {charged:?}"
            ));
        }
        Ok(made)
    }

    /// What the last call gave is as large as was asked for.
    fn enter_sizes(&mut self, asked: Option<u64>) {
        let given = self.outs.iter().filter_map(|out| {
            let value = u64::from_le_bytes(crate::ffi::calls::written(out));
            Some((out.kind?, value))
        });
        let given: Vec<_> = given.collect();
        for (kind, value) in given {
            if let Some(size) = asked {
                self.handles.enter_size_of(kind, value, size);
            }
        }
    }

    /// Takes what the current context's device has left of the budget: what is taken unasked from then on is beyond it.
    fn fill(&mut self, surface: &mut Surface, verdict: &mut Verdict) -> Result<(), String> {
        if self.current(surface).is_none() {
            return Ok(());
        }
        for block in FILLING {
            for _ in 0..MOST_FILLING {
                let Some(address) = surface.leftovers.allocate(block) else {
                    break;
                };
                verdict.calls += 1;
                self.handles.enter(Kind::Address, address);
            }
        }
        self.bounded(surface, "cuMemAlloc_v2", verdict)
    }

    /// No device is beyond its budget by more than the bound, and none that is takes more.
    fn bounded(
        &mut self,
        surface: &mut Surface,
        name: &str,
        verdict: &mut Verdict,
    ) -> Result<(), String> {
        if self.ledger().is_none() {
            return Ok(());
        }
        for device in self.devices() {
            let used = self.lost(surface, device);
            let budget = self.budgets[device as usize];
            let mut bound = budget.saturating_add(budget / PART);
            if used > bound {
                // Nobody is refused a thread's first call on its own stream.
                bound += self.fragmented(surface, device).min(STEP)
                    + surface.fresh.len() as u64 * OWN_STREAM;
            }
            let charged = self.charged(device);
            verdict.books = fold(verdict.books, charged.wrapping_sub(used));
            let before = std::mem::replace(&mut surface.before[device as usize], used);
            let grown = used.saturating_sub(before);
            verdict.beyond = verdict.beyond.max(used.saturating_sub(budget));
            promise(
                used <= bound || grown <= ONE_CALL && before <= bound,
                || {
                    format!(
                        "{name} took {grown} of device {device}, which has lost {used} of a budget of {budget}"
                    )
                },
            )?;
        }
        Ok(())
    }

    /// After a request that no budget has room for, all that the current device lost is charged.
    fn looked_at(&mut self, surface: &Surface, name: &str) -> Result<(), String> {
        let Some(device) = self.current(surface) else {
            return Ok(());
        };
        let budget = self.budgets[device as usize];
        let refused = surface.leftovers.take(budget);
        if refused != CUresult::ERROR_OUT_OF_MEMORY {
            return match refused {
                CUresult::SUCCESS => Err(format!("{budget}, the whole budget, were granted")),
                // What the driver refuses is looked at by nobody: a capture, a context that is gone.
                _ => Ok(()),
            };
        }
        // What was bound to tiles stays charged, and may be in no row.
        let slack = SETTLED + self.fragmented(surface, device) + self.bound;
        let used = self.lost(surface, device);
        let charged = self.charged(device);
        let excess = match surface.leftovers.is_active(device) {
            true => surface.excess[device as usize],
            false => 0,
        };
        promise(used + excess <= charged + slack, || {
            format!(
                "after {name} and a look device {device} has lost {used} and {charged} are charged, {excess} of them for more than its primary context takes; it is lost to {}",
                self.kinds()
            )
        })
    }

    /// The device of the current context, of a tenant that has a budget for it.
    fn current(&mut self, surface: &Surface) -> Option<u32> {
        self.ledger()?;
        let device = surface.leftovers.current_device()?;
        (self.budgets.get(device as usize).copied()? != u64::MAX).then_some(device)
    }

    /// What a device has lost, and what it may lose for managed memory without another charge.
    fn lost(&self, surface: &Surface, device: u32) -> u64 {
        self.world.used(DeviceIndex(device)).0 + surface.untouched[device as usize]
    }

    fn charged(&mut self, device: u32) -> u64 {
        self.ledger()
            .map_or(0, |view| view.usage(ledger::DeviceIndex(device)).0)
    }

    /// What pools that may be fragmented hold more than is charged, at most: never more than they hold, managed ones among them.
    fn fragmented(&self, surface: &Surface, device: u32) -> u64 {
        let made = self.handles.live(Kind::Pool).len() + self.handles.gone(Kind::Pool).len();
        let pools = made as u64 + self.devices().len() as u64;
        let held = self
            .in_pools(device)
            .saturating_sub(surface.managed[device as usize]);
        held.min(pools * STEP)
    }

    /// What a device has lost to pools and to managed memory, of which some may be a pool's.
    fn in_pools(&self, device: u32) -> u64 {
        let rows = self.world.processes(DeviceIndex(device)).into_iter();
        let held = rows
            .map(|row| row.of(mock_device::Kind::Pool).0 + row.of(mock_device::Kind::Managed).0);
        held.sum()
    }

    /// What all devices have lost to memory that may be bound to tiles: a pool's too, whose ranges are exported as descriptors and imported as memory.
    fn physical(&self) -> u64 {
        let devices = self.devices().map(DeviceIndex);
        let rows = devices.flat_map(|device| self.world.processes(device));
        rows.map(|row| row.of(mock_device::Kind::Vmm).0 + row.of(mock_device::Kind::Pool).0)
            .sum()
    }

    /// When all memory is freed and the streams are waited for, a device grants what it has not lost, less what may have been bound to tiles: it stays charged
    /// until the process ends, so that another takes its place.
    fn back(&mut self, surface: &Surface) -> Result<(), String> {
        if self.spent || self.ledger().is_none() {
            return Ok(());
        }
        self.ending.free(&self.handles);
        self.spent |= stays(surface.leftovers.wait_for_streams(&self.handles));
        if self.spent {
            return Ok(());
        }
        for device in self.devices() {
            if surface.leftovers.enter(device as i32) != CUresult::SUCCESS {
                continue;
            }
            // What another context, of 32 bits or an ended one, did not let go of.
            self.ending.free(&self.handles);
            self.looked_at(surface, "everything was freed")?;
            let used = self.lost(surface, device);
            let budget = self.budgets[device as usize];
            let contexts = 1 + self.handles.live(Kind::Context).len() as u64;
            let standing = surface.standing[device as usize] * contexts;
            let slack = SETTLED + self.fragmented(surface, device) + standing + self.bound;
            let wanted = budget.saturating_sub(used + slack);
            let answer = match wanted {
                0 => CUresult::SUCCESS,
                some => surface.leftovers.take(some & !((2 << 20) - 1)),
            };
            let charged = self.charged(device);
            promise(answer != CUresult::ERROR_OUT_OF_MEMORY, || {
                format!(
                    "device {device} has lost {used} of a budget of {budget}, all memory is freed, {charged} are charged, and {wanted} are refused"
                )
            })?;
        }
        self.spent |= self.bound != 0;
        Ok(())
    }
}
