//! What a sequence begins with, which is what its end leaves.

use abi::cuda::CUresult;
use mock_device::DeviceIndex;

use super::{Broken, Program};
use crate::model::Account;

/// Of managed memory: as much as a device's first takes ahead of need.
const MANAGED: u64 = 64 << 20;

impl Program {
    /// A primary context on each device, the first's current. The same figures as at every sequence's begin.
    pub(super) fn prepare(&mut self) -> Result<(), Broken> {
        self.primaries.clear();
        for device in self.devices() {
            let retained = self.cuda.retain_primary(device as i32);
            promise!(
                retained.code == CUresult::SUCCESS,
                "a primary context: {:?}",
                retained.code
            );
            self.primaries.push(retained.out);
        }
        if self.baseline.is_none() {
            self.keep_for_managed()?;
        }
        self.make_current((0, 0))?;
        let figures: Vec<(u64, u64)> = self.devices().map(|device| self.figures(device)).collect();
        let baseline = self.baseline.get_or_insert_with(|| figures.clone());
        for (device, (now, first)) in figures.iter().zip(baseline).enumerate() {
            promise!(
                now == first,
                "device {device} holds {} and {} are charged with nothing but contexts; it was {} and {}",
                now.0,
                now.1,
                first.0,
                first.1
            );
        }
        for (account, figures) in self.accounts.iter_mut().zip(figures) {
            *account = Account::begin(account.budget, figures);
        }
        self.world.reset_peak();
        Ok(())
    }

    /// What each device keeps for managed memory until the process ends it keeps from here on.
    fn keep_for_managed(&mut self) -> Result<(), Broken> {
        for device in self.devices() {
            self.make_current((device, device))?;
            let managed = self.cuda.allocate_managed(MANAGED);
            let touched = self.cuda.set_bytes(managed.out, 0, MANAGED);
            let answers = [managed.code, touched, self.cuda.free(managed.out)];
            promise!(
                answers == [CUresult::SUCCESS; 3],
                "managed memory made, touched and freed: {answers:?}"
            );
        }
        Ok(())
    }

    /// What a device has lost to this tenant, and what is charged.
    pub(super) fn figures(&self, device: usize) -> (u64, u64) {
        let lost = self.world.used(DeviceIndex(device as u32)).0;
        (
            lost,
            self.ledger.usage(ledger::DeviceIndex(device as u32)).0,
        )
    }

    /// Ends all there is. Everything must be back: first what the sequence took, then the contexts.
    pub(super) fn end(&mut self) -> Result<(), Broken> {
        while !self.objects.is_empty() {
            self.free_nth(0, None)?;
        }
        while !self.contexts.is_empty() {
            self.destroy_context(0)?;
        }
        while !self.streams.is_empty() {
            self.destroy_stream(0)?;
        }
        while !self.pools.is_empty() {
            self.destroy_pool(0)?;
        }
        self.synchronize()?;
        self.invariants()?;
        for device in self.devices() {
            let lost = self.world.peak(DeviceIndex(device as u32)).0;
            let budget = self.accounts[device].budget;
            promise!(
                lost <= budget,
                "device {device} had lost {lost} at its peak, over {budget}"
            );
            let code = self.cuda.release_primary(device as i32);
            promise!(
                code == CUresult::SUCCESS,
                "a primary context's release: {code:?}"
            );
        }
        self.freed.clear();
        self.prepare()
    }
}
