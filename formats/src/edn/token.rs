//! Where does the next token begin and end?
//!
//! A [`Cursor`] walks over bytes by a table of byte classes and, where runs are long (strings, comments), by memchr. It
//! allocates nothing. Text is checked to be UTF-8 only where it is kept.
//!
//! The bytes may be a part of a longer input, cut anywhere: then [`Cursor::last`] is false, and whatever touches the
//! cut is a [`Fault::End`], which asks for more, and never an error.

use memchr::{memchr, memchr_iter};

use crate::error::{Place, ReadError};

/// Why a form could not be read.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The bytes end inside something that began at `open`.
    End { open: usize, what: &'static str },
    /// What stands at `at` is wrong.
    Bad { at: usize, what: String, hint: &'static str },
}

/// A result whose error is one word, as it travels through hot code.
pub(crate) type Scan<T> = std::result::Result<T, Box<Fault>>;

impl Fault {
    pub(crate) fn end<T>(open: usize, what: &'static str) -> Scan<T> {
        Err(Box::new(Fault::End { open, what }))
    }

    pub(crate) fn bad<T>(at: usize, what: impl Into<String>) -> Scan<T> {
        Err(Box::new(Fault::Bad { at, what: what.into(), hint: "" }))
    }

    pub(crate) fn bad_hint<T>(at: usize, what: impl Into<String>, hint: &'static str) -> Scan<T> {
        Err(Box::new(Fault::Bad { at, what: what.into(), hint }))
    }

    /// As an error for a reader, when byte `from` stands in line `line` and nothing before it is to blame.
    pub(crate) fn error(&self, bytes: &[u8], from: usize, line: u64) -> ReadError {
        let line_of = |at: usize| line + newlines(bytes.get(from..at).unwrap_or_default());
        match self {
            Fault::End { open, what } => {
                ReadError::new(format!("the text ends inside a {what} that begins at line {}", line_of(*open)))
                    .at(Place::Line(line_of(bytes.len())))
                    .hint("it is cut off, or a closing bracket or quote is missing")
            }
            Fault::Bad { at, what, hint } => ReadError::new(what.clone()).at(Place::Line(line_of(*at))).hint(*hint),
        }
    }
}

/// How many lines end in these bytes.
pub(crate) fn newlines(bytes: &[u8]) -> u64 {
    memchr_iter(b'\n', bytes).count() as u64
}

/// What some editors put before UTF-8 text.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

const SPACE: u8 = 1;
const DELIMITER: u8 = 2;

/// For every byte: 0 where it can be part of a symbol, number or keyword.
const CLASS: [u8; 256] = {
    let mut class = [0; 256];
    let spaces = b" ,\t\n\r\x0b\x0c\x1c\x1d\x1e\x1f";
    let mut i = 0;
    while i < spaces.len() {
        class[spaces[i] as usize] = SPACE;
        i += 1;
    }
    let delimiters = b"\"();[]\\{}";
    let mut i = 0;
    while i < delimiters.len() {
        class[delimiters[i] as usize] = DELIMITER;
        i += 1;
    }
    class
};

/// White space, to which commas count?
#[inline]
pub(crate) fn is_space(b: u8) -> bool {
    CLASS[b as usize] == SPACE
}

/// Does this byte end a symbol, number or keyword?
#[inline]
pub(crate) fn is_end(b: u8) -> bool {
    CLASS[b as usize] != 0
}

/// A place in EDN text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    /// The text, or a part of it.
    pub(crate) bytes: &'a [u8],
    /// Where we are.
    pub(crate) pos: usize,
    /// Do the bytes end where the text ends?
    pub(crate) last: bool,
    /// May a line have ended since this was last set to false? Counting lines can then be left out where none has.
    pub(crate) breaks: bool,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8], pos: usize, last: bool) -> Self {
        Cursor { bytes, pos, last, breaks: false }
    }

    /// The byte here.
    #[inline]
    pub(crate) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.pos).copied()
    }

    /// The byte after this one.
    #[inline]
    pub(crate) fn peek_second(&self) -> Option<u8> {
        self.bytes.get(self.pos + 1).copied()
    }

    /// Goes to the next byte that is no white space.
    #[inline]
    pub(crate) fn skip_spaces(&mut self) {
        while let Some(b) = self.peek() {
            // What mostly stands here, a space or no white space at all, is told without the table: no byte above the
            // comma is white space.
            if b != b' ' {
                if b > b',' || !is_space(b) {
                    return;
                }
                self.breaks |= b == b'\n';
            }
            self.pos += 1;
        }
    }

    /// Goes to the next byte that is neither white space nor in a comment.
    #[inline]
    pub(crate) fn skip_comments(&mut self) -> Scan<()> {
        loop {
            self.skip_spaces();
            if self.peek() != Some(b';') {
                return Ok(());
            }
            let rest = &self.bytes[self.pos..];
            match memchr(b'\n', rest) {
                Some(len) => self.pos += len,
                None if self.last => self.pos = self.bytes.len(),
                None => return Fault::end(self.pos, "comment"),
            }
        }
    }

    /// The symbol-like token here: everything up to white space or a delimiter, perhaps empty. Goes behind it.
    #[inline]
    pub(crate) fn token(&mut self) -> Scan<&'a [u8]> {
        let start = self.pos;
        self.token_from(start)
    }

    /// As [`Self::token`], for a token that began at `start`, whose bytes up to here are taken as they are.
    #[inline]
    pub(crate) fn token_from(&mut self, start: usize) -> Scan<&'a [u8]> {
        while let Some(b) = self.peek() {
            if is_end(b) {
                return Ok(&self.bytes[start..self.pos]);
            }
            self.pos += 1;
        }
        if self.last { Ok(&self.bytes[start..]) } else { Fault::end(start, "word") }
    }

    /// The character token here, which stands on its backslash: at least one character, whatever it is.
    pub(crate) fn character(&mut self) -> Scan<&'a [u8]> {
        let start = self.pos;
        let Some(first) = self.peek_second() else { return Fault::end(start, "character") };
        self.pos += 1 + utf8_len(first);
        if self.pos > self.bytes.len() {
            return Fault::end(start, "character");
        }
        Ok(&self.token_from(start)?[1..])
    }

    /// The string here, which stands on its opening quote: what is between the quotes, and whether it has escapes.
    #[inline]
    pub(crate) fn string(&mut self) -> Scan<(&'a [u8], bool)> {
        let start = self.pos + 1;
        let mut at = start;
        let mut escapes = false;
        loop {
            let rest = self.bytes.get(at..).unwrap_or_default();
            let Some(i) = memchr::memchr2(b'"', b'\\', rest) else { return Fault::end(self.pos, "string") };
            if rest[i] == b'"' {
                self.pos = at + i + 1;
                return Ok((&self.bytes[start..at + i], escapes));
            }
            escapes = true;
            at += i + 2;
        }
    }
}

/// How many bytes the character takes that begins with this byte; 1 where none does.
fn utf8_len(first: u8) -> usize {
    match first {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => 1,
    }
}

/// Text that is kept is UTF-8.
pub(crate) fn utf8(bytes: &[u8], at: usize) -> Scan<&str> {
    match simdutf8::basic::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(_) => Fault::bad_hint(at, "this text is not UTF-8", "EDN is UTF-8 text; convert the file first"),
    }
}
