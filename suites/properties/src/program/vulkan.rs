//! Memory that is asked of Vulkan.

use cases::ffi::vulkan::Code;

use super::held::Held;
use super::judgement::Verdict;
use super::{Broken, Program};
use crate::ffi::errno;
use crate::model::{PAGE, up};
use crate::operation::Size;

/// Most that a program asks of the host's own memory at once.
const HOST_MOST: u64 = 64 << 20;

impl Program {
    pub(super) fn allocate_vulkan(&mut self, size: Size) -> Result<(), Broken> {
        let device = self.current.0;
        // Nothing is no valid size.
        let bytes = self.sized(size, device).max(1);
        self.calls += 1;
        let gpu = &self.gpus[device];
        let (answer, kept) = errno::around(|| gpu.device.ask(gpu.memory_type, bytes));
        promise!(kept, "errno was changed");
        let what = format!("vkAllocateMemory of {bytes}");
        let verdict = match answer.code {
            Code::SUCCESS => Verdict::Granted,
            Code::OUT_OF_DEVICE_MEMORY => Verdict::NoMemory,
            code => return Err(format!("{what} answered {code}")),
        };
        let cost = up(bytes, PAGE);
        // The layer knows nothing of CUDA's pools.
        match verdict {
            Verdict::NoMemory if self.accounts[device].may_refuse_beside_pools(cost) => {
                return Ok(());
            }
            verdict => self.judge(&what, device, verdict, cost, cost)?,
        }
        if let Some(memory) = answer.memory {
            self.accounts[device].enter_exact(cost);
            self.hold(
                device,
                Held::Vulkan {
                    memory,
                    bytes: cost,
                },
            );
        }
        Ok(())
    }

    pub(super) fn allocate_host(&mut self, size: Size) -> Result<(), Broken> {
        let device = self.current.0;
        let bytes = self.sized(size, device) % HOST_MOST + 1;
        self.calls += 1;
        let before = self.figures(device);
        let (gpu, host) = (&self.gpus[device], self.host_types[device]);
        let (answer, kept) = errno::around(|| gpu.device.ask(host, bytes));
        promise!(kept, "errno was changed");
        promise!(
            answer.code == Code::SUCCESS,
            "vkAllocateMemory of {bytes} of the host's answered {}",
            answer.code
        );
        promise!(
            self.figures(device) == before,
            "the host's memory was charged to device {device}"
        );
        if let Some(memory) = answer.memory {
            self.hold(device, Held::VulkanHost { memory });
        }
        Ok(())
    }
}
