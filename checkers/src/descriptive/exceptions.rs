//! What went wrong with the operations that did not succeed? Errors grouped by class, the most frequent first. O(n).
//!
//! The class of an error is what stays the same when details change: of `[:conn-refused "n1:2379"]` the name, of a map
//! its `:type` or `:class`, of a text what stands before its first digit, quote or colon.

use std::collections::HashMap;

use elench_formats::history::{OpRef, Status};
use elench_formats::sorting::{pair, sort_by_wide};
use elench_formats::{History, Value};

/// Errors of one class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExceptionGroup {
    /// The class.
    pub class: String,
    /// How many operations bear it.
    pub count: u64,
    /// Indexed by the code of [`Status`].
    pub by_status: [u64; 4],
    /// The first operation that bears it, by the index of its invocation.
    pub first: u64,
    /// That operation's whole error, as EDN text.
    pub example: String,
}

/// Groups the errors of client operations by class.
pub fn exceptions(history: &History) -> Vec<ExceptionGroup> {
    let mut classes: HashMap<&str, String> = HashMap::new();
    let mut groups: HashMap<String, ExceptionGroup> = HashMap::new();
    for op in history.clients() {
        let Some(error) = error(&op) else { continue };
        let class = classes.entry(error).or_insert_with(|| class_of(error));
        let group = groups.entry(class.clone()).or_insert_with(|| ExceptionGroup {
            class: class.clone(),
            count: 0,
            by_status: [0; 4],
            first: op.index(),
            example: error.to_string(),
        });
        group.count += 1;
        group.by_status[op.status() as usize] += 1;
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    sort_by_wide(&mut groups, |group| pair(!group.count, group.first));
    groups
}

/// The text of an operation's error: its `:error`, else its `:exception`.
pub(super) fn error<'a>(op: &OpRef<'a>) -> Option<&'a str> {
    if op.status() == Status::Ok {
        return None;
    }
    op.error().or_else(|| op.extra("exception"))
}

pub(super) fn class_of(error: &str) -> String {
    match elench_formats::edn::parse(error) {
        Ok(value) => class_of_value(&value),
        Err(_) => class_of_text(error),
    }
}

fn class_of_value(value: &Value) -> String {
    match value {
        Value::Vector(items) => items.first().map_or_else(|| "[]".into(), class_of_value),
        Value::Map(_) => {
            let named = ["type", "class", "via", "cause", "message"].iter().find_map(|name| value.get(name));
            named.map_or_else(|| "a map".into(), class_of_value)
        }
        Value::Str(text) => class_of_text(text),
        Value::Tagged(tag, inner) => match &**inner {
            Value::Vector(_) | Value::Map(_) => format!("#{tag} {}", class_of_value(inner)),
            _ => format!("#{tag}"),
        },
        other => other.to_edn(),
    }
}

fn class_of_text(text: &str) -> String {
    let end = text.find(|c: char| c.is_ascii_digit() || matches!(c, '"' | '\'' | ':' | '\n')).unwrap_or(text.len());
    let class = text[..end].trim();
    if class.is_empty() { text.chars().take(40).collect() } else { class.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_what_stays_when_details_change() {
        for (error, class) in [
            (":timeout", ":timeout"),
            ("[:conn-refused \"n1:2379\"]", ":conn-refused"),
            ("\"could not reach n3: timed out after 5000 ms\"", "could not reach n"),
            ("{:type :aborted, :code 40001}", ":aborted"),
            ("42", "42"),
            ("#object[java.net.SocketException 0x1 \"x\"]", "#object java.net.SocketException"),
        ] {
            assert_eq!(class_of(error), class, "{error}");
        }
    }
}
