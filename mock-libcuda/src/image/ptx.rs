//! PTX: the directives in full, instructions as far as their names, operands and declared registers.
//!
//! What it is not: an assembler. Operand types are not checked, registers are estimated from what is live.

mod body;
mod constant;
mod cursor;
mod declaration;
pub mod hazard;
mod language;
mod lexer;
mod liveness;
mod parser;

use super::{Image, Refusal, Runner};

/// The part of an image before its NUL.
fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Whether the driver takes bytes for PTX: their first word is `.version`.
pub fn is_ptx(bytes: &[u8]) -> bool {
    let mut lexer = lexer::Lexer::new(text(bytes));
    matches!(lexer.next(), Ok(lexer::Token::Dot("version")))
}

pub fn open(bytes: &[u8], runner: &Runner) -> Result<Image, Refusal> {
    assemble(bytes, runner, false)
}

/// One input of a link: another may define what it only declares.
pub fn open_for_link(bytes: &[u8], runner: &Runner) -> Result<Image, Refusal> {
    assemble(bytes, runner, true)
}

fn assemble(bytes: &[u8], runner: &Runner, link: bool) -> Result<Image, Refusal> {
    let text = text(bytes);
    if let Some(at) = text.iter().position(|byte| !byte.is_ascii()) {
        let line = 1 + text[..at].iter().filter(|byte| **byte == b'\n').count();
        return Err(Refusal::Assembly {
            problem: format!(
                "ptxas fatal   : Unexpected non-ASCII character encountered on line {line}\nptxas fatal   : Ptx assembly aborted due to errors"
            ),
        });
    }
    parser::parse(text, runner, link)
}
