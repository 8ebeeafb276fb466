//! Libraries: images loaded once for all contexts, and the kernels in them. A context gets its module at first use, which
//! is when a bad image is found.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use abi::cuda::enumerations::*;
use abi::cuda::*;

use crate::boundary::{self, Answer, Host, In, Out};
use crate::driver::{self, Driver, Ordinal};
use crate::function::{self, Settings};
use crate::handle;
use crate::image::{self, Image, Refusal};
use crate::jit::JitOptions;
use crate::module;
use crate::occupancy::Sm;
use crate::process::{ContextId, Process};

pub struct Library {
    bytes: Arc<Vec<u8>>,
    /// As the first device sees it; the refusal is told when a context asks.
    image: Result<Arc<Image>, Refusal>,
    /// In the order in which they are listed.
    pub kernels: Vec<u32>,
    /// Each context's module.
    pub modules: HashMap<ContextId, u32>,
}

/// A kernel of a library.
pub struct Kernel {
    pub library: u32,
    /// In its image.
    pub index: usize,
    image: Arc<Image>,
    /// By device: settings that its functions there get, and have got.
    settings: BTreeMap<Ordinal, Settings>,
}

fn library_handle(id: u32) -> CUlibrary {
    CUlibrary(handle::encode(handle::Kind::Library, id) as *mut c_void)
}

fn kernel_handle(id: u32) -> CUkernel {
    CUkernel(handle::encode(handle::Kind::Kernel, id) as *mut c_void)
}

impl Process {
    fn library_id(&self, library: CUlibrary) -> Result<u32, CUresult> {
        handle::decode(handle::Kind::Library, library.0 as u64)
            .filter(|id| self.modules.libraries.contains_key(id))
            .ok_or(CUresult::ERROR_INVALID_HANDLE)
    }

    fn library(&self, library: CUlibrary) -> Result<&Library, CUresult> {
        Ok(&self.modules.libraries[&self.library_id(library)?])
    }

    fn kernel_id(&self, kernel: CUkernel) -> Result<u32, CUresult> {
        handle::decode(handle::Kind::Kernel, kernel.0 as u64)
            .filter(|id| self.modules.kernels.contains_key(id))
            .ok_or(CUresult::ERROR_INVALID_HANDLE)
    }

    fn kernel(&self, kernel: CUkernel) -> Result<&Kernel, CUresult> {
        Ok(&self.modules.kernels[&self.kernel_id(kernel)?])
    }

    /// The module of a library in a context, loaded if it is not yet.
    fn module_of_library(
        &mut self,
        driver: &Driver,
        id: u32,
        context: ContextId,
    ) -> Result<u32, CUresult> {
        let library = &self.modules.libraries[&id];
        if let Some(module) = library.modules.get(&context) {
            return Ok(*module);
        }
        let runner = module::runner(driver, self.context(context).device);
        let image = match &library.image {
            Ok(image) => Ok(image.clone()),
            Err(_) => image::open(&library.bytes, &runner).map(Arc::new),
        };
        let image = image.map_err(|refusal| refusal.code())?;
        let module = self.load_module(driver, context, image, true)?;
        let device = self.context(context).device;
        let kernels = self.modules.libraries[&id].kernels.clone();
        for kernel in kernels {
            let known = &self.modules.kernels[&kernel];
            if let Some(settings) = known.settings.get(&device).copied() {
                let function = self.modules.modules[&module].functions[known.index];
                if let Some(function) = self.modules.functions.get_mut(&function) {
                    function.settings = settings;
                }
            }
        }
        let library = self.modules.libraries.get_mut(&id).expect("known above");
        library.modules.insert(context, module);
        Ok(module)
    }

    /// A kernel's function in the current context.
    pub fn function_here(&mut self, driver: &Driver, kernel: CUkernel) -> Result<u32, CUresult> {
        self.kernel(kernel)?;
        let context = self.current()?;
        self.function_of_kernel(driver, kernel, context)
    }

    /// A kernel's function in a context.
    pub fn function_of_kernel(
        &mut self,
        driver: &Driver,
        kernel: CUkernel,
        context: ContextId,
    ) -> Result<u32, CUresult> {
        let known = self.kernel(kernel)?;
        let (library, index) = (known.library, known.index);
        let module = self.module_of_library(driver, library, context)?;
        Ok(self.modules.modules[&module].functions[index])
    }
}

/// `Err` for ELF files that do not even list their contents; other bad images are found at first use.
fn readable(opened: &Result<Arc<Image>, Refusal>) -> Answer {
    match opened {
        Err(Refusal::Broken) => Err(CUresult::ERROR_INVALID_IMAGE),
        _ => Ok(()),
    }
}

fn load(library: Out<CUlibrary>, bytes: Vec<u8>, options: &JitOptions) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let library = library.required()?;
    let opened = image::open(&bytes, &module::runner(driver, Ordinal(0))).map(Arc::new);
    readable(&opened)?;
    options.tell(String::new());
    let id = process.next_handle();
    let mut kernels = Vec::new();
    let listed = match &opened {
        Err(Refusal::NotLinked) => {
            let runner = module::runner(driver, Ordinal(0));
            image::cubin::open_for_link(&bytes, &runner).map(Arc::new)
        }
        other => other.clone(),
    };
    if let Ok(image) = &listed {
        // Listed from the last to the first, as the driver does.
        for index in (0..image.kernels.len()).rev() {
            let kernel = process.next_handle();
            let known = Kernel {
                library: id,
                index,
                image: image.clone(),
                settings: BTreeMap::new(),
            };
            process.modules.kernels.insert(kernel, known);
            kernels.push(kernel);
        }
    }
    let known = Library {
        bytes: Arc::new(bytes),
        image: opened,
        kernels,
        modules: HashMap::new(),
    };
    process.modules.libraries.insert(id, known);
    library.set(library_handle(id));
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "the C signature")]
pub fn load_data(
    library: Out<CUlibrary>,
    code: Host,
    options: Out<CUjit_option>,
    values: Out<*mut c_void>,
    count: c_uint,
    library_options: Out<CUlibraryOption>,
    _library_values: Out<*mut c_void>,
    library_count: c_uint,
) -> Answer {
    if library.is_null() || code.0 == 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    driver::get()?;
    let options = JitOptions::read(count, options, values)?;
    if library_count > 0 {
        library_options.or_crash();
    }
    // A wrapper around nothing is found out at first use, as other bad images are.
    let bytes = boundary::unwrapped(code).unwrap_or_default();
    load(library, bytes, &options)
}

#[expect(clippy::too_many_arguments, reason = "the C signature")]
pub fn load_from_file(
    library: Out<CUlibrary>,
    name: In<c_char>,
    options: Out<CUjit_option>,
    values: Out<*mut c_void>,
    count: c_uint,
    _library_options: Out<CUlibraryOption>,
    _library_values: Out<*mut c_void>,
    _library_count: c_uint,
) -> Answer {
    if library.is_null() || name.text().is_none() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    driver::get()?;
    let options = JitOptions::read(count, options, values)?;
    load(library, module::file(&name)?, &options)
}

pub fn unload(library: CUlibrary) -> Answer {
    let Ok(driver) = driver::get() else {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    };
    let mut process = driver.lock();
    let id = process.library_id(library)?;
    let known = process.modules.libraries.remove(&id).expect("just found");
    for kernel in known.kernels {
        process.modules.kernels.remove(&kernel);
    }
    for module in known.modules.into_values() {
        process.unload_module(driver, module);
    }
    Ok(())
}

pub fn get_kernel(kernel: Out<CUkernel>, library: CUlibrary, name: In<c_char>) -> Answer {
    let kernel = kernel.required()?;
    let name = name.text().ok_or(CUresult::ERROR_INVALID_VALUE)?;
    let process = driver::get()?.lock();
    let known = process.library(library)?;
    let found = known.kernels.iter().find(|id| {
        let kernel = &process.modules.kernels[id];
        *kernel.image.kernels[kernel.index].name == *name
    });
    kernel.set(kernel_handle(*found.ok_or(CUresult::ERROR_NOT_FOUND)?));
    Ok(())
}

pub fn kernel_count(count: Out<c_uint>, library: CUlibrary) -> Answer {
    let count = count.required()?;
    let process = driver::get()?.lock();
    count.set(process.library(library)?.kernels.len() as c_uint);
    Ok(())
}

pub fn enumerate_kernels(kernels: Out<CUkernel>, room: c_uint, library: CUlibrary) -> Answer {
    let kernels = kernels.required()?;
    let process = driver::get()?.lock();
    let known = process.library(library)?;
    for (at, id) in known.kernels.iter().take(room as usize).enumerate() {
        kernels.nth(at).set(kernel_handle(*id));
    }
    Ok(())
}

pub fn get_module(module: Out<CUmodule>, library: CUlibrary) -> Answer {
    let module = module.required()?;
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.library_id(library)?;
    let context = process.current()?;
    let loaded = process.module_of_library(driver, id, context)?;
    module.set(module::handle_of(loaded));
    Ok(())
}

pub fn get_global(
    dptr: Out<CUdeviceptr>,
    bytes: Out<usize>,
    library: CUlibrary,
    name: In<c_char>,
) -> Answer {
    variable(dptr, bytes, library, name, |space| {
        space != image::Space::Managed
    })
}

pub fn get_managed(
    dptr: Out<CUdeviceptr>,
    bytes: Out<usize>,
    library: CUlibrary,
    name: In<c_char>,
) -> Answer {
    variable(dptr, bytes, library, name, |space| {
        space == image::Space::Managed
    })
}

fn variable(
    dptr: Out<CUdeviceptr>,
    bytes: Out<usize>,
    library: CUlibrary,
    name: In<c_char>,
    wanted: fn(image::Space) -> bool,
) -> Answer {
    if dptr.is_null() && bytes.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let name = name
        .text()
        .filter(|name| !name.is_empty())
        .ok_or(CUresult::ERROR_INVALID_VALUE)?;
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.library_id(library)?;
    // Managed variables are the library's, whatever context is current.
    if wanted(image::Space::Managed) {
        let known = process.modules.libraries[&id].image.as_ref().ok();
        let managed = |image: &Arc<Image>| image.variables.iter().any(|it| wanted(it.space));
        if known.is_some_and(|image| !managed(image)) {
            return Err(CUresult::ERROR_NOT_FOUND);
        }
    }
    let context = process.current()?;
    let module = process.module_of_library(driver, id, context)?;
    let module = &process.modules.modules[&module];
    let name = name.to_string_lossy();
    let fits = |variable: &image::Variable| variable.name == name && wanted(variable.space);
    if !module.image.variables.iter().any(fits) {
        return Err(CUresult::ERROR_NOT_FOUND);
    }
    let (address, size) = module.variable(&name)?;
    if let Some(dptr) = dptr.optional() {
        dptr.set(address);
    }
    if let Some(bytes) = bytes.optional() {
        bytes.set(size as usize);
    }
    Ok(())
}

/// No image that the mock reads has functions of both the host and the device.
pub fn get_unified_function(
    function: Out<*mut c_void>,
    library: CUlibrary,
    name: In<c_char>,
) -> Answer {
    let process = driver::get()?.lock();
    function.required()?;
    name.text().ok_or(CUresult::ERROR_INVALID_VALUE)?;
    process.library(library)?;
    Err(CUresult::ERROR_INVALID_VALUE)
}

pub fn kernel_function(function: Out<CUfunction>, kernel: CUkernel) -> Answer {
    let function = function.required()?;
    let driver = driver::get()?;
    let mut process = driver.lock();
    function.set(function::handle_of(process.function_here(driver, kernel)?));
    Ok(())
}

pub fn kernel_library(library: Out<CUlibrary>, kernel: CUkernel) -> Answer {
    let library = library.required()?;
    let process = driver::get()?.lock();
    library.set(library_handle(process.kernel(kernel)?.library));
    Ok(())
}

pub fn kernel_name(name: Out<*const c_char>, kernel: CUkernel) -> Answer {
    let name = name.required()?;
    let process = driver::get()?.lock();
    if kernel.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let kernel = process.kernel(kernel)?;
    name.set(kernel.image.kernels[kernel.index].name.as_ptr());
    Ok(())
}

pub fn kernel_param_info(
    kernel: CUkernel,
    index: usize,
    offset: Out<usize>,
    size: Out<usize>,
) -> Answer {
    let offset = offset.required()?;
    let process = driver::get()?.lock();
    process.current()?;
    let kernel = process
        .kernel(kernel)
        .map_err(|_| CUresult::ERROR_INVALID_VALUE)?;
    function::param_info(&kernel.image.kernels[kernel.index], index, &offset, size)
}

impl Kernel {
    fn settings(&self, device: Ordinal) -> Settings {
        let unset = || Settings::of(&self.image.kernels[self.index]);
        self.settings.get(&device).copied().unwrap_or_else(unset)
    }
}

/// The driver looks at the handle before it looks at itself.
fn not_null(kernel: CUkernel) -> Answer {
    match kernel.is_null() {
        true => Err(CUresult::ERROR_INVALID_HANDLE),
        false => Ok(()),
    }
}

pub fn kernel_get_attribute(
    value: Out<c_int>,
    attribute: CUfunction_attribute,
    kernel: CUkernel,
    dev: CUdevice,
) -> Answer {
    not_null(kernel)?;
    let driver = driver::get()?;
    let process = driver.lock();
    let kernel = process.kernel(kernel)?;
    let device = driver.ordinal(dev)?;
    let value = value.required()?;
    let sm = Sm::of(driver.profile(device));
    let code = &kernel.image.kernels[kernel.index];
    value.set(kernel.settings(device).get(attribute, code, &sm)?);
    Ok(())
}

pub fn kernel_set_attribute(
    attribute: CUfunction_attribute,
    value: c_int,
    kernel: CUkernel,
    dev: CUdevice,
) -> Answer {
    not_null(kernel)?;
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.kernel_id(kernel)?;
    let device = driver.ordinal(dev)?;
    let sm = Sm::of(driver.profile(device));
    let known = process.modules.kernels.get_mut(&id).expect("just found");
    let image = known.image.clone();
    let mut settings = known.settings(device);
    settings.set(attribute, value, &image.kernels[known.index], &sm)?;
    known.settings.insert(device, settings);
    let (library, index) = (known.library, known.index);
    let modules: Vec<u32> = process.modules.libraries[&library]
        .modules
        .iter()
        .filter(|(context, _)| process.context(**context).device == device)
        .map(|(_, module)| *module)
        .collect();
    for module in modules {
        let function = process.modules.modules[&module].functions[index];
        if let Some(function) = process.modules.functions.get_mut(&function) {
            function.settings = settings;
        }
    }
    Ok(())
}

pub fn kernel_set_cache_config(kernel: CUkernel, config: CUfunc_cache, dev: CUdevice) -> Answer {
    not_null(kernel)?;
    let driver = driver::get()?;
    driver.lock().kernel_id(kernel)?;
    driver.ordinal(dev)?;
    function::known(config, 3)
}
