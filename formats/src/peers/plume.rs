//! What did these clients see, in the text that Plume and PolySI read?
//!
//! ```text
//! w(3,17,0,5)      session 0, transaction 5: wrote 17 to key 3
//! r(3,17,1,6)      session 1, transaction 6: read 17 from key 3
//! w(4,18,1,-1)     session 1: wrote 18 to key 4 in a transaction that aborted
//! ```
//!
//! Operations of a transaction stand in the order in which they ran, but transactions may interleave: nothing in the
//! format says that one is over. So the whole history is held, about 48 bytes an operation, and transactions come out in
//! the order in which their first operations stand, which keeps the order of each session.
//!
//! Transactions are told apart by session and number together: some tools number them throughout, others within each
//! session, and both read right so. `-1` is no number of a transaction: it says only that the write was aborted, not with
//! what others, so each such line is an aborted transaction of its own. (Holding all of them for one transaction would
//! invent that they belonged together; it would also be a transaction in many sessions.)
//!
//! Completions carry `txn-id` and `session` as the file has them.

use super::lines::Lines;
use super::{Access, Emitter, Facts, Initial, Sessions, Sink, ZeroWritten, at_line, quoted, scalar_id};
use crate::error::{ReadError, Result};
use crate::event::{Cell, EventType};
use std::io::Read;

/// Reads a Plume or PolySI text.
pub fn read(input: &mut dyn Read, sink: Sink<'_>) -> Result<Facts> {
    let mut emitter = Emitter::new(sink);
    let mut history = Held::default();
    let mut lines = Lines::new(input);
    while let Some((number, line)) = lines.next()? {
        let operation = Operation::parse(line, &mut emitter).map_err(at_line(number))?;
        history.add(number, operation).map_err(at_line(number))?;
    }
    emitter.facts.initial = Initial::Zero;
    history.emit(&mut emitter)?;
    emitter.end(history.sessions.len())
}

/// Is this a line of such a text?
pub(super) fn is_line(line: &[u8]) -> bool {
    let Some((_, fields)) = split(line) else { return false };
    let [key, value, session, transaction] = fields;
    [key, value, session].into_iter().all(is_number) && (is_number(transaction) || transaction == b"-1")
}

/// One line.
struct Operation {
    access: Access,
    key: Cell,
    value: Cell,
    session: Cell,
    /// None: aborted.
    transaction: Option<Cell>,
}

impl Operation {
    fn parse(line: &[u8], emitter: &mut Emitter<'_>) -> Result<Operation> {
        let Some((access, [key, value, session, transaction])) = split(line) else {
            return Err(ReadError::new(format!("{} is no operation", quoted(line)))
                .hint("expected r(key,value,session,transaction) or w(key,value,session,transaction)"));
        };
        let mut number = |name: &str, digits: &[u8]| {
            let text = std::str::from_utf8(digits).ok().filter(|_| is_number(digits));
            text.and_then(|text| emitter.integer(text)).ok_or_else(|| {
                ReadError::new(format!("the {name} {} is not a number", quoted(digits)))
                    .hint("only decimal digits are allowed; an aborted write has the transaction -1")
            })
        };
        Ok(Operation {
            access,
            key: number("key", key)?,
            value: number("value", value)?,
            session: number("session", session)?,
            transaction: if transaction == b"-1" { None } else { Some(number("transaction", transaction)?) },
        })
    }
}

/// `r(a,b,c,d)` cut into its parts.
fn split(line: &[u8]) -> Option<(Access, [&[u8]; 4])> {
    let (access, rest) = match line {
        [b'r', rest @ ..] => (Access::Read, rest),
        [b'w', rest @ ..] => (Access::Write, rest),
        _ => return None,
    };
    let inner = rest.trim_ascii_start().strip_prefix(b"(")?.strip_suffix(b")")?;
    let mut fields = inner.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    let four = [fields.next()?, fields.next()?, fields.next()?, fields.next()?];
    fields.next().is_none().then_some((access, four))
}

fn is_number(digits: &[u8]) -> bool {
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// No next operation.
const LAST: u32 = u32::MAX;

/// The whole history: operations in file order, chained by transaction.
#[derive(Default)]
struct Held {
    operations: Vec<(Access, Cell, Cell, u32)>,
    transactions: Vec<Transaction>,
    by_name: foldhash::HashMap<(u64, (u8, i64)), u32>,
    sessions: Sessions,
    zero: ZeroWritten,
}

struct Transaction {
    line: u64,
    process: u64,
    session: Cell,
    name: Option<Cell>,
    first: u32,
    last: u32,
}

impl Held {
    fn add(&mut self, line: u64, op: Operation) -> Result<()> {
        let process = self.sessions.process(op.session);
        let here = u32::try_from(self.operations.len())
            .ok()
            .filter(|&n| n < LAST)
            .ok_or_else(|| ReadError::new("the history has more than 4 billion operations"))?;
        if op.access == Access::Write && op.transaction.is_some() {
            self.zero.note(op.key, op.value);
        }
        self.operations.push((op.access, op.key, op.value, LAST));
        let next = self.transactions.len() as u32;
        let id = match op.transaction {
            Some(name) => *self.by_name.entry((process, scalar_id(name))).or_insert(next),
            None => next,
        };
        match self.transactions.get_mut(id as usize) {
            Some(transaction) => {
                self.operations[transaction.last as usize].3 = here;
                transaction.last = here;
            }
            None => self.transactions.push(Transaction {
                line,
                process,
                session: op.session,
                name: op.transaction,
                first: here,
                last: here,
            }),
        }
        Ok(())
    }

    fn emit(&self, emitter: &mut Emitter<'_>) -> Result<()> {
        for transaction in &self.transactions {
            let mut at = transaction.first;
            while let Some(&(access, key, value, next)) = self.operations.get(at as usize) {
                let value = if access == Access::Read { self.zero.read(key, value) } else { value };
                emitter.access(access, key, value).map_err(at_line(transaction.line))?;
                at = next;
            }
            if let Some(name) = transaction.name {
                emitter.extra("txn-id", name);
            }
            emitter.extra("session", transaction.session);
            let kind = if transaction.name.is_some() { EventType::Ok } else { EventType::Fail };
            emitter.finish(transaction.line, transaction.process, kind)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{events, places};
    use super::*;

    fn read_text(text: &[u8]) -> Result<(Vec<String>, Facts)> {
        events(|sink| read(&mut &*text, sink))
    }

    #[test]
    fn a_transaction_is_an_invocation_and_its_completion() {
        let (events, facts) = read_text(b"w(3,17,0,5)\nr(4,0,0,5)\nr(3,17,1,6)\n").unwrap();
        assert_eq!(
            events,
            [
                "0 invoke [[:w 3 17] [:r 4 nil]]",
                "0 ok [[:w 3 17] [:r 4 nil]] :txn-id 5 :session 0",
                "1 invoke [[:r 3 nil]]",
                "1 ok [[:r 3 17]] :txn-id 6 :session 1",
            ]
        );
        let counts = (facts.sessions, facts.transactions, facts.committed, facts.aborted, facts.events);
        assert_eq!(counts, (2, 2, 2, 0, 3));
        assert!(!facts.real_time);
    }

    #[test]
    fn interleaved_transactions_come_out_whole_and_in_the_order_of_their_first_lines() {
        let text = b"w(1,1,7,1)\nw(2,1,8,2)\nw(1,2,7,1)\nw(3,1,7,3)\nw(2,2,8,2)";
        let (events, _) = read_text(text).unwrap();
        assert_eq!(
            events.iter().step_by(2).collect::<Vec<_>>(),
            ["0 invoke [[:w 1 1] [:w 1 2]]", "1 invoke [[:w 2 1] [:w 2 2]]", "0 invoke [[:w 3 1]]"]
        );
        assert_eq!(places(|sink| read(&mut &text[..], sink)), [1, 1, 2, 2, 4, 4]);
    }

    #[test]
    fn each_line_of_transaction_minus_one_is_an_aborted_transaction() {
        let (events, facts) = read_text(b"w(1,5,0,-1)\nw(2,6,0,-1)\nr(1,5,1,3)\n").unwrap();
        assert_eq!(
            events,
            [
                "0 invoke [[:w 1 5]]",
                "0 fail [[:w 1 5]] :session 0",
                "0 invoke [[:w 2 6]]",
                "0 fail [[:w 2 6]] :session 0",
                "1 invoke [[:r 1 nil]]",
                "1 ok [[:r 1 5]] :txn-id 3 :session 1",
            ]
        );
        assert_eq!((facts.committed, facts.aborted), (1, 2));
    }

    #[test]
    fn transactions_numbered_within_each_session_are_kept_apart() {
        let (events, _) = read_text(b"w(1,1,0,0)\nw(1,2,1,0)\n").unwrap();
        assert_eq!(events.iter().step_by(2).collect::<Vec<_>>(), ["0 invoke [[:w 1 1]]", "1 invoke [[:w 1 2]]"]);
    }

    #[test]
    fn zero_is_a_value_where_a_committed_transaction_writes_it() {
        let (events, _) = read_text(b"r(1,0,0,1)\nr(2,0,0,1)\nr(3,0,0,1)\nw(1,0,1,2)\nw(3,0,1,-1)").unwrap();
        assert_eq!(events[1], "0 ok [[:r 1 0] [:r 2 nil] [:r 3 nil]] :txn-id 1 :session 0");
    }

    #[test]
    fn numbers_of_any_size_are_kept_exactly_and_white_space_is_let_through() {
        let (events, _) =
            read_text(b"\r\n w( 18446744073709551615 , 007,0,1) \r\n\r\nw(9223372036854775808,1,0,1)").unwrap();
        assert_eq!(events[0], "0 invoke [[:w 18446744073709551615 7] [:w 9223372036854775808 1]]");
    }

    #[test]
    fn what_is_no_operation_is_an_error_at_its_line() {
        let bad: [&[u8]; 15] = [
            b"x(1,2,3,4)",
            b"w(1,2,3)",
            b"w(1,2,3,4,5)",
            b"w(1,2,3,4",
            b"w1,2,3,4)",
            b"w(-1,2,3,4)",
            b"w(1,-2,3,4)",
            b"w(1,2,-3,4)",
            b"w(1,2,3,-2)",
            b"w(1,2,3,+4)",
            b"w(,2,3,4)",
            b"w(1,2,3,4))",
            b"w(\xff,2,3,4)",
            b"rw",
            b"w 1 2",
        ];
        for line in bad {
            let text = [b"w(1,1,0,0)\n\n", line, b"\nw(1,2,0,1)"].concat();
            let e = read_text(&text).unwrap_err();
            assert_eq!(e.place, crate::Place::Line(3), "{}: {e}", quoted(line));
            assert!(!e.hint.is_empty() && !is_line(line));
        }
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_memory() {
        let e = read(&mut std::io::repeat(b'w'), &mut |_| Ok(())).unwrap_err();
        assert_eq!(e.to_string().split(" (").next(), Some("line 1: a line is longer than 65536 bytes"));
    }

    #[test]
    fn a_text_cut_anywhere_is_read_or_refused_in_words() {
        let text = b"w(3,17,0,5)\nr(4,0,0,5)\nw(5,1,0,-1)\nr(3,17,1,6)\n";
        for end in 0..text.len() {
            match read_text(&text[..end]) {
                Ok((events, facts)) => assert_eq!(events.len() as u64, 2 * facts.transactions),
                Err(e) => assert!(matches!(e.place, crate::Place::Line(1..=4)) && !e.what.is_empty()),
            }
        }
    }

    #[test]
    fn a_long_history_comes_in_batches() {
        let text: String = (0..20_000).map(|n| format!("w(1,{n},{},{n})\n", n % 7)).collect();
        let (events, facts) = read_text(text.as_bytes()).unwrap();
        assert_eq!((events.len(), facts.sessions), (40_000, 7));
        assert_eq!(events[39_999], "0 ok [[:w 1 19999]] :txn-id 19999 :session 0");
    }
}
