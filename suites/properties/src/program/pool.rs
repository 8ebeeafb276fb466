//! Pools, and what is asked of them in a stream's order.

use abi::cuda::CUresult;
use cases::ffi::cuda::{Pool, Stream};

use super::held::Held;
use super::judgement::Verdict;
use super::{Broken, Program};
use crate::model::{STEP, up};
use crate::operation::Size;

pub(super) struct CreatedPool {
    pub(super) number: u64,
    pub(super) device: usize,
    pub(super) pool: Pool,
}

impl Program {
    pub(super) fn allocate_ordered(
        &mut self,
        size: Size,
        pool: u8,
        stream: u8,
    ) -> Result<(), Broken> {
        let created: Option<(u64, usize, Pool)> = match pool.checked_sub(128) {
            Some(nth) if !self.pools.is_empty() => {
                let found = &self.pools[usize::from(nth) % self.pools.len()];
                Some((found.number, found.device, found.pool))
            }
            _ => None,
        };
        // A pool is asked from where its own device is current, the default one on any stream.
        let created = created.filter(|created| created.1 == self.current.0);
        let own = match stream.checked_sub(64) {
            Some(nth) if !self.streams.is_empty() && created.is_none() => {
                let found = &self.streams[usize::from(nth) % self.streams.len()];
                Some((found.device, found.stream))
            }
            _ => None,
        };
        let way = if stream.is_multiple_of(2) {
            Stream::Legacy
        } else {
            Stream::PerThread
        };
        let device = own.map_or(self.current.0, |(device, _)| device);
        let bytes = self.sized(size, device);
        let answer = self.call(|cuda| match (created, own) {
            (Some((_, _, pool)), _) => cuda.allocate_from_pool(way, pool, bytes),
            (None, Some((_, stream))) => cuda.allocate_in(stream, bytes),
            (None, None) => cuda.allocate_async(way, bytes),
        })?;
        let what = format!("cuMemAllocAsync of {bytes}");
        Self::plainly(&what, answer.code)?;
        if bytes == 0 {
            return Ok(());
        }
        self.judge(&what, device, Verdict::of(answer.code), 0, up(bytes, STEP))?;
        if answer.code == CUresult::SUCCESS {
            let number = created.map_or(0, |(number, _, _)| number);
            let pool = self.accounts[device].pools.entry(number).or_default();
            pool.enter(answer.out, bytes);
            self.hold(
                device,
                Held::Ordered {
                    address: answer.out,
                    bytes,
                    pool: number,
                },
            );
        }
        Ok(())
    }

    pub(super) fn create_pool(&mut self) -> Result<(), Broken> {
        let device = self.current.0;
        let answer = self.call(|cuda| cuda.create_pool(device as i32))?;
        promise!(
            answer.code == CUresult::SUCCESS,
            "cuMemPoolCreate answered {:?}",
            answer.code
        );
        self.pools.push(CreatedPool {
            number: self.next_pool,
            device,
            pool: answer.out,
        });
        self.next_pool += 1;
        Ok(())
    }

    pub(super) fn destroy_pool(&mut self, nth: u8) -> Result<(), Broken> {
        if self.pools.is_empty() {
            return Ok(());
        }
        let gone = self.pools.swap_remove(usize::from(nth) % self.pools.len());
        let code = self.call(|cuda| cuda.destroy_pool(gone.pool))?;
        promise!(
            code == CUresult::SUCCESS,
            "cuMemPoolDestroy answered {code:?}"
        );
        if let Some(pool) = self.accounts[gone.device].pools.get_mut(&gone.number) {
            pool.doom();
        }
        Ok(())
    }

    pub(super) fn trim(&mut self, nth: u8, keep: u64) -> Result<(), Broken> {
        let device = self.current.0;
        let pool = match self.pools.len() {
            0 => self.call(|cuda| cuda.default_pool(device as i32))?.out,
            all => self.pools[usize::from(nth) % all].pool,
        };
        let code = self.call(|cuda| cuda.trim_pool(pool, keep))?;
        promise!(
            code == CUresult::SUCCESS,
            "cuMemPoolTrimTo answered {code:?}"
        );
        Ok(())
    }
}
