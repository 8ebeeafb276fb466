use super::*;

const ALLOWED: &str = "cuda cuMemFree_v2 * 0 1 # the other side keeps it\n";

fn compared(left: &[&str], right: &[&str]) -> Comparison {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, lines: &[&str]| {
        let path = directory.path().join(name);
        std::fs::write(&path, lines.join("\n")).expect("writable");
        path
    };
    let rules = Rules::allowing("test", ALLOWED).expect("good rules");
    compare(&write("left", left), &write("right", right), &rules).expect("comparable")
}

fn call(entry: &str, args: &str, answer: u32) -> String {
    format!(
        r#"{{"role":"case","api":"cuda","entry":"{entry}","args":{{{args}}},"answer":{answer}}}"#
    )
}

#[test]
fn answers_shapes_and_calls_without_a_counterpart_are_told_apart() {
    let init = call("cuInit", r#""flags":0"#, 0);
    let info = |free: u64| call("cuMemGetInfo_v2", &format!(r#""free":{free},"total":9"#), 0);
    let alloc = |name: &str, answer| {
        call(
            "cuMemAlloc_v2",
            &format!(r#""dptr":"{name}","bytesize":5"#),
            answer,
        )
    };
    let free = |name: &str, answer| call("cuMemFree_v2", &format!(r#""dptr":"{name}""#), answer);
    let count = |value: u32| call("cuDeviceGetCount", &format!(r#""count":{value}"#), 0);
    let (left_info, right_info) = (info(1), info(2));
    let left = [
        &*init,
        &left_info,
        &alloc("mem#1", 0),
        &count(1),
        &free("mem#1", 0),
        &free("mem#1", 0),
        &init,
        &init,
    ];
    let right = [
        &*init,
        &right_info,
        &right_info,
        &alloc("mem#7", 0),
        &count(2),
        &free("unknown", 0),
        &free("mem#7", 1),
        &init,
        &init,
    ];
    let comparison = compared(&left, &right);
    assert!(!comparison.is_allowed());
    insta::assert_snapshot!("trace_diff_report", comparison.report(true));
}

#[test]
fn a_call_without_a_counterpart_needs_a_row_with_room_for_it() {
    let alloc = call("cuMemAlloc_v2", r#""dptr":"mem#1","bytesize":5"#, 2);
    let allowed = |row: &str, left: usize, right: usize| {
        let directory = tempfile::tempdir().expect("a directory");
        let side = |name: &str, count| {
            let path = directory.path().join(name);
            std::fs::write(&path, vec![&*alloc; count].join("\n")).expect("writable");
            path
        };
        let rules = Rules::allowing("test", row).expect("good rules");
        let sides = (side("left", left), side("right", right));
        compare(&sides.0, &sides.1, &rules)
            .expect("comparable")
            .is_allowed()
    };
    let up_to_two = "cuda cuMemAlloc_v2 * -2 -0 # the last blocks\n";
    assert!(allowed(up_to_two, 4, 4) && allowed(up_to_two, 6, 4));
    assert!(!allowed(up_to_two, 7, 4) && !allowed(up_to_two, 4, 5));
    assert!(allowed(
        "cuda cuMemAlloc_v2 * - - # who comes first\n",
        1,
        9
    ));
    assert!(!allowed(ALLOWED, 5, 4));
}

#[test]
fn threads_and_roles_are_compared_each_with_its_like() {
    let of = |role: &str, thread: u32, answer: u32| {
        format!(
            r#"{{"role":"{role}","thread":{thread},"api":"cuda","entry":"cuInit","args":{{"flags":0}},"answer":{answer}}}"#
        )
    };
    let comparison = compared(
        &[&of("case", 1, 0), &of("child", 1, 3), &of("case", 2, 1)],
        &[&of("case", 2, 1), &of("case", 1, 0), &of("child", 1, 3)],
    );
    assert_eq!(
        comparison.tallies["cuda"],
        Tally {
            same: 3,
            ..Tally::default()
        }
    );
    assert!(comparison.is_allowed());
}

#[test]
fn what_another_thread_did_instead_is_the_same_elsewhere() {
    let of = |thread: u32, entry: &str, answer: u32| {
        format!(
            r#"{{"role":"case","thread":{thread},"api":"cuda","entry":"{entry}","args":{{"flags":0}},"answer":{answer}}}"#
        )
    };
    let left = [
        &*of(1, "cuInit", 0),
        &of(2, "cuInit", 0),
        &of(2, "cuCtxSynchronize", 0),
    ];
    for (answer, elsewhere, alone) in [(0, 1, 0), (1, 0, 1)] {
        let right = [
            &*of(1, "cuInit", 0),
            &of(1, "cuCtxSynchronize", answer),
            &of(2, "cuInit", 0),
        ];
        let tally = Tally {
            same: 2,
            elsewhere,
            only_left: alone,
            only_right: alone,
            ..Tally::default()
        };
        assert_eq!(
            compared(&left, &right).tallies["cuda"],
            tally,
            "a call that answers {answer}"
        );
    }
}

#[test]
fn a_line_that_is_none_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("bad.jsonl");
    std::fs::write(&path, "{\"api\":\"cuda\"}\n").expect("writable");
    let rules = Rules::shipped().expect("good rules");
    let error = compare(&path, &path, &rules).expect_err("no trace");
    assert!(matches!(error, DiffError::Line { line: 1, .. }));
}

#[test]
fn a_rule_without_a_reason_is_named() {
    let error = Rules::allowing("mine.txt", "cuda cuInit * 0 1\n").expect_err("no reason");
    assert!(
        matches!(error, RulesError::Form { list, line, .. } if list == "mine.txt" && line.contains("cuInit"))
    );
}
