//! Which fault acted on which connection, on how many bytes, and when: what proves that it landed.
//!
//! A toxic *acts* when it changes something: a chunk comes later, a write waits, a connection ends. That it is set is not counted.
//! Memory is bounded: of connections beyond the first [`MAX_RECORDS`] that ended only the sums are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use serde::Serialize;

use super::toxic::{Stream, Toxic};

/// Ended connections that are kept one by one.
pub const MAX_RECORDS: usize = 50_000;
/// Changes of the toxics that are kept.
pub const MAX_CHANGES: usize = 10_000;
/// Toxics of a connection that are kept one by one.
const MAX_FAULTS: usize = 256;

/// What a toxic did to a connection.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Applied {
    /// Its name.
    pub toxic: String,
    /// Which way.
    pub stream: Stream,
    /// When it first acted, in milliseconds since the proxy was started.
    pub first_ms: f64,
    /// When it last acted.
    pub last_ms: f64,
    /// Bytes that came under it.
    pub bytes: u64,
    /// How often it changed something.
    pub acts: u64,
}

/// One connection.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Record {
    /// Its number, from 1.
    pub id: u64,
    /// Where the client came from.
    pub from: String,
    /// When it came, in milliseconds since the proxy was started.
    pub opened_ms: f64,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_ms: Option<f64>,
    /// Was it ever among those that are hit?
    pub chosen: bool,
    /// Bytes delivered to the server.
    pub upstream_bytes: u64,
    /// Bytes delivered to the client.
    pub downstream_bytes: u64,
    /// What was done to it.
    pub faults: Vec<Applied>,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<&'static str>,
}

impl Record {
    /// Notes that a toxic acted. `slot` remembers where its line stands.
    pub(super) fn note(&mut self, slot: &mut Option<usize>, toxic: &Toxic, at_ms: f64, bytes: u64, acts: u64) {
        let index = *slot.get_or_insert_with(|| {
            if self.faults.len() < MAX_FAULTS {
                self.faults.push(Applied {
                    toxic: toxic.name.clone(),
                    stream: toxic.stream,
                    first_ms: at_ms,
                    last_ms: at_ms,
                    bytes: 0,
                    acts: 0,
                });
                return self.faults.len() - 1;
            }
            // Beyond the bound, a line of the same toxic stands for it, so that sums per toxic stay right.
            self.faults.iter().rposition(|f| f.toxic == toxic.name).unwrap_or(MAX_FAULTS - 1)
        });
        let line = &mut self.faults[index];
        line.last_ms = at_ms;
        line.bytes += bytes;
        line.acts += acts;
    }
}

/// Sums over a toxic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Connections that it acted on.
    pub connections: u64,
    /// Bytes that came under it.
    pub bytes: u64,
    /// How often it changed something.
    pub acts: u64,
}

/// Sums over a proxy, since it was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Connections that came.
    pub connections: u64,
    /// Those that are there now.
    pub live: u64,
    /// Those that were ever among the ones to be hit.
    pub chosen: u64,
    /// Those that could not reach the server.
    pub unreachable: u64,
    /// Those that were turned away as too many were there, or the system gave no more: an artefact, no fault.
    pub overflow: u64,
    /// Bytes delivered to the server.
    pub upstream_bytes: u64,
    /// Bytes delivered to clients.
    pub downstream_bytes: u64,
    /// By toxic.
    pub toxics: BTreeMap<String, Tally>,
}

impl Counters {
    pub(super) fn add(&mut self, record: &Record) {
        self.connections += 1;
        self.chosen += u64::from(record.chosen);
        self.unreachable += u64::from(record.end == Some(UNREACHABLE));
        self.upstream_bytes += record.upstream_bytes;
        self.downstream_bytes += record.downstream_bytes;
        let mut touched = BTreeSet::new();
        for fault in &record.faults {
            let tally = self.toxics.entry(fault.toxic.clone()).or_default();
            tally.bytes += fault.bytes;
            tally.acts += fault.acts;
            if fault.acts > 0 && touched.insert(&fault.toxic) {
                tally.connections += 1;
            }
        }
    }

    /// The sums of a toxic; nothing of one that never acted.
    pub fn of(&self, toxic: &str) -> Tally {
        self.toxics.get(toxic).cloned().unwrap_or_default()
    }
}

/// The end of a connection whose server could not be reached.
pub(super) const UNREACHABLE: &str = "the server could not be reached";

/// A change of what is set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// When, in milliseconds since the proxy was started.
    pub at_ms: f64,
    /// The toxics from then on.
    pub toxics: Vec<Toxic>,
    /// The share of connections that may be hit.
    pub share: f64,
    /// The connections that were there, and were chosen.
    pub chosen: Vec<u64>,
}

/// Everything that a proxy saw: for the evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Timeline {
    /// Where it listens.
    pub listen: String,
    /// Where it forwards to.
    pub upstream: String,
    /// When it was started, in nanoseconds since 1970, UTC; all other times count from here.
    pub started_unix_ns: u64,
    /// Changes of what was set.
    pub changes: Vec<Change>,
    /// Connections in the order in which they came.
    pub connections: Vec<Record>,
    /// Connections and changes beyond the bound, which only the counters know.
    pub left_out: u64,
    /// Sums.
    pub counters: Counters,
}

/// A clock that counts from the proxy's start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(pub(super) Instant);

impl Clock {
    /// Milliseconds, to the microsecond.
    pub(super) fn ms(self, at: Instant) -> f64 {
        at.saturating_duration_since(self.0).as_micros() as f64 / 1000.0
    }
}
