//! The thread that calls host functions, lets deferred work go on, and moves bytes that nobody asked for.

use super::*;

/// The condition that deferred work has moved on, and the thread that moves it.
pub struct Attendant {
    moved: std::sync::Condvar,
    started: std::sync::Once,
}

impl Attendant {
    pub const fn new() -> Attendant {
        Attendant {
            moved: std::sync::Condvar::new(),
            started: std::sync::Once::new(),
        }
    }

    /// Something is deferred: whoever attends to it must look.
    pub fn wake(&self) {
        self.started.call_once(|| {
            let attend = || {
                if let Ok(driver) = crate::driver::get() {
                    attend(driver);
                }
            };
            let name = "cuda-host-functions".to_owned();
            if let Err(error) = std::thread::Builder::new().name(name).spawn(attend) {
                eprintln!("mock-libcuda: no thread for host functions: {error}");
            }
        });
        self.moved.notify_all();
    }

    pub(super) fn tell(&self) {
        self.moved.notify_all();
    }

    pub(super) fn wait<'a>(&self, process: MutexGuard<'a, Process>) -> MutexGuard<'a, Process> {
        self.moved
            .wait(process)
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wait_for<'a>(
        &self,
        process: MutexGuard<'a, Process>,
        time: Nanos,
    ) -> MutexGuard<'a, Process> {
        let time = Duration::from_nanos(time.0);
        let waited = self.moved.wait_timeout(process, time);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The life of the one thread that calls the client's functions, in the order in which they come due.
fn attend(driver: &Driver) {
    const LOOK_EVERY: Nanos = Nanos(50_000);
    let mut process = driver.lock();
    loop {
        let now = driver.world.now();
        let move_at = process.movements.attend_at();
        if move_at.is_some_and(|at| at <= now) {
            process.move_waiting(driver);
            continue;
        }
        let duty = match (process.timeline.duty(now), move_at) {
            (Duty::None, Some(at)) => Duty::At(at),
            (Duty::At(time), Some(at)) => Duty::At(time.min(at)),
            (duty, _) => duty,
        };
        match duty {
            Duty::Call(line) => {
                process.move_waiting(driver);
                let Some(call) = process.call_of(line) else {
                    continue;
                };
                drop(process);
                let error = crate::admission::sticky();
                crate::admission::in_host_function(|| call.call(error));
                process = driver.lock();
                process.called(driver, line);
            }
            Duty::At(time) => {
                process = driver.attendant.wait_for(process, time.saturating_sub(now))
            }
            Duty::Look => {
                process.settle(driver);
                process = driver.attendant.wait_for(process, LOOK_EVERY);
            }
            Duty::None => process = driver.attendant.wait(process),
        }
    }
}
