//! What the two ways of reading EDN owe each other, and hostile input.

use std::io::Read;
use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::prelude::*;

use super::events::{Sizes, read, read_in_blocks};
use super::{parse, parse_bytes};
use crate::error::{Place, ReadError, Result};
use crate::event::{Cell, EventBatch, EventType, MopNames, NONE, Process};
use crate::value::Value;

/// The corpus, or a word that it is not there.
pub(crate) fn corpus() -> Option<PathBuf> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/corpus").into();
    let root: PathBuf = std::env::var_os("ELENCH_CORPUS").map_or(default, PathBuf::from);
    if root.is_dir() {
        return Some(root);
    }
    println!("skipped: there is no corpus at {}", root.display());
    None
}

/// All files below a directory with one of these extensions, unpacked.
pub(crate) fn files(root: &Path, extensions: &[&str]) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut directories = vec![root.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.to_string_lossy().into_owned();
            if path.is_dir() {
                directories.push(path);
            } else if extensions.iter().any(|e| name.ends_with(&format!(".{e}"))) {
                let mut bytes = std::fs::read(&path).unwrap();
                if name.ends_with(".gz") {
                    let mut unpacked = Vec::new();
                    flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_end(&mut unpacked).unwrap();
                    bytes = unpacked;
                }
                found.push((path, bytes));
            }
        }
    }
    found.sort();
    found
}

/// Every event that a reader delivers, each as a text that tells all about it.
pub(crate) fn describe_all(
    read: impl FnOnce(&mut dyn FnMut(&mut EventBatch) -> Result<()>) -> Result<()>,
) -> Result<Vec<String>> {
    let mut out = Vec::new();
    read(&mut |batch| {
        describe(batch, &mut out);
        Ok(())
    })?;
    Ok(out)
}

fn describe(batch: &EventBatch, out: &mut Vec<String>) {
    let text = |id| batch.texts.get(id);
    for row in 0..batch.len() {
        let process = match batch.process[row] {
            Process::Client(n) => format!("Client({n})"),
            Process::Actor(id) => format!("Actor({:?})", text(id)),
            Process::Unknown => "Unknown".into(),
        };
        let mut extras: Vec<_> = batch
            .extras
            .iter()
            .filter(|e| e.row as usize == row)
            .map(|e| format!("{}={}", text(e.name), shape(batch, e.value)))
            .collect();
        extras.sort();
        let optional = |n: i64| (n != NONE).then_some(n);
        out.push(format!(
            "{} {:?} {:?} {:?} {process} {:?} {} [{}]",
            batch.place[row],
            optional(batch.index[row]),
            optional(batch.time[row]),
            batch.kind[row],
            batch.f[row].map(text),
            shape(batch, batch.value[row]),
            extras.join(" "),
        ));
    }
}

/// The kinds and contents of a cell.
fn shape(batch: &EventBatch, cell: Cell) -> String {
    let all = |cells: Vec<Cell>| cells.iter().map(|&c| shape(batch, c)).collect::<Vec<_>>().join(" ");
    match cell {
        Cell::Nil => "Nil".into(),
        Cell::Int(n) => format!("Int({n})"),
        Cell::Text(id) => format!("Text({})", batch.texts.get(id)),
        Cell::List(s) => format!("List{:?}", &batch.ints[s.range()]),
        Cell::Set(s) => format!("Set{:?}", &batch.ints[s.range()]),
        Cell::Seq(s) => format!("Seq[{}]", all(batch.cells[s.range()].to_vec())),
        Cell::Txn(s) => {
            let mop = |m: &crate::event::Mop| format!("{}:{}", batch.texts.get(m.f), all(vec![m.key, m.value]));
            format!("Txn[{}]", batch.mops[s.range()].iter().map(mop).collect::<Vec<_>>().join(" "))
        }
    }
}

const ALONE: Sizes = Sizes { block: 1 << 20, piece: 1 << 20, anywhere: false };

fn fast(text: &[u8]) -> Result<Vec<String>> {
    in_blocks(text, 1, ALONE)
}

fn in_blocks(text: &[u8], threads: usize, sizes: Sizes) -> Result<Vec<String>> {
    describe_all(|sink| read_in_blocks(&mut &text[..], threads, sizes, sink))
}

/// The events of a history by way of values, without their places.
fn slow(text: &str) -> Result<Vec<String>> {
    let mut batch = EventBatch::default();
    let mut out = Vec::new();
    gather(&parse(&format!("[{text}\n]"))?, &mut batch)?;
    describe(&batch, &mut out);
    Ok(without_places(out))
}

fn gather(value: &Value, batch: &mut EventBatch) -> Result<()> {
    match value {
        Value::Vector(items) => items.iter().try_for_each(|item| gather(item, batch)),
        Value::Tagged(_, value) => gather(value, batch),
        Value::Map(entries) => match value.get("history").filter(|_| value.get("type").is_none()) {
            Some(history) => gather(history, batch),
            None => event(entries, batch),
        },
        _ => Err(ReadError::new("no event")),
    }
}

fn event(entries: &[(Value, Value)], batch: &mut EventBatch) -> Result<()> {
    let bad = || ReadError::new("bad field");
    let integer = |v: &Value, float: bool| match v {
        Value::Nil => Ok(None),
        Value::Int(NONE) => Err(bad()),
        Value::Int(n) => Ok(Some(*n)),
        Value::Float(x) if float && x.abs() < i64::MAX as f64 => Ok(Some(x.round() as i64)),
        _ => Err(bad()),
    };
    let name = |v: &Value| v.as_name().map_or_else(|| v.to_edn(), String::from);
    let mut e = crate::event::Event {
        place: 0,
        index: None,
        time: None,
        kind: EventType::Ok,
        process: Process::Unknown,
        f: None,
        value: Cell::Nil,
    };
    let mut kind = None;
    for (key, value) in entries {
        let key = crate::event::field_name(key);
        match &*key {
            "index" => e.index = integer(value, false)?,
            "time" => e.time = integer(value, true)?,
            "type" => kind = value.as_name().and_then(|n| EventType::from_name(n.as_bytes())),
            "process" => {
                e.process = match value {
                    Value::Int(n) => Process::Client(*n),
                    Value::Nil => Process::Unknown,
                    other => Process::Actor(batch.name(&name(other))),
                }
            }
            "f" => e.f = (*value != Value::Nil).then(|| batch.name(&name(value))),
            "value" => e.value = batch.value(value, MopNames::Keywords),
            _ => {
                let cell = batch.value(value, MopNames::Keywords);
                let key = batch.name(&key);
                batch.extra(key, cell);
            }
        }
    }
    e.kind = kind.ok_or_else(bad)?;
    batch.push(e);
    Ok(())
}

fn without_places(events: Vec<String>) -> Vec<String> {
    events.iter().map(|e| e.split_once(' ').unwrap().1.to_string()).collect()
}

fn one_nan(x: f64) -> f64 {
    if x.is_nan() { f64::NAN } else { x }
}

fn canonical() -> impl Strategy<Value = Value> {
    let integer = |s: String| Value::integer(&s).unwrap();
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        "-?[0-9]{1,40}".prop_map(integer),
        any::<u64>().prop_map(|bits| Value::Float(one_nan(f64::from_bits(bits)))),
        proptest::sample::select(&[0.0, -0.0, 1.0, 1e16, 1e-7, f64::NAN, f64::INFINITY][..]).prop_map(Value::Float),
        "-?[1-9][0-9]{0,30}(\\.[0-9]{0,9})?([eE][-+]?[0-9]{1,3})?".prop_map(|s| Value::Decimal(s.into())),
        (any::<i64>(), 1..i64::MAX).prop_map(|(n, d)| Value::ratio(&n.to_string(), &d.to_string()).unwrap()),
        any::<char>().prop_map(|c| Value::Char(c as u32)),
        (0u32..0x300).prop_map(Value::Char),
        (0xd800u32..0xe000).prop_map(Value::Char),
        any::<String>().prop_map(|s| Value::str(&s)),
        "[ -~\\n\\t\"\\\\]{0,12}".prop_map(|s| Value::str(&s)),
        vec(any::<u16>(), 0..6).prop_map(Value::utf16),
        vec(0xd700u16..0xe100, 0..4).prop_map(Value::utf16),
        "[a-zA-Z0-9*!_?$%&=<>.+#':é-]{1,9}(/[a-z-]{1,5})?".prop_map(|s| Value::keyword(&s)),
        "[a-zA-Z*!_?$%&=<>é][a-z0-9#':-]{3,9}(/[a-z*+-]{1,5})?"
            .prop_filter("constants", |s| !matches!(&**s, "true" | "false"))
            .prop_map(|s| Value::Symbol(s.into())),
        prop_oneof![Just("+"), Just("-"), Just("/"), Just("."), Just("-a"), Just("...")]
            .prop_map(|s| Value::Symbol(s.into())),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::Vector),
            vec(inner.clone(), 0..5).prop_map(Value::set),
            vec((inner.clone(), inner.clone()), 0..4).prop_map(Value::map),
            ("[a-z][a-zA-Z.$_]{0,8}(/[a-z]{1,3})?", inner).prop_map(|(t, v)| Value::Tagged(t.into(), Box::new(v))),
        ]
    })
}

/// Texts of values as somebody might write them.
fn written() -> impl Strategy<Value = String> {
    let leaves: &[&str] = &[
        "nil",
        "1",
        "-5",
        "+7",
        "007",
        "1N",
        "-0",
        "12345678",
        "123456789012345678",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "99999999999999999999",
        "1.5",
        "1e3",
        "2/4",
        "4/2",
        "2.50M",
        "0x1F",
        ":a",
        ":r",
        ":ns/b",
        "::c",
        ":append",
        ":w",
        ":a-long-keyword",
        "\"s\"",
        "\"a\\nb\"",
        "\"a\nb\"",
        "\"é\"",
        "\"]}\"",
        "\\a",
        "\\newline",
        "\\]",
        "\\\"",
        "sym",
        "nilly",
        "true",
        "##NaN",
        "#inst \"2020\"",
        "#{1 2 1}",
        "#{3 1 2}",
        "#{}",
        "#{:a 1}",
        "[]",
        "()",
        "[1 2]",
        "(3 4)",
        "[1 nil]",
        "[[1 2] [3 4]]",
        "[[:r 1 nil]]",
        "[[:append 1 2] (:r \"x\" [1 2])]",
        "[[:r 1]]",
        "[[:r 1 [[:a 1 2]]]]",
        "[[:r #{1} #{2 1}]]",
        "{2 1, 1 007}",
        "{2 1, 1 nil, 10 -5, 2 \"x\"}",
        "{:b 1 :a :c, :a! true}",
        "{\"a\" 1, \"a!\" -0, \"\" 3}",
        "{1 2, :a 3}",
        "{:a {:b 1}}",
        "{1 2 3 4 1 5}",
        "{:a 1;c\n :b 2}",
        "{:a 1}",
        "{}",
        "#foo.Bar{:x 1}",
        "#object[a.B 0x1f \"x\"]",
        "[1 [:r 1 2]]",
        "[2 [[:r 1 2]]]",
    ];
    let leaf = proptest::sample::select(leaves).prop_map(String::from);
    let separator = proptest::sample::select(
        &[" ", " ", " ", ",", ", ", "\n", "\t", " ;]\n", " #_ :x ", " #_#_[1]2 ", " ^:m ", " ^{:a 1} "][..],
    );
    leaf.prop_recursive(4, 24, 4, move |inner| {
        let items = vec((inner.clone(), separator.clone()), 0..4).prop_map(|items| {
            items.into_iter().map(|(item, separator)| format!("{item}{separator}")).collect::<String>()
        });
        let pair = vec((inner.clone(), separator.clone(), inner), 0..3).prop_map(|items| {
            items.into_iter().map(|(k, separator, v)| format!("{k}{separator}{v} ")).collect::<String>()
        });
        prop_oneof![
            items.clone().prop_map(|s| format!("[{}]", s.replace(" ^:m ", " ").replace(" ^{:a 1} ", " "))),
            items.clone().prop_map(|s| format!("({s}1)")),
            items.clone().prop_map(|s| format!("[[:r {s}]]")),
            items.prop_map(|s| format!("#{{{s} nil}}")),
            pair.prop_map(|s| format!("{{{s}}}")),
        ]
    })
}

fn operation() -> impl Strategy<Value = String> {
    let field = prop_oneof![
        3 => written().prop_map(|v| format!(":value {v}")),
        2 => written().prop_map(|v| format!(":error {v}")),
        1 => written().prop_map(|v| format!(":value #_ {v} {v}")),
        1 => written().prop_map(|v| format!("{v} {v}")),
        1 => Just("#_ :x :node \"n1\"".to_string()),
        1 => any::<i32>().prop_map(|n| format!(":index {n}")),
        1 => any::<i64>().prop_map(|n| format!(":time {n}")),
        1 => Just(":time 1.5e3".to_string()),
        1 => prop_oneof![Just("3"), Just(":nemesis"), Just("nil"), Just("\"n\"")].prop_map(|p| format!(":process {p}")),
        1 => proptest::sample::select(&[":txn", "nil", "read", "\"n\"", "[1 2]"][..]).prop_map(|f| format!(":f {f}")),
    ];
    let kind = prop_oneof![Just(":ok"), Just(":invoke"), Just(":fail"), Just(":info"), Just("\"ok\""), Just("info")];
    (vec(field, 0..6), kind, 0usize..6, proptest::sample::select(&[", ", " ", ",", "\n "][..])).prop_map(
        |(mut fields, kind, at, separator)| {
            fields.insert(at.min(fields.len()), format!(":type {kind}"));
            format!("{{{}}}", fields.join(separator))
        },
    )
}

/// Reads of few keys that show much of the same again, and what only looks like it.
fn reads() -> impl Strategy<Value = Vec<String>> {
    let element = |i: usize, odd: usize| match odd {
        0 => ["12", "1", "-1", "007", "nil", "1.5", "\"1\"", "[1]", "99999999999999999999"][i % 9].to_string(),
        _ => (i * 7).to_string(),
    };
    let separator = |odd: usize| ["\n", "  ", ", ", " #_ 3 "].get(odd).copied().unwrap_or(" ");
    let list = (1..30usize, vec((0..40usize, 0..60usize), 30), 0..12usize).prop_map(move |(n, odd, end)| {
        let items = odd.iter().take(n).enumerate().map(|(i, &(e, s))| format!("{}{}", element(i, e), separator(s)));
        let text: String = items.collect();
        let end = [" ", "\n", "", "0", " 1"].get(end).copied().unwrap_or("");
        format!("[{}{end}]", text.trim_end())
    });
    let read = (0..3usize, list).prop_map(|(key, list)| format!("[:r {} {list}]", ["1", "2", "1025"][key]));
    let txn = vec(read, 1..4).prop_map(|mops| format!("{{:type :ok, :f :txn, :value [{}]}}", mops.join(" ")));
    vec(txn, 0..8)
}

/// Numbers of every length, and what only looks like one.
fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        24 => (0..200u32).prop_map(|n| n.to_string()),
        8 => (1..21usize, any::<u64>()).prop_map(|(len, n)| format!("{n:020}{n}")[20 - len..20].to_string()),
        1 => proptest::sample::select(&["-3", "+4", "nil", "1.5", "1N", "\"1\"", ":k", "12a", ""][..]).prop_map(String::from),
    ]
}

/// Events as Jepsen writes them, parts of which are now and then written otherwise.
fn usual() -> impl Strategy<Value = Vec<String>> {
    let separator = || (0..60usize).prop_map(|i| ["  ", ",", "\n", "", " #_ 1 "].get(i).copied().unwrap_or(" "));
    let value = prop_oneof![
        4 => Just("nil".to_string()),
        6 => number(),
        4 => vec(number(), 0..4).prop_map(|list| format!("[{}]", list.join(" "))),
        1 => written(),
    ];
    let name = proptest::sample::select(&[":r", ":append", ":r", ":append", ":w", ":cas-of-many", "r"][..]);
    let mop = (name, separator(), number(), separator(), value.clone(), separator())
        .prop_map(|(f, a, key, b, value, c)| format!("[{f}{a}{key}{b}{value}{}]", c.trim_matches(' ')));
    let txn = vec((mop, separator()), 1..4).prop_map(|mops| {
        let mops: String = mops.into_iter().map(|(mop, separator)| mop + separator).collect();
        format!("[{}]", mops.trim_end())
    });
    let kind = proptest::sample::select(
        &[":ok", ":invoke", ":ok", ":invoke", ":fail", ":info", "info", "\"ok\"", ":ok", ":okay"][..],
    );
    let f = proptest::sample::select(&[":read", ":txn", ":txn", ":transfer", "nil", "read"][..]);
    let process = prop_oneof![4 => number(), 1 => Just(":nemesis".to_string())];
    let fields = (number(), number(), kind, process, f, prop_oneof![2 => value, 3 => txn]);
    let event = (fields, 0..60usize, 0..6usize, separator()).prop_map(
        |((index, time, kind, process, f, value), odd, at, separator)| {
            let (kind, f) = (kind.to_string(), f.to_string());
            let keys = ["index", "time", "type", "process", "f", "value"].into_iter();
            let mut fields: Vec<_> = keys
                .zip([index, time, kind, process, f, value])
                .map(|(key, value)| format!(":{key} {value}"))
                .collect();
            match odd {
                0 => fields.swap(0, at),
                1 => fields[at] = fields[at].replacen(' ', separator, 1),
                2 => fields.push(fields[at].clone()),
                3 => fields.insert(at, ":node \"n1\"".into()),
                4 => drop(fields.remove(at)),
                _ => {}
            }
            format!("{{{}}}", fields.join(if odd == 5 { separator } else { ", " }))
        },
    );
    vec(event, 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn usual_events_are_what_the_slow_way_makes_of_them(
        events in usual(), block in 1usize..400, piece in 1usize..200, anywhere in any::<bool>()
    ) {
        let text = events.join("\n");
        let expected = fast(text.as_bytes());
        prop_assert_eq!(expected.clone().ok().map(without_places), slow(&text).ok(), "{}", text);
        let sizes = Sizes { block, piece, anywhere };
        prop_assert_eq!(&in_blocks(text.as_bytes(), 1, sizes), &expected, "{}", text);
        prop_assert_eq!(&in_blocks(text.as_bytes(), 2, sizes), &expected, "{}", text);
    }

    #[test]
    fn lists_that_begin_alike_are_what_they_are(
        operations in reads(), block in 1usize..400, piece in 1usize..200, anywhere in any::<bool>()
    ) {
        let text = operations.join("\n");
        let expected = fast(text.as_bytes());
        prop_assert_eq!(expected.clone().map(without_places), slow(&text), "{}", text);
        let sizes = Sizes { block, piece, anywhere };
        prop_assert_eq!(&in_blocks(text.as_bytes(), 2, sizes), &expected, "{}", text);
    }

    #[test]
    fn reading_the_text_of_a_value_gives_the_value(value in canonical()) {
        let text = value.to_edn();
        let read = parse(&text);
        prop_assert_eq!(read.as_ref(), Ok(&value), "{}", text);
        prop_assert_eq!(read.unwrap().to_edn(), text);
    }

    #[test]
    fn the_fast_way_and_the_slow_way_give_the_same_events(operations in vec(operation(), 0..5)) {
        let text = operations.join("\n");
        prop_assert_eq!(fast(text.as_bytes()).map(without_places), slow(&text), "{}", text);
    }

    #[test]
    fn canonical_values_shred_alike_fast_and_slow(value in canonical()) {
        let text = format!("{{:type :ok, :value {}, :x 1}}", value.to_edn());
        prop_assert_eq!(fast(text.as_bytes()).map(without_places), slow(&text), "{}", text);
    }

    #[test]
    fn threads_and_cuts_at_any_byte_change_nothing(
        operations in vec(operation(), 0..5), enclosed in any::<bool>(), block in 1usize..90, piece in 1usize..30,
        anywhere in any::<bool>()
    ) {
        let mut text = operations.join("\n\n");
        if enclosed {
            text = format!("; history\n [{text} ] ; end");
        }
        let sizes = Sizes { block, piece, anywhere };
        let expected = fast(text.as_bytes());
        prop_assert_eq!(&in_blocks(text.as_bytes(), 1, sizes), &expected, "{}", text);
        prop_assert_eq!(&in_blocks(text.as_bytes(), 2, sizes), &expected, "{}", text);
    }

    #[test]
    fn bytes_of_any_kind_never_panic(bytes in vec(any::<u8>(), 0..80)) {
        let _ = parse_bytes(&bytes);
        let _ = fast(&bytes);
    }
}

fn edn(text: &str) -> String {
    parse(text).unwrap_or_else(|e| panic!("{text}: {e}")).to_edn()
}

#[test]
fn a_byte_order_mark_is_skipped_in_files_and_is_part_of_a_symbol_elsewhere() {
    assert_eq!(parse_bytes("\u{feff}{:a, 1,,}".as_bytes()).unwrap().to_edn(), "{:a 1}");
    let symbol = parse_bytes(b",\xef\xbb\xbf^pr").unwrap();
    assert_eq!(parse(&symbol.to_edn()).unwrap(), symbol);
}

#[test]
fn symbols_in_namespaced_maps_stay_symbols() {
    for (text, canonical) in [
        ("#:a{b 1}", "{a/b 1}"),
        ("#::{b 1}", "{b 1}"),
        ("#:1{b 1}", "{b 1}"),
        ("#::{:b 1}", "{::b 1}"),
        ("#:f{_/b 1}", "{b 1}"),
        ("#:f{_/ 1}", "{_/ 1}"),
    ] {
        let value = parse(text).unwrap();
        assert_eq!(value.to_edn(), canonical);
        assert_eq!(parse(canonical).unwrap(), value);
    }
}

#[test]
fn what_clojure_prints_is_read() {
    for (text, expected) in [
        ("[1N +5 -0 007 0x1F 0x-0]", None),
        ("[1N +5 -0 007 0x1F -0xfN 2r101 36rZZ]", Some("[1 5 0 7 31 -15 5 1295]")),
        ("0xFFFFFFFFFFFFFFFFFFFF", Some("1208925819614629174706175")),
        ("[1. 1e5 -1.5E-3 1M 01.50M]", Some("[1.0 100000.0 -0.0015 1M 1.50M]")),
        ("[##Inf ##-Inf ##NaN]", Some("[##Inf ##-Inf ##NaN]")),
        (r#"[\newline \a \( \\ \u0041 \o101 \, \é \;]"#, Some(r#"[\newline \a \( \\ \A \A \u002c \é \;]"#)),
        (r#""\t\b\f\101\u00e9\ud83d\ude00""#, Some("\"\\t\\u0008\\u000cAé😀\"")),
        (r#""\ud800x""#, Some(r#""\ud800x""#)),
        ("(1 #_ 2 #_#_ 3 4 5 #_ #_ 6 7)", Some("[1 5]")),
        ("^{:a 1} ^:b ^String #^long x", Some("x")),
        ("#:foo{:a 1 :b/c 2 :_/d 3 \"e\" 4}", Some("{\"e\" 4, :b/c 2, :d 3, :foo/a 1}")),
        ("[::kw : :a/b 'x '(1 2) @y]", Some("[::kw : :a/b x [1 2] [clojure.core/deref y]]")),
        (
            r##"#object[clojure.lang.Foo 0x4892d85e "clojure.lang.Foo@4892d85e"]"##,
            Some(r##"#object [clojure.lang.Foo 1217583198 "clojure.lang.Foo@4892d85e"]"##),
        ),
        ("#knossos.model.Register{:value 1}", Some("#knossos.model.Register {:value 1}")),
        (r##"#inst "2020-01-01" "##, Some(r##"#inst "2020-01-01""##)),
        (r##"#"a\"\d" "##, Some(r##"#regex "a\\\"\\d""##)),
        ("[#<Foo a.B$c@1f2> 1]", Some("[#object \"Foo a.B$c@1f2\" 1]")),
        ("#'user/x", Some("#var user/x")),
        ("{:a 1 :a 2}", Some("{:a 2}")),
    ] {
        match expected {
            Some(expected) => assert_eq!(edn(text), expected),
            None => assert!(parse(text).is_err(), "{text}"),
        }
    }
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    for (text, line, what) in [
        ("", 1, "there is no value here"),
        ("1\n2", 2, "something follows after the value"),
        ("[1\n{:a 1\n", 3, "the text ends inside a map that begins at line 2"),
        ("\n\"abc\n", 3, "the text ends inside a string that begins at line 2"),
        ("[1\n)]", 2, "a `)` closes nothing that is open here"),
        ("{:a 1\n :b}", 1, "a map holds the key :b without a value"),
        ("[\n12x]", 2, "`12x` is no number"),
        ("\"a\\qb\"", 1, "`\\q` in a string means nothing"),
        ("\\foo", 1, "`\\foo` is no character"),
        ("1/0", 1, "`1/0` is no number"),
        ("[#_]", 1, "a `]` closes nothing that is open here"),
    ] {
        let error = parse(text).unwrap_err();
        assert_eq!((error.place, &*error.what), (Place::Line(line), what), "{text:?}");
    }
    assert_eq!(parse_bytes(b"\n\"\xff\"").unwrap_err().what, "this text is not UTF-8");
    assert_eq!(parse_bytes(b"\x00\x01\x02").unwrap_err().place, Place::Line(1));
}

#[test]
fn nesting_is_bounded() {
    let nested = |open: &str, n: usize, close: &str| format!("{}1{}", open.repeat(n), close.repeat(n));
    for (open, close) in [("[", "]"), ("#{", "}"), ("{1 ", "}"), ("#a ", ""), ("@", ""), ("#_[", "]2")] {
        assert!(parse(&nested(open, 120, close)).is_ok(), "{open}");
        for depth in [300, 200_000] {
            let text = nested(open, depth, close);
            assert!(parse(&text).unwrap_err().what.starts_with("values nest deeper"), "{open}");
            let operation = format!("{{:type :ok, :value {text}}}");
            assert!(fast(operation.as_bytes()).is_err());
        }
    }
    assert_eq!(edn(&format!("[{}{}]", "#_".repeat(100_000), "1 ".repeat(100_001))), "[1]");
    assert!(fast("[".repeat(100_000).as_bytes()).is_err());
}

const EVENT: &str = "{:process 0, :type :ok, :f :read, :value 3}";

#[test]
fn a_history_may_be_enclosed_tagged_or_a_field_of_a_map() {
    let seen = "Client(0) Some(\"read\") Int(3) []";
    for text in [
        format!("{EVENT}{EVENT}"),
        format!("{EVENT}\n{EVENT}\n"),
        format!("[{EVENT},\n {EVENT}] ; that is all"),
        format!("({EVENT} #_ {EVENT} {EVENT})"),
        format!("([{EVENT}] ({EVENT}))"),
        format!("#tag [#jepsen.history.Op{EVENT} #knossos.op.Op {EVENT}]"),
        format!("{{:valid? true, :x {{:y [1]}}, :history [{EVENT}\n{EVENT}], :results {{:valid? true}}}}\n"),
        format!("{{:history #jepsen.history.History({EVENT} {EVENT})}}"),
        format!("^{{:type :x}} [{EVENT} ^:m {EVENT}]"),
    ] {
        let events = fast(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(events.iter().filter(|e| e.ends_with(seen)).count(), 2, "{text}");
        for at in 1..text.len() {
            let sizes = Sizes { block: at, piece: at / 3 + 1, anywhere: true };
            assert_eq!(in_blocks(text.as_bytes(), 2, sizes).unwrap(), events, "{text} {at}");
        }
    }
    assert_eq!(fast(b"").unwrap(), [""; 0]);
    assert_eq!(fast(b"[]").unwrap(), [""; 0]);
}

#[test]
fn a_broken_history_is_refused_with_its_line() {
    let cases: Vec<(String, u64, &str)> = vec![
        (format!("{EVENT}\n{{:process 0,\n"), 3, "the text ends inside a map that begins at line 2"),
        (format!("[{EVENT}\n"), 2, "the text ends inside a vector that begins at line 1"),
        (format!("[{EVENT}\n)"), 2, "here is a `)` where a `]` should close what line 1 opened"),
        (format!("{EVENT}\n]"), 2, "a `]` closes nothing that is open here"),
        (format!("[{EVENT}]\n{EVENT}"), 2, "something follows after the end of the history"),
        (format!("{EVENT}\n[{EVENT}]"), 2, "a vector or list begins after operations that stand alone"),
        (format!("{EVENT}\n{{:f :read}}"), 2, "this map has no :type and so is no operation"),
        ("\n{:type :okay}".into(), 2, ":okay is no :type of an event"),
        ("{:type :ok,\n :index 99999999999999999999}".into(), 2, "99999999999999999999 is no :index"),
        ("{:type :ok, :index 1.5}".into(), 1, "1.5 is no :index"),
        ("{:type :ok, :time \"x\"}".into(), 1, "\"x\" is no :time"),
        (format!("[{EVENT}\n#tag ]"), 2, "a `]` closes nothing that is open here"),
        (format!("{EVENT}\n17"), 2, "an operation map should begin here, but here is 17"),
        ("{:history 17}".into(), 1, "an operation map should begin here, but here is 17"),
        (format!("{{:history [{EVENT}]\n:x"), 2, "the text ends inside a map that begins at line 1"),
        ("{:type :ok :value}".into(), 1, "a `}` closes nothing that is open here"),
        ("{:type :ok :value \"abc".into(), 1, "the text ends inside a string that begins at line 1"),
    ];
    for (text, line, what) in cases {
        let error = fast(text.as_bytes()).unwrap_err();
        assert_eq!((error.place, &*error.what), (Place::Line(line), what), "{text:?}");
        for at in 1..text.len() {
            let sizes = Sizes { block: at, piece: at / 2 + 1, anywhere: true };
            assert_eq!(in_blocks(text.as_bytes(), 2, sizes), Err(error.clone()), "{text:?} {at}");
            assert_eq!(in_blocks(text.as_bytes(), 1, sizes), Err(error.clone()), "{text:?} {at}");
        }
    }
    assert!(fast(b"JEPSEN\0\0\0\0\x01").is_err());
    assert!(fast(b"\x1f\x8b\x08\0\0").is_err());
}

#[test]
fn fields_are_what_the_recorder_meant() {
    let text = "{:type ok, :process \"p\", :f [1 2], :time 1.6, :index nil}\n\n\
        {:type :info, :process nemesis, :value :x, :node \"n1\", :node \"n2\", \"k\" 1, s 2}";
    assert_eq!(
        fast(text.as_bytes()).unwrap(),
        [
            "1 None Some(2) Ok Actor(\"p\") Some(\"[1 2]\") Nil []",
            "3 None None Info Actor(\"nemesis\") None Text(:x) [\"k\"=Int(1) 's=Int(2) node=Text(\"n2\")]",
        ]
    );
}

#[test]
fn a_map_with_many_keys_twice_keeps_the_later_ones_without_quadratic_time() {
    let mut text = String::from("{:type :ok");
    for i in 0..40_000 {
        text.push_str(&format!(" :k{} {i}", i % 20_000));
    }
    text.push('}');
    let mut extras = Vec::new();
    read(&mut text.as_bytes(), 1, &mut |batch| {
        extras = batch.extras.clone();
        Ok(())
    })
    .unwrap();
    assert_eq!(extras.len(), 20_000);
    assert!(extras.iter().all(|e| matches!(e.value, Cell::Int(n) if n >= 20_000)));
}

#[test]
fn batches_are_bounded_and_come_in_order_from_every_thread() {
    let mut text = String::new();
    for i in 0..60_000 {
        text.push_str(&format!("{{:index {i}, :type :ok, :f :read, :value \"line\\n{{:index\n{{:index 7}}\"}}\n"));
    }
    for threads in [1, 2, 3] {
        let mut next = 0;
        read(&mut text.as_bytes(), threads, &mut |batch| {
            assert!(batch.len() <= 8192);
            for (row, &index) in batch.index.iter().enumerate() {
                assert_eq!(index, next);
                assert_eq!(batch.place[row], 1 + 2 * next as u64);
                assert!(batch.texts.get(batch.f[row].unwrap()) == "read");
                next += 1;
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(next, 60_000);
    }
}

#[test]
fn an_error_of_the_receiver_ends_the_reading() {
    let text = format!("{EVENT}\n").repeat(50_000);
    for threads in [1, 2] {
        let stopped = read(&mut text.as_bytes(), threads, &mut |_| Err(ReadError::new("enough")));
        assert_eq!(stopped.unwrap_err().what, "enough");
    }
}

#[test]
fn a_receiver_that_takes_the_batch_away_leaves_good_names_behind() {
    let text = format!("{EVENT}\n").repeat(50_000);
    let mut taken = Vec::new();
    read(&mut text.as_bytes(), 1, &mut |batch| {
        taken.push(std::mem::take(batch));
        Ok(())
    })
    .unwrap();
    assert!(taken.iter().all(|batch| batch.f.iter().all(|f| batch.texts.get(f.unwrap()) == "read")));
}

/// Home-made randomness, so that a failure can be repeated from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n.max(1)
    }

    fn mutate(&mut self, text: &mut Vec<u8>) {
        const PIECES: [&str; 24] = [
            "{",
            "}",
            "[",
            "]",
            "(",
            ")",
            "\"",
            "\\",
            "#_",
            ";",
            "\n",
            "#{",
            ":type ",
            ":value ",
            "nil",
            "^",
            "'",
            "#",
            "1",
            " ",
            "#jepsen.history.Op",
            "##",
            "\u{feff}",
            ":history ",
        ];
        let at = self.below(text.len() + 1);
        let end = (at + self.below(12)).min(text.len());
        match self.below(5) {
            0 => drop(text.drain(at..end)),
            1 => {
                let copy = text[at..end].to_vec();
                let to = self.below(text.len() + 1);
                text.splice(to..to, copy);
            }
            2 if at < text.len() => text[at] = self.below(256) as u8,
            3 => text.truncate(at),
            _ => drop(text.splice(at..at, PIECES[self.below(PIECES.len())].bytes())),
        }
    }
}

#[test]
fn mutated_histories_never_panic_and_every_way_of_reading_says_the_same() {
    let histories = [
        format!("[{EVENT}\n {{:type :invoke, :f :txn, :value [[:r 1 nil] [:append 2 [3 4]]], :process :nemesis}}]"),
        "{:index 0, :time 12, :type :ok, :process 3, :f :cas, :value [1 2]}\n{:index 1, :type :info, :value #{1 2}}\n"
            .into(),
        "#jepsen.history.Op{:type :ok, :error \"a\\n{}\", :value {2 1, 0 3}}\n; {\n#_ {:x 1} {:type :fail, :value (1 :a)}"
            .into(),
        format!("{{:valid? true, :history ({EVENT} {EVENT}), :results [1 2]}}"),
    ];
    for seed in 1..=4000u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut text = histories[seed as usize % histories.len()].clone().into_bytes();
        for _ in 0..1 + random.below(6) {
            random.mutate(&mut text);
        }
        let shown = String::from_utf8_lossy(&text).into_owned();
        let alone = fast(&text);
        let sizes = Sizes { block: 1 + random.below(80), piece: 1 + random.below(30), anywhere: random.below(2) == 0 };
        assert_eq!(in_blocks(&text, 1, sizes), alone, "seed {seed}: {shown}");
        assert_eq!(in_blocks(&text, 2, sizes), alone, "seed {seed}: {shown}");
        if let (Ok(events), Ok(text)) = (alone, std::str::from_utf8(&text))
            && !text.contains(":history")
        {
            let text = text.trim_start_matches('\u{feff}');
            assert_eq!(slow(text), Ok(without_places(events)), "seed {seed}: {shown}");
        }
    }
}

#[test]
fn every_history_of_the_corpus_is_read_as_the_slow_way_reads_it() {
    let Some(root) = corpus() else { return };
    let (mut count, mut events) = (0, 0);
    for (path, bytes) in files(&root, &["edn", "edn.gz", "txt"]) {
        let name = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        if name.ends_with("results.edn") || name.ends_with(".txt") && !name.contains("/kv/") {
            continue;
        }
        if name.contains("/debug/") || name.ends_with("anomalies.edn") {
            assert!(fast(&bytes).is_err(), "{name} is no history");
            continue;
        }
        let text = std::str::from_utf8(&bytes).unwrap();
        if bytes.len() < 1 << 20 {
            let found = fast(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
            let sizes = Sizes { block: 10_000, piece: 1000, anywhere: false };
            assert_eq!(in_blocks(&bytes, 2, sizes).unwrap(), found, "{name}");
            assert_eq!(without_places(found), slow(text).unwrap(), "{name}");
        }
        let counts = counts(&bytes, 1);
        assert_eq!(counts, slow_counts(text), "{name}");
        assert_eq!(counts, self::counts(&bytes, 2), "{name}");
        count += 1;
        events += counts.iter().sum::<usize>();
    }
    println!("{count} histories, {events} events");
    assert!(count > 100);
}

fn counts(bytes: &[u8], threads: usize) -> [usize; 4] {
    let mut counts = [0; 4];
    read(&mut &bytes[..], threads, &mut |batch| {
        batch.kind.iter().for_each(|&kind| counts[kind as usize] += 1);
        Ok(())
    })
    .unwrap();
    counts
}

/// Counts by way of values: of the whole text if it is short, else line by line.
fn slow_counts(text: &str) -> [usize; 4] {
    let whole = text.len() < 4 << 20;
    let parts: Vec<&str> = if whole { vec![text] } else { text.lines().collect() };
    let mut counts = [0; 4];
    for part in parts {
        count_types(&parse(&format!("[{part}\n]")).unwrap(), &mut counts);
    }
    counts
}

fn count_types(value: &Value, counts: &mut [usize; 4]) {
    match value {
        Value::Vector(items) => items.iter().for_each(|item| count_types(item, counts)),
        Value::Tagged(_, value) => count_types(value, counts),
        other => {
            let name = other.get("type").and_then(Value::as_name).unwrap();
            counts[EventType::from_name(name.as_bytes()).unwrap() as usize] += 1;
        }
    }
}
