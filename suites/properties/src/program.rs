//! A tenant's program: carries operations out against CUDA, NVML and Vulkan as this process finds them, and judges every answer by
//! the [`model`](crate::model) and by what the simulated devices hold.

macro_rules! promise {
    ($condition:expr, $($message:tt)+) => {
        if !$condition { return Err(format!($($message)+)); }
    };
}

mod baseline;
mod context;
mod held;
mod judgement;
mod memory;
mod pool;
mod vulkan;

use std::path::Path;

use abi::cuda::{CUdeviceptr, CUresult};
use cases::clients::{self, Gpu};
use cases::ffi::cuda::{Context, Cuda};
use cases::ffi::nvml::{self, Nvml};
use cases::ffi::vulkan::{Client, Place};
use harness::Failure;
use ledger::View;
use mock_device::World;

use self::context::{Made, OwnedStream};
use self::held::Object;
use self::pool::CreatedPool;
use crate::ffi::errno;
use crate::model::Account;
use crate::operation::Operation;

/// What was promised and not kept.
pub type Broken = String;

const NO_MEMORY: CUresult = CUresult::ERROR_OUT_OF_MEMORY;
const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;

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
}
