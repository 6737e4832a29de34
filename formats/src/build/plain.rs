//! The events of which histories mostly consist: what a client invokes, or its completion, without further fields, with
//! a value of integers or a transaction of those.
//!
//! The idea: what is written here is what the general way of the parent module would write, with neither look-ups nor
//! copies. Whether an event is plain is decided before anything is written, but for arenas, which are put back, and lists that
//! were read, which are found again: `false` means that nothing happened yet, and the general way, which knows every case, takes the event. A property
//! test holds the two together.

use super::chunk::{NO_TXN, OpenChunk};
use super::{At, HistoryBuilder, NO_CODE, NO_INDEX, NO_TEXT, OpenOp, Remap, open_chunk, status_of};
use crate::columns::Scalar;
use crate::error::Result;
use crate::event::{Cell, EventType, Mop, NONE, Span};
use crate::history::{CHUNK_ROWS, Status};

/// What plain values are copied by.
struct Tables<'a> {
    ints: &'a [i64],
    mops: &'a [Mop],
    functions: &'a [u32],
    texts: &'a [u32],
    /// Is the function of this code a read of a transaction?
    reads: &'a [bool],
}

impl HistoryBuilder {
    /// Takes a client's event, but for its further fields, if it is plain; gives its row if it was.
    #[inline]
    pub(super) fn plain_event(&mut self, e: &At<'_>, remap: &Remap, p: i64) -> Result<Option<u64>> {
        #[cfg(test)]
        if self.never_plain {
            return Ok(None);
        }
        let state = self.clients.of(p);
        if e.time == NONE || e.time < state.last_time || !self.touching.is_empty() {
            return Ok(None);
        }
        let tables = Tables {
            ints: &e.batch.ints,
            mops: &e.batch.mops,
            functions: &remap.functions,
            texts: &remap.texts,
            reads: &self.reads,
        };
        let row = match (e.batch.kind[e.i], &state.open) {
            (EventType::Invoke, None) => {
                let (row, at) = (self.rows, self.rows as usize / CHUNK_ROWS);
                // As long as there may be keys, values may have to be split.
                if self.keys.split || at == self.chunks.len() {
                    return Ok(None);
                }
                if !open_chunk(&mut self.chunks, at)?.begin_plainly(e, &tables, p)? {
                    return Ok(None);
                }
                self.rows += 1;
                state.open = Some(OpenOp { row, f: e.f, place: e.place, index: e.index });
                row
            }
            (kind, Some(open)) if kind != EventType::Invoke && open.f == e.f => {
                let (row, at, r) = (open.row, open.row as usize / CHUNK_ROWS, open.row as usize % CHUNK_ROWS);
                let chunk = open_chunk(&mut self.chunks, at)?;
                if self.keys.split && chunk.key.get(r) != Scalar::Nil || !chunk.complete_plainly(e, &tables, r, kind)? {
                    return Ok(None);
                }
                state.open = None;
                row
            }
            _ => return Ok(None),
        };
        state.last_time = e.time;
        state.last_place = e.place;
        state.last_index = e.index;
        Ok(Some(row))
    }
}

impl OpenChunk {
    #[inline]
    fn begin_plainly(&mut self, e: &At<'_>, tables: &Tables<'_>, p: i64) -> Result<bool> {
        let mut txn = NO_TXN;
        // Each kind is pushed where it is known.
        match e.value() {
            Cell::Nil => self.input.push(Cell::Nil),
            Cell::Int(n) => self.input.push(Cell::Int(n)),
            Cell::List(span) => self.input.push(Cell::List(self.ints.push(&tables.ints[span.range()])?)),
            Cell::Txn(span) => match self.import_mops(&tables.mops[span.range()], tables) {
                Some(span) => {
                    txn = span;
                    self.input.push(Cell::Nil);
                }
                None => return Ok(false),
            },
            _ => return Ok(false),
        }
        let r = self.index.len();
        self.open += 1;
        self.index.push(e.index as u64);
        self.complete_index.push(NO_INDEX);
        self.process.push(p);
        self.status.push(Status::Pending as u8);
        self.f.push(e.f);
        self.invoke_time.push(e.time);
        self.complete_time.push(NONE);
        self.output.push(Cell::Nil);
        self.txn.set(r, txn);
        Ok(true)
    }

    /// Copies the micro-operations of an invocation, if all are plain and no read says what it read.
    #[inline(never)]
    fn import_mops(&mut self, mops: &[Mop], tables: &Tables<'_>) -> Option<Span> {
        let start = self.mops.len();
        for &Mop { f, key, value } in mops {
            let f = tables.functions[f as usize];
            // Without a branch, for nobody foresees whether a read comes next.
            let plain = f < u32::from(NO_CODE)
                && matches!(value, Cell::Nil) | (matches!(value, Cell::Int(_)) & !tables.reads[f as usize]);
            let Some(key) = plain_key(key, tables).filter(|_| plain) else {
                self.mops.truncate(start);
                return None;
            };
            self.mops.push_plain(f as u16, key, if let Cell::Int(n) = value { Some(n) } else { None });
        }
        Some(Span { start: start as u32, len: mops.len() as u32 })
    }

    #[inline]
    fn complete_plainly(&mut self, e: &At<'_>, tables: &Tables<'_>, r: usize, kind: EventType) -> Result<bool> {
        let invoked = self.txn.get(r);
        match e.value() {
            Cell::Txn(span) if invoked != NO_TXN => {
                if !self.refine(invoked, &tables.mops[span.range()], tables)? {
                    return Ok(false);
                }
            }
            _ if invoked != NO_TXN => return Ok(false),
            Cell::Nil => self.output.set(r, Cell::Nil),
            Cell::Int(n) => self.output.set(r, Cell::Int(n)),
            Cell::List(span) => self.output.set(r, Cell::List(self.ints.push(&tables.ints[span.range()])?)),
            _ => return Ok(false),
        }
        self.open -= 1;
        self.complete_index[r] = e.index as u64;
        self.complete_time[r] = e.time;
        self.status[r] = status_of(kind) as u8;
        Ok(true)
    }

    /// Writes what a transaction read into the micro-operations that it was invoked with, if the completion says the same
    /// but for that; says whether it did.
    #[inline(never)]
    fn refine(&mut self, invoked: Span, completed: &[Mop], tables: &Tables<'_>) -> Result<bool> {
        if invoked.len as usize != completed.len() {
            return Ok(false);
        }
        for (i, mop) in completed.iter().enumerate() {
            let at = invoked.start as usize + i;
            let f = self.mops.f(at);
            let reads = tables.reads[usize::from(f)];
            let unread = self.mops.value_is(at, Cell::Nil);
            let plain = tables.functions[mop.f as usize] == u32::from(f)
                && plain_key(mop.key, tables).is_some_and(|key| self.mops.key_is(at, key))
                && match mop.value {
                    Cell::Nil => unread,
                    Cell::Int(_) => (reads & unread) | (!reads & self.mops.value_is(at, mop.value)),
                    Cell::List(_) => reads & unread,
                    _ => false,
                };
            if !plain {
                self.unread(invoked.start as usize..at, tables);
                return Ok(false);
            }
            match mop.value {
                Cell::List(span) => {
                    let list = self.ints.push_read(self.mops.key(at), &tables.ints[span.range()])?;
                    self.mops.set_value(at, Cell::List(list));
                }
                Cell::Int(n) => self.mops.set_value(at, Cell::Int(n)),
                _ => {}
            }
        }
        Ok(true)
    }

    /// Takes back what [`Self::refine`] wrote, but for elements of lists.
    #[cold]
    fn unread(&mut self, refined: std::ops::Range<usize>, tables: &Tables<'_>) {
        for at in refined {
            if tables.reads[usize::from(self.mops.f(at))] {
                self.mops.set_value(at, Cell::Nil);
            }
        }
    }
}

/// The key of a micro-operation in terms of the history, if its text is known there.
#[inline]
fn plain_key(key: Cell, tables: &Tables<'_>) -> Option<Cell> {
    match key {
        Cell::Text(id) => Some(tables.texts[id as usize]).filter(|&t| t != NO_TEXT).map(Cell::Text),
        Cell::Nil | Cell::Int(_) => Some(key),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use proptest::prelude::*;

    use crate::build::{BuildOptions, HistoryBuilder};
    use crate::history::{History, same};

    /// What is invoked, and what its completion may say: plain values, and what looks like them and is not.
    const VALUES: [(&str, &[&str]); 14] = [
        ("nil", &["nil", "3", "[1 2]", "[]", "#{1}", "[1 nil]", "\"a\"", "[[:r 1 2]]"]),
        ("7", &["7", "8", "nil", "[7]"]),
        ("[1 2]", &["[1 2]", "[1 3]", "nil", "[1 [2]]"]),
        ("[1 nil]", &["[1 5]", "[2 5]", "[1 nil]", "nil"]),
        ("[1 [2 3]]", &["[1 [2 3]]", "5"]),
        ("[:k 1]", &["[:k 1]", "[:k 2]"]),
        ("#{2 1}", &["#{1 2}", "#{}"]),
        ("{:a 1}", &["{:a 1}", "{:a 2}"]),
        ("[[:r 1 nil]]", &["[[:r 1 [1 2]]]", "[[:r 1 nil]]", "[[:r 2 []]]", "[[:r 1 4]]", "[[:w 1 4]]", "nil", ":no"]),
        (
            "[[:append 1 2] [:r 1 nil]]",
            &["[[:append 1 2] [:r 1 [2]]]", "[[:append 1 3] [:r 1 [2]]]", "[[:append 1 2]]"],
        ),
        ("[[:w \"k\" 2] [:r \"k\" nil]]", &["[[:w \"k\" 2] [:r \"k\" 2]]", "[[:w \"k\" 2] [:r \"j\" 2]]", "[]"]),
        ("[[:r 1 5]]", &["[[:r 1 5]]", "[[:r 1 6]]"]),
        ("[[:append 1 [2]]]", &["[[:append 1 [2]]]", "[[:append 1 [3]]]"]),
        ("[[:r :k nil] [:inc nil nil]]", &["[[:r :k #{1}] [:inc nil nil]]", "[[:r :k 1] [:inc nil nil]]"]),
    ];
    const FUNCTIONS: [&str; 4] = ["read", "cas", "txn", "w"];
    const FIELDS: [&str; 6] = ["", ":node \"n1\"", ":key 3", ":error [:timeout 1]", ":key nil", ":fault_epoch \"f\""];

    /// One step of a process: an invocation if it is idle, else mostly a completion.
    type Step = (usize, usize, usize, usize, u8, u8);

    fn text(kinds: &[usize], steps: &[Step], indexed: bool) -> String {
        let (mut out, mut time) = (String::new(), 0);
        let mut open: [Option<(usize, usize)>; 3] = [None; 3];
        for (i, &(process, value, answer, f, odd, field)) in steps.iter().enumerate() {
            time += u64::from(odd % 3);
            let again = odd == 200;
            let (kind, f, value) = match open[process] {
                Some((f, value)) if !again => {
                    open[process] = None;
                    let kind = ["ok", "ok", "ok", "fail", "info"][answer % 5];
                    let answers = VALUES[value].1;
                    (kind, if odd == 201 { f + 1 } else { f }, answers[answer % answers.len()])
                }
                _ => {
                    let value = kinds[value % kinds.len()];
                    open[process] = Some((f, value));
                    ("invoke", f, VALUES[value].0)
                }
            };
            let f = FUNCTIONS[f % FUNCTIONS.len()];
            let _ = write!(out, "{{:process {process}, :type :{kind}, :value {value}");
            if odd != 202 {
                let _ = write!(out, ", :f :{f}");
            }
            if odd != 203 {
                let _ = write!(out, ", :time {}", if odd == 204 { 0 } else { time });
            }
            if indexed {
                let _ = write!(out, ", :index {}", if odd == 205 { 0 } else { 2 * i });
            }
            let _ = writeln!(out, " {}}}", if field < 20 { FIELDS[usize::from(field) % FIELDS.len()] } else { "" });
        }
        out
    }

    fn read(text: &str, lenient: bool, never_plain: bool) -> crate::Result<History> {
        let mut builder = HistoryBuilder::new(BuildOptions { lenient, ..BuildOptions::default() });
        builder.never_plain = never_plain;
        crate::edn::events::read(&mut text.as_bytes(), 1, &mut |batch| builder.push(batch))?;
        builder.finish()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn what_is_taken_plainly_becomes_what_the_general_way_makes_of_it(
            kinds in prop::collection::vec(0..VALUES.len(), 1..4),
            steps in prop::collection::vec(
                (0..3usize, 0..4usize, 0..8usize, 0..2usize, any::<u8>(), any::<u8>()), 0..24),
            indexed in any::<bool>(),
            lenient in any::<bool>(),
        ) {
            let text = text(&kinds, &steps, indexed);
            match (read(&text, lenient, false), read(&text, lenient, true)) {
                (Ok(plain), Ok(general)) => {
                    let differ = same(&plain, &general).err();
                    prop_assert!(differ.is_none(), "{}\n{text}", differ.unwrap_or_default());
                }
                (Err(plain), Err(general)) => prop_assert_eq!(plain, general, "{}", text),
                (plain, general) => {
                    prop_assert!(false, "{:?} and {:?}\n{text}", plain.map(|h| h.len()), general.map(|h| h.len()));
                }
            }
        }
    }
}
