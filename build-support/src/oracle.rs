//! The oracle's tables, row by row. The first lines of each file say what its columns are; a malformed row is a panic that
//! quotes it, because the tables are ours.

/// A driver generation by its number: 470, 525, …
pub type Generation = u16;

/// Those that a table knows, the newest last. Nobody asked a 615, which is what NVIDIA's headers of CUDA 13.5 declare over what 580 answers, and 999 is
/// no driver at all: it has versions of functions that no header names yet.
pub const GENERATIONS: [Generation; 8] = [470, 525, 535, 550, 555, 580, 615, 999];

/// The generations that export a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub first: Generation,
    pub last: Generation,
}

impl Span {
    #[must_use]
    pub const fn contains(self, generation: Generation) -> bool {
        self.first <= generation && generation <= self.last
    }

    fn parse(text: &str) -> Span {
        let number = |text: &str| -> Generation {
            let number = text
                .parse()
                .ok()
                .filter(|number| GENERATIONS.contains(number));
            number.unwrap_or_else(|| panic!("`{text}` is not a driver generation"))
        };
        match text.split_once('-') {
            Some((first, last)) => Span {
                first: number(first),
                last: number(last),
            },
            None => Span {
                first: number(text),
                last: Generation::MAX,
            },
        }
    }
}

/// What was recorded of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    Code(u32),
    /// The real library died of SIGSEGV.
    Crash,
    Unknown,
}

impl Recorded {
    fn parse(text: &str) -> Recorded {
        match text {
            "-" => Recorded::Unknown,
            "S" => Recorded::Crash,
            code => Recorded::Code(
                code.parse()
                    .unwrap_or_else(|_| panic!("`{code}` is not an answer")),
            ),
        }
    }
}

/// A row of `libcuda.txt` or `nvml.txt`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export<'t> {
    pub name: &'t str,
    pub span: Span,
    /// The answer to zeros before initialisation: of 535, 550, 580.
    before: [Recorded; 3],
    /// The other columns, in the file's order.
    pub after: Vec<Recorded>,
}

impl Export<'_> {
    /// What this generation answered before initialisation; `Unknown` for one that was not asked.
    #[must_use]
    pub fn before(&self, generation: Generation) -> Recorded {
        match generation {
            535 => self.before[0],
            550 => self.before[1],
            580 => self.before[2],
            _ => Recorded::Unknown,
        }
    }

    /// What a generation that was not asked is taken to answer: what the one nearest to it did.
    #[must_use]
    pub fn presumed_before(&self, generation: Generation) -> Recorded {
        let [old, middle, new] = self.before;
        let order = match generation {
            ..=535 => [old, middle, new],
            536..=579 => [middle, new, old],
            _ => [new, middle, old],
        };
        order
            .into_iter()
            .find(|answer| *answer != Recorded::Unknown)
            .unwrap_or(Recorded::Unknown)
    }
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Rows of `libcuda.txt` or `nvml.txt`.
#[must_use]
pub fn exports(text: &str) -> Vec<Export<'_>> {
    let row = |line| {
        let fields: Vec<&str> = str::split(line, ' ').collect();
        assert!(fields.len() >= 6, "`{line}` has too few columns");
        let answer = |at: usize| Recorded::parse(fields[at]);
        Export {
            name: fields[0],
            span: Span::parse(fields[1]),
            before: [answer(2), answer(3), answer(4)],
            after: (5..fields.len()).map(answer).collect(),
        }
    };
    lines(text).map(row).collect()
}

/// What a base name is from some version on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub from: i32,
    /// For flags 0 (default), 1 (legacy stream), 2 (per-thread default stream): a symbol, or `None`, newer than asked.
    pub by_flags: [Option<String>; 3],
}

/// A row of `proc-address.txt`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookUp<'t> {
    pub base: &'t str,
    pub runs: Vec<Run>,
}

/// Rows of `proc-address.txt`.
#[must_use]
pub fn look_ups(text: &str) -> Vec<LookUp<'_>> {
    let row = |line| {
        let mut fields = str::split(line, ' ');
        let base = fields.next().unwrap_or_default();
        LookUp {
            base,
            runs: fields.map(|field| run(base, field)).collect(),
        }
    };
    lines(text).map(row).collect()
}

fn run(base: &str, text: &str) -> Run {
    let malformed = || -> ! { panic!("`{base}`: `{text}` is not version:answer") };
    let Some((from, spelled)) = text.split_once(':') else {
        malformed()
    };
    let symbol = |answer: &str| match answer.strip_prefix('+') {
        Some(suffix) => Some(format!("{base}{suffix}")),
        None if answer == "?" => None,
        None => malformed(),
    };
    let mut answers: Vec<Option<String>> = spelled.split(',').map(symbol).collect();
    if answers.len() == 1 {
        answers = vec![answers[0].clone(); 3];
    }
    Run {
        from: from.parse().unwrap_or_else(|_| malformed()),
        by_flags: answers.try_into().unwrap_or_else(|_| malformed()),
    }
}

/// A row of `cuda-errors.txt` or `nvml-errors.txt`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorRow<'t> {
    pub code: u32,
    pub texts: Vec<&'t str>,
    /// The first generation that knows the code.
    pub since: Generation,
}

/// Rows of `cuda-errors.txt` and `nvml-errors.txt`: a code, `texts` texts, and a generation where not all know it.
#[must_use]
pub fn errors(text: &str, texts: usize) -> Vec<ErrorRow<'_>> {
    let row = |line| {
        let malformed = || -> ! { panic!("`{line}` is not a code and {texts} texts") };
        let mut fields = str::split(line, '\t');
        let code = fields.next().and_then(|code| code.parse().ok());
        let texts: Vec<&str> = fields.by_ref().take(texts).collect();
        let since = fields
            .next()
            .map_or(GENERATIONS[0], |text| Span::parse(text).first);
        ErrorRow {
            code: code.unwrap_or_else(|| malformed()),
            texts,
            since,
        }
    };
    lines(text).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_who_exports_it_and_who_answered_what() {
        let rows = exports("# about\ncuOld 470-525 3 - 1 400\ncuNew 550 - S - -\n");
        assert_eq!(rows.len(), 2);
        assert!(rows[0].span.contains(470) && !rows[0].span.contains(535));
        assert!(rows[1].span.contains(580) && !rows[1].span.contains(535));
        assert_eq!(
            (rows[0].before(535), rows[0].before(525)),
            (Recorded::Code(3), Recorded::Unknown)
        );
        assert_eq!(
            (rows[0].presumed_before(470), rows[0].presumed_before(555)),
            (Recorded::Code(3), Recorded::Code(1))
        );
        assert_eq!(rows[1].presumed_before(580), Recorded::Crash);
        assert_eq!(rows[0].after, [Recorded::Code(400)]);
    }

    #[test]
    fn one_answer_stands_for_all_flags() {
        let rows = look_ups("cuX 2000:+ 7000:+_v2,?,+_v2_ptsz");
        let symbol = |name: &str| Some(name.to_owned());
        assert_eq!(
            rows[0].runs[0].by_flags,
            [symbol("cuX"), symbol("cuX"), symbol("cuX")]
        );
        assert_eq!(
            (rows[0].runs[1].from, &rows[0].runs[1].by_flags),
            (7000, &[symbol("cuX_v2"), None, symbol("cuX_v2_ptsz")])
        );
    }

    #[test]
    #[should_panic(expected = "`600` is not a driver generation")]
    fn a_malformed_row_is_quoted() {
        let _ = exports("cuX 600 - - - -");
    }
}
