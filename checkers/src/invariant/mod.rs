//! Does a number hold?

pub mod fairness;
pub mod final_state;
