//! Variables and parameters.

use super::super::{Param, Refusal};
use super::constant::{self, Initial, Shape};
use super::cursor::Cursor;
use super::language;
use super::lexer::Token;

/// One declared name in a state space.
pub struct Declared<'a> {
    pub name: &'a str,
    pub size: u64,
    pub align: u64,
    pub managed: bool,
    /// An array that another place gives its length.
    pub open: bool,
    pub initial: Initial,
    /// `name<count>`: this many names.
    pub count: Option<u32>,
    /// Bytes of one element.
    pub element: u32,
}

/// Everything from behind the state space to the semicolon: `.align 4 .u32 a = 1, b[2];`
pub fn variables<'a>(cursor: &mut Cursor<'a>) -> Result<Vec<Declared<'a>>, Refusal> {
    let head = Head::read(cursor)?;
    let mut list = Vec::new();
    loop {
        list.push(one(cursor, &head)?);
        if !cursor.skip(b',')? {
            break;
        }
    }
    cursor.expect(b';')?;
    Ok(list)
}

struct Head<'a> {
    kind: &'a str,
    size: u32,
    lanes: u32,
    align: u64,
    managed: bool,
}

impl<'a> Head<'a> {
    /// `.align 8 .attribute(.managed) .v2 .f32`, in any order.
    fn read(cursor: &mut Cursor<'a>) -> Result<Head<'a>, Refusal> {
        let (mut align, mut lanes, mut managed) = (0, 1, false);
        let mut kind = None;
        while let Token::Dot(name) = cursor.token {
            cursor.take()?;
            match name {
                "align" => {
                    align = cursor.count()?;
                    if !align.is_power_of_two() {
                        return Err(cursor.error("Alignment must be a power of two"));
                    }
                }
                "v2" => lanes = 2,
                "v4" => lanes = 4,
                "v8" => lanes = 8,
                "attribute" => managed |= attributes(cursor)?,
                "ptr" => pointer(cursor)?,
                name => match language::size_of(name) {
                    Some(size) if kind.is_none() => kind = Some((name, size)),
                    _ => return Err(cursor.error(format!("Unexpected directive '.{name}'"))),
                },
            }
        }
        let Some((kind, size)) = kind else {
            return cursor.unexpected();
        };
        let natural = u64::from(size * lanes);
        Ok(Head {
            kind,
            size,
            lanes,
            align: if align == 0 { natural } else { align },
            managed,
        })
    }
}

/// `(.managed, .unified(1, 2))`; whether it says managed.
fn attributes(cursor: &mut Cursor<'_>) -> Result<bool, Refusal> {
    let mut managed = false;
    cursor.expect(b'(')?;
    loop {
        managed |= cursor.dot()? == "managed";
        if cursor.at(b'(') {
            cursor.skip_block(b'(', b')')?;
        }
        if !cursor.skip(b',')? {
            break;
        }
    }
    cursor.expect(b')')?;
    Ok(managed)
}

/// Behind `.ptr`: the space and the alignment of what a parameter points to.
fn pointer(cursor: &mut Cursor<'_>) -> Result<(), Refusal> {
    while let Token::Dot(name) = cursor.token {
        match name {
            "global" | "const" | "local" | "shared" => {
                cursor.take()?;
            }
            "align" => {
                cursor.take()?;
                cursor.count()?;
            }
            _ => break,
        }
    }
    Ok(())
}

fn one<'a>(cursor: &mut Cursor<'a>, head: &Head<'a>) -> Result<Declared<'a>, Refusal> {
    let name = cursor.word()?;
    let mut count = None;
    if cursor.skip(b'<')? {
        count = Some(cursor.count_32()?);
        cursor.expect(b'>')?;
    }
    let mut dimensions = Vec::new();
    let mut open = false;
    while cursor.skip(b'[')? {
        if cursor.at(b']') {
            open |= dimensions.is_empty();
            dimensions.push(0);
        } else {
            dimensions.push(constant::length(cursor)?);
        }
        cursor.expect(b']')?;
    }
    if head.lanes > 1 {
        dimensions.push(head.lanes.into());
    }
    let shape = Shape {
        kind: head.kind,
        size: head.size,
        dimensions: &dimensions,
    };
    let mut initial = Initial::default();
    if cursor.skip(b'=')? {
        initial = constant::initial(cursor, &shape)?;
        if open {
            dimensions[0] = initial.length;
            open = false;
        }
    }
    let size = dimensions
        .iter()
        .try_fold(u64::from(head.size), |size, length| {
            size.checked_mul(*length)
        })
        .ok_or_else(|| cursor.error("Variable too large"))?;
    Ok(Declared {
        name,
        size,
        align: head.align,
        managed: head.managed,
        open,
        initial,
        count,
        element: head.size * head.lanes,
    })
}

/// `(.param .u64 a, .reg .u32 %b)`: names with their places in a buffer, in order. The brackets are read too.
pub fn params<'a>(cursor: &mut Cursor<'a>) -> Result<Vec<(Declared<'a>, Param)>, Refusal> {
    let mut list = Vec::new();
    let mut end = 0u64;
    cursor.expect(b'(')?;
    while !cursor.at(b')') {
        let space = cursor.dot()?;
        if !matches!(space, "param" | "reg") {
            return Err(cursor.error(format!("Unexpected directive '.{space}'")));
        }
        let head = Head::read(cursor)?;
        let name = one(cursor, &head)?;
        let offset = end.checked_next_multiple_of(name.align).unwrap_or(u64::MAX);
        end = offset.saturating_add(name.size);
        let place = Param {
            offset: u32::try_from(offset).unwrap_or(u32::MAX),
            size: u32::try_from(name.size).unwrap_or(u32::MAX),
        };
        list.push((name, place));
        if !cursor.skip(b',')? {
            break;
        }
    }
    cursor.expect(b')')?;
    Ok(list)
}
