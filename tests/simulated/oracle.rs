//! Did a fault really happen in a run, so that clients saw it? Decided from what the database knows, by the definitions, transaction
//! by transaction; nothing here knows of graphs.

use super::{End, Fault, Run, Txn, Workload};

/// A fault by the name that the literature gives it, if it happened in view of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Seen {
    AbortedRead,
    IntermediateRead,
    LostUpdate,
    StaleSnapshot,
    FracturedRead,
    WriteSkew,
    LongFork,
}

type Holds = fn(&Run) -> bool;

impl Run {
    /// What the run's fault led to, as far as it can be seen.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        let candidates: &[(Seen, Holds)] = match self.plan.fault {
            None => &[],
            Some(Fault::LostUpdate) => &[(Seen::LostUpdate, Run::lost_update)],
            Some(Fault::DirtyRead) => {
                &[(Seen::AbortedRead, Run::aborted_read), (Seen::IntermediateRead, Run::intermediate_read)]
            }
            Some(Fault::StaleSnapshot) => &[(Seen::StaleSnapshot, Run::stale_snapshot)],
            Some(Fault::FracturedRead) => &[(Seen::FracturedRead, Run::fractured_read)],
            Some(Fault::WriteSkew) => &[(Seen::WriteSkew, Run::write_skew)],
            Some(Fault::LongFork) => &[(Seen::LongFork, Run::long_fork)],
        };
        candidates.iter().filter(|(_, holds)| holds(self)).map(|&(seen, _)| seen).collect()
    }

    fn acknowledged(&self) -> impl Iterator<Item = &Txn> {
        self.txns.iter().filter(|t| t.end == End::Ok)
    }

    fn pairs(&self) -> impl Iterator<Item = (&Txn, &Txn)> {
        self.acknowledged()
            .flat_map(move |a| self.acknowledged().filter(move |b| !std::ptr::eq(a, *b)).map(move |b| (a, b)))
    }

    /// Does a client who read this know that it did not see those writes? A register that holds something else may hold
    /// something later.
    fn misses(&self, held: &[i64], writes: &[i64]) -> bool {
        match self.plan.workload {
            Workload::Lists => !writes.is_empty() && writes.iter().all(|v| !held.contains(v)),
            Workload::Registers => !writes.is_empty() && held.is_empty(),
        }
    }

    /// Does a client who read this know that it saw the last of those writes?
    fn shows(&self, held: &[i64], writes: &[i64]) -> bool {
        match self.plan.workload {
            Workload::Lists => writes.last().is_some_and(|v| held.contains(v)),
            Workload::Registers => writes.last().is_some() && held.last() == writes.last(),
        }
    }

    fn reads(&self) -> impl Iterator<Item = (&Txn, u64, &[i64])> {
        self.acknowledged().flat_map(|t| t.mops.iter().filter_map(move |m| Some((t, m.key, m.read.as_deref()?))))
    }

    fn aborted_read(&self) -> bool {
        let failed = |key: u64| self.txns.iter().filter(|t| t.end == End::Fail).flat_map(move |t| t.all_writes(key));
        self.reads().any(|(_, key, held)| match self.plan.workload {
            Workload::Lists => failed(key).any(|v| held.contains(&v)),
            Workload::Registers => failed(key).any(|v| held.last() == Some(&v)),
        })
    }

    fn intermediate_read(&self) -> bool {
        let overwritten = |reader: &Txn, key: u64, held: &[i64]| {
            let others = self.acknowledged().filter(|t| !std::ptr::eq(*t, reader));
            let mut writes = others.map(|t| t.all_writes(key));
            writes.any(|w| held.last().is_some_and(|v| w.contains(v) && w.last() != Some(v)))
        };
        self.reads().any(|(reader, key, held)| overwritten(reader, key, held))
    }

    fn lost_update(&self) -> bool {
        let version = |held: &[i64]| match self.plan.workload {
            Workload::Lists => held.to_vec(),
            Workload::Registers => held.last().copied().into_iter().collect(),
        };
        let mut updates: Vec<(u64, Vec<i64>)> = self
            .acknowledged()
            .flat_map(|t| t.first_reads().filter(|&(key, _)| !t.all_writes(key).is_empty()))
            .map(|(key, held)| (key, version(held)))
            .collect();
        updates.sort();
        updates.windows(2).any(|w| w[0] == w[1])
    }

    fn stale_snapshot(&self) -> bool {
        let stale = |(writer, reader): (&Txn, &Txn)| {
            writer.completed < reader.invoked
                && reader.mops.iter().all(|m| m.write.is_none())
                && reader.first_reads().any(|(key, held)| self.misses(held, &writer.all_writes(key)))
        };
        self.pairs().any(stale)
    }

    fn fractured_read(&self) -> bool {
        self.pairs().any(|(writer, reader)| {
            reader.first_reads().any(|(key, held)| self.shows(held, &writer.all_writes(key)))
                && reader.first_reads().any(|(key, held)| self.misses(held, &writer.all_writes(key)))
        })
    }

    fn write_skew(&self) -> bool {
        let missed = |a: &Txn, b: &Txn| a.first_reads().any(|(key, held)| self.misses(held, &b.all_writes(key)));
        self.pairs().any(|(a, b)| missed(a, b) && missed(b, a))
    }

    fn long_fork(&self) -> bool {
        let ahead = |a: &Txn, b: &Txn| {
            a.first_reads().any(|(key, more)| {
                let less = b.first_reads().filter(|&(other, _)| other == key).map(|(_, held)| held);
                less.into_iter().any(|less| match self.plan.workload {
                    Workload::Lists => less.len() < more.len(),
                    Workload::Registers => less.is_empty() && !more.is_empty(),
                })
            })
        };
        self.pairs().any(|(a, b)| ahead(a, b) && ahead(b, a))
    }
}
