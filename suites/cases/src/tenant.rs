//! Further processes of a tenant, told line by line what to take: the role `tenant` and its remote control.

use abi::cuda::{CUdeviceptr, CUresult};
use harness::{Bytes, Failure, Launch, Parent, Peer, Session, fail, roles};

use crate::clients::{self, Gpu};
use crate::cuda::floor::Unseen;
use crate::cuda::modules::program_that_may_fit;
use crate::cuda::{launches, memsets};
use crate::ffi::cuda::{Cuda, Image, IpcHandle, Open};
use crate::ffi::process;
use crate::ffi::vulkan::{Code, Memory, Route};
use crate::vulkan::submits;

/// Set where a tenant is its own program once more.
const AGAIN: &str = "RINGFENCE_TENANT_AGAIN";

/// Another process of the tenant.
pub struct Tenant {
    pub peer: Peer,
}

impl Tenant {
    pub fn start(session: &Session) -> Result<Self, Failure> {
        Self::launch(session.launch("tenant"))
    }

    /// One whose first thread ends at once.
    pub fn without_first_thread(session: &Session) -> Result<Self, Failure> {
        Self::launch(session.launch("tenant").args(&["without its first thread"]))
    }

    pub fn launch(launch: Launch<'_>) -> Result<Self, Failure> {
        Ok(Self {
            peer: launch.start()?,
        })
    }

    /// Has it call cuMemAlloc_v2; its answer.
    pub fn cuda(&mut self, bytes: Bytes) -> Result<CUresult, Failure> {
        self.ask(&format!("cuda {}", bytes.0))
            .map(|code| CUresult(code as u32))
    }

    /// Has it call vkAllocateMemory; its answer.
    pub fn vulkan(&mut self, bytes: Bytes) -> Result<Code, Failure> {
        self.ask(&format!("vulkan {}", bytes.0))
            .map(|code| Code(code as i32))
    }

    /// Has it take by CUDA until refused; what it got.
    pub fn fill_cuda(&mut self) -> Result<Bytes, Failure> {
        self.ask("fill-cuda").map(|bytes| Bytes(bytes as u64))
    }

    /// Has it take by Vulkan until refused; what it got.
    pub fn fill_vulkan(&mut self) -> Result<Bytes, Failure> {
        self.ask("fill-vulkan").map(|bytes| Bytes(bytes as u64))
    }

    /// Has it free all that it took.
    pub fn free(&mut self) -> Result<(), Failure> {
        self.ask("free").map(drop)
    }

    pub fn ask(&mut self, command: &str) -> Result<i64, Failure> {
        self.peer.say(command)?;
        let line = self.peer.line()?;
        match line.parse() {
            Ok(number) => Ok(number),
            Err(_) => fail!("a tenant answered \"{line}\" to {command}"),
        }
    }
}

/// What the role holds.
#[derive(Default)]
struct Hands {
    cuda: Option<Cuda>,
    pointers: Vec<CUdeviceptr>,
    gpu: Option<Gpu>,
    memories: Vec<Memory>,
    unseen: Vec<Unseen>,
}

impl Hands {
    fn cuda(&mut self) -> Result<&Cuda, Failure> {
        if self.cuda.is_none() {
            self.cuda = Some(clients::cuda()?);
        }
        self.cuda
            .as_ref()
            .ok_or_else(|| Failure::Broken("no CUDA".to_owned()))
    }

    fn gpu(&mut self) -> Result<&Gpu, Failure> {
        if self.gpu.is_none() {
            self.gpu = Some(Gpu::first()?);
        }
        self.gpu
            .as_ref()
            .ok_or_else(|| Failure::Broken("no GPU".to_owned()))
    }

    fn obey(&mut self, command: &str) -> Result<i64, Failure> {
        let (verb, object) = command.split_once(' ').unwrap_or((command, ""));
        let bytes = || {
            object
                .parse()
                .map(Bytes)
                .map_err(|_| Failure::Broken(format!("\"{command}\" names no bytes")))
        };
        Ok(match verb {
            "cuda" => {
                let bytes = bytes()?;
                let answer = self.cuda()?.allocate(bytes.0);
                self.pointers.extend(answer.granted());
                i64::from(answer.code.0)
            }
            "vulkan" => {
                let bytes = bytes()?;
                let answer = self.gpu()?.allocate(bytes);
                self.memories.extend(answer);
                i64::from(answer.err().unwrap_or(Code::SUCCESS).0)
            }
            "vkdevices" => {
                let wanted = usize::try_from(bytes()?.0).unwrap_or_default();
                let mut made = Vec::new();
                while made.len() < wanted {
                    match Gpu::first() {
                        Ok(gpu) => made.push(gpu),
                        Err(Failure::Broken(_)) => break,
                        Err(skipped) => return Err(skipped),
                    }
                }
                made.len() as i64
            }
            "greens" => {
                let count = bytes()?.0;
                let cuda = self.cuda()?;
                for _ in 0..count {
                    let green = cuda.create_green(0).code;
                    harness::ensure_eq!(green, CUresult::SUCCESS, "cuGreenCtxCreate in a tenant");
                }
                0
            }
            "modules" => {
                let count = bytes()?.0;
                let cuda = self.cuda()?;
                (0..count)
                    .filter(|_| {
                        let module = cuda.load_module(&Image::ptx(&program_that_may_fit()));
                        module.code == CUresult::SUCCESS
                            && cuda.unload_module(module.out) == CUresult::SUCCESS
                    })
                    .count() as i64
            }
            "unseen" => {
                let (bytes, driver) = object.split_once(' ').unwrap_or((object, ""));
                let bytes = bytes.parse().map_or(Bytes::ZERO, Bytes);
                self.unseen.push(Unseen::take(driver, bytes)?);
                0
            }
            "without-context" => {
                let bytes = bytes()?;
                let cuda = self.cuda()?;
                let made = cuda.create_memory(0, bytes.0).code;
                let reset = cuda.reset_primary(0);
                harness::ensure_eq!(reset, CUresult::SUCCESS, "cuDevicePrimaryCtxReset_v2");
                i64::from(made.0)
            }
            "physical" => {
                let bytes = bytes()?;
                let cuda = self.cuda.insert(clients::cuda_without_context()?);
                i64::from(cuda.create_memory(0, bytes.0).code.0)
            }
            "end-vulkan" => {
                self.memories.clear();
                self.gpu = None;
                0
            }
            // The handle of memory for other processes goes to a file.
            "lend" => {
                let cuda = self.cuda()?;
                let made = cuda.allocate(Bytes::mib(2).0);
                let handle = cuda.export_ipc(made.out);
                harness::ensure_eq!(
                    handle.code,
                    CUresult::SUCCESS,
                    "cuIpcGetMemHandle in a tenant"
                );
                std::fs::write(object, handle.out.text())?;
                self.pointers.extend(made.granted());
                0
            }
            "cuinit" => i64::from(Cuda::open()?.init().0),
            "init" => {
                self.cuda = Some(clients::cuda_without_context()?);
                0
            }
            "ready-cuda" => {
                self.cuda()?;
                0
            }
            "ready-vulkan" => {
                self.gpu()?;
                0
            }
            "fill-cuda" => {
                let taken = clients::fill(self.cuda()?);
                taken.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
                self.pointers.extend(taken.held);
                taken.bytes.0 as i64
            }
            "fill-vulkan" => {
                let taken = self.gpu()?.fill();
                taken.refused_with(Code::OUT_OF_DEVICE_MEMORY)?;
                self.memories.extend(taken.held);
                taken.bytes.0 as i64
            }
            "free" => self.free()?,
            "first-byte" => i64::from(first_byte()?.0),
            "contexts" => {
                let count = bytes()?.0;
                let cuda = self.cuda()?;
                for _ in 0..count {
                    let made = cuda.create_context(0).code;
                    harness::ensure_eq!(made, CUresult::SUCCESS, "cuCtxCreate in a tenant");
                }
                0
            }
            "device" => {
                clients::context(self.cuda()?, bytes()?.0 as i32)?;
                0
            }
            "captured" => launches::captured(self.cuda()?)?,
            "time" => launches::time(self.cuda()?, object)?,
            "work" => launches::work(self.cuda()?, object)?,
            "spend" => launches::spend(self.cuda()?, object)?,
            "work-beside-waits" => launches::work_beside_waits(self.cuda()?, object)?,
            "uneven" => launches::uneven(self.cuda()?, object)?,
            "captured-memsets" => memsets::captured(object)?,
            "time-memset" => memsets::time(object)?,
            "work-memset" => memsets::work(object)?,
            "time-vulkan" => submits::worker(Route::Submit)?.time()? as i64,
            "submit-commands" => submits::commands()?,
            "bind-sparse" => submits::bind_sparse(object)?,
            "work-vulkan" => submits::work(object)?,
            "pid" => i64::from(std::process::id()),
            "bear" => match process::Birth::named(object) {
                Some(way) => i64::from(process::born(way)?),
                None => fail!("no way to be born is called {object}"),
            },
            "rename" => {
                process::rename(object);
                0
            }
            "environment" => match process::EnvironmentChange::named(object) {
                Some(change) => {
                    process::change_environment(change);
                    0
                }
                None => fail!("no change of an environment is called {object}"),
            },
            "hide" => {
                process::hide()?;
                0
            }
            "give-up-looking" => {
                process::give_up_looking()?;
                0
            }
            "close-descriptors" => {
                process::close_descriptors();
                0
            }
            "threads" => std::fs::read_dir("/proc/self/task")?.count() as i64,
            "open" => {
                let handle = IpcHandle::parse(object);
                let Some(handle) = handle else {
                    fail!("\"{command}\" names no handle")
                };
                i64::from(self.cuda()?.open_ipc(Open::Second, &handle).code.0)
            }
            "again" => fail!("exec failed: {}", process::run_again(AGAIN, object)),
            "become" => fail!("exec failed: {}", process::replace_by("/bin/sleep", object)),
            _ => fail!("a tenant cannot \"{command}\""),
        })
    }

    fn free(&mut self) -> Result<i64, Failure> {
        for pointer in std::mem::take(&mut self.pointers) {
            let freed = self.cuda()?.free(pointer);
            harness::ensure_eq!(freed, CUresult::SUCCESS, "cuMemFree_v2 in a tenant");
        }
        for memory in std::mem::take(&mut self.memories) {
            self.gpu()?.device.free(memory);
        }
        Ok(0)
    }
}

/// The first refusal on the way to one byte, or what the byte was answered.
fn first_byte() -> Result<CUresult, Failure> {
    let cuda = clients::cuda_without_context()?;
    let retained = cuda.retain_primary(0);
    if retained.code != CUresult::SUCCESS {
        return Ok(retained.code);
    }
    cuda.set_current(retained.out);
    Ok(cuda.allocate(1).code)
}

roles! {
    /// Does what it is told, a command a line, and answers each with a number.
    tenant(_session, parent) {
        if parent.args() == ["without its first thread"] {
            process::without_first_thread(move || {
                let mut hands = Hands::default();
                serve(parent, |command| hands.obey(command)).map_err(|failure| failure.to_string())
            });
        }
        let mut hands = Hands::default();
        // The next image says how it fares with what it was to do at once, or that it is there.
        match std::env::var_os(AGAIN).as_ref().and_then(|value| value.to_str()) {
            Some("") => parent.say("0")?,
            Some(command) => parent.say(&hands.obey(command)?.to_string())?,
            None => {}
        }
        serve(parent, |command| hands.obey(command))
    }
}

/// Answers each line that a role hears.
pub fn serve(
    parent: &mut Parent,
    mut obey: impl FnMut(&str) -> Result<i64, Failure>,
) -> Result<(), Failure> {
    while let Some(command) = parent.hear() {
        let answer = obey(&command)?;
        parent.say(&answer.to_string())?;
    }
    Ok(())
}
