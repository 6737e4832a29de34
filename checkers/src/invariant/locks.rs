//! Do two hold a lock at once? Do fencing tokens grow? Is a lease renewed after its end?
//!
//! A client *definitely holds* a lock from the completion of its acquisition to the invocation of whatever may have ended
//! that: its own first release that did not fail; an operation in which its process crashed; a release by somebody
//! who holds nothing, which where locks have no owners opens it; the earliest end of its lease. Two such intervals of different
//! owners that overlap cannot be (`two-holders`). Intervals are as short as the record allows, so that nothing is accused that
//! might have been in order. (A release that failed did not happen, whatever the reason: a lock that its owner was told to have lost
//! was lost without a release, which only a lease can be.) Checker `linear` with a model of the lock sees more.
//!
//! Tokens of grants that follow one another in real time grow, but for an owner that takes again what it holds, and two owners never get
//! the same one (`fencing-token`). An acknowledged renewal that began when the lease had ended, as late as it may have
//! begun, is a `held-past-end`. Times are the recorder's.
//!
//! `mutex-exclusion` knows one lock a key. `lock-set` takes the value of an acquisition for the names of locks that are taken together: two owners may
//! hold at once what has no name in common.
//!
//! Owners are named by a field (`:client`, `:owner`, `:holder`, `:session`), else they are the processes. Whose a release is and whether it
//! happened is known when it ends, so holds are only compared at the end.
//!
//! Calls are gone through in order, with what is known of each owner and lock beside: backward, the next release is known when a grant is met.
//! The sweep: holds by completion, remembering of each lock's holds so far the two that last longest, of different owners. O(n log n), and O(n)
//! where completions are in the order of the invocations. Memory: 90 bytes an operation that did not fail.

use std::hash::BuildHasher;

use elench_formats::columns::{Scalar, ValueRef};
use elench_formats::event::TextId;
use elench_formats::history::{OpRef, Status as Ended};
use elench_formats::sorting::sort_by;
use elench_formats::{History, Value};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};

use super::{Online, State, atoms, check};
use crate::dense::ScalarIds;
use crate::findings::{Example, Fact, Findings, Incremental};
use crate::named::{ByName, Tally, is_any};
use crate::outcome::{OpId, Why};

/// How locks are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locks {
    /// One a key.
    One,
    /// By the values of the operations: one or many at a time.
    Named,
}

/// Checks each key of a history.
pub fn locks(history: &History, kind: Locks, examples: usize) -> Findings {
    check(history, examples, &All::new(kind, examples))
}

/// Checks while a history is written.
pub fn online(kind: Locks, examples: usize) -> Box<dyn Incremental> {
    Online::new(All::new(kind, examples), examples)
}

const ACQUIRE: [&str; 5] = ["acquire", "lock", "try-acquire", "try-lock", "grant"];
const RELEASE: [&str; 3] = ["release", "unlock", "revoke"];
const RENEW: [&str; 4] = ["renew", "extend", "keepalive", "keep-alive"];
const OWNER: [&str; 5] = ["client", "owner", "holder", "session", "who"];
const TOKEN: [&str; 4] = ["fence", "token", "fencing-token", "fencing_token"];
const SECOND: i64 = 1_000_000_000;
/// Names of a time to live, and their unit in nanoseconds: those of the model `lease`.
const TTL: [(&str, i64); 14] = [
    ("ttl", 1),
    ("duration", 1),
    ("lease", 1),
    ("ttl-ns", 1),
    ("ttl_ns", 1),
    ("ttl-ms", SECOND / 1000),
    ("ttl_ms", SECOND / 1000),
    ("duration-ms", SECOND / 1000),
    ("duration_ms", SECOND / 1000),
    ("lease-ms", SECOND / 1000),
    ("lease_ms", SECOND / 1000),
    ("ttl-s", SECOND),
    ("ttl_s", SECOND),
    ("seconds", SECOND),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Acquire,
    Renew,
    Release,
    Other,
}

/// What lies in a map under one of these names.
fn named<'v>(map: &'v Value, names: &[&str]) -> Option<&'v Value> {
    match map {
        Value::Nil => None,
        map => names.iter().find_map(|name| map.get(name).filter(|value| !matches!(value, Value::Nil))),
    }
}

fn does(name: &str) -> Does {
    match () {
        () if is_any(name, &ACQUIRE) => Does::Acquire,
        () if is_any(name, &RENEW) => Does::Renew,
        () if is_any(name, &RELEASE) => Does::Release,
        () => Does::Other,
    }
}

/// What a text says without being read once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    False,
    /// A map, or what bears a tag.
    Map,
    /// A collection of other kinds.
    Collection,
    Atom,
}

/// What texts say, each read once.
#[derive(Clone, Debug, Default)]
struct Texts {
    ids: ScalarIds,
    says: Vec<Says>,
}

impl Texts {
    fn of(&mut self, op: &OpRef<'_>, text: TextId) -> Says {
        let (id, new) = self.ids.id(Scalar::Text(text));
        if new {
            self.says.push(match op.text(text) {
                "false" => Says::False,
                text if text.starts_with(['{', '#']) => Says::Map,
                text if text.starts_with('[') => Says::Collection,
                _ => Says::Atom,
            });
        }
        self.says[id as usize]
    }
}

/// Lists of numbers, by id.
#[derive(Clone, Debug)]
struct Lists {
    starts: Vec<u32>,
    items: Vec<u32>,
}

impl Lists {
    fn new() -> Lists {
        Lists { starts: vec![0], items: Vec::new() }
    }

    #[inline]
    fn of(&self, id: u32) -> &[u32] {
        &self.items[self.starts[id as usize] as usize..self.starts[id as usize + 1] as usize]
    }

    fn add(&mut self, items: impl Iterator<Item = u32>) -> u32 {
        self.items.extend(items);
        self.starts.push(self.items.len() as u32);
        self.starts.len() as u32 - 2
    }
}

/// Sets of locks that are taken together, by id.
#[derive(Clone, Debug)]
struct Sets {
    lists: Lists,
    table: HashTable<u32>,
    hasher: FixedState,
    names: ScalarIds,
    /// Names that are no scalars of the history.
    others: HashMap<String, u32, FixedState>,
    /// By id of the name, the lock.
    by_name: Vec<u32>,
    count: u32,
    ids: Vec<u32>,
}

impl Default for Sets {
    fn default() -> Sets {
        Sets {
            lists: Lists::new(),
            table: HashTable::new(),
            hasher: FixedState::default(),
            names: ScalarIds::default(),
            others: HashMap::default(),
            by_name: Vec::new(),
            count: 0,
            ids: Vec::new(),
        }
    }
}

impl Sets {
    #[inline]
    fn of(&self, set: u32) -> &[u32] {
        self.lists.of(set)
    }

    /// The id of the set of these locks.
    fn id(&mut self, ids: &mut Vec<u32>) -> u32 {
        ids.sort_unstable();
        ids.dedup();
        let hash = self.hasher.hash_one(ids.as_slice());
        if let Some(known) = self.table.find(hash, |&set| self.of(set) == ids.as_slice()) {
            return *known;
        }
        let set = self.lists.add(ids.iter().copied());
        let Sets { lists, table, hasher, .. } = self;
        table.insert_unique(hash, set, |&set| hasher.hash_one(lists.of(set)));
        set
    }

    /// The lock of this name.
    fn lock(&mut self, name: &Value) -> u32 {
        let next = self.count;
        let lock = *self.others.entry(name.to_edn()).or_insert(next);
        self.count += u32::from(lock == next);
        lock
    }

    /// As [`lock`](Self::lock), without a text but the first time.
    fn known_lock(&mut self, op: &OpRef<'_>, name: Scalar) -> u32 {
        let (id, new) = self.names.id(name);
        if new {
            let lock = self.lock(&atoms::tree(op, name.into()));
            self.by_name.push(lock);
        }
        self.by_name[id as usize]
    }

    fn locks_of(&mut self, value: &Value, ids: &mut Vec<u32>) -> Option<()> {
        let items = match value {
            Value::Nil | Value::Map(_) => return None,
            Value::Vector(items) | Value::Set(items) => items.as_slice(),
            one => std::slice::from_ref(one),
        };
        ids.extend(items.iter().map(|item| self.lock(item)));
        Some(())
    }
}

/// Owners and the locks that they took or gave back, numbered as pairs.
#[derive(Clone, Debug)]
struct Claims {
    /// By owner and set of locks.
    by_set: HashMap<(u32, u32), u32, FixedState>,
    by_lock: HashMap<(u32, u32), u32, FixedState>,
    /// By claim, the pairs: one a lock of the set, in its order.
    pairs: Lists,
}

impl Claims {
    fn id(&mut self, owner: u32, set: u32, sets: &Sets) -> u32 {
        if let Some(known) = self.by_set.get(&(owner, set)) {
            return *known;
        }
        let Claims { by_set, by_lock, pairs } = self;
        let claim = pairs.add(sets.of(set).iter().map(|&lock| {
            let next = by_lock.len() as u32;
            *by_lock.entry((owner, lock)).or_insert(next)
        }));
        by_set.insert((owner, set), claim);
        claim
    }
}

/// An operation that did not fail, as far as it matters.
#[derive(Clone, Copy, Debug)]
struct Call {
    op: u64,
    /// `u64::MAX` where it never ended, or nobody knows how.
    ended: u64,
    /// When it began and ended, in nanoseconds.
    times: (i64, i64),
    /// How long a lease lasts, in nanoseconds, or [`UNSAID`].
    ttl: i64,
    /// 0: none.
    token: i64,
    owner: u32,
    /// In [`All::processes`], or [`NOBODY`].
    process: u32,
    /// In [`Sets`].
    locks: u32,
    /// In [`Claims`].
    claim: u32,
    does: Does,
    /// Acknowledged: it happened.
    ok: bool,
}

/// No time was recorded.
const UNSAID: i64 = i64::MIN;
/// The recorder does not say who.
const NOBODY: u32 = u32::MAX;

impl Call {
    fn times(&self) -> Option<(i64, i64)> {
        Some(self.times).filter(|times| times.0 != UNSAID)
    }

    fn ttl(&self) -> Option<i64> {
        Some(self.ttl).filter(|&ttl| ttl != UNSAID)
    }

    fn grants(&self) -> bool {
        self.ok && matches!(self.does, Does::Acquire | Does::Renew)
    }
}

/// A definite hold.
#[derive(Clone, Copy, Debug)]
struct Hold {
    op: u64,
    began: u64,
    from: u64,
    until: u64,
    owner: u32,
    /// Is it sure to be held at its own completion?
    at_end: bool,
}

#[derive(Clone)]
struct All {
    kind: Locks,
    found: Findings,
    tally: Tally,
    functions: ByName<Does>,
    owners: HashMap<String, u32, FixedState>,
    /// The owner of a process, where nothing else names one, or [`NOBODY`]; by its id.
    of_process: Vec<u32>,
    processes: ScalarIds,
    sets: Sets,
    claims: Claims,
    texts: Texts,
    calls: Vec<Call>,
    /// Where processes crashed.
    crashes: HashMap<u32, Vec<u64>, FixedState>,
    /// The first operation that cannot be judged, and why.
    odd: Option<(u64, String)>,
}

impl All {
    fn new(kind: Locks, examples: usize) -> Self {
        let mut sets = Sets::default();
        if kind == Locks::One {
            sets.id(&mut vec![0]);
            sets.count = 1;
        }
        All {
            kind,
            found: Findings::new(examples),
            tally: Tally::default(),
            functions: ByName::new(does, Does::Other),
            owners: HashMap::default(),
            of_process: Vec::new(),
            processes: ScalarIds::default(),
            sets,
            claims: Claims { by_set: HashMap::default(), by_lock: HashMap::default(), pairs: Lists::new() },
            texts: Texts::default(),
            calls: Vec::new(),
            crashes: HashMap::default(),
            odd: None,
        }
    }

    fn process(&mut self, op: &OpRef<'_>) -> u32 {
        let Some(process) = op.process() else { return NOBODY };
        let (id, new) = self.processes.id(Scalar::Int(process));
        if new {
            self.of_process.push(NOBODY);
        }
        id
    }

    fn owner(&mut self, op: &OpRef<'_>, process: u32, input: &Value, output: &Value) -> Option<u32> {
        let next = self.owners.len() as u32;
        if let Some(name) = named(output, &OWNER).or_else(|| named(input, &OWNER)) {
            return Some(*self.owners.entry(name.to_edn()).or_insert(next));
        }
        let known = self.of_process.get_mut(process as usize)?;
        if *known == NOBODY {
            *known = *self.owners.entry(format!("process {}", op.process()?)).or_insert(next);
        }
        Some(*known)
    }

    /// The locks that a value names; `map`: the tree of it where it is a map.
    fn locks(&mut self, op: &OpRef<'_>, value: ValueRef<'_>, map: &Value) -> Option<u32> {
        if self.kind == Locks::One {
            return Some(0);
        }
        let mut ids = std::mem::take(&mut self.sets.ids);
        ids.clear();
        let set = self.lock_ids(op, value, map, &mut ids).map(|()| self.sets.id(&mut ids));
        self.sets.ids = ids;
        set
    }

    fn lock_ids(&mut self, op: &OpRef<'_>, value: ValueRef<'_>, map: &Value, ids: &mut Vec<u32>) -> Option<()> {
        let named = match map {
            Value::Nil => None,
            map => ["locks", "lock", "name", "names"].iter().find_map(|name| map.get(name)),
        };
        let sets = &mut self.sets;
        match (named, value) {
            (None, ValueRef::List(list) | ValueRef::Set(list)) => {
                ids.extend(list.iter().map(|scalar| sets.known_lock(op, scalar)));
            }
            (None, ValueRef::Int(n)) => ids.push(sets.known_lock(op, Scalar::Int(n))),
            (None, ValueRef::Text(id)) if matches!(self.texts.of(op, id), Says::Atom | Says::False) => {
                ids.push(sets.known_lock(op, Scalar::Text(id)));
            }
            (Some(named), _) => return sets.locks_of(named, ids),
            (None, _) => return sets.locks_of(&atoms::tree(op, value), ids),
        }
        Some(())
    }

    /// What an operation does, unless it failed.
    fn call(&mut self, op: &OpRef<'_>, does: Does, process: u32) -> Result<Option<Call>, &'static str> {
        let (said, got) = (op.input(), op.output());
        // Only of maps anything is asked by name.
        let mut map = |value: ValueRef<'_>| match value {
            ValueRef::Text(id) if self.texts.of(op, id) == Says::Map => atoms::tree(op, value),
            _ => Value::Nil,
        };
        let (input, output) = (map(said), map(got));
        let refused = matches!(got, ValueRef::Text(id) if self.texts.of(op, id) == Says::False);
        if [&input, &output].iter().any(|map| **map != Value::Nil && map.get("permits").is_some()) {
            return Err("names permits: a semaphore lets several in (checker linear, model semaphore)");
        }
        let owner = self.owner(op, process, &input, &output).ok_or("bears neither owner nor process")?;
        let locks = self.locks(op, said, &input).ok_or("names no lock")?;
        let ok = op.status() == Ended::Ok && !refused;
        let known = matches!(op.status(), Ended::Ok | Ended::Fail);
        if known && !ok {
            return Ok(None);
        }
        let bare = match (said, got) {
            (ValueRef::Nil, ValueRef::Int(n)) => Some(n),
            _ => None,
        };
        let fence = if output == Value::Nil { None } else { TOKEN.iter().find_map(|name| output.get(name)) };
        let token = fence.and_then(Value::as_int).or(bare).filter(|_| ok && does == Does::Acquire);
        let ttl = |value: &Value| match value {
            Value::Nil => None,
            map => TTL.iter().find_map(|(name, unit)| map.get(name)?.as_int()?.checked_mul(*unit)),
        };
        Ok(Some(Call {
            op: op.index(),
            ended: op.complete_index().filter(|_| known).unwrap_or(u64::MAX),
            times: op.invoke_time().zip(op.complete_time()).unwrap_or((UNSAID, UNSAID)),
            ttl: ttl(&output).or_else(|| ttl(&input)).unwrap_or(UNSAID),
            token: token.unwrap_or(0),
            owner,
            process,
            locks,
            claim: self.claims.id(owner, locks, &self.sets),
            does,
            ok,
        }))
    }

    fn odd(&mut self, op: u64, why: String) {
        if self.odd.as_ref().is_none_or(|(first, _)| op < *first) {
            self.odd = Some((op, why));
        }
    }

    fn judge(&mut self) {
        self.crashes.values_mut().for_each(|ops| ops.sort_unstable());
        let mut calls = std::mem::take(&mut self.calls);
        sort_by(&mut calls, |call| call.op);
        let (ends, limits) = (self.ends(&calls), Limits::new(&calls));
        let mut grants: Vec<u32> = (0..calls.len() as u32).filter(|&i| calls[i as usize].grants()).collect();
        let ended = |i: &u32| calls[*i as usize].ended;
        sort_by(&mut grants, ended);
        let mut longest = vec![Longest::default(); self.sets.count as usize];
        let mut pairs = Vec::new();
        for i in grants {
            let grant = &calls[i as usize];
            let hold = hold(grant, ends[i as usize], &limits);
            let locks = self.sets.of(grant.locks).iter();
            pairs.extend(locks.filter_map(|&lock| Some((hold.op, longest[lock as usize].meet(&hold)?))));
        }
        pairs.sort_unstable();
        pairs.dedup();
        for (b, a) in pairs {
            self.found.violation("two-holders", || {
                let (a, b) = (OpId(a), OpId(b));
                Example::new(
                    [a, b],
                    format!("{b} was granted the lock to one owner while another definitely held it since {a}"),
                )
            });
        }
        self.tokens(&calls);
        self.renewals(&calls);
        self.calls = calls;
    }

    /// Of each grant the first event at which a call may have ended its hold, its completion at the earliest.
    fn ends(&self, calls: &[Call]) -> Vec<u64> {
        let strangers = self.strangers(calls);
        let crashed = |call: &Call| {
            let ops = self.crashes.get(&call.process)?;
            ops.get(ops.partition_point(|&op| op <= call.op)).copied()
        };
        let crashes = !self.crashes.is_empty();
        let mut next_release = vec![u64::MAX; self.claims.by_lock.len()];
        let mut ends = vec![0; calls.len()];
        for (call, end) in calls.iter().zip(&mut ends).rev() {
            let pairs = self.claims.pairs.of(call.claim);
            if call.does == Does::Release {
                pairs.iter().for_each(|&pair| next_release[pair as usize] = call.op);
            }
            if !call.grants() {
                continue;
            }
            let own = pairs.iter().map(|&pair| next_release[pair as usize]).min();
            let crash = if crashes { crashed(call) } else { None };
            *end = own.unwrap_or(u64::MAX).min(crash.unwrap_or(u64::MAX));
            for lock in self.sets.of(call.locks).iter().filter(|_| !strangers.is_empty()) {
                *end = (*end).min(strangers.get(lock).map_or(u64::MAX, |all| first_stranger(all, call)));
            }
            *end = (*end).max(call.ended);
        }
        ends
    }

    /// Releases by those who hold nothing, by lock: where each began, and the latest end of it and those before.
    fn strangers(&self, calls: &[Call]) -> HashMap<u32, Vec<(u64, u64)>, FixedState> {
        let mut strangers: HashMap<u32, Vec<(u64, u64)>, FixedState> = HashMap::default();
        // Acquisitions that may be held, by owner and lock.
        let mut held = vec![0u32; self.claims.by_lock.len()];
        for call in calls.iter().filter(|call| matches!(call.does, Does::Acquire | Does::Release)) {
            for (&pair, &lock) in self.claims.pairs.of(call.claim).iter().zip(self.sets.of(call.locks)) {
                let held = &mut held[pair as usize];
                if call.does == Does::Acquire {
                    *held += 1;
                } else if *held > 0 {
                    *held -= 1;
                } else {
                    let all = strangers.entry(lock).or_default();
                    let latest = all.last().map_or(0, |(_, latest)| *latest);
                    all.push((call.op, latest.max(call.ended)));
                }
            }
        }
        strangers
    }

    fn tokens(&mut self, calls: &[Call]) {
        let mut grants: Vec<&Call> = calls.iter().filter(|call| call.token != 0).collect();
        let sets = &self.sets;
        let mut by_token: HashMap<(u32, i64), &Call, FixedState> = HashMap::default();
        let mut ended: Vec<&Call> = grants.clone();
        sort_by(&mut ended, |call| call.ended);
        sort_by(&mut grants, |call| call.op);
        let mut ended = ended.into_iter().peekable();
        // Of what had ended, by lock: the greatest token.
        let mut greatest: HashMap<u32, &Call, FixedState> = HashMap::default();
        for grant in grants {
            while let Some(before) = ended.next_if(|call| call.ended < grant.op) {
                for lock in sets.of(before.locks) {
                    let most = greatest.entry(*lock).or_insert(before);
                    if most.token < before.token {
                        *most = before;
                    }
                }
            }
            let token = grant.token;
            let again = |before: &Call| before.token == grant.token && before.owner == grant.owner;
            let falls = sets
                .of(grant.locks)
                .iter()
                .filter_map(|lock| greatest.get(lock))
                .find(|before| before.token >= grant.token && !again(before));
            let same = sets
                .of(grant.locks)
                .iter()
                .filter_map(|lock| by_token.get(&(*lock, token)))
                .find(|before| before.owner != grant.owner);
            if let Some(before) = falls.or(same).copied() {
                let (a, b, was) = (OpId(before.op), OpId(grant.op), before.token);
                self.found.violation("fencing-token", || {
                    Example::new([a, b], format!("{a} got token {was}, and {b}, which is another grant, got {token}"))
                });
            }
            sets.of(grant.locks).iter().for_each(|lock| {
                by_token.entry((*lock, token)).or_insert(grant);
            });
        }
    }

    fn renewals(&mut self, calls: &[Call]) {
        if calls.iter().all(|call| call.does != Does::Renew) {
            return;
        }
        // By owner: the latest that its lease may end, with what granted it; none where that is not known.
        let mut ends: HashMap<(u32, u32), Option<(i64, u64)>, FixedState> = HashMap::default();
        for call in calls.iter().filter(|call| matches!(call.does, Does::Acquire | Does::Renew)) {
            for lock in self.sets.of(call.locks) {
                let known = ends.get(&(call.owner, *lock)).copied().flatten();
                if let (Does::Renew, true, Some((end, grant)), Some((began, _))) =
                    (call.does, call.ok, known, call.times())
                    && began > end
                {
                    self.found.violation("held-past-end", || {
                        let (grant, renewal) = (OpId(grant), OpId(call.op));
                        let by = began - end;
                        Example::new(
                            [grant, renewal],
                            format!("{renewal} renewed the lease of {grant} {by} ns after its latest end"),
                        )
                    });
                }
                let end = match (call.ok, call.times(), call.ttl()) {
                    (true, Some((_, ended)), Some(ttl)) => Some((ended.saturating_add(ttl), call.op)),
                    _ => None,
                };
                // A renewal that says nothing of its length leaves the end unknown.
                let later = match (known, end) {
                    (Some(a), Some(b)) => Some(a.max(b)),
                    (None, end) if call.does == Does::Acquire || end.is_some() => end,
                    _ => None,
                };
                ends.insert((call.owner, *lock), later);
            }
        }
    }
}

/// The first event at which a stranger may have released what was granted.
fn first_stranger(strangers: &[(u64, u64)], grant: &Call) -> u64 {
    let after = strangers.partition_point(|(op, _)| *op < grant.ended);
    // One that overlaps the acquisition may have come right after it.
    if after > 0 && strangers[after - 1].1 > grant.op {
        return grant.ended;
    }
    strangers.get(after).map_or(u64::MAX, |(op, _)| *op)
}

fn hold(grant: &Call, by_event: u64, limits: &Limits) -> Hold {
    let until = by_event.min(limits.end_of(grant)).max(grant.ended);
    let lasts = match (grant.times(), grant.ttl()) {
        (Some((began, ended)), Some(ttl)) => ended < began.saturating_add(ttl),
        (None, Some(_)) => false,
        _ => true,
    };
    let at_end = by_event > grant.ended && lasts;
    Hold { op: grant.op, began: grant.op, from: grant.ended, until, owner: grant.owner, at_end }
}

/// From times to events: which grants were complete before a time, for certain.
struct Limits {
    /// Completions of grants, and the latest time told up to each.
    ended: Vec<(u64, i64)>,
}

impl Limits {
    fn new(calls: &[Call]) -> Limits {
        if calls.iter().all(|call| call.ttl().is_none()) {
            return Limits { ended: Vec::new() };
        }
        let mut ended: Vec<(u64, i64)> =
            calls.iter().filter(|call| call.ok).filter_map(|call| Some((call.ended, call.times()?.1))).collect();
        ended.sort_unstable();
        let mut latest = i64::MIN;
        for (_, time) in &mut ended {
            latest = latest.max(*time);
            *time = latest;
        }
        Limits { ended }
    }

    /// The first event at which a lease may have ended.
    fn end_of(&self, grant: &Call) -> u64 {
        let Some(ttl) = grant.ttl() else { return u64::MAX };
        let Some((began, _)) = grant.times() else { return grant.ended };
        let end = began.saturating_add(ttl);
        let at = self.ended.partition_point(|(_, time)| *time < end);
        self.ended.get(at).map_or(u64::MAX, |(event, _)| *event)
    }
}

/// Of a lock's holds so far the one that lasts longest, and the longest of another owner's.
#[derive(Clone, Debug, Default)]
struct Longest {
    longest: Option<Hold>,
    other: Option<Hold>,
}

impl Longest {
    /// The longest of another owner that lasts when this hold begins, if there is one. Holds come in the order of their beginnings.
    fn meet(&mut self, b: &Hold) -> Option<u64> {
        let Longest { longest, other } = self;
        let rival = |a: &&Hold| a.owner != b.owner && b.from < a.until && (b.at_end || b.began > a.from);
        let found = longest.iter().find(rival).or_else(|| other.iter().find(rival)).map(|a| a.op);
        match longest {
            Some(most) if most.owner == b.owner => *most = if b.until > most.until { *b } else { *most },
            Some(most) if b.until > most.until => (*longest, *other) = (Some(*b), *longest),
            None => *longest = Some(*b),
            _ if other.is_none_or(|next| b.until > next.until) => *other = Some(*b),
            _ => {}
        }
        found
    }
}

impl State for All {
    const AT_END: bool = true;

    fn invoked(&mut self, _: &OpRef<'_>) {}

    fn completed(&mut self, op: &OpRef<'_>) {
        self.tally.count(op);
        let process = self.process(op);
        if process != NOBODY && op.status().is_unknown() {
            self.crashes.entry(process).or_default().push(op.index());
        }
        let does = self.functions.of(op);
        if does == Does::Other {
            let why =
                format!("{} ({}) neither acquires nor renews nor releases", OpId(op.index()), op.f().unwrap_or("nil"));
            return self.odd(op.index(), why);
        }
        match self.call(op, does, process) {
            Ok(call) => self.calls.extend(call),
            Err(why) => self.odd(op.index(), format!("{} {why}", OpId(op.index()))),
        }
    }

    fn violated(&self) -> Option<&'static str> {
        None
    }

    fn finish(mut self) -> Findings {
        self.tally.tell(&mut self.found.coverage);
        if let Some((_, why)) = self.odd.take() {
            self.found.undecided(Why::Other(why));
        }
        self.judge();
        let granted = |call: &&Call| call.ok && call.does == Does::Acquire;
        let grants = self.calls.iter().filter(granted).count();
        if grants == 0 {
            self.found.undecided(Why::NoEvidence);
        }
        self.found.fact("grants", Fact::Count(grants as u64));
        self.found.fact("owners", Fact::Int(self.owners.len() as i128));
        self.found
    }
}

#[cfg(test)]
mod tests {
    use elench_formats::notation::history as notation;

    use super::super::testing::{self, Event, Faults, Object, both, oks, op_of, run, seeds, shows};
    use super::*;
    use crate::linear::tests::Random;

    fn found_in(h: &History, kind: Locks) -> Findings {
        both(h, locks(h, kind, 1000), online(kind, 1000))
    }

    fn found(text: &str) -> Findings {
        found_in(&notation(text).unwrap(), Locks::One)
    }

    fn kinds(found: &Findings) -> Vec<(&'static str, u64)> {
        found.violations().map(|(name, kind)| (name, kind.count)).collect()
    }

    /// A lock of owners, with fencing tokens.
    #[derive(Default)]
    struct Lock {
        holder: Option<u64>,
        token: u64,
    }

    impl Object for Lock {
        fn next(&mut self, random: &mut Random, _: u64) -> (&'static str, String) {
            (["acquire", "release"][random.below(2) as usize], "nil".into())
        }

        fn apply(&mut self, process: u64, f: &'static str, _: &str) -> Option<String> {
            match (f, self.holder) {
                ("acquire", None) => {
                    self.holder = Some(process);
                    self.token += 1;
                    Some(format!("{{:token {}}}", self.token))
                }
                ("release", Some(holder)) if holder == process => {
                    self.holder = None;
                    Some("nil".into())
                }
                _ => None,
            }
        }
    }

    const FEW: Faults = Faults { crash: 20, fail: 30 };

    #[test]
    fn a_lock_that_excludes_is_never_accused() {
        let mut valid = 0;
        for mut random in seeds(1000) {
            let log = run(&mut random, &mut Lock::default(), 4, 80, FEW);
            if !log.is_empty() {
                let found = found_in(&testing::history(&log), Locks::One);
                assert_eq!(kinds(&found), [], "{log:#?}");
                valid += u32::from(found.is_valid());
            }
        }
        assert!(valid > 500, "{valid}");
    }

    /// The definition as it reads, for owners that are processes: pairs of grants of which one completes within the other's hold.
    fn naive(log: &[Event]) -> std::collections::BTreeSet<OpId> {
        let mut holds = Vec::new();
        let end_of = |i: usize| (i + 1..log.len()).find(|&j| log[j].process == log[i].process);
        let granted = |i: usize| end_of(i).is_none_or(|end| log[end].kind != "fail");
        let invoked = |f| (0..log.len()).filter(move |&i| log[i].kind == "invoke" && log[i].f == f);
        let strangers: Vec<usize> = invoked("release")
            .filter(|&i| granted(i))
            .filter(|&i| {
                // Every release that is no stranger's used up an acquisition.
                let mut held = 0i64;
                for j in (0..i).filter(|&j| log[j].kind == "invoke" && log[j].process == log[i].process && granted(j)) {
                    held = if log[j].f == "acquire" { held + 1 } else { (held - 1).max(0) };
                }
                held == 0
            })
            .collect();
        for at in oks(log, "acquire") {
            let began = op_of(log, at).0 as usize;
            let own = invoked("release").find(|&i| i > began && log[i].process == log[at].process && granted(i));
            let crash = (began + 1..log.len()).find(|&i| {
                log[i].kind == "invoke"
                    && log[i].process == log[at].process
                    && end_of(i).is_none_or(|end| log[end].kind == "info")
            });
            let foreign = strangers.iter().copied().filter(|&i| {
                let end = end_of(i).filter(|&end| log[end].kind != "info");
                end.is_none_or(|end| end > began)
            });
            let foreign = foreign.min().map(|i| i.max(at));
            let until = [own, crash, foreign].into_iter().flatten().min().unwrap_or(usize::MAX);
            holds.push((began, at, until, log[at].process));
        }
        let mut accused = std::collections::BTreeSet::new();
        for &(_, from, until, process) in &holds {
            for &(began, end, last, other) in &holds {
                if process != other && from < end && end < until && (last > end || began > from) {
                    accused.insert(OpId(began as u64));
                }
            }
        }
        accused
    }

    #[test]
    fn two_holders_are_told_exactly_where_two_definite_holds_overlap() {
        let mut wrong = 0;
        for mut random in seeds(1500) {
            let mut log = run(&mut random, &mut Lock::default(), 3, 60, FEW);
            for e in log.iter_mut().filter(|e| e.kind == "fail") {
                if random.chance(150) {
                    e.kind = "ok";
                    e.value = "nil".into();
                }
            }
            if log.is_empty() {
                continue;
            }
            let expected = naive(&log);
            let found = found_in(&testing::history(&log), Locks::One);
            assert_eq!(found.count("two-holders"), expected.len() as u64, "{log:#?} {expected:?} {found:?}");
            assert!(expected.iter().all(|op| shows(&found, "two-holders", *op)));
            wrong += u32::from(!expected.is_empty());
        }
        assert!(wrong > 50, "{wrong}");
    }

    #[test]
    fn a_second_grant_while_the_lock_is_held_is_told_with_both() {
        let two = found("invoke 0 acquire / ok 0 / invoke 1 acquire / ok 1 / invoke 0 release / ok 0");
        assert_eq!(kinds(&two), [("two-holders", 1)]);
        assert!(shows(&two, "two-holders", OpId(0)) && shows(&two, "two-holders", OpId(2)));
        assert!(found("invoke 0 acquire / ok 0 / invoke 0 release / invoke 1 acquire / ok 1 / ok 0").is_valid());
        assert!(found("invoke 0 acquire / ok 0 / invoke 0 acquire / ok 0").is_valid());
        let refused = "invoke 0 acquire / ok 0 / invoke 1 acquire / ok 1 acquire false";
        assert!(found(refused).is_valid());
    }

    #[test]
    fn what_may_have_ended_a_hold_excuses_the_next_grant() {
        for between in ["invoke 2 release / ok 2", "invoke 2 release / info 2", "invoke 0 acquire / info 0"] {
            let text = format!("invoke 0 acquire / ok 0 / {between} / invoke 1 acquire / ok 1");
            assert!(found(&text).is_valid(), "{between}");
        }
        for who in [0, 2] {
            let failed =
                format!("invoke 0 acquire / ok 0 / invoke {who} release / fail {who} / invoke 1 acquire / ok 1");
            assert_eq!(kinds(&found(&failed)), [("two-holders", 1)]);
        }
    }

    #[test]
    fn tokens_that_do_not_grow_are_told() {
        let text = |a, b| {
            format!(
                "invoke 0 acquire / ok 0 acquire {{:token {a}}} / invoke 0 release / ok 0 / invoke 1 acquire / ok 1 acquire {{:token {b}}}"
            )
        };
        assert!(found(&text(4, 5)).is_valid());
        for (a, b) in [(5, 5), (5, 4)] {
            let found = found(&text(a, b));
            assert_eq!(kinds(&found), [("fencing-token", 1)]);
            assert!(shows(&found, "fencing-token", OpId(0)) && shows(&found, "fencing-token", OpId(4)));
        }
        let again = "invoke 0 acquire / ok 0 acquire {:token 5} / invoke 0 acquire / ok 0 acquire {:token 5}";
        assert!(found(again).is_valid());
        let overlap = |b| {
            format!(
                "invoke 0 acquire / invoke 1 acquire / ok 1 acquire {{:token {b}}} / invoke 1 release / ok 0 acquire {{:token 5}} / ok 1"
            )
        };
        assert!(found(&overlap(6)).is_valid() && found(&overlap(4)).is_valid());
        assert_eq!(found(&overlap(5)).count("fencing-token"), 1);
    }

    #[test]
    fn a_lease_excludes_until_its_earliest_end_and_not_longer() {
        let text = |at| {
            format!(
                "invoke 0 acquire {{:ttl 100}} @0 / ok 0 @10 / invoke 1 acquire {{:ttl 100}} @{} / ok 1 @{at}",
                at - 5
            )
        };
        assert_eq!(kinds(&found(&text(99))), [("two-holders", 1)]);
        assert!(found(&text(100)).is_valid());
        let renewed = "invoke 0 acquire {:ttl 100} @0 / ok 0 @10 / invoke 0 renew {:ttl 100} @90 / ok 0 @95 / invoke 1 acquire {:ttl 100} @150 / ok 1 @160";
        assert_eq!(kinds(&found(renewed)), [("two-holders", 1)]);
    }

    #[test]
    fn a_renewal_after_the_latest_end_is_held_past_it() {
        let text = |at| {
            format!(
                "invoke 0 acquire {{:ttl 100}} @0 / ok 0 @10 / invoke 0 renew {{:ttl 100}} @{at} / ok 0 @{}",
                at + 1
            )
        };
        assert!(found(&text(110)).is_valid());
        let late = found(&text(111));
        assert_eq!(kinds(&late), [("held-past-end", 1)]);
        assert!(shows(&late, "held-past-end", OpId(2)));
        let unsure = "invoke 0 acquire {:ttl 100} @0 / ok 0 @10 / invoke 0 renew {:ttl 100} @50 / info 0 @60 / invoke 0 renew {:ttl 100} @120 / ok 0 @130";
        assert!(found(unsure).is_valid());
    }

    #[test]
    fn sets_of_locks_exclude_where_they_share_one() {
        let text = |b| {
            format!(
                "invoke 0 acquire #{{:a :b}} / ok 0 / invoke 1 acquire {b} / ok 1 / invoke 0 release #{{:a :b}} / ok 0"
            )
        };
        let of = |b| found_in(&notation(&text(b)).unwrap(), Locks::Named);
        assert_eq!(kinds(&of("[:b :c]")), [("two-holders", 1)]);
        assert_eq!(kinds(&of("[:a :b]")), [("two-holders", 1)]);
        assert!(of("[:c]").is_valid() && of(":c").is_valid());
        let unnamed = found_in(&notation("invoke 0 acquire / ok 0").unwrap(), Locks::Named);
        assert!(!unnamed.is_valid() && !unnamed.is_invalid());
    }

    #[test]
    fn owners_may_be_named() {
        let text = |b| format!("invoke 0 acquire {{:client :x}} / ok 0 / invoke 1 acquire {{:client {b}}} / ok 1");
        assert!(found(&text(":x")).is_valid());
        assert_eq!(kinds(&found(&text(":y"))), [("two-holders", 1)]);
    }
}
