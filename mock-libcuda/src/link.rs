//! cuLink*: inputs are read and kept; the linked cubin holds them for cuModuleLoadData, and nothing that a GPU could run.

use std::collections::HashSet;

use abi::cuda::enumerations::*;
use abi::cuda::*;

use crate::boundary::{Answer, Host, In, Out};
use crate::driver::{self, Ordinal};
use crate::handle;
use crate::image::{self, Image, Refusal, cubin};
use crate::jit::JitOptions;
use crate::module;
use crate::process::Process;

pub struct Link {
    options: JitOptions,
    /// What the inputs' errors said last.
    log: String,
    linked: Image,
    names: HashSet<String>,
    /// The first refusal that the whole link does not survive.
    failed: Option<CUresult>,
    /// The output, once complete; its bytes stay where they are.
    output: Option<Box<[u8]>>,
}

/// `CUjitInputType`
mod input {
    pub const CUBIN: i32 = 0;
    pub const PTX: i32 = 1;
    pub const FATBINARY: i32 = 2;
    pub const OBJECT: i32 = 3;
    pub const LIBRARY: i32 = 4;
    pub const NVVM: i32 = 5;
}

impl Process {
    fn link_id(&self, state: CUlinkState) -> Result<u32, CUresult> {
        handle::decode(handle::Kind::Link, state.0 as u64)
            .filter(|id| self.modules.links.contains_key(id))
            .ok_or(CUresult::ERROR_INVALID_HANDLE)
    }
}

pub fn create(
    count: c_uint,
    options: Out<CUjit_option>,
    values: Out<*mut c_void>,
    state: Out<CUlinkState>,
) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    process.current()?;
    let state = state.required()?;
    let options = JitOptions::read(count, options, values)?;
    let id = process.next_handle();
    let link = Link {
        options,
        log: String::new(),
        linked: Image::default(),
        names: HashSet::new(),
        failed: None,
        output: None,
    };
    process.modules.links.insert(id, link);
    state.set(CUlinkState(
        handle::encode(handle::Kind::Link, id) as *mut c_void
    ));
    Ok(())
}

impl Link {
    /// Adds what an image defines; UNKNOWN where it is defined already.
    fn add(&mut self, image: Image) -> Answer {
        let defined: Vec<String> = image
            .kernels
            .iter()
            .map(|kernel| kernel.name.to_string_lossy().into_owned())
            .chain(
                image
                    .variables
                    .iter()
                    .filter(|known| known.visible)
                    .map(|known| known.name.clone()),
            )
            .collect();
        if defined.iter().any(|name| self.names.contains(name)) {
            self.failed = Some(CUresult::ERROR_UNKNOWN);
            return Err(CUresult::ERROR_UNKNOWN);
        }
        self.names.extend(defined);
        self.names.extend(image.functions.iter().cloned());
        self.linked.kernels.extend(image.kernels);
        self.linked.variables.extend(image.variables);
        self.linked.functions.extend(image.functions);
        self.linked.undefined.extend(image.undefined);
        Ok(())
    }

    fn input(&mut self, kind: CUjitInputType, bytes: &[u8], runner: &image::Runner) -> Answer {
        if self.output.is_some() {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        let is_text = image::ptx::is_ptx(bytes);
        let opened = match kind {
            input::PTX => match is_text {
                true => image::ptx::open_for_link(bytes, runner),
                false => Err(Refusal::NotAnImage),
            },
            input::FATBINARY if is_text => image::ptx::open_for_link(bytes, runner),
            input::FATBINARY => match image::open(bytes, runner) {
                // What fits the device is linked already and cannot be linked again; what does not is passed over.
                Ok(_) => Err(Refusal::Architecture),
                Err(Refusal::Architecture) => Ok(Image::default()),
                Err(other) => Err(other),
            },
            input::CUBIN => match cubin::open_for_link(bytes, runner) {
                Err(Refusal::Broken | Refusal::NotLinked) => Err(Refusal::NotAnImage),
                other => other,
            },
            input::OBJECT if is_text => return Err(CUresult::ERROR_UNKNOWN),
            input::OBJECT | input::LIBRARY => Err(Refusal::NotAnImage),
            input::NVVM => return Err(CUresult::ERROR_JIT_COMPILER_NOT_FOUND),
            _ => return Err(CUresult::ERROR_INVALID_VALUE),
        };
        match opened {
            Ok(image) => self.add(image),
            Err(refusal) => {
                if kind == input::PTX {
                    self.log = refusal.log();
                }
                self.options.tell(self.log.clone());
                // A broken text is left out; a broken binary breaks the link.
                if kind == input::CUBIN || refusal == Refusal::Architecture {
                    self.failed = Some(refusal.code());
                }
                Err(refusal.code())
            }
        }
    }

    fn complete(&mut self, runner: &image::Runner) -> Result<(u64, usize), CUresult> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        if self.output.is_some() {
            return Err(CUresult::ERROR_INVALID_HANDLE);
        }
        if let Some(name) = self
            .linked
            .undefined
            .iter()
            .find(|name| !self.names.contains(*name))
        {
            self.options
                .tell(format!("error   : Undefined reference to '{name}' in 'in'"));
            return Err(CUresult::ERROR_UNKNOWN);
        }
        self.options.tell(self.log.clone());
        let bytes = image::write(&self.linked, runner).into_boxed_slice();
        let told = (bytes.as_ptr() as u64, bytes.len());
        self.output = Some(bytes);
        Ok(told)
    }
}

#[expect(clippy::too_many_arguments, reason = "the C signature")]
pub fn add_data(
    state: CUlinkState,
    kind: CUjitInputType,
    data: Host,
    size: usize,
    _name: In<c_char>,
    count: c_uint,
    options: Out<CUjit_option>,
    values: Out<*mut c_void>,
) -> Answer {
    let Ok(driver) = driver::get() else {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    };
    let mut process = driver.lock();
    let id = process.link_id(state)?;
    if data.0 == 0 || size == 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    JitOptions::read(count, options, values)?;
    let runner = module::runner(driver, Ordinal(0));
    let bytes = crate::boundary::bytes(data, size);
    let link = process.modules.links.get_mut(&id).expect("just found");
    link.input(kind, &bytes, &runner)
}

pub fn add_file(
    state: CUlinkState,
    kind: CUjitInputType,
    path: In<c_char>,
    count: c_uint,
    options: Out<CUjit_option>,
    values: Out<*mut c_void>,
) -> Answer {
    let Ok(driver) = driver::get() else {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    };
    let mut process = driver.lock();
    let id = process.link_id(state)?;
    JitOptions::read(count, options, values)?;
    let bytes = module::file(&path)?;
    let runner = module::runner(driver, Ordinal(0));
    let link = process.modules.links.get_mut(&id).expect("just found");
    link.input(kind, &bytes, &runner)
}

/// The output lives as long as the link.
pub fn complete(state: CUlinkState, cubin: Out<*mut c_void>, size: Out<usize>) -> Answer {
    let Ok(driver) = driver::get() else {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    };
    let mut process = driver.lock();
    let id = process.link_id(state)?;
    let cubin = cubin.required()?;
    let runner = module::runner(driver, Ordinal(0));
    let link = process.modules.links.get_mut(&id).expect("just found");
    let (address, len) = link.complete(&runner)?;
    cubin.set(address as *mut c_void);
    if let Some(size) = size.optional() {
        size.set(len);
    }
    Ok(())
}

pub fn destroy(state: CUlinkState) -> Answer {
    let Ok(driver) = driver::get() else {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    };
    let mut process = driver.lock();
    let id = process.link_id(state)?;
    process.modules.links.remove(&id);
    Ok(())
}
