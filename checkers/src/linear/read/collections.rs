//! Queues, stacks and bags: `enqueue`, `dequeue` and their like. Sets: `add`, `remove`, `contains`, `read`.
//!
//! A `drain` at the end of a run is many removals at once, some of which may be lost with it; it says nothing here (the checker
//! `total-queue` judges it), where nothing else comes after its beginning.

use elench_formats::history::Status;
use elench_formats::{History, Value as Edn};

use super::values::{is_plain, is_plain_value};
use super::{Call, Reader, Said, calls, field, no_initial, spelled};
use crate::linear::Operation;
use crate::model::collection::{AnyFirst, Collection, Discipline, NewestFirst, OldestFirst, SmallestFirst};
use crate::model::{CollectionOp, Set, SetOp, Value};

/// Something that values are put in and taken out of.
pub(super) struct Queue<'a, D> {
    what: &'static str,
    values: super::Values<'a>,
    initial: Vec<Value>,
    /// Are values compared as numbers?
    numbers: bool,
    /// The index of the first drain.
    drained: Option<u64>,
    /// Names of nothing that were put in, and so are values.
    named: Vec<Edn>,
    discipline: std::marker::PhantomData<D>,
}

impl<'a> Queue<'a, OldestFirst> {
    pub(super) fn fifo(history: &'a History, initial: &Edn) -> Result<Self, String> {
        Queue::new(history, initial, "a queue", false)
    }
}

impl<'a> Queue<'a, NewestFirst> {
    pub(super) fn stack(history: &'a History, initial: &Edn) -> Result<Self, String> {
        Queue::new(history, initial, "a stack", false)
    }
}

impl<'a> Queue<'a, AnyFirst> {
    pub(super) fn bag(history: &'a History, initial: &Edn) -> Result<Self, String> {
        Queue::new(history, initial, "a queue", false)
    }
}

impl<'a> Queue<'a, SmallestFirst> {
    pub(super) fn priority(history: &'a History, initial: &Edn) -> Result<Self, String> {
        Queue::new(history, initial, "a priority queue", true)
    }
}

impl<'a, D: Discipline> Queue<'a, D> {
    /// At first: a list of values, in the order of insertion.
    fn new(history: &'a History, initial: &Edn, what: &'static str, numbers: bool) -> Result<Self, String> {
        let plain = initial == &Edn::Nil;
        let values = super::Values::new(history, initial, |op| {
            plain && is_plain_value(op.input()) && is_plain_value(op.output())
        });
        let drain = |call: &Call<'_>| is_drain(call.f);
        let drained = calls(history).find(drain).map(|call| call.row.index());
        let put = calls(history).filter(|call| is_insertion(call.f)).flat_map(|call| [call.input(), call.output()]);
        let mut named: Vec<Edn> = initial_values(initial).iter().cloned().chain(put).filter(is_empty).collect();
        named.retain(|name| *name != Edn::Nil);
        named.sort_unstable_by_key(Edn::to_edn);
        named.dedup();
        let discipline = std::marker::PhantomData;
        let mut queue = Queue { what, values, initial: Vec::new(), numbers, drained, named, discipline };
        let wanted = || no_initial(initial, "a list of values");
        queue.initial = match initial {
            Edn::Nil => Vec::new(),
            Edn::Vector(list) | Edn::Set(list) => {
                list.iter().map(|v| queue.value(v)).collect::<Result<_, _>>().map_err(|_| wanted())?
            }
            _ => return Err(wanted()),
        };
        Ok(queue)
    }

    fn value(&mut self, value: &Edn) -> Result<Value, String> {
        if !self.numbers {
            return Ok(self.values.edn(value));
        }
        let priority = field(value, &["priority"]).unwrap_or(value);
        let wanted = || format!("values of a priority queue are numbers, not {}", value.to_edn());
        priority.as_int().map(Value).filter(|v| *v > Value::UNSEEN).ok_or_else(wanted)
    }
}

fn is_drain(f: &str) -> bool {
    spelled(f) == "drain"
}

fn is_insertion(f: &str) -> bool {
    matches!(&*spelled(f), "enqueue" | "offer" | "push" | "insert" | "put" | "add" | "send")
}

fn initial_values(initial: &Edn) -> &[Edn] {
    match initial {
        Edn::Vector(list) | Edn::Set(list) => list,
        _ => &[],
    }
}

/// Does a removal say that there was nothing?
fn is_empty(output: &Edn) -> bool {
    *output == Edn::Nil || matches!(output.as_name(), Some("empty" | "nil" | "none" | "exhausted"))
}

impl<D: Discipline> Reader for Queue<'_, D> {
    type Model = Collection<D>;

    fn read(&mut self, call: &Call<'_>) -> Result<Option<Said<CollectionOp>>, String> {
        let row = &call.row;
        if is_drain(call.f) {
            return Ok(None);
        }
        if row.status() == Status::Ok && self.drained.is_some_and(|drained| row.complete_index() > Some(drained)) {
            return Err(format!("it ends after a drain began, and {} has none that others can follow", self.what));
        }
        match &*spelled(call.f) {
            f if is_insertion(f) => {
                // Some acknowledge with true, or with nothing; what they put in is what they sent.
                let (input, output) = (call.input(), call.output());
                if output == Edn::Bool(false) && input != output {
                    return Ok(None);
                }
                let value = if input == Edn::Nil { output } else { input };
                if value == Edn::Nil {
                    return Err("what it put in is not known, or nil, which a removal gives that finds nothing".into());
                }
                Said::of(CollectionOp::Insert(self.value(&value)?))
            }
            "dequeue" | "poll" | "pop" | "take" | "remove" | "remove-min" | "delete-min" | "receive" => {
                let output = call.output();
                Said::of(match call.ok {
                    false => CollectionOp::Remove(None),
                    true if is_empty(&output) && !self.named.contains(&output) => CollectionOp::RemoveEmpty,
                    true => CollectionOp::Remove(Some(self.value(&output)?)),
                })
            }
            _ => Err(call.none_of(self.what)),
        }
    }

    fn model(&self, _ops: &[Operation<CollectionOp>]) -> Collection<D> {
        let model = Collection::new(self.initial.clone());
        match self.values.names() {
            Some(names) if !self.numbers => model.with_names(names),
            _ => model,
        }
    }

    fn assumptions(&self) -> Vec<String> {
        let drains = self.drained.map(|_| "drains at the end say nothing here".to_string());
        let smallest = self.numbers.then(|| "the smallest value goes first".to_string());
        drains.into_iter().chain(smallest).collect()
    }
}

/// A set.
pub(super) struct Elements<'a> {
    values: super::Values<'a>,
    initial: Vec<Value>,
    removes: bool,
}

impl<'a> Elements<'a> {
    /// At first: a set or list of elements.
    pub(super) fn new(history: &'a History, initial: &Edn, removes: bool) -> Result<Self, String> {
        let plain = initial == &Edn::Nil;
        let mut values =
            super::Values::new(history, initial, |op| plain && is_plain_value(op.input()) && is_plain(op.output()));
        let initial = match initial {
            Edn::Nil => Vec::new(),
            Edn::Vector(list) | Edn::Set(list) => list.iter().map(|v| values.edn(v)).collect(),
            given => return Err(no_initial(given, "a set of elements")),
        };
        Ok(Elements { values, initial, removes })
    }
}

impl Reader for Elements<'_> {
    type Model = Set;

    fn read(&mut self, call: &Call<'_>) -> Result<Option<Said<SetOp>>, String> {
        let (input, output) = (call.input(), call.output());
        let f = spelled(call.f);
        if let "read" | "r" | "read-all" | "get" | "members" | "elements" = &*f {
            return match &output {
                Edn::Nil => Ok(None),
                Edn::Vector(list) | Edn::Set(list) => {
                    Said::of(SetOp::read(list.iter().map(|v| self.values.edn(v)).collect()))
                }
                other => Err(format!("a read of a set returns its elements, not {}", other.to_edn())),
            };
        }
        // An acknowledgement is nothing, the element again, whether it changed or found anything, or both.
        let (element, result) = match (&input, &output) {
            (element, told) if element == told => (element, None),
            (element, Edn::Bool(result)) => (element, Some(*result)),
            (element, Edn::Nil) => (element, None),
            (Edn::Nil, element) => (element, None),
            (element, Edn::Vector(told)) if told.len() == 2 && told[0] == *element => match told[1] {
                Edn::Bool(result) => (element, Some(result)),
                _ => return Err(format!("it was acknowledged with {}", output.to_edn())),
            },
            _ => {
                return Err(format!(
                    "it was invoked with {} and acknowledged with {}",
                    input.to_edn(),
                    output.to_edn()
                ));
            }
        };
        let element = self.values.edn(element);
        match &*f {
            "add" | "insert" | "write" | "put" => Said::of(SetOp::Add(element, result)),
            "remove" | "delete" | "del" if self.removes => Said::of(SetOp::Remove(element, result)),
            // An answer that only repeats the question says nothing.
            "contains" | "contains?" | "member" | "member?" | "has" => Said::of(SetOp::Contains(element, result)),
            _ => Err(call.none_of(if self.removes { "a set" } else { "a set that only grows" })),
        }
    }

    fn model(&self, _ops: &[Operation<SetOp>]) -> Set {
        let model = Set::new(self.initial.iter().copied());
        match self.values.names() {
            Some(names) => model.with_names(names),
            None => model,
        }
    }
}
