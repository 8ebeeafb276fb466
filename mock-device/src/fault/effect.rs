//! What a fault does.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::when;
use crate::units::Bytes;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Effect {
    /// `result:2`: that code, and nothing is done.
    Result(i32),
    /// `kernel-fault:719`: the launch succeeds, and its kernels end with that code.
    KernelFault(i32),
    /// `untouched`: success, and nothing is done or written.
    Untouched,
    /// The driver acts, and what it answers is changed.
    Altered(Alteration),
    /// `delay:5ms`: the driver acts later. It joins whatever else hits the call.
    Delay(Duration),
    /// `lost`: the device falls off the bus, before this call.
    Lost,
    /// `kill-before`: SIGKILL before the driver acts.
    KillBefore,
    /// `kill-after`: SIGKILL when it has acted.
    KillAfter,
    /// `missing`: the driver has no such symbol (or Vulkan extension).
    Missing,
    /// `absent`: there is no such library.
    Absent,
    Identity(IdentityFault),
    Devices(DevicesFault),
}

/// What the driver's answer becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alteration {
    /// `set:numBlocks=-1`, `set:memory.free=0`: success with this in an out-parameter, or in a field of the structure there.
    Set(Setting),
    /// `null`: success with a NULL function pointer.
    NullFunction,
    /// `short`: half as many elements as there are, `short:3` that many at most.
    Short(Option<u64>),
    /// `wrong-version`: the structure's version is another than the caller's.
    WrongVersion,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub parameter: String,
    pub field: Option<String>,
    pub value: i128,
}

/// A false identity. Neighbours are 0 and 1, 2 and 3, …; an odd last device exchanges with its predecessor if selected,
/// else with nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityFault {
    /// `uuid:zero`: 16 zero bytes.
    ZeroUuid,
    /// `uuid:duplicate`: all devices show device 0's; with a selector that device shows its neighbour's.
    DuplicateUuid,
    /// `uuid:swapped`: neighbours show each other's.
    SwappedUuid,
    /// `uuid:bytes-swapped`: the first three groups in the other byte order.
    BytesSwappedUuid,
    /// `uuid:mig`: a MIG instance's: other bytes, and `MIG-` where it is spelled.
    MigUuid,
    /// `pci:zero`: 0000:00:00.0.
    ZeroPci,
    /// `pci:swapped`: neighbours show each other's.
    SwappedPci,
}

/// A false list of devices, in one API or in all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DevicesFault {
    /// `order:reversed`.
    Reversed,
    /// `order:2,0,1`: which device stands where. Those not named follow.
    Order(Vec<u32>),
    /// `count:1`: only the first so many.
    Count(u32),
    /// `hidden`: all, or with a selector that device.
    Hidden,
    /// `reserve:64MiB`: NVML counts that much more as its own.
    Reserve(Bytes),
}

const NAMED: [(&str, Effect); 16] = [
    ("untouched", Effect::Untouched),
    ("null", Effect::Altered(Alteration::NullFunction)),
    ("short", Effect::Altered(Alteration::Short(None))),
    ("wrong-version", Effect::Altered(Alteration::WrongVersion)),
    ("lost", Effect::Lost),
    ("kill-before", Effect::KillBefore),
    ("kill-after", Effect::KillAfter),
    ("missing", Effect::Missing),
    ("absent", Effect::Absent),
    ("uuid:zero", Effect::Identity(IdentityFault::ZeroUuid)),
    (
        "uuid:duplicate",
        Effect::Identity(IdentityFault::DuplicateUuid),
    ),
    ("uuid:swapped", Effect::Identity(IdentityFault::SwappedUuid)),
    (
        "uuid:bytes-swapped",
        Effect::Identity(IdentityFault::BytesSwappedUuid),
    ),
    ("uuid:mig", Effect::Identity(IdentityFault::MigUuid)),
    ("pci:zero", Effect::Identity(IdentityFault::ZeroPci)),
    ("pci:swapped", Effect::Identity(IdentityFault::SwappedPci)),
];

const NAMED_TOO: [(&str, Effect); 2] = [
    ("order:reversed", Effect::Devices(DevicesFault::Reversed)),
    ("hidden", Effect::Devices(DevicesFault::Hidden)),
];

fn named() -> impl Iterator<Item = (&'static str, Effect)> {
    NAMED.into_iter().chain(NAMED_TOO)
}

const SPELLED: &str = "result:N, kernel-fault:N, set:PARAMETER=N, delay:5ms, short:N, order:2,0,1, count:N, reserve:64MiB";

impl FromStr for Effect {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((_, effect)) = named().find(|(name, _)| *name == text) {
            return Ok(effect);
        }
        let wrong = |what: &str| format!("`{text}`: {what}");
        let Some((word, rest)) = text.split_once(':') else {
            let names: Vec<&str> = named().map(|(name, _)| name).collect();
            return Err(format!(
                "`{text}` is not one of {SPELLED}, {}",
                names.join(", ")
            ));
        };
        match word {
            "result" => rest
                .parse()
                .map(Self::Result)
                .map_err(|_| wrong("the result is not a number")),
            "kernel-fault" => match rest.parse() {
                Ok(code) if code > 0 => Ok(Self::KernelFault(code)),
                _ => Err(wrong("not the number of an error")),
            },
            "delay" => when::time(rest)
                .map(Self::Delay)
                .ok_or_else(|| wrong("not a time such as 20us, 5ms, 1s")),
            "short" => rest
                .parse()
                .map(|most| Self::Altered(Alteration::Short(Some(most))))
                .map_err(|_| wrong("not a number of elements")),
            "set" => rest
                .parse()
                .map(|setting| Self::Altered(Alteration::Set(setting)))
                .map_err(|what: &str| wrong(what)),
            "count" => rest
                .parse()
                .map(|count| Self::Devices(DevicesFault::Count(count)))
                .map_err(|_| wrong("not a number of devices")),
            "reserve" => when::bytes(rest)
                .map(|bytes| Self::Devices(DevicesFault::Reserve(bytes)))
                .ok_or_else(|| wrong("not a size such as 64MiB")),
            "order" => rest
                .split(',')
                .map(|one| one.trim().parse().ok())
                .collect::<Option<Vec<u32>>>()
                .map(|order| Self::Devices(DevicesFault::Order(order)))
                .ok_or_else(|| wrong("not `reversed` or a list of devices such as 2,0,1")),
            _ => Err(format!(
                "`{text}` is not one of {SPELLED}, {}",
                named().map(|(name, _)| name).collect::<Vec<_>>().join(", ")
            )),
        }
    }
}

impl FromStr for Setting {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        const SHAPE: &str = "not PARAMETER=NUMBER or PARAMETER.FIELD=NUMBER";
        let (place, value) = text.split_once('=').ok_or(SHAPE)?;
        let (parameter, field) = match place.split_once('.') {
            Some((parameter, field)) => (parameter, Some(field.to_owned())),
            None => (place, None),
        };
        let value = match value.strip_prefix("0x") {
            Some(digits) => i128::from_str_radix(digits, 16).map_err(|_| SHAPE)?,
            None => value.parse().map_err(|_| SHAPE)?,
        };
        let fits = (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value);
        if parameter.is_empty() || !fits {
            return Err(SHAPE);
        }
        Ok(Self {
            parameter: parameter.to_owned(),
            field,
            value,
        })
    }
}

impl TryFrom<String> for Effect {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Effect> for String {
    fn from(effect: Effect) -> Self {
        if let Some((name, _)) = named().find(|(_, known)| *known == effect) {
            return name.to_owned();
        }
        match effect {
            Effect::Result(code) => format!("result:{code}"),
            Effect::KernelFault(code) => format!("kernel-fault:{code}"),
            Effect::Delay(time) => format!("delay:{}", when::spell_time(time)),
            Effect::Altered(Alteration::Short(most)) => format!("short:{}", most.unwrap_or(0)),
            Effect::Altered(Alteration::Set(set)) => {
                let field = set.field.map(|field| format!(".{field}"));
                format!(
                    "set:{}{}={}",
                    set.parameter,
                    field.unwrap_or_default(),
                    set.value
                )
            }
            Effect::Devices(DevicesFault::Count(count)) => format!("count:{count}"),
            Effect::Devices(DevicesFault::Reserve(bytes)) => {
                format!("reserve:{}", when::spell_bytes(bytes))
            }
            Effect::Devices(DevicesFault::Order(order)) => {
                let order: Vec<String> = order.iter().map(u32::to_string).collect();
                format!("order:{}", order.join(","))
            }
            // Those with a name of their own.
            other => format!("{other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_effect_reads_as_it_is_spelled() {
        let spelled = [
            "result:-4",
            "kernel-fault:719",
            "set:numBlocks=-1",
            "set:memory.free=0",
            "delay:5000us",
            "short:3",
            "order:2,0,1",
            "count:1",
            "reserve:64MiB",
        ];
        for text in named().map(|(name, _)| name).chain(spelled) {
            let effect: Effect = text.parse().unwrap();
            assert_eq!(String::from(effect), text);
        }
        assert_eq!(
            "delay:5ms".parse::<Effect>().unwrap(),
            Effect::Delay(Duration::from_millis(5))
        );
        assert_eq!(
            "set:pfn=0xff".parse::<Effect>().unwrap(),
            "set:pfn=255".parse().unwrap()
        );
    }
}
