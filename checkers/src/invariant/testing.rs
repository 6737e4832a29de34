//! Runs of simulated objects, for the tests: clients that overlap, fail, crash and vanish, around an object that does right.

use std::collections::BTreeMap;

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

/// An operation, as its events tell it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    pub(super) process: u64,
    pub(super) f: &'a str,
    /// How it ended: of what never did nothing is known either.
    pub(super) kind: &'static str,
    /// Places of its events; what never ended ends after all.
    pub(super) began: usize,
    pub(super) ended: usize,
    pub(super) input: &'a str,
    /// What an acknowledged one returned.
    pub(super) output: &'a str,
    pub(super) extra: &'a str,
}

impl Call<'_> {
    pub(super) fn is_ok(&self) -> bool {
        self.kind == "ok"
    }

    /// May it have happened?
    pub(super) fn may_be(&self) -> bool {
        self.kind != "fail"
    }

    /// May it have happened, and does nobody know?
    pub(super) fn is_unknown(&self) -> bool {
        self.kind == "info"
    }

    pub(super) fn is_final(&self) -> bool {
        self.extra.contains(":final? true")
    }
}

/// All operations, as they were invoked.
pub(super) fn calls(log: &[Event]) -> Vec<Call<'_>> {
    let of = |began: usize| {
        let e = &log[began];
        let end = (began + 1..log.len()).find(|&i| log[i].process == e.process);
        let kind = end.map_or("info", |end| log[end].kind);
        Call {
            process: e.process,
            f: e.f,
            kind,
            began,
            ended: end.unwrap_or(usize::MAX),
            input: &e.value,
            output: end.filter(|_| kind == "ok").map_or("nil", |end| &log[end].value),
            extra: &e.extra,
        }
    };
    (0..log.len()).filter(|&i| log[i].kind == "invoke").map(of).collect()
}

/// Acknowledged operations, as they ended.
pub(super) fn acknowledged<'a>(all: &[Call<'a>]) -> Vec<Call<'a>> {
    let mut oks: Vec<Call<'a>> = all.iter().copied().filter(Call::is_ok).collect();
    oks.sort_by_key(|call| call.ended);
    oks
}

/// An operation that some client may call, and what it returns should it be acknowledged.
#[derive(Clone, Debug, Default)]
pub(super) struct Made {
    pub(super) f: &'static str,
    pub(super) input: String,
    pub(super) output: String,
    pub(super) extra: String,
}

/// Clients that call anything, get anything, and end in any way: no object is behind them.
pub(super) fn chaos(
    random: &mut Random,
    clients: u64,
    steps: u64,
    mut make: impl FnMut(&mut Random) -> Made,
) -> Vec<Event> {
    let mut log = Vec::new();
    let mut open: Vec<(u64, Option<Made>)> = (0..clients).map(|process| (process, None)).collect();
    for _ in 0..steps {
        let (process, call) = &mut open[random.below(clients) as usize];
        let event = |kind, made: &Made, value: &str| Event {
            kind,
            process: *process,
            f: made.f,
            value: value.into(),
            extra: made.extra.clone(),
        };
        let Some(made) = call.take() else {
            let made = make(random);
            log.push(event("invoke", &made, &made.input));
            *call = Some(made);
            continue;
        };
        match random.below(10) {
            0 => log.push(event("fail", &made, &made.input)),
            1 => {
                log.push(event("info", &made, &made.input));
                *process += clients;
            }
            2 if random.chance(300) => *process += clients,
            _ => log.push(event("ok", &made, &made.output)),
        }
    }
    log
}

/// What a naive reading of the definitions says.
#[derive(Debug, Default)]
pub(super) struct Twin {
    /// Violations, each with the operations that show it.
    pub(super) broken: BTreeMap<&'static str, Vec<Vec<usize>>>,
    pub(super) undecided: bool,
}

impl Twin {
    /// These show one more violation.
    pub(super) fn broken(&mut self, kind: &'static str, ops: &[usize]) {
        self.broken.entry(kind).or_default().push(ops.to_vec());
    }

    /// Something cannot be decided.
    pub(super) fn undecided(&mut self, is: bool) {
        self.undecided |= is;
    }
}

/// Of how many histories checker and twin said what.
#[derive(Debug, Default)]
pub(super) struct Answers {
    valid: u64,
    invalid: u64,
    unknown: u64,
    by_kind: BTreeMap<&'static str, u64>,
}

impl Answers {
    /// The checker says what the twin says: the answer, every violation, and the operations that show it.
    pub(super) fn agree(&mut self, twin: &Twin, found: &Findings, log: &[Event]) {
        let sorted = |all: Vec<Vec<usize>>| {
            let mut all: Vec<Vec<usize>> = all;
            all.iter_mut().for_each(|ops| ops.sort_unstable());
            all.sort_unstable();
            all
        };
        let told: BTreeMap<&'static str, Vec<Vec<usize>>> = found
            .violations()
            .map(|(name, kind)| {
                assert_eq!(kind.count, kind.examples.len() as u64, "all examples were asked for");
                let ops = kind.examples.iter().map(|e| e.ops.iter().map(|op| op.0 as usize).collect());
                (name, sorted(ops.collect()))
            })
            .collect();
        let meant: BTreeMap<_, _> = twin.broken.iter().map(|(name, all)| (*name, sorted(all.clone()))).collect();
        assert_eq!(told, meant, "found and meant\n{log:#?}\n{found:#?}");
        let valid = meant.is_empty() && !twin.undecided;
        assert_eq!(found.is_valid(), valid, "{log:#?}\n{found:#?}");
        self.valid += u64::from(valid);
        self.invalid += u64::from(!meant.is_empty());
        self.unknown += u64::from(meant.is_empty() && !valid);
        meant.keys().for_each(|kind| *self.by_kind.entry(kind).or_default() += 1);
    }

    /// There was enough of every answer, and of these violations, in per cent of all.
    pub(super) fn each_at_least(&self, per_cent: u64, kinds: &[&'static str]) {
        let all = self.valid + self.invalid + self.unknown;
        let enough = |n: u64| n * 100 >= all * per_cent;
        assert!([self.valid, self.invalid, self.unknown].into_iter().all(enough), "{self:?}");
        for kind in kinds {
            assert!(enough(self.by_kind.get(kind).copied().unwrap_or(0)), "{kind}: {self:?}");
        }
        assert!(self.by_kind.keys().all(|kind| kinds.contains(kind)), "{self:?}");
    }
}
