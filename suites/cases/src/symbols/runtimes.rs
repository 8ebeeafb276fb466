//! What CUDA's own runtimes look up as they start, asked of each generation's driver: bare by another process, and here.

use std::collections::{BTreeMap, BTreeSet};

use abi::cuda::CUresult;
use harness::{Failure, Libraries, Session, cases, ensure, ensure_eq, roles, symbols};
use mock_device::Api;

use crate::ffi::cuda::{Cuda, ProcAddress};
use crate::ffi::library::{Library, Visibility};
use crate::ffi::places::{Place, Places};

/// `name version flags runtimes`, what libcudart 11.8, 12.9 and 13.5 asked for.
const LOOK_UPS: &str = include_str!("../../../../fixtures/oracle/cudart-look-ups.txt");

/// By which call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    First,
    Second,
}

/// One look-up.
#[derive(Clone, Copy, Debug)]
struct Question {
    call: Call,
    name: &'static str,
    version: i32,
    flags: u64,
}

fn questions(session: &Session) -> Result<Vec<Question>, Failure> {
    let rows = LOOK_UPS.lines().filter(|line| !line.starts_with('#'));
    let mut all = Vec::new();
    for row in rows {
        let words: Vec<&str> = row.split(' ').collect();
        let [name, version, flags, _] = words[..] else {
            harness::fail!("cudart-look-ups.txt: \"{row}\"");
        };
        for (call, export) in [
            (Call::First, "cuGetProcAddress"),
            (Call::Second, "cuGetProcAddress_v2"),
        ] {
            if session.exports(export)? {
                all.push(Question {
                    call,
                    name: if name == "\"\"" { "" } else { name },
                    version: version.parse()?,
                    flags: flags.parse()?,
                });
            }
        }
    }
    Ok(all)
}

fn ask(cuda: &Cuda, question: &Question) -> ProcAddress {
    let Question {
        call,
        name,
        version,
        flags,
    } = *question;
    match call {
        Call::First => cuda.proc_address_v1(name, version, flags),
        Call::Second => cuda.proc_address(name, version, flags),
    }
}

/// What the bare driver answered: code, status, where that lies, and the exports that lie there.
struct Bare {
    code: u32,
    status: Option<i32>,
    place: Option<Place>,
    names: Vec<String>,
}

impl Bare {
    /// `code status offset names file`, what is none as `-`; the last may contain blanks.
    fn write(&self) -> String {
        let number = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
        let (status, code) = (self.status.map(|status| status.to_string()), self.code);
        let offset = self.place.as_ref().map(|place| place.offset.to_string());
        let file = self.place.as_ref().map(|place| place.file.display());
        let file = file.map(|file| file.to_string());
        let (status, offset, file) = (number(status), number(offset), number(file));
        format!("{code} {status} {offset} {} {file}", self.names.join(","))
    }

    fn read(line: &str) -> Result<Self, Failure> {
        let words: Vec<&str> = line.splitn(5, ' ').collect();
        let [code, status, offset, names, file] = words[..] else {
            harness::fail!("the bare process said \"{line}\"");
        };
        let offset: Option<u64> = offset.parse().ok();
        Ok(Self {
            code: code.parse()?,
            status: status.parse().ok(),
            place: offset.map(|offset| Place {
                file: file.into(),
                offset,
            }),
            names: names
                .split(',')
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
        })
    }
}

/// Has a process without any of the target's libraries ask the driver.
fn bare_answers(session: &Session, questions: usize) -> Result<Vec<Bare>, Failure> {
    let launch = session
        .launch("looks_up")
        .libraries(Libraries::Neither)
        .without("LD_PRELOAD");
    let mut peer = launch.start()?;
    let mut answers = Vec::new();
    for _ in 0..questions {
        answers.push(Bare::read(&peer.line()?)?);
    }
    peer.finish()?;
    Ok(answers)
}

/// Compares every answer with the bare driver's. Answers the names whose hooks were given.
fn hooks_given(session: &Session) -> Result<BTreeSet<String>, Failure> {
    let questions = questions(session)?;
    ensure!(questions.len() > 400, "{} look-ups", questions.len());
    let bare = bare_answers(session, questions.len())?;
    let cuda = Cuda::open()?;
    let answers: Vec<ProcAddress> = questions.iter().map(|asked| ask(&cuda, asked)).collect();
    let places = Places::of_this_process()?;
    let mut hooks = BTreeSet::new();
    for ((asked, bare), answer) in questions.iter().zip(&bare).zip(answers) {
        ensure_eq!(
            (answer.code.0, answer.status),
            (bare.code, bare.status),
            "code and status of {asked:?}"
        );
        let place = match (answer.address, &bare.place) {
            (None, None) => continue,
            (Some(address), Some(_)) => places.of(address),
            (found, _) => {
                harness::fail!("{asked:?}: {found:?}, by the bare driver {:?}", bare.names)
            }
        };
        if place == bare.place {
            continue;
        }
        let Some(place) = place else {
            harness::fail!("{asked:?}: an address in no file");
        };
        // Not the driver's: then it is the hook of the very symbol that the driver gave, in a library that was put before it.
        let library = Library::open(&place.file.to_string_lossy(), Visibility::Local)?;
        let hook = bare
            .names
            .iter()
            .find(|name| library.address(name) == answer.address);
        let Some(hook) = hook else {
            let (file, names) = (place.file.display(), &bare.names);
            harness::fail!("{asked:?}: none of {file}'s hooks for {names:?}");
        };
        hooks.insert(hook.clone());
    }
    Ok(hooks)
}

cases! {
    /// Each of the 504 look-ups that libcudart 11.8, 12.9 and 13.5 make, by both calls, gets the code and the status of this driver, and the
    /// very function that the driver gives, or the hook of exactly that one.
    what_a_runtime_looks_up_is_the_drivers_or_its_hook {
        defects: ["S1", "S2"], entry_points: ["cuGetProcAddress", "cuGetProcAddress_v2"], budget: "0=4GiB",
    } (session) {
        hooks_given(session)?;
        Ok(())
    }

    /// Of the functions that these look-ups find none that is hooked escapes its hook, launches under a compute budget included.
    what_a_runtime_looks_up_escapes_no_hook {
        kind: Own, defects: ["S1", "R4"], entry_points: ["cuGetProcAddress", "cuGetProcAddress_v2"], budget: "0=4GiB",
        env: [("CUDA_DEVICE_SM_LIMIT", "50")],
    } (session) {
        let given = hooks_given(session)?;
        let cuda = Cuda::open()?;
        let Some(own) = cuda.library.address("cuMemAlloc_v2") else {
            harness::fail!("cuMemAlloc_v2 was not found");
        };
        let Some(own) = Places::of_this_process()?.of(own) else {
            harness::fail!("cuMemAlloc_v2 lies in no file");
        };
        let exports = symbols::exports(&std::fs::read(&own.file)?)?;
        let hooked: BTreeSet<String> = exports.into_iter().map(|(name, _)| name).collect();
        let bare = bare_answers(session, questions(session)?.len())?;
        let found = bare.iter().flat_map(|bare| &bare.names);
        let escaped: BTreeSet<&String> = found.filter(|name| hooked.contains(*name) && !given.contains(*name)).collect();
        ensure!(escaped.is_empty(), "answered by the driver's own: {escaped:?}");
        ensure!(given.len() > 40, "only {} hooks were given: {given:?}", given.len());
        Ok(())
    }

    /// By handle a program finds every name that this driver exports, and of all that other generations do none that it lacks.
    by_handle_there_is_what_the_driver_exports {
        defects: ["S2", "S8"], entry_points: ["dlsym"], budget: "0=4GiB",
    } (session) {
        let exported = session.exported()?;
        for (api, soname, prefix) in [(Api::Cuda, "libcuda.so.1", "cu"), (Api::Nvml, "libnvidia-ml.so.1", "nvml")] {
            let library = Library::open(soname, Visibility::Local)?;
            let of_this = exported.iter().map(String::as_str).filter(|name| name.starts_with(prefix));
            let names: BTreeSet<&str> = symbols::of_any_generation(api).into_iter().chain(of_this).collect();
            for name in names {
                ensure_eq!(library.address(name).is_some(), exported.contains(name), "whether {soname} has {name}");
            }
        }
        Ok(())
    }
}

roles! {
    /// Says what each look-up of the runtimes comes to: code, status, offset and file, the exports that lie there.
    looks_up(session, parent) {
        let cuda = Cuda::open()?;
        let mut names: BTreeMap<Place, Vec<String>> = BTreeMap::new();
        let exported = session.exported()?.iter().filter(|name| name.starts_with("cu"));
        let addresses: Vec<_> = exported.filter_map(|name| Some((name, cuda.library.address(name)?))).collect();
        let questions = questions(session)?;
        let answers: Vec<ProcAddress> = questions.iter().map(|asked| ask(&cuda, asked)).collect();
        let places = Places::of_this_process()?;
        for (name, address) in addresses {
            if let Some(place) = places.of(address) {
                names.entry(place).or_default().push(name.clone());
            }
        }
        for answer in answers {
            let place = answer.address.and_then(|address| places.of(address));
            let there = place.as_ref().and_then(|place| names.get(place)).cloned().unwrap_or_default();
            let CUresult(code) = answer.code;
            parent.say(&Bare { code, status: answer.status, place, names: there }.write())?;
        }
        Ok(())
    }
}
