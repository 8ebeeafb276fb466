//! What children say: words and numbers of a line.

/// `WORD REST`.
pub fn split(line: &str) -> (&str, &str) {
    line.split_once(' ').unwrap_or((line, ""))
}

/// A number, or which line was none.
pub fn number(line: &str, text: &str) -> Result<i64, String> {
    text.trim()
        .parse()
        .map_err(|_| format!("\"{line}\": \"{text}\" is no number"))
}
