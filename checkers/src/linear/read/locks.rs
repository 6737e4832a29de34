//! Locks: `acquire` and `release` (`lock`, `unlock`), leases also `renew`.
//!
//! **Owners.** Who acquires is a field of the value (`:client`, `:owner`, `:holder`, `:session`), where any operation has one; or
//! the value itself, where all are names of which those that release have acquired; else the process. A client that
//! an operation does not name is the one that its process names elsewhere, else it is not known.
//!
//! An acquisition that returned `false` did not get the lock and says nothing.

use elench_formats::{History, Value as Edn};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

use super::{Call, Reader, Said, calls, field, no_initial, spelled};
use crate::linear::Operation;
use crate::model::{Lease, LeaseOp, Mutex, MutexOp, OwnedMutex, OwnedOp, Semaphore, SemaphoreOp, Value};

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Acquire,
    Renew,
    Release,
}

fn kind(f: &str) -> Option<Kind> {
    match &*spelled(f) {
        "acquire" | "lock" | "try-acquire" | "try-lock" | "grant" => Some(Kind::Acquire),
        "renew" | "extend" | "keepalive" | "keep-alive" => Some(Kind::Renew),
        "release" | "unlock" | "revoke" => Some(Kind::Release),
        _ => None,
    }
}

/// What an operation is, unless it returned that it did not get the lock.
fn done(call: &Call<'_>, what: &str) -> Result<Option<Kind>, String> {
    let kind = kind(call.f).ok_or_else(|| call.none_of(what))?;
    Ok((call.output() != Edn::Bool(false)).then_some(kind))
}

/// A lock without owners.
pub(super) struct Plain(Mutex);

impl Plain {
    pub(super) fn new(initial: &Edn) -> Result<Self, String> {
        match initial {
            Edn::Nil | Edn::Bool(false) => Ok(Plain(Mutex::new(false))),
            Edn::Bool(true) => Ok(Plain(Mutex::new(true))),
            given => match given.as_name() {
                Some("unlocked") => Ok(Plain(Mutex::new(false))),
                Some("locked") => Ok(Plain(Mutex::new(true))),
                _ => Err(no_initial(given, "locked or unlocked")),
            },
        }
    }
}

impl Reader for Plain {
    type Model = Mutex;

    fn read(&mut self, call: &Call<'_>) -> Result<Option<Said<MutexOp>>, String> {
        match done(call, "a mutex")? {
            Some(Kind::Acquire) => Said::of(MutexOp::Acquire),
            Some(Kind::Release) => Said::of(MutexOp::Release),
            Some(Kind::Renew) => Err(call.none_of("a mutex")),
            None => Ok(None),
        }
    }

    fn model(&self, _ops: &[Operation<MutexOp>]) -> Mutex {
        self.0
    }
}

/// Who owns what.
struct Owners<'a> {
    values: super::Values<'a>,
    by: By,
    /// The one name that a process uses, where it uses one.
    of_process: HashMap<i64, Option<Value>, FixedState>,
}

#[derive(Clone, Copy, PartialEq)]
enum By {
    Field,
    Name,
    Process,
}

const OWNER: [&str; 5] = ["client", "owner", "holder", "session", "who"];

fn owner_field(value: &Edn) -> Option<&Edn> {
    field(value, &OWNER).filter(|owner| **owner != Edn::Nil)
}

impl<'a> Owners<'a> {
    fn of(history: &'a History) -> Self {
        let mut owners =
            Owners { values: super::Values::numbered(history), by: By::Process, of_process: HashMap::default() };
        let named = |call: &Call<'_>| owner_field(&call.input()).or(owner_field(&call.output())).is_some();
        if calls(history).any(|call| named(&call)) {
            owners.by = By::Field;
        } else if all_are_names(history) {
            owners.by = By::Name;
        }
        for call in calls(history) {
            if let (Some(process), Some(owner)) = (call.row.process(), owners.named(&call)) {
                let known = owners.of_process.entry(process).or_insert(Some(owner));
                *known = known.filter(|known| *known == owner);
            }
        }
        owners
    }

    fn named(&mut self, call: &Call<'_>) -> Option<Value> {
        let (input, output) = (call.input(), call.output());
        let name = match self.by {
            By::Field => owner_field(&output).or(owner_field(&input)),
            By::Name => Some(&input),
            By::Process => None,
        };
        name.map(|name| self.values.edn(name))
    }

    fn owner(&mut self, call: &Call<'_>) -> Option<Value> {
        let process = call.row.process();
        if self.by == By::Process {
            return process.map(|process| self.values.edn(&Edn::Int(process)));
        }
        self.named(call).or_else(|| self.of_process.get(&process?).copied().flatten())
    }

    fn assumption(&self) -> String {
        let by = match self.by {
            By::Field => "a field of the value",
            By::Name => "the value",
            By::Process => "the process",
        };
        format!("the owner is {by}")
    }
}

/// Are all values names, of which those that release have acquired, and more than one?
fn all_are_names(history: &History) -> bool {
    let (mut acquired, mut released) =
        (HashSet::<String, FixedState>::default(), HashSet::<String, FixedState>::default());
    for call in calls(history) {
        let input = call.input();
        let Some(name) = input.as_name() else { return false };
        let names = if kind(call.f) == Some(Kind::Release) { &mut released } else { &mut acquired };
        names.insert(name.to_string());
    }
    acquired.len() > 1 && released.is_subset(&acquired)
}

/// A lock with owners.
pub(super) struct Owned<'a> {
    owners: Owners<'a>,
    most_holds: u32,
    tokens: bool,
}

const TOKEN: [&str; 4] = ["fence", "token", "fencing-token", "fencing_token"];

impl<'a> Owned<'a> {
    /// At first unlocked. A number says how often one owner may hold it at once; without it, as often as it likes.
    pub(super) fn reentrant(history: &'a History, initial: &Edn) -> Result<Self, String> {
        Ok(Owned { owners: Owners::of(history), most_holds: most_holds(initial, u32::MAX)?, tokens: false })
    }

    /// At first unlocked. A number says how often one owner may hold it at once; without it, once.
    pub(super) fn fenced(history: &'a History, initial: &Edn) -> Result<Self, String> {
        Ok(Owned { owners: Owners::of(history), most_holds: most_holds(initial, 1)?, tokens: true })
    }

    /// The token of an acquisition. Zero is how systems say that there is none.
    fn token(call: &Call<'_>) -> Option<i64> {
        let (input, output) = (call.input(), call.output());
        let bare = Some(&output).filter(|output| **output != input);
        field(&output, &TOKEN).or(bare).and_then(Edn::as_int).filter(|token| *token != 0)
    }
}

fn most_holds(initial: &Edn, usual: u32) -> Result<u32, String> {
    let given = initial.get("holds").unwrap_or(initial);
    match given {
        Edn::Nil => Ok(usual),
        given if given.as_name() == Some("unlocked") => Ok(usual),
        given => {
            let holds = given.as_int().and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
            holds.ok_or_else(|| no_initial(given, "unlocked, or how often one owner may hold the lock at once"))
        }
    }
}

impl Reader for Owned<'_> {
    type Model = OwnedMutex;

    fn read(&mut self, call: &Call<'_>) -> Result<Option<Said<OwnedOp>>, String> {
        let what = if self.tokens { "a fenced mutex" } else { "a reentrant mutex" };
        let Some(kind) = done(call, what)? else { return Ok(None) };
        let owner = self.owners.owner(call);
        match kind {
            Kind::Acquire => {
                let token = if self.tokens { Self::token(call) } else { None };
                Said::of(OwnedOp::Acquire(owner, token))
            }
            Kind::Release => Said::of(OwnedOp::Release(owner)),
            Kind::Renew => Err(call.none_of(what)),
        }
    }

    fn model(&self, _ops: &[Operation<OwnedOp>]) -> OwnedMutex {
        let model = OwnedMutex::reentrant(self.most_holds);
        match self.owners.values.names() {
            Some(names) => model.with_names(names),
            None => model,
        }
    }

    fn assumptions(&self) -> Vec<String> {
        vec![self.owners.assumption()]
    }
}

/// A semaphore.
pub(super) struct Permits {
    permits: u64,
}

impl Permits {
    pub(super) fn new(initial: &Edn) -> Result<Self, String> {
        let given = initial.get("permits").unwrap_or(initial);
        let permits = given.as_int().and_then(|n| u64::try_from(n).ok());
        let permits = permits.ok_or_else(|| no_initial(given, "the number of permits, which a semaphore needs"))?;
        Ok(Permits { permits })
    }
}

impl Reader for Permits {
    type Model = Semaphore;

    fn read(&mut self, call: &Call<'_>) -> Result<Option<Said<SemaphoreOp>>, String> {
        let Some(kind) = done(call, "a semaphore")? else { return Ok(None) };
        let input = call.input();
        let given = field(&input, &["permits", "n", "count"]).unwrap_or(&input);
        let n = match given.as_int() {
            None => 1,
            Some(n) => u64::try_from(n).map_err(|_| format!("{n} is no number of permits"))?,
        };
        match kind {
            Kind::Acquire => Said::of(SemaphoreOp::Acquire(n)),
            Kind::Release => Said::of(SemaphoreOp::Release(n)),
            Kind::Renew => Err(call.none_of("a semaphore")),
        }
    }

    fn model(&self, _ops: &[Operation<SemaphoreOp>]) -> Semaphore {
        Semaphore::new(self.permits)
    }
}

/// A lease.
pub(super) struct Leases<'a> {
    owners: Owners<'a>,
    /// How long a lease lasts where an operation does not say.
    ttl: Option<i64>,
}

const SECOND: i64 = 1_000_000_000;
/// Names of a time to live, and their unit in nanoseconds.
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

fn ttl(value: &Edn) -> Option<i64> {
    let (name, unit) = TTL.iter().find(|(name, _)| value.get(name).is_some())?;
    value.get(name)?.as_int()?.checked_mul(*unit)
}

impl<'a> Leases<'a> {
    /// At first free. A number is how many nanoseconds a lease lasts where an operation does not say (`{:ttl-ms 500}` says it
    /// in milliseconds).
    pub(super) fn new(history: &'a History, initial: &Edn) -> Result<Self, String> {
        let ttl = match initial {
            Edn::Nil => None,
            given => {
                let ttl = ttl(given).or(given.as_int()).filter(|ttl| *ttl >= 0);
                Some(ttl.ok_or_else(|| no_initial(given, "how many nanoseconds a lease lasts"))?)
            }
        };
        Ok(Leases { owners: Owners::of(history), ttl })
    }
}

impl Reader for Leases<'_> {
    type Model = Lease;

    fn read(&mut self, call: &Call<'_>) -> Result<Option<Said<LeaseOp>>, String> {
        let Some(kind) = done(call, "a lease")? else { return Ok(None) };
        let owner = self.owners.owner(call);
        if kind == Kind::Release {
            return Said::of(LeaseOp::Release(owner));
        }
        let (input, output) = (call.input(), call.output());
        let said = ttl(&output).or_else(|| ttl(&input)).or_else(|| input.as_int()).or(self.ttl);
        let ttl = said.ok_or(
            "how long the lease lasts is not known: it needs a :ttl (nanoseconds) or :ttl-ms, or --initial NANOSECONDS",
        )?;
        let no_time = "a lease needs the times of its operations";
        let from = call.row.invoke_time().ok_or(no_time)?;
        let until = if call.ok { call.row.complete_time().ok_or(no_time)? } else { i64::MAX };
        Said::of(LeaseOp::Grant { owner, from, until, ttl })
    }

    fn model(&self, _ops: &[Operation<LeaseOp>]) -> Lease {
        match self.owners.values.names() {
            Some(names) => Lease::default().with_names(names),
            None => Lease::default(),
        }
    }

    fn assumptions(&self) -> Vec<String> {
        vec![self.owners.assumption(), "times are as recorded, by one clock".into()]
    }
}
