//! How much of a table is met.

/// A comparison with a recorded table.
#[derive(Debug, Default)]
pub struct Score {
    pub checked: usize,
    /// Rows that were answered otherwise, each as a line.
    pub wrong: Vec<String>,
    /// Rows that were not compared, each with why.
    pub left_out: Vec<String>,
}

impl Score {
    pub fn percentage(&self) -> f64 {
        let right = self.checked - self.wrong.len();
        100.0 * right as f64 / self.checked.max(1) as f64
    }

    /// `99.52 % of 619`.
    pub fn short(&self) -> String {
        format!("{:.2} % of {}", self.percentage(), self.checked)
    }

    /// Compares all lines of a table, sorted, with the recorded one's digest, where there is one.
    pub fn whole_list<'t>(
        &mut self,
        kind: &str,
        generation: u16,
        lines: impl Iterator<Item = &'t str> + Clone,
    ) {
        let ours = (lines.clone().count(), digest(lines));
        if let Some(recorded) =
            recorded_digest(kind, generation).filter(|recorded| *recorded != ours)
        {
            self.wrong.push(format!(
                "{kind}: (lines, digest) {ours:x?}, recorded {recorded:x?}"
            ));
        }
    }

    /// Prints it, with every row that differs.
    pub fn say(&self, what: &str) {
        println!("{what}: {}", self.short());
        for line in &self.wrong {
            println!("  differs: {line}");
        }
        for line in &self.left_out {
            println!("  left out: {line}");
        }
    }

    /// Prints it and wants everything answered as recorded but what is known, each with its reason; what is known and
    /// does not differ is known no more.
    pub fn all_but(self, what: &str, known: &[(&str, &str)]) {
        let known: Vec<(String, &str)> = known
            .iter()
            .map(|(row, why)| ((*row).to_owned(), *why))
            .collect();
        self.with_reasons(what, &known);
    }

    /// As [`Score::all_but`].
    pub fn with_reasons(self, what: &str, known: &[(String, &str)]) {
        self.say(what);
        assert!(self.checked > 0, "{what}: nothing was compared");
        let differs = |row: &str| {
            let row = format!("{row}:");
            self.wrong.iter().any(|line| line.starts_with(&row))
        };
        let mut unused = Vec::new();
        for (row, why) in known {
            match differs(row) {
                true => println!("  known: {row}: {why}"),
                false => unused.push(row),
            }
        }
        let is_known = |line: &&String| {
            known
                .iter()
                .any(|(row, _)| line.starts_with(&format!("{row}:")))
        };
        let surprises: Vec<&String> = self.wrong.iter().filter(|line| !is_known(line)).collect();
        assert_eq!(surprises, Vec::<&String>::new(), "{what}: without a reason");
        assert_eq!(
            unused,
            Vec::<&String>::new(),
            "{what}: reasons without a row"
        );
    }

    /// Prints it and wants everything answered as recorded.
    pub fn all(self, what: &str) {
        self.all_but(what, &[]);
    }
}

/// FNV-1a, 64 bits, of lines.
fn digest<'t>(lines: impl IntoIterator<Item = &'t str>) -> u64 {
    let bytes = lines
        .into_iter()
        .flat_map(|line| line.bytes().chain([b'\n']));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The recorded table of that kind and generation: how many lines, and their digest.
fn recorded_digest(kind: &str, generation: u16) -> Option<(usize, u64)> {
    let table = include_str!("../../../fixtures/oracle/digests.txt");
    let row = table
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .find(|row| row[0] == kind && row[1].starts_with(&format!("{generation}.")))?;
    Some((row[2].parse().ok()?, u64::from_str_radix(row[3], 16).ok()?))
}
