//! What an argument points to is judged as the driver gets it: another thread that changes it between the two gets nothing past the budget.

use abi::cuda::CUresult;
use harness::{Bytes, Failure, cases, ensure, ensure_eq};

use crate::clients::{cuda, fill, first_gpu, instance, memory_type, nvml};
use crate::ffi::cuda::Cuda;
use crate::ffi::vulkan::{Client, Code, Place};
use crate::greed::{STEPS, budget, until_refused};
use crate::vulkan::floor::row;

const PART: Bytes = Bytes::mib(64);

/// What nobody changes is granted.
fn grants(cuda: &Cuda) -> Result<(), Failure> {
    let plain = cuda.allocate(PART.0);
    ensure_eq!(plain.code, CUresult::SUCCESS, "{PART} that nobody changes");
    ensure_eq!(cuda.free(plain.out), CUresult::SUCCESS, "cuMemFree_v2");
    Ok(())
}

cases! {
    /// cuMemCreate, whose location leads to the host and to the device by turns.
    memory_whose_place_another_thread_changes_keeps_the_budget {
        kind: Budget, defects: ["R51"], entry_points: ["cuMemCreate"], budget: "0=2GiB", unordered: "two threads",
    } (session) {
        let (cuda, budget) = (cuda()?, budget(session, 0)?);
        grants(&cuda)?;
        let taken = Bytes(cuda.create_memory_at_a_changing_place(PART.0, 2 * budget.0)) + fill(&cuda).bytes;
        ensure!(taken <= budget, "{taken} of the device under {budget}");
        Ok(())
    }

    /// cuArrayCreate, whose width is small and large by turns.
    an_array_whose_width_another_thread_changes_keeps_the_budget {
        kind: Budget, defects: ["R51"], entry_points: ["cuArrayCreate_v2"], budget: "0=2GiB", unordered: "two threads",
    } (session) {
        let (cuda, budget) = (cuda()?, budget(session, 0)?);
        grants(&cuda)?;
        let taken = Bytes(cuda.create_arrays_of_a_changing_width(2 * budget.0)) + fill(&cuda).bytes;
        ensure!(taken <= budget, "{taken} of wide arrays under {budget}");
        Ok(())
    }

    /// vkAllocateMemory, whose type is the host's and the device's by turns.
    memory_whose_type_another_thread_changes_keeps_the_budget {
        kind: Budget, defects: ["R51"], entry_points: ["vkAllocateMemory"], budget: "0=2GiB", unordered: "two threads",
    } (session) {
        let (instance, budget, nvml) = (instance(Client::V1_1)?, budget(session, 0)?, nvml()?);
        let physical = first_gpu(&instance)?;
        let types = [Place::Host, Place::Device].map(|place| memory_type(&instance, physical, place));
        let [host, own] = types;
        let device = instance.device(physical)?;
        let [host, own] = [host?, own?];
        ensure_eq!(device.ask(own, PART.0).code, Code::SUCCESS, "{PART} that nobody changes");
        device.allocate_of_a_changing_type([host, own], PART.0, 256);
        let _rest = until_refused(&STEPS, |bytes| device.allocate(own, bytes.0));
        let held = row(&nvml)?;
        ensure!(held <= budget, "{held} in NVML's row under {budget}");
        Ok(())
    }
}
