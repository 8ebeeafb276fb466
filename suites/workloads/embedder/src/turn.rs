//! A context is held while work is handed to its queue, because a VkQueue is one thread's at a time: the runtime's own lock
//! is the queue's, so that contexts that share a queue exclude one another. An application that submits to the same queue
//! takes its turn by [`Runtime::acquire_context`](crate::Runtime::acquire_context), or puts a lock of its own in the place.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::handle::ContextId;

/// Why a handler did not let the runtime have the context.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// Stands in the place of the runtime's own lock. Both halves are one handler's, so that what it acquired is what it releases.
///
/// Neither is called with a lock of the runtime's held, so either may call the runtime: acquire and release allocators, allocate and free, set another
/// handler. Only what holds a context (launches, copies, [`Runtime::acquire_context`](crate::Runtime::acquire_context)) calls the handler once more.
pub trait ContextHandler: Send + Sync {
    /// Called before each submission; returns when the context's queue is the caller's.
    ///
    /// # Errors
    /// Whatever the application likes: the dispatch is refused with it.
    fn acquire(&self, context: ContextId) -> std::result::Result<(), Refused>;

    /// Called once for each success of `acquire`, on the same thread.
    fn release(&self, context: ContextId);
}

pub type Handler = Arc<dyn ContextHandler>;

#[derive(Default)]
pub(crate) struct Turns {
    handler: Mutex<Option<Handler>>,
    /// Queues that the built-in lock is held of.
    held: Mutex<Vec<u64>>,
    freed: Condvar,
}

impl Turns {
    /// Puts a handler in place, or the built-in lock with `None`, and answers what was there.
    pub fn replace(&self, handler: Option<Handler>) -> Option<Handler> {
        std::mem::replace(&mut *lock(&self.handler), handler)
    }

    pub fn take(&self, context: ContextId, queue: u64) -> Result<Turn<'_>> {
        let handler = lock(&self.handler).clone();
        match &handler {
            Some(handler) => handler
                .acquire(context)
                .map_err(|source| Error::NotAcquired { context, source })?,
            None => {
                let mut held = lock(&self.held);
                while held.contains(&queue) {
                    held = self
                        .freed
                        .wait(held)
                        .unwrap_or_else(PoisonError::into_inner);
                }
                held.push(queue);
            }
        }
        Ok(Turn {
            turns: self,
            handler,
            context,
            queue,
        })
    }
}

/// A context is held until this is dropped.
#[must_use]
pub struct Turn<'a> {
    turns: &'a Turns,
    /// Who acquired it, and releases it though another handler was set meanwhile.
    handler: Option<Handler>,
    context: ContextId,
    queue: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        match &self.handler {
            Some(handler) => handler.release(self.context),
            None => {
                lock(&self.turns.held).retain(|&held| held != self.queue);
                self.turns.freed.notify_all();
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[derive(Default)]
    struct Counting {
        acquired: AtomicU32,
        released: AtomicU32,
    }

    impl ContextHandler for Counting {
        fn acquire(&self, _: ContextId) -> std::result::Result<(), Refused> {
            match self.acquired.fetch_add(1, Ordering::Relaxed) {
                0 => Ok(()),
                _ => Err(Refused("once is enough".to_owned())),
            }
        }

        fn release(&self, _: ContextId) {
            self.released.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_acquired_releases_though_the_handler_was_replaced() {
        let (turns, context) = (Turns::default(), ContextId::new());
        let first = Arc::new(Counting::default());
        assert!(turns.replace(Some(first.clone())).is_none());
        let turn = turns.take(context, 1).expect("the first");
        let refused = turns.take(context, 1).err();
        assert!(matches!(refused, Some(Error::NotAcquired { .. })));
        assert!(turns.replace(None).is_some(), "the previous one");
        drop(turn);
        assert_eq!(first.released.load(Ordering::Relaxed), 1);
        drop(turns.take(context, 1).expect("the built-in lock"));
        assert_eq!(first.acquired.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_queue_is_one_threads_at_a_time_and_two_queues_are_two_threads() {
        let (turns, context) = (Turns::default(), ContextId::new());
        let inside = AtomicU32::new(0);
        let other = turns.take(context, 2).expect("another queue");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let _turn = turns.take(context, 1).expect("a turn");
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        drop(other);
    }
}
