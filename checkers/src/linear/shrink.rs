//! What is the smallest sub-history that still has no legal order?
//!
//! Delta debugging (Zeller and Hildebrandt, 2002) with the search as its oracle: leave out half of the operations, then
//! quarters, and so on down to one at a time, keeping every sub-history that still has no legal order, until nothing more
//! can go. It starts from what was invoked before the return that no order survives.
//!
//! An arbitrary sub-history proves nothing: without its write, a perfectly good read is illegal. So there are two
//! rounds. The first leaves out only what the model says can be left out of any legal order
//! ([`Model::leave_out_safely`]), and what was still open at the end counts as open; what remains, the *core*, has no legal order, and therefore the whole has none. The
//! second goes on as long as everything observed is still produced by something ([`Model::supported`]); its result
//! is what a person wants to read first.
//!
//! A re-check costs a search of what is left; about twice the logarithm of the size at first, and quadratic in the size of what
//! cannot be left out. Out of budget, it gives what it has.

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use super::Operation;
use super::search::{Found, search};
use crate::budget::Budget;
use crate::model::Model;
use crate::outcome::OpId;

/// Sub-histories, as places in the input, ascending.
pub(super) struct Shrunk {
    pub(super) core: Vec<usize>,
    pub(super) minimal: Vec<usize>,
    pub(super) rechecks: u64,
    /// Both rounds ended by themselves.
    pub(super) fully: bool,
}

/// Shrinks a history without a legal order, none of which survives the return of `last`. `core`, if any, are operations
/// known to suffice, such that all others can be left out.
pub(super) fn shrink<M: Model>(
    model: &M,
    ops: &[Operation<M::Op>],
    last: OpId,
    core: &[OpId],
    budget: &Budget,
) -> Shrunk {
    let end = ops.iter().find(|op| op.id == last).and_then(|op| op.ret).unwrap_or(u64::MAX);
    let core: HashSet<OpId, FixedState> = core.iter().copied().collect();
    let known = |op: &Operation<M::Op>| core.is_empty() || core.contains(&op.id);
    let invoked = &ops[..ops.partition_point(|op| op.call <= end)];
    // Only these are copied: a monitor's core is a few of a million.
    let (places, ops): (Vec<usize>, Vec<Operation<M::Op>>) =
        invoked.iter().enumerate().filter(|(_, op)| known(op)).map(|(i, op)| (i, cut(op, end))).unzip();
    let kept = (0..ops.len()).filter(|&i| ops[i].ret.is_some() || !model.observes(&ops[i].op)).collect();
    let mut shrinker = Shrinker { model, ops: &ops, budget, kept, rechecks: 0, spent: false };
    shrinker.round(|s, out| {
        s.model.leave_out_safely(&s.model_ops(&s.kept), out);
        out.iter().any(|&out| out)
    });
    let core = shrinker.kept.clone();
    shrinker.round(|s, out| {
        let rest: Vec<usize> = s.without(out);
        s.model.supported(&s.model_ops(&rest))
    });
    let placed = |list: &[usize]| list.iter().map(|&i| places[i]).collect();
    Shrunk { core: placed(&core), minimal: placed(&shrinker.kept), rechecks: shrinker.rechecks, fully: !shrinker.spent }
}

/// The operation as it stands at a time: what returns later is open.
fn cut<O: Clone>(op: &Operation<O>, end: u64) -> Operation<O> {
    Operation { ret: op.ret.filter(|&ret| ret <= end), ..op.clone() }
}

struct Shrinker<'a, M: Model> {
    model: &'a M,
    ops: &'a [Operation<M::Op>],
    budget: &'a Budget,
    /// The smallest sub-history so far.
    kept: Vec<usize>,
    rechecks: u64,
    spent: bool,
}

impl<'a, M: Model> Shrinker<'a, M> {
    /// Leaves out ever smaller chunks until nothing more can go. `admit` makes a wish admissible, or refuses it.
    fn round(&mut self, admit: impl Fn(&Self, &mut Vec<bool>) -> bool) {
        let mut chunk = self.kept.len() / 2;
        while chunk > 0 && !self.spent {
            let smaller = self.pass(chunk, &admit);
            if chunk > 1 || !smaller {
                chunk /= 2;
            }
        }
    }

    /// Tries to leave out each chunk of this size, later ones first (old operations are often needed, late ones never);
    /// says whether any could go.
    fn pass(&mut self, chunk: usize, admit: &impl Fn(&Self, &mut Vec<bool>) -> bool) -> bool {
        let mut smaller = false;
        let mut end = self.kept.len();
        while end > 0 && !self.spent {
            self.spent |= self.budget.spent().is_some();
            let start = end.saturating_sub(chunk);
            let mut out = vec![false; self.kept.len()];
            out[start..end].fill(true);
            if admit(self, &mut out) {
                let rest = self.without(&out);
                if self.has_no_order(&rest) {
                    smaller = true;
                    self.kept = rest;
                }
            }
            end = start.min(self.kept.len());
        }
        smaller
    }

    fn without(&self, out: &[bool]) -> Vec<usize> {
        self.kept.iter().zip(out).filter(|(_, out)| !**out).map(|(&i, _)| i).collect()
    }

    fn model_ops(&self, places: &[usize]) -> Vec<&'a M::Op> {
        places.iter().map(|&i| &self.ops[i].op).collect()
    }

    fn has_no_order(&mut self, places: &[usize]) -> bool {
        if places.is_empty() {
            return false;
        }
        let sub: Vec<Operation<M::Op>> = places.iter().map(|&i| self.ops[i].clone()).collect();
        self.rechecks += 1;
        let found = search(self.model, &sub, self.budget, false);
        // Small searches end before they look at the budget.
        self.spent |= matches!(found, Ok(Found::GaveUp { .. })) || self.budget.spent().is_some();
        matches!(found, Ok(Found::Stuck(_)))
    }
}
