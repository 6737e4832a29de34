//! Contents that are cheap to keep in many versions.
//!
//! A search holds thousands of states that differ by one operation, and a verifier steps through millions; copying
//! contents at each step would make both quadratic. These share what they have in common. Each has one shape for equal contents
//! or compares contents, and carries its hash, so that hashing is O(1).

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::Value;

/// Spreads a value over all bits (the finalizer of splitmix64, a bijection).
fn mix(value: Value) -> u64 {
    let mut z = (value.0 as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// A last-in-first-out list.
#[derive(Clone, Default)]
pub struct List(Option<Arc<Cell>>);

struct Cell {
    value: Value,
    len: usize,
    hash: u64,
    rest: List,
}

impl List {
    /// How many values it holds.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |cell| cell.len)
    }

    /// Does it hold none?
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// With one more value on top.
    #[must_use]
    pub fn push(&self, value: Value) -> List {
        let hash = self.hash_of_all().wrapping_mul(BASE).wrapping_add(mix(value));
        List(Some(Arc::new(Cell { value, len: self.len() + 1, hash, rest: self.clone() })))
    }

    /// The value on top, and the rest.
    pub fn pop(&self) -> Option<(Value, &List)> {
        self.0.as_ref().map(|cell| (cell.value, &cell.rest))
    }

    /// The values, the top first.
    pub fn iter(&self) -> impl Iterator<Item = Value> + '_ {
        std::iter::successors(self.pop(), |(_, rest)| rest.pop()).map(|(value, _)| value)
    }

    fn hash_of_all(&self) -> u64 {
        self.0.as_ref().map_or(0, |cell| cell.hash)
    }

    fn is_same(&self, other: &List) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        }
    }
}

/// Frees a long list without recursion.
impl Drop for List {
    fn drop(&mut self) {
        let mut next = self.0.take();
        while let Some(mut cell) = next.and_then(Arc::into_inner) {
            next = cell.rest.0.take();
        }
    }
}

impl PartialEq for List {
    fn eq(&self, other: &List) -> bool {
        let (mut a, mut b) = (self, other);
        if (a.len(), a.hash_of_all()) != (b.len(), b.hash_of_all()) {
            return false;
        }
        while !a.is_same(b) {
            match (a.pop(), b.pop()) {
                (Some((x, rest_of_a)), Some((y, rest_of_b))) if x == y => (a, b) = (rest_of_a, rest_of_b),
                _ => return false,
            }
        }
        true
    }
}

impl Eq for List {}

impl Hash for List {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash_of_all());
    }
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|value| value.0)).finish()
    }
}

/// Odd, so that it can be divided by modulo 2⁶⁴.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;
const INVERSE_OF_BASE: u64 = inverse(BASE);

/// By Newton's iteration: each step doubles the number of right bits, beginning with three.
const fn inverse(odd: u64) -> u64 {
    let (mut x, mut step) = (odd, 0);
    while step < 5 {
        x = x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x)));
        step += 1;
    }
    x
}

/// A first-in-first-out queue: two lists, of which the second is turned over when the first is used up, and the
/// polynomial in `BASE` whose coefficients are the values, the oldest first.
#[derive(Clone)]
pub struct Fifo {
    out: List,
    into: List,
    hash: u64,
    /// `BASE` to the power of the length.
    power: u64,
}

impl Default for Fifo {
    fn default() -> Self {
        Fifo { out: List::default(), into: List::default(), hash: 0, power: 1 }
    }
}

impl Fifo {
    /// How many values it holds.
    pub fn len(&self) -> usize {
        self.out.len() + self.into.len()
    }

    /// Does it hold none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// With one more value at the end.
    #[must_use]
    pub fn push(&self, value: Value) -> Fifo {
        let hash = self.hash.wrapping_mul(BASE).wrapping_add(mix(value));
        let power = self.power.wrapping_mul(BASE);
        if self.is_empty() {
            return Fifo { out: self.out.push(value), into: List::default(), hash, power };
        }
        Fifo { out: self.out.clone(), into: self.into.push(value), hash, power }
    }

    /// The oldest value, and the rest.
    pub fn pop(&self) -> Option<(Value, Fifo)> {
        // The first list is used up only when the queue is empty.
        let (value, rest) = self.out.pop()?;
        let power = self.power.wrapping_mul(INVERSE_OF_BASE);
        let hash = self.hash.wrapping_sub(mix(value).wrapping_mul(power));
        if !rest.is_empty() {
            return Some((value, Fifo { out: rest.clone(), into: self.into.clone(), hash, power }));
        }
        let out = self.into.iter().fold(List::default(), |out, value| out.push(value));
        Some((value, Fifo { out, into: List::default(), hash, power }))
    }

    /// The values, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = Value> + '_ {
        let mut newest_first: Vec<Value> = self.into.iter().collect();
        newest_first.reverse();
        self.out.iter().chain(newest_first)
    }
}

impl PartialEq for Fifo {
    fn eq(&self, other: &Fifo) -> bool {
        let same = || self.out.is_same(&other.out) && self.into.is_same(&other.into);
        (self.len(), self.hash) == (other.len(), other.hash) && (same() || self.iter().eq(other.iter()))
    }
}

impl Eq for Fifo {}

impl Hash for Fifo {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl fmt::Debug for Fifo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|value| value.0)).finish()
    }
}

/// A multiset in ascending order: a binary trie over the bits of the values, without one-way branches (Morrison's PATRICIA,
/// 1968), so at most 64 deep and of one shape for equal contents.
#[derive(Clone, Default)]
pub struct Multiset(Option<Arc<Node>>);

enum Node {
    Leaf {
        key: u64,
        count: usize,
    },
    Branch {
        /// The bit in which the two sides differ; above it, all keys agree with this one.
        bit: u64,
        key: u64,
        len: usize,
        hash: u64,
        zero: Arc<Node>,
        one: Arc<Node>,
    },
}

/// Keys ascend as values do.
fn key_of(value: Value) -> u64 {
    value.0 as u64 ^ 1 << 63
}

fn value_of(key: u64) -> Value {
    Value((key ^ 1 << 63) as i64)
}

impl Node {
    fn len(&self) -> usize {
        match self {
            Node::Leaf { count, .. } => *count,
            Node::Branch { len, .. } => *len,
        }
    }

    fn hash(&self) -> u64 {
        match self {
            Node::Leaf { key, count } => mix(value_of(*key)).wrapping_mul(*count as u64),
            Node::Branch { hash, .. } => *hash,
        }
    }

    fn key(&self) -> u64 {
        match self {
            Node::Leaf { key, .. } | Node::Branch { key, .. } => *key,
        }
    }

    /// The lowest bit in which keys below may differ; none for a leaf.
    fn bit(&self) -> u64 {
        match self {
            Node::Leaf { .. } => 0,
            Node::Branch { bit, .. } => *bit,
        }
    }

    fn branch(bit: u64, zero: Arc<Node>, one: Arc<Node>) -> Arc<Node> {
        let hash = zero.hash().wrapping_add(one.hash());
        Arc::new(Node::Branch { bit, key: zero.key(), len: zero.len() + one.len(), hash, zero, one })
    }

    /// The highest bit in which this key differs from all keys here, if it does.
    fn parts_at(&self, key: u64) -> Option<u64> {
        let differs = self.key() ^ key;
        let highest = 1 << differs.checked_ilog2()?;
        (highest > self.bit()).then_some(highest)
    }

    fn insert(self: &Arc<Node>, new: u64) -> Arc<Node> {
        if let Some(bit) = self.parts_at(new) {
            let (old, new_leaf) = (Arc::clone(self), Arc::new(Node::Leaf { key: new, count: 1 }));
            return if new & bit == 0 { Node::branch(bit, new_leaf, old) } else { Node::branch(bit, old, new_leaf) };
        }
        match &**self {
            Node::Leaf { key, count } => Arc::new(Node::Leaf { key: *key, count: count + 1 }),
            Node::Branch { bit, zero, one, .. } if new & bit == 0 => {
                Node::branch(*bit, zero.insert(new), Arc::clone(one))
            }
            Node::Branch { bit, zero, one, .. } => Node::branch(*bit, Arc::clone(zero), one.insert(new)),
        }
    }

    /// Without one of a key that is there.
    fn remove(&self, old: u64) -> Option<Arc<Node>> {
        match self {
            Node::Leaf { count: 1, .. } => None,
            Node::Leaf { key, count } => Some(Arc::new(Node::Leaf { key: *key, count: count - 1 })),
            Node::Branch { bit, zero, one, .. } if old & bit == 0 => match zero.remove(old) {
                Some(zero) => Some(Node::branch(*bit, zero, Arc::clone(one))),
                None => Some(Arc::clone(one)),
            },
            Node::Branch { bit, zero, one, .. } => match one.remove(old) {
                Some(one) => Some(Node::branch(*bit, Arc::clone(zero), one)),
                None => Some(Arc::clone(zero)),
            },
        }
    }

    fn is_equal(self: &Arc<Node>, other: &Arc<Node>) -> bool {
        if Arc::ptr_eq(self, other) {
            return true;
        }
        match (&**self, &**other) {
            (Node::Leaf { key: a, count: m }, Node::Leaf { key: b, count: n }) => (a, m) == (b, n),
            (Node::Branch { zero: a, one: b, hash: g, .. }, Node::Branch { zero: c, one: d, hash: h, .. }) => {
                g == h && a.is_equal(c) && b.is_equal(d)
            }
            _ => false,
        }
    }
}

impl Multiset {
    /// How many values it holds, repeated ones counted as often as they are there.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |node| node.len())
    }

    /// Does it hold none?
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Is the value there?
    pub fn contains(&self, value: Value) -> bool {
        let key = key_of(value);
        let mut next = self.0.as_ref();
        while let Some(node) = next {
            next = match &**node {
                Node::Leaf { key: there, .. } => return *there == key,
                Node::Branch { bit, zero, one, .. } => Some(if key & bit == 0 { zero } else { one }),
            };
        }
        false
    }

    /// With one more of a value.
    #[must_use]
    pub fn insert(&self, value: Value) -> Multiset {
        let key = key_of(value);
        Multiset(Some(match &self.0 {
            Some(node) => node.insert(key),
            None => Arc::new(Node::Leaf { key, count: 1 }),
        }))
    }

    /// Without one of a value; none if it is not there.
    pub fn remove(&self, value: Value) -> Option<Multiset> {
        if !self.contains(value) {
            return None;
        }
        self.0.as_ref().map(|node| Multiset(node.remove(key_of(value))))
    }

    /// The smallest value.
    pub fn smallest(&self) -> Option<Value> {
        self.iter().next()
    }

    /// The values, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Value> + '_ {
        let mut todo: Vec<&Node> = self.0.iter().map(|node| &**node).collect();
        let leaves = std::iter::from_fn(move || {
            loop {
                match todo.pop()? {
                    Node::Leaf { key, count } => return Some((*key, *count)),
                    Node::Branch { zero, one, .. } => todo.extend([&**one, &**zero]),
                }
            }
        });
        leaves.flat_map(|(key, count)| std::iter::repeat_n(value_of(key), count))
    }
}

impl PartialEq for Multiset {
    fn eq(&self, other: &Multiset) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => a.hash() == b.hash() && a.is_equal(b),
            (None, None) => true,
            _ => false,
        }
    }
}

impl Eq for Multiset {}

impl Hash for Multiset {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.as_ref().map_or(0, |node| node.hash()));
    }
}

impl fmt::Debug for Multiset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|value| value.0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use foldhash::fast::FixedState;
    use std::hash::BuildHasher;

    use super::*;
    use crate::linear::tests::Random;

    fn hash(of: &impl Hash) -> u64 {
        FixedState::default().hash_one(of)
    }

    #[test]
    fn a_queue_holds_what_a_deque_holds_and_equal_contents_are_equal_however_they_came_about() {
        let mut random = Random(1);
        let (mut fifo, mut deque) = (Fifo::default(), VecDeque::new());
        for _ in 0..20_000 {
            if random.chance(500) {
                let value = Value(random.below(3) as i64 - 1);
                fifo = fifo.push(value);
                deque.push_back(value);
            } else {
                let popped = fifo.pop();
                assert_eq!(popped.as_ref().map(|(value, _)| *value), deque.pop_front());
                fifo = popped.map_or(fifo, |(_, rest)| rest);
            }
            let rebuilt = deque.iter().fold(Fifo::default(), |fifo, &value| fifo.push(value));
            assert!(fifo == rebuilt && hash(&fifo) == hash(&rebuilt) && fifo.len() == deque.len());
            assert!(fifo != rebuilt.push(Value(7)));
        }
    }

    #[test]
    fn a_multiset_holds_what_a_sorted_vector_holds_and_has_one_shape() {
        let mut random = Random(2);
        let (mut set, mut sorted) = (Multiset::default(), Vec::new());
        for _ in 0..20_000 {
            let value = Value([random.below(8) as i64 - 4, random.next() as i64, i64::MIN][random.below(3) as usize]);
            if random.chance(500) {
                set = set.insert(value);
                sorted.push(value);
                sorted.sort();
            } else {
                let old = if random.chance(500) { value } else { *sorted.first().unwrap_or(&value) };
                let removed = set.remove(old);
                assert_eq!(removed.is_some(), sorted.contains(&old));
                if let Some(smaller) = removed {
                    sorted.remove(sorted.iter().position(|v| *v == old).unwrap());
                    set = smaller;
                }
            }
            if sorted.len() > 30 {
                (set, sorted) = (Multiset::default(), Vec::new());
            }
            assert!(set.iter().eq(sorted.iter().copied()) && set.len() == sorted.len());
            assert!(set.smallest() == sorted.first().copied() && set.contains(value) == sorted.contains(&value));
            let rebuilt = sorted.iter().rev().fold(Multiset::default(), |set, &value| set.insert(value));
            assert!(set == rebuilt && hash(&set) == hash(&rebuilt) && set != rebuilt.insert(Value(3)));
        }
    }

    #[test]
    fn a_long_list_is_freed_without_recursion() {
        let list = (0..1_000_000).fold(List::default(), |list, i| list.push(Value(i)));
        assert_eq!(list.len(), 1_000_000);
        assert_ne!(list, list.push(Value(0)));
    }
}
