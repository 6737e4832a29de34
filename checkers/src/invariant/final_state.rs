//! Is what the system held in the end what it should be? Expressions over final dumps, or over final reads.
//!
//! A dump is any value; names in an expression are places in it (`final` is the whole, `accounts.alice` and `final.accounts.alice` what
//! lies at `:alice` of `:accounts`), a collection of numbers is many numbers. Without a dump it is what the last acknowledged read showed, by key where
//! operations bear keys: but only one that was invoked after all acknowledged operations other than reads had
//! ended, for an earlier one shows no final state. A place that is not there is unknown, and so, mostly, is the answer.
//!
//! The question is about the end, so that there is no incremental form. O(operations + dumps).

use elench_formats::columns::Scalar;
use elench_formats::history::OpRef;
use elench_formats::{History, Value as Edn};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::expr::{Expr, Names, Numbers, Samples, Truth, Value};
use crate::findings::{Example, Fact, Findings, ended};
use crate::named::ByName;
use crate::outcome::{OpId, Status, Why};

/// Holds final states against rules. `dumps` are the final states of one system, whole or by replica, with their names: each
/// rule must hold of each. Violation: `final-state`.
pub fn final_state(history: &History, dumps: &[(String, Edn)], rules: &[Expr], examples: usize) -> Findings {
    let mut findings = Findings::new(examples);
    if rules.is_empty() {
        findings.undecided(Why::Other("no expression says what should hold in the end (--holds EXPR)".into()));
        return findings;
    }
    for (name, content) in dumps {
        findings.coverage.count("dump", Status::Ok, 1);
        judge(name, content, &[], rules, &mut findings);
    }
    if dumps.is_empty() {
        match last_reads(history) {
            Ok((content, ops)) => {
                findings.coverage.count("read", Status::Ok, ops.len() as u64);
                judge("the last read", &content, &ops, rules, &mut findings);
            }
            Err(why) => findings.undecided(Why::Other(why)),
        }
        let mut reads = names_of_reads();
        let open = history.clients().filter(|op| ended(op) == Status::Info && !reads.of(op)).count() as u64;
        if open > 0 {
            findings.fact("operations of unknown outcome, which the last read may not show", Fact::Count(open));
        }
    }
    findings.coverage.keys = 1;
    findings.coverage.keys_decided = u64::from(findings.why().is_none());
    findings
}

fn judge(name: &str, content: &Edn, ops: &[OpId], rules: &[Expr], findings: &mut Findings) {
    let state = State::new(content, rules);
    for rule in rules {
        match rule.truth(&state) {
            Truth::True => findings.fact(format!("{name}: {}", rule.source()), Fact::Text("holds".into())),
            Truth::False => findings.violation("final-state", || {
                let seen: Vec<String> = rule
                    .names()
                    .into_iter()
                    .map(|name| format!("{} is {}", name.join("."), state.shown(name)))
                    .collect();
                Example::new(ops.iter().copied(), format!("{name}: {} is false: {}", rule.source(), seen.join(", ")))
            }),
            Truth::Unknown(why) => {
                findings.undecided(Why::Other(format!("{name}: {} cannot be decided: {why}", rule.source())));
            }
        }
    }
}

fn names_of_reads() -> ByName<bool> {
    ByName::new(|name| matches!(name, "read" | "r" | "get" | "read-all" | "value" | "dump"), false)
}

/// The last acknowledged read, by key where there are keys, and which operations they are.
fn last_reads(history: &History) -> Result<(Edn, Vec<OpId>), String> {
    // By key: when the last operation other than a read was acknowledged, and the last read.
    let mut wrote: HashMap<Scalar, u64, FixedState> = HashMap::default();
    let mut last: HashMap<Scalar, OpRef<'_>, FixedState> = HashMap::default();
    let (mut order, mut reads) = (Vec::new(), names_of_reads());
    for op in history.clients().filter(|op| ended(op) == Status::Ok) {
        if reads.of(&op) {
            if last.insert(op.key(), op).is_none() {
                order.push(op.key());
            }
        } else {
            let at = wrote.entry(op.key()).or_default();
            *at = (*at).max(op.complete_index().unwrap_or(0));
        }
    }
    if order.is_empty() {
        return Err("nothing was read, and there is no dump (--final FILE)".into());
    }
    let mut entries = Vec::new();
    let mut ops = Vec::new();
    for key in order {
        let op = &last[&key];
        let written = [key, Scalar::Nil].into_iter().filter_map(|key| wrote.get(&key)).max();
        if written.is_some_and(|&at| at > op.index()) {
            return Err(format!(
                "the last read, op {}, was invoked before all acknowledged operations had ended, so it shows no final state: give a \
                 dump (--final FILE)",
                op.index()
            ));
        }
        let of = |text: String| elench_formats::edn::parse(&text).map_err(|e| e.to_string());
        let (mut text, mut name) = (String::new(), String::new());
        history.write_value(op.output(), &mut text);
        history.write_scalar(key, &mut name);
        ops.push(OpId(op.index()));
        entries.push((of(name)?, of(text)?));
    }
    match entries.as_slice() {
        [(Edn::Nil, value)] => Ok((value.clone(), ops)),
        _ => Ok((Edn::map(entries), ops)),
    }
}

/// A final state, with what rules ask of it.
struct State<'a> {
    content: &'a Edn,
    many: HashMap<Vec<String>, Many, FixedState>,
}

/// A collection: its size, and its numbers where all are.
struct Many {
    count: u64,
    numbers: Option<Numbers>,
}

impl Samples for Many {
    fn count(&self) -> u64 {
        self.count
    }

    fn quantile(&self, q: f64) -> Option<Value<'static>> {
        self.numbers.as_ref()?.quantile(q)
    }

    fn sum(&self) -> Option<Value<'static>> {
        self.numbers.as_ref()?.sum()
    }
}

impl<'a> State<'a> {
    fn new(content: &'a Edn, rules: &[Expr]) -> State<'a> {
        let mut many = HashMap::default();
        for name in rules.iter().flat_map(Expr::names) {
            let items: Option<Vec<&Edn>> = match at(content, name) {
                Some(Edn::Vector(items) | Edn::Set(items)) => Some(items.iter().collect()),
                Some(Edn::Map(entries)) => Some(entries.iter().map(|(_, value)| value).collect()),
                _ => None,
            };
            if let Some(items) = items {
                many.insert(name.to_vec(), Many { count: items.len() as u64, numbers: numbers(&items) });
            }
        }
        State { content, many }
    }

    fn shown(&self, name: &[String]) -> String {
        let text = at(self.content, name).map_or("not there".into(), Edn::to_edn);
        match text.char_indices().nth(200) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }
}

impl Names for State<'_> {
    fn value<'a>(&'a self, name: &[String]) -> Value<'a> {
        if let Some(many) = self.many.get(name) {
            return Value::Samples(many);
        }
        match at(self.content, name) {
            None => Value::Unknown(format!("there is no `{}`", name.join("."))),
            Some(value) => scalar(value),
        }
    }
}

fn scalar(value: &Edn) -> Value<'static> {
    let real = |x: Option<f64>| match x.filter(|x| !x.is_nan()) {
        Some(x) => Value::Real(x),
        None => Value::Unknown(format!("{} is no number to reckon with", value.to_edn())),
    };
    match value {
        Edn::Nil => Value::Nil,
        Edn::Bool(b) => Value::Bool(*b),
        Edn::Int(n) => Value::Int((*n).into()),
        Edn::BigInt(digits) => digits.parse().map_or_else(|_| real(digits.parse().ok()), Value::Int),
        Edn::Float(x) => real(Some(*x)),
        Edn::Decimal(digits) => real(digits.parse().ok()),
        Edn::Ratio(text) => {
            real(text.split_once('/').and_then(|(n, d)| Some(n.parse::<f64>().ok()? / d.parse::<f64>().ok()?)))
        }
        Edn::Str(text) | Edn::Keyword(text) | Edn::Symbol(text) => Value::Text(text.to_string()),
        other => Value::Unknown(format!("{} is neither number nor text", other.to_edn())),
    }
}

fn numbers(items: &[&Edn]) -> Option<Numbers> {
    let values: Vec<Value<'_>> = items.iter().map(|item| scalar(item)).collect();
    let ints: Option<Vec<i128>> = values.iter().map(|v| if let Value::Int(n) = v { Some(*n) } else { None }).collect();
    if let Some(ints) = ints {
        return Some(Numbers::of_ints(ints));
    }
    let real = |v: &Value<'_>| match v {
        Value::Int(n) => Some(*n as f64),
        Value::Real(x) => Some(*x),
        _ => None,
    };
    values.iter().map(real).collect::<Option<Vec<f64>>>().map(Numbers::of_reals)
}

/// What lies at a place.
fn at<'v>(content: &'v Edn, name: &[String]) -> Option<&'v Edn> {
    let mut parts = name;
    if let [first, rest @ ..] = name
        && first == "final"
        && step(content, first).is_none()
    {
        parts = rest;
    }
    parts.iter().try_fold(content, |value, part| step(value, part))
}

fn step<'v>(value: &'v Edn, part: &str) -> Option<&'v Edn> {
    let number: Option<i64> = part.parse().ok();
    match value {
        Edn::Map(entries) => {
            let fits = |key: &Edn| match key {
                Edn::Int(n) => number == Some(*n),
                Edn::Str(text) | Edn::Keyword(text) | Edn::Symbol(text) => &**text == part,
                _ => false,
            };
            entries.iter().find(|(key, _)| fits(key)).map(|(_, value)| value)
        }
        Edn::Vector(items) => items.get(usize::try_from(number?).ok()?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use elench_formats::build::{BuildOptions, Lift};
    use elench_formats::notation;

    use super::*;

    fn judged(text: &str, dumps: &[&str], rule: &str) -> Findings {
        let lift = if text.contains('[') { Lift::Always } else { Lift::Never };
        let h = notation::history_with(text, BuildOptions { lift, ..BuildOptions::default() }).unwrap();
        let dumps: Vec<(String, Edn)> = dumps
            .iter()
            .enumerate()
            .map(|(i, d)| (format!("dump {i}"), elench_formats::edn::parse(d).unwrap()))
            .collect();
        final_state(&h, &dumps, &[Expr::parse(rule).unwrap()], 3)
    }

    const BANK: &str = "{:accounts {:alice 60, \"bob-2\" 40}, :log [1 2 3], :leader \"n1\", 7 :seven}";

    #[test]
    fn a_dump_of_which_the_rule_is_true_is_valid_and_one_of_which_it_is_false_is_not() {
        for rule in [
            "sum(accounts) == 100 and min(final.accounts) >= 0",
            "accounts.\"bob-2\" == 40 and final.\"7\" == \"seven\" and log.2 == 3",
            "count(log) == 3 and max(log) == 3 and leader == \"n1\" and count(final) == 4",
        ] {
            let found = judged("", &[BANK], rule);
            assert!(found.is_valid(), "{rule}: {found:?}");
            let found = judged("", &[BANK], &format!("not ({rule})"));
            assert_eq!(found.count("final-state"), 1, "{rule}: {found:?}");
        }
        let found = judged("", &[BANK, "{:accounts {:alice 1}}"], "sum(accounts) == 100");
        assert_eq!(found.count("final-state"), 1);
        assert!(found.kinds()["final-state"].examples[0].text.contains("accounts is {:alice 1}"), "{found:?}");
    }

    #[test]
    fn what_is_not_there_is_unknown_and_masks_no_violation() {
        assert!(judged("", &[BANK], "carol > 0").why().is_some());
        assert!(judged("", &[BANK, "{:carol -1}"], "carol > 0").is_invalid());
        assert!(judged("", &[BANK], "sum(leader) > 0").why().is_some());
    }

    #[test]
    fn without_a_dump_the_last_read_counts_if_it_came_after_all_writes() {
        let after = "invoke 0 add 5 / ok 0 / invoke 1 read / ok 1 read 5";
        let found = judged(after, &[], "final == 5");
        assert!(found.is_valid(), "{found:?}");
        let found = judged(after, &[], "final == 6");
        assert_eq!(found.kinds()["final-state"].examples[0].ops, [OpId(2)]);
        for (text, why) in [
            ("invoke 0 add 5 / invoke 1 read / ok 1 read 0 / ok 0", "before all acknowledged"),
            ("invoke 0 add 5 / ok 0 / invoke 1 read / info 1", "nothing was read"),
        ] {
            let found = judged(text, &[], "final == 5");
            assert!(found.why().unwrap().to_string().contains(why), "{found:?}");
        }
        let keyed = "invoke 0 write [:x 5] / ok 0 / invoke 1 read [:x nil] / ok 1 read [:x 5] / invoke 1 read [:y nil] / ok 1 read [:y 2]";
        assert!(judged(keyed, &[], "x == 5 and sum(final) == 7").is_valid());
    }

    #[test]
    fn no_rule_is_no_answer() {
        let h = notation::history("invoke 0 read / ok 0 read 1").unwrap();
        assert!(final_state(&h, &[], &[], 3).why().is_some());
    }
}
