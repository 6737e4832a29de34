//! What is the next token? Strict JSON (RFC 8259) over a window of text that may end anywhere.
//!
//! A cursor walks over borrowed text. Where the text ends before a token does, it answers [`Halt::More`]; whoever feeds it
//! then goes back to the last whole record, reads on, and tries again. So nothing here has to be resumable. Line ends can
//! only stand between tokens, therefore lines are counted where white space is skipped, at no cost elsewhere.

use crate::error::{Place, ReadError};
use crate::value::MAX_DEPTH;

/// Why parsing stopped.
#[derive(Debug)]
pub(crate) enum Halt {
    /// The text ended first.
    More,
    /// The fast path does not cover this; the general one does.
    Odd,
    /// It is wrong.
    Bad(Box<ReadError>),
}

/// The result of parsing.
pub(crate) type Parse<T> = Result<T, Halt>;

impl From<ReadError> for Halt {
    fn from(e: ReadError) -> Self {
        Halt::Bad(Box::new(e))
    }
}

/// A JSON string, decoded.
#[derive(Debug)]
pub(crate) enum Text<'a> {
    /// It had no escapes: as it stands in the text.
    Raw(&'a str),
    /// It had escapes.
    Owned(String),
    /// It holds lone surrogates.
    Utf16(Vec<u16>),
}

impl Text<'_> {
    /// As Unicode, if it is.
    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Text::Raw(s) => Some(s),
            Text::Owned(s) => Some(s),
            Text::Utf16(_) => None,
        }
    }
}

/// A JSON number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number<'a> {
    /// An integer of 64 bits.
    Int(i64),
    /// A longer integer.
    Big(&'a str),
    /// A number with a point or an exponent, and how it was written.
    Float(f64, &'a str),
}

/// A place in a text.
#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    line: u64,
    whole: bool,
}

impl<'a> Cursor<'a> {
    /// At the start of a window whose first byte stands on this line.
    pub(crate) fn new(text: &'a str, line: u64) -> Self {
        Cursor { text, at: 0, line, whole: false }
    }

    /// At the start of a text that is all there is.
    pub(crate) fn whole(text: &'a str) -> Self {
        Cursor { text, at: 0, line: 1, whole: true }
    }

    /// Bytes consumed.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// The line it stands on, from 1.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// Skips white space; is nothing left?
    pub(crate) fn at_end(&mut self) -> bool {
        matches!(self.peek(), Err(Halt::More))
    }

    /// Skips a byte order mark.
    pub(crate) fn skip_bom(&mut self) {
        if self.text[self.at..].starts_with('\u{feff}') {
            self.at += '\u{feff}'.len_utf8();
        }
    }

    /// An error here.
    #[cold]
    pub(crate) fn bad(&self, what: impl Into<String>, hint: &str) -> Halt {
        ReadError::new(what).at(Place::Line(self.line)).hint(hint).into()
    }

    #[cold]
    fn unexpected(&self, wanted: &str) -> Halt {
        let rest = &self.text[self.at..];
        let hint = match rest.as_bytes() {
            [b'N', ..] | [b'I', ..] | [b'-', b'I', ..] => "JSON has no NaN or Infinity; write {\"~edn\": \"##NaN\"}",
            [b'\'', ..] => "JSON strings stand in double quotes",
            [b':', ..] if wanted.starts_with("a key") => "this looks like EDN: give --format edn",
            [b'/', ..] | [b'#', ..] => "JSON has no comments",
            [b'T', ..] | [b'F', ..] => "JSON writes true and false in small letters",
            _ => "",
        };
        let found: String = rest.chars().take(12).take_while(|c| !c.is_control()).collect();
        self.bad(format!("expected {wanted}, found {}", quoted(&found)), hint)
    }

    #[inline]
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The next byte that is not white space, not consumed.
    #[inline]
    pub(crate) fn peek(&mut self) -> Parse<u8> {
        loop {
            match self.byte() {
                Some(b' ' | b'\t' | b'\r') => self.at += 1,
                Some(b'\n') => {
                    self.at += 1;
                    self.line += 1;
                }
                Some(b) => return Ok(b),
                None => return Err(Halt::More),
            }
        }
    }

    /// Consumes this byte if it is next.
    #[inline]
    pub(crate) fn eat(&mut self, byte: u8) -> Parse<bool> {
        let is_next = self.peek()? == byte;
        self.at += usize::from(is_next);
        Ok(is_next)
    }

    /// Consumes this byte, which must be next.
    #[inline]
    pub(crate) fn expect(&mut self, byte: u8, wanted: &str) -> Parse<()> {
        if self.eat(byte)? { Ok(()) } else { Err(self.unexpected(wanted)) }
    }

    /// In an object whose brace was consumed: the next key, its colon consumed too, or `None` after the closing brace.
    #[inline]
    pub(crate) fn next_key(&mut self, first: &mut bool) -> Parse<Option<Text<'a>>> {
        if *first {
            *first = false;
            if self.eat(b'}')? {
                return Ok(None);
            }
        } else if !self.eat(b',')? {
            self.expect(b'}', "a comma or } after a field")?;
            return Ok(None);
        }
        if self.peek()? != b'"' {
            return Err(self.unexpected("a key in double quotes"));
        }
        let key = self.string()?;
        self.expect(b':', "a colon after a key")?;
        Ok(Some(key))
    }

    /// In an array whose bracket was consumed: is there a next element? The comma or closing bracket is consumed.
    #[inline]
    pub(crate) fn next_element(&mut self, first: &mut bool) -> Parse<bool> {
        if *first {
            *first = false;
            return Ok(!self.eat(b']')?);
        }
        if self.eat(b',')? {
            return Ok(true);
        }
        self.expect(b']', "a comma or ] after an element")?;
        Ok(false)
    }

    /// The string that begins here.
    #[inline]
    pub(crate) fn string(&mut self) -> Parse<Text<'a>> {
        self.expect(b'"', "a string")?;
        let start = self.at;
        match self.run()? {
            b'"' => {
                let raw = &self.text[start..self.at];
                self.at += 1;
                Ok(Text::Raw(raw))
            }
            _ => self.escaped(start),
        }
    }

    /// Skips what stands for itself in a string, up to a quote or a backslash.
    #[inline]
    fn run(&mut self) -> Parse<u8> {
        let bytes = self.text.as_bytes();
        while let Some(&b) = bytes.get(self.at) {
            match b {
                b'"' | b'\\' => return Ok(b),
                0..0x20 => return Err(self.bad_control(b)),
                _ => self.at += 1,
            }
        }
        Err(Halt::More)
    }

    #[cold]
    fn bad_control(&self, byte: u8) -> Halt {
        match byte {
            b'\n' | b'\r' => self.bad("a string is not closed on its line", "write line ends in strings as \\n"),
            b => self.bad(format!("a control character {b:#04x} in a string"), "write it as an escape, \\u00XX"),
        }
    }

    #[cold]
    fn escaped(&mut self, start: usize) -> Parse<Text<'a>> {
        let mut out = String::from(&self.text[start..self.at]);
        loop {
            let from = self.at;
            let stop = self.run()?;
            out.push_str(&self.text[from..self.at]);
            self.at += 1;
            if stop == b'"' {
                return Ok(Text::Owned(out));
            }
            let Some(c) = char::from_u32(self.escape()?) else {
                // A surrogate: only UTF-16 can say whether it has a partner and hold it if not.
                self.at = start;
                return self.utf16();
            };
            out.push(c);
        }
    }

    fn utf16(&mut self) -> Parse<Text<'a>> {
        let mut units = Vec::new();
        loop {
            let from = self.at;
            let stop = self.run()?;
            units.extend(self.text[from..self.at].encode_utf16());
            self.at += 1;
            if stop == b'"' {
                return Ok(match String::from_utf16(&units) {
                    Ok(s) => Text::Owned(s),
                    Err(_) => Text::Utf16(units),
                });
            }
            // One escape is one UTF-16 unit.
            units.push(self.escape()? as u16);
        }
    }

    /// The unit that an escape stands for; the backslash is consumed.
    fn escape(&mut self) -> Parse<u32> {
        let kind = self.byte().ok_or(Halt::More)?;
        let unit = match kind {
            b'"' | b'\\' | b'/' => u32::from(kind),
            b'b' => 8,
            b'f' => 12,
            b'n' => 10,
            b'r' => 13,
            b't' => 9,
            b'u' => return self.hex(),
            _ => return Err(self.bad("an unknown escape in a string", "a backslash itself is written \\\\")),
        };
        self.at += 1;
        Ok(unit)
    }

    fn hex(&mut self) -> Parse<u32> {
        let mut unit = 0;
        for i in 1..=4 {
            let byte = *self.text.as_bytes().get(self.at + i).ok_or(Halt::More)?;
            let digit = char::from(byte).to_digit(16);
            unit = unit * 16 + digit.ok_or_else(|| self.bad("\\u needs four hexadecimal digits", ""))?;
        }
        self.at += 5;
        Ok(unit)
    }

    /// The number that begins here.
    #[inline]
    pub(crate) fn number(&mut self) -> Parse<Number<'a>> {
        self.peek()?;
        let bytes = self.text.as_bytes();
        let start = self.at;
        let negative = self.byte() == Some(b'-');
        let digits = start + usize::from(negative);
        let mut at = digits;
        // Wraps only where there are more digits than are looked at below.
        let mut n: i64 = 0;
        while let Some(&b @ b'0'..=b'9') = bytes.get(at) {
            n = n.wrapping_mul(10).wrapping_add(i64::from(b - b'0'));
            at += 1;
        }
        let next = bytes.get(at).copied();
        if next.is_none() && !self.whole {
            return Err(Halt::More);
        }
        if at == digits {
            return Err(self.unexpected("a value"));
        }
        if at - digits > 1 && bytes[digits] == b'0' {
            return Err(self.bad("a number begins with 0", "JSON numbers have no leading zeros"));
        }
        if matches!(next, Some(b'.' | b'e' | b'E')) {
            return self.float(start, at);
        }
        self.at = at;
        self.delimited()?;
        if at - digits <= 18 {
            return Ok(Number::Int(if negative { -n } else { n }));
        }
        let text = &self.text[start..at];
        Ok(text.parse().map_or(Number::Big(text), Number::Int))
    }

    fn float(&mut self, start: usize, mut at: usize) -> Parse<Number<'a>> {
        if self.text.as_bytes().get(at) == Some(&b'.') {
            at = self.digits(at + 1)?;
        }
        if let Some(b'e' | b'E') = self.text.as_bytes().get(at) {
            at += 1;
            at += usize::from(matches!(self.text.as_bytes().get(at), Some(b'+' | b'-')));
            at = self.digits(at)?;
        }
        let text = &self.text[start..at];
        self.at = at;
        self.delimited()?;
        let x = text.parse().map_err(|_| self.bad(format!("{} is not a number", quoted(text)), ""))?;
        Ok(Number::Float(x, text))
    }

    /// Past the digits from here on, of which there must be one.
    fn digits(&self, from: usize) -> Parse<usize> {
        let rest = self.text.as_bytes().get(from..).unwrap_or_default();
        let n = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        if n == rest.len() && !self.whole {
            return Err(Halt::More);
        }
        if n == 0 {
            return Err(self.bad("a number breaks off after its point or exponent", ""));
        }
        Ok(from + n)
    }

    /// A literal or number must not run into a word.
    #[inline]
    fn delimited(&self) -> Parse<()> {
        match self.byte() {
            Some(b) if b.is_ascii_alphanumeric() || matches!(b, b'.' | b'+' | b'-' | b'_') || b >= 0x80 => {
                Err(self.unexpected("a comma or the end after a value"))
            }
            _ => Ok(()),
        }
    }

    /// Consumes `true`, `false` or `null`, which must be next.
    pub(crate) fn literal(&mut self) -> Parse<Option<bool>> {
        let (word, value) = match self.peek()? {
            b't' => ("true", Some(true)),
            b'f' => ("false", Some(false)),
            b'n' => ("null", None),
            _ => return Err(self.unexpected("a value")),
        };
        let rest = &self.text.as_bytes()[self.at..];
        if rest.starts_with(word.as_bytes()) {
            self.at += word.len();
            self.delimited()?;
            return Ok(value);
        }
        if rest.len() < word.len() && word.as_bytes().starts_with(rest) {
            return Err(Halt::More);
        }
        Err(self.unexpected("a value"))
    }

    /// Skips a value.
    pub(crate) fn skip_value(&mut self, depth: usize) -> Parse<()> {
        match self.peek()? {
            b'{' => {
                // One deeper than others, since a wrapper of EDN text is no level of its own.
                self.enter(depth.saturating_sub(1))?;
                let mut first = true;
                while self.next_key(&mut first)?.is_some() {
                    self.skip_value(depth + 1)?;
                }
            }
            b'[' => {
                self.enter(depth)?;
                let mut first = true;
                while self.next_element(&mut first)? {
                    self.skip_value(depth + 1)?;
                }
            }
            b'"' => drop(self.string()?),
            b'-' | b'0'..=b'9' => drop(self.number()?),
            _ => drop(self.literal()?),
        }
        Ok(())
    }

    /// Consumes the bracket or brace of a collection that stands inside `depth` others.
    #[inline]
    pub(crate) fn enter(&mut self, depth: usize) -> Parse<()> {
        if depth >= MAX_DEPTH {
            return Err(self.too_deep());
        }
        self.at += 1;
        Ok(())
    }

    /// The error for what nests too deep.
    #[cold]
    pub(crate) fn too_deep(&self) -> Halt {
        self.bad(format!("values nest deeper than {MAX_DEPTH}"), "no recorder writes that: is the file damaged?")
    }
}

/// A piece of the input as it stands in a message.
pub(crate) fn quoted(text: &str) -> String {
    let mut short: String = text.chars().take(40).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    if short.is_empty() { "the end of the line".into() } else { format!("{short:?}") }
}
