//! A fault plan as one process asks it: rows of other roles left out, look-ups prepared, so that a call without a fault
//! costs a load and a branch.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::fault::{Consultation, Effect, FaultPlan, When, fits};
use crate::os;
use crate::region::Header;
use crate::units::{Api, Bytes, DeviceIndex};

#[derive(Debug)]
pub(crate) struct Plan {
    rules: [Vec<Rule>; 3],
    missing: [Vec<String>; 3],
    seed: u64,
}

#[derive(Debug)]
struct Rule {
    patterns: Vec<String>,
    when: When,
    then: Effect,
    device: Option<DeviceIndex>,
    /// Which of the world's counters counts its calls, or the bytes that they ask for, or remembers when the first came.
    counter: usize,
}

impl Plan {
    pub(crate) fn new(plan: &FaultPlan, role: Option<&str>, seed: u64) -> Self {
        let own = || {
            plan.faults
                .iter()
                .enumerate()
                .filter(|(_, fault)| fault.role.is_none() || fault.role.as_deref() == role)
        };
        let rule = |api, (counter, fault): (usize, &crate::Fault)| {
            let patterns = fault.place().patterns(api);
            let called = !patterns.is_empty() && fault.then != Effect::Missing;
            called.then(|| Rule {
                patterns,
                when: fault.when,
                then: fault.then.clone(),
                device: fault.device,
                counter,
            })
        };
        Self {
            rules: Api::ALL.map(|api| own().filter_map(|row| rule(api, row)).collect()),
            missing: Api::ALL.map(|api| {
                own()
                    .filter_map(|(_, fault)| fault.missing())
                    .filter(|(of, _)| *of == api)
                    .map(|(_, name)| name.to_owned())
                    .collect()
            }),
            seed,
        }
    }

    #[inline]
    pub(crate) fn consult(
        &self,
        api: Api,
        entry: &str,
        asked: impl FnOnce() -> Bytes,
        header: &Header,
    ) -> Consultation<'_> {
        let rules = &self.rules[api as usize];
        if rules.is_empty() {
            Consultation::Proceed
        } else {
            self.consult_rules(rules, entry, asked, header)
        }
    }

    /// Every matching row counts the call; the first that fires decides it. Delays and losses of a device join it.
    fn consult_rules<'a>(
        &'a self,
        rules: &'a [Rule],
        entry: &str,
        asked: impl FnOnce() -> Bytes,
        header: &Header,
    ) -> Consultation<'a> {
        let mut decided = Consultation::Proceed;
        let mut delay = Duration::ZERO;
        let mut asked = Some(asked);
        let mut bytes = Bytes::ZERO;
        for rule in rules
            .iter()
            .filter(|rule| rule.patterns.iter().any(|pattern| fits(pattern, entry)))
        {
            if matches!(rule.when, When::AfterBytes(_))
                && let Some(asked) = asked.take()
            {
                bytes = asked();
            }
            if !self.fires(rule, bytes, header) {
                continue;
            }
            match &rule.then {
                Effect::Delay(time) => delay += *time,
                Effect::Lost => lose(header, rule.device),
                then if decided == Consultation::Proceed => decided = answer(then),
                _ => {}
            }
        }
        if delay > Duration::ZERO {
            std::thread::sleep(delay);
        }
        decided
    }

    fn fires(&self, rule: &Rule, bytes: Bytes, header: &Header) -> bool {
        let counter = &header.counters[rule.counter];
        let call = || counter.fetch_add(1, Relaxed) + 1;
        match rule.when {
            When::Every => true,
            When::Nth(n) => call() == n,
            When::From(n) => call() >= n,
            When::OneIn(n) => {
                let row = rule.counter as u64;
                mix(self.seed ^ mix(row << 32 ^ call())).is_multiple_of(n)
            }
            When::AfterBytes(limit) => {
                counter.fetch_add(bytes.0, Relaxed).saturating_add(bytes.0) > limit.0
            }
            When::AfterTime(time) => since_first(header, rule.counter) >= time,
        }
    }

    pub(crate) fn missing(&self, api: Api) -> &[String] {
        &self.missing[api as usize]
    }
}

/// How long ago the row with this counter was first asked for, by any process of the world; this may be the first time.
pub(crate) fn since_first(header: &Header, counter: usize) -> Duration {
    let now = os::now_ns();
    let first = match header.counters[counter].compare_exchange(0, now, Relaxed, Relaxed) {
        Ok(_) => now,
        Err(first) => first,
    };
    Duration::from_nanos(now.saturating_sub(first))
}

/// The device is lost to every process; all of them without one.
pub(crate) fn lose(header: &Header, device: Option<DeviceIndex>) {
    let bits = device.map_or(u64::MAX, |device| 1 << device.0);
    header.lost.fetch_or(bits, Relaxed);
}

fn answer(then: &Effect) -> Consultation<'_> {
    match then {
        Effect::Result(code) => Consultation::Result(*code),
        Effect::KernelFault(code) => Consultation::KernelFault(*code),
        Effect::Untouched => Consultation::Untouched,
        Effect::Altered(alteration) => Consultation::Altered(alteration),
        Effect::KillBefore => Consultation::KillBefore,
        Effect::KillAfter => Consultation::KillAfter,
        Effect::Delay(_)
        | Effect::Lost
        | Effect::Missing
        | Effect::Absent
        | Effect::Identity(_)
        | Effect::Devices(_) => Consultation::Proceed,
    }
}

/// Numbers that look as if by chance (splitmix64).
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
