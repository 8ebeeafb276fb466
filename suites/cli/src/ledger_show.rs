//! `ringfence ledger show`.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use budget::percent::Percent;
use ledger::{Bytes, DeviceIndex, MAX_DEVICES, View};

pub fn run(path: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let view = View::find(path)?;
    let slots = view.slots();
    let mut text = String::new();
    writeln!(
        text,
        "device  budget          usage           draining        compute  memory of the device"
    )?;
    for device in (0..MAX_DEVICES as u32).map(DeviceIndex) {
        let (budget, usage, draining) = (
            view.budget(device),
            view.usage(device),
            view.draining(device),
        );
        let share = view.share(device);
        if budget.is_some() || usage.0 != 0 || draining.0 != 0 || share != 0 {
            let number = |bytes: Bytes| bytes.0.to_string();
            let (budget, compute) = (
                budget.map_or("none".to_owned(), number),
                Percent(share).to_string(),
            );
            let total = view.total(device).map_or("not seen".to_owned(), number);
            writeln!(
                text,
                "{:<6}  {budget:<14}  {:<14}  {:<14}  {compute:<7}  {total}",
                device.0, usage.0, draining.0
            )?;
        }
    }
    writeln!(
        text,
        "\nslot  pid      alive  device  usage           leased"
    )?;
    for slot in &slots {
        let alive = if slot.alive { "yes" } else { "no" };
        if slot.devices.is_empty() {
            writeln!(text, "{:<4}  {:<7}  {alive:<5}  -", slot.slot, slot.pid)?;
        }
        for share in &slot.devices {
            let (device, usage, leased) = (share.device.0, share.usage.0, share.leased.0);
            writeln!(
                text,
                "{:<4}  {:<7}  {alive:<5}  {device:<6}  {usage:<14}  {leased}",
                slot.slot, slot.pid
            )?;
        }
    }
    let stats = view.stats();
    writeln!(
        text,
        "\n{} refusals, {} retries, {} dead processes found",
        stats.refusals, stats.retries, stats.reaps
    )?;
    writeln!(
        text,
        "longest request {} ns, longest wait for a teardown {} ns",
        stats.longest_stall, stats.longest_drain
    )?;
    crate::say(&text)?;
    Ok(ExitCode::SUCCESS)
}
