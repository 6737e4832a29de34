//! Simulated systems, and what the checkers have to say of them.

mod corpus;
mod once;
mod orders;
mod queues;
mod sets;

use elench_formats::History;
use elench_formats::build::{BuildOptions, Lift};
use elench_formats::notation::history_with;

use crate::findings::Findings;

/// xorshift64*, seeded by a number whose bits are spread first.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }
}

/// Calls with so many seeds, each said where it fails.
pub(super) fn seeds(runs: u64, mut test: impl FnMut(&mut Random)) {
    let first = std::env::var("ELENCH_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed);
    let more = std::env::var("ELENCH_RUNS").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    println!("ELENCH_SEED={first}");
    for seed in first..first + runs * more {
        print!("\rseed {seed} ");
        test(&mut Random::new(seed));
    }
    println!();
}

/// An event of a simulated run.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) kind: &'static str,
    pub(super) process: usize,
    pub(super) f: &'static str,
    pub(super) value: String,
}

#[derive(Clone)]
struct Running {
    process: usize,
    f: &'static str,
    input: String,
    /// What it returned, once it took effect.
    output: Option<String>,
    /// It will fail, or its client will never hear.
    fails: bool,
    hangs: bool,
}

/// How operations of a simulated run end.
#[derive(Clone, Copy)]
pub(super) struct Mix {
    pub(super) clients: usize,
    pub(super) ops: usize,
    pub(super) fail: u64,
    pub(super) info: u64,
}

pub(super) fn mix(random: &mut Random) -> Mix {
    Mix {
        clients: 1 + random.below(4),
        ops: 5 + random.below(30),
        fail: [0, 10, 30][random.below(3)],
        info: [0, 10, 30][random.below(3)],
    }
}

/// Clients of an object whose operations take effect at one moment, `apply`, between their ends; those that hang do so whenever,
/// or never. `choose` says what a client does next. `sure` operations neither fail nor hang.
pub(super) fn simulate(
    random: &mut Random,
    mix: Mix,
    sure: &[&str],
    mut choose: impl FnMut(&mut Random) -> (&'static str, String),
    mut apply: impl FnMut(&mut Random, &'static str, &str) -> String,
) -> Vec<Event> {
    let mut events = Vec::new();
    let mut running: Vec<Running> = Vec::new();
    let mut ghosts: Vec<Running> = Vec::new();
    let mut processes: Vec<usize> = (0..mix.clients).collect();
    let (mut begun, mut fresh) = (0, mix.clients);
    while begun < mix.ops || !running.is_empty() {
        if random.chance(10) && !ghosts.is_empty() {
            let ghost = ghosts.swap_remove(random.below(ghosts.len()));
            apply(random, ghost.f, &ghost.input);
        }
        let idle: Vec<usize> = processes.iter().copied().filter(|p| running.iter().all(|r| r.process != *p)).collect();
        if begun < mix.ops && !idle.is_empty() && (running.is_empty() || random.chance(40)) {
            let (f, input) = choose(random);
            let process = idle[random.below(idle.len())];
            let risky = !sure.contains(&f);
            let fails = risky && random.chance(mix.fail);
            let hangs = risky && !fails && random.chance(mix.info);
            events.push(Event { kind: "invoke", process, f, value: input.clone() });
            running.push(Running { process, f, input, output: None, fails, hangs });
            begun += 1;
            continue;
        }
        let at = random.below(running.len());
        let op = &mut running[at];
        if op.output.is_none() && !op.fails && !op.hangs {
            op.output = Some(apply(random, op.f, &op.input));
            continue;
        }
        let op = running.swap_remove(at);
        let (kind, value) = match (&op.output, op.fails) {
            (Some(output), _) => ("ok", output.clone()),
            (None, true) => ("fail", op.input.clone()),
            (None, false) => ("info", op.input.clone()),
        };
        if op.hangs {
            processes.retain(|p| *p != op.process);
            processes.push(fresh);
            fresh += 1;
            // Half of those that never hear are not even told so.
            if random.chance(50) {
                events.push(Event { kind, process: op.process, f: op.f, value });
            }
            ghosts.push(op);
            continue;
        }
        events.push(Event { kind, process: op.process, f: op.f, value });
    }
    events
}

/// An operation that nothing overlaps, at the end.
pub(super) fn append(events: &mut Vec<Event>, f: &'static str, input: &str, output: &str) {
    let process = 1000;
    events.push(Event { kind: "invoke", process, f, value: input.into() });
    events.push(Event { kind: "ok", process, f, value: output.into() });
}

pub(super) fn text(events: &[Event]) -> String {
    let lines: Vec<String> =
        events.iter().map(|e| format!("{} {} {} {}", e.kind, e.process, e.f, e.value).trim().to_string()).collect();
    lines.join("\n")
}

pub(super) fn built(events: &[Event]) -> History {
    of(&text(events))
}

/// Without keys, whatever its values look like.
pub(super) fn of(text: &str) -> History {
    let options =
        BuildOptions { format: "notation".into(), real_time: true, lift: Lift::Never, ..BuildOptions::default() };
    history_with(text, options).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Kinds of violations, with how many there are.
pub(super) fn violated(findings: &Findings) -> Vec<(&'static str, u64)> {
    findings.violations().map(|(name, kind)| (name, kind.count)).collect()
}

/// The number of this kind, as violation or note.
pub(super) fn counts<const N: usize>(findings: &Findings, kinds: [&str; N]) -> [u64; N] {
    kinds.map(|kind| findings.count(kind))
}

/// Is this kind violated, with the operation that begins at this event in the evidence?
pub(super) fn shows(findings: &Findings, kind: &str, event: usize) -> bool {
    findings
        .violations()
        .filter(|(name, _)| *name == kind)
        .any(|(_, found)| found.examples.iter().any(|e| e.ops.iter().any(|op| op.0 == event as u64)))
}
