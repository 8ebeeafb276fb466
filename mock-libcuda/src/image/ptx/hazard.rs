//! What a kernel does before its first branch that can be known to end badly, whatever the data: a trap, a failed assertion,
//! and stores to addresses that are made of constants and parameters.
//!
//! What it is not: an interpreter. From the first label, branch, call or predicated end on nothing is known.

use std::collections::HashMap;

use abi::cuda::CUresult;

use super::lexer::Token;

/// One act of every thread of a kernel, in the order of its code.
#[derive(Clone, Debug, PartialEq)]
pub enum Hazard {
    Ends(CUresult),
    Access(Access),
}

/// A store, an atomic operation or a volatile load; other loads are left out where nobody uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub address: Address,
    pub size: u32,
    pub shared: bool,
}

/// A number, and the parameter of 64 bits that is added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub param: Option<usize>,
    pub offset: i64,
}

#[derive(Default)]
pub struct Reader<'a> {
    hazards: Vec<Hazard>,
    known: HashMap<&'a str, Address>,
    params: Vec<&'a str>,
    over: bool,
}

impl<'a> Reader<'a> {
    pub fn new(params: impl Iterator<Item = &'a str>) -> Reader<'a> {
        Reader {
            params: params.collect(),
            ..Reader::default()
        }
    }

    pub fn hazards(self) -> Vec<Hazard> {
        self.hazards
    }

    /// Others may get to here another way.
    pub fn label(&mut self) {
        self.over = true;
    }

    /// An instruction: its first word, the rest of it to the semicolon, and whether a predicate stands before it.
    pub fn instruction(&mut self, opcode: &str, rest: &[Token<'a>], predicated: bool) {
        if self.over {
            return;
        }
        let modifiers: Vec<&str> = rest.iter().map_while(dot).collect();
        let operands = &rest[modifiers.len()..];
        match opcode {
            "trap" | "brkpt" if !predicated => self.end(CUresult::ERROR_LAUNCH_FAILED),
            "call" if !predicated && operands.contains(&Token::Word("__assertfail")) => {
                self.end(CUresult::ERROR_ASSERT);
            }
            "trap" | "brkpt" | "call" | "bra" | "brx" | "ret" | "exit" => self.over = true,
            "st" | "red" | "atom" => self.access(&modifiers, operands, predicated),
            "ld" if modifiers.contains(&"volatile") => {
                self.access(&modifiers, operands, predicated);
            }
            _ => {}
        }
        if opcode == "st" || opcode == "red" {
            return;
        }
        let Some(Token::Word(target)) = operands.first() else {
            // More than one register at a time, or none.
            self.over |= matches!(operands.first(), Some(Token::Mark(b'{')));
            return;
        };
        let value = match predicated {
            true => None,
            false => self.value(opcode, &modifiers, operands.get(2..).unwrap_or_default()),
        };
        match value {
            Some(value) => self.known.insert(target, value),
            None => self.known.remove(target),
        };
    }

    fn end(&mut self, code: CUresult) {
        self.hazards.push(Hazard::Ends(code));
        self.over = true;
    }

    fn operand(&self, token: &Token<'a>) -> Option<Address> {
        match token {
            Token::Word(register) => self.known.get(register).copied(),
            Token::Number(digits) => Some(Address {
                param: None,
                offset: integer(digits)?,
            }),
            _ => None,
        }
    }

    /// What an instruction puts into its first operand.
    fn value(&self, opcode: &str, modifiers: &[&str], sources: &[Token<'a>]) -> Option<Address> {
        let wide = modifiers
            .last()
            .is_some_and(|kind| matches!(*kind, "u64" | "s64" | "b64"));
        match (opcode, sources) {
            ("mov" | "cvta", [source]) if wide => self.operand(source),
            ("add", [left, Token::Mark(b','), right]) if wide => {
                let (left, right) = (self.operand(left)?, self.operand(right)?);
                let param = match (left.param, right.param) {
                    (Some(_), Some(_)) => return None,
                    (left, right) => left.or(right),
                };
                let offset = left.offset.checked_add(right.offset)?;
                Some(Address { param, offset })
            }
            ("ld", [Token::Mark(b'['), Token::Word(name), Token::Mark(b']')])
                if wide && modifiers.contains(&"param") =>
            {
                let param = self.params.iter().position(|param| param == name)?;
                Some(Address {
                    param: Some(param),
                    offset: 0,
                })
            }
            _ => None,
        }
    }

    fn access(&mut self, modifiers: &[&str], operands: &[Token<'a>], predicated: bool) {
        let shared = modifiers.iter().any(|word| word.starts_with("shared"));
        let other = ["param", "local", "const"];
        if predicated || modifiers.iter().any(|word| other.contains(word)) {
            return;
        }
        let Some(open) = operands
            .iter()
            .position(|token| *token == Token::Mark(b'['))
        else {
            return;
        };
        let (base, add) = match &operands[open + 1..] {
            [base, Token::Mark(b']'), ..] => (base, Some(0)),
            [
                base,
                Token::Mark(b'+'),
                Token::Number(add),
                Token::Mark(b']'),
                ..,
            ] => (base, integer(add)),
            _ => return,
        };
        let (Some(mut address), Some(add), Some(size)) =
            (self.operand(base), add, size_of(modifiers))
        else {
            return;
        };
        address.offset = address.offset.wrapping_add(add);
        self.hazards.push(Hazard::Access(Access {
            address,
            size,
            shared,
        }));
    }
}

fn dot<'a>(token: &Token<'a>) -> Option<&'a str> {
    match token {
        Token::Dot(name) => Some(name),
        _ => None,
    }
}

fn integer(digits: &str) -> Option<i64> {
    let digits = digits.trim_end_matches('U');
    match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok().map(|value| value as i64),
        None => digits.parse().ok(),
    }
}

/// Bytes that an access with these words moves.
fn size_of(modifiers: &[&str]) -> Option<u32> {
    let kind = modifiers.last()?;
    let bits: u32 = kind.get(1..)?.parse().ok()?;
    let lanes = match modifiers {
        words if words.contains(&"v2") => 2,
        words if words.contains(&"v4") => 4,
        _ => 1,
    };
    (bits.is_multiple_of(8) && bits > 0).then_some(bits / 8 * lanes)
}

impl Hazard {
    /// How a launch ends by it, given the parameters of 64 bits. Of memory nothing is known here but that no device has any
    /// in the first 64 KiB, and that shared memory ends somewhere.
    pub fn fault(&self, param: impl Fn(usize) -> Option<u64>) -> Option<CUresult> {
        const NOBODYS: u64 = 64 << 10;
        const SHARED: u64 = 256 << 10;
        let access = match self {
            Hazard::Ends(code) => return Some(*code),
            Hazard::Access(access) => access,
        };
        let base = match access.address.param {
            Some(at) => param(at)?,
            None => 0,
        };
        let address = base.wrapping_add(access.address.offset as u64);
        if !address.is_multiple_of(access.size.into()) {
            return Some(CUresult::ERROR_MISALIGNED_ADDRESS);
        }
        let outside = match access.shared {
            true => address >= SHARED,
            false => address < NOBODYS,
        };
        outside.then_some(CUresult::ERROR_ILLEGAL_ADDRESS)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Runner;
    use super::*;

    /// How a launch of the one kernel of this body ends, its parameters p and q being given.
    fn ends(body: &str, params: [u64; 2]) -> Option<CUresult> {
        let text = format!(
            ".version 6.4\n.target sm_52\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u64 q)\n{{\n\
             .reg .b64 %d<8>; .reg .b32 %r<8>; .reg .pred %p<2>;\n{body}\nret;\n}}\n"
        );
        let runner = Runner {
            architecture: 90,
            cuda_version: 13_000,
            shared_per_block: 232_448,
        };
        let image = super::super::open(text.as_bytes(), &runner).unwrap();
        let hazards = &image.kernels[0].hazards;
        hazards
            .iter()
            .find_map(|hazard| hazard.fault(|at| params.get(at).copied()))
    }

    #[test]
    fn what_is_known_before_the_first_branch_faults() {
        const FAILED: Option<CUresult> = Some(CUresult::ERROR_LAUNCH_FAILED);
        const ILLEGAL: Option<CUresult> = Some(CUresult::ERROR_ILLEGAL_ADDRESS);
        const MISALIGNED: Option<CUresult> = Some(CUresult::ERROR_MISALIGNED_ADDRESS);
        let p = "ld.param.u64 %d1, [p]; cvta.to.global.u64 %d2, %d1;";
        let rows: [(&str, u64, Option<CUresult>); 16] = [
            ("trap;", 0, FAILED),
            ("brkpt;", 0, FAILED),
            ("mov.u64 %d1, 16; st.global.u32 [%d1], %r1;", 0, ILLEGAL),
            ("mov.u64 %d1, 16; st.u32 [%d1], %r1;", 0, ILLEGAL),
            (
                "mov.u64 %d1, 16; ld.volatile.global.u32 %r1, [%d1];",
                0,
                ILLEGAL,
            ),
            ("mov.u64 %d1, 16; ld.global.u32 %r1, [%d1];", 0, None),
            (
                "mov.u64 %d1, 1048576; st.shared.u32 [%d1], %r1;",
                0,
                ILLEGAL,
            ),
            (&format!("{p} st.global.u32 [%d2], %r1;"), 0, ILLEGAL),
            (&format!("{p} st.global.u32 [%d2], %r1;"), 1 << 40, None),
            (
                &format!("{p} add.s64 %d3, %d2, 1; st.global.u32 [%d3], %r1;"),
                1 << 40,
                MISALIGNED,
            ),
            (
                &format!("{p} st.global.u32 [%d2+2], %r1;"),
                1 << 40,
                MISALIGNED,
            ),
            (&format!("{p} st.global.u8 [%d2+2], %r1;"), 1 << 40, None),
            (
                &format!("{p} mov.u64 %d2, %d7; st.global.u32 [%d2], %r1;"),
                0,
                None,
            ),
            ("@%p1 trap;", 0, None),
            ("@%p1 bra L; trap; L:", 0, None),
            ("L: trap;", 0, None),
        ];
        for (body, param, expected) in rows {
            assert_eq!(ends(body, [param, 0]), expected, "{body}");
        }
    }
}
