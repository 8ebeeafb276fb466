//! Options of the just-in-time compiler: its logs are filled, its wishes checked.

use abi::cuda::enumerations::*;
use abi::cuda::*;

use crate::boundary::{Host, Out};

pub struct JitOptions {
    info: Log,
    error: Log,
}

impl Default for JitOptions {
    fn default() -> JitOptions {
        let none = Log {
            buffer: Host(0),
            size: 0,
            filled: Host(0),
        };
        JitOptions {
            info: none,
            error: none,
        }
    }
}

#[derive(Clone, Copy)]
struct Log {
    buffer: Host,
    size: usize,
    /// Where the size is answered.
    filled: Host,
}

const MAX_REGISTERS: CUjit_option = 0;
const INFO_LOG_BUFFER: CUjit_option = 3;
const INFO_LOG_SIZE: CUjit_option = 4;
const ERROR_LOG_BUFFER: CUjit_option = 5;
const ERROR_LOG_SIZE: CUjit_option = 6;
const TARGET: CUjit_option = 9;
const LAST: CUjit_option = 34;

impl JitOptions {
    /// INVALID_VALUE for lists that are not there and for options that do not exist.
    pub fn read(
        count: c_uint,
        options: Out<CUjit_option>,
        values: Out<*mut c_void>,
    ) -> Result<JitOptions, CUresult> {
        let mut read = JitOptions::default();
        if count == 0 {
            return Ok(read);
        }
        let (options, values) = (options.required()?, values.required()?);
        for at in 0..count as usize {
            let value = values.nth(at);
            let number = value.get() as u64;
            match options.nth(at).get() {
                INFO_LOG_BUFFER => read.info.buffer = Host(number),
                INFO_LOG_SIZE => read
                    .info
                    .sized(number as u32, Host(value.out().raw() as u64)),
                ERROR_LOG_BUFFER => read.error.buffer = Host(number),
                ERROR_LOG_SIZE => read
                    .error
                    .sized(number as u32, Host(value.out().raw() as u64)),
                // As measured, one by one.
                MAX_REGISTERS | 25 | 27 if number as u32 == 0 => {
                    return Err(CUresult::ERROR_INVALID_VALUE);
                }
                // Compute capabilities come as `90`.
                TARGET if (number as u32) < 10 => return Err(CUresult::ERROR_INVALID_IMAGE),
                15 => return Err(CUresult::ERROR_INVALID_PTX),
                17..=19 => return Err(CUresult::ERROR_INVALID_VALUE),
                0..=LAST => {}
                _ => return Err(CUresult::ERROR_INVALID_VALUE),
            }
        }
        Ok(read)
    }

    /// Fills the logs, and answers their sizes in place of their options' values.
    pub fn tell(&self, error: String) {
        self.error.fill(&error);
        self.info.fill("");
    }
}

impl Log {
    fn sized(&mut self, size: u32, filled: Host) {
        self.size = size as usize;
        self.filled = filled;
    }

    fn fill(&self, text: &str) {
        // A text that is cut keeps room for its NUL.
        let kept = text.len().min(self.size.saturating_sub(1));
        if self.size > 0
            && let Some(buffer) = self.buffer.out::<c_char>().optional()
        {
            buffer.set_text(&text[..kept], self.size);
        }
        if let Some(filled) = self.filled.out::<usize>().optional() {
            filled.set(kept);
        }
    }
}
