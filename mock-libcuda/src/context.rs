//! Contexts: primary and created ones, and the thread's stack of them.

use abi::cuda::*;
use mock_device::{Bytes, Kind, Overhead};

use crate::boundary::{Answer, Host, In, Out};
use crate::driver::{self, Driver, Ordinal};
use crate::green::Green;
use crate::handle;
use crate::process::{Context, ContextId, Process, with_stack};

pub fn handle_of(id: ContextId) -> CUcontext {
    CUcontext(handle::encode(handle::Kind::Context, id.0) as *mut c_void)
}

impl Process {
    /// The live context of a handle, a green one's primary; INVALID_CONTEXT for anything else.
    pub fn context_of(&self, context: CUcontext) -> Result<ContextId, CUresult> {
        let id = handle::decode(handle::Kind::Context, context.0 as u64)
            .ok_or(CUresult::ERROR_INVALID_CONTEXT)?;
        match self.contexts.get(id as usize) {
            Some(context) if context.alive => Ok(self.based(ContextId(id))),
            Some(_) => Err(CUresult::ERROR_CONTEXT_IS_DESTROYED),
            None => Err(CUresult::ERROR_INVALID_CONTEXT),
        }
    }

    /// The context of a handle that the real driver follows: it dies of a number that never was one.
    pub fn context_followed(&self, context: CUcontext) -> Result<ContextId, CUresult> {
        let null = CUresult::ERROR_INVALID_CONTEXT;
        handle::followed(handle::Kind::Context, context.0 as u64, null)?;
        self.context_of(context)
    }

    /// The live context of a handle, green or not.
    pub fn raw_context(&self, context: CUcontext) -> Result<ContextId, CUresult> {
        self.context_followed(context)?;
        self.context_ever(context)
    }

    /// The context of a handle, alive or not.
    fn context_ever(&self, context: CUcontext) -> Result<ContextId, CUresult> {
        let null = CUresult::ERROR_INVALID_CONTEXT;
        let id = handle::followed(handle::Kind::Context, context.0 as u64, null)?;
        let known = (id as usize) < self.contexts.len();
        known.then_some(ContextId(id)).ok_or(null)
    }

    /// The calling thread's context, alive or not.
    fn current_ever(&self) -> Result<ContextId, CUresult> {
        with_stack(|stack| stack.last().copied()).ok_or(CUresult::ERROR_INVALID_CONTEXT)
    }

    /// The context of a handle, or the current one for NULL.
    pub fn context_or_current(&self, context: CUcontext) -> Result<ContextId, CUresult> {
        if context.is_null() {
            self.current()
        } else {
            self.context_of(context)
        }
    }

    fn open_context(&mut self, driver: &Driver, device: Ordinal, legacy: bool) -> Answer {
        let own = overhead(driver, device, legacy);
        self.charge(driver, device, Kind::Unlisted, own.unlisted.0)?;
        let index = driver.index(device);
        self.charge(driver, device, own.kind, own.listed.0)
            .inspect_err(|_| {
                driver.world.give_back(index, Kind::Unlisted, own.unlisted);
            })?;
        if !self.has_context_on(device) {
            self.map_host_on(driver, device).inspect_err(|_| {
                driver.world.give_back(index, own.kind, own.listed);
                driver.world.give_back(index, Kind::Unlisted, own.unlisted);
            })?;
        }
        Ok(())
    }

    /// Whether a context of a device lives.
    pub fn has_context_on(&self, device: Ordinal) -> bool {
        let mut contexts = self.contexts.iter();
        contexts.any(|context| context.alive && context.device == device)
    }

    fn new_context(
        &mut self,
        device: Ordinal,
        flags: u32,
        primary: bool,
        legacy: bool,
    ) -> ContextId {
        self.contexts.push(Context {
            device,
            flags,
            primary,
            legacy,
            alive: true,
            limits: Default::default(),
            small: Default::default(),
            array_blocks: Default::default(),
            number: 0,
            attached: 0,
            peers: Default::default(),
            green: None,
            greens: 0,
            green_memory: 0,
        });
        let id = ContextId(self.contexts.len() as u32 - 1);
        self.number_context(id);
        id
    }

    /// A context that begins, or begins again, gets a number of its own.
    fn number_context(&mut self, id: ContextId) {
        let before = self.contexts.iter().map(|context| context.number).max();
        self.context_mut(id).number = before.unwrap_or(0) + 1;
    }

    fn close_context(&mut self, driver: &Driver, id: ContextId) {
        let device = self.context(id).device;
        let own = overhead(driver, device, self.context(id).legacy);
        let greens = std::mem::take(&mut self.context_mut(id).green_memory);
        self.context_mut(id).greens = 0;
        let held = (own.listed.0 + greens).saturating_add_signed(self.reserved_beyond(id));
        self.release_context_memory(driver, id);
        self.part(id);
        let context = self.context_mut(id);
        context.alive = false;
        context.limits.clear();
        // Nobody can wait for its streams any more.
        let reached = self.reached_context(id);
        self.settle_pools(driver, &reached);
        let index = driver.index(device);
        driver.world.give_back(index, own.kind, Bytes(held));
        driver.world.give_back(index, Kind::Unlisted, own.unlisted);
        if !self.has_context_on(device) {
            self.unmap_host_on(driver, device);
            crate::graph_memory::empty(self, driver, device);
        }
    }

    fn close_primary(&mut self, driver: &Driver, device: Ordinal) {
        if let Some(id) = self.primaries[device.0].context
            && self.context(id).alive
        {
            self.close_context(driver, id);
        }
        self.primaries[device.0].flags = 0;
    }
}

/// Device memory that a context takes; one of 32 bits takes 1 MiB more (H200, 580.159.04).
fn overhead(driver: &Driver, device: Ordinal, legacy: bool) -> Overhead {
    let own = driver.profile(device).context();
    Overhead {
        listed: own.listed + if legacy { Bytes::mib(1) } else { Bytes::ZERO },
        ..own
    }
}

/// A flag that every primary context has.
const MAP_HOST: u32 = 8;

pub fn primary_retain(pctx: Out<CUcontext>, dev: CUdevice) -> Answer {
    let driver = driver::get()?;
    let pctx = pctx.required()?;
    let device = driver.ordinal(dev)?;
    let id = driver.lock().retain_primary(driver, device)?;
    pctx.set(handle_of(id));
    Ok(())
}

impl Process {
    /// The device's primary context, held once more.
    pub fn retain_primary(
        &mut self,
        driver: &Driver,
        device: Ordinal,
    ) -> Result<ContextId, CUresult> {
        let primary = self.primaries[device.0];
        let id = match primary.context {
            Some(id) if self.context(id).alive => id,
            known => {
                if let Some(code) = crate::admission::sticky() {
                    return Err(code);
                }
                self.refuse_beside_legacy(device)?;
                self.open_context(driver, device, false)?;
                let id =
                    known.unwrap_or_else(|| self.new_context(device, primary.flags, true, false));
                if known.is_some() {
                    self.number_context(id);
                }
                let context = self.context_mut(id);
                (context.alive, context.flags) = (true, primary.flags | MAP_HOST);
                id
            }
        };
        self.primaries[device.0].context = Some(id);
        self.primaries[device.0].retained += 1;
        Ok(id)
    }

    /// Lets go of the primary context once; the last to do so ends it. Green contexts are in the way of that.
    pub fn release_primary(&mut self, driver: &Driver, device: Ordinal) -> Answer {
        let Some(left) = self.primaries[device.0].retained.checked_sub(1) else {
            return Err(CUresult::ERROR_INVALID_CONTEXT);
        };
        self.primaries[device.0].retained = left;
        if left > 0 {
            return Ok(());
        }
        if self.greens_of(device) > 0 {
            return Err(CUresult::ERROR_NOT_PERMITTED);
        }
        self.close_primary(driver, device);
        Ok(())
    }

    /// A green context has ended: it no longer holds the primary one.
    pub fn forget_green(&mut self, driver: &Driver, device: Ordinal) {
        if self.primaries[device.0].retained > 0 {
            // What refuses is another green context, which holds it still.
            let _ = self.release_primary(driver, device);
        }
    }

    pub fn new_green(&mut self, green: Green) -> ContextId {
        let base = self.context(green.base);
        let (device, flags) = (base.device, base.flags);
        let id = self.new_context(device, flags, false, false);
        self.context_mut(id).green = Some(green);
        id
    }

    /// Beside a context of 32 bits a device has no room for others: OUT_OF_MEMORY.
    fn refuse_beside_legacy(&self, device: Ordinal) -> Answer {
        let legacy =
            |context: &Context| context.alive && context.device == device && context.legacy;
        match self.contexts.iter().any(legacy) {
            true => Err(CUresult::ERROR_OUT_OF_MEMORY),
            false => Ok(()),
        }
    }
}

pub fn primary_release(dev: CUdevice) -> Answer {
    let driver = driver::get()?;
    let device = driver.ordinal(dev)?;
    driver.lock().release_primary(driver, device)
}

/// A reset takes one holder with it, but not the last: after three retains two releases succeed, after one one (H200,
/// 580.159.04, traced).
pub fn primary_reset(dev: CUdevice) -> Answer {
    let driver = driver::get()?;
    let device = driver.ordinal(dev)?;
    let mut process = driver.lock();
    if process.greens_of(device) > 0 {
        return Err(CUresult::ERROR_NOT_PERMITTED);
    }
    process.close_primary(driver, device);
    if let held @ 2.. = process.primaries[device.0].retained {
        process.primaries[device.0].retained = held - 1;
    }
    Ok(())
}

pub fn primary_state(dev: CUdevice, flags: Out<c_uint>, active: Out<c_int>) -> Answer {
    let (flags, active) = (flags.required()?, active.required()?);
    let driver = driver::get()?;
    let device = driver.ordinal(dev)?;
    let process = driver.lock();
    let primary = process.primaries[device.0];
    flags.set(primary.flags);
    active.set(
        primary
            .context
            .is_some_and(|id| process.context(id).alive)
            .into(),
    );
    Ok(())
}

/// The flags that a context may have: a scheduling policy, mapping, local memory that stays, core dumps, memory ops.
fn valid_flags(flags: u32) -> Answer {
    let scheduling = flags & 0x7;
    if flags & !0xff != 0 || !matches!(scheduling, 0 | 1 | 2 | 4) {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    Ok(())
}

pub fn primary_set_flags(dev: CUdevice, flags: c_uint) -> Answer {
    let driver = driver::get()?;
    let device = driver.ordinal(dev)?;
    valid_flags(flags)?;
    let mut process = driver.lock();
    process.primaries[device.0].flags = flags;
    if let Some(id) = process.primaries[device.0].context {
        process.context_mut(id).flags = flags | MAP_HOST;
    }
    Ok(())
}

/// The first version refuses while the context is active.
pub fn primary_set_flags_v1(dev: CUdevice, flags: c_uint) -> Answer {
    let driver = driver::get()?;
    let device = driver.ordinal(dev)?;
    valid_flags(flags)?;
    let process = driver.lock();
    if process.primaries[device.0]
        .context
        .is_some_and(|id| process.context(id).alive)
    {
        return Err(CUresult::ERROR_PRIMARY_CONTEXT_ACTIVE);
    }
    drop(process);
    primary_set_flags(dev, flags)
}

fn make(pctx: Out<CUcontext>, flags: c_uint, dev: CUdevice, legacy: bool) -> Answer {
    let driver = driver::get()?;
    let pctx = pctx.required()?;
    let device = driver.ordinal(dev)?;
    valid_flags(flags)?;
    let mut process = driver.lock();
    if !legacy {
        process.refuse_beside_legacy(device)?;
    }
    process.open_context(driver, device, legacy)?;
    if legacy {
        crate::narrow::begins();
    }
    // User-triggered dumps are shown as dumps.
    const USER_COREDUMP: u32 = 0x40;
    const COREDUMP: u32 = 0x20;
    let shown = if flags & USER_COREDUMP == 0 {
        flags
    } else {
        flags & !USER_COREDUMP | COREDUMP
    };
    let id = process.new_context(device, shown, false, legacy);
    with_stack(|stack| stack.push(id));
    pctx.set(handle_of(id));
    Ok(())
}

pub fn create(pctx: Out<CUcontext>, flags: c_uint, dev: CUdevice) -> Answer {
    make(pctx, flags, dev, false)
}

pub fn create_legacy(pctx: Out<CUcontext>, flags: c_uint, dev: CUdevice) -> Answer {
    make(pctx, flags, dev, true)
}

/// Execution affinity is not simulated: only an empty list of parameters is taken.
pub fn create_v3(
    pctx: Out<CUcontext>,
    params: Host,
    count: c_int,
    flags: c_uint,
    dev: CUdevice,
) -> Answer {
    if count > 0 && params.0 == 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    if count > 0 {
        return Err(CUresult::ERROR_UNSUPPORTED_EXEC_AFFINITY);
    }
    make(pctx, flags, dev, false)
}

/// CUctxCreateParams: affinity, how many, CIG. Neither is simulated.
pub fn create_v4(pctx: Out<CUcontext>, params: Host, flags: c_uint, dev: CUdevice) -> Answer {
    if let Ok([affinity, count, shared]) = In::<[u64; 3]>::at(params.0).required() {
        match (affinity, count as c_int) {
            (0, 1..) => return Err(CUresult::ERROR_INVALID_VALUE),
            (_, 1..) => return Err(CUresult::ERROR_UNSUPPORTED_EXEC_AFFINITY),
            _ if shared != 0 => return Err(CUresult::ERROR_NOT_SUPPORTED),
            _ => {}
        }
    }
    make(pctx, flags, dev, false)
}

pub fn destroy(context: CUcontext) -> Answer {
    if context.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.context_followed(context)?;
    if process.context(id).primary {
        return Err(CUresult::ERROR_INVALID_CONTEXT);
    }
    process.close_context(driver, id);
    with_stack(|stack| {
        if stack.last() == Some(&id) {
            stack.pop();
        }
    });
    Ok(())
}

/// The current context once more, to be detached from as often.
pub fn attach(pctx: Out<CUcontext>, flags: c_uint) -> Answer {
    let mut process = driver::get()?.lock();
    let id = process.current()?;
    let pctx = pctx.required()?;
    if flags != 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    process.context_mut(id).attached += 1;
    pctx.set(handle_of(id));
    Ok(())
}

/// The last detachment of a created context destroys it. Whatever else it is given is no context to it.
pub fn detach(context: CUcontext) -> Answer {
    let mut process = driver::get()?.lock();
    let invalid = CUresult::ERROR_INVALID_CONTEXT;
    let id = process.context_of(context).map_err(|_| invalid)?;
    let known = process.context_mut(id);
    if known.primary {
        return Err(invalid);
    }
    if known.attached > 0 {
        known.attached -= 1;
        return Ok(());
    }
    drop(process);
    destroy(context)
}

/// The first version ends a context of 32 bits only where it is current.
pub fn destroy_v1(context: CUcontext) -> Answer {
    if let Ok(driver) = driver::get() {
        let process = driver.lock();
        if let Ok(id) = process.context_of(context)
            && process.context(id).legacy
            && process.current() != Ok(id)
        {
            return Err(CUresult::ERROR_INVALID_CONTEXT);
        }
    }
    destroy(context)
}

pub fn push(context: CUcontext) -> Answer {
    if context.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let id = driver::get()?.lock().context_ever(context)?;
    with_stack(|stack| stack.push(id));
    Ok(())
}

/// The first version takes only a context that the thread does not have already.
pub fn push_v1(context: CUcontext) -> Answer {
    if let Ok(driver) = driver::get()
        && let Ok(id) = driver.lock().context_of(context)
        && with_stack(|stack| stack.contains(&id))
    {
        return Err(CUresult::ERROR_INVALID_CONTEXT);
    }
    push(context)
}

pub fn pop(pctx: Out<CUcontext>) -> Answer {
    let id = with_stack(Vec::pop).ok_or(CUresult::ERROR_INVALID_CONTEXT)?;
    if let Some(pctx) = pctx.optional() {
        pctx.set(handle_of(id));
    }
    Ok(())
}

/// Replaces the top of the stack; NULL only takes it away.
pub fn set_current(context: CUcontext) -> Answer {
    let id = match context.is_null() {
        true => None,
        false => Some(driver::get()?.lock().context_ever(context)?),
    };
    with_stack(|stack| {
        stack.pop();
        stack.extend(id);
    });
    Ok(())
}

pub fn get_current(pctx: Out<CUcontext>) -> Answer {
    let top = with_stack(|stack| stack.last().copied());
    pctx.required()?.set(top.map_or(CUcontext::NULL, handle_of));
    Ok(())
}

pub fn get_device(device: Out<CUdevice>) -> Answer {
    let device = device.required()?;
    let process = driver::get()?.lock();
    // A context that was destroyed under the thread is still one of its device.
    device.set(process.context(process.current_ever()?).device.0 as CUdevice);
    Ok(())
}

pub fn get_flags(flags: Out<c_uint>) -> Answer {
    let flags = flags.required()?;
    let process = driver::get()?.lock();
    flags.set(process.context(process.current_ever()?).flags);
    Ok(())
}

pub fn set_flags(flags: c_uint) -> Answer {
    let mut process = driver::get()?.lock();
    let id = process.current()?;
    valid_flags(flags)?;
    // Dumps are set, and not shown.
    process.context_mut(id).flags = flags & !0x60;
    Ok(())
}

pub fn get_id(context: CUcontext, id: Out<c_ulonglong>) -> Answer {
    let id = id.required()?;
    let process = driver::get()?.lock();
    let found = if context.is_null() {
        process.current()?;
        process.current_ever()?
    } else {
        process.raw_context(context)?
    };
    id.set(process.context(found).number);
    Ok(())
}

pub fn get_api_version(context: CUcontext, version: Out<c_uint>) -> Answer {
    let version = version.required()?;
    let process = driver::get()?.lock();
    let id = process
        .context_or_current(context)
        .map_err(|_| CUresult::ERROR_INVALID_CONTEXT)?;
    version.set(if process.context(id).legacy {
        3010
    } else {
        3020
    });
    Ok(())
}

/// The device of a context, or of the current one.
pub fn get_device_of(device: Out<CUdevice>, context: CUcontext) -> Answer {
    let device = device.required()?;
    let process = driver::get()?.lock();
    let id = if context.is_null() {
        process.current_ever()?
    } else {
        process.context_followed(context)?
    };
    device.set(process.context(id).device.0 as CUdevice);
    Ok(())
}
