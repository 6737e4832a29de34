//! What is to be tried: one scenario a file, registered before anything is touched.
//!
//! Markdown with YAML front matter; the prose is for people, the front matter is the contract. [`Draft`] holds what the perimeter
//! judges, whatever else is wrong; [`Draft::finish`] complains of all the rest at once.

use serde::Serialize;

use super::front::{Complaint, Datum, Fields, Node, split};
use super::injector::{Fault, chaos_mesh};
use crate::verdict::{Budget, Budgets};

/// How far the target is trusted to be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trust {
    /// Nobody depends on it.
    Sandbox,
    /// Few depend on it.
    Staging,
    /// Users depend on it, and somebody approved.
    ProductionAuthorized,
}

impl Trust {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Trust::Sandbox => "sandbox",
            Trust::Staging => "staging",
            Trust::ProductionAuthorized => "production-authorized",
        }
    }

    /// From its name.
    pub fn from_name(name: &str) -> Option<Trust> {
        [Trust::Sandbox, Trust::Staging, Trust::ProductionAuthorized].into_iter().find(|t| t.name() == name)
    }
}

/// Seconds of load at least that a fault is compared with.
pub const BASELINE_SEC: u64 = 3;

/// The only class of target that may be hit as a whole.
pub const SINGLE_SHARD: &str = "single-shard-sandbox";

/// What should prove that the fault landed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Signal {
    /// `process_state`, `counter`, `proxy`, `sli`, `log`, `http`, `command`, …
    pub signal: String,
    /// An expression over samples before, during and after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expr: Option<String>,
    /// A pattern to find in a log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// The log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// A command whose output is a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// A page of numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The victim that it looks at: a pid, a node, an address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub victim: Option<String>,
    /// Is it seen from the injector's side, rather than from a victim's?
    pub injector_side: bool,
}

/// What drives the system.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Workload {
    /// A built-in driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Or a command, run by `sh -c`, that writes the history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// What the driver does: `list-append`, `register`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Where it connects, besides the target: one address or more.
    pub endpoints: Vec<String>,
    /// Clients at once.
    pub clients: u64,
    /// Seconds.
    pub duration_sec: u64,
    /// Operations at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_ops: Option<u64>,
    /// Operations a second over all clients; `None`: as fast as answers come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Keys.
    pub keys: u64,
    /// Skew of the keys (Zipf's exponent); 0 is even.
    pub key_skew: f64,
    /// The seed.
    pub seed: u64,
    /// Isolation level of transactions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// What else the driver is told.
    pub options: Vec<(String, String)>,
}

/// What was recorded, and where.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recorded {
    /// The file.
    pub path: String,
    /// Its format, where content does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Fields that it promises to hold.
    pub fields: Vec<String>,
}

/// What judges the history.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checker {
    /// Its name.
    pub name: String,
    /// Flags of `elench check`, by name without the dashes.
    pub options: Vec<(String, String)>,
}

/// Where SLIs come from that the history does not tell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum SliSource {
    /// A page in Prometheus' text form, or JSON.
    Http(String),
    /// A command that prints `name value` lines or JSON.
    Command(String),
}

/// One way into the system, or one way of looking at it: a run of its own, with a checker and a verdict of its own.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Arm {
    /// Its name after the slash.
    pub name: String,
    /// What judges it.
    pub checkers: Vec<Checker>,
    /// What drives the system, where it is not what drives it for the whole scenario.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<Workload>,
    /// What that records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<Recorded>,
}

/// A scenario, whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scenario {
    /// A slug, after the claim it tries to falsify.
    pub name: String,
    /// Claims of a plan.
    pub falsifies: Vec<String>,
    /// What is perturbed.
    pub target: String,
    /// How far.
    pub trust_level: Trust,
    /// Of what class it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_class: Option<String>,
    /// The share that may be hit, 1 to 100.
    pub blast_radius_pct: u8,
    /// What must hold.
    pub steady_state: String,
    /// When the fault is gone, whatever happened.
    pub rollback_after_sec: u64,
    /// The approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change_ticket: Option<String>,
    /// What is broken; `None` for `fault: none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// Seconds of load before the fault, how long it lasts, and how often it comes.
    pub schedule: Schedule,
    /// What proves it.
    pub landing: Vec<Signal>,
    /// What drives the system.
    pub workload: Workload,
    /// What it records.
    pub history: Recorded,
    /// What judges.
    pub checkers: Vec<Checker>,
    /// Why a weaker oracle is enough, where there is no checker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oracle_justification: Option<String>,
    /// Conditions that end the experiment at once.
    pub abort_when: Vec<String>,
    /// Where SLIs come from besides the history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sli: Option<SliSource>,
    /// Logs of the system, to look for panics in.
    pub logs: Vec<String>,
    /// What tiers ask for.
    pub budgets: Budgets,
    /// Seeds to run with.
    pub seeds: Vec<u64>,
    /// Its arms.
    pub arms: Vec<Arm>,
    /// The prose.
    pub prose: String,
}

/// When the fault comes and goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Schedule {
    /// Seconds of load before it.
    pub after_sec: u64,
    /// Seconds that it lasts.
    pub for_sec: u64,
    /// How many times.
    pub times: u64,
}

/// What the perimeter judges: each value as it is written, whether or not the rest of the file is right.
#[derive(Clone, Debug)]
pub struct Draft<'a> {
    entries: Vec<(String, Node)>,
    prose: &'a str,
    /// What stands in a file that the fault names: it is the fault's as much as what is written here.
    object: Result<Vec<Node>, String>,
}

impl<'a> Draft<'a> {
    /// From the file's text.
    ///
    /// # Errors
    /// No front matter, or no YAML.
    pub fn parse(text: &'a str) -> Result<Draft<'a>, Complaint> {
        let (entries, prose) = split(text)?;
        let mut draft = Draft { entries, prose, object: Ok(Vec::new()) };
        let fields = draft.fault_fields();
        let of = |key: &str| fields.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
        if let (Some("chaos-mesh"), Some(file)) = (of("injector"), of("file")) {
            draft.object = chaos_mesh::contents(file);
        }
        Ok(draft)
    }

    /// Why a file that the fault names cannot be judged.
    pub fn unreadable(&self) -> Option<&str> {
        self.object.as_ref().err().map(String::as_str)
    }

    /// The value of a key at the top, if it is there and says something.
    pub fn get(&self, key: &str) -> Option<&Datum> {
        self.entries.iter().find(|(name, _)| name == key).map(|(_, n)| &n.datum).filter(|d| **d != Datum::Nil)
    }

    /// A text at the top; an empty one is none.
    pub fn text(&self, key: &str) -> Option<String> {
        match self.get(key)? {
            Datum::Text(text) if !text.trim().is_empty() => Some(text.trim().to_string()),
            Datum::Int(n) => Some(n.to_string()),
            Datum::Real(x) => Some(x.to_string()),
            _ => None,
        }
    }

    /// The names of the fault's keys and their values, as texts, for rules; those in a file that it names stand beside those written here.
    pub fn fault_fields(&self) -> Vec<(String, String)> {
        let mut out = Vec::new();
        let Some(written @ Datum::Map(_)) = self.get("fault") else { return out };
        let objects = self.object.iter().flatten().map(|n| &n.datum);
        let maps = std::iter::once(written).chain(objects).filter_map(|datum| match datum {
            Datum::Map(entries) => Some(entries),
            _ => None,
        });
        let mut todo: Vec<(String, &Datum)> = maps.flatten().map(|(k, n)| (k.clone(), &n.datum)).collect();
        while let Some((name, datum)) = todo.pop() {
            match datum {
                Datum::Map(inner) => todo.extend(inner.iter().map(|(k, n)| (format!("{name}.{k}"), &n.datum))),
                Datum::List(items) => todo.extend(items.iter().map(|n| (name.clone(), &n.datum))),
                Datum::Text(text) => out.push((name, text.clone())),
                Datum::Int(n) => out.push((name, n.to_string())),
                Datum::Real(x) => out.push((name, x.to_string())),
                Datum::Bool(b) => out.push((name, b.to_string())),
                Datum::Nil => {}
            }
        }
        out.sort();
        out
    }

    /// Where workloads connect, those of arms included: keys and addresses.
    pub fn endpoints(&self) -> Vec<(String, String)> {
        let child = |datum: &'_ Datum, key: &str| match datum {
            Datum::Map(entries) => entries.iter().find(|(name, _)| name == key).map(|(_, n)| n.datum.clone()),
            _ => None,
        };
        let arms = match self.get("arms") {
            Some(Datum::List(arms)) => arms.iter().map(|arm| arm.datum.clone()).collect(),
            Some(one) => vec![one.clone()],
            None => Vec::new(),
        };
        let own = self.get("workload").cloned().map(|w| ("workload".to_string(), w));
        let of_arms = arms.iter().filter_map(|arm| Some(("arms.workload".to_string(), child(arm, "workload")?)));
        let mut out = Vec::new();
        for (key, workload) in own.into_iter().chain(of_arms) {
            let listed = match child(&workload, "endpoints") {
                Some(Datum::List(items)) => items.into_iter().map(|n| n.datum).collect(),
                Some(one) => vec![one],
                None => Vec::new(),
            };
            let texts = listed.into_iter().filter_map(|d| if let Datum::Text(text) = d { Some(text) } else { None });
            out.extend(texts.map(|text| (format!("{key}.endpoints"), text)));
        }
        out
    }

    /// The scenario.
    ///
    /// # Errors
    /// Everything that is wrong with it, by line.
    pub fn finish(&self) -> Result<Scenario, Vec<Complaint>> {
        let mut wrong = Vec::new();
        let mut top = Fields::new("", &self.entries, 1);
        let scenario = self.take(&mut top, &mut wrong);
        top.finish(&mut wrong);
        wrong.sort_by_key(|c| c.line);
        match scenario {
            Some(scenario) if wrong.is_empty() => Ok(scenario),
            _ => Err(wrong),
        }
    }

    /// Takes everything that is known; what is missing is complained of.
    fn take(&self, top: &mut Fields<'_>, wrong: &mut Vec<Complaint>) -> Option<Scenario> {
        let name = need(top, "name", "is missing: a slug after the claim that it tries to falsify", wrong);
        if let Some(name) = name.as_ref().filter(|name| !is_slug(name)) {
            wrong.push(top.wrong("name", None, format_args!("is a slug of letters, digits, - and _, not `{name}`")));
        }
        let falsifies = top.texts("falsifies", wrong).unwrap_or_default();
        let target = need(top, "target", "is missing: the host, service or ARN that is perturbed", wrong);
        let trust = need(top, "trust_level", "is missing: sandbox, staging or production-authorized", wrong);
        let trust_level = trust.as_deref().and_then(Trust::from_name);
        if let (Some(given), None) = (&trust, trust_level) {
            wrong.push(top.wrong(
                "trust_level",
                None,
                format_args!("is sandbox, staging or production-authorized, not `{given}`"),
            ));
        }
        let target_class = top.text("target_class", wrong);
        let blast_radius_pct = top.count("blast_radius_pct", wrong).and_then(|n| u8::try_from(n).ok());
        let steady_state = need(top, "steady_state", "is missing: an expression over SLIs", wrong);
        let rollback_after_sec = top.count("rollback_after_sec", wrong);
        if rollback_after_sec.is_none() {
            wrong.push(top.wrong("rollback_after_sec", None, "is missing: seconds after which the fault is gone"));
        }
        let change_ticket = top.text("change-ticket", wrong);
        let (fault, schedule) = fault(top, wrong);
        let landing = top.maps("landing", wrong).into_iter().filter_map(|f| signal(f, wrong)).collect();
        let arms = arms(top, wrong);
        let own_workloads = !arms.is_empty() && arms.iter().all(|a| a.workload.is_some());
        let own_histories = !arms.is_empty() && arms.iter().all(|a| a.history.is_some());
        let workload = workload(top, own_workloads, wrong).or_else(|| arms.first()?.workload.clone());
        let history = recorded(top, own_histories, wrong).or_else(|| arms.first()?.history.clone());
        let checkers = checkers(top, wrong);
        let oracle_justification = top.text("oracle_justification", wrong);
        if checkers.is_empty() && oracle_justification.is_none() && arms.is_empty() {
            wrong.push(top.wrong("checker", None, "is missing: checkers, or `oracle_justification` in their stead"));
        }
        if !checkers.is_empty() && !arms.is_empty() {
            let node = top.get("checker");
            wrong.push(top.wrong("checker", node, "stands in each arm, where there are arms"));
        }
        if let (Some(w), true) = (&workload, schedule.times > 1) {
            long_enough(schedule, w, top, wrong);
        }
        let abort_when = top.texts("abort_when", wrong).unwrap_or_default();
        let sli = sli(top, wrong);
        let logs = top.texts("logs", wrong).unwrap_or_default();
        let budgets = budgets(top, wrong);
        let seeds = seeds(top, wrong);
        Some(Scenario {
            name: name?,
            falsifies,
            target: target?,
            trust_level: trust_level?,
            target_class,
            blast_radius_pct: blast_radius_pct?,
            steady_state: steady_state?,
            rollback_after_sec: rollback_after_sec?,
            change_ticket,
            fault: fault?,
            schedule,
            landing,
            workload: workload?,
            history: history?,
            checkers,
            oracle_justification,
            abort_when,
            sli,
            logs,
            budgets,
            seeds,
            arms,
            prose: self.prose.to_string(),
        })
    }
}

fn is_slug(name: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    !name.is_empty() && name.len() <= 120 && name.chars().all(fine)
}

fn need(fields: &mut Fields<'_>, key: &'static str, missing: &str, wrong: &mut Vec<Complaint>) -> Option<String> {
    let before = wrong.len();
    let text = fields.text(key, wrong).filter(|t| !t.trim().is_empty());
    if text.is_none() && wrong.len() == before {
        wrong.push(fields.wrong(key, None, missing));
    }
    text
}

/// The outer `None`: something is wrong with it; the inner: no fault is planned.
fn fault(top: &mut Fields<'_>, wrong: &mut Vec<Complaint>) -> (Option<Option<Fault>>, Schedule) {
    let mut schedule = Schedule { after_sec: 0, for_sec: 0, times: 1 };
    let Some(node) = top.get("fault") else {
        wrong.push(top.wrong("fault", None, "is missing: one injector and its parameters, or `none`"));
        return (None, schedule);
    };
    if node.datum == Datum::Text("none".into()) {
        return (Some(None), schedule);
    }
    let Some(mut fields) = top.map("fault", wrong) else { return (None, schedule) };
    if let Some(mut when) = fields.map("schedule", wrong) {
        schedule.after_sec = when.count("after_sec", wrong).unwrap_or(0);
        schedule.for_sec = when.count("for_sec", wrong).unwrap_or(0);
        schedule.times = when.count("times", wrong).unwrap_or(1).max(1);
        when.finish(wrong);
    }
    let before = wrong.len();
    let fault = Fault::take(&mut fields, wrong);
    if wrong.len() == before {
        fields.finish(wrong);
    }
    (fault.map(Some), schedule)
}

/// Signals of the injector's side, by name; all others are a victim's.
const INJECTOR_SIDE: [&str; 7] = ["process_state", "counter", "proxy", "toxic", "status", "exit_status", "clock_read"];
const SIGNALS: [&str; 12] = [
    "process_state",
    "counter",
    "proxy",
    "toxic",
    "status",
    "exit_status",
    "clock_read",
    "sli",
    "log",
    "http",
    "command",
    "heartbeat",
];

fn signal(mut fields: Fields<'_>, wrong: &mut Vec<Complaint>) -> Option<Signal> {
    let signal = need(&mut fields, "signal", "is missing: what is to be seen", wrong);
    if let Some(name) = signal.as_ref().filter(|name| !SIGNALS.contains(&name.as_str())) {
        let hint = super::front::nearest(name, &SIGNALS).map_or(String::new(), |n| format!("; did you mean `{n}`?"));
        wrong.push(fields.wrong("signal", None, format_args!("is none of {}{hint}", SIGNALS.join(", "))));
    }
    let (expr, pattern) = (fields.text("expr", wrong), fields.text("pattern", wrong));
    let (file, command) = (fields.text("file", wrong), fields.text("command", wrong));
    let (url, victim) = (fields.text("url", wrong), fields.text("victim", wrong));
    fields.finish(wrong);
    let signal = signal?;
    let injector_side = INJECTOR_SIDE.contains(&signal.as_str());
    Some(Signal { signal, expr, pattern, file, command, url, victim, injector_side })
}

/// Do all injections of a schedule find room in the time that the workload lasts?
fn long_enough(schedule: Schedule, workload: &Workload, top: &Fields<'_>, wrong: &mut Vec<Complaint>) {
    let Schedule { after_sec, for_sec, times } = schedule;
    let each = after_sec.max(BASELINE_SEC).saturating_add(for_sec.max(1));
    let needed = times.saturating_mul(each);
    if needed > workload.duration_sec {
        let what = format!(
            "`times: {times}` needs {needed} s at least ({} s of load and {} s of fault each, and the recovery), and the workload lasts {} s",
            after_sec.max(BASELINE_SEC),
            for_sec.max(1),
            workload.duration_sec
        );
        wrong.push(top.wrong("fault.schedule", None, what));
    }
}

/// `elsewhere`: it need not stand here.
fn workload(top: &mut Fields<'_>, elsewhere: bool, wrong: &mut Vec<Complaint>) -> Option<Workload> {
    let Some(mut fields) = top.map("workload", wrong) else {
        if !elsewhere {
            let missing = "is missing: a built-in driver, or a command that writes the history";
            wrong.push(top.wrong("workload", None, missing));
        }
        return None;
    };
    let (driver, command) = (fields.text("driver", wrong), fields.text("command", wrong));
    if driver.is_some() == command.is_some() {
        wrong.push(fields.wrong("driver", None, "or `workload.command` says what drives the system: one of them"));
    }
    let kind = fields.text("kind", wrong);
    let endpoints = fields.texts("endpoints", wrong).unwrap_or_default();
    let clients = fields.count("clients", wrong).unwrap_or(4).clamp(1, 10_000);
    let duration_sec = fields.count("duration_sec", wrong).unwrap_or(30);
    let most_ops = fields.count("most_ops", wrong);
    let rate = fields.number("rate", wrong);
    let keys = fields.count("keys", wrong).unwrap_or(10).max(1);
    let key_skew = fields.number("key_skew", wrong).unwrap_or(0.0);
    let seed = fields.count("seed", wrong).unwrap_or(1);
    let isolation = fields.text("isolation", wrong);
    let options = options(fields.map("options", wrong), wrong);
    fields.finish(wrong);
    let workload = Workload {
        driver,
        command,
        kind,
        endpoints,
        clients,
        duration_sec,
        most_ops,
        rate,
        keys,
        key_skew,
        seed,
        isolation,
        options,
    };
    Some(workload)
}

/// Names and values of a map whose keys are not known beforehand.
fn options(fields: Option<Fields<'_>>, wrong: &mut Vec<Complaint>) -> Vec<(String, String)> {
    fields.map_or_else(Vec::new, |fields| fields.rest(wrong))
}

/// `elsewhere`: it need not stand here.
fn recorded(top: &mut Fields<'_>, elsewhere: bool, wrong: &mut Vec<Complaint>) -> Option<Recorded> {
    let Some(mut fields) = top.map("history", wrong) else {
        if !elsewhere {
            wrong.push(top.wrong("history", None, "is missing: where the history is written"));
        }
        return None;
    };
    let path = need(&mut fields, "path", "is missing: the file that the history is written to", wrong);
    let format = fields.text("format", wrong);
    let promised = fields.texts("fields", wrong).unwrap_or_default();
    fields.finish(wrong);
    Some(Recorded { path: path?, format, fields: promised })
}

fn checkers(top: &mut Fields<'_>, wrong: &mut Vec<Complaint>) -> Vec<Checker> {
    let checker = |mut fields: Fields<'_>| {
        let name = need(&mut fields, "name", "is missing: a name of `elench checkers`", wrong)?;
        Some(Checker { name, options: fields.rest(wrong) })
    };
    let maps = top.maps("checker", &mut Vec::new());
    maps.into_iter().filter_map(checker).collect()
}

fn sli(top: &mut Fields<'_>, wrong: &mut Vec<Complaint>) -> Option<SliSource> {
    let mut fields = top.map("sli", wrong)?;
    let source = match (fields.text("http", wrong), fields.text("command", wrong)) {
        (Some(url), None) => Some(SliSource::Http(url)),
        (None, Some(command)) => Some(SliSource::Command(command)),
        _ => {
            wrong.push(fields.wrong("http", None, "or `sli.command` says where SLIs come from: one of them"));
            None
        }
    };
    fields.finish(wrong);
    source
}

fn budgets(top: &mut Fields<'_>, wrong: &mut Vec<Complaint>) -> Budgets {
    let Some(mut fields) = top.map("budgets", wrong) else { return Budgets::default() };
    let mut budget = |key| {
        let mut fields = fields.map(key, wrong)?;
        let budget = Budget {
            duration_sec: fields.count("duration_sec", wrong),
            ops: fields.count("ops", wrong),
            faults: fields.count("faults", wrong),
            seeds: fields.count("seeds", wrong),
        };
        fields.finish(wrong);
        Some(budget)
    };
    let budgets = Budgets { smoke: budget("smoke"), hardening: budget("hardening"), release: budget("release") };
    fields.finish(wrong);
    budgets
}

fn seeds(top: &mut Fields<'_>, wrong: &mut Vec<Complaint>) -> Vec<u64> {
    let Some(node) = top.get("seeds") else { return Vec::new() };
    let seed = |n: &Node| if let Datum::Int(n) = n.datum { u64::try_from(n).ok() } else { None };
    let seeds = match &node.datum {
        Datum::List(items) => items.iter().map(seed).collect(),
        _ => seed(node).map(|s| vec![s]),
    };
    seeds.unwrap_or_else(|| {
        wrong.push(top.wrong("seeds", Some(node), "is a list of whole numbers from 0 on"));
        Vec::new()
    })
}

fn arms(top: &mut Fields<'_>, wrong: &mut Vec<Complaint>) -> Vec<Arm> {
    let mut arms: Vec<Arm> = Vec::new();
    for mut fields in top.maps("arms", wrong) {
        let name = need(&mut fields, "name", "is missing: what stands after the slash", wrong);
        let Some(name) = name else { continue };
        if !is_slug(&name) || arms.iter().any(|a| a.name == name) {
            let what = format!("is a slug of letters, digits, - and _, another one for each arm, not `{name}`");
            wrong.push(fields.wrong("name", None, what));
        }
        let checkers = checkers(&mut fields, wrong);
        if checkers.is_empty() {
            wrong.push(fields.wrong("checker", None, "is missing: each arm has its own"));
        }
        let (workload, history) = (workload(&mut fields, true, wrong), recorded(&mut fields, true, wrong));
        fields.finish(wrong);
        arms.push(Arm { name, checkers, workload, history });
    }
    arms
}

impl Scenario {
    /// What is run, in order: the scenario itself, or each of its arms as a scenario named `SCENARIO/ARM`.
    pub fn parts(&self) -> Vec<Scenario> {
        if self.arms.is_empty() {
            return vec![self.clone()];
        }
        let part = |arm: &Arm| Scenario {
            name: format!("{}/{}", self.name, arm.name),
            checkers: arm.checkers.clone(),
            workload: arm.workload.clone().unwrap_or_else(|| self.workload.clone()),
            history: arm.history.clone().unwrap_or_else(|| self.history.clone()),
            arms: Vec::new(),
            ..self.clone()
        };
        self.arms.iter().map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRONT: &str = "name: s\ntarget: 127.0.0.1:1\ntrust_level: sandbox\nblast_radius_pct: 10\nsteady_state: error_rate < 1\nrollback_after_sec: 5\n";

    fn finish(rest: &str) -> Result<Scenario, String> {
        let text = format!("---\n{FRONT}{rest}---\nWhy.\n");
        let told = |all: Vec<Complaint>| all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        Draft::parse(&text).unwrap().finish().map_err(told)
    }

    #[test]
    fn each_arm_is_a_scenario_with_a_checker_of_its_own_and_what_it_does_not_say_is_the_scenarios() {
        let scenario = finish(
            "fault: none\nworkload: {driver: redis, kind: register}\nhistory: {path: h}\narms:\n  - {name: api, checker: {name: linear}}\n  - {name: sdk, checker: [{name: stats}], workload: {command: ./sdk.sh}, history: {path: sdk.jsonl}}\n",
        )
        .unwrap();
        let parts = scenario.parts();
        let names: Vec<_> = parts.iter().map(|p| (p.name.as_str(), p.checkers[0].name.as_str())).collect();
        assert_eq!(names, [("s/api", "linear"), ("s/sdk", "stats")]);
        assert_eq!(parts[0].workload, scenario.workload);
        assert_eq!(
            (parts[1].workload.command.as_deref(), parts[1].history.path.as_str()),
            (Some("./sdk.sh"), "sdk.jsonl")
        );
        let alone =
            finish("fault: none\nworkload: {driver: redis}\nhistory: {path: h}\nchecker: {name: linear}\n").unwrap();
        assert_eq!(alone.parts(), std::slice::from_ref(&alone));
    }

    #[test]
    fn a_workload_may_stand_in_the_arms_alone_but_a_checker_must_and_names_differ() {
        let arm = |name: &str, rest: &str| format!("  - {{name: {name}{rest}}}\n");
        let own = ", workload: {driver: redis}, history: {path: h}, checker: {name: linear}";
        assert!(finish(&format!("fault: none\narms:\n{}", arm("a", own))).is_ok());
        let twice = finish(&format!("fault: none\narms:\n{}{}", arm("a", own), arm("a", own))).unwrap_err();
        assert!(twice.contains("another one for each arm"), "{twice}");
        let bare = finish(&format!("fault: none\narms:\n{}", arm("a", ""))).unwrap_err();
        assert!(bare.contains("each arm has its own") && bare.contains("`workload` is missing"), "{bare}");
        let both = finish(&format!("fault: none\nchecker: {{name: linear}}\narms:\n{}", arm("a", own))).unwrap_err();
        assert!(both.contains("stands in each arm"), "{both}");
    }

    #[test]
    fn a_schedule_that_does_not_fit_into_the_workload_is_told() {
        let with = |times: u64, seconds: u64| {
            finish(&format!(
                "fault: {{injector: process, action: pause, pids: [7], schedule: {{after_sec: 4, for_sec: 2, times: {times}}}}}\nworkload: {{driver: redis, duration_sec: {seconds}}}\nhistory: {{path: h}}\nchecker: {{name: linear}}\n"
            ))
        };
        assert_eq!(with(3, 30).unwrap().schedule.times, 3);
        assert!(with(3, 17).unwrap_err().contains("needs 18 s at least"));
    }
}
