//! CUDA_VISIBLE_DEVICES, as 36 spellings on two H200 were answered (`fixtures/oracle/visible-devices-h200x2.txt`).

/// What became of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visible {
    /// Indices of the machine's devices, in the order in which CUDA numbers them.
    Devices(Vec<usize>),
    /// A device was named twice: cuInit answers INVALID_DEVICE.
    Twice,
}

/// Reads a list up to its first entry that names no device. Numbers and UUIDs do not mix: the first entry decides.
pub fn parse(list: &[u8], uuids: &[[u8; 16]]) -> Visible {
    let mut chosen = Vec::new();
    let mut rest = list;
    let mut kind = None;
    loop {
        rest = skip_blanks(rest);
        let Some((this, index, after)) = number(rest).or_else(|| uuid(rest, uuids)) else {
            break;
        };
        if kind.is_some_and(|kind| kind != this) {
            break;
        }
        kind = Some(this);
        if index >= uuids.len() {
            break;
        }
        if chosen.contains(&index) {
            return Visible::Twice;
        }
        chosen.push(index);
        match skip_blanks(after) {
            [b',', more @ ..] => rest = more,
            _ => break,
        }
    }
    Visible::Devices(chosen)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Spelling {
    Number,
    Uuid,
}

fn skip_blanks(text: &[u8]) -> &[u8] {
    let blanks = text
        .iter()
        .take_while(|byte| byte.is_ascii_whitespace())
        .count();
    &text[blanks..]
}

/// Decimal digits; whatever follows them ends the list, unless it is a comma.
fn number(text: &[u8]) -> Option<(Spelling, usize, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let value = std::str::from_utf8(&text[..digits]).ok()?.parse().ok()?;
    Some((Spelling::Number, value, &text[digits..]))
}

/// `GPU-` and as many of the UUID's digits as name one device only.
fn uuid<'t>(text: &'t [u8], uuids: &[[u8; 16]]) -> Option<(Spelling, usize, &'t [u8])> {
    let body = text.strip_prefix(b"GPU-")?;
    let len = body
        .iter()
        .take_while(|byte| byte.is_ascii_hexdigit() || **byte == b'-')
        .count();
    let digits: Vec<u8> = body[..len]
        .iter()
        .filter(|byte| **byte != b'-')
        .map(u8::to_ascii_lowercase)
        .collect();
    if digits.is_empty() {
        return None;
    }
    let mut matching = uuids.iter().enumerate().filter(|(_, uuid)| {
        let full: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        full.as_bytes().starts_with(&digits)
    });
    let (index, _) = matching.next()?;
    matching
        .next()
        .is_none()
        .then_some((Spelling::Uuid, index, &body[len..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = include_str!("../../fixtures/oracle/visible-devices-h200x2.txt");
    const UUIDS: [[u8; 16]; 2] = [
        [
            0xf7, 0x64, 0x99, 0x9b, 0x5c, 0xaf, 0x8a, 0x2c, 0xb8, 0xe7, 0xdf, 0x48, 0x3d, 0xdd,
            0x37, 0x21,
        ],
        [
            0x9f, 0x0a, 0x8b, 0x65, 0x11, 0xa3, 0x95, 0xea, 0x55, 0x4b, 0x96, 0xd4, 0xb4, 0xb0,
            0xf5, 0x41,
        ],
    ];

    #[test]
    fn every_recorded_spelling_numbers_the_devices_as_the_card_did() {
        let rows: Vec<Vec<&str>> = TABLE
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split('\t').collect())
            .collect();
        assert_eq!(rows.len(), 37);
        for row in rows.iter().filter(|row| row[0] != "~") {
            let expected = match row[2] {
                "101" => Visible::Twice,
                _ => Visible::Devices(
                    row[3]
                        .split_whitespace()
                        .map(|index| index.parse().unwrap())
                        .collect(),
                ),
            };
            assert_eq!(
                parse(row[0].as_bytes(), &UUIDS),
                expected,
                "CUDA_VISIBLE_DEVICES={:?}",
                row[0]
            );
        }
    }

    #[test]
    fn a_prefix_of_two_devices_names_none() {
        let twins = [UUIDS[0], UUIDS[0]];
        assert_eq!(parse(b"GPU-f764", &twins), Visible::Devices(vec![]));
    }
}
