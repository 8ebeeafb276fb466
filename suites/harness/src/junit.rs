//! A run's results as JUnit XML, for the build servers that show it.

use crate::report::{Report, story};
use crate::runner::EntryResult;
use crate::status::Verdict;

/// The whole document: a suite of each run.
pub fn document(runs: &[Report]) -> String {
    let suites: String = runs.iter().map(suite).collect();
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n{suites}</testsuites>\n")
}

fn suite(report: &Report) -> String {
    let count = |of: &dyn Fn(Verdict) -> bool| {
        let verdicts = report.results.iter().map(|result| result.verdict);
        verdicts.filter(|verdict| of(*verdict)).count()
    };
    let skips = count(&|verdict| verdict == Verdict::Skip);
    let errors = count(&|verdict| verdict == Verdict::Missing);
    let failures = count(&|verdict| !verdict.is_expected()) - errors;
    let name = escape(&report.run.to_string());
    let (tests, seconds) = (report.results.len(), report.took.as_secs_f64());
    let started = report.run.started.trim_end_matches('Z');
    let cases: String = report.results.iter().map(case).collect();
    format!(
        "  <testsuite name=\"{name}\" timestamp=\"{started}\" tests=\"{tests}\" failures=\"{failures}\" \
         errors=\"{errors}\" skipped=\"{skips}\" time=\"{seconds:.3}\">\n{cases}  </testsuite>\n"
    )
}

fn case(result: &EntryResult) -> String {
    let (name, area) = (escape(&result.name), escape(&result.area));
    let seconds = result.took.as_secs_f64();
    let (message, said) = (escape(&story(result)), escape(&result.said));
    let verdict = result.verdict;
    let body = match verdict {
        Verdict::Pass => "/>".to_owned(),
        Verdict::Skip => format!("><skipped message=\"{message}\"/></testcase>"),
        Verdict::ExpectedFail | Verdict::KnownFlake => {
            format!("><system-out>{verdict}: {message}</system-out></testcase>")
        }
        Verdict::Missing => format!("><error message=\"{message}\"/></testcase>"),
        Verdict::Fail | Verdict::Crash | Verdict::Timeout | Verdict::UnexpectedImprovement => {
            format!(
                "><failure type=\"{verdict}\" message=\"{message}\">{said}</failure></testcase>"
            )
        }
    };
    format!("    <testcase classname=\"{area}\" name=\"{name}\" time=\"{seconds:.3}\"{body}\n")
}

/// XML 1.0 allows neither its own marks nor most control characters in text.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '&' => escaped += "&amp;",
            '"' => escaped += "&quot;",
            '\n' => escaped += "&#10;",
            '\t' => escaped.push('\t'),
            control if control.is_control() => escaped.push('\u{fffd}'),
            plain => escaped.push(plain),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_and_control_characters_do_not_reach_the_document() {
        assert_eq!(
            escape("a<b> & \"c\"\u{1b}[0m\n"),
            "a&lt;b&gt; &amp; &quot;c&quot;\u{fffd}[0m&#10;"
        );
    }
}
