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
//! The sweep: holds by completion, remembering of the locks' holds so far the two that last longest, of different owners. O(n log n).
//! Memory: 120 bytes an operation.

use std::sync::Arc;

use elench_formats::columns::{Scalar, ValueRef};
use elench_formats::history::{OpRef, Status as Ended};
use elench_formats::{History, Value};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

use super::{Online, State, atoms, check};
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

/// An operation, as far as it matters.
#[derive(Clone, Debug)]
struct Call {
    op: u64,
    /// `u64::MAX` where it never ended, or nobody knows how.
    ended: u64,
    does: Does,
    /// Acknowledged: it happened.
    ok: bool,
    failed: bool,
    owner: u32,
    process: Option<i64>,
    locks: Arc<[u32]>,
    token: Option<i64>,
    /// When it began and ended, and how long a lease lasts, in nanoseconds.
    times: Option<(i64, i64)>,
    ttl: Option<i64>,
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
    names: HashMap<String, u32, FixedState>,
    /// The same by process, where nothing names an owner, and by scalar.
    processes: HashMap<i64, u32, FixedState>,
    scalars: HashMap<Scalar, u32, FixedState>,
    /// Locks that are taken together.
    sets: HashSet<Arc<[u32]>, FixedState>,
    ids: Vec<u32>,
    calls: Vec<Call>,
    /// Where processes crashed, by process.
    crashes: HashMap<i64, Vec<u64>, FixedState>,
    one: Arc<[u32]>,
}

impl All {
    fn new(kind: Locks, examples: usize) -> Self {
        All {
            kind,
            found: Findings::new(examples),
            tally: Tally::default(),
            functions: ByName::new(does, Does::Other),
            owners: HashMap::default(),
            names: HashMap::default(),
            processes: HashMap::default(),
            scalars: HashMap::default(),
            sets: HashSet::default(),
            ids: Vec::new(),
            calls: Vec::new(),
            crashes: HashMap::default(),
            one: Arc::new([0]),
        }
    }

    fn owner(&mut self, op: &OpRef<'_>, input: &Value, output: &Value) -> Option<u32> {
        let next = self.owners.len() as u32;
        if let Some(name) = named(output, &OWNER).or_else(|| named(input, &OWNER)) {
            return Some(*self.owners.entry(name.to_edn()).or_insert(next));
        }
        let (process, owners) = (op.process()?, &mut self.owners);
        let own = || *owners.entry(format!("process {process}")).or_insert(next);
        Some(*self.processes.entry(process).or_insert_with(own))
    }

    /// The locks that a value names; `map`: the tree of it where it is a map.
    fn locks(&mut self, op: &OpRef<'_>, map: &Value) -> Option<Arc<[u32]>> {
        if self.kind == Locks::One {
            return Some(Arc::clone(&self.one));
        }
        let mut ids = std::mem::take(&mut self.ids);
        ids.clear();
        let found = self.lock_ids(op, map, &mut ids);
        ids.sort_unstable();
        ids.dedup();
        let known = self.sets.get_or_insert_with(ids.as_slice(), |ids| ids.into()).clone();
        self.ids = ids;
        found.map(|()| known)
    }

    fn lock_ids(&mut self, op: &OpRef<'_>, map: &Value, ids: &mut Vec<u32>) -> Option<()> {
        let named = ["locks", "lock", "name", "names"].iter().find_map(|name| map.get(name));
        let input = op.input();
        let collection = |id| op.text(id).starts_with(['[', '{', '#']);
        match (named, input) {
            (None, ValueRef::List(list) | ValueRef::Set(list)) => {
                ids.extend(list.iter().map(|scalar| self.known_lock(op, scalar)));
            }
            (None, ValueRef::Int(_)) => ids.extend(input.scalar().map(|scalar| self.known_lock(op, scalar))),
            (None, ValueRef::Text(id)) if !collection(id) => ids.push(self.known_lock(op, Scalar::Text(id))),
            (Some(value), _) => return self.locks_of(value, ids),
            (None, _) => return self.locks_of(&atoms::tree(op, input), ids),
        }
        Some(())
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

    fn lock(&mut self, name: &Value) -> u32 {
        let next = self.names.len() as u32;
        *self.names.entry(name.to_edn()).or_insert(next)
    }

    /// As [`lock`](Self::lock), without a text but the first time.
    fn known_lock(&mut self, op: &OpRef<'_>, name: Scalar) -> u32 {
        if let Some(known) = self.scalars.get(&name) {
            return *known;
        }
        let id = self.lock(&atoms::tree(op, name.into()));
        self.scalars.insert(name, id);
        id
    }

    fn call(&mut self, op: &OpRef<'_>, does: Does) -> Result<Call, &'static str> {
        // Only of maps anything is asked by name.
        let map = |value: ValueRef<'_>| match value {
            ValueRef::Text(id) if op.text(id).starts_with(['{', '#']) => atoms::tree(op, value),
            _ => Value::Nil,
        };
        let (input, output) = (map(op.input()), map(op.output()));
        let refused = matches!(op.output(), ValueRef::Text(id) if op.text(id) == "false");
        if input.get("permits").is_some() || output.get("permits").is_some() {
            return Err("names permits: a semaphore lets several in (checker linear, model semaphore)");
        }
        let owner = self.owner(op, &input, &output).ok_or("bears neither owner nor process")?;
        let locks = self.locks(op, &input).ok_or("names no lock")?;
        let got = op.status() == Ended::Ok && !refused;
        let bare = match (op.input(), op.output()) {
            (ValueRef::Nil, ValueRef::Int(n)) => Some(n),
            _ => None,
        };
        let fence = if output == Value::Nil { None } else { TOKEN.iter().find_map(|name| output.get(name)) };
        let token = fence.and_then(Value::as_int).or(bare);
        let ttl = |value: &Value| match value {
            Value::Nil => None,
            map => TTL.iter().find_map(|(name, unit)| map.get(name)?.as_int()?.checked_mul(*unit)),
        };
        let known = matches!(op.status(), Ended::Ok | Ended::Fail);
        Ok(Call {
            op: op.index(),
            ended: op.complete_index().filter(|_| known).unwrap_or(u64::MAX),
            does,
            ok: got,
            failed: known && !got,
            owner,
            process: op.process(),
            locks,
            token: token.filter(|token| *token != 0 && got && does == Does::Acquire),
            times: op.invoke_time().zip(op.complete_time()),
            ttl: ttl(&output).or_else(|| ttl(&input)),
        })
    }

    fn judge(&mut self) {
        self.calls.sort_unstable_by_key(|call| call.op);
        let calls = std::mem::take(&mut self.calls);
        let endings = Endings::of(&calls, std::mem::take(&mut self.crashes));
        let mut of_lock: HashMap<u32, Vec<Hold>, FixedState> = HashMap::default();
        for grant in calls.iter().filter(|call| call.ok && matches!(call.does, Does::Acquire | Does::Renew)) {
            let hold = endings.hold(grant);
            grant.locks.iter().for_each(|lock| of_lock.entry(*lock).or_default().push(hold));
        }
        let mut pairs = Vec::new();
        for holds in of_lock.values_mut() {
            holds.sort_unstable_by_key(|hold| hold.from);
            overlaps(holds, &mut pairs);
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

    fn tokens(&mut self, calls: &[Call]) {
        let mut grants: Vec<&Call> = calls.iter().filter(|call| call.token.is_some()).collect();
        let mut by_token: HashMap<(u32, i64), &Call, FixedState> = HashMap::default();
        let mut ended: Vec<&Call> = grants.clone();
        ended.sort_unstable_by_key(|call| call.ended);
        grants.sort_unstable_by_key(|call| call.op);
        let mut ended = ended.into_iter().peekable();
        // Of what had ended, by lock: the greatest token.
        let mut greatest: HashMap<u32, &Call, FixedState> = HashMap::default();
        for grant in grants {
            while let Some(before) = ended.next_if(|call| call.ended < grant.op) {
                for lock in before.locks.iter() {
                    let most = greatest.entry(*lock).or_insert(before);
                    if most.token < before.token {
                        *most = before;
                    }
                }
            }
            let token = grant.token.unwrap_or_default();
            let again = |before: &Call| before.token == grant.token && before.owner == grant.owner;
            let falls = grant
                .locks
                .iter()
                .filter_map(|lock| greatest.get(lock))
                .find(|before| before.token >= grant.token && !again(before));
            let same = grant
                .locks
                .iter()
                .filter_map(|lock| by_token.get(&(*lock, token)))
                .find(|before| before.owner != grant.owner);
            if let Some(before) = falls.or(same).copied() {
                let (a, b, was) = (OpId(before.op), OpId(grant.op), before.token.unwrap_or_default());
                self.found.violation("fencing-token", || {
                    Example::new([a, b], format!("{a} got token {was}, and {b}, which is another grant, got {token}"))
                });
            }
            grant.locks.iter().for_each(|lock| {
                by_token.entry((*lock, token)).or_insert(grant);
            });
        }
    }

    fn renewals(&mut self, calls: &[Call]) {
        // By owner: the latest that its lease may end, with what granted it; none where that is not known.
        let mut ends: HashMap<(u32, u32), Option<(i64, u64)>, FixedState> = HashMap::default();
        for call in calls.iter().filter(|call| matches!(call.does, Does::Acquire | Does::Renew) && !call.failed) {
            for lock in call.locks.iter() {
                let known = ends.get(&(call.owner, *lock)).copied().flatten();
                if let (Does::Renew, true, Some((end, grant)), Some((began, _))) =
                    (call.does, call.ok, known, call.times)
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
                let end = match (call.ok, call.times, call.ttl) {
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

/// What may end a hold.
struct Endings {
    /// Releases that did not fail, by owner and lock, in order.
    own: HashMap<(u32, u32), Vec<u64>, FixedState>,
    /// Releases by those who hold nothing, by lock: where each began, and the latest end of it and those before.
    strangers: HashMap<u32, Vec<(u64, u64)>, FixedState>,
    /// Operations in which processes crashed, in order.
    crashes: HashMap<i64, Vec<u64>, FixedState>,
    limits: Limits,
}

impl Endings {
    /// From calls in the order of their invocations.
    fn of(calls: &[Call], mut crashes: HashMap<i64, Vec<u64>, FixedState>) -> Endings {
        crashes.values_mut().for_each(|ops| ops.sort_unstable());
        let mut endings =
            Endings { own: HashMap::default(), strangers: HashMap::default(), crashes, limits: Limits::new(calls) };
        let mut may_hold: HashMap<(u32, u32), u64, FixedState> = HashMap::default();
        for call in calls.iter().filter(|call| call.does != Does::Renew) {
            for &lock in call.locks.iter() {
                let held = may_hold.entry((call.owner, lock)).or_default();
                if call.does == Does::Acquire {
                    *held += u64::from(!call.failed);
                    continue;
                }
                if call.failed {
                    continue;
                }
                endings.own.entry((call.owner, lock)).or_default().push(call.op);
                if *held == 0 {
                    let all = endings.strangers.entry(lock).or_default();
                    let latest = all.last().map_or(0, |(_, latest)| *latest);
                    all.push((call.op, latest.max(call.ended)));
                } else {
                    *held -= 1;
                }
            }
        }
        endings
    }

    /// The first event at which the hold of a grant may have ended, its completion at the earliest.
    fn of_grant(&self, grant: &Call) -> u64 {
        let first = |ops: &Vec<u64>| ops.get(ops.partition_point(|&op| op <= grant.op)).copied();
        let crash = grant.process.and_then(|process| first(self.crashes.get(&process)?));
        let mut end = crash.unwrap_or(u64::MAX);
        for &lock in grant.locks.iter() {
            let own = self.own.get(&(grant.owner, lock)).and_then(first);
            let stranger = self.strangers.get(&lock).and_then(|all| {
                let after = all.partition_point(|(op, _)| *op < grant.ended);
                // One that overlaps the acquisition may have come right after it.
                let overlaps = after > 0 && all[after - 1].1 > grant.op;
                if overlaps { Some(grant.ended) } else { all.get(after).map(|(op, _)| *op) }
            });
            end = end.min(own.unwrap_or(u64::MAX)).min(stranger.unwrap_or(u64::MAX));
        }
        end.max(grant.ended)
    }

    fn hold(&self, grant: &Call) -> Hold {
        let by_event = self.of_grant(grant);
        let until = by_event.min(self.limits.end_of(grant)).max(grant.ended);
        let lasts = match (grant.times, grant.ttl) {
            (Some((began, ended)), Some(ttl)) => ended < began.saturating_add(ttl),
            (None, Some(_)) => false,
            _ => true,
        };
        let at_end = by_event > grant.ended && lasts;
        Hold { op: grant.op, began: grant.op, from: grant.ended, until, owner: grant.owner, at_end }
    }
}

/// From times to events: which grants were complete before a time, for certain.
struct Limits {
    /// Completions of grants, and the latest time told up to each.
    ended: Vec<(u64, i64)>,
}

impl Limits {
    fn new(calls: &[Call]) -> Limits {
        let mut ended: Vec<(u64, i64)> =
            calls.iter().filter(|call| call.ok).filter_map(|call| Some((call.ended, call.times?.1))).collect();
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
        let Some(ttl) = grant.ttl else { return u64::MAX };
        let Some((began, _)) = grant.times else { return grant.ended };
        let end = began.saturating_add(ttl);
        let at = self.ended.partition_point(|(_, time)| *time < end);
        self.ended.get(at).map_or(u64::MAX, |(event, _)| *event)
    }
}

/// Each hold that begins while another owner's lasts, with the longest such.
fn overlaps(holds: &[Hold], pairs: &mut Vec<(u64, u64)>) {
    let (mut longest, mut other): (Option<Hold>, Option<Hold>) = (None, None);
    for b in holds {
        let rival = |a: &&Hold| a.owner != b.owner && b.from < a.until && (b.at_end || b.began > a.from);
        if let Some(a) = longest.iter().find(rival).or_else(|| other.iter().find(rival)) {
            pairs.push((b.op, a.op));
        }
        match longest {
            Some(most) if most.owner == b.owner => longest = Some(if b.until > most.until { *b } else { most }),
            Some(most) if b.until > most.until => (longest, other) = (Some(*b), longest),
            None => longest = Some(*b),
            _ if other.is_none_or(|next| b.until > next.until) => other = Some(*b),
            _ => {}
        }
    }
}

impl State for All {
    fn invoked(&mut self, _: &OpRef<'_>) {}

    fn completed(&mut self, op: &OpRef<'_>) {
        self.tally.count(op);
        if let Some(process) = op.process().filter(|_| op.status().is_unknown()) {
            self.crashes.entry(process).or_default().push(op.index());
        }
        let does = self.functions.of(op);
        if does == Does::Other {
            let why =
                format!("{} ({}) neither acquires nor renews nor releases", OpId(op.index()), op.f().unwrap_or("nil"));
            return self.found.undecided(Why::Other(why));
        }
        match self.call(op, does) {
            Ok(call) => self.calls.push(call),
            Err(why) => self.found.undecided(Why::Other(format!("{} {why}", OpId(op.index())))),
        }
    }

    fn violated(&self) -> Option<&'static str> {
        None
    }

    fn finish(mut self) -> Findings {
        self.tally.tell(&mut self.found.coverage);
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
