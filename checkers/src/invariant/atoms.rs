//! What do values say by themselves? As texts, as trees, and as names that outlive their history.

use elench_formats::Value;
use elench_formats::columns::{Scalar, ValueRef};
use elench_formats::history::OpRef;

/// A scalar as EDN.
pub(super) fn written(op: &OpRef<'_>, scalar: Scalar) -> String {
    match scalar {
        Scalar::Nil => "nil".into(),
        Scalar::Int(n) => n.to_string(),
        Scalar::Text(id) => op.text(id).to_string(),
    }
}

/// A value as a tree: for what is rare or odd.
pub(super) fn tree(op: &OpRef<'_>, value: ValueRef<'_>) -> Value {
    let of = |scalar: Scalar| match scalar {
        Scalar::Nil => Value::Nil,
        Scalar::Int(n) => Value::Int(n),
        Scalar::Text(id) => elench_formats::edn::parse(op.text(id)).unwrap_or(Value::Nil),
    };
    match value {
        ValueRef::Nil => Value::Nil,
        ValueRef::Int(n) => Value::Int(n),
        ValueRef::Text(id) => of(Scalar::Text(id)),
        ValueRef::List(list) => Value::Vector(list.iter().map(of).collect()),
        ValueRef::Set(list) => Value::set(list.iter().map(of).collect()),
    }
}

/// A scalar that can be told without its history. An integer costs no text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Name {
    #[default]
    Nil,
    Int(i64),
    Text(Box<str>),
}

impl Name {
    pub(super) fn of(op: &OpRef<'_>, scalar: Scalar) -> Name {
        match scalar {
            Scalar::Nil => Name::Nil,
            Scalar::Int(n) => Name::Int(n),
            Scalar::Text(id) => Name::Text(op.text(id).into()),
        }
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Name::Nil => f.write_str("nil"),
            Name::Int(n) => n.fmt(f),
            Name::Text(text) => f.write_str(text),
        }
    }
}
