//! b
use super::*;
