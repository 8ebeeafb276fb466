//! Bodies of functions: what they declare, name and call.

use std::collections::{HashMap, HashSet};

use super::super::Refusal;
use super::cursor::Cursor;
use super::declaration;
use super::hazard::{self, Hazard};
use super::language;
use super::lexer::Token;
use super::liveness::Liveness;

/// What a function's body says of its needs; names are those of the module.
#[derive(Debug, Default)]
pub struct Body<'a> {
    pub local: u64,
    pub shared: u64,
    pub instructions: u32,
    /// Registers, as 32-bit words that are live at once.
    pub registers: u32,
    pub hazards: Vec<Hazard>,
    /// Names outside the body that it uses, with the line of their first use.
    pub uses: HashMap<&'a str, u32>,
}

#[derive(Default)]
struct Reader<'a> {
    body: Body<'a>,
    /// Declared inside: variables and labels.
    names: HashSet<&'a str>,
    labels: HashMap<&'a str, u32>,
    branches: Vec<(u32, &'a str, u32)>,
    registers: HashMap<&'a str, u32>,
    /// `%r<4>`: prefix → (count, words).
    families: HashMap<&'a str, (u32, u32)>,
    liveness: Liveness<'a>,
    hazards: hazard::Reader<'a>,
}

/// Reads from the opening brace to behind the closing one. `params` are the names that the head declares, `outside`
/// tells whether the module knows a name.
pub fn read<'a>(
    cursor: &mut Cursor<'a>,
    params: &[(&'a str, bool, u32)],
    outside: impl Fn(&str) -> bool,
) -> Result<Body<'a>, Refusal> {
    let mut reader = Reader {
        hazards: hazard::Reader::new(params.iter().map(|(name, _, _)| *name)),
        ..Reader::default()
    };
    for &(name, is_register, size) in params {
        if is_register {
            reader.registers.insert(name, words(size));
        }
        reader.names.insert(name);
    }
    reader.statements(cursor)?;
    reader.finish(outside)
}

fn words(bytes: u32) -> u32 {
    match bytes {
        1 => 0,
        bytes => bytes.div_ceil(4),
    }
}

impl<'a> Reader<'a> {
    fn statements(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Refusal> {
        cursor.expect(b'{')?;
        let mut depth = 1u32;
        while depth > 0 {
            match cursor.token {
                Token::Mark(b'{') => {
                    cursor.take()?;
                    depth += 1;
                }
                Token::Mark(b'}') => {
                    cursor.take()?;
                    depth -= 1;
                }
                Token::Mark(b';') => {
                    cursor.take()?;
                }
                Token::Dot(name) => {
                    cursor.take()?;
                    self.directive(cursor, name)?;
                }
                Token::Mark(b'@') => {
                    cursor.take()?;
                    cursor.skip(b'!')?;
                    let line = cursor.line;
                    let predicate = cursor.word()?;
                    self.operand(predicate, line)?;
                    let opcode = cursor.word()?;
                    self.instruction(cursor, opcode, true)?;
                }
                Token::Word(word) => {
                    cursor.take()?;
                    if cursor.skip(b':')? {
                        self.names.insert(word);
                        self.labels.insert(word, self.body.instructions);
                        self.hazards.label();
                    } else {
                        self.instruction(cursor, word, false)?;
                    }
                }
                _ => return cursor.unexpected(),
            }
        }
        Ok(())
    }

    fn directive(&mut self, cursor: &mut Cursor<'a>, name: &str) -> Result<(), Refusal> {
        match name {
            "reg" => {
                for register in declaration::variables(cursor)? {
                    match register.count {
                        Some(count) => {
                            self.families
                                .insert(register.name, (count, words(register.element)));
                        }
                        None => {
                            self.registers
                                .insert(register.name, words(register.element));
                        }
                    }
                }
            }
            "local" | "shared" | "param" | "global" | "const" => {
                for variable in declaration::variables(cursor)? {
                    self.names.insert(variable.name);
                    let end = match name {
                        "local" => &mut self.body.local,
                        "shared" => &mut self.body.shared,
                        _ => continue,
                    };
                    *end = end
                        .checked_next_multiple_of(variable.align.max(1))
                        .unwrap_or(u64::MAX)
                        .saturating_add(variable.size);
                }
            }
            "loc" => location(cursor)?,
            "section" => section(cursor)?,
            "pragma" | "branchtargets" | "calltargets" | "callprototype" => {
                cursor.skip_statement()?;
            }
            _ => return Err(cursor.error(format!("Unknown directive '.{name}'"))),
        }
        Ok(())
    }

    /// Everything behind an opcode's first word, to the semicolon.
    fn instruction(
        &mut self,
        cursor: &mut Cursor<'a>,
        opcode: &str,
        predicated: bool,
    ) -> Result<(), Refusal> {
        if !language::is_instruction(opcode) {
            return Err(cursor.error(format!("Not a name of any known instruction: '{opcode}'")));
        }
        let mut open: Vec<u8> = Vec::new();
        let mut first = true;
        let mut rest = Vec::new();
        loop {
            let line = cursor.line;
            match cursor.token {
                Token::Mark(b';') if open.is_empty() => break,
                Token::Mark(mark @ (b'{' | b'(' | b'[')) => open.push(mark),
                Token::Mark(mark @ (b'}' | b')' | b']')) => {
                    let opens = match mark {
                        b'}' => b'{',
                        b')' => b'(',
                        _ => b'[',
                    };
                    if open.pop() != Some(opens) {
                        return cursor.unexpected();
                    }
                }
                Token::Mark(b';') | Token::End => return cursor.unexpected(),
                Token::Word(word) => {
                    if first && opcode == "bra" {
                        self.branches.push((self.body.instructions, word, line));
                    }
                    first = false;
                    self.operand(word, line)?;
                }
                _ => {}
            }
            rest.push(cursor.token);
            cursor.take()?;
        }
        cursor.take()?;
        self.hazards.instruction(opcode, &rest, predicated);
        self.body.instructions = self.body.instructions.saturating_add(1);
        Ok(())
    }

    fn operand(&mut self, word: &'a str, line: u32) -> Result<(), Refusal> {
        if let Some(words) = self.register(word) {
            self.liveness.met(word, words, self.body.instructions);
        } else if word.starts_with('%') && !self.names.contains(word) {
            if !language::is_special_register(word) {
                return Err(unknown(word, line));
            }
        } else if !matches!(word, "_" | "WARP_SZ") {
            self.body.uses.entry(word).or_insert(line);
        }
        Ok(())
    }

    /// The words of a declared register.
    fn register(&self, word: &str) -> Option<u32> {
        if let Some(words) = self.registers.get(word) {
            return Some(*words);
        }
        let digits = word.bytes().rev().take_while(u8::is_ascii_digit).count();
        (1..=digits).find_map(|taken| {
            let (prefix, number) = word.split_at(word.len() - taken);
            let (count, words) = self.families.get(prefix)?;
            (number.parse::<u32>().ok()? < *count).then_some(*words)
        })
    }

    fn finish(mut self, outside: impl Fn(&str) -> bool) -> Result<Body<'a>, Refusal> {
        for (from, label, line) in &self.branches {
            match self.labels.get(label) {
                Some(to) => self.liveness.branch(*from, *to),
                None => return Err(unknown(label, *line)),
            }
        }
        self.body.uses.retain(|name, _| !self.names.contains(name));
        let mut missing: Vec<_> = self
            .body
            .uses
            .iter()
            .filter(|(name, _)| !outside(name))
            .collect();
        missing.sort_by_key(|(name, line)| (**line, **name));
        if let Some((name, line)) = missing.first() {
            return Err(unknown(name, **line));
        }
        self.body.registers = self.liveness.peak();
        self.body.hazards = self.hazards.hazards();
        Ok(self.body)
    }
}

fn unknown(name: &str, line: u32) -> Refusal {
    Refusal::Ptx {
        line,
        fatal: false,
        problem: format!("Unknown symbol '{name}'"),
    }
}

/// `.loc 1 10 3`, `.loc 1 10 3, function_name $L, inlined_at 1 8 2`: it has no semicolon.
pub fn location(cursor: &mut Cursor<'_>) -> Result<(), Refusal> {
    for _ in 0..3 {
        cursor.count()?;
    }
    while cursor.skip(b',')? {
        let word = cursor.word()?;
        match word {
            "function_name" => {
                cursor.word()?;
                if cursor.skip(b'+')? {
                    cursor.count()?;
                }
            }
            "inlined_at" => {
                for _ in 0..3 {
                    cursor.count()?;
                }
            }
            _ => return cursor.unexpected(),
        }
    }
    Ok(())
}

/// `.section .debug_info { … }`
pub fn section(cursor: &mut Cursor<'_>) -> Result<(), Refusal> {
    match cursor.token {
        Token::Dot(_) | Token::Word(_) => cursor.take()?,
        _ => return cursor.unexpected(),
    };
    cursor.skip_block(b'{', b'}')
}
