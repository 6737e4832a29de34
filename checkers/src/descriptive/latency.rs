//! How long did operations take? HDR histograms by function, outcome, node and fault window.
//!
//! One histogram of three digits for each function and outcome, each node, each window: a few kilobytes each. O(n). The incremental
//! form is the batch form, operation by operation.

use elench_formats::History;
use elench_formats::history::OpRef;
use hdrhistogram::Histogram;

use super::ByOutcome;
use crate::findings::{Fact, Findings, Incremental, Quantiles, Table, ended};
use crate::named::Tally;

/// Parts per thousand that are told.
const PARTS: [u16; 5] = [500, 900, 990, 999, 1000];

/// A histogram for each name and outcome that there is.
type Histograms = ByOutcome<Option<Histogram<u64>>>;

/// What is known of latencies so far.
#[derive(Debug, Default)]
pub struct Latencies {
    by_f: Histograms,
    by_node: Histograms,
    by_window: Histograms,
    tally: Tally,
    timeless: u64,
    backward: u64,
}

/// Latencies of a whole history.
pub fn latency(history: &History) -> Findings {
    let mut latencies = Latencies::default();
    history.clients().for_each(|op| latencies.add(&op));
    latencies.tell()
}

impl Latencies {
    fn add(&mut self, op: &OpRef<'_>) {
        let status = ended(op);
        self.tally.count(op);
        let (Some(from), Some(to)) = (op.invoke_time(), op.complete_time()) else {
            self.timeless += 1;
            return;
        };
        let Some(took) = to.checked_sub(from).and_then(|ns| u64::try_from(ns).ok()) else {
            self.backward += 1;
            return;
        };
        record(self.by_f.at(op.f().unwrap_or("nil"), status), took);
        if let Some(node) = op.node() {
            record(self.by_node.at(node, status), took);
        }
        if let Some(window) = op.fault_epoch() {
            record(self.by_window.at(window, status), took);
        }
    }

    fn tell(self) -> Findings {
        let mut findings = Findings::new(1);
        self.tally.tell(&mut findings.coverage);
        let tables = [
            ("by function", "f", &self.by_f),
            ("by node", "node", &self.by_node),
            ("by fault window", "window", &self.by_window),
        ];
        for (title, column, all) in tables {
            let table = table(column, all);
            if !table.rows.is_empty() {
                findings.fact(title, Fact::Table(table));
            }
        }
        let counts =
            [("operations that lack a time", self.timeless), ("operations that end before they begin", self.backward)];
        counts.into_iter().filter(|(_, n)| *n > 0).for_each(|(what, n)| findings.fact(what, Fact::Count(n)));
        findings
    }
}

impl Incremental for Latencies {
    fn invoked(&mut self, _op: &OpRef<'_>) {}

    fn completed(&mut self, op: &OpRef<'_>) {
        self.add(op);
    }

    fn violated(&self) -> Option<&'static str> {
        None
    }

    fn finish(self: Box<Self>) -> Findings {
        self.tell()
    }
}

fn record(histogram: &mut Option<Histogram<u64>>, took: u64) {
    if histogram.is_none() {
        *histogram = Histogram::new(3).ok();
    }
    // `record` makes room; only what no histogram can hold is clamped.
    if let Some(histogram) = histogram
        && histogram.record(took).is_err()
    {
        histogram.saturating_record(took);
    }
}

fn table(column: &str, all: &Histograms) -> Table {
    let row = |(name, end, histogram): (&str, &'static str, &Option<Histogram<u64>>)| {
        let histogram = histogram.as_ref()?;
        let at = PARTS.map(|part| (part, histogram.value_at_quantile(f64::from(part) / 1000.0))).to_vec();
        let quantiles = Quantiles { count: histogram.len(), at };
        Some(vec![Fact::Text(name.to_string()), Fact::Text(end.to_string()), Fact::Quantiles(quantiles)])
    };
    let columns = [column, "outcome", "latency"].map(str::to_string).to_vec();
    Table { columns, rows: all.iter().filter_map(row).collect() }
}

#[cfg(test)]
mod tests {
    use elench_formats::notation::history;

    use super::*;
    use crate::findings::replay;

    #[test]
    fn latencies_are_told_by_function_and_outcome_and_agree_with_sorted_durations() {
        let mut text = String::new();
        let mut durations = Vec::new();
        for i in 0..500u64 {
            let took = (i * i * 7919 % 1_000_003) * 1000;
            durations.push(took);
            text += &format!("invoke 0 read @{}\nok 0 read 1 @{}\n", i * 10_000_000_000, i * 10_000_000_000 + took);
        }
        text += &format!("invoke 0 write 1 @{0}\nfail 0 write 1 @{0}\ninvoke 1 write 2 @{0}", 5_000_000_000_000u64);
        let h = history(&text).unwrap();
        let found = latency(&h);
        durations.sort_unstable();
        let Some(Fact::Table(table)) = found.fact_of("by function") else { panic!("{found:?}") };
        let Fact::Quantiles(quantiles) = &table.rows[0][2] else { panic!("{table:?}") };
        assert_eq!(quantiles.count, 500);
        for &(part, told) in &quantiles.at {
            let exact = durations[(usize::from(part) * 500).div_ceil(1000) - 1];
            assert!(told.abs_diff(exact) <= exact / 500 + 1, "{part}: {told} is not {exact}");
        }
        assert_eq!(table.rows[1][..2], [Fact::Text("write".into()), Fact::Text("fail".into())]);
        assert_eq!(found.fact_of("operations that lack a time"), Some(&Fact::Count(1)));
        let online = replay(&h, Box::new(Latencies::default()));
        assert_eq!(online.facts(), found.facts());
    }
}
