//! The crate cudarc, unmodified, as a tenant: it allocates through `cuMemAllocAsync` alone, until it is refused.
//!
//! The test starts itself again as the tenant, so that cargo builds the client whenever it builds the test.

use std::path::Path;
use std::process::ExitCode;

use cudarc::driver::{CudaContext, DriverError, result, sys};

use libtest_mimic::{Arguments, Trial};

#[path = "clients/tenant.rs"]
mod tenant;

const TENANT: &str = "--as-tenant";
const STEP: usize = 256 << 20;

fn client() -> Result<(), DriverError> {
    let context = CudaContext::new(0)?;
    let stream = context.default_stream();
    let (_, total) = result::mem_get_info()?;
    let device_total = context.total_mem()?;

    let host: Vec<u8> = (0..=255).cycle().take(4096).collect();
    let copied = stream.clone_htod(&host)?;
    let round_trip = stream.clone_dtoh(&copied)? == host;

    let mut held = Vec::new();
    let refusal = loop {
        // SAFETY: the memory is never read.
        match unsafe { stream.alloc::<u8>(STEP) } {
            Ok(slice) => held.push(slice),
            Err(error) => break error.0,
        }
    };
    let granted = held.len() * STEP;
    held.pop();
    stream.synchronize()?;
    // SAFETY: the memory is never read.
    let granted_after_free = unsafe { stream.alloc::<u8>(STEP) }.is_ok();

    println!(
        r#"{{"total": {total}, "device_total": {device_total}, "granted": {granted}, "refusal": {}, "round_trip": {round_trip}, "granted_after_free": {granted_after_free}}}"#,
        refusal as u32
    );
    assert_eq!(refusal, sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    Ok(())
}

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == TENANT) {
        return match client() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error:?}");
                ExitCode::FAILURE
            }
        };
    }
    let trial = Trial::test("cudarc_is_held_to_the_budget", || {
        let program = std::env::current_exe()?;
        tenant::assert_held_to_the_budget(&tenant::run("ours", &program, &[Path::new(TENANT)]));
        Ok(())
    });
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}
