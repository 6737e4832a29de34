//! Cuts the network with iptables, in a chain of its own.
//!
//! All rules of a [`cut`](super::cut) stand in the chain `ELENCH-TAG` of the filter table, of iptables for IPv4 and of ip6tables for IPv6, which the
//! built-in chains jump to first. `iptables-restore` makes it in one transaction after `--test` found nothing wrong with it. Reverting
//! deletes the jumps and the chain, and nothing else: no flush of others' rules; built-in chains that iptables makes at first use stay, empty. Every rule counts what it drops: the counters are the landing signal.
//! Tools: `iptables`, `iptables-restore`, `iptables-save` (Debian: iptables), `CAP_NET_ADMIN`.

use std::fmt::Write;

use super::cut::{Cut, Hook, Rule, Spec};
use super::tool::{Reach, tag, version, words};
use super::undo::{Step, Undo, holds_word, run, run_fed};
use super::{Cap, Failed, Injector, Observation, Probe, Readiness};
use crate::experiment::perimeter::resolve;

/// The tools of an address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Family {
    v4: bool,
    iptables: &'static str,
    save: &'static str,
    restore: &'static str,
}

const FAMILIES: [Family; 2] = [
    Family { v4: true, iptables: "iptables", save: "iptables-save", restore: "iptables-restore" },
    Family { v4: false, iptables: "ip6tables", save: "ip6tables-save", restore: "ip6tables-restore" },
];

/// The injector.
#[derive(Debug)]
pub struct Iptables {
    cut: Cut,
    reach: Reach,
    chain: String,
}

impl Iptables {
    pub(super) fn prepare(spec: &Spec, cap: Cap) -> Result<Iptables, String> {
        let cut = Cut::of(spec, cap, &resolve)?;
        Ok(Iptables { cut, reach: Reach::of(spec.netns.as_deref()), chain: format!("ELENCH-{}", tag()) })
    }

    /// Those that the cut has rules of.
    fn families(&self) -> impl Iterator<Item = Family> {
        FAMILIES.into_iter().filter(|f| self.cut.rules.iter().any(|r| r.from.address.is_ipv4() == f.v4))
    }

    /// A jump from a built-in chain, without what adds or deletes it.
    fn jump(&self, hook: Hook) -> Vec<String> {
        let from = hook.name().to_uppercase();
        match self.cut.skips_loopback(hook) {
            true => words(&[&from, "!", "-i", "lo", "-j", &self.chain]),
            false => words(&[&from, "-j", &self.chain]),
        }
    }

    /// The chain, as `iptables-restore` reads it.
    fn ruleset(&self, family: Family) -> String {
        let mut out = format!("*filter\n:{} - [0:0]\n", self.chain);
        for (i, rule) in self.cut.rules.iter().enumerate().filter(|(_, r)| r.from.address.is_ipv4() == family.v4) {
            let matched = matching(rule, self.cut.protocol);
            let chain = &self.chain;
            if let Some(share) = self.cut.share {
                let _ = writeln!(out, "-A {chain} {matched} -m comment --comment judged-{i}");
                let chance = f64::from(share) / 10_000.0;
                let _ = writeln!(
                    out,
                    "-A {chain} {matched} -m statistic --mode random --probability {chance:.4} -m comment --comment dropped-{i} -j DROP"
                );
            } else {
                let _ = writeln!(out, "-A {chain} {matched} -m comment --comment dropped-{i} -j DROP");
            }
        }
        for hook in &self.cut.hooks {
            let _ = writeln!(out, "-I {}", self.jump(*hook).join(" "));
        }
        out.push_str("COMMIT\n");
        out
    }

    fn list(&self, family: Family) -> Vec<String> {
        self.reach.argv(&[family.iptables, "-w", "5", "-S"])
    }
}

/// What a packet of a rule looks like.
fn matching(rule: &Rule, protocol: Option<&str>) -> String {
    let mut out = format!("-s {} -d {}", rule.from.address, rule.to.address);
    let Some(protocol) = protocol else { return out };
    let _ = write!(out, " -p {protocol} -m {protocol}");
    if let Some(port) = rule.from.port {
        let _ = write!(out, " --sport {port}");
    }
    if let Some(port) = rule.to.port {
        let _ = write!(out, " --dport {port}");
    }
    out
}

/// Counters of a chain from `iptables-save -c`: rule, whether it drops, packets, bytes.
fn counts(saved: &str, chain: &str) -> Vec<(usize, bool, u64, u64)> {
    let count = |line: &str| {
        let (counters, rule) = line.strip_prefix('[')?.split_once("] ")?;
        let rule = rule.strip_prefix("-A ")?.strip_prefix(chain)?.strip_prefix(' ')?;
        let (packets, bytes) = counters.split_once(':')?;
        let comment = rule.split(" --comment ").nth(1)?.split(' ').next()?.trim_matches('"');
        let (kind, i) = comment.split_once('-')?;
        Some((i.parse().ok()?, kind == "dropped", packets.parse().ok()?, bytes.parse().ok()?))
    };
    saved.lines().filter_map(count).collect()
}

impl Injector for Iptables {
    fn probe(&self) -> Probe {
        let trial = |f: Family| self.reach.readiness(f.iptables, "iptables", &[f.iptables, "-w", "5", "-S"]);
        let state = self.families().map(trial).find(|s| *s != Readiness::Ready).unwrap_or(Readiness::Ready);
        Probe { injector: "iptables", state, version: version(&words(&["iptables", "--version"])) }
    }

    fn plan(&self) -> Vec<String> {
        let command = |f: Family| self.reach.argv(&[f.restore, "--noflush", "-w", "5"]).join(" ");
        self.families().map(|f| format!("{} <<'EOF'\n{}EOF", command(f), self.ruleset(f))).collect()
    }

    fn undo(&self) -> Undo {
        let step = |family: Family| {
            let run = |rest: &[&str]| {
                let argv: Vec<&str> = [family.iptables, "-w", "5"].iter().chain(rest).copied().collect();
                self.reach.argv(&argv)
            };
            let unjump = |hook: &Hook| {
                let jump = self.jump(*hook);
                let rest: Vec<&str> = std::iter::once("-D").chain(jump.iter().map(String::as_str)).collect();
                run(&rest)
            };
            let mut commands: Vec<Vec<String>> = self.cut.hooks.iter().map(unjump).collect();
            commands.extend([run(&["-F", &self.chain]), run(&["-X", &self.chain])]);
            Step::Drop { commands, list: self.list(family), name: self.chain.clone(), place: self.reach.place() }
        };
        Undo { what: format!("rules of the iptables chain {}", self.chain), steps: self.families().map(step).collect() }
    }

    fn inject(&mut self) -> Result<(), Failed> {
        for family in self.families() {
            if holds_word(&run(&self.list(family)).map_err(Failed)?, &self.chain) {
                return Err(Failed(format!("the chain {} is there already: revert first", self.chain)));
            }
            let rules = self.ruleset(family);
            let restore = |more: &[&str]| {
                let argv: Vec<&str> = [family.restore, "--noflush", "-w", "5"].iter().chain(more).copied().collect();
                run_fed(&self.reach.argv(&argv), Some(&rules)).map_err(Failed)
            };
            restore(&["--test"])?;
            restore(&[])?;
        }
        Ok(())
    }

    fn observe(&mut self) -> Result<Observation, Failed> {
        let mut all = Vec::new();
        let mut present = true;
        for family in self.families() {
            let saved = run(&self.reach.argv(&[family.save, "-c", "-t", "filter"])).map_err(Failed)?;
            present &= holds_word(&saved, &self.chain);
            all.extend(counts(&saved, &self.chain));
        }
        let mut out = self.cut.observation(&all);
        out.states.insert("rules".into(), if present { "present" } else { "absent" }.into());
        Ok(out)
    }

    fn landed(&self, before: &Observation, during: &Observation) -> (bool, String) {
        self.cut.landed(before, during)
    }
}
