//! How many blocks an SM holds: the vendor's published calculation for compute capability 7.0 to 9.0.

use abi::cuda::*;
use mock_device::DeviceProfile;

use crate::boundary::{Answer, In, Out, ask_dynamic_shared};
use crate::driver;
use crate::function::Function;
use crate::image::Kernel;
use crate::launch;
use crate::process::Process;

/// What one SM has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sm {
    pub threads: u32,
    pub blocks: u32,
    pub registers: u32,
    pub shared: u32,
    /// The driver's part of every block's shared memory.
    pub reserved_shared: u32,
    pub count: u32,
    pub threads_per_block: u32,
    /// Shared memory of a block without and with opting in.
    pub shared_per_block: u32,
    pub shared_opt_in: u32,
    pub major: u32,
}

const WARP: u32 = 32;
/// An SM's registers lie in this many parts, and a warp in one of them.
const PARTS: u32 = 4;
/// Registers of a thread are given out in these, shared memory of a block too.
const REGISTERS: u32 = 8;

impl Sm {
    pub fn of(profile: &DeviceProfile) -> Sm {
        let [major, _] = profile.compute_capability;
        let attribute = |number: i32, otherwise: u32| {
            profile
                .attribute(number)
                .and_then(|value| u32::try_from(value).ok())
                .unwrap_or(otherwise)
        };
        let shared_per_block = attribute(8, 49_152);
        Sm {
            threads: attribute(39, 2048),
            blocks: attribute(106, 32),
            registers: attribute(82, 65_536),
            shared: attribute(81, 65_536),
            reserved_shared: attribute(111, 0),
            count: profile.sm_count,
            threads_per_block: attribute(1, 1024),
            shared_per_block,
            shared_opt_in: attribute(97, shared_per_block),
            major,
        }
    }

    /// Warps that find registers.
    fn warps_by_registers(&self, registers: u32) -> u32 {
        let of_warp = registers.max(1).next_multiple_of(REGISTERS) * WARP;
        self.registers / PARTS / of_warp * PARTS
    }

    /// The largest block whose registers an SM has.
    pub fn threads_by_registers(&self, registers: u32) -> u32 {
        (self.warps_by_registers(registers) * WARP).min(self.threads_per_block)
    }

    /// Shared memory that a block takes.
    fn shared_of(&self, bytes: u64) -> u64 {
        let unit = if self.major >= 8 { 128 } else { 256 };
        (bytes + u64::from(self.reserved_shared)).next_multiple_of(unit)
    }

    /// Shared memory of an SM where a function prefers a part of what it shares with the L1 cache, in percent: the smallest
    /// division that holds the part, and one block.
    fn carved(&self, percent: i32, block: u64) -> u64 {
        const KIB: u64 = 1024;
        const DIVISIONS: [u64; 10] = [0, 8, 16, 32, 64, 100, 132, 164, 196, 228];
        let whole = u64::from(self.shared);
        let Ok(percent) = u64::try_from(percent) else {
            return whole;
        };
        let wanted = (whole * percent).div_ceil(100).max(block);
        let fits = DIVISIONS.map(|size| size * KIB);
        let found = fits.into_iter().find(|size| *size >= wanted);
        found.unwrap_or(whole).min(whole)
    }

    /// Blocks of `block` threads that one SM holds.
    fn resident(&self, registers: u32, block: u32, shared: u64, carveout: i32) -> u32 {
        let warps = block.div_ceil(WARP).max(1);
        let by_threads = self.threads / WARP / warps;
        let by_registers = self.warps_by_registers(registers) / warps;
        let by_shared = match self.shared_of(shared) {
            0 => self.blocks,
            taken => u32::try_from(self.carved(carveout, taken) / taken).unwrap_or(u32::MAX),
        };
        self.blocks.min(by_threads).min(by_registers).min(by_shared)
    }

    /// How many blocks of a function one SM holds; none where its settings do not allow that much dynamic memory.
    pub fn resident_of(&self, function: &Function, block: u32, dynamic: u64) -> u32 {
        let settings = &function.settings;
        if dynamic > u64::from(settings.max_dynamic) || block > self.threads_per_block {
            return 0;
        }
        let needs = &function.kernel().attributes;
        let shared = u64::from(needs.shared) + dynamic;
        self.resident(needs.registers, block, shared, settings.carveout)
    }

    /// The largest block of a kernel.
    pub fn threads_of(&self, kernel: &Kernel) -> u32 {
        let by_registers = self.threads_by_registers(kernel.attributes.registers);
        by_registers.min(kernel.bounds.max_threads.unwrap_or(u32::MAX))
    }
}

/// The function of a call and its device's SM.
fn with<R>(
    function: CUfunction,
    act: impl FnOnce(&Process, &Function, &Sm) -> Result<R, CUresult>,
) -> Result<R, CUresult> {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.function_id(driver, function)?;
    let function = process.modules.functions[&id].clone();
    let sm = Sm::of(driver.profile(process.context(function.context).device));
    act(&process, &function, &sm)
}

pub fn max_active_blocks(
    blocks: Out<c_int>,
    function: CUfunction,
    block: c_int,
    dynamic: usize,
) -> Answer {
    max_active_blocks_with_flags(blocks, function, block, dynamic, 0)
}

/// CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE changes nothing since Maxwell.
const FLAGS: c_uint = 1;

pub fn max_active_blocks_with_flags(
    blocks: Out<c_int>,
    function: CUfunction,
    block: c_int,
    dynamic: usize,
    flags: c_uint,
) -> Answer {
    driver::refuse_without_context()?;
    let blocks = blocks.required()?;
    if flags > FLAGS {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let resident = with(function, |_, function, sm| match u32::try_from(block) {
        Ok(block @ 1..) => Ok(sm.resident_of(function, block, (dynamic as u32).into())),
        _ => Err(CUresult::ERROR_INVALID_VALUE),
    })?;
    blocks.set(resident as c_int);
    Ok(())
}

pub fn max_potential_block_size(
    grid: Out<c_int>,
    block: Out<c_int>,
    function: CUfunction,
    dynamic_of: CUoccupancyB2DSize,
    dynamic: usize,
    limit: c_int,
) -> Answer {
    max_potential_block_size_with_flags(grid, block, function, dynamic_of, dynamic, limit, 0)
}

/// The block size with the most threads on an SM, the largest of equals.
pub fn max_potential_block_size_with_flags(
    grid: Out<c_int>,
    block: Out<c_int>,
    function: CUfunction,
    dynamic_of: CUoccupancyB2DSize,
    dynamic: usize,
    limit: c_int,
    flags: c_uint,
) -> Answer {
    driver::refuse_without_context()?;
    let (grid, block) = (grid.required()?, block.required()?);
    if flags > FLAGS {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let limit = u32::try_from(limit).map_err(|_| CUresult::ERROR_INVALID_VALUE)?;
    let (function, sm) = with(function, |_, function, sm| Ok((function.clone(), *sm)))?;
    let most = sm.threads_of(function.kernel());
    let most = if limit == 0 { most } else { most.min(limit) };
    let (mut best, mut chosen) = (0, (0, 0));
    let mut aligned = most.next_multiple_of(WARP);
    while aligned > 0 {
        let size = aligned.min(most);
        let dynamic = ask_dynamic_shared(dynamic_of, size as c_int).unwrap_or(dynamic);
        let resident = sm.resident_of(&function, size, dynamic as u64);
        if resident * size > best {
            best = resident * size;
            chosen = (resident * sm.count, size);
        }
        if best == sm.threads {
            break;
        }
        aligned -= WARP;
    }
    grid.set(chosen.0 as c_int);
    block.set(chosen.1 as c_int);
    Ok(())
}

/// The driver divides an SM's shared memory without its own part of each block, and writes without looking.
pub fn available_dynamic(
    dynamic: Out<usize>,
    function: CUfunction,
    blocks: c_int,
    block: c_int,
) -> Answer {
    driver::get()?.lock().current()?;
    let (Ok(blocks @ 1..), Ok(block @ 1..)) = (u32::try_from(blocks), u32::try_from(block)) else {
        return Err(CUresult::ERROR_INVALID_VALUE);
    };
    let available = with(function, |_, function, sm| {
        if block > sm.threads_per_block || blocks > sm.resident_of(function, block, 0) {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        const UNIT: u32 = 128;
        let needs = &function.kernel().attributes;
        let one = sm.shared_of(needs.shared.into());
        let whole = sm.carved(function.settings.carveout, one);
        let part = whole as u32 / blocks / UNIT * UNIT;
        let rest = part.saturating_sub(needs.shared);
        Ok(rest.min(function.settings.max_dynamic))
    })?;
    dynamic.or_crash().set(available as usize);
    Ok(())
}

/// A function, and a context to ask of it in.
fn of_current(function: CUfunction) -> Answer {
    match function.is_null() {
        true => Err(CUresult::ERROR_INVALID_VALUE),
        false => driver::refuse_without_context(),
    }
}

/// The largest cluster of a launch like this.
pub fn max_potential_cluster(
    size: Out<c_int>,
    function: CUfunction,
    config: In<CUlaunchConfig>,
) -> Answer {
    let size = size.required()?;
    let config = config.required()?;
    of_current(function)?;
    let most = with(function, |_, function, sm| {
        let block = [config.blockDimX, config.blockDimY, config.blockDimZ];
        let block = block.into_iter().fold(1, c_uint::saturating_mul);
        let fits = sm.resident_of(function, block, config.sharedMemBytes.into()) > 0;
        Ok(if fits {
            launch::cluster_bound(function, sm)
        } else {
            0
        })
    })?;
    size.set(most as c_int);
    Ok(())
}

/// How many clusters of a launch's size are resident at once.
pub fn max_active_clusters(
    clusters: Out<c_int>,
    function: CUfunction,
    config: In<CUlaunchConfig>,
) -> Answer {
    let clusters = clusters.required()?;
    let config = config.required()?;
    of_current(function)?;
    let asked = launch::Request::of_config(&config, function)?;
    let active = with(function, |_, function, sm| {
        let Some(sides) = asked.cluster_of(function) else {
            return Ok(0);
        };
        let size = sides
            .iter()
            .fold(1u32, |product, side| product.saturating_mul(*side));
        if size == 0 || size > launch::cluster_bound(function, sm) {
            return Err(CUresult::ERROR_INVALID_CLUSTER_SIZE);
        }
        let resident = sm.resident_of(function, asked.threads() as u32, asked.shared.into());
        // Of a cluster's blocks an SM was told to hold no more, however small they are (measured).
        const CLUSTERED: u32 = 8;
        Ok(launch::clusters(sm, size, resident.min(CLUSTERED)))
    })?;
    clusters.set(active as c_int);
    Ok(())
}
