//! Simulated stores that keep what they promise are never accused, and each broken promise is named, with the operation that broke it.

use super::*;
use crate::linear::tests::Random;
use crate::outcome::OpId;

/// How concurrent writes of a key are settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settled {
    /// Everywhere alike: the later of two Lamport times.
    Alike,
    /// By each replica as they arrive.
    AsTheyArrive,
}

#[derive(Clone, Debug)]
struct Message {
    from: usize,
    /// Of each replica, how many of its writes were known.
    known: Vec<usize>,
    lamport: u64,
    key: usize,
    value: i64,
}

#[derive(Clone, Debug)]
struct Replica {
    known: Vec<usize>,
    lamport: u64,
    store: Vec<(u64, usize, i64)>,
    inbox: Vec<Message>,
}

/// An event of the notation and what a read may be changed to.
#[derive(Clone, Debug)]
struct Line {
    process: usize,
    write: bool,
    key: usize,
    value: i64,
    end: &'static str,
}

/// A causally consistent store: each client talks to one replica, and replicas tell each other of writes in causal order, late.
/// Writes of unknown outcome end their process, and may have happened.
fn run(random: &mut Random, settled: Settled) -> Vec<Line> {
    let (replicas, keys, ops) = (2 + random.below(3) as usize, 1 + random.below(3) as usize, 5 + random.below(30));
    let new = Replica { known: vec![0; replicas], lamport: 0, store: vec![(0, 0, 0); keys], inbox: Vec::new() };
    let mut all = vec![new; replicas];
    let mut processes: Vec<usize> = (0..replicas).collect();
    let (mut next, mut lines) = (0, Vec::new());
    for _ in 0..ops {
        for replica in &mut all {
            while random.below(3) == 0 && deliver(replica, settled) {}
        }
        let at = random.below(replicas as u64) as usize;
        let key = random.below(keys as u64) as usize;
        let process = processes[at];
        if random.below(2) == 0 {
            lines.push(Line { process, write: false, key, value: all[at].store[key].2, end: "ok" });
            continue;
        }
        next += 1;
        let end = ["ok", "ok", "ok", "ok", "ok", "ok", "fail", "info"][random.below(8) as usize];
        lines.push(Line { process, write: true, key, value: next, end });
        if end == "fail" || (end == "info" && random.below(2) == 0) {
            continue;
        }
        let replica = &mut all[at];
        replica.lamport += 1;
        let message = Message { from: at, known: replica.known.clone(), lamport: replica.lamport, key, value: next };
        replica.known[at] += 1;
        replica.store[key] = (replica.lamport, at, next);
        if end == "info" {
            processes[at] += replicas;
        }
        all.iter_mut().enumerate().filter(|(i, _)| *i != at).for_each(|(_, other)| other.inbox.push(message.clone()));
    }
    lines
}

/// Applies the first message whose causes are known.
fn deliver(replica: &mut Replica, settled: Settled) -> bool {
    let ready = |m: &Message| {
        m.known.iter().zip(&replica.known).all(|(a, b)| a <= b) && m.known[m.from] == replica.known[m.from]
    };
    let Some(at) = replica.inbox.iter().position(ready) else { return false };
    let message = replica.inbox.remove(at);
    replica.known[message.from] += 1;
    replica.lamport = replica.lamport.max(message.lamport);
    let told = (message.lamport, message.from, message.value);
    let old = &mut replica.store[message.key];
    if settled == Settled::AsTheyArrive || (told.0, told.1) > (old.0, old.1) {
        *old = told;
    }
    true
}

fn text(lines: &[Line]) -> String {
    let show = |value: i64| if value == 0 { "nil".to_string() } else { value.to_string() };
    let event = |l: &Line| {
        let (f, sent) = if l.write { ("write", show(l.value)) } else { ("read", "nil".into()) };
        let (p, k) = (l.process, l.key);
        format!("invoke {p} {f} [{k} {sent}]\n{} {p} {f} [{k} {}]\n", l.end, show(l.value))
    };
    lines.iter().map(event).collect()
}

#[test]
fn stores_that_keep_causal_order_are_never_accused() {
    let mut rng = Random(seed());
    let mut both = [0u64; 2];
    for run_of in 0..10_000 * more() {
        let settled = if run_of % 2 == 0 { Settled::Alike } else { Settled::AsTheyArrive };
        let lines = run(&mut rng, settled);
        let h = keyed(&text(&lines));
        let found = causal(&h);
        let [cc, ccv, cm] = holds(&found);
        assert!(cc, "{settled:?}: {lines:?}\n{found:?}");
        assert!(if settled == Settled::Alike { ccv } else { cm }, "{settled:?}: {lines:?}\n{found:?}");
        both[(run_of % 2) as usize] += u64::from(ccv && cm);
        // A store whose replicas settle alike may show one session a version, another, and the first again only by letting go of
        // neither guarantee: causal memory of one key is the four guarantees.
        let guarantees = sessions(&h);
        assert!(settled == Settled::Alike || !guarantees.is_invalid(), "{lines:?}\n{guarantees:?}");
    }
    assert!(both.iter().all(|&n| n > 1000), "{both:?}");
}

/// One change of a good run that breaks a promise: the changed operation, and what it is to be called by the two checkers.
fn broken(random: &mut Random, lines: &mut Vec<Line>, how: &str) -> usize {
    let p = 100 + random.below(3) as usize;
    let line = |process, write, value| Line { process, write, key: 0, value, end: "ok" };
    let (a, b) = (1000, 1001);
    // Fresh sessions on fresh values of key 0, so that nothing else of the run matters to them.
    let (tail, broke): (Vec<Line>, usize) = match how {
        "aborted-effect" => (vec![Line { end: "fail", ..line(p, true, a) }, line(p + 5, false, a)], 1),
        "ThinAirRead" => (vec![line(p, false, a)], 0),
        "read-your-writes" => (vec![line(p, true, a), line(p, false, 0)], 1),
        "PRAM" => (vec![line(p, true, a), line(p, true, b), line(p + 5, false, b), line(p + 5, false, a)], 3),
        "monotonic-reads" => (
            vec![
                line(p, true, a),
                line(p + 1, true, b),
                line(p + 5, false, a),
                line(p + 5, false, b),
                line(p + 5, false, a),
            ],
            4,
        ),
        "writes-follow-reads" => {
            (vec![line(p, false, b), line(p, true, a), line(p + 5, false, a), line(p + 5, true, b)], 0)
        }
        _ => (
            vec![
                line(p, true, a),
                line(p + 1, false, a),
                line(p + 1, true, b),
                line(p + 5, false, b),
                line(p + 5, false, a),
            ],
            4,
        ),
    };
    let begin = lines.len();
    lines.extend(tail);
    begin + broke
}

#[test]
fn each_broken_promise_is_named_with_the_operation_that_broke_it() {
    let mut rng = Random(seed());
    for (how, by_sessions, by_causality) in [
        ("aborted-effect", "aborted-effect", "aborted-effect"),
        ("ThinAirRead", "ThinAirRead", "ThinAirRead"),
        ("read-your-writes", "read-your-writes", "WriteCOInitRead"),
        ("PRAM", "PRAM", "WriteCORead"),
        ("monotonic-reads", "monotonic-reads", "CyclicHB"),
        ("writes-follow-reads", "writes-follow-reads", "CyclicCO"),
        ("session-causality", "session-causality", "WriteCORead"),
    ] {
        for _ in 0..100 * more() {
            let mut lines = run(&mut rng, Settled::AsTheyArrive);
            let broke = broken(&mut rng, &mut lines, how);
            let h = keyed(&text(&lines));
            for (found, kind) in [(sessions(&h), by_sessions), (causal(&h), by_causality)] {
                assert!(kinds(&found).contains(kind), "{how}: {lines:?}\n{found:?}");
                let examples = &found.kinds()[kind].examples;
                let op = OpId(broke as u64 * 2);
                assert!(examples.iter().any(|e| e.ops.contains(&op)), "{how}, {op:?}: {examples:?}");
            }
        }
    }
}

/// Two numbers for each session and key, by looking at all pairs.
#[test]
fn versions_agree_with_a_look_at_all_pairs() {
    let mut rng = Random(seed());
    let mut seen = BTreeSet::new();
    for _ in 0..3_000 * more() {
        let n = 2 + rng.below(10);
        let ops: Vec<(u64, bool, u64, u64)> = (0..n)
            .map(|i| {
                (
                    rng.below(2),
                    rng.below(2) == 0,
                    rng.below(2),
                    if rng.below(4) == 0 { rng.below(8) } else { i / 2 + 1 },
                )
            })
            .collect();
        let mut text = String::from("invoke 9 write [:z [nil 0]]\nok 9 write [:z [1 0]]\n");
        for &(p, write, k, version) in &ops {
            let f = if write { "write" } else { "read" };
            let sent = if write { "[nil 7]" } else { "nil" };
            text += &format!("invoke {p} {f} [{k} {sent}]\nok {p} {f} [{k} [{version} 7]]\n");
        }
        let mut expected = BTreeSet::new();
        let mut reused = false;
        for (i, a) in ops.iter().enumerate() {
            for b in &ops[i + 1..] {
                if (a.0, a.2) != (b.0, b.2) {
                    continue;
                }
                if b.3 < a.3 {
                    expected.insert(match (a.1, b.1) {
                        (true, false) => "read-your-writes",
                        (false, false) => "monotonic-reads",
                        (true, true) => "monotonic-writes",
                        (false, true) => "writes-follow-reads",
                    });
                }
                reused |= b.3 == a.3 && b.1;
            }
        }
        let h = keyed(&text);
        let found = sessions(&h);
        assert_eq!(kinds(&found), expected, "{text}\n{found:?}");
        assert!(found.is_invalid() || reused || found.is_valid(), "{text}\n{found:?}");
        let online = replay(&h, incremental(Order::Versions, 3));
        assert_eq!(online.kinds(), found.kinds(), "{text}");
        seen.extend(expected);
    }
    assert_eq!(seen.len(), 4);
}
