//! Do values that the database assigns grow, in the order of its timestamps and for each client?
//!
//! Two tests have this name. CockroachDB's: a transaction reads the greatest value, inserts the next with its timestamp
//! (`{:val 4, :sts 17…}`), and in the end all rows are read in the order of their timestamps. FaunaDB's: increments and reads
//! return a value, or `[timestamp value]`. Both ask:
//!
//! - `process-order`: does a process see a value below the last one of its own, or get one by inserting that is not above it?
//! - `value-order`: is a value with a later timestamp smaller? Rows with later timestamps are greater, and not equal.
//! - `timestamp-order`: do timestamps fall in a read of rows?
//! - `duplicate`: is a value twice in one read of rows?
//! - `lost`: is an acknowledged insert missing in the read of rows that began last, and after its acknowledgement? (Reads of the past,
//!   `read-at`, may lack what came later.)
//!
//! Timestamps are integers or decimals and compared exactly. An insert that is told its value by the client says nothing here.
//!
//! O(n log n). Memory: 56 bytes a value with a timestamp. Orders are only judged at the end, when all timestamps are known; those of
//! processes at once.

use elench_formats::columns::ValueRef;
use elench_formats::history::OpRef;
use elench_formats::{History, Value};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

use super::{Online, State, acknowledged, atoms, check};
use crate::findings::{Example, Fact, Findings, Incremental};
use crate::named::{ByName, Tally, is_any};
use crate::outcome::{OpId, Why};

/// Checks each key of a history.
pub fn monotonic(history: &History, examples: usize) -> Findings {
    check(history, examples, &Monotonic::new(examples))
}

/// Checks while a history is written.
pub fn online(examples: usize) -> Box<dyn Incremental> {
    Online::new(Monotonic::new(examples), examples)
}

const INSERTS: [&str; 4] = ["add", "inc", "insert", "increment"];
const READS: [&str; 2] = ["read", "r"];
const READS_OF_THE_PAST: [&str; 1] = ["read-at"];

/// What the name of an operation says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    Inserts,
    Reads,
    ReadsThePast,
    Other,
}

fn means(name: &str) -> Means {
    match () {
        () if is_any(name, &INSERTS) => Means::Inserts,
        () if is_any(name, &READS) => Means::Reads,
        () if is_any(name, &READS_OF_THE_PAST) => Means::ReadsThePast,
        () => Means::Other,
    }
}

/// Digits behind the point that are kept.
const DIGITS: usize = 18;

/// A value, and when the database says it was assigned, in units of 10^-18.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    value: i64,
    stamp: Option<i128>,
}

/// What an operation returned.
enum Told {
    Point(Point),
    Rows(Vec<Point>),
    Odd,
}

#[derive(Clone)]
struct Monotonic {
    found: Findings,
    tally: Tally,
    names: ByName<Means>,
    last_of: HashMap<i64, (u64, i64), FixedState>,
    /// Those with timestamps, with their operations.
    points: Vec<(i128, i64, u64)>,
    /// Acknowledged inserts: value, operation, completion.
    inserts: Vec<(i64, u64, u64)>,
    /// The read of rows that began last.
    rows: Option<(u64, Vec<Point>)>,
    judged: u64,
    /// The first operation that may make values smaller: nothing is judged from there on.
    other: Option<String>,
}

impl Monotonic {
    fn new(examples: usize) -> Self {
        Monotonic {
            found: Findings::new(examples),
            tally: Tally::default(),
            names: ByName::new(means, Means::Other),
            last_of: HashMap::default(),
            points: Vec::new(),
            inserts: Vec::new(),
            rows: None,
            judged: 0,
            other: None,
        }
    }

    fn point(&mut self, op: &OpRef<'_>, point: Point, inserts: bool) {
        let id = op.index();
        self.judged += 1;
        if let Some(stamp) = point.stamp {
            self.points.push((stamp, point.value, id));
        }
        if inserts {
            self.inserts.push((point.value, id, op.complete_index().unwrap_or(u64::MAX)));
        }
        let Some(process) = op.process() else { return };
        let Some((before, was)) = self.last_of.insert(process, (id, point.value)) else { return };
        let is = point.value;
        if is < was || (inserts && is == was) {
            self.found.violation("process-order", || {
                let (before, now) = (OpId(before), OpId(id));
                let got = if inserts { "got" } else { "saw" };
                Example::new([before, now], format!("one process had {was} in {before} and {got} {is} in {now} later"))
            });
        }
    }

    fn read_rows(&mut self, op: u64, rows: Vec<Point>, past: bool) {
        // No rows have no order; that they lack what was inserted tells something.
        self.judged += u64::from(!rows.is_empty());
        let op = OpId(op);
        for two in rows.windows(2).filter(|two| two[0].stamp.zip(two[1].stamp).is_some_and(|(a, b)| a > b)) {
            self.found.violation("timestamp-order", || {
                Example::new(
                    [op],
                    format!("{op} lists {} after {}, which has a later timestamp", two[1].value, two[0].value),
                )
            });
        }
        let mut seen: HashSet<i64, FixedState> = HashSet::default();
        for row in rows.iter().filter(|row| !seen.insert(row.value)) {
            self.found
                .violation("duplicate", || Example::new([op], format!("{op} lists {} more than once", row.value)));
        }
        let mut order: Vec<Point> = rows.clone();
        // Rows without timestamps stay as they were listed.
        if order.iter().all(|row| row.stamp.is_some()) {
            order.sort_by_key(|row| (row.stamp, row.value));
        }
        for two in order.windows(2).filter(|two| two[0].value > two[1].value) {
            self.found.violation("value-order", || {
                Example::new(
                    [op],
                    format!("{op} shows {} with a timestamp after that of {}", two[1].value, two[0].value),
                )
            });
        }
        // What the past lacks may have been inserted later. Of reads that overlap, the one that began last has most to list.
        if !past && self.rows.as_ref().is_none_or(|(last, _)| *last < op.0) {
            self.rows = Some((op.0, rows));
        }
    }

    fn judge_points(&mut self) {
        self.points.sort_unstable();
        for two in self.points.windows(2).filter(|two| two[0].0 < two[1].0 && two[0].1 > two[1].1) {
            let ((_, was, a), (_, is, b)) = (two[0], two[1]);
            self.found.violation("value-order", || {
                let (a, b) = (OpId(a), OpId(b));
                Example::new([a, b], format!("{a} had {was}, and {b}, with a later timestamp, {is}"))
            });
        }
    }

    fn judge_lost(&mut self) {
        let Some((read, rows)) = self.rows.take() else { return };
        let listed: HashSet<i64, FixedState> = rows.iter().map(|row| row.value).collect();
        for (value, op, ended) in std::mem::take(&mut self.inserts) {
            if ended < read && !listed.contains(&value) {
                self.found.violation("lost", || {
                    let (insert, read) = (OpId(op), OpId(read));
                    Example::new([insert, read], format!("{insert} inserted {value}, which {read} does not list"))
                });
            }
        }
    }
}

/// Of what an operation returned; a pair is `[timestamp value]`.
fn told(op: &OpRef<'_>) -> Told {
    if let ValueRef::Int(value) = op.output() {
        return Told::Point(Point { value, stamp: None });
    }
    let value = atoms::tree(op, op.output());
    if let Some(point) = row(&value) {
        return Told::Point(point);
    }
    let Some(items) = value.as_vector() else { return Told::Odd };
    if let [stamp, Value::Int(value)] = items
        && let Some(stamp) = stamp_of(stamp)
    {
        return Told::Point(Point { value: *value, stamp: Some(stamp) });
    }
    match items.iter().map(|item| row(item).or_else(|| Some(Point { value: item.as_int()?, stamp: None }))).collect() {
        Some(rows) => Told::Rows(rows),
        None => Told::Odd,
    }
}

/// A row `{:val 4, :sts 17}`.
fn row(value: &Value) -> Option<Point> {
    let field = |names: &[&str]| names.iter().find_map(|name| value.get(name));
    let stamp = field(&["sts", "ts", "timestamp"]).filter(|stamp| !matches!(stamp, Value::Nil));
    let stamp = match stamp {
        Some(stamp) => Some(stamp_of(stamp)?),
        None => None,
    };
    Some(Point { value: field(&["val", "value"])?.as_int()?, stamp })
}

/// A number in units of 10^-18. None where it is no decimal number, or does not fit.
fn stamp_of(value: &Value) -> Option<i128> {
    let text = match value {
        Value::Int(n) => return i128::from(*n).checked_mul(10i128.pow(DIGITS as u32)),
        Value::BigInt(text) | Value::Decimal(text) => text,
        _ => return None,
    };
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if part.len() > DIGITS || !part.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    format!("{whole}{part:0<DIGITS$}").parse().ok()
}

impl State for Monotonic {
    fn invoked(&mut self, op: &OpRef<'_>) {
        if self.other.is_none() && self.names.of(op) == Means::Other {
            self.other = Some(format!("{} ({})", OpId(op.index()), op.f().unwrap_or("nil")));
        }
    }

    fn completed(&mut self, op: &OpRef<'_>) {
        self.tally.count(op);
        let means = self.names.of(op);
        let inserts = means == Means::Inserts;
        if !acknowledged(op) || self.other.is_some() {
            return;
        }
        if inserts && !op.input().is_nil() && op.input() == op.output() {
            return;
        }
        // A read of the past is no step of its process.
        let past = means == Means::ReadsThePast;
        match told(op) {
            Told::Point(point) if past => self.points.extend(point.stamp.map(|stamp| (stamp, point.value, op.index()))),
            Told::Point(point) => self.point(op, point, inserts),
            Told::Rows(rows) => self.read_rows(op.index(), rows, past),
            Told::Odd => {
                let why = format!("{} returned neither a value, nor `[timestamp value]`, nor rows", OpId(op.index()));
                self.found.undecided(Why::Other(why));
            }
        }
    }

    fn violated(&self) -> Option<&'static str> {
        self.found.violations().next().map(|(kind, _)| kind)
    }

    fn finish(mut self) -> Findings {
        self.tally.tell(&mut self.found.coverage);
        if self.judged == 0 {
            self.found.undecided(Why::NoEvidence);
        }
        if let Some(op) = self.other.take() {
            let why = format!(
                "{op} is neither an insert nor a read, and may make values smaller: nothing is judged from there on"
            );
            self.found.undecided(Why::Other(why));
        }
        self.found.fact("values with timestamps", Fact::Count(self.points.len() as u64));
        self.judge_points();
        self.judge_lost();
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, Event, FAULTS, Object, both, oks, op_of, run, seeds, shows, then};
    use super::*;
    use crate::linear::tests::Random;

    fn found_in(log: &[Event]) -> Findings {
        let h = testing::history(log);
        both(&h, monotonic(&h, 1000), online(1000))
    }

    fn kinds(found: &Findings) -> Vec<(&'static str, u64)> {
        found.violations().map(|(name, kind)| (name, kind.count)).collect()
    }

    /// A counter with timestamps, and the rows that it has made.
    #[derive(Default)]
    struct Table {
        value: i64,
        clock: i64,
        rows: Vec<String>,
    }

    impl Object for Table {
        fn next(&mut self, random: &mut Random, _: u64) -> (&'static str, String) {
            (["add", "read", "rows"][random.below(3) as usize].replace("rows", "read").leak(), "nil".into())
        }

        fn apply(&mut self, _: u64, f: &'static str, _: &str) -> Option<String> {
            self.clock += 1;
            if f == "read" {
                return Some(format!("[{} {}]", self.clock, self.value));
            }
            self.value += 1;
            let row = format!("{{:val {}, :sts {}.{:03}M}}", self.value, self.clock, self.value % 1000);
            self.rows.push(row.clone());
            Some(row)
        }
    }

    #[test]
    fn a_read_of_no_rows_proves_nothing_unless_something_was_inserted() {
        let mut log = Vec::new();
        then(&mut log, "read", "nil", "[]", "");
        let h = testing::history(&log);
        let found = both(&h, monotonic(&h, 10), online(10));
        assert!(!found.is_valid() && !found.is_invalid(), "{found:?}");
        let mut log = Vec::new();
        then(&mut log, "add", "nil", "1", "");
        then(&mut log, "read", "nil", "[]", "");
        let h = testing::history(&log);
        assert_eq!(both(&h, monotonic(&h, 10), online(10)).count("lost"), 1);
    }

    fn a_run(random: &mut Random) -> Vec<Event> {
        let mut table = Table::default();
        let mut log = run(random, &mut table, 4, 60, FAULTS);
        if !table.rows.is_empty() {
            then(&mut log, "read", "nil", &format!("[{}]", table.rows.join(" ")), "");
        }
        log
    }

    #[test]
    fn values_that_grow_are_never_accused() {
        let mut valid = 0;
        for mut random in seeds(1000) {
            let log = a_run(&mut random);
            if !log.is_empty() {
                let found = found_in(&log);
                assert_eq!(kinds(&found), [], "{log:#?}");
                valid += u32::from(found.is_valid());
            }
        }
        assert!(valid > 500, "{valid}");
    }

    #[test]
    fn a_lost_insert_is_told_with_the_insert_and_the_read() {
        let mut told = 0;
        for mut random in seeds(500) {
            let mut log = a_run(&mut random);
            let adds = oks(&log, "add");
            let Some(&at) = adds.first() else { continue };
            let last = log.len() - 1;
            log[last].value = log[last].value.replace(&log[at].value, "");
            if log[last].value.contains(":val") {
                let found = found_in(&log);
                assert_eq!(kinds(&found), [("lost", 1)], "{log:#?}");
                assert!(shows(&found, "lost", op_of(&log, at)));
                told += 1;
            }
        }
        assert!(told > 100, "{told}");
    }

    #[test]
    fn a_read_of_the_past_may_lack_what_was_inserted_since() {
        for (f, lost) in [("read", 1), ("read-at", 0)] {
            let mut log = Vec::new();
            then(&mut log, "add", "nil", "1", "");
            then(&mut log, "add", "nil", "2", "");
            then(&mut log, f, "nil", "[{:val 1, :sts 5}]", "");
            assert_eq!(found_in(&log).count("lost"), lost, "{f}");
        }
    }

    #[test]
    fn of_reads_that_overlap_the_one_that_began_last_tells_what_is_lost() {
        let mut log = Vec::new();
        let event =
            |kind, value: &str| Event { kind, process: 7, f: "read", value: value.into(), extra: String::new() };
        log.push(event("invoke", "nil"));
        then(&mut log, "add", "nil", "1", "");
        then(&mut log, "read", "nil", "[]", "");
        log.push(event("ok", "[{:val 1, :sts 5}]"));
        let found = found_in(&log);
        assert_eq!(kinds(&found), [("lost", 1)]);
        assert!(shows(&found, "lost", OpId(1)) && shows(&found, "lost", OpId(3)));
    }

    fn reads(values: &[&str]) -> Findings {
        let mut log = Vec::new();
        for value in values {
            then(&mut log, "read", "nil", value, "");
        }
        log.iter_mut().for_each(|e| e.process = 0);
        found_in(&log)
    }

    #[test]
    fn each_order_has_a_name() {
        assert!(reads(&["1", "1", "2"]).is_valid());
        assert_eq!(kinds(&reads(&["2", "1"])), [("process-order", 1)]);
        assert_eq!(kinds(&reads(&["[7 1]", "[5 2]"])), [("value-order", 1)]);
        assert!(reads(&["[7 2]", "[7 3]"]).is_valid());
        assert_eq!(
            kinds(&reads(&["[{:val 1, :sts 5} {:val 2, :sts 4}]"])),
            [("timestamp-order", 1), ("value-order", 1)]
        );
        assert_eq!(kinds(&reads(&["[{:val 1, :sts 4} {:val 1, :sts 5}]"])), [("duplicate", 1)]);
        let close = "[{:val 1, :sts 1469124000123456789.0000000001M} {:val 2, :sts 1469124000123456789.0000000002M}]";
        assert!(reads(&[close]).is_valid());
        assert_eq!(kinds(&reads(&[&close.replace("002M", "000M")])), [("timestamp-order", 1), ("value-order", 1)]);
    }

    #[test]
    fn an_insert_that_gets_no_greater_value_breaks_its_process_order() {
        let mut log = Vec::new();
        then(&mut log, "inc", "nil", "3", "");
        then(&mut log, "inc", "nil", "3", "");
        log.iter_mut().for_each(|e| e.process = 0);
        let found = found_in(&log);
        assert_eq!(kinds(&found), [("process-order", 1)]);
        assert!(shows(&found, "process-order", OpId(0)) && shows(&found, "process-order", OpId(2)));
    }

    #[test]
    fn after_an_operation_that_may_make_values_smaller_nothing_is_judged() {
        let mut log = Vec::new();
        then(&mut log, "inc", "nil", "3", "");
        then(&mut log, "dec", "nil", "2", "");
        then(&mut log, "inc", "nil", "3", "");
        log.iter_mut().for_each(|e| e.process = 0);
        let found = found_in(&log);
        assert!(!found.is_valid() && !found.is_invalid(), "{found:?}");
    }

    #[test]
    fn what_cannot_be_read_is_undecided() {
        for value in [":x", "[:a :b]", "nil", "[{:val 1, :sts 1.5}]"] {
            let found = reads(&[value]);
            assert!(!found.is_valid() && !found.is_invalid(), "{value}: {found:?}");
        }
    }
}
