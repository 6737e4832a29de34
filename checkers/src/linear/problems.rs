//! Problems of a model that is known only when the history is.
//!
//! Searches and monitors are generic over models, and compiled for the two types here: registers, and everything else
//! behind one type. That happens once, in this crate, however many programs call it.

use super::{Evidence, Problem, check_keys, sequential};
use crate::budget::Budget;
use crate::model::{AnyModel, Register};
use crate::outcome::{OpId, Outcome};

/// Problems, by kind of model.
#[derive(Debug)]
pub enum Problems {
    /// Of registers.
    Registers(Vec<Problem<Register>>),
    /// Of any other object.
    Objects(Vec<Problem<AnyModel>>),
}

impl Problems {
    /// Is each key linearizable?
    pub fn linear(&self, budget: &Budget, evidence: &Evidence) -> Outcome {
        match self {
            Problems::Registers(problems) => check_keys(problems, budget, evidence),
            Problems::Objects(problems) => check_keys(problems, budget, evidence),
        }
    }

    /// Are all keys together sequentially consistent?
    pub fn sequential(&self, budget: &Budget, evidence: &Evidence) -> Outcome {
        match self {
            Problems::Registers(problems) => sequential::check_sequential(problems, budget, evidence),
            Problems::Objects(problems) => sequential::check_sequential(problems, budget, evidence),
        }
    }

    /// Does this order of all keys' operations keep each process's order, legally?
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn verify_sequential(&self, order: &[OpId]) -> Result<(), String> {
        match self {
            Problems::Registers(problems) => sequential::verify_sequential(problems, order),
            Problems::Objects(problems) => sequential::verify_sequential(problems, order),
        }
    }
}
