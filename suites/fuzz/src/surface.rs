//! Sequences over every export of libcuda, hooked or not, judged by what no list of hooks enters: the simulated devices' own figure.
//!
//! Three promises, for a process with budgets:
//! * *the floor*: no device is further beyond its budget than the bound of ARCHITECTURE (*The floor*), and one that is takes nothing more;
//! * *the books*: after a look, which a refusal is, all that the device holds is charged;
//! * *everything back*: when all memory is freed and each stream waited for, but no context, what the device does not hold is granted.
//!
//! A call is made once or many times, by the sequence's own thread, by one of a few that stay, or each time by a fresh one that lives as long as the sequence.
//! A sequence begins without a context, with a device's primary one, with one of 32 bits, or with all primary ones and none current; all else it makes itself.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use abi::cuda::CUresult;
use mock_device::DeviceIndex;

use crate::ffi::calls::Answer;
use crate::ffi::frame;
use crate::ffi::surface::{Export, Leftovers, Value, exports};
use crate::input::CALL;
use crate::maker::{Kind, Maker};
use crate::oracle;
use crate::session::{STEP, Session, Verdict, fold, promise};

/// Bytes of a call that say what is called, how often and by which thread.
const HEAD: usize = 6;
/// Of a budget what a process may take between two looks (ARCHITECTURE, *The floor*).
const PART: u64 = 64;
/// What one call may take that nobody was asked for, until the look behind it.
const ONE_CALL: u64 = 64 << 20;
/// What the books may lack after a look: blocks whose owner is being settled.
const SETTLED: u64 = 4 << 20;
/// Threads that stay, and most that live at once for one call each.
const HELPERS: usize = 3;
const FRESH: usize = 128;
/// Times that a call is made at most in one sequence.
const CALLS: u64 = 20_000;

/// Entry points by the beginning of their names that are never called, and why.
const LEFT_OUT: [(&str, &str); 5] = [
    ("cuStreamWaitValue", "waits for what nobody writes"),
    ("cuStreamBatchMemOp", "the same"),
    ("cuGraphAddBatchMemOp", "the same"),
    ("cuWaitExternalSemaphores", "the same"),
    ("cuCheckpointProcess", "suspends processes"),
];

/// Whether a context keeps an error, and so every context of the process.
fn stays(code: u32) -> bool {
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
    helpers: Vec<Helper>,
    fresh: Vec<Helper>,
    /// What each device had lost after the call before.
    before: Vec<u64>,
    /// What is charged of each device beyond what it lost as long as there are contexts and may not be taken yet: by so much a look may be mistaken.
    ahead: Vec<u64>,
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
        Some(Self {
            leftovers: Arc::new(Leftovers::open()?),
            makers: those(Export::makes),
            sized: those(Export::sized),
            all,
            helpers: Vec::new(),
            fresh: Vec::new(),
            before: Vec::new(),
            ahead: Vec::new(),
            standing: Vec::new(),
        })
    }

    /// Half of the calls make something or are told how much, by their signatures; the rest is anything.
    fn chosen(&self, head: &[u8; HEAD]) -> (u16, &'static Export, usize) {
        let nth = usize::from(u16::from_le_bytes([head[1], head[2]]));
        let at = match head[0] {
            0..=95 => self.makers[nth % self.makers.len()],
            96..=127 => self.sized[nth % self.sized.len()],
            _ => nth % self.all.len(),
        };
        self.all[at]
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
        self.begin_in(&surface, bytes);
        let mut outcome = Ok(());
        for call in bytes.chunks_exact(CALL) {
            let call = call.first_chunk::<CALL>().expect("a chunk of that size");
            outcome = self.calls(&mut surface, call, tell, verdict);
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
        self.ending.begin(devices.end as i32);
        let beyond = |session: &mut Self, device| {
            let used = session.world.used(DeviceIndex(device)).0;
            session.charged(device).saturating_sub(used)
        };
        surface.ahead = devices.clone().map(|device| beyond(self, device)).collect();
        let standing = devices.clone().map(|device| {
            surface.leftovers.enter(device as i32);
            surface.leftovers.least_stack();
            beyond(self, device)
        });
        surface.standing = standing.collect();
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
        tell: bool,
        verdict: &mut Verdict,
    ) -> Result<(), String> {
        let head = bytes.first_chunk::<HEAD>().expect("a call is longer");
        let (number, export, address) = surface.chosen(head);
        let deaths = oracle::deaths(export.name);
        if deaths.without_context() && surface.leftovers.current() == 0 {
            return Ok(());
        }
        let times: u64 = match head[3] {
            0..=175 => 1,
            176..=223 => 2 + u64::from(head[3] % 15),
            224..=247 => 64,
            248..=253 => 512,
            _ => 2048,
        };
        let by = match head[4] {
            0..=215 => By::Own,
            216..=239 => By::Helper(usize::from(head[4]) % HELPERS),
            _ => By::Fresh,
        };
        let times = match by {
            By::Fresh => times.min(FRESH as u64),
            _ => times,
        };
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
            let values = export.make(&mut maker);
            let lent = maker.lent.take();
            let (first, told) = (maker.first, maker.told.take());
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
            self.bounded(surface, export.name, verdict)?;
            if answer.code != 0 {
                break;
            }
        }
        verdict.digest = fold(verdict.digest, u64::from(last.unwrap_or(u32::MAX)));
        if last == Some(0) {
            verdict.granted.push(number);
        }
        if let (Some((told, _)), Some(code)) = (verdict.told.last_mut(), last.filter(|_| tell)) {
            let lost = &surface.before;
            told.push_str(&format!(" {made} made, the last = {code}, lost {lost:?}"));
        }
        if head[5] < 24 || made >= 64 {
            self.looked_at(surface, export.name)?;
        }
        Ok(())
    }

    /// No device is beyond its budget by more than the bound, of which what is charged and may not be taken yet is a part, and none that is takes more.
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
            let used = self.world.used(DeviceIndex(device)).0;
            let budget = self.budgets[device as usize];
            let bound = budget
                .saturating_add(budget / PART + STEP)
                .saturating_add(surface.ahead[device as usize]);
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
        let slack = SETTLED + self.pools_kept() * STEP + surface.ahead[device as usize];
        let used = self.world.used(DeviceIndex(device)).0;
        let charged = self.charged(device);
        promise(used <= charged + slack, || {
            format!(
                "after {name} and a look device {device} has lost {used} and {charged} are charged"
            )
        })
    }

    /// The device of the current context, of a tenant that has a budget for it.
    fn current(&mut self, surface: &Surface) -> Option<u32> {
        self.ledger()?;
        let device = surface.leftovers.current_device()?;
        (self.budgets.get(device as usize).copied()? != u64::MAX).then_some(device)
    }

    fn charged(&mut self, device: u32) -> u64 {
        self.ledger()
            .map_or(0, |view| view.usage(ledger::DeviceIndex(device)).0)
    }

    /// Pools that may be fragmented.
    fn pools_kept(&self) -> u64 {
        let made = self.handles.live(Kind::Pool).len() + self.handles.gone(Kind::Pool).len();
        made as u64 + self.devices().len() as u64
    }

    /// When all memory is freed and the streams are waited for, a device grants what it has not lost.
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
            self.looked_at(surface, "everything was freed")?;
            let used = self.world.used(DeviceIndex(device)).0;
            let budget = self.budgets[device as usize];
            let contexts = 1 + self.handles.live(Kind::Context).len() as u64;
            let standing = surface.standing[device as usize] * contexts;
            let slack = SETTLED + self.pools_kept() * STEP + standing;
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
        Ok(())
    }
}
