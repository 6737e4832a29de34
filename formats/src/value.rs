//! What can stand in a history: any EDN value, kept exactly.
//!
//! Hot paths never build these trees: readers shred values into [`Cell`](crate::event::Cell)s. A `Value` is for what
//! does not shred (nested maps, tagged literals, exceptions) and for those who look at one value at a time.
//!
//! **Equality is EDN's**: sequences are equal whether written `(1 2)` or `[1 2]`, `5N` is `5`, `4/2` is `2`, sets and
//! maps have no order. To make that hold for the *text* too, every `Value` is canonical: sequences are vectors, sets
//! and maps are sorted and free of duplicates, numbers are in their smallest form. Equal values therefore have equal
//! text, so that texts can be interned and compared as integers.

use std::cmp::Ordering;
use std::fmt;

/// How deep values may nest before a reader refuses them: bounds every recursion over a `Value`.
pub const MAX_DEPTH: usize = 256;

/// Any EDN value, canonical. See the module for what equality means.
#[derive(Clone, Debug)]
pub enum Value {
    /// `nil`
    Nil,
    /// `true` or `false`
    Bool(bool),
    /// An integer that fits 64 bits.
    Int(i64),
    /// An integer that does not, as decimal digits with an optional minus sign, no leading zeros.
    BigInt(Box<str>),
    /// A double. Compared by bits, every NaN being the same one.
    Float(f64),
    /// An arbitrary-precision decimal, as written, without its `M`.
    Decimal(Box<str>),
    /// A ratio `n/d` as written, in lowest terms where both parts fit 128 bits.
    Ratio(Box<str>),
    /// A character: one UTF-16 unit or a whole code point, so that a lone surrogate can be told.
    Char(u32),
    /// A string.
    Str(Box<str>),
    /// A string that is not Unicode: it holds lone surrogates, which Java and JSON let through.
    Utf16(Box<[u16]>),
    /// A keyword without its colon, with its namespace: `jepsen/node`.
    Keyword(Box<str>),
    /// A symbol with its namespace.
    Symbol(Box<str>),
    /// A vector or a list.
    Vector(Vec<Value>),
    /// A set: sorted, no element twice.
    Set(Vec<Value>),
    /// A map: sorted by key, no key twice.
    Map(Vec<(Value, Value)>),
    /// A tagged literal `#tag value`: tag without its `#`.
    Tagged(Box<str>, Box<Value>),
}

impl Value {
    /// An integer from decimal digits of any length (`+`, `-` and leading zeros allowed), or `None` if it is not one.
    pub fn integer(digits: &str) -> Option<Value> {
        if let Ok(n) = digits.parse::<i64>() {
            return Some(Value::Int(n));
        }
        let (sign, rest) = match digits.as_bytes().first()? {
            b'-' => ("-", &digits[1..]),
            b'+' => ("", &digits[1..]),
            _ => ("", digits),
        };
        if rest.is_empty() || !rest.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let trimmed = rest.trim_start_matches('0');
        match format!("{sign}{trimmed}") {
            text if trimmed.is_empty() => {
                let _ = text;
                Some(Value::Int(0))
            }
            text => Some(text.parse::<i64>().map_or(Value::BigInt(text.into()), Value::Int)),
        }
    }

    /// A ratio from its two parts, reduced where both fit 128 bits; `None` when a part is no integer or `d` is zero.
    pub fn ratio(n: &str, d: &str) -> Option<Value> {
        let (num, den) = (Value::integer(n)?, Value::integer(d)?);
        if matches!(den, Value::Int(0)) {
            return None;
        }
        let (Ok(mut n), Ok(mut d)) = (num.to_string().parse::<i128>(), den.to_string().parse::<i128>()) else {
            return Some(Value::Ratio(format!("{num}/{den}").into()));
        };
        let g = gcd(n.unsigned_abs(), d.unsigned_abs());
        if let Ok(g) = i128::try_from(g) {
            (n, d) = (n / g, d / g);
        }
        if d < 0 {
            (n, d) = (n.checked_neg()?, d.checked_neg()?);
        }
        if d == 1 { Value::integer(&n.to_string()) } else { Some(Value::Ratio(format!("{n}/{d}").into())) }
    }

    /// A string from UTF-16 units: [`Value::Str`] where they are Unicode, [`Value::Utf16`] where not.
    pub fn utf16(units: Vec<u16>) -> Value {
        match String::from_utf16(&units) {
            Ok(s) => Value::Str(s.into()),
            Err(_) => Value::Utf16(units.into()),
        }
    }

    /// A set of these elements: sorted, duplicates dropped.
    pub fn set(mut elements: Vec<Value>) -> Value {
        elements.sort_unstable();
        elements.dedup();
        Value::Set(elements)
    }

    /// A map of these entries: sorted by key; of two entries with one key the later stays.
    pub fn map(mut entries: Vec<(Value, Value)>) -> Value {
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.reverse();
        entries.dedup_by(|a, b| a.0 == b.0);
        entries.reverse();
        Value::Map(entries)
    }

    /// A keyword.
    pub fn keyword(name: &str) -> Value {
        Value::Keyword(name.into())
    }

    /// A string.
    pub fn str(s: &str) -> Value {
        Value::Str(s.into())
    }

    /// The integer this is, if it is one of 64 bits.
    pub fn as_int(&self) -> Option<i64> {
        if let Value::Int(n) = self { Some(*n) } else { None }
    }

    /// The name that this keyword, symbol or string is.
    pub fn as_name(&self) -> Option<&str> {
        match self {
            Value::Keyword(s) | Value::Symbol(s) | Value::Str(s) => Some(s),
            _ => None,
        }
    }

    /// The elements, if this is a vector or list.
    pub fn as_vector(&self) -> Option<&[Value]> {
        if let Value::Vector(v) = self { Some(v) } else { None }
    }

    /// The entry of a map under a keyword, symbol or string of this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let Value::Map(entries) = self else { return None };
        entries.iter().find(|(k, _)| k.as_name() == Some(name)).map(|(_, v)| v)
    }

    /// The canonical EDN text: equal values have equal text, and reading it gives this value again.
    pub fn to_edn(&self) -> String {
        let mut out = String::new();
        self.write_edn(&mut out);
        out
    }

    /// Appends the canonical EDN text.
    pub fn write_edn(&self, out: &mut String) {
        match self {
            Value::Nil => out.push_str("nil"),
            Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
            Value::Int(n) => push_int(out, *n),
            Value::BigInt(s) | Value::Ratio(s) | Value::Symbol(s) => out.push_str(s),
            Value::Decimal(s) => {
                out.push_str(s);
                out.push('M');
            }
            Value::Float(x) => write_float(out, *x),
            Value::Char(c) => write_char(out, *c),
            Value::Str(s) => write_str(out, s),
            Value::Utf16(units) => write_utf16(out, units),
            Value::Keyword(s) => {
                out.push(':');
                out.push_str(s);
            }
            Value::Vector(v) => write_seq(out, "[", v, "]"),
            Value::Set(v) => write_seq(out, "#{", v, "}"),
            Value::Map(entries) => {
                out.push('{');
                for (i, (k, v)) in entries.iter().enumerate() {
                    if i > 0 {
                        out.push_str(", ");
                    }
                    k.write_edn(out);
                    out.push(' ');
                    v.write_edn(out);
                }
                out.push('}');
            }
            Value::Tagged(tag, v) => {
                out.push('#');
                out.push_str(tag);
                out.push(' ');
                v.write_edn(out);
            }
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Value::Nil => 0,
            Value::Bool(_) => 1,
            Value::Int(_) => 2,
            Value::BigInt(_) => 3,
            Value::Float(_) => 4,
            Value::Decimal(_) => 5,
            Value::Ratio(_) => 6,
            Value::Char(_) => 7,
            Value::Str(_) => 8,
            Value::Utf16(_) => 9,
            Value::Keyword(_) => 10,
            Value::Symbol(_) => 11,
            Value::Vector(_) => 12,
            Value::Set(_) => 13,
            Value::Map(_) => 14,
            Value::Tagged(..) => 15,
        }
    }
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

/// Appends a decimal integer.
pub fn push_int(out: &mut String, n: i64) {
    out.push_str(itoa::Buffer::new().format(n));
}

/// One bit pattern per number: every NaN is the same.
fn float_bits(x: f64) -> u64 {
    if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() }
}

fn write_float(out: &mut String, x: f64) {
    if x.is_nan() {
        out.push_str("##NaN");
    } else if x.is_infinite() {
        out.push_str(if x > 0.0 { "##Inf" } else { "##-Inf" });
    } else {
        out.push_str(ryu::Buffer::new().format_finite(x));
    }
}

fn write_seq(out: &mut String, open: &str, items: &[Value], close: &str) {
    out.push_str(open);
    for (i, v) in items.iter().enumerate() {
        if i > 0 {
            out.push(' ');
        }
        v.write_edn(out);
    }
    out.push_str(close);
}

/// Appends a string in quotes, control characters escaped.
pub fn write_str(out: &mut String, s: &str) {
    out.push('"');
    for c in s.chars() {
        write_escaped(out, c);
    }
    out.push('"');
}

fn write_escaped(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if (c as u32) < 0x20 || c == '\u{7f}' => push_u_escape(out, c as u32),
        c => out.push(c),
    }
}

fn push_u_escape(out: &mut String, unit: u32) {
    use fmt::Write;
    let _ = write!(out, "\\u{unit:04x}");
}

fn write_utf16(out: &mut String, units: &[u16]) {
    out.push('"');
    for unit in char::decode_utf16(units.iter().copied()) {
        match unit {
            Ok(c) => write_escaped(out, c),
            Err(lone) => push_u_escape(out, u32::from(lone.unpaired_surrogate())),
        }
    }
    out.push('"');
}

fn write_char(out: &mut String, c: u32) {
    out.push('\\');
    match c {
        0x0a => out.push_str("newline"),
        0x0d => out.push_str("return"),
        0x20 => out.push_str("space"),
        0x09 => out.push_str("tab"),
        0x08 => out.push_str("backspace"),
        0x0c => out.push_str("formfeed"),
        c => match char::from_u32(c) {
            Some(ch) if !ch.is_control() && !ch.is_whitespace() && ch != ',' => out.push(ch),
            _ => {
                out.pop();
                push_u_escape(out, c);
            }
        },
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        use Value::*;
        match (self, other) {
            (Bool(a), Bool(b)) => a.cmp(b),
            (Int(a), Int(b)) => a.cmp(b),
            (Float(a), Float(b)) => a.total_cmp(b).then_with(|| float_bits(*a).cmp(&float_bits(*b))),
            (Char(a), Char(b)) => a.cmp(b),
            (BigInt(a), BigInt(b))
            | (Decimal(a), Decimal(b))
            | (Ratio(a), Ratio(b))
            | (Str(a), Str(b))
            | (Keyword(a), Keyword(b))
            | (Symbol(a), Symbol(b)) => a.cmp(b),
            (Utf16(a), Utf16(b)) => a.cmp(b),
            (Vector(a), Vector(b)) | (Set(a), Set(b)) => a.cmp(b),
            (Map(a), Map(b)) => a.cmp(b),
            (Tagged(s, a), Tagged(t, b)) => s.cmp(t).then_with(|| a.cmp(b)),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Value::Float(a), Value::Float(b)) => float_bits(*a) == float_bits(*b),
            _ => self.cmp(other) == Ordering::Equal,
        }
    }
}

impl Eq for Value {}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_edn())
    }
}

impl From<i64> for Value {
    fn from(n: i64) -> Self {
        Value::Int(n)
    }
}

impl From<&str> for Value {
    fn from(s: &str) -> Self {
        Value::str(s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_kept_exactly_and_in_their_smallest_form() {
        assert_eq!(Value::integer("007"), Some(Value::Int(7)));
        assert_eq!(Value::integer("-0"), Some(Value::Int(0)));
        assert_eq!(Value::integer("-00000000000000000000000"), Some(Value::Int(0)));
        assert_eq!(Value::integer("9223372036854775808").map(|v| v.to_edn()), Some("9223372036854775808".into()));
        assert_eq!(Value::integer("-9223372036854775808"), Some(Value::Int(i64::MIN)));
        assert_eq!(Value::integer("1x"), None);
        assert_eq!(Value::integer(""), None);
        assert_eq!(Value::integer("-"), None);
    }

    #[test]
    fn ratios_are_reduced() {
        assert_eq!(Value::ratio("4", "2"), Some(Value::Int(2)));
        assert_eq!(Value::ratio("2", "-4").map(|v| v.to_edn()), Some("-1/2".into()));
        assert_eq!(Value::ratio("1", "0"), None);
    }

    #[test]
    fn sets_and_maps_have_no_order_and_the_later_entry_stays() {
        assert_eq!(Value::set(vec![3.into(), 1.into(), 3.into()]).to_edn(), "#{1 3}");
        assert_eq!(
            Value::map(vec![(2.into(), 1.into()), (1.into(), 5.into()), (2.into(), 9.into())]).to_edn(),
            "{1 5, 2 9}"
        );
    }

    #[test]
    fn a_lone_surrogate_survives_as_an_escape() {
        assert_eq!(Value::utf16(vec![0x61, 0xd800]).to_edn(), "\"a\\ud800\"");
        assert_eq!(Value::utf16(vec![0xd83d, 0xde00]).to_edn(), "\"😀\"");
    }

    #[test]
    fn every_nan_is_one_value_and_zero_has_a_sign() {
        assert_eq!(Value::Float(f64::NAN), Value::Float(-f64::NAN));
        assert_ne!(Value::Float(0.0), Value::Float(-0.0));
        assert_eq!(Value::Float(1.0).to_edn(), "1.0");
    }
}
