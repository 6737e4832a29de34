//! What can be broken, and how it is mended.
//!
//! An injector has four verbs. [`Injector::probe`] says whether it can work here. [`Injector::undo`] says, before anything is
//! touched, everything that takes the fault back: it goes to the journal of the dead man's switch first. [`Injector::inject`]
//! breaks. [`Injector::observe`] reads the counters that prove that it broke: exit status 0 of a command proves nothing. Reverting is
//! carrying out the [`Undo`], by whoever is alive to do it; it can be repeated, and succeeds when the fault is already gone.

pub mod aws_fis;
pub mod chaos_mesh;
pub mod clock;
pub mod command;
pub mod cut;
#[cfg(test)]
mod declared;
pub mod disk;
pub mod doctor;
pub mod iptables;
pub mod nft;
pub mod process;
pub mod proxy;
#[cfg(test)]
mod real_network;
pub mod tc;
mod tool;
pub mod toxiproxy;
pub mod undo;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use self::undo::Undo;
use super::front::{Complaint, Fields, nearest};
use crate::verdict::blame::FaultClass;

/// A fault as a scenario declares it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "injector", rename_all = "kebab-case")]
pub enum Fault {
    /// Signals to processes.
    Process(process::Spec),
    /// The system's own script.
    Command(command::Spec),
    /// The built-in TCP proxy.
    Proxy(proxy::Spec),
    /// A Toxiproxy that runs already.
    Toxiproxy(toxiproxy::Spec),
    /// Cuts the network with nftables.
    Nft(cut::Spec),
    /// Cuts the network with iptables.
    Iptables(cut::Spec),
    /// Starts a registered experiment of AWS FIS.
    AwsFis(aws_fis::Spec),
    /// Breaks pods through Chaos Mesh.
    ChaosMesh(chaos_mesh::Spec),
    /// Fills a file system.
    Disk(disk::Spec),
    /// Moves clocks with libfaketime.
    Clock(clock::Spec),
    /// Slows and mangles packets with netem.
    Tc(tc::Spec),
}

/// Names of injectors.
pub const NAMES: [&str; 11] =
    ["process", "command", "proxy", "toxiproxy", "nft", "iptables", "tc", "clock", "disk", "chaos-mesh", "aws-fis"];

impl Fault {
    /// Takes a fault out of its map.
    pub fn take(fields: &mut Fields<'_>, wrong: &mut Vec<Complaint>) -> Option<Fault> {
        let name = fields.text("injector", wrong)?;
        match name.as_str() {
            "process" => process::Spec::take(fields, wrong).map(Fault::Process),
            "command" => command::Spec::take(fields, wrong).map(Fault::Command),
            "proxy" => proxy::Spec::take(fields, wrong).map(Fault::Proxy),
            "toxiproxy" => toxiproxy::Spec::take(fields, wrong).map(Fault::Toxiproxy),
            "nft" => cut::Spec::take(fields, wrong).map(Fault::Nft),
            "tc" => tc::Spec::take(fields, wrong).map(Fault::Tc),
            "clock" => clock::Spec::take(fields, wrong).map(Fault::Clock),
            "disk" => disk::Spec::take(fields, wrong).map(Fault::Disk),
            "chaos-mesh" => chaos_mesh::Spec::take(fields, wrong).map(Fault::ChaosMesh),
            "aws-fis" => aws_fis::Spec::take(fields, wrong).map(Fault::AwsFis),
            "iptables" => cut::Spec::take(fields, wrong).map(Fault::Iptables),
            other => {
                let hint = nearest(other, &NAMES).map_or(String::new(), |n| format!("; did you mean `{n}`?"));
                wrong.push(fields.wrong("injector", None, format_args!("is one of {}{hint}", NAMES.join(", "))));
                None
            }
        }
    }

    /// The injector's name.
    pub fn name(&self) -> &'static str {
        match self {
            Fault::Process(_) => "process",
            Fault::Command(_) => "command",
            Fault::Proxy(_) => "proxy",
            Fault::Toxiproxy(_) => "toxiproxy",
            Fault::Nft(_) => "nft",
            Fault::Iptables(_) => "iptables",
            Fault::AwsFis(_) => "aws-fis",
            Fault::ChaosMesh(_) => "chaos-mesh",
            Fault::Disk(_) => "disk",
            Fault::Clock(_) => "clock",
            Fault::Tc(_) => "tc",
        }
    }

    /// What it does to the system, for the type of a bug.
    pub fn class(&self) -> FaultClass {
        match self {
            Fault::Process(spec) => spec.class(),
            Fault::Command(_) => FaultClass::None,
            Fault::Proxy(spec) => proxy::class(&spec.toxics),
            Fault::Toxiproxy(spec) => proxy::class(&spec.toxics),
            Fault::Tc(spec) => spec.class(),
            Fault::Clock(spec) => spec.class(),
            Fault::Disk(spec) => spec.class(),
            Fault::ChaosMesh(spec) => spec.class(),
            Fault::AwsFis(spec) => spec.class(),
            Fault::Nft(spec) | Fault::Iptables(spec) => spec.class(),
        }
    }

    /// Of a partition: does it cut both ways? `None`: it is none, or its script says so alone.
    pub fn is_symmetric(&self) -> Option<bool> {
        match self {
            Fault::Nft(spec) | Fault::Iptables(spec) => Some(spec.action != cut::Action::OneWay),
            _ => None,
        }
    }

    /// The injector, capped.
    ///
    /// # Errors
    /// What is wrong with its parameters here and now: no process matches, say.
    pub fn prepare(&self, cap: Cap) -> Result<Box<dyn Injector>, String> {
        match self {
            Fault::Process(spec) => Ok(Box::new(process::Process::prepare(spec, cap)?)),
            Fault::Command(spec) => Ok(Box::new(command::Script::prepare(spec, cap))),
            Fault::Proxy(spec) => Ok(Box::new(proxy::BuiltIn::prepare(spec, cap)?)),
            Fault::Toxiproxy(spec) => Ok(Box::new(toxiproxy::Remote::prepare(spec, cap)?)),
            Fault::Nft(spec) => Ok(Box::new(nft::Nft::prepare(spec, cap)?)),
            Fault::Tc(spec) => Ok(Box::new(tc::Tc::prepare(spec, cap)?)),
            Fault::Clock(spec) => Ok(Box::new(clock::Clock::prepare(spec, cap)?)),
            Fault::Disk(spec) => Ok(Box::new(disk::Disk::prepare(spec, cap)?)),
            Fault::ChaosMesh(spec) => Ok(Box::new(chaos_mesh::Mesh::prepare(spec, cap)?)),
            Fault::AwsFis(spec) => Ok(Box::new(aws_fis::Fis::prepare(spec, cap)?)),
            Fault::Iptables(spec) => Ok(Box::new(iptables::Iptables::prepare(spec, cap)?)),
        }
    }
}

/// How much may be hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    /// Percent, 1 to 100.
    pub percent: u8,
}

impl Cap {
    /// Of so many things, how many: rounded down, but one at least, as a fault that hits nothing is none.
    pub fn of(self, n: usize) -> usize {
        (n * usize::from(self.percent) / 100).max(1).min(n)
    }

    /// As a share, 0 to 1.
    pub fn share(self) -> f64 {
        f64::from(self.percent) / 100.0
    }
}

/// Can an injector work here?
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// The injector.
    pub injector: &'static str,
    /// What it found.
    pub state: Readiness,
    /// The tool's version, or a kernel feature, as found.
    pub version: Option<String>,
}

/// How ready an injector is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Readiness {
    /// It can work.
    Ready,
    /// Its tool or a kernel feature is missing; how to get it.
    Missing(String),
    /// It lacks a privilege: which.
    Unprivileged(String),
}

/// What an injector sees of its fault at one moment: counters and states, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Observation {
    /// Numbers that rise when the fault acts.
    pub counters: BTreeMap<String, f64>,
    /// States, as words.
    pub states: BTreeMap<String, String>,
}

/// A fault that could not be injected or observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed(pub String);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

/// What breaks a system, and mends it.
pub trait Injector: Send {
    /// Can it work here?
    fn probe(&self) -> Probe;

    /// Each command or call that injecting makes, in order, as it would be typed: for `--dry-run`.
    fn plan(&self) -> Vec<String>;

    /// Everything that takes the fault back. Asked for before anything is touched, and written down.
    fn undo(&self) -> Undo;

    /// Breaks.
    ///
    /// # Errors
    /// What went wrong; the caller reverts.
    fn inject(&mut self) -> Result<(), Failed>;

    /// Gets ready to break once more, after a revert: what the first injection killed is looked for anew.
    ///
    /// # Errors
    /// There is nothing left to break.
    fn again(&mut self) -> Result<(), Failed> {
        Ok(())
    }

    /// What is to be seen of the fault now.
    ///
    /// # Errors
    /// What could not be read.
    fn observe(&mut self) -> Result<Observation, Failed>;

    /// Do two observations, before and while the fault acts, show from this side that it landed? The words say what was compared.
    fn landed(&self, before: &Observation, during: &Observation) -> (bool, String);

    /// What it recorded on its own while the experiment ran, with the name of the file that it belongs into; none for most.
    fn trace(&self) -> Option<(&'static str, serde_json::Value)> {
        None
    }
}
