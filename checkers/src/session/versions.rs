//! Session guarantees where versions bear numbers: of each session and key, the highest numbers read and written are compared with each
//! next one. O(n), two numbers for each session and key.
//!
//! A version is the system's own word for which of two values is the newer, so each violation is one of one guarantee. A read of a log returns
//! what comes next and not what is newest, so that of offsets nothing is said of reading one's own writes. The
//! incremental form is the batch form, operation by operation.

use elench_formats::History;
use elench_formats::history::OpRef;

use super::Guarantee;
use super::graph::Map;
use super::read::{Access, Accesses, Kind, Order, Reader, shown};
use crate::findings::{Example, Findings, Incremental};
use crate::outcome::{OpId, Status, Why};

/// The newest version that a session read or wrote of a key, and by which operation.
#[derive(Clone, Copy, Debug)]
struct Newest {
    version: i64,
    op: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    read: Option<Newest>,
    written: Option<Newest>,
}

/// What sessions saw so far, where versions bear numbers.
#[derive(Debug)]
struct Ordered {
    order: Order,
    seen: Map<(u32, u32), Seen>,
    findings: Findings,
}

impl Ordered {
    fn new(order: Order, examples: usize) -> Ordered {
        Ordered { order, seen: Map::default(), findings: Findings::new(examples) }
    }

    fn access(&mut self, access: &Access, version: Option<i64>, key: impl Fn() -> Option<String>) {
        let Some(version) = version.filter(|_| access.status == Status::Ok) else { return };
        let seen = self.seen.entry((access.session, access.key)).or_default();
        let (read, written) = (seen.read, seen.written);
        let newest = Newest { version, op: access.op };
        let newer = |old: Option<Newest>| if old.is_none_or(|old| version > old.version) { Some(newest) } else { old };
        use Guarantee::{MonotonicReads, MonotonicWrites, ReadYourWrites, WritesFollowReads};
        let (did, by_read, by_written) = match access.kind {
            Kind::Read => {
                seen.read = newer(read);
                ("read", MonotonicReads, Some(ReadYourWrites).filter(|_| self.order == Order::Versions))
            }
            Kind::Write => {
                seen.written = newer(written);
                ("wrote", WritesFollowReads, Some(MonotonicWrites))
            }
        };
        for (old, by, before) in [(read, Some(by_read), "read"), (written, by_written, "wrote")] {
            let (Some(old), Some(by)) = (old, by) else { continue };
            let example = || {
                let text = format!(
                    "op {} {did} version {version} after op {} of the same session {before} version {}",
                    access.op, old.op, old.version
                );
                Example { key: key(), ops: vec![OpId(old.op), OpId(access.op)], text }
            };
            if version < old.version {
                self.findings.violation(by.name(), example);
            } else if version == old.version && access.kind == Kind::Write {
                // Two versions with one number: either it is no order, or what gives the numbers is broken.
                self.findings.note("version-reused", example);
                self.findings.undecided(Why::Other(format!(
                    "oracle-too-weak: op {} wrote version {version}, which its session knew before: the numbers are no order",
                    access.op
                )));
            }
        }
    }
}

/// The incremental form, for histories whose operations bear versions or offsets.
pub fn incremental(order: Order, examples: usize) -> Box<dyn Incremental> {
    Box::new(Online { reader: Reader::new(order), ordered: Ordered::new(order, examples) })
}

struct Online {
    reader: Reader,
    ordered: Ordered,
}

impl Incremental for Online {
    fn invoked(&mut self, _op: &OpRef<'_>) {}

    fn completed(&mut self, op: &OpRef<'_>) {
        if let Err(why) = self.reader.op(op) {
            self.ordered.findings.undecided(Why::Other(why));
        }
        for (access, version) in self.reader.list.drain(..).zip(self.reader.versions.drain(..)) {
            self.ordered.access(&access, version, || Some(shown(op, op.key())).filter(|key| key != "nil"));
        }
    }

    fn violated(&self) -> Option<&'static str> {
        self.ordered.findings.violations().next().map(|(kind, _)| kind)
    }

    fn finish(self: Box<Self>) -> Findings {
        let mut findings = self.ordered.findings;
        self.reader.tally.tell(&mut findings.coverage);
        if self.ordered.seen.is_empty() {
            findings.undecided(no_versions());
        }
        findings.coverage.keys = 1;
        findings.coverage.keys_decided = u64::from(findings.why().is_none());
        findings
    }
}

/// Nothing bears a number.
pub(super) fn no_versions() -> Why {
    Why::Other("oracle-too-weak: no acknowledged operation bears a version or offset".into())
}

/// All accesses of a history.
pub(super) fn check(history: &History, all: &Accesses, examples: usize) -> Findings {
    let mut ordered = Ordered::new(all.order, examples);
    for (access, version) in all.list.iter().zip(&all.versions) {
        ordered.access(access, *version, || all.show_key(history, access.key));
    }
    ordered.findings.coverage.keys = all.keys.len().max(1) as u64;
    ordered.findings.coverage.keys_decided = ordered.findings.coverage.keys;
    ordered.findings
}
