//! Rules of a domain: what must not be done here, whatever a scenario says.
//!
//! `context.md` holds bullets that a machine reads, and prose that is shown and never interpreted:
//!
//! ```text
//! - deny target auth-*
//! - deny injector aws-fis
//! - deny window 08:00-18:00
//! - cap blast_radius_pct 50
//! - cap fault.latency_ms 400
//! ```
//!
//! A target is whatever the scenario names as one, and every value of its fault, those of a manifest that it names included: hosts, namespaces,
//! labels and pods. A cap on a duration counts milliseconds. What stands under a capped key and is no number is refused, as nobody knows
//! whether it is within.
//!
//! Times are UTC; a window may reach over midnight. A bullet that begins like a rule and is none is an error: a rule that nobody reads is
//! worse than none. A text that carries verdicts or results of earlier runs is refused, so that nobody who reviews a run is
//! prejudiced.

use super::config::glob;
use super::front::nearest;
use super::scenario::Draft;
use super::{Code, Refusal};
use crate::verdict::Verdict;

/// A rule.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// No target that matches.
    DenyTarget(String),
    /// No injector of this name.
    DenyInjector(String),
    /// Nothing between these minutes of a day, UTC.
    DenyWindow(u16, u16),
    /// No number above this under this key.
    Cap(String, f64),
}

/// A rule, and how it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// The rule.
    pub rule: Rule,
    /// Its text.
    pub text: String,
}

/// The rules of a `context.md`.
///
/// # Errors
/// A bullet that is nearly a rule, and a text that carries results.
pub fn parse(text: &str) -> Result<Vec<Written>, Refusal> {
    if let Some(found) = carries_results(text) {
        let why = format!("context.md holds only rules and reasons, and this one tells of results: `{found}`");
        return Err(Refusal::new(Code::ContextConflict, why));
    }
    let mut rules = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let Some(bullet) = line.trim_start().strip_prefix(['-', '*']).map(str::trim) else { continue };
        match rule(bullet) {
            Ok(Some(rule)) => rules.push(Written { rule, text: bullet.to_string() }),
            Ok(None) => {}
            Err(why) => {
                let why = format!("context.md, line {}: `{bullet}`: {why}", i + 1);
                return Err(Refusal::new(Code::ContextConflict, why));
            }
        }
    }
    Ok(rules)
}

/// `None`: prose.
fn rule(bullet: &str) -> Result<Option<Rule>, String> {
    let words: Vec<&str> = bullet.split_whitespace().collect();
    let first = words.first().map(|w| w.to_lowercase()).unwrap_or_default();
    match (first.as_str(), words.as_slice()) {
        ("deny", [_, "target", pattern]) => Ok(Some(Rule::DenyTarget((*pattern).into()))),
        ("deny", [_, "injector", name]) => Ok(Some(Rule::DenyInjector((*name).into()))),
        ("deny", [_, "window", span]) => window(span).map(|(a, b)| Some(Rule::DenyWindow(a, b))),
        ("deny", [_, kind, ..]) => {
            let hint = nearest(kind, &["target", "injector", "window"]);
            Err(hint.map_or("a deny names a target, an injector or a window".into(), |n| {
                format!("did you mean `deny {n}`?")
            }))
        }
        ("cap", [_, key, most]) => {
            let most: f64 = most.parse().map_err(|_| format!("`{most}` is no number"))?;
            Ok(Some(Rule::Cap((*key).into(), most)))
        }
        ("deny" | "cap", _) => {
            Err("it ends too early or says too much: `deny target PATTERN`, `cap KEY NUMBER`".into())
        }
        _ => Ok(None),
    }
}

/// Minutes of a day from `HH:MM-HH:MM`.
fn window(span: &str) -> Result<(u16, u16), String> {
    let minute = |text: &str| {
        let (h, m) = text.split_once(':')?;
        let (h, m) = (h.parse::<u16>().ok()?, m.parse::<u16>().ok()?);
        (h <= 24 && m < 60 && h * 60 + m <= 24 * 60).then_some(h * 60 + m)
    };
    let ends = span.split_once('-').and_then(|(a, b)| Some((minute(a)?, minute(b)?)));
    ends.ok_or_else(|| format!("`{span}` is no window: write HH:MM-HH:MM, in UTC"))
}

/// What in a text tells of an earlier run.
fn carries_results(text: &str) -> Option<String> {
    let lower = text.to_lowercase();
    let states = Verdict::ALL.iter().map(|v| v.name().to_lowercase());
    let phrases = [
        "verdict:",
        "run_id",
        "last run",
        "previous run",
        "earlier run",
        "has passed",
        "has failed",
        "violations found",
    ];
    let mut told = states.chain(phrases.iter().map(|p| p.to_string()));
    told.find(|t| lower.contains(t.as_str())).or_else(|| uuid(&lower))
}

/// The first run id in a text: 8-4-4-4-12 hexadecimal digits.
fn uuid(text: &str) -> Option<String> {
    let is_id = |word: &&str| {
        let parts: Vec<&str> = word.split('-').collect();
        let lengths: Vec<usize> = parts.iter().map(|p| p.len()).collect();
        lengths == [8, 4, 4, 4, 12] && parts.iter().all(|p| p.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).find(is_id).map(String::from)
}

/// Does a scenario keep to the rules, at this minute of a day (UTC)?
///
/// # Errors
/// The first rule that it breaks, with the key that breaks it.
pub fn judge(rules: &[Written], draft: &Draft<'_>, minute: u16) -> Result<(), Refusal> {
    let target = draft.text("target").unwrap_or_default();
    let fields = draft.fault_fields();
    for Written { rule, text } in rules {
        let conflict = match rule {
            Rule::DenyTarget(pattern) => {
                let hit = |name: &str| glob(pattern, name) || glob(pattern, host(name));
                let of = |(key, value): &&(String, String)| names_of(key, value).into_iter().any(hit);
                let within = fields.iter().find(of).map(|(key, _)| format!("fault.{key}"));
                hit(&target).then(|| "target".to_string()).or(within)
            }
            Rule::DenyInjector(name) => {
                values(&fields, "injector").any(|i| glob(name, i)).then(|| "fault.injector".into())
            }
            Rule::DenyWindow(from, to) => {
                let inside = if from <= to { (*from..*to).contains(&minute) } else { minute >= *from || minute < *to };
                inside.then(|| format!("the time of day, {:02}:{:02} UTC", minute / 60, minute % 60))
            }
            Rule::Cap(key, most) => {
                // What cannot be compared is not known to be within.
                let above = |value: &str| number(value).is_none_or(|v| v > *most);
                match key.strip_prefix("fault.") {
                    Some(inner) => values(&fields, inner).any(above).then(|| key.clone()),
                    None => draft.text(key).is_some_and(|v| above(&v)).then(|| key.clone()),
                }
            }
        };
        if let Some(key) = conflict {
            let why = format!("the rule `{text}` of context.md forbids `{key}` as the scenario has it");
            return Err(Refusal::new(Code::ContextConflict, why));
        }
    }
    Ok(())
}

/// What a key of a fault and its value name: a label is `name=value`, and pods are listed below the name of their namespace.
pub(super) fn names_of<'a>(key: &'a str, value: &'a str) -> Vec<&'a str> {
    let label = value.split_once('=').map(|(_, value)| value);
    let namespace = key.split_once("selector.pods.").map(|(_, namespace)| namespace);
    std::iter::once(value).chain(label).chain(namespace).collect()
}

/// A number, a share in percent, or a duration in milliseconds.
fn number(value: &str) -> Option<f64> {
    let value = value.trim().trim_end_matches('%');
    let units = [("ns", 1e-6), ("us", 1e-3), ("ms", 1.0), ("s", 1e3), ("m", 6e4), ("h", 3.6e6)];
    let timed = || units.iter().find_map(|(unit, ms)| Some(value.strip_suffix(unit)?.parse::<f64>().ok()? * ms));
    value.parse().ok().or_else(timed).filter(|n: &f64| !n.is_nan())
}

/// The values under a key.
fn values<'a>(fields: &'a [(String, String)], key: &'a str) -> impl Iterator<Item = &'a str> {
    fields.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
}

/// The host of `host:port`, of a URL, or the text itself.
pub(super) fn host(target: &str) -> &str {
    let rest = target.split_once("://").map_or(target, |(_, rest)| rest);
    let rest = rest.split(['/', '?']).next().unwrap_or(rest);
    let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    if let Some(inner) = rest.strip_prefix('[') {
        return inner.split(']').next().unwrap_or(inner);
    }
    match rest.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') && port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Vec<Written> {
        parse(text).unwrap()
    }

    fn draft() -> Draft<'static> {
        let text = "---\ntarget: auth-7:5432\nblast_radius_pct: 60\nfault: {injector: tc, latency_ms: 500}\n---\n";
        Draft::parse(text).unwrap()
    }

    #[test]
    fn each_kind_of_rule_refuses_what_breaks_it_and_names_rule_and_key() {
        for (rule, key) in [
            ("- deny target auth-*", "`target`"),
            ("- deny injector tc", "`fault.injector`"),
            ("- deny window 08:00-18:00", "12:00 UTC"),
            ("- deny window 22:00-13:00", "12:00 UTC"),
            ("- cap blast_radius_pct 50", "`blast_radius_pct`"),
            ("* cap fault.latency_ms 499", "`fault.latency_ms`"),
        ] {
            let refusal = judge(&rules(rule), &draft(), 12 * 60).unwrap_err();
            assert_eq!(refusal.code, Code::ContextConflict);
            assert!(refusal.why.contains(key) && refusal.why.contains(&rule[2..]), "{refusal}");
        }
    }

    #[test]
    fn what_stands_in_a_manifest_that_the_fault_names_is_held_to_the_rules_like_what_is_written_here() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("delay.yaml");
        let manifest = "apiVersion: chaos-mesh.org/v1alpha1\nkind: NetworkChaos\nmetadata: {name: x, namespace: shop}\nspec:\n  mode: all\n  action: delay\n  delay: {latency: 1s}\n  selector:\n    labelSelectors: {app: auth-7}\n    pods: {payments: [web-1]}\n";
        std::fs::write(&file, manifest).unwrap();
        let of = |fault: &str| {
            format!("---\ntarget: kube:kind\nfault: {{injector: chaos-mesh, context: kind, {fault}}}\n---\n")
        };
        let by_file = of(&format!("file: {}", file.display()));
        for rule in [
            "- deny target auth-*",
            "- deny target shop",
            "- deny target payments",
            "- deny target web-*",
            "- cap fault.spec.delay.latency 400",
        ] {
            let refusal = judge(&rules(rule), &Draft::parse(&by_file).unwrap(), 0).unwrap_err();
            assert!(refusal.code == Code::ContextConflict && refusal.why.contains(&rule[2..]), "{refusal}");
        }
        for rule in ["- deny target billing-*", "- cap fault.spec.delay.latency 1000"] {
            assert_eq!(judge(&rules(rule), &Draft::parse(&by_file).unwrap(), 0), Ok(()), "{rule}");
        }
        let written = of("kind: PodChaos, labels: [app=auth-7]");
        assert!(judge(&rules("- deny target auth-*"), &Draft::parse(&written).unwrap(), 0).is_err(), "a label's value");
        assert!(Draft::parse(&of("file: /no/such/file")).unwrap().unreadable().unwrap().contains("cannot read"));
    }

    #[test]
    fn what_a_cap_cannot_be_compared_with_is_refused() {
        let at = |value: &str| {
            let text = format!("---\ntarget: x\nfault: {{injector: tc, latency: {value}}}\n---\n");
            judge(&rules("- cap fault.latency 400"), &Draft::parse(&text).unwrap(), 0).is_ok()
        };
        assert!(at("400") && at("400ms") && at("0.4s") && at("40%"));
        assert!(!at("401") && !at("1s") && !at("much") && !at("1m"));
    }

    #[test]
    fn what_breaks_no_rule_goes_on() {
        let text = "Payments must not notice.\n- deny target web-*\n- deny window 13:00-14:00\n- cap blast_radius_pct 60\n- Be kind.\n";
        assert_eq!(rules(text).len(), 3);
        assert_eq!(judge(&rules(text), &draft(), 12 * 60), Ok(()));
    }

    #[test]
    fn a_bullet_that_is_nearly_a_rule_is_an_error() {
        for bullet in ["- deny", "- deny targets x", "- deny window 8-18", "- cap blast_radius_pct", "- cap x y"] {
            let refusal = parse(bullet).unwrap_err();
            assert!(refusal.why.contains("line 1"), "{refusal}");
        }
    }

    #[test]
    fn a_text_that_carries_results_is_refused() {
        for text in [
            "The last run showed nothing.",
            "- deny target x\nVerdict: fine",
            "It was PASS-hardening in May.",
            "see 123e4567-e89b-12d3-a456-426614174000",
        ] {
            assert_eq!(parse(text).unwrap_err().code, Code::ContextConflict, "{text}");
        }
    }

    #[test]
    fn hosts_are_found_in_all_ways_of_writing_a_target() {
        for (target, expected) in [
            ("db:5432", "db"),
            ("http://u@db.example:80/x", "db.example"),
            ("[::1]:80", "::1"),
            ("::1", "::1"),
            ("db", "db"),
        ] {
            assert_eq!(host(target), expected, "{target}");
        }
    }
}
