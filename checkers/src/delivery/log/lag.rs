//! How far behind were consumers, and how much had nobody seen?
//!
//! A consumer that has reached an offset lags, at a poll, by the time for which a later offset had been known when the poll was
//! invoked. While it stays where it is, that grows, so it is measured once for each stay: at the last poll before it moved on. The worst of
//! all is exact; the cost is constant per operation and partition touched, however many partitions are assigned.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hdrhistogram::Histogram;

use super::collect::{NONE, NOWHERE, Now};
use crate::findings::{Fact, Findings, Quantiles, Table};

/// Points of time for which the number of unseen messages is told.
const POINTS: usize = 32;

/// The highest offset known of a partition, whenever it rose.
#[derive(Debug, Default)]
struct Known(Vec<(i64, i64)>);

impl Known {
    fn reached(&mut self, offset: i64, time: i64) {
        if self.0.last().is_none_or(|&(highest, _)| highest < offset) {
            self.0.push((offset, time));
        }
    }

    /// Since when something was known beyond an offset.
    fn beyond(&self, offset: i64) -> Option<i64> {
        self.0.get(self.0.partition_point(|&(o, _)| o <= offset)).map(|&(_, time)| time)
    }
}

/// A consumer: how far it is in each of its partitions, and how many polls it had made when it came there.
#[derive(Debug, Default)]
struct Consumer {
    at: HashMap<u32, (i64, u64), FixedState>,
    polls: u64,
    last_poll: i64,
}

/// The worst lag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Worst {
    pub(super) lag: i64,
    pub(super) time: i64,
    pub(super) process: u32,
    pub(super) key: u32,
}

/// What is known of lags so far.
#[derive(Debug, Default)]
pub(super) struct Lag {
    known: Vec<Known>,
    consumers: Vec<Consumer>,
    pub(super) worst: Option<Worst>,
    all: Option<Histogram<u64>>,
    /// Acknowledged messages that no acknowledged poll has returned.
    pub(super) unseen: u64,
    most: u64,
    samples: Vec<(i64, u64)>,
    stride: u64,
    seen: u64,
}

impl Lag {
    /// A consumer gets partitions; those that it keeps it goes on with, unless it starts over.
    pub(super) fn assigned(&mut self, process: u32, keys: &[u32], afresh: bool) {
        let Some(mut consumer) = self.consumer(process).map(std::mem::take) else { return };
        let before = std::mem::take(&mut consumer.at);
        for (&key, &stay) in &before {
            self.measure(process, key, stay, &consumer);
        }
        for &key in keys {
            let kept = before.get(&key).filter(|_| !afresh).copied();
            consumer.at.insert(key, kept.unwrap_or((-1, consumer.polls)));
        }
        self.consumers[process as usize] = consumer;
    }

    /// An operation completed that may have polled, and touched these partitions.
    pub(super) fn completed(
        &mut self,
        process: u32,
        polls: bool,
        (invoked, completed): (i64, i64),
        touched: impl Iterator<Item = (u32, Now)>,
    ) {
        let mut consumer = self.consumer(process).map(std::mem::take);
        for (key, now) in touched {
            if let Some(consumer) = consumer.as_mut().filter(|_| polls && now.polled != NOWHERE) {
                let stay = consumer.at.get(&key).copied();
                if stay.is_none_or(|(at, _)| now.polled > at) {
                    if let Some(stay) = stay {
                        self.measure(process, key, stay, consumer);
                    }
                    consumer.at.insert(key, (now.polled, consumer.polls));
                }
            }
            if now.known != NOWHERE {
                if key as usize >= self.known.len() {
                    self.known.resize_with(key as usize + 1, Known::default);
                }
                self.known[key as usize].reached(now.known, completed);
            }
        }
        if let Some(mut consumer) = consumer {
            if polls {
                consumer.polls += 1;
                consumer.last_poll = invoked;
            }
            self.consumers[process as usize] = consumer;
        }
        self.sample(completed);
    }

    fn consumer(&mut self, process: u32) -> Option<&mut Consumer> {
        if process == NONE {
            return None;
        }
        if process as usize >= self.consumers.len() {
            self.consumers.resize_with(process as usize + 1, Consumer::default);
        }
        self.consumers.get_mut(process as usize)
    }

    fn measure(&mut self, process: u32, key: u32, (at, since): (i64, u64), consumer: &Consumer) {
        if consumer.polls == since {
            return;
        }
        let beyond = self.known.get(key as usize).and_then(|known| known.beyond(at));
        let lag = beyond.map_or(0, |time| consumer.last_poll.saturating_sub(time).max(0));
        if self.worst.is_none_or(|worst| lag > worst.lag) {
            self.worst = Some(Worst { lag, time: consumer.last_poll, process, key });
        }
        let all = self.all.get_or_insert_with(|| Histogram::new(3).unwrap_or_else(|_| unreachable!("3 is in 0..=5")));
        // It resizes itself, so that every duration has a place; `saturating_record` would not let it.
        let _ = all.record(lag as u64);
    }

    /// Keeps some points, evenly: when there are too many, every other one.
    fn sample(&mut self, time: i64) {
        self.most = self.most.max(self.unseen);
        self.stride = self.stride.max(1);
        if self.seen.is_multiple_of(self.stride) {
            if self.samples.len() == 2 * POINTS {
                let mut i = 0;
                self.samples.retain(|_| {
                    i += 1;
                    i % 2 == 1
                });
                self.stride *= 2;
            }
            if self.seen.is_multiple_of(self.stride) {
                self.samples.push((time, self.unseen));
            }
        }
        self.seen += 1;
    }

    /// Measures what still lasts.
    pub(super) fn end(&mut self) {
        for process in 0..self.consumers.len() as u32 {
            self.assigned(process, &[], true);
        }
    }

    /// Tells what is known. Processes by their own names, partitions by theirs.
    pub(super) fn tell(&self, process: impl Fn(u32) -> i64, key: impl Fn(u32) -> String, findings: &mut Findings) {
        findings.fact("unseen", Fact::Count(self.unseen));
        findings.fact("unseen at most", Fact::Count(self.most));
        if self.samples.len() > 1 && self.most > 0 {
            let every = self.samples.len().div_ceil(POINTS);
            let rows = self.samples.iter().step_by(every);
            let rows = rows.map(|&(time, unseen)| vec![Fact::Nanos(time), Fact::Count(unseen)]).collect();
            let columns = vec!["time".to_string(), "unseen".to_string()];
            findings.fact("unseen over time", Fact::Table(Table { columns, rows }));
        }
        let (Some(worst), Some(all)) = (self.worst, &self.all) else { return };
        findings.fact("worst realtime lag", Fact::Nanos(worst.lag));
        let (process, key) = (process(worst.process), key(worst.key));
        let place = format!("process {process}, partition {key}, the poll invoked at {} ns", worst.time);
        findings.fact("worst realtime lag of", Fact::Text(place));
        let at = |q: u16| (q, all.value_at_quantile(f64::from(q) / 1000.0));
        let at = [0, 500, 950, 990, 1000].map(at).to_vec();
        findings.fact("realtime lag", Fact::Quantiles(Quantiles { count: all.len(), at }));
    }
}
