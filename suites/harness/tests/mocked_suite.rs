//! The runner is shown a suite of cases that pass, fail, crash, hang and skip, and must tell them apart. They need no
//! driver library, so that only the harness itself is on trial.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use harness::journal::Journal;
use harness::report::{Report, Run};
use harness::{
    Driver, EntryResult, Runner, Shard, Status, Suite, Target, Verdict, ensure, ensure_eq, fail,
    skip,
};
use libtest_mimic::{Arguments, Failed, Trial};

harness::cases! {
    /// Ends as it should.
    passes { absent: [Cuda, Nvml, Icd] } (session) {
        ensure!(!session.is_real(), "the suite runs over a mock");
        Ok(())
    }

    /// Breaks its promise.
    fails { kind: Budget, absent: [Cuda, Nvml, Icd] } (_session) {
        fail!("granted 5 GiB of 4 GiB");
    }

    /// Panics, which is no crash of the process.
    panics { absent: [Cuda, Nvml, Icd] } (_session) {
        panic!("at the sight of it");
    }

    /// Says why this machine cannot show it.
    skips { absent: [Cuda, Nvml, Icd] } (_session) {
        skip!("no second GPU");
    }

    /// Dies of a signal.
    crashes { absent: [Cuda, Nvml, Icd] } (_session) {
        std::process::abort();
    }

    /// Leaves without a word.
    leaves { absent: [Cuda, Nvml, Icd] } (_session) {
        #[expect(clippy::disallowed_methods, reason = "what the case is about")]
        std::process::exit(7);
    }

    /// Never ends.
    hangs { seconds: 1, absent: [Cuda, Nvml, Icd] } (_session) {
        loop {
            std::thread::sleep(Duration::from_secs(60));
        }
    }

    /// Writes to stdout what could be taken for a verdict.
    prints { absent: [Cuda, Nvml, Icd] } (_session) {
        println!("\"Passed\"");
        fail!("the runner believed what it printed");
    }

    /// Exchanges lines with another process, which sees its own name.
    talks { env: [("RINGFENCE_TEST_WORD", "shibboleth")], absent: [Cuda, Nvml, Icd] } (session) {
        let mut child = session.spawn("echoes", &["one"])?;
        ensure_eq!(child.line()?, "one", "the argument");
        child.say("two\nlines")?;
        ensure_eq!(child.line()?, "two\nlines", "the line");
        let mut second = session.launch("tells_variable").args(&["RINGFENCE_ROLE"]).start()?;
        ensure_eq!(second.line()?, "tells_variable", "the name of a first process");
        let mut third = session.launch("tells_variable").args(&["RINGFENCE_ROLE"]).start()?;
        ensure_eq!(third.line()?, "tells_variable#2", "the name of a second process");
        let mut fourth = session.launch("tells_variable").args(&["RINGFENCE_TEST_WORD"]).start()?;
        ensure_eq!(fourth.line()?, "shibboleth", "the case's variable");
        child.finish()
    }

    /// Another process's failure is the case's.
    hears_failure { absent: [Cuda, Nvml, Icd] } (session) {
        session.spawn("gives_up", &[])?.line()?;
        Ok(())
    }

    /// Another process that dies is noticed.
    hears_death { absent: [Cuda, Nvml, Icd] } (session) {
        let mut child = session.spawn("echoes", &["one"])?;
        child.line()?;
        child.kill()?;
        match child.line() {
            Err(harness::Failure::Broken(seen)) if seen.contains("signal: 9") => Ok(()),
            other => fail!("the dead process said {other:?}"),
        }
    }

    /// A process that outlives the case is ended with it.
    leaves_a_process_behind { absent: [Cuda, Nvml, Icd] } (session) {
        let mut child = session.spawn("echoes", &["one"])?;
        child.line()?;
        std::fs::write(left_behind(std::os::unix::process::parent_id()), child.pid().to_string())?;
        std::mem::forget(child);
        Ok(())
    }
}

harness::roles! {
    /// Says its arguments, then every line it hears.
    echoes(_session, parent) {
        for argument in parent.args().to_vec() {
            parent.say(&argument)?;
        }
        while let Some(line) = parent.hear() {
            parent.say(&line)?;
        }
        Ok(())
    }

    /// Says the value of a variable.
    tells_variable(_session, parent) {
        let value = std::env::var_os(&parent.args()[0]).unwrap_or_default();
        parent.say(&value.to_string_lossy())
    }

    /// Fails at once.
    gives_up(_session, _parent) {
        fail!("out of patience");
    }
}

const SUITE: Suite = Suite {
    cases: &[CASES],
    roles: &[ROLES],
    expectations: &[],
    afterwards: |_| Ok(()),
    exhaust: |_| false,
};

fn main() -> ExitCode {
    if let Some(code) = harness::child_main(&SUITE) {
        return code;
    }
    let arguments = Arguments::from_args();
    type Check = fn() -> Result<(), Failed>;
    let checks: [(&str, Check); 4] = [
        (
            "each_case_gets_the_status_that_it_earned",
            each_case_gets_the_status_that_it_earned,
        ),
        (
            "where_nothing_enforces_a_failing_budget_case_is_expected",
            where_nothing_enforces,
        ),
        (
            "a_process_left_behind_is_ended_with_its_case",
            a_process_left_behind,
        ),
        (
            "a_report_reads_the_same_on_every_run",
            a_report_reads_the_same_on_every_run,
        ),
    ];
    let trials = checks
        .into_iter()
        .map(|(name, check)| Trial::test(name, check))
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Runs those cases under a target that sets budgets and has no libraries.
fn run(names: &[&str], enforces: bool) -> Result<Vec<EntryResult>, Failed> {
    let target = Target {
        name: "mocked".to_owned(),
        enforces,
        ..Target::nothing()
    };
    let runner = Runner::new(SUITE, target, Driver::default())?;
    let entries: Vec<_> = runner
        .entries()
        .into_iter()
        .filter(|entry| names.contains(&entry.case.name))
        .collect();
    assert_eq!(entries.len(), names.len(), "every case asked for is there");
    Ok(runner.run(&entries, 2, |_| ()))
}

fn each_case_gets_the_status_that_it_earned() -> Result<(), Failed> {
    let promised = [
        ("passes", Status::Pass),
        ("fails", Status::Fail),
        ("panics", Status::Fail),
        ("skips", Status::Skip),
        ("crashes", Status::Crash),
        ("leaves", Status::Crash),
        ("hangs", Status::Timeout),
        ("prints", Status::Fail),
        ("talks", Status::Pass),
        ("hears_failure", Status::Fail),
        ("hears_death", Status::Pass),
    ];
    let results = run(&promised.map(|(name, _)| name), true)?;
    let seen: Vec<_> = results
        .iter()
        .map(|result| (result.name.as_str(), result.status))
        .collect();
    assert_eq!(
        seen,
        promised.map(|(name, status)| (name, Some(status))),
        "{results:#?}"
    );
    Ok(())
}

fn where_nothing_enforces() -> Result<(), Failed> {
    let verdicts = |enforces| {
        Ok::<_, Failed>(
            run(&["passes", "fails"], enforces)?
                .iter()
                .map(|result| result.verdict)
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(verdicts(true)?, [Verdict::Pass, Verdict::Fail]);
    assert_eq!(verdicts(false)?, [Verdict::Pass, Verdict::ExpectedFail]);
    Ok(())
}

/// Where a case of that runner notes whom it left: a case's own directory is gone with it.
fn left_behind(runner: u32) -> PathBuf {
    std::env::temp_dir().join(format!("ringfence-left-behind-{runner}"))
}

fn a_process_left_behind() -> Result<(), Failed> {
    let results = run(&["leaves_a_process_behind"], true)?;
    assert_eq!(results[0].status, Some(Status::Pass));
    let note = left_behind(std::process::id());
    let pid = std::fs::read_to_string(&note)?;
    std::fs::remove_file(note)?;
    let gone = || match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        // A zombie that init has not reaped yet is dead, too.
        Ok(stat) => stat
            .rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('Z')),
        Err(_) => true,
    };
    for _ in 0..6000 {
        if gone() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(format!("process {pid} lives on").into())
}

fn a_report_reads_the_same_on_every_run() -> Result<(), Failed> {
    let results = run(
        &["passes", "fails", "skips", "crashes", "hears_failure"],
        true,
    )?;
    let entries = results.iter().map(|result| result.name.clone()).collect();
    let report = Report {
        run: Run {
            target: "mocked".to_owned(),
            driver: Driver::default().to_string(),
            machine: String::new(),
            shard: Shard::WHOLE,
            started: "2026-11-22T13:00:00Z".to_owned(),
            entries,
        },
        results,
        took: Duration::from_secs(1),
    };
    let file = tempfile::NamedTempFile::new()?;
    Journal::create(file.path())?.write(&report)?;
    let lines = std::fs::read_to_string(file.path())?;
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r" +\d+\.\d\n", " [s]\n");
    settings.add_filter(r#"time="\d+\.\d+""#, "time=\"[s]\"");
    settings.add_filter(r#""took":[\d.e-]+"#, "\"took\":[s]");
    settings.set_prepend_module_to_snapshot(false);
    settings.bind(|| -> Result<(), Failed> {
        insta::assert_snapshot!("table", report.table());
        insta::assert_snapshot!("junit", harness::junit::document(&[report]));
        insta::assert_snapshot!("json", lines);
        Ok(())
    })
}
