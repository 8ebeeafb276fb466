//! `ringfence ledger set`: the owner changes budgets while processes run. Everything is checked before anything is changed.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use budget::percent::{self, Percent};
use budget::size;
use ledger::{Bytes, DeviceIndex, MAX_DEVICES, MOST, View};

use crate::arguments::SetArguments;

/// One device's change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// `None` takes the budget away.
    Memory(Option<Bytes>),
    /// Hundredths of a percent; 0 takes it away.
    Compute(u16),
}

/// Why nothing was changed.
#[derive(Debug, PartialEq, Eq)]
struct Wrong {
    part: String,
    reason: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "\"{}\": {}", self.part, self.reason)
    }
}

impl Error for Wrong {}

pub fn run(arguments: &SetArguments) -> Result<ExitCode, Box<dyn Error>> {
    let view = View::find(&arguments.path)?;
    let mut changes = read(&arguments.memory, memory)?;
    changes.extend(read(&arguments.compute, compute)?);
    for (part, device, change) in &changes {
        fits(&view, *device, *change).map_err(|reason| Wrong {
            part: part.clone(),
            reason,
        })?;
    }
    for (_, device, change) in &changes {
        crate::say(&apply(&view, *device, *change))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `DEVICE=VALUE[,…]`.
fn read(
    parts: &[String],
    value: fn(&str) -> Result<Change, String>,
) -> Result<Vec<(String, DeviceIndex, Change)>, Wrong> {
    let mut changes: Vec<(String, DeviceIndex, Change)> = Vec::new();
    for part in parts {
        let wrong = |reason: &str| Wrong {
            part: part.clone(),
            reason: reason.to_owned(),
        };
        let (device, text) = part
            .split_once('=')
            .ok_or_else(|| wrong("write DEVICE=VALUE, as in 0=4GiB"))?;
        let device = device
            .trim()
            .parse()
            .map_err(|_| wrong("the device is its number, counted from 0"))?;
        let device = DeviceIndex(device);
        if device.slot().is_none() {
            return Err(wrong(&format!("a ledger has {MAX_DEVICES} devices")));
        }
        if changes.iter().any(|(_, other, _)| *other == device) {
            return Err(wrong("the device has a value before this one"));
        }
        let change = value(text.trim()).map_err(|reason| wrong(&reason))?;
        changes.push((part.clone(), device, change));
    }
    Ok(changes)
}

fn memory(text: &str) -> Result<Change, String> {
    if text == "none" {
        return Ok(Change::Memory(None));
    }
    match size::parse(text.as_bytes()) {
        Ok(Bytes::ZERO) => Err("a budget of 0 is none: write none".to_owned()),
        Ok(bytes) => Ok(Change::Memory(Some(bytes))),
        Err(_) => Err("not a size, as 4GiB, 1536m or bytes, nor none".to_owned()),
    }
}

fn compute(text: &str) -> Result<Change, String> {
    if text == "none" {
        return Ok(Change::Compute(0));
    }
    match percent::parse(text.as_bytes()) {
        Ok(0) => Err("a budget of 0 is none: write none".to_owned()),
        Ok(hundredths @ 1..10_000) => Ok(Change::Compute(hundredths as u16)),
        Ok(10_000) => Ok(Change::Compute(0)),
        Ok(_) => Err("more than 100%".to_owned()),
        Err(_) => Err("not a percentage, as 50 or 12.5%, nor none".to_owned()),
    }
}

/// Whether the device, as the tenant's processes have seen it, can have that.
fn fits(view: &View, device: DeviceIndex, change: Change) -> Result<(), String> {
    let seen: Vec<_> = DeviceIndex::all()
        .filter(|device| view.total(*device).is_some())
        .collect();
    if !seen.is_empty() && !seen.contains(&device) {
        let seen: Vec<_> = seen.iter().map(ToString::to_string).collect();
        return Err(format!(
            "no process of the tenant has seen a device {device}, only {}",
            seen.join(", ")
        ));
    }
    let Change::Memory(Some(bytes)) = change else {
        return Ok(());
    };
    match view.total(device) {
        Some(total) if bytes > total => Err(format!("device {device} has {total}")),
        None if bytes.0 > MOST => Err(format!("a ledger cannot name more than {}", Bytes(MOST))),
        _ => Ok(()),
    }
}

/// Changes it; what to tell.
fn apply(view: &View, device: DeviceIndex, change: Change) -> String {
    match change {
        Change::Memory(budget) => {
            let before = said(view.budget(device));
            let usage = match budget {
                Some(budget) => view.set_budget(device, budget),
                None => view.clear_budget(device),
            };
            let beyond = if budget.is_some_and(|budget| usage > budget) {
                ": nothing more is granted until less is"
            } else {
                ""
            };
            let after = said(budget);
            format!(
                "device {device}: memory budget {after}, was {before}; {usage} in use{beyond}\n"
            )
        }
        Change::Compute(hundredths) => {
            let before = view.share(device);
            let unheard = !DeviceIndex::all().any(|device| view.is_paced(device));
            view.set_share(device, hundredths);
            let unheard = if unheard && hundredths != 0 {
                "; Vulkan processes that have begun are not held to it, because no compute budget was set before"
            } else {
                ""
            };
            format!(
                "device {device}: compute budget {}, was {}{unheard}\n",
                Percent(hundredths),
                Percent(before)
            )
        }
    }
}

pub fn said(budget: Option<Bytes>) -> String {
    budget.map_or_else(|| "none".to_owned(), |budget| budget.to_string())
}
