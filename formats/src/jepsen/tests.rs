use super::blocks::chunks;
use super::encode::{Blocks, Encoder, big_vector, block_ref, version_0, version_1};
use super::{
    BlockKind, Container, Decoder, Emitter, EventBatch, Result, TestSummary, Value, read, read_fressian, results,
};
use crate::error::Place;
use crate::event::{Cell, EventType, NONE, Process};
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// One line an event, everything in it.
fn lines(batch: &EventBatch) -> Vec<String> {
    let mut extras = batch.extras.iter().peekable();
    (0..batch.len())
        .map(|row| {
            let mut line =
                format!("{} {} {} {:?}", batch.place[row], batch.index[row], batch.time[row], batch.kind[row]);
            match batch.process[row] {
                Process::Client(n) => write!(line, " {n}").unwrap(),
                Process::Actor(id) => write!(line, " :{}", batch.texts.get(id)).unwrap(),
                Process::Unknown => line.push_str(" ?"),
            }
            write!(line, " {:?} ", batch.f[row].map(|id| batch.texts.get(id))).unwrap();
            batch.write_edn(batch.value[row], &mut line);
            // Cells of one text may still be of different kinds.
            write!(line, " {}", shape(batch, batch.value[row])).unwrap();
            while let Some(extra) = extras.next_if(|e| e.row as usize == row) {
                write!(line, " {}=", batch.texts.get(extra.name)).unwrap();
                batch.write_edn(extra.value, &mut line);
            }
            line
        })
        .collect()
}

fn shape(batch: &EventBatch, cell: Cell) -> String {
    match cell {
        Cell::Nil => "_".into(),
        Cell::Int(_) => "i".into(),
        Cell::Text(_) => "t".into(),
        Cell::List(_) => "l".into(),
        Cell::Set(_) => "s".into(),
        Cell::Seq(span) => batch.cells[span.range()].iter().map(|&c| shape(batch, c)).collect::<String>() + "q",
        Cell::Txn(span) => {
            batch.mops[span.range()].iter().map(|m| shape(batch, m.key) + &shape(batch, m.value)).collect::<String>()
                + "x"
        }
    }
}

struct Read {
    lines: Vec<String>,
    tuples: bool,
    summary: Result<TestSummary>,
}

fn read_with(f: impl FnOnce(&mut dyn FnMut(&mut EventBatch) -> Result<()>) -> Result<TestSummary>) -> Read {
    let (mut all, mut tuples) = (Vec::new(), false);
    let summary = f(&mut |batch| {
        assert!(batch.len() <= 8192);
        all.extend(lines(batch));
        tuples = batch.tuples_marked;
        Ok(())
    });
    Read { lines: all, tuples, summary }
}

fn read_all(bytes: &[u8]) -> Read {
    read_with(|sink| read(bytes, sink))
}

/// The same events by way of values.
fn slowly(ops: &[Value]) -> Vec<String> {
    read_with(|sink| {
        let mut emitter = Emitter::new(sink);
        ops.iter().try_for_each(|op| emitter.value(op))?;
        emitter.finish()?;
        Ok(TestSummary::default())
    })
    .lines
}

/// A small generator of numbers, so that a seed says all.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    fn int(&mut self) -> i64 {
        let n = self.next() as i64 ^ (self.next() as i64) << 40;
        (n >> self.below(64)) * if self.below(2) == 0 { 1 } else { -1 }
    }

    fn many(&mut self, depth: usize) -> Vec<Value> {
        (0..self.below(5)).map(|_| self.value(depth)).collect()
    }

    fn text(&mut self) -> String {
        self.pick(&[
            "",
            "a",
            "n1",
            "a \"b\"\n",
            "äöü",
            "😀 and 😀",
            "\u{0}\u{7f}",
            &"long ".repeat(70),
            &"😀".repeat(101),
        ])
        .to_string()
    }

    fn value(&mut self, depth: usize) -> Value {
        let leaf = depth == 0;
        match self.below(if leaf { 13 } else { 20 }) {
            0 => Value::Nil,
            1 => Value::Bool(self.below(2) == 0),
            2..=4 => Value::Int(self.int()),
            5 => Value::Str(self.text().into()),
            6 => Value::keyword(self.pick(&["a", "r", "ns/b", "ok?", "ü", "value", "type"])),
            7 => Value::Symbol(self.pick(&["a", "n/b", "+"]).into()),
            8 => Value::Float(self.pick(&[0.0, -0.0, 1.0, 1e300, f64::NAN, f64::NEG_INFINITY])),
            9 => Value::BigInt(self.pick(&["9223372036854775808", "-9223372036854775809"]).to_string().into()),
            10 => self.pick(&[Value::Ratio("1/3".into()), Value::Decimal("1.50".into()), Value::Char(0xD800)]),
            11 => Value::Utf16(vec![0x61, 0xDC00, 0xD800].into()),
            12 => Value::Tagged("unknown/tag".into(), Box::new(Value::Vector(vec![1.into(), "x".into()]))),
            13 => Value::set(self.many(depth - 1)),
            14 => Value::set((0..self.below(9)).map(|_| Value::Int(self.int() % 9)).collect()),
            15 => Value::map(self.many(depth - 1).into_iter().map(|k| (k, self.value(depth - 1))).collect()),
            16 => Value::Vector((0..self.below(12)).map(|_| Value::Int(self.int())).collect()),
            17 => Value::Vector((0..self.below(4)).map(|_| self.mop(depth)).collect()),
            18 => Value::Tagged(
                "test/map-entry".into(),
                Box::new(Value::Vector(vec![self.value(0), self.value(depth - 1)])),
            ),
            _ => Value::Vector(self.many(depth - 1)),
        }
    }

    fn mop(&mut self, depth: usize) -> Value {
        let simple = self.below(4) > 0;
        let key = if simple { Value::Int(self.int()) } else { self.value(0) };
        let value = match self.below(3) {
            0 => Value::Nil,
            1 => Value::Int(self.int()),
            _ => self.value(depth - 1),
        };
        Value::Vector(vec![Value::keyword(self.pick(&["r", "w", "append", "n/x"])), key, value])
    }

    fn op(&mut self, index: Option<usize>) -> Value {
        let process = match self.below(4) {
            0 => Value::keyword("nemesis"),
            _ => Value::Int(self.below(9) as i64),
        };
        let mut fields = vec![
            ("time", Value::Int(self.int().abs())),
            ("type", Value::keyword(self.pick(&["invoke", "ok", "fail", "info"]))),
            ("process", process),
            ("f", self.pick(&[Value::keyword("read"), Value::keyword("txn"), Value::keyword("a/b"), Value::Nil])),
            ("value", self.value(3)),
        ];
        fields.extend(index.map(|n| ("index", Value::Int(n as i64))));
        let mut entries: Vec<_> = fields.into_iter().map(|(k, v)| (Value::keyword(k), v)).collect();
        for _ in 0..self.below(3) {
            let key = match self.below(3) {
                0 => self.value(0),
                _ => Value::keyword(self.pick(&["node", "error", "extra/one"])),
            };
            if !matches!(&key, Value::Keyword(n) if ["type", "value"].contains(&&**n)) {
                entries.push((key, self.value(2)));
            }
        }
        Value::map(entries)
    }
}

/// Map entries read as vectors, wherever the tests wrote one.
fn as_read(value: &Value) -> Value {
    let all = |items: &[Value]| items.iter().map(as_read).collect::<Vec<_>>();
    match value {
        Value::Tagged(tag, inner) if &**tag == "test/map-entry" => as_read(inner),
        Value::Tagged(tag, inner) => Value::Tagged(tag.clone(), Box::new(as_read(inner))),
        Value::Vector(items) => Value::Vector(all(items)),
        Value::Set(items) => Value::set(all(items)),
        Value::Map(entries) => Value::map(entries.iter().map(|(k, v)| (as_read(k), as_read(v))).collect()),
        other => other.clone(),
    }
}

fn random_ops(seed: u64, n: usize, indexed: bool) -> Vec<Value> {
    let mut rng = Rng(seed | 1);
    (0..n).map(|i| rng.op(indexed.then_some(i))).collect()
}

fn read_values(ops: &[Value]) -> Vec<Value> {
    ops.iter().map(as_read).collect()
}

#[test]
fn hostile_values_come_back_as_they_were() {
    let mut rng = Rng(77);
    for _ in 0..5000 {
        let value = rng.value(4);
        let bytes = Encoder::of(&value);
        let mut decoder = Decoder::new(&bytes, 0);
        assert_eq!(decoder.read(), Ok(as_read(&value)));
        assert_eq!(decoder.at_end(), Ok(true));
    }
}

#[test]
fn the_fast_way_and_the_way_through_values_agree() {
    for seed in 1..60 {
        let ops = random_ops(seed, 120, true);
        let expected = slowly(&read_values(&ops));
        let v1 = read_all(&version_1(&ops, 50, true));
        v1.summary.unwrap();
        assert_eq!(v1.lines, expected, "seed {seed}, version 1");
        let v0 = read_all(&version_0(&ops));
        v0.summary.unwrap();
        assert_eq!(v0.lines, expected, "seed {seed}, version 0");
    }
}

#[test]
fn a_map_of_lists_reads_as_its_text_says() {
    let ints = |ints: &[i64]| Value::Vector(ints.iter().map(|&n| n.into()).collect());
    let long = ints(&[0, 9, 10, 99, 100, 999, 1000, 9999, 10_000, -1, 255, 1 << 20, i64::MAX, i64::MIN]);
    let maps = [
        Value::map(vec![("n2".into(), long.clone()), ("n1".into(), ints(&[])), ("n10".into(), ints(&[7]))]),
        Value::map(vec![(3.into(), 10.into()), ((-3).into(), Value::Nil), (Value::keyword("k"), "a\"b".into())]),
        // Not simple after a while: read from the beginning in the other way.
        Value::map(vec![(1.into(), long), (2.into(), Value::Vector(vec![1.into(), "a".into()])), (3.into(), 4.into())]),
        Value::map(vec![]),
    ];
    let ops: Vec<Value> = maps
        .iter()
        .map(|map| {
            let fields = [("type", Value::keyword("ok")), ("process", 1.into()), ("value", map.clone())];
            Value::map(fields.into_iter().map(|(k, v)| (Value::keyword(k), v)).collect())
        })
        .collect();
    let read = read_all(&version_1(&ops, 100, true));
    read.summary.unwrap();
    assert_eq!(read.lines, slowly(&ops));
    assert!(read.lines.iter().zip(&maps).all(|(line, map)| line.contains(&map.to_edn())), "{:?}", read.lines);
}

#[test]
fn a_file_says_what_its_run_was() {
    for (bytes, version) in
        [(version_1(&random_ops(3, 25, true), 10, true), 1), (version_0(&random_ops(3, 25, false)), 0)]
    {
        let summary = read_all(&bytes).summary.unwrap();
        let expected = TestSummary {
            version: Some(version),
            name: Some("a test".into()),
            start_time: Some("20250623T194200.476Z".into()),
            has_results: true,
            valid: Some(Value::Bool(false)),
            events: 25,
            torn: None,
        };
        assert_eq!(summary, expected);
        assert_eq!(results(&bytes).unwrap().unwrap().to_edn(), "{:anomalies [], :valid? false}");
    }
    let crashed = version_1(&random_ops(3, 25, true), 10, false);
    let summary = read_all(&crashed).summary.unwrap();
    assert!(!summary.has_results && summary.valid.is_none() && summary.torn.is_none() && summary.events == 25);
    assert_eq!(results(&crashed), Ok(None));
}

#[test]
fn batches_are_reused_and_their_texts_may_be_taken() {
    let ops = random_ops(5, 20_000, true);
    let bytes = version_1(&ops, 16_384, true);
    let mut all = Vec::new();
    read(&bytes, &mut |batch| {
        all.extend(lines(batch));
        *batch = EventBatch::default();
        Ok(())
    })
    .unwrap();
    assert_eq!(all, slowly(&read_values(&ops)));
}

#[test]
fn map_entries_of_clients_mark_the_history_as_keyed() {
    let entry = |k: i64, v: Value| Value::Tagged("test/map-entry".into(), Box::new(Value::Vector(vec![k.into(), v])));
    let op = |process: Value, value: Value| {
        let fields = [("index", 0.into()), ("type", Value::keyword("ok")), ("process", process), ("value", value)];
        Value::map(fields.into_iter().map(|(k, v)| (Value::keyword(k), v)).collect())
    };
    for (process, value, keyed) in [
        (1.into(), entry(5, 6.into()), true),
        (1.into(), entry(5, Value::Vector(vec![1.into(), 2.into()])), true),
        (1.into(), entry(5, Value::map(vec![])), true),
        (1.into(), Value::Vector(vec![5.into(), 6.into()]), false),
        (1.into(), Value::Vector(vec![entry(5, 6.into())]), false),
        (Value::keyword("nemesis"), entry(5, 6.into()), false),
    ] {
        let ops = [op(process.clone(), value.clone()), op(process, value.clone())];
        assert_eq!(read_all(&version_1(&ops, 5, true)).tuples, keyed, "{value}");
        assert_eq!(read_all(&version_0(&ops)).tuples, keyed, "{value}");
    }
}

#[test]
fn an_op_without_index_or_time_has_none() {
    let op = [("index", -1), ("time", -1), ("process", 0)].map(|(k, n)| (Value::keyword(k), Value::Int(n)));
    let op = Value::map([&op[..], &[(Value::keyword("type"), Value::keyword("ok"))]].concat());
    read(&version_1(&[op], 5, true), &mut |batch| {
        assert_eq!((batch.index[0], batch.time[0], batch.kind[0]), (NONE, NONE, EventType::Ok));
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_file_torn_at_any_byte_gives_an_error_or_a_prefix_of_the_events() {
    for (bytes, whole_chunk) in [
        (version_1(&random_ops(9, 40, true), 15, true), 15),
        (version_1(&random_ops(9, 40, true), 15, false), 15),
        (version_0(&random_ops(9, 40, false)), 40),
    ] {
        let whole = read_all(&bytes);
        let mut last = 0;
        for cut in 0..bytes.len() {
            // The header may still name no index, or one that is gone.
            for offset in [None, Some(0i64)] {
                let mut torn = bytes[..cut].to_vec();
                if let (Some(offset), true) = (offset, cut >= 18) {
                    torn[10..18].copy_from_slice(&offset.to_be_bytes());
                }
                let found = read_all(&torn);
                assert!(whole.lines.starts_with(&found.lines), "cut at {cut}");
                match found.summary {
                    Ok(summary) => {
                        assert!(
                            found.lines.len().is_multiple_of(whole_chunk) || found.lines.len() == whole.lines.len()
                        );
                        assert!(found.lines.len() >= last, "cut at {cut} loses what an earlier cut had");
                        assert!(summary.torn.is_some(), "cut at {cut}");
                        last = last.max(found.lines.len());
                    }
                    Err(e) => assert!(cut < 18, "cut at {cut}: {e}"),
                }
                let _ = results(&torn);
            }
        }
        assert_eq!(last, whole.lines.len());
    }
}

#[test]
fn a_truncated_last_block_is_read_up_to_the_last_whole_block() {
    let ops = random_ops(11, 40, true);
    let bytes = version_1(&ops, 20, false);
    let second = version_1(&ops[..20], 20, false).len();
    // The header names the first chunk's index; the second chunk is whole, the vector that lists it is not.
    let chunk_end = second + i64::from_be_bytes(bytes[second..second + 8].try_into().unwrap()) as usize;
    let mut torn = version_1(&ops[..20], 20, false);
    torn.extend(&bytes[second..chunk_end + 20]);
    let found = read_all(&torn);
    assert_eq!(found.lines.len(), 40);
    let torn = found.summary.unwrap().torn.unwrap();
    assert_eq!((torn.at, torn.lost, torn.recovered), (chunk_end as u64, 20, 20));
}

#[test]
fn a_flipped_bit_is_found_and_its_block_named() {
    let bytes = version_1(&random_ops(13, 30, true), 10, true);
    let whole = read_all(&bytes);
    let index_at = i64::from_be_bytes(bytes[10..18].try_into().unwrap()) as usize;
    let mut named = 0;
    for at in 0..bytes.len() {
        for bit in [0, 7] {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            let found = read_all(&flipped);
            assert!(whole.lines.starts_with(&found.lines), "byte {at}");
            match found.summary {
                // A block that no longer counts, or an index that could be replaced by an earlier one.
                Ok(summary) => assert!(summary.torn.is_some() || found.lines == whole.lines, "byte {at}"),
                Err(e) => {
                    let text = e.to_string();
                    named += usize::from(text.contains("block") && text.contains("checksum"));
                    if (18..index_at).contains(&at) {
                        assert!(text.contains("the block at byte"), "byte {at}: {text}");
                        assert!(matches!(e.place, Place::Byte(o) if o <= at as u64), "byte {at}: {text}");
                    }
                }
            }
        }
    }
    assert!(named > 1000, "{named}");
}

#[test]
fn blocks_that_refer_to_each_other_end_in_an_error() {
    let root = |key: &str| Encoder::of(&Value::map(vec![(Value::keyword(key), block_ref(2))]));
    let mut vector = Blocks::new(1);
    vector.put(1, 2, &root("history"));
    vector.put(2, 5, &big_vector(0, &[(0, 3), (0, 3)]));
    vector.put(3, 5, &big_vector(0, &[(0, 2)]));
    vector.index(1);
    assert!(read_all(&vector.out).summary.unwrap_err().what.contains("more than once"));

    let mut map = Blocks::new(1);
    map.put(1, 2, &root("results"));
    map.put(2, 3, &[&3i32.to_be_bytes()[..], &[0xC0, 0xE4]].concat());
    map.put(3, 3, &[&2i32.to_be_bytes()[..], &[0xC0, 0xE4]].concat());
    map.index(1);
    assert!(read_all(&map.out).summary.unwrap_err().what.contains("circle"));
    assert!(results(&map.out).unwrap_err().what.contains("circle"));

    let mut count = Blocks::new(1);
    count.put(1, 2, &root("history"));
    count.put(2, 5, &big_vector(i64::MAX as usize, &[]));
    count.index(1);
    assert!(read_all(&count.out).summary.unwrap_err().what.contains("operations stand before"));

    let mut gone = Blocks::new(1);
    gone.put(1, 2, &root("history"));
    gone.index(1);
    assert!(read_all(&gone.out).summary.unwrap_err().what.contains("not in the index"));
}

#[test]
fn what_is_no_jepsen_file_is_said() {
    for (bytes, what) in [
        (&b"PAR1"[..], "does not begin"),
        (b"JEPSEN\0\0", "within its header"),
        (b"JEPSEN\0\0\0\x02\0\0\0\0\0\0\0\0", "version 2"),
    ] {
        assert!(read_all(bytes).summary.unwrap_err().what.contains(what));
    }
}

#[test]
fn the_older_fressian_file_is_read() {
    let ops = random_ops(15, 30, true);
    let results = Value::map(vec![(Value::keyword("valid?"), Value::keyword("unknown"))]);
    let entries = [("name", Value::str("old")), ("history", Value::Vector(ops.clone())), ("results", results)];
    let bytes = Encoder::of(&Value::map(entries.map(|(k, v)| (Value::keyword(k), v)).to_vec()));
    let found = read_with(|sink| read_fressian(&bytes, sink));
    let summary = found.summary.unwrap();
    assert_eq!((summary.events, summary.name.as_deref()), (30, Some("old")));
    assert_eq!(summary.valid, Some(Value::keyword("unknown")));
    assert_eq!(found.lines, slowly(&read_values(&ops)));
    for cut in 0..bytes.len() {
        assert!(read_with(|sink| read_fressian(&bytes[..cut], sink)).summary.is_err());
    }
}

#[test]
fn mutated_files_never_panic() {
    let seed = std::env::var("ELENCH_FUZZ_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_240_601u64);
    println!("seed {seed}");
    let mut rng = Rng(seed | 1);
    let ops = random_ops(seed, 20, true);
    let files = [version_1(&ops, 8, true), version_0(&ops)];
    let fressian = Encoder::of(&Value::map(vec![(Value::keyword("history"), Value::Vector(ops))]));
    for case in 0..6000 {
        let is_old = case % 3 == 2;
        let mut bytes = if is_old { fressian.clone() } else { files[case % 2].clone() };
        for _ in 0..=rng.below(4) {
            mutate(&mut rng, &mut bytes);
        }
        if !is_old {
            seal(&mut bytes);
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let _ = results(&bytes);
            if is_old { read_with(|sink| read_fressian(&bytes, sink)) } else { read_all(&bytes) }.lines.len()
        }));
        assert!(outcome.is_ok(), "seed {seed}, case {case}");
    }
}

fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let at = rng.below(bytes.len());
    match rng.below(5) {
        0 => bytes[at] = rng.next() as u8,
        1 => bytes[at] ^= 1 << rng.below(8),
        2 => {
            bytes[at] =
                rng.pick(&[0xCD, 0xCC, 0xEC, 0xF8, 0xEF, 0xF0, 0xC0, 0xCF, 0xFE, 0xFD, 0xEE, 0xED, 0x80, 0xA0, 0xF1])
        }
        3 => bytes.truncate(at.max(20)),
        _ => {
            let from = rng.below(bytes.len());
            let piece = bytes[from..(from + rng.below(20)).min(bytes.len())].to_vec();
            bytes.splice(at..at, piece);
        }
    }
}

/// Makes every checksum fit again, as far as lengths lead, so that what is behind them is reached.
fn seal(bytes: &mut [u8]) {
    let mut at = 18;
    while at + 28 <= bytes.len() {
        let n = i64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
        let Some(end) = usize::try_from(n).ok().filter(|&n| n >= 28).and_then(|n| at.checked_add(n)) else { return };
        if end > bytes.len() {
            return;
        }
        bytes[at + 8..at + 12].fill(0);
        let crc = crc32fast::hash(&[&bytes[at + 28..end], &bytes[at..at + 28]].concat());
        bytes[at + 8..at + 12].copy_from_slice(&crc.to_be_bytes());
        at = end;
    }
}

// --- Real files

fn corpus() -> Option<std::path::PathBuf> {
    let root = std::env::var_os("ELENCH_CORPUS")
        .map_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/corpus").into(), std::path::PathBuf::from);
    let runs = root.join("jepsen-runs");
    if !runs.is_dir() {
        println!("skipped: no corpus at {}", runs.display());
        return None;
    }
    Some(runs)
}

fn real_runs(dir: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            real_runs(&path, found);
        } else if path.ends_with("test.jepsen") {
            found.push(dir.to_path_buf());
        }
    }
}

/// Events by type, and sums: of indices, times, client processes, and how many are the nemesis's.
#[derive(Debug, Default, PartialEq)]
struct Tally {
    types: [usize; 4],
    index: i128,
    time: i128,
    process: i128,
    nemesis: usize,
}

fn tally(bytes: &[u8]) -> (Tally, TestSummary) {
    let mut t = Tally::default();
    let summary = read(bytes, &mut |batch| {
        for row in 0..batch.len() {
            t.types[batch.kind[row] as usize] += 1;
            t.index += i128::from(batch.index[row].max(0));
            t.time += i128::from(batch.time[row].max(0));
            match batch.process[row] {
                Process::Client(n) => t.process += i128::from(n),
                Process::Actor(id) => t.nemesis += usize::from(batch.texts.get(id) == "nemesis"),
                Process::Unknown => panic!("an event without a process"),
            }
        }
        Ok(())
    })
    .unwrap();
    (t, summary)
}

fn sum_after(text: &str, key: &str) -> i128 {
    text.split(key)
        .skip(1)
        .filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<i128>().ok())
        .sum()
}

fn scan_edn(text: &str, with_index: bool) -> Tally {
    let count = |what: &str| text.matches(what).count();
    Tally {
        types: [":type :invoke", ":type :ok", ":type :fail", ":type :info"].map(count),
        index: if with_index { sum_after(text, ":index ") } else { 0 },
        time: sum_after(text, ":time "),
        process: sum_after(text, ":process "),
        nemesis: count(":process :nemesis"),
    }
}

fn scan_listing(text: &str, from: &Tally) -> Tally {
    let mut t = Tally { index: from.index, time: from.time, ..Tally::default() };
    for line in text.lines() {
        let mut columns = line.split('\t');
        let (process, kind) = (columns.next().unwrap(), columns.next().unwrap());
        let kind = EventType::from_name(kind.trim_start_matches(':').as_bytes()).unwrap();
        t.types[kind as usize] += 1;
        match process.parse::<i128>() {
            Ok(n) => t.process += n,
            Err(_) => t.nemesis += usize::from(process == ":nemesis"),
        }
    }
    t
}

#[test]
fn real_files_hold_the_events_of_their_siblings() {
    let Some(runs) = corpus() else { return };
    let mut found = Vec::new();
    real_runs(&runs, &mut found);
    assert!(!found.is_empty());
    for dir in found {
        let bytes = std::fs::read(dir.join("test.jepsen")).unwrap();
        let (got, summary) = tally(&bytes);
        println!("{}: {summary:?}", dir.display());
        assert!(summary.torn.is_none());
        if let Ok(text) = std::fs::read_to_string(dir.join("history.edn")) {
            assert_eq!(got, scan_edn(&text, summary.version == Some(1)), "{}", dir.display());
        }
        let listing = std::fs::read_to_string(dir.join("history.txt")).unwrap();
        assert_eq!(got, scan_listing(&listing, &got), "{}", dir.display());
        assert_eq!(values_of(&bytes), values_in(&listing), "{}", dir.display());
        if let Ok(results_edn) = std::fs::read_to_string(dir.join("results.edn")) {
            let valid = summary.valid.unwrap();
            assert!(results_edn.contains(&format!(":valid? {valid}")), "{}: {valid}", dir.display());
        }
        assert_eq!(results(&bytes).unwrap().unwrap().get("valid?"), read_all(&bytes).summary.unwrap().valid.as_ref());
    }
}

/// The value of each event as the listing shows it, where that has an order of its own.
fn values_of(bytes: &[u8]) -> Vec<Option<String>> {
    let mut values = Vec::new();
    read(bytes, &mut |batch| {
        values.extend(batch.value.iter().map(|&cell| {
            let mut text = String::new();
            batch.write_edn(cell, &mut text);
            Some(text).filter(|text| !text.contains(['{', '#', '"']))
        }));
        Ok(())
    })
    .unwrap();
    values
}

fn values_in(listing: &str) -> Vec<Option<String>> {
    listing.lines().map(|l| l.split('\t').nth(3).map(str::to_string).filter(|t| !t.contains(['{', '#', '"']))).collect()
}

#[test]
fn both_ways_agree_on_real_files() {
    let Some(runs) = corpus() else { return };
    let mut found = Vec::new();
    real_runs(&runs, &mut found);
    for dir in found {
        let bytes = std::fs::read(dir.join("test.jepsen")).unwrap();
        let file = Container::open(&bytes).unwrap();
        let history = block_ref_of(file.root().unwrap().get("history").unwrap());
        let ops = values_of_block(&file, history);
        assert_eq!(read_all(&bytes).lines, slowly(&ops), "{}", dir.display());
    }
}

fn block_ref_of(value: &Value) -> i32 {
    super::blocks::block_ref(value).unwrap()
}

fn values_of_block(file: &Container<'_>, id: i32) -> Vec<Value> {
    let block = file.block(id).unwrap().unwrap();
    if block.kind == BlockKind::BigVector {
        let chunks = chunks(&block).unwrap().1;
        return chunks.into_iter().flat_map(|(_, chunk)| values_of_block(file, chunk)).collect();
    }
    let (mut dec, mut values) = (block.decoder(0), Vec::new());
    while !dec.at_end().unwrap() {
        match dec.read().unwrap() {
            Value::Vector(ops) => values.extend(ops),
            op => values.push(op),
        }
    }
    values
}
