//! Which versions of their registers do transactions read and install?
//!
//! Of a transaction the first read of a key, if that came before any write, and its last write are told. The order of versions is as far
//! known as it was inferred.

use super::Registers;
use super::keys::{INITIAL, Scan};
use crate::txn::history::{Kind, Mop, NONE, Txn};
use crate::txn::weak::facts::{Event, Order, Told, Versions};

impl Versions for Registers<'_> {
    fn told(&self, members: &[Txn]) -> Told {
        let mut keys: Vec<u32> = members.iter().flat_map(|&t| self.txns.mops(t)).map(|m| self.txns.key[m]).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut told = Told::default();
        let mut scan = Scan::new(self.txns, &self.committed, self.assumptions, self.ranks);
        for key in keys {
            let pairs = scan.infer(key, self.entries.get(key as usize));
            let initial_first = scan.certain(INITIAL);
            told.orders.insert(key, Order::Partial { pairs, initial_first });
            for touch in scan.touches.iter().filter(|t| members.binary_search(&t.txn).is_ok()) {
                let mops = || self.txns.mops(touch.txn).filter(|&m| self.txns.key[m] == key);
                if scan.certain(touch.read)
                    && let Some(mop) = mops().find(|&m| self.txns.kind[m] == Kind::Read)
                {
                    let version = touch.read;
                    told.events.push(Event {
                        mop: mop as Mop,
                        txn: touch.txn,
                        key,
                        version,
                        base: version,
                        write: false,
                    });
                }
                let installs =
                    scan.certain(touch.wrote) && scan.versions[touch.wrote as usize].installer() == touch.txn;
                if installs && let Some(mop) = mops().rfind(|&m| self.txns.kind[m].writes()) {
                    let version = touch.wrote;
                    told.events.push(Event { mop: mop as Mop, txn: touch.txn, key, version, base: NONE, write: true });
                }
            }
        }
        told.events.sort_unstable_by_key(|e| e.mop);
        told
    }
}
