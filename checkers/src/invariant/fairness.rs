//! Are all served alike? Formulas over latency, throughput and errors of groups of operations.
//!
//! Groups are nodes, processes, keys, functions or the values of any further field (where that says which repetition a run is, groups
//! are repeats). Names in a formula:
//!
//! | Name | Of all operations | `group.` each group in turn | `worst.`, `best.` of all groups | `spread.` |
//! |---|---|---|---|---|
//! | `latency` | of acknowledged ones, many durations | the same | those of the group whose p99 is the greatest, the least | of groups' p99 |
//! | `throughput` | acknowledged ones a second, from the first event to the last | the same | lowest, highest | of groups |
//! | `errors` | share of the others | the same | highest, lowest | of groups |
//! | `count` | how many | the same | fewest, most | of groups |
//!
//! and `groups`, how many there are. A spread is the greatest less the least, over the mean. A formula that names `group` must hold of each group.
//! Latencies are kept as they are, so that quantiles, least and greatest are exact: what is called unfair is.
//!
//! Whether all are served alike is known when all are served, so there is no incremental form. O(n log n). Memory: 16 bytes an
//! acknowledged operation.

use elench_formats::History;
use elench_formats::columns::Scalar;
use elench_formats::history::OpRef;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::expr::{Expr, Names, Samples, Truth, Value};
use crate::findings::{Example, Fact, Findings, Quantiles, Table, ended};
use crate::named::Tally;
use crate::outcome::{OpId, Status, Why};

/// What groups operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// The node that they talked to.
    Node,
    /// The process.
    Process,
    /// The key.
    Key,
    /// The function.
    F,
    /// A further field.
    Field(String),
}

impl GroupBy {
    /// `node`, `process`, `key`, `f`, or the name of a field.
    pub fn named(name: &str) -> GroupBy {
        match name {
            "node" => GroupBy::Node,
            "process" => GroupBy::Process,
            "key" => GroupBy::Key,
            "f" => GroupBy::F,
            field => GroupBy::Field(field.strip_prefix("extra.").unwrap_or(field).to_string()),
        }
    }

    fn of<'a>(&self, op: &OpRef<'a>) -> Option<Tag<'a>> {
        match self {
            GroupBy::Node => op.node().map(Tag::Text),
            GroupBy::Process => op.process().map(Tag::Process),
            GroupBy::F => op.f().map(Tag::Text),
            GroupBy::Field(name) => op.extra(name).map(Tag::Text),
            GroupBy::Key => Some(op.key()).filter(|key| *key != Scalar::Nil).map(Tag::Key),
        }
    }
}

/// What a group has in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Tag<'a> {
    Text(&'a str),
    Process(i64),
    Key(Scalar),
}

impl Tag<'_> {
    fn name(self, history: &History) -> String {
        match self {
            Tag::Text(text) => text.to_string(),
            Tag::Process(process) => process.to_string(),
            Tag::Key(key) => {
                let mut text = String::new();
                history.write_scalar(key, &mut text);
                text
            }
        }
    }
}

/// Nanoseconds, ascending once all are there.
#[derive(Default)]
struct Durations(Vec<u64>);

impl Durations {
    /// The least that this part of them does not exceed; nothing of nothing.
    fn at(&self, q: f64) -> Option<u64> {
        let last = self.0.len().checked_sub(1)?;
        let rank = (q * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.saturating_sub(1).min(last)).copied()
    }
}

impl Samples for Durations {
    fn count(&self) -> u64 {
        self.0.len() as u64
    }

    fn quantile(&self, q: f64) -> Option<Value<'static>> {
        self.at(q).map(|n| Value::Int(n.into()))
    }

    fn sum(&self) -> Option<Value<'static>> {
        (!self.0.is_empty()).then(|| Value::Int(self.0.iter().map(|&n| i128::from(n)).sum()))
    }
}

/// What is measured of some operations.
struct Group {
    name: String,
    latency: Durations,
    ok: u64,
    all: u64,
    seconds: Option<f64>,
    /// The slowest acknowledged operation, and how long it took.
    slowest: Option<(u64, u64)>,
}

impl Group {
    fn new(name: String) -> Group {
        Group { name, latency: Durations::default(), ok: 0, all: 0, seconds: None, slowest: None }
    }

    fn add(&mut self, op: &OpRef<'_>) {
        self.all += 1;
        if ended(op) != Status::Ok {
            return;
        }
        self.ok += 1;
        if let Some(took) = took(op) {
            self.latency.0.push(took);
            if self.slowest.is_none_or(|(_, slowest)| took > slowest) {
                self.slowest = Some((op.index(), took));
            }
        }
    }

    fn errors(&self) -> Option<f64> {
        (self.all > 0).then(|| (self.all - self.ok) as f64 / self.all as f64)
    }

    fn throughput(&self) -> Option<f64> {
        self.seconds.map(|s| self.ok as f64 / s)
    }

    fn p99(&self) -> Option<f64> {
        self.latency.at(0.99).map(|n| n as f64)
    }

    /// As a number, by which groups are compared; higher is worse.
    fn measure(&self, what: &str) -> Option<f64> {
        match what {
            "latency" => self.p99(),
            "throughput" => self.throughput().map(|x| -x),
            "errors" => self.errors(),
            "count" => Some(-(self.all as f64)),
            _ => None,
        }
    }

    fn value(&self, what: &str) -> Option<Value<'_>> {
        match what {
            "latency" if self.latency.count() > 0 => Some(Value::Samples(&self.latency)),
            "throughput" => self.throughput().map(Value::Real),
            "errors" => self.errors().map(Value::Real),
            "count" => Some(Value::Int(self.all.into())),
            _ => None,
        }
    }
}

/// Nanoseconds from invocation to completion.
fn took(op: &OpRef<'_>) -> Option<u64> {
    u64::try_from(op.complete_time()?.checked_sub(op.invoke_time()?)?).ok()
}

/// What a formula may ask, with the group whose turn it is.
struct Measured<'a> {
    all: &'a Group,
    groups: &'a [Group],
    turn: Option<&'a Group>,
}

const MEASURES: [&str; 4] = ["latency", "throughput", "errors", "count"];

impl Names for Measured<'_> {
    fn value<'a>(&'a self, name: &[String]) -> Value<'a> {
        let parts: Vec<&str> = name.iter().map(String::as_str).collect();
        let (what, value) = match parts.as_slice() {
            ["groups"] => return Value::Int(self.groups.len() as i128),
            [what] => (*what, self.all.value(what)),
            ["group", what] => (*what, self.turn.and_then(|group| group.value(what))),
            ["worst", what] => (*what, self.extreme(what, false).and_then(|group| group.value(what))),
            ["best", what] => (*what, self.extreme(what, true).and_then(|group| group.value(what))),
            ["spread", what] => (*what, self.spread(what)),
            _ => ("", None),
        };
        let full = name.join(".");
        value.unwrap_or_else(|| match what {
            "latency" => Value::Unknown(format!("`{full}`: no acknowledged operation with times of both its ends")),
            "throughput" => Value::Unknown(format!("`{full}`: the history does not record times")),
            what if MEASURES.contains(&what) => Value::Unknown(format!("`{full}`: there are no operations")),
            _ => Value::Unknown(format!("there is no `{full}`: latency, throughput, errors and count can be asked, also of group, worst, best and spread")),
        })
    }
}

impl Measured<'_> {
    fn extreme(&self, what: &str, best: bool) -> Option<&Group> {
        let measured = self.groups.iter().filter_map(|g| Some((g.measure(what)?, g)));
        let worse = |a: &(f64, &Group), b: &(f64, &Group)| a.0.total_cmp(&b.0);
        let found = if best { measured.min_by(worse) } else { measured.max_by(worse) };
        found.map(|(_, group)| group)
    }

    fn spread(&self, what: &str) -> Option<Value<'static>> {
        let all: Vec<f64> = self.groups.iter().filter_map(|g| g.measure(what)).map(f64::abs).collect();
        let greatest = all.iter().copied().max_by(f64::total_cmp)?;
        let least = all.iter().copied().min_by(f64::total_cmp)?;
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        Some(Value::Real(if greatest == least { 0.0 } else { (greatest - least) / mean }))
    }
}

/// Holds groups against formulas. Violation: `fairness`.
pub fn fairness(history: &History, by: &GroupBy, rules: &[Expr], examples: usize) -> Findings {
    let mut findings = Findings::new(examples);
    let (all, groups, left_out) = measure(history, by, &mut findings);
    describe(&all, &groups, left_out, &mut findings);
    if rules.is_empty() {
        findings.undecided(Why::Other("no formula says what is fair (--fair EXPR)".into()));
    }
    if groups.is_empty() {
        findings.undecided(Why::Other("no operation belongs to a group (--group-by FIELD)".into()));
    }
    for rule in rules {
        let each = rule.names().iter().any(|name| name[0] == "group");
        let turns: Vec<Option<&Group>> = if each { groups.iter().map(Some).collect() } else { vec![None] };
        for turn in turns {
            let measured = Measured { all: &all, groups: &groups, turn };
            match rule.truth(&measured) {
                Truth::True => {}
                Truth::False => findings.violation("fairness", || unfair(rule, &measured)),
                Truth::Unknown(why) => {
                    let of = turn.map_or(String::new(), |group| format!(" of group {}", group.name));
                    findings.undecided(Why::Other(format!("{}{of} cannot be decided: {why}", rule.source())));
                }
            }
        }
    }
    findings.coverage.keys = 1;
    findings.coverage.keys_decided = u64::from(findings.why().is_none());
    findings
}

fn measure(history: &History, by: &GroupBy, findings: &mut Findings) -> (Group, Vec<Group>, u64) {
    let mut all = Group::new("all".into());
    let mut groups: Vec<Group> = Vec::new();
    let mut ids: HashMap<Tag<'_>, usize, FixedState> = HashMap::default();
    let mut tally = Tally::default();
    let (mut begin, mut end, mut left_out) = (i64::MAX, i64::MIN, 0);
    for op in history.clients() {
        tally.count(&op);
        for time in op.invoke_time().into_iter().chain(op.complete_time()) {
            (begin, end) = (begin.min(time), end.max(time));
        }
        all.add(&op);
        match by.of(&op) {
            None => left_out += 1,
            Some(tag) => {
                let id = match ids.get(&tag) {
                    Some(&id) => id,
                    None => {
                        ids.insert(tag, groups.len());
                        groups.push(Group::new(tag.name(history)));
                        groups.len() - 1
                    }
                };
                groups[id].add(&op);
            }
        }
    }
    tally.tell(&mut findings.coverage);
    let seconds = end.checked_sub(begin).filter(|&ns| ns > 0).map(|ns| ns as f64 / 1e9);
    for group in groups.iter_mut().chain([&mut all]) {
        group.seconds = seconds;
        group.latency.0.sort_unstable();
    }
    (all, groups, left_out)
}

fn describe(all: &Group, groups: &[Group], left_out: u64, findings: &mut Findings) {
    let columns = ["group", "operations", "latency", "ok a second", "errors"].map(str::to_string).to_vec();
    let row = |group: &Group| {
        vec![
            Fact::Text(group.name.clone()),
            Fact::Count(group.all),
            Fact::Quantiles(Quantiles {
                count: group.latency.count(),
                at: [500u16, 990]
                    .into_iter()
                    .filter_map(|p| Some((p, group.latency.at(f64::from(p) / 1000.0)?)))
                    .collect(),
            }),
            group.throughput().map_or(Fact::Text("not recorded".into()), Fact::Real),
            Fact::Real(group.errors().unwrap_or(0.0)),
        ]
    };
    let rows = [all].into_iter().chain(groups).map(row).collect();
    findings.fact("groups", Fact::Table(Table { columns, rows }));
    if left_out > 0 {
        findings.fact("operations of no group", Fact::Count(left_out));
    }
}

/// The numbers that a formula is false of, and the slowest operation of each group that it names.
fn unfair(rule: &Expr, measured: &Measured<'_>) -> Example {
    let mut seen = Vec::new();
    let mut ops: Vec<OpId> = Vec::new();
    for name in rule.names() {
        let of = match name[0].as_str() {
            "group" => measured.turn,
            "worst" => name.get(1).and_then(|what| measured.extreme(what, false)),
            "best" => name.get(1).and_then(|what| measured.extreme(what, true)),
            _ => None,
        };
        let value = match measured.value(name) {
            Value::Samples(many) => format!("p50 {:?}, p99 {:?} ns", many.quantile(0.5), many.quantile(0.99))
                .replace("Some(", "")
                .replace(')', ""),
            value => value.shown(),
        };
        let whose = of.map_or(String::new(), |group| format!(" (group {})", group.name));
        seen.push(format!("{}{whose} is {value}", name.join(".")));
        ops.extend(of.and_then(|group| group.slowest).map(|(op, _)| OpId(op)));
    }
    ops.sort_unstable();
    ops.dedup();
    Example::new(ops, format!("{} is false: {}", rule.source(), seen.join("; ")))
}

#[cfg(test)]
mod tests {
    use elench_formats::notation;

    use super::*;

    /// Process 0 takes 1 ms, process 1 takes `slow` ms and fails as often as it succeeds.
    fn run(slow: i64) -> History {
        let mut text = String::new();
        for i in 0..200i64 {
            let at = i * 20_000_000;
            let end = if i % 2 == 0 { "ok" } else { "fail" };
            text += &format!("invoke 0 read @{at}\nok 0 read 1 @{}\n", at + 1_000_000);
            text +=
                &format!("invoke 1 read @{}\n{end} 1 read 1 @{}\n", at + 1_000_001, at + 1_000_001 + slow * 1_000_000);
        }
        notation::history(&text).unwrap()
    }

    fn judged(history: &History, rule: &str) -> Findings {
        fairness(history, &GroupBy::Process, &[Expr::parse(rule).unwrap()], 3)
    }

    #[test]
    fn formulas_of_groups_hold_or_fail_with_the_group_that_breaks_them() {
        let h = run(10);
        for rule in [
            "p99(worst.latency) > 9ms and p99(best.latency) < 2ms and groups == 2 and count == 400",
            "errors == 0.25 and worst.errors == 50% and best.errors == 0",
            "worst.throughput < best.throughput and group.throughput > 20",
            "p99(worst.latency) / p99(best.latency) > 9 and spread.latency > 1.5",
            "group.count == 200 and spread.count == 0",
        ] {
            assert!(judged(&h, rule).is_valid(), "{rule}: {:?}", judged(&h, rule));
        }
        let found = judged(&h, "p99(group.latency) <= 5ms");
        assert_eq!(found.count("fairness"), 1, "{found:?}");
        let example = &found.kinds()["fairness"].examples[0];
        assert!(example.text.contains("group 1"), "{}", example.text);
        assert_eq!(h.op(h.row_of(example.ops[0].0).unwrap()).process(), Some(1));
        assert!(judged(&run(1), "p99(worst.latency) <= 2 * p99(latency)").is_valid());
    }

    #[test]
    fn least_greatest_and_quantiles_are_exact() {
        let h = notation::history("invoke 0 write 1 @0\nok 0 @1000000\ninvoke 1 write 2 @0\nok 1 @90000000").unwrap();
        for rule in [
            "max(latency) == 90ms and min(latency) == 1ms and sum(latency) == 91ms",
            "p99(worst.latency) <= 90 * p99(best.latency) and p99(worst.latency) == 90ms",
            "max(group.latency) <= 90ms and p50(latency) <= 1ms",
        ] {
            assert!(judged(&h, rule).is_valid(), "{rule}: {:?}", judged(&h, rule));
        }
        for rule in ["max(latency) < 90ms", "p99(worst.latency) < 90ms", "min(latency) > 1ms"] {
            assert_eq!(judged(&h, rule).count("fairness"), 1, "{rule}");
        }
    }

    #[test]
    fn what_was_not_recorded_is_unknown() {
        let h = notation::history("invoke 0 read / ok 0 read 1").unwrap();
        for rule in ["p99(latency) < 1s", "throughput > 1", "nothing > 1", "p99(worst.nothing) > 0"] {
            assert!(judged(&h, rule).why().is_some(), "{rule}");
        }
        assert!(judged(&h, "errors == 0").is_valid());
        assert!(fairness(&h, &GroupBy::Node, &[Expr::parse("errors == 0").unwrap()], 1).why().is_some());
        assert!(fairness(&h, &GroupBy::Process, &[], 1).why().is_some());
    }
}
