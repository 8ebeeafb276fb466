//! Entry points that are answered by data: what the profile's NVML table says of them ([`mock_device::nvml`]), written as
//! the C types want it. Every export without a row in `table.rs` ends here; what no table names answers NOT_SUPPORTED.

use abi::nvml::*;
use mock_device::DeviceIndex;
use mock_device::nvml::Answer as Data;

use crate::boundary::{Answer, Memory, Word, WordValue, crash};
use crate::entry::{Entry, Recorded};
use crate::{layout, library, version};

/// Dies where the real library dies of a NULL in front. Everything simulated asks this first.
#[inline]
pub fn survive(entry: Entry, first: Option<&WordValue>) {
    if first.is_some_and(is_null)
        && entry.recorded().all_null == Recorded::Crash
        && library::initialised()
    {
        crash();
    }
}

/// The answer to one call.
pub fn answer(entry: Entry, words: &[Word]) -> Answer {
    if !library::initialised() {
        return refuse(entry.before_init(), nvmlReturn_t::ERROR_UNINITIALIZED);
    }
    let world = library::ready()?;
    check_nulls(entry, words)?;
    let mut index = DeviceIndex(0);
    for (at, word) in words.iter().enumerate() {
        if let ("nvmlDevice_t", WordValue::Handle(handle)) = (word.kind, &word.value) {
            let device = library::device(nvmlDevice_t(*handle as *mut c_void))?;
            if at == 0 {
                index = device;
            }
        }
    }
    for word in words {
        if let WordValue::Out(memory) = &word.value {
            version::check(entry, word.pointee(), memory)?;
        }
    }
    let data = library::answers(world, index)
        .get(entry.name())
        .and_then(|data| by_arguments(data, words))
        .ok_or(nvmlReturn_t::ERROR_NOT_SUPPORTED)?;
    if let Some(code) = code(data) {
        return Err(code);
    }
    write(words, data)
}

fn is_null(value: &WordValue) -> bool {
    match value {
        WordValue::Number(_) => false,
        WordValue::Handle(handle) => *handle == 0,
        WordValue::Out(memory) => memory.is_null(),
        WordValue::In { null } => *null,
    }
}

fn refuse(recorded: Recorded, otherwise: nvmlReturn_t) -> Answer {
    match recorded {
        Recorded::Crash => crash(),
        Recorded::Code(code) if code != 0 => Err(nvmlReturn_t(code)),
        _ => Err(otherwise),
    }
}

fn is_count(word: &Word) -> bool {
    word.is_out("c_uint") && (word.name.contains("count") || word.name.contains("size"))
}

/// What the card answered to NULLs in these places. An array may be NULL where its count says 0.
fn check_nulls(entry: Entry, words: &[Word]) -> Answer {
    let Some(at) = words.iter().position(|word| is_null(&word.value)) else {
        return Ok(());
    };
    let recorded = entry.recorded();
    if at == 0 {
        return refuse(recorded.all_null, nvmlReturn_t::ERROR_INVALID_ARGUMENT);
    }
    if let (true, WordValue::Out(count)) = (is_count(&words[at - 1]), &words[at - 1].value)
        && count.number() == 0
    {
        return Ok(());
    }
    let column = match words[0].value {
        WordValue::Handle(_) => recorded.with_device,
        _ => recorded.all_null,
    };
    refuse(column, nvmlReturn_t::ERROR_INVALID_ARGUMENT)
}

/// `"!NAME"`.
pub fn code(data: &Data) -> Option<nvmlReturn_t> {
    let Data::Text(text) = data else {
        return None;
    };
    let name = text.strip_prefix('!')?;
    let named = |code: &nvmlReturn_t| {
        code.name()
            .and_then(|known| known.strip_prefix("ERROR_"))
            .is_some_and(|known| known == name)
    };
    let known = (1..32).map(nvmlReturn_t).find(named);
    Some(known.unwrap_or(nvmlReturn_t::ERROR_UNKNOWN))
}

/// The answer for these in-arguments, where the table tells them apart.
fn by_arguments<'d>(data: &'d Data, words: &[Word]) -> Option<&'d Data> {
    let Data::Fields(rows) = data else {
        return Some(data);
    };
    let by_number =
        |key: &String| key == "*" || key.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    if rows.is_empty() || !rows.keys().all(by_number) {
        return Some(data);
    }
    let numbers = words
        .iter()
        .enumerate()
        .filter_map(|(at, word)| match word.value {
            // A length belongs to the text before it.
            WordValue::Number(_) if at > 0 && words[at - 1].is_out("c_char") => None,
            WordValue::Number(number) => Some(number.to_string()),
            _ => None,
        });
    let key = numbers.collect::<Vec<_>>().join(",");
    rows.get(&key).or_else(|| rows.get("*"))
}

fn write(words: &[Word], data: &Data) -> Answer {
    if let Data::Fields(fields) = data
        && let Some(Data::List(rows)) = fields.get("list")
    {
        return write_list(words, rows);
    }
    let outs: Vec<(usize, &Memory, &str)> = words
        .iter()
        .enumerate()
        .filter_map(|(at, word)| match &word.value {
            WordValue::Out(memory) => Some((at, memory, word.pointee())),
            _ => None,
        })
        .collect();
    for (position, (at, memory, pointee)) in outs.iter().enumerate() {
        let mine = match data {
            Data::List(each) if outs.len() > 1 => each.get(position),
            _ if position == 0 => Some(data),
            _ => None,
        };
        match (mine, words.get(at + 1).map(|word| &word.value)) {
            (Some(Data::Text(text)), Some(WordValue::Number(room))) if *pointee == "c_char" => {
                write_text(memory, text, *room as u32)?;
            }
            _ => layout::write(pointee, memory, mine),
        }
    }
    Ok(())
}

/// Text with its NUL; INSUFFICIENT_SIZE where `room` bytes do not hold it.
fn write_text(memory: &Memory, text: &str, room: u32) -> Answer {
    if room as usize <= text.len() {
        return Err(nvmlReturn_t::ERROR_INSUFFICIENT_SIZE);
    }
    memory.put(0, text.as_bytes());
    memory.put(text.len(), &[0]);
    Ok(())
}

/// A count and an array: in, room in rows; out, how many there are. Too little room writes no row.
fn write_list(words: &[Word], rows: &[Data]) -> Answer {
    let mut outs = words.iter().filter_map(|word| match &word.value {
        WordValue::Out(memory) => Some((memory, word.pointee())),
        _ => None,
    });
    let (Some((count, _)), Some((array, kind))) = (outs.next(), outs.next()) else {
        return Err(nvmlReturn_t::ERROR_UNKNOWN);
    };
    let room = count.number() as usize;
    count.put(0, &(rows.len() as u32).to_le_bytes());
    if room < rows.len() {
        return Err(nvmlReturn_t::ERROR_INSUFFICIENT_SIZE);
    }
    for (at, row) in rows.iter().enumerate() {
        layout::write(kind, &array.nth(at), Some(row));
    }
    Ok(())
}
