//! Did the fault land? Evidence from the injector's side and from a victim's, before and while it acts.
//!
//! Proven is what both sides show. One side alone is ambiguous, none is absent; that a command succeeded is no evidence at all.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};

use regex_lite::Regex;
use serde::Serialize;

use crate::experiment::injector::undo::run as run_command;
use crate::experiment::injector::{Injector, Observation};
use crate::experiment::scenario::{Signal, SliSource};
use crate::experiment::sli::{self, Phases, Slis};
use crate::verdict::Landing;

/// Bytes of a log that are looked at.
const MOST: u64 = 64 << 20;

/// What a signal shows at one moment, apart from SLIs of the history.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Sample {
    /// Numbers of commands and pages, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) values: BTreeMap<String, f64>,
    /// How long the log is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes: Option<u64>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trouble: Option<String>,
}

/// Where a signal looks, and for what: for a person.
pub(super) fn looks(signal: &Signal) -> String {
    let of = |name: &str, value: &Option<String>| value.as_ref().map(|v| format!(" {name} `{v}`")).unwrap_or_default();
    format!(
        "{}, a victim's side:{}{}{}{}{}",
        signal.signal,
        of("command", &signal.command),
        of("url", &signal.url),
        of("file", &signal.file),
        of("pattern", &signal.pattern),
        of("expr", &signal.expr)
    )
}

/// Takes a sample of each signal.
pub(super) fn sample(signals: &[Signal]) -> Vec<Sample> {
    signals.iter().map(one).collect()
}

fn one(signal: &Signal) -> Sample {
    let mut out = Sample::default();
    let of = |values: Result<BTreeMap<String, f64>, String>, out: &mut Sample| match values {
        Ok(values) => out.values = values,
        Err(why) => out.trouble = Some(why),
    };
    match signal.signal.as_str() {
        "command" => {
            let command = signal.command.clone().unwrap_or_default();
            let text = run_command(&["sh".into(), "-c".into(), command]);
            let value = |text: String| match text.trim().parse::<f64>() {
                Ok(n) => Ok(BTreeMap::from([("value".to_string(), n)])),
                Err(_) => Ok(sli::parse(&text)),
            };
            of(text.and_then(value), &mut out);
        }
        "http" => of(sli::ask(&SliSource::Http(signal.url.clone().unwrap_or_default())), &mut out),
        "log" => match std::fs::metadata(signal.file.as_deref().unwrap_or_default()) {
            Ok(meta) => out.bytes = Some(meta.len()),
            Err(e) => out.trouble = Some(e.to_string()),
        },
        _ => {}
    }
    out
}

/// What one signal shows.
#[derive(Clone, Debug, Serialize)]
pub struct Shown {
    /// The signal.
    pub signal: String,
    /// Whose side it is of.
    pub side: &'static str,
    /// Does it show the fault? `None`: it cannot be told.
    pub shows: Option<bool>,
    /// What was seen: before and during.
    pub seen: String,
}

/// Everything that may prove a fault.
pub(super) struct Seen<'a> {
    pub(super) injector: &'a dyn Injector,
    pub(super) observed: (&'a Observation, &'a Observation),
    pub(super) signals: &'a [Signal],
    pub(super) samples: (&'a [Sample], &'a [Sample]),
    pub(super) slis: (&'a Slis, &'a Slis),
}

/// Judges every signal; the first is the injector's own.
pub(super) fn judge(seen: &Seen<'_>) -> Vec<Shown> {
    let (landed, how) = seen.injector.landed(seen.observed.0, seen.observed.1);
    let mut out = vec![Shown { signal: "injector".into(), side: "injector", shows: Some(landed), seen: how }];
    for (i, signal) in seen.signals.iter().enumerate().filter(|(_, s)| !s.injector_side) {
        let empty = Sample::default();
        let (before, during) = (seen.samples.0.get(i).unwrap_or(&empty), seen.samples.1.get(i).unwrap_or(&empty));
        let (shows, told) = match signal.signal.as_str() {
            "sli" | "heartbeat" => by_expression(signal, seen.slis.0, seen.slis.1),
            "log" => in_log(signal, before),
            _ => {
                let of = |s: &Sample| Slis { values: s.values.clone(), latencies: Vec::new() };
                by_expression(signal, &of(before), &of(during))
            }
        };
        out.push(Shown { signal: signal.signal.clone(), side: "victim", shows, seen: told });
    }
    out
}

fn by_expression(signal: &Signal, before: &Slis, during: &Slis) -> (Option<bool>, String) {
    let Some(expr) = &signal.expr else { return (None, "the signal has no `expr`".into()) };
    let phases = Phases { of: vec![("before", before), ("during", during)] };
    match sli::judge(expr, &phases) {
        Err(why) => (None, why),
        Ok(judged) => {
            let names = sli::condition(expr).map(|e| e.names().into_iter().map(<[String]>::to_vec).collect::<Vec<_>>());
            let values = names.unwrap_or_default().into_iter().filter_map(|name| {
                let slis = if name.first().is_some_and(|p| p == "during") { during } else { before };
                let key =
                    name.iter().filter(|p| !matches!(p.as_str(), "before" | "during")).cloned().collect::<Vec<_>>();
                slis.values.get(&key.join(".")).map(|v| format!("{} = {v:.4}", name.join(".")))
            });
            let told: Vec<String> = values.collect();
            (
                judged.holds,
                format!("{expr}: {}{}", told.join(", "), judged.why.map_or(String::new(), |w| format!(" ({w})"))),
            )
        }
    }
}

/// Does a line that was written since the sample match?
fn in_log(signal: &Signal, before: &Sample) -> (Option<bool>, String) {
    let (Some(file), Some(pattern)) = (&signal.file, &signal.pattern) else {
        return (None, "a log signal needs `file` and `pattern`".into());
    };
    let pattern = match Regex::new(pattern) {
        Ok(pattern) => pattern,
        Err(e) => return (None, format!("`pattern`: {e}")),
    };
    match since(file, before.bytes.unwrap_or(0)) {
        Err(e) => (None, format!("{file}: {e}")),
        Ok(text) => match text.lines().find(|line| pattern.is_match(line)) {
            Some(line) => (Some(true), format!("{file}: {}", line.chars().take(200).collect::<String>())),
            None => (Some(false), format!("{file}: no new line matches")),
        },
    }
}

/// What was written to a file since it was so long.
pub(super) fn since(file: &str, bytes: u64) -> std::io::Result<String> {
    let mut file = std::fs::File::open(file)?;
    file.seek(SeekFrom::Start(bytes))?;
    let mut text = Vec::new();
    file.take(MOST).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The verdict on the landing, from all that was shown.
pub(super) fn verdict(shown: &[Shown]) -> Landing {
    let of = |side: &str, shows: bool| {
        shown
            .iter()
            .filter(|s| s.side == side && (s.shows == Some(true)) == shows)
            .map(|s| s.seen.clone())
            .collect::<Vec<_>>()
    };
    let (injector, victim) = (of("injector", true), of("victim", true));
    let not = |side| of(side, false).join("; ");
    match (injector.is_empty(), victim.is_empty()) {
        (false, false) => Landing::Proven(format!("{}; {}", injector.join("; "), victim.join("; "))),
        (false, true) if not("victim").is_empty() => Landing::Ambiguous(format!(
            "only the injector's side shows it ({}), no victim's signal is declared",
            injector.join("; ")
        )),
        (false, true) => Landing::Ambiguous(format!(
            "the injector's side shows it ({}), no victim's does: {}",
            injector.join("; "),
            not("victim")
        )),
        (true, false) => Landing::Ambiguous(format!(
            "a victim's side shows it ({}), the injector's does not: {}",
            victim.join("; "),
            not("injector")
        )),
        (true, true) => {
            Landing::Absent(format!("{}; {}", not("injector"), not("victim")).trim_end_matches("; ").to_string())
        }
    }
}

/// The verdict on all injections of a schedule: proven is what was injected as often as it was to be, and proven every time.
pub(super) fn of_rounds(landings: &[Landing], times: u64) -> Landing {
    if let ([one], 1) = (landings, times) {
        return one.clone();
    }
    let told = |(i, landing): (usize, &Landing)| {
        let (word, why) = match landing {
            Landing::Proven(why) => ("proven", why),
            Landing::Ambiguous(why) => ("ambiguous", why),
            Landing::Absent(why) => ("not proven", why),
        };
        format!("injection {}: {word}: {why}", i + 1)
    };
    let all: Vec<String> = landings.iter().enumerate().map(told).collect();
    let proven = landings.iter().filter(|l| matches!(l, Landing::Proven(_))).count();
    match landings {
        [] => Landing::Absent("nothing was injected".into()),
        _ if proven as u64 == times => Landing::Proven(all.join("; ")),
        _ if landings.iter().all(|l| matches!(l, Landing::Absent(_))) => Landing::Absent(all.join("; ")),
        _ => Landing::Ambiguous(format!("{proven} of {times} injections are proven; {}", all.join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_proven_when_every_injection_of_it_was_made_and_proven() {
        let (yes, half, no) =
            (|| Landing::Proven("p".into()), || Landing::Ambiguous("a".into()), || Landing::Absent("n".into()));
        assert_eq!(of_rounds(&[yes()], 1), yes());
        assert_eq!(of_rounds(&[half()], 1), half());
        assert!(matches!(of_rounds(&[yes(), yes(), yes()], 3), Landing::Proven(_)));
        assert!(matches!(of_rounds(&[yes(), yes()], 3), Landing::Ambiguous(why) if why.starts_with("2 of 3")));
        assert!(
            matches!(of_rounds(&[yes(), no(), yes()], 3), Landing::Ambiguous(why) if why.contains("injection 2: not proven"))
        );
        assert!(matches!(of_rounds(&[no(), no()], 2), Landing::Absent(_)));
        assert!(matches!(of_rounds(&[], 1), Landing::Absent(_)));
    }

    fn shown(side: &'static str, shows: Option<bool>) -> Shown {
        Shown { signal: "x".into(), side, shows, seen: format!("{side} {shows:?}") }
    }

    #[test]
    fn both_sides_prove_one_is_ambiguous_and_none_is_absent() {
        let of = |list: &[(&'static str, Option<bool>)]| {
            verdict(&list.iter().map(|(s, b)| shown(s, *b)).collect::<Vec<_>>())
        };
        assert!(matches!(
            of(&[("injector", Some(true)), ("victim", Some(false)), ("victim", Some(true))]),
            Landing::Proven(_)
        ));
        assert!(matches!(of(&[("injector", Some(true)), ("victim", Some(false))]), Landing::Ambiguous(_)));
        assert!(matches!(of(&[("injector", Some(true)), ("victim", None)]), Landing::Ambiguous(_)));
        assert!(matches!(of(&[("injector", Some(true))]), Landing::Ambiguous(_)));
        assert!(matches!(of(&[("injector", Some(false)), ("victim", Some(true))]), Landing::Ambiguous(_)));
        assert!(matches!(of(&[("injector", Some(false)), ("victim", Some(false))]), Landing::Absent(_)));
    }

    #[test]
    fn only_what_was_written_since_counts_in_a_log() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log").to_string_lossy().into_owned();
        std::fs::write(&file, "leader changed\n").unwrap();
        let signal = Signal {
            signal: "log".into(),
            expr: None,
            pattern: Some("leader changed".into()),
            file: Some(file.clone()),
            command: None,
            url: None,
            victim: None,
            injector_side: false,
        };
        let before = one(&signal);
        assert_eq!(in_log(&signal, &before).0, Some(false));
        std::fs::write(&file, "leader changed\nnode 2: leader changed\n").unwrap();
        assert_eq!(in_log(&signal, &before).0, Some(true));
    }
}
