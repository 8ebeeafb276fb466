//! `ringfence exec`.

use std::error::Error;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use harness::environment::{Environment, Request};
use harness::{Bytes, Driver, Target, World, nvml};

mod boundary;
mod host_files;

use crate::TROUBLE;
use crate::arguments::ExecArguments;

/// What a shell answers for a program that does not exist.
const NOT_FOUND: u8 = 127;
/// What a shell adds to the number of the signal that ended a program.
const SIGNALLED: i32 = 128;

pub fn run(arguments: &ExecArguments) -> Result<ExitCode, Box<dyn Error>> {
    let Some((program, rest)) = arguments.command.split_first() else {
        return Err("exec: no program was given after --".into());
    };
    let driver = match &arguments.profile {
        Some(profile) => format!("mock:{profile}")
            .parse()
            .map_err(|error| format!("--profile: {error}"))?,
        None => arguments.driver.clone(),
    };
    let machine = match &driver {
        Driver::Mock { profile, .. } => profile.clone(),
        Driver::Real if arguments.fault.is_some() => {
            return Err("--fault needs a mock driver".into());
        }
        Driver::Real => String::new(),
    };
    let faults = match &arguments.fault {
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| format!("--fault {}: {error}", path.display()))?,
        None => String::new(),
    };
    // Before there is a second thread: a user namespace is made by a process of one.
    let own_mounts = match driver {
        Driver::Mock { .. } if !arguments.host_files => Some(boundary::own_mounts()),
        _ => None,
    };
    let mut environment = Environment::create(&Request {
        machine: &machine,
        real_devices: &real_devices(&driver)?,
        budget: &arguments.memory,
        faults: &faults,
        traced: arguments.trace.is_some(),
        ..Request::new("exec", &Target::named(&arguments.target)?, &driver)
    })?;

    let missing = match (own_mounts, &environment.world) {
        (Some(Ok(())), Some(world)) => show_host_files(world, &environment.plan.root),
        (Some(Err(error)), _) => vec![format!("a mount namespace: {error}")],
        _ => Vec::new(),
    };
    for what in missing {
        eprintln!(
            "ringfence: where it looks for files, the program sees this machine's own GPUs: {what}"
        );
    }
    let written = match arguments.trace {
        Some(_) if driver.is_real() => environment.record()?,
        _ => environment.plan.trace_path(),
    };
    let mut command = Command::new(program);
    environment.plan.apply_over_ours(command.args(rest))?;
    let status = match boundary::run_to_its_end(&mut command) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("ringfence: {}: {error}", program.display());
            return Ok(ExitCode::from(NOT_FOUND));
        }
    };
    if let Some(path) = &arguments.trace {
        let text = if written.exists() {
            std::fs::read(&written)?
        } else {
            Vec::new()
        };
        std::fs::write(path, text)
            .map_err(|error| format!("--trace {}: {error}", path.display()))?;
    }
    let code = status
        .code()
        .or(status.signal().map(|signal| SIGNALLED + signal));
    Ok(ExitCode::from(
        code.and_then(|code| u8::try_from(code).ok())
            .unwrap_or(TROUBLE),
    ))
}

/// Has this process, and the program that it starts, see the simulated machine's GPUs where programs look for files. Answers where
/// that cannot be.
fn show_host_files(world: &World, root: &Path) -> Vec<String> {
    let folder = root.join("host");
    let (pci, proc) = (folder.join("pci"), folder.join("proc"));
    let over = |from: &Path, over: &str| boundary::bind(from, Path::new(over));
    let shown = [
        (
            host_files::PCI_DEVICES,
            host_files::write_pci(world, &pci).and_then(|()| over(&pci, host_files::PCI_DEVICES)),
        ),
        (
            host_files::PROC_DRIVER,
            host_files::write_proc(world, &proc)
                .and_then(|()| over(&proc, host_files::PROC_DRIVER)),
        ),
        ("/dev", boundary::replace_nodes(&host_files::nodes(world))),
    ];
    let failed = |(path, result): (&str, std::io::Result<()>)| {
        result.err().map(|error| format!("{path}: {error}"))
    };
    shown.into_iter().filter_map(failed).collect()
}

fn real_devices(driver: &Driver) -> Result<Vec<Bytes>, Box<dyn Error>> {
    if !driver.is_real() {
        return Ok(Vec::new());
    }
    Ok(nvml::figures_of_this_machine()?
        .iter()
        .map(|device| device.total)
        .collect())
}
