//! The values of a history as the integers that models run on.

use std::sync::Arc;

use elench_formats::columns::{Scalar, ValueRef};
use elench_formats::history::OpRef;
use elench_formats::sorting::{signed, sort_by};
use elench_formats::{History, Value as Edn};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::model::Value;
use crate::model::append::LEAST_VALUE;

/// Nil or an integer, or a list of integers.
pub(super) fn is_plain(v: ValueRef<'_>) -> bool {
    match v {
        ValueRef::List(l) | ValueRef::Set(l) => l.as_ints().is_some_and(|ints| ints.iter().all(|&n| n >= LEAST_VALUE)),
        v => is_plain_value(v),
    }
}

/// Nil or an integer. The smallest integers are names of the models' own.
pub(super) fn is_plain_value(v: ValueRef<'_>) -> bool {
    match v {
        ValueRef::Nil => true,
        ValueRef::Int(n) => n >= LEAST_VALUE,
        _ => false,
    }
}

/// Integers stand for themselves where all values are plain; else each distinct value gets a number.
pub(super) struct Values<'a> {
    history: &'a History,
    ids: Option<HashMap<Box<str>, i64, FixedState>>,
}

impl<'a> Values<'a> {
    /// Of a history whose operations say nothing but plain values, if `plain` says so of all of them.
    pub(super) fn new(history: &'a History, initial: &Edn, plain: impl Fn(&OpRef<'_>) -> bool) -> Self {
        let plain_initial = match initial {
            Edn::Nil => true,
            Edn::Int(n) => *n >= LEAST_VALUE,
            _ => false,
        };
        let all_plain = plain_initial && history.clients().all(|op| plain(&op));
        let ids = if all_plain { None } else { Some(HashMap::default()) };
        Values { history, ids }
    }

    /// Each distinct value gets a number.
    pub(super) fn numbered(history: &'a History) -> Self {
        Values { history, ids: Some(HashMap::default()) }
    }

    pub(super) fn scalar(&mut self, s: Scalar) -> Value {
        self.value(s.into())
    }

    pub(super) fn value(&mut self, v: ValueRef<'_>) -> Value {
        match (v, &self.ids) {
            (ValueRef::Nil, _) => Value::NIL,
            (ValueRef::Int(n), None) => Value(n),
            _ => {
                let mut text = String::new();
                self.history.write_value(v, &mut text);
                self.named(text)
            }
        }
    }

    /// A value that need not occur in the history as such.
    pub(super) fn edn(&mut self, v: &Edn) -> Value {
        match (v, &self.ids) {
            (Edn::Nil, _) => Value::NIL,
            (Edn::Int(n), None) if *n >= LEAST_VALUE => Value(*n),
            _ => self.named(v.to_edn()),
        }
    }

    fn named(&mut self, text: String) -> Value {
        debug_assert!(self.ids.is_some(), "{text} is not plain");
        let ids = self.ids.get_or_insert_with(HashMap::default);
        let next = ids.len() as i64;
        Value(*ids.entry(text.into()).or_insert(next))
    }

    /// What numbers stand for, unless integers stand for themselves.
    pub(super) fn names(&self) -> Option<Arc<[Box<str>]>> {
        let ids = self.ids.as_ref()?;
        let mut names: Vec<(&Box<str>, &i64)> = ids.iter().collect();
        sort_by(&mut names, |(_, id)| signed(**id));
        Some(names.into_iter().map(|(name, _)| name.clone()).collect())
    }
}
