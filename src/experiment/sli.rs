//! What can be measured of a system while clients use it, and does what must hold hold?
//!
//! A [`Window`] is a stretch of the recorded history, by the history's own clock: from it come latencies, rates and shares, over all
//! operations, of one function (`read.p95_latency_ms`) or of one node (`node.n1.error_rate`). Other names come from a page in
//! Prometheus' text form or JSON, or from a command that prints `name value` lines or JSON.
//!
//! Conditions are expressions of the one language ([`elench_checkers::expr`]). `p95_latency_ms during` is what `during.p95_latency_ms` is:
//! the same SLI in another window. What cannot be measured is unknown, never zero.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use elench_checkers::expr::{Expr, Names, Truth, Value};
use elench_formats::History;
use elench_formats::history::Status;
use elench_formats::open::{Format, OpenOptions, open};
use hdrhistogram::Histogram;
use regex_lite::Regex;
use serde::Serialize;
use serde_json::Value as Json;

use super::scenario::SliSource;

/// A stretch of a history: operations that ended after one time and not after another, both in nanoseconds of its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Window {
    /// Later than this.
    pub after: i64,
    /// And no later than this.
    pub until: i64,
}

/// What was measured, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Slis {
    /// Name and value.
    pub values: BTreeMap<String, f64>,
    /// Latencies of acknowledged operations, in nanoseconds: upper ends of buckets and how many lie in each.
    pub latencies: Vec<(u64, u64)>,
}

/// What is counted of a group of operations.
#[derive(Default)]
struct Group {
    ok: u64,
    fail: u64,
    unknown: u64,
    latencies: Option<Histogram<u64>>,
}

impl Group {
    fn add(&mut self, status: Status, latency: Option<i64>) {
        match status {
            Status::Ok => self.ok += 1,
            Status::Fail => self.fail += 1,
            Status::Info | Status::Pending => self.unknown += 1,
        }
        if let (Status::Ok, Some(latency)) = (status, latency) {
            if self.latencies.is_none() {
                self.latencies = Histogram::new(3).ok();
            }
            if let Some(all) = &mut self.latencies {
                // It resizes itself, so that every duration has a place.
                let _ = all.record(latency.max(1).unsigned_abs());
            }
        }
    }

    fn tell(&self, prefix: &str, seconds: f64, out: &mut BTreeMap<String, f64>) {
        let all = self.ok + self.fail + self.unknown;
        let mut put = |name: &str, value: f64| {
            out.insert(format!("{prefix}{name}"), value);
        };
        put("ops", all as f64);
        put("ok", self.ok as f64);
        if all > 0 {
            put("error_rate", (self.fail + self.unknown) as f64 / all as f64);
            put("fail_rate", self.fail as f64 / all as f64);
            put("timeout_rate", self.unknown as f64 / all as f64);
        }
        if seconds > 0.0 {
            put("throughput", self.ok as f64 / seconds);
            put("ops_per_sec", all as f64 / seconds);
        }
        if let Some(latencies) = self.latencies.as_ref().filter(|l| !l.is_empty()) {
            for (name, q) in [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)] {
                put(&format!("{name}_latency_ms"), latencies.value_at_quantile(q) as f64 / 1e6);
            }
            put("max_latency_ms", latencies.max() as f64 / 1e6);
            put("mean_latency_ms", latencies.mean() / 1e6);
        }
    }
}

/// The greatest time in a history, by its clock; what a window ends at.
pub fn last_time(history: &History) -> i64 {
    history.ops().flat_map(|op| [op.invoke_time(), op.complete_time()]).flatten().max().unwrap_or(0)
}

/// Up to when a history is known. `recorded`: how many events had been recorded at what time of its clock, before the history was read. If it
/// holds all of these, nothing happened from its last event until then: a system that answers nobody is seen as such, and what came before is
/// not taken for all there is.
pub fn known_until(history: &History, recorded: Option<(u64, i64)>) -> i64 {
    let last = last_time(history);
    let held =
        history.ops().flat_map(|op| [Some(op.index()), op.complete_index()]).flatten().max().map_or(0, |i| i + 1);
    match recorded {
        Some((events, time)) if held >= events => last.max(time),
        _ => last,
    }
}

/// What clients saw in a window. An operation that has not ended is not in it, but for those invoked in it that have been open for longer
/// than `patience` at its end: these count as unknown.
pub fn measure(history: &History, window: Window, patience: Duration) -> Slis {
    let (mut all, mut of) = (Group::default(), BTreeMap::<String, Group>::new());
    let patience = i64::try_from(patience.as_nanos()).unwrap_or(i64::MAX);
    for op in history.clients() {
        let Some(invoked) = op.invoke_time() else { continue };
        let (status, latency) = match op.complete_time() {
            Some(ended) if ended > window.after && ended <= window.until => {
                (op.status(), Some(ended.saturating_sub(invoked)))
            }
            None if invoked > window.after && window.until.saturating_sub(invoked) > patience => {
                (Status::Pending, None)
            }
            _ => continue,
        };
        all.add(status, latency);
        if let Some(f) = op.f() {
            of.entry(format!("{f}.")).or_default().add(status, latency);
        }
        if let Some(node) = op.node() {
            of.entry(format!("node.{node}.")).or_default().add(status, latency);
        }
    }
    let seconds = window.until.saturating_sub(window.after) as f64 / 1e9;
    let mut slis = Slis::default();
    all.tell("", seconds, &mut slis.values);
    of.iter().for_each(|(prefix, group)| group.tell(prefix, seconds, &mut slis.values));
    if let Some(latencies) = &all.latencies {
        slis.latencies =
            latencies.iter_recorded().map(|b| (b.value_iterated_to(), b.count_since_last_iteration())).collect();
    }
    slis
}

/// Reads a history that may still be written: what is torn at its end is left out.
///
/// # Errors
/// It cannot be read.
pub fn read(path: &Path, format: Option<&str>) -> Result<History, String> {
    let options = OpenOptions { lenient: true, format: format.and_then(Format::from_name), ..OpenOptions::default() };
    open(&path.to_string_lossy(), &options, &|_, _| {}).map_err(|e| e.to_string())
}

/// Asks a source for everything it has.
///
/// # Errors
/// It does not answer, or what it answers is in no form that is known.
pub fn ask(source: &SliSource) -> Result<BTreeMap<String, f64>, String> {
    let text = match source {
        SliSource::Http(url) => {
            let response = minreq::get(url).with_timeout(5).send().map_err(|e| format!("{url}: {e}"))?;
            if response.status_code != 200 {
                return Err(format!("{url}: status {}", response.status_code));
            }
            response.as_str().map_err(|e| format!("{url}: {e}"))?.to_string()
        }
        SliSource::Command(command) => super::injector::undo::run(&["sh", "-c", command].map(String::from))?,
    };
    let values = parse(&text);
    if values.is_empty() { Err("the source of SLIs returned no number".into()) } else { Ok(values) }
}

/// Numbers by name, from JSON or from lines `name value`; labels of Prometheus become a part of the name.
pub fn parse(text: &str) -> BTreeMap<String, f64> {
    let mut out = BTreeMap::new();
    if let Ok(json) = serde_json::from_str::<Json>(text) {
        let mut todo = vec![(String::new(), &json)];
        while let Some((name, value)) = todo.pop() {
            let within = |key: &str| if name.is_empty() { key.to_string() } else { format!("{name}.{key}") };
            match value {
                Json::Object(entries) => todo.extend(entries.iter().map(|(k, v)| (within(k), v))),
                Json::Array(items) => todo.extend(items.iter().enumerate().map(|(i, v)| (within(&i.to_string()), v))),
                other => out.extend(other.as_f64().map(|n| (name, n))),
            }
        }
        return out;
    }
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
        // A timestamp may follow the value, and labels may hold spaces.
        let (name, rest) = match line.find('}') {
            Some(end) => line.split_at(end + 1),
            None => line.split_once([' ', '\t', '=']).unwrap_or((line, "")),
        };
        if let Some(value) =
            rest.split_whitespace().next().and_then(|v| v.parse::<f64>().ok()).filter(|v| v.is_finite())
        {
            out.insert(named(name), value);
        }
    }
    out
}

/// `http_requests{code="200",method="get"}` as a dotted name: `http_requests.code.200.method.get`.
fn named(name: &str) -> String {
    let word = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '.');
    let parts: Vec<&str> = name.split(|c| !word(c)).filter(|p| !p.is_empty()).collect();
    parts.join(".")
}

/// SLIs of several windows, as names.
#[derive(Clone, Debug, Default)]
pub struct Phases<'a> {
    /// `before`, `during`, `after`; a name without one means the first of these.
    pub of: Vec<(&'a str, &'a Slis)>,
}

impl Names for Phases<'_> {
    fn value<'a>(&'a self, name: &[String]) -> Value<'a> {
        let named = name.first().and_then(|phase| self.of.iter().find(|(n, _)| n == phase));
        let (slis, rest) = match named {
            Some((_, slis)) => (Some(*slis), &name[1..]),
            None => (self.of.first().map(|(_, slis)| *slis), name),
        };
        let joined = rest.join(".");
        match slis.and_then(|s| s.values.get(&joined)) {
            Some(value) => Value::Real(*value),
            None => Value::Unknown(format!("`{}` was not measured", name.join("."))),
        }
    }
}

/// Parses a condition over windows: `NAME before` is `before.NAME`.
///
/// # Errors
/// Where it is none, with a caret.
pub fn condition(text: &str) -> Result<Expr, String> {
    let phased =
        Regex::new(r#"([A-Za-z_](?:[A-Za-z0-9_.:]|"[^"]*")*)\s+(before|during|after)\b"#).map_err(|e| e.to_string())?;
    let text = phased.replace_all(text, |c: &regex_lite::Captures<'_>| match c[1].to_lowercase().as_str() {
        "and" | "or" | "not" => c[0].to_string(),
        _ => format!("{}.{}", &c[2], &c[1]),
    });
    Expr::parse(&text).map_err(|e| e.to_string())
}

/// A condition, judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judged {
    /// The condition, as it was written.
    pub expr: String,
    /// Does it hold? `None`: it cannot be told.
    pub holds: Option<bool>,
    /// Why it cannot be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Judges a condition.
///
/// # Errors
/// It is none.
pub fn judge(text: &str, phases: &Phases<'_>) -> Result<Judged, String> {
    let (holds, why) = match condition(text)?.truth(phases) {
        Truth::True => (Some(true), None),
        Truth::False => (Some(false), None),
        Truth::Unknown(why) => (None, Some(why)),
    };
    Ok(Judged { expr: text.to_string(), holds, why })
}

#[cfg(test)]
mod tests {
    use elench_formats::notation::history;

    use super::*;

    fn slis(pairs: &[(&str, f64)]) -> Slis {
        Slis { values: pairs.iter().map(|(n, v)| (n.to_string(), *v)).collect(), latencies: vec![] }
    }

    #[test]
    fn a_window_holds_what_ended_in_it_and_what_has_been_open_for_too_long() {
        let ms = 1_000_000;
        let h = history(&format!(
            "invoke 0 read @{} / ok 0 read 1 @{} / invoke 1 write 2 @{} / fail 1 write 2 @{} / invoke 2 read @{} / invoke 0 read @{} / ok 0 read 1 @{}",
            ms, 11 * ms, 12 * ms, 13 * ms, 14 * ms, 100 * ms, 101 * ms
        ))
        .unwrap();
        let of = |after, until, patience| measure(&h, Window { after, until }, Duration::from_millis(patience));
        let all = of(0, 50 * ms, 20);
        assert_eq!((all.values["ops"], all.values["ok"]), (3.0, 1.0));
        assert!((all.values["timeout_rate"] - 1.0 / 3.0).abs() < 1e-9);
        assert!((all.values["read.p95_latency_ms"] - 10.0).abs() < 0.02);
        assert_eq!(of(0, 50 * ms, 60).values["ops"], 2.0, "it may still be answered");
        assert_eq!(of(50 * ms, 200 * ms, 20).values["ops"], 1.0);
        assert_eq!(of(200 * ms, 300 * ms, 20).values.get("error_rate"), None, "of nothing nothing is known");
    }

    #[test]
    fn a_history_is_known_until_now_only_if_it_holds_all_that_was_recorded() {
        let h = history("invoke 0 read @5 / ok 0 read 1 @7 / invoke 1 read @9").unwrap();
        assert_eq!(known_until(&h, None), 9);
        assert_eq!(known_until(&h, Some((3, 5_000))), 5_000, "nothing happened since");
        assert_eq!(known_until(&h, Some((4, 5_000))), 9, "one event is not on disk yet");
        assert_eq!(known_until(&h, Some((2, 8))), 9, "one more came while it was read");
        let still = Window { after: 9, until: known_until(&h, Some((3, 2_000_000_009))) };
        let slis = measure(&h, still, Duration::from_secs(1));
        assert_eq!((slis.values["ops"], slis.values["throughput"]), (0.0, 0.0));
        assert_eq!(slis.values.get("error_rate"), None);
    }

    #[test]
    fn conditions_compare_windows_and_what_was_not_measured_is_unknown() {
        let (before, during) =
            (slis(&[("timeout_rate", 0.01)]), slis(&[("timeout_rate", 0.2), ("p95_latency_ms", 9.0)]));
        let phases = Phases { of: vec![("before", &before), ("during", &during)] };
        let holds = |text: &str| judge(text, &phases).unwrap().holds;
        assert_eq!(holds("timeout_rate during > 10 * timeout_rate before"), Some(true));
        assert_eq!(holds("timeout_rate during > 30 * timeout_rate before"), Some(false));
        assert_eq!(holds("timeout_rate < 0.05 AND p95_latency_ms during < 10"), Some(true));
        assert_eq!(holds("nothing during > 1"), None);
        assert!(judge("timeout_rate <", &phases).unwrap_err().contains('^'));
    }

    #[test]
    fn numbers_are_read_from_prometheus_lines_and_json() {
        let text = "# HELP x y\nup 1\nreq{code=\"200\",m=\"a b\"} 7 1700000000\nbad NaN\n";
        let values = parse(text);
        assert_eq!((values["up"], values["req.code.200.m.a.b"], values.len()), (1.0, 7.0, 2));
        assert_eq!(parse("{\"a\": {\"b\": 2}, \"c\": [1, 5]}")["a.b"], 2.0);
        assert!(parse("no number here").is_empty());
    }
}
