//! Features and properties as the card reports them (fixtures/oracle/vulkan-features-580.txt, -properties-580.txt): by
//! structure type, which bytes go where. A structure is filled if it is of the core or of an extension that is
//! advertised, as drivers do; any other in a chain is passed over.

use std::collections::HashMap;
use std::sync::OnceLock;

use ash::vk;

use crate::extension;

const FEATURES: &str = include_str!("../../fixtures/oracle/vulkan-features-580.txt");
const PROPERTIES: &str = include_str!("../../fixtures/oracle/vulkan-properties-580.txt");

/// Bytes of a structure, by where they begin. sType, pNext and pointers are the application's and not among them.
pub type Pieces = Vec<(usize, Vec<u8>)>;

pub struct Table(HashMap<i32, Pieces>);

impl Table {
    pub fn find(&self, kind: vk::StructureType) -> Option<&Pieces> {
        self.0.get(&kind.as_raw())
    }
}

pub fn features() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| parse(FEATURES))
}

pub fn properties() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| parse(PROPERTIES))
}

fn parse(text: &str) -> Table {
    let mut table = HashMap::new();
    let mut current: Option<(i32, Pieces)> = None;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix("  ") {
            Some(field) => {
                if let (Some((_, pieces)), Some(piece)) = (&mut current, field_of(field)) {
                    add(pieces, piece);
                }
            }
            None => {
                table.extend(current.take());
                current = structure(line);
            }
        }
    }
    table.extend(current);
    Table(table)
}

/// A structure's head; `None` where nobody may see it.
fn structure(line: &str) -> Option<(i32, Pieces)> {
    let mut words = line.split(' ');
    let (_, kind, _, from) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let known = from == "core"
        || from
            .split(',')
            .any(|name| extension::is_of_device(name) || extension::is_of_instance(name));
    known.then_some((kind.parse().ok()?, Vec::new()))
}

/// Joins fields that follow one another.
fn add(pieces: &mut Pieces, (at, bytes): (usize, Vec<u8>)) {
    match pieces.last_mut() {
        Some((start, piece)) if *start + piece.len() == at => piece.extend(bytes),
        _ => pieces.push((at, bytes)),
    }
}

/// Name, offset, kind, number of elements, values.
fn field_of(line: &str) -> Option<(usize, Vec<u8>)> {
    let mut words = line.splitn(5, ' ');
    let (_, at, kind) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
    let count: usize = words.next()?.parse().ok()?;
    let values = words.next().unwrap_or_default();
    let mut bytes = Vec::new();
    match kind {
        "char" => {
            bytes.extend(values.trim_matches('"').bytes());
            bytes.resize(count, 0);
        }
        "u8" => {
            for index in 0..count {
                let digits = values.get(2 * index..2 * index + 2)?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
            }
        }
        _ => {
            for value in values.split(' ') {
                bytes.extend(number(kind, value)?);
            }
        }
    }
    Some((at, bytes))
}

fn number(kind: &str, value: &str) -> Option<Vec<u8>> {
    Some(match kind {
        "u32" | "b32" => value.parse::<u32>().ok()?.to_ne_bytes().to_vec(),
        "i32" => value.parse::<i32>().ok()?.to_ne_bytes().to_vec(),
        "u64" | "i64" => value.parse::<u64>().ok()?.to_ne_bytes().to_vec(),
        "f32" => value.parse::<f32>().ok()?.to_ne_bytes().to_vec(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recorded_field_is_understood() {
        for line in FEATURES.lines().chain(PROPERTIES.lines()) {
            if let Some(field) = line
                .strip_prefix("  ")
                .filter(|field| !field.contains(" ptr "))
            {
                assert!(field_of(field).is_some(), "{line}");
            }
        }
    }

    #[test]
    fn pointers_are_left_alone() {
        let pieces = properties()
            .find(vk::StructureType::from_raw(56))
            .expect("VkPhysicalDeviceVulkan14Properties");
        assert!(
            pieces
                .iter()
                .all(|(at, bytes)| *at >= 16 && (*at + bytes.len() <= 96 || *at >= 104))
        );
    }
}
