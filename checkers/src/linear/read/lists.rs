//! Lists, logs and maps.
//!
//! A map's operations are `get`, `put`, `append`, `delete` and `cas`. The key is that of the history; where it has none, it
//! stands in the value: `get k`, `put [k v]` or `{:key k :value v}`. A map without appends is registers, one a key
//! ([`registers`](super::registers) has more to say of them, so they are decided faster); with appends, its entries are texts or
//! lists. An entry that is not there and an empty one are the same.

use std::sync::Arc;

use elench_formats::{History, Value as Edn};
use foldhash::fast::FixedState;
use hashbrown::HashSet;

use super::{Call, NilReads, Reader, Reading, Said, Settings, Unfit, calls, field, no_initial, problems, spelled};
use crate::linear::Operation;
use crate::model::append::{Piece, character};
use crate::model::{AppendList, AppendOp, Log, LogOp, Register, RegisterOp, Value};

/// What an operation of a map is.
#[derive(Clone, Copy, PartialEq)]
enum MapKind {
    Get,
    Put,
    Append,
    Delete,
    Cas,
}

fn map_kind(f: &str) -> Option<MapKind> {
    match &*spelled(f) {
        "get" | "read" | "r" => Some(MapKind::Get),
        "put" | "set" | "write" | "w" | "insert" => Some(MapKind::Put),
        "append" => Some(MapKind::Append),
        "delete" | "del" | "remove" => Some(MapKind::Delete),
        "cas" => Some(MapKind::Cas),
        _ => None,
    }
}

/// Where a map's operations bear their keys.
#[derive(Clone, Copy)]
struct Form {
    /// In the value.
    inside: bool,
    /// And what a get returns has its key beside it.
    pairs: bool,
}

impl Form {
    fn of(history: &History) -> Self {
        let inside = history.key_index().is_empty();
        let told = |call: &Call<'_>| call.ok && map_kind(call.f) == Some(MapKind::Get) && call.output() != Edn::Nil;
        let pair = |call: Call<'_>| split(&call.output()).is_some_and(|(key, _)| key_of(&call.input()) == key);
        let pairs = inside && calls(history).filter(told).all(pair);
        Form { inside, pairs: pairs && !gets_what_was_put(history) }
    }

    /// The key, where it is inside, and the rest of a value.
    fn split(self, value: Edn) -> Result<(Option<Edn>, Edn), String> {
        if !self.inside {
            return Ok((None, value));
        }
        let split = split(&value).map(|(key, rest)| (Some(key), rest));
        split.ok_or_else(|| format!("a map needs [key value], not {}", value.to_edn()))
    }
}

/// Did a get return, whole, what somebody put? Then that is a value, though it looks like a key and a value.
fn gets_what_was_put(history: &History) -> bool {
    let form = Form { inside: true, pairs: false };
    let (mut put, mut got) = (HashSet::<String, FixedState>::default(), Vec::new());
    for call in calls(history) {
        match on_key(&call, form) {
            Ok(OnKey { kind: MapKind::Put, argument, .. }) => {
                put.insert(argument.to_edn());
            }
            Ok(OnKey { kind: MapKind::Cas, argument, .. }) => {
                let new = argument.as_vector().and_then(|change| change.get(1));
                put.extend(new.map(Edn::to_edn));
            }
            Ok(OnKey { kind: MapKind::Get, result, .. }) if call.ok => got.push(result.to_edn()),
            _ => {}
        }
    }
    got.iter().any(|got| put.contains(got))
}

fn key_of(value: &Edn) -> Edn {
    // What has a second part that is something is no [key nil], but a key of two parts.
    let alone = split(value).filter(|(_, rest)| *rest == Edn::Nil).map(|(key, _)| key);
    field(value, &["key", "k"]).cloned().or(alone).unwrap_or_else(|| value.clone())
}

/// `[k v]` and `{:key k :value v}`; what has no value has none.
fn split(value: &Edn) -> Option<(Edn, Edn)> {
    if let Some(key) = field(value, &["key", "k"]) {
        return Some((key.clone(), field(value, &["value", "v"]).cloned().unwrap_or(Edn::Nil)));
    }
    let [key, rest] = value.as_vector()? else { return None };
    Some((key.clone(), rest.clone()))
}

/// A call on one key.
struct OnKey {
    key: Option<Box<str>>,
    kind: MapKind,
    argument: Edn,
    result: Edn,
}

fn on_key(call: &Call<'_>, form: Form) -> Result<OnKey, String> {
    let kind = map_kind(call.f).ok_or_else(|| call.none_of("a map"))?;
    let (input, output) = (call.input(), call.output());
    let text = |key: Option<Edn>| key.map(|key| key.to_edn().into_boxed_str());
    if !matches!(kind, MapKind::Get | MapKind::Delete) {
        let (key, argument) = form.split(if input == Edn::Nil { output.clone() } else { input })?;
        return Ok(OnKey { key: text(key), kind, argument, result: output });
    }
    let key = form.inside.then(|| key_of(&input));
    let result = if form.pairs && kind == MapKind::Get { split(&output).map_or(Edn::Nil, |(_, v)| v) } else { output };
    Ok(OnKey { key: text(key), kind, argument: Edn::Nil, result })
}

/// Reads a history as a map.
pub(super) fn map(history: &History, settings: &Settings) -> Result<Reading, Unfit> {
    let form = Form::of(history);
    if calls(history).any(|call| map_kind(call.f) == Some(MapKind::Append)) {
        let lists = Lists::map(history, &settings.initial, form).map_err(Unfit::Initial)?;
        return problems(history, lists);
    }
    problems(history, Entry::new(history, settings, form))
}

/// A map's entry without appends: a register that holds nil where it is not there, or empty.
struct Entry<'a> {
    values: super::Values<'a>,
    initial: Value,
    form: Form,
    nil_says_nothing: bool,
    silent: u64,
}

impl<'a> Entry<'a> {
    fn new(history: &'a History, settings: &Settings, form: Form) -> Self {
        let mut values = super::Values::numbered(history);
        let initial = entry(&mut values, &settings.initial);
        let unset = |call: &Call<'_>| {
            on_key(call, form).is_ok_and(|on| match on.kind {
                MapKind::Delete => true,
                MapKind::Put => is_absent(&on.argument),
                MapKind::Cas => on.argument.as_vector().is_some_and(|v| v.get(1).is_some_and(is_absent)),
                _ => false,
            })
        };
        let nil_says_nothing = match settings.nil_reads {
            NilReads::Unset => false,
            NilReads::SayNothing => true,
            NilReads::IfPossible => initial != Value::NIL && !calls(history).any(|call| unset(&call)),
        };
        Entry { values, initial, form, nil_says_nothing, silent: 0 }
    }
}

impl Reader for Entry<'_> {
    type Model = Register;

    fn read(&mut self, call: &Call<'_>) -> Result<Option<Said<RegisterOp>>, String> {
        let OnKey { key, kind, argument, result } = on_key(call, self.form)?;
        let op = match kind {
            MapKind::Get if !call.ok => return Ok(None),
            MapKind::Get if is_absent(&result) && self.nil_says_nothing => {
                self.silent += 1;
                return Ok(None);
            }
            MapKind::Get => RegisterOp::Read(Some(entry(&mut self.values, &result))),
            MapKind::Put => RegisterOp::Write(entry(&mut self.values, &argument)),
            MapKind::Delete => RegisterOp::Write(Value::NIL),
            MapKind::Cas if result == Edn::Bool(false) => {
                let (old, _) = cas(&argument)?;
                RegisterOp::CasMismatch(entry(&mut self.values, old))
            }
            MapKind::Cas => {
                let (old, new) = cas(&argument)?;
                RegisterOp::Cas(entry(&mut self.values, old), entry(&mut self.values, new))
            }
            MapKind::Append => return Err(call.none_of("a map of registers")),
        };
        Ok(Some(Said { key, op }))
    }

    fn model(&self, _ops: &[Operation<RegisterOp>]) -> Register {
        let model = Register::new(self.initial);
        match self.values.names() {
            Some(names) => model.with_names(names),
            None => model,
        }
    }

    fn assumptions(&self) -> Vec<String> {
        let silent = self.silent;
        let say =
            format!("{silent} gets of nil say nothing, as no entry is ever absent (--nil-reads unset counts them)");
        if silent == 0 { Vec::new() } else { vec![say] }
    }
}

/// Is there nothing, or something empty, which is the same?
fn is_absent(value: &Edn) -> bool {
    match value {
        Edn::Nil => true,
        Edn::Str(text) => text.is_empty(),
        Edn::Vector(list) => list.is_empty(),
        _ => false,
    }
}

fn entry(values: &mut super::Values<'_>, value: &Edn) -> Value {
    if is_absent(value) { Value::NIL } else { values.edn(value) }
}

fn cas(argument: &Edn) -> Result<(&Edn, &Edn), String> {
    match argument.as_vector() {
        Some([old, new]) => Ok((old, new)),
        _ => Err(format!("a cas needs [old new], not {}", argument.to_edn())),
    }
}

/// Lists that are appended to, alone or as entries of a map.
pub(super) struct Lists<'a> {
    values: super::Values<'a>,
    initial: Piece,
    /// As entries of a map, with their keys.
    form: Option<Form>,
}

impl<'a> Lists<'a> {
    /// At first: a list.
    pub(super) fn append_list(history: &'a History, initial: &Edn) -> Result<Self, String> {
        let mut lists = Lists { values: super::Values::numbered(history), initial: Arc::new([]), form: None };
        lists.initial = match initial {
            Edn::Nil => Arc::new([]),
            Edn::Vector(list) => list.iter().map(|v| lists.values.edn(v)).collect(),
            given => return Err(no_initial(given, "a list")),
        };
        Ok(lists)
    }

    /// At first: a text or a list, of every entry.
    fn map(history: &'a History, initial: &Edn, form: Form) -> Result<Self, String> {
        let values = super::Values::numbered(history);
        let mut lists = Lists { values, initial: Arc::new([]), form: Some(form) };
        lists.initial = lists.whole(initial);
        Ok(lists)
    }

    /// All of an entry: a text's characters, a list's values, nothing; anything else alone.
    fn whole(&mut self, value: &Edn) -> Piece {
        match value {
            Edn::Nil => Arc::new([]),
            Edn::Str(text) => text.chars().map(character).collect(),
            Edn::Vector(list) => list.iter().map(|v| self.values.edn(v)).collect(),
            other => Arc::new([self.values.edn(other)]),
        }
    }

    fn of_map(&mut self, call: &Call<'_>, form: Form) -> Result<Option<Said<AppendOp>>, String> {
        let OnKey { key, kind, argument, result } = on_key(call, form)?;
        let op = match kind {
            MapKind::Get if !call.ok => return Ok(None),
            MapKind::Get => AppendOp::Read(Some(self.whole(&result))),
            MapKind::Put => AppendOp::Write(self.whole(&argument)),
            MapKind::Delete => AppendOp::Write(Arc::new([])),
            MapKind::Append if matches!(argument, Edn::Str(_)) => AppendOp::Append(self.whole(&argument)),
            MapKind::Append => AppendOp::Append(Arc::new([self.values.edn(&argument)])),
            // That it found something else is more than this model can say.
            MapKind::Cas if result == Edn::Bool(false) => return Ok(None),
            MapKind::Cas => {
                let (old, new) = cas(&argument)?;
                AppendOp::Cas(self.whole(old), self.whole(new))
            }
        };
        Ok(Some(Said { key, op }))
    }
}

impl Reader for Lists<'_> {
    type Model = AppendList;

    fn read(&mut self, call: &Call<'_>) -> Result<Option<Said<AppendOp>>, String> {
        if let Some(form) = self.form {
            return self.of_map(call, form);
        }
        match &*spelled(call.f) {
            "append" | "add" | "push" => {
                let (input, output) = (call.input(), call.output());
                let value = if input == Edn::Nil { output } else { input };
                Said::of(AppendOp::Append(Arc::new([self.values.edn(&value)])))
            }
            "read" | "r" | "get" | "read-all" => match call.output() {
                Edn::Nil => Ok(None),
                Edn::Vector(list) => Said::of(AppendOp::Read(Some(list.iter().map(|v| self.values.edn(v)).collect()))),
                other => Err(format!("a read returns a list, not {}", other.to_edn())),
            },
            _ => Err(call.none_of("a list")),
        }
    }

    fn model(&self, ops: &[Operation<AppendOp>]) -> AppendList {
        let model = AppendList::new(&self.initial).of(ops.iter().map(|op| &op.op));
        match self.values.names() {
            Some(names) => model.with_names(names),
            None => model,
        }
    }
}

/// A log: `append v` gives an offset (or `{:offset n}`, `[offset v]`); `read offset` gives its value or, in a list, some from it on;
/// `read {:from a :to b}` exactly those from a to before b; `read` all of them. A bare number that an append says is an offset
/// unless every one is what was appended: then it only repeats that.
pub(super) struct Entries<'a> {
    values: super::Values<'a>,
    initial: Vec<Value>,
    bare_offsets: bool,
    /// Lists that were appended as one entry.
    lists: HashSet<String, FixedState>,
}

impl<'a> Entries<'a> {
    /// At first: a list of entries.
    pub(super) fn new(history: &'a History, initial: &Edn) -> Result<Self, String> {
        let mut values = super::Values::numbered(history);
        let initial = match initial {
            Edn::Nil => Vec::new(),
            Edn::Vector(list) => list.iter().map(|v| values.edn(v)).collect(),
            given => return Err(no_initial(given, "a list of entries")),
        };
        let tells = |call: Call<'_>| {
            let output = call.output();
            is_append(call.f) && output.as_int().is_some() && output != call.input()
        };
        let list = |call: Call<'_>| {
            let input = call.input();
            let value = field(&input, &["value", "v"]).unwrap_or(&input);
            value.as_vector().filter(|_| is_append(call.f)).map(|_| value.to_edn())
        };
        let lists = calls(history).filter_map(list).collect();
        Ok(Entries { values, initial, bare_offsets: calls(history).any(tells), lists })
    }

    fn append(&mut self, input: &Edn, output: &Edn) -> Result<LogOp, String> {
        let value = field(input, &["value", "v"]).unwrap_or(input);
        let told = match output {
            Edn::Nil => None,
            told if told == input && !(self.bare_offsets && told.as_int().is_some()) => None,
            Edn::Vector(pair) if pair.len() == 2 && pair[1] == *value => Some(&pair[0]),
            told if told.get("offset").is_some() => told.get("offset"),
            told => Some(told),
        };
        let offset = match told {
            None | Some(Edn::Nil) => None,
            Some(told) => {
                Some(offset(told).ok_or_else(|| format!("an append gives an offset, not {}", output.to_edn()))?)
            }
        };
        Ok(LogOp::Append(self.values.edn(value), offset))
    }

    fn entry_values(&mut self, list: &[Edn], from: Option<u64>) -> Result<Piece, String> {
        let mut at = from;
        let value = |entry: &Edn| {
            let here = at;
            at = at.and_then(|at| at.checked_add(1));
            // Entries may come with their offsets, which then are the next ones, unless such a pair was appended as it is.
            match (entry.as_vector().filter(|_| !self.lists.contains(&entry.to_edn())), here) {
                (Some([told, value]), Some(here)) if offset(told) == Some(here) => Ok(self.values.edn(value)),
                (Some([told, _]), Some(here)) if offset(told).is_some() => {
                    Err(format!("an entry at {} stands where that at {here} should", told.to_edn()))
                }
                _ => Ok(self.values.edn(entry)),
            }
        };
        list.iter().map(value).collect()
    }
}

fn is_append(f: &str) -> bool {
    matches!(&*spelled(f), "append" | "write" | "send" | "add")
}

fn offset(value: &Edn) -> Option<u64> {
    value.as_int().and_then(|n| u64::try_from(n).ok())
}

impl Reader for Entries<'_> {
    type Model = Log;

    fn read(&mut self, call: &Call<'_>) -> Result<Option<Said<LogOp>>, String> {
        let (input, output) = (call.input(), call.output());
        match &*spelled(call.f) {
            f if is_append(f) => Said::of(self.append(&input, &output)?),
            "read" | "poll" | "get" | "read-range" | "read-all" if call.ok => {
                let from = field(&input, &["from", "offset"]).and_then(offset);
                let to = field(&input, &["to", "until"]).and_then(offset);
                match (&input, &output) {
                    (Edn::Nil, Edn::Vector(list)) => Said::of(LogOp::Range(0, None, self.entry_values(list, Some(0))?)),
                    (Edn::Nil, _) => Ok(None),
                    (Edn::Int(_), Edn::Vector(list)) if !self.lists.contains(&output.to_edn()) => {
                        let from = offset(&input).ok_or("an offset is not negative")?;
                        Said::of(LogOp::Batch(from, self.entry_values(list, Some(from))?))
                    }
                    (Edn::Int(_), value) => {
                        let at = offset(&input).ok_or("an offset is not negative")?;
                        let value = if *value == Edn::Nil { None } else { Some(self.values.edn(value)) };
                        Said::of(LogOp::Read(at, value))
                    }
                    (Edn::Map(_), Edn::Vector(list)) => {
                        let from = from.ok_or_else(|| format!("{} names no offset to read :from", input.to_edn()))?;
                        let values = self.entry_values(list, Some(from))?;
                        Said::of(if to.is_some() { LogOp::Range(from, to, values) } else { LogOp::Batch(from, values) })
                    }
                    (Edn::Map(_), value) => {
                        let at = from.ok_or_else(|| format!("{} names no :offset to read at", input.to_edn()))?;
                        let value = if *value == Edn::Nil { None } else { Some(self.values.edn(value)) };
                        Said::of(LogOp::Read(at, value))
                    }
                    _ => Err(format!("a read is at an offset or {{:from a :to b}}, not {}", input.to_edn())),
                }
            }
            "read" | "poll" | "get" | "read-range" | "read-all" => Ok(None),
            _ => Err(call.none_of("a log")),
        }
    }

    fn model(&self, _ops: &[Operation<LogOp>]) -> Log {
        let model = Log::new(&self.initial);
        match self.values.names() {
            Some(names) => model.with_names(names),
            None => model,
        }
    }
}
