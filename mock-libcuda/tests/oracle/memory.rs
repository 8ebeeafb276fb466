//! Memory call by call: the script that the card ran (`fixtures/oracle/memory-580.txt`), run again.

use std::collections::HashMap;

use mock_device::{Bytes, DeviceIndex, World, WorldSpec, profile};

use crate::boundary::set_environment;
use crate::processes::{Fork, Parcel, bytes_at, fresh_pages};
use crate::score::Score;
use crate::{CUDA, out};

const RECORDED: &str = include_str!("../../../fixtures/oracle/memory-580.txt");

/// Rows that differ, by section and entry point, with the reason.
const DIFFERENT: &[(&str, &str)] = &[
    (
        "[managed] cuMemAllocManaged",
        "64 TiB of managed addresses: more than the simulated address space of a device",
    ),
    ("[managed] cuMemFree_v2", PACKING),
    ("[vmm-share] show", ELSEWHERE),
    ("[pool-share] cuMemAllocFromPoolAsync", ELSEWHERE),
    ("[pool-share] cuCtxSynchronize", ELSEWHERE),
    ("[pool-kinds] cuMemPoolCreate", HOST_POOL),
    ("[pool-kinds] cuMemPoolGetAttribute", HOST_POOL),
    ("[pool-kinds] cuMemAllocFromPoolAsync", HOST_POOL),
    ("[pool-kinds] cuMemPoolDestroy", HOST_POOL),
    ("[pool-access] cuMemGetDefaultMemPool", HOST_POOL),
    ("[pool-access] cuMemSetMemPool", HOST_POOL),
    (
        "[ipc-2] cuIpcGetMemHandle",
        "the bytes of a handle are each driver's own",
    ),
    ("[ipc-2] cuIpcCloseMemHandle", ELSEWHERE),
    (
        "[ipc-2] cuIpcOpenMemHandle_v2",
        "memory of a process that ended is opened again while its teardown lasts",
    ),
];
const ELSEWHERE: &str = "when bytes leave that another process holds too";
const PACKING: &str = "how the driver packs managed pages is not simulated";
const HOST_POOL: &str = "pools of host memory are not simulated";

/// What a variable holds before anything writes it.
const POISON: u64 = 0x7777_7777_7777_7777;
/// After one of these a context answers nothing else.
const STICKY: &[&str] = &[
    "700", "702", "710", "714", "715", "716", "717", "718", "719", "721",
];

#[derive(Default)]
struct Worker {
    variables: HashMap<String, Box<u64>>,
    buffers: HashMap<String, (u64, usize)>,
    structures: Vec<Vec<u8>>,
    base: u64,
}

fn suffix(text: &str) -> (&str, u64) {
    match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G') => (&text[..text.len() - 1], 1 << 30),
        Some(b'T') => (&text[..text.len() - 1], 1 << 40),
        _ => (text, 1),
    }
}

fn number(text: &str) -> Option<u64> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    if !text.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let value = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => {
            let (digits, unit) = suffix(text);
            digits.parse::<u64>().ok()? * unit
        }
    };
    Some(if negative {
        value.wrapping_neg()
    } else {
        value
    })
}

impl Worker {
    fn start(mode: &str) -> Worker {
        let mut worker = Worker::default();
        if mode != "bare" {
            CUDA.call("cuInit", &[0]);
        }
        if mode == "ctx" {
            let context = worker.address("ctx");
            CUDA.call("cuDevicePrimaryCtxRetain", &[context, 0]);
            let context = worker.value("ctx");
            CUDA.call("cuCtxSetCurrent", &[context]);
            worker.base = worker.free().unwrap_or(0);
        }
        worker
    }

    fn free(&self) -> Option<u64> {
        let (mut free, mut total) = (0u64, 0u64);
        let answer = CUDA.call("cuMemGetInfo_v2", &[out(&mut free), out(&mut total)]);
        (answer == 0).then_some(free)
    }

    fn slot(&mut self, name: &str) -> &mut u64 {
        self.variables
            .entry(name.to_owned())
            .or_insert_with(|| Box::new(POISON))
    }

    fn address(&mut self, name: &str) -> u64 {
        out(self.slot(name))
    }

    fn value(&mut self, name: &str) -> u64 {
        *self.slot(name)
    }

    fn expression(&mut self, text: &str) -> u64 {
        if let Some(number) = number(text) {
            return number;
        }
        if let Some(inner) = text.strip_prefix('{') {
            return self.structure(inner.trim_end_matches('}'));
        }
        let split = text.find(['+', '-']);
        let (head, offset) = match split {
            Some(at) if text[at..].starts_with('+') => {
                (&text[..at], self.expression(&text[at + 1..]))
            }
            Some(at) => (&text[..at], self.expression(&text[at + 1..]).wrapping_neg()),
            None => (text, 0),
        };
        let base = match head.as_bytes()[0] {
            b'&' => self.address(&head[1..]),
            b'!' => {
                *self.slot(&head[1..]) = POISON;
                self.address(&head[1..])
            }
            b'@' => self.buffers[&head[1..]].0,
            _ => self.value(head),
        };
        base.wrapping_add(offset)
    }

    fn structure(&mut self, text: &str) -> u64 {
        let mut bytes = Vec::new();
        for field in text.split(',') {
            let (kind, rest) = field.split_at(1);
            let size = match kind {
                "q" => 8,
                "d" => 4,
                "w" => 2,
                "b" => 1,
                _ => {
                    bytes.resize(bytes.len() + rest.parse::<usize>().expect("zN"), 0);
                    continue;
                }
            };
            let value = self.expression(rest);
            bytes.extend_from_slice(&value.to_le_bytes()[..size]);
        }
        bytes.resize(bytes.len() + 256, 0);
        self.structures.push(bytes);
        self.structures.last().expect("just pushed").as_ptr() as u64
    }

    fn show(&mut self, text: &str) -> String {
        if text == "used" {
            return match self.free() {
                Some(free) => self
                    .base
                    .cast_signed()
                    .wrapping_sub(free.cast_signed())
                    .to_string(),
                None => "none".into(),
            };
        }
        if let Some(rest) = text.strip_prefix('@') {
            let fields: Vec<&str> = rest.split(':').collect();
            let (start, _) = self.buffers[fields[0]];
            let at: u64 = fields[1].parse().expect("an offset");
            let bytes = bytes_at(start + at, fields[2].parse().expect("a length"));
            return bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        }
        if let Some((name, other)) = text.split_once("==") {
            let same = self.value(name) == self.expression(other);
            return if same { "same" } else { "other" }.into();
        }
        if let Some((name, other)) = text.split_once('%') {
            return (self.value(name) % self.expression(other)).to_string();
        }
        if let Some((name, other)) = text.split_once('-') {
            let difference = self
                .value(name)
                .wrapping_sub(self.expression(other))
                .cast_signed();
            // Of an address and what is none.
            return if difference.unsigned_abs() > 1 << 33 {
                "?".into()
            } else {
                difference.to_string()
            };
        }
        let value = self.value(text);
        match value {
            POISON => "-".into(),
            _ if value >> 32 == POISON >> 32 => {
                let value = (value as u32).cast_signed();
                if text == "fd" && value > 2 {
                    "F".into()
                } else {
                    value.to_string()
                }
            }
            _ if (1 << 36..1 << 57).contains(&value) => "A".into(),
            _ => value.to_string(),
        }
    }

    fn run(&mut self, words: &[&str]) -> String {
        let at = words.iter().position(|word| *word == "->");
        let (call, shows) = words.split_at(at.unwrap_or(words.len()));
        let answer = match call[0] {
            name if name.starts_with("cu") => {
                let words: Vec<u64> = call[1..].iter().map(|word| self.expression(word)).collect();
                CUDA.call_wide(name, &words).to_string()
            }
            "buf" => {
                let size = self.expression(call[2]) as usize;
                let fill = call.get(3).copied().unwrap_or("0");
                let start = fresh_pages(size, |at| match fill {
                    "ramp" => (at % 251) as u8,
                    byte => byte.parse().expect("a byte"),
                });
                self.buffers.insert(call[1].to_owned(), (start, size));
                "ok".into()
            }
            "let" => {
                *self.slot(call[1]) = self.expression(call[2]);
                "ok".into()
            }
            "base" => {
                self.base = self.free().unwrap_or(0);
                "ok".into()
            }
            "close" => {
                let number = self.expression(call[1]) as i32;
                if crate::processes::close(number) {
                    "ok"
                } else {
                    "error:OSError:[Errno_9]_Bad_file_descriptor"
                }
                .into()
            }
            "sleep" => {
                let time = call[1].parse().expect("milliseconds");
                std::thread::sleep(std::time::Duration::from_millis(time));
                "ok".into()
            }
            _ => String::from("ok"),
        };
        let mut line = answer;
        for show in shows.iter().skip(1) {
            line.push(' ');
            line.push_str(&self.show(show));
        }
        line
    }

    /// One request of the coordinator: `run …`, `get x`, `set x value`, `getbuf b`, `setbuf b hex`.
    fn serve(&mut self, request: &Parcel) -> Parcel {
        let words: Vec<&str> = request
            .text
            .split(' ')
            .filter(|word| !word.is_empty())
            .collect();
        let text = match words[0] {
            "run" => self.run(&words[1..]),
            "get" => self.value(words[1]).to_string(),
            "getfd" => {
                let number = self.value(words[1]) as i32;
                return Parcel {
                    text: "ok".into(),
                    descriptor: Some(number),
                };
            }
            "set" => {
                let value = match request.descriptor {
                    Some(number) => number as u64,
                    None => words[2].parse().expect("a number"),
                };
                *self.slot(words[1]) = value;
                "ok".into()
            }
            "getbuf" => {
                let (start, size) = self.buffers[words[1]];
                bytes_at(start, size)
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect()
            }
            _ => {
                let (start, _) = self.buffers[words[1]];
                let hex = words[2].as_bytes().chunks(2);
                for (at, pair) in hex.enumerate() {
                    let byte = u8::from_str_radix(std::str::from_utf8(pair).expect("hex"), 16);
                    crate::processes::write_byte(start + at as u64, byte.expect("hex"));
                }
                "ok".into()
            }
        };
        Parcel {
            text,
            descriptor: None,
        }
    }
}

fn process(world: &str, mode: &str, others: &[&Fork]) -> Fork {
    Fork::start(others, |line| {
        set_environment("RINGFENCE_WORLD", world.as_bytes());
        let mut worker = Worker::start(mode);
        while let Some(request) = line.receive() {
            line.send(&worker.serve(&request));
        }
    })
}

struct Section<'a> {
    name: &'a str,
    mode: &'a str,
    rows: Vec<(&'a str, &'a str)>,
}

fn sections() -> Vec<Section<'static>> {
    let mut sections: Vec<Section<'static>> = Vec::new();
    for line in RECORDED.lines() {
        if let Some(head) = line.strip_prefix('[') {
            let (name, mode) = head.split_once(']').expect("a closing bracket");
            let mode = match mode.trim() {
                "" => "ctx",
                other => other,
            };
            sections.push(Section {
                name,
                mode,
                rows: Vec::new(),
            });
        } else if let Some((call, answer)) = line.split_once(" => ") {
            sections
                .last_mut()
                .expect("a section")
                .rows
                .push((call, answer));
        }
    }
    sections
}

/// Runs a section; answers (line, recorded, answered) of what differs.
fn differing(section: &Section<'_>) -> Vec<(String, String, String)> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("world");
    World::create(
        &path,
        &WorldSpec::new(profile::embedded("h200").expect("embedded")),
    )
    .expect("a world");
    let devices = World::open(&path).expect("just made");
    let world = path.to_str().expect("UTF-8");
    let pair = section.mode == "pair";
    let mode = if pair { "ctx" } else { section.mode };
    let mut a = process(world, mode, &[]);
    // Its baseline is taken before the other one comes.
    a.ask("run show");
    let mut b = pair.then(|| process(world, mode, &[&a]));
    if let Some(b) = &mut b {
        b.ask("run show");
    }
    let mut history: Vec<String> = Vec::new();
    let mut wrong = Vec::new();
    for (line, recorded) in &section.rows {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (second, words) = match words[0] {
            "A:" => (false, &words[1..]),
            "B:" => (true, &words[1..]),
            _ => (false, &words[..]),
        };
        let answered = match words[0] {
            "give" | "givebuf" | "givefd" => {
                let other = b.as_mut().expect("two processes");
                hand_over(words, &mut a, other)
            }
            "kill" => {
                a.kill();
                "ok".into()
            }
            "end" => {
                a.end();
                "ok".into()
            }
            _ => {
                let one = if second {
                    b.as_mut().expect("two processes")
                } else {
                    &mut a
                };
                one.ask(&format!("run {}", words.join(" ")))
            }
        };
        if !pair && (a.is_gone() || STICKY.contains(&answered.split(' ').next().unwrap_or(""))) {
            a.kill();
            // The next one begins on a device that holds nothing.
            let began = std::time::Instant::now();
            while devices.used(DeviceIndex(0)) > Bytes::ZERO {
                assert!(began.elapsed().as_secs() < 60, "a dead player holds on");
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            a = process(world, mode, &[]);
            for done in &history {
                a.ask(&format!("run {done}"));
            }
        } else {
            history.push(words.join(" "));
        }
        if answered != *recorded {
            wrong.push((line.to_string(), recorded.to_string(), answered));
        }
    }
    wrong
}

fn hand_over(words: &[&str], a: &mut Fork, b: &mut Fork) -> String {
    let name = |word: &str| word.split_once('.').expect("process.name").1.to_owned();
    let (from, to) = (name(words[1]), name(words[2]));
    match words[0] {
        "give" => {
            let value = a.ask(&format!("get {from}"));
            b.ask(&format!("set {to} {value}"))
        }
        "givebuf" => {
            let value = a.ask(&format!("getbuf {from}"));
            b.ask(&format!("setbuf {to} {value}"))
        }
        _ => {
            let answer = a.request(&Parcel {
                text: format!("getfd {from}"),
                descriptor: None,
            });
            let Some(Parcel {
                descriptor: Some(number),
                ..
            }) = answer
            else {
                return "nofd".into();
            };
            let given = b.request(&Parcel {
                text: format!("set {to}"),
                descriptor: Some(number),
            });
            crate::processes::close(number);
            given.map_or_else(|| "gone".into(), |parcel| parcel.text)
        }
    }
}

#[test]
fn memory_answers_call_by_call_as_the_card_did() {
    let mut score = Score::default();
    for section in sections() {
        let wrong = differing(&section);
        let right = section.rows.len() - wrong.len();
        println!("{}: {right} of {}", section.name, section.rows.len());
        score.checked += section.rows.len();
        for (line, recorded, answered) in wrong {
            let entry = line.trim_start_matches("A: ").trim_start_matches("B: ");
            let entry = entry.split(' ').next().unwrap_or("");
            let name = section.name;
            let row = format!("[{name}] {entry}: {line}: {answered}, recorded {recorded}");
            score.wrong.push(row);
        }
    }
    assert!(score.checked > 2500);
    score.all_but("memory, call by call", DIFFERENT);
}

#[test]
fn memory_that_another_process_uses_is_refused_until_that_process_is_killed() {
    const MIB: u64 = 1 << 20;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("world");
    let machine = profile::embedded("h200").expect("embedded");
    let most = machine.devices[0].cuda_total.0 / 10 * 9 / (2 * MIB) * (2 * MIB);
    World::create(&path, &WorldSpec::new(machine)).expect("a world");
    let world = path.to_str().expect("UTF-8");
    let mut holder = process(world, "ctx", &[]);
    let take = format!("run cuMemAlloc_v2 !p {most}");
    assert_eq!(holder.ask(&take), "0");
    let mut other = process(world, "ctx", &[&holder]);
    let wanted = format!("run cuMemAlloc_v2 !p {}", most / 4);
    assert_eq!(other.ask(&wanted), "2", "nine tenths are the first one's");
    holder.kill();
    let began = std::time::Instant::now();
    while other.ask(&wanted) != "0" {
        assert!(
            began.elapsed().as_secs() < 60,
            "the dead one's memory never came back"
        );
    }
}
