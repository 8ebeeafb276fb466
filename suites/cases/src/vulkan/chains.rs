//! vkAllocateMemory with chains made by chance, against a model of what a card takes for each: what is left of the budget afterwards must be exactly what the
//! model leaves (V17 of `fixtures/defects.txt`). A chain has what counts and what does not in any order: what nobody knows before, between and behind,
//! handle types of every kind and none, sizes at the edges of blocks.

use std::fmt::Write as _;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};

use harness::{Bytes, Failure, Session, cases, ensure, ensure_eq, fail};

use crate::clients::{first_gpu, gpus, instance, memory_type};
use crate::ffi::process::as_descriptor_0;
use crate::ffi::vulkan::chains::{DEVICE_ADDRESS, DEVICE_MASK, DMA_BUF, HOST, Link, OPAQUE_FD};
use crate::ffi::vulkan::{Buffer, Client, Code, Device, Image, Memory, Pages, Place, Wish};
use crate::greed::{VULKAN_ROOM, budget, fills, until_refused};

const REFUSED: Code = Code::OUT_OF_DEVICE_MEMORY;
const UNIT: u64 = 64 << 10;
const LARGE: u64 = 2 << 20;
/// To the last unit of what is left.
const FINE: [Bytes; 4] = [
    Bytes::mib(256),
    Bytes::mib(16),
    Bytes::mib(1),
    Bytes::kib(64),
];
const SIZES: [u64; 12] = [
    1,
    UNIT - 1,
    UNIT,
    UNIT + 1,
    LARGE - UNIT,
    LARGE - 1,
    LARGE,
    LARGE + 1,
    LARGE + UNIT,
    2 * LARGE - 1,
    2 * LARGE,
    2 * LARGE + 1,
];

/// Numbers that are the same in each run.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 20
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.next().is_multiple_of(many)
    }

    fn shuffle<T>(&mut self, list: &mut [T]) {
        for end in (1..list.len()).rev() {
            list.swap(end, self.below(end + 1));
        }
    }
}

/// One GPU, or a group of two, with what chains may name.
struct Stage<'a> {
    device: &'a Device,
    device_type: u32,
    host_type: u32,
    buffer: &'a Buffer<'a>,
    image: &'a Image<'a>,
    pages: &'a Pages,
    members: usize,
    /// Memory that can be imported, and its size.
    shared: Option<(&'a OwnedFd, u64)>,
}

/// A request and what a card takes for it on each member.
struct Request<'a> {
    memory_type: u32,
    bytes: u64,
    links: Vec<Link<'a>>,
    takes: [u64; 2],
    /// Given to the driver if it grants.
    descriptor: Option<OwnedFd>,
}

fn described(request: &Request<'_>) -> String {
    let mut text = format!("{} bytes of type {}:", request.bytes, request.memory_type);
    for link in &request.links {
        let _ = match link {
            Link::Unknown { bytes, .. } => write!(text, " unknown+{bytes}"),
            Link::Priority => write!(text, " priority"),
            Link::Address => write!(text, " address"),
            Link::Export { handle_types } => write!(text, " export({handle_types:#x})"),
            Link::ImportFd { handle_type, .. } => write!(text, " import-fd({handle_type:#x})"),
            Link::ImportHost { handle_type, .. } => write!(text, " import-host({handle_type:#x})"),
            Link::Dedicated { buffer, image } => {
                write!(
                    text,
                    " dedicated({}, {})",
                    buffer.is_some(),
                    image.is_some()
                )
            }
            Link::Flags { flags, mask } => write!(text, " flags({flags:#x}, mask {mask:#x})"),
        };
    }
    text
}

impl<'a> Stage<'a> {
    fn request(&self, chance: &mut Chance) -> Result<Request<'a>, Failure> {
        let mut bytes = match chance.below(SIZES.len() + 2) {
            chosen if chosen < SIZES.len() => SIZES[chosen],
            _ => 1 + chance.next() % (4 * LARGE),
        };
        let (mut links, mut memory_type) = (Vec::new(), self.device_type);
        let mut takes_nothing = false;
        let mut descriptor = None;
        let dedicated = match chance.below(5) {
            0 => Some((Some(self.buffer), None)),
            1 | 2 => Some((None, Some(self.image))),
            3 => Some((None, None)),
            _ => None,
        };
        if let Some((buffer, image)) = dedicated {
            links.push(Link::Dedicated { buffer, image });
        }
        let alone = dedicated.is_some_and(|(buffer, image)| buffer.is_some() || image.is_some());
        match (chance.below(4), self.shared) {
            (0, Some((shared, size))) => {
                let copy = shared.try_clone()?;
                let handle_type = [OPAQUE_FD, DMA_BUF][chance.below(2)];
                let fd = copy.as_raw_fd();
                links.push(Link::ImportFd { handle_type, fd });
                bytes = size;
                takes_nothing = true;
                descriptor = Some(copy);
            }
            (1, _) => {
                memory_type = self.host_type;
                bytes = UNIT;
                takes_nothing = true;
                let pages = Some(self.pages);
                links.push(Link::ImportHost {
                    handle_type: HOST,
                    pages,
                });
            }
            _ => {}
        }
        // What is no import: of no handle type, whatever else it says.
        let imports =
            |link: &Link<'_>| matches!(link, Link::ImportFd { .. } | Link::ImportHost { .. });
        if !links.iter().any(imports) {
            if chance.one_in(2) {
                let known = self.shared.map_or(-1, |(shared, _)| shared.as_raw_fd());
                let fd = [known, -1, 0][chance.below(3)];
                links.push(Link::ImportFd { handle_type: 0, fd });
            }
            if chance.one_in(3) {
                let pages = chance.one_in(2).then_some(self.pages);
                links.push(Link::ImportHost {
                    handle_type: 0,
                    pages,
                });
            }
            if chance.one_in(3) {
                let handle_types = if self.members == 1 {
                    [0, OPAQUE_FD, DMA_BUF, OPAQUE_FD | DMA_BUF][chance.below(4)]
                } else {
                    0
                };
                links.push(Link::Export { handle_types });
            }
        }
        let mut members = [true, self.members > 1];
        if chance.one_in(2) {
            // A mask without its flag says nothing.
            let mask = [1, 2, 3][chance.below(3)];
            let counts = self.members > 1 && chance.one_in(2);
            let flags = if counts { DEVICE_MASK } else { 0 }
                | if chance.one_in(2) { DEVICE_ADDRESS } else { 0 };
            if counts {
                members = [mask & 1 != 0, mask & 2 != 0];
            }
            links.push(Link::Flags { flags, mask });
        }
        if chance.one_in(3) {
            links.push(Link::Address);
        }
        if chance.one_in(3) {
            links.push(Link::Priority);
        }
        for number in 0..chance.below(5) as u8 {
            let bytes = chance.below(41);
            links.push(Link::Unknown { number, bytes });
        }
        chance.shuffle(&mut links);
        let grain = if alone && bytes > LARGE { LARGE } else { UNIT };
        let taken = if takes_nothing {
            0
        } else {
            bytes.div_ceil(grain) * grain
        };
        let takes = members.map(|member| if member { taken } else { 0 });
        Ok(Request {
            memory_type,
            bytes,
            links,
            takes,
            descriptor,
        })
    }

    /// What a member's budget has left: taken to the last unit, and given back.
    fn left(&self, member: usize) -> Result<u64, Failure> {
        let mask = (self.members > 1).then(|| 1 << member);
        let taken = until_refused(&FINE, |bytes| {
            let wish = Wish {
                mask,
                ..Wish::default()
            };
            let answer = self.device.ask_for(self.device_type, bytes.0, wish);
            answer.memory.ok_or(answer.code)
        });
        taken.refused_with(REFUSED)?;
        for memory in taken.held {
            self.device.free(memory);
        }
        Ok(taken.bytes.0)
    }

    /// Rounds of chains that are held together and freed in another order.
    fn play(&self, session: &Session, rounds: u64) -> Result<(), Failure> {
        let members = 0..self.members;
        let all = members
            .clone()
            .map(|member| self.left(member))
            .collect::<Result<Vec<_>, _>>()?;
        for member in members.clone() {
            let room = VULKAN_ROOM + Bytes(self.shared.map_or(0, |(_, size)| size));
            fills(Bytes(all[member]), budget(session, member as u32)?, room)?;
        }
        for round in 1..=rounds {
            let mut chance = Chance(round.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut held: Vec<(Memory, [u64; 2])> = Vec::new();
            let mut sum = [0; 2];
            for _ in 0..6 {
                let request = self.request(&mut chance)?;
                let answer =
                    self.device
                        .ask_in_chain(request.memory_type, request.bytes, &request.links);
                let text = described(&request);
                let Some(memory) = answer.memory else {
                    fail!("round {round}: {text}: {:?}", answer.code);
                };
                // The driver's now.
                let _driver = request.descriptor.map(IntoRawFd::into_raw_fd);
                held.push((memory, request.takes));
                for member in members.clone() {
                    sum[member] += request.takes[member];
                    let left = self.left(member)?;
                    ensure_eq!(
                        left + sum[member],
                        all[member],
                        "left on {member} and taken by the model, round {round}, after {text}"
                    );
                }
            }
            chance.shuffle(&mut held);
            for (memory, takes) in held {
                self.device.free(memory);
                sum = [sum[0] - takes[0], sum[1] - takes[1]];
            }
            ensure!(sum == [0; 2], "the model keeps {sum:?}");
            for member in members.clone() {
                ensure_eq!(
                    self.left(member)?,
                    all[member],
                    "left at the end of round {round}"
                );
            }
        }
        Ok(())
    }
}

cases! {
    /// Every structure of a chain counts, wherever it stands and whatever is before, between and behind: each request takes of the budget exactly what a
    /// card takes for it, and gives that back.
    chains_made_by_chance_cost_what_they_take {
        kind: Budget, defects: ["V17"], budget: "0=1GiB", entry_points: ["vkAllocateMemory", "vkFreeMemory"], seconds: 60,
        on_real: No("structures and sizes that no application gives a driver"),
        invalid_use: ["pNext", "VUID"],
    } (session) {
        let instance = instance(Client::V1_3)?;
        let physical = first_gpu(&instance)?;
        let device = instance.device_with_all(&[physical])?;
        let (buffer, image) = (device.buffer(3 * LARGE, None)?, device.image(1024)?);
        let pages = Pages::new(UNIT as usize)?;
        let device_type = memory_type(&instance, physical, Place::Device)?;
        let size = 3 * LARGE + UNIT;
        let exportable = Wish { exportable: true, ..Wish::default() };
        let made = device.ask_for(device_type, size, exportable);
        let Some(memory) = made.memory else { fail!("memory to share: {:?}", made.code) };
        let shared = device.export(&instance, memory)?;
        let stage = Stage {
            device: &device,
            device_type,
            host_type: memory_type(&instance, physical, Place::Host)?,
            buffer: &buffer,
            image: &image,
            pages: &pages,
            members: 1,
            shared: Some((&shared, size)),
        };
        stage.play(session, 40)?;
        // A process without stdin is given 0 for a descriptor, which is one like any other.
        let before = stage.left(0)?;
        let fd = as_descriptor_0(&shared)?;
        let answer = device.ask_in_chain(device_type, size, &[Link::ImportFd { handle_type: OPAQUE_FD, fd }]);
        let Some(memory) = answer.memory else { fail!("an import of descriptor 0: {:?}", answer.code) };
        ensure_eq!(stage.left(0)?, before, "left when descriptor 0 was imported");
        device.free(memory);
        Ok(())
    }

    /// A chain that names a descriptor and host memory at once is no way to new memory for nothing: whichever of them the driver takes.
    two_imports_in_a_chain_cost_what_they_take {
        kind: Budget, defects: ["V17"], budget: "0=1GiB", entry_points: ["vkAllocateMemory", "vkGetMemoryFdKHR"],
        on_real: No("structures that no application gives a driver"), invalid_use: ["pNext", "VUID"],
    } (session) {
        let most = 256 << 20;
        let instance = instance(Client::V1_3)?;
        let physical = first_gpu(&instance)?;
        let device = instance.device_with_all(&[physical])?;
        let device_type = memory_type(&instance, physical, Place::Device)?;
        let made = device.ask_for(device_type, UNIT, Wish { exportable: true, ..Wish::default() });
        let Some(memory) = made.memory else { fail!("memory to share: {:?}", made.code) };
        let pages = Pages::new(most as usize)?;
        let mut granted = Bytes::ZERO;
        for order in [false, true].repeat(8) {
            let shared = device.export(&instance, memory)?;
            let by_fd = Link::ImportFd { handle_type: OPAQUE_FD, fd: shared.as_raw_fd() };
            let by_pointer = Link::ImportHost { handle_type: HOST, pages: Some(&pages) };
            let chain = if order { [by_fd, by_pointer] } else { [by_pointer, by_fd] };
            if device.ask_in_chain(device_type, most, &chain).memory.is_some() {
                granted += Bytes(most);
            }
        }
        let budget = budget(session, 0)?;
        ensure!(granted <= budget, "{granted} under {budget}");
        Ok(())
    }

    /// The same of a device group: a mask counts with its flag alone, for the members that it names.
    chains_of_a_group_cost_what_they_take_on_each {
        kind: Budget, defects: ["V17", "V10"], budget: "0=1GiB,1=768MiB", machine: "h200x2-group", needs_gpus: 2, seconds: 60,
        entry_points: ["vkAllocateMemory", "vkFreeMemory", "vkCreateDevice"],
        on_real: No("no machine was seen whose driver joins GPUs"),
        invalid_use: ["pNext", "VUID"],
    } (session) {
        let instance = instance(Client::V1_3)?;
        let members = gpus(&instance)?;
        let device = instance.device_with_all(&members)?;
        let (buffer, image) = (device.buffer(3 * LARGE, None)?, device.image(1024)?);
        let pages = Pages::new(UNIT as usize)?;
        let stage = Stage {
            device: &device,
            device_type: memory_type(&instance, members[0], Place::Device)?,
            host_type: memory_type(&instance, members[0], Place::Host)?,
            buffer: &buffer,
            image: &image,
            pages: &pages,
            members: 2,
            shared: None,
        };
        stage.play(session, 30)
    }
}
