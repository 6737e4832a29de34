//! What was in the system at the end, or what happened in it, as a file beside the history?
//!
//! A dump is a list of values: EDN or JSON (one collection, or a value a line), CSV (a record a line, fields named by the first), or
//! plain text, a value a line. A single map stays whole, as it says what lies where.

use elench_formats::Value;
use elench_formats::json::value::from_json;

/// The content of a dump.
#[derive(Clone, Debug, PartialEq)]
pub struct Dump {
    /// Its name, for messages: the file's.
    pub name: String,
    /// A collection: a vector, a set, or a map of places to what lies there.
    pub content: Value,
}

/// Reads a dump from the bytes of a file.
///
/// # Errors
/// When it is no text, or empty, or a line that looks like EDN or JSON is neither.
pub fn parse_dump(name: &str, bytes: &[u8]) -> Result<Dump, String> {
    let text = std::str::from_utf8(bytes).map_err(|e| format!("{name}: a dump is text: {e}"))?;
    let text = text.trim_start_matches('\u{feff}');
    let content = content(text).map_err(|e| format!("{name}: {e}"))?;
    Ok(Dump { name: name.to_string(), content })
}

fn content(text: &str) -> Result<Value, String> {
    let trimmed = text.trim();
    let Some(first) = trimmed.chars().next() else {
        return Err("the dump is empty: an empty collection is []".into());
    };
    let collection = |v: &Value| matches!(v, Value::Vector(_) | Value::Set(_) | Value::Map(_));
    if matches!(first, '[' | '{' | '(' | '#')
        && let Some(whole) = one(trimmed).filter(collection)
    {
        return Ok(whole);
    }
    let lines: Vec<&str> = trimmed.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if is_csv(&lines) {
        return Ok(csv(&lines));
    }
    let value = |(i, line): (usize, &&str)| match line.chars().next() {
        Some('[' | '{' | '(' | '#' | '"' | ':') => {
            one(line).ok_or_else(|| format!("line {} is neither EDN nor JSON: {line}", i + 1))
        }
        _ => Ok(word(line)),
    };
    lines.iter().enumerate().map(value).collect::<Result<_, _>>().map(Value::Vector)
}

/// A whole text as one value. What is JSON is read as that: `{"a":1}` would also be a map of EDN, from "a" to :1.
fn one(text: &str) -> Option<Value> {
    from_json(text).ok().or_else(|| elench_formats::edn::parse(text).ok())
}

/// A bare word: a number, a truth value, nothing, or else a string.
fn word(text: &str) -> Value {
    match (Value::integer(text), text) {
        (Some(integer), _) => integer,
        (None, "true") => Value::Bool(true),
        (None, "false") => Value::Bool(false),
        (None, "nil" | "null" | "") => Value::Nil,
        (None, other) => match other.parse::<f64>() {
            Ok(x) if other.starts_with(|c: char| c.is_ascii_digit() || c == '-') => Value::Float(x),
            _ => Value::str(other),
        },
    }
}

/// Records under a head of names: each line has as many commas as the first, and the first holds names alone.
fn is_csv(lines: &[&str]) -> bool {
    let Some(head) = lines.first() else { return false };
    let fields = fields(head);
    let named = fields.iter().all(|f| f.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'));
    fields.len() > 1 && named && lines.iter().all(|line| self::fields(line).len() == fields.len())
}

fn csv(lines: &[&str]) -> Value {
    let head = fields(lines[0]);
    let record = |line: &&str| {
        let entries = head.iter().zip(fields(line));
        Value::map(entries.map(|(name, field)| (Value::keyword(name), word(&field))).collect())
    };
    Value::Vector(lines[1..].iter().map(record).collect())
}

/// The fields of a line of CSV; quotes are doubled within quotes.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(std::mem::take(&mut field).trim().to_string()),
            c => field.push(c),
        }
    }
    fields.push(field.trim().to_string());
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edn(text: &str) -> String {
        parse_dump("dump", text.as_bytes()).map_or_else(|e| e, |dump| dump.content.to_edn())
    }

    #[test]
    fn a_dump_is_a_collection_or_a_value_a_line() {
        assert_eq!(edn("[1 2 :a]"), "[1 2 :a]");
        assert_eq!(edn("#{2 1}\n"), "#{1 2}");
        assert_eq!(edn("[1, 2, \"a\"]"), "[1 2 \"a\"]");
        assert_eq!(edn("1\n2\n\nabc\n"), "[1 2 \"abc\"]");
        assert_eq!(edn("{:a 1}\n{:a 2}\n"), "[{:a 1} {:a 2}]");
        assert_eq!(edn("{:a [1 2]}"), "{:a [1 2]}");
        assert_eq!(edn("7"), "[7]");
        assert_eq!(edn("[]"), "[]");
        assert_eq!(edn("id,amount\n7,5\n8,\"a,b\"\n"), "[{:amount 5, :id 7} {:amount \"a,b\", :id 8}]");
    }

    #[test]
    fn json_objects_have_names_for_keys() {
        assert_eq!(edn(r#"{"id": 1}"#).replace('"', ""), "{id 1}");
        let two = parse_dump("dump", b"{\"id\": 1}\n{\"id\": 2}\n").unwrap();
        let ids: Vec<_> = two.content.as_vector().unwrap().iter().map(|v| v.get("id").cloned()).collect();
        assert_eq!(ids, [Some(Value::Int(1)), Some(Value::Int(2))]);
    }

    #[test]
    fn what_cannot_be_read_is_said_with_its_line() {
        assert!(edn("  ").contains("empty"));
        assert!(edn("1\n[2\n").contains("line 2"), "{}", edn("1\n[2\n"));
        assert!(parse_dump("x", &[0xff, 0xfe]).is_err());
    }
}
