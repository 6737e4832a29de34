//! Cuts the network with nftables, in a table of its own.
//!
//! All rules of a [`cut`](super::cut) stand in the table `inet elench_TAG`, made in one transaction after `nft -c` found nothing wrong with it;
//! reverting deletes that table and nothing else. Every rule counts what it drops: the counters are the landing signal. Tool: `nft`
//! (Debian: nftables), `CAP_NET_ADMIN`.

use std::fmt::Write;

use serde_json::Value as Json;

use super::cut::{Cut, Endpoint, Rule, Spec};
use super::tool::{Reach, tag, version, words};
use super::undo::{Step, Undo, run, run_fed};
use super::{Cap, Failed, Injector, Observation, Probe};
use crate::experiment::perimeter::resolve;

/// The injector.
#[derive(Debug)]
pub struct Nft {
    cut: Cut,
    reach: Reach,
    table: String,
}

impl Nft {
    pub(super) fn prepare(spec: &Spec, cap: Cap) -> Result<Nft, String> {
        let cut = Cut::of(spec, cap, &resolve)?;
        Ok(Nft { cut, reach: Reach::of(spec.netns.as_deref()), table: format!("elench_{}", tag()) })
    }

    /// The table, as `nft -f` reads it.
    fn ruleset(&self) -> String {
        let mut out = format!("create table inet {0}\ntable inet {0} {{\n", self.table);
        for hook in &self.cut.hooks {
            // Before the rules of others, after addresses were rewritten: what is seen is who really talks.
            let _ = writeln!(out, "  chain {0} {{\n    type filter hook {0} priority -10; policy accept;", hook.name());
            if self.cut.skips_loopback(*hook) {
                let _ = writeln!(out, "    iif \"lo\" accept");
            }
            for (i, rule) in self.cut.rules.iter().enumerate() {
                self.rule(i, rule, &mut out);
            }
            out.push_str("  }\n");
        }
        out.push_str("}\n");
        out
    }

    fn rule(&self, i: usize, rule: &Rule, out: &mut String) {
        let matched = matching(rule, self.cut.protocol);
        if let Some(share) = self.cut.share {
            let _ = writeln!(out, "    {matched} counter comment \"judged {i}\"");
            let _ =
                writeln!(out, "    {matched} numgen random mod 10000 < {share} counter drop comment \"dropped {i}\"");
        } else {
            let _ = writeln!(out, "    {matched} counter drop comment \"dropped {i}\"");
        }
    }

    fn apply(&self, check_only: bool) -> Result<(), Failed> {
        let argv =
            if check_only { self.reach.argv(&["nft", "-c", "-f", "-"]) } else { self.reach.argv(&["nft", "-f", "-"]) };
        run_fed(&argv, Some(&self.ruleset())).map(|_| ()).map_err(Failed)
    }

    fn is_present(&self) -> Result<bool, Failed> {
        let tables = run(&self.reach.argv(&["nft", "list", "tables"])).map_err(Failed)?;
        Ok(super::undo::holds_word(&tables, &self.table))
    }
}

/// What a packet of a rule looks like.
fn matching(rule: &Rule, protocol: Option<&str>) -> String {
    let family = if rule.from.address.is_ipv4() { "ip" } else { "ip6" };
    let mut out = format!("{family} saddr {} {family} daddr {}", rule.from.address, rule.to.address);
    let Some(protocol) = protocol else { return out };
    let _ = write!(out, " meta l4proto {protocol}");
    let mut port = |side: &str, end: Endpoint| {
        if let Some(port) = end.port {
            let _ = write!(out, " {protocol} {side} {port}");
        }
    };
    port("sport", rule.from);
    port("dport", rule.to);
    out
}

/// Counters of `nft -j list table`: rule, whether it drops, packets, bytes.
fn counts(json: &str) -> Result<Vec<(usize, bool, u64, u64)>, String> {
    let json: Json = serde_json::from_str(json).map_err(|e| format!("what nft printed is no JSON: {e}"))?;
    let entries = json["nftables"].as_array().ok_or("what nft printed has no `nftables`")?;
    let count = |entry: &Json| {
        let rule = &entry["rule"];
        let (kind, i) = rule["comment"].as_str()?.split_once(' ')?;
        let counter = rule["expr"].as_array()?.iter().find_map(|e| e.get("counter"))?;
        Some((i.parse().ok()?, kind == "dropped", counter["packets"].as_u64()?, counter["bytes"].as_u64()?))
    };
    Ok(entries.iter().filter_map(count).collect())
}

impl Injector for Nft {
    fn probe(&self) -> Probe {
        let state = self.reach.readiness("nft", "nftables", &["nft", "list", "tables"]);
        Probe { injector: "nft", state, version: version(&words(&["nft", "--version"])) }
    }

    fn plan(&self) -> Vec<String> {
        vec![format!("{} <<'EOF'\n{}EOF", self.reach.argv(&["nft", "-f", "-"]).join(" "), self.ruleset())]
    }

    fn undo(&self) -> Undo {
        let step = Step::Drop {
            commands: vec![self.reach.argv(&["nft", "delete", "table", "inet", &self.table])],
            list: self.reach.argv(&["nft", "list", "tables"]),
            name: self.table.clone(),
            place: self.reach.place(),
        };
        Undo { what: format!("rules of the nftables table {}", self.table), steps: vec![step] }
    }

    fn inject(&mut self) -> Result<(), Failed> {
        self.apply(true)?;
        self.apply(false)
    }

    fn observe(&mut self) -> Result<Observation, Failed> {
        let present = self.is_present()?;
        let counts = if present {
            let text = run(&self.reach.argv(&["nft", "-j", "list", "table", "inet", &self.table])).map_err(Failed)?;
            counts(&text).map_err(Failed)?
        } else {
            Vec::new()
        };
        let mut out = self.cut.observation(&counts);
        out.states.insert("rules".into(), if present { "present" } else { "absent" }.into());
        Ok(out)
    }

    fn landed(&self, before: &Observation, during: &Observation) -> (bool, String) {
        self.cut.landed(before, during)
    }
}
