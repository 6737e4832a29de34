//! Was every id that was generated generated once?
//!
//! An id is the whole value that an acknowledged `generate` returned. Asked for, ids have to grow besides: those of each process in its
//! order, and in real time, so that an id is greater than every id whose operation had ended before its own began. Only integers grow.
//!
//! While a history is written, every id is kept with the operation that gave it: 8 bytes for one near the others, 40 for others. Of a whole history
//! it is asked first whether all integers differ ([`super::distinct`]): if so, no operation has to be kept, and only if
//! not it goes the other way too. O(n); monotonicity in real time sorts completions, O(n log n), and takes 24 bytes an id.

use std::collections::HashMap;

use elench_formats::History;
use elench_formats::columns::ValueRef;
use elench_formats::history::{OpRef, Status as Ended};
use elench_formats::sorting::sort_by;

use super::distinct::all_differ;
use super::elements::{ById, Elements};
use super::set::NONE;
use crate::findings::{Example, Fact, Findings, Incremental, Part, by_key, ended};
use crate::named::ByName;
use crate::outcome::{OpId, Status, Why};

/// `unique-ids` while a history is written. The state of both forms.
#[derive(Debug)]
pub struct UniqueIds {
    monotonic: bool,
    elements: Elements,
    /// The operation that gave an id first.
    first: ById<u64>,
    counts: [u64; 3],
    acknowledged: u64,
    nameless: u64,
    range: Option<(i64, i64)>,
    /// By process: its last id, and the operation.
    last: HashMap<i64, (i64, u64)>,
    /// Invocation, completion and id of each.
    grown: Vec<(u64, u64, i64)>,
    others: u64,
    findings: Findings,
    violated: Option<&'static str>,
    generates: ByName<bool>,
    /// Is it known of all integers that they differ?
    distinct: bool,
}

const NAMES: [&str; 8] = ["generate", "gen", "next", "next-id", "id", "new-id", "allocate", "unique-id"];

impl UniqueIds {
    fn new(monotonic: bool, examples: usize, copies: bool) -> UniqueIds {
        UniqueIds {
            monotonic,
            elements: Elements::new(copies),
            first: ById::new(NONE),
            counts: [0; 3],
            acknowledged: 0,
            nameless: 0,
            range: None,
            last: HashMap::new(),
            grown: Vec::new(),
            others: 0,
            findings: Findings::new(examples),
            violated: None,
            generates: ByName::new(|name| NAMES.contains(&name), false),
            distinct: false,
        }
    }

    /// The integers that operations generated.
    fn integers(&mut self, part: Part<'_>) -> Vec<i64> {
        let mut ints = Vec::new();
        part.ops().filter(|op| op.status() == Ended::Ok).for_each(|op| {
            if let ValueRef::Int(n) = op.output()
                && self.generates.of(&op)
            {
                ints.push(n);
            }
        });
        ints
    }

    /// The checker while a history is written.
    pub fn incremental(monotonic: bool, examples: usize) -> Box<dyn Incremental> {
        Box::new(UniqueIds::new(monotonic, examples, true))
    }

    fn take_in(&mut self, op: &OpRef<'_>) {
        if !self.generates.of(op) {
            return;
        }
        self.counts[ended(op) as usize] += 1;
        if op.status() != Ended::Ok {
            return;
        }
        let value = op.output();
        if self.distinct && matches!(value, ValueRef::Int(_)) {
            self.acknowledged += 1;
            return self.grow(op, value);
        }
        self.elements.widen();
        let Some(id) = self.elements.value(op, value) else {
            self.nameless += 1;
            return;
        };
        self.acknowledged += 1;
        let index = op.index();
        let first = self.first.at(id);
        if *first == NONE {
            *first = index;
        } else {
            let (earlier, text) = (*first, || {
                let mut text = String::new();
                op.write_value(value, &mut text);
                text
            });
            self.violated = Some("duplicate");
            self.findings.violation("duplicate", || {
                Example::new(
                    [OpId(earlier), OpId(index)],
                    format!("op {earlier} and op {index} were both given {}", text()),
                )
            });
        }
        self.grow(op, value);
    }

    fn grow(&mut self, op: &OpRef<'_>, value: ValueRef<'_>) {
        let ValueRef::Int(n) = value else {
            self.others += 1;
            return;
        };
        self.range = Some(self.range.map_or((n, n), |(low, high)| (low.min(n), high.max(n))));
        if !self.monotonic {
            return;
        }
        self.grown.push((op.index(), op.complete_index().unwrap_or(NONE), n));
        let Some(process) = op.process() else { return };
        if let Some((before, earlier)) = self.last.insert(process, (n, op.index()))
            && before >= n
        {
            self.violated = Some("nonmonotonic-process");
            self.findings.violation("nonmonotonic-process", || {
                let text =
                    format!("process {process} was given {before} by op {earlier}, then {n} by op {}", op.index());
                Example::new([OpId(earlier), OpId(op.index())], text)
            });
        }
    }

    fn told(mut self) -> Findings {
        for (status, n) in [Status::Ok, Status::Fail, Status::Info].into_iter().zip(self.counts) {
            self.findings.coverage.count("generate", status, n);
        }
        if self.monotonic {
            self.real_time();
            if self.others > 0 {
                let why = format!("{} ids are no integers, so that there is no order in which they grow", self.others);
                self.findings.undecided(Why::Other(why));
            }
        }
        let findings = &mut self.findings;
        findings.fact("attempted", Fact::Count(self.counts.iter().sum()));
        findings.fact("acknowledged", Fact::Count(self.acknowledged));
        if let Some((low, high)) = self.range {
            findings.fact("least", Fact::Int(low.into()));
            findings.fact("greatest", Fact::Int(high.into()));
        }
        if self.nameless > 0 {
            findings.fact("acknowledged without an id", Fact::Count(self.nameless));
        }
        if self.acknowledged == 0 {
            findings.undecided(Why::NoEvidence);
        }
        self.findings
    }

    /// Is each id greater than all whose operations had ended before its own began? By the greatest of them.
    fn real_time(&mut self) {
        let mut begun = std::mem::take(&mut self.grown);
        sort_by(&mut begun, |&(invoke, ..)| invoke);
        let mut ended = begun.clone();
        sort_by(&mut ended, |&(_, complete, _)| complete);
        let mut ended = ended.into_iter().peekable();
        let mut greatest: Option<(i64, u64)> = None;
        for (invoke, _, n) in begun {
            while let Some((op, _, m)) = ended.next_if(|&(_, complete, _)| complete < invoke) {
                greatest = greatest.max(Some((m, op)));
            }
            if let Some((m, earlier)) = greatest.filter(|&(m, _)| m >= n) {
                self.findings.violation("nonmonotonic-real-time", || {
                    let text = format!("op {earlier} had been given {m} before op {invoke} began, which was given {n}");
                    Example::new([OpId(earlier), OpId(invoke)], text)
                });
            }
        }
    }
}

impl Incremental for UniqueIds {
    fn invoked(&mut self, _: &OpRef<'_>) {}

    fn completed(&mut self, op: &OpRef<'_>) {
        self.take_in(op);
    }

    fn violated(&self) -> Option<&'static str> {
        self.violated
    }

    fn finish(self: Box<Self>) -> Findings {
        self.told()
    }
}

/// Was each id generated once? With `monotonic`, do they grow?
///
/// Violations: `duplicate`, `nonmonotonic-process`, `nonmonotonic-real-time`. A process's operations come in its order, so that no order
/// of real time is needed but for the last.
pub fn unique_ids(history: &History, monotonic: bool, examples: usize) -> Findings {
    if monotonic && let Some(refused) = super::set::refuse_without_order(history, examples) {
        return refused;
    }
    by_key(history, examples, |part: Part<'_>| {
        let mut state = UniqueIds::new(monotonic, examples, false);
        state.distinct = all_differ(&state.integers(part));
        part.ops().for_each(|op| state.take_in(&op));
        state.told()
    })
}
