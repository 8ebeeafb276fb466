//! What the layer says on stderr: the lines a user must know, once, and its decisions when `HAMI_VK_TRACE=1`.

use std::fmt::{Arguments, Write as _};

use budget::settings::LogLevel;
use seeds::{Seed, planted};

use crate::settings::settings;

/// A line that a user must know. Callers see to it that it appears once.
pub fn tell(text: Arguments<'_>) {
    emit("ringfence: ", text);
}

/// The same for what refuses nothing: LIBCUDA_LOG_LEVEL=0 asks for errors alone.
pub fn warn(text: Arguments<'_>) {
    if settings().log_level != Some(LogLevel(0)) {
        tell(text);
    }
}

/// What was refused and why, from LIBCUDA_LOG_LEVEL=1 on: as libvgpu.so says it of CUDA's calls.
pub fn refusal(text: Arguments<'_>) {
    if settings().log_level >= Some(LogLevel(1)) && !planted(Seed::V21) {
        tell(format_args!("Vulkan: {text}"));
    }
}

#[inline]
pub fn on() -> bool {
    settings().vulkan_trace
}

/// One decision. Formats nothing unless asked to.
pub fn line(text: Arguments<'_>) {
    if on() {
        emit("HAMI_VK_TRACE: ", text);
    }
}

/// One write, so that lines of several threads and processes do not mix.
fn emit(prefix: &str, text: Arguments<'_>) {
    let mut whole = String::from(prefix);
    if whole.write_fmt(text).is_ok() {
        whole.push('\n');
        ledger::complain(whole.as_bytes());
    }
}

/// A UUID as NVML spells it, without the prefix.
pub fn uuid(uuid: Option<[u8; 16]>) -> String {
    let Some(bytes) = uuid else {
        return "unknown".to_owned();
    };
    let mut text = String::with_capacity(36);
    for (position, byte) in bytes.iter().enumerate() {
        if matches!(position, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

pub fn pci(pci: Option<budget::identity::Pci>) -> String {
    pci.map_or_else(
        || "unknown".to_owned(),
        |pci| {
            format!(
                "{:04x}:{:02x}:{:02x}.{:x}",
                pci.domain, pci.bus, pci.device, pci.function
            )
        },
    )
}
