//! Which places in their lists do transactions read and append to?
//!
//! A version is a number of elements: what was read up to there. Elements that no list holds come after all of them. Reads that are
//! no prefix of the longest list are passed over, as they already contradict everything that these facts could.

use super::{Kind, Known, Lists, Mop, NONE, Shard, Txn};
use crate::txn::weak::facts::{Event, Order, Told, Version, Versions};
use elench_formats::sorting::sort_by;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

impl Versions for Lists<'_> {
    fn told(&self, members: &[Txn]) -> Told {
        let txns = self.txns;
        let mut touched: Vec<(u32, Mop, Txn)> = members
            .iter()
            .flat_map(|&t| txns.mops(t).map(move |m| (txns.key[m], m as Mop, t)))
            .filter(|&(_, m, _)| matches!(txns.kind[m as usize], Kind::Append | Kind::ReadList))
            .collect();
        touched.sort_unstable();
        let mut told = Told::default();
        for own in touched.chunk_by(|a, b| a.0 == b.0) {
            let key = own[0].0 as usize;
            let at = self.shards.partition_point(|s| s.keys.end <= key);
            if let Some(shard) = self.shards.get(at) {
                self.key(shard, key, own, &mut told);
            }
        }
        sort_by(&mut told.events, |e| e.mop.into());
        told
    }
}

impl Lists<'_> {
    fn key(&self, shard: &Shard<'_>, key: usize, own: &[(u32, Mop, Txn)], told: &mut Told) {
        let known = &shard.known[key - shard.keys.start];
        let len = known.longest.len();
        told.orders.insert(key as u32, Order::Line(len as Version));
        let writers = &shard.writers[known.writers as usize..known.writers as usize + len];
        self.appends(shard, known, writers, own, told);
        let odd = &shard.odd[known.odd.0 as usize..known.odd.1 as usize];
        let mut run = Run { txn: NONE, up_to: 0, start: 0 };
        for &(_, mop, txn) in own.iter().filter(|o| self.txns.kind[o.1 as usize] == Kind::ReadList) {
            let regular = odd.binary_search_by_key(&mop, |o| o.read).is_err();
            let n = self.txns.list(mop).len();
            if regular && n <= len {
                let base = run.foreign(txn, n, writers) as Version;
                told.events.push(Event { mop, txn, key: key as u32, version: n as Version, base, write: false });
            }
        }
    }

    /// What each transaction installed: its last append to the key.
    fn appends(&self, shard: &Shard<'_>, known: &Known<'_>, writers: &[Txn], own: &[(u32, Mop, Txn)], told: &mut Told) {
        let is_append = |o: &&(u32, Mop, Txn)| self.txns.kind[o.1 as usize] == Kind::Append;
        let mut last: HashMap<Txn, Option<usize>, FixedState> =
            own.iter().filter(is_append).map(|o| (o.2, None)).collect();
        for (place, writer) in writers.iter().enumerate() {
            if let Some(last) = last.get_mut(writer) {
                *last = Some(place);
            }
        }
        let is_in = |list: &[i64], m: Mop| list.contains(&self.txns.value[m as usize]);
        let agreed = known.odd.0 == known.odd.1;
        let late = shard.late[known.late.0 as usize..known.late.1 as usize].iter().copied();
        let late: HashMap<Txn, usize, FixedState> = late.zip(0..).collect();
        for of_txn in own.chunk_by(|a, b| a.2 == b.2) {
            let (key, _, txn) = of_txn[0];
            let mut appends = of_txn.iter().filter(is_append).map(|o| o.1).rev();
            let place = last.get(&txn).copied().flatten();
            let (mop, version) = match (late.get(&txn), place) {
                (Some(_), _) if !agreed => continue,
                // It shows its later append without an earlier one, so that nothing can be said of what it installed.
                (Some(_), Some(_)) if appends.clone().next().is_some_and(|m| is_in(known.longest, m)) => continue,
                (Some(at), _) => (appends.next(), writers.len() + 1 + at),
                (None, Some(p)) => (appends.find(|&m| self.txns.value[m as usize] == known.longest[p]), p + 1),
                (None, None) => continue,
            };
            if let Some(mop) = mop {
                let version = version as Version;
                told.events.push(Event { mop, txn, key, version, base: NONE, write: true });
            }
        }
    }
}

/// The elements of a transaction's own at the end of what it read.
struct Run {
    txn: Txn,
    up_to: usize,
    start: usize,
}

impl Run {
    /// How many elements stand before them. Each is passed once for all reads of a transaction.
    fn foreign(&mut self, txn: Txn, n: usize, writers: &[Txn]) -> usize {
        let mut at = n;
        while at > 0 && writers[at - 1] == txn {
            if self.txn == txn && at == self.up_to {
                at = self.start;
                break;
            }
            at -= 1;
        }
        if at < n {
            *self = Run { txn, up_to: n, start: at };
        }
        at
    }
}
