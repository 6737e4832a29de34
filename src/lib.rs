//! Elench.
