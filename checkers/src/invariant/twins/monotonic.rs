//! Twin of `monotonic`.

use super::super::monotonic::{self, monotonic};
use super::*;

/// A value, and its timestamp in thousandths.
type Point = (i64, Option<i64>);

enum Told {
    Point(Point),
    Rows(Vec<Point>),
    Odd,
}

fn stamp(value: &Value) -> i64 {
    match value {
        Value::Int(n) => n * 1000,
        other => (other.to_edn().trim_end_matches('M').parse::<f64>().unwrap() * 1000.0).round() as i64,
    }
}

fn told(call: &Call<'_>) -> Told {
    let row = |value: &Value| Some((value.get("val")?.as_int()?, value.get("sts").map(stamp)));
    let value = edn(call.output);
    match &value {
        Value::Int(n) => Told::Point((*n, None)),
        Value::Map(_) => row(&value).map_or(Told::Odd, Told::Point),
        Value::Vector(items) => match &items[..] {
            [at @ (Value::Int(_) | Value::Decimal(_)), Value::Int(n)] => Told::Point((*n, Some(stamp(at)))),
            items => {
                let plain = |item: &Value| row(item).or_else(|| Some((item.as_int()?, None)));
                items.iter().map(plain).collect::<Option<_>>().map_or(Told::Odd, Told::Rows)
            }
        },
        _ => Told::Odd,
    }
}

/// Of those with timestamps: pairs of timestamps without another between, of which the later has a smaller value somewhere. With places.
fn falls(points: &[(i64, i64, usize)]) -> Vec<(usize, usize)> {
    let mut falls = Vec::new();
    let mut stamps: Vec<i64> = points.iter().map(|p| p.0).collect();
    stamps.sort_unstable();
    stamps.dedup();
    for two in stamps.windows(2) {
        let at = |stamp: i64| points.iter().filter(move |p| p.0 == stamp).map(|p| (p.1, p.2));
        let (most, least) = (at(two[0]).max().unwrap(), at(two[1]).min().unwrap());
        if most.0 > least.0 {
            falls.push((most.1, least.1));
        }
    }
    falls
}

fn twin(all: &[Call<'_>]) -> Twin {
    let mut twin = Twin::default();
    let other = all.iter().find(|call| call.f == "reset").map_or(usize::MAX, |call| call.began);
    twin.undecided(other < usize::MAX);
    let (mut steps, mut points, mut reads, mut evidence) = (Vec::new(), Vec::new(), Vec::new(), false);
    for call in acknowledged(all).iter().filter(|call| call.ended < other) {
        if call.f == "add" && call.input != "nil" && call.input == call.output {
            continue;
        }
        match told(call) {
            Told::Point((value, stamp)) => {
                points.extend(stamp.map(|stamp| (stamp, value, call.began)));
                if call.f != "read-at" {
                    steps.push((*call, value));
                }
            }
            Told::Rows(rows) => {
                evidence |= !rows.is_empty();
                reads.push((*call, rows));
            }
            Told::Odd => twin.undecided(true),
        }
    }
    twin.undecided(!evidence && steps.is_empty());
    for (i, (call, value)) in steps.iter().enumerate() {
        let before = steps[..i].iter().rfind(|(other, _)| other.process == call.process);
        if let Some((before, _)) = before.filter(|(_, was)| value < was || (call.f == "add" && value == was)) {
            twin.broken("process-order", &[before.began, call.began]);
        }
    }
    for (a, b) in falls(&points) {
        twin.broken("value-order", &[a, b]);
    }
    for (call, rows) in &reads {
        for i in 1..rows.len() {
            if rows[i - 1].1.zip(rows[i].1).is_some_and(|(a, b)| a > b) {
                twin.broken("timestamp-order", &[call.began]);
            }
            if rows[..i].iter().any(|row| row.0 == rows[i].0) {
                twin.broken("duplicate", &[call.began]);
            }
        }
        let stamped: Vec<(i64, i64, usize)> = rows.iter().filter_map(|row| Some((row.1?, row.0, 0))).collect();
        let listed = (1..rows.len()).filter(|&i| rows[i - 1].0 > rows[i].0).count();
        let n = if stamped.len() == rows.len() { falls(&stamped).len() } else { listed };
        (0..n).for_each(|_| twin.broken("value-order", &[call.began]));
    }
    // What a read of the past lists says nothing of what was inserted later.
    let last = reads.iter().filter(|(call, _)| call.f != "read-at").max_by_key(|(call, _)| call.began);
    if let Some((read, rows)) = last {
        for (insert, value) in steps.iter().filter(|(call, _)| call.f == "add" && call.ended < read.began) {
            if !rows.iter().any(|row| row.0 == *value) {
                twin.broken("lost", &[insert.began, read.began]);
            }
        }
    }
    twin
}

#[test]
fn orders_are_broken_where_a_look_at_all_pairs_says_so() {
    let mut answers = Answers::default();
    for mut random in seeds(1000) {
        let (odd, reset) = (random.chance(150), random.chance(50));
        // Values mostly grow with the number of calls; timestamps with them.
        let (mut clock, steady) = (0i64, random.chance(300));
        let steps = 6 + random.below(16);
        let log = chaos(&mut random, 3, steps, |random| {
            clock += 1;
            let wobble = if steady { 0 } else { random.below(4) as i64 - 1 };
            let value = clock + wobble;
            let at = clock * 10 + if steady { 0 } else { random.below(30) as i64 };
            let at = if random.chance(300) { format!("{at}.5M") } else { at.to_string() };
            let row = |value: i64, random: &mut Random| match random.below(8) {
                0 if !steady => value.to_string(),
                _ => format!("{{:val {value}, :sts {}}}", value * 10 + i64::from(!steady) * random.below(12) as i64),
            };
            let f = match random.below(8) {
                0..=3 => "add",
                4 => "read-at",
                5 if reset && random.chance(500) => "reset",
                _ => "read",
            };
            let output = match random.below(10) {
                0..3 if f.starts_with("read") => {
                    let from = if steady && f == "read" { 1 } else { 1 + random.below(2) as i64 };
                    let mut rows: Vec<String> = (from..=clock).map(|value| row(value, random)).collect();
                    if !steady && random.chance(300) {
                        rows.reverse();
                        rows.extend(rows.first().cloned().filter(|_| random.chance(500)));
                    }
                    if rows.len() == 2 { rows[0].clone() } else { format!("[{}]", rows.join(" ")) }
                }
                3 => value.to_string(),
                4 => format!("{{:val {value}, :sts {at}}}"),
                5 if odd => one_of(random, &["nil", ":x", "[:a :b]"]).into(),
                _ => format!("[{at} {value}]"),
            };
            let input = if f == "add" && random.chance(100) { output.clone() } else { "nil".into() };
            Made { f, input, output, ..Made::default() }
        });
        if log.is_empty() {
            continue;
        }
        let h = history(&log);
        answers.agree(&twin(&calls(&log)), &both(&h, monotonic(&h, 1000), monotonic::online(1000)), &log);
    }
    answers.each_at_least(2, &["process-order", "value-order", "timestamp-order", "duplicate", "lost"]);
}
