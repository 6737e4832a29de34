//! The state of the simulated system: the keys in use, and those that open operations still touch.

use crate::GenOptions;
use crate::random::Random;

/// No value: what a register holds before the first write.
pub(super) const NIL: i64 = i64::MIN;
/// No operation.
pub(super) const NOBODY: u64 = u64::MAX;

/// One key.
#[derive(Debug, Default)]
pub(super) struct Key {
    /// What clients call it.
    pub(super) id: i64,
    /// Open operations that touch it, and one more while it is in use.
    holders: u32,
    /// The last value that was given out to be written.
    given: i64,
    /// Its list, if it is one.
    pub(super) list: Vec<i64>,
    /// Its value, if it is a register.
    pub(super) value: i64,
    /// Counts the writes that took effect.
    pub(super) version: u64,
    /// The operation that wrote last.
    pub(super) writer: u64,
    /// Was it read since?
    pub(super) read_since: bool,
    /// When the writer of the present value was acknowledged (an event index): the beginning counts as before all.
    pub(super) acknowledged: Option<i64>,
    /// A write that was acknowledged, and when.
    pub(super) settled: Settled,
    /// A value that was overwritten for certain.
    pub(super) overwritten: Option<Overwritten>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Settled {
    pub(super) value: i64,
    pub(super) op: u64,
    pub(super) at: i64,
}

impl Default for Settled {
    fn default() -> Self {
        Settled { value: NIL, op: NOBODY, at: -1 }
    }
}

/// `by` wrote after `op` had been acknowledged, and was itself acknowledged at the event index `since`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Overwritten {
    pub(super) value: i64,
    pub(super) op: u64,
    pub(super) by: u64,
    pub(super) since: i64,
}

/// All keys that anybody can still touch.
#[derive(Debug)]
pub(super) struct Keys {
    states: Vec<Key>,
    free: Vec<u32>,
    in_use: Vec<u32>,
    next_id: i64,
    writes_per_key: i64,
    /// Cumulated weights of a skewed choice; empty where it is even.
    weights: Vec<f64>,
    /// Elements of all lists.
    pub(super) elements: u64,
}

impl Keys {
    pub(super) fn new(options: &GenOptions) -> Keys {
        let mut keys = Keys {
            states: Vec::new(),
            free: Vec::new(),
            in_use: Vec::new(),
            next_id: 0,
            writes_per_key: i64::from(options.writes_per_key),
            weights: Vec::new(),
            elements: 0,
        };
        for _ in 0..options.keys {
            let key = keys.fresh();
            keys.in_use.push(key);
        }
        if options.skew > 0.0 && options.keys > 1 {
            let mut sum = 0.0;
            keys.weights = (1..=options.keys)
                .map(|rank| {
                    sum += f64::from(rank).powf(-options.skew);
                    sum
                })
                .collect();
        }
        keys
    }

    fn fresh(&mut self) -> u32 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.states.push(Key::default());
            self.states.len() as u32 - 1
        });
        let mut list = std::mem::take(&mut self.states[at as usize].list);
        list.clear();
        self.states[at as usize] = Key {
            id: self.next_id,
            holders: 1,
            list,
            value: NIL,
            writer: NOBODY,
            acknowledged: Some(-1),
            ..Key::default()
        };
        self.next_id += 1;
        at
    }

    #[inline]
    pub(super) fn at(&self, key: u32) -> &Key {
        &self.states[key as usize]
    }

    #[inline]
    pub(super) fn at_mut(&mut self, key: u32) -> &mut Key {
        &mut self.states[key as usize]
    }

    /// A place among the keys in use.
    #[inline]
    pub(super) fn place(&self, random: &mut Random) -> usize {
        match (self.weights.last(), self.in_use.len()) {
            (_, 1) => 0,
            (None, n) => random.below(n as u64) as usize,
            (Some(sum), n) => {
                let at = random.unit() as f64 / (1u64 << 53) as f64 * sum;
                self.weights.partition_point(|w| *w <= at).min(n - 1)
            }
        }
    }

    /// The key in use at a place, held from now on.
    #[inline]
    pub(super) fn hold(&mut self, place: usize) -> u32 {
        let key = self.in_use[place];
        self.at_mut(key).holders += 1;
        key
    }

    /// A value that was never given out for this key, which gives way to a new one once that was often enough.
    pub(super) fn give(&mut self, key: u32, place: usize) -> i64 {
        let k = self.at_mut(key);
        k.given += 1;
        let given = k.given;
        if given == self.writes_per_key && self.in_use[place] == key {
            self.in_use[place] = self.fresh();
            self.release(key);
        }
        given
    }

    /// How many values were given out for this key.
    pub(super) fn given(&self, key: u32) -> i64 {
        self.at(key).given
    }

    /// Ends a hold.
    #[inline]
    pub(super) fn release(&mut self, key: u32) {
        let k = self.at_mut(key);
        k.holders -= 1;
        if k.holders == 0 {
            self.elements -= self.at(key).list.len() as u64;
            // Whoever still knows this key by its id sees that it is gone.
            self.at_mut(key).id = -1;
            self.free.push(key);
        }
    }

    /// Keys held at this moment.
    pub(super) fn held(&self) -> u64 {
        (self.states.len() - self.free.len()) as u64
    }
}
