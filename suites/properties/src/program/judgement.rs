//! What is promised of every answer, and what holds after every operation.

use abi::cuda::CUresult;
use cases::ffi::vulkan::Query;

use super::{Broken, NO_MEMORY, Program};
use crate::model::{Account, BLOCK};
use crate::operation::Size;

/// How a call was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Granted,
    NoMemory,
    /// Refused with another code.
    Otherwise,
}

impl Verdict {
    pub(super) fn of(code: CUresult) -> Self {
        match code {
            CUresult::SUCCESS => Self::Granted,
            NO_MEMORY => Self::NoMemory,
            _ => Self::Otherwise,
        }
    }
}

impl Program {
    pub(super) fn sized(&self, size: Size, device: usize) -> u64 {
        let account = &self.accounts[device];
        match size {
            Size::Bytes(bytes) => bytes,
            Size::Fits(less) => account
                .must_fit()
                .saturating_sub(u64::from(less) * BLOCK)
                .max(1),
            Size::Over(more) => account.cannot_fit() + u64::from(more) * BLOCK,
        }
    }

    /// Judges the answer to a request that costs so much at least and at most.
    pub(super) fn judge(
        &self,
        what: &str,
        device: usize,
        verdict: Verdict,
        least: u64,
        most: u64,
    ) -> Result<(), Broken> {
        let account = &self.accounts[device];
        let told = |account: &Account| {
            format!(
                "device {device} of {}: {} charged before, {} needed and {} held at most by the model",
                account.budget,
                account.charged_before,
                account.needed(),
                account.most()
            )
        };
        match verdict {
            Verdict::Granted => {
                let held = account.lost_before + account.least();
                promise!(
                    held.saturating_add(least) <= account.budget,
                    "{what} was granted, over the budget: {}",
                    told(account)
                );
            }
            Verdict::NoMemory => promise!(
                account.may_refuse(most),
                "{what} was refused, though at most {most} fit: {}",
                told(account)
            ),
            Verdict::Otherwise => {}
        }
        Ok(())
    }

    pub(super) fn plainly(what: &str, code: CUresult) -> Result<(), Broken> {
        let verdict = Verdict::of(code);
        promise!(verdict != Verdict::Otherwise, "{what} answered {code:?}");
        Ok(())
    }

    pub(super) fn invariants(&self) -> Result<(), Broken> {
        for device in self.devices() {
            let account = &self.accounts[device];
            let (lost, charged) = self.figures(device);
            let least = account.lost_before + account.least();
            let most = account.charged_before + account.most() + crate::model::SLACK;
            promise!(
                lost <= account.budget,
                "device {device} has lost {lost}, over {}",
                account.budget
            );
            promise!(
                lost <= charged,
                "device {device} has lost {lost}, {charged} are charged"
            );
            promise!(
                least <= lost,
                "device {device} has lost {lost}, the model knows of {least}"
            );
            promise!(
                charged <= most,
                "{charged} of device {device} are charged, at most {most} by the model"
            );
        }
        self.one_story()
    }

    /// CUDA, NVML by both of its versions and Vulkan tell the same of the current device.
    fn one_story(&self) -> Result<(), Broken> {
        let device = self.current.0;
        let budget = self.accounts[device].budget;
        let info = self.cuda.memory_info();
        promise!(
            info.code == CUresult::SUCCESS,
            "cuMemGetInfo_v2 answered {:?}",
            info.code
        );
        let (free, total) = info.out;
        promise!(
            total == budget,
            "cuMemGetInfo_v2 tells a total of {total}, the budget is {budget}"
        );
        let charged = self.figures(device).1;
        promise!(
            free == budget.saturating_sub(charged),
            "cuMemGetInfo_v2 tells {free} free of {budget}, {charged} are charged"
        );
        let handle = self.nvml_devices[device];
        let first = self
            .nvml
            .memory(handle)
            .map_err(|code| format!("NVML's memory: {code:?}"))?;
        let second = self
            .nvml
            .memory_v2(handle)
            .map_err(|code| format!("NVML's memory: {code:?}"))?;
        let told = (first.total, first.free, first.used);
        promise!(
            told == (budget, free, budget - free),
            "NVML tells {told:?}, CUDA {free} free of {budget}"
        );
        let told = (second.total, second.free, second.used, second.reserved);
        promise!(
            told == (budget, free, budget - free, 0),
            "NVML's second tells {told:?}, CUDA {free} free of {budget}"
        );
        let gpu = &self.gpus[device];
        let heaps = gpu.instance.heap_budgets(gpu.physical, Query::Second);
        let at = heaps
            .heaps
            .iter()
            .position(|heap| heap.device_local)
            .ok_or("Vulkan has no heap")?;
        let (size, usage, promised) = (heaps.heaps[at].size, heaps.usage[at], heaps.budget[at]);
        promise!(
            size == budget,
            "Vulkan's heap is {size}, the budget {budget}"
        );
        // VK_EXT_memory_budget wants it non-zero.
        promise!(
            promised == size.min(usage + free).max(1),
            "Vulkan's heapBudget is {promised} beside a usage of {usage}, CUDA tells {free} free of {budget}"
        );
        Ok(())
    }
}
