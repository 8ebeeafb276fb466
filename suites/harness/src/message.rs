//! The lines that the processes of a case exchange. A record separator begins each, so that what a library prints to
//! stdout cannot be taken for one.

use std::io::{BufRead, Write};

const RECORD: char = '\u{1e}';

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Message {
    /// Between a role and its starter, either way.
    Line(String),
    /// The body ended as it should.
    Passed,
    Failed(String),
    Skipped(String),
}

/// Writes it with one write(2).
pub fn send(message: &Message, out: &mut impl Write) -> std::io::Result<()> {
    let text = serde_json::to_string(message).map_err(std::io::Error::other)?;
    out.write_all(format!("{RECORD}{text}\n").as_bytes())?;
    out.flush()
}

/// The next message; `None` at the end. Other lines go to `chatter`.
pub fn receive(lines: &mut impl BufRead, mut chatter: impl FnMut(&str)) -> Option<Message> {
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        if lines.read_until(b'\n', &mut bytes).ok()? == 0 {
            return None;
        }
        let line = String::from_utf8_lossy(&bytes);
        match line
            .strip_prefix(RECORD)
            .and_then(|text| serde_json::from_str(text).ok())
        {
            Some(message) => return Some(message),
            None => chatter(line.trim_end()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_library_prints_is_no_message() {
        let mut stream = b"WARNING: something\n{\"Line\":\"forged\"}\n".to_vec();
        send(&Message::Line("two\nlines".to_owned()), &mut stream).expect("a vector");
        let (mut reader, mut chatter) = (&stream[..], Vec::new());
        let message = receive(&mut reader, |line| chatter.push(line.to_owned()));
        assert_eq!(message, Some(Message::Line("two\nlines".to_owned())));
        assert_eq!(chatter, ["WARNING: something", "{\"Line\":\"forged\"}"]);
        assert_eq!(receive(&mut reader, |_| ()), None);
    }
}
