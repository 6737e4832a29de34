//! JSON read in one pass over a slice, by callbacks: no tree is built.
//!
//! What a caller does not ask for is skipped, within the bound on nesting; what it asks for nests no deeper than the
//! caller's own functions do.

use super::quoted;
use crate::error::{Place, ReadError, Result};
use crate::json::cursor::{Cursor, Halt, Number, Parse, Text};

/// What begins at a place, as far as callers tell it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peek {
    Array,
    String,
    Null,
    Other,
}

/// A place in a JSON text.
pub(super) struct Json<'j> {
    cursor: Cursor<'j>,
}

impl<'j> Json<'j> {
    /// At the beginning of a text, which must be UTF-8.
    pub(super) fn new(text: &'j [u8]) -> Result<Self> {
        match simdutf8::compat::from_utf8(text) {
            Ok(text) => Ok(Json { cursor: Cursor::whole(text) }),
            Err(e) => {
                let line = memchr::memchr_iter(b'\n', &text[..e.valid_up_to()]).count() as u64 + 1;
                Err(ReadError::new("this is not UTF-8").at(Place::Line(line)))
            }
        }
    }

    /// At the beginning of a text that may be cut off anywhere, or be no text at all from some point on.
    pub(super) fn head(text: &'j [u8]) -> Self {
        let valid = simdutf8::compat::from_utf8(text).map_or_else(|e| e.valid_up_to(), str::len);
        Json { cursor: Cursor::whole(std::str::from_utf8(&text[..valid]).unwrap_or_default()) }
    }

    fn settled<T>(&self, parsed: Parse<T>) -> Result<T> {
        parsed.map_err(|halt| match halt {
            Halt::Bad(e) => *e,
            Halt::More | Halt::Odd => self.fail("the file ends inside a value"),
        })
    }

    /// An error about what was just read.
    pub(super) fn fail(&self, what: impl Into<String>) -> ReadError {
        ReadError::new(what).at(Place::Line(self.cursor.line()))
    }

    fn open(&mut self, bracket: u8, wanted: &str) -> Result<()> {
        let parsed = self.cursor.expect(bracket, wanted);
        self.settled(parsed)
    }

    /// Calls back for each field of an object, with its name if it is one of these, else the empty string. The callback
    /// consumes the value.
    pub(super) fn fields(
        &mut self,
        names: &'static [&'static str],
        mut field: impl FnMut(&mut Self, &'static str) -> Result<()>,
    ) -> Result<()> {
        self.open(b'{', "an object")?;
        let mut first = true;
        loop {
            let key = self.cursor.next_key(&mut first);
            let Some(key) = self.settled(key)? else { return Ok(()) };
            let known = names.iter().find(|known| Some(**known) == key.as_str()).copied();
            field(self, known.unwrap_or(""))?;
        }
    }

    /// Calls back for each element of an array. The callback consumes it.
    pub(super) fn items(&mut self, mut item: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.open(b'[', "an array")?;
        let mut first = true;
        loop {
            let more = self.cursor.next_element(&mut first);
            if !self.settled(more)? {
                return Ok(());
            }
            item(self)?;
        }
    }

    pub(super) fn peek(&mut self) -> Result<Peek> {
        let byte = self.cursor.peek();
        Ok(match self.settled(byte)? {
            b'[' => Peek::Array,
            b'"' => Peek::String,
            b'n' => Peek::Null,
            _ => Peek::Other,
        })
    }

    pub(super) fn skip(&mut self) -> Result<()> {
        let skipped = self.cursor.skip_value(0);
        self.settled(skipped)
    }

    pub(super) fn bool(&mut self) -> Result<bool> {
        let parsed = self.cursor.literal();
        self.settled(parsed)?.ok_or_else(|| self.fail("expected true or false, found null"))
    }

    /// A string, handed to a function.
    pub(super) fn str<T>(&mut self, with: impl FnOnce(&str) -> T) -> Result<T> {
        let text = self.text()?;
        text.as_str().map(with).ok_or_else(|| self.fail("a name holds half of a surrogate pair"))
    }

    fn text(&mut self) -> Result<Text<'j>> {
        let parsed = self.cursor.string();
        self.settled(parsed)
    }

    /// The digits of an integer, also of one in quotes, as some tools write large ones; `None` for `null`.
    pub(super) fn integer<T>(&mut self, with: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>> {
        let (parsed, shown) = match self.peek()? {
            Peek::Null => {
                let null = self.cursor.literal();
                return self.settled(null).map(|_| None);
            }
            Peek::String => {
                let text = self.text()?;
                let digits = text.as_str().unwrap_or("");
                (with(digits), digits.to_string())
            }
            Peek::Array | Peek::Other => {
                let number = self.cursor.number();
                match self.settled(number)? {
                    Number::Int(n) => (with(itoa::Buffer::new().format(n)), n.to_string()),
                    Number::Big(digits) => (with(digits), digits.to_string()),
                    Number::Float(_, text) => (with(text), text.to_string()),
                }
            }
        };
        parsed
            .map(Some)
            .ok_or_else(|| self.fail(format!("{} is no integer that can stand here", quoted(shown.as_bytes()))))
    }

    /// Only white space may be left.
    pub(super) fn end(&mut self) -> Result<()> {
        if self.cursor.at_end() { Ok(()) } else { Err(self.fail("something stands after the end of the history")) }
    }
}
