//! Sets that only grow and are read whole.
//!
//! Such reads are ordered by inclusion; where the elements of two are not, neither can come first. An element must
//! be added before the first read that has it and after the last that has not: the reads are given moments in their order, each as early
//! as its own invocation, the reads before it and the additions of its elements allow. If that is later than its return, or than the
//! return of an addition of an element that it does not have, there is no order, and the read and what held it up are a conflict.
//!
//! Linear in the sizes of all reads, and O(n log n) in the number of operations. Sets that are not read whole are divided by element instead.

use elench_formats::sorting::sort_by;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::{Monitored, earliest};
use crate::budget::Budget;
use crate::linear::Operation;
use crate::model::{SetOp, Value};

type Op = Operation<SetOp>;

/// Decides a set to which elements are only added, without a word on whether they were there.
pub(crate) fn grow_set(initial: &[Value], ops: &[Op], budget: &Budget) -> Monitored {
    let fits = |op: &Op| match op.op {
        SetOp::Add(_, None) | SetOp::Read(_) | SetOp::Contains(_, None) => true,
        SetOp::Add(..) | SetOp::Contains(..) => op.ret.is_none(),
        SetOp::Remove(..) => false,
    };
    if !ops.iter().all(fits) || !ops.iter().any(|op| matches!(op.op, SetOp::Read(Some(_)))) {
        return Monitored::NotApplicable;
    }
    let mut held = budget.reserve();
    held.set(ops.len() as u64 * 160);
    if let Some(spent) = budget.spent() {
        return Monitored::GaveUp(spent);
    }
    let ranked = ranked(ops);
    match decide(initial, &ranked) {
        Ok(order) => Monitored::Order(order),
        Err(core) => earliest(&ranked, core, |prefix| decide(initial, prefix).err())
            .map_or(Monitored::NotApplicable, Monitored::Conflict),
    }
}

/// The same with every time its own, invocations first where they were equal.
fn ranked(ops: &[Op]) -> Vec<Op> {
    let mut ranked = ops.to_vec();
    let mut returns: Vec<(u64, usize)> = ops.iter().enumerate().filter_map(|(i, op)| Some((op.ret?, i))).collect();
    returns.sort_unstable();
    let (mut rank, mut calls) = (0, 0);
    let mut next = || {
        rank += 1;
        rank
    };
    for (time, i) in returns {
        while calls < ops.len() && ops[calls].call <= time {
            ranked[calls].call = next();
            calls += 1;
        }
        ranked[i].ret = Some(next());
    }
    ranked[calls..].iter_mut().for_each(|op| op.call = next());
    ranked
}

/// When an element was added.
struct Element {
    /// No earlier than this, by this operation,
    from: u64,
    add: Option<u32>,
    /// no later than this.
    to: u64,
    by: Option<u32>,
    /// The first group of equal reads that have it.
    first: usize,
}

const NEVER: u64 = u64::MAX;

fn decide(initial: &[Value], ops: &[Op]) -> Result<Vec<u32>, Vec<u32>> {
    let (mut elements, mut places) = (Vec::new(), HashMap::with_hasher(FixedState::default()));
    for &value in initial {
        places.insert(value, elements.len());
        elements.push(Element { from: 0, add: None, to: 0, by: None, first: usize::MAX });
    }
    for (i, op) in (0..).zip(ops) {
        let SetOp::Add(value, _) = op.op else { continue };
        let place = *places.entry(value).or_insert(elements.len());
        if place == elements.len() {
            elements.push(Element { from: op.call, add: Some(i), to: NEVER, by: None, first: usize::MAX });
        }
        if let Some(ret) = op.ret.filter(|&ret| ret < elements[place].to) {
            (elements[place].to, elements[place].by) = (ret, Some(i));
        }
    }
    let mut reads: Vec<(u32, &[Value])> = Vec::new();
    for (i, op) in (0..).zip(ops) {
        if let (SetOp::Read(Some(read)), Some(_)) = (&op.op, op.ret) {
            reads.push((i, read));
        }
    }
    sort_by(&mut reads, |(_, read)| read.len() as u64);
    let core = |reads: &[(u32, &[Value])], also: Option<u32>| core(ops, reads, also);
    // The group of each read; elements that are new in it.
    let (mut groups, mut group, mut before) = (Vec::with_capacity(reads.len()), 0, &[][..]);
    for (k, &(_, read)) in reads.iter().enumerate() {
        if read.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(core(&reads[k..=k], None));
        }
        let new = beyond(before, read).ok_or_else(|| core(&reads[k - 1..=k], None))?;
        group += usize::from(k > 0 && !new.is_empty());
        for value in new {
            let Some(&place) = places.get(value) else { return Err(core(&reads[k..=k], None)) };
            elements[place].first = group;
        }
        groups.push(group);
        before = read;
    }
    // By group: the latest first invocation of its new elements, and of the elements that it does not have, the one surely added first.
    let mut from = vec![0; group + 1];
    let mut absent: Vec<(u64, Option<u32>)> = vec![(NEVER, None); group + 2];
    for element in &elements {
        match from.get_mut(element.first) {
            Some(from) => *from = element.from.max(*from),
            None => absent[group + 1] = absent[group + 1].min((element.to, element.by)),
        }
        if let Some(absent) = absent.get_mut(element.first) {
            *absent = (element.to, element.by).min(*absent);
        }
    }
    for g in (0..=group).rev() {
        absent[g] = absent[g].min(absent[g + 1]);
    }
    let mut moments = Vec::with_capacity(reads.len());
    // What held up the reads so far: how long, and which of them.
    let (mut held, mut ends) = ((0, 0), vec![(0, 0); group + 1]);
    for (k, &(i, _)) in reads.iter().enumerate() {
        let (g, op) = (groups[k], &ops[i as usize]);
        if k == 0 || groups[k - 1] != g {
            held = if k == 0 { (0, 0) } else { ends[g - 1] };
            held = held.max((from[g], k));
            ends[g] = held;
        }
        let moment = held.max((op.call, k));
        let (to, by) = absent[g + 1];
        let limit = op.ret.unwrap_or(NEVER).min(to);
        if moment.0 > limit {
            let mut few = vec![reads[k]];
            few.extend((moment.1 != k).then(|| reads[moment.1]));
            return Err(core(&few, by.filter(|_| to == limit)));
        }
        moments.push(moment.0);
        ends[g] = moment.max(ends[g]);
    }
    Ok(emit(ops, &elements, &places, &reads, &groups, &moments, &ends))
}

/// What the larger has beyond the smaller, if it has all of that; both ascend.
fn beyond<'a>(smaller: &[Value], larger: &'a [Value]) -> Option<Vec<&'a Value>> {
    let mut rest = smaller.iter().peekable();
    let new = larger.iter().filter(|value| rest.next_if_eq(value).is_none()).collect();
    rest.next().is_none().then_some(new)
}

/// These reads and all additions of what they have, and the addition of something that they lack; what none of them has can
/// be left out.
fn core(ops: &[Op], reads: &[(u32, &[Value])], also: Option<u32>) -> Vec<u32> {
    let has = |value: &Value| reads.iter().any(|(_, read)| read.binary_search(value).is_ok());
    let adds = (0..).zip(ops).filter(|(_, op)| matches!(&op.op, SetOp::Add(value, _) if has(value))).map(|(i, _)| i);
    let mut core: Vec<u32> = reads.iter().map(|(i, _)| *i).chain(adds).chain(also).collect();
    core.sort_unstable();
    core.dedup();
    core
}

/// Each operation at its moment; at one moment, additions before the reads that have them and after those that have not.
fn emit(
    ops: &[Op],
    elements: &[Element],
    places: &HashMap<Value, usize, FixedState>,
    reads: &[(u32, &[Value])],
    groups: &[usize],
    moments: &[u64],
    ends: &[(u64, usize)],
) -> Vec<u32> {
    let mut placed: Vec<(u64, usize, u32)> = Vec::with_capacity(ops.len());
    placed.extend(reads.iter().zip(groups).zip(moments).map(|((&(i, _), &g), &moment)| (moment, 2 * g + 1, i)));
    for (i, op) in (0..).zip(ops) {
        match op.op {
            SetOp::Add(value, _) => {
                let element = &elements[places[&value]];
                let is_read = element.first != usize::MAX;
                let first = element.first.min(ends.len());
                // Nothing lacks what is there at first.
                let lacked = if element.to == 0 || first == 0 { 0 } else { ends[first - 1].0 };
                if op.ret.is_some() || (is_read && element.add == Some(i)) {
                    placed.push((lacked.max(op.call), 2 * first, i));
                }
            }
            SetOp::Read(Some(_)) => {}
            _ if op.ret.is_some() => placed.push((op.call, 0, i)),
            _ => {}
        }
    }
    placed.sort_unstable();
    placed.into_iter().map(|(_, _, i)| i).collect()
}
