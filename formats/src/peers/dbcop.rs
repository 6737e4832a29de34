//! What did these clients see, in the files of dbcop?
//!
//! Two forms. The older is bincode: a header, then sessions of transactions of events. The newer is JSON with the same
//! nesting, in which a read of the initial version is `null`, and in which an event may also be the tuple
//! `["r", variable, version]`. In both zero is the initial value, unless somebody writes it (newer generators, and
//! AWDIT's converter, write the initial transaction out).
//!
//! **A transaction without success aborted, and so did its writes**; forgetting that accuses valid histories of reading
//! values that nobody wrote.
//!
//! **An event without success did not happen**, also in a transaction that committed: its statement returned an error. A
//! failed read says nothing, and a failed write wrote nothing. Of the 3,269 failed writes in the 149 files of the corpus
//! not one was ever read.
//!
//! **But a committed transaction in which something failed is doubtful.** There are 797 in the corpus, and of the 5,810
//! writes that stand before a failure in one, none was ever read by another transaction: the database had rolled them
//! back with the failing statement, and the recorder took what `COMMIT` answered next for success. (CockroachDB fails
//! every later statement too; Galera goes on, and what comes after is seen.) The format cannot say that, so such
//! transactions stay committed here, as in the checkers whose verdicts are known. It matters: 108 of the files violate
//! read atomicity or causality read so, and none when what stands before a failure counts as rolled back. They are
//! counted therefore ([`Facts::doubtful`]), and their completions name what failed (`failed`, a transaction) and at which
//! of the recorded positions, from 0 (`failed-at`), so that they can be read the other way.
//!
//! Cost: two passes over the slice, the first to check that it is whole and to see who writes zero; one transaction is
//! held at a time. Places of events are transactions, counted from 1.

use super::bincode1::Cursor;
use super::json::{Json, Peek};
use super::{Access, Emitter, Facts, Initial, Sink, TRANSACTION_ELEMENTS, ZeroWritten, too_large};
use crate::error::{Place, ReadError, Result};
use crate::event::{Cell, EventType};

/// Reads either form.
pub fn read(input: &[u8], sink: Sink<'_>) -> Result<Facts> {
    if is_json(input) { read_json(input, sink) } else { read_bincode(input, sink) }
}

/// A JSON object has no NUL; every bincode header has, as it begins with five small integers of eight bytes.
pub(super) fn is_json(input: &[u8]) -> bool {
    let head = input.get(..40).unwrap_or(input);
    head.trim_ascii_start().first() == Some(&b'{') && !head.contains(&0)
}

/// What a file says about the run. The counts are what the generator was asked for, by some tools per session and per
/// transaction and by others in all: they bind nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'b> {
    /// Number of the history.
    pub id: u64,
    /// Sessions asked for.
    pub nodes: u64,
    /// Keys asked for.
    pub variables: u64,
    /// Transactions asked for.
    pub transactions: u64,
    /// Events asked for.
    pub events: u64,
    /// Usually the name of the database.
    pub info: &'b str,
    /// When the run began (RFC 3339).
    pub start: &'b str,
    /// When it ended.
    pub end: &'b str,
}

/// The header of the bincode form.
pub fn header(input: &[u8]) -> Result<Header<'_>> {
    read_header(&mut Cursor::new(input))
}

fn read_header<'b>(cursor: &mut Cursor<'b>) -> Result<Header<'b>> {
    Ok(Header {
        id: cursor.u64("the header")?,
        nodes: cursor.u64("the header")?,
        variables: cursor.u64("the header")?,
        transactions: cursor.u64("the header")?,
        events: cursor.u64("the header")?,
        info: cursor.str("the description")?,
        start: cursor.str("the start time")?,
        end: cursor.str("the end time")?,
    })
}

/// Reads the bincode form. The whole of it must be a history.
pub fn read_bincode(input: &[u8], sink: Sink<'_>) -> Result<Facts> {
    let mut reading = Reading::new(sink);
    walk_bincode(input, &mut reading)?;
    reading.begin_second_pass();
    let sessions = walk_bincode(input, &mut reading)?;
    reading.emitter.end(sessions)
}

fn walk_bincode(input: &[u8], reading: &mut Reading<'_>) -> Result<u64> {
    let mut cursor = Cursor::new(input);
    read_header(&mut cursor)?;
    let sessions = cursor.len("the number of sessions", 8)?;
    for session in 0..sessions {
        for _ in 0..cursor.len("the number of transactions", 9)? {
            for position in 0..cursor.len("the number of events", 18)? {
                let write = cursor.bool("the kind of an event")?;
                let variable = cursor.u64("an event")?;
                let value = cursor.u64("an event")?;
                let happened = cursor.bool("the success of an event")?;
                let (key, value) = (reading.emitter.unsigned(variable), reading.emitter.unsigned(value));
                let access = if write { Access::Write } else { Access::Read };
                reading.event(AnEvent { position, access, key, value, happened })?;
            }
            let committed = cursor.bool("the success of a transaction")?;
            reading.transaction(session, committed)?;
        }
    }
    cursor.end()?;
    Ok(sessions)
}

/// Reads the JSON form.
pub fn read_json(input: &[u8], sink: Sink<'_>) -> Result<Facts> {
    let mut reading = Reading::new(sink);
    walk_json(input, &mut reading)?;
    reading.begin_second_pass();
    let sessions = walk_json(input, &mut reading)?;
    reading.emitter.end(sessions)
}

fn walk_json(input: &[u8], reading: &mut Reading<'_>) -> Result<u64> {
    let mut json = Json::new(input)?;
    let mut sessions = None;
    json.fields(&["data"], |json, name| {
        if name != "data" {
            return json.skip();
        }
        if sessions.is_some() {
            return Err(json.fail("there are two fields \"data\""));
        }
        let mut session = 0;
        json.items(|json| {
            json.items(|json| json_transaction(json, session, reading))?;
            session += 1;
            Ok(())
        })?;
        sessions = Some(session);
        Ok(())
    })?;
    json.end()?;
    sessions.ok_or_else(|| {
        ReadError::new("there is no field \"data\"").hint("expected {\"params\": …, \"data\": [[{\"events\": …}]]}")
    })
}

fn json_transaction(json: &mut Json<'_>, session: u64, reading: &mut Reading<'_>) -> Result<()> {
    let (mut committed, mut events) = (None, false);
    json.fields(&["events", "committed"], |json, name| match name {
        "events" if events => Err(json.fail("a transaction has two fields \"events\"")),
        "events" => {
            events = true;
            let mut position = 0;
            json.items(|json| {
                let (access, key, value) = json_event(json, reading)?;
                reading.event(AnEvent { position, access, key, value, happened: true })?;
                position += 1;
                Ok(())
            })
        }
        "committed" => {
            committed = Some(json.bool()?);
            Ok(())
        }
        _ => json.skip(),
    })?;
    match committed {
        Some(committed) if events => reading.transaction(session, committed),
        _ => Err(json.fail("a transaction lacks \"events\" or \"committed\"")),
    }
}

fn json_event(json: &mut Json<'_>, reading: &mut Reading<'_>) -> Result<(Access, Cell, Cell)> {
    let (mut access, mut key, mut value) = (None, None, None);
    if json.peek()? == Peek::Array {
        let mut column = 0;
        json.items(|json| {
            column += 1;
            match column {
                1 => access = json.str(|name| access_of(name, ["r", "w"]))?,
                2 => key = reading.number(json)?,
                3 => value = Some(reading.number(json)?),
                _ => return Err(json.fail("an event has more than three parts")),
            }
            Ok(())
        })?;
    } else {
        json.fields(&["Read", "Write"], |json, name| {
            if access.is_some() {
                return Err(json.fail("an event is two events"));
            }
            access = access_of(name, ["Read", "Write"]);
            if access.is_none() {
                return json.skip();
            }
            json.fields(&["variable", "version"], |json, name| {
                match name {
                    "variable" => key = reading.number(json)?,
                    "version" => value = Some(reading.number(json)?),
                    _ => json.skip()?,
                }
                Ok(())
            })
        })?;
    }
    // Serde reads a version that is left out as null; only a read may have none.
    let value = value.flatten();
    match (access, key, value) {
        (Some(Access::Read), Some(key), value) => Ok((Access::Read, key, value.unwrap_or(Cell::Nil))),
        (Some(Access::Write), Some(key), Some(value)) => Ok((Access::Write, key, value)),
        _ => {
            let e = json.fail("an event is neither a read nor a write of a version of a variable");
            Err(e.hint("expected {\"Read\": {\"variable\": 1, \"version\": null}} or {\"Write\": …}"))
        }
    }
}

fn access_of(name: &str, [read, write]: [&str; 2]) -> Option<Access> {
    match name {
        name if name == read => Some(Access::Read),
        name if name == write => Some(Access::Write),
        _ => None,
    }
}

/// An event of a transaction.
struct AnEvent {
    position: u64,
    access: Access,
    key: Cell,
    value: Cell,
    happened: bool,
}

/// The same for both forms: two passes over transactions.
struct Reading<'s> {
    emitter: Emitter<'s>,
    second_pass: bool,
    zero: ZeroWritten,
    /// Keys to which the transaction at hand writes zero, which counts only if it commits.
    zeros_here: Vec<Cell>,
    failed: Vec<AnEvent>,
    place: u64,
}

impl<'s> Reading<'s> {
    fn new(sink: Sink<'s>) -> Self {
        let mut emitter = Emitter::new(sink);
        emitter.facts.initial = Initial::Zero;
        Reading {
            emitter,
            second_pass: false,
            zero: ZeroWritten::default(),
            zeros_here: vec![],
            failed: vec![],
            place: 0,
        }
    }

    fn begin_second_pass(&mut self) {
        self.second_pass = true;
        self.place = 0;
    }

    fn number(&mut self, json: &mut Json<'_>) -> Result<Option<Cell>> {
        json.integer(|digits| if digits.starts_with('-') { None } else { self.emitter.integer(digits) })
    }

    fn event(&mut self, event: AnEvent) -> Result<()> {
        if !self.second_pass {
            if event.happened && event.access == Access::Write && event.value == Cell::Int(0) {
                self.zeros_here.push(event.key);
            }
            return Ok(());
        }
        if !event.happened {
            if self.failed.len() >= TRANSACTION_ELEMENTS {
                return Err(too_large().at(Place::Row(self.place + 1)));
            }
            self.failed.push(event);
            return Ok(());
        }
        let AnEvent { access, key, value, .. } = event;
        let value = if access == Access::Read { self.zero.read(key, value) } else { value };
        self.emitter.access(access, key, value).map_err(|e| e.at(Place::Row(self.place + 1)))
    }

    fn transaction(&mut self, session: u64, committed: bool) -> Result<()> {
        self.place += 1;
        if !self.second_pass {
            for key in self.zeros_here.drain(..) {
                if committed {
                    self.zero.note(key, Cell::Int(0));
                }
            }
            return Ok(());
        }
        self.say_what_failed(committed).map_err(|e| e.at(Place::Row(self.place)))?;
        self.emitter.finish(self.place, session, if committed { EventType::Ok } else { EventType::Fail })
    }

    fn say_what_failed(&mut self, committed: bool) -> Result<()> {
        if self.failed.is_empty() {
            return Ok(());
        }
        let emitter = &mut self.emitter;
        let count = self.failed.len() as u64;
        emitter.facts.events += count;
        emitter.facts.failed_events += count;
        emitter.facts.doubtful += u64::from(committed);
        let happened = std::mem::take(&mut emitter.accesses);
        let positions = emitter.ints(self.failed.iter().map(|event| event.position as i64))?;
        emitter.accesses.extend(self.failed.drain(..).map(|event| {
            // What a failed read holds is what the generator put there.
            let value = if event.access == Access::Read { Cell::Nil } else { event.value };
            (event.access, event.key, value)
        }));
        let failed = emitter.transaction(|_, value| value)?;
        emitter.accesses = happened;
        emitter.extra("failed", failed);
        emitter.extra("failed-at", positions);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{corpus, events, places};
    use super::*;

    /// Write, variable, value, success.
    type Event = (bool, u64, u64, bool);
    type History = (u64, u64, u64, u64, u64, String, String, String, Vec<Vec<(Vec<Event>, bool)>>);

    /// Bincode by the crate of that name: slow, trusting, and not ours.
    fn legacy() -> impl bincode::config::Config {
        bincode::config::legacy()
    }

    fn history(sessions: Vec<Vec<(Vec<Event>, bool)>>) -> Vec<u8> {
        let time = String::from("2019-04-02T02:27:36.173312250+02:00");
        let history: History = (35, 3, 180, 30, 20, "Galera".into(), time.clone(), time, sessions);
        bincode::encode_to_vec(history, legacy()).unwrap()
    }

    fn read_bytes(bytes: &[u8]) -> Result<(Vec<String>, Facts)> {
        events(|sink| read(bytes, sink))
    }

    fn small() -> Vec<u8> {
        let first = vec![(vec![(true, 1, 5, true), (false, 2, 0, true)], true), (vec![(true, 1, 6, true)], false)];
        history(vec![first, vec![(vec![(false, 1, 5, true)], true)], vec![]])
    }

    #[test]
    fn an_aborted_transaction_and_its_writes_did_not_happen() {
        let (events, facts) = read_bytes(&small()).unwrap();
        assert_eq!(
            events,
            [
                "0 invoke [[:w 1 5] [:r 2 nil]]",
                "0 ok [[:w 1 5] [:r 2 nil]]",
                "0 invoke [[:w 1 6]]",
                "0 fail [[:w 1 6]]",
                "1 invoke [[:r 1 nil]]",
                "1 ok [[:r 1 5]]",
            ]
        );
        let counts = (facts.sessions, facts.transactions, facts.committed, facts.aborted, facts.events);
        assert_eq!(counts, (3, 3, 2, 1, 4));
        assert_eq!(places(|sink| read(&small(), sink)), [1, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn an_event_that_failed_is_in_no_transaction_but_is_told() {
        let transaction = vec![(true, 1, 5, true), (true, 2, 6, false), (false, 3, 9, false), (false, 1, 5, true)];
        let (events, facts) =
            read_bytes(&history(vec![vec![(transaction, true), (vec![(true, 4, 1, false)], true)]])).unwrap();
        assert_eq!(
            events,
            [
                "0 invoke [[:w 1 5] [:r 1 nil]]",
                "0 ok [[:w 1 5] [:r 1 5]] :failed [[:w 2 6] [:r 3 nil]] :failed-at [1 2]",
                "0 invoke []",
                "0 ok [] :failed [[:w 4 1]] :failed-at [0]",
            ]
        );
        assert_eq!((facts.events, facts.failed_events, facts.doubtful), (5, 3, 2));
    }

    #[test]
    fn zero_is_a_value_where_a_committed_transaction_writes_it() {
        let init = vec![(true, 1, 0, true), (true, 2, 0, false)];
        let reads = |committed| (vec![(false, 1, 0, true), (false, 2, 0, true), (false, 3, 0, true)], committed);
        let aborted = (vec![(true, 3, 0, true)], false);
        let (events, _) = read_bytes(&history(vec![vec![reads(true)], vec![(init, true), aborted]])).unwrap();
        assert_eq!(events[1], "0 ok [[:r 1 0] [:r 2 nil] [:r 3 nil]]");
    }

    #[test]
    fn values_beyond_64_bits_are_kept_exactly() {
        let (events, _) = read_bytes(&history(vec![vec![(vec![(true, u64::MAX, 1 << 63, true)], true)]])).unwrap();
        assert_eq!(events[0], "0 invoke [[:w 18446744073709551615 9223372036854775808]]");
    }

    #[test]
    fn a_file_cut_anywhere_is_refused_and_so_is_one_that_goes_on() {
        let bytes = small();
        for end in 0..bytes.len() {
            let e = read_bincode(&bytes[..end], &mut |_| panic!("nothing may come of it")).unwrap_err();
            assert!(matches!(e.place, Place::Byte(at) if at <= end as u64), "{e}");
        }
        let e = read_bytes(&[&bytes[..], b"\0"].concat()).unwrap_err();
        assert_eq!(e.place, Place::Byte(bytes.len() as u64));
        assert_eq!(e.what, "1 bytes follow the end of the history");
    }

    #[test]
    fn no_length_is_believed() {
        let bytes = small();
        for at in 0..bytes.len() - 8 {
            let mut hostile = bytes.clone();
            hostile[at..at + 8].fill(0xff);
            if let Err(e) = read_bincode(&hostile, &mut |_| Ok(())) {
                assert!(matches!(e.place, Place::Byte(_)), "{e}");
            }
        }
    }

    #[test]
    fn a_truth_value_is_zero_or_one_and_a_description_is_text() {
        let bytes = small();
        let mut odd = bytes.clone();
        *odd.last_mut().unwrap() = 0;
        assert!(read_bytes(&odd).is_ok());
        let end_of_first = bytes.len() - 8 - 1;
        odd[end_of_first] = 2;
        let e = read_bytes(&odd).unwrap_err();
        assert_eq!(
            (e.place, &e.what[..]),
            (Place::Byte(end_of_first as u64), "the success of a transaction is neither 0 nor 1 but [2]")
        );
        let mut odd = bytes;
        odd[48] = 0xff;
        assert_eq!(read_bytes(&odd).unwrap_err().what, "the description is not UTF-8: \"�alera\"");
    }

    #[test]
    fn both_forms_of_json_are_read() {
        let tagged = r#"{"params": {"id": 0, "n_node": 1}, "info": "generated", "start": "2019-04-02T02:27:36Z", "data": [
            [{"events": [{"Write": {"variable": 1, "version": 5}}, {"Read": {"version": null, "variable": 2}},
                         {"Read": {"variable": 3, "version": 0}}, {"Read": {"variable": 3}}], "committed": true},
             {"committed": false, "events": [{"Write": {"variable": 1, "version": 18446744073709551615}}]}],
            [], [{"events": [], "committed": true}]]}"#;
        let compact = r#"{"data": [[{"events": [["w", 1, 5], ["r", 2, null], ["r", 3, 0], ["r", 3, null]], "committed": true},
            {"committed": false, "events": [["w", 1, 18446744073709551615]], "other": [{}]}],
            [], [{"events": [], "committed": true}]]}"#;
        for json in [tagged, compact] {
            let (events, facts) = read_bytes(json.as_bytes()).unwrap();
            assert_eq!(
                events,
                [
                    "0 invoke [[:w 1 5] [:r 2 nil] [:r 3 nil] [:r 3 nil]]",
                    "0 ok [[:w 1 5] [:r 2 nil] [:r 3 nil] [:r 3 nil]]",
                    "0 invoke [[:w 1 18446744073709551615]]",
                    "0 fail [[:w 1 18446744073709551615]]",
                    "2 invoke []",
                    "2 ok []",
                ]
            );
            assert_eq!((facts.sessions, facts.transactions, facts.committed, facts.events), (3, 3, 2, 5));
        }
    }

    #[test]
    fn the_initial_transaction_that_newer_generators_write_is_read_from() {
        let json = r#"{"data": [[{"events": [["w", 1, 0]], "committed": true}, {"events": [["r", 1, 0]], "committed": true}]]}"#;
        assert_eq!(read_bytes(json.as_bytes()).unwrap().0[3], "0 ok [[:r 1 0]]");
    }

    #[test]
    fn json_of_another_shape_is_refused_with_its_line() {
        let event = |event: &str| format!("{{\"data\":\n[[{{\"events\": [{event}], \"committed\": true}}]]}}");
        let bad = [
            event(r#"{"Write": {"variable": 1, "version": null}}"#),
            event(r#"{"Write": {"variable": 1}}"#),
            event(r#"{"Read": {"version": 1}}"#),
            event(r#"{"Read": {"variable": -1, "version": 1}}"#),
            event(r#"{"Read": {"variable": 1.5, "version": 1}}"#),
            event(r#"{"Read": {"variable": "x", "version": 1}}"#),
            event(r#"{"Read": {"variable": 1, "version": 1}, "Write": {"variable": 1, "version": 2}}"#),
            event(r#"["r", 1, 2, 3]"#),
            event(r#"["x", 1, 2]"#),
            event(r#"["w", 1, null]"#),
            event("7"),
            event("{}"),
            "{\"data\":\n[[{\"events\": []}]]}".into(),
            "{\"data\":\n[[{\"committed\": true}]]}".into(),
            "{\"data\":\n[[{\"events\": [], \"events\": [], \"committed\": true}]]}".into(),
            "{\"data\":\n[], \"data\": []}".into(),
            "{\"data\":\n[]} {}".into(),
            format!("{{\"data\":\n[], \"x\": {}", "[".repeat(100_000)),
        ];
        for json in bad {
            let e = read_json(json.as_bytes(), &mut |_| panic!("nothing may come of it")).unwrap_err();
            assert_eq!(e.place, Place::Line(2), "{e}: {}", json.get(..200).unwrap_or(&json));
        }
        assert_eq!(read_json(b"{}", &mut |_| Ok(())).unwrap_err().what, "there is no field \"data\"");
    }

    #[test]
    fn json_cut_anywhere_is_refused() {
        let json =
            r#"{"params": {}, "data": [[{"events": [{"Write": {"variable": 1, "version": 5}}], "committed": true}]]}"#;
        for end in 0..json.len() {
            read_json(&json.as_bytes()[..end], &mut |_| panic!("nothing may come of it")).unwrap_err();
        }
    }

    #[test]
    fn every_file_of_the_corpus_is_read_as_another_decoder_reads_it() {
        let (mut files, mut totals) = (0, [0; 7]);
        for path in corpus("dbcop") {
            let bytes = std::fs::read(&path).unwrap();
            let (history, size): (History, usize) = bincode::decode_from_slice(&bytes, legacy()).unwrap();
            assert_eq!(size, bytes.len());
            let expected: Vec<String> =
                history.8.iter().enumerate().flat_map(|(n, s)| s.iter().map(move |t| naive(n, t))).collect();
            let (events, facts) = read_bytes(&bytes).unwrap();
            let completions = events.iter().skip(1).step_by(2).map(|event| event.split(" :failed").next().unwrap());
            assert!(completions.eq(expected.iter().map(String::as_str)), "{}", path.display());
            assert_eq!(facts.sessions, header(&bytes).unwrap().nodes);
            let header = header(&bytes).unwrap();
            assert_eq!(facts.transactions, header.nodes * header.transactions);
            assert_eq!(facts.events, facts.transactions * header.events);
            let Facts { sessions, transactions, committed, aborted, events, failed_events, doubtful, .. } = facts;
            let counts = [sessions, transactions, committed, aborted, events, failed_events, doubtful];
            totals = std::array::from_fn(|i| totals[i] + counts[i]);
            files += 1;
        }
        // Counted by another program.
        assert!(files == 0 || (files, totals) == (149, [1062, 31_980, 30_819, 1161, 636_000, 6367, 797]));
    }

    fn naive(session: usize, (events, committed): &(Vec<Event>, bool)) -> String {
        let mops: Vec<String> = events
            .iter()
            .filter(|event| event.3)
            .map(|&(write, key, value, _)| match (write, value) {
                (true, _) => format!("[:w {key} {value}]"),
                (false, 0) => format!("[:r {key} nil]"),
                (false, _) => format!("[:r {key} {value}]"),
            })
            .collect();
        format!("{session} {} [{}]", if *committed { "ok" } else { "fail" }, mops.join(" "))
    }
}
