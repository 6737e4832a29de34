//! What can be done to a connection, under the names and in the JSON form that Toxiproxy's clients know.
//!
//! Values are checked here, once for everybody: a share beyond 0 to 1, a negative time or a rate of nothing never reaches a connection or
//! another server.

use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use crate::experiment::front::{Complaint, Fields, nearest};

/// Milliseconds that anything may last: a day.
const MAX_MS: u64 = 86_400_000;
/// Bytes that a limit may name.
const MAX_BYTES: u64 = 1 << 50;
/// Kilobytes a second that a bandwidth may name.
const MAX_RATE: u64 = 1_000_000_000;

/// What is done. Times are milliseconds where nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Kind {
    /// Everything comes later.
    Latency {
        /// By so much,
        latency: u64,
        /// more or less by up to so much, evenly; never less than nothing.
        jitter: u64,
    },
    /// No more than so many kilobytes (of 1,000 bytes) a second.
    Bandwidth {
        /// Kilobytes a second.
        rate: u64,
    },
    /// One side's closing is told to the other later.
    SlowClose {
        /// By so much.
        delay: u64,
    },
    /// Nothing gets through. What was held back is delivered when the toxic is removed, as TCP does after a partition: a stream with a gap
    /// is nothing that a network makes.
    Timeout {
        /// The connection is closed after so long; 0: it stays.
        timeout: u64,
    },
    /// Both sides see a reset, once data comes.
    ResetPeer {
        /// So long after the data; 0: at once.
        timeout: u64,
    },
    /// Data comes in small pieces.
    Slicer {
        /// Bytes of a piece,
        average_size: u64,
        /// more or less by up to so many, evenly.
        size_variation: u64,
        /// Microseconds between pieces.
        delay: u64,
    },
    /// The connection is closed after so many bytes.
    LimitData {
        /// The bytes that get through.
        bytes: u64,
    },
    /// Connections are refused, and those that are there are closed. Not a toxic to Toxiproxy's API, but `enabled: false`.
    Down,
}

/// Names of kinds. `blackhole` is a `timeout` that never closes.
pub const KINDS: [&str; 9] =
    ["latency", "bandwidth", "slow_close", "timeout", "reset_peer", "slicer", "limit_data", "down", "blackhole"];

impl Kind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Latency { .. } => "latency",
            Kind::Bandwidth { .. } => "bandwidth",
            Kind::SlowClose { .. } => "slow_close",
            Kind::Timeout { .. } => "timeout",
            Kind::ResetPeer { .. } => "reset_peer",
            Kind::Slicer { .. } => "slicer",
            Kind::LimitData { .. } => "limit_data",
            Kind::Down => "down",
        }
    }

    /// Its attributes, by name.
    pub fn attributes(self) -> Vec<(&'static str, u64)> {
        match self {
            Kind::Latency { latency, jitter } => vec![("latency", latency), ("jitter", jitter)],
            Kind::Bandwidth { rate } => vec![("rate", rate)],
            Kind::SlowClose { delay } => vec![("delay", delay)],
            Kind::Timeout { timeout } | Kind::ResetPeer { timeout } => vec![("timeout", timeout)],
            Kind::Slicer { average_size, size_variation, delay } => {
                vec![("average_size", average_size), ("size_variation", size_variation), ("delay", delay)]
            }
            Kind::LimitData { bytes } => vec![("bytes", bytes)],
            Kind::Down => Vec::new(),
        }
    }

    /// From its name and attributes; those that are not given are 0.
    ///
    /// # Errors
    /// No such kind, or a value that makes no sense.
    pub fn build(name: &str, mut attribute: impl FnMut(&'static str) -> Option<u64>) -> Result<Kind, String> {
        let mut get = |key| attribute(key).unwrap_or(0);
        let kind = match name {
            "latency" => Kind::Latency { latency: get("latency"), jitter: get("jitter") },
            "bandwidth" => Kind::Bandwidth { rate: get("rate") },
            "slow_close" => Kind::SlowClose { delay: get("delay") },
            "timeout" => Kind::Timeout { timeout: get("timeout") },
            "blackhole" => Kind::Timeout { timeout: 0 },
            "reset_peer" => Kind::ResetPeer { timeout: get("timeout") },
            "slicer" => Kind::Slicer {
                average_size: get("average_size"),
                size_variation: get("size_variation"),
                delay: get("delay"),
            },
            "limit_data" => Kind::LimitData { bytes: get("bytes") },
            "down" => Kind::Down,
            other => {
                let hint = nearest(other, &KINDS).map_or(String::new(), |n| format!("; did you mean `{n}`?"));
                return Err(format!("`{other}` is none of {}{hint}", KINDS.join(", ")));
            }
        };
        kind.check().map(|()| kind)
    }

    fn check(self) -> Result<(), String> {
        let most = |name: &str, value: u64, most: u64| {
            if value <= most { Ok(()) } else { Err(format!("`{name}` is at most {most}, not {value}")) }
        };
        match self {
            Kind::Latency { latency, jitter } => {
                most("latency", latency, MAX_MS)?;
                most("jitter", jitter, MAX_MS)
            }
            Kind::Bandwidth { rate: 0 } => {
                Err("`rate` is at least 1 kilobyte a second; `timeout` lets nothing through".into())
            }
            Kind::Bandwidth { rate } => most("rate", rate, MAX_RATE),
            Kind::SlowClose { delay } => most("delay", delay, MAX_MS),
            Kind::Timeout { timeout } | Kind::ResetPeer { timeout } => most("timeout", timeout, MAX_MS),
            Kind::Slicer { average_size, size_variation, delay } => {
                if average_size == 0 {
                    return Err("`average_size` is at least 1 byte".into());
                }
                if size_variation >= average_size {
                    return Err(format!("`size_variation` is less than `average_size`, {average_size}"));
                }
                most("average_size", average_size, MAX_BYTES)?;
                most("delay", delay, MAX_MS * 1000)
            }
            Kind::LimitData { bytes } => most("bytes", bytes, MAX_BYTES),
            Kind::Down => Ok(()),
        }
    }

    /// Would it change nothing, whatever came through?
    pub fn is_idle(self) -> bool {
        matches!(self, Kind::Latency { latency: 0, jitter: 0 } | Kind::SlowClose { delay: 0 })
    }
}

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// From the client to the server: requests.
    Upstream,
    /// From the server to the client: answers.
    Downstream,
}

impl Stream {
    /// Both ways.
    pub const BOTH: [Stream; 2] = [Stream::Upstream, Stream::Downstream];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Stream::Upstream => "upstream",
            Stream::Downstream => "downstream",
        }
    }

    fn from_name(name: &str) -> Result<Stream, String> {
        let found = Stream::BOTH.into_iter().find(|s| s.name() == name);
        found.ok_or_else(|| "stream was invalid, can be either upstream or downstream".to_string())
    }
}

/// A kind with a name, a way, and a share of the connections.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Toxic {
    /// Its name, unique on a proxy.
    pub name: String,
    /// What it does.
    pub kind: Kind,
    /// Which way.
    pub stream: Stream,
    /// The share of the connections that it is for, 0 to 1.
    pub toxicity: f64,
}

impl Toxic {
    /// For all connections, under the name that Toxiproxy would give it.
    pub fn new(kind: Kind, stream: Stream) -> Toxic {
        Toxic { name: format!("{}_{}", kind.name(), stream.name()), kind, stream, toxicity: 1.0 }
    }

    /// Do its values make sense, whoever made it?
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self) -> Result<(), String> {
        if !(0.0..=1.0).contains(&self.toxicity) {
            return Err(format!("{}: `toxicity` is a share from 0 to 1, not {}", self.name, self.toxicity));
        }
        self.kind.check().map_err(|why| format!("{}: {why}", self.name))
    }

    /// As Toxiproxy's API writes it.
    pub fn to_json(&self) -> Json {
        let attributes: Map<String, Json> =
            self.kind.attributes().into_iter().map(|(key, value)| (key.to_string(), value.into())).collect();
        json!({
            "name": self.name,
            "type": self.kind.name(),
            "stream": self.stream.name(),
            "toxicity": self.toxicity,
            "attributes": attributes,
        })
    }

    /// From Toxiproxy's form.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_json(json: &Json) -> Result<Toxic, String> {
        let text = |key: &str| json.get(key).and_then(Json::as_str).filter(|t| !t.is_empty());
        let name = text("type").ok_or("missing required field: type")?;
        if name == "down" {
            return Err("a proxy is taken down by `enabled: false`".into());
        }
        let stream = Stream::from_name(text("stream").unwrap_or("downstream"))?;
        let kind = kind_of(name, json, &[])?;
        let toxicity = toxicity_of(json)?.unwrap_or(1.0);
        let name = text("name").map_or_else(|| format!("{}_{}", kind.name(), stream.name()), String::from);
        Ok(Toxic { name, kind, stream, toxicity })
    }

    /// With the attributes and the share that an update names; the rest stays.
    ///
    /// # Errors
    /// What is wrong with the update.
    pub fn updated(&self, json: &Json) -> Result<Toxic, String> {
        let kind = kind_of(self.kind.name(), json, &self.kind.attributes())?;
        let toxicity = toxicity_of(json)?.unwrap_or(self.toxicity);
        Ok(Toxic { kind, toxicity, ..self.clone() })
    }
}

fn kind_of(name: &str, json: &Json, before: &[(&'static str, u64)]) -> Result<Kind, String> {
    let mut wrong = None;
    let kind = Kind::build(name, |key| {
        let default = before.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
        match json.get("attributes").and_then(|a| a.get(key)) {
            None | Some(Json::Null) => default,
            Some(value) => {
                if value.as_u64().is_none() {
                    wrong.get_or_insert_with(|| format!("`{key}` is a whole number from 0 on, not {value}"));
                }
                // A value that is complained of must not be complained of twice.
                value.as_u64().or(default).or(Some(1))
            }
        }
    });
    match wrong {
        Some(wrong) => Err(wrong),
        None => kind,
    }
}

fn toxicity_of(json: &Json) -> Result<Option<f64>, String> {
    match json.get("toxicity") {
        None | Some(Json::Null) => Ok(None),
        Some(value) => match value.as_f64().filter(|t| (0.0..=1.0).contains(t)) {
            Some(toxicity) => Ok(Some(toxicity)),
            None => Err(format!("`toxicity` is a share from 0 to 1, not {value}")),
        },
    }
}

/// What a scenario says of a toxic, for our own proxy as for another's: one a way, of one kind.
pub(in crate::experiment::injector) fn take(fields: &mut Fields<'_>, wrong: &mut Vec<Complaint>) -> Option<Vec<Toxic>> {
    let before = wrong.len();
    let name = fields.text("toxic", wrong);
    if name.is_none() && wrong.len() == before {
        wrong.push(fields.wrong("toxic", None, format_args!("is missing: one of {}", KINDS.join(", "))));
    }
    let toxicity = fields.number("toxicity", wrong).unwrap_or(1.0);
    if !(toxicity > 0.0 && toxicity <= 1.0) {
        wrong.push(fields.wrong(
            "toxicity",
            None,
            format_args!("is a share of the connections above 0 and up to 1, not {toxicity}"),
        ));
    }
    let stream = fields.text("stream", wrong).unwrap_or_else(|| "downstream".into());
    let streams = match Stream::from_name(&stream) {
        Ok(stream) => vec![stream],
        Err(_) if stream == "both" => Stream::BOTH.to_vec(),
        Err(_) => {
            wrong.push(fields.wrong("stream", None, format_args!("is upstream, downstream or both, not `{stream}`")));
            Vec::new()
        }
    };
    let name = name?;
    let mut complaints = Vec::new();
    let kind = Kind::build(&name, |key| fields.count(key, &mut complaints));
    if !complaints.is_empty() {
        wrong.extend(complaints);
        return None;
    }
    let kind = match kind {
        Ok(kind) if kind.is_idle() => {
            wrong.push(fields.wrong("toxic", None, format_args!("`{name}` with these values changes nothing")));
            return None;
        }
        Ok(kind) => kind,
        Err(why) => {
            wrong.push(fields.wrong("toxic", None, format_args!("`{name}`: {why}")));
            return None;
        }
    };
    // A proxy is down as a whole, not one way.
    let streams = if kind == Kind::Down { vec![Stream::Upstream] } else { streams };
    let toxics: Vec<Toxic> = streams.into_iter().map(|s| Toxic { toxicity, ..Toxic::new(kind, s) }).collect();
    (wrong.len() == before).then_some(toxics)
}
