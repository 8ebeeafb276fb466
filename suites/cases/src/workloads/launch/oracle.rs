//! What a card answered to launches, argument by argument: `fixtures/oracle/cuda-arguments-h200.txt`.

use abi::cuda::CUresult;
use harness::{Failure, fail};

const ARGUMENTS: &str = include_str!("../../../../../fixtures/oracle/cuda-arguments-h200.txt");

/// One argument that differs from a launch of one thread, and the answer to it.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its place in the C signature: 1 to 3 the grid's sides, 4 to 6 the workgroup's, 7 the shared memory, 8 the stream.
    pub argument: usize,
    pub value: u32,
    pub code: CUresult,
}

/// The rows of a launching function whose argument is a number. Left out are handles that are gone, and threads without a context.
pub fn rows(function: &str) -> Result<Vec<Row>, Failure> {
    let mut found = Vec::new();
    for line in ARGUMENTS.lines() {
        let mut columns = line.split('\t');
        let (Some(name), Some(code), Some(terms)) =
            (columns.next(), columns.next(), columns.next())
        else {
            continue;
        };
        let Some(code) = code.parse().ok().filter(|_| name == function) else {
            continue;
        };
        for term in terms.split(';') {
            let Some((argument, value)) = term.split_once('=') else {
                continue;
            };
            let value = match value.strip_prefix("0x") {
                Some(digits) => u32::from_str_radix(digits, 16).ok(),
                None => value.parse().ok(),
            };
            if let (Ok(argument), Some(value)) = (argument.parse(), value) {
                let code = CUresult(code);
                found.push(Row {
                    argument,
                    value,
                    code,
                });
            }
        }
    }
    if found.is_empty() {
        fail!("the oracle has no rows of {function}");
    }
    Ok(found)
}
