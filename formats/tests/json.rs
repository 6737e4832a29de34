//! Do the JSON and CSV readers hold against real files and hostile ones?

#![allow(clippy::unwrap_used)]

use elench_formats::event::{Cell, EventBatch, EventType, Process};
use elench_formats::json::{events, sniff, sniff::Shape};
use elench_formats::{ReadError, Result, schema};
use serde_json::Value as Theirs;
use std::io::Read;
use std::path::{Path, PathBuf};

type Reader = fn(&mut dyn Read, &mut dyn FnMut(&mut EventBatch) -> Result<()>) -> Result<()>;

fn as_events(input: &mut dyn Read, sink: &mut dyn FnMut(&mut EventBatch) -> Result<()>) -> Result<()> {
    events::read(input, 1, sink)
}

/// Gives a few bytes at a time.
struct Dribble<'a>(&'a [u8], usize);

impl Read for Dribble<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = self.1.min(buf.len());
        (&mut self.0).take(n as u64).read(buf)
    }
}

/// Each event as one line of text, and how reading ended.
fn lines_of(reader: Reader, input: &mut dyn Read) -> (Vec<String>, Option<ReadError>) {
    let mut lines = Vec::new();
    let end = reader(input, &mut |batch| {
        lines.extend((0..batch.len()).map(|row| line(batch, row)));
        Ok(())
    });
    (lines, end.err())
}

fn line(batch: &EventBatch, row: usize) -> String {
    let edn = |cell: Cell| {
        let mut out = String::new();
        batch.write_edn(cell, &mut out);
        out
    };
    let process = match batch.process[row] {
        Process::Client(n) => n.to_string(),
        Process::Actor(id) => batch.texts.get(id).to_string(),
        Process::Unknown => "?".into(),
    };
    let number = |n: i64| if n == i64::MIN { "-".into() } else { n.to_string() };
    let f = batch.f[row].map_or("-", |f| batch.texts.get(f));
    let mut out = format!(
        "{} {} {} {} {process} {f} {}",
        batch.place[row],
        number(batch.index[row]),
        number(batch.time[row]),
        batch.kind[row].name(),
        edn(batch.value[row])
    );
    for extra in batch.extras.iter().filter(|e| e.row as usize == row) {
        out.push_str(&format!(" {}={}", batch.texts.get(extra.name), edn(extra.value)));
    }
    out
}

fn read_all(reader: Reader, text: &str) -> Vec<String> {
    let (lines, error) = lines_of(reader, &mut text.as_bytes());
    assert!(error.is_none(), "{}", error.unwrap());
    lines
}

fn error_of(reader: Reader, text: &[u8]) -> String {
    lines_of(reader, &mut &*text).1.expect("an error").to_string()
}

fn corpus() -> Option<PathBuf> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/corpus");
    let dir = PathBuf::from(std::env::var("ELENCH_CORPUS").unwrap_or_else(|_| default.into()));
    if !dir.is_dir() {
        println!("skipped: no corpus at {}", dir.display());
        return None;
    }
    Some(dir)
}

fn json_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            json_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "json") {
            found.push(path);
        }
    }
}

/// What we read of these operations must be what another library reads of them.
fn agree(text: &[u8], theirs: &[Theirs], what: &str) {
    assert_eq!(sniff::sniff(&text[..text.len().min(1024)]), Some(Shape::Events), "{what}");
    let mut seen = 0;
    let mut check = |batch: &mut EventBatch| {
        for row in 0..batch.len() {
            let op = &theirs[seen];
            seen += 1;
            assert_eq!(Some(batch.kind[row].name()), op["type"].as_str(), "{what} {seen}");
            assert_eq!(batch.f[row].map(|f| batch.texts.get(f)), op["f"].as_str(), "{what} {seen}");
            assert_eq!(batch.time[row], op["time"].as_i64().unwrap_or(i64::MIN), "{what} {seen}");
            assert_eq!(batch.index[row], op["index"].as_i64().unwrap_or(i64::MIN), "{what} {seen}");
            let process = op["process"].as_i64().map_or(Process::Unknown, Process::Client);
            assert!(op["process"].is_string() || batch.process[row] == process, "{what} {seen}");
            let mut ours = String::new();
            batch.write_edn(batch.value[row], &mut ours);
            assert_eq!(ours, edn(&op["value"], matches!(batch.value[row], Cell::Txn(_))), "{what} {seen}");
            let known = ["type", "f", "time", "index", "process", "value"];
            let extras = op.as_object().unwrap().keys().filter(|k| !known.contains(&k.as_str())).count();
            assert_eq!(batch.extras.iter().filter(|e| e.row as usize == row).count(), extras, "{what} {seen}");
        }
        Ok(())
    };
    events::read(&mut &*text, 1, &mut check).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(seen, theirs.len(), "{what}");
}

/// The EDN of a JSON value, written independently of the readers.
fn edn(value: &Theirs, is_txn: bool) -> String {
    match value {
        Theirs::Null => "nil".into(),
        Theirs::Array(items) if is_txn => {
            let mop = |m: &Theirs| format!("[:{} {} {}]", m[0].as_str().unwrap(), edn(&m[1], false), edn(&m[2], false));
            format!("[{}]", items.iter().map(mop).collect::<Vec<_>>().join(" "))
        }
        Theirs::Array(items) => format!("[{}]", items.iter().map(|v| edn(v, false)).collect::<Vec<_>>().join(" ")),
        Theirs::Object(map) => {
            let entries: Vec<_> = map.iter().map(|(k, v)| format!("{k:?} {}", edn(v, false))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        other => other.to_string(),
    }
}

#[test]
fn real_histories_are_read_as_another_library_reads_them() {
    let Some(dir) = corpus() else { return };
    let mut files = Vec::new();
    json_files(&dir.join("jepsen-runs"), &mut files);
    assert!(!files.is_empty());
    let mut total = 0;
    for file in files {
        let text = std::fs::read(&file).unwrap();
        let theirs: Vec<Theirs> = serde_json::from_slice(&text).unwrap();
        total += theirs.len();
        agree(&text, &theirs, &file.display().to_string());
    }
    println!("{total} operations");
}

#[test]
fn histories_of_the_case_files_are_read_in_all_three_enclosures() {
    let Some(dir) = corpus() else { return };
    let mut total = 0;
    for name in ["isolation/elle-cases.jsonl", "checker-cases.jsonl"] {
        let text = std::fs::read_to_string(dir.join(name)).unwrap();
        for (i, case) in text.lines().enumerate() {
            let what = format!("{name}:{}", i + 1);
            let case_value: Theirs = serde_json::from_str(case).unwrap();
            let Some(theirs) = case_value["history"].as_array().filter(|h| !h.is_empty()) else { continue };
            total += theirs.len();
            let array = case_value["history"].to_string();
            let lines: Vec<String> = theirs.iter().map(Theirs::to_string).collect();
            agree(array.as_bytes(), theirs, &what);
            agree(lines.join("\n").as_bytes(), theirs, &what);
            agree(case.as_bytes(), theirs, &what);
        }
    }
    println!("{total} operations");
}

const OPS: &str = "{\"type\":\"invoke\",\"f\":\"cas\",\"process\":0,\"value\":[1,null],\"time\":5,\"index\":0}\n\
    {\"type\":\"ok\",\"f\":\"txn\",\"process\":1,\"value\":[[\"r\",\"x\",[1,2]],[\"w\",3,4.5]],\"error\":[\"é\",\"\\ud800\"]}\n\
    {\"type\":\"info\",\"f\":\"kill\",\"process\":\"nemesis\",\"value\":{\"n1\":\"down\"},\"node\":\"n1\",\"time\":null}\n";

fn samples() -> Vec<(Reader, String)> {
    let array = format!("[{}]", OPS.trim_end().replace('\n', ",\n"));
    let wrapped = format!("{{\"name\":\"x\",\"history\":{array},\"results\":{{\"valid\":true}}}}");
    vec![
        (as_events, OPS.into()),
        (as_events, array),
        (as_events, wrapped),
        (schema::read_jsonl, RECORDS.into()),
        (schema::read_csv, CSV.into()),
    ]
}

#[test]
fn an_operation_is_read_field_by_field() {
    assert_eq!(
        read_all(as_events, OPS),
        [
            "1 0 5 invoke 0 cas [1 nil]",
            "2 - - ok 1 txn [[:r \"x\" [1 2]] [:w 3 4.5]] error=[\"é\" \"\\ud800\"]",
            "3 - - info nemesis kill {\"n1\" \"down\"} node=\"n1\"",
        ]
    );
}

#[test]
fn enclosures_bom_crlf_blank_lines_and_missing_line_ends_do_not_matter() {
    let bare: Vec<String> = read_all(as_events, OPS).iter().map(|l| l[2..].to_string()).collect();
    let one_line = OPS.replace('\n', "");
    for text in [
        format!("\u{feff}{OPS}"),
        format!("\n\n{}", OPS.replace('\n', "\r\n\r\n")),
        one_line.clone(),
        format!(" [ {} ] \n", OPS.trim_end().replace('\n', " , ")),
        format!("{{\"history\" : [{}] , \"b\":[1]}}", OPS.trim_end().replace('\n', ",")),
    ] {
        let lines: Vec<String> =
            read_all(as_events, &text).iter().map(|l| l.split_once(' ').unwrap().1.into()).collect();
        assert_eq!(lines, bare, "{text}");
    }
    assert!(read_all(as_events, "").is_empty() && read_all(as_events, " [ ] ").is_empty());
}

#[test]
fn later_keys_count_escapes_are_read_and_odd_names_stay_apart() {
    let text = "{\"\\u0074ype\":\"ok\",\"a\":1,\"b c\":2,\"a\":3,\"process\":\"7\",\"index\":3.0,\"process\":2.0,\"true\":null}";
    assert_eq!(read_all(as_events, text), ["1 3 - ok 2 - nil \"b c\"=2 a=3 true=nil"]);
}

#[test]
fn what_is_wrong_is_said_with_its_line_and_the_events_before_it_are_handed_over() {
    let good = "{\"type\":\"ok\"}\n";
    for (bad, words) in [
        ("{\"f\":\"x\"}", "line 2: an operation has no \"type\""),
        ("{\"type\":\"okay\"}", "line 2: unknown type \"okay\""),
        ("{\"type\":3}", "\"type\" must be a string"),
        ("{\"type\":\"ok\",\"process\":1.5}", "\"process\" must be an integer"),
        ("{\"type\":\"ok\",\"time\":99999999999999999999}", "64 bits"),
        ("{\"type\":\"ok\",\"f\":1}", "\"f\" must be a string or null"),
        ("{\"type\":\"ok\",\"value\":NaN}", "no NaN"),
        ("{\"type\":\"ok\",\"value\":-Infinity}", "expected a value"),
        ("{\"type\":\"ok\",\n\"value\":[1,}", "line 3: expected a value"),
        ("{:type :ok}", "EDN"),
        ("hello", "line 2: expected a value, found \"hello\""),
        ("42", "must be an object"),
        (",{\"type\":\"ok\"}", "a comma between operations"),
        ("{\"type\":\"ok\"", "line 2: the file ends inside an operation"),
    ] {
        let text = format!("{good}{bad}\n");
        let (lines, error) = lines_of(as_events, &mut text.as_bytes());
        let error = error.unwrap_or_else(|| panic!("{bad}")).to_string();
        assert!(error.contains(words), "{bad}: {error}");
        assert_eq!(lines.len(), 1, "{bad}");
    }
    assert!(error_of(as_events, b"[{\"type\":\"ok\"}").contains("closing ]"));
    assert!(error_of(as_events, b"[{\"type\":\"ok\"},]").contains("found \"]\""));
    assert!(error_of(as_events, b"[{\"type\":\"ok\"}] x").contains("something follows"));
    assert!(error_of(as_events, b"{\"history\":[]}\n{\"history\":[]}").contains("one history"));
    assert!(
        error_of(as_events, b"{\"type\":\"ok\"}\n\n{\"type\":\"ok\",\"f\":\"\xff\"}").contains("line 3: not UTF-8")
    );
    assert!(error_of(as_events, "[".repeat(1 << 20).as_bytes()).contains("nest deeper"));
}

const RECORDS: &str = "{\"op_id\":1,\"process_id\":\"c-1\",\"invoke_ts\":10,\"complete_ts\":20,\"op_type\":\"read\",\"key\":\"x\",\
    \"input\":null,\"output\":7,\"error\":null,\"timeout_marker\":false,\"node_seen\":\"n1\",\"fault_epoch\":2,\"offset\":5}\n\
    {\"op_id\":\"b\",\"process_id\":0,\"invoke_ts\":11,\"complete_ts\":null,\"op_type\":\"cas\",\"input\":[1,2],\"output\":3,\"timeout_marker\":true}\n\
    {\"op_id\":3,\"process_id\":\"c-1\",\"invoke_ts\":21,\"complete_ts\":22,\"op_type\":\"write\",\"input\":1,\"error\":\"E\",\"node\":4,\"node_seen\":1}\n\
    {\"op_id\":4,\"process_id\":5,\"invoke_ts\":23,\"op_type\":\"write\",\"input\":1,\"output\":9,\"node_seen\":\"n2\"}\n";

#[test]
fn records_become_invocations_and_completions() {
    assert_eq!(
        read_all(schema::read_jsonl, RECORDS),
        [
            "1 - 10 invoke 0 read nil process_id=\"c-1\" op_id=1 key=\"x\" fault_epoch=2",
            "1 - 20 ok 0 read 7 node=\"n1\" offset=5",
            "2 - 11 invoke 1 cas [1 2] process_id=0 op_id=\"b\"",
            "2 - - info 1 cas 3",
            "3 - 21 invoke 0 write 1 process_id=\"c-1\" op_id=3",
            "3 - 22 fail 0 write nil error=\"E\" node=1 \"node\"=4",
            "4 - 23 invoke 5 write 1 op_id=4 node=\"n2\" output=9",
        ]
    );
}

const CSV: &str = "op_id,process_id,invoke_ts,complete_ts,op_type,key,input,output,timeout_marker,offset\r\n\
    1,a,10,20.0,txn,x,\"[[\"\"r\"\",1,null]]\",\"[[\"\"r\"\",1,[2]]]\",False,007\r\n\
    2,3,11,,write,5,\"\"\"5\"\"\",,TRUE,1e5\r\n\
    3,nemesis,12,13,kill,,\"two\nlines, é\",1.5,0,\"{\"\"a\"\":1\"\r\n";

#[test]
fn csv_cells_are_read_by_the_documented_rules() {
    assert_eq!(
        read_all(schema::read_csv, CSV),
        [
            "2 - 10 invoke 0 txn [[:r 1 nil]] process_id=\"a\" op_id=1 key=\"x\"",
            "2 - 20 ok 0 txn [[:r 1 [2]]] offset=\"007\"",
            "3 - 11 invoke 3 write \"5\" op_id=2 key=5",
            "3 - - info 3 write nil offset=\"1e5\"",
            "4 - 12 info nemesis kill \"two\\nlines, é\" op_id=3",
            "4 - 13 info nemesis kill 1.5 offset=\"{\\\"a\\\":1\"",
        ]
    );
    let bom = format!("\u{feff}{CSV}");
    assert_eq!(read_all(schema::read_csv, &bom), read_all(schema::read_csv, CSV));
}

#[test]
fn csv_records_know_their_lines_whatever_ends_them() {
    for text in [
        "op_id\n1\n2\n\n\n3\n",
        "op_id\n1\n2\n\n\n3",
        "op_id\r\n1\r\n2\r\n\r\n\r\n3\r\n",
        "op_id\r\n1\r\n2\r\n\r\n\r\n3",
    ] {
        let places: Vec<String> = read_all(schema::read_csv, text).iter().map(|l| l[..1].to_string()).collect();
        assert_eq!(places.join(" "), "2 3 6", "{text:?}");
    }
    let quoted = "op_id,key\n1,\"a\nb\"\n2,c\n";
    let places: Vec<String> = read_all(schema::read_csv, quoted).iter().map(|l| l[..1].to_string()).collect();
    assert_eq!(places.join(" "), "2 4");
}

#[test]
fn tables_of_another_kind_are_refused() {
    assert!(error_of(schema::read_csv, b"a,b\n1,2\n").contains("names no field"));
    assert!(error_of(schema::read_csv, b"").contains("names no field"));
    assert!(error_of(schema::read_csv, b"key,key\n1,2\n").contains("two columns"));
    assert!(error_of(schema::read_csv, b"op_id,key\n1,2\n1\n").contains("line 3: a record has 1 cells"));
    assert!(error_of(schema::read_csv, b"op_id,invoke_ts\n1,soon\n").contains("line 2: \"invoke_ts\" is \"soon\""));
    assert!(error_of(schema::read_csv, b"op_id\n\xff\n").contains("not UTF-8"));
    assert!(error_of(schema::read_jsonl, b"{\"a\":1}").contains("none of the fields"));
}

#[test]
fn beginnings_are_told_apart() {
    for (head, shape) in [
        ("[{\"index\":0,\"type\":\"invoke\"", Some(Shape::Events)),
        ("{\"value\":[1,2,3,4", Some(Shape::Events)),
        ("{\"name\":\"x\",\"history\":[{\"type\":\"ok\"", Some(Shape::Events)),
        ("\u{feff}{\"op_id\":1,", Some(Shape::Records)),
        ("[{\"key\":1,\"input\":2}]", Some(Shape::Records)),
        ("\"op_id\",process_id,x\n", Some(Shape::Csv)),
        ("{\"params\":{\"id\":1},\"info\":\"\",\"data\":[[", None),
        ("[{\"tid\":1,\"sid\":2,\"ops\":[]}]", None),
        ("{:type :invoke}", None),
        ("[{:type :invoke}]", None),
        ("{\"type\" \"invoke\"}", None),
        ("[\"a\"]", None),
        ("w 1 2\nr 1 2\n", None),
        ("", None),
    ] {
        assert_eq!(sniff::sniff(head.as_bytes()), shape, "{head}");
    }
}

#[test]
fn however_the_input_dribbles_in_the_events_are_the_same() {
    for (reader, text) in samples() {
        let whole = read_all(reader, &text);
        for step in 1..40 {
            let (lines, error) = lines_of(reader, &mut Dribble(text.as_bytes(), step));
            assert!(error.is_none() && lines == whole, "{step}: {error:?}");
        }
    }
}

#[test]
fn a_history_cut_off_anywhere_gives_its_whole_events_and_an_error_unless_cut_between_lines() {
    for (reader, text) in samples() {
        let whole = read_all(reader, &text);
        for end in 0..text.len() {
            let (lines, error) = lines_of(reader, &mut &text.as_bytes()[..end]);
            let is_csv = text.starts_with("op_id");
            assert!(is_csv || whole.starts_with(&lines), "{end}");
            assert!(error.is_none_or(|e| !e.what.is_empty()));
            let _ = sniff::sniff(&text.as_bytes()[..end]);
        }
    }
    let array = &samples()[1].1;
    assert!((1..array.len()).all(|end| lines_of(as_events, &mut &array.as_bytes()[..end]).1.is_some()));
}

#[test]
fn mutated_histories_never_panic_or_hang() {
    let seed = std::env::var("ELENCH_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x9e37_79b9_7f4a_7c15_u64);
    println!("ELENCH_SEED={seed}");
    let mut state = seed | 1;
    let mut next = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    const BITS: [&[u8]; 14] = [
        b"\"",
        b"[",
        b"]",
        b"{",
        b"}",
        b",",
        b":",
        b"\\",
        b"\\u",
        b"\xff",
        b"\n",
        b"1e999",
        b"-",
        b"99999999999999999999",
    ];
    let samples = samples();
    let mut failed = 0;
    for round in 0..20_000 {
        let (reader, text) = &samples[round % samples.len()];
        let mut bytes = text.clone().into_bytes();
        for _ in 0..1 + next(4) {
            let at = next(bytes.len());
            match next(3) {
                0 => bytes[at] = next(256) as u8,
                1 => drop(bytes.splice(at..at, BITS[next(BITS.len())].iter().copied())),
                _ => drop(bytes.drain(at..(at + 1 + next(8)).min(bytes.len()))),
            }
        }
        let (whole, error) = lines_of(*reader, &mut &*bytes);
        let (dribbled, other) = lines_of(*reader, &mut Dribble(&bytes, 1 + next(64)));
        assert_eq!(whole, dribbled, "round {round}");
        assert_eq!(error.as_ref().map(|e| e.place), other.as_ref().map(|e| e.place), "round {round}");
        failed += usize::from(error.is_some());
        let _ = sniff::sniff(&bytes);
    }
    println!("{failed} of 20000 refused");
}

#[test]
fn an_operation_longer_than_a_block_is_read() {
    let numbers: Vec<String> = (0..2_000_000).map(|n| n.to_string()).collect();
    let text = format!("{OPS}{{\"type\":\"ok\",\"value\":[{}]}}\n{OPS}", numbers.join(","));
    let mut longest = 0;
    let mut count = 0;
    let mut sink = |batch: &mut EventBatch| {
        count += batch.len();
        assert!(batch.kind.iter().all(|k| *k != EventType::Fail));
        longest = longest.max(batch.ints.len());
        Ok(())
    };
    events::read(&mut text.as_bytes(), 1, &mut sink).unwrap();
    assert_eq!(count, 7);
    assert!(longest >= 2_000_000);
}
