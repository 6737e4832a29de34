//! What did these clients see, in a directory of Cobra's logs?
//!
//! One `T*.log` for each client, big-endian 64-bit integers after a tag byte:
//!
//! ```text
//! S transaction                              it begins
//! W write, key hash, value hash              it wrote
//! R transaction, write, key hash, value hash it read what that write of that transaction wrote
//! C transaction                              it committed
//! ```
//!
//! Write ids are what is unique here, so they are the values; value hashes are not (two writes of one value have one
//! hash). Nothing is dropped: a completion carries `txn-id`, `log` (the file), `writers` (the transaction each read
//! named, in order) and `value-hashes` (one for each read and write, in order). Logs are read in the order of the
//! numbers in their names. One transaction is held at a time; places are records, counted from 1 within each log.
//!
//! Some ids stand for no write, and they do not mean the same:
//!
//! - [`INITIAL_ID`]: the key was there, but what it held was put there before recording began, without an id. This is the
//!   initial value, so a read of it is a read of nil.
//! - [`NULL_ID`]: the database held nothing under the key. That is something a client saw, and after the key was loaded it
//!   differs from the initial value; so it stays a value of its own.
//! - Others (a deletion, 0xabcdefab; the marks of Cobra's garbage collection) stay values too.
//!
//! A log that ends within a transaction was left by a client that stopped: it is `info`. One that ends within a record is
//! torn, an error.

use super::{Access, Emitter, Facts, Sink};
use crate::error::{Place, ReadError, Result};
use crate::event::{Cell, EventType};
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// A read of what was there before recording began.
pub const INITIAL_ID: i64 = 0xbebe_ebee;

/// A read that found nothing.
pub const NULL_ID: i64 = 0xdead_beef;

/// Reads a directory of logs.
pub fn read(directory: &Path, sink: Sink<'_>) -> Result<Facts> {
    let logs = logs(directory)?;
    if logs.is_empty() {
        return Err(ReadError::new("there is no log here")
            .in_file(&directory.display().to_string())
            .hint("a Cobra history is a directory with a file T*.log for each client"));
    }
    let mut emitter = Emitter::new(sink);
    for (session, log) in logs.iter().enumerate() {
        read_log(log, session as u64, &mut emitter).map_err(|e| e.in_file(&log.display().to_string()))?;
    }
    emitter.end(logs.len() as u64)
}

/// The logs of a directory, in the order of their numbers.
pub(super) fn logs(directory: &Path) -> Result<Vec<PathBuf>> {
    let in_directory = |e: std::io::Error| ReadError::from(e).in_file(&directory.display().to_string());
    let mut logs = vec![];
    for entry in std::fs::read_dir(directory).map_err(in_directory)? {
        let path = entry.map_err(in_directory)?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let Some(client) = name.strip_prefix('T').and_then(|name| name.strip_suffix(".log")) else { continue };
        if path.is_file() {
            // Shorter numbers are smaller; names that are no numbers come last.
            let digits = client.bytes().all(|byte| byte.is_ascii_digit());
            logs.push((!digits, client.len(), name, path));
        }
    }
    logs.sort();
    Ok(logs.into_iter().map(|(.., path)| path).collect())
}

fn read_log(path: &Path, session: u64, emitter: &mut Emitter<'_>) -> Result<()> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut log = Log { input: BufReader::with_capacity(1 << 16, File::open(path)?), record: 0 };
    let mut open = None;
    while let Some(record) = log.record().map_err(|e| e.at(Place::Row(log.record)))? {
        let followed = follow(&record, log.record, session, &name, &mut open, emitter);
        followed.map_err(|e| if e.place == Place::Whole { e.at(Place::Row(log.record)) } else { e })?;
    }
    match open {
        Some(transaction) => end(transaction, EventType::Info, session, &name, emitter),
        None => Ok(()),
    }
}

/// A transaction that has begun and not ended.
struct Open {
    id: i64,
    place: u64,
    writers: Vec<i64>,
    hashes: Vec<i64>,
}

fn follow(
    record: &Record,
    place: u64,
    session: u64,
    log: &str,
    open: &mut Option<Open>,
    emitter: &mut Emitter<'_>,
) -> Result<()> {
    match (record, open.as_mut()) {
        (&Record::Start { id }, None) => {
            *open = Some(Open { id, place, writers: vec![], hashes: vec![] });
            Ok(())
        }
        (&Record::Start { id }, Some(transaction)) => {
            Err(ReadError::new(format!("transaction {id} begins while transaction {} is open", transaction.id))
                .hint("a client runs one transaction at a time"))
        }
        (&Record::Commit { id }, Some(transaction)) if transaction.id == id => match open.take() {
            Some(transaction) => end(transaction, EventType::Ok, session, log, emitter),
            None => Ok(()),
        },
        (&Record::Commit { id }, _) => Err(ReadError::new(format!("transaction {id} commits without having begun"))),
        (&Record::Write { write, key, hash }, Some(transaction)) => {
            transaction.hashes.push(hash);
            emitter.access(Access::Write, Cell::Int(key), Cell::Int(write))
        }
        (&Record::Read { writer, write, key, hash }, Some(transaction)) => {
            transaction.writers.push(writer);
            transaction.hashes.push(hash);
            let value = if write == INITIAL_ID { Cell::Nil } else { Cell::Int(write) };
            emitter.access(Access::Read, Cell::Int(key), value)
        }
        (_, None) => Err(ReadError::new("a read or write stands outside of any transaction")),
    }
}

fn end(transaction: Open, kind: EventType, session: u64, log: &str, emitter: &mut Emitter<'_>) -> Result<()> {
    let mut log_edn = String::new();
    crate::value::write_str(&mut log_edn, log);
    let log = Cell::Text(emitter.batch.name(&log_edn));
    let writers = emitter.ints(transaction.writers)?;
    let hashes = emitter.ints(transaction.hashes)?;
    emitter.extra("txn-id", Cell::Int(transaction.id));
    emitter.extra("log", log);
    emitter.extra("writers", writers);
    emitter.extra("value-hashes", hashes);
    emitter.finish(transaction.place, session, kind)
}

enum Record {
    Start { id: i64 },
    Commit { id: i64 },
    Write { write: i64, key: i64, hash: i64 },
    Read { writer: i64, write: i64, key: i64, hash: i64 },
}

/// One client's log.
struct Log<R> {
    input: R,
    record: u64,
}

impl<R: Read> Log<R> {
    /// The next record; none at the end.
    fn record(&mut self) -> Result<Option<Record>> {
        self.record += 1;
        let mut tag = [0];
        match self.input.read_exact(&mut tag) {
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        Ok(Some(match tag[0] {
            b'S' => Record::Start { id: self.integer()? },
            b'C' => Record::Commit { id: self.integer()? },
            b'W' => Record::Write { write: self.integer()?, key: self.integer()?, hash: self.integer()? },
            b'R' => Record::Read {
                writer: self.integer()?,
                write: self.integer()?,
                key: self.integer()?,
                hash: self.integer()?,
            },
            other => {
                return Err(ReadError::new(format!("a record begins with the byte 0x{other:02x}"))
                    .hint("expected S, C, W or R; logs with timestamps or aborts are not known"));
            }
        }))
    }

    fn integer(&mut self) -> Result<i64> {
        let mut bytes = [0; 8];
        self.input.read_exact(&mut bytes).map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => ReadError::new("the log ends within a record").hint("is it whole?"),
            _ => e.into(),
        })?;
        Ok(i64::from_be_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::events;
    use super::*;

    fn record(tag: u8, integers: &[i64]) -> Vec<u8> {
        std::iter::once(tag).chain(integers.iter().flat_map(|n| n.to_be_bytes())).collect()
    }

    fn directory(logs: &[(&str, Vec<u8>)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, log) in logs {
            std::fs::write(directory.path().join(name), log).unwrap();
        }
        directory
    }

    fn read_logs(logs: &[(&str, Vec<u8>)]) -> Result<(Vec<String>, Facts)> {
        let directory = directory(logs);
        events(|sink| read(directory.path(), sink))
    }

    fn transaction() -> Vec<u8> {
        [
            record(b'S', &[100]),
            record(b'W', &[0x1000, -7, 42]),
            record(b'R', &[99, 0x0fff, 8, 43]),
            record(b'R', &[INITIAL_ID, INITIAL_ID, 9, 44]),
            record(b'R', &[NULL_ID, NULL_ID, 9, 0]),
            record(b'C', &[100]),
        ]
        .concat()
    }

    #[test]
    fn write_ids_are_the_values_and_null_is_not_the_initial_value() {
        let (events, facts) = read_logs(&[("T1.log", transaction())]).unwrap();
        assert_eq!(
            events,
            [
                "0 invoke [[:w -7 4096] [:r 8 nil] [:r 9 nil] [:r 9 nil]]",
                "0 ok [[:w -7 4096] [:r 8 4095] [:r 9 nil] [:r 9 3735928559]] :txn-id 100 :log \"T1.log\" \
                 :writers [99 3200183278 3735928559] :value-hashes [42 43 44 0]",
            ]
        );
        let counts = (facts.sessions, facts.transactions, facts.committed, facts.aborted, facts.events);
        assert_eq!(counts, (1, 1, 1, 0, 4));
    }

    #[test]
    fn logs_are_sessions_in_the_order_of_their_numbers() {
        let log = |id: i64| [record(b'S', &[id]), record(b'C', &[id])].concat();
        let logs =
            [("T10.log", log(10)), ("T9.log", log(9)), ("Tx.log", log(77)), ("T1.wlog", log(5)), ("a.txt", vec![1])];
        let (events, facts) = read_logs(&logs).unwrap();
        let completions: Vec<_> = events.iter().skip(1).step_by(2).map(|event| &event[..17]).collect();
        assert_eq!(completions, ["0 ok [] :txn-id 9", "1 ok [] :txn-id 1", "2 ok [] :txn-id 7"]);
        assert_eq!(facts.sessions, 3);
    }

    #[test]
    fn a_transaction_whose_end_is_not_recorded_is_unknown() {
        let log = [transaction(), record(b'S', &[101]), record(b'W', &[5, 6, 7])].concat();
        let (events, facts) = read_logs(&[("T1.log", log)]).unwrap();
        assert_eq!(events[3], "0 info [[:w 6 5]] :txn-id 101 :log \"T1.log\" :writers [] :value-hashes [7]");
        assert_eq!((facts.transactions, facts.committed, facts.aborted), (2, 1, 0));
    }

    #[test]
    fn a_log_torn_within_a_record_is_refused() {
        let whole = transaction();
        let boundaries: Vec<usize> = [1, 3, 4, 4, 4, 1]
            .iter()
            .scan(0, |end, n| {
                *end += 1 + 8 * n;
                Some(*end)
            })
            .collect();
        for end in 0..=whole.len() {
            let read = read_logs(&[("T1.log", whole[..end].to_vec())]);
            if end == 0 || boundaries.contains(&end) {
                assert_eq!(read.unwrap().1.transactions, u64::from(end > 0));
            } else {
                let e = read.unwrap_err();
                let record = boundaries.iter().filter(|&&boundary| boundary < end).count() as u64 + 1;
                assert_eq!((e.place, &e.what[..]), (Place::Row(record), "the log ends within a record"));
                assert!(e.file.ends_with("T1.log"));
            }
        }
    }

    #[test]
    fn records_out_of_order_are_refused() {
        let cases = [
            (vec![record(b'S', &[1]), record(b'S', &[2])], 2),
            (vec![record(b'C', &[1])], 1),
            (vec![record(b'S', &[1]), record(b'C', &[2])], 2),
            (vec![record(b'W', &[1, 2, 3])], 1),
            (vec![record(b'R', &[1, 2, 3, 4])], 1),
            (vec![record(b'S', &[1]), record(b'C', &[1]), record(b'W', &[1, 2, 3])], 3),
            (vec![record(b'S', &[1]), record(b'A', &[1])], 2),
            (vec![b"hello".to_vec()], 1),
        ];
        for (records, row) in cases {
            let e = read_logs(&[("T1.log", records.concat())]).unwrap_err();
            assert_eq!(e.place, Place::Row(row), "{e}");
        }
    }

    #[test]
    fn a_directory_without_logs_is_refused_by_name() {
        let e = read_logs(&[("log.txt", vec![])]).unwrap_err();
        assert!(!e.file.is_empty() && e.what == "there is no log here");
        assert!(!read(Path::new("/no/such/place"), &mut |_| Ok(())).unwrap_err().file.is_empty());
    }
}
