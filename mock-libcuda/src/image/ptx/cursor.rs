//! One token of look-ahead, and the small steps that every production takes.

use super::super::Refusal;
use super::lexer::{Lexer, Token};

pub struct Cursor<'a> {
    lexer: Lexer<'a>,
    pub token: Token<'a>,
    /// Where `token` stands.
    pub line: u32,
    /// Where the token before it stood.
    taken_line: u32,
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a [u8]) -> Result<Cursor<'a>, Refusal> {
        let mut lexer = Lexer::new(text);
        let token = lexer.next()?;
        let line = lexer.line;
        Ok(Cursor {
            lexer,
            token,
            line,
            taken_line: line,
        })
    }

    /// Something wrong in what was read.
    pub fn error(&self, problem: impl Into<String>) -> Refusal {
        Refusal::Ptx {
            line: self.taken_line,
            fatal: false,
            problem: problem.into(),
        }
    }

    /// Something wrong after which nothing can be read.
    pub fn fatal(&self, problem: impl Into<String>) -> Refusal {
        Refusal::Ptx {
            line: self.line,
            fatal: true,
            problem: problem.into(),
        }
    }

    pub fn unexpected<T>(&self) -> Result<T, Refusal> {
        let met = match self.token {
            Token::Word(text) | Token::Number(text) => text.to_owned(),
            Token::Dot(text) => format!(".{text}"),
            Token::Text(_) => "\"".to_owned(),
            Token::Mark(mark) => char::from(mark).to_string(),
            Token::End => String::new(),
        };
        Err(self.fatal(format!("Parsing error near '{met}': syntax error")))
    }

    /// Steps on; what stood here.
    pub fn take(&mut self) -> Result<Token<'a>, Refusal> {
        let taken = self.token;
        self.taken_line = self.line;
        self.token = self.lexer.next()?;
        self.line = self.lexer.line;
        Ok(taken)
    }

    pub fn at(&self, mark: u8) -> bool {
        self.token == Token::Mark(mark)
    }

    /// Steps over a mark, if it stands here.
    pub fn skip(&mut self, mark: u8) -> Result<bool, Refusal> {
        let here = self.at(mark);
        if here {
            self.take()?;
        }
        Ok(here)
    }

    pub fn expect(&mut self, mark: u8) -> Result<(), Refusal> {
        if self.skip(mark)? {
            Ok(())
        } else {
            self.unexpected()
        }
    }

    pub fn skip_dot(&mut self, name: &str) -> Result<bool, Refusal> {
        let here = self.token == Token::Dot(name);
        if here {
            self.take()?;
        }
        Ok(here)
    }

    pub fn word(&mut self) -> Result<&'a str, Refusal> {
        match self.token {
            Token::Word(word) => self.take().map(|_| word),
            _ => self.unexpected(),
        }
    }

    pub fn dot(&mut self) -> Result<&'a str, Refusal> {
        match self.token {
            Token::Dot(name) => self.take().map(|_| name),
            _ => self.unexpected(),
        }
    }

    /// A whole number that is not negative.
    pub fn count(&mut self) -> Result<u64, Refusal> {
        match self.token {
            Token::Number(text) => match integer(text) {
                Some(value) => self.take().map(|_| value),
                None => self.unexpected(),
            },
            _ => self.unexpected(),
        }
    }

    pub fn count_32(&mut self) -> Result<u32, Refusal> {
        let line = self.line;
        let value = self.count()?;
        u32::try_from(value).map_err(|_| Refusal::Ptx {
            line,
            fatal: false,
            problem: format!("{value} is too large"),
        })
    }

    /// Steps over everything to the bracket that closes the one standing here.
    pub fn skip_block(&mut self, open: u8, close: u8) -> Result<(), Refusal> {
        self.expect(open)?;
        let mut depth = 1u32;
        while depth > 0 {
            match self.take()? {
                Token::Mark(mark) if mark == open => depth += 1,
                Token::Mark(mark) if mark == close => depth -= 1,
                Token::End => return self.unexpected(),
                _ => {}
            }
        }
        Ok(())
    }

    /// Steps over everything to a semicolon, and over it.
    pub fn skip_statement(&mut self) -> Result<(), Refusal> {
        loop {
            match self.take()? {
                Token::Mark(b';') => return Ok(()),
                Token::End => return self.unexpected(),
                _ => {}
            }
        }
    }
}

/// `42`, `0x2a`, `052`, `0b101010`, each with or without `U`.
pub fn integer(text: &str) -> Option<u64> {
    let text = text.strip_suffix('U').unwrap_or(text);
    let lower = |prefix: [&str; 2]| prefix.iter().find_map(|prefix| text.strip_prefix(prefix));
    if let Some(digits) = lower(["0x", "0X"]) {
        u64::from_str_radix(digits, 16).ok()
    } else if let Some(digits) = lower(["0b", "0B"]) {
        u64::from_str_radix(digits, 2).ok()
    } else if text.len() > 1 && text.starts_with('0') {
        u64::from_str_radix(&text[1..], 8).ok()
    } else {
        text.parse().ok()
    }
}
