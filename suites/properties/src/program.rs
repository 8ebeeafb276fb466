//! A tenant's program: carries operations out against CUDA, NVML and Vulkan as this process finds them, and judges every answer by
//! the [`model`](crate::model) and by what the simulated devices hold.

use std::path::Path;

use abi::cuda::{CUdeviceptr, CUresult};
use cases::clients::{self, Gpu};
use cases::ffi::cuda::{Array, Context, Cuda, OwnStream, Pool, Stream};
use cases::ffi::nvml::{self, Nvml};
use cases::ffi::vulkan::{Client, Code, Memory, Place, Query};
use harness::Failure;
use ledger::View;
use mock_device::{DeviceIndex, World};

use crate::ffi::errno;
use crate::model::{Account, BLOCK, CONTEXT, PAGE, STEP, up};
use crate::operation::{Operation, Size};

/// What was promised and not kept.
pub type Broken = String;

const NO_MEMORY: CUresult = CUresult::ERROR_OUT_OF_MEMORY;
const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;
/// Of managed memory: as much as a device's first takes ahead of need.
const MANAGED: u64 = 64 << 20;
/// Most that a program asks of the host's own memory at once.
const HOST_MOST: u64 = 64 << 20;

macro_rules! promise {
    ($condition:expr, $($message:tt)+) => {
        if !$condition { return Err(format!($($message)+)); }
    };
}

/// Something that is held, and what ends it.
enum Held {
    Blocks {
        address: CUdeviceptr,
        bytes: u64,
        context: usize,
    },
    Managed {
        address: CUdeviceptr,
        bytes: u64,
        context: usize,
    },
    Ordered {
        address: CUdeviceptr,
        bytes: u64,
        pool: u64,
    },
    Physical {
        handle: Option<u64>,
        bytes: u64,
        mapped: Option<CUdeviceptr>,
    },
    Array {
        array: Array,
        bytes: u64,
        context: usize,
    },
    Vulkan {
        memory: Memory,
        bytes: u64,
    },
    VulkanHost {
        memory: Memory,
    },
}

struct Object {
    device: usize,
    held: Held,
}

impl Object {
    fn address(&self) -> Option<CUdeviceptr> {
        match self.held {
            Held::Blocks { address, .. }
            | Held::Managed { address, .. }
            | Held::Ordered { address, .. } => Some(address),
            _ => None,
        }
    }
}

/// A context that was created; a primary one has the device's number.
struct Made {
    number: usize,
    device: usize,
    context: Context,
}

struct OwnedStream {
    device: usize,
    context: usize,
    stream: OwnStream,
}

struct CreatedPool {
    number: u64,
    device: usize,
    pool: Pool,
}

/// The program, and what it knows of itself.
pub struct Program {
    cuda: Cuda,
    nvml: Nvml,
    nvml_devices: Vec<nvml::Device>,
    gpus: Vec<Gpu>,
    host_types: Vec<u32>,
    world: World,
    ledger: View,
    accounts: Vec<Account>,
    /// Before any sequence: what each device had lost, and what was charged.
    baseline: Option<Vec<(u64, u64)>>,
    primaries: Vec<Context>,
    contexts: Vec<Made>,
    /// Which is current: its device, its number.
    current: (usize, usize),
    next_context: usize,
    next_pool: u64,
    streams: Vec<OwnedStream>,
    pools: Vec<CreatedPool>,
    objects: Vec<Object>,
    freed: Vec<CUdeviceptr>,
    /// Calls that were made, for the report.
    pub calls: u64,
    /// Has figures go to stderr after every operation.
    pub told: bool,
}

/// How a call was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Granted,
    NoMemory,
    /// Refused with another code.
    Otherwise,
}

impl Verdict {
    fn of(code: CUresult) -> Self {
        match code {
            CUresult::SUCCESS => Self::Granted,
            NO_MEMORY => Self::NoMemory,
            _ => Self::Otherwise,
        }
    }
}

impl Program {
    /// Opens everything, in an environment with budgets on all devices.
    pub fn begin(world: &Path, ledger: &Path) -> Result<Self, Failure> {
        let world = World::open(world)?;
        let devices = world.devices().len();
        let cuda = clients::cuda_without_context()?;
        let nvml = clients::nvml()?;
        let instance = clients::instance(Client::V1_1)?;
        let physical = clients::gpus(&instance)?;
        let (mut gpus, mut host_types, mut nvml_devices) = (Vec::new(), Vec::new(), Vec::new());
        for &physical in &physical {
            gpus.push(Gpu::on(&instance, physical)?);
            host_types.push(clients::memory_type(&instance, physical, Place::Host)?);
        }
        for index in 0..devices as u32 {
            nvml_devices.push(clients::told(
                "nvmlDeviceGetHandleByIndex_v2",
                nvml.device(index),
            )?);
        }
        harness::ensure_eq!(gpus.len(), devices, "Vulkan's devices");
        let ledger = View::open(ledger)?;
        let accounts = (0..devices as u32).map(|device| {
            let budget = ledger.budget(ledger::DeviceIndex(device));
            Account::begin(budget.map_or(u64::MAX, |budget| budget.0), (0, 0))
        });
        let mut program = Self {
            cuda,
            nvml,
            nvml_devices,
            gpus,
            host_types,
            accounts: accounts.collect(),
            world,
            ledger,
            baseline: None,
            primaries: Vec::new(),
            contexts: Vec::new(),
            current: (0, 0),
            next_context: devices,
            next_pool: 1,
            streams: Vec::new(),
            pools: Vec::new(),
            objects: Vec::new(),
            freed: Vec::new(),
            calls: 0,
            told: false,
        };
        program.prepare().map_err(Failure::Broken)?;
        Ok(program)
    }

    fn devices(&self) -> std::ops::Range<usize> {
        0..self.accounts.len()
    }

    /// A primary context on each device, the first's current. The same figures as at every sequence's begin.
    fn prepare(&mut self) -> Result<(), Broken> {
        self.primaries.clear();
        for device in self.devices() {
            let retained = self.cuda.retain_primary(device as i32);
            promise!(
                retained.code == CUresult::SUCCESS,
                "a primary context: {:?}",
                retained.code
            );
            self.primaries.push(retained.out);
        }
        if self.baseline.is_none() {
            self.keep_for_managed()?;
        }
        self.make_current((0, 0))?;
        let figures: Vec<(u64, u64)> = self.devices().map(|device| self.figures(device)).collect();
        let baseline = self.baseline.get_or_insert_with(|| figures.clone());
        for (device, (now, first)) in figures.iter().zip(baseline).enumerate() {
            promise!(
                now == first,
                "device {device} holds {} and {} are charged with nothing but contexts; it was {} and {}",
                now.0,
                now.1,
                first.0,
                first.1
            );
        }
        for (account, figures) in self.accounts.iter_mut().zip(figures) {
            *account = Account::begin(account.budget, figures);
        }
        self.world.reset_peak();
        Ok(())
    }

    /// What each device keeps for managed memory until the process ends it keeps from here on.
    fn keep_for_managed(&mut self) -> Result<(), Broken> {
        for device in self.devices() {
            self.make_current((device, device))?;
            let managed = self.cuda.allocate_managed(MANAGED);
            let touched = self.cuda.set_bytes(managed.out, 0, MANAGED);
            let answers = [managed.code, touched, self.cuda.free(managed.out)];
            promise!(
                answers == [CUresult::SUCCESS; 3],
                "managed memory made, touched and freed: {answers:?}"
            );
        }
        Ok(())
    }

    /// What a device has lost to this tenant, and what is charged.
    fn figures(&self, device: usize) -> (u64, u64) {
        let lost = self.world.used(DeviceIndex(device as u32)).0;
        (
            lost,
            self.ledger.usage(ledger::DeviceIndex(device as u32)).0,
        )
    }

    fn context_of(&self, number: usize) -> Option<Context> {
        let made = self.contexts.iter().find(|made| made.number == number);
        self.primaries
            .get(number)
            .copied()
            .or(made.map(|made| made.context))
    }

    fn make_current(&mut self, current: (usize, usize)) -> Result<(), Broken> {
        let context = self.context_of(current.1).ok_or("a context is not known")?;
        let code = self.cuda.set_current(context);
        promise!(
            code == CUresult::SUCCESS,
            "cuCtxSetCurrent answered {code:?}"
        );
        self.current = current;
        Ok(())
    }

    /// A sequence from beginning to end. How many operations were carried out, and what was broken by the last of them.
    pub fn run(&mut self, operations: &[Operation]) -> (usize, Option<Broken>) {
        for (done, operation) in operations.iter().enumerate() {
            let outcome = self.carry_out(operation).and_then(|()| self.invariants());
            if self.told {
                self.tell(operation);
            }
            if let Err(broken) = outcome {
                return (done + 1, Some(broken));
            }
        }
        let ended = self.end();
        (
            operations.len(),
            ended.err().map(|broken| format!("at the end: {broken}")),
        )
    }

    /// What each device has lost and is charged, and the model's bounds, beside what was there before.
    fn tell(&self, operation: &Operation) {
        let beside = |now: u64, before: u64| i128::from(now) - i128::from(before);
        let figures = self.devices().map(|device| {
            let (account, (lost, charged)) = (&self.accounts[device], self.figures(device));
            let (lost, charged) = (
                beside(lost, account.lost_before),
                beside(charged, account.charged_before),
            );
            format!(
                "lost {lost}, charged {charged}, by the model {} to {}",
                account.least(),
                account.most()
            )
        });
        eprintln!("{operation:?}: {}", figures.collect::<Vec<_>>().join("; "));
    }

    /// One call, which leaves errno alone.
    fn call<T>(&mut self, call: impl FnOnce(&Cuda) -> T) -> Result<T, Broken> {
        self.calls += 1;
        let (answer, kept) = errno::around(|| call(&self.cuda));
        promise!(kept, "errno was changed");
        Ok(answer)
    }

    fn sized(&self, size: Size, device: usize) -> u64 {
        let account = &self.accounts[device];
        match size {
            Size::Bytes(bytes) => bytes,
            Size::Fits(less) => account
                .must_fit()
                .saturating_sub(u64::from(less) * BLOCK)
                .max(1),
            Size::Over(more) => account.cannot_fit() + u64::from(more) * BLOCK,
        }
    }

    /// Judges the answer to a request that costs so much at least and at most.
    fn judge(
        &self,
        what: &str,
        device: usize,
        verdict: Verdict,
        least: u64,
        most: u64,
    ) -> Result<(), Broken> {
        let account = &self.accounts[device];
        let told = |account: &Account| {
            format!(
                "device {device} of {}: {} charged before, {} needed and {} held at most by the model",
                account.budget,
                account.charged_before,
                account.needed(),
                account.most()
            )
        };
        match verdict {
            Verdict::Granted => {
                let held = account.lost_before + account.least();
                promise!(
                    held.saturating_add(least) <= account.budget,
                    "{what} was granted, over the budget: {}",
                    told(account)
                );
            }
            Verdict::NoMemory => promise!(
                account.may_refuse(most),
                "{what} was refused, though at most {most} fit: {}",
                told(account)
            ),
            Verdict::Otherwise => {}
        }
        Ok(())
    }

    fn plainly(what: &str, code: CUresult) -> Result<(), Broken> {
        let verdict = Verdict::of(code);
        promise!(verdict != Verdict::Otherwise, "{what} answered {code:?}");
        Ok(())
    }

    fn carry_out(&mut self, operation: &Operation) -> Result<(), Broken> {
        match *operation {
            Operation::Device(nth) => self.change_device(nth),
            Operation::Allocate(size) => self.allocate(size),
            Operation::Pitched { width, height } => self.allocate_pitched(width, height),
            Operation::Managed(size) => self.allocate_managed(size),
            Operation::Ordered { size, pool, stream } => self.allocate_ordered(size, pool, stream),
            Operation::Physical(size) => self.create_physical(size),
            Operation::Map(nth) => self.map(nth),
            Operation::Array { width, height } => self.create_array(width, height),
            Operation::Vulkan(size) => self.allocate_vulkan(size),
            Operation::VulkanHost(size) => self.allocate_host(size),
            Operation::Free(nth) => self.free_nth(nth, None),
            Operation::FreeOrdered { nth, stream } => self.free_nth(nth, Some(stream)),
            Operation::FreeWrong(address) => self.free_wrong(address),
            Operation::Synchronize => self.synchronize(),
            Operation::CreatePool => self.create_pool(),
            Operation::DestroyPool(nth) => self.destroy_pool(nth),
            Operation::Trim { pool, keep } => self.trim(pool, keep),
            Operation::CreateStream => self.create_stream(),
            Operation::DestroyStream(nth) => self.destroy_stream(nth),
            Operation::CreateContext => self.create_context(),
            Operation::DestroyContext(nth) => self.destroy_context(nth),
            Operation::IntoNothing(size) => self.without_place(size),
            Operation::End => self.end(),
            Operation::Die => std::process::abort(),
        }
    }
}

/// What takes memory.
impl Program {
    fn hold(&mut self, device: usize, held: Held) {
        if let Some(address) = (Object { device, held }.address_and_keep(self)) {
            self.freed.retain(|&freed| freed != address);
        }
    }

    fn allocate(&mut self, size: Size) -> Result<(), Broken> {
        let (device, context) = self.current;
        let bytes = self.sized(size, device);
        let answer = self.call(|cuda| cuda.allocate(bytes))?;
        if bytes == 0 {
            promise!(
                answer.code == INVALID,
                "cuMemAlloc_v2 of 0 answered {:?}",
                answer.code
            );
            return Ok(());
        }
        Self::plainly("cuMemAlloc_v2", answer.code)?;
        let least = if bytes < BLOCK { 0 } else { bytes };
        let what = format!("cuMemAlloc_v2 of {bytes}");
        self.judge(
            &what,
            device,
            Verdict::of(answer.code),
            least,
            up(bytes, BLOCK),
        )?;
        if answer.code != CUresult::SUCCESS {
            promise!(
                answer.out == 0,
                "{what} was refused and wrote {:#x}",
                answer.out
            );
            return Ok(());
        }
        self.accounts[device].enter_blocks(answer.out, bytes);
        self.hold(
            device,
            Held::Blocks {
                address: answer.out,
                bytes,
                context,
            },
        );
        Ok(())
    }

    fn allocate_pitched(&mut self, width: u64, height: u64) -> Result<(), Broken> {
        const ROW: u64 = 512;
        let (device, context) = self.current;
        let answer = self.call(|cuda| cuda.allocate_pitch(width, height))?;
        let what = format!("cuMemAllocPitch_v2 of {width} by {height}");
        let row = width.checked_next_multiple_of(ROW);
        let Some(row) = row.filter(|_| width > 0 && height > 0) else {
            promise!(answer.code == INVALID, "{what} answered {:?}", answer.code);
            return Ok(());
        };
        let bytes = row.saturating_mul(height);
        Self::plainly(&what, answer.code)?;
        let least = if bytes < BLOCK { 0 } else { bytes };
        self.judge(
            &what,
            device,
            Verdict::of(answer.code),
            least,
            up(bytes, BLOCK),
        )?;
        if answer.code == CUresult::SUCCESS {
            self.accounts[device].enter_blocks(answer.out, bytes);
            self.hold(
                device,
                Held::Blocks {
                    address: answer.out,
                    bytes,
                    context,
                },
            );
        }
        Ok(())
    }

    fn allocate_managed(&mut self, size: Size) -> Result<(), Broken> {
        let (device, context) = self.current;
        let bytes = self.sized(size, device);
        let answer = self.call(|cuda| cuda.allocate_managed(bytes))?;
        if bytes == 0 {
            promise!(
                answer.code == INVALID,
                "cuMemAllocManaged of 0 answered {:?}",
                answer.code
            );
            return Ok(());
        }
        let what = format!("cuMemAllocManaged of {bytes}");
        Self::plainly(&what, answer.code)?;
        let most = up(bytes, BLOCK);
        self.judge(&what, device, Verdict::of(answer.code), 0, most)?;
        if answer.code == CUresult::SUCCESS {
            self.accounts[device].enter_managed(bytes);
            self.hold(
                device,
                Held::Managed {
                    address: answer.out,
                    bytes,
                    context,
                },
            );
        }
        Ok(())
    }

    fn allocate_ordered(&mut self, size: Size, pool: u8, stream: u8) -> Result<(), Broken> {
        let created: Option<(u64, usize, Pool)> = match pool.checked_sub(128) {
            Some(nth) if !self.pools.is_empty() => {
                let found = &self.pools[usize::from(nth) % self.pools.len()];
                Some((found.number, found.device, found.pool))
            }
            _ => None,
        };
        // A pool is asked from where its own device is current, the default one on any stream.
        let created = created.filter(|created| created.1 == self.current.0);
        let own = match stream.checked_sub(64) {
            Some(nth) if !self.streams.is_empty() && created.is_none() => {
                let found = &self.streams[usize::from(nth) % self.streams.len()];
                Some((found.device, found.stream))
            }
            _ => None,
        };
        let way = if stream.is_multiple_of(2) {
            Stream::Legacy
        } else {
            Stream::PerThread
        };
        let device = own.map_or(self.current.0, |(device, _)| device);
        let bytes = self.sized(size, device);
        let answer = self.call(|cuda| match (created, own) {
            (Some((_, _, pool)), _) => cuda.allocate_from_pool(way, pool, bytes),
            (None, Some((_, stream))) => cuda.allocate_in(stream, bytes),
            (None, None) => cuda.allocate_async(way, bytes),
        })?;
        let what = format!("cuMemAllocAsync of {bytes}");
        Self::plainly(&what, answer.code)?;
        if bytes == 0 {
            return Ok(());
        }
        self.judge(&what, device, Verdict::of(answer.code), 0, up(bytes, STEP))?;
        if answer.code == CUresult::SUCCESS {
            let number = created.map_or(0, |(number, _, _)| number);
            let pool = self.accounts[device].pools.entry(number).or_default();
            pool.enter(answer.out, bytes);
            self.hold(
                device,
                Held::Ordered {
                    address: answer.out,
                    bytes,
                    pool: number,
                },
            );
        }
        Ok(())
    }

    fn create_physical(&mut self, size: Size) -> Result<(), Broken> {
        let device = self.current.0;
        let bytes = match self.sized(size, device) {
            odd if odd % 7 == 1 => odd,
            bytes => bytes
                .checked_next_multiple_of(BLOCK)
                .unwrap_or(u64::MAX / BLOCK * BLOCK),
        };
        let answer = self.call(|cuda| cuda.create_memory(device as i32, bytes))?;
        let what = format!("cuMemCreate of {bytes}");
        if bytes == 0 || !bytes.is_multiple_of(BLOCK) {
            promise!(answer.code == INVALID, "{what} answered {:?}", answer.code);
            return Ok(());
        }
        Self::plainly(&what, answer.code)?;
        self.judge(&what, device, Verdict::of(answer.code), bytes, bytes)?;
        if answer.code == CUresult::SUCCESS {
            self.accounts[device].enter_exact(bytes);
            self.hold(
                device,
                Held::Physical {
                    handle: Some(answer.out),
                    bytes,
                    mapped: None,
                },
            );
        }
        Ok(())
    }

    fn map(&mut self, nth: u8) -> Result<(), Broken> {
        let fits = |object: &(usize, &Object)| {
            matches!(
                object.1.held,
                Held::Physical {
                    handle: Some(_),
                    mapped: None,
                    ..
                }
            )
        };
        let all: Vec<usize> = self
            .objects
            .iter()
            .enumerate()
            .filter(fits)
            .map(|(at, _)| at)
            .collect();
        if all.is_empty() {
            return Ok(());
        }
        let at = all[usize::from(nth) % all.len()];
        let Held::Physical {
            handle: Some(handle),
            bytes,
            ..
        } = self.objects[at].held
        else {
            return Ok(());
        };
        let reserved = self.call(|cuda| cuda.reserve_addresses(bytes))?;
        promise!(
            reserved.code == CUresult::SUCCESS,
            "cuMemAddressReserve answered {:?}",
            reserved.code
        );
        let mapped = self.call(|cuda| cuda.map_memory(reserved.out, bytes, handle))?;
        promise!(mapped == CUresult::SUCCESS, "cuMemMap answered {mapped:?}");
        if let Held::Physical { mapped, .. } = &mut self.objects[at].held {
            *mapped = Some(reserved.out);
        }
        Ok(())
    }

    fn create_array(&mut self, width: u8, height: u8) -> Result<(), Broken> {
        let (device, context) = self.current;
        let (width, height) = (u64::from(width) * 64, u64::from(height) * 128);
        let bytes = width * height * 4;
        let answer = self.call(|cuda| cuda.create_array(width, height))?;
        let what = format!("cuArrayCreate_v2 of {width} by {height}");
        Self::plainly(&what, answer.code)?;
        let (least, most) = match bytes < BLOCK {
            true => (0, 2 * bytes + 2 * BLOCK),
            false => (bytes, up(bytes, BLOCK)),
        };
        self.judge(&what, device, Verdict::of(answer.code), least, most)?;
        if answer.code == CUresult::SUCCESS {
            self.accounts[device].enter_array(bytes);
            self.hold(
                device,
                Held::Array {
                    array: answer.out,
                    bytes,
                    context,
                },
            );
        }
        Ok(())
    }

    fn allocate_vulkan(&mut self, size: Size) -> Result<(), Broken> {
        let device = self.current.0;
        // Nothing is no valid size.
        let bytes = self.sized(size, device).max(1);
        self.calls += 1;
        let gpu = &self.gpus[device];
        let (answer, kept) = errno::around(|| gpu.device.ask(gpu.memory_type, bytes));
        promise!(kept, "errno was changed");
        let what = format!("vkAllocateMemory of {bytes}");
        let verdict = match answer.code {
            Code::SUCCESS => Verdict::Granted,
            Code::OUT_OF_DEVICE_MEMORY => Verdict::NoMemory,
            code => return Err(format!("{what} answered {code}")),
        };
        let cost = up(bytes, PAGE);
        // The layer knows nothing of CUDA's pools.
        match verdict {
            Verdict::NoMemory if self.accounts[device].may_refuse_beside_pools(cost) => {
                return Ok(());
            }
            verdict => self.judge(&what, device, verdict, cost, cost)?,
        }
        if let Some(memory) = answer.memory {
            self.accounts[device].enter_exact(cost);
            self.hold(
                device,
                Held::Vulkan {
                    memory,
                    bytes: cost,
                },
            );
        }
        Ok(())
    }

    fn allocate_host(&mut self, size: Size) -> Result<(), Broken> {
        let device = self.current.0;
        let bytes = self.sized(size, device) % HOST_MOST + 1;
        self.calls += 1;
        let before = self.figures(device);
        let (gpu, host) = (&self.gpus[device], self.host_types[device]);
        let (answer, kept) = errno::around(|| gpu.device.ask(host, bytes));
        promise!(kept, "errno was changed");
        promise!(
            answer.code == Code::SUCCESS,
            "vkAllocateMemory of {bytes} of the host's answered {}",
            answer.code
        );
        promise!(
            self.figures(device) == before,
            "the host's memory was charged to device {device}"
        );
        if let Some(memory) = answer.memory {
            self.hold(device, Held::VulkanHost { memory });
        }
        Ok(())
    }

    fn without_place(&mut self, size: Size) -> Result<(), Broken> {
        let device = self.current.0;
        let bytes = self.sized(size, device);
        let before = self.figures(device);
        let answers = [
            self.call(|cuda| cuda.allocate_into_nothing(bytes))?,
            self.call(|cuda| cuda.allocate_async_into_nothing(Stream::Legacy, bytes))?,
        ];
        promise!(
            answers == [INVALID; 2],
            "a NULL out-parameter was answered {answers:?}"
        );
        promise!(
            self.figures(device) == before,
            "a NULL out-parameter changed what device {device} holds"
        );
        Ok(())
    }
}

impl Object {
    fn address_and_keep(self, program: &mut Program) -> Option<CUdeviceptr> {
        let address = self.address();
        program.objects.push(self);
        address
    }
}

/// What ends things.
impl Program {
    fn free_nth(&mut self, nth: u16, stream: Option<u8>) -> Result<(), Broken> {
        if self.objects.is_empty() {
            return Ok(());
        }
        let at = usize::from(nth) % self.objects.len();
        let Object { device, held } = self.objects.swap_remove(at);
        match held {
            Held::Blocks { address, bytes, .. } => {
                self.free_address(device, address, stream)?;
                let gone = self.accounts[device].leave_blocks(address, bytes);
                if stream.is_some() {
                    self.accounts[device].linger(gone);
                }
            }
            Held::Managed { address, bytes, .. } => {
                // No stream frees it: the driver answers NOT_SUPPORTED.
                self.free_address(device, address, None)?;
                self.accounts[device].leave_managed(bytes);
            }
            Held::Ordered {
                address,
                bytes,
                pool,
            } => {
                self.free_address(device, address, stream)?;
                if let Some(pool) = self.accounts[device].pools.get_mut(&pool) {
                    pool.leave(address, bytes);
                }
            }
            Held::Physical {
                handle: Some(handle),
                bytes,
                mapped,
            } => {
                let code = self.call(|cuda| cuda.release_memory(handle))?;
                promise!(code == CUresult::SUCCESS, "cuMemRelease answered {code:?}");
                match mapped {
                    // Its mapping holds it still.
                    Some(_) => self.objects.push(Object {
                        device,
                        held: Held::Physical {
                            handle: None,
                            bytes,
                            mapped,
                        },
                    }),
                    None => self.accounts[device].leave_exact(bytes),
                }
            }
            Held::Physical {
                handle: None,
                bytes,
                mapped,
            } => {
                if let Some(address) = mapped {
                    let code = self.call(|cuda| cuda.unmap_memory(address, bytes))?;
                    promise!(code == CUresult::SUCCESS, "cuMemUnmap answered {code:?}");
                    let code = self.call(|cuda| cuda.give_addresses_back(address, bytes))?;
                    promise!(
                        code == CUresult::SUCCESS,
                        "cuMemAddressFree answered {code:?}"
                    );
                }
                self.accounts[device].leave_exact(bytes);
            }
            Held::Array { array, bytes, .. } => {
                let code = self.call(|cuda| cuda.destroy_array(array))?;
                promise!(
                    code == CUresult::SUCCESS,
                    "cuArrayDestroy answered {code:?}"
                );
                self.accounts[device].leave_array(bytes);
            }
            Held::Vulkan { memory, bytes } => {
                self.calls += 1;
                self.gpus[device].device.free(memory);
                self.accounts[device].leave_exact(bytes);
            }
            Held::VulkanHost { memory } => {
                self.calls += 1;
                self.gpus[device].device.free(memory);
            }
        }
        Ok(())
    }

    fn free_address(
        &mut self,
        device: usize,
        address: CUdeviceptr,
        stream: Option<u8>,
    ) -> Result<(), Broken> {
        // In the order of a stream of the same device.
        let streams = self.streams.iter().filter(|stream| stream.device == device);
        let streams: Vec<OwnStream> = streams.map(|stream| stream.stream).collect();
        let here = self.current.0 == device;
        let code = self.call(|cuda| match stream {
            Some(nth) if nth >= 64 && !streams.is_empty() => {
                cuda.free_in(streams[usize::from(nth) % streams.len()], address)
            }
            Some(nth) if here && nth.is_multiple_of(2) => cuda.free_async(Stream::Legacy, address),
            Some(_) if here => cuda.free_async(Stream::PerThread, address),
            _ => cuda.free(address),
        })?;
        promise!(
            code == CUresult::SUCCESS,
            "a free of {address:#x} answered {code:?}"
        );
        self.freed.push(address);
        if self.freed.len() > 8 {
            self.freed.remove(0);
        }
        Ok(())
    }

    fn free_wrong(&mut self, wish: u64) -> Result<(), Broken> {
        let again = self.freed.get(wish as usize % 16).copied();
        let address = again.unwrap_or(wish | 1);
        let before: Vec<_> = self.devices().map(|device| self.figures(device)).collect();
        let code = self.call(|cuda| cuda.free(address))?;
        promise!(
            code == INVALID,
            "a free of {address:#x}, which is not held, answered {code:?}"
        );
        let after: Vec<_> = self.devices().map(|device| self.figures(device)).collect();
        // A free waits, so that pools may give back.
        let grew = after
            .iter()
            .zip(&before)
            .any(|(after, before)| after.0 > before.0 || after.1 > before.1);
        promise!(
            !grew,
            "a free of what is not held took memory: {before:?}, {after:?}"
        );
        Ok(())
    }

    fn synchronize(&mut self) -> Result<(), Broken> {
        let current = self.current;
        let mut all: Vec<(usize, usize)> = self.devices().map(|device| (device, device)).collect();
        all.extend(self.contexts.iter().map(|made| (made.device, made.number)));
        all.push(current);
        for context in all {
            self.make_current(context)?;
            let code = self.call(|cuda| cuda.synchronize())?;
            promise!(
                code == CUresult::SUCCESS,
                "cuCtxSynchronize answered {code:?}"
            );
        }
        self.accounts.iter_mut().for_each(Account::settle);
        Ok(())
    }

    fn create_pool(&mut self) -> Result<(), Broken> {
        let device = self.current.0;
        let answer = self.call(|cuda| cuda.create_pool(device as i32))?;
        promise!(
            answer.code == CUresult::SUCCESS,
            "cuMemPoolCreate answered {:?}",
            answer.code
        );
        self.pools.push(CreatedPool {
            number: self.next_pool,
            device,
            pool: answer.out,
        });
        self.next_pool += 1;
        Ok(())
    }

    fn destroy_pool(&mut self, nth: u8) -> Result<(), Broken> {
        if self.pools.is_empty() {
            return Ok(());
        }
        let gone = self.pools.swap_remove(usize::from(nth) % self.pools.len());
        let code = self.call(|cuda| cuda.destroy_pool(gone.pool))?;
        promise!(
            code == CUresult::SUCCESS,
            "cuMemPoolDestroy answered {code:?}"
        );
        if let Some(pool) = self.accounts[gone.device].pools.get_mut(&gone.number) {
            pool.doom();
        }
        Ok(())
    }

    fn trim(&mut self, nth: u8, keep: u64) -> Result<(), Broken> {
        let device = self.current.0;
        let pool = match self.pools.len() {
            0 => self.call(|cuda| cuda.default_pool(device as i32))?.out,
            all => self.pools[usize::from(nth) % all].pool,
        };
        let code = self.call(|cuda| cuda.trim_pool(pool, keep))?;
        promise!(
            code == CUresult::SUCCESS,
            "cuMemPoolTrimTo answered {code:?}"
        );
        Ok(())
    }

    fn create_stream(&mut self) -> Result<(), Broken> {
        let (device, context) = self.current;
        let answer = self.call(|cuda| cuda.create_stream())?;
        Self::plainly("cuStreamCreate", answer.code)?;
        self.judge(
            "cuStreamCreate",
            device,
            Verdict::of(answer.code),
            0,
            2 * BLOCK,
        )?;
        if answer.code == CUresult::SUCCESS {
            self.streams.push(OwnedStream {
                device,
                context,
                stream: answer.out,
            });
            self.accounts[device].enter_stream();
        }
        Ok(())
    }

    fn destroy_stream(&mut self, nth: u8) -> Result<(), Broken> {
        if self.streams.is_empty() {
            return Ok(());
        }
        let gone = self
            .streams
            .swap_remove(usize::from(nth) % self.streams.len());
        let code = self.call(|cuda| cuda.destroy_stream(gone.stream))?;
        promise!(
            code == CUresult::SUCCESS,
            "cuStreamDestroy_v2 answered {code:?}"
        );
        self.accounts[gone.device].leave_stream();
        self.accounts[gone.device].lose_order();
        Ok(())
    }

    fn create_context(&mut self) -> Result<(), Broken> {
        let device = self.current.0;
        let answer = self.call(|cuda| cuda.create_context(device as i32))?;
        Self::plainly("cuCtxCreate_v2", answer.code)?;
        self.judge(
            "cuCtxCreate_v2",
            device,
            Verdict::of(answer.code),
            0,
            CONTEXT,
        )?;
        if answer.code == CUresult::SUCCESS {
            self.accounts[device].contexts += 1;
            let number = self.next_context;
            self.next_context += 1;
            self.contexts.push(Made {
                number,
                device,
                context: answer.out,
            });
            self.make_current((device, number))?;
        }
        Ok(())
    }

    fn destroy_context(&mut self, nth: u8) -> Result<(), Broken> {
        if self.contexts.is_empty() {
            return Ok(());
        }
        let gone = self
            .contexts
            .swap_remove(usize::from(nth) % self.contexts.len());
        let code = self.call(|cuda| cuda.destroy_context(gone.context))?;
        promise!(
            code == CUresult::SUCCESS,
            "cuCtxDestroy_v2 answered {code:?}"
        );
        let account = &mut self.accounts[gone.device];
        account.contexts -= 1;
        account.lose_order();
        self.streams.retain(|stream| {
            let stays = stream.context != gone.number;
            if !stays {
                account.leave_stream();
            }
            stays
        });
        self.objects.retain(|object| match object.held {
            Held::Blocks {
                address,
                bytes,
                context,
            } if context == gone.number => {
                account.leave_blocks(address, bytes);
                false
            }
            Held::Managed { bytes, context, .. } if context == gone.number => {
                account.leave_managed(bytes);
                false
            }
            Held::Array { bytes, context, .. } if context == gone.number => {
                account.leave_array(bytes);
                false
            }
            _ => true,
        });
        match self.current.1 == gone.number {
            true => self.make_current((gone.device, gone.device)),
            false => Ok(()),
        }
    }

    fn change_device(&mut self, nth: u8) -> Result<(), Broken> {
        let primaries = self.devices().map(|device| (device, device));
        let made = self.contexts.iter().map(|made| (made.device, made.number));
        let all: Vec<(usize, usize)> = primaries.chain(made).collect();
        self.make_current(all[usize::from(nth) % all.len()])
    }

    /// Ends all there is. Everything must be back: first what the sequence took, then the contexts.
    fn end(&mut self) -> Result<(), Broken> {
        while !self.objects.is_empty() {
            self.free_nth(0, None)?;
        }
        while !self.contexts.is_empty() {
            self.destroy_context(0)?;
        }
        while !self.streams.is_empty() {
            self.destroy_stream(0)?;
        }
        while !self.pools.is_empty() {
            self.destroy_pool(0)?;
        }
        self.synchronize()?;
        self.invariants()?;
        for device in self.devices() {
            let lost = self.world.peak(DeviceIndex(device as u32)).0;
            let budget = self.accounts[device].budget;
            promise!(
                lost <= budget,
                "device {device} had lost {lost} at its peak, over {budget}"
            );
            let code = self.cuda.release_primary(device as i32);
            promise!(
                code == CUresult::SUCCESS,
                "a primary context's release: {code:?}"
            );
        }
        self.freed.clear();
        self.prepare()
    }
}

/// What holds after every operation.
impl Program {
    fn invariants(&self) -> Result<(), Broken> {
        for device in self.devices() {
            let account = &self.accounts[device];
            let (lost, charged) = self.figures(device);
            let least = account.lost_before + account.least();
            let most = account.charged_before + account.most() + crate::model::SLACK;
            promise!(
                lost <= account.budget,
                "device {device} has lost {lost}, over {}",
                account.budget
            );
            promise!(
                lost <= charged,
                "device {device} has lost {lost}, {charged} are charged"
            );
            promise!(
                least <= lost,
                "device {device} has lost {lost}, the model knows of {least}"
            );
            promise!(
                charged <= most,
                "{charged} of device {device} are charged, at most {most} by the model"
            );
        }
        self.one_story()
    }

    /// CUDA, NVML by both of its versions and Vulkan tell the same of the current device.
    fn one_story(&self) -> Result<(), Broken> {
        let device = self.current.0;
        let budget = self.accounts[device].budget;
        let info = self.cuda.memory_info();
        promise!(
            info.code == CUresult::SUCCESS,
            "cuMemGetInfo_v2 answered {:?}",
            info.code
        );
        let (free, total) = info.out;
        promise!(
            total == budget,
            "cuMemGetInfo_v2 tells a total of {total}, the budget is {budget}"
        );
        let charged = self.figures(device).1;
        promise!(
            free == budget.saturating_sub(charged),
            "cuMemGetInfo_v2 tells {free} free of {budget}, {charged} are charged"
        );
        let handle = self.nvml_devices[device];
        let first = self
            .nvml
            .memory(handle)
            .map_err(|code| format!("NVML's memory: {code:?}"))?;
        let second = self
            .nvml
            .memory_v2(handle)
            .map_err(|code| format!("NVML's memory: {code:?}"))?;
        let told = (first.total, first.free, first.used);
        promise!(
            told == (budget, free, budget - free),
            "NVML tells {told:?}, CUDA {free} free of {budget}"
        );
        let told = (second.total, second.free, second.used, second.reserved);
        promise!(
            told == (budget, free, budget - free, 0),
            "NVML's second tells {told:?}, CUDA {free} free of {budget}"
        );
        let gpu = &self.gpus[device];
        let heaps = gpu.instance.heap_budgets(gpu.physical, Query::Second);
        let at = heaps
            .heaps
            .iter()
            .position(|heap| heap.device_local)
            .ok_or("Vulkan has no heap")?;
        let (size, usage, promised) = (heaps.heaps[at].size, heaps.usage[at], heaps.budget[at]);
        promise!(
            size == budget,
            "Vulkan's heap is {size}, the budget {budget}"
        );
        promise!(
            promised == size.min(usage + free),
            "Vulkan's heapBudget is {promised} beside a usage of {usage}, CUDA tells {free} free of {budget}"
        );
        Ok(())
    }
}
