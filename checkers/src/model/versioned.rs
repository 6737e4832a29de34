//! A register that counts its versions, as etcd's keys do: every write and every successful compare-and-set makes the
//! version one more than before, and results may say which it was.

use std::collections::HashSet;
use std::sync::Arc;

use super::collection::Names;
use super::{Model, Value};

/// An operation on a versioned register. A version that is none is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VersionedOp {
    /// A read of a version and the value; what is none is not known.
    Read(Option<u64>, Option<Value>),
    /// A write which made this version.
    Write(Option<u64>, Value),
    /// A compare-and-set from the first value to the second that succeeded, which made this version.
    Cas(Option<u64>, Value, Value),
    /// A compare-and-set from the first version to the value that succeeded.
    CasVersion(u64, Value),
}

use VersionedOp::{Cas, CasVersion, Read, Write};

/// The model. Its state is the version and the value.
#[derive(Clone, Debug)]
pub struct VersionedRegister {
    initial: (u64, Value),
    names: Names,
}

impl Default for VersionedRegister {
    fn default() -> Self {
        VersionedRegister::new(0, Value::NIL)
    }
}

impl VersionedRegister {
    /// A register that has this version and value at first.
    pub fn new(version: u64, value: Value) -> Self {
        VersionedRegister { initial: (version, value), names: Names::default() }
    }

    /// Speaks of the value `n` as `names[n]`.
    #[must_use]
    pub fn with_names(mut self, names: Arc<[Box<str>]>) -> Self {
        self.names = Names(Some(names));
        self
    }
}

impl Model for VersionedRegister {
    type Op = VersionedOp;
    type State = (u64, Value);

    fn init(&self) -> (u64, Value) {
        self.initial
    }

    fn step(&self, &(version, value): &(u64, Value), op: &VersionedOp) -> Option<(u64, Value)> {
        let made = |said: Option<u64>, new: Value| {
            let next = version.checked_add(1)?;
            said.is_none_or(|said| said == next).then_some((next, new))
        };
        match *op {
            Read(v, x) => (v.is_none_or(|v| v == version) && x.is_none_or(|x| x == value)).then_some((version, value)),
            Write(said, new) => made(said, new),
            Cas(said, old, new) => made(said, new).filter(|_| old == value),
            CasVersion(old, new) => made(None, new).filter(|_| old == version),
        }
    }

    fn kind(&self, op: &VersionedOp) -> &'static str {
        match op {
            Read(..) => "read",
            Write(..) => "write",
            Cas(..) | CasVersion(..) => "cas",
        }
    }

    fn show_op(&self, op: &VersionedOp) -> String {
        let made = |version: &Option<u64>| version.map_or(String::new(), |v| format!(" that made version {v}"));
        let show = |value: &Value| self.names.show(*value);
        match op {
            Read(None, None) => "read of something unknown".to_string(),
            Read(Some(version), None) => format!("read of version {version}"),
            Read(None, Some(value)) => format!("read of {}", show(value)),
            Read(Some(version), Some(value)) => format!("read of {} at version {version}", show(value)),
            Write(version, value) => format!("write of {}{}", show(value), made(version)),
            Cas(version, old, new) => format!("cas from {} to {}{}", show(old), show(new), made(version)),
            CasVersion(old, new) => format!("cas from version {old} to {}", show(new)),
        }
    }

    fn show_state(&self, (version, value): &(u64, Value)) -> String {
        format!("{} at version {version}", self.names.show(*value))
    }

    fn observes(&self, op: &VersionedOp) -> bool {
        matches!(op, Read(..))
    }

    /// Values that were found were written, and no version is greater than there are changes.
    fn supported(&self, ops: &[&VersionedOp]) -> bool {
        let left = |op: &&VersionedOp| match **op {
            Write(_, new) | Cas(_, _, new) | CasVersion(_, new) => Some(new),
            Read(..) => None,
        };
        let values: Vec<Value> = ops.iter().filter_map(left).collect();
        let most = self.initial.0.saturating_add(values.len() as u64);
        let values: HashSet<Value> = values.into_iter().chain([self.initial.1]).collect();
        ops.iter().all(|op| match **op {
            Read(version, value) => {
                version.is_none_or(|v| v <= most) && value.is_none_or(|value| values.contains(&value))
            }
            Write(version, _) => version.is_none_or(|v| v <= most),
            Cas(version, old, _) => version.is_none_or(|v| v <= most) && values.contains(&old),
            CasVersion(old, _) => old < most,
        })
    }
}
