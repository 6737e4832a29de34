//! Which packets does a partition drop? What the injectors `nft` and `iptables` share.
//!
//! A scenario names two sides, `from` and `to`, by addresses or addresses with ports. A cut is a list of `Rule`s, each for the
//! packets that go one way between two of them:
//!
//! - `full`: both ways between the victims and all of `to`;
//! - `one-way`: only from the victims to `to`;
//! - `partial`: both ways, but only to some of `to`, the others stay reachable;
//! - `random`: both ways, each packet with a probability.
//!
//! The cap counts all hosts that are named: so many of `from`, in the order given, are victims; of `to` in a `partial` cut, so many are
//! cut off; a `random` cut drops no larger share of the packets than the cap. Networks (`10.0.0.0/8`) are not accepted, as nobody
//! knows how many hosts they are.
//!
//! A packet that stays on its machine passes `output` and then `input`: where both are watched, `input` leaves alone what comes by the
//! loopback device, so that each packet is judged once, and a share is what it says.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::Serialize;

use super::tool::is_name;
use super::{Cap, Observation};
use crate::experiment::front::{Complaint, Fields};
use crate::verdict::blame::FaultClass;

/// Rules that one cut may have.
const MAX_RULES: usize = 4096;

/// Which packets are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Both ways, to all.
    Full,
    /// From the victims only.
    OneWay,
    /// Both ways, to some.
    Partial,
    /// Both ways, a random share.
    Random,
}

impl Action {
    const ALL: [(&'static str, Action); 4] =
        [("full", Action::Full), ("one-way", Action::OneWay), ("partial", Action::Partial), ("random", Action::Random)];
}

/// Where packets are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Hook {
    /// Those that arrive for this machine.
    Input,
    /// Those that leave this machine.
    Output,
    /// Those that pass through.
    Forward,
}

impl Hook {
    pub(super) const ALL: [Hook; 3] = [Hook::Output, Hook::Input, Hook::Forward];

    pub(super) fn name(self) -> &'static str {
        match self {
            Hook::Input => "input",
            Hook::Output => "output",
            Hook::Forward => "forward",
        }
    }
}

/// What a scenario says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spec {
    /// Which packets.
    pub action: Action,
    /// One side: addresses or names, each with a port or without.
    pub from: Vec<String>,
    /// The other.
    pub to: Vec<String>,
    /// `tcp` or `udp`; where a port is named, `tcp` unless said otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Share of packets that `random` drops, in percent; without it, the blast radius.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_pct: Option<f64>,
    /// The only place where packets are looked at; without it, all three.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook: Option<Hook>,
    /// The network namespace, as `ip netns` knows it, in which rules are made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
}

impl Spec {
    pub(super) fn take(fields: &mut Fields<'_>, wrong: &mut Vec<Complaint>) -> Option<Spec> {
        let given = fields.text("action", wrong);
        let action = given.as_deref().and_then(|g| Action::ALL.iter().find(|(name, _)| *name == g)).map(|a| a.1);
        if action.is_none() {
            let names = Action::ALL.map(|(name, _)| name).join(", ");
            wrong.push(fields.wrong("action", None, format_args!("is one of {names}")));
        }
        let mut side = |key: &'static str| {
            let side = fields.texts(key, wrong).unwrap_or_default();
            if side.is_empty() {
                wrong.push(fields.wrong(key, None, "is missing: addresses, each with a port or without"));
            }
            side
        };
        let (from, to) = (side("from"), side("to"));
        if action == Some(Action::Partial) && to.len() < 2 {
            wrong.push(fields.wrong("to", None, "names two hosts at least for a partial cut, as one stays reachable"));
        }
        let protocol = fields.text("protocol", wrong);
        if protocol.as_deref().is_some_and(|p| p != "tcp" && p != "udp") {
            wrong.push(fields.wrong("protocol", None, "is tcp or udp"));
        }
        let share_pct = fields.number("share_pct", wrong);
        if share_pct.is_some_and(|s| !(0.01..=100.0).contains(&s)) {
            wrong.push(fields.wrong("share_pct", None, "is a share in percent, 0.01 to 100"));
        }
        if share_pct.is_some() && action != Some(Action::Random) {
            wrong.push(fields.wrong("share_pct", None, "is only for `action: random`"));
        }
        let named = fields.text("hook", wrong);
        let hook = named.as_deref().and_then(|n| Hook::ALL.into_iter().find(|h| h.name() == n));
        if named.is_some() && hook.is_none() {
            wrong.push(fields.wrong("hook", None, "is input, output or forward"));
        }
        let netns = fields.text("netns", wrong);
        if netns.as_deref().is_some_and(|n| !is_name(n)) {
            wrong.push(fields.wrong("netns", None, "is the name of a network namespace"));
        }
        Some(Spec { action: action?, from, to, protocol, share_pct, hook, netns })
    }

    pub(super) fn class(&self) -> FaultClass {
        if self.action == Action::Random { FaultClass::Network } else { FaultClass::Partition }
    }
}

/// An address, with a port or any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Endpoint {
    pub(super) address: IpAddr,
    pub(super) port: Option<u16>,
}

/// The addresses of a host as it is written: `10.0.0.1`, `10.0.0.1:80`, `::1`, `[::1]:80`, `db-1:80`.
pub(super) fn endpoints(text: &str, resolve: &dyn Fn(&str) -> Vec<IpAddr>) -> Result<Vec<Endpoint>, String> {
    if text.contains('/') {
        return Err(format!("`{text}`: name each address, as nobody knows how many hosts a network is"));
    }
    let (host, port) = match (text.parse::<IpAddr>(), text.rsplit_once(':')) {
        (Err(_), Some((host, port))) if !text.ends_with(']') => {
            let port = port.parse().ok().filter(|p| *p > 0);
            (host, Some(port.ok_or_else(|| format!("`{text}` ends with no port, 1 to 65535"))?))
        }
        _ => (text, None),
    };
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    let addresses = bare.parse().map_or_else(|_| resolve(bare), |a| vec![a]);
    if addresses.is_empty() {
        return Err(format!("`{text}` does not resolve to an address"));
    }
    let distinct: BTreeSet<IpAddr> = addresses.into_iter().map(|a: IpAddr| a.to_canonical()).collect();
    if let Some(any) = distinct.iter().find(|a| a.is_unspecified()) {
        return Err(format!("`{text}` is {any}, which is no host"));
    }
    Ok(distinct.into_iter().map(|address| Endpoint { address, port }).collect())
}

/// Packets that go one way between two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) from: Endpoint,
    pub(super) to: Endpoint,
    /// On whose behalf: an index of the victims.
    pub(super) victim: usize,
}

/// A cut, capped.
#[derive(Clone, Debug)]
pub(super) struct Cut {
    pub(super) rules: Vec<Rule>,
    pub(super) victims: Vec<String>,
    /// Hosts that are named.
    pub(super) listed: usize,
    /// Share of the packets that is dropped, in ten thousandths; `None`: all.
    pub(super) share: Option<u32>,
    pub(super) protocol: Option<&'static str>,
    pub(super) hooks: Vec<Hook>,
}

impl Cut {
    pub(super) fn of(spec: &Spec, cap: Cap, resolve: &dyn Fn(&str) -> Vec<IpAddr>) -> Result<Cut, String> {
        let named: BTreeSet<&String> = spec.from.iter().chain(&spec.to).collect();
        let allowed = cap.of(named.len());
        let victims: Vec<String> = unique(&spec.from).into_iter().take(allowed).collect();
        let mut peers = unique(&spec.to);
        if spec.action == Action::Partial {
            let most = peers.len().saturating_sub(1).min(cap.of(peers.len()));
            peers.truncate(most);
        }
        let mut rules = Vec::new();
        for (victim, host) in victims.iter().enumerate() {
            for peer in &peers {
                pair(spec.action, victim, &endpoints(host, resolve)?, &endpoints(peer, resolve)?, &mut rules);
            }
            if !rules.iter().any(|r| r.victim == victim) {
                return Err(format!("`{host}` and `to` have no addresses of the same family"));
            }
        }
        if rules.is_empty() || rules.len() > MAX_RULES {
            return Err(format!("the cut has {} rules, which should be 1 to {MAX_RULES}", rules.len()));
        }
        let ported = rules.iter().any(|r| r.from.port.is_some() || r.to.port.is_some());
        let protocol = match spec.protocol.as_deref() {
            Some("udp") => Some("udp"),
            Some(_) => Some("tcp"),
            None => ported.then_some("tcp"),
        };
        let most = f64::from(cap.percent);
        let share = spec.share_pct.unwrap_or(most).min(most);
        // All packets is no matter of chance.
        let share = (spec.action == Action::Random && share < 100.0).then(|| ((share * 100.0) as u32).max(1));
        let hooks = spec.hook.map_or(Hook::ALL.to_vec(), |h| vec![h]);
        Ok(Cut { rules, victims, listed: named.len(), share, protocol, hooks })
    }

    /// Does `input` leave packets of the loopback device to `output`?
    pub(super) fn skips_loopback(&self, hook: Hook) -> bool {
        hook == Hook::Input && self.hooks.contains(&Hook::Output)
    }

    /// What counters of rules, `(rule, dropped, packets, bytes)`, come to by victim and in all.
    pub(super) fn observation(&self, counts: &[(usize, bool, u64, u64)]) -> Observation {
        let mut counters: BTreeMap<String, f64> = ["packets", "bytes"].map(|name| (name.to_string(), 0.0)).into();
        counters.insert("listed".into(), self.listed as f64);
        counters.insert("victims".into(), self.victims.len() as f64);
        counters.extend(self.victims.iter().map(|v| (of_victim(v), 0.0)));
        let mut add = |name: String, n: u64| *counters.entry(name).or_insert(0.0) += n as f64;
        for (rule, dropped, packets, bytes) in counts {
            let Some(rule) = self.rules.get(*rule) else { continue };
            if !dropped {
                add("packets judged".into(), *packets);
                continue;
            }
            add("packets".into(), *packets);
            add("bytes".into(), *bytes);
            add(of_victim(&self.victims[rule.victim]), *packets);
        }
        Observation { counters, states: BTreeMap::new() }
    }

    /// Every victim must have lost packets since.
    pub(super) fn landed(&self, before: &Observation, during: &Observation) -> (bool, String) {
        if during.states.get("rules").map(String::as_str) != Some("present") {
            return (false, "the rules are not there".into());
        }
        let count = |o: &Observation, name: &str| o.counters.get(name).copied().unwrap_or(0.0);
        let mut all = true;
        let mut said = Vec::new();
        for victim in &self.victims {
            let name = of_victim(victim);
            let (was, is) = (count(before, &name), count(during, &name));
            all &= is > was;
            said.push(format!("{name}: {was} -> {is}"));
        }
        (all, said.join(", "))
    }
}

fn of_victim(victim: &str) -> String {
    format!("packets dropped of {victim}")
}

/// Each once, in the order given.
fn unique(list: &[String]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    list.iter().filter(|text| seen.insert(*text)).cloned().collect()
}

/// Rules for two hosts.
fn pair(action: Action, victim: usize, from: &[Endpoint], to: &[Endpoint], rules: &mut Vec<Rule>) {
    for a in from {
        for b in to.iter().filter(|b| *b != a && a.address.is_ipv4() == b.address.is_ipv4()) {
            rules.push(Rule { from: *a, to: *b, victim });
            if action != Action::OneWay {
                rules.push(Rule { from: *b, to: *a, victim });
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn spec(action: Action, from: &[&str], to: &[&str]) -> Spec {
        let list = |side: &[&str]| side.iter().map(|s| s.to_string()).collect();
        Spec { action, from: list(from), to: list(to), protocol: None, share_pct: None, hook: None, netns: None }
    }

    fn nobody(_: &str) -> Vec<IpAddr> {
        vec![]
    }

    fn cut(spec: &Spec, percent: u8) -> Result<Cut, String> {
        Cut::of(spec, Cap { percent }, &nobody)
    }

    #[test]
    fn the_cap_counts_all_hosts_and_leaves_one_victim_at_least() {
        let hosts = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
        let spec = spec(Action::Full, &hosts[..2], &hosts[2..]);
        assert_eq!(cut(&spec, 34).unwrap().victims, ["10.0.0.1"]);
        assert_eq!(cut(&spec, 1).unwrap().victims, ["10.0.0.1"]);
        assert_eq!(cut(&spec, 67).unwrap().victims, ["10.0.0.1", "10.0.0.2"]);
        assert_eq!(cut(&spec, 34).unwrap().rules.len(), 2, "there and back");
    }

    #[test]
    fn a_partial_cut_leaves_a_peer_reachable_whatever_the_cap() {
        let spec = spec(Action::Partial, &["10.0.0.1"], &["10.0.0.2", "10.0.0.3"]);
        for percent in [1, 50, 100] {
            let cut = cut(&spec, percent).unwrap();
            assert!(cut.rules.iter().all(|r| [r.from, r.to].iter().all(|e| e.address.to_string() != "10.0.0.3")));
            assert_eq!(cut.rules.len(), 2);
        }
    }

    #[test]
    fn a_random_share_is_never_above_the_cap() {
        let mut spec = spec(Action::Random, &["10.0.0.1"], &["10.0.0.2"]);
        assert_eq!(cut(&spec, 30).unwrap().share, Some(3000), "the cap where nothing is said");
        spec.share_pct = Some(80.0);
        assert_eq!(cut(&spec, 30).unwrap().share, Some(3000));
        spec.share_pct = Some(0.5);
        assert_eq!(cut(&spec, 30).unwrap().share, Some(50));
        spec.share_pct = None;
        assert_eq!(cut(&spec, 100).unwrap().share, None, "all packets");
    }

    #[test]
    fn hosts_are_read_in_all_ways_of_writing_them_and_networks_are_refused() {
        let known = |name: &str| if name == "db" { vec!["10.0.0.9".parse().unwrap()] } else { vec![] };
        for (text, expected) in [
            ("10.0.0.1", "10.0.0.1 None"),
            ("10.0.0.1:80", "10.0.0.1 Some(80)"),
            ("::1", "::1 None"),
            ("[::1]:80", "::1 Some(80)"),
            ("[::1]", "::1 None"),
            ("db:5432", "10.0.0.9 Some(5432)"),
        ] {
            let found = endpoints(text, &known).unwrap();
            assert_eq!(found.len(), 1);
            assert_eq!(format!("{} {:?}", found[0].address, found[0].port), expected, "{text}");
        }
        for text in ["10.0.0.0/8", "nobody", "db:0", "db:x", "0.0.0.0", "[::]:80"] {
            assert!(endpoints(text, &known).is_err(), "{text}");
        }
    }

    #[test]
    fn families_do_not_mix_and_a_victim_without_a_rule_is_an_error() {
        let err = cut(&spec(Action::Full, &["10.0.0.1"], &["::1"]), 50).unwrap_err();
        assert!(err.contains("family"), "{err}");
        assert!(cut(&spec(Action::Full, &["10.0.0.1"], &["10.0.0.1"]), 50).is_err(), "nobody is cut off from himself");
    }

    #[test]
    fn a_cut_has_landed_only_when_every_victim_lost_packets() {
        let cut = cut(&spec(Action::Full, &["10.0.0.1", "10.0.0.2"], &["10.0.0.3"]), 100).unwrap();
        let seen = |counts: &[(usize, bool, u64, u64)], present: &str| {
            let mut o = cut.observation(counts);
            o.states.insert("rules".into(), present.into());
            o
        };
        let before = seen(&[], "absent");
        assert!(!cut.landed(&before, &seen(&[(0, true, 5, 300)], "present")).0, "the second lost none");
        assert!(cut.landed(&before, &seen(&[(0, true, 5, 300), (3, true, 1, 60)], "present")).0);
        assert!(!cut.landed(&before, &seen(&[(0, true, 5, 300), (3, true, 1, 60)], "absent")).0);
        assert!(!cut.landed(&before, &seen(&[(0, false, 5, 300), (3, false, 1, 60)], "present")).0, "seen is not lost");
    }
}
