//! How does a JSON value become cells without a tree?
//!
//! Integers, vectors of integers, vectors of such things and transactions go straight into the arenas of the batch; a
//! string goes into the text pool as it stands, because JSON without escapes is canonical EDN already. What is left
//! (objects, transactions inside something else, names written with escapes, wrapped EDN inside a vector) takes the
//! general way over a [`Value`](crate::value::Value). Both ways must give the same cells: a property test holds them to it.

use super::cursor::{Cursor, Halt, Number, Parse, Text};
use super::value;
use crate::error::ReadError;
use crate::event::{Cell, EventBatch, Mop, MopNames, STRING_MOPS, Span, TextId};
use crate::value::{MAX_DEPTH, Value, push_int};

/// How much of a batch's arenas is in use, so that half a record can be taken back.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    extras: usize,
    ints: usize,
    cells: usize,
    mops: usize,
}

impl Mark {
    /// Of a batch as it is.
    pub(crate) fn of(batch: &EventBatch) -> Mark {
        Mark { extras: batch.extras.len(), ints: batch.ints.len(), cells: batch.cells.len(), mops: batch.mops.len() }
    }

    /// Takes back what was pushed since.
    pub(crate) fn restore(self, batch: &mut EventBatch) {
        batch.extras.truncate(self.extras);
        batch.ints.truncate(self.ints);
        batch.cells.truncate(self.cells);
        batch.mops.truncate(self.mops);
    }
}

/// Interns a text.
pub(crate) fn intern(batch: &mut EventBatch, text: &str) -> Parse<TextId> {
    batch.texts.try_intern(text).ok_or_else(|| ReadError::new("more than 4 GiB of distinct text").into())
}

/// Turns values into cells; holds what is reused from one to the next.
#[derive(Default)]
pub(crate) struct Shredder {
    /// Elements of the vectors that are open.
    open: Vec<Cell>,
    text: String,
}

impl Shredder {
    /// The value of a field.
    #[inline]
    pub(crate) fn field(&mut self, cur: &mut Cursor<'_>, batch: &mut EventBatch) -> Parse<Cell> {
        let (start, mark) = (cur.clone(), Mark::of(batch));
        self.open.clear();
        match self.cell(cur, batch, 0) {
            Err(Halt::Odd) => {
                *cur = start;
                mark.restore(batch);
                general(cur, batch)
            }
            done => done,
        }
    }

    fn cell(&mut self, cur: &mut Cursor<'_>, batch: &mut EventBatch, depth: usize) -> Parse<Cell> {
        match cur.peek()? {
            b'-' | b'0'..=b'9' => match cur.number()? {
                Number::Int(n) => Ok(Cell::Int(n)),
                other => self.text(&value::number_value(other), batch),
            },
            b'"' => self.string(cur, batch),
            b'[' => self.array(cur, batch, depth),
            b'{' => match self.flat_object(cur, batch, depth) {
                Err(Halt::Odd) => self.object(cur, batch, depth),
                done => done,
            },
            _ => match cur.literal()? {
                None => Ok(Cell::Nil),
                Some(b) => Ok(Cell::Text(intern(batch, if b { "true" } else { "false" })?)),
            },
        }
    }

    fn object(&mut self, cur: &mut Cursor<'_>, batch: &mut EventBatch, depth: usize) -> Parse<Cell> {
        match value::object(cur, depth)? {
            (map, false) => self.text(&map, batch),
            (_, true) => Err(Halt::Odd),
        }
    }

    /// A map of plain strings to integers (the balances of a bank), or nothing consumed.
    fn flat_object(&mut self, cur: &mut Cursor<'_>, batch: &mut EventBatch, depth: usize) -> Parse<Cell> {
        if depth >= MAX_DEPTH {
            return Err(Halt::Odd);
        }
        let mut ahead = cur.clone();
        ahead.enter(depth)?;
        let (mut entries, mut first) = (Vec::with_capacity(8), true);
        while let Some(key) = ahead.next_key(&mut first)? {
            match (key, ahead.peek()?) {
                (Text::Raw(key), b'-' | b'0'..=b'9') if !key.as_bytes().contains(&0x7f) => match ahead.number()? {
                    Number::Int(n) => entries.push((key, n)),
                    _ => return Err(Halt::Odd),
                },
                _ => return Err(Halt::Odd),
            }
        }
        if !entries.is_sorted_by(|a, b| a.0 < b.0) {
            // Stable, so that the later of two equal keys comes last, and stays.
            entries.sort_by_key(|&(key, _)| key);
            entries.dedup_by(|later, kept| {
                let is_same = later.0 == kept.0;
                kept.1 = if is_same { later.1 } else { kept.1 };
                is_same
            });
        }
        *cur = ahead;
        self.text.clear();
        for (i, &(key, n)) in entries.iter().enumerate() {
            self.text.push_str(if i == 0 { "{\"" } else { ", \"" });
            self.text.push_str(key);
            self.text.push_str("\" ");
            push_int(&mut self.text, n);
        }
        self.text.push_str(if entries.is_empty() { "{}" } else { "}" });
        Ok(Cell::Text(intern(batch, &self.text)?))
    }

    fn text(&mut self, value: &Value, batch: &mut EventBatch) -> Parse<Cell> {
        self.text.clear();
        value.write_edn(&mut self.text);
        Ok(Cell::Text(intern(batch, &self.text)?))
    }

    fn string(&mut self, cur: &mut Cursor<'_>, batch: &mut EventBatch) -> Parse<Cell> {
        match cur.string()? {
            Text::Raw(s) if !s.as_bytes().contains(&0x7f) => {
                self.text.clear();
                self.text.push('"');
                self.text.push_str(s);
                self.text.push('"');
                Ok(Cell::Text(intern(batch, &self.text)?))
            }
            other => self.text(&value::text_value(other), batch),
        }
    }

    fn array(&mut self, cur: &mut Cursor<'_>, batch: &mut EventBatch, depth: usize) -> Parse<Cell> {
        cur.enter(depth)?;
        if cur.peek()? == b'[' && begins_mop(cur)? {
            // Inside another vector a transaction is only text, and the general way writes that.
            return if depth == 0 { self.txn(cur, batch) } else { Err(Halt::Odd) };
        }
        let start = batch.ints.len();
        let mut first = true;
        while cur.next_element(&mut first)? {
            if let b'-' | b'0'..=b'9' = cur.peek()? {
                match cur.number()? {
                    Number::Int(n) => batch.ints.push(n),
                    other => {
                        let head = self.text(&value::number_value(other), batch)?;
                        let base = self.move_ints(batch, start);
                        return self.rest(cur, batch, depth, base, head);
                    }
                }
            } else {
                let base = self.move_ints(batch, start);
                let head = self.cell(cur, batch, depth + 1)?;
                return self.rest(cur, batch, depth, base, head);
            }
        }
        Ok(Cell::List(Span { start: start as u32, len: (batch.ints.len() - start) as u32 }))
    }

    /// The integers since `start` are elements of a mixed vector after all.
    fn move_ints(&mut self, batch: &mut EventBatch, start: usize) -> usize {
        let base = self.open.len();
        self.open.extend(batch.ints.drain(start..).map(Cell::Int));
        base
    }

    /// A mixed vector whose elements so far are open from `base` on, and `head`.
    fn rest(
        &mut self,
        cur: &mut Cursor<'_>,
        batch: &mut EventBatch,
        depth: usize,
        base: usize,
        head: Cell,
    ) -> Parse<Cell> {
        self.open.push(head);
        while cur.next_element(&mut false)? {
            let cell = self.cell(cur, batch, depth + 1)?;
            self.open.push(cell);
        }
        let start = batch.cells.len() as u32;
        batch.cells.extend(self.open.drain(base..));
        Ok(Cell::Seq(Span { start, len: batch.cells.len() as u32 - start }))
    }

    /// A transaction whose outer bracket was consumed.
    fn txn(&mut self, cur: &mut Cursor<'_>, batch: &mut EventBatch) -> Parse<Cell> {
        let start = batch.mops.len() as u32;
        let mut first = true;
        while cur.next_element(&mut first)? {
            if !cur.eat(b'[')? {
                return Err(Halt::Odd);
            }
            let f = match mop_name(cur)? {
                Some(name) => intern(batch, name)?,
                None => return Err(Halt::Odd),
            };
            next_part(cur)?;
            let key = match self.cell(cur, batch, 2)? {
                key @ (Cell::Nil | Cell::Int(_) | Cell::Text(_)) => key,
                _ => return Err(Halt::Odd),
            };
            next_part(cur)?;
            let value = self.cell(cur, batch, 2)?;
            if !cur.eat(b']')? {
                return Err(Halt::Odd);
            }
            batch.mops.push(Mop { f, key, value });
        }
        Ok(Cell::Txn(Span { start, len: batch.mops.len() as u32 - start }))
    }
}

/// A micro-operation has three parts; what has fewer is none.
#[inline]
fn next_part(cur: &mut Cursor<'_>) -> Parse<()> {
    if cur.eat(b',')? { Ok(()) } else { Err(Halt::Odd) }
}

/// Does a micro-operation begin here, as far as its first element tells?
fn begins_mop(cur: &Cursor<'_>) -> Parse<bool> {
    let mut ahead = cur.clone();
    ahead.eat(b'[')?;
    Ok(match ahead.peek()? {
        b'"' => mop_name(&mut ahead)?.is_some(),
        b'{' => return Err(Halt::Odd),
        _ => false,
    })
}

/// The name of a micro-operation, if that is what the next string is.
fn mop_name<'a>(cur: &mut Cursor<'a>) -> Parse<Option<&'a str>> {
    if cur.peek()? != b'"' {
        return Err(Halt::Odd);
    }
    match cur.string()? {
        Text::Raw(name) => Ok(STRING_MOPS.contains(&name).then_some(name)),
        _ => Err(Halt::Odd),
    }
}

/// The value of a field by way of a tree.
pub(crate) fn general(cur: &mut Cursor<'_>, batch: &mut EventBatch) -> Parse<Cell> {
    let (value, names) = match cur.peek()? {
        // What was EDN shreds as EDN does, so that a vector of strings and a transaction can be told apart.
        b'{' => match value::object(cur, 0)? {
            (value, true) => (value, MopNames::Keywords),
            (value, false) => (value, MopNames::Strings),
        },
        _ => (value::value(cur, 0)?, MopNames::Strings),
    };
    Ok(batch.value(&value, names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A cell with everything it points to.
    fn resolved(batch: &EventBatch, cell: Cell) -> String {
        let all = |cells: &[Cell]| cells.iter().map(|&c| resolved(batch, c)).collect::<Vec<_>>().join(" ");
        match cell {
            Cell::Nil | Cell::Int(_) => format!("{cell:?}"),
            Cell::Text(id) => format!("text<{}>", batch.texts.get(id)),
            Cell::List(span) => format!("list{:?}", &batch.ints[span.range()]),
            Cell::Set(span) => format!("set{:?}", &batch.ints[span.range()]),
            Cell::Seq(span) => format!("seq({})", all(&batch.cells[span.range()])),
            Cell::Txn(span) => {
                let mops = batch.mops[span.range()].iter();
                mops.map(|m| format!("mop({} {})", batch.texts.get(m.f), all(&[m.key, m.value]))).collect()
            }
        }
    }

    fn both(json: &str) -> (String, String) {
        let (mut fast, mut slow) = (EventBatch::default(), EventBatch::default());
        let (mut a, mut b) = (Cursor::whole(json), Cursor::whole(json));
        let direct = Shredder::default().field(&mut a, &mut fast).unwrap_or_else(|e| panic!("{json}: {e:?}"));
        let treed = general(&mut b, &mut slow).unwrap_or_else(|e| panic!("{json}: {e:?}"));
        assert!(a.at_end() && b.at_end());
        assert_eq!(
            (fast.ints.len(), fast.cells.len(), fast.mops.len()),
            (slow.ints.len(), slow.cells.len(), slow.mops.len()),
            "{json}"
        );
        (resolved(&fast, direct), resolved(&slow, treed))
    }

    fn json() -> impl Strategy<Value = String> {
        let leaf = prop::sample::select(vec![
            "1",
            "-7",
            "0",
            "null",
            "true",
            "1.5",
            "1e400",
            "12345678901234567890",
            "\"\"",
            "\"x\"",
            "\"\\u0072\"",
            "\"\\ud800\"",
            "\"\\ud83d\\ude00\"",
            "\"\u{7f}\"",
            "\"r\"",
            "\"append\"",
            "{}",
            "{\"a\":[1,null]}",
            "{\"b\":1,\"a\":-2, \"b\":3}",
            "{\"\u{7f}\":1}",
            "{\"a\":1,\"~edn\":7}",
            "[]",
            "[ 1 , 2 ]",
            "{\"~edn\":\":r\"}",
            "{\"~edn\":\"#{2 1}\"}",
            "{\"~edn\":\"[\\\"r\\\" 1 2]\"}",
            "{\"~edn\":\"[[:r 1 2]]\"}",
            "{\"~edn\":\"[[\\\"r\\\" 1 2]]\"}",
        ])
        .prop_map(String::from);
        let name =
            prop::sample::select(vec!["\"r\"", "\"w\"", "\"append\"", "\"\\u0072\"", "\"z\"", "{\"~edn\":\":r\"}"]);
        leaf.prop_recursive(4, 40, 5, move |inner| {
            let array = prop::collection::vec(inner.clone(), 0..5).prop_map(|v| format!("[{}]", v.join(",")));
            let mop = (name.clone(), inner.clone(), inner.clone()).prop_map(|(f, k, v)| format!("[{f},{k}, {v}]"));
            let txn = prop::collection::vec(prop_oneof![9 => mop, 1 => inner], 1..4)
                .prop_map(|v| format!("[{}]", v.join(" ,")));
            prop_oneof![array, txn]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]
        #[test]
        fn the_fast_way_and_the_way_over_a_tree_give_the_same_cells(json in json()) {
            let (fast, slow) = both(&json);
            prop_assert_eq!(fast, slow, "{}", json);
        }
    }

    #[test]
    fn common_values_shred() {
        let cases = [
            ("[1,2]", "list[1, 2]"),
            ("[1,null]", "seq(Int(1) Nil)"),
            ("[5,[0,3]]", "seq(Int(5) list[0, 3])"),
            ("[[\"r\",\"x\",[1]],[\"append\",2,3]]", "mop(r text<\"x\"> list[1])mop(append Int(2) Int(3))"),
            ("[[\"rest\",1,2]]", "seq(seq(text<\"rest\"> Int(1) Int(2)))"),
            ("[4,[[\"r\",1,2]]]", "seq(Int(4) text<[[\"r\" 1 2]]>)"),
            ("{\"b\":1,\"a\":2}", "text<{\"a\" 2, \"b\" 1}>"),
            ("18446744073709551616", "text<18446744073709551616>"),
        ];
        for (json, cell) in cases {
            assert_eq!(both(json), (cell.to_string(), cell.to_string()));
        }
    }

    #[test]
    fn wrapped_edn_shreds_as_edn_does() {
        assert_eq!(both("{\"~edn\":\"[[:r 1 nil]]\"}").0, "mop(r Int(1) Nil)");
        assert_eq!(both("{\"~edn\":\"[[\\\"r\\\" 1 nil]]\"}").0, "seq(seq(text<\"r\"> Int(1) Nil))");
        assert_eq!(both("{\"~edn\":\"#{2 1}\"}").0, "set[1, 2]");
    }
}
