//! Runs as one HTML page: cases × targets × drivers, what each case promises, what was seen where it broke, and what devices and ledger held over
//! its time. The page carries its data and asks for nothing else: its own content policy forbids it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::course::Course;
use crate::report::{Report, story};
use crate::runner::EntryResult;
use crate::status::Verdict;

/// The page around its data.
const TEMPLATE: &str = include_str!("page.html");
/// What of it stands where the data goes.
const PLACE: &str = "{\"data\": \"goes here\"}";

/// What the page shows.
#[derive(Serialize)]
struct Data<'a> {
    cases: Vec<CaseRow<'a>>,
    runs: Vec<RunColumn<'a>>,
}

#[derive(Serialize)]
struct CaseRow<'a> {
    name: &'a str,
    area: &'a str,
    promise: &'a str,
    defects: &'a [String],
}

#[derive(Serialize)]
struct RunColumn<'a> {
    target: &'a str,
    driver: &'a str,
    machine: &'a str,
    shard: String,
    started: &'a str,
    seconds: f64,
    /// In the order of the cases; none where the run is not of the case.
    results: Vec<Option<Cell<'a>>>,
}

#[derive(Serialize)]
struct Cell<'a> {
    verdict: Verdict,
    expected: bool,
    story: String,
    detail: &'a str,
    said: &'a str,
    calls: &'a str,
    seconds: f64,
    courses: &'a [Course],
}

/// The whole document.
pub fn document(runs: &[Report]) -> Result<String, serde_json::Error> {
    // `</script>` in a message would end the data, and `<!--` would hide its end.
    let data = serde_json::to_string(&data(runs))?.replace('<', "\\u003c");
    Ok(TEMPLATE.replacen(PLACE, &data, 1))
}

fn data(runs: &[Report]) -> Data<'_> {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut cases: Vec<CaseRow<'_>> = Vec::new();
    for result in runs.iter().flat_map(|run| &run.results) {
        let next = cases.len();
        let place = *places.entry(&result.name).or_insert(next);
        if place == next {
            cases.push(CaseRow {
                name: &result.name,
                area: &result.area,
                promise: &result.promise,
                defects: &result.defects,
            });
        }
    }
    let runs = runs.iter().map(|report| RunColumn {
        target: &report.run.target,
        driver: &report.run.driver,
        machine: &report.run.machine,
        shard: report.run.shard.to_string(),
        started: &report.run.started,
        seconds: report.took.as_secs_f64(),
        results: column(report, &places),
    });
    Data {
        runs: runs.collect(),
        cases,
    }
}

/// A run's results, in the order of the cases.
fn column<'a>(report: &'a Report, places: &BTreeMap<&str, usize>) -> Vec<Option<Cell<'a>>> {
    let mut results: Vec<Option<Cell<'a>>> = places.iter().map(|_| None).collect();
    for result in &report.results {
        results[places[result.name.as_str()]] = Some(cell(result));
    }
    results
}

fn cell(result: &EntryResult) -> Cell<'_> {
    Cell {
        verdict: result.verdict,
        expected: result.verdict.is_expected(),
        story: story(result),
        detail: &result.detail,
        said: &result.said,
        calls: &result.calls,
        seconds: result.took.as_secs_f64(),
        courses: &result.courses,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn the_template_has_one_place_for_data() {
        assert_eq!(TEMPLATE.matches(PLACE).count(), 1);
    }

    #[test]
    fn a_message_cannot_end_the_data() {
        let mut run = report("ours", "1/1");
        let message = "</script><script>alert(1)</script><!--";
        run.results[0].detail = message.to_owned();
        let text = document(&[run]).expect("a page");
        let count = |text: &str, what: &str| text.matches(what).count();
        assert_eq!(count(&text, "</script"), count(TEMPLATE, "</script"));
        assert_eq!(count(&text, "<!--"), count(TEMPLATE, "<!--"));
        let start = text.find("{\"cases\"").expect("the data");
        let data: serde_json::Value = serde_json::Deserializer::from_str(&text[start..])
            .into_iter()
            .next()
            .expect("a value")
            .expect("it reads");
        assert_eq!(data["runs"][0]["results"][0]["detail"], message);
    }

    #[test]
    fn a_case_that_one_run_lacks_has_an_empty_cell_there() {
        let (whole, part) = (report("ours", "1/1"), report("none", "1/3"));
        let runs = [part, whole];
        let data = data(&runs);
        assert_eq!(data.cases.len(), runs[1].results.len());
        let filled = |run: usize| data.runs[run].results.iter().flatten().count();
        assert_eq!(filled(0), runs[0].results.len());
        assert_eq!(filled(1), runs[1].results.len());
    }
}
