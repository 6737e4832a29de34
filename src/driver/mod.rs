//! Built-in drivers: clients that load a real system and record what they see.
//!
//! A [`Driver`] knows a system; a [`Session`] is one connection to it; [`load`] runs many of them at once, bounded in time and
//! operations. The clients here speak each system's protocol themselves and never retry: an outcome is recorded as it is, and a
//! library that retries in secret would make an unknown outcome look like a known one. What may have happened is `info`; `fail` is only
//! what the system said, or what was never sent: also for want of a connection. A connection that broke is made anew, as another process.

pub mod etcd;
pub mod operations;
pub mod postgres;
pub mod redis;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use elench_formats::Value;
use elench_formats::record::Recorder;

use self::operations::{Kind, Operation, Source};

/// What came of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// It happened; what the history tells of it.
    Ok(Value),
    /// It certainly did not happen.
    Fail(String),
    /// Nobody knows.
    Info(String),
}

/// A connection that is no more, with whether what was under way may have happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Broken {
    /// May the request have taken effect?
    pub sent: bool,
    /// What was seen.
    pub why: String,
}

impl Broken {
    /// Before anything could take effect.
    pub fn before(why: impl ToString) -> Broken {
        Broken { sent: false, why: why.to_string() }
    }

    /// After it could.
    pub fn after(why: impl ToString) -> Broken {
        Broken { sent: true, why: why.to_string() }
    }
}

/// One connection.
pub trait Session: Send {
    /// Sends one operation and waits for its answer.
    ///
    /// # Errors
    /// The connection broke; it is not used again.
    fn request(&mut self, operation: &Operation) -> Result<Answer, Broken>;

    /// The node that it talks to.
    fn node(&self) -> &str;
}

/// A system.
pub trait Driver: Send + Sync {
    /// What it can be asked to do.
    fn kinds(&self) -> &'static [Kind];

    /// Makes what the operations need: tables, say. Done once, before the load.
    ///
    /// # Errors
    /// In words.
    fn prepare(&self, kind: Kind, keys: u64) -> Result<(), String>;

    /// Connects.
    ///
    /// # Errors
    /// In words; nothing was done.
    fn connect(&self, client: u64) -> Result<Box<dyn Session>, String>;
}

/// What a driver is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Addresses, `HOST:PORT`.
    pub endpoints: Vec<String>,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Isolation level of transactions, where there are levels.
    pub isolation: Option<String>,
    /// Everything else, by name: `user`, `password`, `database`, …
    pub options: Vec<(String, String)>,
}

impl Target {
    /// An option by its name.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// Names of drivers.
pub const NAMES: [&str; 3] = ["postgres", "redis", "etcd"];

/// The driver of this name.
///
/// # Errors
/// There is none, or its options are wrong.
pub fn named(name: &str, target: Target) -> Result<Box<dyn Driver>, String> {
    if target.endpoints.is_empty() {
        return Err("a driver needs an endpoint: HOST:PORT".into());
    }
    match name {
        "postgres" => Ok(Box::new(postgres::Postgres::new(target)?)),
        "redis" => Ok(Box::new(redis::Redis::new(target))),
        "etcd" => Ok(Box::new(etcd::Etcd::new(target))),
        other => Err(format!("no driver is called `{other}`: there are {}", NAMES.join(", "))),
    }
}

/// How much load.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// What is done.
    pub kind: Kind,
    /// Clients at once.
    pub clients: u64,
    /// For how long.
    pub duration: Duration,
    /// Operations at most.
    pub most: u64,
    /// Operations a second over all clients; `None`: as fast as answers come.
    pub rate: Option<f64>,
    /// Keys.
    pub keys: u64,
    /// Zipf's exponent; 0 is even.
    pub skew: f64,
    /// The seed: the same one asks for the same operations, client by client.
    pub seed: u64,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Operations invoked.
    pub operations: u64,
    /// Connections that broke.
    pub broken: u64,
    /// Times that no connection could be made.
    pub refused: u64,
}

/// How long a client waits before it tries to connect again.
const PAUSE: Duration = Duration::from_millis(50);

/// Loads a system until the time is over, enough was done, or `stop` is set; then reads what is there at the end, where the kind asks for
/// it. Returns when every client is done.
pub fn load(driver: &dyn Driver, load: &Load, recorder: &Recorder, stop: &AtomicBool) -> Done {
    let source = Source::new(load.kind, load.keys, load.skew);
    let (operations, broken, refused) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for number in 0..load.clients {
            let (source, operations, broken, refused) = (&source, &operations, &broken, &refused);
            scope.spawn(move || {
                let mut client = recorder.client();
                let mut random = source.random(load.seed, number);
                let mut session: Option<Box<dyn Session>> = None;
                let mut due = start;
                while start.elapsed() < load.duration && !stop.load(Ordering::Relaxed) {
                    if let Some(rate) = load.rate.filter(|r| *r > 0.0) {
                        due += Duration::from_secs_f64(load.clients as f64 / rate);
                        std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    }
                    if operations.fetch_add(1, Ordering::Relaxed) >= load.most {
                        operations.fetch_sub(1, Ordering::Relaxed);
                        break;
                    }
                    let operation = source.next(&mut random);
                    let connected = match session.take().map_or_else(|| driver.connect(number), Ok) {
                        Ok(connected) => session.insert(connected),
                        Err(why) => {
                            refused.fetch_add(1, Ordering::Relaxed);
                            // Who cannot connect sees an error, too; and where nobody can, the history must not stand still.
                            client.invoke(operation.f(), operation.value()).fail(why);
                            std::thread::sleep(PAUSE);
                            continue;
                        }
                    };
                    if !one(connected.as_mut(), &operation, &mut client) {
                        broken.fetch_add(1, Ordering::Relaxed);
                        session = None;
                        client.reconnected();
                    }
                }
            });
        }
    });
    for operation in source.last() {
        operations.fetch_add(u64::from(finally(driver, &operation, recorder)), Ordering::Relaxed);
    }
    let of = |n: AtomicU64| n.into_inner();
    Done { operations: of(operations), broken: of(broken), refused: of(refused) }
}

/// Asks for one operation and records it. Is the connection still good?
fn one(session: &mut dyn Session, operation: &Operation, client: &mut elench_formats::record::Client) -> bool {
    client.talks_to(session.node());
    let call = client.invoke(operation.f(), operation.value());
    match session.request(operation) {
        Ok(Answer::Ok(value)) => call.ok(value),
        Ok(Answer::Fail(why)) => call.fail(why),
        Ok(Answer::Info(why)) => call.info(why),
        Err(Broken { sent: true, why }) => {
            call.info(why);
            return false;
        }
        Err(Broken { sent: false, why }) => {
            call.fail(why);
            return false;
        }
    }
    true
}

/// Asks until the answer is known, for half a minute at most: the reads at the end tell what there is.
fn finally(driver: &dyn Driver, operation: &Operation, recorder: &Recorder) -> bool {
    let until = Instant::now() + Duration::from_secs(30);
    let mut client = recorder.client();
    while Instant::now() < until {
        let Ok(mut session) = driver.connect(0) else {
            std::thread::sleep(PAUSE);
            continue;
        };
        client.talks_to(session.node());
        let call = client.invoke(operation.f(), operation.value());
        match session.request(operation) {
            Ok(Answer::Ok(value)) => {
                call.ok(value);
                return true;
            }
            Ok(Answer::Fail(why)) => call.fail(why),
            Ok(Answer::Info(why)) => call.info(why),
            Err(broken) => call.info(broken.why),
        }
        std::thread::sleep(PAUSE);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system whose first connections are refused.
    struct Late(AtomicU64);

    struct Fine;

    impl Session for Fine {
        fn request(&mut self, operation: &Operation) -> Result<Answer, Broken> {
            Ok(Answer::Ok(operation.value()))
        }

        fn node(&self) -> &str {
            "n1"
        }
    }

    impl Driver for Late {
        fn kinds(&self) -> &'static [Kind] {
            &[Kind::Register]
        }

        fn prepare(&self, _: Kind, _: u64) -> Result<(), String> {
            Ok(())
        }

        fn connect(&self, _: u64) -> Result<Box<dyn Session>, String> {
            match self.0.fetch_add(1, Ordering::Relaxed) {
                0..3 => Err("connection refused".into()),
                _ => Ok(Box::new(Fine)),
            }
        }
    }

    #[test]
    fn what_could_not_be_sent_for_want_of_a_connection_failed_and_is_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.edn");
        let recorder = Recorder::create(&path).unwrap();
        let much = Load {
            kind: Kind::Register,
            clients: 2,
            duration: Duration::from_secs(30),
            most: 10,
            rate: None,
            keys: 1,
            skew: 0.0,
            seed: 1,
        };
        let done = load(&Late(AtomicU64::new(0)), &much, &recorder, &AtomicBool::new(false));
        assert_eq!(done, Done { operations: 10, broken: 0, refused: 3 });
        assert_eq!(recorder.finish().unwrap(), 20);
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text.matches(":type :fail").count(), 3, "{text}");
        assert_eq!(text.matches(":type :ok").count(), 7, "{text}");
        assert!(text.contains("connection refused"));
    }
}
