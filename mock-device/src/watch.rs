//! Deaths, noticed as they happen. A real driver begins a process's teardown when it dies, whoever looks; this world has no
//! process of its own, and begins it when any process's use of it notices. So whoever made the world keeps watch over it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::accounts::Accounts;
use crate::os;
use crate::process::Image;
use crate::region::state;
use crate::world::World;

/// How often newcomers are looked for, and deaths that no descriptor tells: an exec, another PID namespace.
const LOOK_EVERY: Duration = Duration::from_millis(20);

impl World {
    /// Begins every teardown at the death and ends it when its time has come, until the other end of `stop` is closed.
    pub fn keep_watch(&self, stop: &impl AsFd) {
        self.accounts.keep_watch(stop.as_fd());
    }

    /// The same in a thread of its own, which takes none of the process's signals: they are for whoever waits for them.
    ///
    /// # Errors
    /// The process can have no more threads.
    pub fn begin_watch(
        self: Arc<Self>,
        stop: impl AsFd + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let _deaf = os::Deaf::begin()?;
        let thread = std::thread::Builder::new().name("vigil".to_owned());
        thread.spawn(move || self.keep_watch(&stop))
    }
}

/// A row in one of its lives.
type Life = (usize, u64);

impl Accounts {
    fn keep_watch(&self, stop: BorrowedFd<'_>) {
        let namespace = Image::own().namespace;
        // None: the process has ended, or cannot be watched.
        let mut watched: BTreeMap<Life, Option<OwnedFd>> = BTreeMap::new();
        loop {
            self.sweep(true);
            let living = self.living(namespace);
            watched.retain(|life, _| living.contains_key(life));
            for (life, pid) in living {
                watched.entry(life).or_insert_with(|| os::pidfd(pid));
            }
            let of = |life: &Life| watched.get(life).and_then(Option::as_ref);
            let lives: Vec<Life> = watched.keys().copied().collect();
            let lives: Vec<Life> = lives
                .into_iter()
                .filter(|life| of(life).is_some())
                .collect();
            let mut waited = vec![stop];
            waited.extend(lives.iter().filter_map(of).map(AsFd::as_fd));
            let ready = os::ready(&waited, self.next_due().min(LOOK_EVERY));
            if ready.first().is_none_or(|stopped| *stopped) {
                return;
            }
            let ended = lives.iter().zip(&ready[1..]).filter(|(_, ready)| **ready);
            let ended: Vec<Life> = ended.map(|(life, _)| *life).collect();
            for life in ended {
                // Ready for ever. Where its row lives on, another process has its memory still, and each look asks again.
                watched.insert(life, None);
            }
        }
    }

    /// The lives whose process has a number here, with it.
    fn living(&self, namespace: u64) -> BTreeMap<Life, u32> {
        let rows = self.region.rows().iter().enumerate();
        rows.filter(|(_, row)| row.state.load(Acquire) == state::LIVE)
            .filter(|(_, row)| row.namespace.load(Relaxed) == namespace)
            .map(|(index, row)| {
                let life = (index, row.generation.load(Relaxed));
                (life, row.pid.load(Relaxed))
            })
            .collect()
    }

    /// How long until the first teardown under way is over.
    fn next_due(&self) -> Duration {
        let now = os::now_ns();
        let dying = self
            .region
            .rows()
            .iter()
            .filter(|row| row.state.load(Acquire) == state::DYING);
        let ends = dying.flat_map(|row| {
            let died = row.died_ns.load(Relaxed);
            let lags = self
                .region
                .totals()
                .iter()
                .map(|total| total.lag_ns.load(Relaxed));
            lags.map(move |lag| died.saturating_add(lag))
                .filter(|end| *end > now)
        });
        ends.min()
            .map_or(Duration::MAX, |end| Duration::from_nanos(end - now))
    }
}
