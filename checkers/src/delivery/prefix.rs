//! Does each consumer see each producer's elements in the order in which they were produced, without gaps and without strangers?
//!
//! The attempts of a process that did not fail are its elements, numbered in order. A view is a list that a read returned, or all that one
//! consumer took, in its order. In a view an element is *reordered* when it follows one of the same producer whose number is greater
//! by the window or more (a window of one allows no reordering; of n, that n are in flight at once), *inserted* when nobody produced
//! it, and *skipped* when it was acknowledged and a view shows one whose number is greater by the window or more. What consumers
//! take they share, so that an element is skipped only when none of them was given it. An element that comes twice is noted, and
//! its first place counts. An element that was attempted twice has no place in an order and is not judged.
//!
//! Which attempts failed, and so how far apart two elements are, is known when they have ended: there is no incremental form.
//!
//! O(adds + what views hold). Memory: 16 bytes an element.

use std::collections::{BTreeMap, HashMap};

use elench_formats::History;
use elench_formats::columns::ValueRef;
use elench_formats::history::{OpRef, Status as Ended};
use roaring::RoaringBitmap;

use super::elements::{ById, Elements};
use super::set::refuse_without_order;
use super::words::{Role, Roles};
use crate::findings::{Example, Fact, Findings, Part, by_key};
use crate::named::Tally;
use crate::outcome::{OpId, Why};

const NOBODY: u32 = u32::MAX;

/// Whose is an element, and the how manieth?
#[derive(Clone, Copy, Debug)]
struct Place {
    producer: u32,
    number: u32,
}

/// What a producer handed over: element, operation, and whether it was acknowledged.
type Produced = Vec<(u32, u64, bool)>;

struct Order {
    elements: Elements,
    places: ById<Place>,
    producers: Vec<Produced>,
    by_process: HashMap<i64, u32>,
    failed: HashMap<u32, u64>,
    again: RoaringBitmap,
    window: u32,
    /// Elements told as skipped, and those that came twice.
    skipped: RoaringBitmap,
    findings: Findings,
}

/// Does every view keep the order of every producer? `window`: how many of a producer's elements may be in flight at once.
///
/// Violations: `reorder`, `skip`, `insert`, `aborted-effect`. Noted: `duplicate`.
pub fn prefix(history: &History, window: u32, examples: usize) -> Findings {
    if let Some(refused) = refuse_without_order(history, examples) {
        return refused;
    }
    by_key(history, examples, |part: Part<'_>| one(part, window.max(1), examples))
}

fn one(part: Part<'_>, window: u32, examples: usize) -> Findings {
    let mut order = Order {
        elements: Elements::new(false),
        places: ById::new(Place { producer: NOBODY, number: 0 }),
        producers: Vec::new(),
        by_process: HashMap::new(),
        failed: HashMap::new(),
        again: RoaringBitmap::new(),
        window,
        skipped: RoaringBitmap::new(),
        findings: Findings::new(examples),
    };
    let (mut roles, mut tally) = (Roles::default(), Tally::default());
    let (mut reads, mut takes): (Vec<OpRef<'_>>, BTreeMap<i64, Vec<OpRef<'_>>>) = (Vec::new(), BTreeMap::new());
    let mut may_have_taken = false;
    for op in part.ops() {
        let role = roles.of(&op);
        match role {
            Role::Add => order.produce(&op),
            Role::Read if op.status() == Ended::Ok && matches!(op.output(), ValueRef::List(_)) => reads.push(op),
            Role::Take | Role::Drain if super::queue::gave(&op) => {
                takes.entry(op.process().unwrap_or(-1)).or_default().push(op);
            }
            Role::Take | Role::Drain if op.status().is_unknown() => may_have_taken = true,
            _ => continue,
        }
        tally.count(&op);
    }
    tally.tell(&mut order.findings.coverage);
    let history = part.history();
    if !order.again.is_empty() {
        order
            .findings
            .fact("elements not judged, as they were attempted more than once", Fact::Count(order.again.len()));
    }
    let (views, mut shared) = ((reads.len() + takes.len()) as u64, View::default());
    for op in &reads {
        let mut view = View::default();
        order.extend(&mut view, op, history);
        order.gaps(&view, history);
    }
    for ops in takes.values() {
        let mut view = View::default();
        ops.iter().for_each(|op| order.extend(&mut view, op, history));
        shared.join(view);
    }
    if !may_have_taken {
        order.gaps(&shared, history);
    }
    order.findings.fact("views", Fact::Count(views));
    if views == 0 {
        order.findings.undecided(Why::Other("no consumer was given anything, so no order was shown".into()));
    }
    order.findings
}

/// What a consumer saw.
#[derive(Default)]
struct View {
    seen: RoaringBitmap,
    /// By producer: numbers, and the greatest with the operation that gave it.
    numbers: HashMap<u32, Vec<u32>>,
    greatest: HashMap<u32, (u32, u64)>,
}

impl View {
    fn join(&mut self, other: View) {
        self.seen |= other.seen;
        for (producer, numbers) in other.numbers {
            self.numbers.entry(producer).or_default().extend(numbers);
        }
        for (producer, theirs) in other.greatest {
            let mine = self.greatest.entry(producer).or_insert(theirs);
            *mine = (*mine).max(theirs);
        }
    }
}

impl Order {
    fn produce(&mut self, op: &OpRef<'_>) {
        self.elements.widen();
        let Some(id) = self.elements.value(op, op.input()) else { return };
        if op.status() == Ended::Fail {
            self.failed.insert(id, op.index());
            return;
        }
        let place = self.places.at(id);
        if place.producer != NOBODY {
            self.again.insert(id);
            return;
        }
        let next = self.producers.len() as u32;
        let producer = *self.by_process.entry(op.process().unwrap_or(-1)).or_insert(next);
        if producer == next {
            self.producers.push(Vec::new());
        }
        let produced = &mut self.producers[producer as usize];
        *place = Place { producer, number: produced.len() as u32 };
        produced.push((id, op.index(), op.status() == Ended::Ok));
    }

    fn extend(&mut self, view: &mut View, op: &OpRef<'_>, history: &History) {
        let output = op.output();
        match output.elements() {
            Some(list) => {
                for scalar in list.iter() {
                    if let Some(id) = self.elements.scalar(op, scalar) {
                        self.see(view, id, op, history);
                    }
                }
            }
            None => {
                if let Some(id) = self.elements.value(op, output) {
                    self.see(view, id, op, history);
                }
            }
        }
    }

    fn see(&mut self, view: &mut View, id: u32, op: &OpRef<'_>, history: &History) {
        let Order { elements, findings, producers, .. } = self;
        let by = op.index();
        let name = || elements.name(id, Some(history));
        if !view.seen.insert(id) {
            return findings.note("duplicate", || Example::new([OpId(by)], format!("op {by} shows {} again", name())));
        }
        let Place { producer, number } = self.places.get(id);
        if producer == NOBODY {
            match self.failed.get(&id) {
                Some(&failed) => findings.violation("aborted-effect", || {
                    Example::new(
                        [OpId(failed), OpId(by)],
                        format!("op {by} shows {}, and op {failed}, which produced it, failed", name()),
                    )
                }),
                None => findings.violation("insert", || {
                    Example::new([OpId(by)], format!("op {by} shows {}, which nobody produced", name()))
                }),
            }
            return;
        }
        if self.again.contains(id) {
            return;
        }
        view.numbers.entry(producer).or_default().push(number);
        let greatest = view.greatest.entry(producer).or_insert((number, by));
        if number >= greatest.0 {
            *greatest = (number, by);
        } else if greatest.0 - number >= self.window {
            let (first, then) =
                (producers[producer as usize][number as usize], producers[producer as usize][greatest.0 as usize]);
            let before = greatest.1;
            findings.violation("reorder", || {
                let text = format!(
                    "op {} produced {} before op {} produced {}, and op {by} shows it after that",
                    first.1,
                    name(),
                    then.1,
                    elements.name(then.0, Some(history))
                );
                let mut ops = vec![OpId(first.1), OpId(then.1), OpId(before), OpId(by)];
                ops.dedup();
                Example::new(ops, text)
            });
        }
    }

    /// Tells of what the view lacks, though it shows what came the window or more after it.
    fn gaps(&mut self, view: &View, history: &History) {
        for (&producer, numbers) in &view.numbers {
            let Some(&(greatest, by)) = view.greatest.get(&producer) else { continue };
            let Some(bound) = (greatest + 1).checked_sub(self.window).filter(|&bound| bound > 0) else { continue };
            let produced = &self.producers[producer as usize];
            if numbers.iter().filter(|&&n| n < bound).count() == bound as usize {
                continue;
            }
            for &(id, op, acked) in &produced[..bound as usize] {
                if !acked || view.seen.contains(id) || self.again.contains(id) || !self.skipped.insert(id) {
                    continue;
                }
                let (elements, later) = (&self.elements, produced[greatest as usize]);
                self.findings.violation("skip", || {
                    let text = format!(
                        "op {op} produced {} and was acknowledged; op {by} shows {} of op {}, which came later, and not this",
                        elements.name(id, Some(history)),
                        elements.name(later.0, Some(history)),
                        later.1
                    );
                    Example::new([OpId(op), OpId(later.1), OpId(by)], text)
                });
            }
        }
    }
}
