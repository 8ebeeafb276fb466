//! Functions: a kernel of a loaded module, its attributes and settings.

use std::sync::Arc;

use abi::cuda::enumerations::*;
use abi::cuda::*;

use crate::boundary::{Answer, Host, Out};
use crate::driver::{self, Driver};
use crate::handle;
use crate::image::{Image, Kernel};
use crate::module;
use crate::occupancy::Sm;
use crate::process::{ContextId, Process};

#[derive(Clone, Debug)]
pub struct Function {
    pub module: u32,
    pub context: ContextId,
    pub image: Arc<Image>,
    pub index: usize,
    pub settings: Settings,
    pub legacy: Legacy,
}

/// What cuFuncSetAttribute sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    pub max_dynamic: u32,
    pub carveout: i32,
    /// Sides of a cluster; 0 where none is asked for.
    pub cluster: [i32; 3],
    pub non_portable: bool,
    pub policy: i32,
}

/// What the first generation's launches keep in a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Legacy {
    pub block: [u32; 3],
    pub shared: u32,
    pub params: u32,
}

impl Default for Legacy {
    fn default() -> Legacy {
        Legacy {
            block: [1; 3],
            shared: 0,
            params: 0,
        }
    }
}

/// Dynamic shared memory that needs no opting in, together with the static one.
const WITHOUT_OPT_IN: u32 = 49_152;

impl Settings {
    pub fn of(kernel: &Kernel) -> Settings {
        Settings {
            max_dynamic: WITHOUT_OPT_IN.saturating_sub(kernel.attributes.shared),
            carveout: -1,
            cluster: kernel
                .bounds
                .cluster
                .unwrap_or_default()
                .map(|side| side as i32),
            non_portable: false,
            policy: 0,
        }
    }

    pub fn set(
        &mut self,
        attribute: CUfunction_attribute,
        value: c_int,
        kernel: &Kernel,
        sm: &Sm,
    ) -> Answer {
        let invalid = Err(CUresult::ERROR_INVALID_VALUE);
        match (attribute, value) {
            (attribute::MAX_DYNAMIC, value) => {
                let most = sm.shared_opt_in.saturating_sub(kernel.attributes.shared);
                match u32::try_from(value) {
                    Ok(value) if value <= most => self.max_dynamic = value,
                    _ => return invalid,
                }
            }
            (attribute::CARVEOUT, -1..=100) => self.carveout = value,
            (attribute::CLUSTER_WIDTH..=attribute::CLUSTER_DEPTH, 0..) => {
                // What the kernel's own text fixes can only be said again.
                let at = (attribute - attribute::CLUSTER_WIDTH) as usize;
                if kernel
                    .bounds
                    .cluster
                    .is_some_and(|fixed| fixed[at] as i32 != value)
                {
                    return invalid;
                }
                self.cluster[(attribute - attribute::CLUSTER_WIDTH) as usize] = value;
            }
            (attribute::NON_PORTABLE, value) => self.non_portable = value != 0,
            (attribute::POLICY, 0 | 1) => self.policy = value,
            _ => return invalid,
        }
        Ok(())
    }

    /// An attribute's value; INVALID_VALUE for one that this driver does not have.
    pub fn get(
        &self,
        attribute: CUfunction_attribute,
        kernel: &Kernel,
        sm: &Sm,
    ) -> Result<c_int, CUresult> {
        let needs = &kernel.attributes;
        Ok(match attribute {
            0 => sm.threads_of(kernel) as c_int,
            1 => needs.shared as c_int,
            2 => needs.constant as c_int,
            3 => needs.local as c_int,
            4 => needs.registers as c_int,
            5 => needs.ptx_version as c_int,
            6 => needs.binary_version as c_int,
            7 => 0,
            attribute::MAX_DYNAMIC => self.max_dynamic as c_int,
            attribute::CARVEOUT => self.carveout,
            attribute::CLUSTER_MUST_BE_SET => kernel.bounds.cluster.is_some().into(),
            attribute::CLUSTER_WIDTH..=attribute::CLUSTER_DEPTH => {
                self.cluster[(attribute - attribute::CLUSTER_WIDTH) as usize]
            }
            attribute::NON_PORTABLE => self.non_portable.into(),
            attribute::POLICY => self.policy,
            _ => return Err(CUresult::ERROR_INVALID_VALUE),
        })
    }
}

/// `CU_FUNC_ATTRIBUTE_*` that can be set, and one that says whether the next three must be.
mod attribute {
    pub const MAX_DYNAMIC: i32 = 8;
    pub const CARVEOUT: i32 = 9;
    pub const CLUSTER_MUST_BE_SET: i32 = 10;
    pub const CLUSTER_WIDTH: i32 = 11;
    pub const CLUSTER_DEPTH: i32 = 13;
    pub const NON_PORTABLE: i32 = 14;
    pub const POLICY: i32 = 15;
}

impl Function {
    pub fn kernel(&self) -> &Kernel {
        &self.image.kernels[self.index]
    }
}

pub fn handle_of(id: u32) -> CUfunction {
    CUfunction(handle::encode(handle::Kind::Function, id) as *mut c_void)
}

impl Process {
    /// The function of a handle of its own, or of a library's kernel in the current context.
    pub fn function_id(&mut self, driver: &Driver, function: CUfunction) -> Result<u32, CUresult> {
        let number = function.0 as u64;
        if let Some(id) = handle::decode(handle::Kind::Function, number)
            && self.modules.functions.contains_key(&id)
        {
            return Ok(id);
        }
        self.function_here(driver, CUkernel(function.0))
    }

    /// The function of a handle of its own; INVALID_HANDLE for anything else.
    pub fn own_function(&self, function: CUfunction) -> Result<u32, CUresult> {
        handle::decode(handle::Kind::Function, function.0 as u64)
            .filter(|id| self.modules.functions.contains_key(id))
            .ok_or(CUresult::ERROR_INVALID_HANDLE)
    }

    pub fn sm_of(&self, driver: &Driver, function: u32) -> Sm {
        let context = self.modules.functions[&function].context;
        Sm::of(driver.profile(self.context(context).device))
    }
}

pub fn get_attribute(
    value: Out<c_int>,
    attribute: CUfunction_attribute,
    function: CUfunction,
) -> Answer {
    let value = value.required()?;
    let driver = driver::get()?;
    let process = driver.lock();
    let id = process.own_function(function)?;
    let sm = process.sm_of(driver, id);
    let function = &process.modules.functions[&id];
    value.set(function.settings.get(attribute, function.kernel(), &sm)?);
    Ok(())
}

pub fn set_attribute(
    function: CUfunction,
    attribute: CUfunction_attribute,
    value: c_int,
) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.own_function(function)?;
    let sm = process.sm_of(driver, id);
    let function = process.modules.functions.get_mut(&id).expect("just found");
    let image = function.image.clone();
    function
        .settings
        .set(attribute, value, &image.kernels[function.index], &sm)
}

pub fn set_cache_config(function: CUfunction, config: CUfunc_cache) -> Answer {
    driver::get()?.lock().own_function(function)?;
    known(config, 3)
}

pub fn set_shared_config(function: CUfunction, config: CUsharedconfig) -> Answer {
    driver::get()?.lock().own_function(function)?;
    known(config, 2)
}

/// A preference that no simulated device acts on.
pub fn known(config: c_int, last: c_int) -> Answer {
    if (0..=last).contains(&config) {
        Ok(())
    } else {
        Err(CUresult::ERROR_INVALID_VALUE)
    }
}

pub fn get_module(module: Out<CUmodule>, function: CUfunction) -> Answer {
    let process = driver::get()?.lock();
    let module = module.required()?;
    if function.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let id = process.own_function(function)?;
    module.set(module::handle_of(process.modules.functions[&id].module));
    Ok(())
}

/// The text lives as long as the module.
pub fn get_name(name: Out<*const c_char>, function: CUfunction) -> Answer {
    let name = name.required()?;
    let process = driver::get()?.lock();
    if function.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let id = process.own_function(function)?;
    name.set(process.modules.functions[&id].kernel().name.as_ptr());
    Ok(())
}

pub fn get_param_info(
    function: CUfunction,
    index: usize,
    offset: Out<usize>,
    size: Out<usize>,
) -> Answer {
    let offset = offset.required()?;
    let process = driver::get()?.lock();
    let id = process
        .own_function(function)
        .map_err(|_| CUresult::ERROR_INVALID_VALUE)?;
    param_info(
        process.modules.functions[&id].kernel(),
        index,
        &offset,
        size,
    )
}

pub fn param_info(
    kernel: &Kernel,
    index: usize,
    offset: &crate::boundary::Slot<usize>,
    size: Out<usize>,
) -> Answer {
    let param = kernel
        .params
        .get(index)
        .ok_or(CUresult::ERROR_INVALID_VALUE)?;
    offset.set(param.offset as usize);
    if let Some(size) = size.optional() {
        size.set(param.size as usize);
    }
    Ok(())
}

/// Functions are loaded with their modules.
pub fn is_loaded(state: Out<CUfunctionLoadingState>, function: CUfunction) -> Answer {
    let state = state.required()?;
    const LOADED: CUfunctionLoadingState = 1;
    let process = driver::get()?.lock();
    process.own_function(function)?;
    state.set(LOADED);
    Ok(())
}

pub fn load(function: CUfunction) -> Answer {
    if function.is_null() {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    }
    driver::get()?.lock().own_function(function).map(|_| ())
}

/// Runs `act` on what a function keeps for the first generation's launches.
fn legacy(function: CUfunction, act: impl FnOnce(&mut Legacy, &Kernel, &Sm) -> Answer) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.own_function(function)?;
    let sm = process.sm_of(driver, id);
    let function = process.modules.functions.get_mut(&id).expect("just found");
    let image = function.image.clone();
    act(&mut function.legacy, &image.kernels[function.index], &sm)
}

pub fn set_block_shape(function: CUfunction, x: c_int, y: c_int, z: c_int) -> Answer {
    driver::refuse_without_context()?;
    legacy(function, |legacy, kernel, sm| {
        const MOST_DEEP: u32 = 64;
        let sides = [x, y, z].map(|side| u32::try_from(side).unwrap_or(0));
        let threads = sides
            .iter()
            .try_fold(1u32, |product, side| product.checked_mul(*side));
        if sides.contains(&0)
            || sides[2] > MOST_DEEP
            || threads.is_none_or(|threads| threads > sm.threads_of(kernel))
        {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        legacy.block = sides;
        Ok(())
    })
}

pub fn set_shared_size(function: CUfunction, bytes: c_uint) -> Answer {
    driver::refuse_without_context()?;
    legacy(function, |legacy, kernel, _| {
        if bytes > WITHOUT_OPT_IN.saturating_sub(kernel.attributes.shared) {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        legacy.shared = bytes;
        Ok(())
    })
}

/// Bytes of the parameter buffer of the first generation's launches.
const BUFFER: u32 = 4096;

pub fn set_param_size(function: CUfunction, bytes: c_uint) -> Answer {
    legacy(function, |legacy, _, _| {
        if bytes > BUFFER {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        legacy.params = bytes;
        Ok(())
    })
}

fn set_param(function: CUfunction, offset: c_int, bytes: u32) -> Answer {
    legacy(function, |_, _, _| match u32::try_from(offset) {
        Ok(offset) if offset.saturating_add(bytes) <= BUFFER => Ok(()),
        _ => Err(CUresult::ERROR_INVALID_VALUE),
    })
}

pub fn set_param_integer(function: CUfunction, offset: c_int, _value: c_uint) -> Answer {
    set_param(function, offset, 4)
}

pub fn set_param_float(function: CUfunction, offset: c_int, _value: f32) -> Answer {
    set_param(function, offset, 4)
}

pub fn set_param_bytes(function: CUfunction, offset: c_int, bytes: Host, count: c_uint) -> Answer {
    driver::get()?.lock().own_function(function)?;
    if bytes.0 == 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    set_param(function, offset, count)
}

/// No texture reference exists.
pub fn set_param_texture(function: CUfunction, _unit: c_int, _reference: CUtexref) -> Answer {
    driver::get()?.lock().own_function(function)?;
    Err(CUresult::ERROR_INVALID_VALUE)
}
