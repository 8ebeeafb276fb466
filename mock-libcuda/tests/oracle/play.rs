//! Plays recorded scripts of calls on streams, events, captures and graphs, and compares the answers line by line.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use mock_device::{World, WorldSpec, profile};

use crate::boundary::{Ended, in_child, set_environment};
use crate::play_boundary::{host_functions, peek, poke};
use crate::processes::{Fork, Parcel};
use crate::score::Score;
use crate::{CUDA, out};

const STREAMS: &str = include_str!("../../../fixtures/oracle/cuda-streams-580.txt");
const FAULTS_AND_NODES: &str = include_str!("../../../fixtures/oracle/cuda-faults-nodes-580.txt");

/// One line of a case: what is done, what the card answered, and why the mock may answer otherwise.
struct Line {
    act: String,
    answer: String,
    excuse: Option<String>,
}

struct Case {
    name: String,
    lines: Vec<Line>,
}

struct Script {
    texts: HashMap<String, String>,
    prelude: Vec<String>,
    cases: Vec<Case>,
}

fn read_line(line: &str) -> Line {
    let (line, excuse) = match line.split_once(" ~ ") {
        Some((line, excuse)) => (line, Some(excuse.to_owned())),
        None => (line, None),
    };
    let (act, answer) = line.split_once(" -> ").unwrap_or((line, "0"));
    Line {
        act: act.to_owned(),
        answer: answer.to_owned(),
        excuse,
    }
}

/// Puts a starred call between the lines about it.
fn surround(around: &[String], line: &str) -> Vec<Line> {
    let starred = read_line(line);
    let at = around.iter().position(|line| line == "CALL").expect("CALL");
    let mut answers = starred.answer.split(" | ").map(str::to_owned);
    let mut lines: Vec<Line> = around[..at].iter().map(|line| silent(line)).collect();
    for act in std::iter::once(&starred.act).chain(&around[at + 1..]) {
        lines.push(Line {
            act: act.clone(),
            answer: answers.next().expect("an answer"),
            excuse: starred.excuse.clone(),
        });
    }
    lines
}

fn silent(act: &str) -> Line {
    Line {
        act: act.to_owned(),
        answer: String::new(),
        excuse: None,
    }
}

fn parse(script: &str) -> Script {
    let text = script;
    let mut script = Script {
        texts: HashMap::new(),
        prelude: Vec::new(),
        cases: Vec::new(),
    };
    let mut around = Vec::new();
    let mut lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("define ") {
            let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "end").collect();
            script.texts.insert(name.to_owned(), text.join("\n") + "\n");
        } else if let Some(name) = line.strip_prefix('[') {
            script.cases.push(Case {
                name: name.trim_end_matches(']').to_owned(),
                lines: Vec::new(),
            });
        } else if line == "around" {
            around = lines
                .by_ref()
                .take_while(|line| *line != "end")
                .map(str::to_owned)
                .collect();
        } else if let Some(case) = script
            .cases
            .last_mut()
            .filter(|case| case.name != "prelude")
        {
            match line.strip_prefix("* ") {
                Some(line) => case.lines.extend(surround(&around, line)),
                None => case.lines.push(read_line(line)),
            }
        } else {
            script.prelude.push(line.to_owned());
        }
    }
    script.cases.retain(|case| case.name != "prelude");
    script
}

/// A thread that calls what it is given.
struct Second {
    calls: mpsc::Sender<(String, Vec<u64>)>,
    answers: mpsc::Receiver<u32>,
}

impl Second {
    fn start() -> Second {
        let (calls, received) = mpsc::channel::<(String, Vec<u64>)>();
        let (answer, answers) = mpsc::channel();
        std::thread::spawn(move || {
            for (name, words) in received {
                let _ = answer.send(CUDA.call(&name, &words));
            }
        });
        Second { calls, answers }
    }
}

/// What the script's names stand for, in one child.
struct Player<'a> {
    texts: &'a HashMap<String, String>,
    variables: HashMap<String, Box<u64>>,
    buffers: HashMap<String, Box<[u8]>>,
    strings: Vec<Box<[u8]>>,
    free: u64,
    second: Option<Second>,
    peer: Option<Fork>,
}

impl Player<'_> {
    fn new(texts: &HashMap<String, String>) -> Player<'_> {
        Player {
            texts,
            variables: HashMap::new(),
            buffers: HashMap::new(),
            strings: Vec::new(),
            free: 0,
            second: None,
            peer: None,
        }
    }

    fn variable(&mut self, name: &str) -> &mut u64 {
        self.variables.entry(name.to_owned()).or_default()
    }

    fn buffer(&self, spelled: &str) -> (u64, usize) {
        let (name, offset) = spelled.split_once('+').unwrap_or((spelled, "0"));
        let offset: usize = offset.parse().expect("an offset");
        let buffer = self
            .buffers
            .get(name)
            .unwrap_or_else(|| panic!("no buffer {name}"));
        (
            buffer.as_ptr() as u64 + offset as u64,
            buffer.len().saturating_sub(offset),
        )
    }

    fn word(&mut self, spelled: &str) -> u64 {
        match spelled.split_at(1) {
            ("$", name) => *self.variable(name),
            ("&", name) => out(self.variable(name)),
            ("%", name) => self.buffer(name).0,
            ("@", name) => host_functions(name),
            ("'", text) => {
                let bytes = [text.trim_end_matches('\'').as_bytes(), &[0]].concat();
                self.strings.push(bytes.into());
                self.strings.last().expect("just pushed").as_ptr() as u64
            }
            _ => match (spelled.strip_prefix("0x"), spelled.strip_prefix('-')) {
                (Some(hex), _) => u64::from_str_radix(hex, 16).expect("a number"),
                (_, Some(negative)) => negative.parse::<u64>().expect("a number").wrapping_neg(),
                _ => spelled.parse().expect("a number"),
            },
        }
    }

    /// The eight bytes that a name of an answer stands for.
    fn bytes(&mut self, name: &str) -> [u8; 8] {
        match name.strip_prefix('%') {
            Some(buffer) => {
                let (name, offset) = buffer.split_once('+').unwrap_or((buffer, "0"));
                let offset: usize = offset.parse().expect("an offset");
                let mut bytes = [0; 8];
                let from = &self.buffers[name][offset..];
                let len = from.len().min(8);
                bytes[..len].copy_from_slice(&from[..len]);
                bytes
            }
            None => self.variable(name).to_le_bytes(),
        }
    }

    fn value(&mut self, spelled: &str) -> String {
        let (name, kind) = spelled.split_once(':').unwrap_or((spelled, "u64"));
        let bytes = self.bytes(name);
        let four = [bytes[0], bytes[1], bytes[2], bytes[3]];
        match kind {
            "nz" if bytes == [0; 8] => "0".to_owned(),
            "nz" => "set".to_owned(),
            "u8" => bytes[0].to_string(),
            "u32" => u32::from_le_bytes(four).to_string(),
            "i32" => i32::from_le_bytes(four).to_string(),
            "f32" => format!("{:.3}", f32::from_le_bytes(four)),
            _ => u64::from_le_bytes(bytes).to_string(),
        }
    }

    /// Makes a call by whatever makes calls, and reads what is asked of it.
    fn call(
        &mut self,
        words: &[&str],
        by: impl FnOnce(&mut Self, &str, &[u64]) -> String,
    ) -> String {
        let at = words
            .iter()
            .position(|word| *word == "=>")
            .unwrap_or(words.len());
        let arguments: Vec<u64> = words[1..at].iter().map(|word| self.word(word)).collect();
        let mut answer = by(self, words[0], &arguments);
        for asked in words.iter().skip(at + 1) {
            answer += " ";
            answer += &self.value(asked);
        }
        answer
    }

    fn here(&mut self, words: &[&str]) -> String {
        self.call(words, |_, name, arguments| {
            CUDA.call(name, arguments).to_string()
        })
    }

    fn free_memory(&mut self) -> u64 {
        let mut free = 0u64;
        CUDA.call("cuMemGetInfo_v2", &[out(&mut free), 0]);
        free
    }

    fn put(&mut self, words: &[&str]) {
        let value = match words[3] {
            "f32" => u64::from(words[4].parse::<f32>().expect("a number").to_bits()),
            _ => self.word(words[4]),
        };
        let size = match words[3] {
            "u8" => 1,
            "u64" => 8,
            _ => 4,
        };
        let offset: usize = words[2].parse().expect("an offset");
        poke(
            self.buffer(words[1]).0 + offset as u64,
            &value.to_le_bytes()[..size],
        );
    }

    /// Does one line; `None` where it has no answer.
    fn play(&mut self, line: &str) -> Option<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[0] {
            "buf" => {
                let len: usize = words[2].parse().expect("a size");
                self.buffers
                    .insert(words[1].to_owned(), vec![0; len].into());
            }
            "text" => {
                let bytes = [self.texts[words[2]].as_bytes(), &[0]].concat();
                self.buffers.insert(words[1].to_owned(), bytes.into());
            }
            "put" => self.put(&words),
            "let" => *self.variable(words[1]) = self.word(words[2]),
            "load" => {
                let bytes = self.bytes(&format!("%{}+{}", words[2], words[3]));
                *self.variable(words[1]) = u64::from_le_bytes(bytes);
            }
            "same" => {
                let same = *self.variable(words[1]) == *self.variable(words[2]);
                return Some(same.to_string());
            }
            "show" => {
                let values: Vec<String> =
                    words[1..].iter().map(|asked| self.value(asked)).collect();
                return Some(values.join(" "));
            }
            "mem" => {
                let now = self.free_memory();
                let less = self.free as i64 - now as i64;
                self.free = now;
                return (words.len() > 1).then(|| less.to_string());
            }
            "peek" => {
                let address = self.word(words[2]) + 8 * words[3].parse::<u64>().expect("a number");
                *self.variable(words[1]) = peek(address);
            }
            "p2" => return self.ask_peer(&line[3..]),
            "give" => {
                let bytes = self.buffers[words[1]].clone();
                self.ask_peer(&format!("put-all {} {}", words[1], spell(&bytes)));
            }
            "take" => {
                let spelled = self.ask_peer(&format!("spell {}", words[1]));
                let bytes = unspell(&spelled.expect("a buffer"));
                self.buffers.insert(words[1].to_owned(), bytes.into());
            }
            "put-all" => {
                let bytes = unspell(words[2]);
                self.buffers.insert(words[1].to_owned(), bytes.into());
            }
            "spell" => return Some(spell(&self.buffers[words[1]])),
            "p2kill" => self.peer.as_mut().expect("a second process").kill(),
            "sleep" => std::thread::sleep(Duration::from_millis(words[1].parse().expect("ms"))),
            "repeat" => {
                let count: u32 = words[1].parse().expect("a count");
                return (0..count).map(|_| self.here(&words[2..])).last();
            }
            "timed" => {
                let started = Instant::now();
                let answer = self.here(&words[1..]);
                let waited = started.elapsed() > Duration::from_millis(100);
                return Some(answer + if waited { " waited" } else { " at-once" });
            }
            "t2" => return Some(self.call(&words[1..], Self::on_second_thread)),
            "fork" => return Some(self.call(&words[1..], from_fork_child)),
            "byvalue" => {
                let structure = self.bytes_of(words[3]);
                let by = |_: &mut Self, name: &str, arguments: &[u64]| {
                    let mut all = vec![arguments[0], 0, 0, 0, 0, 0];
                    all.extend(structure);
                    CUDA.call(name, &all).to_string()
                };
                return Some(self.call(&words[1..], by));
            }
            _ => return Some(self.here(&words)),
        }
        None
    }

    /// Has the second process do a line.
    fn ask_peer(&mut self, line: &str) -> Option<String> {
        let answer = self.peer.as_mut().expect("a second process").ask(line);
        (answer != NO_ANSWER).then_some(answer)
    }

    /// A structure of 64 bytes as the words that lie on the stack.
    fn bytes_of(&mut self, name: &str) -> [u64; 8] {
        let mut at = 0;
        [(); 8].map(|()| {
            at += 8;
            u64::from_le_bytes(self.bytes(&format!("{name}+{}", at - 8)))
        })
    }

    fn on_second_thread(&mut self, name: &str, arguments: &[u64]) -> String {
        let second = self.second.get_or_insert_with(Second::start);
        second
            .calls
            .send((name.to_owned(), arguments.to_vec()))
            .expect("the thread lives");
        match second.answers.recv_timeout(Duration::from_secs(8)) {
            Ok(code) => code.to_string(),
            Err(_) => "hung".to_owned(),
        }
    }
}

fn from_fork_child(player: &mut Player, name: &str, arguments: &[u64]) -> String {
    let mut seen = player
        .variables
        .values()
        .map(|value| **value)
        .fold(0, u64::wrapping_add);
    let ended = in_child(|| {
        let code = CUDA.call(name, arguments);
        let now = player
            .variables
            .values()
            .map(|value| **value)
            .fold(0, u64::wrapping_add);
        u64::from(code) | u64::from(now != seen) << 32
    });
    seen = 0;
    *player.variable("x") = seen;
    match ended {
        Ended::Answered(answer) => {
            *player.variable("x") = answer >> 32;
            (answer as u32).to_string()
        }
        Ended::Died(signal) => format!("died {signal}"),
        Ended::Hung => "hung".to_owned(),
    }
}

const NO_ANSWER: &str = "-";

fn spell(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unspell(text: &str) -> Vec<u8> {
    let digits = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("two digits");
    (0..text.len()).step_by(2).map(digits).collect()
}

/// A process that plays what the first one sends it.
fn start_peer(script: &Script) -> Fork {
    Fork::start(&[], |line| {
        let mut player = Player::new(&script.texts);
        let mut ready = false;
        while let Some(request) = line.receive() {
            if !ready {
                script.prelude.iter().for_each(|line| {
                    player.play(line);
                });
                ready = true;
            }
            let text = player.play(&request.text);
            line.send(&Parcel {
                text: text.unwrap_or_else(|| NO_ANSWER.to_owned()),
                descriptor: None,
            });
        }
    })
}

fn needs_peer(line: &Line) -> bool {
    ["p2 ", "give ", "take "]
        .iter()
        .any(|start| line.act.starts_with(start))
}

/// Plays a case in a child: the answers that it got to, and how it ended.
fn play(script: &Script, case: &Case) -> (Vec<(usize, String)>, Ended) {
    let folder = tempfile::tempdir().expect("a folder");
    let world = folder.path().join("world");
    let machine = profile::embedded("h200").expect("embedded");
    World::create(&world, &WorldSpec::new(machine)).expect("a world");
    let world = world.to_str().expect("UTF-8");
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    let ended = in_child(|| {
        set_environment("RINGFENCE_WORLD", world.as_bytes());
        let mut player = Player::new(&script.texts);
        if case.lines.iter().any(needs_peer) {
            player.peer = Some(start_peer(script));
        }
        for line in &script.prelude {
            player.play(line);
        }
        for (at, line) in case.lines.iter().enumerate() {
            if let Some(answer) = player.play(&line.act) {
                writeln!(writer, "{at} {answer}").expect("the reader lives");
            }
        }
        0
    });
    drop(writer);
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("text");
    let answers = text.lines().map(|line| {
        let (at, answer) = line.split_once(' ').expect("number and answer");
        (at.parse().expect("a number"), answer.to_owned())
    });
    (answers.collect(), ended)
}

/// The rows of a case that are answered otherwise, each with the answer. A row that waits, or must not, depends on when it is
/// played: what differs without a reason is played again, and counts if it differs every time.
fn differing(script: &Script, case: &Case) -> BTreeMap<usize, String> {
    const PLAYS: usize = 5;
    let mut differing: Option<BTreeMap<usize, String>> = None;
    for _ in 0..PLAYS {
        let (answers, ended) = play(script, case);
        let answers: HashMap<usize, String> = answers.into_iter().collect();
        let died = match ended {
            Ended::Died(signal) => format!("died {signal}"),
            Ended::Answered(_) => "not played".to_owned(),
            Ended::Hung => "hung".to_owned(),
        };
        let rows = case.lines.iter().enumerate();
        let now: BTreeMap<usize, String> = rows
            .filter(|(_, line)| line.is_compared())
            .map(|(at, _)| (at, answers.get(&at).unwrap_or(&died).clone()))
            .filter(|(at, answer)| *answer != case.lines[*at].answer)
            .collect();
        let always = match differing.take() {
            None => now,
            Some(before) => before
                .into_iter()
                .filter(|(at, _)| now.contains_key(at) || case.lines[*at].excuse.is_some())
                .collect(),
        };
        let settled = always.keys().all(|at| case.lines[*at].excuse.is_some());
        differing = Some(always);
        if settled {
            break;
        }
    }
    differing.unwrap_or_default()
}

/// Compares a whole script: no row may differ without a reason, and no reason stand at a row that does not differ, unless it
/// says that the row may.
fn compare(name: &str, script: &str) {
    let script = parse(script);
    let (mut checked, mut wrong) = (0, Vec::new());
    let (mut without_reason, mut without_row) = (Vec::new(), Vec::new());
    for case in &script.cases {
        let differing = differing(&script, case);
        for (at, line) in case.lines.iter().enumerate() {
            if !line.is_compared() {
                continue;
            }
            checked += 1;
            let row = |answer: &str| {
                let card = &line.answer;
                format!("[{}] {}: {answer}, the card {card}", case.name, line.act)
            };
            match (&line.excuse, differing.get(&at)) {
                (Some(reason), Some(answer)) => wrong.push(format!("{} ({reason})", row(answer))),
                (None, Some(answer)) => {
                    without_reason.push(row(answer));
                    wrong.push(row(answer));
                }
                (Some(reason), None) if !reason.starts_with("may: ") => {
                    without_row.push(row("the same"));
                }
                (_, None) => {}
            }
        }
    }
    let score = Score {
        checked,
        wrong,
        ..Score::default()
    };
    score.say(name);
    let none: Vec<String> = Vec::new();
    assert_eq!(without_reason, none, "rows that differ without a reason");
    assert_eq!(without_row, none, "reasons of rows that do not differ");
}

impl Line {
    fn is_compared(&self) -> bool {
        !self.answer.is_empty() && asks(&self.act)
    }
}

#[test]
fn streams_events_captures_and_graphs_answer_as_the_card_did() {
    compare("calls on streams, events, captures and graphs", STREAMS);
}

#[test]
fn faults_conditional_nodes_semaphores_and_interprocess_events_answer_as_the_card_did() {
    compare(
        "faults, conditional nodes, semaphores and interprocess events",
        FAULTS_AND_NODES,
    );
}

/// Whether a line has an answer.
fn asks(act: &str) -> bool {
    let act = act.strip_prefix("p2 ").unwrap_or(act);
    let first = act.split_whitespace().next().unwrap_or("");
    let silent = [
        "buf", "text", "put", "let", "load", "sleep", "peek", "give", "take", "p2kill",
    ];
    !silent.contains(&first) && act != "mem"
}
