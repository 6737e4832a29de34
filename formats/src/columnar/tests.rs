//! Round trips of random histories, damaged files, files of others.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::builder::{Int64Builder, LargeListBuilder};
use arrow_array::types::{Int32Type, UInt8Type};
use arrow_array::*;
use arrow_schema::{DataType, Field, Schema};
use bytes::Bytes;

use super::*;
use crate::History;
use crate::build::{BuildOptions, HistoryBuilder, Lift};
use crate::columns::Scalar;
use crate::event::{Cell, Event, EventBatch, EventType, MopNames, Process};
use crate::history::{KeyForm, Order, Status, same};
use crate::value::Value;

/// Xorshift: a seed makes a run repeatable.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

const KINDS: u64 = 9;
const HOSTILE: [&str; 12] =
    ["", "nil", "5", ":k", "\"", "\\", "a\nb\t\u{1}\u{7f}", "é😀", "#{1 2}", "[1 2]", "-9223372036854775808", "\u{0}"];

fn scalar(kind: u64, r: &mut Random) -> Value {
    match kind {
        4 => Value::str(["a", "b", "c d"][r.below(3) as usize]),
        5 => match r.below(8) {
            0 => Value::Nil,
            1 => Value::Int(i64::MIN + r.below(3) as i64),
            2 => Value::keyword("kw"),
            3 => Value::Float(0.5),
            4 => Value::integer("123456789012345678901234567890").unwrap(),
            5 => Value::utf16(vec![0xd800, 0x61]),
            6 => Value::map(vec![(Value::keyword("a"), Value::Vector(vec![1.into()]))]),
            _ => Value::str(HOSTILE[r.below(HOSTILE.len() as u64) as usize]),
        },
        _ => Value::Int(r.below(100) as i64),
    }
}

fn txn(r: &mut Random, known: bool, texts: bool) -> Value {
    let n = 1 + r.below(4);
    Value::Vector(
        (0..n)
            .map(|_| {
                let key = if texts && r.one_in(3) { scalar(5, r) } else { Value::Int(r.below(9) as i64) };
                let read = r.one_in(2);
                let value = match (read, known) {
                    (true, false) => Value::Nil,
                    (true, true) if r.one_in(4) => Value::Nil,
                    (true, true) if texts && r.one_in(4) => Value::set(vec![3.into(), 1.into()]),
                    (true, true) => {
                        Value::Vector((0..r.below(5)).map(|_| scalar(if texts { 5 } else { 0 }, r)).collect())
                    }
                    _ => scalar(if texts { 5 } else { 0 }, r),
                };
                Value::Vector(vec![Value::keyword(if read { "r" } else { "append" }), key, value])
            })
            .collect(),
    )
}

/// The value of an event of a kind of history.
fn value(kind: u64, f: &str, invoke: bool, key: i64, r: &mut Random) -> Value {
    let plain = match (kind, f) {
        (2, _) => return txn(r, !invoke, false),
        (6, _) => return txn(r, !invoke, true),
        (3, "read") if !invoke => Value::set((0..r.below(6)).map(|n| Value::Int(n as i64)).collect()),
        (7, "read") if !invoke => Value::Vector((0..r.below(6)).map(|_| scalar(5, r)).collect()),
        (8, _) if r.one_in(5) => Value::set(vec![4.into(), 2.into()]),
        (8, _) if r.one_in(4) => Value::Vector(vec![Value::str("a"), 2.into()]),
        (8, _) => scalar(5, r),
        (_, "read") if invoke => Value::Nil,
        (_, "cas") => Value::Vector(vec![scalar(kind, r), scalar(kind, r)]),
        _ => scalar(kind, r),
    };
    if kind == 1 { Value::Vector(vec![key.into(), plain]) } else { plain }
}

fn push(b: &mut EventBatch, index: i64, kind: EventType, process: Process, f: &str, value: &Value, times: bool) {
    let f = b.name(f);
    let value = b.value(value, MopNames::Keywords);
    let time = times.then_some(index * 1000 + 7);
    b.push(Event { place: index as u64 + 1, index: Some(index), time, kind, process, f: Some(f), value });
}

/// A history of `n` events of clients, with a nemesis and further fields in some.
fn random(seed: u64, n: usize) -> History {
    let mut r = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let kind = seed % KINDS;
    let (times, extras, nemesis) = (!r.one_in(4), r.one_in(2), r.one_in(2));
    let lift = if kind == 1 { Lift::Always } else { Lift::Auto };
    let options = BuildOptions { format: "made\nup".into(), real_time: r.one_in(2), lift, ..Default::default() };
    let mut builder = HistoryBuilder::new(options);
    if r.one_in(3) {
        builder.note("a \"note\"\u{1}");
    }
    let mut b = EventBatch::default();
    let mut open: Vec<Option<(&str, i64)>> = vec![None; 6];
    let mut processes: Vec<i64> = (0..6).collect();
    let mut index = -1;
    let mut fault = false;
    while (index as i128) < n as i128 {
        index += 1 + r.below(2) as i64;
        if nemesis && r.one_in(40) {
            let actor = b.name("nemesis");
            let f = if fault { "stop-partition" } else { "start-partition" };
            fault = !fault;
            for value in [Value::Nil, Value::keyword("cut")] {
                push(&mut b, index, EventType::Info, Process::Actor(actor), f, &value, times);
                index += 1;
            }
        }
        let t = r.below(6) as usize;
        if extras && r.one_in(3) {
            let (node, error) = (b.name("node"), b.name(["error", "odd name"][r.below(2) as usize]));
            let text = b.name("\"n1\"");
            b.extra(node, Cell::Text(text));
            let cell = scalar(if seed.is_multiple_of(2) { 4 } else { 5 }, &mut r);
            let cell = b.value(&cell, MopNames::Keywords);
            b.extra(error, cell);
        }
        match open[t].take() {
            None => {
                let f = if matches!(kind, 2 | 6) { "txn" } else { ["read", "write", "cas"][r.below(3) as usize] };
                let key = r.below(5) as i64;
                let v = value(kind, f, true, key, &mut r);
                push(&mut b, index, EventType::Invoke, Process::Client(processes[t]), f, &v, times);
                open[t] = Some((f, key));
            }
            Some((f, key)) => {
                let end = [EventType::Ok, EventType::Ok, EventType::Fail, EventType::Info][r.below(4) as usize];
                let v = if kind != 1 && r.one_in(10) { Value::Nil } else { value(kind, f, false, key, &mut r) };
                push(&mut b, index, end, Process::Client(processes[t]), f, &v, times);
                if end == EventType::Info {
                    processes[t] += 6000;
                }
            }
        }
        if b.len() > 4000 {
            builder.push(&b).unwrap();
            b.clear_events();
        }
    }
    builder.push(&b).unwrap();
    builder.finish().unwrap()
}

fn path(name: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    (dir, path)
}

fn bytes_of(history: &History, options: &WriteOptions, parquet: bool) -> Vec<u8> {
    let (_dir, path) = path("h");
    if parquet { write_parquet(&path, history, options) } else { write_ipc(&path, history, options) }.unwrap();
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no temporary file is left");
    std::fs::read(&path).unwrap()
}

fn back(bytes: Vec<u8>, parquet: bool) -> crate::Result<History> {
    let options = ReadOptions::default();
    if parquet { read_parquet_bytes(bytes.into(), &options) } else { read_ipc_bytes(bytes.into(), &options) }
}

fn round_trip(history: &History, what: &str) {
    for compression in [None, Some(Compression::Lz4), Some(Compression::Zstd), Some(Compression::None)] {
        for parquet in [true, false] {
            let options = WriteOptions { compression, workload: Some("test".into()) };
            let read = back(bytes_of(history, &options, parquet), parquet).unwrap_or_else(|e| panic!("{what}: {e}"));
            same(history, &read).unwrap_or_else(|e| panic!("{what}, parquet {parquet}, {compression:?}: {e}"));
            assert_eq!(history.faults().len(), read.faults().len(), "{what}");
            let again = back(bytes_of(&read, &options, !parquet), !parquet).unwrap();
            same(history, &again).unwrap_or_else(|e| panic!("{what}, again: {e}"));
        }
    }
}

#[test]
fn whatever_is_written_is_read_back() {
    for seed in 1..=45 {
        println!("seed {seed}");
        round_trip(&random(seed, 300), &format!("seed {seed}"));
    }
}

#[test]
fn what_differs_in_one_place_is_not_the_same() {
    let history = random(9, 300);
    let n = history.len();
    same(&history.slice(0..n - 1), &history.slice(0..n)).unwrap_err();
    let error = same(&history.slice(0..n - 1), &history.slice(1..n)).unwrap_err();
    assert!(error.starts_with("index of row 1"), "{error}");
    same(&random(8, 300), &random(17, 300)).unwrap_err();
}

#[test]
fn empty_histories_and_those_of_one_operation_are_read_back() {
    round_trip(&HistoryBuilder::new(BuildOptions::default()).finish().unwrap(), "empty");
    for seed in 1..=9 {
        round_trip(&random(seed, 0), &format!("seed {seed}"));
    }
}

#[test]
fn a_slice_is_written_without_what_lies_beside_it() {
    for seed in 1..=18 {
        let history = random(seed, 400);
        let n = history.len();
        for rows in [3..n / 2, n / 3..n, 5..5, n - 1..n] {
            let part = history.slice(rows.clone());
            for parquet in [true, false] {
                let read = back(bytes_of(&part, &WriteOptions::default(), parquet), parquet);
                let read = read.unwrap_or_else(|e| panic!("seed {seed} {rows:?}: {e}"));
                same(&part, &read).unwrap_or_else(|e| panic!("seed {seed} {rows:?} parquet {parquet}: {e}"));
            }
        }
    }
}

#[test]
fn histories_of_many_chunks_and_row_groups_are_read_back() {
    for (seed, n) in [(9, 700_000), (11, 200_000), (6, 150_000)] {
        let history = random(seed, n);
        for parquet in [true, false] {
            let read = back(bytes_of(&history, &WriteOptions::default(), parquet), parquet).unwrap();
            same(&history, &read).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            let again = back(bytes_of(&read, &WriteOptions::default(), false), false).unwrap();
            same(&history, &again).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
    }
}

#[test]
fn dictionaries_within_lists_are_those_of_every_batch_of_an_arrow_file() {
    let mut batch = EventBatch::default();
    let mut builder = HistoryBuilder::new(BuildOptions { format: "made".into(), ..Default::default() });
    let mop =
        |f: &str, v: i64| Value::Vector(vec![Value::keyword(f), Value::str(["x", "y"][v as usize % 2]), v.into()]);
    for i in 0..70_000 {
        let txn = Value::Vector(vec![mop("append", i), mop("w", i + 1)]);
        push(&mut batch, 2 * i, EventType::Invoke, Process::Client(i % 5), "txn", &txn, true);
        push(&mut batch, 2 * i + 1, EventType::Ok, Process::Client(i % 5), "txn", &txn, true);
        builder.push(&batch).unwrap();
        batch.clear_events();
    }
    let history = builder.finish().unwrap();
    let read = back(bytes_of(&history, &WriteOptions::default(), false), false).unwrap();
    assert!(read.chunks().len() > 1);
    same(&history, &read).unwrap();
}

#[test]
fn a_history_is_streamed_part_by_part() {
    let history = random(9, 5000);
    let (_dir, path) = path("h.parquet");
    let mut writer = ParquetWriter::create(&path, &Plan::of(&history), &WriteOptions::default()).unwrap();
    for at in (0..history.len()).step_by(700) {
        writer.write(&history.slice(at..history.len().min(at + 700))).unwrap();
    }
    assert!(!path.exists(), "nothing stands under the name before the end");
    writer.finish().unwrap();
    let read = read_parquet(&File::open(&path).unwrap(), &ReadOptions { threads: 1, ..Default::default() }).unwrap();
    same(&history, &read).unwrap();
    let mut writer = ParquetWriter::create(&path, &Plan::of(&history), &WriteOptions::default()).unwrap();
    let error = writer.write(&random(4, 100)).unwrap_err().to_string();
    assert!(error.contains("needs column `input`"), "{error}");
}

#[test]
fn a_torn_file_is_an_error_at_every_length() {
    for parquet in [true, false] {
        let bytes = bytes_of(&random(6, 200), &WriteOptions::default(), parquet);
        let step = (bytes.len() / 400).max(1);
        for n in (0..bytes.len()).step_by(step).chain(bytes.len() - 40..bytes.len()) {
            let error = back(bytes[..n].to_vec(), parquet).map(|h| h.len()).expect_err("torn").to_string();
            assert!(error.contains("torn"), "{n}: {error}");
        }
    }
}

#[test]
fn a_flipped_bit_in_parquet_is_an_error_or_changes_nothing() {
    let history = random(6, 300);
    let bytes = bytes_of(&history, &WriteOptions::default(), true);
    let mut r = Random(77);
    for _ in 0..3000 {
        let mut flipped = bytes.clone();
        let (at, bit) = (r.below(bytes.len() as u64) as usize, r.below(8));
        flipped[at] ^= 1 << bit;
        if let Ok(read) = back(flipped, true) {
            same(&history, &read).unwrap_or_else(|e| panic!("bit {bit} of byte {at}: {e}"));
        }
    }
}

/// A few operations of a register, or transactions that append to lists and read them.
fn small(transactions: bool) -> History {
    let mut builder =
        HistoryBuilder::new(BuildOptions { format: "made".into(), real_time: true, ..Default::default() });
    let mut b = EventBatch::default();
    let mop = |f: &str, v: Value| Value::Vector(vec![Value::keyword(f), 7.into(), v]);
    for i in 0..12 {
        let list = Value::Vector((0..=i).map(Value::Int).collect());
        let (f, input, output) = match (transactions, i % 2) {
            (false, 0) => ("write", i.into(), i.into()),
            (false, _) => ("read", Value::Nil, Value::Int(i - 1)),
            (true, _) => {
                let txn = |read| Value::Vector(vec![mop("append", i.into()), mop("r", read)]);
                ("txn", txn(Value::Nil), txn(list))
            }
        };
        push(&mut b, 2 * i, EventType::Invoke, Process::Client(i % 3), f, &input, true);
        push(&mut b, 2 * i + 1, EventType::Ok, Process::Client(i % 3), f, &output, true);
    }
    builder.push(&b).unwrap();
    builder.finish().unwrap()
}

#[test]
fn every_flipped_bit_of_a_small_parquet_file_is_an_error_or_changes_nothing() {
    for transactions in [false, true] {
        let history = small(transactions);
        let bytes = bytes_of(&history, &WriteOptions::default(), true);
        let (mut read, mut refused) = (0, 0);
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let options = ReadOptions { lenient: true, ..Default::default() };
            match read_parquet_bytes(flipped.into(), &options) {
                Ok(other) => {
                    same(&history, &other).unwrap_or_else(|e| panic!("bit {} of byte {}: {e}", bit % 8, bit / 8));
                    read += 1;
                }
                Err(_) => refused += 1,
            }
        }
        println!("transactions {transactions}: {} bytes, {refused} flips refused, {read} without effect", bytes.len());
    }
}

#[test]
fn a_text_that_looks_like_the_footers_checksum_is_not_taken_for_it() {
    let text = "\u{18}\u{f}elench.checksum\u{18}\u{8}12345678";
    let options = BuildOptions { format: text.into(), ..Default::default() };
    let mut builder = HistoryBuilder::new(options);
    builder.note(text);
    let mut b = EventBatch::default();
    for (i, kind) in [EventType::Invoke, EventType::Ok].into_iter().enumerate() {
        push(&mut b, i as i64, kind, Process::Client(0), text, &Value::str(text), true);
    }
    builder.push(&b).unwrap();
    let history = builder.finish().unwrap();
    let options = WriteOptions { workload: Some(text.into()), ..Default::default() };
    same(&history, &back(bytes_of(&history, &options, true), true).unwrap()).unwrap();
}

#[test]
fn flipped_bytes_in_arrow_never_panic() {
    for (seed, compression) in [(6, None), (8, Some(Compression::Lz4)), (1, Some(Compression::Zstd))] {
        let history = random(seed, 300);
        let bytes = bytes_of(&history, &WriteOptions { compression, workload: None }, false);
        let mut r = Random(78);
        for _ in 0..2000 {
            let mut flipped = bytes.clone();
            for _ in 0..1 + r.below(3) {
                flipped[r.below(bytes.len() as u64) as usize] ^= 1 << r.below(8);
            }
            if let Ok(read) = back(flipped, false) {
                // Whatever was read can be looked at.
                let _ = same(&read, &read);
                let _ = read.memory();
            }
        }
    }
}

#[test]
fn integer_columns_of_a_mapped_file_lie_in_the_map() {
    let history = random(9, 2000);
    let (_dir, path) = path("h.arrow");
    write_ipc(&path, &history, &WriteOptions::default()).unwrap();
    let file = File::open(&path).unwrap();
    // SAFETY: the file is this test's own.
    let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
    let range = map.as_ptr_range();
    let read = read_ipc_bytes(Bytes::from_owner(map), &ReadOptions::default()).unwrap();
    same(&history, &read).unwrap();
    let chunk = &read.chunks()[0];
    let inside = |p: *const u8| range.contains(&p);
    assert!(inside(chunk.index().as_ptr().cast()));
    assert!(inside(chunk.complete_index().values().as_ptr().cast()));
    assert!(inside(chunk.process().values().as_ptr().cast()));
    assert!(inside(chunk.status().as_ptr()));
    assert!(inside(chunk.f().values().as_ptr().cast()));
    assert!(inside(chunk.input().scalars().ints().unwrap().values().as_ptr().cast()));
}

#[test]
fn memory_is_counted_for_slices_and_wholes() {
    let history = random(6, 2000);
    let whole = history.memory();
    assert!(whole > history.len() * 20, "{whole}");
    assert!(history.slice(0..10).memory() < whole / 2 + 4096);
}

/// A Parquet and an IPC file of foreign columns.
fn foreign(columns: Vec<(&str, ArrayRef)>) -> Vec<(Vec<u8>, bool)> {
    let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true))).unwrap();
    let mut ipc = arrow_ipc::writer::FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    ipc.write(&batch).unwrap();
    ipc.finish().unwrap();
    let mut out = vec![(ipc.into_inner().unwrap(), false)];
    let mut bytes = Vec::new();
    let mut parquet = ::parquet::arrow::ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    parquet.write(&batch).unwrap();
    parquet.close().unwrap();
    out.push((bytes, true));
    out
}

fn strings(texts: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(texts))
}

#[test]
fn files_of_others_are_read_whatever_their_types() {
    let mut lists = LargeListBuilder::new(Int64Builder::new());
    lists.append_null();
    lists.values().append_slice(&[1, 2]);
    lists.append(true);
    let status: DictionaryArray<UInt8Type> = ["pending", "ok"].into_iter().collect();
    let key: DictionaryArray<Int32Type> = ["x", "5"].into_iter().collect();
    for (bytes, parquet) in foreign(vec![
        ("f", Arc::new(StringViewArray::from_iter_values(["write", "read"]))),
        ("status", Arc::new(status)),
        ("index", Arc::new(Int32Array::from(vec![0, 1]))),
        ("complete_index", Arc::new(Float64Array::from(vec![None, Some(2.0)]))),
        ("process", Arc::new(UInt8Array::from(vec![0, 1]))),
        ("key", Arc::new(key)),
        ("input", Arc::new(Int8Array::from(vec![Some(3), None]))),
        ("output", Arc::new(lists.finish())),
        ("node", Arc::new(NullArray::new(2))),
        ("error", Arc::new(LargeStringArray::from(vec![None, Some("boom \"")]))),
    ]) {
        let read = back(bytes, parquet).unwrap();
        let (write, second) = (read.op(0), read.op(1));
        assert_eq!((write.f(), write.status(), write.complete_index()), (Some("write"), Status::Pending, None));
        assert_eq!(write.input().scalar(), Some(Scalar::Int(3)));
        assert_eq!(second.process(), Some(1));
        assert_eq!(second.output().elements().and_then(|l| l.as_ints()), Some(&[1, 2][..]));
        assert_eq!(second.error(), Some("\"boom \\\"\""));
        let mut key = String::new();
        read.write_scalar(second.key(), &mut key);
        assert_eq!(key, "\"5\"");
        assert_eq!(read.meta().keys, KeyForm::Field);
        round_trip(&read, "foreign");
    }
}

#[test]
fn without_indices_times_give_the_order_and_without_times_there_is_no_real_time() {
    let columns = || vec![("f", strings(&["write", "read"])), ("status", strings(&["ok", "ok"]))];
    let times = |t: [i64; 2]| -> ArrayRef { Arc::new(Int64Array::from(t.to_vec())) };
    for (bytes, parquet) in foreign(columns()) {
        let read = back(bytes, parquet).unwrap();
        assert!(!read.meta().real_time);
        assert_eq!(read.op(1).complete_index(), Some(3));
    }
    let mut timed = columns();
    timed.extend([("invoke_time", times([20, 10])), ("complete_time", times([40, 30]))]);
    for (bytes, parquet) in foreign(timed) {
        let read = back(bytes, parquet).unwrap();
        assert_eq!((read.meta().order, read.meta().real_time), (Order::Time, true));
        assert_eq!((read.op(0).f(), read.op(0).complete_index()), (Some("read"), Some(2)));
    }
}

fn refusal(columns: Vec<(&str, ArrayRef)>) -> String {
    let errors: Vec<String> = foreign(columns)
        .into_iter()
        .map(|(b, p)| back(b, p).map(|h| h.len()).expect_err("refused").to_string())
        .collect();
    assert_eq!(errors[0].replace("Arrow IPC", "Parquet"), errors[1]);
    errors[0].clone()
}

#[test]
fn what_cannot_have_been_recorded_is_refused_with_both_operations() {
    let ints = |v: &[i64]| -> ArrayRef { Arc::new(Int64Array::from(v.to_vec())) };
    let of = |status: [&str; 2], index: [i64; 2], end: [i64; 2], process: [i64; 2], from: [i64; 2], to: [i64; 2]| {
        vec![
            ("f", strings(&["write", "read"])),
            ("status", strings(&status)),
            ("index", ints(&index)),
            ("complete_index", ints(&end)),
            ("process", ints(&process)),
            ("invoke_time", ints(&from)),
            ("complete_time", ints(&to)),
        ]
    };
    let ok = ["ok", "ok"];
    let e = refusal(of(ok, [1, 1], [2, 3], [0, 1], [1, 1], [2, 2]));
    assert!(
        e.starts_with("row 2: malformed history: a duplicate or falling index: index 1 comes after index 1"),
        "{e}"
    );
    let e = refusal(of(ok, [0, 2], [0, 3], [0, 1], [1, 1], [2, 2]));
    assert!(e.starts_with("row 1: malformed history: a completion before its invocation"), "{e}");
    let e = refusal(of(ok, [0, 1], [2, 3], [7, 7], [1, 2], [3, 4]));
    assert!(
        e.contains("process 7 invokes read (index 1, row 2) but its write (index 0, row 1) has not completed"),
        "{e}"
    );
    let e = refusal(of(ok, [0, 2], [1, 3], [9_000, 9_000], [1, 2], [3, 4]));
    assert!(e.contains("time runs backwards within a process"), "{e}");
    let e = refusal(of(ok, [0, 2], [1, 3], [-1, 1], [5, 2], [3, 4]));
    assert!(e.contains("completes write (index 0, row 1) at 3 ns, invoked at 5 ns"), "{e}");
    let e = refusal(of(["ok", "okay"], [0, 2], [1, 3], [0, 1], [1, 2], [3, 4]));
    assert!(e.starts_with("row 2: status `okay` is none of"), "{e}");
    let e = refusal(vec![("status", strings(&["ok"])), ("value", ints(&[1]))]);
    assert!(e.starts_with("no column `f`; the file has: status, value"), "{e}");
    // Touching in time is legal.
    for (bytes, parquet) in foreign(of(ok, [0, 1], [2, 3], [7, 7], [1, 3], [3, 4])) {
        back(bytes, parquet).unwrap();
    }
    // Leniently, it is noted.
    for (bytes, parquet) in foreign(of(ok, [0, 1], [2, 3], [7, 7], [1, 2], [3, 4])) {
        let options = ReadOptions { lenient: true, threads: 1 };
        let read =
            if parquet { read_parquet_bytes(bytes.into(), &options) } else { read_ipc_bytes(bytes.into(), &options) };
        assert_eq!(read.unwrap().meta().repairs.len(), 2);
    }
}

#[test]
fn a_file_of_another_version_is_refused() {
    let schema = Schema::new(vec![Field::new("f", DataType::Utf8, true), Field::new("status", DataType::Utf8, true)])
        .with_metadata([("elench.version".to_string(), "2".to_string())].into());
    let mut ipc = arrow_ipc::writer::FileWriter::try_new(Vec::new(), &schema).unwrap();
    ipc.finish().unwrap();
    let error = back(ipc.into_inner().unwrap(), false).map(|h| h.len()).unwrap_err().to_string();
    assert!(error.contains("version 2"), "{error}");
}

#[test]
fn a_small_file_that_claims_a_great_history_is_refused() {
    let rows = 40_000_000;
    let text = DictionaryArray::<Int32Type>::try_new(Int32Array::from(vec![0; 1 << 20]), strings(&["ok"])).unwrap();
    let schema = Arc::new(Schema::new(vec![
        Field::new("f", text.data_type().clone(), true),
        Field::new("status", text.data_type().clone(), true),
    ]));
    let text: ArrayRef = Arc::new(text);
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::clone(&text), text]).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ::parquet::arrow::ArrowWriter::try_new(&mut bytes, schema, None).unwrap();
    for _ in 0..rows / batch.num_rows() {
        writer.write(&batch).unwrap();
    }
    writer.close().unwrap();
    assert!(bytes.len() < 1 << 18, "{}", bytes.len());
    let error = back(bytes, true).map(|h| h.len()).unwrap_err().to_string();
    assert!(error.contains("claim to hold"), "{error}");
}

/// Rows of a Parquet file, as any writer of data frames would write them.
fn parquet_rows(columns: Vec<(&str, ArrayRef)>) -> Bytes {
    foreign(columns).pop().unwrap().0.into()
}

fn build_records(
    read: impl FnOnce(&mut dyn FnMut(&mut EventBatch) -> crate::Result<()>) -> crate::Result<()>,
) -> History {
    let options = BuildOptions { by_time: true, real_time: true, rows: true, ..Default::default() };
    let mut builder = HistoryBuilder::new(options);
    read(&mut |batch| builder.push(batch)).unwrap();
    builder.finish().unwrap()
}

fn int_lists(rows: &[Option<&[i64]>]) -> ArrayRef {
    let mut lists = LargeListBuilder::new(Int64Builder::new());
    for row in rows {
        row.iter().for_each(|row| lists.values().append_slice(row));
        lists.append(row.is_some());
    }
    Arc::new(lists.finish())
}

#[test]
fn records_in_parquet_are_those_of_json_lines() {
    let jsonl = r#"
{"op_id":"a","process_id":0,"invoke_ts":10,"complete_ts":20,"op_type":"write","key":7,"input":1,"output":null,"error":null,"timeout_marker":false,"node_seen":"n1","fault_epoch":null,"offset":5,"free":true,"group":{"a":1,"b":["x"]}}
{"op_id":"b","process_id":1,"invoke_ts":15,"complete_ts":30,"op_type":"read","key":7,"input":null,"output":[1,2],"error":null,"timeout_marker":false,"node_seen":"n2","fault_epoch":"f1","offset":null,"free":false,"group":null}
{"op_id":"c","process_id":0,"invoke_ts":25,"complete_ts":null,"op_type":"cas","key":8,"input":"x y","output":null,"error":null,"timeout_marker":true,"node_seen":null,"fault_epoch":null,"offset":6,"free":null,"group":{"b":[]}}
{"op_id":"d","process_id":1,"invoke_ts":40,"complete_ts":50,"op_type":"write","key":8,"input":[3,4],"output":[],"error":"conflict","timeout_marker":null,"node_seen":"n1","fault_epoch":null,"offset":7,"free":null,"group":null}
{"op_id":"e","process_id":2,"invoke_ts":60,"complete_ts":null,"op_type":"write","key":9,"input":"2","output":null,"error":null,"timeout_marker":false,"node_seen":null,"fault_epoch":null,"offset":8,"free":null,"group":null}
"#
    .replace("\"input\":\"2\"", "\"input\":2");
    let from_json = build_records(|sink| crate::schema::read_jsonl(&mut jsonl.as_bytes(), sink));
    let nodes: DictionaryArray<Int32Type> = [Some("n1"), Some("n2"), None, Some("n1"), None].into_iter().collect();
    let lists = list_of_strings(&[Some(&["x"]), None, Some(&[]), None, None]);
    let group = StructArray::try_new(
        vec![Field::new("a", DataType::Int16, true), Field::new("b", lists.data_type().clone(), true)].into(),
        vec![Arc::new(Int16Array::from(vec![Some(1), None, None, None, None])), lists],
        Some(vec![true, false, true, false, false].into()),
    );
    let bytes = parquet_rows(vec![
        ("op_id", strings(&["a", "b", "c", "d", "e"])),
        ("process_id", Arc::new(UInt8Array::from(vec![0, 1, 0, 1, 2]))),
        ("invoke_ts", Arc::new(Int32Array::from(vec![10, 15, 25, 40, 60]))),
        ("complete_ts", Arc::new(Float64Array::from(vec![Some(20.0), Some(30.0), None, Some(50.0), None]))),
        ("op_type", Arc::new(StringViewArray::from_iter_values(["write", "read", "cas", "write", "write"]))),
        ("key", Arc::new(UInt64Array::from(vec![7, 7, 8, 8, 9]))),
        ("input", Arc::new(StringArray::from(vec![Some("1"), None, Some("x y"), Some("[3,4]"), Some("2")]))),
        ("output", int_lists(&[None, Some(&[1, 2]), None, Some(&[]), None])),
        ("error", Arc::new(StringArray::from(vec![None, None, None, Some("conflict"), None]))),
        ("timeout_marker", Arc::new(BooleanArray::from(vec![Some(false), Some(false), Some(true), None, Some(false)]))),
        ("node_seen", Arc::new(nodes)),
        ("fault_epoch", Arc::new(LargeStringArray::from(vec![None, Some("f1"), None, None, None]))),
        ("offset", Arc::new(Float32Array::from(vec![Some(5.0), None, Some(6.0), Some(7.0), Some(8.0)]))),
        ("free", Arc::new(BooleanArray::from(vec![Some(true), Some(false), None, None, None]))),
        ("group", Arc::new(group.unwrap())),
        ("__index_level_0__", Arc::new(Int64Array::from(vec![0, 1, 2, 3, 4]))),
    ]);
    assert!(is_default_schema_parquet(&bytes).unwrap());
    let from_parquet = build_records(|sink| read_default_schema_parquet(bytes.clone(), sink));
    crate::history::same_operations(&from_json, &from_parquet).unwrap();
    assert_eq!(from_parquet.len(), 5);
    let opened = crate::open::open_bytes(&bytes, &crate::open::OpenOptions::default()).unwrap();
    crate::history::same_operations(&from_json, &opened).unwrap();
    assert_eq!(opened.meta().format, "parquet");
}

fn list_of_strings(rows: &[Option<&[&str]>]) -> ArrayRef {
    let mut lists = arrow_array::builder::ListBuilder::new(arrow_array::builder::StringBuilder::new());
    for row in rows {
        row.iter().for_each(|row| row.iter().for_each(|s| lists.values().append_value(s)));
        lists.append(row.is_some());
    }
    Arc::new(lists.finish())
}

#[test]
fn a_record_of_the_wrong_type_is_refused_with_its_row() {
    let rows = |column: (&'static str, ArrayRef)| {
        let bytes = parquet_rows(vec![("op_type", strings(&["r", "r"])), ("op_id", strings(&["1", "2"])), column]);
        read_default_schema_parquet(bytes, &mut |_| Ok(())).unwrap_err().to_string()
    };
    let e = rows(("timeout_marker", Arc::new(Int8Array::from(vec![0, 3]))));
    assert!(e.starts_with("row 2: \"timeout_marker\" is 3"), "{e}");
    let e = rows(("process_id", Arc::new(Float64Array::from(vec![1.0, 1.5]))));
    assert!(e.starts_with("row 2: \"process_id\" is 1.5"), "{e}");
    let e = rows(("input", Arc::new(BinaryArray::from_vec(vec![b"a", b"b"]))));
    assert!(e.starts_with("row 1: column `input`: it is bytes"), "{e}");
    let e = rows(("invoke_ts", strings(&["1", "2"])));
    assert!(e.contains("column `invoke_ts`: type Utf8"), "{e}");
}

#[test]
fn simple_unknown_columns_of_others_become_further_fields() {
    for (bytes, parquet) in foreign(vec![
        ("f", strings(&["write", "read"])),
        ("status", strings(&["ok", "ok"])),
        ("offset", Arc::new(Int32Array::from(vec![Some(5), None]))),
        ("lag", Arc::new(Float64Array::from(vec![0.5, 2.0]))),
        ("region", strings(&["eu \"1\"", "us"])),
        ("retried", Arc::new(BooleanArray::from(vec![Some(true), None]))),
        ("type", strings(&["a", "b"])),
        ("nested", int_lists(&[None, Some(&[1])])),
        ("timeout", Arc::new(BooleanArray::from(vec![false, false]))),
        ("__index_level_0__", Arc::new(Int64Array::from(vec![0, 1]))),
    ]) {
        let read = back(bytes, parquet).unwrap();
        let of = |row: usize| read.op(row).extras().collect::<Vec<_>>();
        let first = [
            ("offset", "5"),
            ("lag", "0.5"),
            ("region", "\"eu \\\"1\\\"\""),
            ("retried", "true"),
            ("\"type\"", "\"a\""),
        ];
        assert_eq!(of(0), first);
        assert_eq!(of(1), [("lag", "2.0"), ("region", "\"us\""), ("\"type\"", "\"b\"")]);
        round_trip(&read, "further fields");
    }
}
