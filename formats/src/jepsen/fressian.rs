//! What objects do these Fressian bytes stand for?
//!
//! Fressian writes an object as a code byte and what the code asks for: a list is a length and its elements, a struct
//! a tag and a number of parts. Two caches keep it short. An object after `CD` goes into the *priority cache*, whose
//! slot is taken before the object is read, so that inner cached objects have higher numbers than outer ones; the
//! *struct cache* holds each (tag, parts) pair once. Both are replayed here exactly, for as long as one writer lived.
//!
//! A [`Value`] has no sharing, so each look-up in the cache is a copy, and a small file can ask for many copies of
//! something large. The copies a decoder makes may together weigh no more than [`COPY_FACTOR`] times its input (and a
//! megabyte), which no writer comes near. Apart from that, reading takes time and memory linear in the input (sets and
//! maps are sorted: `n log n`), and nesting is bounded by [`MAX_DEPTH`].
//!
//! Source: the codes of Fressian's reference reader, checked against real files.

use crate::error::{Place, ReadError, Result};
use crate::text::TextPool;
use crate::value::{MAX_DEPTH, Value};

/// Bytes of copies out of the caches that a decoder makes for each byte of its input.
pub const COPY_FACTOR: u64 = 128;

/// Longer integers are refused: turning them into decimal digits takes time quadratic in their length.
const MAX_BIGINT_BYTES: usize = 8192;

/// Reads Fressian objects one after the other.
pub struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where `bytes` begin in the file, for messages.
    base: u64,
    /// Where the bytes that a footer counts begin.
    section: usize,
    priority: Vec<Slot>,
    structs: Vec<StructType>,
    depth: usize,
    copied: u64,
    /// Where the last whole map entry began and ended.
    last_tuple: (usize, usize),
}

/// What Jepsen's maps and enumerations call things, so that a cached name is compared once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Index,
    Time,
    Type,
    Process,
    F,
    Value,
    Other,
}

impl Role {
    pub(crate) fn of(name: &str) -> Role {
        match name {
            "index" => Role::Index,
            "time" => Role::Time,
            "type" => Role::Type,
            "process" => Role::Process,
            "f" => Role::F,
            "value" => Role::Value,
            _ => Role::Other,
        }
    }
}

/// An object in the priority cache.
pub(crate) struct Slot {
    /// `None` while it is being read.
    value: Option<Value>,
    weight: u64,
    height: usize,
    tuple: bool,
    role: Role,
    readable: bool,
    /// Id of its name in a text pool, and the generation of ids for which that is so.
    memo: (u32, u32),
}

impl Slot {
    fn reserved() -> Slot {
        Slot { value: None, weight: 0, height: 0, tuple: false, role: Role::Other, readable: false, memo: (0, 0) }
    }

    /// The name, if this is a keyword.
    fn keyword(&self) -> Option<&str> {
        if let Some(Value::Keyword(name)) = &self.value { Some(name) } else { None }
    }

    /// The string, if this is one that a keyword may have as its name.
    fn keyword_name(&self) -> Option<&str> {
        match &self.value {
            Some(Value::Str(name)) if self.readable => Some(name),
            _ => None,
        }
    }

    /// The name of this keyword, or the string that is a keyword's name.
    pub(crate) fn name(&self) -> &str {
        if let Some(Value::Str(name) | Value::Keyword(name)) = &self.value { name } else { "" }
    }

    /// What this name means in an operation.
    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// The id of this slot's name among texts, looked up once a generation.
    pub(crate) fn name_id(&mut self, generation: u32, texts: &mut TextPool) -> Option<u32> {
        if self.memo.0 != generation {
            self.memo = (generation, texts.try_intern(self.name())?);
        }
        Some(self.memo.1)
    }
}

#[derive(Clone)]
struct StructType {
    kind: Kind,
    tag: Box<str>,
    parts: usize,
}

/// Tags that mean something to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Op,
    Map,
    Set,
    Vec,
    MapEntry,
    Uuid,
    BigInt,
    BigDec,
    Inst,
    InstText,
    Symbol,
    Keyword,
    Ratio,
    Char,
    Plain,
    Record,
    Array,
    Other,
}

impl Kind {
    fn of(tag: &str, parts: usize) -> Kind {
        match (tag, parts) {
            ("jepsen.history.Op", 7) => Kind::Op,
            ("map" | "multiset", 1) => Kind::Map,
            ("set", 1) => Kind::Set,
            // Older Jepsens wrote the elements as the parts.
            ("persistent-hash-set" | "persistent-sorted-set", _) => Kind::Set,
            ("vec", 1) => Kind::Vec,
            ("map-entry", 2) => Kind::MapEntry,
            ("uuid", _) => Kind::Uuid,
            ("bigint", 1) => Kind::BigInt,
            ("bigdec", 2) => Kind::BigDec,
            ("inst", 1) => Kind::Inst,
            ("date-time" | "instant", 1) => Kind::InstText,
            ("sym", 2) => Kind::Symbol,
            ("key", 2) => Kind::Keyword,
            ("ratio", 2) => Kind::Ratio,
            ("char", 1) => Kind::Char,
            ("atom" | "byte", 1) => Kind::Plain,
            ("record", 2) => Kind::Record,
            ("long[]" | "double[]" | "boolean[]" | "int[]" | "float[]" | "Object[]", _) => Kind::Array,
            _ => Kind::Other,
        }
    }
}

impl<'a> Decoder<'a> {
    /// Reads these bytes, which begin at offset `base` of their file.
    pub fn new(bytes: &'a [u8], base: u64) -> Self {
        Decoder {
            bytes,
            at: 0,
            base,
            section: 0,
            priority: Vec::new(),
            structs: Vec::new(),
            depth: 0,
            copied: 0,
            last_tuple: (0, 0),
        }
    }

    /// Is there no further object?
    pub fn at_end(&mut self) -> Result<bool> {
        self.skip_marks()?;
        Ok(self.at >= self.bytes.len())
    }

    /// Reads the next object.
    pub fn read(&mut self) -> Result<Value> {
        if self.depth > MAX_DEPTH {
            return Err(self.too_deep());
        }
        self.skip_marks()?;
        self.depth += 1;
        let value = self.object();
        self.depth -= 1;
        value
    }

    fn object(&mut self) -> Result<Value> {
        if let Some(n) = self.try_int()? {
            return Ok(Value::Int(n));
        }
        let start = self.at;
        let code = self.byte()?;
        match code {
            0x80..=0x9F => self.copy(i64::from(code - 0x80)),
            0xCC => {
                let n = self.int()?;
                self.copy(n)
            }
            0xCD => self.put(),
            0xE4..=0xEE => {
                self.at = start;
                self.items().map(Value::Vector)
            }
            0xD0..=0xD9 => {
                self.at = start;
                Ok(Value::Tagged("bytes".into(), Box::new(Value::Str(hex(&self.raw_bytes()?).into()))))
            }
            0xDA..=0xE3 => {
                self.at = start;
                self.string()
            }
            0xA0..=0xAF | 0xB0..=0xB5 | 0xC0..=0xCA | 0xEF | 0xF0 => {
                self.at = start;
                let header = self.open_struct()?;
                self.finish_struct(header, start)
            }
            0xF1 => self.with_meta(),
            0xF5 => Ok(Value::Bool(true)),
            0xF6 => Ok(Value::Bool(false)),
            0xF7 => Ok(Value::Nil),
            0xF9 => Ok(Value::Float(f64::from(f32::from_be_bytes(self.array()?)))),
            0xFA => Ok(Value::Float(f64::from_be_bytes(self.array()?))),
            0xFB => Ok(Value::Float(0.0)),
            0xFC => Ok(Value::Float(1.0)),
            _ => Err(self.wrong(start, format!("no Fressian object begins with the code {code:02X}"))),
        }
    }

    /// An object with its metadata, which histories do not need: whichever of the two is the map of metadata goes.
    fn with_meta(&mut self) -> Result<Value> {
        let first = self.read()?;
        let second = self.read()?;
        Ok(if matches!(first, Value::Map(_) | Value::Nil) { second } else { first })
    }

    // --- Scalars

    /// The integer that stands next, if one does.
    #[inline]
    pub(crate) fn try_int(&mut self) -> Result<Option<i64>> {
        let Some(&code) = self.bytes.get(self.at) else { return Err(self.ended()) };
        let (zero, extra) = match code {
            0x00..=0x3F => {
                self.at += 1;
                return Ok(Some(i64::from(code)));
            }
            0x40..=0x5F => (0x50, 1),
            0x60..=0x6F => (0x68, 2),
            0x70..=0x73 => (0x72, 3),
            0x74..=0x77 => (0x76, 4),
            0x78..=0x7B => (0x7A, 5),
            0x7C..=0x7F => (0x7E, 6),
            0xFF => {
                self.at += 1;
                return Ok(Some(-1));
            }
            0xF8 => {
                self.at += 1;
                return Ok(Some(i64::from_be_bytes(self.array()?)));
            }
            _ => return Ok(None),
        };
        let low = match self.bytes.get(self.at + 1..self.at + 9) {
            Some(word) => word.iter().fold(0u64, |n, &b| n << 8 | u64::from(b)) >> (64 - 8 * extra),
            None => {
                let rest = self.bytes.get(self.at + 1..self.at + 1 + extra).ok_or_else(|| self.ended())?;
                rest.iter().fold(0u64, |n, &b| n << 8 | u64::from(b))
            }
        };
        self.at += 1 + extra;
        Ok(Some((i64::from(code) - zero) << (8 * extra) | low as i64))
    }

    /// Appends the integers that stand next, at most `n`; gives how many they were.
    pub(crate) fn ints(&mut self, n: usize, out: &mut Vec<i64>) -> Result<usize> {
        let before = out.len();
        out.reserve(n.min(self.bytes.len() - self.at));
        while out.len() - before < n {
            // Most are short; the rest is for the general way.
            match self.bytes.get(self.at..) {
                Some([code @ 0x00..=0x3F, ..]) => {
                    out.push(i64::from(*code));
                    self.at += 1;
                }
                Some([high @ 0x40..=0x5F, low, ..]) => {
                    out.push((i64::from(*high) - 0x50) << 8 | i64::from(*low));
                    self.at += 2;
                }
                _ => match self.try_int()? {
                    Some(n) => out.push(n),
                    None => break,
                },
            }
        }
        Ok(out.len() - before)
    }

    fn int(&mut self) -> Result<i64> {
        let start = self.at;
        self.try_int()?.ok_or_else(|| self.wrong(start, "an integer is missing where a number must stand"))
    }

    fn length(&mut self) -> Result<usize> {
        let start = self.at;
        let n = self.int()?;
        usize::try_from(n).map_err(|_| self.wrong(start, format!("{n} is no length")))
    }

    fn byte(&mut self) -> Result<u8> {
        let b = *self.bytes.get(self.at).ok_or_else(|| self.ended())?;
        self.at += 1;
        Ok(b)
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(n).filter(|&end| end <= self.bytes.len()).ok_or_else(|| self.ended())?;
        let slice = &self.bytes[self.at..end];
        self.at = end;
        Ok(slice)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    /// The bytes of a string that stands next in one piece.
    pub(crate) fn try_whole_string(&mut self) -> Result<Option<&'a [u8]>> {
        let n = match self.byte()? {
            code @ 0xDA..=0xE1 => usize::from(code - 0xDA),
            0xE3 => self.length()?,
            _ => {
                self.at -= 1;
                return Ok(None);
            }
        };
        self.take(n).map(Some)
    }

    fn string(&mut self) -> Result<Value> {
        let start = self.at;
        if let Some(bytes) = self.try_whole_string()? {
            return self.text(start, bytes);
        }
        // One character's bytes may lie in two chunks, so the pieces are joined before they are decoded.
        let mut joined = Vec::new();
        loop {
            if let Some(bytes) = self.try_whole_string()? {
                joined.extend_from_slice(bytes);
                return self.text(start, &joined);
            }
            let at = self.at;
            if self.byte()? != 0xE2 {
                return Err(self.wrong(at, "a string in chunks goes on with something that is no string"));
            }
            let n = self.length()?;
            joined.extend_from_slice(self.take(n)?);
        }
    }

    fn text(&self, start: usize, bytes: &[u8]) -> Result<Value> {
        if let Ok(s) = simdutf8::basic::from_utf8(bytes) {
            return Ok(Value::str(s));
        }
        utf16_units(bytes).map(Value::utf16).ok_or_else(|| self.wrong(start, "a string is not encoded as Java does"))
    }

    fn raw_bytes(&mut self) -> Result<Vec<u8>> {
        let mut joined = Vec::new();
        loop {
            let start = self.at;
            let code = self.byte()?;
            let n = match code {
                0xD0..=0xD7 => usize::from(code - 0xD0),
                0xD8 | 0xD9 => self.length()?,
                _ => return Err(self.wrong(start, "bytes are missing where bytes must stand")),
            };
            joined.extend_from_slice(self.take(n)?);
            if code != 0xD8 {
                return Ok(joined);
            }
        }
    }

    // --- Lists

    /// The code of the next object, past marks.
    pub(crate) fn peek(&mut self) -> Result<u8> {
        self.skip_marks()?;
        self.bytes.get(self.at).copied().ok_or_else(|| self.ended())
    }

    /// Consumes the head of a list of known length, if one stands next.
    #[inline]
    pub(crate) fn try_list(&mut self) -> Result<Option<usize>> {
        let Some(&code) = self.bytes.get(self.at) else { return Err(self.ended()) };
        match code {
            0xE4..=0xEB => {
                self.at += 1;
                Ok(Some(usize::from(code - 0xE4)))
            }
            0xEC => {
                self.at += 1;
                self.length().map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Consumes the head of any list: `Some(None)` for one that ends with a mark.
    pub(crate) fn try_any_list(&mut self) -> Result<Option<Extent>> {
        if let Some(n) = self.try_list()? {
            return Ok(Some(Extent::Length(n)));
        }
        let extent = match self.bytes.get(self.at) {
            Some(0xED) => Extent::UntilMark,
            Some(0xEE) => Extent::UntilMarkOrEnd,
            _ => return Ok(None),
        };
        self.at += 1;
        Ok(Some(extent))
    }

    /// Is there another element? Consumes the end of the list if not.
    pub(crate) fn more(&mut self, extent: &mut Extent) -> Result<bool> {
        match extent {
            Extent::Length(0) => Ok(false),
            Extent::Length(n) => {
                *n -= 1;
                Ok(true)
            }
            Extent::UntilMarkOrEnd if self.at >= self.bytes.len() => Ok(false),
            _ if *self.bytes.get(self.at).ok_or_else(|| self.ended())? == 0xFD => {
                self.at += 1;
                Ok(false)
            }
            _ => Ok(true),
        }
    }

    fn items(&mut self) -> Result<Vec<Value>> {
        let start = self.at;
        let Some(mut extent) = self.try_any_list()? else {
            return Err(self.wrong(start, "a list is missing where a list must stand"));
        };
        // Capacity is not given ahead: nested lists could each promise as many elements as there are bytes left.
        let mut items = Vec::new();
        while self.more(&mut extent)? {
            items.push(self.read()?);
        }
        Ok(items)
    }

    /// A list that is a part of something else and adds no depth: `nil` is empty, and any other object is handed back.
    fn list_part(&mut self) -> Result<std::result::Result<Vec<Value>, Value>> {
        match self.peek()? {
            0xE4..=0xEE => self.items().map(Ok),
            _ => Ok(match self.read()? {
                Value::Nil => Ok(Vec::new()),
                Value::Vector(items) => Ok(items),
                other => Err(other),
            }),
        }
    }

    // --- Caches

    fn put(&mut self) -> Result<Value> {
        let slot = self.priority.len();
        self.priority.push(Slot::reserved());
        let start = self.at;
        let value = self.read()?;
        let (weight, height) = measure(&value);
        self.afford(weight)?;
        let name = match &value {
            Value::Str(s) | Value::Keyword(s) => Some(&**s),
            _ => None,
        };
        let filled = Slot {
            weight,
            height,
            tuple: self.last_tuple == (start, self.at),
            role: name.map_or(Role::Other, Role::of),
            readable: name.is_some_and(readable_keyword),
            value: Some(value.clone()),
            memo: (0, 0),
        };
        // The caches may have been reset while the object was read.
        if let Some(place) = self.priority.get_mut(slot) {
            *place = filled;
        }
        Ok(value)
    }

    fn copy(&mut self, n: i64) -> Result<Value> {
        let slot = usize::try_from(n).ok().and_then(|n| self.priority.get(n));
        let Some(slot) = slot else {
            return Err(self.wrong(self.at, format!("there is no object {n} in the priority cache")));
        };
        let Some(value) = &slot.value else {
            return Err(self.wrong(self.at, "an object contains itself"));
        };
        if self.depth + slot.height > MAX_DEPTH + 1 {
            return Err(self.too_deep());
        }
        let (weight, tuple, value) = (slot.weight, slot.tuple, value.clone());
        self.afford(weight)?;
        if tuple {
            self.last_tuple = (self.at - 1, self.at);
        }
        Ok(value)
    }

    fn afford(&mut self, weight: u64) -> Result<()> {
        self.copied = self.copied.saturating_add(weight);
        if self.copied > COPY_FACTOR * self.bytes.len() as u64 + (1 << 20) {
            return Err(self.wrong(
                self.at,
                format!("copies of cached objects outgrow {COPY_FACTOR} times the {} bytes read", self.bytes.len()),
            ));
        }
        Ok(())
    }

    /// Bytes read and bytes copied so far.
    pub(crate) fn effort(&self) -> u64 {
        self.at as u64 + self.copied
    }

    fn skip_marks(&mut self) -> Result<()> {
        while let Some(code) = self.bytes.get(self.at) {
            match code {
                0xFE => self.at += 1,
                0xCF => self.footer()?,
                _ => return Ok(()),
            }
            self.priority.clear();
            self.structs.clear();
        }
        Ok(())
    }

    /// A footer: four bytes `CF`, the number of bytes before it, their Adler-32 (the block's CRC is stronger).
    fn footer(&mut self) -> Result<()> {
        let start = self.at;
        let magic: [u8; 4] = self.array()?;
        let length = u32::from_be_bytes(self.array()?);
        let _adler32: [u8; 4] = self.array()?;
        if magic != [0xCF; 4] || length as usize != start - self.section {
            return Err(self.wrong(start, "a Fressian footer does not fit what stands before it"));
        }
        self.section = self.at;
        Ok(())
    }

    // --- Structs

    /// Consumes the head of the struct that stands next.
    pub(crate) fn open_struct(&mut self) -> Result<StructHeader> {
        let start = self.at;
        let code = self.byte()?;
        let known = |kind, parts| Ok(StructHeader { kind, parts, cached: None });
        let n = match code {
            0xA0..=0xAF => usize::from(code - 0xA0),
            0xF0 => self.length()?,
            0xEF => {
                self.define_struct(start)?;
                self.structs.len() - 1
            }
            0xB0..=0xB5 => return known(Kind::Array, 1),
            0xC0 => return known(Kind::Map, 1),
            0xC1 => return known(Kind::Set, 1),
            0xC3 => return known(Kind::Uuid, 1),
            0xC4 => return Ok(StructHeader { kind: Kind::Other, parts: 1, cached: Some("regex".into()) }),
            0xC5 => return Ok(StructHeader { kind: Kind::Other, parts: 1, cached: Some("uri".into()) }),
            0xC6 => return known(Kind::BigInt, 1),
            0xC7 => return known(Kind::BigDec, 2),
            0xC8 => return known(Kind::Inst, 1),
            0xC9 => return known(Kind::Symbol, 2),
            0xCA => return known(Kind::Keyword, 2),
            _ => return Err(self.wrong(start, "a struct is missing where a struct must stand")),
        };
        let Some(found) = self.structs.get(n) else {
            return Err(self.wrong(start, format!("there is no struct {n} in the struct cache")));
        };
        let cached = matches!(found.kind, Kind::Other).then(|| found.tag.clone());
        Ok(StructHeader { kind: found.kind, parts: found.parts, cached })
    }

    fn define_struct(&mut self, start: usize) -> Result<()> {
        let tag = match self.read()? {
            Value::Str(tag) => tag,
            other => return Err(self.wrong(start, format!("a struct's tag is {}, not a string", clip(&other)))),
        };
        let parts = self.length()?;
        self.structs.push(StructType { kind: Kind::of(&tag, parts), tag, parts });
        Ok(())
    }

    /// The kind and length of the struct that stands next, if its code is a short one into the struct cache.
    #[inline]
    pub(crate) fn peek_cached_struct(&self) -> Option<(Kind, usize)> {
        let code = *self.bytes.get(self.at)?;
        let found = self.structs.get(usize::from(code.checked_sub(0xA0).filter(|&n| n < 16)?))?;
        Some((found.kind, found.parts))
    }

    /// Reads the parts of a struct whose head was consumed and began at `start`.
    pub(crate) fn finish_struct(&mut self, header: StructHeader, start: usize) -> Result<Value> {
        // Where a part ends up more than one level below the struct, reading it must count as so much deeper.
        let levels = match header.kind {
            Kind::Other | Kind::Record => 2,
            Kind::Symbol | Kind::Keyword => 1,
            _ => 0,
        };
        self.depth += levels;
        let value = self.parts(header, start);
        self.depth -= levels;
        value
    }

    fn parts(&mut self, header: StructHeader, start: usize) -> Result<Value> {
        match header.kind {
            Kind::Op => self.op_as_map(),
            Kind::Map => self.map(start),
            Kind::Set => self.set(header.parts),
            Kind::Vec => Ok(self.list_part()?.map_or_else(|other| other, Value::Vector)),
            Kind::MapEntry => {
                let pair = vec![self.read()?, self.read()?];
                self.last_tuple = (start, self.at);
                Ok(Value::Vector(pair))
            }
            Kind::Uuid => self.uuid(start),
            Kind::BigInt => Ok(decimal(&self.bigint(start)?)),
            Kind::BigDec => self.bigdec(start),
            Kind::Inst => {
                let ms = self.int()?;
                Ok(Value::Tagged("inst".into(), Box::new(Value::Str(rfc3339(ms).into()))))
            }
            Kind::InstText => Ok(Value::Tagged("inst".into(), Box::new(self.read()?))),
            Kind::Symbol => self.name("symbol", readable_symbol, Value::Symbol),
            Kind::Keyword => self.name("keyword", readable_keyword, Value::Keyword),
            Kind::Ratio => self.ratio(start),
            Kind::Char => {
                let c = self.int()?;
                let c = u32::try_from(c).ok().filter(|&c| c <= 0x10_FFFF);
                c.map(Value::Char).ok_or_else(|| self.wrong(start, "a character's code is out of range"))
            }
            Kind::Plain => self.read(),
            Kind::Record => self.record(),
            Kind::Array => self.typed_array(),
            Kind::Other => self.unknown(header.cached.unwrap_or_default(), header.parts),
        }
    }

    /// An operation as the map it prints as. −1 is how an `Op` says that it has no index or time.
    fn op_as_map(&mut self) -> Result<Value> {
        let mut entries = Vec::with_capacity(8);
        for name in ["index", "time", "type", "process", "f", "value"] {
            let value = self.read()?;
            if !(matches!(name, "index" | "time") && value == Value::Int(-1)) {
                entries.push((Value::keyword(name), value));
            }
        }
        let start = self.at;
        match self.read()? {
            Value::Map(more) => entries.extend(more),
            Value::Nil => {}
            _ => return Err(self.wrong(start, "the further fields of an operation are not a map")),
        }
        Ok(Value::map(entries))
    }

    fn map(&mut self, start: usize) -> Result<Value> {
        let items = match self.list_part()? {
            Ok(items) => items,
            // A multiset's part is itself a map.
            Err(map @ Value::Map(_)) => return Ok(map),
            Err(_) => return Err(self.wrong(start, "a map is not made of a list")),
        };
        if items.len() % 2 != 0 {
            return Err(self.wrong(start, "a map has a key without a value"));
        }
        let mut entries = Vec::with_capacity(items.len() / 2);
        let mut items = items.into_iter();
        while let (Some(k), Some(v)) = (items.next(), items.next()) {
            entries.push((k, v));
        }
        Ok(Value::map(entries))
    }

    fn set(&mut self, parts: usize) -> Result<Value> {
        if parts == 1 {
            return Ok(match self.list_part()? {
                Ok(items) => Value::set(items),
                Err(Value::Set(items)) => Value::Set(items),
                Err(only) => Value::set(vec![only]),
            });
        }
        let mut items = Vec::new();
        for _ in 0..parts {
            items.push(self.read()?);
        }
        Ok(Value::set(items))
    }

    fn uuid(&mut self, start: usize) -> Result<Value> {
        let bytes = self.raw_bytes()?;
        if bytes.len() != 16 {
            return Err(self.wrong(start, format!("a UUID has {} bytes, not 16", bytes.len())));
        }
        let mut text = hex(&bytes);
        for at in [20, 16, 12, 8] {
            text.insert(at, '-');
        }
        Ok(Value::Tagged("uuid".into(), Box::new(Value::Str(text.into()))))
    }

    fn bigint(&mut self, start: usize) -> Result<String> {
        let bytes = self.raw_bytes()?;
        if bytes.is_empty() || bytes.len() > MAX_BIGINT_BYTES {
            let n = bytes.len();
            return Err(self.wrong(start, format!("an integer has {n} bytes, not 1 to {MAX_BIGINT_BYTES}")));
        }
        Ok(decimal_digits(&bytes))
    }

    fn bigdec(&mut self, start: usize) -> Result<Value> {
        let unscaled = self.bigint(start)?;
        let scale = self.int()?;
        if i32::try_from(scale).is_err() {
            return Err(self.wrong(start, format!("{scale} is no decimal's scale")));
        }
        Ok(Value::Decimal(java_decimal(&unscaled, scale).into()))
    }

    fn name(&mut self, what: &str, readable: fn(&str) -> bool, make: fn(Box<str>) -> Value) -> Result<Value> {
        let (space, name) = (self.read()?, self.read()?);
        Ok(match (space, name) {
            (Value::Nil, Value::Str(name)) if readable(&name) => make(name),
            (Value::Str(space), Value::Str(name)) if readable(&space) && readable(&name) && !space.contains('/') => {
                make(format!("{space}/{name}").into())
            }
            // A name that cannot be written in EDN without becoming something else.
            (space, name) => Value::Tagged(what.into(), Box::new(Value::Vector(vec![space, name]))),
        })
    }

    fn ratio(&mut self, start: usize) -> Result<Value> {
        let (n, d) = (self.read()?, self.read()?);
        let integers = matches!((&n, &d), (Value::Int(_) | Value::BigInt(_), Value::Int(_) | Value::BigInt(_)));
        let ratio = if integers { Value::ratio(&n.to_edn(), &d.to_edn()) } else { None };
        ratio.ok_or_else(|| self.wrong(start, "a ratio's parts are no numerator and denominator"))
    }

    fn record(&mut self) -> Result<Value> {
        let class = self.read()?;
        let fields = self.read()?;
        Ok(match class.as_name() {
            Some(name) if readable_symbol(name) => Value::Tagged(name.into(), Box::new(fields)),
            _ => Value::Tagged("record".into(), Box::new(Value::Vector(vec![class, fields]))),
        })
    }

    fn typed_array(&mut self) -> Result<Value> {
        let n = self.length()?;
        let mut items = Vec::new();
        for _ in 0..n {
            items.push(self.read()?);
        }
        Ok(Value::Vector(items))
    }

    fn unknown(&mut self, tag: Box<str>, parts: usize) -> Result<Value> {
        let mut items = Vec::new();
        for _ in 0..parts {
            items.push(self.read()?);
        }
        let one_part = matches!(&*tag, "regex" | "uri" | "throwable" | "block-ref") && items.len() == 1;
        let inner = match items.pop() {
            Some(only) if one_part => only,
            last => {
                items.extend(last);
                Value::Vector(items)
            }
        };
        if readable_symbol(&tag) {
            return Ok(Value::Tagged(tag, Box::new(inner)));
        }
        Ok(Value::Tagged("struct".into(), Box::new(Value::Vector(vec![Value::Str(tag), inner]))))
    }

    // --- The cursor, for those who read without building values

    /// Where the next object begins.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Goes back to where an object began. Sound only if nothing since then touched a cache.
    pub(crate) fn rewind(&mut self, at: usize) {
        self.at = at;
    }

    /// The byte under the cursor.
    #[inline]
    pub(crate) fn peek_raw(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// The slot whose name is the keyword that stands next, and the keyword's length here, if it is written shortly: a
    /// cached keyword, or one without namespace whose name is cached.
    #[inline]
    pub(crate) fn short_keyword(&mut self) -> Option<(&mut Slot, usize)> {
        let rest = self.bytes.get(self.at..)?;
        let (named, reference) = match rest {
            [0xCA, 0xF7, reference @ ..] => (true, reference),
            _ => (false, rest),
        };
        let (n, length) = slot_reference(reference)?;
        let slot = self.priority.get_mut(n)?;
        let (fits, length) = if named { (slot.keyword_name(), length + 2) } else { (slot.keyword(), length) };
        fits.is_some().then_some((slot, length))
    }

    /// Steps over bytes that were looked at.
    #[inline]
    pub(crate) fn skip(&mut self, n: usize) {
        self.at = (self.at + n).min(self.bytes.len());
    }

    /// Did a map entry begin at `start` and end under the cursor?
    pub(crate) fn tuple_since(&self, start: usize) -> bool {
        self.last_tuple.1 == self.at && (self.last_tuple.0 == start || self.starts_after_put(start))
    }

    fn starts_after_put(&self, start: usize) -> bool {
        self.bytes.get(start) == Some(&0xCD) && self.last_tuple.0 == start + 1
    }

    /// A map entry that began at `start` ends under the cursor.
    pub(crate) fn mark_tuple(&mut self, start: usize) {
        self.last_tuple = (start, self.at);
    }

    // --- Errors

    /// An error at a place in these bytes.
    pub(crate) fn wrong(&self, at: usize, what: impl Into<String>) -> ReadError {
        ReadError::new(what).at(Place::Byte(self.base + at as u64))
    }

    fn ended(&self) -> ReadError {
        self.wrong(self.bytes.len(), "the Fressian data end in the middle of an object")
    }

    fn too_deep(&self) -> ReadError {
        self.wrong(self.at, format!("values nest deeper than {MAX_DEPTH}"))
    }
}

/// How far a list goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Extent {
    Length(usize),
    UntilMark,
    UntilMarkOrEnd,
}

/// The slot that a reference into the priority cache names, and the reference's length; `None` for what begins
/// otherwise, and for slots so high that they are rare.
#[inline]
fn slot_reference(bytes: &[u8]) -> Option<(usize, usize)> {
    match bytes {
        [code @ 0x80..=0x9F, ..] => Some((usize::from(code - 0x80), 1)),
        [0xCC, n @ 0x00..=0x3F, ..] => Some((usize::from(*n), 2)),
        [0xCC, high @ 0x50..=0x5F, low, ..] => Some((usize::from(high - 0x50) << 8 | usize::from(*low), 3)),
        _ => None,
    }
}

/// The head of a struct.
pub(crate) struct StructHeader {
    pub(crate) kind: Kind,
    parts: usize,
    /// The tag, where it is kept in the value.
    cached: Option<Box<str>>,
}

/// About how many bytes a value takes, and how deep it nests. Recursion is bounded as the decoder's is.
fn measure(value: &Value) -> (u64, usize) {
    const NODE: u64 = size_of::<Value>() as u64;
    let all = |items: &mut dyn Iterator<Item = &Value>| {
        items.map(measure).fold((NODE, 1), |(w, h), (weight, height)| (w + weight, h.max(height + 1)))
    };
    match value {
        Value::BigInt(s)
        | Value::Decimal(s)
        | Value::Ratio(s)
        | Value::Str(s)
        | Value::Keyword(s)
        | Value::Symbol(s) => (NODE + s.len() as u64, 1),
        Value::Utf16(units) => (NODE + 2 * units.len() as u64, 1),
        Value::Vector(items) | Value::Set(items) => all(&mut items.iter()),
        Value::Map(entries) => all(&mut entries.iter().flat_map(|(k, v)| [k, v])),
        Value::Tagged(tag, inner) => {
            let (weight, height) = measure(inner);
            (NODE + tag.len() as u64 + weight, height + 1)
        }
        Value::Nil | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Char(_) => (NODE, 1),
    }
}

/// The start of a value's text, for messages.
pub(crate) fn clip(value: &Value) -> String {
    let text = value.to_edn();
    if text.chars().count() <= 60 { text } else { text.chars().take(57).chain("…".chars()).collect() }
}

/// Would EDN read this name, written after a colon, as one keyword?
pub(crate) fn readable_keyword(name: &str) -> bool {
    let plain = |b: u8| {
        !matches!(
            b,
            0..=b' '
                | 0x7F
                | b'"'
                | b';'
                | b','
                | b'('
                | b')'
                | b'['
                | b']'
                | b'{'
                | b'}'
                | b'\\'
                | b'@'
                | b'`'
                | b'^'
                | b'~'
        )
    };
    if name.is_ascii() { !name.is_empty() && name.bytes().all(plain) } else { readable_beyond_ascii(name, plain) }
}

fn readable_beyond_ascii(name: &str, plain: impl Fn(u8) -> bool) -> bool {
    name.chars()
        .all(|c| u8::try_from(c).ok().filter(u8::is_ascii).map_or(!c.is_whitespace() && !c.is_control(), &plain))
}

/// Would EDN read this name as one symbol?
fn readable_symbol(name: &str) -> bool {
    let mut bytes = name.bytes();
    let begins = match bytes.next() {
        Some(b':' | b'#' | b'\'' | b'0'..=b'9') => false,
        Some(b'+' | b'-' | b'.') => !bytes.next().is_some_and(|b| b.is_ascii_digit()),
        first => first.is_some(),
    };
    begins && readable_keyword(name) && !matches!(name, "nil" | "true" | "false")
}

/// UTF-16 units from UTF-8 in which surrogates may be encoded one by one.
fn utf16_units(bytes: &[u8]) -> Option<Vec<u16>> {
    let mut units = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, tail @ ..] = rest {
        let (length, bits) = match first {
            0x00..=0x7F => (0, u32::from(*first)),
            0xC0..=0xDF => (1, u32::from(first & 0x1F)),
            0xE0..=0xEF => (2, u32::from(first & 0x0F)),
            0xF0..=0xF4 => (3, u32::from(first & 0x07)),
            _ => return None,
        };
        let (more, after) = tail.split_at_checked(length)?;
        let mut code = bits;
        for b in more {
            if b & 0xC0 != 0x80 {
                return None;
            }
            code = code << 6 | u32::from(b & 0x3F);
        }
        match u16::try_from(code) {
            Ok(unit) => units.push(unit),
            Err(_) => units.extend_from_slice(char::from_u32(code)?.encode_utf16(&mut [0; 2])),
        }
        rest = after;
    }
    Some(units)
}

fn hex(bytes: &[u8]) -> String {
    let digit = |n: u8| char::from_digit(u32::from(n), 16).unwrap_or('0');
    bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect()
}

fn decimal(digits: &str) -> Value {
    Value::integer(digits).unwrap_or(Value::Nil)
}

/// Decimal digits of a big-endian two's complement number: divided by 10⁹ again and again, so quadratic.
fn decimal_digits(bytes: &[u8]) -> String {
    let negative = bytes.first().is_some_and(|b| b & 0x80 != 0);
    let mut limbs: Vec<u32> = bytes
        .rchunks(4)
        .map(|c| c.iter().fold(if negative { u32::MAX } else { 0 }, |n, &b| n << 8 | u32::from(b)))
        .collect();
    if negative {
        let mut carry = true;
        for limb in &mut limbs {
            let (sum, overflow) = (!*limb).overflowing_add(u32::from(carry));
            (*limb, carry) = (sum, overflow);
        }
        // Only the most negative number of its length carries out: it is 2 to the power of all bits but one.
        limbs.extend(carry.then_some(1));
    }
    let mut groups = Vec::new();
    while limbs.last().is_some() {
        let mut rest = 0u64;
        for limb in limbs.iter_mut().rev() {
            let n = rest << 32 | u64::from(*limb);
            *limb = (n / 1_000_000_000) as u32;
            rest = n % 1_000_000_000;
        }
        groups.push(rest);
        while limbs.last() == Some(&0) {
            limbs.pop();
        }
    }
    let mut text = String::from(if negative { "-" } else { "" });
    for (i, group) in groups.iter().rev().enumerate() {
        text.push_str(&if i == 0 { group.to_string() } else { format!("{group:09}") });
    }
    text
}

/// As Java's `BigDecimal` prints: plain where the exponent is small, else scientific.
fn java_decimal(unscaled: &str, scale: i64) -> String {
    let (sign, digits) = match unscaled.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", unscaled),
    };
    let exponent = digits.len() as i64 - 1 - scale;
    if scale == 0 {
        return unscaled.to_string();
    }
    if scale > 0 && exponent >= -6 {
        let missing = usize::try_from(1 - digits.len() as i64 + scale).unwrap_or(0);
        let padded = format!("{}{digits}", "0".repeat(missing));
        let (whole, fraction) = padded.split_at(padded.len() - scale as usize);
        return format!("{sign}{whole}.{fraction}");
    }
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    match exponent {
        0 => format!("{sign}{first}{point}{rest}"),
        e => format!("{sign}{first}{point}{rest}E{e:+}"),
    }
}

/// Milliseconds since 1970 as Clojure prints an `#inst`.
fn rfc3339(ms: i64) -> String {
    let (days, ms) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
    // Years that begin in March, in eras of 400 years, so that the leap day comes last.
    let z = days + 719_468;
    let (era, doe) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    let (s, ms) = (ms / 1000, ms % 1000);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{ms:03}-00:00", s / 3600, s / 60 % 60, s % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Value> {
        Decoder::new(bytes, 0).read()
    }

    fn edn(bytes: &[u8]) -> String {
        read(bytes).unwrap().to_edn()
    }

    #[test]
    fn integers_are_read_from_every_width() {
        for (bytes, n) in [
            (&[0x00][..], 0),
            (&[0x3F], 63),
            (&[0xFF], -1),
            (&[0x50, 0x40], 64),
            (&[0x4F, 0xFE], -2),
            (&[0x40, 0x00], -4096),
            (&[0x5F, 0xFF], 4095),
            (&[0x68, 0x10, 0x00], 4096),
            (&[0x60, 0x00, 0x00], -524_288),
            (&[0x72, 0x08, 0x00, 0x00], 524_288),
            (&[0x76, 0xB7, 0x30, 0x25, 0x00], 0xB730_2500),
            (&[0x7A, 1, 2, 3, 4, 5], 0x01_0203_0405),
            (&[0x7E, 1, 2, 3, 4, 5, 6], 0x0102_0304_0506),
            (&[0x7C, 0, 0, 0, 0, 0, 0], -(2i64 << 48)),
            (&[0xF8, 0x80, 0, 0, 0, 0, 0, 0, 0], i64::MIN),
        ] {
            assert_eq!(read(bytes), Ok(Value::Int(n)), "{bytes:02x?}");
            let mut padded = bytes.to_vec();
            padded.extend([0xAA; 9]);
            assert_eq!(read(&padded), Ok(Value::Int(n)), "{bytes:02x?} with more after it");
            assert!(read(&bytes[..bytes.len() - 1]).is_err());
        }
    }

    #[test]
    fn a_slot_is_reserved_before_its_object_is_read() {
        // A cached keyword with a cached name, then slots 0 and 1.
        let bytes = [0xE7, 0xCD, 0xCA, 0xF7, 0xCD, 0xDB, b'r', 0x80, 0x81];
        assert_eq!(edn(&bytes), "[:r :r \"r\"]");
        let own = [0xCD, 0xE5, 0x80];
        assert!(read(&own).unwrap_err().what.contains("contains itself"));
    }

    #[test]
    fn a_struct_is_named_once() {
        let bytes = [0xE6, 0xEF, 0xDB, b'x', 0x02, 0x01, 0x02, 0xA0, 0x03, 0x04];
        assert_eq!(edn(&bytes), "[#x [1 2] #x [3 4]]");
        let long = [0xE6, 0xEF, 0xDB, b'x', 0x01, 0x01, 0xF0, 0x00, 0x04];
        assert_eq!(edn(&long), "[#x [1] #x [4]]");
        let reset = [0xE6, 0xEF, 0xDB, b'x', 0x00, 0xFE, 0xA0];
        assert!(read(&reset).unwrap_err().what.contains("struct cache"));
    }

    #[test]
    fn big_numbers_are_exact() {
        for bytes in
            [&[0x00][..], &[0x80], &[0xFF; 9], &[0x7F; 16], &[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]]
        {
            let mut wide = if bytes[0] & 0x80 != 0 { [0xFF; 16] } else { [0; 16] };
            wide[16 - bytes.len()..].copy_from_slice(bytes);
            assert_eq!(decimal_digits(bytes), i128::from_be_bytes(wide).to_string(), "{bytes:02x?}");
        }
        assert_eq!(
            decimal_digits(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            "340282366920938463463374607431768211456"
        );
    }

    #[test]
    fn decimals_print_as_java_prints_them() {
        for (unscaled, scale, text) in [
            ("12345", 2, "123.45"),
            ("-5", 3, "-0.005"),
            ("5", 7, "5E-7"),
            ("1", 6, "0.000001"),
            ("123", -1, "1.23E+3"),
            ("0", 0, "0"),
            ("7", 0, "7"),
            ("12", i64::from(i32::MAX), "1.2E-2147483646"),
        ] {
            assert_eq!(java_decimal(unscaled, scale), text);
        }
    }

    #[test]
    fn instants_print_as_clojure_prints_them() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000-00:00");
        assert_eq!(rfc3339(951_782_400_001), "2000-02-29T00:00:00.001-00:00");
        assert_eq!(rfc3339(-1), "1969-12-31T23:59:59.999-00:00");
        assert_eq!(rfc3339(1_734_483_661_810), "2024-12-18T01:01:01.810-00:00");
        rfc3339(i64::MIN);
        rfc3339(i64::MAX);
    }

    #[test]
    fn surrogates_encoded_one_by_one_are_joined_and_lone_ones_kept() {
        let smile = [0xE0, 0xED, 0xA0, 0xBD, 0xED, 0xB8, 0x80];
        assert_eq!(read(&smile), Ok(Value::str("😀")));
        let lone = [0xDE, b'a', 0xED, 0xA0, 0x80];
        assert_eq!(read(&lone), Ok(Value::Utf16(vec![0x61, 0xD800].into())));
        let chunks = [0xE2, 0x02, 0xED, 0xA0, 0xE2, 0x02, 0xBD, 0xED, 0xDC, 0xB8, 0x80];
        assert_eq!(read(&chunks), Ok(Value::str("😀")));
        assert!(read(&[0xDB, 0xFF]).is_err());
    }

    #[test]
    fn a_cached_giant_cannot_be_multiplied() {
        let mut bytes = vec![0xEC, 0x72, 0x01, 0, 0, 0xCD, 0xE3, 0x70 + 2, 1, 0, 0];
        bytes.extend(std::iter::repeat_n(b'x', 65_536));
        bytes.extend(std::iter::repeat_n(0x80, 65_535));
        assert!(read(&bytes).unwrap_err().what.contains("copies of cached objects"));
    }

    #[test]
    fn depth_is_bounded_also_through_the_cache() {
        let deep = |n: usize| [vec![0xE5; n], vec![0x01]].concat();
        assert!(read(&deep(MAX_DEPTH)).is_ok());
        assert!(read(&deep(MAX_DEPTH + 1)).unwrap_err().what.contains("deeper"));
        let mut through = vec![0xE6, 0xCD];
        through.extend(deep(200));
        through.extend(vec![0xE5; 100]);
        through.push(0x80);
        assert!(read(&through).unwrap_err().what.contains("deeper"));
        assert!(read(&vec![0xCD; 100_000]).unwrap_err().what.contains("deeper"));
    }

    #[test]
    fn promised_lengths_reserve_nothing() {
        for head in [&[0xEC][..], &[0xB5], &[0xD9], &[0xE3], &[0xEF, 0xDB, b'x']] {
            for n in [[0xF8, 0x7F, 255, 255, 255, 255, 255, 255, 255], [0xF8, 255, 255, 255, 255, 255, 255, 255, 255]] {
                assert!(read(&[head, &n, &[0x01; 64]].concat()).is_err());
            }
        }
    }

    #[test]
    fn names_that_edn_cannot_write_do_not_pass_for_others() {
        let key = |name: &str| [&[0xCA, 0xF7, 0xDA + name.len() as u8], name.as_bytes()].concat();
        assert_eq!(edn(&key("ok?")), ":ok?");
        assert_eq!(edn(&key("a :b")), "#keyword [nil \"a :b\"]");
        assert_eq!(edn(&key("")), "#keyword [nil \"\"]");
        let sym = [0xC9, 0xF7, 0xDD, b'n', b'i', b'l'];
        assert_eq!(edn(&sym), "#symbol [nil \"nil\"]");
    }

    #[test]
    fn a_footer_must_fit_and_forgets_the_caches() {
        let good = [0xCD, 0xDB, b'a', 0xCF, 0xCF, 0xCF, 0xCF, 0, 0, 0, 3, 0, 0, 0, 0, 0x05];
        let mut decoder = Decoder::new(&good, 0);
        assert_eq!(decoder.read(), Ok(Value::str("a")));
        assert_eq!(decoder.read(), Ok(Value::Int(5)));
        assert_eq!(decoder.at_end(), Ok(true));
        let bad = [0x01, 0xCF, 0xCF, 0xCF, 0xCF, 0, 0, 0, 9, 0, 0, 0, 0];
        let mut decoder = Decoder::new(&bad, 0);
        assert_eq!(decoder.read(), Ok(Value::Int(1)));
        assert!(decoder.at_end().unwrap_err().what.contains("footer"));
    }

    #[test]
    fn old_sets_have_their_elements_as_parts() {
        let tag = |parts: u8| [&[0xEF, 0xE3, 19][..], b"persistent-hash-set", &[parts]].concat();
        assert_eq!(edn(&[&tag(3)[..], &[3, 1, 2]].concat()), "#{1 2 3}");
        assert_eq!(edn(&[&tag(1)[..], &[0xE6, 9, 8]].concat()), "#{8 9}");
        assert_eq!(edn(&[&tag(1)[..], &[0xF7]].concat()), "#{}");
        assert_eq!(edn(&[&tag(1)[..], &[7]].concat()), "#{7}");
    }
}
