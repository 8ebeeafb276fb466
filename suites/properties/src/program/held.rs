//! What is held, and what ends it.

use abi::cuda::{CUdeviceptr, CUresult};
use cases::ffi::cuda::{Array, OwnStream, Stream};
use cases::ffi::vulkan::Memory;

use super::{Broken, INVALID, Program};
use crate::model::BLOCK;

/// Something that is held, and what ends it.
pub(super) enum Held {
    Blocks {
        address: CUdeviceptr,
        bytes: u64,
        context: usize,
    },
    Managed {
        address: CUdeviceptr,
        bytes: u64,
        context: usize,
    },
    Ordered {
        address: CUdeviceptr,
        bytes: u64,
        pool: u64,
    },
    Physical {
        handle: Option<u64>,
        bytes: u64,
        mapped: Option<CUdeviceptr>,
    },
    Array {
        array: Array,
        bytes: u64,
        context: usize,
    },
    Vulkan {
        memory: Memory,
        bytes: u64,
    },
    VulkanHost {
        memory: Memory,
    },
}

pub(super) struct Object {
    pub(super) device: usize,
    pub(super) held: Held,
}

impl Object {
    fn address(&self) -> Option<CUdeviceptr> {
        match self.held {
            Held::Blocks { address, .. }
            | Held::Managed { address, .. }
            | Held::Ordered { address, .. } => Some(address),
            _ => None,
        }
    }
}

impl Program {
    pub(super) fn hold(&mut self, device: usize, held: Held) {
        let object = Object { device, held };
        if let Some(address) = object.address() {
            self.freed.retain(|&freed| freed != address);
        }
        self.objects.push(object);
    }

    pub(super) fn free_nth(&mut self, nth: u16, stream: Option<u8>) -> Result<(), Broken> {
        if self.objects.is_empty() {
            return Ok(());
        }
        let at = usize::from(nth) % self.objects.len();
        let Object { device, held } = self.objects.swap_remove(at);
        match held {
            Held::Blocks { address, bytes, .. } => {
                self.free_address(device, address, stream)?;
                let gone = self.accounts[device].leave_blocks(address, bytes);
                if stream.is_some() {
                    self.accounts[device].linger(gone);
                }
            }
            Held::Managed { address, bytes, .. } => {
                // No stream frees it: the driver answers NOT_SUPPORTED.
                self.free_address(device, address, None)?;
                self.accounts[device].leave_managed(bytes);
            }
            Held::Ordered {
                address,
                bytes,
                pool,
            } => {
                self.free_address(device, address, stream)?;
                if let Some(pool) = self.accounts[device].pools.get_mut(&pool) {
                    pool.leave(address, bytes);
                }
            }
            Held::Physical {
                handle: Some(handle),
                bytes,
                mapped,
            } => {
                let code = self.call(|cuda| cuda.release_memory(handle))?;
                promise!(code == CUresult::SUCCESS, "cuMemRelease answered {code:?}");
                match mapped {
                    // Its mapping holds it still.
                    Some(_) => self.objects.push(Object {
                        device,
                        held: Held::Physical {
                            handle: None,
                            bytes,
                            mapped,
                        },
                    }),
                    None => self.accounts[device].leave_exact(bytes),
                }
            }
            Held::Physical {
                handle: None,
                bytes,
                mapped,
            } => {
                if let Some(address) = mapped {
                    let code = self.call(|cuda| cuda.unmap_memory(address, bytes))?;
                    promise!(code == CUresult::SUCCESS, "cuMemUnmap answered {code:?}");
                    let code = self.call(|cuda| cuda.give_addresses_back(address, bytes))?;
                    promise!(
                        code == CUresult::SUCCESS,
                        "cuMemAddressFree answered {code:?}"
                    );
                }
                self.accounts[device].leave_exact(bytes);
            }
            Held::Array { array, bytes, .. } => {
                let code = self.call(|cuda| cuda.destroy_array(array))?;
                promise!(
                    code == CUresult::SUCCESS,
                    "cuArrayDestroy answered {code:?}"
                );
                self.accounts[device].leave_array(bytes);
            }
            Held::Vulkan { memory, bytes } => {
                self.calls += 1;
                self.gpus[device].device.free(memory);
                self.accounts[device].leave_exact(bytes);
            }
            Held::VulkanHost { memory } => {
                self.calls += 1;
                self.gpus[device].device.free(memory);
            }
        }
        Ok(())
    }

    fn free_address(
        &mut self,
        device: usize,
        address: CUdeviceptr,
        stream: Option<u8>,
    ) -> Result<(), Broken> {
        // In the order of a stream of the same device.
        let streams = self.streams.iter().filter(|stream| stream.device == device);
        let streams: Vec<OwnStream> = streams.map(|stream| stream.stream).collect();
        let here = self.current.0 == device;
        let code = self.call(|cuda| match stream {
            Some(nth) if nth >= 64 && !streams.is_empty() => {
                cuda.free_in(streams[usize::from(nth) % streams.len()], address)
            }
            Some(nth) if here && nth.is_multiple_of(2) => cuda.free_async(Stream::Legacy, address),
            Some(_) if here => cuda.free_async(Stream::PerThread, address),
            _ => cuda.free(address),
        })?;
        promise!(
            code == CUresult::SUCCESS,
            "a free of {address:#x} answered {code:?}"
        );
        self.freed.push(address);
        if self.freed.len() > 8 {
            self.freed.remove(0);
        }
        Ok(())
    }

    pub(super) fn free_wrong(&mut self, wish: u64) -> Result<(), Broken> {
        let again = self.freed.get(wish as usize % 16).copied();
        let address = again.unwrap_or(wish | 1);
        let before: Vec<_> = self.devices().map(|device| self.figures(device)).collect();
        let code = self.call(|cuda| cuda.free(address))?;
        promise!(
            code == INVALID,
            "a free of {address:#x}, which is not held, answered {code:?}"
        );
        let after: Vec<_> = self.devices().map(|device| self.figures(device)).collect();
        // A free waits, so that pools may give back. A look that is due in it may find a block that was taken unasked before, for streams that nobody made.
        let grew = after
            .iter()
            .zip(&before)
            .any(|(after, before)| after.0 > before.0 || after.1 > before.1 + BLOCK);
        promise!(
            !grew,
            "a free of what is not held took memory: {before:?}, {after:?}"
        );
        Ok(())
    }
}
