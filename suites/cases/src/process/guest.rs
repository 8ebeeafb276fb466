//! The interposer is a guest in a stranger's process.

use abi::cuda::CUresult;
use harness::{Bytes, Failure, cases, ensure, ensure_eq};

use crate::clients::{Gpu, cuda, fill, nvml};
use crate::ffi::process::{Manners, overhear};

/// Uses everything once, refusals included.
fn use_everything() -> Result<(), Failure> {
    let cuda = cuda()?;
    let nvml = nvml()?;
    let gpu = Gpu::first()?;
    gpu.allocate(Bytes::gib(1))?;
    let held = fill(&cuda);
    for pointer in held.held {
        ensure_eq!(cuda.free(pointer), CUresult::SUCCESS, "cuMemFree_v2");
    }
    nvml.shutdown();
    Ok(())
}

cases! {
    /// Nothing that belongs to the host process is changed, by CUDA, NVML or Vulkan: umask, directory, handlers of all signals, those that are
    /// blocked, locale, environment, low descriptors, threads.
    a_host_process_is_left_as_it_was {
        defects: ["P9", "P10"], entry_points: ["cuInit", "cuMemAlloc_v2", "vkAllocateMemory", "nvmlInit_v2"], budget: "0=4GiB",
        on_real: No("the vendor's driver starts threads"),
    } (_session) {
        let before = Manners::now();
        use_everything()?;
        ensure_eq!(Manners::now(), before, "the process's own affairs after use");
        Ok(())
    }

    /// A program that sets its budget properly hears nothing: not a byte on stdout or stderr.
    a_guest_says_nothing {
        defects: ["P9"], entry_points: ["cuInit", "cuMemAlloc_v2", "vkAllocateMemory", "nvmlInit_v2"], budget: "0=4GiB",
        on_real: No("the vendor's driver may speak"),
    } (_session) {
        let (used, [stdout, stderr]) = overhear(use_everything)?;
        used?;
        ensure!(stdout.is_empty(), "on stdout: {stdout}");
        ensure!(stderr.is_empty(), "on stderr: {stderr}");
        Ok(())
    }

    /// Another process's environment stays its own: a child program started by a tenant is started as without us.
    a_program_started_by_a_tenant_runs {
        defects: ["P9", "S5"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB",
    } (session) {
        let cuda = cuda()?;
        ensure_eq!(cuda.allocate(Bytes::mib(2).0).code, CUresult::SUCCESS, "2 MiB");
        let output = session.program("/bin/echo", harness::Libraries::Both)?.arg("hello").output()?;
        ensure_eq!(String::from_utf8_lossy(&output.stdout), "hello\n", "what /bin/echo says");
        ensure!(output.stderr.is_empty(), "/bin/echo on stderr: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}
