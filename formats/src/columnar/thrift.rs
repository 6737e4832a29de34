//! Does a file's Thrift declare more than it holds? Lengths are checked before the Parquet reader believes them.
//!
//! A walk over Thrift's compact protocol that understands no field but skips all, refusing any list, map or string that
//! claims more elements than bytes are left, and nesting beyond [`MAX_DEPTH`]. O(bytes).

const MAX_DEPTH: usize = 32;

/// Walks bytes of Thrift.
pub(super) struct Walker<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The head of a Parquet page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PageHead {
    pub(super) uncompressed: i64,
    pub(super) compressed: i64,
    /// Values of the page, nulls included.
    pub(super) values: i64,
    /// Is it a dictionary?
    pub(super) dictionary: bool,
    /// Bytes that the head itself takes.
    pub(super) len: usize,
}

impl<'a> Walker<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Walker { bytes, at: 0 }
    }

    /// Walks over a struct; `None` when it is not sound.
    pub(super) fn structure(&mut self) -> Option<()> {
        self.fields(0, 0, &mut |_, _, _| ())
    }

    /// Reads a page's head.
    pub(super) fn page_head(&mut self) -> Option<PageHead> {
        let mut head = PageHead::default();
        let start = self.at;
        self.fields(0, 0, &mut |parent, id, n| match (parent, id) {
            (0, 1) => head.dictionary = n == 2,
            (0, 2) => head.uncompressed = n,
            (0, 3) => head.compressed = n,
            // The heads of a data page, a dictionary page, and a data page of version 2.
            (5 | 7 | 8, 1) => head.values = n,
            _ => (),
        })?;
        head.len = self.at - start;
        Some(head)
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn byte(&mut self) -> Option<u8> {
        let b = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(b)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut out = 0u64;
        for shift in (0..70).step_by(7) {
            let b = self.byte()?;
            out |= u64::from(b & 0x7f).checked_shl(shift)?;
            if b & 0x80 == 0 {
                return Some(out);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        self.varint().map(|n| (n >> 1) as i64 ^ -((n & 1) as i64))
    }

    fn skip(&mut self, n: usize) -> Option<()> {
        if n > self.left() {
            return None;
        }
        self.at += n;
        Some(())
    }

    /// Walks over the fields of a struct that is field `parent` of the outermost one, or elsewhere.
    fn fields(&mut self, depth: usize, parent: i64, number: &mut dyn FnMut(i64, i64, i64)) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        let mut id = 0i64;
        loop {
            let head = self.byte()?;
            let kind = head & 0x0f;
            if kind == 0 {
                return Some(());
            }
            id = if head >> 4 == 0 { self.zigzag()? } else { id.checked_add(i64::from(head >> 4))? };
            match kind {
                1 | 2 => (),
                4..=6 => number(parent, id, self.zigzag()?),
                12 => self.fields(depth + 1, if depth == 0 { id } else { -1 }, number)?,
                kind => self.value(kind, depth)?,
            }
        }
    }

    fn value(&mut self, kind: u8, depth: usize) -> Option<()> {
        match kind {
            1..=3 => self.skip(1),
            4..=6 => self.varint().map(|_| ()),
            7 => self.skip(8),
            8 => {
                let n = usize::try_from(self.varint()?).ok()?;
                self.skip(n)
            }
            9 | 10 => {
                let head = self.byte()?;
                let n = if head >> 4 == 15 { usize::try_from(self.varint()?).ok()? } else { usize::from(head >> 4) };
                self.elements(n, &[head & 0x0f], depth)
            }
            11 => {
                let n = usize::try_from(self.varint()?).ok()?;
                if n == 0 {
                    return Some(());
                }
                let kinds = self.byte()?;
                self.elements(n, &[kinds >> 4, kinds & 0x0f], depth)
            }
            12 => self.fields(depth + 1, -1, &mut |_, _, _| ()),
            _ => None,
        }
    }

    fn elements(&mut self, n: usize, kinds: &[u8], depth: usize) -> Option<()> {
        if n > self.left() || depth > MAX_DEPTH {
            return None;
        }
        (0..n).try_for_each(|_| kinds.iter().try_for_each(|&kind| self.value(kind, depth + 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_claims_more_elements_than_bytes_is_refused() {
        // Field 1, a list of 2^28 structs.
        assert_eq!(Walker::new(&[0x19, 0xfc, 0x80, 0x80, 0x80, 0x80, 0x01, 0]).structure(), None);
        // Field 1, a list of two i32: 1 and -1.
        assert_eq!(Walker::new(&[0x19, 0x25, 2, 1, 0]).structure(), Some(()));
    }

    #[test]
    fn deep_nesting_is_refused() {
        assert_eq!(Walker::new(&[0x1c; 1000]).structure(), None);
        assert_eq!(Walker::new(&[0x19].repeat(100_000)).structure(), None);
    }

    #[test]
    fn a_page_head_gives_its_sizes() {
        // type 2, uncompressed 100, compressed 50, dictionary page head with 3 values.
        let head = Walker::new(&[0x15, 4, 0x15, 0xc8, 1, 0x15, 100, 0x4c, 0x15, 6, 0, 0, 9, 9]).page_head();
        let expected = PageHead { uncompressed: 100, compressed: 50, values: 3, dictionary: true, len: 12 };
        assert_eq!(head, Some(expected));
    }
}
