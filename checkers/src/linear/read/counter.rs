//! Counters: `inc`, `dec`, `add n`, `sub n`, `read`; `inc-and-get` and the like.
//!
//! What an `ok` change says beyond its amount is the number that it made it (`inc`), or the balance (`credit`), as clients record
//! that return what the server answered; whether they do is seen from all operations of that name: where any says something other
//! than its amount. Of `add` and `sub` it may as well be a count of rows (`add 5` acknowledged with 1), so there it says nothing.

use elench_formats::{History, Value as Edn};
use foldhash::fast::FixedState;
use hashbrown::HashSet;

use super::{Call, Reader, Said, calls, field, no_initial, spelled};
use crate::linear::Operation;
use crate::model::{Counter, CounterOp};

pub(super) struct Counting {
    initial: i64,
    /// Names of changes that say the number they made.
    telling: HashSet<Box<str>, FixedState>,
}

/// What a name means.
enum Kind {
    Read,
    /// Adds its amount so many times; does its name say that it gives the sum, or what was before?
    Change(i64, Gives),
}

#[derive(PartialEq)]
enum Gives {
    Unsaid,
    Sum,
    Before,
}

fn kind(f: &str) -> Option<Kind> {
    let f = spelled(f);
    let change = |f: &str| match f {
        "inc" | "incr" | "increment" | "add" | "credit" | "deposit" => Some(1),
        "dec" | "decr" | "decrement" | "sub" | "subtract" | "debit" | "withdraw" => Some(-1),
        _ => None,
    };
    if let "read" | "r" | "get" | "value" | "read-balance" = &*f {
        return Some(Kind::Read);
    }
    if let Some(sign) = change(&f) {
        return Some(Kind::Change(sign, Gives::Unsaid));
    }
    let after = f.strip_suffix("-and-get").or_else(|| f.strip_suffix("-get"));
    let before = f.strip_prefix("get-and-");
    let after = after.and_then(change).map(|sign| Kind::Change(sign, Gives::Sum));
    after.or_else(|| before.and_then(change).map(|sign| Kind::Change(sign, Gives::Before)))
}

/// Is one the amount of this change, if it names none?
fn counts(f: &str) -> bool {
    ["inc", "dec"].iter().any(|name| spelled(f).contains(name))
}

/// A change whose acknowledgement may be a number of any kind.
fn adds(f: &str) -> bool {
    matches!(&*spelled(f), "add" | "sub" | "subtract")
}

/// The amount of a change: what it was invoked with; where that is nothing, one for those that count (`inc`), and for others
/// (`add`) what the acknowledgement says.
fn amount(f: &str, input: &Edn, output: &Edn) -> Result<i64, String> {
    let given = field(input, &["amount", "delta", "by", "n"]).unwrap_or(input);
    match given {
        Edn::Nil if counts(f) => Ok(1),
        Edn::Nil => output.as_int().ok_or_else(|| format!("what `{f}` adds is not known")),
        given => given.as_int().ok_or_else(|| format!("an amount is a number, not {}", given.to_edn())),
    }
}

impl Counting {
    pub(super) fn new(history: &History, initial: &Edn) -> Result<Self, String> {
        let initial = match initial {
            Edn::Nil => 0,
            given => given.as_int().ok_or_else(|| no_initial(given, "a number"))?,
        };
        let mut telling = HashSet::default();
        for call in calls(history).filter(|call| call.ok) {
            let unsaid = !adds(call.f) && matches!(kind(call.f), Some(Kind::Change(_, Gives::Unsaid)));
            let (input, output) = (call.input(), call.output());
            let of_its_own = output.as_int().is_some_and(|told| amount(call.f, &input, &output) != Ok(told));
            if unsaid && of_its_own {
                telling.insert(call.f.into());
            }
        }
        Ok(Counting { initial, telling })
    }
}

impl Reader for Counting {
    type Model = Counter;

    fn read(&mut self, call: &Call<'_>) -> Result<Option<Said<CounterOp>>, String> {
        let output = call.output();
        let (sign, gives) = match kind(call.f).ok_or_else(|| call.none_of("a counter"))? {
            Kind::Read if !call.ok || output == Edn::Nil => return Ok(None),
            Kind::Read => {
                let read = output.as_int().ok_or_else(|| format!("a counter is a number, not {}", output.to_edn()))?;
                return Said::of(CounterOp::Read(Some(read)));
            }
            Kind::Change(sign, gives) => (sign, gives),
        };
        let amount = amount(call.f, &call.input(), &output)?.checked_mul(sign).ok_or("its amount is too large")?;
        let told = field(&output, &["value", "result"]).unwrap_or(&output).as_int();
        Said::of(match (gives, told) {
            (Gives::Sum, Some(sum)) => CounterOp::AddAndGet(amount, sum),
            (Gives::Before, Some(before)) => CounterOp::GetAndAdd(amount, before),
            (Gives::Unsaid, Some(sum)) if self.telling.contains(call.f) => CounterOp::AddAndGet(amount, sum),
            _ => CounterOp::Add(amount),
        })
    }

    fn model(&self, _ops: &[Operation<CounterOp>]) -> Counter {
        Counter::new(self.initial)
    }

    fn assumptions(&self) -> Vec<String> {
        let mut names: Vec<&str> = self.telling.iter().map(|f| &**f).collect();
        names.sort_unstable();
        let say = |f: &&str| {
            format!("what an ok `{f}` says is the number that it made it, as some say other than they added")
        };
        names.iter().map(say).collect()
    }
}
