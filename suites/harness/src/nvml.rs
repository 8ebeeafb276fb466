//! What NVML says, asked in a process of its own: a library once loaded cannot be told another world, and a driver that
//! dies must not take the runner with it.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io::{ErrorKind, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use libloading::{Library, Symbol};
use mock_device::Bytes;

use crate::artifacts;
use crate::case::Libraries;
use crate::plan::Plan;

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DeviceFigures {
    pub uuid: String,
    pub total: Bytes,
    pub free: Bytes,
    pub used: Bytes,
    /// Processes on it with what they hold; compute and graphics rows of one process are one.
    pub processes: Vec<(u32, Bytes)>,
}

/// Why NVML could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum NvmlError {
    #[error("NVML: {0}")]
    Load(#[from] libloading::Error),
    #[error("NVML: {entry} answered {code}")]
    Answer { entry: &'static str, code: c_int },
    #[error("the process that asks NVML: {0}")]
    Process(#[from] std::io::Error),
    #[error("the process that asks NVML ended with {status}: {said}")]
    Died {
        status: std::process::ExitStatus,
        said: String,
    },
    #[error("the process that asks NVML said \"{said}\"")]
    Unreadable { said: String },
}

/// Who, in a trace, asks for the checkers.
pub(crate) const CHECKER: &str = "nvml-checker";

/// Asks the NVML of a plan's environment, with nothing before it.
pub fn figures_of(plan: &Plan) -> Result<Vec<DeviceFigures>, NvmlError> {
    let mut command = Command::new(&plan.executable);
    let none = Plan {
        target: crate::target::Target::nothing(),
        budgets: Default::default(),
        ..plan.clone()
    };
    none.apply(&mut command, Libraries::Neither)
        .map_err(std::io::Error::other)?;
    // The checkers' questions are none of the case's.
    command.env_remove(crate::recording::FILE_VARIABLE);
    ask(command.env("RINGFENCE_ROLE", CHECKER))
}

/// Asks the system's own NVML.
pub fn figures_of_this_machine() -> Result<Vec<DeviceFigures>, NvmlError> {
    ask(&mut Command::new(
        artifacts::program().map_err(std::io::Error::other)?,
    ))
}

fn ask(command: &mut Command) -> Result<Vec<DeviceFigures>, NvmlError> {
    let output = command.arg("__nvml").stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let said = format!("{said}{}", String::from_utf8_lossy(&output.stderr))
            .trim()
            .to_owned();
        return Err(NvmlError::Died {
            status: output.status,
            said,
        });
    }
    serde_json::from_str(&said).map_err(|_| NvmlError::Unreadable { said })
}

/// The `__nvml` process.
pub(crate) fn print_figures() -> ExitCode {
    let figures = figures().map_err(|error| error.to_string());
    match figures
        .and_then(|figures| serde_json::to_string(&figures).map_err(|error| error.to_string()))
    {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[repr(C)]
#[derive(Default)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// nvmlProcessInfo_v2_t.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessInfo {
    pid: c_uint,
    used_gpu_memory: u64,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

type Device = *mut c_void;
type ProcessQuery = unsafe extern "C" fn(Device, *mut c_uint, *mut ProcessInfo) -> c_int;

const PROCESS_QUERIES: [&str; 2] = [
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
];
/// nvmlProcessInfo's "not available" for the memory of a process.
const NOT_AVAILABLE: u64 = u64::MAX;

/// Loads a driver's library for the rest of this process's life, and calls nothing in it.
pub(crate) fn load(soname: &str) -> bool {
    // SAFETY: as for `figures`.
    unsafe { Library::new(soname) }
        .map(std::mem::forget)
        .is_ok()
}

/// The `__nvml-watch` process: the figures as a line, again and again, until nobody reads them.
pub(crate) fn print_again(interval: Duration) -> ExitCode {
    let told = Nvml::start().and_then(|nvml| {
        loop {
            let line = serde_json::to_string(&nvml.figures()?).map_err(std::io::Error::other)?;
            let mut out = std::io::stdout().lock();
            writeln!(out, "{line}")?;
            out.flush()?;
            std::thread::sleep(interval);
        }
    });
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(NvmlError::Process(error)) if error.kind() == ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn figures() -> Result<Vec<DeviceFigures>, NvmlError> {
    Nvml::start()?.figures()
}

struct Nvml {
    library: Library,
}

impl Nvml {
    fn start() -> Result<Self, NvmlError> {
        // SAFETY: NVML's initialisers are those of a driver library that this process loads for nothing else.
        let library = unsafe { Library::new("libnvidia-ml.so.1") }?;
        let nvml = Self { library };
        nvml.init()?;
        Ok(nvml)
    }

    fn figures(&self) -> Result<Vec<DeviceFigures>, NvmlError> {
        (0..self.count()?).map(|index| self.device(index)).collect()
    }

    fn init(&self) -> Result<(), NvmlError> {
        // SAFETY: the type is nvmlInit_v2's of nvml.h.
        let init: Symbol<'_, unsafe extern "C" fn() -> c_int> =
            unsafe { self.library.get(b"nvmlInit_v2\0") }?;
        // SAFETY: it takes no arguments.
        answer("nvmlInit_v2", unsafe { init() })
    }

    fn count(&self) -> Result<c_uint, NvmlError> {
        let mut count = 0;
        // SAFETY: the type is nvmlDeviceGetCount_v2's of nvml.h.
        let query: Symbol<'_, unsafe extern "C" fn(*mut c_uint) -> c_int> =
            unsafe { self.library.get(b"nvmlDeviceGetCount_v2\0") }?;
        // SAFETY: it writes one unsigned int.
        answer("nvmlDeviceGetCount_v2", unsafe { query(&mut count) })?;
        Ok(count)
    }

    fn device(&self, index: c_uint) -> Result<DeviceFigures, NvmlError> {
        let (mut device, mut uuid, mut memory): (Device, [c_char; 96], _) =
            (std::ptr::null_mut(), [0; 96], Memory::default());
        // SAFETY: the types are nvml.h's.
        let (handle, get_uuid, get_memory) = unsafe {
            (
                self.library
                    .get::<unsafe extern "C" fn(c_uint, *mut Device) -> c_int>(
                        b"nvmlDeviceGetHandleByIndex_v2\0",
                    )?,
                self.library
                    .get::<unsafe extern "C" fn(Device, *mut c_char, c_uint) -> c_int>(
                        b"nvmlDeviceGetUUID\0",
                    )?,
                self.library
                    .get::<unsafe extern "C" fn(Device, *mut Memory) -> c_int>(
                        b"nvmlDeviceGetMemoryInfo\0",
                    )?,
            )
        };
        // SAFETY: it writes one handle.
        answer("nvmlDeviceGetHandleByIndex_v2", unsafe {
            handle(index, &mut device)
        })?;
        // SAFETY: it writes at most the 96 bytes it is told of.
        answer("nvmlDeviceGetUUID", unsafe {
            get_uuid(device, uuid.as_mut_ptr(), 96)
        })?;
        // SAFETY: it writes one nvmlMemory_t.
        answer("nvmlDeviceGetMemoryInfo", unsafe {
            get_memory(device, &mut memory)
        })?;
        // SAFETY: NVML ends the text with NUL, and the array was zero before.
        let uuid = unsafe { CStr::from_ptr(uuid.as_ptr()) }
            .to_string_lossy()
            .into_owned();
        let mut processes: Vec<(u32, Bytes)> = Vec::new();
        for entry in PROCESS_QUERIES {
            for row in self.processes(device, entry) {
                if !processes.iter().any(|(pid, _)| *pid == row.0) {
                    processes.push(row);
                }
            }
        }
        let (total, free, used) = (Bytes(memory.total), Bytes(memory.free), Bytes(memory.used));
        Ok(DeviceFigures {
            uuid,
            total,
            free,
            used,
            processes,
        })
    }

    /// Rows of one query; none where this NVML lacks it.
    fn processes(&self, device: Device, entry: &'static str) -> Vec<(u32, Bytes)> {
        let (mut rows, mut count) = ([ProcessInfo::default(); 512], 512);
        // SAFETY: both queries are of this type in nvml.h.
        let Ok(query) = (unsafe { self.library.get::<ProcessQuery>(entry.as_bytes()) }) else {
            return Vec::new();
        };
        // SAFETY: it writes at most `count` rows and their number.
        if unsafe { query(device, &mut count, rows.as_mut_ptr()) } != 0 {
            return Vec::new();
        }
        let known = rows
            .iter()
            .take(count as usize)
            .filter(|row| row.used_gpu_memory != NOT_AVAILABLE);
        known
            .map(|row| (row.pid, Bytes(row.used_gpu_memory)))
            .collect()
    }
}

fn answer(entry: &'static str, code: c_int) -> Result<(), NvmlError> {
    if code == 0 {
        Ok(())
    } else {
        Err(NvmlError::Answer { entry, code })
    }
}
