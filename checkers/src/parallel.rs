//! Work over all cores, compiled once.
//!
//! Rayon compiles its splitting, joining and stealing anew for every closure that it is given, several kilobytes of machine code
//! each. Here it is given one closure, which takes task after task in order, as threads are free, and calls it through a
//! pointer; only the slots that results stand in are generic. Results are in the order of the tasks, whoever ran them. A
//! task that panics is a panic of the whole.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

/// Runs tasks by their numbers, so many at once to a thread: one where tasks are large, more where they are many and small.
pub(crate) fn each(tasks: usize, at_once: usize, task: &(dyn Fn(usize) + Sync)) {
    let threads = rayon::current_num_threads().min(tasks.div_ceil(at_once));
    if threads <= 1 {
        return (0..tasks).for_each(task);
    }
    let next = AtomicUsize::new(0);
    let run = |_| {
        loop {
            let first = next.fetch_add(at_once, Ordering::Relaxed);
            if first >= tasks {
                return;
            }
            (first..tasks.min(first + at_once)).for_each(task);
        }
    };
    (0..threads).into_par_iter().with_max_len(1).for_each(run);
}

/// What each task gives.
pub(crate) fn map<T: Send>(tasks: usize, at_once: usize, task: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let slots: Vec<Mutex<Option<T>>> = (0..tasks).map(|_| Mutex::new(None)).collect();
    each(tasks, at_once, &|i| *slots[i].lock().unwrap_or_else(PoisonError::into_inner) = Some(task(i)));
    slots.into_iter().filter_map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

/// What is made of each item.
pub(crate) fn map_items<I: Send, T: Send>(items: Vec<I>, task: impl Fn(I) -> T + Sync) -> Vec<T> {
    let items: Vec<Mutex<Option<I>>> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
    let take = |i: usize| items[i].lock().unwrap_or_else(PoisonError::into_inner).take();
    map(items.len(), 1, |i| take(i).map(&task)).into_iter().flatten().collect()
}

/// Runs both, the second beside the first where a thread is free.
pub(crate) fn both<A: Send, B: Send>(a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B + Send) -> (A, B) {
    let (mut a, mut b) = (Some(a), Some(b));
    let (mut first, mut second) = (None, None);
    join(&mut || first = a.take().map(|a| a()), &mut || second = b.take().map(|b| b()));
    match (first, second) {
        (Some(a), Some(b)) => (a, b),
        _ => unreachable!("a join runs both or panics"),
    }
}

#[inline(never)]
fn join(a: &mut (dyn FnMut() + Send), b: &mut (dyn FnMut() + Send)) {
    rayon::join(a, b);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once_and_results_are_in_order() {
        for (tasks, at_once) in [(0, 1), (1, 1), (7, 3), (1000, 1), (1000, 64), (3, 64)] {
            let ran: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
            let task = |i: usize| {
                ran[i].fetch_add(1, Ordering::Relaxed);
                i * i
            };
            assert_eq!(map(tasks, at_once, task), (0..tasks).map(|i| i * i).collect::<Vec<_>>());
            assert!(ran.iter().all(|n| n.load(Ordering::Relaxed) == 1), "{tasks} tasks, {at_once} at once");
        }
        let texts: Vec<String> = (0..100).map(|i| i.to_string()).collect();
        assert_eq!(map_items(texts.clone(), |text| text), texts);
        assert_eq!(both(|| 1, || "two"), (1, "two"));
    }

    #[test]
    fn a_panic_of_a_task_is_one_of_the_whole() {
        let run = || map(100, 1, |i| assert!(i != 70));
        assert!(std::panic::catch_unwind(run).is_err());
    }
}
