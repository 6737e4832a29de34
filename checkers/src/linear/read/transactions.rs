//! Many registers: transactions of `[:r k v]` and `[:w k v]` (`:read` and `:write` too), or reads and writes of maps.
//!
//! A read of nil saw an unset register, where that register can be unset: at first, or as somebody wrote nil to it.
//! Where it cannot, it says nothing, as in [`registers`](super::registers).

use elench_formats::columns::{Scalar, ValueRef};
use elench_formats::history::is_read;
use elench_formats::{History, Value as Edn};
use foldhash::fast::FixedState;
use hashbrown::HashSet;

use super::{Call, NilReads, Reader, Said, calls, text_of};
use crate::linear::Operation;
use crate::model::multi::Transaction;
use crate::model::{MultiOp, MultiRegister, Value};

pub(super) struct Transactions<'a> {
    values: super::Values<'a>,
    keys: super::Values<'a>,
    initial: Vec<(Value, Value)>,
    others: Value,
    nil_reads: NilReads,
    /// Registers to which somebody may have written nil.
    nil_written: HashSet<Value, FixedState>,
    silent: u64,
}

fn is_write(name: &str) -> bool {
    matches!(name, "w" | "write")
}

impl<'a> Transactions<'a> {
    /// At first: a map from registers to values, all others being unset; or one value that all hold.
    pub(super) fn new(history: &'a History, initial: &Edn, nil_reads: NilReads) -> Result<Self, String> {
        let (mut values, mut keys) = (super::Values::numbered(history), super::Values::numbered(history));
        let (initial, others) = match initial {
            Edn::Map(entries) => (entries.iter().map(|(k, v)| (keys.edn(k), values.edn(v))).collect(), Value::NIL),
            given => (Vec::new(), values.edn(given)),
        };
        let mut all =
            Transactions { values, keys, initial, others, nil_reads, nil_written: HashSet::default(), silent: 0 };
        for call in calls(history) {
            // What does not fit is told when it is read.
            for op in all.operations(&call).unwrap_or_default() {
                if let MultiOp::Write(key, Value::NIL) = op {
                    all.nil_written.insert(key);
                }
            }
        }
        Ok(all)
    }

    fn operations(&mut self, call: &Call<'_>) -> Result<Vec<MultiOp>, String> {
        let Some(txn) = call.row.txn() else { return self.of_maps(call) };
        let of = |mop: elench_formats::columns::MopRef<'_>| {
            let key = self.keys.scalar(mop.key);
            match call.row.mop_name(mop.f) {
                name if is_read(name) => {
                    Ok(MultiOp::Read(key, (call.ok && mop.known).then(|| self.values.value(mop.value))))
                }
                name if is_write(name) => Ok(MultiOp::Write(key, self.values.value(mop.value))),
                name => Err(format!("`{name}` in {} is no operation on a register", shown(call, mop.key, mop.value))),
            }
        };
        txn.iter().map(of).collect()
    }

    /// A read or a write of a map from registers to values.
    fn of_maps(&mut self, call: &Call<'_>) -> Result<Vec<MultiOp>, String> {
        let (name, argument) = (call.f, if is_read(call.f) { call.output() } else { call.argument()? });
        match argument {
            Edn::Nil if is_read(name) => Ok(Vec::new()),
            Edn::Map(entries) if is_read(name) => {
                Ok(entries.iter().map(|(k, v)| MultiOp::Read(self.keys.edn(k), Some(self.values.edn(v)))).collect())
            }
            Edn::Map(entries) if is_write(name) => {
                Ok(entries.iter().map(|(k, v)| MultiOp::Write(self.keys.edn(k), self.values.edn(v))).collect())
            }
            Edn::Vector(list) if list.is_empty() => Ok(Vec::new()),
            other => Err(format!("a transaction is a list of [:r k v] and [:w k v], or a map, not {}", other.to_edn())),
        }
    }

    fn can_be_unset(&self, key: Value) -> bool {
        let at_first = self.initial.iter().find(|(k, _)| *k == key).map_or(self.others, |(_, v)| *v);
        match self.nil_reads {
            NilReads::Unset => true,
            NilReads::SayNothing => false,
            NilReads::IfPossible => at_first == Value::NIL || self.nil_written.contains(&key),
        }
    }
}

fn shown(call: &Call<'_>, key: Scalar, value: ValueRef<'_>) -> String {
    let mut text = text_of(call.history, key).into_string();
    text.push(' ');
    call.history.write_value(value, &mut text);
    text
}

impl Reader for Transactions<'_> {
    type Model = MultiRegister;

    fn read(&mut self, call: &Call<'_>) -> Result<Option<Said<Transaction>>, String> {
        let mut ops = self.operations(call)?;
        for op in &mut ops {
            if let MultiOp::Read(key, seen @ Some(Value::NIL)) = op
                && !self.can_be_unset(*key)
            {
                *seen = None;
                self.silent += 1;
            }
        }
        Said::of(ops.into())
    }

    fn model(&self, ops: &[Operation<Transaction>]) -> MultiRegister {
        MultiRegister::new(self.initial.iter().copied(), self.others)
            .of(ops.iter().map(|op| &op.op))
            .with_names(self.values.names(), self.keys.names())
    }

    fn assumptions(&self) -> Vec<String> {
        if self.silent == 0 {
            return Vec::new();
        }
        vec![format!(
            "{} reads of nil say nothing, as those registers are never unset (--nil-reads unset counts them)",
            self.silent
        )]
    }
}
