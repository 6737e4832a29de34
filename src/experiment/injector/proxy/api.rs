//! Toxiproxy's HTTP API over our proxies, so that its clients can drive them.
//!
//! Same paths, same JSON; where it differs, it is stricter: values that make no sense are refused, what is set is what is listed (a
//! toxicity above the cap is listed as the cap), proxies listen on loopback only and forward to loopback or to the server that the
//! scenario names, as the perimeter judged nothing else. Three paths are ours: `/proxies/NAME/counters`, `/proxies/NAME/timeline`, and
//! `/faults`, the number of toxics that are set anywhere.
//!
//! A proxy's API is also what the dead man's switch, another process, mends through. Where no scenario asked for an API it listens on a
//! free port and does nothing else: it reads and resets.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use serde_json::{Value as Json, json};
use tiny_http::{Header, Method, Request, Response, Server};

use super::server::{Proxy, lock};
use super::toxic::{Kind, Stream, Toxic};
use crate::experiment::context::host;

/// Bytes of a request that are read.
const MAX_BODY: u64 = 1 << 20;
/// Proxies that clients may make.
const MAX_PROXIES: usize = 256;

struct Inner {
    proxies: Mutex<BTreeMap<String, Proxy>>,
    /// The scenario's own proxy, which stays.
    own: Option<String>,
    /// The server that the scenario names.
    upstream: String,
    cap: f64,
    read_only: bool,
}

/// An API that runs until it is dropped.
pub struct Api {
    server: Arc<Server>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Api({})", self.address)
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Api {
    /// Starts it for one proxy. `read_only`: it answers, and resets, and does nothing else.
    ///
    /// # Errors
    /// It cannot listen there, or there is no loopback address.
    pub fn start(listen: &str, name: &str, proxy: &Proxy, read_only: bool) -> Result<Api, String> {
        if !is_loopback(listen) {
            return Err(format!("`api: {listen}` is no address of loopback: anybody could break what runs here"));
        }
        let server = Server::http(listen).map_err(|e| format!("{listen}: cannot listen: {e}"))?;
        let address = server.server_addr().to_ip().ok_or("the API listens on no address")?;
        let inner = Inner {
            proxies: Mutex::new(BTreeMap::from([(name.to_string(), proxy.clone())])),
            own: Some(name.to_string()),
            upstream: proxy.upstream().to_string(),
            cap: proxy.cap(),
            read_only,
        };
        let server = Arc::new(server);
        let theirs = Arc::clone(&server);
        let serve = move || {
            for request in theirs.incoming_requests() {
                inner.answer(request);
            }
        };
        let thread = std::thread::Builder::new().name("proxy api".into()).spawn(serve).map_err(|e| e.to_string())?;
        Ok(Api { server, address, thread: Some(thread) })
    }

    /// Its URL, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Is it an address of loopback, by number or as `localhost`?
pub(super) fn is_loopback(address: &str) -> bool {
    let name = host(address);
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|a| a.to_canonical().is_loopback())
}

/// An answer: a status, and a body if there is one.
type Answer = (u16, Option<Json>);
/// What went wrong: a status, and why.
type Wrong = (u16, String);

fn bad(why: impl std::fmt::Display) -> Wrong {
    (400, format!("bad request body: {why}"))
}

impl Inner {
    fn answer(&self, mut request: Request) {
        let mut body = String::new();
        let read = request.as_reader().take(MAX_BODY + 1).read_to_string(&mut body);
        let agent = request.headers().iter().find(|h| h.field.equiv("User-Agent")).map(|h| h.value.as_str());
        let answer = if agent.is_some_and(|agent| agent.starts_with("Mozilla/")) {
            Err((403, "User agent not allowed".to_string()))
        } else if read.is_err() || body.len() as u64 > MAX_BODY {
            Err(bad("it is no text, or too long"))
        } else {
            self.route(request.method(), request.url(), &body)
        };
        let (status, json) =
            answer.unwrap_or_else(|(status, why)| (status, Some(json!({ "error": why, "status": status }))));
        let text = json.map_or_else(String::new, |json| json.to_string());
        let mut response = Response::from_string(text).with_status_code(status);
        if let Ok(header) = Header::from_bytes("Content-Type", "application/json") {
            response = response.with_header(header);
        }
        // Who does not wait for the answer does not get one.
        let _ = request.respond(response);
    }

    fn route(&self, method: &Method, url: &str, body: &str) -> Result<Answer, Wrong> {
        let path = url.split('?').next().unwrap_or("");
        let parts: Vec<String> = path.split('/').filter(|p| !p.is_empty()).map(decoded).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let update = matches!(method, Method::Post | Method::Patch);
        match (method, parts.as_slice()) {
            (Method::Get, ["version"]) => Ok((200, Some(json!({ "version": version() })))),
            (Method::Get, ["faults"]) => Ok((200, Some(json!({ "active": self.active() })))),
            (Method::Get, ["proxies"]) => Ok((200, Some(self.list()))),
            (Method::Get, ["proxies", name]) => Ok((200, Some(shown(name, &self.proxy(name)?)))),
            (Method::Get, ["proxies", name, "counters"]) => serialized(&self.proxy(name)?.counters()),
            (Method::Get, ["proxies", name, "timeline"]) => serialized(&self.proxy(name)?.timeline()),
            (Method::Get, ["proxies", name, "toxics"]) => Ok((200, Some(toxics(&self.proxy(name)?)))),
            (Method::Get, ["proxies", name, "toxics", toxic]) => {
                let found = visible(&self.proxy(name)?).into_iter().find(|t| t.name == *toxic);
                found.map(|t| (200, Some(t.to_json()))).ok_or_else(no_toxic)
            }
            (Method::Post, ["reset"]) => self.reset(),
            _ if self.read_only => Err((403, "this scenario asked for no API: it reads and resets only".into())),
            (Method::Post, ["populate"]) => self.populate(&parse(body)?),
            (Method::Post, ["proxies"]) => self.create(&parse(body)?).map(|shown| (201, Some(shown))),
            (_, ["proxies", name]) if update => self.enable(name, &parse(body)?),
            (Method::Delete, ["proxies", name]) => self.delete(name),
            (Method::Post, ["proxies", name, "toxics"]) => self.add(name, &parse(body)?),
            (_, ["proxies", name, "toxics", toxic]) if update => self.alter(name, toxic, &parse(body)?),
            (Method::Delete, ["proxies", name, "toxics", toxic]) => self.remove(name, toxic),
            (_, ["version" | "faults" | "proxies" | "reset" | "populate", ..]) => {
                Err((405, format!("{method} is not for {path}")))
            }
            _ => Err((404, "404 page not found".into())),
        }
    }

    fn proxy(&self, name: &str) -> Result<Proxy, Wrong> {
        lock(&self.proxies).get(name).cloned().ok_or_else(|| (404, "proxy not found".into()))
    }

    fn active(&self) -> usize {
        lock(&self.proxies).values().map(Proxy::faults).sum()
    }

    fn list(&self) -> Json {
        let proxies = lock(&self.proxies);
        Json::Object(proxies.iter().map(|(name, proxy)| (name.clone(), shown(name, proxy))).collect())
    }

    fn reset(&self) -> Result<Answer, Wrong> {
        let proxies: Vec<Proxy> = lock(&self.proxies).values().cloned().collect();
        // All of them are mended, whatever one of them says.
        let wrong = proxies.iter().filter_map(|proxy| proxy.clear().err()).collect::<Vec<_>>();
        if wrong.is_empty() { Ok((204, None)) } else { Err((500, wrong.join("; "))) }
    }

    fn create(&self, json: &Json) -> Result<Json, Wrong> {
        let text = |key: &str| json.get(key).and_then(Json::as_str).filter(|t| !t.is_empty());
        let missing = |key: &str| (400, format!("missing required field: {key}"));
        let name = text("name").ok_or_else(|| missing("name"))?;
        let upstream = text("upstream").ok_or_else(|| missing("upstream"))?;
        let listen = text("listen").unwrap_or("127.0.0.1:0");
        let enabled = truth(json, "enabled")?.unwrap_or(true);
        if name.contains('/') {
            return Err(bad("a name holds no slash"));
        }
        if !is_loopback(listen) {
            return Err((403, format!("`listen: {listen}` is no address of loopback")));
        }
        if !is_loopback(upstream) && upstream != self.upstream {
            let why = format!("`upstream: {upstream}` is neither on loopback nor the scenario's own: nobody judged it");
            return Err((403, why));
        }
        let mut proxies = lock(&self.proxies);
        if proxies.contains_key(name) {
            return Err((409, "proxy already exists".into()));
        }
        if proxies.len() >= MAX_PROXIES {
            return Err((400, format!("there are at most {MAX_PROXIES} proxies")));
        }
        let proxy =
            Proxy::start_capped(listen, upstream, self.cap).map_err(|e| (500, format!("listen {listen}: {e}")))?;
        if !enabled {
            switch(&proxy, false)?;
        }
        let json = shown(name, &proxy);
        proxies.insert(name.to_string(), proxy);
        Ok(json)
    }

    /// All or as many as can be made; one that is there as described stays.
    fn populate(&self, json: &Json) -> Result<Answer, Wrong> {
        let list = json.as_array().ok_or_else(|| bad("a list of proxies"))?;
        let mut made = Vec::new();
        for item in list {
            let text = |key: &str| item.get(key).and_then(Json::as_str).unwrap_or("");
            let name = text("name");
            if let Ok(there) = self.proxy(name) {
                if there.upstream() == text("upstream") && there.listen().to_string() == text("listen") {
                    made.push(shown(name, &there));
                    continue;
                }
                self.delete(name)?;
            }
            match self.create(item) {
                Ok(json) => made.push(json),
                Err((status, why)) => {
                    return Ok((status, Some(json!({ "error": why, "status": status, "proxies": made }))));
                }
            }
        }
        Ok((201, Some(json!({ "proxies": made }))))
    }

    fn enable(&self, name: &str, json: &Json) -> Result<Answer, Wrong> {
        let proxy = self.proxy(name)?;
        let now = [("listen", proxy.listen().to_string()), ("upstream", proxy.upstream().to_string())];
        for (key, value) in now {
            if json.get(key).and_then(Json::as_str).is_some_and(|given| !given.is_empty() && given != value) {
                return Err(bad(format_args!("`{key}` of a proxy does not change: delete it and make another")));
            }
        }
        if let Some(enabled) = truth(json, "enabled")? {
            switch(&proxy, enabled)?;
        }
        Ok((200, Some(shown(name, &proxy))))
    }

    fn delete(&self, name: &str) -> Result<Answer, Wrong> {
        if self.own.as_deref() == Some(name) {
            return Err((403, format!("`{name}` is the scenario's own: it stays as long as the run")));
        }
        let gone = lock(&self.proxies).remove(name);
        gone.map(|_| (204, None)).ok_or_else(|| (404, "proxy not found".into()))
    }

    fn add(&self, name: &str, json: &Json) -> Result<Answer, Wrong> {
        let proxy = self.proxy(name)?;
        let mut toxic = Toxic::from_json(json).map_err(bad)?;
        toxic.toxicity = toxic.toxicity.min(proxy.cap());
        let answer = toxic.to_json();
        let mut taken = false;
        let added = proxy.update(|toxics| {
            taken = toxics.iter().any(|t| t.name == toxic.name);
            if taken {
                return Err("toxic already exists".into());
            }
            toxics.push(toxic);
            Ok(())
        });
        match added {
            Ok(()) => Ok((200, Some(answer))),
            Err(why) => Err((if taken { 409 } else { 500 }, why)),
        }
    }

    fn alter(&self, name: &str, toxic: &str, json: &Json) -> Result<Answer, Wrong> {
        let proxy = self.proxy(name)?;
        let mut answer = Err(no_toxic());
        let done = proxy.update(|toxics| {
            let found = toxics.iter_mut().find(|t| t.name == toxic && t.kind != Kind::Down).ok_or("toxic not found")?;
            let mut updated = found.updated(json).inspect_err(|why| answer = Err(bad(why)))?;
            updated.toxicity = updated.toxicity.min(proxy.cap());
            answer = Ok((200, Some(updated.to_json())));
            *found = updated;
            Ok(())
        });
        match (done, answer) {
            (Err(why), Ok(_)) => Err((500, why)),
            (_, answer) => answer,
        }
    }

    fn remove(&self, name: &str, toxic: &str) -> Result<Answer, Wrong> {
        let proxy = self.proxy(name)?;
        let mut found = false;
        let done = proxy.update(|toxics| {
            found = toxics.iter().any(|t| t.name == toxic && t.kind != Kind::Down);
            if !found {
                return Err("toxic not found".into());
            }
            toxics.retain(|t| t.name != toxic);
            Ok(())
        });
        match done {
            Ok(()) => Ok((204, None)),
            Err(_) if !found => Err(no_toxic()),
            Err(why) => Err((500, why)),
        }
    }
}

fn no_toxic() -> Wrong {
    (404, "toxic not found".into())
}

fn parse(body: &str) -> Result<Json, Wrong> {
    serde_json::from_str(body).map_err(bad)
}

fn truth(json: &Json, key: &str) -> Result<Option<bool>, Wrong> {
    match json.get(key) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::Bool(b)) => Ok(Some(*b)),
        Some(other) => Err(bad(format_args!("`{key}` is true or false, not {other}"))),
    }
}

fn version() -> String {
    format!("elench-{}", env!("CARGO_PKG_VERSION"))
}

fn serialized<T: serde::Serialize>(value: &T) -> Result<Answer, Wrong> {
    serde_json::to_value(value).map(|json| (200, Some(json))).map_err(|e| (500, e.to_string()))
}

/// The toxics that Toxiproxy would call so.
fn visible(proxy: &Proxy) -> Vec<Toxic> {
    proxy.toxics().into_iter().filter(|t| t.kind != Kind::Down).collect()
}

fn toxics(proxy: &Proxy) -> Json {
    visible(proxy).iter().map(Toxic::to_json).collect()
}

fn shown(name: &str, proxy: &Proxy) -> Json {
    json!({
        "name": name,
        "listen": proxy.listen().to_string(),
        "upstream": proxy.upstream(),
        "enabled": proxy.is_enabled(),
        "toxics": toxics(proxy),
    })
}

/// Takes a proxy down, or up. Down is for everybody, so a cap below the whole forbids it.
fn switch(proxy: &Proxy, enabled: bool) -> Result<(), Wrong> {
    if !enabled && proxy.cap() < 1.0 {
        let why = format!("`enabled: false` would hit everybody, and the cap is {} %", proxy.cap() * 100.0);
        return Err((403, why));
    }
    let done = proxy.update(|toxics| {
        toxics.retain(|t| t.kind != Kind::Down);
        if !enabled {
            toxics.push(Toxic { name: "down".into(), ..Toxic::new(Kind::Down, Stream::Upstream) });
        }
        Ok(())
    });
    done.map_err(|why| (500, why))
}

/// Takes the percent signs out of a part of a path; what is no such sign stays.
fn decoded(part: &str) -> String {
    let bytes = part.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'%').then(|| part.get(at + 1..at + 3)).flatten();
        match code.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
