//! Modules: images loaded into a context, their functions and their variables in device memory.

use std::collections::HashMap;
use std::sync::Arc;

use abi::cuda::enumerations::*;
use abi::cuda::*;

use crate::arena::Blocks;
use crate::boundary::{self, Answer, Host, In, Out};
use crate::driver::{self, Driver, Ordinal};
use crate::function::{Function, Legacy, Settings};
use crate::handle;
use crate::image::{self, Image, Refusal, Runner};
use crate::jit::JitOptions;
use crate::library::{Kernel, Library};
use crate::limits::Reserves;
use crate::link::Link;
use crate::memory::{only_legacy, zeroed};
use crate::pool::When;
use crate::process::{ContextId, Process};

/// What a process has loaded.
#[derive(Default)]
pub struct Modules {
    pub modules: HashMap<u32, Module>,
    pub functions: HashMap<u32, Function>,
    pub libraries: HashMap<u32, Library>,
    pub kernels: HashMap<u32, Kernel>,
    pub links: HashMap<u32, Link>,
    /// What each context holds for code: variables' shared blocks, stack, heap.
    pub contexts: HashMap<ContextId, Held>,
}

/// What a context's modules hold of its device.
#[derive(Default)]
pub struct Held {
    /// Blocks that small variables share.
    pub blocks: Blocks,
    pub reserves: Reserves,
}

pub struct Module {
    pub context: ContextId,
    pub image: Arc<Image>,
    /// One per kernel of the image, in its order.
    pub functions: Vec<u32>,
    /// Address of each variable of the image.
    pub variables: Vec<u64>,
    /// Those of a library are unloaded with it.
    pub of_library: bool,
}

/// Variables lie this far apart within a block (measured).
const VARIABLE: u64 = 256;

pub fn runner(driver: &Driver, device: Ordinal) -> Runner {
    let profile = driver.profile(device);
    let [major, minor] = profile.compute_capability;
    let shared = profile.attribute(97).or(profile.attribute(8)).unwrap_or(0);
    Runner {
        architecture: major * 10 + minor,
        cuda_version: driver.world.machine().driver.cuda_version,
        shared_per_block: shared as u32,
    }
}

impl Modules {
    /// The module of a handle; INVALID_HANDLE for anything else.
    pub fn module(&self, module: CUmodule) -> Result<(u32, &Module), CUresult> {
        let id = handle::decode(handle::Kind::Module, module.0 as u64);
        id.and_then(|id| Some((id, self.modules.get(&id)?)))
            .ok_or(CUresult::ERROR_INVALID_HANDLE)
    }

    pub fn held(&mut self, context: ContextId) -> &mut Held {
        self.contexts.entry(context).or_default()
    }
}

pub fn handle_of(id: u32) -> CUmodule {
    CUmodule(handle::encode(handle::Kind::Module, id) as *mut c_void)
}

impl Process {
    pub fn load_module(
        &mut self,
        driver: &Driver,
        context: ContextId,
        image: Arc<Image>,
        of_library: bool,
    ) -> Result<u32, CUresult> {
        if image
            .kernels
            .iter()
            .any(|kernel| kernel.attributes.calls_malloc)
        {
            self.reserve_for_malloc(driver, context)?;
        }
        let mut variables = Vec::new();
        for variable in &image.variables {
            match self.allocate_variable(driver, context, variable.size, variable.space) {
                Ok(address) => variables.push(address),
                Err(error) => {
                    for address in variables {
                        self.free(driver, address, When::Now)?;
                    }
                    return Err(error);
                }
            }
        }
        self.initialise(driver, context, &image, &variables)?;
        // A module's managed variables come to the device with it, a library's when they are touched (H200, 580.159.04).
        for (variable, address) in image.variables.iter().zip(&variables) {
            if variable.space == image::Space::Managed && !of_library {
                self.populate(driver, *address, variable.size.max(1));
            }
        }
        let id = self.next_handle();
        let functions = (0..image.kernels.len())
            .map(|index| {
                let function = self.next_handle();
                let known = Function {
                    module: id,
                    context,
                    image: image.clone(),
                    index,
                    settings: Settings::of(&image.kernels[index]),
                    legacy: Legacy::default(),
                };
                self.modules.functions.insert(function, known);
                function
            })
            .collect();
        let module = Module {
            context,
            image,
            functions,
            variables,
            of_library,
        };
        self.modules.modules.insert(id, module);
        Ok(id)
    }

    /// Small variables of a context's modules share blocks; others have blocks of their own.
    fn allocate_variable(
        &mut self,
        driver: &Driver,
        context: ContextId,
        size: u64,
        space: image::Space,
    ) -> Result<u64, CUresult> {
        use crate::process::Owner;
        use mock_device::Kind;
        let device = self.context(context).device;
        let block = driver.profile(device).block.0;
        let too_much = CUresult::ERROR_OUT_OF_MEMORY;
        if space == image::Space::Managed {
            return self.allocate_managed(driver, context, size.max(1));
        }
        if size >= block {
            let taken = size.checked_next_multiple_of(block).ok_or(too_much)?;
            let address = self.take(driver, device, Kind::Memory, taken)?;
            self.enter(address, size, taken, context, Owner::Module);
            return Ok(address);
        }
        let taken = size.max(1).next_multiple_of(VARIABLE);
        let address = match self.modules.held(context).blocks.allocate(taken) {
            Some(address) => address,
            None => {
                let base = self.take(driver, device, Kind::Memory, block)?;
                let blocks = &mut self.modules.held(context).blocks;
                blocks.begin(base, block, taken)
            }
        };
        self.enter(address, size, taken, context, Owner::Module);
        Ok(address)
    }

    /// What [`Process::free`] does for a variable, once it is out of the books.
    pub fn free_variable(&mut self, driver: &Driver, context: ContextId, address: u64, taken: u64) {
        use mock_device::Kind;
        let device = self.context(context).device;
        if taken >= driver.profile(device).block.0 {
            return self.give_back(driver, device, Kind::Memory, address, taken);
        }
        let blocks = &mut self.modules.held(context).blocks;
        if let Some((base, len)) = blocks.free(address, taken) {
            self.give_back(driver, device, Kind::Memory, base, len);
        } else if let Ok(arena) = self.arena(driver, device) {
            arena.contents.forget(address, address + taken);
        }
    }

    /// Writes the variables' first contents, with the addresses that they hold of each other.
    fn initialise(
        &mut self,
        driver: &Driver,
        context: ContextId,
        image: &Image,
        addresses: &[u64],
    ) -> Result<(), CUresult> {
        let device = self.context(context).device;
        let address_of = |name: &str| {
            let at = image
                .variables
                .iter()
                .position(|variable| variable.name == name);
            at.map_or(0, |at| addresses[at])
        };
        let arena = self.arena(driver, device)?;
        for (variable, &address) in image.variables.iter().zip(addresses) {
            let mut bytes = variable.contents.clone();
            bytes.truncate(usize::try_from(variable.size).unwrap_or(usize::MAX));
            for pointer in &variable.pointers {
                let value = address_of(&pointer.target).wrapping_add_signed(pointer.addend);
                let at = usize::try_from(pointer.offset).unwrap_or(usize::MAX);
                let end = at.saturating_add(8).min(bytes.len());
                if let Some(room) = bytes.get_mut(at..end) {
                    room.copy_from_slice(&value.to_le_bytes()[..room.len()]);
                }
            }
            if !bytes.is_empty() {
                let from = bytes.as_ptr() as u64;
                arena.contents.write(address, from, bytes.len() as u64);
            }
        }
        Ok(())
    }

    pub fn unload_module(&mut self, driver: &Driver, id: u32) {
        let Some(module) = self.modules.modules.remove(&id) else {
            return;
        };
        for function in &module.functions {
            self.modules.functions.remove(function);
        }
        for address in module.variables {
            // A context's end may have been here first.
            let _ = self.free(driver, address, When::Now);
        }
    }

    /// All that a context has loaded, before its end.
    pub fn unload_context(&mut self, driver: &Driver, context: ContextId) {
        let modules = &self.modules.modules;
        let gone: Vec<u32> = modules
            .iter()
            .filter(|(_, module)| module.context == context)
            .map(|(id, _)| *id)
            .collect();
        for id in gone {
            self.unload_module(driver, id);
        }
        for library in self.modules.libraries.values_mut() {
            library.modules.remove(&context);
        }
        self.modules.contexts.remove(&context);
    }
}

/// The image of a call, opened for the current context's device. What is wrong is told to the options' log.
pub fn open(bytes: &[u8], runner: &Runner, options: &JitOptions) -> Result<Arc<Image>, CUresult> {
    let opened = image::open(bytes, runner);
    options.tell(opened.as_ref().err().map(Refusal::log).unwrap_or_default());
    opened.map(Arc::new).map_err(|refusal| refusal.code())
}

fn load_bytes(module: Out<CUmodule>, bytes: Option<Vec<u8>>, options: &JitOptions) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let context = process.current()?;
    let module = module.required()?;
    let bytes = bytes.ok_or(CUresult::ERROR_INVALID_VALUE)?;
    let runner = runner(driver, process.context(context).device);
    let image = open(&bytes, &runner, options)?;
    let id = process.load_module(driver, context, image, false)?;
    module.set(handle_of(id));
    Ok(())
}

/// A file's bytes, with the driver's codes for those that cannot be read.
pub fn file(name: &In<c_char>) -> Result<Vec<u8>, CUresult> {
    use std::os::unix::ffi::OsStrExt;
    let name = name
        .text()
        .filter(|name| !name.is_empty())
        .ok_or(CUresult::ERROR_INVALID_VALUE)?;
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
    if path.is_dir() {
        // Its size is what the driver cannot allocate.
        return Err(CUresult::ERROR_OUT_OF_MEMORY);
    }
    std::fs::read(path).map_err(|_| CUresult::ERROR_FILE_NOT_FOUND)
}

pub fn load(module: Out<CUmodule>, name: In<c_char>) -> Answer {
    driver::get()?.lock().current()?;
    if module.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    load_bytes(module, Some(file(&name)?), &JitOptions::default())
}

pub fn load_data(module: Out<CUmodule>, image: Host) -> Answer {
    load_bytes(module, boundary::image(image), &JitOptions::default())
}

pub fn load_data_ex(
    module: Out<CUmodule>,
    image: Host,
    count: c_uint,
    options: Out<CUjit_option>,
    values: Out<*mut c_void>,
) -> Answer {
    let driver = driver::get()?;
    driver.lock().current()?;
    let options = JitOptions::read(count, options, values)?;
    load_bytes(module, boundary::image(image), &options)
}

pub fn unload(module: CUmodule) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let (id, known) = process.modules.module(module)?;
    if known.of_library {
        return Err(CUresult::ERROR_NOT_PERMITTED);
    }
    process.unload_module(driver, id);
    Ok(())
}

/// CU_MODULE_EAGER_LOADING or CU_MODULE_LAZY_LOADING: what the environment says, else lazy. Nothing differs by it: the H200
/// takes the same memory at the same calls either way.
pub fn loading_mode(mode: Out<CUmoduleLoadingMode>) -> Answer {
    const EAGER: CUmoduleLoadingMode = 1;
    const LAZY: CUmoduleLoadingMode = 2;
    let eager = crate::settings::eager_loading();
    mode.or_crash().set(if eager { EAGER } else { LAZY });
    Ok(())
}

pub fn get_function(function: Out<CUfunction>, module: CUmodule, name: In<c_char>) -> Answer {
    let process = driver::get()?.lock();
    let (_, module) = process.modules.module(module)?;
    let function = function.required()?;
    let name = name.text().ok_or(CUresult::ERROR_INVALID_VALUE)?;
    if name.is_empty() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let kernels = &module.image.kernels;
    match kernels.iter().position(|kernel| *kernel.name == *name) {
        Some(at) => {
            function.set(crate::function::handle_of(module.functions[at]));
            Ok(())
        }
        None => {
            function.set(CUfunction::NULL);
            Err(CUresult::ERROR_NOT_FOUND)
        }
    }
}

pub fn function_count(count: Out<c_uint>, module: CUmodule) -> Answer {
    let count = count.required()?;
    let process = driver::get()?.lock();
    let (_, module) = process.modules.module(module)?;
    count.set(module.functions.len() as c_uint);
    Ok(())
}

pub fn enumerate_functions(functions: Out<CUfunction>, room: c_uint, module: CUmodule) -> Answer {
    let functions = functions.required()?;
    let process = driver::get()?.lock();
    let (_, module) = process.modules.module(module)?;
    for (at, id) in module.functions.iter().take(room as usize).enumerate() {
        functions.nth(at).set(crate::function::handle_of(*id));
    }
    Ok(())
}

/// A variable's address and size; both out-parameters are optional, but not together.
pub fn get_global(
    dptr: Out<CUdeviceptr>,
    bytes: Out<usize>,
    module: CUmodule,
    name: In<c_char>,
) -> Answer {
    let process = driver::get()?.lock();
    let (dptr, bytes) = (zeroed(dptr), zeroed(bytes));
    let (_, module) = process.modules.module(module)?;
    if dptr.is_null() && bytes.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let name = name.text().ok_or(CUresult::ERROR_INVALID_VALUE)?;
    let found = module.variable(&name.to_string_lossy());
    let (address, size) = found.unwrap_or_default();
    if let Some(dptr) = dptr.optional() {
        dptr.set(address);
    }
    if let Some(bytes) = bytes.optional() {
        bytes.set(size as usize);
    }
    found.map(|_| ())
}

impl Module {
    /// Address and size. The name of a kernel, or none, is an invalid value.
    pub fn variable(&self, name: &str) -> Result<(u64, u64), CUresult> {
        let variables = &self.image.variables;
        if let Some(at) = variables.iter().position(|variable| variable.name == name) {
            return Ok((self.variables[at], variables[at].size));
        }
        let kernel = |kernel: &image::Kernel| kernel.name.to_bytes() == name.as_bytes();
        Err(
            if name.is_empty() || self.image.kernels.iter().any(kernel) {
                CUresult::ERROR_INVALID_VALUE
            } else {
                CUresult::ERROR_NOT_FOUND
            },
        )
    }
}

/// The 32-bit version finds nothing in a context of a later generation, and says so in its out-parameters too.
pub fn get_global_32(
    dptr: Out<CUdeviceptr_v1>,
    bytes: Out<c_uint>,
    module: CUmodule,
    _name: In<c_char>,
) -> Answer {
    let process = driver::get()?.lock();
    let _ = (zeroed(dptr), zeroed(bytes));
    process.modules.module(module)?;
    drop(process);
    only_legacy()
}

/// No image that the mock reads declares texture or surface references.
pub fn get_reference<T>(reference: Out<T>, module: CUmodule, name: In<c_char>) -> Answer {
    let process = driver::get()?.lock();
    process.modules.module(module)?;
    reference.required()?;
    match name.text() {
        Some(name) if !name.is_empty() => Err(CUresult::ERROR_NOT_FOUND),
        _ => Err(CUresult::ERROR_INVALID_VALUE),
    }
}
