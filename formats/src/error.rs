//! What can be wrong with an input: what, where, and what to do about it.

use std::fmt;

/// Where in an input something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nowhere in particular: the whole input.
    Whole,
    /// A line of text, counted from 1.
    Line(u64),
    /// A row or record, counted from 1.
    Row(u64),
    /// A byte offset, counted from 0.
    Byte(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Whole => Ok(()),
            Place::Line(n) => write!(f, "line {n}"),
            Place::Row(n) => write!(f, "row {n}"),
            Place::Byte(n) => write!(f, "byte {n}"),
        }
    }
}

/// Why an input could not be read. `Display` is one line: file, place, what, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// The file's name as the user gave it; empty until someone who knows it fills it in.
    pub file: String,
    /// Where in it.
    pub place: Place,
    /// What is wrong, a clause in plain words.
    pub what: String,
    /// What the reader of the message can do about it; empty when nothing more can be said.
    pub hint: String,
}

/// The result of reading.
pub type Result<T> = std::result::Result<T, ReadError>;

impl ReadError {
    /// An error with no place yet.
    pub fn new(what: impl Into<String>) -> Self {
        ReadError { file: String::new(), place: Place::Whole, what: what.into(), hint: String::new() }
    }

    /// The same error at a place.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        self.place = place;
        self
    }

    /// The same error with advice.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// The same error in a file, unless one is named already.
    #[must_use]
    pub fn in_file(mut self, file: &str) -> Self {
        if self.file.is_empty() {
            self.file = file.to_string();
        }
        self
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{}: ", self.file)?;
        }
        if self.place != Place::Whole {
            write!(f, "{}: ", self.place)?;
        }
        // A message is one line, whatever a library put into it.
        f.write_str(&self.what.split_whitespace().collect::<Vec<_>>().join(" "))?;
        if !self.hint.is_empty() {
            write!(f, " ({})", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for ReadError {}

impl From<std::io::Error> for ReadError {
    fn from(e: std::io::Error) -> Self {
        ReadError::new(e.to_string())
    }
}
