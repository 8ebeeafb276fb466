//! Green contexts: a primary context with a part of its device's SMs. Handles, memory and modules are the primary's; what is
//! a green context's own is its number, its streams and the SMs that their kernels run on. As an H200 answered
//! (580.159.04; `fixtures/oracle/cuda-streams-580.txt` and `held-580.txt`).

use abi::cuda::enumerations::*;
use abi::cuda::*;
use mock_device::{DeviceProfile, Kind};

use crate::boundary::{Answer, Host, Out, Slot, crash};
use crate::context;
use crate::driver::{self, Driver, Ordinal};
use crate::process::{ContextId, Process, with_stack};
use crate::{event, handle, stream};

const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;
const NO_CONTEXT: CUresult = CUresult::ERROR_INVALID_CONTEXT;
const WRONG_TYPE: CUresult = CUresult::ERROR_INVALID_RESOURCE_TYPE;
const WRONG_CONFIGURATION: CUresult = CUresult::ERROR_INVALID_RESOURCE_CONFIGURATION;

/// What makes a context a green one.
#[derive(Clone, Copy)]
pub struct Green {
    /// The primary context that it is a part of.
    pub base: ContextId,
    pub sms: Sms,
}

/// A set of a device's SMs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sms([u64; 4]);

impl Sms {
    fn first(count: u32) -> Sms {
        let mut all = Sms([u64::MAX; 4]);
        all.take(count)
    }

    pub fn count(self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    fn with(self, other: Sms) -> Sms {
        Sms(std::array::from_fn(|at| self.0[at] | other.0[at]))
    }

    /// Takes so many out, the first ones.
    fn take(&mut self, count: u32) -> Sms {
        let mut taken = Sms::default();
        for at in 0..256 {
            if taken.count() == count {
                break;
            }
            let bit = 1 << (at % 64);
            if self.0[at / 64] & bit != 0 {
                self.0[at / 64] &= !bit;
                taken.0[at / 64] |= bit;
            }
        }
        taken
    }
}

/// A CUdevResource's type, what the driver keeps for itself in it, and the SMs' structure.
type Words = [u32; 36];
const SM: CUdevResourceType = 1;
const MARK: u32 = u32::from_le_bytes(*b"ring");

/// What a resource says.
#[derive(Clone, Copy)]
struct Resource {
    device: Ordinal,
    sms: Sms,
    /// Of a device or a context: only that can be split.
    whole: bool,
}

impl Resource {
    fn words(self, partition: Option<Partition>) -> Words {
        let mut words = [0; 36];
        if self.sms == Sms::default() {
            return words;
        }
        words[..4].copy_from_slice(&[SM as u32, self.device.0 as u32, MARK, self.whole.into()]);
        for (at, word) in self.sms.0.iter().enumerate() {
            words[4 + 2 * at] = *word as u32;
            words[5 + 2 * at] = (*word >> 32) as u32;
        }
        words[24] = self.sms.count();
        if let Some(partition) = partition {
            words[25] = partition.unit;
            words[26] = partition.unit;
        }
        words
    }

    fn read(words: &Words) -> Result<Resource, CUresult> {
        if words[0] != SM as u32 {
            return Err(WRONG_TYPE);
        }
        let word = |at: usize| u64::from(words[4 + 2 * at]) | u64::from(words[5 + 2 * at]) << 32;
        let found = Resource {
            device: Ordinal(words[1] as usize),
            sms: Sms(std::array::from_fn(word)),
            whole: words[3] != 0,
        };
        // Made up, or changed since.
        match words[2] == MARK && words[24] == found.sms.count() {
            true => Ok(found),
            false => Err(WRONG_CONFIGURATION),
        }
    }
}

/// How a device's SMs can be parted.
#[derive(Clone, Copy)]
struct Partition {
    /// The least, and what every partition is a multiple of; the same without co-scheduling.
    unit: u32,
    alone: u32,
    /// Groups of a unit, and of two, that the device's clusters of SMs hold.
    groups: u32,
    pairs: u32,
}

impl Partition {
    /// By NVIDIA's published table of compute capabilities; the groups as the H200 had them, whose clusters are unequal.
    fn of(profile: &DeviceProfile) -> Partition {
        let unit = match profile.compute_capability[0] {
            9.. => 8,
            8 => 4,
            _ => 2,
        };
        let [groups, pairs] = match (profile.compute_capability, profile.sm_count) {
            ([9, 0], 132) => [15, 8],
            (_, count) => [count / unit, count / unit / 2],
        };
        Partition {
            unit,
            alone: 2,
            groups,
            pairs,
        }
    }

    /// How large the groups become and how many of them there are in so many SMs.
    fn split(self, sms: u32, least: u32, co_scheduled: bool, entire: bool) -> (u32, u32) {
        let unit = if co_scheduled { self.unit } else { self.alone };
        let size = least.max(1).next_multiple_of(unit);
        if size >= sms {
            return (sms, 1);
        }
        let units = size / unit;
        let groups = match units.is_multiple_of(2) {
            _ if !co_scheduled || !entire => sms / size,
            true => self.pairs / (units / 2),
            false => self.groups / units,
        };
        (size, groups.max(1))
    }
}

impl Process {
    /// The primary context that a green one is a part of; any other is its own.
    pub fn based(&self, id: ContextId) -> ContextId {
        self.context(id).green.map_or(id, |green| green.base)
    }

    /// The green context at the top of the calling thread's stack.
    pub fn green_current(&self) -> Option<ContextId> {
        let top = with_stack(|stack| stack.last().copied())?;
        let context = self.context(top);
        (context.alive && context.green.is_some()).then_some(top)
    }

    /// The live green context of a handle.
    fn green_of(&self, green: CUgreenCtx) -> Result<(ContextId, Green), CUresult> {
        let id = handle::followed(handle::Kind::Context, green.0 as u64, NO_CONTEXT)?;
        let known = self.contexts.get(id as usize).ok_or(NO_CONTEXT)?;
        let green = known.green.ok_or(NO_CONTEXT)?;
        match known.alive {
            true => Ok((ContextId(id), green)),
            false => Err(CUresult::ERROR_CONTEXT_IS_DESTROYED),
        }
    }

    /// Live green contexts of a device.
    pub fn greens_of(&self, device: Ordinal) -> usize {
        let own = |context: &&crate::process::Context| {
            context.alive && context.device == device && context.green.is_some()
        };
        self.contexts.iter().filter(own).count()
    }

    /// Device memory for one green context more: 5 MiB in blocks, which stay with the primary context until that ends.
    fn charge_green(&mut self, driver: &Driver, base: ContextId) -> Answer {
        const EACH: u64 = 5 << 20;
        const BLOCK: u64 = 2 << 20;
        let context = self.context(base);
        let (device, made) = (context.device, u64::from(context.greens));
        let of = |count: u64| (count * EACH).next_multiple_of(BLOCK);
        let more = of(made + 1) - of(made);
        self.charge(driver, device, Kind::Context, more)?;
        let context = self.context_mut(base);
        context.greens += 1;
        context.green_memory += more;
        Ok(())
    }

    /// And for one stream more of a green context: 512 KiB in blocks.
    pub fn charge_green_stream(&mut self, driver: &Driver, green: ContextId) -> Answer {
        const BLOCK: u64 = 2 << 20;
        const IN_BLOCK: u32 = 4;
        let base = self.based(green);
        let device = self.context(base).device;
        let streams = self.context(green).greens + 1;
        if streams.is_multiple_of(IN_BLOCK) {
            self.charge(driver, device, Kind::Context, BLOCK)?;
            self.context_mut(base).green_memory += BLOCK;
        }
        self.context_mut(green).greens = streams;
        Ok(())
    }
}

/// Writes the resource of that type; nothing else is known than SMs.
fn give(out: &Slot<CUdevResource>, driver: &Driver, device: Ordinal, sms: Option<Sms>) -> Answer {
    let profile = driver.profile(device);
    let resource = Resource {
        device,
        sms: sms.unwrap_or(Sms::first(profile.sm_count)),
        whole: true,
    };
    out.cast::<Words>()
        .set(resource.words(Some(Partition::of(profile))));
    Ok(())
}

pub fn of_device(dev: CUdevice, out: Out<CUdevResource>, kind: CUdevResourceType) -> Answer {
    let driver = driver::get()?;
    let out = out.required()?;
    let device = driver.ordinal(dev)?;
    match kind {
        SM => give(&out, driver, device, None),
        _ => Err(WRONG_TYPE),
    }
}

pub fn of_context(ctx: CUcontext, out: Out<CUdevResource>, kind: CUdevResourceType) -> Answer {
    let out = out.required()?;
    if kind != SM {
        return Err(WRONG_TYPE);
    }
    let driver = driver::get()?;
    let process = driver.lock();
    let context = process.context(process.raw_context(ctx)?);
    give(
        &out,
        driver,
        context.device,
        context.green.map(|green| green.sms),
    )
}

pub fn of_green(green: CUgreenCtx, out: Out<CUdevResource>, kind: CUdevResourceType) -> Answer {
    let out = out.required()?;
    if green.is_null() {
        return Err(NO_CONTEXT);
    }
    if kind != SM {
        return Err(WRONG_TYPE);
    }
    let driver = driver::get()?;
    let process = driver.lock();
    let (id, green) = process.green_of(green)?;
    give(&out, driver, process.context(id).device, Some(green.sms))
}

/// Without an array it only counts. Flags that there are not are not looked at.
pub fn split(
    result: Out<CUdevResource>,
    count: Out<c_uint>,
    input: Host,
    remaining: Out<CUdevResource>,
    flags: c_uint,
    least: c_uint,
) -> Answer {
    const IGNORE_CO_SCHEDULING: c_uint = 1;
    const BOTH: c_uint = 3;
    let count = count.required()?;
    let input = Resource::read(&input.out::<Words>().required()?.get());
    let driver = driver::get()?;
    if matches!(input, Err(WRONG_TYPE)) {
        return Err(WRONG_TYPE);
    }
    let result = result.optional();
    if flags & BOTH == BOTH || (result.is_some() && count.get() == 0) {
        return Err(INVALID);
    }
    let mut input = input?;
    let device = driver.ordinal(input.device.0 as c_int)?;
    if !input.whole || least > input.sms.count() {
        return Err(WRONG_CONFIGURATION);
    }
    let profile = driver.profile(device);
    let co_scheduled = flags & IGNORE_CO_SCHEDULING == 0;
    let entire = input.sms.count() == profile.sm_count;
    let (size, most) = Partition::of(profile).split(input.sms.count(), least, co_scheduled, entire);
    let Some(result) = result else {
        count.set(most);
        return Ok(());
    };
    let groups = most.min(count.get());
    let part = |sms| Resource {
        device,
        sms,
        whole: false,
    };
    for at in 0..groups as usize {
        let group = part(input.sms.take(size));
        result.nth(at).cast::<Words>().set(group.words(None));
    }
    count.set(groups);
    if let Some(remaining) = remaining.optional() {
        remaining.cast::<Words>().set(part(input.sms).words(None));
    }
    Ok(())
}

/// The parts may be of several splits, and of one twice: together they are what their SMs are.
pub fn describe(
    out: Out<CUdevResourceDesc>,
    resources: Out<CUdevResource>,
    count: c_uint,
) -> Answer {
    let (out, resources) = (out.required()?, resources.required()?);
    let driver = driver::get()?;
    if count == 0 {
        crash();
    }
    let read = |at| Resource::read(&resources.nth(at).cast::<Words>().get());
    let mut all = read(0)?;
    for at in 1..count as usize {
        let one = read(at)?;
        if one.device != all.device {
            return Err(WRONG_CONFIGURATION);
        }
        all.sms = all.sms.with(one.sms);
    }
    let mut process = driver.lock();
    process.partitions.push((all.device, all.sms));
    let id = process.partitions.len() as u32 - 1;
    out.set(CUdevResourceDesc(
        handle::encode(handle::Kind::Partition, id) as *mut c_void,
    ));
    Ok(())
}

/// NULL describes the whole device. The primary context is held once more, and made if there is none.
pub fn create(
    out: Out<CUgreenCtx>,
    desc: CUdevResourceDesc,
    dev: CUdevice,
    flags: c_uint,
) -> Answer {
    const DEFAULT_STREAM: c_uint = 1;
    let out = out.required()?;
    let driver = driver::get()?;
    if flags != DEFAULT_STREAM {
        return Err(INVALID);
    }
    let device = driver.ordinal(dev)?;
    let mut process = driver.lock();
    let whole = Sms::first(driver.profile(device).sm_count);
    let sms = match desc.is_null() {
        true => whole,
        false => {
            let id = handle::followed(handle::Kind::Partition, desc.0 as u64, INVALID)?;
            match process.partitions.get(id as usize) {
                Some((of, sms)) if *of == device => *sms,
                Some(_) => return Err(CUresult::ERROR_INVALID_DEVICE),
                None => crash(),
            }
        }
    };
    let base = process.retain_primary(driver, device)?;
    if let Err(full) = process.charge_green(driver, base) {
        process.release_primary(driver, device)?;
        return Err(full);
    }
    let id = process.new_green(Green { base, sms });
    out.set(CUgreenCtx(context::handle_of(id).0));
    Ok(())
}

/// Its streams end with it; what it allocated is the primary's and stays.
pub fn destroy(green: CUgreenCtx) -> Answer {
    if green.is_null() {
        return Err(NO_CONTEXT);
    }
    let driver = driver::get()?;
    let mut process = driver.lock();
    let (id, _) = process.green_of(green)?;
    let device = process.context(id).device;
    process.context_mut(id).alive = false;
    process.lose_streams_of_green(id);
    process.forget_green(driver, device);
    Ok(())
}

pub fn to_context(out: Out<CUcontext>, green: CUgreenCtx) -> Answer {
    let out = out.required()?;
    if green.is_null() {
        return Err(NO_CONTEXT);
    }
    let process = driver::get()?.lock();
    let (id, _) = process.green_of(green)?;
    out.set(context::handle_of(id));
    Ok(())
}

pub fn id(green: CUgreenCtx, id: Out<c_ulonglong>) -> Answer {
    let id = id.required()?;
    if green.is_null() {
        return Err(NO_CONTEXT);
    }
    let process = driver::get()?.lock();
    let (found, _) = process.green_of(green)?;
    id.set(process.context(found).number);
    Ok(())
}

pub fn create_stream(
    out: Out<CUstream>,
    green: CUgreenCtx,
    flags: c_uint,
    priority: c_int,
) -> Answer {
    const NON_BLOCKING: c_uint = 1;
    let out = out.required()?;
    if green.is_null() {
        return Err(NO_CONTEXT);
    }
    if flags != NON_BLOCKING {
        return Err(INVALID);
    }
    let driver = driver::get()?;
    let mut process = driver.lock();
    let (id, _) = process.green_of(green)?;
    let base = process.based(id);
    stream::make(
        &mut process,
        driver,
        &out,
        (base, Some(id)),
        flags,
        priority,
    )
}

/// The primary context behind a green one's handle, for what both are asked alike.
fn base_of(green: CUgreenCtx) -> Result<CUcontext, CUresult> {
    if green.is_null() {
        return Err(NO_CONTEXT);
    }
    let process = driver::get()?.lock();
    let (_, green) = process.green_of(green)?;
    Ok(context::handle_of(green.base))
}

pub fn record(green: CUgreenCtx, event: CUevent) -> Answer {
    event::record_of_context(base_of(green)?, event)
}

pub fn wait(green: CUgreenCtx, event: CUevent) -> Answer {
    event::wait_in_context(base_of(green)?, event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sms_are_taken_from_the_first_on_and_only_once() {
        let mut left = Sms::first(132);
        let (one, other) = (left.take(8), left.take(100));
        assert_eq!([one, other, left].map(Sms::count), [8, 100, 24]);
        assert_eq!(one.with(other).with(left), Sms::first(132));
        assert_eq!(one.with(one), one);
    }
}
