//! A bank: transfers between accounts, reads of all balances.
//!
//! An account that is not named holds nothing, so that accounts of balance zero and no accounts are the same. Where the balances at the
//! beginning are not known, the first read in an order says what they have become; before it, any transfer is possible.

use std::sync::Arc;

use super::collection::Names;
use super::{Model, Value};

/// Balances that are not zero, by account, ascending.
pub type Balances = Arc<[(Value, i128)]>;

/// An operation of a bank.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BankOp {
    /// Moves an amount from the first account to the second.
    Transfer(Value, Value, i64),
    /// A read of all balances ([`BankOp::read`]); none when what it returned is not known.
    Read(Option<Balances>),
}

use BankOp::{Read, Transfer};

impl BankOp {
    /// A read that returned these balances, in any order, each account once.
    pub fn read(balances: impl IntoIterator<Item = (Value, i128)>) -> BankOp {
        Read(Some(balances_of(balances)))
    }
}

fn balances_of(balances: impl IntoIterator<Item = (Value, i128)>) -> Balances {
    let mut list: Vec<(Value, i128)> = balances.into_iter().filter(|(_, n)| *n != 0).collect();
    list.sort_unstable();
    list.into()
}

/// The model.
#[derive(Clone, Debug, Default)]
pub struct Bank {
    initial: Option<Balances>,
    overdrafts: bool,
    names: Names,
}

impl Bank {
    /// A bank with these balances at first; none: not known.
    pub fn new(initial: Option<Vec<(Value, i128)>>) -> Self {
        Bank { initial: initial.map(balances_of), ..Bank::default() }
    }

    /// Lets a transfer leave less than nothing.
    #[must_use]
    pub fn with_overdrafts(mut self) -> Self {
        self.overdrafts = true;
        self
    }

    /// Speaks of the account `n` as `names[n]`.
    #[must_use]
    pub fn with_names(mut self, names: Arc<[Box<str>]>) -> Self {
        self.names = Names(Some(names));
        self
    }

    fn show(&self, balances: &Balances) -> String {
        let list: Vec<String> = balances.iter().map(|(a, n)| format!("{}: {n}", self.names.show(*a))).collect();
        if list.is_empty() { "nothing on any account".to_string() } else { list.join(", ") }
    }
}

impl Model for Bank {
    type Op = BankOp;
    type State = Option<Balances>;

    fn init(&self) -> Option<Balances> {
        self.initial.clone()
    }

    fn step(&self, state: &Option<Balances>, op: &BankOp) -> Option<Option<Balances>> {
        let Some(balances) = state else {
            return Some(if let Read(Some(seen)) = op { Some(Arc::clone(seen)) } else { None });
        };
        let (from, to, amount) = match op {
            Read(seen) => return seen.as_ref().is_none_or(|seen| seen == balances).then(|| state.clone()),
            Transfer(from, to, amount) => (from, to, i128::from(*amount)),
        };
        let held = |account: &Value| balances.iter().find(|(a, _)| a == account).map_or(0, |(_, n)| *n);
        let overdraws = (amount > 0 && held(from) < amount) || (amount < 0 && held(to) < -amount);
        if overdraws && !self.overdrafts {
            return None;
        }
        if from == to {
            return Some(state.clone());
        }
        let others = balances.iter().filter(|(a, _)| a != from && a != to).copied();
        Some(Some(balances_of(others.chain([(*from, held(from) - amount), (*to, held(to) + amount)]))))
    }

    fn kind(&self, op: &BankOp) -> &'static str {
        if matches!(op, Transfer(..)) { "transfer" } else { "read" }
    }

    fn show_op(&self, op: &BankOp) -> String {
        match op {
            Transfer(from, to, amount) => {
                format!("transfer of {amount} from {} to {}", self.names.show(*from), self.names.show(*to))
            }
            Read(None) => "read of something unknown".to_string(),
            Read(Some(balances)) => format!("read of {}", self.show(balances)),
        }
    }

    fn show_state(&self, state: &Option<Balances>) -> String {
        state.as_ref().map_or("not known".to_string(), |balances| self.show(balances))
    }

    /// Where the balances are not known at first, a read that returned changes what is known.
    fn observes(&self, op: &BankOp) -> bool {
        match op {
            Read(seen) => self.initial.is_some() || seen.is_none(),
            Transfer(from, to, amount) => *amount == 0 || from == to,
        }
    }
}
