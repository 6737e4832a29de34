//! A run, for a person.

use std::fmt::Write;

use elench_formats::History;
use serde_json::Value as Json;

use super::judge::{anomalies, consumed};
use super::{Phase, Ran, Whole};
use crate::check::Report;
use crate::report::document;
use crate::verdict::audit::{Answer, Audited};
use crate::verdict::blame::Ground;
use crate::verdict::{Facts, Landing};

/// The result document of a report.
pub(super) fn document_of(report: &Report, history: &History) -> Json {
    document(report, history)
}

fn phase(name: &str, phase: &Phase, more: &str) -> String {
    let of = |sli: &str, unit: &str| phase.slis.values.get(sli).map_or("?".to_string(), |v| format!("{v:.3}{unit}"));
    let hold = match phase.holds() {
        Some(true) => "yes",
        Some(false) => "no",
        None => "?",
    };
    format!("{name} p95={} err={} hold={hold}{more}", of("p95_latency_ms", "ms"), of("error_rate", ""))
}

/// What is printed at the end of a run.
pub fn summary(ran: &Ran) -> String {
    let s = &ran.scenario;
    let mut out = String::new();
    let _ = writeln!(out, "Chaos: {}", s.name);
    let injector = s.fault.as_ref().map_or("none", |f| f.name());
    let _ = writeln!(out, "injector: {injector}   target: {}   trust_level: {}", s.target, s.trust_level.name());
    let _ = writeln!(out, "blast_radius: {}%   rollback_after: {}s", s.blast_radius_pct, s.rollback_after_sec);
    let _ = writeln!(out, "steady_state: {}\n", s.steady_state);
    observed(ran, &mut out);
    landings(ran, &mut out);
    if let Some(aborted) = &ran.aborted {
        let _ = writeln!(out, "aborted:    {aborted}");
    }
    checked(ran, &mut out);
    for r in &ran.reduced {
        let fully = if r.fully { "" } else { ", not tried to the end" };
        let file = r.file.as_ref().map_or(String::new(), |f| format!(": {f}"));
        let unit = if r.file.is_some() { ("operations", "re-checks") } else { ("injections", "re-runs") };
        let _ = writeln!(
            out,
            "reduced:    {}: from {} {} to {}, over {} {}{fully}{file}",
            r.what, r.from, unit.0, r.to, r.rechecks, unit.1
        );
    }
    let held = match ran.steady_state_held() {
        Some(true) => "held",
        Some(false) => "VIOLATED",
        None => "not to be told",
    };
    let tier = ran.verdict.tier.map_or("none", |t| t.name());
    let _ = writeln!(out, "\nVERDICT: {}   steady state: {held}   tier: {tier}", ran.verdict.verdict);
    for because in &ran.verdict.because {
        let _ = writeln!(out, "because: {because}");
    }
    if let Some((blame, kind, severity)) = &ran.labels {
        let _ = writeln!(out, "blame: {blame}   type: {kind:?}   severity: {severity:?}");
    }
    let _ = writeln!(out, "RUN_ID: {}   evidence: {}", ran.run_id, ran.dir.display());
    out
}

/// The phases of each injection, on a line each.
fn observed(ran: &Ran, out: &mut String) {
    for round in &ran.rounds {
        let recovered = round.recovered_in_ms.map_or(String::new(), |ms| format!(" recovered_in={ms}ms"));
        let mut seen = vec![phase("before", &round.phases[0], "")];
        if round.rollback.is_some() {
            seen.push(phase("during", &round.phases[1], ""));
        }
        seen.push(phase("after", &round.phases[2], &recovered));
        let _ = writeln!(out, "observed:   {}", seen.join("   "));
    }
}

fn landings(ran: &Ran, out: &mut String) {
    for (i, round) in ran.rounds.iter().enumerate() {
        let which = if ran.rounds.len() > 1 { format!("{}: ", i + 1) } else { String::new() };
        for shown in &round.shown {
            let proven = match shown.shows {
                Some(true) => "PROVEN",
                Some(false) => "NOT PROVEN",
                None => "NOT TO BE TOLD",
            };
            let _ =
                writeln!(out, "landing:    {which}{} ({}'s side): {}   {proven}", shown.signal, shown.side, shown.seen);
        }
        if let Some(rollback) = &round.rollback {
            let ok = if rollback.gone { "ok" } else { "FAILED" };
            let _ = writeln!(out, "rollback:   {which}{ok}   elapsed={}ms", rollback.elapsed_ms);
        }
    }
    if ran.scenario.fault.is_some() {
        let proven = if matches!(ran.landing, Landing::Proven(_)) { "PROVEN" } else { "NOT PROVEN" };
        let times = ran.scenario.schedule.times;
        let made = ran.rounds.iter().filter(|r| matches!(r.landing, Some(Landing::Proven(_)))).count();
        let _ = writeln!(
            out,
            "landing:    {proven}{}",
            if times > 1 { format!(", {made} of {times} times") } else { String::new() }
        );
    }
}

fn checked(ran: &Ran, out: &mut String) {
    let Some(report) = ran.reports.first() else {
        let _ = writeln!(out, "history:    not checked: {}", ran.unchecked.as_deref().unwrap_or("?"));
        return;
    };
    let [ok, fail, info, pending] = report.ops;
    let names: Vec<String> = ran
        .reports
        .iter()
        .flat_map(|r| r.findings.iter().map(|f| format!("{} ({})", f.checker.name, r.valid)))
        .collect();
    let _ = writeln!(
        out,
        "history:    {} ops ({ok}/{fail}/{})   checker: {}   consumed {}   anomalies {}",
        ok + fail + info + pending,
        info + pending,
        names.join(", "),
        ran.reports.iter().map(consumed).max().unwrap_or(0),
        anomalies(&ran.reports)
    );
    if let Some(why) = &ran.unchecked {
        let _ = writeln!(out, "history:    not checked in full: {why}");
    }
}

/// What is printed after the runs of a scenario with arms.
pub fn arms(whole: &Whole) -> String {
    let mut out = String::new();
    for part in &whole.parts {
        let why = part.why.as_ref().map_or(String::new(), |why| format!("   {why}"));
        let _ = writeln!(out, "arm {}: {}{why}", part.name, part.verdict);
    }
    let _ = writeln!(out, "SCENARIO {}: {}", whole.name, whole.verdict);
    out
}

/// `findings.md` of a run.
pub(super) fn findings(ran: &Ran, facts: &Facts, grounds: &[Ground]) -> String {
    let mut out = format!("# {}\n\n```\n{}```\n", ran.scenario.name, summary(ran));
    if !grounds.is_empty() {
        out.push_str("\n## Grounds\n\n");
    }
    for ground in grounds {
        let answer = match ground.answer {
            Some(true) => "yes",
            Some(false) => "no",
            None => "not to be told",
        };
        let _ = writeln!(out, "- {}: {answer} ({})", ground.question.about(), ground.looked_at);
    }
    out.push_str("\n## Red flags\n\n");
    facts.red_flags.iter().for_each(|a| audited(a, a.item.about(), &mut out));
    out.push_str("\n## What it may not rest on alone\n\n");
    facts.weak_oracle.iter().for_each(|a| audited(a, a.item.about(), &mut out));
    let _ = writeln!(out, "\n## Scenario\n\n{}", ran.scenario.prose.trim());
    out
}

fn audited<T>(a: &Audited<T>, about: &str, out: &mut String) {
    let answer = match a.answer {
        Answer::Yes => "YES",
        Answer::No => "no",
        Answer::NotApplicable => "not applicable",
        Answer::Unchecked => "UNCHECKED",
    };
    let _ = writeln!(out, "- {about}: {answer} ({})", a.looked_at);
}
