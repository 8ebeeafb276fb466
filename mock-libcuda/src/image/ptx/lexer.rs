//! PTX as tokens.

use super::super::Refusal;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Token<'a> {
    /// `name`, `%r1`, `$label`
    Word(&'a str),
    /// `.entry`, `.u32`, `.L2::128B`, without its dot.
    Dot(&'a str),
    /// As written: `42`, `0x1fU`, `0f3f800000`, `7.0`, `1e-3`
    Number(&'a str),
    Text(&'a [u8]),
    Mark(u8),
    End,
}

pub struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    pub line: u32,
}

fn starts_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$' | b'%')
}

fn continues_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$')
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a [u8]) -> Lexer<'a> {
        Lexer {
            text,
            at: 0,
            line: 1,
        }
    }

    fn error(&self, problem: &str) -> Refusal {
        Refusal::Ptx {
            line: self.line,
            fatal: true,
            problem: format!("Parsing error near '': {problem}"),
        }
    }

    fn byte(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn skip_blanks(&mut self) -> Result<(), Refusal> {
        loop {
            match (self.byte(0), self.byte(1)) {
                (b'\n', _) => {
                    self.line += 1;
                    self.at += 1;
                }
                (b' ' | b'\t' | b'\r' | 0x0b | 0x0c, _) => self.at += 1,
                (b'/', b'/') => {
                    while self.at < self.text.len() && self.byte(0) != b'\n' {
                        self.at += 1;
                    }
                }
                (b'/', b'*') => {
                    self.at += 2;
                    while (self.byte(0), self.byte(1)) != (b'*', b'/') {
                        if self.at >= self.text.len() {
                            return Err(self.error("unexpected EOF while scanning"));
                        }
                        self.line += u32::from(self.byte(0) == b'\n');
                        self.at += 1;
                    }
                    self.at += 2;
                }
                _ => return Ok(()),
            }
        }
    }

    /// The bytes from `from` to here; ASCII by construction.
    fn since(&self, from: usize) -> &'a str {
        std::str::from_utf8(&self.text[from..self.at]).unwrap_or("?")
    }

    fn run(&mut self, wanted: fn(u8) -> bool) {
        while self.at < self.text.len() && wanted(self.byte(0)) {
            self.at += 1;
        }
    }

    pub fn next(&mut self) -> Result<Token<'a>, Refusal> {
        self.skip_blanks()?;
        let from = self.at;
        if from >= self.text.len() {
            return Ok(Token::End);
        }
        let byte = self.byte(0);
        self.at += 1;
        Ok(match byte {
            b'.' if self.byte(0).is_ascii_alphanumeric() || self.byte(0) == b'_' => {
                self.run(continues_word);
                while (self.byte(0), self.byte(1)) == (b':', b':') && continues_word(self.byte(2)) {
                    self.at += 2;
                    self.run(continues_word);
                }
                Token::Dot(&self.since(from)[1..])
            }
            b'"' => {
                self.run(|byte| byte != b'"' && byte != b'\n');
                if self.byte(0) != b'"' {
                    return Err(self.error("unexpected EOF while scanning"));
                }
                self.at += 1;
                Token::Text(&self.text[from + 1..self.at - 1])
            }
            byte if starts_word(byte) => {
                self.run(continues_word);
                Token::Word(self.since(from))
            }
            byte if byte.is_ascii_digit() => {
                self.number(from);
                Token::Number(self.since(from))
            }
            byte if byte.is_ascii_graphic() => Token::Mark(byte),
            _ => return Err(self.error("syntax error")),
        })
    }

    fn number(&mut self, from: usize) {
        self.run(|byte| byte.is_ascii_alphanumeric());
        let prefixed = self.text[from] == b'0'
            && self
                .text
                .get(from + 1)
                .is_some_and(|byte| byte.is_ascii_alphabetic());
        if prefixed {
            return;
        }
        if self.byte(0) == b'.' && (self.byte(1).is_ascii_digit() || !starts_word(self.byte(1))) {
            self.at += 1;
            self.run(|byte| byte.is_ascii_alphanumeric());
        }
        let exponent = matches!(self.text[self.at - 1], b'e' | b'E');
        if exponent && matches!(self.byte(0), b'+' | b'-') {
            self.at += 1;
            self.run(|byte| byte.is_ascii_digit());
        }
    }
}
