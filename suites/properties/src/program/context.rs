//! Contexts and their streams.

use abi::cuda::CUresult;
use cases::ffi::cuda::{Context, OwnStream};

use super::held::Held;
use super::judgement::Verdict;
use super::{Broken, Program};
use crate::model::{Account, BLOCK, CONTEXT};

/// A context that was created; a primary one has the device's number.
pub(super) struct Made {
    pub(super) number: usize,
    pub(super) device: usize,
    pub(super) context: Context,
}

pub(super) struct OwnedStream {
    pub(super) device: usize,
    pub(super) context: usize,
    pub(super) stream: OwnStream,
}

impl Program {
    fn context_of(&self, number: usize) -> Option<Context> {
        let made = self.contexts.iter().find(|made| made.number == number);
        self.primaries
            .get(number)
            .copied()
            .or(made.map(|made| made.context))
    }

    pub(super) fn make_current(&mut self, current: (usize, usize)) -> Result<(), Broken> {
        let context = self.context_of(current.1).ok_or("a context is not known")?;
        let code = self.cuda.set_current(context);
        promise!(
            code == CUresult::SUCCESS,
            "cuCtxSetCurrent answered {code:?}"
        );
        self.current = current;
        Ok(())
    }

    pub(super) fn change_device(&mut self, nth: u8) -> Result<(), Broken> {
        let primaries = self.devices().map(|device| (device, device));
        let made = self.contexts.iter().map(|made| (made.device, made.number));
        let all: Vec<(usize, usize)> = primaries.chain(made).collect();
        self.make_current(all[usize::from(nth) % all.len()])
    }

    pub(super) fn create_context(&mut self) -> Result<(), Broken> {
        let device = self.current.0;
        let answer = self.call(|cuda| cuda.create_context(device as i32))?;
        Self::plainly("cuCtxCreate_v2", answer.code)?;
        self.judge(
            "cuCtxCreate_v2",
            device,
            Verdict::of(answer.code),
            0,
            CONTEXT,
        )?;
        if answer.code == CUresult::SUCCESS {
            self.accounts[device].contexts += 1;
            let number = self.next_context;
            self.next_context += 1;
            self.contexts.push(Made {
                number,
                device,
                context: answer.out,
            });
            self.make_current((device, number))?;
        }
        Ok(())
    }

    pub(super) fn destroy_context(&mut self, nth: u8) -> Result<(), Broken> {
        if self.contexts.is_empty() {
            return Ok(());
        }
        let gone = self
            .contexts
            .swap_remove(usize::from(nth) % self.contexts.len());
        let code = self.call(|cuda| cuda.destroy_context(gone.context))?;
        promise!(
            code == CUresult::SUCCESS,
            "cuCtxDestroy_v2 answered {code:?}"
        );
        let account = &mut self.accounts[gone.device];
        account.contexts -= 1;
        account.lose_order();
        self.streams.retain(|stream| {
            let stays = stream.context != gone.number;
            if !stays {
                account.leave_stream();
            }
            stays
        });
        self.objects.retain(|object| match object.held {
            Held::Blocks {
                address,
                bytes,
                context,
            } if context == gone.number => {
                account.leave_blocks(address, bytes);
                false
            }
            Held::Managed { bytes, context, .. } if context == gone.number => {
                account.leave_managed(bytes);
                false
            }
            Held::Array { bytes, context, .. } if context == gone.number => {
                account.leave_array(bytes);
                false
            }
            _ => true,
        });
        match self.current.1 == gone.number {
            true => self.make_current((gone.device, gone.device)),
            false => Ok(()),
        }
    }

    pub(super) fn create_stream(&mut self) -> Result<(), Broken> {
        let (device, context) = self.current;
        let answer = self.call(|cuda| cuda.create_stream())?;
        Self::plainly("cuStreamCreate", answer.code)?;
        self.judge(
            "cuStreamCreate",
            device,
            Verdict::of(answer.code),
            0,
            2 * BLOCK,
        )?;
        if answer.code == CUresult::SUCCESS {
            self.streams.push(OwnedStream {
                device,
                context,
                stream: answer.out,
            });
            self.accounts[device].enter_stream();
        }
        Ok(())
    }

    pub(super) fn destroy_stream(&mut self, nth: u8) -> Result<(), Broken> {
        if self.streams.is_empty() {
            return Ok(());
        }
        let gone = self
            .streams
            .swap_remove(usize::from(nth) % self.streams.len());
        let code = self.call(|cuda| cuda.destroy_stream(gone.stream))?;
        promise!(
            code == CUresult::SUCCESS,
            "cuStreamDestroy_v2 answered {code:?}"
        );
        self.accounts[gone.device].leave_stream();
        self.accounts[gone.device].lose_order();
        Ok(())
    }

    pub(super) fn synchronize(&mut self) -> Result<(), Broken> {
        let current = self.current;
        let mut all: Vec<(usize, usize)> = self.devices().map(|device| (device, device)).collect();
        all.extend(self.contexts.iter().map(|made| (made.device, made.number)));
        all.push(current);
        for context in all {
            self.make_current(context)?;
            let code = self.call(|cuda| cuda.synchronize())?;
            promise!(
                code == CUresult::SUCCESS,
                "cuCtxSynchronize answered {code:?}"
            );
        }
        self.accounts.iter_mut().for_each(Account::settle);
        Ok(())
    }
}
