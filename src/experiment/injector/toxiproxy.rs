//! Breaks connections through a Toxiproxy that runs already, by its HTTP API.
//!
//! The server takes what makes no sense (a toxicity of 7, a latency of −5), so values are checked before anything is sent, and what it
//! lists afterwards is held against what was asked. It tosses a coin for each connection and way, so the cap is the *expected* share that is
//! hit; the built-in proxy never exceeds it. Its proxy must stand before the server that the scenario names, as the perimeter judged that
//! one. Reverting deletes each toxic and looks whether it is gone. Tool: `toxiproxy-server` 2.x, with `-proxy-metrics` so that it tells the
//! bytes that went through.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value as Json, json};

use super::proxy::toxic::{self, Kind, Toxic};
use super::undo::{Ask, Gone, Step, Undo, http};
use super::{Cap, Failed, Injector, Observation, Probe, Readiness};
use crate::experiment::front::{Complaint, Fields};

/// Where Toxiproxy listens if nobody says otherwise.
const DEFAULT: &str = "http://127.0.0.1:8474";

/// What a scenario says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spec {
    /// The server's API.
    pub url: String,
    /// The name of one of its proxies.
    pub proxy: String,
    /// The server that this proxy stands before.
    pub upstream: String,
    /// What is done: of one kind, one or both ways.
    pub toxics: Vec<Toxic>,
}

impl Spec {
    pub(super) fn take(fields: &mut Fields<'_>, wrong: &mut Vec<Complaint>) -> Option<Spec> {
        let url = fields.text("url", wrong).unwrap_or_else(|| DEFAULT.into());
        let url = url.trim_end_matches('/').to_string();
        if !url.starts_with("http://") || url.contains(['?', '#', ' ']) {
            wrong.push(fields.wrong("url", None, format_args!("is `http://host:port`, not `{url}`")));
        }
        let mut named = |key: &'static str, missing: &str| {
            let before = wrong.len();
            let text = fields.text(key, wrong).filter(|t| !t.is_empty());
            if text.is_none() && wrong.len() == before {
                wrong.push(fields.wrong(key, None, missing));
            }
            text
        };
        let proxy = named("proxy", "is missing: the name of a proxy of this Toxiproxy");
        let upstream = named("upstream", "is missing: `host:port` of the server that the proxy stands before");
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if let Some(name) = proxy.as_ref().filter(|name| !name.chars().all(plain)) {
            wrong.push(fields.wrong(
                "proxy",
                None,
                format_args!("is made of letters, digits, -, _ and ., not `{name}`"),
            ));
        }
        let toxics = toxic::take(fields, wrong);
        Some(Spec { url, proxy: proxy?, upstream: upstream?, toxics: toxics? })
    }
}

/// The injector.
#[derive(Debug)]
pub struct Remote {
    spec: Spec,
    /// As they are sent: capped, under names of our own.
    toxics: Vec<Toxic>,
}

impl Remote {
    pub(super) fn prepare(spec: &Spec, cap: Cap) -> Result<Remote, String> {
        spec.toxics.iter().try_for_each(Toxic::check)?;
        let down = spec.toxics.iter().any(|t| t.kind == Kind::Down);
        if down && cap.percent < 100 {
            return Err(format!(
                "a proxy of Toxiproxy is down for everybody, and `blast_radius_pct` is {}: the built-in `proxy` can be down for a share",
                cap.percent
            ));
        }
        let ways = spec.toxics.len();
        let ours = |t: &Toxic| Toxic {
            name: format!("elench_{}", t.name),
            toxicity: per_way(t.toxicity.min(cap.share()), ways),
            ..t.clone()
        };
        Ok(Remote { spec: spec.clone(), toxics: spec.toxics.iter().map(ours).collect() })
    }

    fn of_proxy(&self) -> String {
        format!("{}/proxies/{}", self.spec.url, self.spec.proxy)
    }

    /// The requests that inject: where, and what.
    fn requests(&self) -> Vec<(String, Json)> {
        let request = |toxic: &Toxic| match toxic.kind {
            Kind::Down => (self.of_proxy(), json!({ "enabled": false })),
            _ => (format!("{}/toxics", self.of_proxy()), toxic.to_json()),
        };
        self.toxics.iter().map(request).collect()
    }

    /// The proxy as the server shows it.
    fn shown(&self) -> Result<Json, String> {
        let url = self.of_proxy();
        match http("GET", &url, "")? {
            (200, text) => serde_json::from_str(&text).map_err(|e| format!("{url}: an answer that is no JSON: {e}")),
            (404, _) => Err(format!("{}: there is no proxy `{}`", self.spec.url, self.spec.proxy)),
            (status, text) => Err(format!("{url}: status {status}: {}", text.trim())),
        }
    }

    /// Does the proxy stand before the server that was judged?
    fn judged(&self, shown: &Json) -> Result<(), String> {
        match shown["upstream"].as_str() {
            Some(upstream) if upstream == self.spec.upstream => Ok(()),
            other => Err(format!(
                "proxy `{}` stands before {}, the scenario says {}",
                self.spec.proxy,
                other.unwrap_or("nothing"),
                self.spec.upstream
            )),
        }
    }

    /// Bytes that the proxy received, by way; none if the server does not tell.
    fn received(&self) -> Option<BTreeMap<&'static str, f64>> {
        let (status, text) = http("GET", &format!("{}/metrics", self.spec.url), "").ok()?;
        (status == 200).then(|| received(&text, &self.spec.proxy))
    }
}

/// The toxicity a way, so that the share hit by any of them is the whole's: coins are tossed independently.
fn per_way(share: f64, ways: usize) -> f64 {
    if ways < 2 { share } else { 1.0 - (1.0 - share).powf(1.0 / ways as f64) }
}

/// The sums of `toxiproxy_proxy_received_bytes_total` of a proxy, by direction, in Prometheus' text form.
fn received(text: &str, proxy: &str) -> BTreeMap<&'static str, f64> {
    let mut sums = BTreeMap::from([("upstream", 0.0), ("downstream", 0.0)]);
    let of_proxy = format!("proxy=\"{proxy}\"");
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("toxiproxy_proxy_received_bytes_total{") else { continue };
        let Some((labels, value)) = rest.rsplit_once('}') else { continue };
        if !labels.split(',').any(|label| label == of_proxy) {
            continue;
        }
        let value: f64 = value.split_whitespace().next().and_then(|v| v.parse().ok()).unwrap_or(0.0);
        for (way, sum) in &mut sums {
            if labels.contains(&format!("direction=\"{way}\"")) {
                *sum += value;
            }
        }
    }
    sums
}

/// Is this toxic, as the server lists it, the one that was asked for?
fn is_as_asked(listed: &Json, toxic: &Toxic) -> bool {
    let same_share = listed["toxicity"].as_f64().is_some_and(|t| (t - toxic.toxicity).abs() < 1e-6);
    let attributes = toxic.kind.attributes();
    let same = attributes.iter().all(|(key, value)| {
        // Older servers leave out what is 0.
        listed["attributes"][key].as_f64().unwrap_or(0.0) == *value as f64
    });
    same_share && same && listed["type"] == toxic.kind.name() && listed["stream"] == toxic.stream.name()
}

const ABSENT: &str = "absent";
const AS_ASKED: &str = "as asked";

impl Injector for Remote {
    fn probe(&self) -> Probe {
        let asked = http("GET", &format!("{}/version", self.spec.url), "");
        let (state, version) = match asked {
            Ok((200, text)) => {
                let json: Option<Json> = serde_json::from_str(&text).ok();
                let version = json.and_then(|j| j["version"].as_str().map(String::from)).unwrap_or(text);
                let fine = self.shown().and_then(|shown| self.judged(&shown));
                (fine.map_or_else(Readiness::Missing, |()| Readiness::Ready), Some(version.trim().to_string()))
            }
            Ok((status, _)) => {
                (Readiness::Missing(format!("{} is no Toxiproxy: status {status}", self.spec.url)), None)
            }
            Err(why) => (Readiness::Missing(format!("{why}; start `toxiproxy-server`, or use `proxy`")), None),
        };
        Probe { injector: "toxiproxy", state, version }
    }

    fn plan(&self) -> Vec<String> {
        self.requests().into_iter().map(|(url, body)| format!("POST {url} {body}")).collect()
    }

    fn undo(&self) -> Undo {
        let step = |toxic: &Toxic| {
            let proxy = self.of_proxy();
            let of_toxic = format!("{proxy}/toxics/{}", toxic.name);
            Step::Http(match toxic.kind {
                Kind::Down => Ask {
                    method: "POST".into(),
                    url: proxy.clone(),
                    body: json!({ "enabled": true }).to_string(),
                    look: proxy,
                    gone: Gone::Holds { pointer: "/enabled".into(), value: json!(true) },
                    owner: None,
                },
                _ => Ask {
                    method: "DELETE".into(),
                    url: of_toxic.clone(),
                    body: String::new(),
                    look: of_toxic,
                    gone: Gone::Missing,
                    owner: None,
                },
            })
        };
        let what = format!("toxics of proxy `{}` at {}", self.spec.proxy, self.spec.url);
        Undo { what, steps: self.toxics.iter().map(step).collect() }
    }

    fn inject(&mut self) -> Result<(), Failed> {
        self.shown().and_then(|shown| self.judged(&shown)).map_err(Failed)?;
        for (url, body) in self.requests() {
            match http("POST", &url, &body.to_string()).map_err(Failed)? {
                (200 | 201, _) => {}
                (status, text) => {
                    return Err(Failed(format!("POST {url} {body}: status {status}: {}", text.trim())));
                }
            }
        }
        Ok(())
    }

    fn observe(&mut self) -> Result<Observation, Failed> {
        let shown = self.shown().map_err(Failed)?;
        let mut out = Observation::default();
        out.states.insert("enabled".into(), shown["enabled"].to_string());
        let none = Vec::new();
        let listed = shown["toxics"].as_array().unwrap_or(&none);
        for toxic in self.toxics.iter().filter(|t| t.kind != Kind::Down) {
            let state = match listed.iter().find(|l| l["name"] == *toxic.name) {
                None => ABSENT.to_string(),
                Some(json) if is_as_asked(json, toxic) => AS_ASKED.to_string(),
                Some(json) => json.to_string(),
            };
            out.states.insert(toxic.name.clone(), state);
        }
        for (way, bytes) in self.received().into_iter().flatten() {
            out.counters.insert(format!("bytes {way}"), bytes);
        }
        Ok(out)
    }

    /// Every toxic must have come as it was asked for, and bytes must have gone its way since, where the server tells.
    fn landed(&self, before: &Observation, during: &Observation) -> (bool, String) {
        let state = |o: &Observation, name: &str| o.states.get(name).cloned().unwrap_or_else(|| "unknown".into());
        let mut all = !self.toxics.is_empty();
        let mut words = Vec::new();
        for toxic in &self.toxics {
            let (name, from, to) = match toxic.kind {
                Kind::Down => ("enabled", "true", "false"),
                _ => (toxic.name.as_str(), ABSENT, AS_ASKED),
            };
            let (was, is) = (state(before, name), state(during, name));
            all &= was == from && is == to;
            words.push(format!("{name}: {was} -> {is}"));
        }
        let mut told = false;
        let mut moved = false;
        for toxic in self.toxics.iter().filter(|t| t.kind != Kind::Down) {
            let name = format!("bytes {}", toxic.stream.name());
            let Some(is) = during.counters.get(&name) else { continue };
            let was = before.counters.get(&name).copied().unwrap_or(0.0);
            told = true;
            moved |= *is > was;
            words.push(format!("{name}: {was} -> {is}"));
        }
        if !told {
            words.push("the server does not tell bytes (`toxiproxy-server -proxy-metrics` does)".into());
        }
        (all && (moved || !told), words.join("; "))
    }
}

#[cfg(test)]
mod tests;
