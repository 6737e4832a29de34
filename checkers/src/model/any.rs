//! Any model behind one type, so that the search, which is large, is compiled once for all of them.
//!
//! Operations and states become numbers: equal ones the same. A step costs a lock and a look-up more than the model's own.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::Model;
use crate::budget::Budget;
use crate::linear::Operation;
use crate::linear::monitor::Monitored;

/// The number of an operation of an [`AnyModel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AnyOp(u32);

/// The number of a state of an [`AnyModel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AnyState(u32);

/// A model of which only the behaviour is known.
pub struct AnyModel(Box<dyn Behaviour>);

impl AnyModel {
    /// Hides a model; it can do these operations and no others.
    pub fn new<M>(model: M, ops: Vec<Operation<M::Op>>) -> (AnyModel, Vec<Operation<AnyOp>>)
    where
        M: Model + 'static,
        M::State: Send,
    {
        let mut known = Numbers::default();
        let numbered =
            |Operation { id, process, call, ret, op }| Operation { id, process, call, ret, op: AnyOp(known.of(op)) };
        let ops = ops.into_iter().map(numbered).collect();
        (AnyModel(Box::new(Numbered { model, ops: known.list.into(), states: Arc::default() })), ops)
    }
}

impl Clone for AnyModel {
    fn clone(&self) -> Self {
        AnyModel(self.0.boxed())
    }
}

impl fmt::Debug for AnyModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyModel")
    }
}

/// What [`Model`] says, of numbers.
trait Behaviour: Send + Sync {
    fn boxed(&self) -> Box<dyn Behaviour>;
    fn init(&self) -> AnyState;
    fn step(&self, state: AnyState, op: AnyOp) -> Option<AnyState>;
    fn first_illegal(&self, order: &[&AnyOp]) -> Option<usize>;
    fn held(&self) -> u64;
    fn kind(&self, op: AnyOp) -> &'static str;
    fn show_op(&self, op: AnyOp) -> String;
    fn show_state(&self, state: AnyState) -> String;
    fn observes(&self, op: AnyOp) -> bool;
    fn overwrites(&self, op: AnyOp) -> bool;
    fn foresee(&mut self, ops: &[(&AnyOp, u64)]);
    fn settle(&self, state: AnyState, now: u64) -> Option<AnyState>;
    fn spent(&self, op: AnyOp, now: u64) -> bool;
    fn leave_out_safely(&self, ops: &[&AnyOp], left_out: &mut [bool]);
    fn part(&self, op: AnyOp) -> Option<u64>;
    fn monitor(&self, ops: &[Operation<AnyOp>], budget: &Budget) -> Monitored;
    fn supported(&self, ops: &[&AnyOp]) -> bool;
}

struct Numbered<M: Model> {
    model: M,
    ops: Arc<[M::Op]>,
    states: Arc<Mutex<Numbers<M::State>>>,
}

/// Things by their numbers, and numbers by things: equal ones have the same.
struct Numbers<T> {
    list: Vec<T>,
    table: HashTable<u32>,
}

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Numbers { list: Vec::new(), table: HashTable::new() }
    }
}

impl<T: Eq + Hash> Numbers<T> {
    fn of(&mut self, thing: T) -> u32 {
        let Numbers { list, table } = self;
        let hash = FixedState::default().hash_one(&thing);
        if let Some(&number) = table.find(hash, |&number| list[number as usize] == thing) {
            return number;
        }
        let number = list.len() as u32;
        list.push(thing);
        // Through a pointer, so that tables grow in one way, whatever they number.
        let hash_of: &dyn Fn(&u32) -> u64 = &|&number| FixedState::default().hash_one(&list[number as usize]);
        table.insert_unique(hash, number, hash_of);
        number
    }
}

impl<M: Model> Numbered<M> {
    fn number(&self, state: M::State) -> AnyState {
        AnyState(self.states.lock().unwrap_or_else(PoisonError::into_inner).of(state))
    }

    fn state(&self, AnyState(number): AnyState) -> M::State {
        self.states.lock().unwrap_or_else(PoisonError::into_inner).list[number as usize].clone()
    }

    fn op(&self, AnyOp(number): AnyOp) -> &M::Op {
        &self.ops[number as usize]
    }
}

impl<M> Behaviour for Numbered<M>
where
    M: Model + 'static,
    M::State: Send,
{
    fn boxed(&self) -> Box<dyn Behaviour> {
        let (ops, states) = (Arc::clone(&self.ops), Arc::clone(&self.states));
        Box::new(Numbered { model: self.model.clone(), ops, states })
    }

    fn init(&self) -> AnyState {
        self.number(self.model.init())
    }

    fn step(&self, state: AnyState, op: AnyOp) -> Option<AnyState> {
        self.model.step(&self.state(state), self.op(op)).map(|next| self.number(next))
    }

    fn first_illegal(&self, order: &[&AnyOp]) -> Option<usize> {
        self.model.first_illegal(&order.iter().map(|&&op| self.op(op)).collect::<Vec<_>>())
    }

    fn held(&self) -> u64 {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        (states.list.capacity() * size_of::<M::State>() + states.table.capacity() * 5) as u64
    }

    fn kind(&self, op: AnyOp) -> &'static str {
        self.model.kind(self.op(op))
    }

    fn show_op(&self, op: AnyOp) -> String {
        self.model.show_op(self.op(op))
    }

    fn show_state(&self, state: AnyState) -> String {
        self.model.show_state(&self.state(state))
    }

    fn observes(&self, op: AnyOp) -> bool {
        self.model.observes(self.op(op))
    }

    fn overwrites(&self, op: AnyOp) -> bool {
        self.model.overwrites(self.op(op))
    }

    fn foresee(&mut self, ops: &[(&AnyOp, u64)]) {
        let known = Arc::clone(&self.ops);
        let ops: Vec<(&M::Op, u64)> = ops.iter().map(|&(op, ret)| (&known[op.0 as usize], ret)).collect();
        self.model.foresee(&ops);
    }

    fn settle(&self, state: AnyState, now: u64) -> Option<AnyState> {
        self.model.settle(&self.state(state), now).map(|state| self.number(state))
    }

    fn spent(&self, op: AnyOp, now: u64) -> bool {
        self.model.spent(self.op(op), now)
    }

    fn leave_out_safely(&self, ops: &[&AnyOp], left_out: &mut [bool]) {
        let ops: Vec<&M::Op> = ops.iter().map(|&&op| self.op(op)).collect();
        self.model.leave_out_safely(&ops, left_out);
    }

    fn part(&self, op: AnyOp) -> Option<u64> {
        self.model.part(self.op(op))
    }

    fn monitor(&self, ops: &[Operation<AnyOp>], budget: &Budget) -> Monitored {
        let known = |op: &Operation<AnyOp>| {
            let (id, process, call, ret) = (op.id, op.process, op.call, op.ret);
            Operation { id, process, call, ret, op: self.op(op.op).clone() }
        };
        self.model.monitor(&ops.iter().map(known).collect::<Vec<_>>(), budget)
    }

    fn supported(&self, ops: &[&AnyOp]) -> bool {
        self.model.supported(&ops.iter().map(|&&op| self.op(op)).collect::<Vec<_>>())
    }
}

impl Model for AnyModel {
    type Op = AnyOp;
    type State = AnyState;

    fn init(&self) -> AnyState {
        self.0.init()
    }

    fn step(&self, state: &AnyState, op: &AnyOp) -> Option<AnyState> {
        self.0.step(*state, *op)
    }

    fn first_illegal(&self, order: &[&AnyOp]) -> Option<usize> {
        self.0.first_illegal(order)
    }

    fn held(&self) -> u64 {
        self.0.held()
    }

    fn kind(&self, op: &AnyOp) -> &'static str {
        self.0.kind(*op)
    }

    fn show_op(&self, op: &AnyOp) -> String {
        self.0.show_op(*op)
    }

    fn show_state(&self, state: &AnyState) -> String {
        self.0.show_state(*state)
    }

    fn observes(&self, op: &AnyOp) -> bool {
        self.0.observes(*op)
    }

    fn overwrites(&self, op: &AnyOp) -> bool {
        self.0.overwrites(*op)
    }

    fn foresee(&mut self, ops: &[(&AnyOp, u64)]) {
        self.0.foresee(ops);
    }

    fn settle(&self, state: &AnyState, now: u64) -> Option<AnyState> {
        self.0.settle(*state, now)
    }

    fn spent(&self, op: &AnyOp, now: u64) -> bool {
        self.0.spent(*op, now)
    }

    fn leave_out_safely(&self, ops: &[&AnyOp], left_out: &mut [bool]) {
        self.0.leave_out_safely(ops, left_out);
    }

    fn part(&self, op: &AnyOp) -> Option<u64> {
        self.0.part(*op)
    }

    fn monitor(&self, ops: &[Operation<AnyOp>], budget: &Budget) -> Monitored {
        self.0.monitor(ops, budget)
    }

    fn supported(&self, ops: &[&AnyOp]) -> bool {
        self.0.supported(ops)
    }
}
