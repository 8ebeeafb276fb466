//! A run's results as JUnit XML, for the build servers that show it.

use crate::report::{Report, story};
use crate::status::Verdict;

/// The whole document.
pub fn document(report: &Report) -> String {
    let count = |of: &dyn Fn(Verdict) -> bool| {
        report
            .results
            .iter()
            .filter(|result| of(result.verdict))
            .count()
    };
    let skips = count(&|verdict| verdict == Verdict::Skip);
    let errors = count(&|verdict| verdict == Verdict::Missing);
    let failures = count(&|verdict| !verdict.is_expected()) - errors;
    let suite = escape(&format!("{} on {}", report.target, report.driver));
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"{suite}\" tests=\"{}\" \
         failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skips}\" time=\"{:.3}\">\n",
        report.results.len(),
        report.took.as_secs_f64(),
    );
    for result in &report.results {
        let (name, area, seconds) = (
            escape(&result.name),
            escape(result.area),
            result.took.as_secs_f64(),
        );
        text +=
            &format!("    <testcase classname=\"{area}\" name=\"{name}\" time=\"{seconds:.3}\"");
        let (message, said) = (escape(&story(result)), escape(&result.said));
        text += &match result.verdict {
            Verdict::Pass => "/>\n".to_owned(),
            Verdict::Skip => format!("><skipped message=\"{message}\"/></testcase>\n"),
            Verdict::ExpectedFail | Verdict::KnownFlake => {
                format!(
                    "><system-out>{}: {message}</system-out></testcase>\n",
                    result.verdict
                )
            }
            Verdict::Missing => format!("><error message=\"{message}\"/></testcase>\n"),
            Verdict::Fail | Verdict::Crash | Verdict::Timeout | Verdict::UnexpectedImprovement => {
                format!(
                    "><failure type=\"{}\" message=\"{message}\">{said}</failure></testcase>\n",
                    result.verdict
                )
            }
        };
    }
    text + "  </testsuite>\n</testsuites>\n"
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
