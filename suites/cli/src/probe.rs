//! `ringfence probe`: a live machine, written down in the project's own format.
//!
//! Everything is asked by child processes of this program in the environment of `--driver`, with nothing before the driver:
//! a call that a driver does not survive ends a child, and the next one goes on after it. Nothing on the card is changed:
//! setters, resets, debugger and profiler are never called, memory is given back.

pub mod document;
mod ffi;
mod lines;
pub mod nulls;
mod task;

use std::error::Error;
use std::process::ExitCode;

use harness::environment::{Environment, Request};
use harness::{Driver, Libraries, Target, recording, symbols};

use crate::arguments::{ProbeArguments, Section};
use document::Document;
use task::Asker;

pub use task::child_main;

const CUDA: &str = "libcuda.so.1";
const NVML: &str = "libnvidia-ml.so.1";

pub fn run(arguments: &ProbeArguments) -> Result<ExitCode, Box<dyn Error>> {
    let machine = match &arguments.driver {
        Driver::Mock { profile, .. } => profile.clone(),
        Driver::Real => String::new(),
    };
    let environment = Environment::create(&Request {
        machine: &machine,
        libraries: Libraries::Neither,
        ..Request::new("probe", &Target::nothing(), &arguments.driver)
    })?;
    let wanted =
        |section: Section| arguments.section.is_empty() || arguments.section.contains(&section);
    let asker = Asker::new(&environment.plan);
    let mut document = Document::new(&arguments.driver);
    for (section, fill) in SECTIONS {
        if wanted(section) {
            eprintln!("probe: {section:?}");
            match fill(&asker, &mut document) {
                Ok(()) => document.has(section),
                Err(error) => {
                    eprintln!("probe: {section:?}: {error}");
                    document.lacks(section, &error.to_string());
                }
            }
        }
    }
    let complete = document.is_complete();
    let text = document.finish(arguments.name.as_deref())?;
    std::fs::write(&arguments.output, text)
        .map_err(|error| format!("-o {}: {error}", arguments.output.display()))?;
    Ok(if complete {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(crate::UNEXPECTED)
    })
}

type Fill = fn(&Asker<'_>, &mut Document) -> Result<(), Box<dyn Error>>;

const SECTIONS: [(Section, Fill); 9] = [
    (Section::Devices, devices),
    (Section::Vulkan, vulkan),
    (Section::Memory, memory),
    (Section::Cost, cost),
    (Section::Teardown, teardown),
    (Section::Symbols, exported),
    (Section::ProcAddress, proc_addresses),
    (Section::Nulls, null_answers),
    (Section::Structures, structures),
];

/// What the driver's file exports, sorted.
fn exports(asker: &Asker<'_>, soname: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let path = recording::driver_of(asker.plan, soname)?
        .ok_or_else(|| format!("this machine has no {soname}"))?;
    let bytes = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut names: Vec<String> = symbols::exports(&bytes)?
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("cu") || name.starts_with("nvml"))
        .collect();
    names.sort();
    names.dedup();
    Ok(names)
}

fn devices(asker: &Asker<'_>, document: &mut Document) -> Result<(), Box<dyn Error>> {
    document.nvml_identity(&asker.ask("nvml-identity", &[])?)?;
    document.cuda_identity(&asker.ask("cuda-identity", &[])?)?;
    document.attributes(&asker.ask("attributes", &[])?)
}

fn vulkan(asker: &Asker<'_>, document: &mut Document) -> Result<(), Box<dyn Error>> {
    document.vulkan(&asker.ask("vulkan", &[])?)
}

fn memory(asker: &Asker<'_>, document: &mut Document) -> Result<(), Box<dyn Error>> {
    document.memory(&asker.ask("memory", &[])?)
}

fn cost(asker: &Asker<'_>, document: &mut Document) -> Result<(), Box<dyn Error>> {
    document.cost(&asker.ask("cost", &[])?)
}

fn teardown(asker: &Asker<'_>, document: &mut Document) -> Result<(), Box<dyn Error>> {
    document.teardown(&asker.ask("teardown", &[])?)
}

fn exported(asker: &Asker<'_>, document: &mut Document) -> Result<(), Box<dyn Error>> {
    document.exports("libcuda", &exports(asker, CUDA)?);
    document.exports("nvml", &exports(asker, NVML)?);
    Ok(())
}

fn proc_addresses(asker: &Asker<'_>, document: &mut Document) -> Result<(), Box<dyn Error>> {
    let exports = exports(asker, CUDA)?;
    let mut names = vec![exports.join(" ")];
    names.extend(nulls::bases(&exports));
    document.table("proc_address", &asker.ask("proc-addresses", &names)?);
    Ok(())
}

fn null_answers(asker: &Asker<'_>, document: &mut Document) -> Result<(), Box<dyn Error>> {
    let grounds = document.grounds();
    let cuda = nulls::cuda(asker, &exports(asker, CUDA)?, grounds)?;
    let nvml = nulls::nvml(asker, &exports(asker, NVML)?, grounds)?;
    document.table("libcuda", &cuda);
    document.table("nvml", &nvml);
    Ok(())
}

fn structures(asker: &Asker<'_>, document: &mut Document) -> Result<(), Box<dyn Error>> {
    let rows = nulls::structures(asker, &exports(asker, NVML)?)?;
    document.table("nvml_structures", &rows);
    Ok(())
}
