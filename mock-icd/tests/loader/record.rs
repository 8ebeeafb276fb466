//! What the recorded card says of itself, asked for through the real loader: every field of every structure of features and
//! properties, extensions, memory types, heaps, queue families. Each test prints how many rows are answered as on the
//! card and every row that is not; fixtures/oracle/vulkan-reasons.txt has the reason of each.

use ash::vk;

use crate::client::Client;
use crate::environment::isolated;
use crate::oracle::Tally;

const FEATURES: &str = include_str!("../../../fixtures/oracle/vulkan-features-580.txt");
const PROPERTIES: &str = include_str!("../../../fixtures/oracle/vulkan-properties-580.txt");
const EXTENSIONS: &str = include_str!("../../../fixtures/oracle/vulkan-extensions-580.txt");

struct Structure<'t> {
    name: &'t str,
    kind: i32,
    bytes: usize,
    /// `core`, or extensions.
    from: &'t str,
    fields: Vec<Field<'t>>,
}

/// Name, offset, kind, number of elements, values.
struct Field<'t> {
    name: &'t str,
    at: usize,
    kind: &'t str,
    count: usize,
    values: &'t str,
}

fn structures(text: &str) -> Vec<Structure<'_>> {
    let mut all: Vec<Structure<'_>> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let number =
            |word: Option<&str>| word.and_then(|word| word.parse().ok()).expect("a number");
        if let Some(field) = line.strip_prefix("  ") {
            let mut words = field.splitn(5, ' ');
            let name = words.next().expect("a name");
            let at = number(words.next());
            let kind = words.next().expect("a kind");
            let field = Field {
                name,
                at,
                kind,
                count: number(words.next()),
                values: words.next().unwrap_or_default(),
            };
            all.last_mut().expect("a structure").fields.push(field);
        } else {
            let mut words = line.split(' ');
            let name = words.next().expect("a name");
            all.push(Structure {
                name,
                kind: words
                    .next()
                    .and_then(|word| word.parse().ok())
                    .expect("a type"),
                bytes: number(words.next()),
                from: words.next().expect("where it comes from"),
                fields: Vec::new(),
            });
        }
    }
    all
}

impl Field<'_> {
    /// As the file writes it.
    fn read(&self, bytes: &[u8]) -> String {
        let each = |width: usize, show: fn(&[u8]) -> String| {
            let elements = bytes[self.at..].chunks_exact(width).take(self.count);
            elements.map(show).collect::<Vec<_>>().join(" ")
        };
        match self.kind {
            "u32" | "b32" => each(4, |word| le(word).to_string()),
            "i32" => each(4, |word| (le(word) as i32).to_string()),
            "u64" => each(8, |word| le(word).to_string()),
            "i64" => each(8, |word| (le(word) as i64).to_string()),
            "f32" => each(4, |word| f32::from_bits(le(word) as u32).to_string()),
            "u8" => bytes[self.at..self.at + self.count]
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            "char" => {
                let text = &bytes[self.at..self.at + self.count];
                let end = text
                    .iter()
                    .position(|byte| *byte == 0)
                    .unwrap_or(text.len());
                format!("\"{}\"", String::from_utf8_lossy(&text[..end]))
            }
            other => panic!("a field of kind {other}"),
        }
    }

    fn recorded(&self) -> String {
        if self.kind != "f32" {
            return self.values.to_owned();
        }
        let float = |value: &str| value.parse::<f32>().expect("a float").to_string();
        self.values
            .split(' ')
            .map(float)
            .collect::<Vec<_>>()
            .join(" ")
    }
}

fn le(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Asks for each structure of a table, chained to the table's first one, and compares field by field. One of extensions
/// that this driver does not advertise (`extensions` has the reason) must be left as it was.
fn compare(table: &'static str, text: &str, ask: impl Fn(&Client, *mut std::ffi::c_void)) {
    let client = Client::new();
    let mut tally = Tally::of(table);
    let all = structures(text);
    // SAFETY: a live physical device.
    let extensions = unsafe {
        client
            .instance
            .enumerate_device_extension_properties(client.physical)
    };
    let mut extensions = extensions.expect("a list");
    extensions.extend(
        // SAFETY: a loader.
        unsafe { client.entry.enumerate_instance_extension_properties(None) }.expect("a list"),
    );
    let mut left_alone = Vec::new();
    for structure in &all {
        // A command that writes nothing leaves this.
        let mut asked = filled(structure);
        if std::ptr::eq(structure, &raw const all[0]) {
            ask(&client, asked.as_mut_ptr().cast());
        } else {
            let mut head = filled(&all[0]);
            head[1] = asked.as_mut_ptr() as u64;
            ask(&client, head.as_mut_ptr().cast());
        }
        let bytes: Vec<u8> = asked.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut origins = structure.from.split(',');
        if !origins.any(|from| from == "core" || versions(&extensions, from) != "absent") {
            assert_eq!(asked, filled(structure), "{}", structure.name);
            left_alone.push(structure.name);
            continue;
        }
        for field in structure.fields.iter().filter(|field| field.kind != "ptr") {
            tally.row(
                || format!("{}.{}", structure.name, field.name),
                &field.recorded(),
                &field.read(&bytes),
            );
        }
    }
    client.destroy();
    println!(
        "{table}: {} structures of extensions that are not advertised are left alone: {}",
        left_alone.len(),
        left_alone.join(" ")
    );
    tally.end();
}

/// sType, no pNext, no arrays, and a mark everywhere else.
fn filled(structure: &Structure<'_>) -> Vec<u64> {
    let mut words = vec![0xa5a5_a5a5_a5a5_a5a5; structure.bytes.div_ceil(8)];
    words[0] = u64::from(structure.kind.cast_unsigned());
    words[1] = 0;
    for pointer in structure.fields.iter().filter(|field| field.kind == "ptr") {
        words[pointer.at / 8] = 0;
    }
    words
}

#[test]
fn features_are_the_cards() {
    isolated("record::features_are_the_cards", "h200", || {
        compare("features", FEATURES, |client, chain| {
            let ask = client.instance.fp_v1_1().get_physical_device_features2;
            // SAFETY: a live physical device, and a chain of structures as large as their types say.
            unsafe { ask(client.physical, chain.cast()) };
        });
    });
}

#[test]
fn properties_and_limits_are_the_cards() {
    isolated(
        "record::properties_and_limits_are_the_cards",
        "h200",
        || {
            compare("properties", PROPERTIES, |client, chain| {
                let ask = client.instance.fp_v1_1().get_physical_device_properties2;
                // SAFETY: as above.
                unsafe { ask(client.physical, chain.cast()) };
            });
        },
    );
}

/// The first generation of both questions has no chain, and the same answers.
#[test]
fn features_and_limits_of_vulkan_1_0_are_the_cards() {
    isolated(
        "record::features_and_limits_of_vulkan_1_0_are_the_cards",
        "h200",
        || {
            let client = Client::new();
            let mut tally = Tally::of("features and limits of 1.0");
            for text in [FEATURES, PROPERTIES] {
                let all = structures(text);
                let first = &all[0];
                let mut asked = filled(first);
                // SAFETY: a live physical device; behind sType and pNext lies the structure of 1.0.
                unsafe {
                    let (core, at) = (client.instance.fp_v1_0(), asked.as_mut_ptr().add(2));
                    if std::ptr::eq(text, FEATURES) {
                        (core.get_physical_device_features)(client.physical, at.cast());
                    } else {
                        (core.get_physical_device_properties)(client.physical, at.cast());
                    }
                }
                let bytes: Vec<u8> = asked.iter().flat_map(|word| word.to_le_bytes()).collect();
                for field in &first.fields {
                    let what = || format!("{}.{}", first.name, field.name);
                    tally.row(what, &field.recorded(), &field.read(&bytes));
                }
            }
            client.destroy();
            tally.end();
        },
    );
}

fn versions(extensions: &[vk::ExtensionProperties], name: &str) -> String {
    let found = extensions.iter().find(|extension| {
        extension
            .extension_name_as_c_str()
            .map(|known| known.to_bytes())
            == Ok(name.as_bytes())
    });
    found.map_or("absent".to_owned(), |found| found.spec_version.to_string())
}

#[test]
fn extensions_memory_and_queues_are_the_cards() {
    isolated(
        "record::extensions_memory_and_queues_are_the_cards",
        "h200",
        || {
            let client = Client::new();
            // SAFETY: live handles.
            let (instance, device, memory, families) = unsafe {
                (
                    client.entry.enumerate_instance_extension_properties(None),
                    client
                        .instance
                        .enumerate_device_extension_properties(client.physical),
                    client
                        .instance
                        .get_physical_device_memory_properties(client.physical),
                    client
                        .instance
                        .get_physical_device_queue_family_properties(client.physical),
                )
            };
            let (instance, device) = (instance.expect("a list"), device.expect("a list"));
            let mut tally = Tally::of("extensions");
            let mut counted = [0; 4];
            for line in EXTENSIONS.lines().filter(|line| !line.starts_with('#')) {
                let (key, recorded) = line
                    .match_indices(' ')
                    .nth(1)
                    .map(|(at, _)| (&line[..at], &line[at + 1..]))
                    .expect("table, row and values");
                let (table, row) = key.split_once(' ').expect("table and row");
                let index = row.parse::<usize>().unwrap_or_default();
                let answered = match table {
                    "instance" => versions(&instance, row),
                    "device" => {
                        counted[0] += usize::from(versions(&device, row) != "absent");
                        versions(&device, row)
                    }
                    "type" => {
                        counted[1] += 1;
                        let kind = memory.memory_types[index];
                        format!("{} {}", kind.heap_index, kind.property_flags.as_raw())
                    }
                    "heap" => {
                        counted[2] += 1;
                        let heap = memory.memory_heaps[index];
                        format!("{} {}", heap.size, heap.flags.as_raw())
                    }
                    "family" => {
                        counted[3] += 1;
                        let family = &families[index];
                        let grain = family.min_image_transfer_granularity;
                        format!(
                            "{} {} {} {},{},{}",
                            family.queue_flags.as_raw(),
                            family.queue_count,
                            family.timestamp_valid_bits,
                            grain.width,
                            grain.height,
                            grain.depth
                        )
                    }
                    other => panic!("a table named {other}"),
                };
                tally.row(|| key.to_owned(), recorded, &answered);
            }
            // Nothing beside what the card has.
            let had = [
                device.len(),
                memory.memory_type_count as usize,
                memory.memory_heap_count as usize,
                families.len(),
            ];
            assert_eq!(had, counted);
            client.destroy();
            tally.end();
        },
    );
}
