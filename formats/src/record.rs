//! Records what clients see, from many threads, while it happens.
//!
//! ```
//! use elench_formats::record::Recorder;
//! use elench_formats::Value;
//! # let dir = std::env::temp_dir().join(format!("elench-record-{}", std::process::id()));
//! # std::fs::create_dir_all(&dir).unwrap();
//! # let path = dir.join("history.edn");
//! let recorder = Recorder::create(&path)?;
//! let mut client = recorder.client();
//! client.invoke("write", Value::Int(1)).ok(Value::Int(1));
//! client.invoke("read", Value::Nil).info("timeout");
//! recorder.finish()?;
//! # std::fs::remove_dir_all(&dir).unwrap();
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! An invocation is numbered before its request is sent, and a completion after its answer came, by one counter for all threads: so
//! the order of events is that of real time, whatever clocks say. Times are of the monotonic clock. No thread waits for another on
//! its way: events go through a channel to one writer, which puts them in order and hands them to the system every
//! [`FLUSH`], so that of a run that is killed everything but the last moment can be read.
//!
//! What a client does not know is `info`: so is a call that is dropped. The process then is dead, and the client goes on as another.

use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::value::{Value, write_str};

/// How long an event may lie in memory.
pub const FLUSH: Duration = Duration::from_millis(50);

/// What all threads share.
#[derive(Debug)]
struct Shared {
    start: Instant,
    next_event: AtomicU64,
    next_process: AtomicI64,
    /// How many events there will have been, once somebody said that no more come.
    end: AtomicU64,
    /// The fault that is active; written only when one begins or ends.
    epoch: RwLock<Option<Arc<str>>>,
}

impl Shared {
    fn stamp(&self) -> (u64, i64) {
        let number = self.next_event.fetch_add(1, Ordering::SeqCst);
        (number, i64::try_from(self.start.elapsed().as_nanos()).unwrap_or(i64::MAX))
    }

    fn epoch(&self) -> Option<Arc<str>> {
        self.epoch.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// An event on its way to the writer.
#[derive(Debug)]
struct Event {
    number: u64,
    time: i64,
    kind: &'static str,
    process: Option<i64>,
    f: Arc<str>,
    value: Value,
    error: Option<String>,
    node: Option<Arc<str>>,
    epoch: Option<Arc<str>>,
    extra: Vec<(&'static str, Value)>,
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.number.cmp(&self.number)
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Event {}

/// Records a history into a file of EDN, one event a line.
#[derive(Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
    sender: Sender<Event>,
    writer: JoinHandle<io::Result<u64>>,
}

impl Recorder {
    /// Begins a file.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Recorder> {
        let file = File::create(path)?;
        let (sender, receiver) = channel();
        let shared = Arc::new(Shared {
            start: Instant::now(),
            next_event: AtomicU64::new(0),
            next_process: AtomicI64::new(0),
            end: AtomicU64::new(u64::MAX),
            epoch: RwLock::new(None),
        });
        let theirs = shared.clone();
        let writer =
            std::thread::Builder::new().name("recorder".into()).spawn(move || write(file, &receiver, &theirs))?;
        Ok(Recorder { shared, sender, writer })
    }

    /// A new client: one thread's, with a process of its own.
    pub fn client(&self) -> Client {
        let process = self.shared.next_process.fetch_add(1, Ordering::Relaxed);
        Client { shared: self.shared.clone(), sender: self.sender.clone(), process, node: None }
    }

    /// A fault begins: from now on what is invoked bears its name, and the history tells of it.
    pub fn fault_begins(&self, f: &str, value: Value) {
        let epoch: Arc<str> = f.into();
        *self.shared.epoch.write().unwrap_or_else(PoisonError::into_inner) = Some(epoch);
        self.nemesis(f, value);
    }

    /// It ends, by what was done to end it.
    pub fn fault_ends(&self, f: &str, value: Value) {
        self.nemesis(f, value);
        *self.shared.epoch.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// As Jepsen writes it: one `info` when it is asked for, another when it is done.
    fn nemesis(&self, f: &str, value: Value) {
        for _ in 0..2 {
            let (number, time) = self.shared.stamp();
            let event = Event {
                number,
                time,
                kind: "info",
                process: None,
                f: f.into(),
                value: value.clone(),
                error: None,
                node: None,
                epoch: None,
                extra: Vec::new(),
            };
            let _ = self.sender.send(event);
        }
    }

    /// Nanoseconds since the recording began, as events bear them.
    pub fn elapsed(&self) -> Duration {
        self.shared.start.elapsed()
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.shared.next_event.load(Ordering::Relaxed)
    }

    /// Waits until everything recorded so far is on disk. Gives how many events there are. What clients record after that is lost.
    ///
    /// # Errors
    /// What the file system said, at any time since the beginning.
    pub fn finish(self) -> io::Result<u64> {
        let Recorder { shared, sender, writer } = self;
        shared.end.store(shared.next_event.load(Ordering::SeqCst), Ordering::SeqCst);
        drop(sender);
        writer.join().unwrap_or_else(|_| Err(io::Error::other("the writer panicked")))
    }
}

/// One thread's way of recording.
#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
    sender: Sender<Event>,
    process: i64,
    node: Option<Arc<str>>,
}

impl Client {
    /// Names the node or route that the following operations go to.
    pub fn talks_to(&mut self, node: &str) {
        if self.node.as_deref() != Some(node) {
            self.node = Some(node.into());
        }
    }

    /// The number of its process now.
    pub fn process(&self) -> i64 {
        self.process
    }

    /// The connection was made anew: what follows is another session, and so another process.
    pub fn reconnected(&mut self) {
        self.process = self.shared.next_process.fetch_add(1, Ordering::Relaxed);
    }

    /// Records an invocation. To be called before anything is sent.
    pub fn invoke(&mut self, f: &str, value: Value) -> Call<'_> {
        self.invoke_with(f, value, Vec::new())
    }

    /// With fields besides: an idempotency key, say.
    pub fn invoke_with(&mut self, f: &str, value: Value, extra: Vec<(&'static str, Value)>) -> Call<'_> {
        let f: Arc<str> = f.into();
        let epoch = self.shared.epoch();
        let (number, time) = self.shared.stamp();
        let event = Event {
            number,
            time,
            kind: "invoke",
            process: Some(self.process),
            f: f.clone(),
            value: value.clone(),
            error: None,
            node: self.node.clone(),
            epoch: epoch.clone(),
            extra,
        };
        let _ = self.sender.send(event);
        Call { client: self, f, value, epoch, open: true }
    }
}

/// An operation that is under way. Dropped, it is one whose outcome nobody knows.
#[derive(Debug)]
pub struct Call<'a> {
    client: &'a mut Client,
    f: Arc<str>,
    value: Value,
    epoch: Option<Arc<str>>,
    open: bool,
}

impl Call<'_> {
    /// It happened: with what it returned, or did.
    pub fn ok(self, value: Value) {
        self.ok_with(value, Vec::new());
    }

    /// It happened; with fields besides.
    pub fn ok_with(mut self, value: Value, extra: Vec<(&'static str, Value)>) {
        self.end("ok", value, None, extra);
    }

    /// It certainly did not happen.
    pub fn fail(mut self, error: impl Into<String>) {
        let value = std::mem::replace(&mut self.value, Value::Nil);
        self.end("fail", value, Some(error.into()), Vec::new());
    }

    /// Nobody knows. The process is dead; its client goes on as another.
    pub fn info(mut self, error: impl Into<String>) {
        let value = std::mem::replace(&mut self.value, Value::Nil);
        self.end("info", value, Some(error.into()), Vec::new());
        self.client.reconnected();
    }

    fn end(&mut self, kind: &'static str, value: Value, error: Option<String>, extra: Vec<(&'static str, Value)>) {
        self.open = false;
        let (number, time) = self.client.shared.stamp();
        let event = Event {
            number,
            time,
            kind,
            process: Some(self.client.process),
            f: self.f.clone(),
            value,
            error,
            node: self.client.node.clone(),
            epoch: self.epoch.take(),
            extra,
        };
        let _ = self.client.sender.send(event);
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if self.open {
            let value = std::mem::replace(&mut self.value, Value::Nil);
            self.end("info", value, Some("the call was given up".into()), Vec::new());
            self.client.reconnected();
        }
    }
}

/// Puts events in order, and writes them.
fn write(mut file: File, receiver: &Receiver<Event>, shared: &Shared) -> io::Result<u64> {
    let (mut early, mut next, mut latest, mut text) = (BinaryHeap::<Event>::new(), 0, 0, String::new());
    let mut flushed = Instant::now();
    loop {
        let gone = match receiver.recv_timeout(FLUSH) {
            Ok(event) => {
                early.push(event);
                false
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => true,
        };
        while early.peek().is_some_and(|e| e.number == next) {
            if let Some(mut event) = early.pop() {
                // A thread may lose the processor between its number and its time: the order of numbers is the real one.
                latest = latest.max(event.time);
                event.time = latest;
                line(&event, &mut text);
                next += 1;
            }
        }
        let ended = gone || next >= shared.end.load(Ordering::SeqCst);
        if ended || text.len() > 1 << 16 || flushed.elapsed() >= FLUSH {
            file.write_all(text.as_bytes())?;
            text.clear();
            flushed = Instant::now();
        }
        if ended {
            file.sync_all()?;
            return Ok(next);
        }
    }
}

fn line(event: &Event, out: &mut String) {
    use std::fmt::Write;
    let _ = write!(out, "{{:index {}, :time {}, :type :{}, :process ", event.number, event.time, event.kind);
    match event.process {
        Some(process) => drop(write!(out, "{process}")),
        None => out.push_str(":nemesis"),
    }
    out.push_str(", :f ");
    Value::keyword(&event.f).write_edn(out);
    out.push_str(", :value ");
    event.value.write_edn(out);
    let texts =
        [("error", event.error.as_deref()), ("node", event.node.as_deref()), ("fault_epoch", event.epoch.as_deref())];
    for (name, text) in texts.into_iter().filter_map(|(name, text)| Some((name, text?))) {
        let _ = write!(out, ", :{name} ");
        write_str(out, text);
    }
    for (name, value) in &event.extra {
        let _ = write!(out, ", :{name} ");
        value.write_edn(out);
    }
    out.push_str("}\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Status;
    use crate::open::{OpenOptions, open};

    fn recorded(work: impl FnOnce(&Recorder)) -> crate::History {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.edn");
        let recorder = Recorder::create(&path).unwrap();
        work(&recorder);
        recorder.finish().unwrap();
        open(path.to_str().unwrap(), &OpenOptions::default(), &|_, _| {}).unwrap()
    }

    #[test]
    fn outcomes_are_what_clients_said_and_what_is_dropped_is_unknown() {
        let h = recorded(|r| {
            let mut client = r.client();
            client.talks_to("n1");
            client.invoke("write", Value::Int(1)).ok(Value::Int(1));
            client.invoke("write", Value::Int(2)).fail("refused");
            client.invoke("write", Value::Int(3)).info("timeout");
            drop(client.invoke("read", Value::Nil));
            client.invoke("read", Value::Nil).ok(Value::Int(3));
        });
        let all: Vec<_> = h.ops().map(|op| (op.status(), op.process(), op.node().map(String::from))).collect();
        let node = || Some("n1".to_string());
        assert_eq!(
            all,
            [
                (Status::Ok, Some(0), node()),
                (Status::Fail, Some(0), node()),
                (Status::Info, Some(0), node()),
                (Status::Info, Some(1), node()),
                (Status::Ok, Some(2), node()),
            ]
        );
        assert!(h.meta().real_time);
    }

    #[test]
    fn a_fault_is_on_the_timeline_and_its_epoch_on_what_was_invoked_during_it() {
        let h = recorded(|r| {
            let mut client = r.client();
            client.invoke("read", Value::Nil).ok(Value::Nil);
            r.fault_begins("start-pause", Value::str("n1"));
            client.invoke("read", Value::Nil).ok(Value::Nil);
            r.fault_ends("stop-pause", Value::str("n1"));
            client.invoke("read", Value::Nil).ok(Value::Nil);
        });
        let epochs: Vec<_> = h.clients().map(|op| op.fault_epoch().map(String::from)).collect();
        assert_eq!(epochs, [None, Some("start-pause".to_string()), None]);
        let windows: Vec<_> = h.faults().iter().map(|w| w.f.clone()).collect();
        assert_eq!(windows, ["start-pause"], "one window, which ends");
    }

    #[test]
    fn events_of_many_threads_are_in_the_order_of_real_time() {
        let h = recorded(|r| {
            std::thread::scope(|scope| {
                for t in 0..8 {
                    let mut client = r.client();
                    scope.spawn(move || {
                        for i in 0..500 {
                            client.invoke("write", Value::Int(t * 1000 + i)).ok(Value::Nil);
                        }
                    });
                }
            });
        });
        assert_eq!(h.len(), 4000);
        let mut last = std::collections::HashMap::new();
        for op in h.ops() {
            let ended = last.insert(op.process(), op.complete_index().unwrap());
            assert!(ended.is_none_or(|e| e < op.index()));
        }
    }

    #[test]
    fn a_client_that_is_still_there_does_not_keep_a_recording_from_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let recorder = Recorder::create(dir.path().join("history.edn")).unwrap();
        let mut client = recorder.client();
        client.invoke("write", Value::Int(1)).ok(Value::Nil);
        assert_eq!(recorder.finish().unwrap(), 2);
        client.invoke("write", Value::Int(2)).ok(Value::Nil);
    }

    #[test]
    fn what_was_recorded_can_be_read_while_the_recording_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.edn");
        let recorder = Recorder::create(&path).unwrap();
        let mut client = recorder.client();
        client.invoke("write", Value::Int(1)).ok(Value::Nil);
        let _open = client.invoke("write", Value::Int(2));
        let until = Instant::now() + Duration::from_secs(10);
        while std::fs::read_to_string(&path).unwrap().lines().count() < 3 && Instant::now() < until {
            std::thread::sleep(FLUSH);
        }
        let h = open(path.to_str().unwrap(), &OpenOptions::default(), &|_, _| {}).unwrap();
        assert_eq!(h.counts(), [1, 0, 0, 1]);
    }
}
