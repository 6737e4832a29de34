//! Is everything that was acknowledged still there at the end?
//!
//! The end is what dump files hold (of several replicas, together), or else what the reads show. An acknowledged element is *lost*
//! when no dump holds it; by reads, when one misses it that began after the acknowledgement and after every read that showed it had
//! ended. One that was missed and shows again was merely *late*. This accuses less than `set-full`, which goes by the order of
//! invocations alone, so that of two reads at once the one invoked later decides.
//!
//! What elements are depends on the history: values of adds, inserts, appends and writes, per key where operations bear keys;
//! appends within transactions, per key of theirs; messages of queues, which have to come out ([`super::queue`]). Where a dump says
//! that one value lies at each key, an acknowledged write may have been overwritten: it is lost when what lies there is older than
//! it, that is, when every attempt to write what lies there had ended before the lost write was invoked.
//!
//! The question is about the end, so that there is no incremental form; `set` and `set-full` have one.
//!
//! One pass; a read or dump costs what it holds. Memory: 36 bytes an element.

use elench_formats::columns::{Scalar, ValueRef};
use elench_formats::history::{OpRef, Status as Ended};
use elench_formats::{History, Value};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use roaring::RoaringBitmap;

use super::dump::Dump;
use super::elements::Elements;
use super::micro::refuse_micro_operations;
use super::queue::{QueueOptions, total_queue};
use super::reads::{End, ReadAt, Seen, View, elements_of, in_event_order, of_tree, shows};
use super::set::{Attempts, NONE, refuse_without_order, tell_foreign};
use super::words::{Role, Roles};
use crate::findings::{Example, Fact, Findings, ended};
use crate::outcome::{OpId, Why};

/// Is everything acknowledged there at the end? See the module. `dumps` are the final states of one system, whole or by replica.
///
/// Violations: `lost`, `aborted-effect`, `unexpected`. Noted: `recovered`, `late`, `unread`, `duplicated`, `not-everywhere`.
pub fn no_lost_ack(history: &History, dumps: &[Dump], examples: usize) -> Findings {
    if let Some(refused) =
        refuse_without_order(history, examples).or_else(|| refuse_micro_operations(history, examples))
    {
        return refused;
    }
    let mut roles = Roles::default();
    let takes = |op: OpRef<'_>, roles: &mut Roles| matches!(roles.of(&op), Role::Take | Role::Drain);
    if dumps.is_empty() && history.clients().any(|op| takes(op, &mut roles)) {
        return total_queue(history, &QueueOptions::default(), examples);
    }
    let mut books = Books { history, by_key: HashMap::default(), order: Vec::new(), findings: Findings::new(examples) };
    if let Err(why) = books.fill(dumps) {
        let mut findings = books.findings;
        findings.undecided(Why::Other(why));
        return findings;
    }
    let by_key = books.order.iter().any(|book| book.key != Scalar::Nil);
    let placed = by_key && dumps.iter().any(|dump| is_of_places(&dump.content));
    books.tell(dumps.len(), placed)
}

/// What is known of one key.
struct Book {
    key: Scalar,
    elements: Elements,
    attempts: Attempts,
    view: View,
    twice: Vec<(u32, Option<ReadAt>)>,
    known_twice: RoaringBitmap,
    dumps: Vec<RoaringBitmap>,
    writes: Vec<Write>,
    /// What one dump says lies at the key: `None` there where nothing does.
    lies: Vec<Option<u32>>,
}

/// A write that did not fail.
struct Write {
    id: u32,
    invoke: u64,
    /// Of an acknowledged one.
    complete: Option<u64>,
}

impl Book {
    fn new(key: Scalar) -> Book {
        Book {
            key,
            elements: Elements::new(false),
            attempts: Attempts::default(),
            view: View::by_completion(),
            twice: Vec::new(),
            known_twice: RoaringBitmap::new(),
            dumps: Vec::new(),
            writes: Vec::new(),
            lies: Vec::new(),
        }
    }

    fn add(&mut self, op: &OpRef<'_>, value: ValueRef<'_>) {
        self.elements.widen();
        if let Some(id) = self.elements.value(op, value) {
            self.attempts.add(id, op);
        }
    }

    /// Each once, with the first read that held it twice.
    fn doubled(&mut self, twice: Vec<u32>, read: Option<ReadAt>) {
        let known = &mut self.known_twice;
        self.twice.extend(twice.into_iter().filter(|&id| known.insert(id)).map(|id| (id, read)));
    }

    fn shown(&mut self, read: ReadAt, Seen { set, twice }: Seen) {
        self.doubled(twice, Some(read));
        self.view.shows(read, set);
    }

    fn dumped(&mut self, replica: usize, Seen { set, twice }: Seen) {
        self.doubled(twice, None);
        self.dumps.resize(self.dumps.len().max(replica + 1), RoaringBitmap::new());
        self.dumps[replica] |= set;
    }
}

struct Books<'a> {
    history: &'a History,
    by_key: HashMap<Scalar, usize, FixedState>,
    order: Vec<Book>,
    findings: Findings,
}

impl<'a> Books<'a> {
    fn book(&mut self, key: Scalar) -> &mut Book {
        let books = &mut self.order;
        let at = *self.by_key.entry(key).or_insert_with(|| {
            books.push(Book::new(key));
            books.len() - 1
        });
        &mut self.order[at]
    }

    /// Takes in the operations, then the dumps.
    fn fill(&mut self, dumps: &[Dump]) -> Result<(), String> {
        let mut roles = Roles::default();
        let (mut reads, mut scalar_reads, mut whole_reads) = (Vec::new(), 0u64, 0u64);
        let keyed = !self.history.key_index().is_empty();
        let placed = dumps.iter().any(|dump| is_of_places(&dump.content));
        for op in self.history.clients() {
            if op.txn().is_some() {
                self.transaction(&op, placed, &mut reads);
                continue;
            }
            let role = roles.of(&op);
            match role {
                Role::Add => {
                    self.findings.coverage.count(op.f().unwrap_or("add"), ended(&op), 1);
                    self.book(op.key()).add(&op, op.input());
                    if placed && keyed {
                        self.write(&op, op.key(), op.input());
                    }
                }
                Role::Remove | Role::Take if op.status() != Ended::Fail => {
                    let book = self.book(op.key());
                    let value = if role == Role::Remove { op.input() } else { op.output() };
                    if let Some(id) = book.elements.value(&op, value) {
                        book.attempts.remove(id);
                    }
                }
                Role::Drain if op.status() != Ended::Fail => {
                    let book = self.book(op.key());
                    if let Some(Seen { set, .. }) = elements_of(&mut book.elements, &op, op.output()) {
                        set.iter().for_each(|id| book.attempts.remove(id));
                    }
                }
                Role::Read if shows(&op) && keyed && op.key() == Scalar::Nil => whole_reads += 1,
                Role::Read if shows(&op) => reads.push(op),
                Role::Read if op.status() == Ended::Ok => scalar_reads += 1,
                _ => {}
            }
        }
        let nothing_shown = reads.is_empty();
        in_event_order(reads, |end| {
            if let End::Ends(op) = end {
                self.read(&op);
            }
        });
        for (replica, dump) in dumps.iter().enumerate() {
            self.dump(replica, dump, keyed)?;
        }
        if dumps.is_empty() && nothing_shown && whole_reads > 0 {
            return Err(
                "operations bear keys, and reads without a key return many: give the last one as a dump (--final FILE)"
                    .into(),
            );
        }
        if dumps.is_empty() && nothing_shown {
            return Err(match scalar_reads {
                0 => "nothing was read after the writes, and there is no dump (--final FILE)".into(),
                _ => "each read returns one value: whether the others were lost or overwritten is not to be seen; give a dump of \
                      the end (--final FILE), or ask `linear`"
                    .into(),
            });
        }
        Ok(())
    }

    fn transaction(&mut self, op: &OpRef<'a>, placed: bool, reads: &mut Vec<OpRef<'a>>) {
        let Some(txn) = op.txn() else { return };
        let (mut appends, mut shows) = (false, false);
        for mop in txn.iter() {
            match op.mop_name(mop.f) {
                "append" | "w" | "write" => {
                    appends = true;
                    self.book(mop.key).add(op, mop.value);
                    if placed {
                        self.write(op, mop.key, mop.value);
                    }
                }
                _ => shows |= mop.known && op.status() == Ended::Ok && mop.value.elements().is_some(),
            }
        }
        if appends || shows {
            self.findings.coverage.count(op.f().unwrap_or("txn"), ended(op), 1);
        }
        if shows {
            reads.push(*op);
        }
    }

    fn read(&mut self, op: &OpRef<'_>) {
        let at = ReadAt::of(op);
        let Some(txn) = op.txn() else {
            self.findings.coverage.count(op.f().unwrap_or("read"), ended(op), 1);
            let book = self.book(op.key());
            if let Some(seen) = elements_of(&mut book.elements, op, op.output()) {
                book.shown(at, seen);
            }
            return;
        };
        // What a transaction reads of a key before its own appends may miss them; what it read last counts.
        let mut last: Vec<(Scalar, ValueRef<'_>)> = Vec::new();
        for mop in txn.iter().filter(|mop| mop.known && mop.value.elements().is_some()) {
            last.retain(|(key, _)| *key != mop.key);
            last.push((mop.key, mop.value));
        }
        for (key, value) in last {
            let book = self.book(key);
            if let Some(seen) = elements_of(&mut book.elements, op, value) {
                book.shown(at, seen);
            }
        }
    }

    /// A write of one value to its key.
    fn write(&mut self, op: &OpRef<'_>, key: Scalar, value: ValueRef<'_>) {
        if op.status() == Ended::Fail {
            return;
        }
        let complete = op.complete_index().filter(|_| op.status() == Ended::Ok);
        let book = self.book(key);
        if let Some(id) = book.elements.value(op, value) {
            book.writes.push(Write { id, invoke: op.index(), complete });
        }
    }

    fn dump(&mut self, replica: usize, dump: &Dump, keyed: bool) -> Result<(), String> {
        let history = self.history;
        // JSON and CSV have no keywords: a string that is nowhere in the history may be one.
        let texts = |text: &str| {
            let texts = history.texts();
            let keyword = |text: &str| texts.find(&format!(":{}", text.strip_prefix('"')?.strip_suffix('"')?));
            texts.find(text).or_else(|| keyword(text))
        };
        let by_key = keyed || self.order.iter().any(|book| book.key != Scalar::Nil);
        if !by_key {
            let book = self.book(Scalar::Nil);
            let seen = of_tree(&mut book.elements, &dump.content, &texts)
                .ok_or_else(|| format!("{}: a dump is a collection", dump.name))?;
            book.dumped(replica, seen);
            return Ok(());
        }
        let Value::Map(entries) = &dump.content else {
            return Err(format!("{}: operations bear keys, so a dump is a map of keys to what lies there", dump.name));
        };
        for book in &mut self.order {
            book.dumps.resize(book.dumps.len().max(replica + 1), RoaringBitmap::new());
            book.lies.resize(replica + 1, None);
        }
        for (key, place) in entries {
            let Some(key) = scalar_of(key, &texts) else { continue };
            let book = self.book(key);
            book.lies.resize(replica + 1, None);
            let seen = match place {
                Value::Vector(_) | Value::Set(_) => of_tree(&mut book.elements, place, &texts).unwrap_or_default(),
                one => {
                    let id = book.elements.tree(one, &texts);
                    book.lies[replica] = id;
                    Seen { set: id.into_iter().collect(), twice: Vec::new() }
                }
            };
            book.dumped(replica, seen);
        }
        Ok(())
    }

    fn tell(mut self, replicas: usize, placed: bool) -> Findings {
        let mut findings = std::mem::replace(&mut self.findings, Findings::new(0));
        let mut judged = Judged::default();
        for book in &self.order {
            let key = (book.key != Scalar::Nil).then(|| {
                let mut text = String::new();
                self.history.write_scalar(book.key, &mut text);
                text
            });
            let mut part = Findings::new(findings.examples());
            let told = Teller { book, history: self.history, replicas, placed, findings: &mut part };
            told.tell(&mut judged);
            part.name_key(key);
            findings.merge(part);
        }
        findings.coverage.keys = self.order.len().max(1) as u64;
        findings.coverage.keys_decided = findings.coverage.keys;
        for (what, n) in [("acknowledged", judged.acked), ("found", judged.found), ("looked for", judged.asked)] {
            findings.fact(what, Fact::Count(n));
        }
        if judged.asked == 0 && judged.found == 0 {
            findings.undecided(Why::NoEvidence);
        }
        findings
    }
}

/// Counts over all keys.
#[derive(Default)]
struct Judged {
    acked: u64,
    /// Acknowledged elements that something looked for.
    asked: u64,
    found: u64,
}

fn is_of_places(content: &Value) -> bool {
    let Value::Map(entries) = content else { return false };
    entries.iter().any(|(_, place)| !matches!(place, Value::Vector(_) | Value::Set(_)))
}

fn scalar_of(value: &Value, texts: &dyn Fn(&str) -> Option<u32>) -> Option<Scalar> {
    match value {
        Value::Int(n) => Some(Scalar::Int(*n)),
        other => {
            // The keys of JSON are strings, whatever they say.
            let number = || other.as_name()?.parse().ok().map(Scalar::Int);
            texts(&other.to_edn()).map(Scalar::Text).or_else(number)
        }
    }
}

/// Tells of one key.
struct Teller<'a, 'f> {
    book: &'a Book,
    history: &'a History,
    replicas: usize,
    /// Does a dump say what one value lies at each key?
    placed: bool,
    findings: &'f mut Findings,
}

impl Teller<'_, '_> {
    fn tell(mut self, judged: &mut Judged) {
        let book = self.book;
        let view = &book.view;
        let foreign = view.ever().iter().filter_map(|id| Some((id, view.first_sight(id)?)));
        let name = |id: u32| book.elements.name(id, Some(self.history));
        tell_foreign(foreign, &book.attempts, &name, self.findings);
        let dumped = book.dumps.iter().fold(RoaringBitmap::new(), |all, dump| all | dump);
        let one_at_each = self.placed;
        self.tell_foreign_of_dumps(&dumped, one_at_each);
        for (id, read) in &book.twice {
            let ops = read.iter().map(|read| OpId(read.invoke));
            self.findings.note("duplicated", || Example::new(ops, format!("{} is there more than once", name(*id))));
        }
        if self.replicas > 0 && one_at_each {
            return self.tell_places(judged);
        }
        if self.replicas > 0 {
            return self.tell_dumped(&dumped, judged);
        }
        self.tell_shown(judged);
    }

    fn name(&self, id: u32) -> String {
        self.book.elements.name(id, Some(self.history))
    }

    /// Where one value lies at each key, it may be the initial one, which nobody wrote.
    fn tell_foreign_of_dumps(&mut self, dumped: &RoaringBitmap, one_at_each: bool) {
        let attempts = &self.book.attempts;
        for id in dumped.iter().filter(|&id| attempts.of(id).first == NONE) {
            let name = self.name(id);
            match attempts.failed(id) {
                Some(op) => self.findings.violation("aborted-effect", || {
                    Example::new([OpId(op)], format!("op {op}, which wrote {name}, failed, and it is there at the end"))
                }),
                None if one_at_each => {}
                None => self.findings.violation("unexpected", || {
                    Example::new([], format!("{name} is there at the end, and nobody wrote it"))
                }),
            }
        }
    }

    fn recovered(&mut self, id: u32) {
        let (op, name) = (self.book.attempts.op(id), self.name(id));
        self.findings.note("recovered", || {
            Example::new([OpId(op)], format!("op {op} wrote {name} and never heard; it is there"))
        });
    }

    fn tell_dumped(&mut self, dumped: &RoaringBitmap, judged: &mut Judged) {
        let book = self.book;
        for (id, attempt) in book.attempts.live() {
            let (acked, present) = (attempt.ack != NONE, dumped.contains(id));
            judged.acked += u64::from(acked);
            judged.asked += u64::from(acked);
            judged.found += u64::from(present);
            if present && !acked {
                self.recovered(id);
            }
            let everywhere = book.dumps.len() == self.replicas && book.dumps.iter().all(|dump| dump.contains(id));
            if acked && present && !everywhere && !book.attempts.is_removed(id) {
                let (op, name) = (book.attempts.op(id), self.name(id));
                let n = book.dumps.iter().filter(|dump| dump.contains(id)).count();
                let text = format!("{name} of op {op} is in {n} of {} dumps", self.replicas);
                self.findings.note("not-everywhere", || Example::new([OpId(op)], text));
            }
            if acked && !present && !book.attempts.is_removed(id) {
                let (op, name, sight) = (book.attempts.op(id), self.name(id), book.view.last_sight(id));
                self.findings.violation("lost", || {
                    let seen = sight.map_or(String::new(), |s| format!(", op {} showed it", s.invoke));
                    let ops = [OpId(op)].into_iter().chain(sight.map(|s| OpId(s.invoke)));
                    Example::new(
                        ops,
                        format!("op {op} wrote {name} and was acknowledged{seen}, and it is not there at the end"),
                    )
                });
            }
        }
    }

    fn tell_shown(&mut self, judged: &mut Judged) {
        let (book, view) = (self.book, &self.book.view);
        let latest = view.latest_from();
        for (id, attempt) in book.attempts.live() {
            if attempt.ack == NONE {
                if view.shown_at_last(id) {
                    self.recovered(id);
                }
                continue;
            }
            judged.acked += 1;
            if book.attempts.is_removed(id) {
                continue;
            }
            let (op, sight) = (book.attempts.op(id), view.last_sight(id));
            judged.found += u64::from(sight.is_some());
            let last_miss = view.last_miss(id).filter(|miss| miss.invoke > attempt.ack);
            if let Some(miss) = view.gone(id, attempt.ack, &latest) {
                judged.asked += 1;
                let name = self.name(id);
                self.findings.violation("lost", || {
                    let seen = sight.map_or(String::new(), |s| format!(", op {} showed it", s.invoke));
                    let ops = [OpId(op)].into_iter().chain(sight.map(|s| OpId(s.invoke))).chain([OpId(miss.invoke)]);
                    let missed = format!("op {} began later and misses it, as does all that follows", miss.invoke);
                    Example::new(ops, format!("op {op} wrote {name} and was acknowledged{seen}, {missed}"))
                });
            } else if let Some(miss) = last_miss {
                judged.asked += 1;
                let name = self.name(id);
                self.findings.note("late", || {
                    let text = format!(
                        "op {op} wrote {name} and was acknowledged, op {} misses it, and a read shows it",
                        miss.invoke
                    );
                    Example::new([OpId(op), OpId(miss.invoke)], text)
                });
            } else if sight.is_none() {
                let name = self.name(id);
                self.findings.note("unread", || {
                    Example::new(
                        [OpId(op)],
                        format!("op {op} wrote {name}, and nothing was read after the acknowledgement"),
                    )
                });
            }
        }
    }

    /// Of a key at which one value lies at most: was the last write to it that was acknowledged lost?
    fn tell_places(&mut self, judged: &mut Judged) {
        let book = self.book;
        let acked = book.writes.iter().filter(|w| w.complete.is_some());
        judged.acked += acked.clone().count() as u64;
        let Some(last) = acked.max_by_key(|w| w.invoke).filter(|w| !book.attempts.is_removed(w.id)) else { return };
        judged.asked += 1;
        // Of several replicas the one counts that has the latest.
        let lying: Vec<u32> = book.lies.iter().flatten().copied().collect();
        let as_late = |w: &Write| lying.contains(&w.id) && w.complete.is_none_or(|complete| complete > last.invoke);
        if book.writes.iter().any(as_late) {
            judged.found += 1;
            return;
        }
        let (op, name) = (last.invoke, self.name(last.id));
        let lies: Vec<String> = lying.iter().map(|&id| self.name(id)).collect();
        let lies = if lies.is_empty() { "nothing".into() } else { lies.join(", ") };
        let older = lying.iter().filter_map(|&id| book.writes.iter().find(|w| w.id == id));
        let ops: Vec<OpId> = older.map(|w| OpId(w.invoke)).chain([OpId(op)]).collect();
        self.findings.violation("lost", || {
            let text = format!("op {op} wrote {name} and was acknowledged; at the end lies {lies} there, and no write of that is as late");
            Example::new(ops, text)
        });
    }
}
