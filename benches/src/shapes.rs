//! Which histories do the checkers of deliveries, sessions and invariants get, and how are these checkers run?
//!
//! Histories are right by construction, of any number of operations: sixteen clients, all of which always have one open, and where
//! operations may crash a percent of the writes is of unknown outcome. A case is a shape of history and a checker of it.

use elench_checkers::Budget;
use elench_checkers::delivery::log::{Options, check as check_log};
use elench_checkers::delivery::{
    Effects, KeyPath, QueueOptions, broadcast, exactly_once, no_lost_ack, prefix, queue, set, set_full, total_queue,
    unique_ids,
};
use elench_checkers::descriptive::{clock, exceptions, latency, rate, stats};
use elench_checkers::expr::Expr;
use elench_checkers::findings::Findings;
use elench_checkers::invariant::fairness::{GroupBy, fairness};
use elench_checkers::invariant::final_state::final_state;
use elench_checkers::invariant::locks::Locks;
use elench_checkers::invariant::{
    bank, causal_reverse, counter, g2, locks, long_fork, membership, monotonic, reconcile, replicated, subkeys,
};
use elench_checkers::session::{CausalModel, CausalOptions, Order, check_causal, check_sessions};
use elench_formats::build::{BuildOptions, HistoryBuilder, Lift};
use elench_formats::columns::ValueRef;
use elench_formats::event::{Cell, Event, EventBatch, EventType, MopNames, Process, Span};
use elench_formats::{History, Result, Value};

/// Operations open at once.
const CLIENTS: usize = 16;
/// Reads of everything, however long the history.
const READS: u64 = 20;
/// Events handed over at once.
const BATCH: usize = 1 << 16;

/// A value of an operation.
enum Told {
    Nil,
    Int(i64),
    /// Consecutive integers.
    UpTo(i64),
    Edn(String),
}

/// What an operation is: its function, its values when it begins and when it ends.
struct Step(&'static str, Told, Told);

impl Step {
    fn both(f: &'static str, n: i64) -> Step {
        Step(f, Told::Int(n), Told::Int(n))
    }
}

/// A kind of history.
#[derive(Debug)]
pub struct Shape {
    /// Its name.
    pub name: &'static str,
    /// May writes crash?
    crashes: bool,
    /// Do values bear keys?
    keyed: bool,
    /// So many operations say something of one element: an element, a message, a request, a write and its reads.
    ops_of_element: u64,
    /// Each operation by its number, of so many.
    step: fn(u64, u64) -> Step,
    /// What checks it.
    pub checkers: &'static [Case],
}

/// A checker and how it is run.
#[derive(Debug)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// Runs it. Does it find no fault, if it judges?
    pub run: fn(&History) -> bool,
}

const fn case(name: &'static str, run: fn(&History) -> bool) -> Case {
    Case { name, run }
}

const fn shape(
    name: &'static str,
    crashes: bool,
    ops_of_element: u64,
    step: fn(u64, u64) -> Step,
    checkers: &'static [Case],
) -> Shape {
    Shape { name, crashes, keyed: false, ops_of_element, step, checkers }
}

/// All of them.
pub const SHAPES: &[Shape] = &[
    shape(
        "set",
        true,
        1,
        |i, n| everything_read("add", i, n),
        &[
            case("set-full", |h| set_full(h, false, 3).is_valid()),
            case("set", |h| set(h, 3).is_valid()),
            case("no-lost-ack", |h| no_lost_ack(h, &[], 3).is_valid()),
            case("prefix", |h| prefix(h, 1, 3).is_valid()),
        ],
    ),
    Shape {
        name: "1000 sets",
        crashes: true,
        keyed: true,
        ops_of_element: 1,
        step: sets,
        checkers: &[case("set-full", |h| set_full(h, false, 3).is_valid())],
    },
    shape(
        "queue",
        false,
        2,
        |i, _| if i.is_multiple_of(2) { Step::both("enqueue", i as i64 / 2) } else { taken("dequeue", i as i64 / 2) },
        &[
            case("queue", |h| queue(h, &QueueOptions { fifo: true, ..QueueOptions::default() }, 3).is_valid()),
            case("total-queue", |h| {
                total_queue(h, &QueueOptions { named: true, ..QueueOptions::default() }, 3).is_valid()
            }),
        ],
    ),
    shape(
        "ids",
        true,
        1,
        // Spread over all integers, as ids are.
        |i, _| taken("generate", i.wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64),
        &[case("unique-ids", |h| unique_ids(h, false, 3).is_valid())],
    ),
    shape(
        "requests",
        false,
        3,
        // Each is tried twice.
        |i, _| if i % 3 < 2 { Step::both("send", i as i64 / 3) } else { taken("poll", i as i64 / 3) },
        &[case("exactly-once", |h| {
            let path: std::result::Result<KeyPath, _> = "value".parse();
            path.is_ok_and(|path| exactly_once(h, &path, Effects::Consumers, None, 3).is_valid())
        })],
    ),
    shape("broadcast", true, 1, broadcasts, &[case("broadcast", |h| broadcast(h, true, 3).is_valid())]),
    shape(
        "log",
        false,
        2,
        messages,
        &[case("log", |h| check_log(h, &Options::default(), &Budget::unlimited()).is_valid())],
    ),
    shape(
        "registers",
        false,
        2,
        |i, _| if i.is_multiple_of(2) { Step::both("write", i as i64) } else { taken("read", i as i64 - 1) },
        &[
            case("session", |h| {
                let found = check_sessions(h, Some(Order::Values), &Value::Nil, &Budget::unlimited(), 3);
                found.is_ok_and(|found| found.is_valid())
            }),
            case("causal", |h| {
                let options = CausalOptions { judged: vec![CausalModel::Cc, CausalModel::Ccv], per_key: false };
                let found = check_causal(h, &options, &Value::Nil, &Budget::unlimited(), 3);
                found.is_ok_and(|found| found.is_valid())
            }),
            case("final-state", |h| {
                Expr::parse("final > 0").is_ok_and(|rule| !final_state(h, &[], &[rule], 3).is_invalid())
            }),
            case("fairness", |h| {
                let rule = Expr::parse("p99(worst.latency) <= 2 * p99(latency)");
                rule.is_ok_and(|rule| fairness(h, &GroupBy::Process, &[rule], 3).is_valid())
            }),
            case("stats", |h| !stats(h).by_f.is_empty()),
            case("exceptions", |h| exceptions(h).is_empty()),
            case("latency", |h| !latency(h).is_invalid()),
            case("rate", |h| !rate(h).is_invalid()),
            case("clock", |h| !clock(h).is_invalid()),
        ],
    ),
    shape(
        "versions",
        true,
        2,
        |i, _| {
            let told = Told::Edn(format!("[{i} {i}]"));
            if i.is_multiple_of(2) {
                Step("write", Told::Edn(format!("[nil {i}]")), told)
            } else {
                Step("read", Told::Nil, told)
            }
        },
        &[case("session", |h| {
            let found = check_sessions(h, Some(Order::Versions), &Value::Nil, &Budget::unlimited(), 3);
            found.is_ok_and(|found| found.is_valid())
        })],
    ),
    shape(
        "counter",
        true,
        2,
        // Reads show all that was added by those before them, crashed ones included.
        |i, _| if i.is_multiple_of(2) { Step::both("add", 1) } else { taken("read", i as i64 / 2 + 1) },
        &[
            case("counter", |h| counter::counter(h, 0, 3).is_valid()),
            case("pn-counter", |h| {
                let rules = replicated::Rules { quiescent: true, ..Default::default() };
                answered(&replicated::replicated(h, rules, 3))
            }),
        ],
    ),
    shape("bank", true, 2, transfers, &[case("bank", |h| bank::bank(h, &bank::Rules::default(), 3).is_valid())]),
    shape("forks", true, 8, groups, &[case("long-fork", |h| long_fork::long_fork(h, 3).is_valid())]),
    shape(
        "comments",
        true,
        1,
        |i, n| everything_read("write", i, n),
        &[case("causal-reverse", |h| causal_reverse::causal_reverse(h, 3).is_valid())],
    ),
    shape("inserts", false, 1, inserts, &[case("adya-g2", |h| g2::g2(h, 3).is_valid())]),
    shape("subkeys", false, 1, prefixes, &[case("subkeys", |h| subkeys::subkeys(h, 3).is_valid())]),
    shape(
        "increments",
        false,
        1,
        |i, _| taken("inc", i as i64),
        &[case("monotonic", |h| monotonic::monotonic(h, 3).is_valid())],
    ),
    shape(
        "stamped",
        false,
        1,
        |i, _| Step("inc", Told::Nil, Told::Edn(format!("[{}.0000000001M {i}]", 1_600_000_000_000_000_000 + i))),
        &[case("monotonic", |h| monotonic::monotonic(h, 3).is_valid())],
    ),
    shape("lock", false, 1, turns, &[case("mutex-exclusion", |h| locks::locks(h, Locks::One, 3).is_valid())]),
    shape("locks", false, 1, named_turns, &[case("lock-set", |h| locks::locks(h, Locks::Named, 3).is_valid())]),
    shape(
        "members",
        true,
        3,
        members,
        &[case("membership", |h| {
            answered(&membership::membership(h, &membership::Rules { quiescent: true, members: None }, 3))
        })],
    ),
    shape("dumps", true, 8, dumps, &[case("reconcile", |h| answered(&reconcile::reconcile(h, true, 3)))]),
];

/// Of checkers that a history which never comes to rest leaves undecided: all was read, and nothing is wrong.
fn answered(found: &Findings) -> bool {
    !found.is_invalid() && !found.coverage.ops.is_empty()
}

fn taken(f: &'static str, n: i64) -> Step {
    Step(f, Told::Nil, Told::Int(n))
}

/// Writes of what is new, and some reads of all that was written before them, the last at the end.
fn everything_read(write: &'static str, i: u64, n: u64) -> Step {
    let every = (n / READS).max(2);
    if (i + 1).is_multiple_of(every) {
        return Step("read", Told::Nil, Told::UpTo((i - i / every) as i64));
    }
    Step::both(write, (i - i / every) as i64)
}

/// Each key a set of its own, read now and then.
fn sets(i: u64, n: u64) -> Step {
    let (key, round, rounds) = (i % 1000, i / 1000, n.div_ceil(1000));
    let every = (rounds / READS).max(2);
    if (round + 1).is_multiple_of(every) {
        let shown: Vec<String> = (0..round).filter(|r| !(r + 1).is_multiple_of(every)).map(|r| r.to_string()).collect();
        let all = format!("[{key} [{}]]", shown.join(" "));
        return Step("read", Told::Edn(format!("[{key} nil]")), Told::Edn(all));
    }
    let element = format!("[{key} {round}]");
    Step("add", Told::Edn(element.clone()), Told::Edn(element))
}

/// Every client reads all, sixteen reads a round.
fn broadcasts(i: u64, n: u64) -> Step {
    // A file whose reads are much longer than its writes is refused as one that claims too much.
    let every = (n / 4).max(4 * CLIENTS as u64);
    let (round, at) = (i / every, i % every);
    let own = every - CLIENTS as u64;
    let told = round * own + at.min(own);
    if at >= own { Step("read", Told::Nil, Told::UpTo(told as i64)) } else { Step::both("broadcast", told as i64) }
}

/// Sixteen partitions, a message an operation, each polled by one consumer once it was sent.
fn messages(i: u64, _: u64) -> Step {
    let clients = CLIENTS as u64;
    let (round, key) = (i / clients, i % clients);
    let number = round / 2;
    if round.is_multiple_of(2) {
        let sent = format!("[[:send {key} [{} {number}]]]", number + number / 100);
        return Step("send", Told::Edn(format!("[[:send {key} {number}]]")), Told::Edn(sent));
    }
    let polled = format!("[[:poll {{{key} [[{} {number}]]}}]]", number + number / 100);
    Step("poll", Told::Edn("[[:poll]]".into()), Told::Edn(polled))
}

fn transfers(i: u64, _: u64) -> Step {
    if i.is_multiple_of(2) {
        let text = format!("{{:from {}, :to {}, :amount 1}}", i % 10, (i + 3) % 10);
        return Step("transfer", Told::Edn(text.clone()), Told::Edn(text));
    }
    // A million states, so that few are seen again.
    let (a, b) = (i % 1000, i / 1000 % 1000);
    let text = format!("{{0 {}, 1 {a}, 2 {b}, 3 {}, 4 10, 5 10, 6 10, 7 10}}", 1000 - a, 1000 - b);
    Step("read", Told::Nil, Told::Edn(text))
}

fn groups(i: u64, _: u64) -> Step {
    let group = i / 8 * 2;
    let text = |a: &str, b: &str| Told::Edn(format!("[[:r {group} {a}] [:r {} {b}]]", group + 1));
    let write = |key| Step("txn", Told::Edn(format!("[[:w {key} 1]]")), Told::Edn(format!("[[:w {key} 1]]")));
    match i % 8 {
        0 => write(group),
        1 => write(group + 1),
        n => Step("txn", text("nil", "nil"), if n < 4 { text("1", "nil") } else { text("1", "1") }),
    }
}

fn inserts(i: u64, _: u64) -> Step {
    let text = format!("[{i} [{i} nil]]");
    Step("insert", Told::Edn(text.clone()), Told::Edn(text))
}

fn prefixes(i: u64, _: u64) -> Step {
    let subkeys = ["[nil nil nil]", "[nil nil 0]", "[nil 1 0]", "[2 1 0]"][(i % 4) as usize];
    Step("read", Told::Int(i as i64), Told::Edn(format!("[{i} {subkeys}]")))
}

fn turns(i: u64, _: u64) -> Step {
    // One client at a time: all others are refused.
    match i % (2 * CLIENTS as u64) {
        0 => Step("acquire", Told::Nil, Told::Int(i as i64 + 1)),
        n if n == CLIENTS as u64 => Step("release", Told::Nil, Told::Nil),
        _ => Step("acquire", Told::Nil, Told::Edn("false".into())),
    }
}

/// Each client has two locks for itself.
fn named_turns(i: u64, _: u64) -> Step {
    let client = i % CLIENTS as u64;
    let names = || Told::Edn(format!("[\"a{client}\" \"b{client}\"]"));
    let f = if (i / CLIENTS as u64).is_multiple_of(2) { "acquire" } else { "release" };
    Step(f, names(), names())
}

fn members(i: u64, _: u64) -> Step {
    match i % 3 {
        0 => Step::both("join", i as i64 % 7),
        1 => Step::both("leave", i as i64 % 7 + 10),
        _ => Step("view", Told::Nil, Told::Edn("[0 1 2 3 4 5 6]".into())),
    }
}

fn dumps(i: u64, _: u64) -> Step {
    match i % 8 {
        0 => Step("dump", Told::Nil, Told::Edn("[1 2 3 4 5]".into())),
        _ => Step::both("write", i as i64),
    }
}

/// Hands events over to a builder.
struct Writer {
    builder: HistoryBuilder,
    batch: EventBatch,
    place: u64,
    process: [i64; CLIENTS],
}

impl Writer {
    fn event(&mut self, kind: EventType, client: usize, f: &str, told: &Told) -> Result<()> {
        let value = match told {
            Told::Nil => Cell::Nil,
            Told::Int(n) => Cell::Int(*n),
            Told::UpTo(n) => {
                let start = self.batch.ints.len() as u32;
                self.batch.ints.extend(0..*n);
                Cell::List(Span { start, len: (*n).max(0) as u32 })
            }
            Told::Edn(text) => {
                let value = elench_formats::edn::parse(text).unwrap_or(Value::Nil);
                self.batch.value(&value, MopNames::Keywords)
            }
        };
        self.place += 1;
        let f = Some(self.batch.name(f));
        let (place, time) = (self.place, Some(self.place as i64 * 1000));
        let process = Process::Client(self.process[client]);
        self.batch.push(Event { place, index: None, time, kind, process, f, value });
        // A batch addresses its arenas by 32 bits.
        if self.batch.len() >= BATCH || self.batch.ints.len() > 1 << 24 {
            self.hand_over()?;
        }
        Ok(())
    }

    fn hand_over(&mut self) -> Result<()> {
        self.builder.push(&self.batch)?;
        self.batch = EventBatch::default();
        Ok(())
    }
}

impl Shape {
    /// How many elements a history of so many operations speaks of.
    pub fn elements(&self, ops: u64) -> u64 {
        ops.div_ceil(self.ops_of_element)
    }

    /// A history of so many operations.
    ///
    /// # Errors
    /// As building.
    pub fn history(&self, ops: u64) -> Result<History> {
        let lift = if self.keyed { Lift::Always } else { Lift::Never };
        let options = BuildOptions { format: "generated".into(), real_time: true, lift, ..BuildOptions::default() };
        let process = std::array::from_fn(|client| client as i64);
        let mut writer =
            Writer { builder: HistoryBuilder::new(options), batch: EventBatch::default(), place: 0, process };
        let mut open: [Option<(u64, Step)>; CLIENTS] = std::array::from_fn(|_| None);
        // Clients take turns: each operation ends when its client's next begins.
        for i in 0..ops + CLIENTS as u64 {
            let client = (i % CLIENTS as u64) as usize;
            if let Some((number, Step(f, _, output))) = open[client].take() {
                let writes = !matches!(output, Told::Nil | Told::UpTo(_)) && !matches!(f, "read" | "view" | "dump");
                if self.crashes && writes && number % 100 == 7 {
                    writer.event(EventType::Info, client, f, &Told::Nil)?;
                    writer.process[client] += CLIENTS as i64;
                } else {
                    writer.event(EventType::Ok, client, f, &output)?;
                }
            }
            if i < ops {
                let step = (self.step)(i, ops);
                writer.event(EventType::Invoke, client, step.0, &step.1)?;
                open[client] = Some((i, step));
            }
        }
        writer.hand_over()?;
        writer.builder.finish()
    }
}

/// A pass over the columns that checkers read: function, outcome, ends and values of each operation, the elements of each list
/// included, micro-operations where there are any, and no text.
pub fn pass(history: &History) -> u64 {
    let number = |value: ValueRef<'_>| match value {
        ValueRef::Nil => 0,
        ValueRef::Int(n) => n as u64,
        ValueRef::Text(id) => u64::from(id),
        ValueRef::List(list) | ValueRef::Set(list) => match list.as_ints() {
            Some(ints) => ints.iter().fold(0, |sum, n| sum ^ *n as u64),
            None => list.iter().filter(|s| *s != elench_formats::columns::Scalar::Nil).count() as u64,
        },
    };
    let mut sum = 0u64;
    for op in history.clients() {
        let own = u64::from(op.f_code().unwrap_or(0)) + op.status() as u64 + op.complete_index().unwrap_or(0);
        let mops = op.txn().map_or(0, |txn| txn.iter().map(|mop| u64::from(mop.f) ^ number(mop.value)).sum::<u64>());
        sum = sum.wrapping_add(own ^ number(op.input()) ^ number(op.output()) ^ mops);
    }
    sum
}
