//! Writes an answer of the NVML table as a C type lays it out. Numbers are little-endian, as on every machine with a card.

use abi::layout::Layout;
use abi::nvml::LAYOUTS;
use mock_device::nvml::Answer as Data;

use crate::boundary::Memory;

/// Writes `data` into memory of the C type `kind`; without data, zeros. A structure's `version` stays as the caller gave it,
/// and says which of its layouts is meant.
pub fn write(kind: &str, memory: &Memory, data: Option<&Data>) {
    match structure_for(kind, memory) {
        Some(layout) => {
            fields(layout, 0, data, memory);
            // Who takes any version tells which one it took.
            if let Some(number) = number_of(layout).filter(|_| is_versioned(layout))
                && of_version(kind, memory.number()).is_none()
                && !names_version(data)
            {
                let version = layout.size as u32 | number << 24;
                memory.put(0, &version.to_le_bytes());
            }
        }
        None => place(kind, 0, memory.size(), data, memory),
    }
}

/// The layout by C name.
pub fn structure(kind: &str) -> Option<&'static Layout> {
    LAYOUTS.iter().find(|layout| layout.rust == kind)
}

/// A versioned structure comes in the layout that its caller wrote into `version`.
fn structure_for(kind: &str, memory: &Memory) -> Option<&'static Layout> {
    let layout = structure(kind)?;
    if !is_versioned(layout) {
        return Some(layout);
    }
    of_version(kind, memory.number()).or(Some(layout))
}

pub fn is_versioned(layout: &Layout) -> bool {
    layout
        .fields
        .first()
        .is_some_and(|field| field.0 == "version")
        && layout.fields.len() > 1
}

/// The layout of the family of `kind` that `version` (size and number) means.
pub fn of_version(kind: &str, version: u32) -> Option<&'static Layout> {
    let (number, size) = (version >> 24, version & 0x00ff_ffff);
    let family = family(kind);
    let name = format!("{family}_v{number}_t");
    structure(&name)
        .or_else(|| structure(&format!("{family}_t")))
        .filter(|layout| layout.size == size as usize)
}

/// `nvmlPlatformInfo_v2_t` → `nvmlPlatformInfo`.
pub fn family(kind: &str) -> &str {
    let stem = kind.strip_suffix("_t").unwrap_or(kind);
    match stem.rsplit_once("_v") {
        Some((family, digits)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => family,
        _ => stem,
    }
}

/// `nvmlPlatformInfo_v2_t` → 2.
fn number_of(layout: &Layout) -> Option<u32> {
    let (_, end) = layout.rust.strip_suffix("_t")?.rsplit_once("_v")?;
    end.parse().ok()
}

fn names_version(data: Option<&Data>) -> bool {
    matches!(data, Some(Data::Fields(named)) if named.contains_key("version"))
}

fn fields(layout: &Layout, offset: usize, data: Option<&Data>, memory: &Memory) {
    // A number given for a structure or union is its bytes.
    if let Some(Data::Number(_)) = data {
        return number(offset, layout.size, data, memory);
    }
    let versioned = offset == 0 && is_versioned(layout);
    let union = layout.fields.len() > 1 && layout.fields.iter().all(|field| field.1 == 0);
    // `v3 = { … }`: what is different in that version.
    let own = number_of(layout).map(|number| format!("v{number}"));
    for (at, ((name, start), (kind, size))) in layout.fields.iter().zip(layout.types).enumerate() {
        let mine = match data {
            Some(Data::Fields(named)) => own
                .as_ref()
                .and_then(|own| match named.get(own) {
                    Some(Data::Fields(own)) => own.get(*name),
                    _ => None,
                })
                .or_else(|| named.get(*name)),
            Some(Data::List(each)) => each.get(at - usize::from(versioned)),
            _ => None,
        };
        if mine.is_none() && (union || versioned && at == 0) {
            continue;
        }
        place(kind, offset + start, *size, mine, memory);
    }
}

/// One field or element.
fn place(kind: &str, offset: usize, size: usize, data: Option<&Data>, memory: &Memory) {
    if let Some((element, count)) = array(kind) {
        if let Some(Data::Text(text)) = data {
            let mut bytes = vec![0; size];
            let length = text.len().min(size.saturating_sub(1));
            bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
            return memory.put(offset, &bytes);
        }
        let each = match data {
            Some(Data::List(each)) => each.as_slice(),
            _ => &[],
        };
        let step = size / count.max(1);
        for at in 0..count {
            place(element, offset + at * step, step, each.get(at), memory);
        }
        return;
    }
    match structure(kind) {
        Some(layout) => fields(layout, offset, data, memory),
        None => number(offset, size, data, memory),
    }
}

fn number(offset: usize, size: usize, data: Option<&Data>, memory: &Memory) {
    let value = match data {
        Some(Data::Number(value)) => *value,
        _ => 0,
    };
    let mut bytes = vec![0; size];
    let length = size.min(8);
    bytes[..length].copy_from_slice(&value.to_le_bytes()[..length]);
    memory.put(offset, &bytes);
}

/// `[c_uint; 5]` → `c_uint`, 5.
fn array(kind: &str) -> Option<(&str, usize)> {
    let (element, count) = kind
        .strip_prefix('[')?
        .strip_suffix(']')?
        .rsplit_once(';')?;
    Some((element.trim(), count.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_picks_the_layout_of_its_size() {
        let of = |size: u32, number: u32| of_version("nvmlGpuFabricInfo_v3_t", size | number << 24);
        assert_eq!(
            of(36, 2).map(|layout| layout.rust),
            Some("nvmlGpuFabricInfo_v2_t")
        );
        assert_eq!(
            of(40, 3).map(|layout| layout.rust),
            Some("nvmlGpuFabricInfo_v3_t")
        );
        assert!(of(40, 2).is_none());
    }

    #[test]
    fn an_array_tells_its_element() {
        assert_eq!(array("[c_char; 32]"), Some(("c_char", 32)));
        assert_eq!(array("c_char"), None);
    }
}
