//! Naive recounts of what describes a history: every number by a look at all operations.

use elench_formats::History;
use elench_formats::open::{OpenOptions, open_bytes};

use super::{clock, exceptions, latency, rate, stats};
use crate::findings::{Fact, Findings};
use crate::linear::tests::{Random, more, seed};

/// An operation: of process `i`, so that each has its own.
struct Op {
    f: &'static str,
    end: &'static str,
    error: Option<(&'static str, &'static str)>,
    node: Option<&'static str>,
    from: u64,
    /// Where it ended, if it did.
    to: Option<u64>,
}

/// What the nemesis measured: seconds off, in quarters, of two nodes; and when.
type Offsets = Vec<(i64, i64, u64)>;

fn one_of<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.below(all.len() as u64) as usize]
}

const ERRORS: [(&str, &str); 4] = [
    (":timeout", ":timeout"),
    ("[:refused \"n1\"]", ":refused"),
    ("[:refused \"n2\"]", ":refused"),
    ("\"lost 7\"", "lost"),
];

fn any(random: &mut Random) -> (Vec<Op>, Offsets, History) {
    let of = |random: &mut Random| {
        let end = one_of(random, &["ok", "ok", "fail", "info", "never"]);
        let from = random.below(9_000_000_000);
        Op {
            f: one_of(random, &["read", "write", "cas"]),
            end,
            error: random.chance(600).then(|| one_of(random, &ERRORS)).filter(|_| end != "ok" && end != "never"),
            node: random.chance(700).then(|| one_of(random, &["a", "b"])),
            from,
            to: (end != "never").then(|| from + 1 + random.below(5_000_000_000)),
        }
    };
    let mut ops: Vec<Op> = (0..1 + random.below(14)).map(|_| of(random)).collect();
    ops.sort_by_key(|op| op.from);
    let quarters = |random: &mut Random| random.below(40) as i64 - 20;
    let mut offsets: Offsets =
        (0..random.below(4)).map(|_| (quarters(random), quarters(random), random.below(14_000_000_000))).collect();
    offsets.sort_by_key(|o| o.2);

    let mut events: Vec<(u64, String)> = Vec::new();
    for (i, op) in ops.iter().enumerate() {
        let node = op.node.map_or(String::new(), |node| format!(", :node \"{node}\""));
        let event = |kind: &str, more: &str| format!(":type :{kind}, :process {i}, :f :{}, :value 1{node}{more}", op.f);
        events.push((op.from, event("invoke", "")));
        let error = op.error.map_or(String::new(), |(error, _)| format!(", :error {error}"));
        events.extend(op.to.map(|to| (to, event(op.end, &error))));
    }
    for (a, b, at) in &offsets {
        let seconds = format!(":clock-offsets {{\"a\" {}, \"b\" {b}/4}}", *a as f64 / 4.0);
        let bump = ":type :info, :process :nemesis, :f :bump, :value nil";
        events.extend([(*at, bump.to_string()), (*at, format!("{bump}, {seconds}"))]);
    }
    events.sort();
    let line = |(i, (time, event)): (usize, &(u64, String))| format!("{{:index {i}, :time {time}, {event}}}\n");
    let text: String = events.iter().enumerate().map(line).collect();
    let history = open_bytes(text.as_bytes(), &OpenOptions { threads: 1, ..OpenOptions::default() });
    (ops, offsets, history.unwrap_or_else(|e| panic!("{e}\n{text}")))
}

fn histories(n: u64) -> impl Iterator<Item = (Vec<Op>, Offsets, History)> {
    let first = seed();
    (0..n * more()).map(move |i| any(&mut Random(first.wrapping_add(i.wrapping_mul(0x9e37_79b9)))))
}

/// The row that begins with these words.
fn row<'a>(found: &'a Findings, table: &str, words: &[&str]) -> Option<&'a [Fact]> {
    let Fact::Table(table) = found.fact_of(table)? else { panic!("{found:?}") };
    let begins = |row: &&Vec<Fact>| words.iter().zip(*row).all(|(word, fact)| *fact == Fact::Text(word.to_string()));
    table.rows.iter().find(begins).map(|row| &row[..])
}

/// Is an operation counted under this outcome? What never ended is of unknown outcome.
fn ended(op: &Op, end: &str) -> bool {
    op.end == end || (end == "info" && op.end == "never")
}

#[test]
fn functions_and_errors_are_counted_as_one_by_one() {
    for (ops, _, h) in histories(1000) {
        let stats = stats(&h);
        for f in ["read", "write", "cas"] {
            let count = |end: &str| ops.iter().filter(|op| op.f == f && op.end == end).count() as u64;
            let counts = ["ok", "fail", "info", "never"].map(count);
            let line = stats.by_f.iter().find(|line| line.f.as_deref() == Some(f));
            assert_eq!(line.map_or([0; 4], |line| line.counts), counts, "{f}");
            assert_eq!(line.is_some(), counts != [0; 4]);
            assert_eq!(line.is_some_and(|line| line.never_ok.is_some()), line.is_some() && counts[0] == 0);
        }
        let groups = exceptions(&h);
        for class in [":timeout", ":refused", "lost"] {
            let with = |op: &&Op| op.error.is_some_and(|(_, of)| of == class);
            let count = ops.iter().filter(with).count() as u64;
            let group = groups.iter().find(|group| group.class == class);
            assert_eq!(group.map_or(0, |group| group.count), count, "{class}");
            let failed = ops.iter().filter(with).filter(|op| op.end == "fail").count() as u64;
            assert_eq!(group.map_or([0; 4], |group| group.by_status), [0, failed, count - failed, 0]);
            let first = ops.iter().find(with).and_then(|op| op.error).map(|(error, _)| error);
            assert_eq!(group.map(|group| group.example.as_str()), first);
        }
        assert!(groups.windows(2).all(|two| two[0].count >= two[1].count));
    }
}

#[test]
fn durations_and_rates_are_those_of_a_look_at_all_operations() {
    for (ops, _, h) in histories(300) {
        let (latency, rate) = (latency(&h), rate(&h));
        let times = ops.iter().flat_map(|op| [Some(op.from), op.to]).flatten();
        let (begin, over) = (times.clone().min().unwrap(), times.max().unwrap());
        let by_f = ["read", "write", "cas"].map(|f| ("by function", f));
        for (table, name) in by_f.into_iter().chain([("by node", "a"), ("by node", "b")]) {
            for end in ["ok", "fail", "info"] {
                let of = |op: &&Op| ended(op, end) && (op.f == name || op.node == Some(name));
                let some: Vec<(u64, u64)> = ops.iter().filter(of).filter_map(|op| Some((op.from, op.to?))).collect();
                let (took, second) = (row(&latency, table, &[name, end]), row(&rate, table, &[name, end]));
                assert_eq!((took.is_some(), second.is_some()), (!some.is_empty(), !some.is_empty()), "{name} {end}");
                let (Some(took), Some(second)) = (took, second) else { continue };
                let Fact::Quantiles(quantiles) = &took[2] else { panic!("{took:?}") };
                assert_eq!(quantiles.count, some.len() as u64);
                for (part, told) in &quantiles.at {
                    let within = |most: u64| some.iter().filter(|(from, to)| to - from <= most).count() as u64;
                    let enough = |most: &u64| within(*most) * 1000 >= u64::from(*part) * some.len() as u64;
                    let exact = some.iter().map(|(from, to)| to - from).filter(enough).min().unwrap();
                    assert!(told.abs_diff(exact) <= exact / 500 + 1, "{part}: {told} is not {exact}");
                }
                let in_second = |at: u64| some.iter().filter(|(_, to)| to / 1_000_000_000 == at).count() as u64;
                let seconds = begin / 1_000_000_000..=over / 1_000_000_000;
                let mut counts: Vec<u64> = seconds.map(in_second).collect();
                counts.sort_unstable();
                let told = [counts[0], counts[counts.len().div_ceil(2) - 1], counts[counts.len() - 1]];
                assert_eq!(second[2], Fact::Count(some.len() as u64));
                assert_eq!(second[4..], told.map(Fact::Count), "{name} {end}");
            }
        }
    }
}

#[test]
fn offsets_are_those_of_a_look_at_all_measurements() {
    for (_, offsets, h) in histories(1000) {
        let found = clock(&h);
        assert_eq!(found.why().is_some(), offsets.is_empty());
        let of_a: Vec<i64> = offsets.iter().map(|o| o.0).collect();
        let of_b: Vec<i64> = offsets.iter().map(|o| o.1).collect();
        for (node, all) in [("a", of_a), ("b", of_b)].into_iter().filter(|(_, all)| !all.is_empty()) {
            let real = |quarters: i64| Fact::Real(quarters as f64 / 4.0);
            let told = [*all.iter().min().unwrap(), *all.iter().max().unwrap(), all[all.len() - 1]].map(real);
            let row = row(&found, "offsets by node", &[node]).unwrap();
            assert_eq!((&row[1], &row[2..]), (&Fact::Count(all.len() as u64), &told[..]), "{offsets:?}");
        }
        if let Some(apart) = offsets.iter().map(|(a, b, _)| a.abs_diff(*b)).max() {
            let Some(Fact::Text(text)) = found.fact_of("furthest apart") else { panic!("{found:?}") };
            assert!(text.starts_with(&format!("{:.6} s", apart as f64 / 4.0)), "{text} {offsets:?}");
        }
    }
}
