//! Versioned registers, in the form of Jepsen's etcd tests: values are `[version value]`, and `[nil value]` where the version is
//! not known yet; a cas bears `[nil [old new]]`.

use elench_formats::{History, Value as Edn};

use super::{Call, Reader, Said, no_initial, spelled};
use crate::linear::Operation;
use crate::model::{Value, VersionedOp, VersionedRegister};

pub(super) struct Versioned<'a> {
    values: super::Values<'a>,
    initial: (u64, Value),
}

/// A version, or that none is known, and the rest.
fn pair(value: &Edn) -> Option<(Option<u64>, &Edn)> {
    if let Some(rest) = value.get("value") {
        return Some((version(value.get("version").unwrap_or(&Edn::Nil))?, rest));
    }
    let [first, rest] = value.as_vector()? else { return None };
    Some((version(first)?, rest))
}

fn version(value: &Edn) -> Option<Option<u64>> {
    match value {
        Edn::Nil => Some(None),
        value => value.as_int().and_then(|n| u64::try_from(n).ok()).map(Some),
    }
}

impl<'a> Versioned<'a> {
    /// At first: `[version value]`, or nil for version 0 and no value.
    pub(super) fn new(history: &'a History, initial: &Edn) -> Result<Self, String> {
        let mut values = super::Values::numbered(history);
        let wanted = || no_initial(initial, "[version value]");
        let initial = match initial {
            Edn::Nil => (0, Value::NIL),
            given => {
                let (version, value) = pair(given).ok_or_else(wanted)?;
                (version.ok_or_else(wanted)?, values.edn(value))
            }
        };
        Ok(Versioned { values, initial })
    }
}

impl Reader for Versioned<'_> {
    type Model = VersionedRegister;

    fn read(&mut self, call: &Call<'_>) -> Result<Option<Said<VersionedOp>>, String> {
        let (input, output) = (call.input(), call.output());
        let shown = if output == Edn::Nil { input.to_edn() } else { output.to_edn() };
        let bad = |wanted: &str| format!("{wanted}, not {shown}");
        let answered = match &output {
            Edn::Nil => None,
            output => Some(pair(output)),
        };
        match &*spelled(call.f) {
            "read" | "r" | "get" => match answered {
                None => Ok(None),
                Some(None) => Err(bad("a read returns [version value]")),
                Some(Some((None, Edn::Nil))) => Ok(None),
                // A value that came without a version is a value all the same; a nil one beside a version says that there was none.
                Some(Some((version, value))) => Said::of(VersionedOp::Read(version, Some(self.values.edn(value)))),
            },
            "write" | "w" | "put" => {
                let (_, value) = pair(&input).ok_or_else(|| bad("a write needs [nil value]"))?;
                let version = match answered {
                    Some(Some((version, told))) if told == value => version,
                    None => None,
                    _ => return Err(bad("a write returns [version value] with the value that it wrote")),
                };
                Said::of(VersionedOp::Write(version, self.values.edn(value)))
            }
            "cas" => {
                let (_, change) = pair(&input).ok_or_else(|| bad("a cas needs [nil [old new]]"))?;
                let Some([old, new]) = change.as_vector() else { return Err(bad("a cas needs [nil [old new]]")) };
                let version = match answered {
                    Some(Some((version, told))) if told == change => version,
                    None => None,
                    _ => return Err(bad("a cas returns [version [old new]] with what it was to do")),
                };
                Said::of(VersionedOp::Cas(version, self.values.edn(old), self.values.edn(new)))
            }
            "cas-version" => {
                let of = input.as_vector().filter(|parts| parts.len() == 2);
                let of = of.and_then(|parts| Some((version(&parts[0])??, &parts[1])));
                let (old, new) = of.ok_or_else(|| bad("a cas-version needs [version value]"))?;
                Said::of(VersionedOp::CasVersion(old, self.values.edn(new)))
            }
            _ => Err(call.none_of("a versioned register")),
        }
    }

    fn model(&self, _ops: &[Operation<VersionedOp>]) -> VersionedRegister {
        let model = VersionedRegister::new(self.initial.0, self.initial.1);
        match self.values.names() {
            Some(names) => model.with_names(names),
            None => model,
        }
    }
}
