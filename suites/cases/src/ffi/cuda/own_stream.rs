//! Calls on the calling thread's own default stream.

use abi::cuda::enumerations::*;
use abi::cuda::*;
use harness::{Failure, ensure_eq};

use super::{Context, Cuda, MISSING};

/// CU_STREAM_PER_THREAD.
pub const OWN_STREAM: u64 = 2;

/// What such calls work on.
pub struct Places {
    context: u64,
    device: u64,
    host: u64,
    array: u64,
    event: u64,
    /// Descriptions of copies: of two dimensions, of three, between contexts.
    copies: [u64; 3],
}

impl Places {
    pub fn of(cuda: &Cuda, context: Context) -> Result<Places, Failure> {
        let device = cuda.allocate(65_536);
        ensure_eq!(device.code, CUresult::SUCCESS, "64 KiB");
        let host = cuda.allocate_host(65_536);
        ensure_eq!(host.code, CUresult::SUCCESS, "64 KiB of the host");
        let mut array = CUarray::NULL;
        let descriptor = CUDA_ARRAY_DESCRIPTOR {
            Width: 64,
            Height: 64,
            Format: 0x20,
            NumChannels: 1,
        };
        let made = call!(cuda.cuArrayCreate_v2(&mut array, &descriptor));
        ensure_eq!(made, CUresult::SUCCESS, "an array");
        let mut event = CUevent::NULL;
        ensure_eq!(
            call!(cuda.cuEventCreate(&mut event, 0)),
            CUresult::SUCCESS,
            "an event"
        );
        /// CU_MEMORYTYPE_DEVICE.
        const DEVICE: CUmemorytype = 2;
        // SAFETY: of integers, pointers and handles all zeros are a value.
        let (mut two, mut three, mut peer): (CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed(), std::mem::zeroed()) };
        (two.srcMemoryType, two.srcDevice, two.srcPitch) = (DEVICE, device.out, 64);
        (two.dstMemoryType, two.dstDevice, two.dstPitch) = (DEVICE, device.out + 4096, 64);
        (two.WidthInBytes, two.Height) = (16, 2);
        (
            three.srcMemoryType,
            three.srcDevice,
            three.srcPitch,
            three.srcHeight,
        ) = (DEVICE, device.out, 64, 2);
        (
            three.dstMemoryType,
            three.dstDevice,
            three.dstPitch,
            three.dstHeight,
        ) = (DEVICE, device.out + 4096, 64, 2);
        (three.WidthInBytes, three.Height, three.Depth) = (16, 2, 1);
        (
            peer.srcMemoryType,
            peer.srcDevice,
            peer.srcPitch,
            peer.srcHeight,
        ) = (DEVICE, device.out, 64, 2);
        (
            peer.dstMemoryType,
            peer.dstDevice,
            peer.dstPitch,
            peer.dstHeight,
        ) = (DEVICE, device.out + 4096, 64, 2);
        (peer.WidthInBytes, peer.Height, peer.Depth) = (16, 2, 1);
        (peer.srcContext, peer.dstContext) = (context.0, context.0);
        Ok(Places {
            context: context.0.0 as u64,
            device: device.out,
            host: host.out,
            array: array.0 as u64,
            event: event.0 as u64,
            copies: [
                Box::leak(Box::new(two)) as *const CUDA_MEMCPY2D as u64,
                Box::leak(Box::new(three)) as *const CUDA_MEMCPY3D as u64,
                Box::leak(Box::new(peer)) as *const CUDA_MEMCPY3D_PEER as u64,
            ],
        })
    }
}

impl Cuda {
    pub const WORDS: usize = 12;

    /// Whether the driver has it.
    pub fn exports(&self, name: &str) -> bool {
        self.library.address(name).is_some()
    }

    /// Calls it on the thread's own default stream: by its name, where that says so, else by the handle.
    pub fn on_own_stream(&self, name: &str, at: &Places) -> CUresult {
        let stream = if name.ends_with("_ptsz") {
            0
        } else {
            OWN_STREAM
        };
        let base = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
        let (device, there) = (at.device, at.device + 4096);
        let words: &[u64] = match base {
            "cuMemcpy" => &[device, there, 16],
            "cuMemcpyHtoD_v2" => &[device, at.host, 16],
            "cuMemcpyDtoH_v2" => &[at.host, device, 16],
            "cuMemcpyDtoD_v2" => &[device, there, 16],
            "cuMemcpyPeer" => &[device, at.context, there, at.context, 16],
            "cuMemcpyHtoA_v2" => &[at.array, 0, at.host, 16],
            "cuMemcpyAtoH_v2" => &[at.host, at.array, 0, 16],
            "cuMemcpyDtoA_v2" => &[at.array, 0, device, 16],
            "cuMemcpyAtoD_v2" => &[device, at.array, 0, 16],
            "cuMemcpyAtoA_v2" => &[at.array, 0, at.array, 64, 16],
            "cuMemcpy2D_v2" | "cuMemcpy2DUnaligned_v2" => &[at.copies[0]],
            "cuMemcpy3D_v2" => &[at.copies[1]],
            "cuMemcpy3DPeer" => &[at.copies[2]],
            "cuMemcpy3DPeerAsync" => &[at.copies[2], stream],
            "cuMemcpyAsync" | "cuMemcpyDtoDAsync_v2" => &[device, there, 16, stream],
            "cuMemcpyHtoDAsync_v2" => &[device, at.host, 16, stream],
            "cuEventRecord" => &[at.event, stream],
            "cuStreamQuery" => &[stream],
            "cuStreamWaitEvent" => &[stream, at.event, 0],
            _ => return MISSING,
        };
        let mut all = [0; Cuda::WORDS];
        all[..words.len()].copy_from_slice(words);
        match self.call_by_name(name, all) {
            // Others' work may be under way there.
            CUresult::ERROR_NOT_READY => CUresult::SUCCESS,
            code => code,
        }
    }

    /// Calls a function all of whose arguments are integers, pointers or handles.
    pub fn call_by_name(&self, name: &str, w: [u64; Cuda::WORDS]) -> CUresult {
        type Words = unsafe extern "C" fn(
            u64,
            u64,
            u64,
            u64,
            u64,
            u64,
            u64,
            u64,
            u64,
            u64,
            u64,
            u64,
        ) -> CUresult;
        // SAFETY: an entry point of the driver's with at most so many arguments, each of which is passed as a word; it does not look at more.
        match unsafe { self.library.function::<Words>(name) } {
            // SAFETY: numbers are what the case made, zeros and the handle of the thread's own stream.
            Some(function) => unsafe {
                function(
                    w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11],
                )
            },
            None => MISSING,
        }
    }
}
