//! Which whole blocks does this `test.jepsen` hold, and what do they say together?
//!
//! The file is a header of 18 bytes and then blocks, only ever appended. Each block carries its length and a CRC-32; an
//! index block gives every block's id and offset, and the header says where the newest index is. So a run that crashed
//! leaves whole blocks and a torn end. Where the header names no whole index, the blocks are walked from the first on
//! and the last whole index among them counts. Blocks after the index that counts (a sealed chunk of operations whose
//! index was not written any more) are listed as the [tail](Container::tail).
//!
//! Nothing is copied; a block's CRC is verified when the block is read. Walking costs one CRC over what is walked;
//! every reference is followed at most once, so that hostile cycles end.
//!
//! Source: the layout that Jepsen's store writes, checked against real files of both versions.

use super::fressian::{Decoder, clip};
use crate::error::{Place, ReadError, Result};
use crate::value::Value;
use std::collections::{HashMap, HashSet};

const HEADER: u64 = 18;
const BLOCK_HEADER: usize = 28;

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    Index,
    Fressian,
    PartialMap,
    Stream,
    BigVector,
}

/// A whole block whose CRC was verified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block<'a> {
    pub(crate) kind: BlockKind,
    pub(crate) data: &'a [u8],
    offset: u64,
}

impl<'a> Block<'a> {
    /// Decodes what the block holds from byte `skip` on.
    pub(crate) fn decoder(&self, skip: usize) -> Decoder<'a> {
        let data = self.data.get(skip..).unwrap_or_default();
        Decoder::new(data, self.offset + (BLOCK_HEADER + skip) as u64)
    }

    fn end(&self) -> u64 {
        self.offset + (BLOCK_HEADER + self.data.len()) as u64
    }

    fn wrong(&self, what: impl std::fmt::Display) -> ReadError {
        ReadError::new(format!("the block at byte {}: {what}", self.offset)).at(Place::Byte(self.offset))
    }
}

/// Where and why the whole part of a file ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The first byte that belongs to no whole block.
    pub at: u64,
    /// How many bytes lie there.
    pub lost: u64,
    /// Why they could not be used, or why the newest index could not.
    pub why: String,
    /// Events found in whole blocks that no index lists.
    pub recovered: u64,
}

/// A `test.jepsen` in memory.
pub(crate) struct Container<'a> {
    bytes: &'a [u8],
    pub(crate) version: i32,
    root: i32,
    index: HashMap<i32, u64>,
    /// Whole blocks after the index that counts.
    pub(crate) tail: Vec<Block<'a>>,
    pub(crate) torn: Option<Torn>,
}

impl<'a> Container<'a> {
    /// Opens a file: reads the header and the newest whole index.
    pub(crate) fn open(bytes: &'a [u8]) -> Result<Self> {
        if !bytes.starts_with(b"JEPSEN") {
            return Err(ReadError::new("this is no Jepsen file: it does not begin with JEPSEN"));
        }
        let (Some(version), Some(offset)) = (int(bytes, 6), long(bytes, 10)) else {
            return Err(
                ReadError::new("the file ends within its header").hint("the run crashed before it recorded anything")
            );
        };
        if !(0..=1).contains(&version) {
            return Err(ReadError::new(format!("version {version} of the Jepsen format is not known"))
                .at(Place::Byte(6))
                .hint("versions 0 and 1 are; read the run's history.edn instead"));
        }
        let mut container = Container { bytes, version, root: 0, index: HashMap::new(), tail: Vec::new(), torn: None };
        let missing = match container.newest_index(offset) {
            Ok(index) => {
                container.adopt(index)?;
                container.walk_tail(index.end())?;
                return Ok(container);
            }
            Err(why) => why,
        };
        container.recover(missing)?;
        Ok(container)
    }

    fn newest_index(&self, offset: i64) -> std::result::Result<Block<'a>, String> {
        if offset == 0 {
            return Err("the header names no index".into());
        }
        let whole = u64::try_from(offset).ok().filter(|&o| o >= HEADER).map(|o| self.block_at(o));
        match whole {
            Some(Ok(block)) if block.kind == BlockKind::Index => Ok(block),
            Some(Ok(_)) => Err(format!("at byte {offset} there is no index")),
            Some(Err(e)) => Err(format!("the newest index is torn: {}", e.what)),
            None => Err(format!("byte {offset} is no place for an index")),
        }
    }

    fn adopt(&mut self, index: Block<'a>) -> Result<()> {
        let Some((root, entries)) = index.data.split_first_chunk() else {
            return Err(index.wrong("an index without a root"));
        };
        if entries.len() % 12 != 0 {
            return Err(index.wrong("an index ends in the middle of an entry"));
        }
        self.root = i32::from_be_bytes(*root);
        self.index = entries.chunks_exact(12).filter_map(|e| Some((int(e, 0)?, long(e, 4)?.cast_unsigned()))).collect();
        Ok(())
    }

    /// Walks all blocks; the last whole index counts, and what follows it is the tail.
    fn recover(&mut self, missing: String) -> Result<()> {
        let (blocks, stop) = self.walk(HEADER);
        if let Some(Stop { error, more_follows: true, .. }) = stop {
            return Err(error.hint(format!("and {missing}, so what follows cannot be found")));
        }
        let last = blocks.iter().rposition(|b| b.kind == BlockKind::Index);
        if let Some(&index) = last.and_then(|i| blocks.get(i)) {
            self.adopt(index)?;
        }
        self.tail = blocks.into_iter().skip(last.map_or(0, |i| i + 1)).collect();
        let at = stop.as_ref().map_or(self.bytes.len() as u64, |s| s.at);
        let why = stop.map_or(missing.clone(), |s| format!("{missing}; {}", s.error.what));
        self.torn = Some(Torn { at, lost: self.bytes.len() as u64 - at, why, recovered: 0 });
        Ok(())
    }

    fn walk_tail(&mut self, from: u64) -> Result<()> {
        let length = self.bytes.len() as u64;
        if from >= length {
            return Ok(());
        }
        let (blocks, stop) = self.walk(from);
        self.tail = blocks;
        let at = stop.as_ref().map_or(length, |s| s.at);
        let why = stop.map_or("no index was written for the last blocks".into(), |s| s.error.what);
        self.torn = Some(Torn { at, lost: length - at, why, recovered: 0 });
        Ok(())
    }

    fn walk(&self, from: u64) -> (Vec<Block<'a>>, Option<Stop>) {
        let (mut blocks, mut at) = (Vec::new(), from);
        while at < self.bytes.len() as u64 {
            match self.block_at(at) {
                Ok(block) => {
                    at = block.end();
                    blocks.push(block);
                }
                Err(error) => {
                    let end = long(self.bytes, at as usize).and_then(|n| at.checked_add_signed(n.max(0)));
                    let more_follows = end.is_some_and(|end| end > at && end < self.bytes.len() as u64);
                    return (blocks, Some(Stop { at, error, more_follows }));
                }
            }
        }
        (blocks, None)
    }

    /// The whole block at an offset.
    fn block_at(&self, offset: u64) -> Result<Block<'a>> {
        let wrong = |what: &str| ReadError::new(format!("the block at byte {offset} {what}")).at(Place::Byte(offset));
        let rest = usize::try_from(offset).ok().and_then(|o| self.bytes.get(o..)).unwrap_or_default();
        let Some((header, _)) = rest.split_first_chunk::<BLOCK_HEADER>() else {
            return Err(wrong("is cut off within its header"));
        };
        let length = long(header, 0).and_then(|n| usize::try_from(n).ok()).filter(|&n| n >= BLOCK_HEADER);
        let Some(length) = length else { return Err(wrong("has an impossible length")) };
        let Some(data) = rest.get(BLOCK_HEADER..length) else {
            return Err(wrong("reaches beyond the end of the file"));
        };
        let (mut bare, mut crc) = (*header, [0; 4]);
        crc.copy_from_slice(&header[8..12]);
        bare[8..12].fill(0);
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(data);
        hasher.update(&bare);
        if hasher.finalize() != u32::from_be_bytes(crc) {
            return Err(wrong("does not match its checksum").hint("the file was damaged after it was written"));
        }
        let kind = match i16::from_be_bytes([header[12], header[13]]) {
            1 => BlockKind::Index,
            2 => BlockKind::Fressian,
            3 => BlockKind::PartialMap,
            4 => BlockKind::Stream,
            5 => BlockKind::BigVector,
            other => return Err(wrong(&format!("is of the unknown type {other}"))),
        };
        Ok(Block { kind, data, offset })
    }

    /// The block of an id; `None` for id 0, which is nil.
    pub(crate) fn block(&self, id: i32) -> Result<Option<Block<'a>>> {
        if id == 0 {
            return Ok(None);
        }
        let Some(&offset) = self.index.get(&id) else {
            return Err(ReadError::new(format!("block {id} is referred to but not in the index")));
        };
        self.block_at(offset).map(Some).map_err(|e| ReadError { what: format!("block {id}: {}", e.what), ..e })
    }

    /// The test: the root map, empty where no index was written.
    pub(crate) fn root(&self) -> Result<Value> {
        self.whole_map(self.root)
    }

    /// The map in a block, parts that were put off included.
    pub(crate) fn whole_map(&self, id: i32) -> Result<Value> {
        let mut entries = Vec::new();
        self.map_parts(id, &mut |part| {
            entries.push(part);
            true
        })?;
        // The first part that has a key wins, and `Value::map` keeps the last.
        Ok(Value::map(entries.into_iter().rev().flatten().collect()))
    }

    /// The entry of a map under a key, reading no further parts than it takes.
    pub(crate) fn entry(&self, id: i32, key: &str) -> Result<Option<Value>> {
        let mut found = None;
        self.map_parts(id, &mut |part| {
            found = part.into_iter().find(|(k, _)| *k == Value::keyword(key)).map(|(_, v)| v);
            found.is_none()
        })?;
        Ok(found)
    }

    fn map_parts(&self, id: i32, each: &mut dyn FnMut(Vec<(Value, Value)>) -> bool) -> Result<()> {
        let (mut next, mut seen) = (id, HashSet::new());
        while let Some(block) = self.block(next)? {
            if !seen.insert(next) {
                return Err(block.wrong("a map's parts refer to each other in a circle"));
            }
            let (rest, skip) = match block.kind {
                BlockKind::Fressian => (0, 0),
                BlockKind::PartialMap => {
                    (int(block.data, 0).ok_or_else(|| block.wrong("a partial map is cut off"))?, 4)
                }
                kind => return Err(block.wrong(format!("a map is wanted, and this is of kind {kind:?}"))),
            };
            match block.decoder(skip).read()? {
                Value::Map(entries) => {
                    if !each(entries) {
                        return Ok(());
                    }
                }
                Value::Nil => {}
                other => return Err(block.wrong(format!("a map is wanted, and this is {}", clip(&other)))),
            }
            next = rest;
        }
        Ok(())
    }
}

/// Where walking the blocks ended.
struct Stop {
    at: u64,
    error: ReadError,
    more_follows: bool,
}

/// The id, if this value refers to a block.
pub(crate) fn block_ref(value: &Value) -> Option<i32> {
    match value {
        Value::Tagged(tag, id) if &**tag == "block-ref" => i32::try_from(id.as_int()?).ok(),
        _ => None,
    }
}

/// The chunks of a big vector: its length, and for each chunk its first index and its block.
pub(crate) fn chunks(block: &Block<'_>) -> Result<(i64, Vec<(i64, i32)>)> {
    let wrong = || block.wrong("a big vector is cut off");
    let (count, entries) = block.data.split_first_chunk().ok_or_else(wrong)?;
    if entries.len() % 12 != 0 {
        return Err(wrong());
    }
    let chunks = entries.chunks_exact(12).filter_map(|e| Some((long(e, 0)?, int(e, 8)?))).collect();
    Ok((i64::from_be_bytes(*count), chunks))
}

fn int(bytes: &[u8], at: usize) -> Option<i32> {
    bytes.get(at..)?.first_chunk().map(|b| i32::from_be_bytes(*b))
}

fn long(bytes: &[u8], at: usize) -> Option<i64> {
    bytes.get(at..)?.first_chunk().map(|b| i64::from_be_bytes(*b))
}
