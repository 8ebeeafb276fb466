//! What the card answers, table by table: each test prints how many rows the mock answers alike, and every row that it does
//! not. Rows of extensions that the mock does not advertise are left out of the count of look-ups and structures, and
//! named there.

use std::collections::BTreeMap;

use ash::vk;

use crate::client::Client;
use crate::environment::isolated;

const NEEDS: &str = include_str!("../../../fixtures/oracle/vulkan-needs-580.txt");
const FORMATS: &str = include_str!("../../../fixtures/oracle/vulkan-formats-580.txt");
const IMAGE_FORMATS: &str = include_str!("../../../fixtures/oracle/vulkan-image-formats-580.txt");

/// Of each row that differs: its table, the row (`*` stands for anything), and why.
const REASONS: &str = include_str!("../../../fixtures/oracle/vulkan-reasons.txt");

/// Counts rows, and prints those that differ.
#[derive(Default)]
pub struct Tally {
    name: &'static str,
    same: usize,
    all: usize,
    differing: Vec<String>,
}

impl Tally {
    pub fn of(name: &'static str) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }

    pub fn row(&mut self, what: impl FnOnce() -> String, recorded: &str, answered: &str) {
        self.all += 1;
        if recorded == answered {
            self.same += 1;
        } else {
            let what = what();
            println!(
                "{}: {what}: the card {recorded}, the mock {answered}",
                self.name
            );
            self.differing.push(what);
        }
    }

    /// Fails where a row differs without a reason, or a reason is there without such a row.
    pub fn end(self) {
        let reasons: Vec<&str> = rows(REASONS)
            .filter_map(|line| {
                let (row, reason) = line.split_once(" # ").expect("a row and its reason");
                assert!(!reason.trim().is_empty(), "{line}");
                row.trim_end().strip_prefix(self.name)?.strip_prefix(": ")
            })
            .collect();
        let fits = |reason: &str, row: &str| mock_device::fault::fits(reason, row);
        let bare: Vec<&String> = self
            .differing
            .iter()
            .filter(|row| !reasons.iter().any(|reason| fits(reason, row)))
            .collect();
        let idle: Vec<&&str> = reasons
            .iter()
            .filter(|reason| !self.differing.iter().any(|row| fits(reason, row)))
            .collect();
        assert!(
            bare.is_empty() && idle.is_empty(),
            "{}: rows without a reason {bare:?}; reasons without a row {idle:?}",
            self.name
        );
        let thousandths = self.same * 1000 / self.all.max(1);
        println!(
            "{}: {} of {} rows as the card, {}.{} %",
            self.name,
            self.same,
            self.all,
            thousandths / 10,
            thousandths % 10
        );
        assert!(self.all > 0, "{}: no rows", self.name);
    }
}

fn rows(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with('#'))
}

fn hexadecimal(text: &str) -> u32 {
    u32::from_str_radix(text, 16).expect("a hexadecimal number")
}

/// `AxBxC`, or numbers between other signs.
fn numbers<T: std::str::FromStr>(text: &str, between: char) -> Vec<T> {
    text.split(between)
        .map(|number| number.parse().ok().expect("a number"))
        .collect()
}

fn extent(text: &str) -> vk::Extent3D {
    let sides = numbers(text, 'x');
    vk::Extent3D {
        width: sides[0],
        height: sides[1],
        depth: sides[2],
    }
}

fn types_of(bits: u32) -> String {
    format!("{bits:x}")
}

#[test]
fn buffers_and_images_need_what_they_need_on_the_card() {
    isolated(
        "oracle::buffers_and_images_need_what_they_need_on_the_card",
        "h200",
        || {
            let client = Client::new();
            let mut tally = Tally::of("memory requirements");
            for line in rows(NEEDS) {
                let (head, shapes) = line.split_once(": ").expect("head and shapes");
                let head: Vec<&str> = head.split(' ').collect();
                match head[0] {
                    "image" => images(&client, &mut tally, &head, shapes),
                    "buffer" => buffers(&client, &mut tally, &head, shapes),
                    _ => {}
                }
            }
            client.destroy();
            tally.end();
        },
    );
}

fn images(client: &Client, tally: &mut Tally, head: &[&str], shapes: &str) {
    for shape in shapes.split(' ') {
        let (key, recorded) = shape.split_once('=').expect("shape and size");
        let parts: Vec<&str> = key.split('/').collect();
        let (format, flags) = (
            vk::Format::from_raw(head[1].parse().expect("a format")),
            vk::ImageCreateFlags::from_raw(hexadecimal(head[5])),
        );
        let mut external = vk::ExternalMemoryImageCreateInfo::default().handle_types(
            vk::ExternalMemoryHandleTypeFlags::from_raw(hexadecimal(head[6])),
        );
        let info = vk::ImageCreateInfo::default()
            .push_next(&mut external)
            .flags(flags)
            .image_type(vk::ImageType::from_raw(
                head[2].parse::<i32>().expect("dimensions") - 1,
            ))
            .format(format)
            .extent(extent(parts[0]))
            .mip_levels(parts[1].parse().expect("levels"))
            .array_layers(parts[2].parse().expect("layers"))
            .samples(vk::SampleCountFlags::from_raw(
                parts[3].parse().expect("samples"),
            ))
            .tiling(if head[3] == "L" {
                vk::ImageTiling::LINEAR
            } else {
                vk::ImageTiling::OPTIMAL
            })
            .usage(vk::ImageUsageFlags::from_raw(hexadecimal(head[4])));
        let mut answered = image(client, &info);
        // Not every linear image's rows were looked at, nor every plane's.
        for part in ['~', ';'] {
            if !recorded.contains(part) {
                answered.truncate(answered.find(part).unwrap_or(answered.len()));
            }
        }
        let recorded = format!("{} {} {recorded}", head[7], head[8]);
        tally.row(
            || format!("{} {key}", head[1..7].join(" ")),
            &recorded,
            &answered,
        );
    }
}

/// Alignment, types, and the row as the file writes it.
fn image(client: &Client, info: &vk::ImageCreateInfo<'_>) -> String {
    // SAFETY: the card takes this image.
    let image = match unsafe { client.device.create_image(info, None) } {
        Ok(image) => image,
        Err(error) => return format!("{error:?}"),
    };
    let planes: &[vk::ImageAspectFlags] = if info.flags.contains(vk::ImageCreateFlags::DISJOINT) {
        &[
            vk::ImageAspectFlags::PLANE_0,
            vk::ImageAspectFlags::PLANE_1,
            vk::ImageAspectFlags::PLANE_2,
        ]
    } else {
        &[vk::ImageAspectFlags::empty()]
    };
    let count = plane_count(info.format);
    let (mut sizes, mut first) = (Vec::new(), None);
    for plane in planes.iter().take(count) {
        let mut dedicated = vk::MemoryDedicatedRequirements::default();
        let mut needs = vk::MemoryRequirements2::default().push_next(&mut dedicated);
        let mut which = vk::ImagePlaneMemoryRequirementsInfo::default().plane_aspect(*plane);
        let mut asked = vk::ImageMemoryRequirementsInfo2::default().image(image);
        if !plane.is_empty() {
            asked = asked.push_next(&mut which);
        }
        // SAFETY: a live image.
        unsafe {
            client
                .device
                .get_image_memory_requirements2(&asked, &mut needs)
        };
        let needs = needs.memory_requirements;
        sizes.push(needs.size.to_string());
        let preferred = dedicated.prefers_dedicated_allocation != 0;
        first.get_or_insert((needs.alignment, needs.memory_type_bits, preferred));
    }
    let (alignment, types, preferred) = first.expect("one plane at least");
    let mut row = format!(
        "{alignment} {} {}{}",
        types_of(types),
        sizes.join(","),
        if preferred { "!" } else { "" }
    );
    if info.flags.contains(vk::ImageCreateFlags::SPARSE_RESIDENCY) {
        // SAFETY: a live image.
        let sparse = unsafe { client.device.get_image_sparse_memory_requirements(image) };
        for needs in sparse {
            let tile = needs.format_properties.image_granularity;
            row += &format!(
                "@{}x{}x{},{},{},{},{},{}",
                tile.width,
                tile.height,
                tile.depth,
                needs.format_properties.flags.as_raw(),
                needs.image_mip_tail_first_lod,
                needs.image_mip_tail_size,
                needs.image_mip_tail_offset,
                needs.image_mip_tail_stride
            );
        }
    }
    if info.tiling == vk::ImageTiling::LINEAR {
        row += &linear(client, image, info.format, count);
    }
    // SAFETY: nobody uses it.
    unsafe { client.device.destroy_image(image, None) };
    row
}

fn linear(client: &Client, image: vk::Image, format: vk::Format, planes: usize) -> String {
    let aspects: Vec<u32> = if planes > 1 {
        (0..planes).map(|plane| 0x10 << plane).collect()
    } else if (124..=130).contains(&format.as_raw()) {
        vec![2]
    } else {
        vec![1]
    };
    let layout = |aspect: &u32| {
        let which = vk::ImageSubresource {
            aspect_mask: vk::ImageAspectFlags::from_raw(*aspect),
            ..Default::default()
        };
        // SAFETY: a live linear image.
        let layout = unsafe { client.device.get_image_subresource_layout(image, which) };
        format!("{},{}", layout.offset, layout.row_pitch)
    };
    format!(
        "~{}",
        aspects.iter().map(layout).collect::<Vec<_>>().join(";")
    )
}

fn plane_count(format: vk::Format) -> usize {
    let name = rows(FORMATS).find_map(|row| {
        let mut words = row.split(' ');
        let name = words.next()?;
        (words.next()?.parse() == Ok(format.as_raw())).then_some(name)
    });
    match name {
        Some(name) if name.contains("3PLANE") => 3,
        Some(name) if name.contains("2PLANE") => 2,
        _ => 1,
    }
}

fn buffers(client: &Client, tally: &mut Tally, head: &[&str], sizes: &str) {
    for row in sizes.split(' ') {
        let (size, recorded) = row.split_once('=').expect("size and need");
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(
            vk::ExternalMemoryHandleTypeFlags::from_raw(hexadecimal(head[3])),
        );
        let info = vk::BufferCreateInfo::default()
            .push_next(&mut external)
            .size(size.parse().expect("a size"))
            .usage(vk::BufferUsageFlags::from_raw(hexadecimal(head[1])))
            .flags(vk::BufferCreateFlags::from_raw(hexadecimal(head[2])));
        let mut dedicated = vk::MemoryDedicatedRequirements::default();
        let mut needs = vk::MemoryRequirements2::default().push_next(&mut dedicated);
        // SAFETY: the card takes this buffer.
        unsafe {
            let buffer = client.device.create_buffer(&info, None).expect("a buffer");
            let asked = vk::BufferMemoryRequirementsInfo2::default().buffer(buffer);
            client
                .device
                .get_buffer_memory_requirements2(&asked, &mut needs);
            client.device.destroy_buffer(buffer, None);
        }
        let needs = needs.memory_requirements;
        let preferred = dedicated.prefers_dedicated_allocation != 0;
        let answered = format!(
            "{} {} {}{}",
            needs.alignment,
            types_of(needs.memory_type_bits),
            needs.size,
            if preferred { "!" } else { "" }
        );
        let recorded = format!("{} {} {recorded}", head[4], head[5]);
        tally.row(
            || format!("buffer {} {size}", head[1..4].join(" ")),
            &recorded,
            &answered,
        );
    }
}

#[test]
fn an_allocation_takes_what_it_takes_on_the_card() {
    isolated(
        "oracle::an_allocation_takes_what_it_takes_on_the_card",
        "h200",
        || {
            let client = Client::new();
            let mut tally = Tally::of("allocations");
            for line in rows(NEEDS).filter(|line| line.starts_with("allocate")) {
                let (head, sizes) = line.split_once(": ").expect("head and sizes");
                let head: Vec<&str> = head.split(' ').collect();
                let kind: u32 = head[2].parse().expect("a memory type");
                for row in sizes.split(' ') {
                    let (size, recorded) = row.split_once('=').expect("size and growth");
                    let answered = growth(&client, head[1], kind, size.parse().expect("a size"));
                    tally.row(
                        || format!("{} of type {kind}, {size} bytes", head[1]),
                        recorded,
                        &answered,
                    );
                }
            }
            client.destroy();
            tally.end();
        },
    );
}

fn growth(client: &Client, how: &str, kind: u32, size: u64) -> String {
    let mut exported = vk::ExportMemoryAllocateInfo::default()
        .handle_types(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
    let mut addressed =
        vk::MemoryAllocateFlagsInfo::default().flags(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
    let mut dedicated = vk::MemoryDedicatedAllocateInfo::default();
    let mut info = vk::MemoryAllocateInfo::default()
        .allocation_size(size)
        .memory_type_index(kind);
    // SAFETY: valid usage.
    unsafe {
        let buffer = vk::BufferCreateInfo::default()
            .size(size)
            .usage(vk::BufferUsageFlags::TRANSFER_SRC);
        let buffer = client
            .device
            .create_buffer(&buffer, None)
            .expect("a buffer");
        info = match how {
            "address" => info.push_next(&mut addressed),
            "opaque_fd" => info.push_next(&mut exported),
            "dedicated" => {
                dedicated = dedicated.buffer(buffer);
                info.push_next(&mut dedicated)
            }
            _ => info,
        };
        let sum = || client.heap_budget().1.iter().sum::<u64>();
        let before = sum();
        let memory = client.device.allocate_memory(&info, None);
        let grown = sum() - before;
        if let Ok(memory) = memory {
            client.device.free_memory(memory, None);
        }
        client.device.destroy_buffer(buffer, None);
        match memory {
            Ok(_) => grown.to_string(),
            Err(error) => format!("{error:?}"),
        }
    }
}

/// The usages and flags of vulkan-image-formats-580.txt, in its order.
const ASKED: [(&str, u32, u32); 22] = [
    ("src", 1, 0),
    ("dst", 2, 0),
    ("sampled", 4, 0),
    ("storage", 8, 0),
    ("color", 16, 0),
    ("depth", 32, 0),
    ("transient", 64 | 16, 0),
    ("input", 128 | 16, 0),
    ("host", 0x40_0001, 0),
    ("all-transfer", 3, 0),
    ("cube", 3, 0x10),
    ("mutable", 3, 8),
    ("sparse", 3, 1),
    ("resident", 3, 3),
    ("aliased", 3, 7),
    ("disjoint", 3, 0x200),
    ("alias", 3, 0x400),
    ("2darray", 3, 0x20),
    ("protected", 3, 0x800),
    ("sfr", 3, 0x40),
    ("block-view", 3, 0x88),
    ("extended", 4, 0x108),
];

#[test]
fn image_formats_have_the_cards_limits() {
    isolated(
        "oracle::image_formats_have_the_cards_limits",
        "h200",
        || {
            let client = Client::new();
            let mut tally = Tally::of("image formats");
            for line in rows(IMAGE_FORMATS) {
                let (head, formats) = line.split_once(" | ").expect("head and formats");
                let mut words = head.split(' ');
                let tiling = words.next().expect("a tiling");
                let recorded: BTreeMap<&str, &str> =
                    words.filter_map(|word| word.split_once(':')).collect();
                for format in formats.split(' ') {
                    let format = vk::Format::from_raw(format.parse().expect("a format"));
                    let mut expected = "-11";
                    for (name, usage, flags) in ASKED {
                        expected = recorded.get(name).unwrap_or(&expected);
                        let answered = limits(&client, tiling, format, usage, flags);
                        tally.row(
                            || format!("{format:?} {tiling} {name}"),
                            expected,
                            &answered,
                        );
                    }
                }
            }
            client.destroy();
            tally.end();
        },
    );
}

fn limits(client: &Client, tiling: &str, format: vk::Format, usage: u32, flags: u32) -> String {
    let dimensions: i32 = tiling[1..].parse().expect("dimensions");
    let asked = vk::PhysicalDeviceImageFormatInfo2::default()
        .format(format)
        .ty(vk::ImageType::from_raw(dimensions - 1))
        .tiling(if tiling.starts_with('L') {
            vk::ImageTiling::LINEAR
        } else {
            vk::ImageTiling::OPTIMAL
        })
        .usage(vk::ImageUsageFlags::from_raw(usage))
        .flags(vk::ImageCreateFlags::from_raw(flags));
    let mut ycbcr = vk::SamplerYcbcrConversionImageFormatProperties::default();
    let mut found = vk::ImageFormatProperties2::default().push_next(&mut ycbcr);
    // SAFETY: a live physical device.
    let answer = unsafe {
        client
            .instance
            .get_physical_device_image_format_properties2(client.physical, &asked, &mut found)
    };
    if let Err(error) = answer {
        return error.as_raw().to_string();
    }
    let found = found.image_format_properties;
    let side = found.max_extent;
    format!(
        "{}x{}x{}/{}/{}/{:x}/{:x}/{}",
        side.width,
        side.height,
        side.depth,
        found.max_mip_levels,
        found.max_array_layers,
        found.sample_counts.as_raw(),
        found.max_resource_size,
        ycbcr.combined_image_sampler_descriptor_count
    )
}
