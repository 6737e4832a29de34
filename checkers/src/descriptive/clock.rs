//! How far were the nodes' clocks off? From the `:clock-offsets` that Jepsen's clock nemesis writes beside its operations: a map of nodes
//! to seconds, each measured against the control node.
//!
//! O(operations of the nemesis). What is told are extremes, so the incremental form would be the same loop; as nemesis operations are no client's,
//! there is none.

use std::collections::BTreeMap;

use elench_formats::{History, Value};

use crate::findings::{Fact, Findings, Table};
use crate::outcome::{Status, Why};

/// Offsets of one node, in seconds.
#[derive(Clone, Copy, Debug)]
struct Offsets {
    count: u64,
    least: f64,
    most: f64,
    last: f64,
}

/// Offsets of a history.
pub fn clock(history: &History) -> Findings {
    let mut findings = Findings::new(1);
    let mut nodes: BTreeMap<String, Offsets> = BTreeMap::new();
    let mut widest: Option<(f64, u64, Option<i64>)> = None;
    for op in history.ops().filter(|op| !op.is_client()) {
        let Some(offsets) = op.extra("clock-offsets").and_then(offsets) else { continue };
        findings.coverage.count(op.f().unwrap_or("nil"), Status::Ok, 1);
        for (node, seconds) in &offsets {
            let known = nodes.entry(node.clone()).or_insert(Offsets {
                count: 0,
                least: *seconds,
                most: *seconds,
                last: *seconds,
            });
            known.count += 1;
            (known.least, known.most) = (known.least.min(*seconds), known.most.max(*seconds));
            known.last = *seconds;
        }
        let most = offsets.iter().map(|o| o.1).fold(f64::MIN, f64::max);
        let least = offsets.iter().map(|o| o.1).fold(f64::MAX, f64::min);
        if offsets.len() > 1 && widest.is_none_or(|(apart, ..)| most - least > apart) {
            widest = Some((most - least, op.index(), op.complete_time().or(op.invoke_time())));
        }
    }
    if nodes.is_empty() {
        findings.undecided(Why::Other("no operation of the nemesis bears :clock-offsets".into()));
        return findings;
    }
    let columns = ["node", "measured", "least s", "most s", "last s"].map(str::to_string).to_vec();
    let row = |(node, o): (&String, &Offsets)| {
        vec![
            Fact::Text(node.clone()),
            Fact::Count(o.count),
            Fact::Real(o.least),
            Fact::Real(o.most),
            Fact::Real(o.last),
        ]
    };
    findings.fact("offsets by node", Fact::Table(Table { columns, rows: nodes.iter().map(row).collect() }));
    if let Some((apart, op, time)) = widest {
        let when = time.map_or(String::new(), |ns| format!(", at {:.1} s", ns as f64 / 1e9));
        findings.fact("furthest apart", Fact::Text(format!("{apart:.6} s, measured by op {op}{when}")));
    }
    findings
}

/// Nodes and seconds of a map.
fn offsets(text: &str) -> Option<Vec<(String, f64)>> {
    let Value::Map(entries) = elench_formats::edn::parse(text).ok()? else { return None };
    let seconds = |value: &Value| match value {
        Value::Int(n) => Some(*n as f64),
        Value::Float(x) => Some(*x).filter(|x| x.is_finite()),
        Value::Decimal(digits) => digits.parse().ok(),
        Value::Ratio(text) => {
            let (n, d) = text.split_once('/')?;
            Some(n.parse::<f64>().ok()? / d.parse::<f64>().ok()?)
        }
        _ => None,
    };
    Some(entries.iter().filter_map(|(node, value)| Some((node.as_name()?.to_string(), seconds(value)?))).collect())
}

#[cfg(test)]
mod tests {
    use elench_formats::open::{OpenOptions, open_bytes};

    use super::*;

    #[test]
    fn offsets_are_told_by_node_with_the_moment_when_clocks_were_furthest_apart() {
        let text = br#"
            {:index 0, :type :invoke, :process 0, :f :read, :value nil, :time 0}
            {:index 1, :type :info, :process :nemesis, :f :check-offsets, :value nil, :time 1000000000}
            {:index 2, :type :info, :process :nemesis, :f :check-offsets, :clock-offsets {"n1" 0.5, "n2" -0.25}, :value nil, :time 2000000000}
            {:index 3, :type :info, :process :nemesis, :f :bump, :value nil, :time 3000000000}
            {:index 4, :type :info, :process :nemesis, :f :bump, :clock-offsets {"n1" 60, "n2" -1/4}, :value nil, :time 4000000000}
            {:index 5, :type :ok, :process 0, :f :read, :value 1, :time 5000000000}
        "#;
        let found = clock(&open_bytes(text, &OpenOptions::default()).unwrap());
        let Some(Fact::Table(table)) = found.fact_of("offsets by node") else { panic!("{found:?}") };
        let n1 = [Fact::Text("n1".into()), Fact::Count(2), Fact::Real(0.5), Fact::Real(60.0), Fact::Real(60.0)];
        assert_eq!(table.rows[0], n1);
        let apart = found.fact_of("furthest apart");
        assert_eq!(apart, Some(&Fact::Text("60.250000 s, measured by op 3, at 4.0 s".into())));
    }

    #[test]
    fn a_history_without_offsets_says_so() {
        let h = elench_formats::notation::history("invoke 0 read / ok 0 read 1").unwrap();
        assert!(clock(&h).why().unwrap().to_string().contains("clock-offsets"));
    }
}
