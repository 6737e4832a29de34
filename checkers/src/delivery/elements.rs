//! Which element is it, as a small integer?
//!
//! An integer that lies near the first one seen is its own id (its distance from a base), without any table: a read of
//! consecutive elements is then a range of ids. The window in which that holds grows with the number of elements met, so that what is
//! kept by id stays linear in what was added. Everything else gets the next id from [`FIRST_OTHER`] on through a hash table.
//!
//! Elements that are no scalars (vectors, sets) are known by their canonical EDN text. O(1) an element; nothing for those near the
//! base, 24 bytes for others.

use std::hash::BuildHasher;

use elench_formats::columns::{Scalar, ValueRef};
use elench_formats::history::OpRef;
use elench_formats::text::TextPool;
use elench_formats::{History, Value};
use foldhash::fast::FixedState;
use hashbrown::hash_table::Entry;
use hashbrown::{HashMap, HashTable};

/// The first id of an element that is no integer near the base.
pub(crate) const FIRST_OTHER: u32 = 1 << 31;

/// The window from the base on that is always there, how far below the first integer it begins, and by how much an added element
/// widens it.
const WINDOW: u64 = 4096;
const BELOW: i64 = 1024;
const WIDENS: u64 = 4;

/// What an element is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Int(i64),
    /// Id in the history's pool.
    Text(u32),
    /// Id in the pool of [`Elements`].
    Own(u32),
}

/// Ids of elements.
#[derive(Clone, Debug)]
pub(crate) struct Elements {
    base: Option<i64>,
    added: u64,
    /// Positions in `keys`.
    others: HashTable<u32>,
    keys: Vec<Key>,
    hasher: FixedState,
    other_ints: bool,
    own: TextPool,
    /// Are texts copied, since there will be no history to ask for them at the end?
    copies: bool,
}

impl Elements {
    /// None yet. Where `copies`, texts are kept here, and names can be told without the history.
    pub(crate) fn new(copies: bool) -> Elements {
        Elements {
            base: None,
            added: 0,
            others: HashTable::new(),
            keys: Vec::new(),
            hasher: FixedState::default(),
            other_ints: false,
            own: TextPool::default(),
            copies,
        }
    }

    /// An element was added: more lie near.
    pub(crate) fn widen(&mut self) {
        self.added += 1;
    }

    /// The id of an integer.
    pub(crate) fn int(&mut self, n: i64) -> u32 {
        let base = *self.base.get_or_insert_with(|| if (0..BELOW).contains(&n) { 0 } else { n.saturating_sub(BELOW) });
        if !self.other_ints
            && let Some(id) = self.near(base, n)
        {
            return id;
        }
        // What was far when it was first met stays what it was.
        let near = self.near(base, n);
        let id = self.other_or(Key::Int(n), near);
        self.other_ints |= id >= FIRST_OTHER;
        id
    }

    fn near(&self, base: i64, n: i64) -> Option<u32> {
        let off = i128::from(n) - i128::from(base);
        let window = WINDOW + WIDENS * self.added;
        (off >= 0 && off < i128::from(window.min(u64::from(FIRST_OTHER)))).then_some(off as u32)
    }

    /// The ids of consecutive integers from `first` to `last`, where they are a range.
    pub(crate) fn range(&mut self, first: i64, last: i64) -> Option<(u32, u32)> {
        let base = self.base?;
        if self.other_ints {
            return None;
        }
        Some((self.near(base, first)?, self.near(base, last)?))
    }

    fn other(&mut self, key: Key) -> u32 {
        self.other_or(key, None)
    }

    /// The id of a key in the table; of one that is not there the other id, where there is one, else a new one.
    fn other_or(&mut self, key: Key, or: Option<u32>) -> u32 {
        let Elements { others, keys, hasher, .. } = self;
        let known = others.entry(
            hasher.hash_one(key),
            |&at| keys[at as usize] == key,
            |&at| hasher.hash_one(keys[at as usize]),
        );
        // More than 2^31 elements do not fit in memory; saturating keeps the arithmetic total.
        let id = |at: u32| FIRST_OTHER.saturating_add(at);
        match (known, or) {
            (Entry::Occupied(at), _) => id(*at.get()),
            (Entry::Vacant(_), Some(or)) => or,
            (Entry::Vacant(new), None) => {
                let at = u32::try_from(keys.len()).unwrap_or(u32::MAX);
                new.insert(at);
                keys.push(key);
                id(at)
            }
        }
    }

    fn own(&mut self, text: &str) -> u32 {
        // Beyond 4 GiB of texts of its own, all further ones would be one: no history holds as many, for its own pool is as small.
        let own = self.own.try_intern(text).unwrap_or(u32::MAX);
        self.other(Key::Own(own))
    }

    /// The id of an element by its canonical EDN text; `id` is that of the text in the history's pool, if it is there.
    pub(crate) fn text(&mut self, text: &str, id: Option<u32>) -> u32 {
        match id {
            // A vector is known by its text, however it is written where it comes back.
            Some(t) if !self.copies && !is_collection(text) => self.other(Key::Text(t)),
            _ => self.own(text),
        }
    }

    /// The id of an element that stands in no column.
    pub(crate) fn tree(&mut self, value: &Value, texts: &dyn Fn(&str) -> Option<u32>) -> Option<u32> {
        match value {
            Value::Nil => None,
            Value::Int(n) => Some(self.int(*n)),
            other => {
                let text = other.to_edn();
                let id = texts(&text);
                Some(self.text(&text, id))
            }
        }
    }

    /// The id of a scalar, unless it is nil.
    pub(crate) fn scalar(&mut self, op: &OpRef<'_>, scalar: Scalar) -> Option<u32> {
        match scalar {
            Scalar::Nil => None,
            Scalar::Int(n) => Some(self.int(n)),
            Scalar::Text(t) => Some(self.text(op.text(t), Some(t))),
        }
    }

    /// The id of a whole value, unless it is nil.
    pub(crate) fn value(&mut self, op: &OpRef<'_>, value: ValueRef<'_>) -> Option<u32> {
        match value.scalar() {
            Some(scalar) => self.scalar(op, scalar),
            None => {
                let mut text = String::new();
                op.write_value(value, &mut text);
                Some(self.own(&text))
            }
        }
    }

    /// The element, as EDN text. The history is that of the operations whose texts were not copied.
    pub(crate) fn name(&self, id: u32, history: Option<&History>) -> String {
        let key = match id.checked_sub(FIRST_OTHER) {
            None => Key::Int(self.base.unwrap_or(0).saturating_add(i64::from(id))),
            Some(other) => match self.keys.get(other as usize) {
                Some(key) => *key,
                None => return "?".into(),
            },
        };
        match (key, history) {
            (Key::Int(n), _) => n.to_string(),
            (Key::Own(own), _) if (own as usize) < self.own.len() => self.own.get(own).to_string(),
            (Key::Text(text), Some(history)) => history.texts().get(text).to_string(),
            _ => "?".into(),
        }
    }
}

fn is_collection(text: &str) -> bool {
    text.starts_with('[') || text.starts_with("#{")
}

/// Of each element, how many attempts to add it have begun and not ended.
#[derive(Debug, Default)]
pub(crate) struct Open(HashMap<u32, u32, FixedState>);

impl Open {
    pub(crate) fn begins(&mut self, id: u32) {
        *self.0.entry(id).or_default() += 1;
    }

    pub(crate) fn ends(&mut self, id: u32) {
        if let Some(n) = self.0.get_mut(&id) {
            *n -= 1;
            if *n == 0 {
                self.0.remove(&id);
            }
        }
    }

    pub(crate) fn contains(&self, id: u32) -> bool {
        self.0.contains_key(&id)
    }
}

/// What is known of each element, by id. Elements never touched have the default.
#[derive(Clone, Debug)]
pub(crate) struct ById<T> {
    near: Vec<T>,
    others: Vec<T>,
    default: T,
}

impl<T: Copy> ById<T> {
    pub(crate) fn new(default: T) -> ById<T> {
        ById { near: Vec::new(), others: Vec::new(), default }
    }

    pub(crate) fn get(&self, id: u32) -> T {
        let of = |list: &[T], i: u32| list.get(i as usize).copied().unwrap_or(self.default);
        match id.checked_sub(FIRST_OTHER) {
            None => of(&self.near, id),
            Some(i) => of(&self.others, i),
        }
    }

    pub(crate) fn at(&mut self, id: u32) -> &mut T {
        let (list, i) = match id.checked_sub(FIRST_OTHER) {
            None => (&mut self.near, id as usize),
            Some(i) => (&mut self.others, i as usize),
        };
        if i >= list.len() {
            list.resize(i + 1, self.default);
        }
        &mut list[i]
    }

    /// All elements from the first to the last touched, with their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let near = self.near.iter().enumerate().map(|(i, t)| (i as u32, t));
        near.chain(self.others.iter().enumerate().map(|(i, t)| (FIRST_OTHER + i as u32, t)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_keeps_its_id_however_the_window_grows() {
        let mut elements = Elements::new(false);
        let far = elements.int(100_000);
        assert!(far < FIRST_OTHER, "the first is always near");
        let out = elements.int(100_000 + 1_000_000);
        assert!(out >= FIRST_OTHER);
        for n in 0..400_000 {
            elements.widen();
            elements.int(100_000 + n);
        }
        assert_eq!(elements.int(100_000 + 1_000_000), out);
        assert_eq!(elements.int(100_000), far);
        assert_ne!(elements.int(-1), elements.int(-2));
        assert_eq!(elements.name(out, None), "1100000");
        let negative = elements.int(-1);
        assert_eq!(elements.name(negative, None), "-1");
        for n in [i64::MIN, i64::MAX] {
            let id = elements.int(n);
            assert_eq!(elements.name(id, None), n.to_string());
        }
    }

    #[test]
    fn consecutive_integers_are_a_range_of_ids() {
        let mut elements = Elements::new(false);
        let first = elements.int(7);
        (0..10_000).for_each(|_| elements.widen());
        assert_eq!(elements.range(7, 10_000), Some((first, first + 9993)));
        assert_eq!(elements.int(10_000), first + 9993);
        elements.int(i64::MAX);
        assert_eq!(elements.range(7, 8), None, "some integer is not its own id");
    }
}
