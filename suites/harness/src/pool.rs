//! Several pieces of work at a time, each result shown as it comes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;

/// So many processors there are.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// How many cases at a time run best over mocks: four for each processor, for most of a run is waiting (on two of them all cases of the suite take 311 s two
/// at a time, 113 s eight at a time).
pub fn jobs_over_mocks() -> usize {
    processors() * 4
}

/// Does all of it, `jobs` at a time, and shows each result to the observer as it comes. Answers in the order of the work.
pub fn all<T: Sync, R: Send>(
    jobs: usize,
    work: &[T],
    run: impl Fn(&T) -> R + Sync,
    observe: impl FnMut(&R),
) -> Vec<R> {
    until(&AtomicBool::new(false), jobs, work, run, observe)
}

/// The same until it is told to stop. What ends after that does not count: what stopped it may have disturbed it.
pub fn until<T: Sync, R: Send>(
    stop: &AtomicBool,
    jobs: usize,
    work: &[T],
    run: impl Fn(&T) -> R + Sync,
    mut observe: impl FnMut(&R),
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let (sender, results) = channel();
    let mut done = BTreeMap::new();
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, work.len().max(1)) {
            let (next, run, sender) = (&next, &run, sender.clone());
            scope.spawn(move || {
                loop {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(piece) = work.get(index) else {
                        return;
                    };
                    let result = run(piece);
                    if stop.load(Ordering::Relaxed) || sender.send((index, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (index, result) in results {
            observe(&result);
            done.insert(index, result);
        }
    });
    done.into_values().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn what_ends_after_the_stop_does_not_count() {
        let stop = AtomicBool::new(false);
        let run = |piece: &u64| {
            stop.store(*piece == 3, Ordering::Relaxed);
            *piece
        };
        assert_eq!(super::until(&stop, 1, &[1, 2, 3, 4], run, |_| ()), [1, 2]);
    }

    #[test]
    fn results_come_in_the_order_of_the_work() {
        let work: Vec<u64> = (0..50).rev().collect();
        let mut seen = 0;
        let results = super::all(
            4,
            &work,
            |piece| {
                std::thread::sleep(std::time::Duration::from_micros(*piece));
                piece * 2
            },
            |_| seen += 1,
        );
        let doubled: Vec<u64> = work.iter().map(|piece| piece * 2).collect();
        assert_eq!((results, seen), (doubled, 50));
    }
}
