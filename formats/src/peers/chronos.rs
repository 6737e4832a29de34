//! What did these clients see, in the JSON of Chronos and Aion?
//!
//! ```text
//! [{"tid": 67, "sid": 19, "sts": {"p": 1691420095436341, "l": 61}, "cts": {"p": 1691420095659914, "l": 18},
//!   "ops": [{"t": "w", "k": 7, "v": 2}, {"t": "r", "k": 8, "v": 3}]}, …]
//! ```
//!
//! Every transaction committed. `t` is `r`, `w` or `a`, or the whole word, in any case; a read's `v` may be an integer, a
//! list, null or missing; large integers may stand in quotes; `tid` and `sid` may be strings.
//!
//! The start and commit timestamps are the database's own, on hybrid clocks, and say when a snapshot was taken and
//! committed *according to the database*. They are claims to be checked, not real time, so they become extras of the
//! completion: `start-ts` and `commit-ts`, each `[p l]`; `rtts`, which Aion adds, too, and `txn-id` and `session`.
//!
//! The format leaves the initial value to an option of the tool: null or zero. Real files have one or the other, so:
//! where nobody reads null and nobody writes zero, zero is the initial value ([`Facts::initial`]). This accuses nobody: a
//! zero that nobody wrote was there before.
//!
//! Cost: two passes over the slice, the first to check that it is whole and to learn what zero means; one transaction is
//! held at a time. Places are transactions, counted from 1.

use super::json::{Json, Peek};
use super::{Access, Emitter, Facts, Initial, Sessions, Sink};
use crate::error::{Place, ReadError, Result};
use crate::event::{Cell, EventType};
use crate::value::Value;

/// The fields of a transaction.
pub(super) const FIELDS: [&str; 6] = ["tid", "sid", "sts", "cts", "ops", "rtts"];

/// Reads a Chronos history.
pub fn read(input: &[u8], sink: Sink<'_>) -> Result<Facts> {
    let mut first = Reading::new(Emitter::new(sink), Initial::Marked);
    let (mut reads_null, mut reads_zero, mut writes_zero) = (false, false, false);
    walk(input, &mut first, |reading, _| {
        for &(access, _, value) in &reading.emitter.accesses {
            reads_null |= access == Access::Read && value == Cell::Nil;
            reads_zero |= access == Access::Read && value == Cell::Int(0);
            writes_zero |= access == Access::Write && value == Cell::Int(0);
        }
        reading.emitter.forget();
        Ok(())
    })?;
    let zero = reads_zero && !reads_null && !writes_zero;
    let mut second = Reading::new(first.emitter, if zero { Initial::Zero } else { Initial::Marked });
    second.emitter.facts = Facts { initial: second.initial, ..Facts::default() };
    walk(input, &mut second, |reading, place| {
        let transaction = std::mem::take(&mut reading.transaction);
        let Some(session) = transaction.session else {
            return Err(ReadError::new("a transaction has no session \"sid\"").at(Place::Row(place)));
        };
        let process = reading.sessions.process(session);
        for (name, value) in transaction.extras() {
            reading.emitter.extra(name, value);
        }
        reading.emitter.finish(place, process, EventType::Ok)
    })?;
    second.emitter.end(second.sessions.len())
}

/// Calls back with each transaction, its accesses in the emitter.
fn walk(
    input: &[u8],
    reading: &mut Reading<'_>,
    mut then: impl FnMut(&mut Reading<'_>, u64) -> Result<()>,
) -> Result<()> {
    let mut json = Json::new(input)?;
    let mut place = 0;
    json.items(|json| {
        place += 1;
        reading.transaction(json)?;
        then(reading, place)
    })?;
    json.end()
}

/// What a transaction says about itself beside its operations.
#[derive(Clone, Copy, Default)]
struct Transaction {
    name: Option<Cell>,
    session: Option<Cell>,
    start: Option<Cell>,
    commit: Option<Cell>,
    real_time: Option<Cell>,
}

impl Transaction {
    fn extras(&self) -> impl Iterator<Item = (&'static str, Cell)> {
        let all = [
            ("txn-id", self.name),
            ("session", self.session),
            ("start-ts", self.start),
            ("commit-ts", self.commit),
            ("rtts", self.real_time),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }
}

struct Reading<'s> {
    emitter: Emitter<'s>,
    initial: Initial,
    sessions: Sessions,
    transaction: Transaction,
    elements: Vec<Cell>,
}

impl<'s> Reading<'s> {
    fn new(emitter: Emitter<'s>, initial: Initial) -> Self {
        Reading {
            emitter,
            initial,
            sessions: Sessions::default(),
            transaction: Transaction::default(),
            elements: vec![],
        }
    }

    fn transaction(&mut self, json: &mut Json<'_>) -> Result<()> {
        self.transaction = Transaction::default();
        let mut operations = false;
        json.fields(&FIELDS, |json, name| {
            match name {
                "tid" => self.transaction.name = self.name(json)?,
                "sid" => self.transaction.session = self.name(json)?,
                "sts" => self.transaction.start = Some(self.timestamp(json)?),
                "cts" => self.transaction.commit = Some(self.timestamp(json)?),
                "rtts" => self.transaction.real_time = json.integer(|digits| self.emitter.integer(digits))?,
                "ops" if operations => return Err(json.fail("a transaction has two fields \"ops\"")),
                "ops" => {
                    operations = true;
                    json.items(|json| self.operation(json))?;
                }
                _ => json.skip()?,
            }
            Ok(())
        })?;
        if self.transaction.session.is_none() || !operations {
            return Err(json
                .fail("a transaction has no session or no operations")
                .hint("expected {\"tid\": …, \"sid\": …, \"sts\": …, \"cts\": …, \"ops\": […]}"));
        }
        Ok(())
    }

    /// A number or a string that names something.
    fn name(&mut self, json: &mut Json<'_>) -> Result<Option<Cell>> {
        if json.peek()? == Peek::String {
            let edn = json.str(|name| Value::str(name).to_edn())?;
            return Ok(Some(Cell::Text(self.emitter.batch.name(&edn))));
        }
        json.integer(|digits| self.emitter.integer(digits))
    }

    /// A hybrid clock's time as `[p l]`.
    fn timestamp(&mut self, json: &mut Json<'_>) -> Result<Cell> {
        let (mut physical, mut logical) = (None, None);
        json.fields(&["p", "l"], |json, name| {
            match name {
                "p" => physical = json.integer(|digits| self.emitter.integer(digits))?,
                "l" => logical = json.integer(|digits| self.emitter.integer(digits))?,
                _ => json.skip()?,
            }
            Ok(())
        })?;
        let Some(physical) = physical else {
            return Err(json.fail("a timestamp has no physical part \"p\""));
        };
        self.emitter.list(&[physical, logical.unwrap_or(Cell::Int(0))])
    }

    fn operation(&mut self, json: &mut Json<'_>) -> Result<()> {
        let (mut access, mut key, mut value) = (None, None, Cell::Nil);
        json.fields(&["t", "k", "v"], |json, name| {
            match name {
                "t" => access = json.str(access_of)?,
                "k" => key = json.integer(|digits| self.emitter.integer(digits))?,
                "v" => value = self.value(json)?,
                _ => json.skip()?,
            }
            Ok(())
        })?;
        let (Some(access), Some(key)) = (access, key) else {
            return Err(json
                .fail("an operation is not of a known type, or has no key")
                .hint("expected {\"t\": \"r\", \"k\": 1, \"v\": 2}, the type being r, w or a"));
        };
        match (access, value) {
            (Access::Read, Cell::Int(0)) if self.initial == Initial::Zero => value = Cell::Nil,
            (Access::Append, Cell::Nil) => return Err(json.fail("an append appends nothing")),
            (Access::Write | Access::Append, Cell::List(_) | Cell::Seq(_)) => {
                return Err(json.fail("only a read may have a list for a value"));
            }
            _ => {}
        }
        self.emitter.access(access, key, value)
    }

    fn value(&mut self, json: &mut Json<'_>) -> Result<Cell> {
        if json.peek()? != Peek::Array {
            return Ok(json.integer(|digits| self.emitter.integer(digits))?.unwrap_or(Cell::Nil));
        }
        self.elements.clear();
        let Reading { emitter, elements, .. } = self;
        json.items(|json| match json.integer(|digits| emitter.integer(digits))? {
            Some(element) => {
                elements.push(element);
                Ok(())
            }
            None => Err(json.fail("a list holds null")),
        })?;
        emitter.list(elements)
    }
}

fn access_of(name: &str) -> Option<Access> {
    let is = |short: &str, long: &str| name.eq_ignore_ascii_case(short) || name.eq_ignore_ascii_case(long);
    match () {
        () if is("r", "read") => Some(Access::Read),
        () if is("w", "write") => Some(Access::Write),
        () if is("a", "append") => Some(Access::Append),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{events, places};
    use super::*;

    fn read_json(json: &str) -> Result<(Vec<String>, Facts)> {
        events(|sink| read(json.as_bytes(), sink))
    }

    #[test]
    fn transactions_carry_the_timestamps_of_the_database() {
        let json = r#"[{"tid": 67, "sid": 19, "sts": {"p": 1691420095436341, "l": 61}, "cts": {"p": 1691420095659914, "l": 18},
              "ops": [{"t": "w", "k": 7, "v": 2}, {"t": "r", "k": 8, "v": 3}, {"t": "Read", "k": 9, "v": null}]},
            {"cts": {"l": 0, "p": "320316486"}, "ops": [{"k": 7, "t": "r", "v": 2}, {"k": 1, "t": "WRITE", "v": 4}],
             "sid": "b", "sts": {"l": 0, "p": "320316484"}, "tid": "x", "rtts": 5, "more": [{}]},
            {"tid": 68, "sid": 19, "ops": [{"t": "r", "k": 8}], "sts": {"p": 1}}]"#;
        let (events, facts) = read_json(json).unwrap();
        assert_eq!(
            events,
            [
                "0 invoke [[:w 7 2] [:r 8 nil] [:r 9 nil]]",
                "0 ok [[:w 7 2] [:r 8 3] [:r 9 nil]] :txn-id 67 :session 19 :start-ts [1691420095436341 61] \
                 :commit-ts [1691420095659914 18]",
                "1 invoke [[:r 7 nil] [:w 1 4]]",
                "1 ok [[:r 7 2] [:w 1 4]] :txn-id \"x\" :session \"b\" :start-ts [320316484 0] :commit-ts [320316486 0] :rtts 5",
                "0 invoke [[:r 8 nil]]",
                "0 ok [[:r 8 nil]] :txn-id 68 :session 19 :start-ts [1 0]",
            ]
        );
        let counts = (facts.sessions, facts.transactions, facts.committed, facts.events, facts.initial);
        assert_eq!(counts, (2, 3, 3, 6, Initial::Marked));
        assert_eq!(places(|sink| read(json.as_bytes(), sink)), [1, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn list_histories_append_and_read_lists() {
        let json = r#"[{"tid": 0, "sid": 1, "sts": {"p": 1, "l": 0}, "cts": {"p": 2, "l": 0}, "ops": [{"t": "a", "k": 3, "v": 1},
            {"t": "r", "k": 6, "v": [4, 5, 9]}, {"t": "r", "k": 6, "v": []}, {"t": "append", "k": 3, "v": 18446744073709551615},
            {"t": "r", "k": 3, "v": [1, 18446744073709551615]}]}]"#;
        let (events, _) = read_json(json).unwrap();
        let completion = "0 ok [[:append 3 1] [:r 6 [4 5 9]] [:r 6 []] [:append 3 18446744073709551615] \
                          [:r 3 [1 18446744073709551615]]] :txn-id 0 :session 1 :start-ts [1 0] :commit-ts [2 0]";
        assert_eq!(events[1], completion);
        assert_eq!(
            events[0],
            "0 invoke [[:append 3 1] [:r 6 nil] [:r 6 nil] [:append 3 18446744073709551615] [:r 3 nil]]"
        );
    }

    #[test]
    fn zero_is_initial_where_nobody_writes_it_and_nobody_reads_null() {
        let history = |more: &str| format!(r#"[{{"sid": 1, "ops": [{{"t": "r", "k": 1, "v": 0}}{more}]}}]"#);
        let read = |more| read_json(&history(more)).unwrap();
        let (events, facts) = read("");
        assert_eq!((&events[1][..19], facts.initial), ("0 ok [[:r 1 nil]] :", Initial::Zero));
        for more in [r#", {"t": "r", "k": 2, "v": null}"#, r#", {"t": "w", "k": 2, "v": 0}"#] {
            let (events, facts) = read(more);
            assert_eq!((&events[1][..13], facts.initial), ("0 ok [[:r 1 0", Initial::Marked));
        }
    }

    #[test]
    fn json_of_another_shape_is_refused_with_its_line() {
        let op = |op: &str| format!("[{{\"sid\": 1,\n\"ops\": [{op}]}}]");
        let bad = [
            op(r#"{"t": "x", "k": 1, "v": 2}"#),
            op(r#"{"t": "r", "v": 2}"#),
            op(r#"{"t": "a", "k": 1}"#),
            op(r#"{"t": "w", "k": 1, "v": [1]}"#),
            op(r#"{"t": "r", "k": 1, "v": [null]}"#),
            op(r#"{"t": "r", "k": 1, "v": [[1]]}"#),
            op(r#"{"t": "r", "k": 1.5, "v": 1}"#),
            op(r#"{"t": "r", "k": "a", "v": 1}"#),
            op("[]"),
            "[{\"ops\":\n[]}]".into(),
            "[{\"sid\":\n1}]".into(),
            "[{\"sid\": 1, \"ops\": [],\n\"sts\": 5}]".into(),
            "[{\"sid\": 1, \"ops\": [],\n\"sts\": {\"l\": 5}}]".into(),
            "[{\"sid\": 1,\n\"ops\": [], \"ops\": []}]".into(),
            "[\n] x".into(),
            format!("[{{\"sid\": 1, \"ops\": [],\n\"x\": {}", "[".repeat(100_000)),
        ];
        for json in bad {
            let e = read(json.as_bytes(), &mut |_| panic!("nothing may come of it")).unwrap_err();
            assert_eq!(e.place, Place::Line(2), "{e}: {}", json.get(..200).unwrap_or(&json));
        }
        assert!(read(b"{}", &mut |_| Ok(())).is_err());
        assert!(read(b"[{\"sid\": \"\xff\", \"ops\": []}]", &mut |_| Ok(())).is_err());
    }

    #[test]
    fn json_cut_anywhere_is_refused() {
        let json = r#"[{"tid": 67, "sid": 19, "sts": {"p": 16, "l": 61}, "ops": [{"t": "r", "k": 7, "v": [2]}]}]"#;
        for end in 0..json.len() {
            read(&json.as_bytes()[..end], &mut |_| panic!("nothing may come of it")).unwrap_err();
        }
    }
}
