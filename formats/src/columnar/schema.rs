//! Which columns does a history's file have, and of what types?
//!
//! A [`Plan`] is a join: each chunk adds to the shapes that occur, and the types follow from what occurred anywhere. Two
//! passes over the text ids, none over integers.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::Array;
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};

use crate::columns::{ListCol, ScalarCol, ValueCol};
use crate::error::{ReadError, Result};
use crate::history::{Chunk, History};
use crate::value::write_str;

use super::span;

/// Field metadata: are texts plain strings or EDN?
pub(super) const TEXT: &str = "elench.text";
/// Field metadata: what an `input` or `output` column is, where it is the only one.
pub(super) const SHAPE: &str = "elench.shape";

/// How the texts of a column are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TextMode {
    /// All are strings, written without quotes.
    Plain,
    /// Canonical EDN.
    Edn,
}

/// What a scalar column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Scalars {
    ints: bool,
    texts: Option<TextMode>,
    /// Is there a row without anything?
    nils: bool,
}

/// What an `input` or `output` holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Values {
    pub(super) scalars: Scalars,
    /// Shape of the lists' elements, if there are lists.
    pub(super) lists: Option<Scalars>,
    pub(super) sets: bool,
}

/// The columns of a history's file: which shapes occur in it. A file written chunk by chunk is given one beforehand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub(super) key: Scalars,
    pub(super) input: Values,
    pub(super) output: Values,
    pub(super) txn_key: Scalars,
    pub(super) txn: Values,
    pub(super) error: TextMode,
    pub(super) invoke_extra: bool,
}

/// One of the columns that an `input` or `output` becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Scalar,
    List,
    Set,
}

impl Scalars {
    fn or(self, other: Scalars) -> Scalars {
        Scalars { ints: self.ints || other.ints, texts: self.texts.max(other.texts), nils: self.nils || other.nils }
    }

    fn is_void(self) -> bool {
        !self.ints && self.texts.is_none()
    }

    /// How texts are written: `None` when the column is integers.
    pub(super) fn mode(self) -> Option<TextMode> {
        self.texts.map(|mode| if self.ints { TextMode::Edn } else { mode })
    }

    fn field(self, name: &str) -> Field {
        match self.mode() {
            None => Field::new(name, DataType::Int64, true),
            Some(mode) => text_field(name, DataType::Int32, mode),
        }
    }
}

impl Scalars {
    /// Within lists, what can be null costs a level a value to decode: only what is null somewhere may be.
    fn inner_field(self, name: &str) -> Field {
        self.field(name).with_nullable(self.nils)
    }
}

impl Values {
    fn or(self, other: Values) -> Values {
        let lists = match (self.lists, other.lists) {
            (Some(a), Some(b)) => Some(a.or(b)),
            (a, b) => a.or(b),
        };
        Values { scalars: self.scalars.or(other.scalars), lists, sets: self.sets || other.sets }
    }

    /// The columns of these values, by name.
    pub(super) fn columns(self, name: &str) -> Vec<(Shape, Field)> {
        let occurring: Vec<Shape> =
            [(!self.scalars.is_void(), Shape::Scalar), (self.lists.is_some(), Shape::List), (self.sets, Shape::Set)]
                .into_iter()
                .filter_map(|(occurs, shape)| occurs.then_some(shape))
                .collect();
        let field = |shape, name: &str| match shape {
            Shape::Scalar => self.scalars.field(name),
            Shape::List => list_field(name, self.lists.unwrap_or_default()),
            Shape::Set => list_field(name, Scalars::default()),
        };
        match occurring[..] {
            [] => vec![(Shape::Scalar, field(Shape::Scalar, name))],
            [only] => {
                let field = field(only, name);
                let mut metadata = field.metadata().clone();
                metadata.insert(SHAPE.into(), only.name().into());
                vec![(only, field.with_metadata(metadata))]
            }
            _ => {
                let mut out = vec![(Shape::Scalar, field(Shape::Scalar, name))];
                for shape in occurring.into_iter().filter(|s| *s != Shape::Scalar) {
                    out.push((shape, field(shape, &format!("{name}_{}", shape.name()))));
                }
                out
            }
        }
    }

    /// The fields of a micro-operation's value: `value` and `list` are always there.
    pub(super) fn txn_columns(self) -> Vec<(Shape, Field)> {
        let mut out = vec![
            (Shape::Scalar, self.scalars.field("value")),
            (Shape::List, list_field("list", self.lists.unwrap_or_default())),
        ];
        if self.sets {
            out.push((Shape::Set, list_field("set", Scalars::default())));
        }
        out
    }
}

impl Shape {
    pub(super) fn name(self) -> &'static str {
        match self {
            Shape::Scalar => "scalar",
            Shape::List => "list",
            Shape::Set => "set",
        }
    }
}

fn text_field(name: &str, key: DataType, mode: TextMode) -> Field {
    let mode = if mode == TextMode::Plain { "plain" } else { "edn" };
    dictionary_field(name, key).with_metadata(HashMap::from([(TEXT.to_string(), mode.to_string())]))
}

fn dictionary_field(name: &str, key: DataType) -> Field {
    Field::new(name, DataType::Dictionary(Box::new(key), Box::new(DataType::Utf8)), true)
}

fn list_field(name: &str, items: Scalars) -> Field {
    Field::new(name, DataType::List(Arc::new(items.inner_field("element"))), true)
}

fn map_field(name: &str) -> Field {
    let entries =
        Fields::from(vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, true)]);
    let entries = Field::new("entries", DataType::Struct(entries), false);
    Field::new(name, DataType::Map(Arc::new(entries), false), true)
        .with_metadata(HashMap::from([(TEXT.to_string(), "edn".to_string())]))
}

impl Plan {
    /// The columns that hold this history.
    pub fn of(history: &History) -> Plan {
        let plain: Vec<bool> = history.texts().iter().map(|t| unquote(t).is_some()).collect();
        history.chunks().iter().fold(Plan::empty(), |plan, chunk| plan.or(&Plan::of_chunk(chunk, &plain)))
    }

    fn empty() -> Plan {
        Plan {
            key: Scalars::default(),
            input: Values::default(),
            output: Values::default(),
            txn_key: Scalars::default(),
            txn: Values::default(),
            error: TextMode::Plain,
            invoke_extra: false,
        }
    }

    fn of_chunk(chunk: &Chunk, plain: &[bool]) -> Plan {
        let rows = chunk.len();
        let txn = chunk.txn.as_ref().map(|t| {
            let (at, len) = span(&t.offsets);
            (scalars(&t.key.slice(at, len), len, plain), values(&t.value.slice(at, len), len, plain))
        });
        let (txn_key, txn) = txn.unwrap_or_default();
        Plan {
            key: scalars(&chunk.key, rows, plain),
            input: values(&chunk.input, rows, plain),
            output: values(&chunk.output, rows, plain),
            txn_key,
            txn,
            error: chunk.error.as_ref().and_then(|e| text_mode(e.iter().flatten(), plain)).unwrap_or(TextMode::Plain),
            invoke_extra: chunk.invoke_extra.is_some(),
        }
    }

    fn or(&self, other: &Plan) -> Plan {
        Plan {
            key: self.key.or(other.key),
            input: self.input.or(other.input),
            output: self.output.or(other.output),
            txn_key: self.txn_key.or(other.txn_key),
            txn: self.txn.or(other.txn),
            error: self.error.max(other.error),
            invoke_extra: self.invoke_extra || other.invoke_extra,
        }
    }

    /// Says which column cannot hold what a later part of the history would put there.
    pub(super) fn admit(&self, later: &Plan) -> Result<()> {
        let (mine, joined) = (self.schema(), self.or(later).schema());
        match joined.fields().iter().find(|f| mine.field_with_name(f.name()).ok() != Some(f)) {
            None => Ok(()),
            Some(field) => Err(ReadError::new(format!(
                "a later part of the history needs column `{}` as {}, which is not what the file began with",
                field.name(),
                field.data_type()
            ))
            .hint("plan the file from a history in which all shapes of values occur")),
        }
    }

    /// The file's columns in order.
    pub(super) fn schema(&self) -> SchemaRef {
        let int = |name: &str| Field::new(name, DataType::Int64, true);
        let mut fields = vec![
            Field::new("index", DataType::UInt64, false),
            Field::new("complete_index", DataType::UInt64, true),
            int("process"),
            dictionary_field("actor", DataType::Int16),
            dictionary_field("status", DataType::Int8).with_nullable(false),
            dictionary_field("f", DataType::Int16),
            int("invoke_time"),
            int("complete_time"),
            self.key.field("key"),
        ];
        fields.extend(self.input.columns("input").into_iter().map(|(_, f)| f));
        fields.extend(self.output.columns("output").into_iter().map(|(_, f)| f));
        let mop = DataType::Struct(self.mop_fields());
        fields.push(Field::new("txn", DataType::List(Arc::new(Field::new("element", mop, false))), true));
        fields.push(text_field("error", DataType::Int32, self.error));
        fields.push(dictionary_field("node", DataType::Int32));
        fields.push(dictionary_field("fault_epoch", DataType::Int32));
        fields.push(Field::new("timeout", DataType::Boolean, false));
        fields.push(map_field("extra"));
        if self.invoke_extra {
            fields.push(map_field("invoke_extra"));
        }
        Arc::new(Schema::new(fields))
    }

    /// The fields of a micro-operation.
    pub(super) fn mop_fields(&self) -> Fields {
        let head = [dictionary_field("f", DataType::Int16).with_nullable(false), self.txn_key.inner_field("key")];
        let values = self.txn.txn_columns().into_iter().map(|(_, f)| f);
        let known = Field::new("known", DataType::Boolean, false);
        head.into_iter().chain(values).chain([known]).map(|f| Arc::new(f) as FieldRef).collect()
    }
}

fn scalars(col: &ScalarCol, rows: usize, plain: &[bool]) -> Scalars {
    let valid = |a: &dyn Array| a.len() - a.null_count();
    let ints = col.ints.as_ref().map_or(0, |a| valid(a));
    let texts = col.texts.as_ref().map_or(0, |a| valid(a));
    Scalars {
        ints: ints > 0,
        nils: ints + texts < rows,
        texts: col.texts.as_ref().and_then(|a| text_mode(a.iter().flatten(), plain)),
    }
}

fn text_mode(mut ids: impl Iterator<Item = u32>, plain: &[bool]) -> Option<TextMode> {
    let is_plain = |id: u32| plain.get(id as usize).copied().unwrap_or(false);
    let first = ids.next()?;
    Some(if is_plain(first) && ids.all(is_plain) { TextMode::Plain } else { TextMode::Edn })
}

fn values(col: &ValueCol, rows: usize, plain: &[bool]) -> Values {
    let used = |l: &&ListCol| l.nulls.as_ref().is_none_or(|n| n.null_count() < n.len()) && l.rows() > 0;
    Values {
        scalars: scalars(&col.scalars, rows, plain),
        lists: col.lists.as_ref().filter(used).map(|l| {
            let (at, len) = l.extent();
            scalars(&l.items.slice(at, len), len, plain)
        }),
        sets: col.sets.as_ref().filter(used).is_some(),
    }
}

/// The string that a canonical EDN text is, if it is one and quoting gives exactly this text again.
pub(super) fn unquote(text: &str) -> Option<String> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    if !inner.contains('\\') {
        let clean = !inner.bytes().any(|b| b == b'"' || b < 0x20 || b == 0x7f) && text.len() >= 2;
        return clean.then(|| inner.to_string());
    }
    let mut out = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        out.push(if c == '\\' { escaped(&mut chars)? } else { c });
    }
    (quote(&out) == text).then_some(out)
}

fn escaped(chars: &mut std::str::Chars<'_>) -> Option<char> {
    Some(match chars.next()? {
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'u' => {
            let digits = chars.as_str().get(..4)?;
            *chars = chars.as_str().get(4..)?.chars();
            char::from_u32(u32::from_str_radix(digits, 16).ok()?)?
        }
        c => c,
    })
}

/// The canonical EDN text of a string.
pub(super) fn quote(s: &str) -> String {
    let mut out = String::with_capacity(s.len() + 2);
    write_str(&mut out, s);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unquoting_is_undone_by_quoting_or_refused() {
        for s in ["", "a", "ä\n\"\\", "\u{1}\u{7f}", "nil", ":k", "\\u0001"] {
            assert_eq!(unquote(&quote(s)).as_deref(), Some(s));
        }
        for text in ["nil", "\"", ":a", "\"\\ud800\"", "\"a\" \"b\"", "\"\\q\"", "\"\\u00e4\"", "\"\\"] {
            assert_eq!(unquote(text), None, "{text}");
        }
    }
}
