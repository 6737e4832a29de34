//! Checkers.
