//! The crate nvml-wrapper, unmodified: what it reads of the simulated machine, alone and as a tenant.
//!
//! The test starts itself again as the client, so that cargo builds the client whenever it builds the test.

use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::error::NvmlError;

const CLIENT: &str = "--as-client";

fn client() -> Result<(), NvmlError> {
    let nvml = Nvml::init()?;
    let device = nvml.device_by_index(0)?;
    let same = nvml.device_by_uuid(device.uuid()?)?;
    assert_eq!(same.index()?, 0);
    let pci = device.pci_info()?;
    assert_eq!(
        nvml.device_by_pci_bus_id(pci.bus_id.as_str())?.uuid()?,
        device.uuid()?
    );
    let memory = device.memory_info()?;
    // The rest is the driver's reserve.
    assert!(memory.total - memory.used - memory.free < 1 << 30);
    let utilization = device.utilization_rates()?;
    assert!(utilization.gpu <= 100);
    assert!(device.running_compute_processes()?.is_empty());
    assert!(matches!(
        device.fan_speed(0),
        Err(NvmlError::InvalidArg | NvmlError::NotSupported)
    ));
    println!(
        "{} | {} | {:?} | {} W | {} C | {} MHz | {} | {} MiB",
        device.name()?,
        nvml.sys_driver_version()?,
        device.architecture()?,
        device.enforced_power_limit()? / 1000,
        device.temperature(TemperatureSensor::Gpu)?,
        device.max_clock_info(Clock::SM)?,
        device.vbios_version()?,
        memory.total >> 20,
    );
    Ok(())
}

fn said(arguments: &[&str]) -> Result<String, Failed> {
    let output = Command::new(env!("CARGO_BIN_EXE_ringfence"))
        .args(["exec", "--driver", "mock:h200"])
        .args(arguments)
        .arg("--")
        .arg(std::env::current_exe()?)
        .arg(CLIENT)
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(format!("{text} {}", String::from_utf8_lossy(&output.stderr)).into())
}

fn expect(arguments: &[&str], wanted: &str) -> Result<(), Failed> {
    let said = said(arguments)?;
    if said == wanted {
        return Ok(());
    }
    Err(format!("said {said:?}, wanted {wanted:?}").into())
}

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == CLIENT) {
        return match client() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error:?}");
                ExitCode::FAILURE
            }
        };
    }
    const CARD: &str =
        "NVIDIA H200 | 580.159.04 | Hopper | 700 W | 40 C | 1980 MHz | 96.00.A5.00.1A";
    let alone = Trial::test("nvml_wrapper_reads_the_card", || {
        expect(&["--target", "none"], &format!("{CARD} | 143771 MiB"))
    });
    let tenant = Trial::test("nvml_wrapper_as_a_tenant_reads_its_budget", || {
        expect(&["--memory", "0=4GiB"], &format!("{CARD} | 4096 MiB"))
    });
    libtest_mimic::run(&Arguments::from_args(), vec![alone, tenant]).exit_code()
}
