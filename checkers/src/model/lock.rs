//! Locks: a mutex without owners, one with (reentrant, fenced), a semaphore.
//!
//! An acquisition whose outcome is not known may have happened, and then holds the lock until something releases it. Who
//! owns a lock may be unknown too: then whoever shows to be its owner is.

use std::collections::HashSet;
use std::sync::Arc;

use super::collection::Names;
use super::{Model, Value};

/// An operation on a mutex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MutexOp {
    /// Locks it, if it is not locked.
    Acquire,
    /// Unlocks it, if it is locked, whoever locked it.
    Release,
}

/// A mutex that knows no owners.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mutex {
    locked: bool,
}

impl Mutex {
    /// A mutex that is locked at first, or not.
    pub fn new(locked: bool) -> Self {
        Mutex { locked }
    }
}

impl Model for Mutex {
    type Op = MutexOp;
    type State = bool;

    fn init(&self) -> bool {
        self.locked
    }

    fn step(&self, locked: &bool, op: &MutexOp) -> Option<bool> {
        match op {
            MutexOp::Acquire => (!locked).then_some(true),
            MutexOp::Release => locked.then_some(false),
        }
    }

    fn kind(&self, op: &MutexOp) -> &'static str {
        match op {
            MutexOp::Acquire => "acquire",
            MutexOp::Release => "release",
        }
    }

    fn show_op(&self, op: &MutexOp) -> String {
        self.kind(op).to_string()
    }

    fn show_state(&self, locked: &bool) -> String {
        if *locked { "locked" } else { "unlocked" }.to_string()
    }
}

/// An operation on a mutex with owners. An owner that is none is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OwnedOp {
    /// The owner locks it, and may be given a fencing token.
    Acquire(Option<Value>, Option<i64>),
    /// The owner unlocks it, once.
    Release(Option<Value>),
}

impl OwnedOp {
    fn owner(&self) -> Option<Value> {
        match *self {
            OwnedOp::Acquire(owner, _) | OwnedOp::Release(owner) => owner,
        }
    }
}

/// A mutex that only its owner unlocks, and may lock again so many times; with tokens that grow.
#[derive(Clone, Debug)]
pub struct OwnedMutex {
    most_holds: u32,
    names: Names,
}

/// The state of a mutex with owners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ownership {
    held: Option<Hold>,
    /// The greatest token seen.
    greatest: Option<i64>,
}

/// Somebody holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Hold {
    owner: Option<Value>,
    times: u32,
    token: Option<i64>,
}

impl OwnedMutex {
    /// A mutex that one owner may hold once.
    pub fn once() -> Self {
        OwnedMutex::reentrant(1)
    }

    /// A mutex that one owner may hold so many times at once.
    pub fn reentrant(most_holds: u32) -> Self {
        OwnedMutex { most_holds, names: Names::default() }
    }

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

/// Who both are, if they can be one.
fn same(a: Option<Value>, b: Option<Value>) -> Option<Option<Value>> {
    (a.is_none() || b.is_none() || a == b).then_some(a.or(b))
}

impl Model for OwnedMutex {
    type Op = OwnedOp;
    type State = Ownership;

    fn init(&self) -> Ownership {
        Ownership::default()
    }

    /// A new hold's token is greater than all before; a further hold by the same owner has the same one.
    fn step(&self, state: &Ownership, op: &OwnedOp) -> Option<Ownership> {
        let Ownership { held, greatest } = *state;
        match (*op, held) {
            (OwnedOp::Release(owner), Some(hold)) => {
                let hold = Hold { owner: same(hold.owner, owner)?, times: hold.times - 1, ..hold };
                Some(Ownership { held: Some(hold).filter(|hold| hold.times > 0), greatest })
            }
            (OwnedOp::Release(_), None) => None,
            (OwnedOp::Acquire(owner, token), held) => {
                let hold = held.unwrap_or(Hold { owner, times: 0, token: None });
                let owner = same(hold.owner, owner)?;
                let fits = match (hold.token, token) {
                    (Some(old), Some(token)) => old == token,
                    (None, Some(token)) => greatest.is_none_or(|greatest| token > greatest),
                    (_, None) => true,
                };
                let hold = Hold { owner, times: hold.times + 1, token: hold.token.or(token) };
                let greatest = greatest.max(token);
                (fits && hold.times <= self.most_holds).then_some(Ownership { held: Some(hold), greatest })
            }
        }
    }

    fn kind(&self, op: &OwnedOp) -> &'static str {
        match op {
            OwnedOp::Acquire(..) => "acquire",
            OwnedOp::Release(_) => "release",
        }
    }

    fn show_op(&self, op: &OwnedOp) -> String {
        match *op {
            OwnedOp::Acquire(owner, None) => format!("acquire by {}", self.show(owner)),
            OwnedOp::Acquire(owner, Some(token)) => format!("acquire by {} with token {token}", self.show(owner)),
            OwnedOp::Release(owner) => format!("release by {}", self.show(owner)),
        }
    }

    fn show_state(&self, state: &Ownership) -> String {
        let held = state.held.map_or("unlocked".to_string(), |hold| match hold.times {
            1 => format!("held by {}", self.show(hold.owner)),
            times => format!("held {times} times by {}", self.show(hold.owner)),
        });
        state.greatest.map_or(held.clone(), |token| format!("{held}, the greatest token {token}"))
    }

    /// An owner can go with all that it does, if all owners are known: in a legal order, where it held the lock nobody else did
    /// anything, and of growing tokens any part grows.
    fn leave_out_safely(&self, ops: &[&OwnedOp], left_out: &mut [bool]) {
        let kept = ops.iter().zip(left_out.iter()).filter(|(_, out)| !**out).map(|(op, _)| op.owner());
        let kept: HashSet<Option<Value>> = kept.collect();
        let unknown = ops.iter().any(|op| op.owner().is_none());
        for (out, op) in left_out.iter_mut().zip(ops) {
            *out &= !unknown && !kept.contains(&op.owner());
        }
    }
}

/// An operation on a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SemaphoreOp {
    /// Takes so many permits, if there are as many.
    Acquire(u64),
    /// Gives so many back, if as many are taken.
    Release(u64),
}

/// A semaphore that knows no owners. Its state is the number of permits that can be taken.
#[derive(Clone, Copy, Debug)]
pub struct Semaphore {
    permits: u64,
}

impl Semaphore {
    /// A semaphore with so many permits, all of them to be taken.
    pub fn new(permits: u64) -> Self {
        Semaphore { permits }
    }
}

impl Model for Semaphore {
    type Op = SemaphoreOp;
    type State = u64;

    fn init(&self) -> u64 {
        self.permits
    }

    fn step(&self, free: &u64, op: &SemaphoreOp) -> Option<u64> {
        match *op {
            SemaphoreOp::Acquire(n) => free.checked_sub(n),
            SemaphoreOp::Release(n) => free.checked_add(n).filter(|free| *free <= self.permits),
        }
    }

    fn kind(&self, op: &SemaphoreOp) -> &'static str {
        match op {
            SemaphoreOp::Acquire(_) => "acquire",
            SemaphoreOp::Release(_) => "release",
        }
    }

    fn show_op(&self, op: &SemaphoreOp) -> String {
        match *op {
            SemaphoreOp::Acquire(n) => format!("acquire of {n}"),
            SemaphoreOp::Release(n) => format!("release of {n}"),
        }
    }

    fn show_state(&self, free: &u64) -> String {
        format!("{free} of {} permits free", self.permits)
    }

    fn observes(&self, op: &SemaphoreOp) -> bool {
        matches!(op, SemaphoreOp::Acquire(0) | SemaphoreOp::Release(0))
    }
}
