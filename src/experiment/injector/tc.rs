//! Slows, loses and mangles packets to one destination or more, with `tc` netem.
//!
//! A class of its own holds netem: a `prio` qdisc at the root has a fourth band that no packet enters by its priority, filters send packets to the
//! destinations there, and netem stands in that band; all other packets go as they went. A device whose root somebody has
//! already set up is refused, as replacing it would change traffic that is none of ours and could not be put back. Handles carry a number
//! of the run: reverting deletes the root of that handle, and the kernel refuses to delete another's.
//!
//! The cap bounds how many of the destinations are hit. Netem's own counters of packets and drops are the landing signal. Tool: `tc` (Debian:
//! iproute2), `CAP_NET_ADMIN`, and the kernel's `sch_prio` and `sch_netem`.

use std::net::IpAddr;

use serde::Serialize;
use serde_json::Value as Json;

use super::cut::{Endpoint, endpoints};
use super::tool::{Reach, is_name, is_there, tag, version, words};
use super::undo::{Step, Undo, run};
use super::{Cap, Failed, Injector, Observation, Probe, Readiness};
use crate::experiment::front::{Complaint, Fields};
use crate::experiment::perimeter::resolve;
use crate::verdict::blame::FaultClass;

/// What a scenario says. Times are in milliseconds, shares in percent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Spec {
    /// The device that packets leave by.
    pub dev: String,
    /// Destinations: addresses or names, each with a port or without.
    pub to: Vec<String>,
    /// The network namespace, as `ip netns` knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// Delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<f64>,
    /// How far the delay varies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_ms: Option<f64>,
    /// Packets that are lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_pct: Option<f64>,
    /// Packets with a flipped bit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrupt_pct: Option<f64>,
    /// Packets that are sent twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate_pct: Option<f64>,
    /// Packets that are sent at once, before those that are delayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder_pct: Option<f64>,
    /// Kilobits a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_kbit: Option<u64>,
}

impl Spec {
    pub(super) fn take(fields: &mut Fields<'_>, wrong: &mut Vec<Complaint>) -> Option<Spec> {
        let dev = fields.text("dev", wrong).filter(|d| is_name(d) && d.len() <= 15);
        if dev.is_none() {
            wrong.push(fields.wrong("dev", None, "is missing, or no name of a network device"));
        }
        let to = fields.texts("to", wrong).unwrap_or_default();
        if to.is_empty() {
            wrong.push(fields.wrong(
                "to",
                None,
                "is missing: the destinations that are hit; all of a device never are",
            ));
        }
        let netns = fields.text("netns", wrong);
        if netns.as_deref().is_some_and(|n| !is_name(n)) {
            wrong.push(fields.wrong("netns", None, "is the name of a network namespace"));
        }
        let mut number = |key: &'static str, most: f64| {
            let n = fields.number(key, wrong);
            if n.is_some_and(|n| !(0.0..=most).contains(&n) || n == 0.0) {
                wrong.push(fields.wrong(key, None, format_args!("is above 0, and {most} at most")));
            }
            n
        };
        let (delay_ms, jitter_ms) = (number("delay_ms", 600_000.0), number("jitter_ms", 600_000.0));
        let (loss_pct, corrupt_pct) = (number("loss_pct", 100.0), number("corrupt_pct", 100.0));
        let (duplicate_pct, reorder_pct) = (number("duplicate_pct", 100.0), number("reorder_pct", 100.0));
        let rate_kbit = fields.count("rate_kbit", wrong);
        if rate_kbit == Some(0) {
            wrong.push(fields.wrong("rate_kbit", None, "is 1 at least"));
        }
        if jitter_ms.is_some() && delay_ms.is_none() {
            wrong.push(fields.wrong("jitter_ms", None, "needs `delay_ms`, around which it varies"));
        }
        if reorder_pct.is_some() && delay_ms.is_none() {
            wrong.push(fields.wrong("reorder_pct", None, "needs `delay_ms`: packets overtake those that are delayed"));
        }
        let spec = Spec {
            dev: dev?,
            to,
            netns,
            delay_ms,
            jitter_ms,
            loss_pct,
            corrupt_pct,
            duplicate_pct,
            reorder_pct,
            rate_kbit,
        };
        if spec.netem().is_empty() {
            wrong.push(fields.wrong("delay_ms", None, "or another effect is missing: nothing would happen"));
        }
        Some(spec)
    }

    pub(super) fn class(&self) -> FaultClass {
        FaultClass::Network
    }

    /// What netem is told.
    fn netem(&self) -> Vec<String> {
        let mut out = Vec::new();
        let mut say = |name: &str, value: Option<String>| {
            out.extend(value.into_iter().flat_map(|v| [name.to_string(), v]));
        };
        // tc reads times of three decimals; more would be cut off anyway.
        let time = |ms: f64| format!("{:.0}us", ms * 1000.0);
        let share = |pct: Option<f64>| pct.map(|p| format!("{p}%"));
        say("delay", self.delay_ms.map(time));
        if let Some(jitter) = self.jitter_ms {
            out.push(time(jitter));
        }
        let mut say = |name: &str, value: Option<String>| {
            out.extend(value.into_iter().flat_map(|v| [name.to_string(), v]));
        };
        say("loss", share(self.loss_pct));
        say("corrupt", share(self.corrupt_pct));
        say("duplicate", share(self.duplicate_pct));
        say("reorder", share(self.reorder_pct));
        say("rate", self.rate_kbit.map(|k| format!("{k}kbit")));
        out
    }

    /// Does it only lose packets, so that nothing but a drop shows it?
    fn only_loses(&self) -> bool {
        self.loss_pct.is_some() && self.netem().len() == 2
    }
}

/// The injector.
#[derive(Debug)]
pub struct Tc {
    spec: Spec,
    reach: Reach,
    /// The major number of the root's handle, in hexadecimal; netem's is the next.
    root: u16,
    hit: Vec<Endpoint>,
    listed: usize,
    victims: usize,
}

impl Tc {
    pub(super) fn prepare(spec: &Spec, cap: Cap) -> Result<Tc, String> {
        let number = u16::from_str_radix(&tag()[..4], 16).unwrap_or(0);
        Tc::with(spec, cap, Reach::of(spec.netns.as_deref()), number % 0x7000 * 2 + 0x100, &resolve)
    }

    fn with(
        spec: &Spec,
        cap: Cap,
        reach: Reach,
        root: u16,
        resolve: &dyn Fn(&str) -> Vec<IpAddr>,
    ) -> Result<Tc, String> {
        let victims = cap.of(spec.to.len());
        let mut hit = Vec::new();
        for host in &spec.to[..victims] {
            hit.extend(endpoints(host, resolve)?);
        }
        if hit.len() > 1024 {
            return Err(format!("{} destinations are hit, which should be 1024 at most", hit.len()));
        }
        Ok(Tc { spec: spec.clone(), reach, root, hit, listed: spec.to.len(), victims })
    }

    fn handle(&self) -> String {
        format!("{:x}:", self.root)
    }

    fn netem_handle(&self) -> String {
        format!("{:x}:", self.root + 1)
    }

    /// Every command that injects, in order.
    fn commands(&self) -> Vec<Vec<String>> {
        let dev = self.spec.dev.as_str();
        let (root, netem) = (self.handle(), self.netem_handle());
        let band = format!("{root}4");
        let mut prio = vec!["tc", "qdisc", "add", "dev", dev, "root", "handle", &root, "prio", "bands", "4", "priomap"];
        // The kernel's own map, which leaves the fourth band empty.
        prio.extend("1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1".split(' '));
        let told = self.spec.netem();
        let mut emulate = vec!["tc", "qdisc", "add", "dev", dev, "parent", &band, "handle", &netem, "netem"];
        emulate.extend(told.iter().map(String::as_str));
        let mut out = vec![self.reach.argv(&prio), self.reach.argv(&emulate)];
        out.extend(self.hit.iter().flat_map(|end| self.filters(*end, &root, &band)));
        out
    }

    /// Filters for a destination: with a port, one for TCP and one for UDP.
    fn filters(&self, end: Endpoint, root: &str, band: &str) -> Vec<Vec<String>> {
        let (protocol, field, bits, prio) =
            if end.address.is_ipv4() { ("ip", "ip", 32, "1") } else { ("ipv6", "ip6", 128, "2") };
        let address = format!("{}/{bits}", end.address);
        let filter = |more: &[&str]| {
            let head = ["tc", "filter", "add", "dev", &self.spec.dev, "parent", root, "protocol", protocol];
            let matched = ["prio", prio, "u32", "match", field, "dst", &address];
            let argv: Vec<&str> = [&head[..], &matched, more, &["flowid", band]].concat();
            self.reach.argv(&argv)
        };
        let Some(port) = end.port.map(|p| p.to_string()) else { return vec![filter(&[])] };
        // TCP and UDP have their ports at the same place.
        let ported = |number: &str| {
            filter(&["match", field, "protocol", number, "0xff", "match", field, "dport", &port, "0xffff"])
        };
        vec![ported("6"), ported("17")]
    }

    fn qdiscs(&self) -> Result<Vec<Qdisc>, Failed> {
        let text =
            run(&self.reach.argv(&["tc", "-s", "-j", "qdisc", "show", "dev", &self.spec.dev])).map_err(Failed)?;
        parse(&text).map_err(Failed)
    }

    fn observation(&self, qdiscs: &[Qdisc]) -> Observation {
        let mut out = Observation::default();
        let ours = qdiscs.iter().find(|q| q.kind == "netem" && q.handle == self.netem_handle());
        let mut count = |name: &str, n: u64| out.counters.extend([(name.to_string(), n as f64)]);
        count("listed", self.listed as u64);
        count("victims", self.victims as u64);
        count("packets", ours.map_or(0, |q| q.packets));
        count("bytes", ours.map_or(0, |q| q.bytes));
        count("drops", ours.map_or(0, |q| q.drops));
        out.states.insert("netem".into(), if ours.is_some() { "present" } else { "absent" }.into());
        out
    }
}

/// A queueing discipline, as `tc -s -j qdisc show` lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Qdisc {
    kind: String,
    handle: String,
    root: bool,
    bytes: u64,
    packets: u64,
    drops: u64,
}

fn parse(json: &str) -> Result<Vec<Qdisc>, String> {
    let json: Json = serde_json::from_str(json).map_err(|e| format!("what tc printed is no JSON: {e}"))?;
    let list = json.as_array().ok_or("what tc printed is no list")?;
    let qdisc = |entry: &Json| {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_string();
        let count = |key: &str| entry[key].as_u64().unwrap_or(0);
        Qdisc {
            kind: text("kind"),
            handle: text("handle"),
            root: entry["root"].as_bool().unwrap_or(false),
            bytes: count("bytes"),
            packets: count("packets"),
            drops: count("drops"),
        }
    };
    Ok(list.iter().map(qdisc).collect())
}

/// Is the root as the kernel made it, so that it comes back when ours goes? Handles that somebody gave are not 0.
fn root_is_free(dev: &str, qdiscs: &[Qdisc]) -> Result<(), String> {
    match qdiscs.iter().find(|q| q.root && q.handle != "0:") {
        None => Ok(()),
        Some(q) => Err(format!(
            "{dev} has a root qdisc already, {} {}: replacing it would change all traffic and could not be put back; \
             take it away (`tc qdisc del dev {dev} root`), or use another device, a network namespace or the proxy",
            q.kind, q.handle
        )),
    }
}

impl Injector for Tc {
    fn probe(&self) -> Probe {
        let trial = ["tc", "qdisc", "show", "dev", &self.spec.dev];
        let mut state = self.reach.readiness("tc", "iproute2", &trial);
        if state == Readiness::Ready {
            state = kernel_has("netem", &["delay", "1ms"]).and_then(|()| kernel_has("prio", &[])).map_or_else(
                Readiness::Missing,
                |()| match self.qdiscs().map_err(|e| e.0).and_then(|list| root_is_free(&self.spec.dev, &list)) {
                    Ok(()) => Readiness::Ready,
                    Err(why) => Readiness::Missing(why),
                },
            );
        }
        Probe { injector: "tc", state, version: version(&words(&["tc", "-V"])) }
    }

    fn plan(&self) -> Vec<String> {
        self.commands().iter().map(|argv| argv.join(" ")).collect()
    }

    fn undo(&self) -> Undo {
        let (dev, handle) = (self.spec.dev.as_str(), self.handle());
        let step = Step::Drop {
            commands: vec![self.reach.argv(&["tc", "qdisc", "del", "dev", dev, "root", "handle", &handle])],
            // Of all devices: one that is gone took its qdiscs with it.
            list: self.reach.argv(&["tc", "qdisc", "show"]),
            name: handle.trim_end_matches(':').to_string(),
            place: self.reach.place(),
        };
        Undo { what: format!("netem for some destinations of {dev}"), steps: vec![step] }
    }

    fn inject(&mut self) -> Result<(), Failed> {
        root_is_free(&self.spec.dev, &self.qdiscs()?).map_err(Failed)?;
        self.commands().iter().try_for_each(|argv| run(argv).map(|_| ())).map_err(Failed)
    }

    fn observe(&mut self) -> Result<Observation, Failed> {
        Ok(self.observation(&self.qdiscs()?))
    }

    fn landed(&self, before: &Observation, during: &Observation) -> (bool, String) {
        let count = |o: &Observation, name: &str| o.counters.get(name).copied().unwrap_or(0.0);
        let rose = |name: &str| count(during, name) > count(before, name);
        let landed = rose("drops") || (!self.spec.only_loses() && rose("packets"));
        let said = ["packets", "bytes", "drops"].map(|n| format!("{n}: {} -> {}", count(before, n), count(during, n)));
        (landed, format!("netem {}", said.join(", ")))
    }
}

/// Does the kernel know a qdisc? Tried in a network namespace that is gone at once.
pub(super) fn kernel_has(kind: &str, arguments: &[&str]) -> Result<(), String> {
    if !is_there("unshare") {
        return Err("`unshare` is not there: install the Debian package util-linux".into());
    }
    let reach = Reach::of(None);
    let trial = ["unshare", "-n", "tc", "qdisc", "add", "dev", "lo", "root", kind];
    let argv: Vec<&str> = trial.iter().chain(arguments).copied().collect();
    match run(&reach.argv(&argv)) {
        Err(why) if why.contains("kind is unknown") => {
            Err(format!("{kind} missing: modprobe sch_{kind} or a kernel with it"))
        }
        // Who may not make a namespace cannot try; injecting will tell.
        Err(why) if !why.contains("not permitted") => Err(why),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nobody(_: &str) -> Vec<IpAddr> {
        vec![]
    }

    fn tc(spec: &Spec, percent: u8) -> Tc {
        Tc::with(spec, Cap { percent }, Reach::of(None), 0xe100, &nobody).unwrap()
    }

    fn delay(to: &[&str]) -> Spec {
        let to = to.iter().map(|t| t.to_string()).collect();
        Spec { dev: "eth7".into(), to, delay_ms: Some(100.0), ..Spec::default() }
    }

    /// How a command looks whatever privileges we have.
    fn bare(plan: Vec<String>) -> Vec<String> {
        plan.into_iter().map(|p| p.trim_start_matches("sudo -n ").to_string()).collect()
    }

    /// What `tc -s -j qdisc show dev eth7` prints with our qdiscs, in the form of iproute2 6.1.
    fn recorded(packets: u64, drops: u64) -> String {
        format!(
            r#"[{{"kind":"prio","handle":"e100:","root":true,"refcnt":2,"options":{{"bands":4,"priomap":[1,2,2,2,1,2,0,0,1,1,1,1,1,1,1,1],"multiqueue":false}},"bytes":9000,"packets":90,"drops":0,"overlimits":0,"requeues":0,"backlog":0,"qlen":0}},
            {{"kind":"netem","handle":"e101:","parent":"e100:4","options":{{"limit":1000,"delay":{{"delay":0.1,"jitter":0,"correlation":0}},"ecn":false,"gap":0}},"bytes":{},"packets":{packets},"drops":{drops},"overlimits":0,"requeues":0,"backlog":0,"qlen":0}}]"#,
            packets * 60
        )
    }

    const FREE: &str = r#"[{"kind":"noqueue","handle":"0:","dev":"eth7","root":true,"refcnt":2,"options":{}}]"#;

    #[test]
    fn only_the_destination_enters_the_band_of_netem() {
        let plan = bare(tc(&delay(&["10.0.0.2"]), 50).plan());
        assert_eq!(
            plan,
            [
                "tc qdisc add dev eth7 root handle e100: prio bands 4 priomap 1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1",
                "tc qdisc add dev eth7 parent e100:4 handle e101: netem delay 100000us",
                "tc filter add dev eth7 parent e100: protocol ip prio 1 u32 match ip dst 10.0.0.2/32 flowid e100:4",
            ]
        );
    }

    #[test]
    fn ports_and_both_families_are_filtered() {
        let plan = bare(tc(&delay(&["10.0.0.2:80", "[fd00::2]"]), 100).plan());
        assert!(plan[2].contains("ip protocol 6 0xff match ip dport 80 0xffff"), "{}", plan[2]);
        assert!(plan[3].contains("ip protocol 17 0xff match ip dport 80 0xffff"), "{}", plan[3]);
        assert!(plan[4].contains("protocol ipv6 prio 2 u32 match ip6 dst fd00::2/128"), "{}", plan[4]);
    }

    #[test]
    fn every_effect_is_told_to_netem_in_its_words() {
        let spec = Spec {
            jitter_ms: Some(0.5),
            loss_pct: Some(1.5),
            corrupt_pct: Some(2.0),
            duplicate_pct: Some(3.0),
            reorder_pct: Some(25.0),
            rate_kbit: Some(512),
            ..delay(&["10.0.0.2"])
        };
        let expected = "delay 100000us 500us loss 1.5% corrupt 2% duplicate 3% reorder 25% rate 512kbit";
        assert_eq!(spec.netem().join(" "), expected);
    }

    #[test]
    fn the_cap_bounds_the_destinations() {
        let tc = tc(&delay(&["10.0.0.2", "10.0.0.3", "10.0.0.4"]), 34);
        assert_eq!(tc.hit.len(), 1);
        assert!(!tc.plan().join("\n").contains("10.0.0.3"));
    }

    #[test]
    fn a_root_that_somebody_set_up_is_refused_with_advice_and_the_kernels_own_is_not() {
        assert_eq!(root_is_free("eth7", &parse(FREE).unwrap()), Ok(()));
        let multi = r#"[{"kind":"mq","handle":"0:","root":true},{"kind":"fq_codel","handle":"0:","parent":":1"}]"#;
        assert_eq!(root_is_free("eth7", &parse(multi).unwrap()), Ok(()));
        let why = root_is_free("eth7", &parse(&recorded(0, 0)).unwrap()).unwrap_err();
        assert!(why.contains("prio e100:") && why.contains("tc qdisc del dev eth7 root"), "{why}");
    }

    #[test]
    fn netems_own_counters_prove_the_landing_and_other_traffic_does_not() {
        let tc = tc(&delay(&["10.0.0.2"]), 50);
        let seen = |text: &str| tc.observation(&parse(text).unwrap());
        let before = seen(FREE);
        assert_eq!(before.states["netem"], "absent");
        let (landed, words) = tc.landed(&before, &seen(&recorded(12, 0)));
        assert!(landed && words.contains("packets: 0 -> 12"), "{words}");
        assert!(!tc.landed(&before, &seen(&recorded(0, 0))).0, "90 packets of others prove nothing");
    }

    #[test]
    fn a_loss_has_landed_only_when_something_was_lost() {
        let spec = Spec { delay_ms: None, loss_pct: Some(10.0), ..delay(&["10.0.0.2"]) };
        let tc = tc(&spec, 50);
        let seen = |text: &str| tc.observation(&parse(text).unwrap());
        assert!(!tc.landed(&seen(FREE), &seen(&recorded(12, 0))).0);
        assert!(tc.landed(&seen(FREE), &seen(&recorded(12, 1))).0);
    }

    #[test]
    fn the_undo_names_the_handle_so_that_no_other_root_is_deleted() {
        let tc = tc(&delay(&["10.0.0.2"]), 50);
        let Step::Drop { commands, name, .. } = &tc.undo().steps[0] else { panic!() };
        assert!(commands[0].join(" ").ends_with("tc qdisc del dev eth7 root handle e100:"));
        assert!(super::super::undo::holds_word("qdisc prio e100: dev eth7 root", name));
        assert!(!super::super::undo::holds_word("qdisc prio ae100: dev eth7 root", name));
    }

    #[test]
    fn a_kernel_without_netem_is_told_from_one_with_it() {
        let reach = Reach::of(None);
        let loopback = Spec { dev: "lo".into(), ..delay(&["127.0.0.1"]) };
        let mut tc = Tc::with(&loopback, Cap { percent: 50 }, reach, 0xe100, &nobody).unwrap();
        match tc.probe().state {
            Readiness::Missing(how) if how.contains("missing: modprobe sch_") => {
                eprintln!("SKIPPED: no real netem here: {how}");
            }
            Readiness::Missing(how) => assert!(how.contains("iproute2") || how.contains("root qdisc"), "{how}"),
            Readiness::Unprivileged(why) => eprintln!("SKIPPED: {why}"),
            Readiness::Ready => assert_eq!(tc.observe().unwrap().states["netem"], "absent"),
        }
    }

    #[test]
    fn what_tc_prints_wrongly_is_an_error() {
        assert!(parse("").is_err() && parse("{}").is_err());
    }
}
