//! JSON read in one pass over a slice, by callbacks: no tree is built.
//!
//! What a caller does not ask for is skipped, with jiter's bound of 200 on nesting; what it asks for nests no deeper than
//! the caller's own functions do.

use super::quoted;
use crate::error::{Place, ReadError, Result};
use jiter::{Jiter, JiterError, Peek};

/// A place in a JSON text.
pub(super) struct Json<'j> {
    jiter: Jiter<'j>,
}

impl<'j> Json<'j> {
    pub(super) fn new(text: &'j [u8]) -> Self {
        Json { jiter: Jiter::new(text) }
    }

    fn located(&self, e: &JiterError) -> ReadError {
        let line = self.jiter.error_position(e.index).line;
        ReadError::new(e.error_type.to_string()).at(Place::Line(line as u64))
    }

    /// An error about what was just read.
    pub(super) fn fail(&self, what: impl Into<String>) -> ReadError {
        ReadError::new(what).at(Place::Line(self.jiter.current_position().line as u64))
    }

    /// Calls back for each field of an object, with its name if it is one of these, else the empty string. The callback
    /// consumes the value.
    pub(super) fn fields(
        &mut self,
        names: &'static [&'static str],
        mut field: impl FnMut(&mut Self, &'static str) -> Result<()>,
    ) -> Result<()> {
        let known = |name: &str| names.iter().find(|known| **known == name).copied().unwrap_or("");
        let mut next = match self.jiter.next_object() {
            Ok(name) => name.map(known),
            Err(e) => return Err(self.located(&e)),
        };
        while let Some(name) = next {
            field(self, name)?;
            next = match self.jiter.next_key() {
                Ok(name) => name.map(known),
                Err(e) => return Err(self.located(&e)),
            };
        }
        Ok(())
    }

    /// Calls back for each element of an array. The callback consumes it.
    pub(super) fn items(&mut self, mut item: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        let mut next = self.jiter.next_array();
        loop {
            match next {
                Ok(None) => return Ok(()),
                Ok(Some(_)) => item(self)?,
                Err(e) => return Err(self.located(&e)),
            }
            next = self.jiter.array_step();
        }
    }

    pub(super) fn peek(&mut self) -> Result<Peek> {
        self.jiter.peek().map_err(|e| self.located(&e))
    }

    pub(super) fn skip(&mut self) -> Result<()> {
        self.jiter.next_skip().map_err(|e| self.located(&e))
    }

    pub(super) fn bool(&mut self) -> Result<bool> {
        self.jiter.next_bool().map_err(|e| self.located(&e))
    }

    /// A string, handed to a function because it may not outlive the next step.
    pub(super) fn str<T>(&mut self, with: impl FnOnce(&str) -> T) -> Result<T> {
        let read = self.jiter.next_str().map(with);
        read.map_err(|e| self.located(&e))
    }

    /// The digits of an integer, also of one in quotes, as some tools write large ones; `None` for `null`.
    pub(super) fn integer<T>(&mut self, with: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>> {
        let mut bad = String::new();
        let parse = |digits: &[u8]| {
            let parsed = std::str::from_utf8(digits).ok().and_then(with);
            if parsed.is_none() {
                bad = quoted(digits);
            }
            parsed
        };
        let read = match self.peek()? {
            Peek::Null => return self.jiter.next_null().map(|()| None).map_err(|e| self.located(&e)),
            Peek::String => self.jiter.next_str().map(|digits| parse(digits.as_bytes())),
            _ => self.jiter.next_number_bytes().map(parse),
        };
        match read {
            Ok(Some(n)) => Ok(Some(n)),
            Ok(None) => Err(self.fail(format!("{bad} is no integer that can stand here"))),
            Err(e) => Err(self.located(&e)),
        }
    }

    /// Only white space may be left.
    pub(super) fn end(&mut self) -> Result<()> {
        self.jiter.finish().map_err(|e| self.located(&e))
    }
}
