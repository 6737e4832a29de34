//! Writes Fressian objects and block files as Jepsen does, for tests.

use crate::value::Value;

/// A Fressian writer with both caches.
#[derive(Default)]
pub(crate) struct Encoder {
    pub(crate) out: Vec<u8>,
    priority: Vec<String>,
    structs: Vec<(String, usize)>,
}

impl Encoder {
    pub(crate) fn of(value: &Value) -> Vec<u8> {
        let mut e = Encoder::default();
        e.value(value);
        e.out
    }

    pub(crate) fn int(&mut self, n: i64) {
        let widths = [(1, 0x50, 12), (2, 0x68, 19), (3, 0x72, 25), (4, 0x76, 33), (5, 0x7A, 41), (6, 0x7E, 49)];
        if (0..64).contains(&n) {
            return self.out.push(n as u8);
        }
        if n == -1 {
            return self.out.push(0xFF);
        }
        for (bytes, zero, bits) in widths {
            if n >= -(1 << bits) && n < 1 << bits {
                self.out.push((zero + (n >> (8 * bytes))) as u8);
                return self.out.extend_from_slice(&n.to_be_bytes()[8 - bytes as usize..]);
            }
        }
        self.out.push(0xF8);
        self.out.extend_from_slice(&n.to_be_bytes());
    }

    pub(crate) fn list(&mut self, n: usize) {
        if n < 8 {
            self.out.push(0xE4 + n as u8);
        } else {
            self.out.push(0xEC);
            self.int(n as i64);
        }
    }

    fn counted(&mut self, short: u8, long: u8, bytes: &[u8]) {
        if bytes.len() < 8 {
            self.out.push(short + bytes.len() as u8);
        } else {
            self.out.push(long);
            self.int(bytes.len() as i64);
        }
        self.out.extend_from_slice(bytes);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.counted(0xD0, 0xD9, bytes);
    }

    /// A string as Java writes it, every surrogate for itself, in chunks of at most 100 units.
    pub(crate) fn string(&mut self, s: &str) {
        self.units(&s.encode_utf16().collect::<Vec<_>>());
    }

    fn units(&mut self, units: &[u16]) {
        let mut chunks = units.chunks(100).peekable();
        if chunks.peek().is_none() {
            self.out.push(0xDA);
        }
        while let Some(chunk) = chunks.next() {
            let mut bytes = Vec::new();
            for &u in chunk {
                match u {
                    0..0x80 => bytes.push(u as u8),
                    0x80..0x800 => bytes.extend([0xC0 | (u >> 6) as u8, 0x80 | (u & 63) as u8]),
                    _ => bytes.extend([0xE0 | (u >> 12) as u8, 0x80 | (u >> 6 & 63) as u8, 0x80 | (u & 63) as u8]),
                }
            }
            if chunks.peek().is_some() {
                self.out.push(0xE2);
                self.int(bytes.len() as i64);
                self.out.extend(bytes);
            } else {
                self.counted(0xDA, 0xE3, &bytes);
            }
        }
    }

    /// Writes through the priority cache.
    fn cached(&mut self, key: String, write: impl FnOnce(&mut Encoder)) {
        match self.priority.iter().position(|k| *k == key) {
            Some(n) if n < 32 => self.out.push(0x80 + n as u8),
            Some(n) => {
                self.out.push(0xCC);
                self.int(n as i64);
            }
            None => {
                self.priority.push(key);
                self.out.push(0xCD);
                write(self);
            }
        }
    }

    pub(crate) fn tag(&mut self, tag: &str, parts: usize) {
        match self.structs.iter().position(|(t, n)| t == tag && *n == parts) {
            Some(n) if n < 16 => self.out.push(0xA0 + n as u8),
            Some(n) => {
                self.out.push(0xF0);
                self.int(n as i64);
            }
            None => {
                self.structs.push((tag.into(), parts));
                self.out.push(0xEF);
                self.string(tag);
                self.int(parts as i64);
            }
        }
    }

    fn name(&mut self, code: u8, name: &str) {
        self.out.push(code);
        let (space, name) = match name.split_once('/') {
            Some((space, name)) if !space.is_empty() && !name.is_empty() => (Some(space), name),
            _ => (None, name),
        };
        match space {
            None => self.out.push(0xF7),
            Some(space) => self.cached(format!("s{space}"), |e| e.string(space)),
        }
        self.cached(format!("s{name}"), |e| e.string(name));
    }

    pub(crate) fn value(&mut self, value: &Value) {
        match value {
            Value::Nil => self.out.push(0xF7),
            Value::Bool(b) => self.out.push(if *b { 0xF5 } else { 0xF6 }),
            Value::Int(n) => self.int(*n),
            Value::BigInt(digits) => {
                self.out.push(0xC6);
                self.bytes(&digits.parse::<i128>().unwrap().to_be_bytes());
            }
            Value::Float(x) => {
                self.out.push(0xFA);
                self.out.extend_from_slice(&x.to_be_bytes());
            }
            Value::Decimal(text) => {
                let (whole, fraction) = text.split_once('.').unwrap();
                self.out.push(0xC7);
                self.bytes(&format!("{whole}{fraction}").parse::<i128>().unwrap().to_be_bytes());
                self.int(fraction.len() as i64);
            }
            Value::Ratio(text) => {
                let (n, d) = text.split_once('/').unwrap();
                self.tag("ratio", 2);
                self.value(&Value::integer(n).unwrap());
                self.value(&Value::integer(d).unwrap());
            }
            Value::Char(c) => {
                self.tag("char", 1);
                self.int(i64::from(*c));
            }
            Value::Str(s) => self.string(s),
            Value::Utf16(units) => self.units(units),
            Value::Keyword(name) => self.name(0xCA, name),
            Value::Symbol(name) => self.name(0xC9, name),
            Value::Vector(items) => {
                self.list(items.len());
                items.iter().for_each(|v| self.value(v));
            }
            Value::Set(items) => {
                self.tag("persistent-hash-set", 1);
                if items.is_empty() {
                    return self.out.push(0xF7);
                }
                self.value(&Value::Vector(items.clone()));
            }
            Value::Map(entries) => {
                self.out.push(0xC0);
                self.list(2 * entries.len());
                for (k, v) in entries {
                    self.value(k);
                    self.value(v);
                }
            }
            Value::Tagged(tag, inner) => match (&**tag, &**inner) {
                // How the tests say "a map entry".
                ("test/map-entry", Value::Vector(pair)) => {
                    self.tag("map-entry", 2);
                    pair.iter().for_each(|v| self.value(v));
                }
                (tag, Value::Vector(parts)) => {
                    self.tag(tag, parts.len());
                    parts.iter().for_each(|v| self.value(v));
                }
                (tag, inner) => {
                    self.tag(tag, 1);
                    self.value(inner);
                }
            },
        }
    }

    /// A map as an `Op`.
    pub(crate) fn op(&mut self, map: &Value) {
        let Value::Map(entries) = map else { panic!("{map} is no map") };
        let get = |name| map.get(name).cloned().unwrap_or(Value::Nil);
        self.tag("jepsen.history.Op", 7);
        self.value(&get("index"));
        self.value(&get("time"));
        self.cached(get("type").to_edn(), |e| e.value(&get("type")));
        self.value(&get("process"));
        self.cached(get("f").to_edn(), |e| e.value(&get("f")));
        self.value(&get("value"));
        let fields = ["index", "time", "type", "process", "f", "value"];
        let more = entries.iter().filter(|(k, _)| !matches!(k, Value::Keyword(n) if fields.contains(&&**n)));
        self.value(&Value::Map(more.cloned().collect()));
    }
}

/// A block file in the making.
pub(crate) struct Blocks {
    pub(crate) out: Vec<u8>,
    ids: Vec<(i32, i64)>,
}

impl Blocks {
    pub(crate) fn new(version: i32) -> Self {
        let mut out = b"JEPSEN".to_vec();
        out.extend(version.to_be_bytes());
        out.extend(0i64.to_be_bytes());
        Blocks { out, ids: Vec::new() }
    }

    pub(crate) fn append(&mut self, kind: i16, data: &[u8]) -> i64 {
        let at = self.out.len() as i64;
        let mut header = (28 + data.len() as i64).to_be_bytes().to_vec();
        header.extend([0; 4]);
        header.extend(kind.to_be_bytes());
        header.extend([0; 14]);
        let crc = crc32fast::hash(&[data, &header].concat());
        header[8..12].copy_from_slice(&crc.to_be_bytes());
        self.out.extend(header);
        self.out.extend(data);
        at
    }

    /// Appends a block under an id, a new one or one whose block it replaces.
    pub(crate) fn put(&mut self, id: i32, kind: i16, data: &[u8]) {
        let at = self.append(kind, data);
        self.ids.retain(|(i, _)| *i != id);
        self.ids.push((id, at));
    }

    pub(crate) fn index(&mut self, root: i32) {
        let mut data = root.to_be_bytes().to_vec();
        for (id, at) in &self.ids {
            data.extend(id.to_be_bytes());
            data.extend(at.to_be_bytes());
        }
        let at = self.append(1, &data);
        self.out[10..18].copy_from_slice(&at.to_be_bytes());
    }
}

pub(crate) fn block_ref(id: i64) -> Value {
    Value::Tagged("block-ref".into(), Box::new(Value::Int(id)))
}

pub(crate) fn big_vector(count: usize, chunks: &[(usize, i32)]) -> Vec<u8> {
    let mut data = (count as i64).to_be_bytes().to_vec();
    for (first, id) in chunks {
        data.extend((*first as i64).to_be_bytes());
        data.extend(id.to_be_bytes());
    }
    data
}

fn keyed(entries: &[(&str, Value)]) -> Value {
    Value::map(entries.iter().map(|(k, v)| (Value::keyword(k), v.clone())).collect())
}

fn root(history: i64, results: Option<i64>) -> Vec<u8> {
    let start = Value::Tagged("date-time".into(), Box::new(Value::str("20250623T194200.476Z")));
    let mut entries = vec![("name", Value::str("a test")), ("start-time", start)];
    if history != 0 {
        entries.push(("history", block_ref(history)));
    }
    entries.extend(results.map(|id| ("results", block_ref(id))));
    Encoder::of(&keyed(&entries))
}

fn results(file: &mut Blocks, first: i32) {
    let rest = keyed(&[("anomalies", Value::Vector(vec![])), ("valid?", Value::keyword("superseded"))]);
    file.put(first, 3, &[&0i32.to_be_bytes()[..], &Encoder::of(&rest)].concat());
    let head = keyed(&[("valid?", Value::Bool(false))]);
    file.put(first + 1, 3, &[&first.to_be_bytes()[..], &Encoder::of(&head)].concat());
}

/// A run's file of version 1, written as Jepsen writes it: an index after every chunk.
pub(crate) fn version_1(ops: &[Value], chunk: usize, finished: bool) -> Vec<u8> {
    let mut file = Blocks::new(1);
    file.put(1, 2, &[0xF7]);
    file.put(2, 2, &root(1, None));
    file.index(2);
    let mut chunks = Vec::new();
    for (i, part) in ops.chunks(chunk).enumerate() {
        let mut stream = Encoder::default();
        part.iter().for_each(|op| stream.op(op));
        let id = 10 + i as i32;
        file.put(id, 4, &stream.out);
        chunks.push((i * chunk, id));
        file.put(1, 5, &big_vector(i * chunk + part.len(), &chunks));
        file.index(2);
    }
    if finished {
        results(&mut file, 3);
        file.put(2, 2, &root(1, Some(4)));
        file.index(2);
    }
    file.out
}

/// A run's file of version 0: one vector of maps, and an index only once the test was saved.
pub(crate) fn version_0(ops: &[Value]) -> Vec<u8> {
    let mut file = Blocks::new(0);
    file.put(1, 2, &root(0, None));
    file.index(1);
    file.put(2, 2, &Encoder::of(&Value::Vector(ops.to_vec())));
    file.put(3, 2, &root(2, None));
    file.index(3);
    results(&mut file, 4);
    file.put(6, 2, &root(2, Some(5)));
    file.index(6);
    file.out
}
