//! What NVML tells of a device beside the memory calls: processes, shares of time, the aperture, accounting.

use std::mem::zeroed;

use abi::nvml::*;

use super::{Device, MISSING, Nvml};

/// More rows than any case makes.
const ROWS: usize = 128;

/// An answer: what was asked, the code, and what was written.
pub type Told = (&'static str, nvmlReturn_t, Vec<u64>);

macro_rules! rows {
    ($client:ident.$name:ident($device:expr) $row:ty) => {{
        let mut rows: Vec<$row> = vec![Default::default(); ROWS];
        let mut count = ROWS as u32;
        let answer = call!($client.$name($device, &mut count, rows.as_mut_ptr()));
        let told = rows.iter().take(count as usize);
        let told = told.flat_map(|row| [u64::from(row.pid), row.usedGpuMemory]);
        (
            stringify!($name),
            answer,
            written(answer, || told.collect()),
        )
    }};
}

impl Nvml {
    /// Process rows of every kind and version.
    pub fn process_rows(&self, device: Device) -> Vec<Told> {
        let device = device.0;
        vec![
            rows!(self.nvmlDeviceGetComputeRunningProcesses(device) nvmlProcessInfo_v1_t),
            rows!(self.nvmlDeviceGetComputeRunningProcesses_v2(device) nvmlProcessInfo_t),
            rows!(self.nvmlDeviceGetComputeRunningProcesses_v3(device) nvmlProcessInfo_t),
            rows!(self.nvmlDeviceGetGraphicsRunningProcesses(device) nvmlProcessInfo_v1_t),
            rows!(self.nvmlDeviceGetGraphicsRunningProcesses_v2(device) nvmlProcessInfo_t),
            rows!(self.nvmlDeviceGetGraphicsRunningProcesses_v3(device) nvmlProcessInfo_t),
            rows!(self.nvmlDeviceGetMPSComputeRunningProcesses(device) nvmlProcessInfo_v1_t),
            rows!(self.nvmlDeviceGetMPSComputeRunningProcesses_v2(device) nvmlProcessInfo_t),
            rows!(self.nvmlDeviceGetMPSComputeRunningProcesses_v3(device) nvmlProcessInfo_t),
        ]
    }

    /// The aperture, shares of time, and accounting of that process. Times and how many samples there are by now are left out.
    pub fn beside_memory(&self, device: Device, pid: u32) -> Vec<Told> {
        let device = device.0;
        // SAFETY: of integers alone, which zeros are.
        let mut aperture: nvmlBAR1Memory_t = unsafe { zeroed() };
        let bar1 = call!(self.nvmlDeviceGetBAR1MemoryInfo(device, &mut aperture));
        let aperture = [aperture.bar1Total, aperture.bar1Free, aperture.bar1Used];
        let mut rates = nvmlUtilization_t::default();
        let shares = call!(self.nvmlDeviceGetUtilizationRates(device, &mut rates));
        let rates = [u64::from(rates.gpu), u64::from(rates.memory)];
        // SAFETY: as above.
        let mut samples: Vec<nvmlProcessUtilizationSample_t> =
            (0..ROWS).map(|_| unsafe { zeroed() }).collect();
        let mut count = ROWS as u32;
        let processes = call!(self.nvmlDeviceGetProcessUtilization(
            device,
            samples.as_mut_ptr(),
            &mut count,
            0
        ));
        let samples = samples.iter().take(count as usize);
        let samples = samples
            .flat_map(|row| [row.pid, row.smUtil, row.memUtil, row.encUtil, row.decUtil])
            .map(u64::from);
        // SAFETY: as above.
        let mut stats: nvmlAccountingStats_t = unsafe { zeroed() };
        let accounting = call!(self.nvmlDeviceGetAccountingStats(device, pid, &mut stats));
        let mut pids = vec![0; ROWS];
        let mut listed = ROWS as u32;
        let accounted =
            call!(self.nvmlDeviceGetAccountingPids(device, &mut listed, pids.as_mut_ptr()));
        let pids = pids.into_iter().take(listed as usize).map(u64::from);
        let mut size = 0;
        let buffer = call!(self.nvmlDeviceGetAccountingBufferSize(device, &mut size));
        vec![
            ("BAR1", bar1, written(bar1, || aperture.to_vec())),
            ("utilisation", shares, written(shares, || rates.to_vec())),
            (
                "utilisation by process",
                processes,
                written(processes, || samples.collect()),
            ),
            (
                "accounting",
                accounting,
                written(accounting, || vec![stats.maxMemoryUsage]),
            ),
            (
                "accounted processes",
                accounted,
                written(accounted, || pids.collect()),
            ),
            (
                "accounting's buffer",
                buffer,
                written(buffer, || vec![u64::from(size)]),
            ),
        ]
    }
}

/// What stands behind an out-pointer means something after a success alone.
fn written(answer: nvmlReturn_t, told: impl FnOnce() -> Vec<u64>) -> Vec<u64> {
    match answer {
        nvmlReturn_t::SUCCESS => told(),
        _ => Vec::new(),
    }
}
