//! Taking memory until it is refused: how a promise about a budget is put to the test.
//!
//! "Allocates to the budget" means until refused, not the nominal figure: contexts and rounding are charged too. What they
//! may take at most is stated here, so that an enforcer that refuses too early fails as one that refuses too late does.

use abi::cuda::CUresult;
use harness::{Bytes, Failure, Library, Session, ensure};
use mock_device::DeviceIndex;
use std::fmt::Debug;

use crate::clients::fill;
use crate::ffi::cuda::Cuda;

/// Most that CUDA's own structures (a context, cuInit) take of one device and process: 523.6 + 3.25 MiB on an H200, and
/// what an enforcer may reserve for them before it can measure.
pub const CONTEXT_ROOM: Bytes = Bytes::mib(640);
/// Most that a Vulkan device's own structures take: up to 68 MiB on an H200, where extensions are asked for.
pub const VULKAN_ROOM: Bytes = Bytes::mib(72);

/// Sizes that are asked for one after the other, each until it is refused.
pub const STEPS: [Bytes; 3] = [Bytes::gib(1), Bytes::mib(64), Bytes::mib(2)];

/// What was taken, and with what the first request too many was answered.
#[derive(Debug)]
pub struct Taken<T, C> {
    pub held: Vec<T>,
    pub bytes: Bytes,
    pub refusals: Vec<C>,
}

/// Asks for each step until it is refused.
pub fn until_refused<T, C>(
    steps: &[Bytes],
    mut take: impl FnMut(Bytes) -> Result<T, C>,
) -> Taken<T, C> {
    let mut taken = Taken {
        held: Vec::new(),
        bytes: Bytes::ZERO,
        refusals: Vec::new(),
    };
    for &step in steps {
        loop {
            match take(step) {
                Ok(held) => {
                    taken.held.push(held);
                    taken.bytes += step;
                }
                Err(refusal) => {
                    taken.refusals.push(refusal);
                    break;
                }
            }
        }
    }
    taken
}

impl<T, C: PartialEq + Debug> Taken<T, C> {
    /// Every refusal was that code.
    pub fn refused_with(&self, code: C) -> Result<(), Failure> {
        for refusal in &self.refusals {
            ensure!(
                *refusal == code,
                "a request over the budget was answered {refusal:?}, promised {code:?}"
            );
        }
        Ok(())
    }
}

/// The budget that the case set.
pub fn budget(session: &Session, device: u32) -> Result<Bytes, Failure> {
    session
        .budget(device)
        .ok_or_else(|| Failure::Broken(format!("the case sets no budget for device {device}")))
}

/// What was granted is within the budget, and no more than `room` of it was withheld.
pub fn fills(granted: Bytes, budget: Bytes, room: Bytes) -> Result<(), Failure> {
    ensure!(
        granted <= budget,
        "{granted} were granted under a budget of {budget}"
    );
    ensure!(
        granted + room >= budget,
        "only {granted} were granted under a budget of {budget}, though at most {room} go to structures"
    );
    Ok(())
}

/// Waits until the simulated device holds nothing for processes but this one, so that memory of the dead, which the driver
/// holds on to for a while, cannot stand in for an enforcer's refusal.
pub fn teardown_is_over(session: &Session) -> Result<(), Failure> {
    let (world, own) = (session.world()?, std::process::id());
    session.eventually("the dead have given everything back", || {
        let held = world.processes(DeviceIndex(0));
        held.iter().all(|process| process.pid == own)
    })
}

/// Takes what is left of every GPU with cuMemAlloc_v2. Whether each was refused for want of memory in the end; false without CUDA.
pub fn exhaust(session: &Session) -> bool {
    let loaded = session
        .maps()
        .is_ok_and(|maps| maps.has(Library::MockLibcuda.file_name()));
    let Some(cuda) = loaded.then(Cuda::open).and_then(Result::ok) else {
        return false;
    };
    let no_memory = CUresult::ERROR_OUT_OF_MEMORY;
    cuda.init() == CUresult::SUCCESS
        && (0..session.gpus() as i32).all(|device| {
            let retained = cuda.retain_primary(device);
            // Nothing but what has a context of its own fits any more.
            retained.code == no_memory
                || retained.code == CUresult::SUCCESS
                    && cuda.set_current(retained.out) == CUresult::SUCCESS
                    && cuda.synchronize() == CUresult::SUCCESS
                    && fill(&cuda).refusals.iter().all(|code| *code == no_memory)
        })
}
