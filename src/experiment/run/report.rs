//! A run, for a person.

use std::fmt::Write;

use elench_formats::History;
use serde_json::Value as Json;

use super::{Phase, Ran};
use crate::check::Report;
use crate::report::document;
use crate::verdict::Landing;
use crate::verdict::blame::Ground;

/// The result document of a report.
pub(super) fn document_of(report: &Report, history: &History) -> Json {
    document(report, history)
}

fn phase(name: &str, phase: &Phase, more: &str) -> String {
    let of = |sli: &str, unit: &str| phase.slis.values.get(sli).map_or("?".to_string(), |v| format!("{v:.3}{unit}"));
    let hold = match phase.held.as_ref().map(|j| j.holds) {
        Some(Some(true)) => "yes",
        Some(Some(false)) => "no",
        _ => "?",
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
    let recovered = ran.recovered_in_ms.map_or(String::new(), |ms| format!(" recovered_in={ms}ms"));
    let mut seen = vec![phase("before", &ran.phases[0], "")];
    if s.fault.is_some() && ran.rollback.is_some() {
        seen.push(phase("during", &ran.phases[1], ""));
    }
    seen.push(phase("after", &ran.phases[2], &recovered));
    let _ = writeln!(out, "observed:   {}", seen.join("   "));
    for shown in &ran.shown {
        let proven = match shown.shows {
            Some(true) => "PROVEN",
            Some(false) => "NOT PROVEN",
            None => "NOT TO BE TOLD",
        };
        let _ = writeln!(out, "landing:    {} ({}'s side): {}   {proven}", shown.signal, shown.side, shown.seen);
    }
    if s.fault.is_some() {
        let proven = if matches!(ran.landing, Landing::Proven(_)) { "PROVEN" } else { "NOT PROVEN" };
        let _ = writeln!(out, "landing:    {proven}");
    }
    if let Some(rollback) = &ran.rollback {
        let ok = if rollback.gone { "ok" } else { "FAILED" };
        let _ = writeln!(out, "rollback:   {ok}   elapsed={}ms", rollback.elapsed_ms);
    }
    if let Some(aborted) = &ran.aborted {
        let _ = writeln!(out, "aborted:    {aborted}");
    }
    match &ran.report {
        Some(report) => {
            let [ok, fail, info, pending] = report.ops;
            let names: Vec<&str> = report.findings.iter().map(|f| f.checker.name).collect();
            let _ = writeln!(
                out,
                "history:    {} ops ({ok}/{fail}/{})   checker: {}   {}",
                ok + fail + info + pending,
                info + pending,
                names.join(", "),
                report.valid
            );
        }
        None => {
            let _ = writeln!(out, "history:    not checked: {}", ran.unchecked.as_deref().unwrap_or("?"));
        }
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

/// `findings.md` of a run.
pub(super) fn findings(ran: &Ran, grounds: &[Ground]) -> String {
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
    let _ = writeln!(out, "\n## Scenario\n\n{}", ran.scenario.prose.trim());
    out
}
