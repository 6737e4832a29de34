//! A report for a person, and the same for a program.

mod findings;

use std::fmt::Write;

use elench_checkers::linear::read::registers::{FailedCas, NilReads};
use elench_checkers::outcome::{Certificate, Coverage, OpId, Violation};
use elench_checkers::txn::explain::Explained;
use elench_formats::History;
use elench_formats::history::{KeyForm, Order, Status, is_read};
use serde_json::{Map, Value as Json, json};

use crate::certificate;
use crate::check::{Finding, Found, Linear, Report, Valid};
use crate::isolation::Isolation;

/// Digits in groups of three.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// `1 key`, `2 keys`.
pub fn counted(n: u64, one: &str) -> String {
    format!("{} {one}{}", thousands(n), if n == 1 { "" } else { "s" })
}

/// Nanoseconds as people write them.
pub fn nanoseconds(ns: i64) -> String {
    let seconds = ns as f64 / 1e9;
    match seconds {
        s if s >= 3600.0 => format!("{:.1} h", s / 3600.0),
        s if s >= 60.0 => format!("{:.1} min", s / 60.0),
        s if s >= 1.0 => format!("{s:.1} s"),
        s if s >= 1e-3 => format!("{:.1} ms", s * 1e3),
        s => format!("{:.0} µs", s * 1e6),
    }
}

/// Counts by outcome: `982 ok, 41 fail, 20 info`.
pub fn outcomes(counts: &[u64; 4]) -> String {
    let parts: Vec<_> = Status::ALL
        .iter()
        .filter(|s| counts[**s as usize] > 0)
        .map(|s| format!("{} {}", thousands(counts[*s as usize]), s.name()))
        .collect();
    if parts.is_empty() { "none".into() } else { parts.join(", ") }
}

/// The key of a problem, as EDN text.
fn key_text(linear: &Linear, key: Option<elench_checkers::outcome::KeyId>) -> Option<&str> {
    linear.case.keys.get(key?.0 as usize).map(|key| &**key)
}

/// The report for a person: a verdict line, then what it rests on.
pub fn human(report: &Report, history: &History, quiet: bool) -> String {
    let mut out = String::new();
    let word = match report.valid {
        Valid::Yes => "VALID",
        Valid::No => "INVALID",
        Valid::Unknown => "UNKNOWN",
    };
    let _ = writeln!(out, "{word:<8} {}", report.history);
    if let Some(why) = &report.why {
        let _ = writeln!(out, "  because    {why}");
    }
    if quiet {
        return out;
    }
    let _ = writeln!(out, "  history    {}", summary(history));
    let _ = writeln!(out, "  workload   {} ({})", report.workload.name, report.workload.why);
    keys_line(history, &mut out);
    faults_line(history, &mut out);
    for note in history
        .meta()
        .notes
        .iter()
        .chain(&history.meta().repairs)
        .chain(&history.meta().doubts)
        .chain(&history.meta().partial)
    {
        let _ = writeln!(out, "  note       {note}");
    }
    for finding in &report.findings {
        finding_lines(finding, history, &mut out);
    }
    if let Some(recorded) = &report.recorded {
        let agrees = match (report.valid, recorded.as_str()) {
            (Valid::Yes, "true") | (Valid::No, "false") => "as here",
            (Valid::Yes, "false") | (Valid::No, "true") => "which differs: other checkers may have judged there",
            _ => "not comparable",
        };
        let _ = writeln!(out, "  results    the run's own results.edn says :valid? {recorded}, {agrees}");
    }
    out
}

/// Format, counts, processes and span of a history, in a line.
pub fn summary(history: &History) -> String {
    let counts = history.counts();
    let mut text =
        format!("{}, {}: {}", history.meta().format, counted(counts.iter().sum(), "operation"), outcomes(&counts));
    if let Some(span) = span(history) {
        let _ = write!(text, "; {}", nanoseconds(span));
    }
    match history.meta().order {
        Order::Time => text.push_str("; ordered by time"),
        Order::Source if !history.meta().real_time => text.push_str("; no order of real time"),
        Order::Index | Order::Source => {}
    }
    text
}

/// Nanoseconds from the first to the last event.
pub fn span(history: &History) -> Option<i64> {
    let times = || history.ops().flat_map(|op| [op.invoke_time(), op.complete_time()]).flatten();
    Some(times().max()?.saturating_sub(times().min()?))
}

fn keys_line(history: &History, out: &mut String) {
    let meta = history.meta();
    let n = history.key_index().len() as u64;
    let keyless = history.key_index().keyless().len() as u64;
    if n > 0 && keyless > 0 {
        let _ =
            writeln!(out, "  keys       {} without a key, which belong to every key", counted(keyless, "operation"));
    }
    let _ = match meta.keys {
        KeyForm::Tuple => writeln!(out, "  keys       {}, lifted from [k v]: {}", thousands(n), meta.key_reason),
        KeyForm::Field => writeln!(out, "  keys       {}, from a field", thousands(n)),
        KeyForm::None if !meta.key_reason.is_empty() => {
            writeln!(out, "  keys       none lifted: {} (--independent lifts them)", meta.key_reason)
        }
        KeyForm::None => Ok(()),
    };
}

fn faults_line(history: &History, out: &mut String) {
    let faults = history.faults();
    if faults.is_empty() {
        return;
    }
    let mut by_f: Vec<(&str, u64)> = Vec::new();
    for w in faults {
        match by_f.iter_mut().find(|(f, _)| *f == w.f) {
            Some((_, n)) => *n += 1,
            None => by_f.push((&w.f, 1)),
        }
    }
    let list: Vec<_> = by_f.iter().map(|(f, n)| format!("{f} ×{n}")).collect();
    let _ = writeln!(
        out,
        "  faults     {} in the recording ({}); nothing here proves that they landed",
        counted(faults.len() as u64, "window"),
        list.join(", ")
    );
}

fn finding_lines(finding: &Finding, history: &History, out: &mut String) {
    let name = finding.checker.name;
    match &finding.result {
        Found::NotRun(why) => {
            let _ = writeln!(out, "  {name:<10} not run: {why}");
        }
        Found::Stats(stats) => {
            for f in &stats.by_f {
                let label = f.f.as_deref().unwrap_or("nil");
                let never = f.never_ok.as_ref().map_or(String::new(), |why| format!("   (never ok: {why})"));
                let _ = writeln!(out, "  {name:<10} {label:<12} {}{never}", outcomes(&f.counts));
            }
        }
        Found::Exceptions(groups) => {
            for g in groups.iter().take(5) {
                let _ = writeln!(out, "  {name:<10} {} ×{} (first: op {})", g.class, thousands(g.count), g.first);
            }
            if groups.len() > 5 {
                let _ = writeln!(out, "  {name:<10} and {}", counted(groups.len() as u64 - 5, "more class"));
            }
        }
        Found::Linear(linear) => linear_lines(name, linear, finding, history, out),
        Found::Isolation(found) => isolation_lines(name, found, finding, out),
        Found::Findings(found) => findings::lines(name, found, finding, out),
    }
}

fn linear_lines(name: &str, linear: &Linear, finding: &Finding, history: &History, out: &mut String) {
    let coverage = linear.outcome.coverage();
    let (valid, _) = finding.valid().unwrap_or((Valid::Unknown, None));
    let _ = writeln!(
        out,
        "  {name:<10} {valid}: model {}, {} of {} decided, {} consumed{}, {}",
        linear.case.model,
        thousands(coverage.keys_decided),
        counted(coverage.keys, "key"),
        counted(consumed(linear), "operation"),
        match (linear.k, linear.case.failed_cas) {
            (Some(k), _) => format!(", for k = {k}"),
            (None, FailedCas::Observed) => ", a failed cas saw another value".to_string(),
            (None, FailedCas::DidNotHappen) => String::new(),
        },
        nanoseconds(finding.elapsed.as_nanos().min(i64::MAX as u128) as i64),
    );
    if linear.case.silent_reads > 0 {
        let _ = writeln!(
            out,
            "             {} of nil {} taken to say nothing, as the register is never unset (--nil-reads unset counts them)",
            counted(linear.case.silent_reads, "ok read"),
            if linear.case.silent_reads == 1 { "is" } else { "are" },
        );
    }
    if linear.case.silent > 0 {
        let say = if linear.case.silent == 1 { "says" } else { "say" };
        let _ =
            writeln!(out, "             {} {say} nothing to this model", counted(linear.case.silent, "ok operation"));
    }
    for assumption in &linear.case.assumptions {
        let _ = writeln!(out, "             assumed: {assumption}");
    }
    for undecided in coverage.undecided.iter().take(5) {
        let key = key_text(linear, undecided.key).map_or(String::new(), |k| format!("key {k}: "));
        let _ = writeln!(out, "             undecided: {key}{} {}", undecided.why, undecided.known);
    }
    for violation in linear.outcome.violations() {
        let key = violation_key(linear, violation).map_or(String::new(), |k| format!(" on key {k}"));
        let _ = writeln!(out, "  {name:<10} {}{key}", violation.kind);
        for sentence in violation.explanation.split_inclusive(". ") {
            let _ = writeln!(out, "             {}", sentence.trim_end());
        }
        sub_history(history, violation, out);
    }
}

/// Examples of each kind of anomaly that are explained on a terminal.
const EXPLAINED: usize = 1;

fn isolation_lines(name: &str, found: &Isolation, finding: &Finding, out: &mut String) {
    let sizes = &found.result.sizes;
    let _ = writeln!(
        out,
        "  {name:<10} {}: {} as {}, {}, {}, {}",
        found.valid.0,
        found.workload,
        found.models(),
        counted(sizes.transactions, "transaction"),
        counted(sizes.keys, "key"),
        nanoseconds(finding.elapsed.as_nanos().min(i64::MAX as u128) as i64),
    );
    if let Some(limits) = found.limits() {
        let _ = writeln!(out, "             {limits}");
    }
    let not = found.boundary.not.names();
    if !not.is_empty() {
        let also = found.boundary.also_not.names();
        let also = if also.is_empty() { String::new() } else { format!(", and so not {}", also.join(", ")) };
        let _ = writeln!(out, "             not {}{also}", not.join(", "));
    }
    for (kind, anomaly) in found.listed() {
        let _ = writeln!(out, "  {name:<10} {} ×{}: {}", kind.name(), thousands(anomaly.count), kind.about());
        for example in anomaly.examples.iter().take(EXPLAINED) {
            match example {
                Explained::Case(case) => {
                    let _ = writeln!(out, "             {}", case.text);
                }
                Explained::Cycle(cycle) => cycle.told().for_each(|step| {
                    let _ = writeln!(out, "             {step}");
                }),
                Explained::Refutation(refutation) => refutation.told().for_each(|lemma| {
                    let _ = writeln!(out, "             {lemma}");
                }),
            }
        }
    }
    for mop in &found.result.unknown {
        let _ = writeln!(out, "             operation {} holds {}", mop.op.0, mop.why);
    }
}

fn isolation_json(found: &Isolation, history: &History, out: &mut Map<String, Json>) {
    out.insert("workload".into(), json!(found.workload));
    out.insert("consistency".into(), json!(found.demand.models.names()));
    out.insert("anomalies".into(), found.listed().map(|(kind, f)| (kind.name().to_string(), json!(f.count))).collect());
    out.insert("not".into(), json!(found.boundary.not.names()));
    out.insert("also_not".into(), json!(found.boundary.also_not.names()));
    out.insert("not_checked".into(), json!(found.unchecked.names()));
    if found.workload == "rw-register" {
        out.insert("assumed".into(), json!(found.assumptions.names()));
    }
    if let Some(initial) = &found.initial {
        out.insert("initial".into(), json!(initial));
    }
    if let Some(limits) = found.limits() {
        out.insert("limits".into(), json!(limits));
    }
    let violation = |kind: &str, example: &Explained| {
        json!({
            "kind": kind,
            "ops": ids(&example.ops()),
            "explanation": example.text(),
            "certificate": certificate::to_json(history, example),
        })
    };
    let violations = found.listed().flat_map(|(kind, f)| f.examples.iter().map(move |e| violation(kind.name(), e)));
    out.insert("violations".into(), violations.collect());
    let (sizes, coverage) = (&found.result.sizes, &found.result.coverage);
    let by_kind = coverage
        .ops
        .iter()
        .map(|((kind, status), n)| json!({ "f": kind, "status": format!("{status:?}").to_lowercase(), "count": n }));
    out.insert(
        "coverage".into(),
        json!({
            "ops_consumed": coverage.ops_consumed(),
            "by_kind": by_kind.collect::<Vec<_>>(),
            "micro_operations": sizes.micro_operations,
            "keys": sizes.keys,
            "keys_decided": sizes.keys,
            "undecided": found.result.unnamed.iter().map(|u| json!({
                "kind": u.kind.name(), "why": u.spent.to_string(),
            })).collect::<Vec<_>>(),
        }),
    );
    if let Some(order) = &found.result.order {
        out.insert(
            "certificate".into(),
            json!({ "kind": "serialization", "real_time": found.real_time, "order": ids(order) }),
        );
    }
}

/// Operations that were looked at: those that the search ran on, and those that were left out.
fn consumed(linear: &Linear) -> u64 {
    linear.outcome.coverage().ops_consumed() + linear.case.left_out.ops_consumed()
}

/// The key of a violation, as EDN text.
pub(crate) fn violation_key<'a>(linear: &'a Linear, violation: &Violation) -> Option<&'a str> {
    match &violation.certificate {
        Some(Certificate::Stuck(stuck)) => key_text(linear, stuck.key),
        _ => None,
    }
}

/// The smallest sub-history of a violation, an operation a line, as far as it is short.
fn sub_history(history: &History, violation: &Violation, out: &mut String) {
    let minimal = minimal(violation);
    if minimal.is_empty() || minimal.len() > 20 {
        return;
    }
    let mut rows: Vec<usize> = minimal.iter().filter_map(|id| history.row_of(id.0)).collect();
    rows.sort_unstable();
    for row in rows {
        let op = history.op(row);
        let mut value = String::new();
        let answered = !op.output().is_nil() || op.txn().is_some() || op.f().is_some_and(is_read);
        if op.status() == Status::Ok && answered {
            op.write_complete_value(&mut value);
        } else {
            op.write_invoke_value(&mut value);
        }
        let end = op.complete_index().map_or("…".into(), |i| i.to_string());
        let who = op.process().map_or(String::new(), |p| format!("process {p}"));
        let _ = writeln!(
            out,
            "             {:>8}–{end:<8} {who:<12} {:<6} {} {value}",
            op.index(),
            op.status().name(),
            op.f().unwrap_or("nil"),
        );
    }
}

/// The operations of the smallest sub-history that still shows a violation.
pub fn minimal(violation: &Violation) -> &[OpId] {
    match &violation.certificate {
        Some(Certificate::Stuck(stuck)) => &stuck.minimal,
        _ => &[],
    }
}

/// The result document: what `--json` prints. Fields may be added; those that are there keep their names and meaning.
pub fn document(report: &Report, history: &History) -> Json {
    let mut doc = json!({
        "history": report.history,
        "format": history.meta().container.as_ref().unwrap_or(&history.meta().format),
        "source_format": history.meta().format,
        "workload": report.workload.name,
        "workload_reason": report.workload.why,
        "valid": valid_json(report.valid),
        "ops": {
            "ok": report.ops[Status::Ok as usize],
            "fail": report.ops[Status::Fail as usize],
            "info": report.ops[Status::Info as usize] + report.ops[Status::Pending as usize],
        },
        "keys": { "form": history.meta().keys.name(), "reason": history.meta().key_reason },
        "order": history.meta().order.name(),
        "faults": history.faults().len(),
        "checkers": report.findings.iter().map(|f| finding_json(f, history)).collect::<Vec<_>>(),
    });
    if let (Some(recorded), Some(map)) = (&report.recorded, doc.as_object_mut()) {
        map.insert("results_edn_valid".into(), json!(recorded));
    }
    if let (Some(why), Some(map)) = (&report.why, doc.as_object_mut()) {
        map.insert("why".into(), json!(why));
    }
    let meta = history.meta();
    for (name, list) in [("notes", &meta.notes), ("repairs", &meta.repairs), ("doubts", &meta.doubts)] {
        if let (false, Some(map)) = (list.is_empty(), doc.as_object_mut()) {
            map.insert(name.into(), json!(list));
        }
    }
    doc
}

/// The document of a history that could not be checked.
pub fn error_document(history: &str, error: &str) -> Json {
    json!({ "history": history, "valid": "unknown", "error": error, "why": error })
}

/// `true`, `false` or `"unknown"`.
pub fn valid_json(valid: Valid) -> Json {
    match valid {
        Valid::Yes => json!(true),
        Valid::No => json!(false),
        Valid::Unknown => json!("unknown"),
    }
}

fn finding_json(finding: &Finding, history: &History) -> Json {
    let mut out = Map::new();
    out.insert("name".into(), json!(finding.checker.name));
    if let Some((valid, why)) = finding.valid() {
        out.insert("valid".into(), valid_json(valid));
        if let Some(why) = why {
            out.insert("why".into(), json!(why));
        }
    }
    match &finding.result {
        Found::NotRun(why) => {
            out.insert("why".into(), json!(why));
        }
        Found::Stats(stats) => {
            let by_f = stats.by_f.iter().map(|f| {
                let mut counts = Map::new();
                counts.insert("f".into(), json!(f.f));
                counts.insert("count".into(), json!(f.total()));
                if let Some(why) = &f.never_ok {
                    counts.insert("never_ok".into(), json!(why));
                }
                Status::ALL.iter().for_each(|s| {
                    counts.insert(s.name().into(), json!(f.with(*s)));
                });
                Json::Object(counts)
            });
            out.insert("by_f".into(), by_f.collect());
            out.insert("never_ok".into(), stats.never_ok().map(|f| json!(f.f)).collect());
        }
        Found::Exceptions(groups) => {
            let groups = groups.iter().map(|g| {
                json!({ "class": g.class, "count": g.count, "first": g.first, "example": g.example,
                        "ok": g.by_status[0], "fail": g.by_status[1], "info": g.by_status[2] + g.by_status[3] })
            });
            out.insert("groups".into(), groups.collect());
        }
        Found::Linear(linear) => linear_json(linear, &mut out),
        Found::Isolation(found) => isolation_json(found, history, &mut out),
        Found::Findings(found) => findings::json(found, &mut out),
    }
    out.insert("elapsed_ms".into(), json!((finding.elapsed.as_secs_f64() * 1e5).round() / 1e2));
    Json::Object(out)
}

fn linear_json(linear: &Linear, out: &mut Map<String, Json>) {
    let violations = linear.outcome.violations();
    let mut anomalies: Map<String, Json> = Map::new();
    for v in violations {
        let n = anomalies.get(v.kind).and_then(Json::as_u64).unwrap_or(0) + 1;
        anomalies.insert(v.kind.into(), json!(n));
    }
    out.insert("model".into(), json!(linear.case.model));
    out.insert("initial".into(), json!(linear.initial.to_edn()));
    if let Some(k) = linear.k {
        out.insert("k".into(), json!(k));
    }
    let nil_reads = match linear.nil_reads {
        NilReads::IfPossible => "if-possible",
        NilReads::Unset => "unset",
        NilReads::SayNothing => "say-nothing",
    };
    out.insert("nil_reads".into(), json!(nil_reads));
    out.insert(
        "failed_cas".into(),
        json!(match linear.case.failed_cas {
            FailedCas::DidNotHappen => "did-not-happen",
            FailedCas::Observed => "observed",
        }),
    );
    out.insert("anomalies".into(), Json::Object(anomalies));
    out.insert("violations".into(), violations.iter().map(|v| violation_json(v, linear)).collect());
    out.insert("silent_nil_reads".into(), json!(linear.case.silent_reads));
    out.insert("silent_ops".into(), json!(linear.case.silent));
    out.insert("assumptions".into(), json!(linear.case.assumptions));
    out.insert("coverage".into(), coverage_json(linear));
    if let elench_checkers::outcome::Answer::Valid(Some(Certificate::Orders(orders))) = linear.outcome.answer() {
        let orders = orders.iter().map(|o| {
            let ids = o.order.as_ref().map(|ids| ids.iter().map(|id| id.0).collect::<Vec<_>>());
            json!({ "key": key_text(linear, o.key), "order": ids })
        });
        out.insert("certificate".into(), json!({ "kind": "linearization", "orders": orders.collect::<Vec<_>>() }));
    }
}

fn ids(list: &[OpId]) -> Json {
    list.iter().map(|id| json!(id.0)).collect()
}

fn violation_json(violation: &Violation, linear: &Linear) -> Json {
    let certificate = match &violation.certificate {
        Some(Certificate::Stuck(stuck)) => json!({
            "kind": "stuck",
            "key": key_text(linear, stuck.key),
            "op": stuck.op.0,
            "survivors": stuck.survivors,
            "last_configurations": stuck.dead_ends.iter().map(|d| json!({
                "state": d.state,
                "applied": ids(&d.applied),
                "blocked": d.blocked.iter().map(|(op, why)| json!({ "op": op.0, "why": why })).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
            "core": ids(&stuck.core),
            "minimal": ids(&stuck.minimal),
            "rechecks": stuck.rechecks,
        }),
        _ => json!({}),
    };
    json!({
        "kind": violation.kind,
        "ops": ids(&violation.ops),
        "explanation": violation.explanation,
        "certificate": certificate,
    })
}

fn coverage_json(linear: &Linear) -> Json {
    let coverage = linear.outcome.coverage();
    let by = |c: &Coverage| {
        c.ops
            .iter()
            .map(|((kind, status), n)| json!({ "f": kind, "status": format!("{status:?}").to_lowercase(), "count": n }))
            .collect::<Vec<_>>()
    };
    let mut kinds = by(coverage);
    kinds.extend(by(&linear.case.left_out));
    json!({
        "ops_consumed": consumed(linear),
        "by_kind": kinds,
        "keys": coverage.keys,
        "keys_decided": coverage.keys_decided,
        "decided_by": coverage.methods.iter().map(|(m, n)| (m.name().to_string(), json!(n))).collect::<serde_json::Map<_, _>>(),
        "undecided": coverage.undecided.iter().map(|u| json!({
            "key": key_text(linear, u.key), "why": u.why.to_string(), "known": u.known,
        })).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(thousands(999), "999");
        assert_eq!(counted(1, "key"), "1 key");
        assert_eq!(nanoseconds(61_300_000_000), "1.0 min");
        assert_eq!(nanoseconds(12_345_678), "12.3 ms");
    }
}
