//! How does a value become JSON and come back the same?
//!
//! What JSON has is written as JSON: null, booleans, integers of any length, finite doubles (always with a point or an
//! exponent, which is what tells them from integers), strings (a lone surrogate as its escape), vectors, and maps whose
//! keys are strings. Everything else is written as an object with one key, `{"~edn": "#{1 2}"}`, that holds its canonical
//! EDN text, and only the innermost part that needs it is so wrapped. A map that looks like such a wrapper is wrapped itself.
//!
//! Reading is exact too: a number whose double would be infinite (`1e400`) becomes a [`Value::Decimal`] as it was written.
//! Of two entries with one key the later stays.
//!
//! Cost: linear in the text; recursion is bounded by [`MAX_DEPTH`].

use super::cursor::{Cursor, Halt, Number, Parse, Text};
use crate::edn;
use crate::error::{Place, ReadError, Result};
use crate::value::{MAX_DEPTH, Value, push_int};

/// The key of the object that holds what JSON cannot say.
pub const EDN_KEY: &str = "~edn";

/// The value that a JSON text is.
pub fn from_json(text: &str) -> Result<Value> {
    let mut cur = Cursor::whole(text);
    cur.skip_bom();
    let value = value(&mut cur, 0).map_err(|halt| match halt {
        Halt::Bad(e) => *e,
        Halt::More | Halt::Odd => ReadError::new("the JSON text breaks off").at(Place::Line(cur.line())),
    })?;
    if !cur.at_end() {
        return Err(ReadError::new("something follows the JSON value").at(Place::Line(cur.line())));
    }
    Ok(value)
}

/// The JSON text of a value: [`from_json`] gives the value again.
pub fn to_json(value: &Value) -> String {
    let mut out = String::new();
    write_json(value, &mut out);
    out
}

/// Appends the JSON text of a value.
pub fn write_json(value: &Value, out: &mut String) {
    match value {
        Value::Nil => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Int(n) => push_int(out, *n),
        Value::BigInt(digits) => out.push_str(digits),
        Value::Float(x) if x.is_finite() => out.push_str(ryu::Buffer::new().format_finite(*x)),
        Value::Str(s) => write_json_str(s, out),
        Value::Utf16(units) => write_json_utf16(units, out),
        Value::Vector(items) => write_array(items, out),
        Value::Map(entries) if is_object(entries) => write_object(entries, out),
        other => {
            out.push_str("{\"~edn\":");
            write_json_str(&other.to_edn(), out);
            out.push('}');
        }
    }
}

fn write_array(items: &[Value], out: &mut String) {
    out.push('[');
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        write_json(item, out);
    }
    out.push(']');
}

fn write_object(entries: &[(Value, Value)], out: &mut String) {
    out.push('{');
    for (i, (key, value)) in entries.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        write_json(key, out);
        out.push(':');
        write_json(value, out);
    }
    out.push('}');
}

/// Can these entries stand as a JSON object and be read back as themselves?
fn is_object(entries: &[(Value, Value)]) -> bool {
    wrapped_text(entries).is_none() && entries.iter().all(|(k, _)| matches!(k, Value::Str(_) | Value::Utf16(_)))
}

/// The EDN text in a wrapper.
fn wrapped_text(entries: &[(Value, Value)]) -> Option<&str> {
    match entries {
        [(Value::Str(key), Value::Str(text))] if &**key == EDN_KEY => Some(text),
        _ => None,
    }
}

/// Appends a string in quotes, what JSON demands escaped.
pub fn write_json_str(s: &str, out: &mut String) {
    out.push('"');
    for c in s.chars() {
        write_escaped(c, out);
    }
    out.push('"');
}

fn write_json_utf16(units: &[u16], out: &mut String) {
    out.push('"');
    for unit in char::decode_utf16(units.iter().copied()) {
        match unit {
            Ok(c) => write_escaped(c, out),
            Err(lone) => push_u_escape(u32::from(lone.unpaired_surrogate()), out),
        }
    }
    out.push('"');
}

fn write_escaped(c: char, out: &mut String) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if (c as u32) < 0x20 => push_u_escape(c as u32, out),
        c => out.push(c),
    }
}

fn push_u_escape(unit: u32, out: &mut String) {
    use std::fmt::Write;
    // Writing to a String cannot fail.
    let _ = write!(out, "\\u{unit:04x}");
}

/// The value that begins here, inside `depth` collections.
pub(crate) fn value(cur: &mut Cursor<'_>, depth: usize) -> Parse<Value> {
    Ok(match cur.peek()? {
        b'"' => text_value(cur.string()?),
        b'-' | b'0'..=b'9' => number_value(cur.number()?),
        b'[' => array(cur, depth)?,
        b'{' => object(cur, depth)?.0,
        _ => cur.literal()?.map_or(Value::Nil, Value::Bool),
    })
}

/// The value that a string is.
pub(crate) fn text_value(text: Text<'_>) -> Value {
    match text {
        Text::Raw(s) => Value::str(s),
        Text::Owned(s) => Value::Str(s.into()),
        Text::Utf16(units) => Value::Utf16(units.into()),
    }
}

/// The value that a number is.
pub(crate) fn number_value(number: Number<'_>) -> Value {
    match number {
        Number::Int(n) => Value::Int(n),
        Number::Big(digits) => Value::BigInt(digits.into()),
        Number::Float(x, _) if x.is_finite() => Value::Float(x),
        Number::Float(_, text) => Value::Decimal(text.into()),
    }
}

fn array(cur: &mut Cursor<'_>, depth: usize) -> Parse<Value> {
    cur.enter(depth)?;
    let (mut items, mut first) = (Vec::new(), true);
    while cur.next_element(&mut first)? {
        items.push(value(cur, depth + 1)?);
    }
    Ok(Value::Vector(items))
}

/// The value that the object here is, and whether it was a wrapper around EDN text.
pub(crate) fn object(cur: &mut Cursor<'_>, depth: usize) -> Parse<(Value, bool)> {
    // A wrapper is no level of its own, and whether this is one is not known before its end.
    cur.enter(depth.saturating_sub(1))?;
    let (mut entries, mut first) = (Vec::new(), true);
    while let Some(key) = cur.next_key(&mut first)? {
        entries.push((text_value(key), value(cur, depth + 1)?));
    }
    let Value::Map(entries) = Value::map(entries) else { return Err(Halt::Odd) };
    if let Some(text) = wrapped_text(&entries) {
        return Ok((unwrap_edn(text, cur, depth)?, true));
    }
    if depth >= MAX_DEPTH {
        return Err(cur.too_deep());
    }
    Ok((Value::Map(entries), false))
}

fn unwrap_edn(text: &str, cur: &Cursor<'_>, depth: usize) -> Parse<Value> {
    let value =
        edn::parse(text).map_err(|e| cur.bad(format!("the EDN text in {EDN_KEY:?} is wrong: {}", e.what), &e.hint))?;
    if depth + nesting(&value) > MAX_DEPTH {
        return Err(cur.too_deep());
    }
    Ok(value)
}

/// How many collections deep a value goes.
fn nesting(value: &Value) -> usize {
    match value {
        Value::Vector(items) | Value::Set(items) => 1 + items.iter().map(nesting).max().unwrap_or(0),
        Value::Map(entries) => 1 + entries.iter().map(|(k, v)| nesting(k).max(nesting(v))).max().unwrap_or(0),
        Value::Tagged(_, value) => 1 + nesting(value),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name() -> impl Strategy<Value = Box<str>> {
        prop::sample::select(vec!["a", "jepsen/node", "x-y", "r", "été", "valid?", "~edn"]).prop_map(Box::from)
    }

    fn leaf() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Nil),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::Int),
            "-?[1-9][0-9]{18,40}".prop_map(|s| Value::integer(&s).unwrap()),
            any::<f64>().prop_map(Value::Float),
            any::<u64>().prop_map(|bits| Value::Float(f64::from_bits(bits))),
            "-?[0-9]\\.[0-9]{1,20}".prop_map(|s| Value::Decimal(s.into())),
            (any::<i64>(), 1..1000_i64).prop_map(|(n, d)| Value::ratio(&n.to_string(), &d.to_string()).unwrap()),
            (0..0xd800_u32).prop_map(Value::Char),
            any::<String>().prop_map(|s| Value::Str(s.into())),
            prop::collection::vec(prop_oneof![0xd700..0xe100_u16, 0..0x100_u16], 0..5).prop_map(Value::utf16),
            name().prop_map(Value::Keyword),
            prop::sample::select(vec!["a", "x/y", "+", "foo!"]).prop_map(|s| Value::Symbol(s.into())),
            Just(Value::str("~edn")),
            Just(Value::str("{\"~edn\": 1}")),
        ]
    }

    fn values() -> impl Strategy<Value = Value> {
        leaf().prop_recursive(5, 40, 5, |inner| {
            let entry = (prop_oneof![2 => Just(Value::str("~edn")), 4 => leaf(), 1 => inner.clone()], inner.clone());
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Vector),
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::set),
                prop::collection::vec(entry, 0..4).prop_map(Value::map),
                ("[a-z]{1,5}", inner).prop_map(|(tag, v)| Value::Tagged(tag.into(), Box::new(v))),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]
        #[test]
        fn every_value_comes_back_from_json_as_it_was(value in values()) {
            let json = to_json(&value);
            prop_assert_eq!(from_json(&json).unwrap_or_else(|e| panic!("{json}: {e}")), value, "{}", json);
        }

        #[test]
        fn json_that_others_read_is_read_and_nothing_else(json in "[\\[\\]{},:\"0-9a-z.+\\-eE \\\\tu\n]{0,12}") {
            let theirs = serde_json::from_str::<serde_json::Value>(&json);
            prop_assert_eq!(from_json(&json).is_ok(), theirs.is_ok(), "{:?}: {:?}", json, from_json(&json));
        }
    }

    #[test]
    fn what_json_can_say_is_said_in_json() {
        for json in [
            "null",
            "[1,-2,12345678901234567890]",
            "{\"a\":{\"b\":1.5}}",
            "\"\\ud800x\"",
            "-0.0",
            "1e300",
            "{\"~edn\":5}",
        ] {
            assert_eq!(to_json(&from_json(json).unwrap()), json);
        }
    }

    #[test]
    fn only_the_innermost_part_that_needs_it_is_wrapped() {
        let value = Value::map(vec![("a".into(), Value::Vector(vec![1.into(), Value::keyword("k")]))]);
        assert_eq!(to_json(&value), "{\"a\":[1,{\"~edn\":\":k\"}]}");
    }

    #[test]
    fn a_map_that_looks_like_a_wrapper_is_wrapped() {
        let value = Value::map(vec![("~edn".into(), ":k".into())]);
        assert_eq!(to_json(&value), "{\"~edn\":\"{\\\"~edn\\\" \\\":k\\\"}\"}");
        assert_eq!(from_json(&to_json(&value)).unwrap(), value);
    }

    #[test]
    fn a_number_beyond_doubles_is_kept_as_written() {
        assert_eq!(from_json("-1E400").unwrap(), Value::Decimal("-1E400".into()));
        assert_eq!(to_json(&from_json("1e400").unwrap()), "{\"~edn\":\"1e400M\"}");
        assert_eq!(from_json("{\"~edn\":\"1e400M\"}").unwrap(), Value::Decimal("1e400".into()));
    }

    #[test]
    fn the_later_of_two_equal_keys_counts() {
        assert_eq!(from_json("{\"a\":1,\"\\u0061\":2}").unwrap(), from_json("{\"a\":2}").unwrap());
    }

    #[test]
    fn nesting_is_bounded_wrapped_or_not() {
        let nest = |n: usize, inner: &str| format!("{}{inner}{}", "[".repeat(n), "]".repeat(n));
        assert!(from_json(&nest(MAX_DEPTH, "")).is_ok());
        assert!(from_json(&nest(MAX_DEPTH, "{\"~edn\":\":k\"}")).is_ok());
        assert!(from_json(&nest(MAX_DEPTH - 1, "{\"~edn\":\"#{1}\"}")).is_ok());
        for json in [
            nest(MAX_DEPTH + 1, ""),
            nest(MAX_DEPTH, "{}"),
            nest(MAX_DEPTH, "{\"~edn\":\"#{1}\"}"),
            "[".repeat(1 << 20),
        ] {
            assert!(from_json(&json).unwrap_err().what.contains("nest deeper"));
        }
        assert!(from_json(&"{\"a\":".repeat(1 << 20)).unwrap_err().what.contains("nest deeper"));
    }

    #[test]
    fn what_is_not_json_is_said_with_its_line() {
        for (json, words) in [
            ("[1,\nNaN]", "line 2: expected a value, found \"NaN]\" (JSON has no NaN"),
            ("[1,\n2,]", "line 2: expected a value, found \"]\""),
            ("007", "begins with 0"),
            ("1.", "breaks off after its point"),
            ("\"a\nb\"", "not closed on its line"),
            ("\"\\x\"", "unknown escape"),
            ("\"\\u12g4\"", "four hexadecimal"),
            ("{'a':1}", "double quotes"),
            ("{:a 1}", "--format edn"),
            ("nulL", "expected a value"),
            ("tru", "breaks off"),
            ("1 2", "something follows"),
            ("{\"~edn\":\"(\"}", "EDN text"),
            ("", "breaks off"),
        ] {
            let e = from_json(json).unwrap_err().to_string();
            assert!(e.contains(words), "{json}: {e}");
        }
    }
}
