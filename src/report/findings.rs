//! Reports of the checkers that answer with [`Findings`].

use std::fmt::Write;

use elench_checkers::findings::{Fact, Findings, Quantiles, Weight};
use serde_json::{Map, Value as Json, json};

use super::{counted, ids, nanoseconds, thousands};
use crate::check::{Finding, Valid};

/// Examples of each kind that are told on a terminal, and rows of a table.
const TOLD: usize = 2;
const ROWS: usize = 12;

pub(super) fn lines(name: &str, found: &Findings, finding: &Finding, out: &mut String) {
    let coverage = &found.coverage;
    let took = nanoseconds(finding.elapsed.as_nanos().min(i64::MAX as u128) as i64);
    let keys = if coverage.keys > 1 {
        format!(", {} of {} decided", thousands(coverage.keys_decided), counted(coverage.keys, "key"))
    } else {
        String::new()
    };
    let consumed = counted(coverage.ops_consumed(), "operation");
    match finding.valid() {
        Some((Valid::Unknown, Some(why))) => {
            let _ = writeln!(out, "  {name:<10} unknown: {why}; {consumed} consumed{keys}, {took}");
        }
        Some((valid, _)) => {
            let _ = writeln!(out, "  {name:<10} {valid}: {consumed} consumed{keys}, {took}");
        }
        None => {
            let _ = writeln!(out, "  {name:<10} {consumed}, {took}");
        }
    }
    for (fact, value) in found.facts() {
        fact_lines(fact, value, out);
    }
    for (kind, all) in found.kinds() {
        let noted = if all.weight == Weight::Note { " (noted)" } else { "" };
        let _ = writeln!(out, "  {name:<10} {kind} ×{}{noted}", thousands(all.count));
        for example in all.examples.iter().take(TOLD) {
            let key = example.key.as_ref().map_or(String::new(), |key| format!("key {key}: "));
            let _ = writeln!(out, "             {key}{}", example.text);
        }
    }
    for undecided in coverage.undecided.iter().take(TOLD) {
        let _ = writeln!(out, "             undecided: {} {}", undecided.why, undecided.known);
    }
}

fn fact_lines(name: &str, fact: &Fact, out: &mut String) {
    if let Fact::Table(table) = fact {
        let _ = writeln!(out, "             {name}: {}", table.columns.join(" | "));
        for row in table.rows.iter().take(ROWS) {
            let cells: Vec<_> = row.iter().map(in_words).collect();
            let _ = writeln!(out, "               {}", cells.join(" | "));
        }
        if table.rows.len() > ROWS {
            let _ = writeln!(out, "               and {}", counted((table.rows.len() - ROWS) as u64, "more row"));
        }
        return;
    }
    let _ = writeln!(out, "             {name}: {}", in_words(fact));
}

fn in_words(fact: &Fact) -> String {
    match fact {
        Fact::Count(n) => thousands(*n),
        Fact::Int(n) => n.to_string(),
        Fact::Real(x) => format!("{x:.4}"),
        Fact::Text(text) => text.clone(),
        Fact::Nanos(ns) => nanoseconds(*ns),
        Fact::Quantiles(q) => {
            let of = |(part, ns): &(u16, u64)| format!("{} {}", quantile(*part), nanoseconds(*ns as i64));
            let list: Vec<_> = q.at.iter().map(of).collect();
            format!("{} ({} of them)", list.join(", "), thousands(q.count))
        }
        Fact::Table(table) => counted(table.rows.len() as u64, "row"),
    }
}

/// The name of a quantile, from parts per thousand.
fn quantile(part: u16) -> String {
    match part {
        0 => "min".into(),
        500 => "median".into(),
        1000 => "max".into(),
        part if part.is_multiple_of(10) => format!("p{}", part / 10),
        part => format!("p{}.{}", part / 10, part % 10),
    }
}

pub(super) fn json(found: &Findings, out: &mut Map<String, Json>) {
    let of = |weight: Weight| found.kinds().iter().filter(move |(_, kind)| kind.weight == weight);
    let counts = |weight| of(weight).map(|(name, kind)| (name.to_string(), json!(kind.count))).collect::<Map<_, _>>();
    out.insert("anomalies".into(), Json::Object(counts(Weight::Violation)));
    out.insert("noted".into(), Json::Object(counts(Weight::Note)));
    let examples = |weight| -> Json {
        let all = of(weight).flat_map(|(name, kind)| kind.examples.iter().map(move |e| (name, e)));
        let example = |(name, e): (&&str, &elench_checkers::findings::Example)| {
            let mut example = json!({ "kind": name, "ops": ids(&e.ops), "explanation": e.text, "certificate": {} });
            if let (Some(key), Some(map)) = (&e.key, example.as_object_mut()) {
                map.insert("key".into(), json!(key));
            }
            example
        };
        all.map(example).collect()
    };
    out.insert("violations".into(), examples(Weight::Violation));
    out.insert("notes".into(), examples(Weight::Note));
    let facts = found.facts().iter().map(|(name, fact)| (name.clone(), value(fact)));
    out.insert("facts".into(), Json::Object(facts.collect()));
    let coverage = &found.coverage;
    let by_kind = coverage
        .ops
        .iter()
        .map(|((kind, status), n)| json!({ "f": kind, "status": format!("{status:?}").to_lowercase(), "count": n }));
    out.insert(
        "coverage".into(),
        json!({
            "ops_consumed": coverage.ops_consumed(),
            "by_kind": by_kind.collect::<Vec<_>>(),
            "keys": coverage.keys,
            "keys_decided": coverage.keys_decided,
            "undecided": coverage.undecided.iter().map(|u| json!({
                "key": u.key.map(|k| k.0), "why": u.why.to_string(), "known": u.known,
            })).collect::<Vec<_>>(),
        }),
    );
}

fn value(fact: &Fact) -> Json {
    match fact {
        Fact::Count(n) => json!(n),
        Fact::Int(n) => i64::try_from(*n).map_or_else(|_| json!(n.to_string()), |n| json!(n)),
        Fact::Real(x) => json!(x),
        Fact::Text(text) => json!(text),
        Fact::Nanos(ns) => json!({ "nanoseconds": ns }),
        Fact::Quantiles(Quantiles { count, at }) => {
            let at = at.iter().map(|(part, ns)| (format!("{}", f64::from(*part) / 1000.0), json!(ns)));
            json!({ "count": count, "nanoseconds": at.collect::<Map<_, _>>() })
        }
        Fact::Table(table) => {
            let row = |row: &Vec<Fact>| -> Json {
                Json::Object(table.columns.iter().cloned().zip(row.iter().map(value)).collect())
            };
            table.rows.iter().map(row).collect()
        }
    }
}
