//! Runs of simulated objects, for the tests: clients that overlap, fail, crash and vanish, around an object that does right.

use elench_formats::History;
use elench_formats::build::Lift;
use elench_formats::open::{OpenOptions, open_bytes};

use crate::findings::{Findings, Incremental, replay};
use crate::linear::tests::Random;
use crate::outcome::OpId;

/// An event, its value as EDN.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) kind: &'static str,
    pub(super) process: u64,
    pub(super) f: &'static str,
    pub(super) value: String,
    /// Further fields, each with a comma before it.
    pub(super) extra: String,
}

/// What clients call.
pub(super) trait Object {
    /// What a client calls next.
    fn next(&mut self, random: &mut Random, process: u64) -> (&'static str, String);

    /// It takes effect and says what it returns, or nothing where it is refused.
    fn apply(&mut self, process: u64, f: &'static str, value: &str) -> Option<String>;
}

#[derive(Clone, Debug)]
enum Client {
    Idle,
    Called(&'static str, String),
    Done(&'static str, String, Option<String>),
    Gone,
}

/// Which outcomes there are besides ok.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faults {
    /// Per mille of steps at which a client crashes.
    pub(super) crash: u64,
    /// Per mille of steps at which an operation that has no effect yet fails.
    pub(super) fail: u64,
}

/// All outcomes.
pub(super) const FAULTS: Faults = Faults { crash: 40, fail: 60 };

/// Some clients call an object for so many steps. What has crashed may take effect later.
pub(super) fn run(
    random: &mut Random,
    object: &mut impl Object,
    clients: u64,
    steps: u64,
    faults: Faults,
) -> Vec<Event> {
    let mut log: Vec<Event> = Vec::new();
    let mut all: Vec<(u64, Client)> = (0..clients).map(|process| (process, Client::Idle)).collect();
    let mut late: Vec<(u64, &'static str, String)> = Vec::new();
    let event = |kind, process, f, value: &str| Event { kind, process, f, value: value.into(), extra: String::new() };
    for _ in 0..steps {
        if !late.is_empty() && random.chance(200) {
            let (process, f, value) = late.swap_remove(random.below(late.len() as u64) as usize);
            object.apply(process, f, &value);
        }
        let at = random.below(clients) as usize;
        let (process, client) = all[at].clone();
        let crashes = random.chance(faults.crash);
        all[at] = match client {
            Client::Idle => {
                let (f, value) = object.next(random, process);
                log.push(event("invoke", process, f, &value));
                (process, Client::Called(f, value))
            }
            Client::Called(f, value) if crashes => {
                late.push((process, f, value.clone()));
                crash(random, &mut log, event("info", process, f, &value), clients)
            }
            Client::Done(f, value, _) if crashes => crash(random, &mut log, event("info", process, f, &value), clients),
            Client::Called(f, value) if random.chance(faults.fail) => {
                log.push(event("fail", process, f, &value));
                (process, Client::Idle)
            }
            Client::Called(f, value) => {
                let output = object.apply(process, f, &value);
                (process, Client::Done(f, value, output))
            }
            Client::Done(f, value, output) => {
                let kind = if output.is_some() { "ok" } else { "fail" };
                log.push(event(kind, process, f, output.as_ref().unwrap_or(&value)));
                (process, Client::Idle)
            }
            Client::Gone => (process, Client::Gone),
        };
    }
    log
}

/// Says that nothing is known, or not even that; a new process takes the client's place.
fn crash(random: &mut Random, log: &mut Vec<Event>, info: Event, clients: u64) -> (u64, Client) {
    let process = info.process;
    if random.chance(300) {
        return (process, Client::Gone);
    }
    log.push(info);
    (process + clients, Client::Idle)
}

/// A further operation, alone, after all others.
pub(super) fn then(log: &mut Vec<Event>, f: &'static str, value: &str, output: &str, extra: &str) {
    let process = 1_000_000 + log.len() as u64;
    let event = |kind, value: &str| Event { kind, process, f, value: value.into(), extra: extra.into() };
    log.push(event("invoke", value));
    log.push(event("ok", output));
}

/// The operation that an event belongs to.
pub(super) fn op_of(log: &[Event], at: usize) -> OpId {
    let process = log[at].process;
    OpId(log[..=at].iter().rposition(|e| e.process == process && e.kind == "invoke").unwrap() as u64)
}

/// Places of the acknowledgements of a function.
pub(super) fn oks(log: &[Event], f: &str) -> Vec<usize> {
    (0..log.len()).filter(|&i| log[i].kind == "ok" && log[i].f == f).collect()
}

/// As a history, `[k v]` values left as they are.
pub(super) fn history(log: &[Event]) -> History {
    history_lifting(log, Lift::Never)
}

/// As a history.
pub(super) fn history_lifting(log: &[Event], lift: Lift) -> History {
    let line = |(i, e): (usize, &Event)| {
        let Event { kind, process, f, value, extra } = e;
        format!("{{:index {i}, :time {i}, :type :{kind}, :process {process}, :f :{f}, :value {value}{extra}}}\n")
    };
    let text: String = log.iter().enumerate().map(line).collect();
    let options = OpenOptions { lift, threads: 1, ..OpenOptions::default() };
    open_bytes(text.as_bytes(), &options).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// What the batch form finds, once the online form is seen to find the same.
pub(super) fn both(history: &History, batch: Findings, online: Box<dyn Incremental>) -> Findings {
    let online = replay(history, online);
    let counts =
        |f: &Findings| f.kinds().iter().map(|(name, kind)| (*name, kind.weight, kind.count)).collect::<Vec<_>>();
    assert_eq!(counts(&batch), counts(&online));
    assert_eq!((batch.is_valid(), batch.why()), (online.is_valid(), online.why()));
    assert_eq!(batch.coverage.ops, online.coverage.ops);
    batch
}

/// Is this operation in the evidence of the kind?
pub(super) fn shows(found: &Findings, kind: &str, op: OpId) -> bool {
    found.kinds().get(kind).is_some_and(|kind| kind.examples.iter().any(|e| e.ops.contains(&op)))
}

/// Seeds of so many runs, enlarged by ELENCH_RUNS.
pub(super) fn seeds(n: u64) -> impl Iterator<Item = Random> {
    let first = crate::linear::tests::seed();
    (0..n * crate::linear::tests::more()).map(move |i| Random(first.wrapping_add(i.wrapping_mul(0x9e37_79b9))))
}
