//! What did these clients see, in AWDIT's own text?
//!
//! ```text
//! w 0 1        wrote 1 to key 0
//! -----        next transaction
//! r 0 1        read 1 from key 0
//! =====        next session
//! ```
//!
//! All transactions committed. There is no implicit initial value: its suite writes `w 0 0` where zero may be read, in
//! whatever session, so values stay what they are. A separator with nothing before it separates nothing: real files end
//! in one. One transaction is held at a time.

use super::lines::Lines;
use super::{Access, Emitter, Facts, Sink, at_line, quoted};
use crate::error::{ReadError, Result};
use crate::event::EventType;
use std::io::Read;

/// Reads an AWDIT text.
pub fn read(input: &mut dyn Read, sink: Sink<'_>) -> Result<Facts> {
    let mut emitter = Emitter::new(sink);
    let mut lines = Lines::new(input);
    let (mut session, mut session_used, mut first_line) = (0, false, 0);
    while let Some((number, line)) = lines.next()? {
        match Line::parse(line) {
            Some(Line::Access(access, key, value)) => {
                if emitter.accesses.is_empty() {
                    first_line = number;
                }
                let cells = (emitter.integer(key), emitter.integer(value));
                let (Some(key), Some(value)) = cells else { return Err(at_line(number)(unknown(line))) };
                emitter.access(access, key, value).map_err(at_line(number))?;
            }
            Some(Line::NextTransaction) => session_used |= finish(&mut emitter, first_line, session)?,
            Some(Line::NextSession) => {
                session_used |= finish(&mut emitter, first_line, session)?;
                session += u64::from(session_used);
                session_used = false;
            }
            None => return Err(at_line(number)(unknown(line))),
        }
    }
    session_used |= finish(&mut emitter, first_line, session)?;
    emitter.end(session + u64::from(session_used))
}

/// Ends the transaction at hand, if there is one.
fn finish(emitter: &mut Emitter<'_>, line: u64, session: u64) -> Result<bool> {
    if emitter.accesses.is_empty() {
        return Ok(false);
    }
    emitter.finish(line, session, EventType::Ok)?;
    Ok(true)
}

fn unknown(line: &[u8]) -> ReadError {
    ReadError::new(format!("{} is neither an operation nor a separator", quoted(line)))
        .hint("expected \"r key value\", \"w key value\", \"-----\" or \"=====\", numbers being decimal digits")
}

/// A line that is not blank.
pub(super) enum Line<'l> {
    Access(Access, &'l str, &'l str),
    NextTransaction,
    NextSession,
}

impl Line<'_> {
    pub(super) fn parse(line: &[u8]) -> Option<Line<'_>> {
        match line.first()? {
            b'-' => line.iter().all(|&byte| byte == b'-').then_some(Line::NextTransaction),
            b'=' => line.iter().all(|&byte| byte == b'=').then_some(Line::NextSession),
            _ => Line::access(std::str::from_utf8(line).ok()?),
        }
    }

    fn access(line: &str) -> Option<Line<'_>> {
        let mut words = line.split_ascii_whitespace();
        let access = match words.next()? {
            "r" => Access::Read,
            "w" => Access::Write,
            _ => return None,
        };
        let mut number = || words.next().filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
        let (key, value) = (number()?, number()?);
        words.next().is_none().then_some(Line::Access(access, key, value))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{corpus, events, places};
    use super::*;

    fn read_text(text: &[u8]) -> Result<(Vec<String>, Facts)> {
        events(|sink| read(&mut &*text, sink))
    }

    #[test]
    fn separators_end_transactions_and_sessions() {
        let text = b"w 0 0\nw 1 0\n=====\nr 0 0\n-----\nr 1 0\nw 0 1";
        let (events, facts) = read_text(text).unwrap();
        assert_eq!(
            events,
            [
                "0 invoke [[:w 0 0] [:w 1 0]]",
                "0 ok [[:w 0 0] [:w 1 0]]",
                "1 invoke [[:r 0 nil]]",
                "1 ok [[:r 0 0]]",
                "1 invoke [[:r 1 nil] [:w 0 1]]",
                "1 ok [[:r 1 0] [:w 0 1]]",
            ]
        );
        assert_eq!((facts.sessions, facts.transactions, facts.committed, facts.events), (2, 3, 3, 5));
        assert_eq!(facts.initial, super::super::Initial::Marked);
        assert_eq!(places(|sink| read(&mut &text[..], sink)), [1, 1, 4, 4, 6, 6]);
    }

    #[test]
    fn separators_with_nothing_between_them_separate_nothing() {
        let (events, facts) =
            read_text(b"=====\n-----\n\nw 0 1\r\n-----\n-----\n=====\n=====\nr 0 1\n-----\n").unwrap();
        assert_eq!(events, ["0 invoke [[:w 0 1]]", "0 ok [[:w 0 1]]", "1 invoke [[:r 0 nil]]", "1 ok [[:r 0 1]]"]);
        assert_eq!((facts.sessions, facts.transactions), (2, 2));
        assert_eq!(read_text(b"").unwrap().1, Facts::default());
    }

    #[test]
    fn what_is_neither_operation_nor_separator_is_an_error_at_its_line() {
        let bad: [&[u8]; 13] = [
            b"w 0",
            b"w 0 1 2",
            b"x 0 1",
            b"w -1 0",
            b"w 0 -1",
            b"w 0 +1",
            b"-----=====",
            b"----- r 0 1",
            b"w 0 \xff",
            b"w01",
            b"W 0 1",
            b"w 0 1.5",
            b"w a 1",
        ];
        for line in bad {
            let e = read_text(&[b"w 0 1\n-----\n", line, b"\n"].concat()).unwrap_err();
            assert_eq!(e.place, crate::Place::Line(3), "{e}");
            assert!(!e.hint.is_empty());
        }
    }

    #[test]
    fn values_beyond_64_bits_are_kept_exactly() {
        let (events, _) = read_text(b"w 18446744073709551615 99999999999999999999999").unwrap();
        assert_eq!(events[0], "0 invoke [[:w 18446744073709551615 99999999999999999999999]]");
    }

    #[test]
    fn every_file_of_the_suite_is_read_as_a_reader_that_splits_text_does() {
        let (mut files, mut totals) = (0, [0; 3]);
        for path in corpus("awdit-tests") {
            let text = std::fs::read_to_string(&path).unwrap();
            let naive: Vec<String> = text
                .split("=====")
                .enumerate()
                .flat_map(|(session, part)| part.split("-----").map(move |transaction| (session, transaction.trim())))
                .filter(|(_, transaction)| !transaction.is_empty())
                .map(|(session, transaction)| {
                    format!("{session} ok [[:{}]]", transaction.lines().collect::<Vec<_>>().join("] [:"))
                })
                .collect();
            let (events, facts) = read_text(text.as_bytes()).unwrap();
            assert_eq!(events.into_iter().skip(1).step_by(2).collect::<Vec<_>>(), naive, "{}", path.display());
            let counts = [facts.sessions, facts.transactions, facts.events];
            totals = std::array::from_fn(|i| totals[i] + counts[i]);
            files += 1;
        }
        assert!(files == 0 || (files, totals) == (14, TOTALS));
    }

    /// Sessions, transactions and operations in the suite, counted by another program.
    const TOTALS: [u64; 3] = [98, 418, 1462];
}
