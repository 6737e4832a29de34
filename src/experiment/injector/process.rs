//! Kills, ends, stops or restarts processes, a capped share of those that are listed.
//!
//! Victims are named by number, by a pattern over command lines, by a control group, or by a unit; each is remembered with the
//! moment it began, so that no later process of the same number is hit or mended. A pause is a SIGSTOP, or the freezer of a control
//! group where one is named. Tool: none.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use serde::Serialize;

use super::undo::{Step, Undo, Victim};
use super::{Cap, Failed, Injector, Observation, Probe, Readiness};
use crate::experiment::front::{Complaint, Fields};
use crate::verdict::blame::FaultClass;

/// What is done to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// SIGKILL.
    Kill,
    /// SIGTERM.
    Terminate,
    /// SIGSTOP, and SIGCONT to mend.
    Pause,
    /// SIGKILL, and a command that starts it again to mend.
    Restart,
}

impl Action {
    const ALL: [(&'static str, Action); 4] = [
        ("kill", Action::Kill),
        ("terminate", Action::Terminate),
        ("pause", Action::Pause),
        ("restart", Action::Restart),
    ];
}

/// What a scenario says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spec {
    /// What is done.
    pub action: Action,
    /// Processes by number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pids: Vec<i32>,
    /// Processes whose command line holds this text.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Processes of this control group, below `/sys/fs/cgroup`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// The main process of this systemd unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// A file that holds the number of the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid_file: Option<String>,
    /// The command that starts what was killed again, without a shell.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub start: Vec<String>,
    /// The command whose success shows that it is back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub check: Vec<String>,
}

impl Spec {
    pub(super) fn take(fields: &mut Fields<'_>, wrong: &mut Vec<Complaint>) -> Option<Spec> {
        let given = fields.text("action", wrong);
        let action = given.as_deref().and_then(|g| Action::ALL.iter().find(|(name, _)| *name == g)).map(|a| a.1);
        if action.is_none() {
            let names = Action::ALL.map(|(name, _)| name).join(", ");
            wrong.push(fields.wrong("action", None, format_args!("is one of {names}")));
        }
        let pids = fields.texts("pids", wrong).unwrap_or_default();
        let parsed: Option<Vec<i32>> = pids.iter().map(|p| p.parse().ok().filter(|p| *p > 1)).collect();
        if parsed.is_none() {
            wrong.push(fields.wrong("pids", None, "are numbers of processes, from 2 on"));
        }
        let (pattern, cgroup) = (fields.text("match", wrong), fields.text("cgroup", wrong));
        let (unit, pid_file) = (fields.text("unit", wrong), fields.text("pid_file", wrong));
        let start = fields.texts("start", wrong).unwrap_or_default();
        let check = fields.texts("check", wrong).unwrap_or_default();
        let ways = [!pids.is_empty(), pattern.is_some(), cgroup.is_some(), unit.is_some(), pid_file.is_some()];
        if ways.iter().filter(|w| **w).count() != 1 {
            wrong.push(fields.wrong(
                "pids",
                None,
                "or match, cgroup, unit or pid_file names the processes: one of them",
            ));
        }
        if pattern.as_ref().is_some_and(|p| p.trim().len() < 3) {
            wrong.push(fields.wrong(
                "match",
                None,
                "is a text of three letters at least, so that it does not hit everything",
            ));
        }
        if action == Some(Action::Restart) && start.is_empty() && unit.is_none() {
            wrong.push(fields.wrong("start", None, "is missing: the command that starts what was killed again"));
        }
        if !start.is_empty() && check.is_empty() {
            // Whoever starts it a second time, not knowing of the first, must see that it is there.
            wrong.push(fields.wrong("check", None, "is missing: the command whose success shows that it is back"));
        }
        Some(Spec { action: action?, pids: parsed?, pattern, cgroup, unit, pid_file, start, check })
    }

    pub(super) fn class(&self) -> FaultClass {
        if self.action == Action::Pause { FaultClass::Pause } else { FaultClass::Crash }
    }

    /// Every process that is named, but never ourselves nor those we came from.
    fn listed(&self) -> Result<Vec<Victim>, String> {
        let numbers: Vec<i32> = if let Some(pattern) = &self.pattern {
            all_processes().into_iter().filter(|pid| command_line(*pid).contains(pattern.as_str())).collect()
        } else if let Some(group) = &self.cgroup {
            let file = group_dir(group)?.join("cgroup.procs");
            let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            text.lines().filter_map(|l| l.trim().parse().ok()).collect()
        } else if let Some(unit) = &self.unit {
            let argv = ["systemctl", "show", "--property=MainPID", "--value", unit].map(String::from);
            super::undo::run(&argv)?.trim().parse().into_iter().filter(|pid| *pid > 1).collect()
        } else if let Some(file) = &self.pid_file {
            let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
            let first = text.lines().next().unwrap_or_default().trim();
            vec![first.parse().map_err(|_| format!("{file}: `{first}` is no number of a process"))?]
        } else {
            self.pids.clone()
        };
        let ours = ancestors();
        let victims: Vec<Victim> =
            numbers.into_iter().filter(|pid| !ours.contains(pid)).filter_map(Victim::of).collect();
        if victims.is_empty() {
            let which = match (&self.pattern, &self.cgroup, &self.unit) {
                (Some(text), ..) => format!(": none whose command line holds `{text}`"),
                (_, Some(group), _) => format!(": none in the control group `{group}`"),
                (.., Some(unit)) => format!(": the unit `{unit}` has no main process"),
                _ => String::new(),
            };
            return Err(format!("no process that is named is there{which}"));
        }
        Ok(victims)
    }
}

fn all_processes() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<i32> = entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

fn command_line(pid: i32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// Ourselves, and the processes that we came from.
fn ancestors() -> Vec<i32> {
    let mut out = vec![1];
    let mut pid = std::process::id() as i32;
    while pid > 1 && !out.contains(&pid) {
        out.push(pid);
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let parent = status.lines().find_map(|l| l.strip_prefix("PPid:")).and_then(|p| p.trim().parse().ok());
        pid = parent.unwrap_or(0);
    }
    out
}

fn group_dir(group: &str) -> Result<PathBuf, String> {
    let group = group.trim_matches('/');
    if group.is_empty() || group.split('/').any(|part| part == "..") {
        return Err(format!("`{group}` names no control group below /sys/fs/cgroup"));
    }
    Ok(Path::new("/sys/fs/cgroup").join(group))
}

/// The injector.
#[derive(Debug)]
pub struct Process {
    spec: Spec,
    victims: Vec<Victim>,
    listed: usize,
}

impl Process {
    pub(super) fn prepare(spec: &Spec, cap: Cap) -> Result<Process, String> {
        let mut victims = spec.listed()?;
        let listed = victims.len();
        victims.truncate(cap.of(listed));
        Ok(Process { spec: spec.clone(), victims, listed })
    }

    /// Those that are hit.
    pub fn victims(&self) -> &[Victim] {
        &self.victims
    }

    fn signal(&self) -> Signal {
        match self.spec.action {
            Action::Kill | Action::Restart => Signal::SIGKILL,
            Action::Terminate => Signal::SIGTERM,
            Action::Pause => Signal::SIGSTOP,
        }
    }
}

impl Injector for Process {
    fn probe(&self) -> Probe {
        let allowed = self.victims.iter().find_map(|v| {
            let pid = nix::unistd::Pid::from_raw(v.pid);
            nix::sys::signal::kill(pid, None).err().map(|e| (v.pid, e))
        });
        let state = match allowed {
            Some((pid, nix::errno::Errno::EPERM)) => {
                Readiness::Unprivileged(format!("process {pid} belongs to another user: run as that user or as root"))
            }
            Some((pid, _)) => Readiness::Missing(format!("process {pid} is gone")),
            None => Readiness::Ready,
        };
        Probe { injector: "process", state, version: None }
    }

    fn plan(&self) -> Vec<String> {
        let signal = self.signal().as_str().trim_start_matches("SIG");
        self.victims.iter().map(|v| format!("kill -{signal} {}", v.pid)).collect()
    }

    fn undo(&self) -> Undo {
        let Spec { start, check, unit, .. } = &self.spec;
        let steps = match self.spec.action {
            Action::Pause => self.victims.iter().map(|v| Step::Continue(*v)).collect(),
            _ if !start.is_empty() => vec![Step::Start { argv: start.clone(), check: check.clone() }],
            _ => unit
                .iter()
                .map(|unit| {
                    let argv = ["systemctl", "start", unit].map(String::from).to_vec();
                    let check = ["systemctl", "is-active", "--quiet", unit].map(String::from).to_vec();
                    Step::Run { argv, check }
                })
                .collect(),
        };
        Undo { what: format!("{:?} of {} processes", self.spec.action, self.victims.len()).to_lowercase(), steps }
    }

    fn inject(&mut self) -> Result<(), Failed> {
        for victim in &self.victims {
            victim.signal(self.signal()).map_err(Failed)?;
        }
        Ok(())
    }

    fn again(&mut self) -> Result<(), Failed> {
        let victims = self.spec.listed().map_err(Failed)?;
        // What is hit never grows, whoever else is there by now.
        let most = self.victims.len();
        (self.listed, self.victims) = (victims.len(), victims.into_iter().take(most).collect());
        Ok(())
    }

    fn observe(&mut self) -> Result<Observation, Failed> {
        let mut out = Observation::default();
        out.counters.insert("listed".into(), self.listed as f64);
        out.counters.insert("victims".into(), self.victims.len() as f64);
        for victim in &self.victims {
            let state = victim.state().map_or("gone".to_string(), String::from);
            out.states.insert(format!("pid {}", victim.pid), state);
            if let Some(ticks) = victim.cpu_ticks() {
                out.counters.insert(format!("cpu ticks of {}", victim.pid), ticks as f64);
            }
        }
        Ok(out)
    }

    fn landed(&self, before: &Observation, during: &Observation) -> (bool, String) {
        let wanted = |state: &str| match self.spec.action {
            Action::Pause => matches!(state, "T" | "t"),
            _ => matches!(state, "gone" | "Z" | "X"),
        };
        let mut words = Vec::new();
        let mut all = !self.victims.is_empty();
        for victim in &self.victims {
            let name = format!("pid {}", victim.pid);
            let of = |o: &Observation| o.states.get(&name).cloned().unwrap_or_else(|| "unknown".into());
            let (was, is) = (of(before), of(during));
            all &= !wanted(&was) && wanted(&is);
            words.push(format!("{name}: {was} -> {is}"));
        }
        (all, words.join(", "))
    }
}
