//! The system's own fault script: a command each to inject, to tell the status, and to revert.
//!
//! What such a script says of itself is one side's word only: the status must change between before and during to count as
//! landed, and a victim's side must show it, too. Its cap is declared, not enforced, which the report says. Tool: the script.

use serde::Serialize;

use super::undo::{Step, Undo, run};
use super::{Cap, Failed, Injector, Observation, Probe, Readiness};
use crate::experiment::front::{Complaint, Fields};

/// What a scenario says. Commands are lists of words; one text is run by `sh -c`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spec {
    /// Breaks.
    pub inject: Vec<String>,
    /// Prints what can be seen of the fault.
    pub status: Vec<String>,
    /// Mends; can be repeated.
    pub revert: Vec<String>,
    /// Succeeds when the fault is gone; without it, `revert`'s success is believed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub check: Vec<String>,
}

impl Spec {
    pub(super) fn take(fields: &mut Fields<'_>, wrong: &mut Vec<Complaint>) -> Option<Spec> {
        let mut command = |key: &'static str, needed: bool| {
            let words = fields.texts(key, wrong);
            if words.is_none() && needed {
                wrong.push(fields.wrong(key, None, "is missing: a command"));
            }
            words.map(|words| match words.as_slice() {
                [line] => ["sh", "-c", line].map(String::from).to_vec(),
                _ => words,
            })
        };
        let (inject, status) = (command("inject", true), command("status", true));
        let (revert, check) = (command("revert", true), command("check", false));
        Some(Spec { inject: inject?, status: status?, revert: revert?, check: check.unwrap_or_default() })
    }
}

/// The injector.
#[derive(Debug)]
pub struct Script {
    spec: Spec,
    cap: Cap,
}

impl Script {
    pub(super) fn prepare(spec: &Spec, cap: Cap) -> Script {
        Script { spec: spec.clone(), cap }
    }

    /// The script is told the cap, as it alone can keep it.
    fn with_cap(&self, argv: &[String]) -> Vec<String> {
        let cap = format!("ELENCH_BLAST_RADIUS_PCT={}", self.cap.percent);
        ["env".to_string(), cap].into_iter().chain(argv.iter().cloned()).collect()
    }
}

impl Injector for Script {
    fn probe(&self) -> Probe {
        let program = self.spec.inject.first().map_or("", String::as_str);
        let found = if program.contains('/') {
            std::path::Path::new(program).is_file()
        } else {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
        };
        let state = if found { Readiness::Ready } else { Readiness::Missing(format!("`{program}` is not there")) };
        Probe { injector: "command", state, version: None }
    }

    fn plan(&self) -> Vec<String> {
        vec![self.with_cap(&self.spec.inject).join(" ")]
    }

    fn undo(&self) -> Undo {
        let step = Step::Run { argv: self.with_cap(&self.spec.revert), check: self.spec.check.clone() };
        Undo { what: format!("what `{}` did", self.spec.inject.join(" ")), steps: vec![step] }
    }

    fn inject(&mut self) -> Result<(), Failed> {
        run(&self.with_cap(&self.spec.inject)).map(|_| ()).map_err(Failed)
    }

    fn observe(&mut self) -> Result<Observation, Failed> {
        let text = run(&self.with_cap(&self.spec.status)).map_err(Failed)?;
        let mut out = Observation::default();
        for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
            let (name, value) = line.rsplit_once([' ', '=', ':']).unwrap_or(("status", line));
            match value.trim().parse::<f64>() {
                Ok(n) => drop(out.counters.insert(name.trim().into(), n)),
                Err(_) => drop(out.states.insert(name.trim().into(), value.trim().into())),
            }
        }
        Ok(out)
    }

    fn landed(&self, before: &Observation, during: &Observation) -> (bool, String) {
        let rose = during.counters.iter().filter(|(name, n)| before.counters.get(*name).copied().unwrap_or(0.0) < **n);
        let mut words: Vec<String> = rose
            .map(|(name, n)| format!("{name}: {} -> {n}", before.counters.get(name).copied().unwrap_or(0.0)))
            .collect();
        let changed = during.states.iter().filter(|(name, state)| before.states.get(*name) != Some(state));
        words.extend(changed.map(|(name, state)| {
            format!("{name}: {} -> {state}", before.states.get(name).map_or("nothing", String::as_str))
        }));
        match words.is_empty() {
            true => (false, "the status is as it was before".into()),
            false => (true, words.join(", ")),
        }
    }
}
