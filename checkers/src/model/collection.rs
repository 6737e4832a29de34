//! Things that values are put in and taken out of: queue, stack, priority queue, bag.
//!
//! They differ in what a removal takes: the oldest value, the newest, the smallest, or any. What is removed names what
//! was inserted, so where each value is inserted at most once, monitors decide in O(n log n).

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use foldhash::fast::FixedState;

use super::persistent::{Fifo, List, Multiset};
use super::{Model, Value};
use crate::budget::Budget;
use crate::linear::Operation;
use crate::linear::monitor::{Monitored, priority, queue, stack};

/// An operation on a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CollectionOp {
    /// Puts a value in.
    Insert(Value),
    /// Takes a value out. None when what it took, perhaps nothing, is not known; then it must not be known to have returned.
    Remove(Option<Value>),
    /// A removal that found nothing to take.
    RemoveEmpty,
}

use CollectionOp::{Insert, Remove, RemoveEmpty};

impl CollectionOp {
    /// The value that it is about.
    pub fn value(&self) -> Option<Value> {
        match *self {
            Insert(value) => Some(value),
            Remove(value) => value,
            RemoveEmpty => None,
        }
    }
}

/// What a removal takes.
pub trait Discipline: Clone + Send + Sync + Debug + 'static {
    /// What the collection holds.
    type Contents: Clone + Eq + Hash + Debug + Default + Send + Sync;

    /// With one more value.
    fn insert(contents: &Self::Contents, value: Value) -> Self::Contents;

    /// Without this value, if it can be taken next.
    fn remove(contents: &Self::Contents, value: Value) -> Option<Self::Contents>;

    /// Without what is taken next, whatever it is; none when there is nothing.
    fn remove_any(contents: &Self::Contents) -> Option<Self::Contents>;

    /// A few of the values, in the order in which they can be taken; all if there are no more than `n`.
    fn first(contents: &Self::Contents, n: usize) -> Vec<Value>;

    /// Are values independent of each other, as long as nothing finds the collection empty?
    const INDEPENDENT: bool;

    /// Decides in polynomial time. `initial` is what it holds at first, in the order of insertion.
    fn monitor(initial: &[Value], ops: &[Operation<CollectionOp>], budget: &Budget) -> Monitored;
}

/// The oldest value is taken first.
#[derive(Clone, Copy, Debug)]
pub struct OldestFirst;

impl Discipline for OldestFirst {
    type Contents = Fifo;

    fn insert(contents: &Fifo, value: Value) -> Fifo {
        contents.push(value)
    }

    fn remove(contents: &Fifo, value: Value) -> Option<Fifo> {
        contents.pop().filter(|(first, _)| *first == value).map(|(_, rest)| rest)
    }

    fn remove_any(contents: &Fifo) -> Option<Fifo> {
        contents.pop().map(|(_, rest)| rest)
    }

    fn first(contents: &Fifo, n: usize) -> Vec<Value> {
        contents.iter().take(n).collect()
    }

    const INDEPENDENT: bool = false;

    fn monitor(initial: &[Value], ops: &[Operation<CollectionOp>], budget: &Budget) -> Monitored {
        queue::fifo(initial, ops, budget)
    }
}

/// The newest value is taken first.
#[derive(Clone, Copy, Debug)]
pub struct NewestFirst;

impl Discipline for NewestFirst {
    type Contents = List;

    fn insert(contents: &List, value: Value) -> List {
        contents.push(value)
    }

    fn remove(contents: &List, value: Value) -> Option<List> {
        contents.pop().filter(|(first, _)| *first == value).map(|(_, rest)| rest.clone())
    }

    fn remove_any(contents: &List) -> Option<List> {
        contents.pop().map(|(_, rest)| rest.clone())
    }

    fn first(contents: &List, n: usize) -> Vec<Value> {
        contents.iter().take(n).collect()
    }

    const INDEPENDENT: bool = false;

    fn monitor(initial: &[Value], ops: &[Operation<CollectionOp>], budget: &Budget) -> Monitored {
        stack::stack(initial, ops, budget)
    }
}

/// The smallest value is taken first: the smaller the number in [`Value`], the higher the priority. (Where a test's highest
/// number goes first, its adapter negates.)
#[derive(Clone, Copy, Debug)]
pub struct SmallestFirst;

impl Discipline for SmallestFirst {
    type Contents = Multiset;

    fn insert(contents: &Multiset, value: Value) -> Multiset {
        contents.insert(value)
    }

    fn remove(contents: &Multiset, value: Value) -> Option<Multiset> {
        if contents.smallest() != Some(value) {
            return None;
        }
        contents.remove(value)
    }

    fn remove_any(contents: &Multiset) -> Option<Multiset> {
        contents.remove(contents.smallest()?)
    }

    fn first(contents: &Multiset, n: usize) -> Vec<Value> {
        contents.iter().take(n).collect()
    }

    const INDEPENDENT: bool = false;

    fn monitor(initial: &[Value], ops: &[Operation<CollectionOp>], budget: &Budget) -> Monitored {
        priority::priority(initial, ops, budget)
    }
}

/// Any value may be taken.
#[derive(Clone, Copy, Debug)]
pub struct AnyFirst;

/// What a bag may hold. A removal of an unknown value took some value that was there then, so it is kept as a debt, to be
/// paid with values inserted before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct BagContents {
    /// Values and the debt made after them, in that order. The debts up to each are fewer than the values up to it: where
    /// they were as many, those values are gone and forgotten. No layer but the last is without debt, and none without values.
    layers: Vec<(Multiset, usize)>,
}

impl BagContents {
    /// Forgets the values that must have been taken, now that debts have grown or values have become fewer.
    fn settle(mut self) -> Self {
        let (mut values, mut debts, mut gone) = (0, 0, 0);
        for (i, (layer, debt)) in self.layers.iter().enumerate() {
            values += layer.len();
            debts += debt;
            if values == debts {
                gone = i + 1;
            }
        }
        self.layers.drain(..gone);
        self
    }
}

impl Discipline for AnyFirst {
    type Contents = BagContents;

    fn insert(contents: &BagContents, value: Value) -> BagContents {
        let mut layers = contents.layers.clone();
        match layers.last_mut() {
            Some((last, 0)) => *last = last.insert(value),
            _ => layers.push((Multiset::default().insert(value), 0)),
        }
        BagContents { layers }
    }

    /// Of equal values the newest is taken: that leaves the most for the debts. As there are more values than debts
    /// everywhere, one can be spared.
    fn remove(contents: &BagContents, value: Value) -> Option<BagContents> {
        let mut layers = contents.layers.clone();
        let at = layers.iter().rposition(|(layer, _)| layer.contains(value))?;
        let (layer, debt) = &mut layers[at];
        *layer = layer.remove(value)?;
        if layer.is_empty() {
            let debt = *debt;
            layers.remove(at);
            if at > 0 {
                layers[at - 1].1 += debt;
            }
        }
        Some(BagContents { layers }.settle())
    }

    fn remove_any(contents: &BagContents) -> Option<BagContents> {
        let mut layers = contents.layers.clone();
        layers.last_mut()?.1 += 1;
        Some(BagContents { layers }.settle())
    }

    fn first(contents: &BagContents, n: usize) -> Vec<Value> {
        contents.layers.iter().flat_map(|(layer, _)| layer.iter()).take(n).collect()
    }

    const INDEPENDENT: bool = true;

    fn monitor(initial: &[Value], ops: &[Operation<CollectionOp>], budget: &Budget) -> Monitored {
        queue::bag(initial, ops, budget)
    }
}

/// The model of a collection.
#[derive(Clone, Debug)]
pub struct Collection<D: Discipline> {
    initial: Vec<Value>,
    contents: D::Contents,
    names: Names,
    /// When the last removal of a value returns that is known to.
    last_removed: HashMap<Value, u64, FixedState>,
}

/// First in, first out.
pub type FifoQueue = Collection<OldestFirst>;
/// Last in, first out.
pub type Stack = Collection<NewestFirst>;
/// Smallest first.
pub type PriorityQueue = Collection<SmallestFirst>;
/// In any order.
pub type Bag = Collection<AnyFirst>;

impl<D: Discipline> Default for Collection<D> {
    fn default() -> Self {
        Collection::new(Vec::new())
    }
}

impl<D: Discipline> Collection<D> {
    /// A collection that at first holds these, inserted in this order.
    pub fn new(initial: Vec<Value>) -> Self {
        let contents = initial.iter().fold(D::Contents::default(), |contents, &value| D::insert(&contents, value));
        Collection { initial, contents, names: Names::default(), last_removed: HashMap::default() }
    }

    /// Speaks of the value `n` as `names[n]`.
    #[must_use]
    pub fn with_names(mut self, names: Arc<[Box<str>]>) -> Self {
        self.names = Names(Some(names));
        self
    }
}

/// Values that a person is shown at most.
const SHOWN: usize = 8;

impl<D: Discipline> Model for Collection<D> {
    type Op = CollectionOp;
    type State = D::Contents;

    fn init(&self) -> D::Contents {
        self.contents.clone()
    }

    fn step(&self, state: &D::Contents, op: &CollectionOp) -> Option<D::Contents> {
        match *op {
            Insert(value) => Some(D::insert(state, value)),
            Remove(Some(value)) => D::remove(state, value),
            Remove(None) => Some(D::remove_any(state).unwrap_or_else(|| state.clone())),
            RemoveEmpty => D::remove_any(state).is_none().then(|| state.clone()),
        }
    }

    fn kind(&self, op: &CollectionOp) -> &'static str {
        match op {
            Insert(_) => "insert",
            Remove(_) | RemoveEmpty => "remove",
        }
    }

    fn show_op(&self, op: &CollectionOp) -> String {
        match *op {
            Insert(value) => format!("insert of {}", self.names.show(value)),
            Remove(Some(value)) => format!("remove of {}", self.names.show(value)),
            Remove(None) => "remove of something unknown".to_string(),
            RemoveEmpty => "remove that found it empty".to_string(),
        }
    }

    fn show_state(&self, state: &D::Contents) -> String {
        self.names.list(&D::first(state, SHOWN + 1))
    }

    fn observes(&self, op: &CollectionOp) -> bool {
        matches!(op, RemoveEmpty)
    }

    fn foresee(&mut self, ops: &[(&CollectionOp, u64)]) {
        self.last_removed.clear();
        for &(op, ret) in ops {
            if let (Remove(Some(value)), true) = (op, ret != u64::MAX) {
                let last = self.last_removed.entry(*value).or_default();
                *last = ret.max(*last);
            }
        }
    }

    /// An insert of a value that no operation which must happen takes any more. Where it stands in an order, take it out and,
    /// if another takes the value in that order, that one too, which need not have happened: everything else
    /// is taken and found as before.
    fn spent(&self, op: &CollectionOp, now: u64) -> bool {
        match op {
            Insert(value) => self.last_removed.get(value).is_none_or(|&last| last <= now),
            Remove(_) | RemoveEmpty => false,
        }
    }

    /// In a legal order, take out all operations of a value, and the unknown removals that took it, which need not have
    /// happened: what every other operation takes, or that there is nothing, is as before. An unknown removal may
    /// have taken anything, so it stays; and so does what takes a value that is there at first.
    fn leave_out_safely(&self, ops: &[&CollectionOp], left_out: &mut [bool]) {
        let mut out: HashSet<Value, FixedState> =
            ops.iter().zip(left_out.iter()).filter(|(_, out)| **out).filter_map(|(op, _)| op.value()).collect();
        for value in &self.initial {
            out.remove(value);
        }
        for (left_out, op) in left_out.iter_mut().zip(ops) {
            *left_out = match op {
                Insert(value) | Remove(Some(value)) => out.contains(value),
                Remove(None) => false,
                RemoveEmpty => *left_out,
            };
        }
    }

    /// While nothing finds it empty and every removal names what it took, a bag's values know nothing of each other.
    fn part(&self, op: &CollectionOp) -> Option<u64> {
        op.value().filter(|_| D::INDEPENDENT).map(|value| value.0 as u64)
    }

    fn monitor(&self, ops: &[Operation<CollectionOp>], budget: &Budget) -> Monitored {
        D::monitor(&self.initial, ops, budget)
    }

    fn supported(&self, ops: &[&CollectionOp]) -> bool {
        let mut balance: HashMap<Value, i64, FixedState> = HashMap::default();
        let inserted = |op: &&CollectionOp| if let Insert(value) = **op { Some(value) } else { None };
        for value in ops.iter().filter_map(inserted).chain(self.initial.iter().copied()) {
            *balance.entry(value).or_default() += 1;
        }
        ops.iter().all(|op| match op {
            Remove(Some(value)) => {
                let left = balance.entry(*value).or_default();
                *left -= 1;
                *left >= 0
            }
            _ => true,
        })
    }
}

/// What values are called.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(pub(super) Option<Arc<[Box<str>]>>);

impl Names {
    pub(super) fn show(&self, value: Value) -> String {
        if value == Value::NIL {
            return "nil".to_string();
        }
        let name = self.0.as_ref().and_then(|names| names.get(usize::try_from(value.0).ok()?));
        name.map_or_else(|| value.0.to_string(), |name| name.to_string())
    }

    /// The first few values of contents.
    pub(super) fn list(&self, values: &[Value]) -> String {
        if values.is_empty() {
            return "empty".to_string();
        }
        let shown: Vec<String> = values.iter().take(SHOWN).map(|&value| self.show(value)).collect();
        format!("[{}{}]", shown.join(" "), if values.len() > SHOWN { " …" } else { "" })
    }
}
