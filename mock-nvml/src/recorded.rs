//! Entry points that are answered by data: what the profile's NVML table says of them ([`mock_device::nvml`]), written as
//! the C types want it. Every export without a row in `table.rs` ends here; what no table names answers NOT_SUPPORTED.

use abi::nvml::*;
use mock_device::nvml::Answer as Data;
use mock_device::{DeviceIndex, World};

use crate::boundary::{Answer, Memory, Word, WordValue, crash};
use crate::entry::{Entry, Recorded};
use crate::{layout, library, traffic, version};

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
    let nulls = check_nulls(entry, words);
    // What the card has not is told before all out-parameters were looked at.
    if nulls.is_err() && !some_given(words) {
        return nulls;
    }
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
    nulls?;
    if let Data::Number(idle) = data
        && let Some(more) = traffic::more_than_idle(world, index, entry, words)
    {
        return write(entry, words, &Data::Number(idle + more));
    }
    write(entry, words, data)
}

/// The code that the table has for an entry point whatever its arguments; SUCCESS where it has an answer instead.
pub fn refusal(world: &'static World, index: DeviceIndex, entry: &str) -> nvmlReturn_t {
    match library::answers(world, index).get(entry) {
        None => nvmlReturn_t::ERROR_NOT_SUPPORTED,
        Some(data) => code(data).unwrap_or(nvmlReturn_t::SUCCESS),
    }
}

/// INVALID_ARGUMENT for a number that is none of a GPU instance profile's of this card.
pub fn known_profile(world: &'static World, index: DeviceIndex, profile: u32) -> Answer {
    match library::answers(world, index).get("nvmlDeviceGetGpuInstancePossiblePlacements") {
        Some(Data::Fields(rows)) if rows.contains_key(&profile.to_string()) => Ok(()),
        Some(_) => Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT),
        None => Err(nvmlReturn_t::ERROR_NOT_SUPPORTED),
    }
}

/// What the card's table has for an entry point and a GPU instance profile's number.
///
/// # Errors
/// The table's code for that number; NOT_SUPPORTED where it does not have the entry point.
pub fn of_profile(
    world: &'static World,
    index: DeviceIndex,
    entry: &str,
    profile: u32,
) -> Result<&'static Data, nvmlReturn_t> {
    let data = match library::answers(world, index).get(entry) {
        Some(Data::Fields(rows)) => rows.get(&profile.to_string()).or_else(|| rows.get("*")),
        other => other,
    };
    let data = data.ok_or(nvmlReturn_t::ERROR_NOT_SUPPORTED)?;
    match code(data) {
        Some(code) => Err(code),
        None => Ok(data),
    }
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

/// A device, and an out-parameter that is not NULL.
fn some_given(words: &[Word]) -> bool {
    let device = words
        .first()
        .is_some_and(|word| matches!(word.value, WordValue::Handle(handle) if handle != 0));
    device
        && words
            .iter()
            .any(|word| matches!(&word.value, WordValue::Out(memory) if !memory.is_null()))
}

fn is_count(word: &Word) -> bool {
    word.is_out("c_uint") && (word.name.contains("count") || word.name.contains("size"))
}

/// Whether the array at that place may be NULL: its count stands before it and says 0, or behind it.
fn has_count(words: &[Word], at: usize) -> bool {
    let count = |word: Option<&Word>| match word {
        Some(word) if is_count(word) => match &word.value {
            WordValue::Out(count) if !count.is_null() => Some(count.number()),
            _ => None,
        },
        _ => None,
    };
    count(words.get(at - 1)) == Some(0) || count(words.get(at + 1)).is_some()
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
    if has_count(words, at) {
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

fn write(entry: Entry, words: &[Word], data: &Data) -> Answer {
    if let Data::Fields(fields) = data
        && let Some(Data::List(rows)) = fields.get("list")
    {
        return write_list(entry, words, rows);
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

/// A count and an array. A count in front of its array says how much room there is, and too little room writes no row; one
/// behind it is only told.
fn write_list(entry: Entry, words: &[Word], rows: &[Data]) -> Answer {
    let outs: Vec<(&Word, &Memory)> = words
        .iter()
        .filter_map(|word| match &word.value {
            WordValue::Out(memory) => Some((word, memory)),
            _ => None,
        })
        .collect();
    let [(first, one), (second, other)] = outs.as_slice() else {
        return Err(nvmlReturn_t::ERROR_UNKNOWN);
    };
    let counted_first = is_count(first);
    let (count, array, kind) = match counted_first {
        true => (one, other, second.pointee()),
        false => (other, one, first.pointee()),
    };
    if !counted_first && array.is_null() && !entry.name().ends_with("_v2") {
        return Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT);
    }
    let room = count.number() as usize;
    count.put(0, &(rows.len() as u32).to_le_bytes());
    if counted_first && room < rows.len() {
        return Err(nvmlReturn_t::ERROR_INSUFFICIENT_SIZE);
    }
    if array.is_null() {
        return Ok(());
    }
    for (at, row) in rows.iter().enumerate() {
        layout::write(kind, &array.nth(at), Some(row));
    }
    Ok(())
}
