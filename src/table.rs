//! A user's own model, from a TOML file: states, and what leads from which to which.
//!
//! ```toml
//! name = "door"                        # optional: the file's name
//! initial = "closed"
//! states = ["closed", "open"]          # optional: those that transitions name
//!
//! [[transition]]
//! from = "closed"                      # a state, several in a list, or "*" for any
//! f = "open"
//! to = "open"                          # left out: the state stays
//!
//! [[transition]]
//! from = "open"
//! f = "look"
//! output = ":open"                     # EDN; left out or "*": anything
//! ```
//!
//! `input` and `output` are compared with what an operation sent and received: numbers and booleans as they are, strings
//! as EDN. An operation happens if any transition fits it in the state that the object is in.

use std::ops::Range;
use std::path::Path;

use elench_checkers::model::{Table, Transition};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::check::BadRequest;

/// Larger files are no tables that somebody wrote.
const MAX_BYTES: u64 = 16 << 20;

/// Reads a model and its name from a file.
///
/// # Errors
/// When the file cannot be read or is no model, with the line.
pub fn load(path: &str) -> Result<(String, Table), BadRequest> {
    let cannot = |e: std::io::Error| BadRequest(format!("{path}: cannot read the model: {e}"));
    if std::fs::metadata(path).map_err(cannot)?.len() > MAX_BYTES {
        return Err(BadRequest(format!("{path}: a model of more than {MAX_BYTES} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(cannot)?;
    let stem = Path::new(path).file_stem().map_or(path.into(), |stem| stem.to_string_lossy());
    parse(&text, &stem).map_err(|Flaw { at, what }| {
        let line = text.get(..at).map_or(1, |before| before.matches('\n').count() + 1);
        BadRequest(format!("{path}: line {line}: {what}"))
    })
}

/// What is wrong, and at which byte.
#[derive(Debug)]
struct Flaw {
    at: usize,
    what: String,
}

fn flaw<T>(span: Range<usize>, what: String) -> Result<T, Flaw> {
    Err(Flaw { at: span.start, what })
}

type Entry<'a> = Spanned<DeValue<'a>>;

fn parse(text: &str, stem: &str) -> Result<(String, Table), Flaw> {
    let document = DeTable::parse(text)
        .map_err(|e| Flaw { at: e.span().map_or(0, |span| span.start), what: e.message().to_string() })?;
    let whole = document.get_ref();
    known_keys(whole, &["name", "states", "initial", "transition"])?;
    let name = whole.get("name").map_or(Ok(stem), string)?.to_string();
    let mut states = States { names: Vec::new(), closed: false };
    if let Some(list) = whole.get("states") {
        for name in array(list)? {
            states.names.push(string(name)?.into());
        }
        states.closed = true;
    }
    let Some(initial) = whole.get("initial") else {
        return flaw(document.span(), "a model needs `initial`, the state before the first operation".into());
    };
    let initial = states.place(initial)?;
    let mut transitions = Vec::new();
    for entry in whole.get("transition").map_or(Ok(&[][..]), array)? {
        transitions.extend(transition(entry, &mut states)?);
    }
    if transitions.is_empty() {
        return flaw(document.span(), "a model needs a [[transition]]".into());
    }
    let table = Table::new(states.names, initial, transitions);
    Ok((name, table.ok_or(Flaw { at: 0, what: "a transition names no state".into() })?))
}

/// States by place; those that are not listed are added as they are named, unless all are listed.
struct States {
    names: Vec<Box<str>>,
    closed: bool,
}

impl States {
    fn place(&mut self, entry: &Entry<'_>) -> Result<u32, Flaw> {
        let name = string(entry)?;
        if let Some(place) = self.names.iter().position(|n| **n == *name) {
            return Ok(place as u32);
        }
        if self.closed {
            return flaw(entry.span(), format!("`{name}` is none of the states {}", self.names.join(", ")));
        }
        self.names.push(name.into());
        Ok(self.names.len() as u32 - 1)
    }

    /// The states that an entry names; none: any.
    fn places(&mut self, entry: &Entry<'_>) -> Result<Vec<Option<u32>>, Flaw> {
        match entry.get_ref() {
            DeValue::Array(_) => array(entry)?.iter().map(|name| self.place(name).map(Some)).collect(),
            value if value.as_str() == Some("*") => Ok(vec![None]),
            _ => Ok(vec![Some(self.place(entry)?)]),
        }
    }
}

/// A transition from each of the states before.
fn transition(entry: &Entry<'_>, states: &mut States) -> Result<Vec<Transition>, Flaw> {
    let Some(table) = entry.get_ref().as_table() else {
        return flaw(entry.span(), "a transition is written [[transition]]".into());
    };
    known_keys(table, &["from", "f", "input", "output", "to"])?;
    let Some(f) = table.get("f") else {
        return flaw(entry.span(), "a transition needs `f`, the operation's name".into());
    };
    let Some(from) = table.get("from") else {
        return flaw(entry.span(), "a transition needs `from`, the state before, or \"*\"".into());
    };
    let f: Box<str> = string(f)?.trim_start_matches(':').into();
    let value = |name: &str| table.get(name).map_or(Ok(None), edn);
    let (input, output) = (value("input")?, value("output")?);
    let to = table.get("to").map(|to| states.place(to)).transpose()?;
    let of = |from| Transition { from, f: f.clone(), input: input.clone(), output: output.clone(), to };
    Ok(states.places(from)?.into_iter().map(of).collect())
}

/// The EDN text of a value; none for a wildcard.
fn edn(entry: &Entry<'_>) -> Result<Option<Box<str>>, Flaw> {
    let parse = |text: &str| elench_formats::edn::parse(text).map(|value| value.to_edn().into_boxed_str());
    match entry.get_ref() {
        DeValue::String(text) if *text == "*" => Ok(None),
        DeValue::String(text) => match parse(text) {
            Ok(text) => Ok(Some(text)),
            Err(e) => flaw(entry.span(), format!("`{text}` is no EDN value: {e}")),
        },
        DeValue::Boolean(b) => Ok(Some(b.to_string().into())),
        DeValue::Integer(n) if n.radix() == 10 => Ok(parse(n.as_str()).ok()),
        other => {
            flaw(entry.span(), format!("a value is a number, a boolean or EDN in a string, not a {}", other.type_str()))
        }
    }
}

fn string<'a>(entry: &'a Entry<'_>) -> Result<&'a str, Flaw> {
    let value = entry.get_ref();
    value
        .as_str()
        .ok_or_else(|| Flaw { at: entry.span().start, what: format!("a string is needed, not {}", value.type_str()) })
}

fn array<'a, 'i>(entry: &'a Entry<'i>) -> Result<&'a [Entry<'i>], Flaw> {
    match entry.get_ref() {
        DeValue::Array(list) => Ok(list),
        other => flaw(entry.span(), format!("a list is needed, not {}", other.type_str())),
    }
}

/// A misspelt key would silently mean nothing.
fn known_keys(table: &DeTable<'_>, known: &[&str]) -> Result<(), Flaw> {
    match table.keys().find(|key| !known.contains(&&**key.get_ref())) {
        Some(key) => {
            flaw(key.span(), format!("`{}` means nothing here: there are {}", key.get_ref(), known.join(", ")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flaw_of(text: &str) -> (usize, String) {
        let Flaw { at, what } = parse(text, "model").unwrap_err();
        (text[..at].matches('\n').count() + 1, what)
    }

    #[test]
    fn what_is_wrong_in_a_model_is_told_with_its_line() {
        let ok = "initial = \"a\"\n\n[[transition]]\nfrom = \"a\"\nf = \"go\"\nto = \"b\"\n";
        assert!(parse(ok, "model").is_ok());
        for (text, line, what) in [
            (ok.replace("\"go\"", "3"), 5, "a string is needed"),
            (ok.replace("f = \"go\"\n", ""), 3, "needs `f`"),
            (ok.replace("to =", "too ="), 6, "`too` means nothing here"),
            (format!("states = [\"a\"]\n{ok}"), 7, "`b` is none of the states a"),
            (ok.replace("to = \"b\"", "input = \"[1\""), 6, "is no EDN value"),
            (ok.replace("initial", "name"), 1, "needs `initial`"),
            (ok.replace("]]", "]"), 3, ""),
            ("initial = \"a\"\n".into(), 1, "needs a [[transition]]"),
        ] {
            let (at, told) = flaw_of(&text);
            assert!(at == line && told.contains(what), "{text}: line {at}: {told}");
        }
    }
}
