//! Was anything acknowledged lost, doubled or out of order?

use super::Entry;

/// What their flags say.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
pub struct Settings {}

/// The checkers of this group.
pub const ENTRIES: &[Entry] = &[];
