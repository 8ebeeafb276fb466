//! What a module's image says: its kernels, their parameters and needs, its variables with their first contents.
//!
//! PTX is parsed ([`ptx`]), containers are opened ([`fatbin`], [`cubin`]). Nothing here is executed, and no bytes,
//! however bad, end the process.

pub mod cubin;
pub mod fatbin;
pub mod ptx;
mod writer;

pub use writer::write;

use std::ffi::CString;

use abi::cuda::CUresult;

/// What a device and its driver can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runner {
    /// Compute capability, as `90`.
    pub architecture: u32,
    /// The driver's CUDA version, as cuDriverGetVersion tells it.
    pub cuda_version: i32,
    /// The most shared memory that a block can opt in to.
    pub shared_per_block: u32,
}

/// One loaded program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Image {
    pub kernels: Vec<Kernel>,
    pub variables: Vec<Variable>,
    /// Device functions that a unified function pointer could name.
    pub functions: Vec<String>,
    /// Functions that another input of a link has to define.
    pub undefined: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kernel {
    pub name: CString,
    pub params: Vec<Param>,
    pub attributes: Attributes,
    pub bounds: Bounds,
    /// Instructions of its code, each counted once.
    pub instructions: u32,
    /// What is known to end badly; of compiled code nothing is.
    pub hazards: Vec<ptx::hazard::Hazard>,
}

/// One parameter, by its place in the parameter buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Param {
    pub offset: u32,
    pub size: u32,
}

/// What a kernel needs, in bytes and registers per thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    pub shared: u32,
    pub constant: u32,
    pub local: u32,
    pub registers: u32,
    /// Compute capabilities, as `90`.
    pub ptx_version: u32,
    pub binary_version: u32,
    /// Device memory calls that take the malloc heap or the printf buffer into use.
    pub calls_malloc: bool,
    pub calls_printf: bool,
}

/// What a kernel says about its launches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// .maxntid: the product bounds a block's threads.
    pub max_threads: Option<u32>,
    /// .reqntid
    pub required: Option<[u32; 3]>,
    /// .maxnreg
    pub max_registers: Option<u32>,
    /// .minnctapersm
    pub min_blocks: Option<u32>,
    /// .reqnctapercluster
    pub cluster: Option<[u32; 3]>,
    /// .maxclusterrank
    pub max_cluster: Option<u32>,
}

impl Kernel {
    /// Bytes of the parameter buffer.
    pub fn param_bytes(&self) -> u32 {
        self.params
            .last()
            .map_or(0, |last| last.offset.saturating_add(last.size))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Space {
    #[default]
    Global,
    Constant,
    Managed,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Variable {
    pub name: String,
    pub space: Space,
    pub size: u64,
    pub align: u64,
    /// What it begins with; zeros follow. At most `size` bytes.
    pub contents: Vec<u8>,
    /// Addresses of other variables that its contents hold.
    pub pointers: Vec<Pointer>,
    /// Whether cuModuleGetGlobal finds it.
    pub visible: bool,
}

/// At `offset` lie `width` bytes of the address of `target`, plus `addend`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pointer {
    pub offset: u64,
    pub target: String,
    pub addend: i64,
}

/// Why an image is not loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Neither PTX nor a container that the driver knows.
    NotAnImage,
    /// A container whose insides do not hold together.
    Broken,
    /// Code that is still to be linked.
    NotLinked,
    /// An ELF file of no architecture.
    UnknownArchitecture,
    /// PTX that does not assemble.
    Ptx {
        line: u32,
        /// Nothing behind it could be read.
        fatal: bool,
        problem: String,
    },
    /// What the assembler says of a whole file.
    Assembly { problem: String },
    /// PTX of a language that this driver does not know.
    Version {
        version: (u32, u32),
        newest: (u32, u32),
    },
    /// Nothing for this architecture.
    Architecture,
}

impl Refusal {
    pub fn code(&self) -> CUresult {
        match self {
            Refusal::NotAnImage | Refusal::Broken | Refusal::NotLinked => {
                CUresult::ERROR_INVALID_IMAGE
            }
            Refusal::UnknownArchitecture => CUresult::ERROR_UNKNOWN,
            Refusal::Ptx { .. } | Refusal::Assembly { .. } => CUresult::ERROR_INVALID_PTX,
            Refusal::Version { .. } => CUresult::ERROR_UNSUPPORTED_PTX_VERSION,
            Refusal::Architecture => CUresult::ERROR_NO_BINARY_FOR_GPU,
        }
    }

    /// What the driver writes into the error log.
    pub fn log(&self) -> String {
        match self {
            Refusal::NotAnImage => {
                "error   : Binary format for key='0', ident='' is not recognized".to_owned()
            }
            Refusal::UnknownArchitecture => "fatal   : Unknown arch name ''".to_owned(),
            Refusal::Broken | Refusal::NotLinked | Refusal::Architecture => String::new(),
            Refusal::Ptx {
                line,
                fatal,
                problem,
            } => format!(
                "ptxas application ptx input, line {line}; {}   : {problem}\nptxas fatal   : Ptx assembly aborted due to errors",
                if *fatal { "fatal" } else { "error" }
            ),
            Refusal::Assembly { problem } => problem.clone(),
            Refusal::Version { version, newest } => format!(
                "ptxas application ptx input, line 1; fatal   : Unsupported .version {}.{}; current version is '{}.{}'",
                version.0, version.1, newest.0, newest.1
            ),
        }
    }
}

pub const ELF_MAGIC: [u8; 4] = *b"\x7fELF";

/// Opens bytes of any kind.
pub fn open(bytes: &[u8], runner: &Runner) -> Result<Image, Refusal> {
    if bytes.starts_with(&ELF_MAGIC) {
        cubin::open(bytes, runner)
    } else if bytes.starts_with(&fatbin::MAGIC) {
        fatbin::open(bytes, runner)
    } else if ptx::is_ptx(bytes) {
        ptx::open(bytes, runner)
    } else {
        Err(Refusal::NotAnImage)
    }
}

#[cfg(test)]
mod tests;
