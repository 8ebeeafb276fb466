//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use harness::{Driver, Shard};

/// Keeps GPU memory budgets, and proves it without a GPU
#[derive(Parser)]
#[command(
    name = "ringfence",
    version,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run the conformance cases; exit status 1 on an unexpected result
    Test(TestArguments),
    /// Join what shards and other runs reported
    #[command(subcommand)]
    Report(ReportCommand),
    /// Run everything that this machine's hardware can run and compare with the last good night; exit status 1 on a regression
    Nightly(NightlyArguments),
    /// List the cases with their promises
    List(ListArguments),
    /// Run any program on the simulated machine under the enforcer; its exit status is passed on
    Exec(ExecArguments),
    /// Write a live machine down as a profile, its driver's symbols, look-ups and answers
    Probe(ProbeArguments),
    /// Compare what two drivers are, from two probe files, and tell what it means for the hooks, the cases and the known defects; exit status 1 if something breaks
    Diff(DiffArguments),
    /// Compare two traces, or two directories of traces, by call, argument shape and answer; exit status 1 if they differ
    TraceDiff(TraceDiffArguments),
    /// Put both libraries and the layer's manifest under a prefix
    Install {
        /// `/` for where a container runtime mounts them from, or any directory
        #[arg(long)]
        prefix: PathBuf,
        /// The directory of the vendor's libcuda.so.1 and libnvidia-ml.so.1: puts our proxies for them into `proxies` beside the libraries
        #[arg(long, value_name = "DIR")]
        proxies_before: Option<PathBuf>,
    },
    /// Plant known defects into our own libraries, one after another, and tell which case notices each; exit status 1 if one goes unnoticed
    Score(ScoreArguments),
    /// Tell from reports how many cases of each known defect a target passes: a table in Markdown, a column for each target and driver
    Tally(TallyArguments),
    /// Run cases again and again, each time with another of the calls that the mock drivers get hit by a fault; exit status 1 if a promise breaks
    Sweep(SweepArguments),
    /// Run programs made by chance over CUDA, NVML and Vulkan, and judge every answer by a model; exit status 1 if a promise breaks
    Properties(PropertiesArguments),
    /// Call every hook with arbitrary arguments, family by family, with and without the enforcer; exit status 1 if a promise breaks
    Fuzz(FuzzArguments),
    /// Read a tenant's ledger, or change its budgets
    #[command(subcommand)]
    Ledger(LedgerCommand),
}

#[derive(Args)]
pub struct TestArguments {
    /// Only entries whose name or module contains one of these
    pub filters: Vec<String>,
    /// Leave out entries whose name contains this
    #[arg(long, value_name = "NAME")]
    pub without: Vec<String>,
    /// ours, passthrough, none, hami-core=LIBRARY, a .toml file, or a library to preload
    #[arg(long, default_value = "ours")]
    pub target: String,
    /// mock, mock:PROFILE[*N][+GENERATION[-SYMBOL]...] or real; PROFILE may be the path of a file.toml
    #[arg(long, default_value_t)]
    pub driver: Driver,
    /// Over every driver generation on machines of 1, 2, 4 and 16 GPUs of the driver's profile: a table, and what was not as expected
    #[arg(long, conflicts_with = "trace")]
    pub matrix: bool,
    /// A known defect that the libraries of the target `seeded` are to have
    #[arg(long, value_name = "ID")]
    pub seed: Option<String>,
    /// Write html=FILE, junit=FILE or json=FILE
    #[arg(long, num_args = 1.., value_name = "KIND=FILE")]
    pub report: Vec<String>,
    /// Only that part of the entries: 2/8 is the second of eight, 1+1/8 the same where an index counts from 0. A case's part depends on its name alone
    #[arg(long, value_name = "K/N", default_value_t = Shard::WHOLE, hide_default_value = true)]
    pub shard: Shard,
    /// Put a trace of each case into this directory, taken by recorders in the drivers' places
    #[arg(long, value_name = "DIRECTORY")]
    pub trace: Option<PathBuf>,
    /// Entries at a time; 4 for each processor over mocks, 1 over a real driver
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub jobs: Option<u32>,
    /// Print every result, not only the table
    #[arg(short, long)]
    pub verbose: bool,
}

#[derive(Args)]
pub struct NightlyArguments {
    /// Only entries whose name or module contains one of these
    pub filters: Vec<String>,
    /// Where nights are kept: each gets a directory named after its time, `last-good` names the last one without a regression
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// The night to compare with, instead of `last-good`, which then stays what it is
    #[arg(long, value_name = "DIR")]
    pub last_good: Option<PathBuf>,
    /// real, or mock, mock:PROFILE[*N][+GENERATION] for trial
    #[arg(long, default_value_t = Driver::Real)]
    pub driver: Driver,
    /// An enforcer that is run; once for each. The driver itself is always recorded
    #[arg(long, default_values_t = ["ours".to_owned(), "proxy".to_owned()], value_name = "TARGET")]
    pub target: Vec<String>,
    /// Entries at a time; 4 for each processor over mocks, 1 over a real driver
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub jobs: Option<u32>,
}

#[derive(Subcommand)]
pub enum ReportCommand {
    /// Put the JSON lines of shards, targets and drivers together; exit status 1 if a result is unexpected or missing
    Merge(MergeArguments),
}

#[derive(Args)]
pub struct MergeArguments {
    /// What `ringfence test --report json=FILE` wrote
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Write html=FILE, junit=FILE or json=FILE
    #[arg(long, num_args = 1.., value_name = "KIND=FILE")]
    pub report: Vec<String>,
}

#[derive(Args)]
pub struct ListArguments {
    /// Only cases whose name or module contains one of these
    pub filters: Vec<String>,
    /// Print the entry points that libvgpu.so hooks and no case exercises
    #[arg(long)]
    pub coverage: bool,
}

#[derive(Args)]
pub struct ScoreArguments {
    /// Only these seeds, by the id of their row
    pub seeds: Vec<String>,
    /// Seeds at a time; 4 for each processor
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub jobs: Option<u32>,
}

#[derive(Args)]
pub struct TallyArguments {
    /// What `ringfence test --report json=FILE` wrote; several of one target and driver are repetitions
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Print the lines for the targets' expectation files instead: what failed each time, and what failed sometimes
    #[arg(long)]
    pub expectations: bool,
}

#[derive(Args)]
pub struct SweepArguments {
    /// Cases by name, whole or in part, at every call; without any the whole suite, at every place that no case before has had hit
    pub cases: Vec<String>,
    /// SIGKILL, before the driver acts and after it, instead of failing drivers
    #[arg(long)]
    pub kill: bool,
    /// That many runs, each with two faults at places chosen by chance
    #[arg(long, value_name = "RUNS", conflicts_with = "kill")]
    pub pairs: Option<usize>,
    /// Chooses the pairs
    #[arg(long, default_value_t = 1, requires = "pairs")]
    pub chance: u64,
    /// A known defect that the libraries of the target `seeded` are to have
    #[arg(long, value_name = "ID")]
    pub seed: Option<String>,
    /// One run with this fault at the N-th call of a role's process, as a report names it
    #[arg(long = "hit", value_name = "ROLE:N=EFFECT", requires = "cases", conflicts_with_all = ["kill", "pairs"])]
    pub hits: Vec<String>,
    /// ours, passthrough, none, hami-core=LIBRARY, a .toml file, or a library to preload
    #[arg(long, default_value = "ours")]
    pub target: String,
    /// mock, mock:PROFILE[*N][+GENERATION[-SYMBOL]...]; PROFILE may be the path of a file.toml
    #[arg(long, default_value_t)]
    pub driver: Driver,
    /// Runs at a time; four times as many as there are processors
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub jobs: Option<u32>,
}

#[derive(Args)]
pub struct PropertiesArguments {
    /// How many operations, or calls of several processes, at least
    #[arg(long, default_value_t = 100_000)]
    pub operations: u64,
    /// Chooses them
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Several processes of one tenant at once, some of which are killed: every grant and refusal is judged by when each call began and ended
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub processes: Option<u8>,
    /// Run the one sequence in this file instead, as a failure prints it, with figures after every operation; with --processes judge the history
    /// that --save left once more, and run its program again
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
    /// Where a failure of several processes is left
    #[arg(
        long,
        value_name = "FILE",
        default_value = "history-failure.json",
        requires = "processes"
    )]
    pub save: PathBuf,
    /// ours, seeded or another target that keeps our ledger; with --processes any
    #[arg(long, default_value = "ours")]
    pub target: String,
    /// A known defect that the libraries of the target `seeded` are to have
    #[arg(long, value_name = "ID")]
    pub defect: Option<String>,
}

#[derive(Args)]
pub struct FuzzArguments {
    /// Only these families of hooks; without one all of them
    pub families: Vec<String>,
    /// How many calls of each family, at least
    #[arg(long, default_value_t = 1_000_000)]
    pub calls: u64,
    /// Chooses them
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// End after so many seconds, though fewer calls were made
    #[arg(long, value_name = "S", conflicts_with_all = ["replay", "unhook"])]
    pub seconds: Option<u64>,
    /// How many at once, each by three processes
    #[arg(short, default_value_t = 1)]
    pub jobs: u64,
    /// How many seconds a failure is made smaller at most
    #[arg(long, value_name = "S", default_value_t = 60)]
    pub patience: u64,
    /// Run what this file holds instead, as a failure leaves it, and say every call
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
    /// Where a failure is left
    #[arg(long, value_name = "FILE", default_value = "fuzz-failure.json")]
    pub save: PathBuf,
    /// ours, seeded or another target that keeps our ledger
    #[arg(long, default_value = "ours")]
    pub target: String,
    /// Known defects that the libraries of the target `seeded` are to have, with commas between them; unhook:NAME leaves out one hook
    #[arg(long, value_name = "ID")]
    pub defect: Option<String>,
    /// Leave out one memory hook after another, these or all, and tell after how many calls over all exports it is noticed, with the floor in its place and without,
    /// or what the books lack then: a table in Markdown; exit status 1 if a hook's entry point is never granted. --calls of each family are recorded for it
    #[arg(long, value_name = "HOOK", num_args = 0.., conflicts_with_all = ["replay", "guided"])]
    pub unhook: Option<Vec<String>>,
    /// Fail if a state that is worth having been in was reached by no family; needs a target that tells, as `seeded` does
    #[arg(long, conflicts_with = "replay")]
    pub sometimes: bool,
    /// Be guided by what is reached in the libraries of this directory, which are built as CONTRIBUTING says
    #[arg(long, value_name = "DIR")]
    pub guided: Option<PathBuf>,
}

#[derive(Args)]
pub struct ExecArguments {
    /// mock, mock:PROFILE[*N][+GENERATION[-SYMBOL]...] or real; PROFILE may be the path of a file.toml
    #[arg(long, default_value_t)]
    pub driver: Driver,
    /// Short for --driver mock:PROFILE; may be the path of a file.toml
    #[arg(long, conflicts_with = "driver")]
    pub profile: Option<String>,
    /// Budgets, DEVICE=SIZE[,…], as in 0=4GiB
    #[arg(long, default_value = "", hide_default_value = true)]
    pub memory: String,
    /// A fault plan, TOML
    #[arg(long, value_name = "FILE")]
    pub fault: Option<PathBuf>,
    /// ours, passthrough, none, hami-core=LIBRARY, a .toml file, or a library to preload
    #[arg(long, default_value = "ours")]
    pub target: String,
    /// Write what the drivers were asked, as JSON lines: the mocks by themselves, a real one through recorders
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Leave /dev, /sys and /proc as this machine has them
    #[arg(long)]
    pub host_files: bool,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

#[derive(Args)]
pub struct ProbeArguments {
    /// Where to; a TOML file
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// real, mock, mock:PROFILE[*N][+GENERATION]
    #[arg(long, default_value_t = Driver::Real)]
    pub driver: Driver,
    /// Only these sections; all by default
    #[arg(long, value_enum, num_args = 1..)]
    pub section: Vec<Section>,
    /// What the profile is called; by default after its first device
    #[arg(long)]
    pub name: Option<String>,
}

#[derive(Args)]
pub struct DiffArguments {
    /// What `ringfence probe` wrote with the driver of before; or one of its libraries (libcuda.so.1), or a list of its symbols, one a line
    pub old: PathBuf,
    /// The same with the driver that is to come
    pub new: PathBuf,
    /// Write the report as Markdown, for a pull request
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Write every difference as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Differences that are known, lines of "part subject  # reason"
    #[arg(long, value_name = "FILE")]
    pub allow: Option<PathBuf>,
    /// Exit status 1 also where something is to be looked at
    #[arg(long)]
    pub strict: bool,
    /// Name everything, not only the first few
    #[arg(long)]
    pub all: bool,
}

#[derive(Args)]
pub struct TraceDiffArguments {
    /// A file of JSON lines, or a directory of such files, as --trace writes them
    pub left: PathBuf,
    pub right: PathBuf,
    /// Differences that are known, with reasons, instead of fixtures/traces/allowed.txt
    #[arg(long, value_name = "FILE")]
    pub allow: Option<PathBuf>,
    /// Show every place of a difference, not only the first few
    #[arg(long)]
    pub all: bool,
}

/// A part of what `ringfence probe` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Section {
    /// Identities, totals and attributes, by NVML and CUDA
    Devices,
    /// Heaps, types, queues, and what a VkDevice and its memory take
    Vulkan,
    /// What contexts and allocations take
    Memory,
    /// How long copies, fills and launches take
    Cost,
    /// How long a killed process's memory stays taken
    Teardown,
    /// Exported names
    Symbols,
    /// cuGetProcAddress by name, version and flags
    ProcAddress,
    /// Answers to zeros, before and after initialisation
    Nulls,
    /// Versions and sizes of the structures that NVML's getters take
    Structures,
}

impl Section {
    /// As it is spelled on the command line and in files.
    pub fn name(self) -> String {
        use clap::ValueEnum;
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

#[derive(Subcommand)]
pub enum LedgerCommand {
    /// Print budgets, usage and processes
    Show { path: PathBuf },
    /// Change budgets at once, for every process of the tenant; nothing is taken away from any
    Set(SetArguments),
}

#[derive(Args)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true))]
pub struct SetArguments {
    pub path: PathBuf,
    /// Memory budgets, DEVICE=SIZE[,…], as in 0=4GiB,1=none; devices are counted as the tenant sees them
    #[arg(long, value_delimiter = ',', group = "change")]
    pub memory: Vec<String>,
    /// Compute budgets, DEVICE=PERCENT[,…], as in 0=50%,1=none
    #[arg(long, value_delimiter = ',', group = "change")]
    pub compute: Vec<String>,
}
