//! Where a tenant's settings come from, so that a program with a scrubbed environment has them too (decision 24, R11).
//!
//! 1. A tenant file: `/etc/ringfence/tenant.toml`, else `tenant.toml` in the directory of the library that asks. Where there is one it alone
//!    says what is enforced; the environment may still ask for traces and logs.
//! 2. The environment that the process began with. What the program makes of its variables later, by setenv, clearenv or writing over them, is not
//!    believed (R50 of `fixtures/defects.txt`).
//! 3. If that says nothing of what is enforced, the environment of PID 1, as far as the kernel lets us read it: in a container that is what the
//!    container was started with.
//! 4. If that says nothing either, the environment as it is now: a program may put itself under a budget before it uses a GPU.
//!
//! 5. A ledger that lies where these say, or at the default place: of a device that they give no budget, what the ledger says holds here too,
//!    so that a process that was told of nothing is held like the tenant's others. A file there that is no ledger refuses everything.
//!
//! A file `required` in the directory of the library, or in `/etc/ringfence`, says RINGFENCE_REQUIRED=1 to every process: without a memory budget
//! from any of these places nothing is granted.
//!
//! Where a ledger exists its budgets hold, whatever 2 to 4 say; a tenant file lowers what is above its own. Where one of its
//! processes counts contexts, later ones do. The rest of the settings is each process's own. `budget` says what the settings mean. Nothing here is asked more than once in a process.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use budget::DeviceIndex;
use budget::settings::{Settings, Source};
use budget::tenant_file::TenantFile;
use ledger::{AttachError, Reason, View};

/// The tenant file that an operator mounts read-only into a container.
pub const TENANT_FILE: &str = "/etc/ringfence/tenant.toml";
/// What says, by being there, that every process is to have a memory budget.
const REQUIRED_MARK: &str = "/etc/ringfence/required";
const FIRST_PROCESS: &str = "/proc/1/environ";

/// This process's settings. `library` is the path of the library that asks; `kept` are the settings' variables that the process began with,
/// `NAME=value` each and ended by a NUL, where the library was there at that time. Otherwise the kernel is asked.
#[must_use]
pub fn settings(library: Option<&Path>, kept: Option<&[u8]>) -> Settings {
    let environment = Environment::of_this_process(kept);
    let beside = library.and_then(Path::parent);
    let places = [
        Some(PathBuf::from(TENANT_FILE)),
        beside.map(|directory| directory.join("tenant.toml")),
    ];
    let mut settings = match places.into_iter().flatten().find_map(|place| open(&place)) {
        Some(Found::File(file)) => from_file(&file, &|name| environment.own(name)),
        Some(Found::Unreadable(place, reason)) => {
            let mut settings = Settings::read(&|name| environment.own(name));
            settings.refuse(place, reason);
            settings
        }
        None => from_environment(&environment),
    };
    let marks = [
        Some(PathBuf::from(REQUIRED_MARK)),
        beside.map(|directory| directory.join("required")),
    ];
    settings.required |= marks.into_iter().flatten().any(|mark| is_there(&mark));
    adopt(&mut settings);
    settings.hold_to_required();
    settings.hold_to_one_ledger();
    settings
}

/// A mark that cannot be looked at counts as there: fails closed.
fn is_there(mark: &Path) -> bool {
    std::fs::metadata(mark).map_or_else(|error| !is_none(&error), |_| true)
}

/// What a ledger that is there already says of devices of which the settings say nothing.
fn adopt(settings: &mut Settings) {
    match View::open(&settings.ledger) {
        Ok(ledger) => {
            DeviceIndex::all().for_each(|device| {
                settings.adopt(device, ledger.budget(device), ledger.share(device));
            });
            if ledger.counts_contexts() {
                settings.count_contexts();
            }
        }
        Err(error) if is_absent(&error) => {}
        // Where a budget is set, whoever attaches says so.
        Err(_) if settings.any_budget() => {}
        Err(error) => settings.refuse(
            format!("ledger {}", error.path.display()),
            error.reason.to_string(),
        ),
    }
}

fn is_absent(error: &AttachError) -> bool {
    matches!(error.reason, Reason::System { call: "open", errno } if is_none(&std::io::Error::from_raw_os_error(errno)))
}

fn is_none(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

enum Found {
    File(TenantFile),
    /// There is one and it says nothing: fails closed. (place, reason)
    Unreadable(String, String),
}

fn open(place: &Path) -> Option<Found> {
    let unreadable = |place: String, reason| Some(Found::Unreadable(place, reason));
    match std::fs::read(place) {
        Ok(text) => match TenantFile::parse(&text) {
            Ok(file) => Some(Found::File(file)),
            Err(wrong) => unreadable(
                format!("{}, line {}", place.display(), wrong.line),
                wrong.to_string(),
            ),
        },
        Err(error) if is_none(&error) => None,
        Err(error) => unreadable(place.display().to_string(), error.to_string()),
    }
}

/// What a tenant file says, and of the environment what enforces nothing.
fn from_file(file: &TenantFile, environment: &dyn Fn(&str) -> Option<Vec<u8>>) -> Settings {
    let mut settings = Settings::read(&|name| {
        file.get(name).map(<[u8]>::to_vec).or_else(|| {
            (!budget::settings::enforces(name))
                .then(|| environment(name))
                .flatten()
        })
    });
    settings.source = Source::TenantFile;
    settings
}

/// The variables of this process.
struct Environment<Now = fn(&str) -> Option<Vec<u8>>> {
    /// What it began with, as the kernel shows it.
    began: Vec<u8>,
    /// What the program has made of one since.
    now: Now,
}

impl Environment {
    /// By libc's own getenv: other threads may be about to set some, and a copy of all of them would meet that for longer.
    fn of_this_process(kept: Option<&[u8]>) -> Environment {
        let began = kept.map(<[u8]>::to_vec);
        Environment {
            began: began.unwrap_or_else(ledger::own_environment),
            now: |name| std::env::var_os(name).map(OsString::into_vec),
        }
    }
}

impl<Now: Fn(&str) -> Option<Vec<u8>>> Environment<Now> {
    fn own(&self, name: &str) -> Option<Vec<u8>> {
        let began = variable(&self.began, name).map(<[u8]>::to_vec);
        began.or_else(|| (self.now)(name))
    }
}

fn from_environment(environment: &Environment<impl Fn(&str) -> Option<Vec<u8>>>) -> Settings {
    // Gone, hidden or another user's: then there is nothing to learn.
    let first = match sets_anything(&environment.began) {
        true => Vec::new(),
        false => std::fs::read(FIRST_PROCESS).unwrap_or_default(),
    };
    let said = [&environment.began, &first]
        .into_iter()
        .find(|said| sets_anything(said));
    let mut settings = Settings::read(&|name| {
        let said = match said {
            Some(said) => variable(said, name).map(<[u8]>::to_vec),
            None => (environment.now)(name),
        };
        match budget::settings::enforces(name) {
            true => said,
            false => environment.own(name).or(said),
        }
    });
    // Misspelt names that the program made itself are not looked for: whoever sets variables meanwhile may be moving them.
    let mut named: Vec<&str> = names(&environment.began).collect();
    let others = names(&first).filter(|name| !named.contains(name));
    named.extend(others.collect::<Vec<_>>());
    settings.look_through(named.into_iter());
    settings
}

/// The names of an environment as the kernel shows it, as far as they are text.
fn names(environment: &[u8]) -> impl Iterator<Item = &str> {
    environment.split(|byte| *byte == 0).filter_map(|entry| {
        let name = entry.split(|byte| *byte == b'=').next()?;
        std::str::from_utf8(name).ok()
    })
}

/// A variable of an environment as the kernel shows it: `NAME=value`, each ended by a NUL.
fn variable<'a>(environment: &'a [u8], name: &str) -> Option<&'a [u8]> {
    environment
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// Whether a process of this PID namespace that looks up paths where this one does has the ledger of `settings`, by where its own settings would come
/// from; `library` is the path of the library that asks. A tenant file is for all that see it, one beside the library for those that have something of that
/// directory mapped. What cannot be read says no.
#[must_use]
pub fn is_of_tenant(pid: u32, settings: &Settings, library: Option<&Path>) -> bool {
    let process = ledger::folder_of(pid);
    let of_process = |name: &str| std::fs::read(process.join(name)).unwrap_or_default();
    if settings.source == Source::TenantFile {
        let beside = || {
            let mut directory = library?.parent()?.as_os_str().as_bytes().to_vec();
            directory.push(b'/');
            let maps = of_process("maps");
            Some(maps.windows(directory.len()).any(|at| at == directory))
        };
        return is_there(Path::new(TENANT_FILE)) || beside() == Some(true);
    }
    if !settings.ledger.is_absolute() {
        return false;
    }
    let environment = of_process("environ");
    let environment = match sets_anything(&environment) {
        true => environment,
        false => std::fs::read(FIRST_PROCESS).unwrap_or_default(),
    };
    let theirs = |name: &str| variable(&environment, name).map(<[u8]>::to_vec);
    sets_anything(&environment) && Settings::read(&theirs).ledger == settings.ledger
}

/// Whether an environment as the kernel shows it says anything of what is enforced.
fn sets_anything(environment: &[u8]) -> bool {
    names(environment).any(budget::settings::enforces)
}

/// A path as the loader gives it; none where it gives none.
#[must_use]
pub fn library(name: &core::ffi::CStr) -> Option<PathBuf> {
    let name = std::ffi::OsStr::from_bytes(name.to_bytes());
    (!name.is_empty()).then(|| PathBuf::from(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use budget::settings::Budget;
    use budget::{Bytes, DeviceIndex};

    fn beside(text: &str) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("tenant.toml"), text).expect("a file");
        let library = directory.path().join("libcuda.so.1");
        (directory, library)
    }

    #[test]
    fn a_file_beside_the_library_sets_budgets_that_the_environment_cannot_change() {
        let file = TenantFile::parse(b"CUDA_DEVICE_MEMORY_LIMIT_0 = \"4g\"\n").expect("a file");
        let environment = |name: &str| match name {
            "RINGFENCE_MEMORY_0" | "RINGFENCE_MEMORY_1" => Some(b"100g".to_vec()),
            "RINGFENCE_CONTEXT_CHARGE" => Some(b"free".to_vec()),
            "RINGFENCE_TRACE" => Some(b"/tmp/trace".to_vec()),
            _ => None,
        };
        let settings = from_file(&file, &environment);
        assert_eq!(
            settings.memory(DeviceIndex(0)),
            Budget::Limited(Bytes(4 << 30))
        );
        assert_eq!(settings.memory(DeviceIndex(1)), Budget::Unlimited);
        assert_eq!(settings.context_charge, Default::default());
        assert_eq!(settings.trace, Some(PathBuf::from("/tmp/trace")));
    }

    #[test]
    fn the_file_beside_the_library_is_found_by_the_library() {
        let (_directory, library) = beside("RINGFENCE_MEMORY = \"1g\"\n");
        let settings = settings(Some(&library), None);
        assert_eq!(
            settings.memory(DeviceIndex(3)),
            Budget::Limited(Bytes(1 << 30))
        );
    }

    #[test]
    fn a_ledger_that_is_there_says_what_the_settings_do_not() {
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let path = directory.path().join("ledger");
        let beneath = |text: &str| {
            let text = format!("RINGFENCE_LEDGER = \"{}\"\n{text}", path.display());
            std::fs::write(directory.path().join("tenant.toml"), text).expect("a file");
            settings(Some(&directory.path().join("libcuda.so.1")), None)
        };
        assert!(!beneath("").any_budget());
        let mut setup = ledger::Setup::default();
        setup.budgets[1] = Some(Bytes(1 << 30));
        let first = ledger::Ledger::attach(&path, &setup).expect("a ledger");
        first.join_share(DeviceIndex(2), 2_500, ledger::Authority::Tenant);
        let settings = beneath("RINGFENCE_MEMORY_0 = \"2g\"");
        assert_eq!(
            [0, 1, 2].map(|device| settings.memory(DeviceIndex(device))),
            [
                Budget::Limited(Bytes(2 << 30)),
                Budget::Limited(Bytes(1 << 30)),
                Budget::Unlimited
            ]
        );
        assert!(settings.any_compute_budget());
    }

    #[test]
    fn what_lies_in_a_ledgers_place_and_is_none_refuses_all() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ledger");
        let text = format!("RINGFENCE_LEDGER = \"{}\"\n", path.display());
        std::fs::write(directory.path().join("tenant.toml"), text).expect("a file");
        let settings = || settings(Some(&directory.path().join("libcuda.so.1")), None);
        assert_eq!(settings().refusal(), None);
        std::fs::write(&path, "no ledger").expect("a file");
        let refusal = settings().refusal().expect("refused").to_string();
        assert!(
            refusal.contains(&path.display().to_string()) && refusal.contains("magic"),
            "{refusal}"
        );
    }

    #[test]
    fn a_file_that_says_nonsense_refuses_all_and_is_named_with_its_line() {
        let (_directory, library) = beside("# budgets\nRINGFENCE_MEMROY = \"1g\"\n");
        let settings = settings(Some(&library), None);
        assert!(settings.any_budget());
        let refusal = settings.refusal().expect("refused").to_string();
        assert!(
            refusal.contains("tenant.toml, line 2") && refusal.contains("RINGFENCE_MEMROY"),
            "{refusal}"
        );
    }

    #[test]
    fn a_mark_beside_the_library_requires_a_budget() {
        let (directory, library) = beside("RINGFENCE_LEDGER = \"/dev/shm/ringfence-none\"\n");
        assert_eq!(settings(Some(&library), None).refusal(), None);
        std::fs::write(directory.path().join("required"), "").expect("a file");
        let refusal = settings(Some(&library), None).refusal().expect("refused");
        assert!(refusal.to_string().contains("RINGFENCE_REQUIRED"));
        let text = "RINGFENCE_LEDGER = \"/dev/shm/ringfence-none\"\nRINGFENCE_MEMORY = \"1g\"\n";
        std::fs::write(directory.path().join("tenant.toml"), text).expect("a file");
        assert_eq!(settings(Some(&library), None).refusal(), None);
    }

    #[test]
    fn what_a_process_began_with_is_not_outbid_by_what_it_sets_later() {
        let read = |began: &str, now: &str| {
            from_environment(&Environment {
                began: began.as_bytes().to_vec(),
                now: |name: &str| variable(now.as_bytes(), name).map(<[u8]>::to_vec),
            })
        };
        let memory = |began: &str, now: &str| read(began, now).memory(DeviceIndex(0));
        let four = Budget::Limited(Bytes(4 << 30));
        let began = "A=1\0RINGFENCE_MEMORY_0=4g\0";
        for now in [
            "",
            "A=1\0",
            "A=1\0RINGFENCE_MEMORY_0=40g\0CUDA_DEVICE_MEMORY_LIMIT=1g\0",
        ] {
            assert_eq!(memory(began, now), four, "{now:?}");
        }
        assert_eq!(memory("A=1\0", "RINGFENCE_MEMORY_0=4g\0"), four);
        let later = read(began, "RINGFENCE_TRACE=/tmp/trace\0");
        assert_eq!(later.trace, Some(PathBuf::from("/tmp/trace")));
    }

    #[test]
    fn a_variable_of_another_environment_is_the_whole_name() {
        let environment =
            b"PATH=/bin\0CUDA_DEVICE_MEMORY_LIMIT_0=4g\0CUDA_DEVICE_MEMORY_LIMIT=1g\0";
        assert_eq!(
            variable(environment, "CUDA_DEVICE_MEMORY_LIMIT"),
            Some(&b"1g"[..])
        );
        assert_eq!(variable(environment, "CUDA_DEVICE_MEMORY_LIMIT_1"), None);
    }
}
