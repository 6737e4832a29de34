//! Lines of a text of any length, held one at a time.

use crate::error::{Place, ReadError, Result};
use std::io::{BufRead, BufReader, Read};

/// No line of these formats comes near this.
const LONGEST: u64 = 1 << 16;

/// Reads lines and counts them.
pub(super) struct Lines<'r> {
    input: BufReader<&'r mut dyn Read>,
    line: Vec<u8>,
    number: u64,
}

impl<'r> Lines<'r> {
    pub(super) fn new(input: &'r mut dyn Read) -> Self {
        Lines { input: BufReader::with_capacity(1 << 16, input), line: Vec::new(), number: 0 }
    }

    /// The next line that is not blank, with its number, without white space at its ends.
    pub(super) fn next(&mut self) -> Result<Option<(u64, &[u8])>> {
        loop {
            self.line.clear();
            self.number += 1;
            let at = |e: ReadError| e.at(Place::Line(self.number));
            let n = (&mut self.input).take(LONGEST + 1).read_until(b'\n', &mut self.line);
            match n.map_err(|e| at(e.into()))? as u64 {
                0 => return Ok(None),
                n if n > LONGEST => {
                    return Err(at(ReadError::new(format!("a line is longer than {LONGEST} bytes"))
                        .hint("a line holds one operation; is this the right format?")));
                }
                _ if self.line.trim_ascii().is_empty() => {}
                _ => break,
            }
        }
        Ok(Some((self.number, self.line.trim_ascii())))
    }
}
