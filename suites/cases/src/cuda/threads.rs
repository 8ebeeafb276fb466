//! Several threads of one process.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use abi::cuda::CUresult;
use harness::{Bytes, Failure, cases, ensure, ensure_eq};

use crate::clients::{context, cuda, cuda_without_context, fill};
use crate::ffi::cuda::{Cancelled, Cuda};
use crate::greed::{CONTEXT_ROOM, budget, fills, until_refused};

const THREADS: usize = 8;

/// Threads that allocate are cancelled one after another, and whoever allocates after each of them is granted what it asks for.
fn takes_nothing_along(cancelled: Cancelled) -> Result<(), Failure> {
    let cuda = cuda_without_context()?;
    let retained = context(&cuda, 0)?;
    for _ in 0..20 {
        cuda.cancelled_at_work(retained, cancelled, Duration::from_millis(5))?;
        let block = cuda.allocate(Bytes::mib(2).0);
        ensure_eq!(block.code, CUresult::SUCCESS, "2 MiB after it");
        ensure_eq!(cuda.free(block.out), CUresult::SUCCESS, "cuMemFree_v2");
    }
    Ok(())
}

cases! {
    /// A thread that is cancelled while it is refused ends where a driver's call would have let it, and takes nothing along: others allocate.
    a_thread_that_is_cancelled_at_work_takes_nothing_along {
        defects: ["C12"], entry_points: ["cuMemAlloc_v2"], budget: "0=1GiB", unordered: "asks until it is cancelled",
    } (_session) {
        takes_nothing_along(Cancelled::AtAPoint)
    }

    /// A thread that lets itself be cancelled at once, wherever it is, is not torn out of the midst of a hook, and ends as it would without us.
    a_thread_that_is_cancelled_at_once_takes_nothing_along {
        kind: Own, defects: ["C30"], entry_points: ["cuMemAlloc_v2"], budget: "0=1GiB", unordered: "asks until it is cancelled",
        on_real: No("the vendor's driver may be cancelled in the midst of its own"),
    } (_session) {
        takes_nothing_along(Cancelled::AtOnce)
    }

    /// A thread that takes one more hold on a live primary context waits for no context that another thread is making.
    one_more_hold_on_a_primary_context_waits_for_no_other {
        defects: ["C31"], entry_points: ["cuDevicePrimaryCtxRetain", "cuCtxCreate_v2"], budget: "0=8GiB",
        faults: r#"fault = [{ at = "cuCtxCreate_v2", then = "delay:5s" }]"#, unordered: "two threads race",
    } (_session) {
        let cuda = cuda()?;
        let [making, made] = [const { AtomicBool::new(false) }; 2];
        thread::scope(|scope| {
            scope.spawn(|| {
                making.store(true, Ordering::SeqCst);
                cuda.create_context(0);
                made.store(true, Ordering::SeqCst);
            });
            while !making.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            // So that it is in the driver.
            thread::sleep(Duration::from_millis(500));
            ensure_eq!(cuda.retain_primary(0).code, CUresult::SUCCESS, "cuDevicePrimaryCtxRetain");
            ensure!(!made.load(Ordering::SeqCst), "it waited for a context that another thread made");
            ensure_eq!(cuda.release_primary(0), CUresult::SUCCESS, "cuDevicePrimaryCtxRelease_v2");
            Ok(())
        })
    }

    /// A thread takes one more hold on a primary context while another lets go of the last: either the context lives on, or the new one is charged.
    one_more_hold_beside_the_last_that_goes_is_no_way_past_the_budget {
        kind: Budget, defects: ["R97"], entry_points: ["cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2"], budget: "0=4GiB",
        faults: r#"fault = [{ at = "cuDevicePrimaryCtxRetain", when = "2", then = "delay:150ms" }]"#, unordered: "two threads race",
    } (session) {
        let cuda = cuda_without_context()?;
        ensure_eq!(cuda.create_context(0).code, CUresult::SUCCESS, "cuCtxCreate");
        ensure_eq!(cuda.retain_primary(0).code, CUresult::SUCCESS, "the first hold");
        let beside_both = fill(&cuda);
        beside_both.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
        for address in &beside_both.held {
            ensure_eq!(cuda.free(*address), CUresult::SUCCESS, "cuMemFree_v2");
        }
        let retaining = AtomicBool::new(false);
        thread::scope(|scope| {
            let second = scope.spawn(|| {
                retaining.store(true, Ordering::SeqCst);
                cuda.retain_primary(0).code
            });
            while !retaining.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            // So that it is in the driver, which has not acted yet.
            thread::sleep(Duration::from_millis(50));
            ensure_eq!(cuda.release_primary(0), CUresult::SUCCESS, "the last hold");
            let taken = fill(&cuda);
            let Ok(code) = second.join() else { return Err(Failure::Broken("the thread died".to_owned())) };
            match code {
                CUresult::SUCCESS => ensure!(taken.bytes <= beside_both.bytes, "{} beside two contexts, {} before", taken.bytes, beside_both.bytes),
                refused => ensure_eq!(refused, CUresult::ERROR_OUT_OF_MEMORY, "the second hold"),
            }
            fills(taken.bytes, budget(session, 0)?, Bytes(2 * CONTEXT_ROOM.0))
        })
    }

    /// Eight threads that allocate at once get the budget together, and no more.
    threads_share_the_budget {
        kind: Budget, defects: ["P1"], entry_points: ["cuMemAlloc_v2"], budget: "0=12GiB",
        unordered: "eight threads race",
    } (session) {
        let cuda = cuda_without_context()?;
        let retained = context(&cuda, 0)?;
        let start = Barrier::new(THREADS);
        let taken: Vec<_> = thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS)
                .map(|_| {
                    scope.spawn(|| {
                        cuda.set_current(retained);
                        start.wait();
                        until_refused(&[Bytes::mib(64), Bytes::mib(2)], |bytes| cuda.allocate(bytes.0).granted())
                    })
                })
                .collect();
            workers.into_iter().filter_map(|worker| worker.join().ok()).collect()
        });
        ensure_eq!(taken.len(), THREADS, "threads that came back");
        for one in &taken {
            one.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
        }
        fills(taken.iter().map(|one| one.bytes).sum(), budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Threads that allocate and free without end, each within its share, are never refused and never lose a byte.
    churning_threads_lose_nothing {
        kind: Budget, defects: ["V13"], entry_points: ["cuMemAlloc_v2", "cuMemFree_v2"], budget: "0=6GiB",
        unordered: "eight threads race",
    } (session) {
        let cuda = cuda_without_context()?;
        let retained = context(&cuda, 0)?;
        let refused: usize = thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS)
                .map(|_| {
                    scope.spawn(|| {
                        cuda.set_current(retained);
                        let churn = |_: &usize| match cuda.allocate(Bytes::mib(512).0).granted() {
                            Ok(pointer) => cuda.free(pointer) != CUresult::SUCCESS,
                            Err(_) => true,
                        };
                        (0..300).filter(churn).count()
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap_or(usize::MAX)).sum()
        });
        ensure_eq!(refused, 0, "refusals though eight times 512 MiB fit");
        fills(crate::clients::fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Any thread may be the first to call: sixteen that race in it initialise once and all succeed.
    racing_first_calls_initialise_once {
        defects: ["S6"], entry_points: ["cuInit", "cuMemAlloc_v2"], budget: "0=8GiB",
        unordered: "sixteen threads race",
    } (_session) {
        let cuda = Cuda::open()?;
        let start = Barrier::new(16);
        let answers: Vec<_> = thread::scope(|scope| {
            let first_calls = || {
                start.wait();
                let init = cuda.init();
                let retained = cuda.retain_primary(0);
                cuda.set_current(retained.out);
                [init, retained.code, cuda.allocate(Bytes::mib(2).0).code]
            };
            let workers: Vec<_> = (0..16).map(|_| scope.spawn(first_calls)).collect();
            workers.into_iter().filter_map(|worker| worker.join().ok()).collect()
        });
        ensure_eq!(answers.len(), 16, "threads that came back");
        let all = answers.iter().flatten().all(|&answer| answer == CUresult::SUCCESS);
        ensure!(all, "cuInit, cuDevicePrimaryCtxRetain, cuMemAlloc_v2 of each thread: {answers:?}");
        Ok(())
    }
}
