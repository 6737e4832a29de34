//! Breaks the connections between clients and a server, with nothing installed: a TCP proxy inside Elench.
//!
//! The workload connects to the proxy instead of the server, from the start: `BuiltIn::prepare` starts it, forwarding everything. `inject`
//! switches toxics on, for a share of the connections; reverting switches them off. The proxy counts what each toxic did to each connection,
//! so a workload that goes another way is seen: nothing was acted on, and the fault did not land.
//!
//! When Elench dies, the proxy dies with it: connections through it break, new ones are refused, and no toxic is left anywhere. While Elench
//! lives, the undo is a request to the proxy's API on loopback, so that the dead man's switch, another process, can mend also when the run
//! hangs.
//!
//! What clients see differs from a fault below TCP in one thing: the proxy accepts by itself. So connecting succeeds also through a
//! blackhole, and a server that is not there is seen as a reset, not as a refusal. Tool: none.

pub mod api;
mod connection;
mod lane;
pub mod record;
mod server;
mod share;
#[cfg(test)]
mod tests;
pub mod toxic;

use serde::Serialize;
use serde_json::json;

pub use self::api::Api;
pub use self::server::Proxy;
use self::toxic::{Kind, Toxic};
use super::undo::{Ask, Gone, Step, Undo, Victim};
use super::{Cap, Failed, Injector, Observation, Probe, Readiness};
use crate::experiment::front::{Complaint, Fields};
use crate::verdict::blame::FaultClass;

/// The name of the scenario's proxy in the API.
const NAME: &str = "target";

/// What a scenario says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spec {
    /// Where the workload connects.
    pub listen: String,
    /// The server.
    pub upstream: String,
    /// What is done: of one kind, one or both ways.
    pub toxics: Vec<Toxic>,
    /// Says which connections are hit.
    pub seed: u64,
    /// Where Toxiproxy's clients may drive the proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
}

impl Spec {
    pub(super) fn take(fields: &mut Fields<'_>, wrong: &mut Vec<Complaint>) -> Option<Spec> {
        let mut address = |key: &'static str, missing: &str| {
            let before = wrong.len();
            let text = fields.text(key, wrong);
            match &text {
                None if wrong.len() == before => wrong.push(fields.wrong(key, None, missing)),
                Some(text) if !has_port(text) => {
                    wrong.push(fields.wrong(key, None, format_args!("is `host:port`, not `{text}`")));
                }
                _ => {}
            }
            text
        };
        let listen = address("listen", "is missing: `host:port` that the workload connects to");
        let upstream = address("upstream", "is missing: `host:port` of the server");
        let api = fields.text("api", wrong);
        if let Some(api) = api.as_ref().filter(|api| !has_port(api) || !api::is_loopback(api)) {
            wrong.push(fields.wrong("api", None, format_args!("is `host:port` on loopback, not `{api}`")));
        }
        let seed = fields.count("seed", wrong).unwrap_or(1);
        let toxics = toxic::take(fields, wrong);
        Some(Spec { listen: listen?, upstream: upstream?, toxics: toxics?, seed, api })
    }
}

fn has_port(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

/// What toxics do to a system: a connection through which nothing comes is a partition to those at its ends.
pub(super) fn class(toxics: &[Toxic]) -> FaultClass {
    match toxics.iter().any(|t| matches!(t.kind, Kind::Timeout { .. })) {
        true => FaultClass::Partition,
        false => FaultClass::Network,
    }
}

/// The injector.
#[derive(Debug)]
pub struct BuiltIn {
    // Before the proxy, so that nobody drives one that is being stopped.
    api: Api,
    proxy: Proxy,
    spec: Spec,
    share: f64,
}

impl BuiltIn {
    /// Starts the proxy, without a toxic.
    pub(super) fn prepare(spec: &Spec, cap: Cap) -> Result<BuiltIn, String> {
        spec.toxics.iter().try_for_each(Toxic::check)?;
        let proxy = Proxy::start_capped(&spec.listen, &spec.upstream, cap.share())
            .map_err(|e| format!("the proxy cannot listen on {}: {e}", spec.listen))?;
        let toxicity = spec.toxics.iter().map(|t| t.toxicity).fold(0.0, f64::max);
        let api = Api::start(spec.api.as_deref().unwrap_or("127.0.0.1:0"), NAME, &proxy, spec.api.is_none())?;
        Ok(BuiltIn { api, proxy, spec: spec.clone(), share: toxicity.min(cap.share()) })
    }

    /// The proxy: its address, counters and timeline.
    pub fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    /// Is anybody who comes refused? Asked by knocking, as what is set proves nothing.
    fn refuses(&self) -> bool {
        use std::net::TcpStream;
        let patience = std::time::Duration::from_secs(1);
        let knock = TcpStream::connect_timeout(&self.proxy.listen(), patience);
        matches!(knock, Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused)
    }

    fn takes_down(&self) -> bool {
        self.spec.toxics.iter().any(|t| t.kind == Kind::Down)
    }
}

impl Injector for BuiltIn {
    fn probe(&self) -> Probe {
        let version = Some(env!("CARGO_PKG_VERSION").to_string());
        Probe { injector: "proxy", state: Readiness::Ready, version }
    }

    fn plan(&self) -> Vec<String> {
        let way = format!("proxy {} -> {}", self.proxy.listen(), self.spec.upstream);
        let toxic = |t: &Toxic| {
            let attributes: Vec<String> = t.kind.attributes().iter().map(|(k, v)| format!("{k}={v}")).collect();
            let share = self.share * 100.0;
            format!("{way}: {} {} of {share} % of connections", t.name, attributes.join(" "))
        };
        self.spec.toxics.iter().map(toxic).collect()
    }

    fn undo(&self) -> Undo {
        let url = self.api.url();
        let step = Step::Http(Ask {
            method: "POST".into(),
            url: format!("{url}/reset"),
            body: String::new(),
            look: format!("{url}/faults"),
            gone: Gone::Holds { pointer: "/active".into(), value: json!(0) },
            owner: Victim::of(i32::try_from(std::process::id()).unwrap_or(0)),
        });
        Undo { what: format!("toxics of the proxy on {}", self.proxy.listen()), steps: vec![step] }
    }

    fn inject(&mut self) -> Result<(), Failed> {
        let toxics: Vec<Toxic> = self.spec.toxics.iter().map(|t| Toxic { toxicity: 1.0, ..t.clone() }).collect();
        self.proxy.set(&toxics, self.share, self.spec.seed).map_err(Failed)
    }

    fn observe(&mut self) -> Result<Observation, Failed> {
        let mut out = Observation::default();
        let down = self.takes_down() && !self.proxy.toxics().is_empty();
        // Knocking on an open door would count as a connection.
        let door = if down && self.refuses() { "refuses" } else { "open" };
        out.states.insert("door".into(), door.into());
        let counters = self.proxy.counters();
        for (name, n) in [
            ("connections", counters.connections),
            ("connections live", counters.live),
            ("connections chosen", counters.chosen),
            ("connections unreachable", counters.unreachable),
            ("connections overflowed", counters.overflow),
            ("bytes upstream", counters.upstream_bytes),
            ("bytes downstream", counters.downstream_bytes),
        ] {
            out.counters.insert(name.into(), n as f64);
        }
        for toxic in &self.spec.toxics {
            let tally = counters.of(&toxic.name);
            out.counters.insert(format!("{}: acts", toxic.name), tally.acts as f64);
            out.counters.insert(format!("{}: bytes", toxic.name), tally.bytes as f64);
            out.counters.insert(format!("{}: connections", toxic.name), tally.connections as f64);
        }
        let set = self.proxy.toxics();
        let names: Vec<&str> = set.iter().map(|t| t.name.as_str()).collect();
        out.states.insert("toxics".into(), if names.is_empty() { "none".into() } else { names.join(" ") });
        Ok(out)
    }

    /// A toxic must have changed something since, of one way at least: what holds back requests leaves no answers to act on. A door that
    /// is closed counts if anybody ever came through it.
    fn landed(&self, before: &Observation, during: &Observation) -> (bool, String) {
        let of = |o: &Observation, name: &str| o.counters.get(name).copied().unwrap_or(0.0);
        if of(during, "connections") == 0.0 {
            let why = format!(
                "no connection ever came through the proxy on {}: does the workload connect there?",
                self.proxy.listen()
            );
            return (false, why);
        }
        let mut any = false;
        let mut words = Vec::new();
        for toxic in &self.spec.toxics {
            let name = format!("{}: acts", toxic.name);
            let (was, is) = (of(before, &name), of(during, &name));
            let closed = toxic.kind == Kind::Down && during.states.get("door").is_some_and(|d| d == "refuses");
            any |= is > was || closed;
            let bytes = of(during, &format!("{}: bytes", toxic.name));
            let on = of(during, &format!("{}: connections", toxic.name));
            let door = if closed { ", new connections are refused" } else { "" };
            words.push(format!(
                "{}: acted {was} -> {is} times, on {bytes} bytes of {on} of {} connections{door}",
                toxic.name,
                of(during, "connections")
            ));
        }
        (any, words.join("; "))
    }

    fn trace(&self) -> Option<(&'static str, serde_json::Value)> {
        serde_json::to_value(self.proxy.timeline()).ok().map(|json| ("proxy-timeline.json", json))
    }
}
