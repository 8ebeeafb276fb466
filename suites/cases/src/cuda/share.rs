//! A compute budget is kept from above and from below: the tenant gets its share, and no more.
//!
//! Processes launch kernels of some milliseconds one by one, and count for three seconds what was done in each; from outside all of them begin at
//! once. From above every stretch is held to the bounds. From below a busy machine may take time away, so one stretch that comes near is enough:
//! there are seven, and whoever grants too little comes near in none.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use abi::cuda::CUresult;
use harness::{Failure, Session, cases, ensure, ensure_eq, fail, roles};

use super::launches::{Long, SIMULATED, unbudgeted};
use crate::clients;
use crate::ffi::cuda::launch::Route;

/// Nanoseconds of a launch, about.
const LAUNCH: u64 = 5_000_000;
const SECONDS: usize = 3;
const STRETCHES: usize = 7;
/// What an idle tenant saves up, in milliseconds.
const SAVED: f64 = 40.0;
/// Percent of a second beyond the budget, and of a stretch.
const WINDOW: f64 = 10.0;
const MEAN: f64 = 3.0;
/// What a tenant must be seen to get of its budget, in the best second and in the best stretch: within 10 points for budgets up to a half. Whoever
/// is kept from the processor by others for a millisecond in ten loses more than that of nine tenths.
const SECOND_GIVEN: f64 = 0.8;
const MEAN_GIVEN: f64 = 0.7;

cases! {
    /// Under a budget of a tenth, one process and four have work on the device for a tenth of the time: 3 points more at most, 10 in any second, and
    /// not much less.
    a_tenth_of_the_time_is_given_and_no_more {
        kind: Budget, defects: ["T2"], entry_points: ["cuLaunchKernel"], env: [("CUDA_DEVICE_SM_LIMIT", "10")],
        unordered: "how much is done depends on the time", on_real: SIMULATED, seconds: 120,
    } (session) {
        given(session, 10.0)
    }

    /// The same under a budget of a half.
    half_of_the_time_is_given_and_no_more {
        kind: Budget, defects: ["T2"], entry_points: ["cuLaunchKernel"], env: [("CUDA_DEVICE_SM_LIMIT", "50")],
        unordered: "how much is done depends on the time", on_real: SIMULATED, seconds: 120,
    } (session) {
        given(session, 50.0)
    }

    /// The same under a budget of nine tenths. (On a busy machine a program may ask for little more by itself, without any budget.)
    nine_tenths_of_the_time_are_given_and_no_more {
        kind: Own, defects: ["T2"], entry_points: ["cuLaunchKernel"], env: [("CUDA_DEVICE_SM_LIMIT", "90")],
        unordered: "how much is done depends on the time", on_real: SIMULATED, seconds: 120,
    } (session) {
        given(session, 90.0)
    }
}

roles! {
    /// `BLOCKS`: launches so many blocks again and again, for a stretch from each time that it hears on, and says how many in each second.
    busy_for_a_stretch(_session, parent) {
        let [blocks] = parent.args() else {
            fail!("a number of blocks, not {:?}", parent.args());
        };
        let cuda = clients::cuda()?;
        let mut work = cuda.workload().map_err(|code| Failure::Broken(format!("the kernel: {code:?}")))?;
        work.blocks = blocks.parse().map_err(|_| Failure::Broken(format!("{blocks} is no number of blocks")))?;
        parent.say("ready")?;
        while let Some(at) = parent.hear() {
            let Ok(at) = at.parse() else {
                fail!("{at} is no time");
            };
            std::thread::sleep(Duration::from_millis(at).saturating_sub(today()));
            let begun = Instant::now();
            let mut done = [0_u64; SECONDS];
            loop {
                ensure_eq!(cuda.launch(&work, Route::Kernel), CUresult::SUCCESS, "a launch");
                ensure_eq!(cuda.synchronize(), CUresult::SUCCESS, "waiting for it");
                match done.get_mut(begun.elapsed().as_secs() as usize) {
                    Some(second) => *second += 1,
                    None => break,
                }
            }
            let done: Vec<String> = done.iter().map(u64::to_string).collect();
            parent.say(&done.join(" "))?;
        }
        Ok(())
    }
}

fn today() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// One process, then four, under a budget of so many percent.
fn given(session: &Session, budget: f64) -> Result<(), Failure> {
    let long = Long::lasting(&mut unbudgeted(session)?, LAUNCH)?;
    for processes in [1, 4] {
        near(session, budget, processes, &long)?;
    }
    Ok(())
}

fn near(session: &Session, budget: f64, processes: usize, long: &Long) -> Result<(), Failure> {
    let mut peers = Vec::new();
    for _ in 0..processes {
        let launch = session.launch("busy_for_a_stretch");
        let mut peer = launch.args(&[&long.blocks.to_string()]).start()?;
        ensure_eq!(peer.line()?, "ready", "a process");
        peers.push(peer);
    }
    let unit = long.unit as f64 / 1e6;
    // A launch of each process may be counted in the second after the one in which it was done.
    let late = processes as f64 * unit;
    let (mut best_second, mut best_mean) = (0.0, 0.0);
    for _ in 0..STRETCHES {
        let at = (today() + Duration::from_millis(50)).as_millis();
        for peer in &mut peers {
            peer.say(&at.to_string())?;
        }
        let mut shares = [0.0; SECONDS];
        for peer in &mut peers {
            let line = peer.line()?;
            let done = line.split(' ').filter_map(|done| done.parse::<f64>().ok());
            for (share, done) in shares.iter_mut().zip(done) {
                *share += done * unit / 10.0;
            }
        }
        let mean = shares.iter().sum::<f64>() / SECONDS as f64;
        let what = format!(
            "{processes} processes: {shares:.1?} % of the seconds, {mean:.1} of them together, of {budget}"
        );
        ensure!(
            shares
                .iter()
                .all(|share| *share <= budget + WINDOW + late / 10.0),
            "{what}"
        );
        ensure!(
            mean <= budget + MEAN + (late + SAVED) / 10.0 / SECONDS as f64,
            "{what}"
        );
        best_second = shares.into_iter().fold(best_second, f64::max);
        best_mean = mean.max(best_mean);
        if best_second >= budget * SECOND_GIVEN && best_mean >= budget * MEAN_GIVEN {
            return Ok(());
        }
    }
    fail!(
        "{processes} processes: {best_second:.1} % of the best second, {best_mean:.1} of the best {SECONDS}, of {budget}"
    )
}
