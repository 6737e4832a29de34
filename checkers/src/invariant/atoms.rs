//! What does a collection hold? Its elements as scalars, whichever way it was written.

use elench_formats::Value;
use elench_formats::columns::{Scalar, ValueRef};
use elench_formats::history::OpRef;

/// Gives every element of a vector or set. False where the value is none.
///
/// An element whose text no value of the history bears by itself is given as `None`.
pub(super) fn elements(op: &OpRef<'_>, value: ValueRef<'_>, mut each: impl FnMut(Option<Scalar>)) -> bool {
    if let Some(list) = value.elements() {
        list.iter().for_each(|scalar| each(Some(scalar)));
        return true;
    }
    let ValueRef::Text(id) = value else { return false };
    match elench_formats::edn::parse(op.text(id)) {
        Ok(Value::Set(items) | Value::Vector(items)) => {
            items.iter().for_each(|item| each(scalar(op, item)));
            true
        }
        _ => false,
    }
}

/// The scalar that equals a value, if there is one in the history.
pub(super) fn scalar(op: &OpRef<'_>, value: &Value) -> Option<Scalar> {
    match value {
        Value::Nil => Some(Scalar::Nil),
        Value::Int(n) => Some(Scalar::Int(*n)),
        other => op.find_text(&other.to_edn()).map(Scalar::Text),
    }
}

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
