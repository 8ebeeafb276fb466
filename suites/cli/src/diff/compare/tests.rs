use std::path::Path;

use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::diff::file::{AGREEMENT, Known, LOCAL_HEAPS};

fn record(cuda_version: i32, facts: &[(Part, &str, &str)]) -> Record {
    let mut parts: BTreeMap<Part, Known> = BTreeMap::new();
    for (part, subject, value) in facts {
        let known = parts.entry(*part).or_insert_with(|| Ok(Facts::new()));
        let known = known.as_mut().expect("facts");
        known.insert((*subject).to_owned(), (*value).to_owned());
    }
    Record {
        file: "file".to_owned(),
        driver: "real".to_owned(),
        is_mock: false,
        version: None,
        cuda_version: Some(cuda_version),
        parts,
    }
}

fn compared(old: &Record, new: &Record) -> Comparison {
    compare(old, new, &Enforcer::ours(), &Allowed::default())
}

/// The one difference between two facts.
fn only(part: Part, subject: &str, old: &str, new: &str) -> Difference {
    let (old, new) = (
        record(12000, &[(part, subject, old)]),
        record(12000, &[(part, subject, new)]),
    );
    let mut differences = compared(&old, &new).differences;
    assert_eq!(differences.len(), 1, "{differences:#?}");
    differences.remove(0)
}

const SYMBOL: &str = "exported";

fn symbols(names: &[&str]) -> Record {
    let facts: Vec<_> = names
        .iter()
        .map(|name| (Part::Symbols, *name, SYMBOL))
        .collect();
    record(12000, &facts)
}

#[rstest]
// Gone: a hook, a call of ours, a case's, nobody's.
#[case(&["cuInit", "cuMemAlloc", "cuMemAlloc_v2"], &["cuInit", "cuMemAlloc"], "cuMemAlloc_v2", Verdict::Breaks)]
#[case(&["cuInit", "cuStreamGetCtx"], &["cuInit"], "cuStreamGetCtx", Verdict::Breaks)]
#[case(&["cuInit", "cuMemcpyDtoH_v2"], &["cuInit"], "cuMemcpyDtoH_v2", Verdict::Look)]
#[case(&["cuInit", "nvmlRetry_NvRmControl"], &["cuInit"], "nvmlRetry_NvRmControl", Verdict::Nothing)]
// Asked by us in two versions.
#[case(&["nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses_v3"], &["nvmlDeviceGetComputeRunningProcesses_v3"], "nvmlDeviceGetComputeRunningProcesses_v2", Verdict::Look)]
#[case(&["cuEventRecord", "cuEventRecord_ptsz"], &["cuEventRecord"], "cuEventRecord_ptsz", Verdict::Breaks)]
// Gone, while a twin of the same ABI has a hook and is there.
#[case(&["cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2"], &["cuDevicePrimaryCtxRelease_v2"], "cuDevicePrimaryCtxRelease", Verdict::Look)]
// New: hooked, known, another version of a hook, unknown.
#[case(&["cuInit"], &["cuInit", "cuMemAlloc_v2"], "cuMemAlloc_v2", Verdict::Nothing)]
#[case(&["cuInit"], &["cuInit", "cuGreenCtxCreate"], "cuGreenCtxCreate", Verdict::Nothing)]
#[case(&["cuInit"], &["cuInit", "cuMemAlloc_v3"], "cuMemAlloc_v3", Verdict::Breaks)]
#[case(&["cuInit"], &["cuInit", "cuMemCreate_ptsz"], "cuMemCreate_ptsz", Verdict::Breaks)]
#[case(&["cuInit"], &["cuInit", "cuMemAllocTwice"], "cuMemAllocTwice", Verdict::Look)]
#[case(&["cuInit"], &["cuInit", "cuNobodyKnows"], "cuNobodyKnows", Verdict::Look)]
fn a_symbol_that_comes_or_goes_matters_by_what_hangs_on_it(
    #[case] old: &[&str],
    #[case] new: &[&str],
    #[case] subject: &str,
    #[case] verdict: Verdict,
) {
    let comparison = compared(&symbols(old), &symbols(new));
    let [difference] = &comparison.differences[..] else {
        panic!("{:#?}", comparison.differences);
    };
    assert_eq!(
        (difference.subject.as_str(), difference.verdict),
        (subject, verdict),
        "{difference:#?}"
    );
    assert_eq!(comparison.verdict(), verdict);
}

#[test]
fn a_hook_that_is_gone_is_named_with_its_cases_and_defects() {
    let comparison = compared(
        &symbols(&["cuInit", "cuMemAlloc_v2"]),
        &symbols(&["cuInit"]),
    );
    let touch = &comparison.differences[0].touch;
    assert!(touch.hooks.contains("cuMemAlloc_v2"));
    assert_eq!(touch.defects, ["S2"]);
    assert!(
        touch.cases.contains("a_missing_v2_stays_missing"),
        "{touch:?}"
    );
    assert!(touch.further_defects.contains("C1"));
}

#[rstest]
// A version that the old driver knew gets another ABI, a twin, nothing.
#[case("cuMemAlloc", "2000:+ 3020:+_v2", "2000:+", Some(("cuMemAlloc from 3020 on", Verdict::Breaks)))]
#[case("cuDevicePrimaryCtxRelease", "7000:+ 11000:+_v2", "7000:+", Some(("cuDevicePrimaryCtxRelease from 11000 on", Verdict::Look)))]
#[case("cuMemCreate", "10020:+", "1000:? 10020:!", Some(("cuMemCreate from 10020 on", Verdict::Breaks)))]
// A newer version: hooked, unhooked, and for one stream alone.
#[case("cuCtxCreate", "2000:+ 11040:+_v3", "2000:+ 11040:+_v3 12050:+_v4", Some(("cuCtxCreate from 12050 on", Verdict::Nothing)))]
#[case("cuCtxCreate", "2000:+ 11040:+_v3", "2000:+ 11040:+_v3 12080:+_v9", Some(("cuCtxCreate from 12080 on", Verdict::Breaks)))]
#[case("cuGraphLaunch", "10000:+,+,+_ptsz", "10000:+", Some(("cuGraphLaunch from 10000 on (per-thread stream)", Verdict::Look)))]
// What only says it otherwise, and what neither driver knows.
#[case("cuMemCreate", "1000:? 10020:+", "10020:+", None)]
#[case("cuMemCreate", "10020:+", "10020:+ 13010:X", None)]
fn an_answer_of_a_look_up_matters_by_version_and_abi(
    #[case] base: &str,
    #[case] old: &str,
    #[case] new: &str,
    #[case] expected: Option<(&str, Verdict)>,
) {
    let (old, new) = (
        record(12000, &[(Part::LookUps, base, old)]),
        record(13000, &[(Part::LookUps, base, new)]),
    );
    let found = compared(&old, &new).differences;
    let found: Vec<(&str, Verdict)> = found
        .iter()
        .map(|one| (one.subject.as_str(), one.verdict))
        .collect();
    assert_eq!(found, Vec::from_iter(expected));
}

#[rstest]
#[case(
    Part::Answers,
    "cuMemAlloc_v2 with a context",
    "1",
    "201",
    Verdict::Look
)]
#[case(
    Part::Answers,
    "cuMemAlloc_v2 with a context",
    "1",
    "0",
    Verdict::Breaks
)]
#[case(
    Part::Answers,
    "cuMemAlloc_v2 with a context",
    "1",
    "S",
    Verdict::Breaks
)]
#[case(
    Part::Answers,
    "cuFuncGetAttribute before cuInit",
    "3",
    "1",
    Verdict::Look
)]
#[case(
    Part::Answers,
    "cuNobodyKnows before cuInit",
    "3",
    "1",
    Verdict::Nothing
)]
#[case(
    Part::Structures,
    "nvmlDeviceGetMemoryInfo_v2",
    "2:40",
    "2:48",
    Verdict::Breaks
)]
#[case(
    Part::Structures,
    "nvmlDeviceGetMemoryInfo_v2",
    "2:40",
    "2:40 3:64",
    Verdict::Breaks
)]
#[case(
    Part::Structures,
    "nvmlDeviceGetMemoryInfo_v2",
    "2:40",
    "none",
    Verdict::Breaks
)]
#[case(
    Part::Structures,
    "nvmlDeviceGetPdi",
    "1:16",
    "1:16 2:24",
    Verdict::Nothing
)]
#[case(
    Part::Identities,
    "device 0: UUID by Vulkan",
    "GPU-8b9d345e-f790",
    "GPU-00000000-0000",
    Verdict::Breaks
)]
#[case(
    Part::Identities,
    "device 0: UUID by Vulkan",
    "GPU-8b9d345e-f790",
    "GPU-8b9d345e-f791",
    Verdict::Look
)]
#[case(
    Part::Identities,
    "device 0: UUID by CUDA",
    "GPU-8b9d345e-f790",
    "none",
    Verdict::Breaks
)]
#[case(
    Part::Totals,
    "device 0: NVML's reserve",
    "644939776",
    "655360000",
    Verdict::Look
)]
#[case(
    Part::Heaps,
    "device 0: heap 0",
    "size 2, flags 1",
    "size 1, flags 1",
    Verdict::Look
)]
#[case(
    Part::Granularities,
    "device 0: block",
    "2097152",
    "4194304",
    Verdict::Breaks
)]
#[case(
    Part::Granularities,
    "device 0: block",
    "2097152",
    "65536",
    Verdict::Look
)]
#[case(
    Part::Granularities,
    "device 0: cuInit",
    "3407872",
    "3407871",
    Verdict::Nothing
)]
#[case(
    Part::Granularities,
    "device 0: cuInit",
    "3407872",
    "3407873",
    Verdict::Breaks
)]
#[case(
    Part::Granularities,
    "cuMemAlloc_v2 of 2097153",
    "4194304",
    "6291456",
    Verdict::Breaks
)]
#[case(
    Part::Granularities,
    "device 0: granularity of vkAllocateMemory",
    "65536",
    "131072",
    Verdict::Breaks
)]
#[case(
    Part::Attributes,
    "device 0: attribute 39",
    "2048",
    "1536",
    Verdict::Look
)]
#[case(
    Part::Attributes,
    "device 0: attribute 13",
    "1980000",
    "1",
    Verdict::Nothing
)]
#[case(Part::Driver, "CUDA version", "13000", "12000", Verdict::Look)]
#[case(Part::Driver, "version", "555.58.02", "580.159.04", Verdict::Nothing)]
fn a_fact_that_changes_matters_by_what_is_built_on_it(
    #[case] part: Part,
    #[case] subject: &str,
    #[case] old: &str,
    #[case] new: &str,
    #[case] verdict: Verdict,
) {
    let difference = only(part, subject, old, new);
    assert_eq!(difference.verdict, verdict, "{difference:#?}");
    if verdict == Verdict::Breaks {
        assert!(!difference.touch.defects.is_empty(), "{difference:#?}");
        assert!(!difference.touch.cases.is_empty(), "{difference:#?}");
    }
}

#[test]
fn devices_that_lose_their_heaps_or_their_one_name_break_a_promise() {
    for (part, fact, old, new) in [
        (Part::Heaps, LOCAL_HEAPS, "0", "none"),
        (Part::Identities, AGREEMENT, "one", "several"),
    ] {
        let subject = format!("device 0: {fact}");
        assert_eq!(only(part, &subject, old, new).verdict, Verdict::Breaks);
        assert_ne!(only(part, &subject, new, old).verdict, Verdict::Breaks);
    }
}

#[test]
fn an_extension_matters_by_what_the_layer_stands_on() {
    let of = |names: &[&str]| {
        let facts: Vec<_> = names
            .iter()
            .map(|name| (Part::Extensions, *name, "1"))
            .collect();
        record(13000, &facts)
    };
    let verdict = |old: &[&str], new: &[&str]| compared(&of(old), &of(new)).verdict();
    let both = &["VK_EXT_pci_bus_info", "VK_KHR_swapchain"];
    assert_eq!(verdict(both, &["VK_KHR_swapchain"]), Verdict::Breaks);
    assert_eq!(verdict(both, &["VK_EXT_pci_bus_info"]), Verdict::Nothing);
    assert_eq!(verdict(&both[..1], both), Verdict::Nothing);
    assert_eq!(
        verdict(&both[..1], &[both[0], "VK_NV_of_tomorrow"]),
        Verdict::Look
    );
}

#[test]
fn what_one_side_does_not_know_is_never_the_same() {
    let subject = "cuMemAlloc_v2 with a context";
    let asked = record(
        12000,
        &[
            (Part::Answers, subject, "1"),
            (Part::Totals, "device 0: total", "5"),
        ],
    );
    for unknown in ["-", "~1", "~2"] {
        let mut other = record(12000, &[(Part::Answers, subject, unknown)]);
        other
            .parts
            .insert(Part::Totals, Err("not recorded".to_owned()));
        for (old, new) in [(&asked, &other), (&other, &asked), (&other, &other)] {
            let comparison = compared(old, new);
            assert!(comparison.differences.is_empty());
            let tally = comparison.tallies["answers"];
            assert_eq!((tally.same, tally.unknown), (0, 1));
            let unknown: Vec<Part> = comparison.unknown.iter().map(|one| one.part).collect();
            assert!(unknown.contains(&Part::Answers) && unknown.contains(&Part::Totals));
        }
    }
}

#[test]
fn facts_of_other_gpus_are_not_compared() {
    let of = |name| {
        record(
            12000,
            &[
                (Part::Identities, "device 0: name", name),
                (Part::Totals, "device 0: total by CUDA", name),
            ],
        )
    };
    let comparison = compared(&of("one"), &of("other"));
    assert!(
        comparison
            .unknown
            .iter()
            .any(|one| one.part == Part::Totals)
    );
    assert!(
        comparison
            .differences
            .iter()
            .all(|one| one.part == Part::Identities)
    );
}

#[test]
fn what_is_allowed_counts_for_nothing_and_stale_rows_are_named() {
    let list = "symbols cuMemAlloc*  # retired\nsymbols cuNone  # old\n";
    let allowed = Allowed::parse("list", list).expect("two rows");
    let comparison = compare(
        &symbols(&["cuInit", "cuMemAlloc_v2"]),
        &symbols(&["cuInit"]),
        &Enforcer::ours(),
        &allowed,
    );
    assert_eq!(comparison.verdict(), Verdict::Nothing);
    assert_eq!(comparison.differences[0].reason.as_deref(), Some("retired"));
    assert_eq!(comparison.stale, ["symbols cuNone"]);
    assert!(Allowed::parse("list", "symbols cuInit").is_err());
}

#[test]
fn a_file_that_is_cut_off_or_none_is_named() {
    use crate::diff::file::FileError;
    let parse = |text: &str| Record::parse(Path::new("p.toml"), text);
    assert!(matches!(
        parse("[tables]\na = \"\"\"\ncut"),
        Err(FileError::Syntax { .. })
    ));
    assert!(matches!(
        parse("name = \"h200\"\n"),
        Err(FileError::NoProbe { .. })
    ));
    let whole = "[probe]\ndriver = \"real\"\nformat = 2\nsections = [\"nulls\"]\n";
    assert!(matches!(parse(whole), Err(FileError::Lacks { section, .. }) if section == "nulls"));
    let newer = "[probe]\ndriver = \"real\"\nformat = 99\n";
    assert!(matches!(
        parse(newer),
        Err(FileError::Newer { format: 99, .. })
    ));
    let old = "[probe]\ndriver = \"mock:h200+535\"\n";
    assert!(matches!(parse(old), Err(FileError::OldMock { .. })));
    assert!(parse("[probe]\ndriver = \"real\"\n").is_ok());
}

/// Names and values that rules are about, and others.
fn facts() -> impl Strategy<Value = Record> {
    let part = prop::sample::select(Part::ALL.to_vec());
    let subject = prop::sample::select(vec![
        "cuMemAlloc",
        "cuMemAlloc_v2",
        "cuMemAlloc_v9",
        "cuInit before cuInit",
        "nvmlDeviceGetMemoryInfo_v2",
        "device 0: UUID by CUDA",
        "device 0: block",
        "device 0: heap 0",
        "VK_EXT_pci_bus_info",
        "cuNobodyKnows",
    ]);
    let value = prop::sample::select(vec![
        "0",
        "1",
        "S",
        "-",
        "~1",
        "exported",
        "2000:+ 3020:+_v2",
        "2000:+",
        "2:40",
        "none",
        "GPU-00",
        "GPU-01",
        "4194304",
    ]);
    let version = prop::sample::select(vec![11040, 12000, 13000]);
    let rows = prop::collection::vec((part, subject, value), 0..40);
    (version, rows).prop_map(|(version, rows)| record(version, &rows))
}

fn gone(comparison: &Comparison) -> BTreeSet<(Part, &str)> {
    let gone = comparison
        .differences
        .iter()
        .filter(|one| one.new.is_none());
    gone.map(|one| (one.part, one.subject.as_str())).collect()
}

fn new(comparison: &Comparison) -> BTreeSet<(Part, &str)> {
    let new = comparison
        .differences
        .iter()
        .filter(|one| one.old.is_none());
    new.map(|one| (one.part, one.subject.as_str())).collect()
}

proptest! {
    #[test]
    fn a_file_does_not_differ_from_itself(record in facts()) {
        let comparison = compared(&record, &record);
        prop_assert!(comparison.differences.is_empty());
        prop_assert_eq!(comparison.verdict(), Verdict::Nothing);
    }

    #[test]
    fn what_is_gone_one_way_is_new_the_other(one in facts(), other in facts()) {
        let (there, back) = (compared(&one, &other), compared(&other, &one));
        prop_assert_eq!(gone(&there), new(&back));
        prop_assert_eq!(new(&there), gone(&back));
        let unknown = |comparison: &Comparison| -> Vec<Part> {
            comparison.unknown.iter().map(|one| one.part).collect()
        };
        prop_assert_eq!(unknown(&there), unknown(&back));
    }
}
