//! A lease: a lock that ends by itself some time after it was granted.
//!
//! A model sees an order, not times; so each grant bears the times between which it happened: not before its invocation, and not after
//! its completion, if that is known. It ends at the earliest at its invocation and its time to live, and another owner can
//! be granted one at the latest at its own completion. The model accuses only where even so the first lease had not ended. What it does not
//! accuse: clocks of several recorders that differ are taken as they are; and moments need not fit
//! together across more than two operations.
//!
//! The holder may take it again, which renews it. A release by one who does not hold it does nothing: its lease had ended.

use std::sync::Arc;

use super::collection::Names;
use super::{Model, Value};

/// An operation on a lease. An owner that is none is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseOp {
    /// It is granted to the owner, or renewed.
    Grant {
        /// To whom.
        owner: Option<Value>,
        /// Not before this time.
        from: i64,
        /// Not after this time; `i64::MAX` where that is not known.
        until: i64,
        /// For how long.
        ttl: i64,
    },
    /// The owner gives it back.
    Release(Option<Value>),
}

/// Somebody's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    owner: Option<Value>,
    /// When it ends at the earliest.
    end: i64,
}

/// The model. Times are in one unit, whatever it is.
#[derive(Clone, Debug, Default)]
pub struct Lease {
    names: Names,
}

impl Lease {
    /// Speaks of the owner `n` as `names[n]`.
    #[must_use]
    pub fn with_names(mut self, names: Arc<[Box<str>]>) -> Self {
        self.names = Names(Some(names));
        self
    }

    fn show(&self, owner: Option<Value>) -> String {
        owner.map_or("somebody".to_string(), |owner| self.names.show(owner))
    }
}

impl Model for Lease {
    type Op = LeaseOp;
    type State = Option<Held>;

    fn init(&self) -> Option<Held> {
        None
    }

    /// Where an owner is not known, whatever allows more is taken to be so.
    fn step(&self, state: &Option<Held>, op: &LeaseOp) -> Option<Option<Held>> {
        let may_be = |held: &Held, owner: Option<Value>| held.owner.is_none() || owner.is_none() || held.owner == owner;
        match *op {
            LeaseOp::Release(owner) => Some(state.filter(|held| !may_be(held, owner))),
            LeaseOp::Grant { owner, from, until, ttl } => {
                let end = from.saturating_add(ttl);
                let over = state.is_none_or(|held| held.end <= until);
                let renewed = state.filter(|_| !over).map(|held| may_be(&held, owner).then_some(owner.or(held.owner)));
                let owner = renewed.unwrap_or(Some(owner))?;
                Some(Some(Held { owner, end }))
            }
        }
    }

    fn kind(&self, op: &LeaseOp) -> &'static str {
        match op {
            LeaseOp::Grant { .. } => "grant",
            LeaseOp::Release(_) => "release",
        }
    }

    fn show_op(&self, op: &LeaseOp) -> String {
        match *op {
            LeaseOp::Grant { owner, from, until: i64::MAX, ttl } => {
                format!("grant of {ttl} to {} at {from} or later", self.show(owner))
            }
            LeaseOp::Grant { owner, from, until, ttl } => {
                format!("grant of {ttl} to {} between {from} and {until}", self.show(owner))
            }
            LeaseOp::Release(owner) => format!("release by {}", self.show(owner)),
        }
    }

    fn show_state(&self, state: &Option<Held>) -> String {
        state
            .map_or("free".to_string(), |held| format!("held by {} until {} or later", self.show(held.owner), held.end))
    }
}
