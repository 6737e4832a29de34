//! etcd, by the JSON that its server speaks beside gRPC (`/v3/kv/…`), a connection a request.
//!
//! Registers are keys; compare-and-set and transactions of lists are etcd's own transactions, which compare what was read. A lock is a
//! key that is made if it is not there. With option `read` set to `serializable`, reads ask one node what it knows, however stale.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use elench_formats::Value;
use serde_json::{Value as Json, json};

use super::operations::{Kind, Mop, Operation, keyed, transaction};
use super::{Answer, Broken, Driver, Session, Target};

/// Names that all keys of a run begin with.
const SPACE: &str = "elench/";

/// The system.
#[derive(Debug)]
pub struct Etcd {
    target: Target,
}

impl Etcd {
    pub(super) fn new(target: Target) -> Etcd {
        Etcd { target }
    }
}

fn encode(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}

fn decode(value: Option<&Json>) -> Option<String> {
    String::from_utf8(BASE64_STANDARD.decode(value?.as_str()?).ok()?).ok()
}

/// Numbers of 64 bits come as texts.
fn number(value: Option<&Json>) -> i64 {
    value.and_then(|v| v.as_i64().or_else(|| v.as_str()?.parse().ok())).unwrap_or(0)
}

impl Driver for Etcd {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Register, Kind::CasRegister, Kind::ListAppend, Kind::Lock]
    }

    fn prepare(&self, _: Kind, _: u64) -> Result<(), String> {
        let range = json!({ "key": encode(SPACE), "range_end": encode("elench0") });
        let mut last = String::new();
        for endpoint in &self.target.endpoints {
            match post(endpoint, "kv/deleterange", &range, self.target.timeout) {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(why)) => last = why,
                Err(broken) => last = broken.why,
            }
        }
        Err(last)
    }

    fn connect(&self, client: u64) -> Result<Box<dyn Session>, String> {
        let endpoints = &self.target.endpoints;
        let node = endpoints[client as usize % endpoints.len()].clone();
        let serializable = self.target.option("read") == Some("serializable");
        Ok(Box::new(Connection { node, timeout: self.target.timeout, serializable, client }))
    }
}

/// Asks; the inner error is what the server said, so nothing was done.
fn post(node: &str, path: &str, body: &Json, timeout: Duration) -> Result<Result<Json, String>, Broken> {
    let url = format!("http://{node}/v3/{path}");
    // Nothing can be done before the connection is there, but minreq tells of it only by the kind of its error.
    let sent = minreq::post(url)
        .with_header("Content-Type", "application/json")
        .with_body(body.to_string())
        .with_timeout(timeout.as_secs().max(1))
        .send();
    let response = match sent {
        Ok(response) => response,
        Err(minreq::Error::IoError(e)) if e.kind() == std::io::ErrorKind::ConnectionRefused => {
            return Err(Broken::before(e));
        }
        Err(e) => return Err(Broken::after(e)),
    };
    let text = response.as_str().unwrap_or_default();
    let value: Json =
        serde_json::from_str(text).map_err(|e| Broken::after(format!("an answer that is no JSON: {e}")))?;
    if (200..300).contains(&response.status_code) {
        return Ok(Ok(value));
    }
    let said = value["error"].as_str().or(value["message"].as_str()).unwrap_or(text).to_string();
    if !refuses(number(value.get("code"))) {
        return Err(Broken::after(said));
    }
    Ok(Err(said))
}

/// Does a status of gRPC say that nothing was done, and will not be? All others come also for requests that are under way: a node that
/// lost its leader says `Unknown`, one that waits in vain `Unavailable`.
fn refuses(code: i64) -> bool {
    const INVALID_ARGUMENT: i64 = 3;
    const NOT_FOUND: i64 = 5;
    const ALREADY_EXISTS: i64 = 6;
    const PERMISSION_DENIED: i64 = 7;
    const RESOURCE_EXHAUSTED: i64 = 8;
    const FAILED_PRECONDITION: i64 = 9;
    const OUT_OF_RANGE: i64 = 11;
    const UNIMPLEMENTED: i64 = 12;
    const UNAUTHENTICATED: i64 = 16;
    [
        INVALID_ARGUMENT,
        NOT_FOUND,
        ALREADY_EXISTS,
        PERMISSION_DENIED,
        RESOURCE_EXHAUSTED,
        FAILED_PRECONDITION,
        OUT_OF_RANGE,
        UNIMPLEMENTED,
        UNAUTHENTICATED,
    ]
    .contains(&code)
}

struct Connection {
    node: String,
    timeout: Duration,
    serializable: bool,
    client: u64,
}

/// What a key holds, and the revision that put it there (0: nothing).
struct Held {
    value: Option<String>,
    revision: i64,
}

impl Connection {
    fn post(&self, path: &str, body: &Json) -> Result<Result<Json, String>, Broken> {
        post(&self.node, path, body, self.timeout)
    }

    fn get(&self, key: &str) -> Result<Result<Held, String>, Broken> {
        let body = json!({ "key": encode(key), "serializable": self.serializable });
        let answer = self.post("kv/range", &body).map_err(|b| Broken { sent: false, ..b })?;
        Ok(answer.map(|answer| held(answer["kvs"].get(0))))
    }

    /// One transaction: `compare` all, then do one list or the other. Was it the first?
    fn txn(&self, compare: &Json, success: &Json) -> Result<Result<bool, String>, Broken> {
        let body = json!({ "compare": compare, "success": success });
        Ok(self.post("kv/txn", &body)?.map(|answer| answer["succeeded"].as_bool().unwrap_or(false)))
    }

    fn lists(&self, mops: &[Mop]) -> Result<Answer, Broken> {
        let mut keys: Vec<u64> = mops
            .iter()
            .map(|m| match m {
                Mop::Read(k) | Mop::Write(k, _) => *k,
            })
            .collect();
        keys.sort_unstable();
        keys.dedup();
        let gets: Vec<Json> = keys.iter().map(|k| json!({ "request_range": { "key": encode(&name(*k)) } })).collect();
        let read = self.post("kv/txn", &json!({ "success": gets })).map_err(|b| Broken { sent: false, ..b })?;
        let answer = match read {
            Ok(answer) => answer,
            Err(why) => return Ok(Answer::Fail(why)),
        };
        let found = |i: usize| held(answer["responses"][i]["response_range"]["kvs"].get(0));
        let mut state: Vec<(u64, Held)> = keys.iter().enumerate().map(|(i, k)| (*k, found(i))).collect();
        let compare: Vec<Json> = state
            .iter()
            .map(|(k, h)| {
                json!({ "key": encode(&name(*k)), "target": "MOD", "result": "EQUAL", "mod_revision": h.revision.to_string() })
            })
            .collect();
        let (mut reads, mut written) = (Vec::new(), Vec::new());
        for mop in mops {
            match mop {
                Mop::Read(key) => {
                    let list = state.iter().find(|(k, _)| k == key).and_then(|(_, h)| h.value.as_deref());
                    let elements = list.iter().flat_map(|t| t.split(',')).filter_map(|e| e.parse().ok());
                    reads.push(Value::Vector(elements.map(Value::Int).collect()));
                }
                Mop::Write(key, value) => {
                    written.push(*key);
                    if let Some((_, held)) = state.iter_mut().find(|(k, _)| k == key) {
                        held.value = Some(match held.value.take() {
                            Some(list) => format!("{list},{value}"),
                            None => value.to_string(),
                        });
                    }
                }
            }
        }
        written.sort_unstable();
        written.dedup();
        let said = transaction("append", mops, &reads);
        let put = |(k, h): &(u64, Held)| {
            let value = h.value.as_deref().unwrap_or("");
            json!({ "request_put": { "key": encode(&name(*k)), "value": encode(value) } })
        };
        let puts: Vec<Json> = state.iter().filter(|(k, _)| written.contains(k)).map(put).collect();
        if puts.is_empty() {
            return Ok(Answer::Ok(said));
        }
        Ok(match self.txn(&json!(compare), &json!(puts))? {
            Ok(true) => Answer::Ok(said),
            Ok(false) => Answer::Fail("what was read has changed".into()),
            Err(why) => Answer::Fail(why),
        })
    }
}

fn held(kv: Option<&Json>) -> Held {
    Held {
        value: decode(kv.and_then(|kv| kv.get("value"))),
        revision: number(kv.and_then(|kv| kv.get("mod_revision"))),
    }
}

fn name(key: u64) -> String {
    format!("{SPACE}{key}")
}

fn int(text: Option<String>) -> Value {
    text.and_then(|t| t.parse().ok()).map_or(Value::Nil, Value::Int)
}

impl Session for Connection {
    fn request(&mut self, operation: &Operation) -> Result<Answer, Broken> {
        let done = |result: Result<bool, String>, otherwise: &str| match result {
            Ok(true) => Answer::Ok(operation.value()),
            Ok(false) => Answer::Fail(otherwise.to_string()),
            Err(why) => Answer::Fail(why),
        };
        let lock = format!("{SPACE}lock");
        match operation {
            Operation::Read(key) => Ok(match self.get(&name(*key))? {
                Ok(held) => Answer::Ok(keyed(*key, int(held.value))),
                Err(why) => Answer::Fail(why),
            }),
            Operation::Write(key, value) => {
                let body = json!({ "key": encode(&name(*key)), "value": encode(&value.to_string()) });
                Ok(done(self.post("kv/put", &body)?.map(|_| true), ""))
            }
            Operation::Cas(key, old, new) => {
                let compare = json!([{ "key": encode(&name(*key)), "target": "VALUE", "result": "EQUAL", "value": encode(&old.to_string()) }]);
                let put = json!([{ "request_put": { "key": encode(&name(*key)), "value": encode(&new.to_string()) } }]);
                Ok(done(self.txn(&compare, &put)?, "it held another value"))
            }
            Operation::Lists(mops) => self.lists(mops),
            Operation::Acquire => {
                let compare =
                    json!([{ "key": encode(&lock), "target": "CREATE", "result": "EQUAL", "create_revision": "0" }]);
                let put =
                    json!([{ "request_put": { "key": encode(&lock), "value": encode(&self.client.to_string()) } }]);
                Ok(done(self.txn(&compare, &put)?, "it is held"))
            }
            Operation::Release => {
                let compare = json!([{ "key": encode(&lock), "target": "VALUE", "result": "EQUAL", "value": encode(&self.client.to_string()) }]);
                let delete = json!([{ "request_delete_range": { "key": encode(&lock) } }]);
                Ok(done(self.txn(&compare, &delete)?, "it is not held by this client"))
            }
            other => Ok(Answer::Fail(format!("the etcd driver does not do {}", other.f()))),
        }
    }

    fn node(&self) -> &str {
        &self.node
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// A node that answers one request so.
    fn node(status: u16, body: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            let mut buffer = [0; 4096];
            while !asked.ends_with(b"}") {
                let n = socket.read(&mut buffer).unwrap();
                assert!(n > 0, "half a request");
                asked.extend_from_slice(&buffer[..n]);
            }
            let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            socket.write_all(head.as_bytes()).unwrap();
            socket.write_all(body.as_bytes()).unwrap();
        });
        address
    }

    fn write_to(node: String) -> Result<Answer, Broken> {
        let mut session = Connection { node, timeout: Duration::from_secs(5), serializable: false, client: 0 };
        session.request(&Operation::Write(1, 7))
    }

    #[test]
    fn a_write_that_may_be_under_way_is_unknown_and_one_that_was_refused_failed() {
        for body in [
            r#"{"error":"etcdserver: request timed out","code":14,"message":"etcdserver: request timed out"}"#,
            r#"{"error":"etcdserver: leader changed","code":14}"#,
            r#"{"error":"raft proposal dropped","code":2}"#,
            r#"{"error":"stream terminated by RST_STREAM","code":13}"#,
            r#"{"error":"of no code"}"#,
        ] {
            assert!(matches!(write_to(node(503, body)), Err(Broken { sent: true, .. })), "{body}");
        }
        let full = r#"{"error":"etcdserver: mvcc: database space exceeded","code":8}"#;
        assert!(matches!(write_to(node(429, full)), Ok(Answer::Fail(_))));
        assert!(matches!(write_to(node(200, "{}")), Ok(Answer::Ok(_))));
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        assert!(matches!(write_to(nobody), Err(Broken { sent: false, .. })));
    }
}
