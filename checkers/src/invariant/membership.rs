//! Do the members that nodes see at rest follow from who joined and who left?
//!
//! A member is *in* for certain if some acknowledged joining of it began after every leaving that may have happened had ended; *out*
//! for certain the other way round. Who was there at first is in unless some leaving may have happened. What an unknown operation may do
//! before a view has ended makes it neither. A view at rest that
//! lacks who is in is a `missing-member`; one that shows who is out, a `departed-member`; one that shows somebody twice, a
//! `duplicate-member`. Who never joined is an `unexpected-member` where it is known who was there at first: as told, or
//! as the views that ended before the first change began show. Two views at rest that differ while no change is of unknown outcome are a `disagreement`.
//!
//! **Rest must be shown**: a view is marked final (`:final? true`), or the user vouches (`--quiescent`) for the last view of each node
//! (or process) that began after all acknowledged changes had ended. A marked view that a change follows is undecided. So the question only
//! makes sense at the end.
//!
//! O(changes log changes + members viewed). Memory: 32 bytes a change, the final views.

use std::collections::BTreeMap;

use elench_formats::columns::{Scalar, ValueRef};
use elench_formats::history::{OpRef, Status as Ended};
use elench_formats::{History, Value};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

use super::{Online, State, acknowledged, atoms, check, is_final};
use crate::findings::{Example, Fact, Findings, Incremental};
use crate::named::{ByName, Tally, is_any};
use crate::outcome::{OpId, Why};

/// What is told of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Who was a member before the first change, as EDN texts.
    pub members: Option<Vec<String>>,
    /// Are the last views vouched to be of a system at rest?
    pub quiescent: bool,
}

/// Checks each key of a history.
pub fn membership(history: &History, rules: &Rules, examples: usize) -> Findings {
    check(history, examples, &Membership::new(rules, examples))
}

/// Checks while a history is written.
pub fn online(rules: &Rules, examples: usize) -> Box<dyn Incremental> {
    Online::new(Membership::new(rules, examples), examples)
}

const JOIN: [&str; 7] = ["join", "add", "add-member", "add-node", "grow", "grow!", "add!"];
const LEAVE: [&str; 8] = ["leave", "remove", "remove-member", "remove-node", "shrink", "shrink!", "remove!", "evict"];
const VIEW: [&str; 6] = ["read", "members", "view", "membership", "list-members", "nodes"];

/// What the name of an operation says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    Joins,
    Leaves,
    Views,
    Other,
}

fn means(name: &str) -> Means {
    match () {
        () if is_any(name, &JOIN) => Means::Joins,
        () if is_any(name, &LEAVE) => Means::Leaves,
        () if is_any(name, &VIEW) => Means::Views,
        () => Means::Other,
    }
}

#[derive(Clone, Copy, Debug)]
struct Change {
    op: u64,
    ended: u64,
    ok: bool,
    joins: bool,
}

/// Who was asked for a view.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Node(String),
    Process(Option<i64>),
}

#[derive(Clone, Debug)]
struct View {
    op: u64,
    ended: u64,
    members: Vec<String>,
}

#[derive(Clone)]
struct Membership {
    rules: Rules,
    found: Findings,
    tally: Tally,
    names: ByName<Means>,
    changes: HashMap<String, Vec<Change>, FixedState>,
    changed: bool,
    unknown: u64,
    last_change: u64,
    initial: Option<HashSet<String, FixedState>>,
    marked: Vec<View>,
    last_of: BTreeMap<Who, View>,
}

impl Membership {
    fn new(rules: &Rules, examples: usize) -> Self {
        let initial = rules.members.as_ref().map(|members| members.iter().map(|name| bare(name).to_string()).collect());
        Membership {
            rules: rules.clone(),
            found: Findings::new(examples),
            tally: Tally::default(),
            names: ByName::new(means, Means::Other),
            changes: HashMap::default(),
            changed: false,
            unknown: 0,
            last_change: 0,
            initial,
            marked: Vec::new(),
            last_of: BTreeMap::new(),
        }
    }

    fn change(&mut self, op: &OpRef<'_>, joins: bool) {
        let status = op.status();
        if status == Ended::Fail {
            return;
        }
        let ok = status == Ended::Ok;
        let ended = op.complete_index().filter(|_| ok).unwrap_or(u64::MAX);
        if ok {
            self.last_change = self.last_change.max(ended);
        }
        self.unknown += u64::from(!ok);
        for member in named(op) {
            self.changes.entry(member).or_default().push(Change { op: op.index(), ended, ok, joins });
        }
    }

    fn view(&mut self, op: &OpRef<'_>) {
        let Some(members) = names_in(op, op.output()) else {
            let why = format!("{} returned no collection of members", OpId(op.index()));
            return self.found.undecided(Why::Other(why));
        };
        if !self.changed && self.rules.members.is_none() {
            self.initial.get_or_insert_default().extend(members.iter().cloned());
        }
        let view = View { op: op.index(), ended: op.complete_index().unwrap_or(u64::MAX), members };
        if is_final(op) {
            self.marked.push(view);
        } else if self.rules.quiescent {
            let who = op.node().map_or(Who::Process(op.process()), |node| Who::Node(node.to_string()));
            self.last_of.insert(who, view);
        }
    }

    fn finals(&mut self) -> Vec<View> {
        let marked = std::mem::take(&mut self.marked);
        if !marked.is_empty() {
            let (rest, early): (Vec<View>, Vec<View>) =
                marked.into_iter().partition(|view| view.op > self.last_change || self.last_change == 0);
            if let Some(view) = early.first() {
                let why = format!(
                    "{} is marked as final, but a change was acknowledged after it began: all was not at rest",
                    OpId(view.op)
                );
                self.found.undecided(Why::Other(why));
            }
            return rest;
        }
        let last = std::mem::take(&mut self.last_of).into_values();
        last.filter(|view| view.op > self.last_change || self.last_change == 0).collect()
    }

    fn judge(&mut self, view: &View) {
        let op = OpId(view.op);
        let shown: HashSet<&str, FixedState> = view.members.iter().map(String::as_str).collect();
        let mut members: Vec<&String> = self.changes.keys().collect();
        members.sort_unstable();
        let mut told: Vec<(&'static str, Vec<OpId>, String)> = Vec::new();
        for name in members {
            // What began after the view had ended does not excuse it.
            let changes: Vec<Change> = self.changes[name].iter().copied().filter(|c| c.op < view.ended).collect();
            let certain = |joins| certain(&changes, joins);
            match (certain(true), certain(false), shown.contains(name.as_str())) {
                (Some(join), _, false) => {
                    told.push((
                        "missing-member",
                        vec![op, OpId(join)],
                        format!("{op} does not show {name}, which joined in {}", OpId(join)),
                    ));
                }
                (_, Some(leave), true) => {
                    told.push((
                        "departed-member",
                        vec![op, OpId(leave)],
                        format!("{op} shows {name}, which left in {}", OpId(leave)),
                    ));
                }
                _ => {}
            }
        }
        let changed = |name: &str, how: &dyn Fn(&Change) -> bool| {
            self.changes.get(name).is_some_and(|all| all.iter().any(|change| change.op < view.ended && how(change)))
        };
        if let Some(initial) = &self.initial {
            // Who was there at first and is not known to have joined again, which is told above.
            let stays = |name: &str| !changed(name, &|change| !change.joins || change.ok);
            for name in initial.iter().filter(|name| stays(name) && !shown.contains(name.as_str())) {
                told.push((
                    "missing-member",
                    vec![op],
                    format!("{op} does not show {name}, which was there at first and never left"),
                ));
            }
            let joined = |name: &str| changed(name, &|change| change.joins);
            for name in shown.iter().filter(|name| !initial.contains(**name) && !joined(name)) {
                told.push(("unexpected-member", vec![op], format!("{op} shows {name}, which never joined")));
            }
        }
        let mut sorted: Vec<&String> = view.members.iter().collect();
        sorted.sort_unstable();
        for two in sorted.windows(2).filter(|two| two[0] == two[1]) {
            told.push(("duplicate-member", vec![op], format!("{op} shows {} more than once", two[0])));
        }
        told.sort();
        for (kind, ops, text) in told {
            self.found.violation(kind, || Example::new(ops, text));
        }
    }

    fn compare(&mut self, views: &[View]) {
        if self.unknown > 0 {
            return;
        }
        let set = |view: &View| view.members.iter().cloned().collect::<std::collections::BTreeSet<_>>();
        let Some(first) = views.first() else { return };
        let of_first = set(first);
        for view in views.iter().skip(1) {
            let differ: Vec<String> = set(view).symmetric_difference(&of_first).take(8).cloned().collect();
            if !differ.is_empty() {
                self.found.violation("disagreement", || {
                    let (a, b) = (OpId(first.op), OpId(view.op));
                    Example::new([a, b], format!("{a} and {b} differ in {}", differ.join(", ")))
                });
            }
        }
    }
}

/// The acknowledged change after which the member is in (or out) for certain.
fn certain(changes: &[Change], joins: bool) -> Option<u64> {
    // Where the last opposite change may still have effect.
    let opposed = changes.iter().filter(|change| change.joins != joins).map(|change| change.ended).max().unwrap_or(0);
    let opposed_any = changes.iter().any(|change| change.joins != joins);
    let settles = |change: &&Change| change.joins == joins && change.ok && (!opposed_any || change.op > opposed);
    changes.iter().find(settles).map(|change| change.op)
}

/// A member's name, as EDN without quotes or colon.
fn named(op: &OpRef<'_>) -> Vec<String> {
    if let ValueRef::Int(n) = op.input() {
        return vec![n.to_string()];
    }
    if let Some(all) = names_in(op, op.input()) {
        return all;
    }
    let value = atoms::tree(op, op.input());
    let one = ["node", "member", "id", "name"].iter().find_map(|field| value.get(field)).unwrap_or(&value);
    vec![bare(&one.to_edn()).to_string()]
}

/// The members of a collection, if it is one.
fn names_in(op: &OpRef<'_>, value: ValueRef<'_>) -> Option<Vec<String>> {
    if let Some(list) = value.elements() {
        return Some(list.iter().map(|one| bare(&atoms::written(op, one)).to_string()).collect());
    }
    match atoms::tree(op, value) {
        Value::Vector(all) | Value::Set(all) => Some(all.iter().map(|one| bare(&one.to_edn()).to_string()).collect()),
        _ => None,
    }
}

fn bare(text: &str) -> &str {
    match text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(inner) => inner,
        None => text.strip_prefix(':').unwrap_or(text),
    }
}

impl State for Membership {
    fn invoked(&mut self, op: &OpRef<'_>) {
        let means = self.names.of(op);
        if matches!(means, Means::Joins | Means::Leaves) {
            self.changed = true;
            if op.input().scalar() == Some(Scalar::Nil) {
                let why = format!("{} does not say who joins or leaves", OpId(op.index()));
                self.found.undecided(Why::Other(why));
            }
        } else if means != Means::Views {
            let why = format!(
                "{} ({}) is neither a joining, a leaving nor a view",
                OpId(op.index()),
                op.f().unwrap_or("nil")
            );
            self.found.undecided(Why::Other(why));
        }
    }

    fn completed(&mut self, op: &OpRef<'_>) {
        self.tally.count(op);
        let means = self.names.of(op);
        if matches!(means, Means::Joins | Means::Leaves) {
            self.change(op, means == Means::Joins);
        } else if acknowledged(op) && means == Means::Views {
            self.view(op);
        }
    }

    fn violated(&self) -> Option<&'static str> {
        None
    }

    fn finish(mut self) -> Findings {
        self.tally.tell(&mut self.found.coverage);
        let views = self.finals();
        if views.is_empty() {
            let why = "no view of a system at rest: none is marked as final (`:final? true`), or --quiescent vouches for none";
            self.found.undecided(Why::Other(why.into()));
        }
        let nobody = self.changes.is_empty() && self.initial.as_ref().is_none_or(HashSet::is_empty);
        if nobody && self.rules.members.is_none() && views.iter().all(|view| view.members.is_empty()) {
            let why = "no member is known: none is viewed, and none joined or left (--members tells of none)";
            self.found.undecided(Why::Other(why.into()));
        }
        self.found.fact("views at rest", Fact::Count(views.len() as u64));
        self.found.fact("changes of unknown outcome", Fact::Count(self.unknown));
        views.iter().for_each(|view| self.judge(view));
        self.compare(&views);
        self.found
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::testing::{self, Event, FAULTS, Object, both, op_of, run, seeds, shows, then};
    use super::*;
    use crate::linear::tests::Random;

    const FINAL: &str = ", :final? true";

    fn found_with(log: &[Event], rules: &Rules) -> Findings {
        let h = testing::history(log);
        both(&h, membership(&h, rules, 1000), online(rules, 1000))
    }

    fn found_in(log: &[Event]) -> Findings {
        found_with(log, &Rules { members: Some(vec!["n1".into()]), quiescent: false })
    }

    fn kinds(found: &Findings) -> Vec<(&'static str, u64)> {
        found.violations().map(|(name, kind)| (name, kind.count)).collect()
    }

    #[test]
    fn a_view_of_nobody_where_no_member_is_known_proves_nothing() {
        let mut log = Vec::new();
        then(&mut log, "view", "nil", "[]", FINAL);
        let found = found_with(&log, &Rules::default());
        assert!(!found.is_valid() && !found.is_invalid(), "{found:?}");
        let told = Rules { members: Some(vec![]), quiescent: false };
        assert!(found_with(&log, &told).is_valid(), "that nobody is there was told");
    }

    struct Members(BTreeSet<String>);

    fn text(members: &BTreeSet<String>) -> String {
        let quoted: Vec<String> = members.iter().map(|m| format!("\"{m}\"")).collect();
        format!("[{}]", quoted.join(" "))
    }

    impl Object for Members {
        fn next(&mut self, random: &mut Random, _: u64) -> (&'static str, String) {
            (["join", "leave"][random.below(2) as usize], format!("\"n{}\"", random.below(5)))
        }

        fn apply(&mut self, _: u64, f: &'static str, value: &str) -> Option<String> {
            let name = bare(value).to_string();
            let _ = if f == "join" { self.0.insert(name) } else { self.0.remove(&name) };
            Some(value.into())
        }
    }

    #[test]
    fn views_of_what_happened_are_never_accused_and_mutated_ones_are_named() {
        let mut told = BTreeMap::new();
        for mut random in seeds(1000) {
            let mut members = Members(BTreeSet::from(["n1".to_string()]));
            let clients = 1 + random.below(3);
            let mut log = run(&mut random, &mut members, clients, 20, FAULTS);
            then(&mut log, "read", "nil", &text(&members.0), FINAL);
            let found = found_in(&log);
            assert_eq!(kinds(&found), [], "{log:#?} {found:?}");
            assert!(found.is_valid(), "{found:?}");
            // Whoever is in or out for certain, toggled, is told; others are not.
            let at = log.len() - 1;
            let name = format!("n{}", random.below(5));
            let was = members.0.contains(&name);
            let mut wrong = members.0.clone();
            let _ = if was { wrong.remove(&name) } else { wrong.insert(name.clone()) };
            log[at].value = text(&wrong);
            let mut changes = Vec::new();
            for (i, e) in log.iter().enumerate().filter(|(_, e)| e.kind == "invoke" && bare(&e.value) == name) {
                let end = (i + 1..log.len()).find(|&j| log[j].process == e.process);
                let kind = end.map_or("info", |end| log[end].kind);
                if kind != "fail" {
                    changes.push((i, end.filter(|_| kind == "ok").unwrap_or(usize::MAX), e.f == "join", kind == "ok"));
                }
            }
            let settled = |joins: bool| {
                changes.iter().any(|(began, _, j, ok)| {
                    *j == joins && *ok && changes.iter().all(|(_, ended, k, _)| *k == joins || ended < began)
                })
            };
            let initial = name == "n1";
            let stranger = !initial && !changes.iter().any(|(_, _, joins, _)| *joins);
            let expected: Vec<(&'static str, u64)> = [
                ("departed-member", !was && settled(false)),
                (
                    "missing-member",
                    was && (settled(true) || (initial && changes.iter().all(|(_, _, joins, _)| *joins))),
                ),
                ("unexpected-member", !was && stranger),
            ]
            .into_iter()
            .filter_map(|(kind, is)| is.then_some((kind, 1)))
            .collect();
            let found = found_in(&log);
            assert_eq!(kinds(&found), expected, "{name} {log:#?}");
            for (kind, _) in expected {
                assert!(shows(&found, kind, op_of(&log, at)));
                *told.entry(kind).or_insert(0) += 1;
            }
        }
        assert!(told.len() == 3 && told.values().all(|&n| n > 30), "{told:?}");
    }

    #[test]
    fn doubled_members_and_views_that_differ_are_told() {
        let mut log = Vec::new();
        then(&mut log, "join", "\"n2\"", "\"n2\"", "");
        then(&mut log, "read", "nil", "[\"n1\" \"n2\" \"n2\"]", FINAL);
        assert_eq!(kinds(&found_in(&log)), [("duplicate-member", 1)]);
        let mut log = Vec::new();
        then(&mut log, "read", "nil", "#{\"n1\" \"n2\"}", FINAL);
        then(&mut log, "read", "nil", "#{\"n1\" \"n3\"}", FINAL);
        let found = found_with(&log, &Rules::default());
        assert_eq!(kinds(&found), [("disagreement", 1), ("missing-member", 2)]);
    }

    #[test]
    fn who_was_there_at_first_is_missing_unless_a_leaving_may_have_happened_by_the_end_of_the_view() {
        let event = |kind, f| Event { kind, process: 7, f, value: "\"n1\"".into(), extra: String::new() };
        for (f, at, missing) in [("join", 0, 1), ("join", 2, 1), ("leave", 0, 0), ("leave", 1, 0), ("leave", 2, 1)] {
            let mut log = Vec::new();
            then(&mut log, "read", "nil", "[]", FINAL);
            log.insert(at, event("invoke", f));
            let found = found_in(&log);
            assert_eq!(found.count("missing-member"), missing, "{log:#?}");
            assert_eq!(found.is_valid(), missing == 0);
        }
    }

    #[test]
    fn a_joining_that_began_after_a_view_does_not_explain_what_it_showed() {
        let mut log = Vec::new();
        then(&mut log, "read", "nil", "[\"n1\" \"n2\"]", FINAL);
        log.push(Event { kind: "invoke", process: 7, f: "join", value: "\"n2\"".into(), extra: String::new() });
        assert_eq!(kinds(&found_in(&log)), [("unexpected-member", 1)]);
        log.swap(1, 2);
        assert_eq!(kinds(&found_in(&log)), []);
    }

    #[test]
    fn without_rest_nothing_is_known() {
        let mut log = Vec::new();
        then(&mut log, "join", "\"n2\"", "\"n2\"", "");
        then(&mut log, "read", "nil", "[\"n1\"]", "");
        let found = found_in(&log);
        assert!(!found.is_valid() && !found.is_invalid());
        let rules = Rules { members: Some(vec!["n1".into()]), quiescent: true };
        assert_eq!(kinds(&found_with(&log, &rules)), [("missing-member", 1)]);
        let mut log = Vec::new();
        then(&mut log, "read", "nil", "[\"n1\"]", FINAL);
        then(&mut log, "join", "\"n2\"", "\"n2\"", "");
        let found = found_in(&log);
        assert!(!found.is_valid() && !found.is_invalid(), "{found:?}");
    }
}
