//! What does the name of an operation's function say? Asked once a name, not once an operation: names of a history have small
//! codes, and answers and counts are kept by code.

use elench_formats::history::OpRef;

use crate::findings::ended;
use crate::outcome::{Coverage, Status};

/// What names mean, each looked up once. O(1) an operation.
#[derive(Clone, Debug)]
pub(crate) struct ByName<R> {
    means: fn(&str) -> R,
    nameless: R,
    known: Vec<Option<R>>,
}

impl<R: Copy> ByName<R> {
    /// What a name means, and what an operation without a name does.
    pub(crate) fn new(means: fn(&str) -> R, nameless: R) -> ByName<R> {
        ByName { means, nameless, known: Vec::new() }
    }

    /// What the name of this operation means.
    pub(crate) fn of(&mut self, op: &OpRef<'_>) -> R {
        let Some(code) = op.f_code().map(usize::from) else { return self.nameless };
        match self.known.get(code) {
            Some(Some(known)) => *known,
            _ => self.learn(code, op),
        }
    }

    #[cold]
    fn learn(&mut self, code: usize, op: &OpRef<'_>) -> R {
        if code >= self.known.len() {
            self.known.resize(code + 1, None);
        }
        *self.known[code].insert(op.f().map_or(self.nameless, self.means))
    }
}

/// Is a name one of these? `add_node` is `add-node`.
pub(crate) fn is_any(name: &str, names: &[&str]) -> bool {
    names.contains(&name) || (name.contains('_') && names.contains(&name.replace('_', "-").as_str()))
}

/// Counts operations by name and outcome, without a text an operation. O(1) an operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    by_code: Vec<Option<(String, [u64; 3])>>,
    nameless: [u64; 3],
}

impl Tally {
    /// One more.
    pub(crate) fn count(&mut self, op: &OpRef<'_>) {
        match op.f_code() {
            None => self.nameless[ended(op) as usize] += 1,
            Some(code) => self.count_as(code, op),
        }
    }

    /// One more, as if its name were that of this code.
    pub(crate) fn count_as(&mut self, code: u16, op: &OpRef<'_>) {
        let at = usize::from(code);
        if at >= self.by_code.len() {
            self.by_code.resize(at + 1, None);
        }
        let (_, counts) = self.by_code[at].get_or_insert_with(|| (op.mop_name(code).to_string(), [0; 3]));
        counts[ended(op) as usize] += 1;
    }

    /// Tells it.
    pub(crate) fn tell(&self, coverage: &mut Coverage) {
        let named = self.by_code.iter().flatten().map(|(name, counts)| (name.as_str(), counts));
        for (name, counts) in named.chain([("nil", &self.nameless)]) {
            for status in [Status::Ok, Status::Fail, Status::Info] {
                coverage.count(name, status, counts[status as usize]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use elench_formats::notation::history;

    use super::*;

    #[test]
    fn a_name_is_asked_once_and_counted_by_outcome() {
        let h = history("invoke 0 add_node 1 / ok 0 / invoke 0 read / fail 0 / invoke 1 add_node 2 / info 1").unwrap();
        let mut adds = ByName::new(|name| is_any(name, &["add-node"]), false);
        let mut tally = Tally::default();
        let said: Vec<bool> = h
            .clients()
            .map(|op| {
                tally.count(&op);
                adds.of(&op)
            })
            .collect();
        assert_eq!(said, [true, false, true]);
        let mut coverage = Coverage::default();
        tally.tell(&mut coverage);
        let told: Vec<(&str, Status, u64)> = coverage.ops.iter().map(|((f, s), n)| (f.as_str(), *s, *n)).collect();
        assert_eq!(told, [("add_node", Status::Ok, 1), ("add_node", Status::Info, 1), ("read", Status::Fail, 1)]);
    }
}
