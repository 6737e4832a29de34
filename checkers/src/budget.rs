//! How long and how far may a checker go?
//!
//! A [`Budget`] bounds time, memory and threads, and can be cancelled from elsewhere. Checkers ask [`Budget::spent`] every few
//! hundred steps (tens of nanoseconds: two atomic loads and, when there is a deadline, one clock read) and answer
//! `unknown` with what they have covered when something is used up.
//!
//! Memory is counted, not measured: whoever builds something that grows holds a [`Reservation`] and keeps it at the number
//! of bytes it holds. All clones of a budget share one count, so that many keys checked at once share one limit.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What was used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Spent {
    /// The deadline has passed.
    Time,
    /// More bytes are reserved than allowed.
    Memory,
    /// Someone asked to stop.
    Cancelled,
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Spent::Time => "the time allowed was used up",
            Spent::Memory => "the memory allowed was used up",
            Spent::Cancelled => "cancelled",
        })
    }
}

/// Bounds on time, memory and threads. Clones share the memory count and the cancel flag.
#[derive(Clone, Debug)]
pub struct Budget {
    deadline: Option<Instant>,
    memory: u64,
    threads: Option<NonZeroUsize>,
    reserved: Arc<AtomicU64>,
    /// Our own flag last, before it those of whom we work for.
    cancelled: Vec<Arc<AtomicBool>>,
}

impl Default for Budget {
    fn default() -> Self {
        Budget::unlimited()
    }
}

impl Budget {
    /// No bound on anything; as many threads as there are cores.
    pub fn unlimited() -> Self {
        let cancelled = vec![Arc::default()];
        Budget { deadline: None, memory: u64::MAX, threads: None, reserved: Arc::default(), cancelled }
    }

    /// Stops this long from now, or when it would have stopped anyway if that is sooner. A time beyond what the clock
    /// can name is no bound.
    #[must_use]
    pub fn within(mut self, time: Duration) -> Self {
        let new = Instant::now().checked_add(time);
        self.deadline = match (self.deadline, new) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self
    }

    /// Stops when more bytes than this are reserved.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }

    /// Uses at most this many threads; 0 means as many as there are cores.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = NonZeroUsize::new(threads);
        self
    }

    /// Threads to use; 0 means as many as there are cores.
    pub fn thread_count(&self) -> usize {
        self.threads.map_or(0, NonZeroUsize::get)
    }

    /// Bytes that may be reserved in all.
    pub fn memory_limit(&self) -> u64 {
        self.memory
    }

    /// Asks everyone who works under this budget or a clone of it to stop.
    pub fn cancel(&self) {
        if let Some(own) = self.cancelled.last() {
            own.store(true, Ordering::Relaxed);
        }
    }

    /// The same bounds for a part of the work, which can be cancelled by itself.
    #[must_use]
    pub fn part(&self) -> Self {
        let mut part = self.clone();
        part.cancelled.push(Arc::default());
        part
    }

    /// Is something used up?
    pub fn spent(&self) -> Option<Spent> {
        if self.cancelled.iter().any(|flag| flag.load(Ordering::Relaxed)) {
            return Some(Spent::Cancelled);
        }
        if self.reserved.load(Ordering::Relaxed) > self.memory {
            return Some(Spent::Memory);
        }
        match self.deadline {
            Some(deadline) if Instant::now() >= deadline => Some(Spent::Time),
            _ => None,
        }
    }

    /// A reservation of no bytes yet.
    pub fn reserve(&self) -> Reservation {
        Reservation { bytes: 0, total: Arc::clone(&self.reserved) }
    }
}

/// Bytes that somebody holds; given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    bytes: u64,
    total: Arc<AtomicU64>,
}

impl Reservation {
    /// Now it is this many.
    pub fn set(&mut self, bytes: u64) {
        if bytes >= self.bytes {
            self.total.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else {
            self.total.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unlimited_budget_is_never_spent() {
        let budget = Budget::unlimited();
        let mut held = budget.reserve();
        held.set(1 << 60);
        assert_eq!(budget.spent(), None);
    }

    #[test]
    fn clones_share_memory_and_cancellation_and_a_dropped_reservation_is_given_back() {
        let budget = Budget::unlimited().memory(100);
        let clone = budget.clone();
        let (mut a, mut b) = (budget.reserve(), clone.reserve());
        a.set(60);
        b.set(60);
        assert_eq!(budget.spent(), Some(Spent::Memory));
        drop(b);
        assert_eq!(clone.spent(), None);
        clone.cancel();
        assert_eq!(budget.spent(), Some(Spent::Cancelled));
    }

    #[test]
    fn a_part_is_cancelled_with_the_whole_and_not_the_other_way_round() {
        let budget = Budget::unlimited();
        let (one, other) = (budget.part(), budget.part());
        one.cancel();
        assert_eq!((one.spent(), other.spent(), budget.spent()), (Some(Spent::Cancelled), None, None));
        budget.cancel();
        assert_eq!(other.spent(), Some(Spent::Cancelled));
    }

    #[test]
    fn the_sooner_deadline_holds() {
        let budget = Budget::unlimited().within(Duration::ZERO).within(Duration::from_secs(3600));
        assert_eq!(budget.spent(), Some(Spent::Time));
        assert_eq!(Budget::unlimited().within(Duration::MAX).spent(), None);
    }
}
