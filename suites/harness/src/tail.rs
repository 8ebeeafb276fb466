//! The end of a text file.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Further back nothing is looked for: a trace may have millions of lines.
const FURTHEST: u64 = 256 << 10;

/// The last lines of a file that count, at most so many; nothing of a file that is not there.
pub fn lines(path: &Path, most: usize, counts: impl Fn(&str) -> bool) -> String {
    let text = text(path);
    let lines: Vec<&str> = text.lines().filter(|line| counts(line)).collect();
    lines[lines.len().saturating_sub(most)..].join("\n")
}

/// The end of a file in whole lines; nothing of a file that is not there.
pub fn text(path: &Path) -> String {
    end(path).unwrap_or_default()
}

fn end(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let from = length.saturating_sub(FURTHEST);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(FURTHEST).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(match (from, text.split_once('\n')) {
        (0, _) | (_, None) => text,
        // The first is only the end of a line.
        (_, Some((_, whole))) => whole.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_lines_come_of_a_long_file_too() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let long = "x".repeat(100_000);
        let text = format!("{long}\n{long}\n{long}\nsecond last\nlast\n");
        std::fs::write(file.path(), text).expect("it is written");
        let of = |most| lines(file.path(), most, |_| true);
        assert_eq!(of(2), "second last\nlast");
        assert_eq!(of(9).lines().count(), 4);
        assert_eq!(
            lines(file.path(), 1, |line| line.contains("second")),
            "second last"
        );
        assert_eq!(lines(Path::new("/no/such/file"), 2, |_| true), "");
    }
}
