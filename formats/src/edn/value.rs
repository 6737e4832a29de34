//! Which value does this form denote?
//!
//! A recursive descent whose depth is counted. What stacks without nesting (`#_ #_ a b`, `^a ^b x`) is counted instead
//! of recursed into.

use std::borrow::Cow;

use crate::edn::token::{BYTE_ORDER_MARK, Cursor, Fault, Scan, is_end, utf8};
use crate::error::Result;
use crate::value::{MAX_DEPTH, Value};

/// More digits than anybody needs in a base other than ten, where the conversion is quadratic.
const MAX_RADIX_DIGITS: usize = 4096;

/// The one form that this text holds.
///
/// ```
/// use elench_formats::{Value, edn};
///
/// let value = edn::parse("{:a #{3 1}, :b (1 2N 4/2)} ; and so on").unwrap();
/// assert_eq!(value.to_edn(), "{:a #{1 3}, :b [1 2 2]}");
/// ```
pub fn parse(text: &str) -> Result<Value> {
    parse_all(text.as_bytes())
}

/// The one form that a file holds, which may begin with a byte order mark; only texts that are kept must be UTF-8.
pub fn parse_bytes(bytes: &[u8]) -> Result<Value> {
    parse_all(bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes))
}

fn parse_all(bytes: &[u8]) -> Result<Value> {
    let mut cursor = Cursor::new(bytes, 0, true);
    whole(&mut cursor).map_err(|fault| fault.error(bytes, 0, 1))
}

fn whole(cursor: &mut Cursor<'_>) -> Scan<Value> {
    cursor.skip_trivia(0)?;
    if cursor.peek().is_none() {
        return Fault::bad(cursor.pos, "there is no value here");
    }
    let value = cursor.value_here(0)?;
    cursor.skip_trivia(0)?;
    if cursor.peek().is_some() {
        return Fault::bad(cursor.pos, "something follows after the value");
    }
    Ok(value)
}

impl<'a> Cursor<'a> {
    /// Goes to the next byte that means something: over white space, comments, discarded forms, metadata, quotes.
    #[inline]
    pub(crate) fn skip_trivia(&mut self, depth: usize) -> Scan<()> {
        self.skip_spaces();
        match self.peek() {
            Some(b';' | b'#' | b'^' | b'\'') => self.skip_forms(depth),
            _ => Ok(()),
        }
    }

    #[inline(never)]
    fn skip_forms(&mut self, depth: usize) -> Scan<()> {
        self.breaks = true;
        let (mut start, mut pending) = (self.pos, 0usize);
        loop {
            self.skip_comments()?;
            let mark = match (self.peek(), self.peek_second()) {
                (None, _) if pending > 0 => return Fault::end(start, "discarded form"),
                (None, _) => return Ok(()),
                (Some(b'\''), _) => {
                    self.pos += 1;
                    continue;
                }
                (Some(b'#'), None) => return Fault::end(self.pos, "tag"),
                (Some(b'^'), _) => 1,
                (Some(b'#'), Some(b'_' | b'^')) => 2,
                (Some(_), _) if pending == 0 => return Ok(()),
                (Some(_), _) => {
                    self.value_here(depth + 1)?;
                    pending -= 1;
                    continue;
                }
            };
            if pending == 0 {
                start = self.pos;
            }
            self.pos += mark;
            pending += 1;
        }
    }

    /// The next form.
    pub(crate) fn value(&mut self, depth: usize, open: usize, what: &'static str) -> Scan<Value> {
        self.skip_trivia(depth)?;
        if self.peek().is_none() {
            return Fault::end(open, what);
        }
        self.value_here(depth)
    }

    /// The form that begins exactly here.
    pub(crate) fn value_here(&mut self, depth: usize) -> Scan<Value> {
        let at = self.pos;
        self.breaks = true;
        let Some(first) = self.peek() else { return Fault::end(at, "form") };
        if depth > MAX_DEPTH {
            return Fault::bad(at, format!("values nest deeper than {MAX_DEPTH} levels"));
        }
        match first {
            b'(' => Ok(Value::Vector(self.elements(b')', "list", depth)?)),
            b'[' => Ok(Value::Vector(self.elements(b']', "vector", depth)?)),
            b'{' => self.map(depth),
            b'"' => {
                let (raw, escapes) = self.string()?;
                if escapes { unescape(raw, at + 1) } else { Ok(Value::Str(utf8(raw, at)?.into())) }
            }
            b'\\' => {
                let token = self.character()?;
                character(token, at)
            }
            b'#' => self.dispatch(depth),
            b')' | b']' | b'}' => Fault::bad(at, format!("a `{}` closes nothing that is open here", first as char)),
            b'@' => {
                self.pos += 1;
                let inner = self.value(depth + 1, at, "form")?;
                Ok(Value::Vector(vec![Value::Symbol("clojure.core/deref".into()), inner]))
            }
            _ => {
                let token = self.token()?;
                atom(token, at)
            }
        }
    }

    fn elements(&mut self, close: u8, what: &'static str, depth: usize) -> Scan<Vec<Value>> {
        let open = self.pos;
        self.pos += 1;
        let mut elements = Vec::new();
        loop {
            self.skip_trivia(depth + 1)?;
            match self.peek() {
                None => return Fault::end(open, what),
                Some(b) if b == close => {
                    self.pos += 1;
                    return Ok(elements);
                }
                Some(_) => elements.push(self.value_here(depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Scan<Value> {
        let open = self.pos;
        let mut forms = self.elements(b'}', "map", depth)?.into_iter();
        let mut entries = Vec::with_capacity(forms.len() / 2);
        while let Some(key) = forms.next() {
            let Some(value) = forms.next() else {
                return Fault::bad(open, format!("a map holds the key {} without a value", shorten(&key.to_edn())));
            };
            entries.push((key, value));
        }
        Ok(Value::map(entries))
    }

    fn dispatch(&mut self, depth: usize) -> Scan<Value> {
        let at = self.pos;
        let Some(second) = self.peek_second() else { return Fault::end(at, "tag") };
        match second {
            b'{' => {
                self.pos += 1;
                Ok(Value::set(self.elements(b'}', "set", depth)?))
            }
            b'"' => {
                self.pos += 1;
                let (raw, _) = self.string()?;
                Ok(tagged("regex", Value::Str(utf8(raw, at)?.into())))
            }
            b'#' => {
                self.pos += 2;
                match self.token()? {
                    b"Inf" => Ok(Value::Float(f64::INFINITY)),
                    b"-Inf" => Ok(Value::Float(f64::NEG_INFINITY)),
                    b"NaN" => Ok(Value::Float(f64::NAN)),
                    _ => Fault::bad(at, "after `##` stands one of Inf, -Inf and NaN"),
                }
            }
            b'\'' => {
                self.pos += 2;
                Ok(tagged("var", self.value(depth + 1, at, "var")?))
            }
            b':' => self.namespaced_map(depth),
            b'<' => self.unreadable(),
            _ => {
                let tag = self.tag()?;
                let value = self.value(depth + 1, at, "tagged value")?;
                Ok(tagged(tag, value))
            }
        }
    }

    /// The tag here, which stands on its `#`.
    pub(crate) fn tag(&mut self) -> Scan<&'a str> {
        let at = self.pos;
        self.pos += 1;
        match self.peek() {
            None => Fault::end(at, "tag"),
            Some(b) if is_end(b) || b.is_ascii_digit() || b"#':<=?!@_^".contains(&b) => {
                Fault::bad(at, format!("`#{}` is no tag", char::from(b).escape_default()))
            }
            Some(_) => utf8(self.token()?, at),
        }
    }

    /// `#:ns{:a 1}`, which is `{:ns/a 1}`.
    fn namespaced_map(&mut self, depth: usize) -> Scan<Value> {
        let at = self.pos;
        self.pos += 2;
        let namespace = utf8(self.token()?, at)?;
        if namespace.contains(|c: char| c.is_control()) {
            return Fault::bad(at, format!("`{}` is no namespace", shorten(namespace).escape_debug()));
        }
        self.skip_trivia(depth)?;
        match self.peek() {
            Some(b'{') => {}
            None => return Fault::end(at, "map"),
            Some(_) => return Fault::bad(at, "after `#:namespace` stands a map"),
        }
        let Value::Map(entries) = self.map(depth)? else { return Fault::bad(at, "this is no map") };
        let qualify = |name: Box<str>| -> Box<str> {
            match name.strip_prefix("_/").filter(|bare| !bare.is_empty()) {
                Some(bare) => bare.into(),
                None if name.len() > 1 && name.contains('/') => name,
                None if namespace == ":" => format!(":{name}").into(),
                None => format!("{namespace}/{name}").into(),
            }
        };
        let entries = entries.into_iter().map(|(key, value)| match key {
            Value::Keyword(name) => (Value::Keyword(qualify(name)), value),
            // Any other namespace would make it something else than a symbol.
            Value::Symbol(name) if namespace.starts_with(char::is_alphabetic) => (Value::Symbol(qualify(name)), value),
            key => (key, value),
        });
        Ok(Value::map(entries.collect()))
    }

    /// `#<Object java.lang.Object@1f2e>`, as Clojure printed objects before 1.7: up to a `>` that ends a word.
    fn unreadable(&mut self) -> Scan<Value> {
        let at = self.pos;
        let start = at + 2;
        for i in memchr::memchr_iter(b'>', &self.bytes[start..]) {
            let end = start + i;
            match self.bytes.get(end + 1) {
                Some(&b) if !is_end(b) => continue,
                None if !self.last => break,
                _ => {
                    self.pos = end + 1;
                    return Ok(tagged("object", Value::Str(utf8(&self.bytes[start..end], at)?.into())));
                }
            }
        }
        Fault::end(at, "printed object")
    }
}

fn tagged(tag: &str, value: Value) -> Value {
    Value::Tagged(tag.into(), Box::new(value))
}

/// At most forty characters of a text, for messages.
pub(crate) fn shorten(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(40) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// A keyword, a number, one of the three constants, or a symbol.
fn atom(token: &[u8], at: usize) -> Scan<Value> {
    match token {
        b"nil" => return Ok(Value::Nil),
        b"true" => return Ok(Value::Bool(true)),
        b"false" => return Ok(Value::Bool(false)),
        _ => {}
    }
    let text = utf8(token, at)?;
    if let Some(name) = text.strip_prefix(':') {
        return Ok(Value::Keyword(name.into()));
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if unsigned.starts_with(|c: char| c.is_ascii_digit()) {
        return match number(text) {
            Some(value) => Ok(value),
            None => Fault::bad(at, format!("`{}` is no number", shorten(text).escape_debug())),
        };
    }
    if text.contains(|c: char| c.is_control()) {
        return Fault::bad_hint(
            at,
            format!("`{}` is no symbol", shorten(text).escape_debug()),
            "a binary file is not EDN; is it compressed, or a test.jepsen?",
        );
    }
    Ok(Value::Symbol(text.into()))
}

/// A number, which begins with a digit or with a sign and a digit.
fn number(text: &str) -> Option<Value> {
    if let Ok(n) = text.parse::<i64>() {
        return Some(Value::Int(n));
    }
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let sign = if negative { "-" } else { "" };
    if let Some(hex) = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")) {
        return radix(sign, hex.strip_suffix('N').unwrap_or(hex), 16);
    }
    if let Some((base, digits)) = unsigned.split_once(['r', 'R']) {
        return radix(sign, digits, base.parse().ok().filter(|base| (2..=36).contains(base))?);
    }
    if let Some((n, d)) = unsigned.split_once('/') {
        let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        return if digits(n) && digits(d) { Value::ratio(&format!("{sign}{n}"), d) } else { None };
    }
    if let Some(value) = Value::integer(&format!("{sign}{}", unsigned.strip_suffix('N').unwrap_or(unsigned))) {
        return Some(value);
    }
    let decimal = unsigned.strip_suffix('M');
    if !is_decimal(decimal.unwrap_or(unsigned)) {
        return None;
    }
    match decimal {
        Some(digits) => Some(Value::Decimal(format!("{sign}{}", significant(digits)).into())),
        None => text.parse().ok().map(Value::Float),
    }
}

/// Digits, then perhaps a point and digits, then perhaps an exponent.
fn is_decimal(text: &str) -> bool {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (text, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    !whole.is_empty() && digits(whole) && digits(fraction) && exponent.is_none_or(|e| !e.is_empty() && digits(e))
}

/// Without needless leading zeros.
fn significant(digits: &str) -> &str {
    let trimmed = digits.trim_start_matches('0');
    if trimmed.starts_with(|c: char| c.is_ascii_digit()) {
        trimmed
    } else {
        &digits[digits.len() - trimmed.len() - 1..]
    }
}

/// An integer in another base: long multiplication by the base, nine decimal digits a limb.
fn radix(sign: &str, digits: &str, base: u32) -> Option<Value> {
    if digits.is_empty() || digits.len() > MAX_RADIX_DIGITS {
        return None;
    }
    let mut limbs = vec![0u32];
    for c in digits.chars() {
        let mut carry = u64::from(c.to_digit(base)?);
        for limb in &mut limbs {
            let n = u64::from(*limb) * u64::from(base) + carry;
            *limb = (n % 1_000_000_000) as u32;
            carry = n / 1_000_000_000;
        }
        if carry > 0 {
            limbs.push(carry as u32);
        }
    }
    let decimal: String = limbs.iter().rev().map(|limb| format!("{limb:09}")).collect();
    Value::integer(&format!("{sign}{decimal}"))
}

/// A character from its token without the backslash.
fn character(token: &[u8], at: usize) -> Scan<Value> {
    let text = utf8(token, at)?;
    let mut chars = text.chars();
    if let (Some(c), None) = (chars.next(), chars.next()) {
        return Ok(Value::Char(c as u32));
    }
    let code = match text {
        "newline" => Some(0x0a),
        "space" => Some(0x20),
        "tab" => Some(0x09),
        "return" => Some(0x0d),
        "backspace" => Some(0x08),
        "formfeed" => Some(0x0c),
        _ => match text.as_bytes() {
            [b'u', hex @ ..] if hex.len() == 4 => number_of(hex, 16),
            [b'o', octal @ ..] if (1..=3).contains(&octal.len()) => number_of(octal, 8).filter(|&n| n <= 0o377),
            _ => None,
        },
    };
    match code {
        Some(code) => Ok(Value::Char(code)),
        None => Fault::bad(at, format!("`\\{}` is no character", shorten(text).escape_debug())),
    }
}

/// A few digits, without a sign.
fn number_of(digits: &[u8], base: u32) -> Option<u32> {
    digits.iter().try_fold(0, |n, &b| Some(n * base + char::from(b).to_digit(base)?))
}

/// A string from what stands between its quotes.
fn unescape(raw: &[u8], at: usize) -> Scan<Value> {
    let text = utf8(raw, at)?;
    let mut units = Units::Text(String::with_capacity(text.len()));
    let mut rest = text;
    while let Some(i) = memchr::memchr(b'\\', rest.as_bytes()) {
        units.push_str(&rest[..i]);
        let escape = &rest[i + 1..];
        let here = at + (text.len() - rest.len()) + i;
        let Some((unit, len)) = escaped(escape.as_bytes()) else {
            let shown: String = escape.chars().take(1).collect();
            return Fault::bad(here, format!("`\\{}` in a string means nothing", shown.escape_debug()));
        };
        units.push_unit(unit);
        rest = &escape[len..];
    }
    units.push_str(rest);
    Ok(match units {
        Units::Text(text) => Value::Str(text.into()),
        Units::Utf16(units) => Value::utf16(units),
    })
}

/// The UTF-16 unit that an escape without its backslash stands for, and its length.
fn escaped(escape: &[u8]) -> Option<(u16, usize)> {
    let simple = |c: u8| Some((u16::from(c), 1));
    match *escape.first()? {
        b'n' => simple(b'\n'),
        b't' => simple(b'\t'),
        b'r' => simple(b'\r'),
        b'b' => simple(0x08),
        b'f' => simple(0x0c),
        c @ (b'"' | b'\\') => simple(c),
        b'u' => Some((number_of(escape.get(1..5)?, 16)? as u16, 5)),
        b'0'..=b'7' => {
            let len = escape.iter().take(3).take_while(|b| (b'0'..=b'7').contains(b)).count();
            let code = number_of(&escape[..len], 8).filter(|&n| n <= 0o377)?;
            Some((code as u16, len))
        }
        _ => None,
    }
}

/// A string under construction: text as long as it can be, UTF-16 from the first surrogate on.
enum Units {
    Text(String),
    Utf16(Vec<u16>),
}

impl Units {
    fn push_str(&mut self, text: &str) {
        match self {
            Units::Text(out) => out.push_str(text),
            Units::Utf16(units) => units.extend(text.encode_utf16()),
        }
    }

    fn push_unit(&mut self, unit: u16) {
        match self {
            Units::Text(out) => match char::from_u32(u32::from(unit)) {
                Some(c) => out.push(c),
                None => {
                    let mut units: Vec<u16> = out.encode_utf16().collect();
                    units.push(unit);
                    *self = Units::Utf16(units);
                }
            },
            Units::Utf16(units) => units.push(unit),
        }
    }
}
