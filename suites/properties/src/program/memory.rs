//! Memory that is asked of CUDA outside pools.

use abi::cuda::CUresult;
use cases::ffi::cuda::Stream;

use super::held::{Held, Object};
use super::judgement::Verdict;
use super::{Broken, INVALID, Program};
use crate::model::{BLOCK, up};
use crate::operation::Size;

impl Program {
    pub(super) fn allocate(&mut self, size: Size) -> Result<(), Broken> {
        let (device, context) = self.current;
        let bytes = self.sized(size, device);
        let answer = self.call(|cuda| cuda.allocate(bytes))?;
        if bytes == 0 {
            promise!(
                answer.code == INVALID,
                "cuMemAlloc_v2 of 0 answered {:?}",
                answer.code
            );
            return Ok(());
        }
        Self::plainly("cuMemAlloc_v2", answer.code)?;
        let least = if bytes < BLOCK { 0 } else { bytes };
        let what = format!("cuMemAlloc_v2 of {bytes}");
        self.judge(
            &what,
            device,
            Verdict::of(answer.code),
            least,
            up(bytes, BLOCK),
        )?;
        if answer.code != CUresult::SUCCESS {
            promise!(
                answer.out == 0,
                "{what} was refused and wrote {:#x}",
                answer.out
            );
            return Ok(());
        }
        self.accounts[device].enter_blocks(answer.out, bytes);
        self.hold(
            device,
            Held::Blocks {
                address: answer.out,
                bytes,
                context,
            },
        );
        Ok(())
    }

    pub(super) fn allocate_pitched(&mut self, width: u64, height: u64) -> Result<(), Broken> {
        const ROW: u64 = 512;
        let (device, context) = self.current;
        let answer = self.call(|cuda| cuda.allocate_pitch(width, height))?;
        let what = format!("cuMemAllocPitch_v2 of {width} by {height}");
        let row = width.checked_next_multiple_of(ROW);
        let Some(row) = row.filter(|_| width > 0 && height > 0) else {
            promise!(answer.code == INVALID, "{what} answered {:?}", answer.code);
            return Ok(());
        };
        let bytes = row.saturating_mul(height);
        Self::plainly(&what, answer.code)?;
        let least = if bytes < BLOCK { 0 } else { bytes };
        self.judge(
            &what,
            device,
            Verdict::of(answer.code),
            least,
            up(bytes, BLOCK),
        )?;
        if answer.code == CUresult::SUCCESS {
            self.accounts[device].enter_blocks(answer.out, bytes);
            self.hold(
                device,
                Held::Blocks {
                    address: answer.out,
                    bytes,
                    context,
                },
            );
        }
        Ok(())
    }

    pub(super) fn allocate_managed(&mut self, size: Size) -> Result<(), Broken> {
        let (device, context) = self.current;
        let bytes = self.sized(size, device);
        let answer = self.call(|cuda| cuda.allocate_managed(bytes))?;
        if bytes == 0 {
            promise!(
                answer.code == INVALID,
                "cuMemAllocManaged of 0 answered {:?}",
                answer.code
            );
            return Ok(());
        }
        let what = format!("cuMemAllocManaged of {bytes}");
        Self::plainly(&what, answer.code)?;
        let most = up(bytes, BLOCK);
        self.judge(&what, device, Verdict::of(answer.code), 0, most)?;
        if answer.code == CUresult::SUCCESS {
            self.accounts[device].enter_managed(bytes);
            self.hold(
                device,
                Held::Managed {
                    address: answer.out,
                    bytes,
                    context,
                },
            );
        }
        Ok(())
    }

    pub(super) fn create_physical(&mut self, size: Size) -> Result<(), Broken> {
        let device = self.current.0;
        let bytes = match self.sized(size, device) {
            odd if odd % 7 == 1 => odd,
            bytes => bytes
                .checked_next_multiple_of(BLOCK)
                .unwrap_or(u64::MAX / BLOCK * BLOCK),
        };
        let answer = self.call(|cuda| cuda.create_memory(device as i32, bytes))?;
        let what = format!("cuMemCreate of {bytes}");
        if bytes == 0 || !bytes.is_multiple_of(BLOCK) {
            promise!(answer.code == INVALID, "{what} answered {:?}", answer.code);
            return Ok(());
        }
        Self::plainly(&what, answer.code)?;
        self.judge(&what, device, Verdict::of(answer.code), bytes, bytes)?;
        if answer.code == CUresult::SUCCESS {
            self.accounts[device].enter_exact(bytes);
            self.hold(
                device,
                Held::Physical {
                    handle: Some(answer.out),
                    bytes,
                    mapped: None,
                },
            );
        }
        Ok(())
    }

    pub(super) fn map(&mut self, nth: u8) -> Result<(), Broken> {
        let fits = |object: &(usize, &Object)| {
            matches!(
                object.1.held,
                Held::Physical {
                    handle: Some(_),
                    mapped: None,
                    ..
                }
            )
        };
        let all: Vec<usize> = self
            .objects
            .iter()
            .enumerate()
            .filter(fits)
            .map(|(at, _)| at)
            .collect();
        if all.is_empty() {
            return Ok(());
        }
        let at = all[usize::from(nth) % all.len()];
        let Held::Physical {
            handle: Some(handle),
            bytes,
            ..
        } = self.objects[at].held
        else {
            return Ok(());
        };
        let reserved = self.call(|cuda| cuda.reserve_addresses(bytes))?;
        promise!(
            reserved.code == CUresult::SUCCESS,
            "cuMemAddressReserve answered {:?}",
            reserved.code
        );
        let mapped = self.call(|cuda| cuda.map_memory(reserved.out, bytes, handle))?;
        promise!(mapped == CUresult::SUCCESS, "cuMemMap answered {mapped:?}");
        if let Held::Physical { mapped, .. } = &mut self.objects[at].held {
            *mapped = Some(reserved.out);
        }
        Ok(())
    }

    pub(super) fn create_array(&mut self, width: u8, height: u8) -> Result<(), Broken> {
        let (device, context) = self.current;
        let (width, height) = (u64::from(width) * 64, u64::from(height) * 128);
        let bytes = width * height * 4;
        let answer = self.call(|cuda| cuda.create_array(width, height))?;
        let what = format!("cuArrayCreate_v2 of {width} by {height}");
        Self::plainly(&what, answer.code)?;
        let (least, most) = match bytes < BLOCK {
            true => (0, 2 * bytes + 2 * BLOCK),
            false => (bytes, up(bytes, BLOCK)),
        };
        self.judge(&what, device, Verdict::of(answer.code), least, most)?;
        if answer.code == CUresult::SUCCESS {
            self.accounts[device].enter_array(bytes);
            self.hold(
                device,
                Held::Array {
                    array: answer.out,
                    bytes,
                    context,
                },
            );
        }
        Ok(())
    }

    pub(super) fn without_place(&mut self, size: Size) -> Result<(), Broken> {
        let device = self.current.0;
        let bytes = self.sized(size, device);
        let before = self.figures(device);
        let answers = [
            self.call(|cuda| cuda.allocate_into_nothing(bytes))?,
            self.call(|cuda| cuda.allocate_async_into_nothing(Stream::Legacy, bytes))?,
        ];
        promise!(
            answers == [INVALID; 2],
            "a NULL out-parameter was answered {answers:?}"
        );
        promise!(
            self.figures(device) == before,
            "a NULL out-parameter changed what device {device} holds"
        );
        Ok(())
    }
}
