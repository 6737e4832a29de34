//! Which overwrites prove something, whatever became of transactions that nobody acknowledged?
//!
//! Who wrote what was read counts as committed. A transaction that was not acknowledged may have been read and rolled back all the
//! same: then there is no such cycle of overwrites as was found, but a G1a. Each model that forbids the one forbids the other, but for
//! those at the level of read uncommitted, which let transactions read what is rolled back. So of a cycle of overwrites that exists only
//! with the help of such transactions no more is [proven](proves) than that there is some G1.
//!
//! A cycle needs no such help if it is there when all of them are left out, and each version that they wrote is passed over: that leaves
//! the fewest edges of all that may have happened. Where a kind is in doubt, the milder ones that it implies, and that were therefore not
//! looked for, are looked for in that way, too. O(component), but for registers' versions in no line, where what is passed over
//! may be walked more than once. Memory: as a component.

use super::facts::{Local, NO, Versions};
use crate::budget::Budget;
use crate::graph::search::Part;
use crate::graph::{Rel, Rels};
use crate::txn::anomaly::{Anomaly, AnomalySet};
use crate::txn::cycles::{Cycle, Cycles, kind_of_links, shortened};
use crate::txn::history::{Txn, Txns};

/// Cycles of overwrites, and what they may rest on besides.
const OVERWRITES: [(Anomaly, Rels); 3] =
    [(Anomaly::G0, Rels::NO), (Anomaly::G0Process, Rels::PROCESS), (Anomaly::G0Realtime, Rels::REAL_TIME)];

/// What is proven by overwrites of a kind if transactions that take part may have been rolled back.
pub fn proves(kind: Anomaly) -> Anomaly {
    match kind {
        Anomaly::G0 | Anomaly::CyclicVersions => Anomaly::G1,
        Anomaly::G0Process => Anomaly::G1Process,
        Anomaly::G0Realtime => Anomaly::G1Realtime,
        kind => kind,
    }
}

/// What is in doubt, and what is not though it was not looked for.
#[derive(Debug)]
pub struct Doubts {
    /// Kinds of cycles of overwrites that were found, and of which there is none without transactions that were not acknowledged.
    pub kinds: AnomalySet,
    /// Cycles of a milder kind than one in doubt, which for the sake of that was not looked for, without such transactions.
    pub hidden: Vec<Cycle>,
}

/// Looks for cycles of overwrites without transactions that were not acknowledged.
pub fn cycles<V: Versions>(versions: &V, txns: &Txns<'_>, found: &Cycles, budget: &Budget) -> Doubts {
    let acknowledged = |kind: &Anomaly| {
        let examples = found.examples.get(kind).map_or(&[][..], Vec::as_slice);
        examples.iter().any(|cycle| cycle.links.iter().all(|link| txns.ok(link.from)))
    };
    let mut doubts = Doubts { kinds: AnomalySet::EMPTY, hidden: Vec::new() };
    for (kind, more) in OVERWRITES {
        let there = found.counts.get(&kind).is_some_and(|&n| n > 0);
        if !there && (doubts.kinds == AnomalySet::EMPTY || !doubts.hidden.is_empty()) || acknowledged(&kind) {
            continue;
        }
        let parts = if kind == Anomaly::G0 { &found.parts } else { &found.timed };
        let certain = |part: &Part| {
            budget.spent().is_none().then_some(())?;
            without(versions, txns, part).with(Rels::WW.and(more), Rel::Ww, budget).ok()?.into_iter().next()
        };
        match parts.iter().find_map(certain) {
            None if there => {
                doubts.kinds.insert(kind);
            }
            Some(links) if !there && kind_of_links(&links) == Some(kind) => {
                doubts.hidden.push(Cycle { kind, links: shortened(links), at: Vec::new() });
            }
            _ => {}
        }
    }
    doubts
}

/// A component without those that were not acknowledged; who wrote before them precedes who wrote after them.
fn without<V: Versions>(versions: &V, txns: &Txns<'_>, part: &Part) -> Part {
    let members = part.txns();
    let local = Local::new(&versions.told(&members), members, None);
    let by = |event: u32| local.txns[local.event(event).txn as usize];
    let stays = |event: u32| event != NO && txns.ok(by(event));
    let mut more: Vec<(Txn, Txn, Rel)> = Vec::new();
    for key in &local.keys {
        let mut seen = vec![u32::MAX; key.len() as usize];
        for version in (0..key.len()).filter(|&v| stays(key.installer[v as usize])) {
            let from = by(key.installer[version as usize]);
            let mut passed = vec![version];
            while let Some(at) = passed.pop() {
                key.next(at, |next| {
                    let installer = key.installer[next as usize];
                    if std::mem::replace(&mut seen[next as usize], version) == version {
                        return;
                    }
                    match stays(installer) {
                        true if by(installer) != from => more.push((from, by(installer), Rel::Ww)),
                        true => {}
                        false => passed.push(next),
                    }
                });
            }
        }
    }
    part.and(&more).without(|txn| !txns.ok(txn))
}
