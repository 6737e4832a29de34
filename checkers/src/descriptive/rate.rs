//! How many operations ended in each second, and how? By function and outcome, by node, by fault window.
//!
//! Seconds are counted from the first event; an operation counts when it ends. One counter for each function, outcome and second.
//! O(n). The incremental form is the batch form, operation by operation.

use std::collections::BTreeMap;

use elench_formats::History;
use elench_formats::history::OpRef;

use super::ByOutcome;
use crate::findings::{Fact, Findings, Incremental, Table, ended};
use crate::named::Tally;
use crate::outcome::Status;

const SECOND: i64 = 1_000_000_000;

/// How many in each second in which there were any.
#[derive(Debug, Default)]
struct Seconds {
    by_second: BTreeMap<i64, u64>,
    /// The second of the last one, and how many of it are not in the map yet.
    now: (i64, u64),
}

impl Seconds {
    fn add(&mut self, second: i64) {
        if self.now.0 != second {
            self.settle();
            self.now.0 = second;
        }
        self.now.1 += 1;
    }

    fn settle(&mut self) {
        if self.now.1 > 0 {
            *self.by_second.entry(self.now.0).or_default() += std::mem::take(&mut self.now.1);
        }
    }

    /// Of each second, none of which is zero.
    fn counts(&self) -> Vec<u64> {
        self.by_second.values().copied().collect()
    }
}

/// What is known of rates so far.
#[derive(Debug, Default)]
pub struct Rates {
    by_f: ByOutcome<Seconds>,
    by_node: ByOutcome<Seconds>,
    by_window: ByOutcome<u64>,
    acknowledged: Seconds,
    span: Option<(i64, i64)>,
    timeless: u64,
    tally: Tally,
}

/// Rates of a whole history.
pub fn rate(history: &History) -> Findings {
    let mut rates = Rates::default();
    history.clients().for_each(|op| rates.add(&op));
    rates.tell()
}

impl Rates {
    fn add(&mut self, op: &OpRef<'_>) {
        let status = ended(op);
        self.tally.count(op);
        for time in op.invoke_time().into_iter().chain(op.complete_time()) {
            let (from, to) = self.span.unwrap_or((time, time));
            self.span = Some((from.min(time), to.max(time)));
        }
        let Some(time) = op.complete_time() else {
            self.timeless += 1;
            return;
        };
        let second = time.div_euclid(SECOND);
        self.by_f.at(op.f().unwrap_or("nil"), status).add(second);
        if let Some(node) = op.node() {
            self.by_node.at(node, status).add(second);
        }
        if let Some(window) = op.fault_epoch() {
            *self.by_window.at(window, status) += 1;
        }
        if status == Status::Ok {
            self.acknowledged.add(second);
        }
    }

    fn tell(mut self) -> Findings {
        let mut findings = Findings::new(1);
        self.tally.tell(&mut findings.coverage);
        let by_name = self.by_f.iter_mut().chain(self.by_node.iter_mut());
        by_name.chain([&mut self.acknowledged]).for_each(Seconds::settle);
        if self.timeless > 0 {
            findings.fact("operations without a time of their end", Fact::Count(self.timeless));
        }
        let Some((from, to)) = self.span else { return findings };
        let (first, last) = (from.div_euclid(SECOND), to.div_euclid(SECOND));
        findings.fact("span", Fact::Nanos(to.saturating_sub(from)));
        for (title, column, all) in [("by function", "f", &self.by_f), ("by node", "node", &self.by_node)] {
            let table = table(column, all, to.saturating_sub(from), last - first + 1);
            if !table.rows.is_empty() {
                findings.fact(title, Fact::Table(table));
            }
        }
        let windows = self.by_window.iter().filter(|(_, _, n)| **n > 0);
        let row = |(name, end, n): (&str, &str, &u64)| {
            vec![Fact::Text(name.to_string()), Fact::Text(end.to_string()), Fact::Count(*n)]
        };
        let rows: Vec<Vec<Fact>> = windows.map(row).collect();
        if !rows.is_empty() {
            let columns = ["window", "outcome", "operations"].map(str::to_string).to_vec();
            findings.fact("by fault window", Fact::Table(Table { columns, rows }));
        }
        if let Some((begin, length)) = silence(&self.acknowledged.by_second, first, last) {
            let text = format!("{length} s from second {}", begin - first);
            findings.fact("longest time without an acknowledgement", Fact::Text(text));
        }
        findings
    }
}

/// The longest run of whole seconds in which nothing was acknowledged: where it begins, and its length.
fn silence(acknowledged: &BTreeMap<i64, u64>, first: i64, last: i64) -> Option<(i64, i64)> {
    let ends = acknowledged.keys().copied().chain([last + 1]);
    let begins = [first].into_iter().chain(acknowledged.keys().map(|second| second + 1));
    let runs = begins.zip(ends).map(|(begin, end)| (begin, end - begin)).filter(|(_, length)| *length > 0);
    runs.max_by_key(|&(begin, length)| (length, -begin))
}

fn table(column: &str, all: &ByOutcome<Seconds>, span: i64, seconds: i64) -> Table {
    let columns = [column, "outcome", "operations", "a second", "least", "median", "most"].map(str::to_string).to_vec();
    let row = |(name, end, of): (&str, &str, &Seconds)| {
        let mut counts = of.counts();
        let total: u64 = counts.iter().sum();
        if total == 0 {
            return None;
        }
        counts.sort_unstable();
        // Seconds without any are not in the map.
        let none = (seconds - counts.len() as i64).max(0) as usize;
        let all = none + counts.len();
        let at = |i: usize| Fact::Count(i.checked_sub(none).map_or(0, |i| counts[i]));
        let mean = if span > 0 { total as f64 * SECOND as f64 / span as f64 } else { total as f64 };
        let median = at(all.div_ceil(2).saturating_sub(1));
        Some(vec![
            Fact::Text(name.to_string()),
            Fact::Text(end.to_string()),
            Fact::Count(total),
            Fact::Real(mean),
            at(0),
            median,
            at(all - 1),
        ])
    };
    Table { columns, rows: all.iter().filter_map(row).collect() }
}

impl Incremental for Rates {
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

#[cfg(test)]
mod tests {
    use elench_formats::notation::history;

    use super::*;
    use crate::findings::replay;

    #[test]
    fn rates_and_the_longest_silence_are_told() {
        let mut text = String::new();
        // Two a second for ten seconds, none for five, then one.
        for i in (0..20).chain([30]) {
            let at = i * SECOND / 2;
            text += &format!("invoke 0 read @{at}\nok 0 read 1 @{}\n", at + 1000);
        }
        text += &format!("invoke 0 read @{}\nfail 0 read @{}\n", 15 * SECOND + 2000, 15 * SECOND + 3000);
        let h = history(&text).unwrap();
        let found = rate(&h);
        let Some(Fact::Table(table)) = found.fact_of("by function") else { panic!("{found:?}") };
        let ok = &table.rows[1];
        assert_eq!(ok[..3], [Fact::Text("read".into()), Fact::Text("ok".into()), Fact::Count(21)]);
        assert_eq!(ok[4..], [Fact::Count(0), Fact::Count(2), Fact::Count(2)]);
        let silence = found.fact_of("longest time without an acknowledgement");
        assert_eq!(silence, Some(&Fact::Text("5 s from second 10".into())));
        assert_eq!(replay(&h, Box::new(Rates::default())).facts(), found.facts());
    }

    #[test]
    fn a_history_without_times_has_no_rates() {
        let found = rate(&history("invoke 0 read / ok 0 read 1").unwrap());
        assert_eq!(found.facts(), [("operations without a time of their end".into(), Fact::Count(1))]);
    }
}
