//! Bincode 1.x as its users left it on disk: fixed-width little-endian integers, lengths as u64, booleans as a byte,
//! no tags and no padding.
//!
//! Written by hand: it is a cursor with three kinds of value. Nothing is ever allocated on the word of a length, and no
//! unmaintained crate (RUSTSEC-2025-0141) is needed.

use super::quoted;
use crate::error::{Place, ReadError, Result};

/// What is left of an input.
pub(super) struct Cursor<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Cursor<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Cursor { bytes, at: 0 }
    }

    fn fail(&self, what: String) -> ReadError {
        ReadError::new(what).at(Place::Byte(self.at as u64))
    }

    fn take(&mut self, n: usize, what: &str) -> Result<&'b [u8]> {
        let end = self.at.checked_add(n).filter(|&end| end <= self.bytes.len());
        let Some(taken) = end.and_then(|end| self.bytes.get(self.at..end)) else {
            let e = self.fail(format!("the file ends within {what}"));
            return Err(e.hint("is it whole?"));
        };
        self.at += n;
        Ok(taken)
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64> {
        let bytes = self.take(8, what)?;
        Ok(bytes.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte)))
    }

    pub(super) fn bool(&mut self, what: &str) -> Result<bool> {
        match self.take(1, what)? {
            [0] => Ok(false),
            [1] => Ok(true),
            other => {
                self.at -= 1;
                Err(self.fail(format!("{what} is neither 0 nor 1 but {other:?}")).hint("is this the right format?"))
            }
        }
    }

    /// The number of elements that follow, each of at least `size` bytes.
    pub(super) fn len(&mut self, what: &str, size: u64) -> Result<u64> {
        let start = self.at;
        let n = self.u64(what)?;
        let left = (self.bytes.len() - self.at) as u64;
        if n > left / size {
            self.at = start;
            let e = self.fail(format!("{what} should be {n}, but only {left} bytes are left"));
            return Err(e.hint("is the file whole, and the format right?"));
        }
        Ok(n)
    }

    pub(super) fn str(&mut self, what: &str) -> Result<&'b str> {
        let n = self.len(&format!("the length of {what}"), 1)?;
        let bytes = self.take(n as usize, what)?;
        std::str::from_utf8(bytes).map_err(|_| self.fail(format!("{what} is not UTF-8: {}", quoted(bytes))))
    }

    /// Nothing may be left.
    pub(super) fn end(&self) -> Result<()> {
        match self.bytes.len() - self.at {
            0 => Ok(()),
            left => {
                Err(self.fail(format!("{left} bytes follow the end of the history")).hint("is this the right format?"))
            }
        }
    }
}
