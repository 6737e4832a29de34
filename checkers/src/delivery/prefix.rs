//! Does each consumer see each producer's elements in the order in which they were produced, without gaps and without strangers?
//!
//! The attempts of a process that did not fail are its elements, numbered in order. A view is a list that a read returned, or all that one
//! consumer took, in its order. In a view an element is *reordered* when it follows one of the same producer whose number is greater
//! by the window or more (a window of one allows no reordering; of n, that n are in flight at once), *inserted* when nobody produced
//! it, and *skipped* when it was acknowledged and a view shows one whose number is greater by the window or more. What consumers
//! take they share, so that an element is skipped only when none of them was given it. An element that a list
//! holds twice, though it was attempted once, is a *duplicate*; one that a consumer was given twice is merely noted, as delivering again is no
//! question of order; the first place counts. What a view shows that was attempted only after it ended is *unexpected*. An element that was attempted twice has no place in an order and is not judged.
//!
//! Which attempts failed, and so how far apart two elements are, is known when they have ended: there is no incremental form.
//!
//! O(adds + what views hold). Memory: 16 bytes an element.

use std::collections::BTreeMap;

use elench_formats::History;
use elench_formats::columns::{ListRef, ValueRef};
use elench_formats::history::{OpRef, Status as Ended};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use roaring::RoaringBitmap;

use super::elements::{ById, Elements};
use super::micro::refuse_micro_operations;
use super::reads::elements_of;
use super::set::refuse_without_order;
use super::words::{Role, Roles};
use crate::findings::{Example, Fact, Findings, Part, Weight, by_key};
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
    by_process: HashMap<i64, u32, FixedState>,
    failed: HashMap<u32, u64, FixedState>,
    again: RoaringBitmap,
    window: u32,
    /// Elements told as skipped, and those that came twice.
    skipped: RoaringBitmap,
    findings: Findings,
}

/// Does every view keep the order of every producer? `window`: how many of a producer's elements may be in flight at once.
///
/// Violations: `reorder`, `skip`, `insert`, `aborted-effect`, `unexpected`, `duplicate`; noted: a `duplicate` of what a consumer takes.
pub fn prefix(history: &History, window: u32, examples: usize) -> Findings {
    if let Some(refused) =
        refuse_without_order(history, examples).or_else(|| refuse_micro_operations(history, examples))
    {
        return refused;
    }
    by_key(history, examples, |part: Part<'_>| one(part, window.max(1), examples))
}

fn one(part: Part<'_>, window: u32, examples: usize) -> Findings {
    let mut order = Order {
        elements: Elements::new(false),
        places: ById::new(Place { producer: NOBODY, number: 0 }),
        producers: Vec::new(),
        by_process: HashMap::default(),
        failed: HashMap::default(),
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
    let (views, mut shared, mut shown) = ((reads.len() + takes.len()) as u64, View::default(), false);
    for op in &reads {
        let mut view = View { is_read: true, ..View::default() };
        order.extend(&mut view, op, history);
        shown |= !view.seen.is_empty();
        order.gaps(&view, history);
    }
    for ops in takes.values() {
        let mut view = View::default();
        ops.iter().for_each(|op| order.extend(&mut view, op, history));
        shown |= !view.seen.is_empty();
        shared.join(view);
    }
    if !may_have_taken {
        // What two consumers were given is there once.
        shared.numbers.sort_unstable();
        shared.numbers.dedup();
        order.gaps(&shared, history);
    }
    order.findings.fact("views", Fact::Count(views));
    if !shown {
        order.findings.undecided(Why::Other("no consumer was given anything, so no order was shown".into()));
    }
    order.findings
}

/// What a consumer saw.
#[derive(Default)]
struct View {
    /// Is it a list that a read returned?
    is_read: bool,
    seen: RoaringBitmap,
    /// Producers and numbers.
    numbers: Vec<(u32, u32)>,
    /// By producer: the greatest number with the operation that gave it.
    greatest: Vec<Option<(u32, u64)>>,
}

impl View {
    fn join(&mut self, other: View) {
        self.seen |= other.seen;
        self.numbers.extend(other.numbers);
        for (producer, theirs) in other.greatest.into_iter().enumerate() {
            let mine = self.greatest_of(producer);
            *mine = (*mine).max(theirs);
        }
    }

    fn greatest_of(&mut self, producer: usize) -> &mut Option<(u32, u64)> {
        if producer >= self.greatest.len() {
            self.greatest.resize(producer + 1, None);
        }
        &mut self.greatest[producer]
    }
}

impl Order {
    fn produce(&mut self, op: &OpRef<'_>) {
        self.elements.widen();
        let Some(id) = self.elements.value(op, op.input()) else { return };
        if op.status() == Ended::Fail {
            self.failed.entry(id).or_insert(op.index());
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
        let ascending =
            |list: ListRef<'_>| list.as_ints().is_some_and(|ints| ints.windows(2).all(|two| two[0] < two[1]));
        match output.elements() {
            Some(list) => {
                // What ascends comes once each: then runs are seen at once.
                let once = view.seen.is_empty() && ascending(list);
                if let Some(seen) = once.then(|| elements_of(&mut self.elements, op, output)).flatten() {
                    view.seen = seen.set;
                }
                for scalar in list.iter() {
                    if let Some(id) = self.elements.scalar(op, scalar) {
                        self.see(view, id, once, op, history);
                    }
                }
            }
            None => {
                if let Some(id) = self.elements.value(op, output) {
                    self.see(view, id, false, op, history);
                }
            }
        }
    }

    /// The view shows an element; `once`: it is in `seen` already, and comes this once.
    fn see(&mut self, view: &mut View, id: u32, once: bool, op: &OpRef<'_>, history: &History) {
        let Order { elements, findings, producers, .. } = self;
        let by = op.index();
        let name = || elements.name(id, Some(history));
        let Place { producer, number } = self.places.get(id);
        let produced = (producer != NOBODY).then(|| producers[producer as usize][number as usize]);
        if !once && !view.seen.insert(id) {
            let breaks = view.is_read && produced.is_some() && !self.again.contains(id);
            return findings.add("duplicate", if breaks { Weight::Violation } else { Weight::Note }, || {
                let first = produced.map(|(_, op, _)| OpId(op));
                Example::new(first.into_iter().chain([OpId(by)]), format!("op {by} shows {} again", name()))
            });
        }
        let ended = op.complete_index().unwrap_or(u64::MAX);
        if let Some((_, begun, _)) = produced.filter(|(_, begun, _)| *begun > ended) {
            match self.failed.get(&id).filter(|&&failed| failed < ended) {
                Some(&failed) => findings.violation("aborted-effect", || {
                    Example::new(
                        [OpId(failed), OpId(by)],
                        format!("op {by} shows {}, and op {failed}, which produced it by then, failed", name()),
                    )
                }),
                None => findings.violation("unexpected", || {
                    let text = format!("op {by} had shown {} before op {begun} began to produce it", name());
                    Example::new([OpId(by), OpId(begun)], text)
                }),
            }
        }
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
        view.numbers.push((producer, number));
        let greatest = view.greatest_of(producer as usize).get_or_insert((number, by));
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
        // Of each producer, the numbers below this have to be there.
        let window = self.window;
        let bound = |greatest: &Option<(u32, u64)>| greatest.map_or(0, |(n, _)| (n + 1).saturating_sub(window));
        let bounds: Vec<u32> = view.greatest.iter().map(bound).collect();
        let mut there = vec![0u32; bounds.len()];
        for &(producer, number) in &view.numbers {
            there[producer as usize] += u32::from(number < bounds[producer as usize]);
        }
        for (producer, &bound) in bounds.iter().enumerate() {
            let Some((greatest, by)) = view.greatest[producer].filter(|_| there[producer] != bound) else { continue };
            let produced = &self.producers[producer];
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
