//! Initialisation and what is true of the whole machine.

use abi::nvml::*;

use crate::boundary::{Answer, Out};
use crate::library;

pub fn init() -> Answer {
    init_with_flags(0)
}

/// NO_GPUS and NO_ATTACH, and any bit that a later driver may add, change nothing here.
pub fn init_with_flags(_flags: c_uint) -> Answer {
    library::world().ok_or(nvmlReturn_t::ERROR_DRIVER_NOT_LOADED)?;
    library::enter_user();
    Ok(())
}

/// One too many succeeds, as it did with drivers 535 and 550.
pub fn shutdown() -> Answer {
    library::leave_user();
    Ok(())
}

pub fn driver_version(version: Out<c_char>, length: c_uint) -> Answer {
    let world = library::ready()?;
    version
        .required()?
        .set_text(&world.machine().driver.version, length)
}

/// Answers before nvmlInit too: the CUDA generation, then the driver's version.
pub fn nvml_version(version: Out<c_char>, length: c_uint) -> Answer {
    let version = version.required()?;
    let world = library::world().ok_or(nvmlReturn_t::ERROR_UNKNOWN)?;
    let driver = &world.machine().driver;
    version.set_text(
        &format!("{}.{}", driver.cuda_version / 1000, driver.version),
        length,
    )
}

pub fn cuda_version(version: Out<c_int>) -> Answer {
    let world = library::ready()?;
    version.required()?.set(world.machine().driver.cuda_version);
    Ok(())
}

/// S-class units: the machine has none.
pub fn unit_count(count: Out<c_uint>) -> Answer {
    library::ready()?;
    count.required()?.set(0);
    Ok(())
}
