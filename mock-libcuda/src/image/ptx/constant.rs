//! Initial values of variables, and the constant expressions in them.

use super::super::{Pointer, Refusal};
use super::cursor::{Cursor, integer};
use super::language;
use super::lexer::Token;

/// Braces and parentheses may nest this deep.
const DEPTH: u32 = 64;
/// Initial contents beyond this are more than any real program has; they end the parse, not the process.
const MOST: usize = 256 << 20;

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Integer(i128),
    Single(u32),
    Double(u64),
    Address {
        target: String,
        addend: i64,
    },
    /// One byte of an address, as `0xff00(name)` takes it.
    PartOfAddress,
}

/// The element type and the lengths of the dimensions.
pub struct Shape<'s> {
    pub kind: &'s str,
    pub size: u32,
    pub dimensions: &'s [u64],
}

#[derive(Default)]
pub struct Initial {
    pub contents: Vec<u8>,
    pub pointers: Vec<Pointer>,
    /// Elements along the first dimension.
    pub length: u64,
}

/// What stands behind a variable's `=`.
pub fn initial(cursor: &mut Cursor<'_>, shape: &Shape<'_>) -> Result<Initial, Refusal> {
    let mut initial = Initial::default();
    fill(cursor, shape, shape.dimensions, 0, 0, &mut initial)?;
    Ok(initial)
}

/// What stands between an array's brackets: a number, and no expression (H200, 580.159.04), or WARP_SZ (ptxas 12.9).
pub fn length(cursor: &mut Cursor<'_>) -> Result<u64, Refusal> {
    if cursor.token == Token::Word("WARP_SZ") {
        cursor.take()?;
        return Ok(32);
    }
    let Token::Number(text) = cursor.token else {
        return cursor.unexpected();
    };
    cursor.take()?;
    match integer(text) {
        Some(length @ 1..) => Ok(length),
        _ => Err(cursor.error("Array dimension must be positive")),
    }
}

fn elements(dimensions: &[u64]) -> u64 {
    dimensions.iter().fold(1, |product, length| {
        product.saturating_mul((*length).max(1))
    })
}

fn fill(
    cursor: &mut Cursor<'_>,
    shape: &Shape<'_>,
    dimensions: &[u64],
    at: u64,
    depth: u32,
    initial: &mut Initial,
) -> Result<(), Refusal> {
    if depth > DEPTH {
        return Err(cursor.error("Initializer nested too deeply"));
    }
    if !cursor.skip(b'{')? {
        let value = expression(cursor, 0, depth)?;
        return put(cursor, shape, &value, at, initial);
    }
    let inner = dimensions.get(1..).unwrap_or_default();
    let step = elements(inner).saturating_mul(shape.size.into());
    let mut count = 0u64;
    while !cursor.at(b'}') {
        let offset = count.saturating_mul(step).saturating_add(at);
        fill(cursor, shape, inner, offset, depth + 1, initial)?;
        count += 1;
        if !cursor.skip(b',')? {
            break;
        }
    }
    cursor.expect(b'}')?;
    let bound = dimensions.first().copied();
    if bound.is_some_and(|bound| bound != 0 && count > bound) || (bound.is_none() && count > 1) {
        return Err(cursor.fatal("Greater number of elements in array initializer"));
    }
    if depth == 0 {
        initial.length = count;
    }
    Ok(())
}

fn put(
    cursor: &Cursor<'_>,
    shape: &Shape<'_>,
    value: &Value,
    at: u64,
    initial: &mut Initial,
) -> Result<(), Refusal> {
    let mismatch = || cursor.error("Initial value type mismatch");
    let bytes: Vec<u8> = match (value, language::is_float(shape.kind)) {
        (Value::Integer(_), true) => return Err(mismatch()),
        (Value::Integer(value), false) => value.to_le_bytes().to_vec(),
        (Value::Single(bits), _) if shape.size == 4 => bits.to_le_bytes().to_vec(),
        (Value::Double(bits), true) if shape.size == 8 => bits.to_le_bytes().to_vec(),
        (Value::Double(bits), true) if shape.size == 4 => {
            (f64::from_bits(*bits) as f32).to_le_bytes().to_vec()
        }
        (Value::Single(_) | Value::Double(_), _) => return Err(mismatch()),
        (Value::Address { target, addend }, _) => {
            if !matches!(shape.size, 4 | 8) {
                return Err(mismatch());
            }
            initial.pointers.push(Pointer {
                offset: at,
                target: target.clone(),
                addend: *addend,
            });
            vec![]
        }
        (Value::PartOfAddress, _) => vec![],
    };
    let start = usize::try_from(at).unwrap_or(usize::MAX);
    let end = start.saturating_add(shape.size as usize);
    if end > MOST {
        return Err(cursor.error("Initializer too large"));
    }
    if initial.contents.len() < end {
        initial.contents.resize(end, 0);
    }
    for (to, from) in initial.contents[start..end].iter_mut().zip(bytes) {
        *to = from;
    }
    Ok(())
}

/// How strongly a binary operator binds; `None` for any other mark.
fn strength(mark: u8) -> Option<u32> {
    Some(match mark {
        b'|' => 1,
        b'^' => 2,
        b'&' => 3,
        b'<' | b'>' => 4,
        b'+' | b'-' => 5,
        b'*' | b'/' | b'%' => 6,
        _ => return None,
    })
}

fn expression(cursor: &mut Cursor<'_>, floor: u32, depth: u32) -> Result<Value, Refusal> {
    if depth > DEPTH {
        return Err(cursor.error("Expression nested too deeply"));
    }
    let mut left = operand(cursor, depth)?;
    while let Token::Mark(mark) = cursor.token
        && let Some(power) = strength(mark)
        && power > floor
    {
        cursor.take()?;
        // A shift is written with two.
        if matches!(mark, b'<' | b'>') {
            cursor.expect(mark)?;
        }
        let right = expression(cursor, power, depth + 1)?;
        left = combine(cursor, mark, left, right)?;
    }
    Ok(left)
}

/// By how much 64 bits can be shifted.
fn shift(by: i128) -> Option<u32> {
    u32::try_from(by).ok().filter(|by| *by < 64)
}

fn combine(cursor: &Cursor<'_>, mark: u8, left: Value, right: Value) -> Result<Value, Refusal> {
    match (left, right) {
        (Value::Integer(left), Value::Integer(right)) => {
            let value = match mark {
                b'|' => Some(left | right),
                b'^' => Some(left ^ right),
                b'&' => Some(left & right),
                b'<' => shift(right).and_then(|by| left.checked_mul(1 << by)),
                b'>' => shift(right).map(|by| left >> by),
                b'+' => left.checked_add(right),
                b'-' => left.checked_sub(right),
                b'*' => left.checked_mul(right),
                b'/' => left.checked_div(right),
                _ => left.checked_rem(right),
            };
            value
                .map(Value::Integer)
                .ok_or_else(|| cursor.error("Illegal constant expression"))
        }
        (Value::Address { target, addend }, Value::Integer(more))
            if matches!(mark, b'+' | b'-') =>
        {
            let more = if mark == b'+' { more } else { -more };
            Ok(Value::Address {
                target,
                addend: addend.wrapping_add(more as i64),
            })
        }
        _ => Err(cursor.error("Illegal constant expression")),
    }
}

fn operand(cursor: &mut Cursor<'_>, depth: u32) -> Result<Value, Refusal> {
    match cursor.take()? {
        Token::Number(text) => {
            let value = number(text).ok_or_else(|| cursor.error(format!("Bad number '{text}'")))?;
            // `0xff(name)`: a byte of an address.
            if cursor.at(b'(') && matches!(value, Value::Integer(_)) {
                cursor.skip_block(b'(', b')')?;
                return Ok(Value::PartOfAddress);
            }
            Ok(value)
        }
        Token::Mark(b'(') => {
            // A cast, `(.u64)`, changes nothing that is kept.
            if let Token::Dot(_) = cursor.token {
                cursor.take()?;
                cursor.expect(b')')?;
                return operand_below(cursor, depth);
            }
            let value = expression(cursor, 0, depth + 1)?;
            cursor.expect(b')')?;
            Ok(value)
        }
        Token::Mark(sign @ (b'-' | b'+' | b'~' | b'!')) => {
            let value = operand_below(cursor, depth)?;
            Ok(match (sign, value) {
                (b'-', Value::Integer(value)) => Value::Integer(value.wrapping_neg()),
                (b'~', Value::Integer(value)) => Value::Integer(!value),
                (b'!', Value::Integer(value)) => Value::Integer((value == 0).into()),
                (b'-', Value::Double(bits)) => Value::Double((-f64::from_bits(bits)).to_bits()),
                (b'-', Value::Single(bits)) => Value::Single(bits ^ 1 << 31),
                (_, value) => value,
            })
        }
        Token::Word("generic") if cursor.at(b'(') => {
            cursor.take()?;
            let value = expression(cursor, 0, depth + 1)?;
            cursor.expect(b')')?;
            Ok(value)
        }
        Token::Word(name) => Ok(Value::Address {
            target: name.to_owned(),
            addend: 0,
        }),
        _ => cursor.unexpected(),
    }
}

fn operand_below(cursor: &mut Cursor<'_>, depth: u32) -> Result<Value, Refusal> {
    if depth > DEPTH {
        return Err(cursor.error("Expression nested too deeply"));
    }
    operand(cursor, depth + 1)
}

fn number(text: &str) -> Option<Value> {
    let bits = |prefix: [&str; 2]| prefix.iter().find_map(|prefix| text.strip_prefix(prefix));
    if let Some(digits) = bits(["0f", "0F"]) {
        return (digits.len() == 8)
            .then(|| u32::from_str_radix(digits, 16).ok())?
            .map(Value::Single);
    }
    if let Some(digits) = bits(["0d", "0D"]) {
        return (digits.len() == 16)
            .then(|| u64::from_str_radix(digits, 16).ok())?
            .map(Value::Double);
    }
    integer(text)
        .map(|value| Value::Integer(value.into()))
        .or_else(|| {
            text.parse::<f64>()
                .ok()
                .map(|value| Value::Double(value.to_bits()))
        })
}
