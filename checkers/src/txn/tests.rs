//! Whole histories: claims, the reference's cases, the corpus, and brute force.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::PathBuf;

use elench_formats::History;
use elench_formats::notation;
use elench_formats::open::{OpenOptions, open, open_bytes};
use serde_json::Value as Json;

use super::anomaly::{Anomaly, AnomalySet};
use super::explain::Explained;
use super::{Options, TxnResult, check_list_append, verify};
use crate::Budget;

mod brute;
mod claims;
mod reference;
mod weaker;

/// Checks, and holds all that comes out against the history.
fn check(history: &History) -> TxnResult {
    check_with(history, &Options::default())
}

fn check_with(history: &History, options: &Options) -> TxnResult {
    let result = check_list_append(history, options, &Budget::unlimited());
    for (kind, finding) in &result.findings {
        for example in &finding.examples {
            if let Explained::Cycle(cycle) = example {
                verify::cycle(history, cycle).unwrap_or_else(|why| panic!("{kind}: {why}: {}", example.text()));
            }
        }
    }
    if let Some(order) = &result.order {
        verify::order(history, order, options.real_time)
            .unwrap_or_else(|why| panic!("the order does not hold: {why}\n{}", shown(history)));
    }
    result
}

fn shown(history: &History) -> String {
    let mut out = String::new();
    for op in history.ops() {
        out.push_str(&format!("{} {:?} {:?} {} ", op.index(), op.complete_index(), op.process(), op.status().name()));
        op.write_complete_value(&mut out);
        out.push('\n');
    }
    out
}

fn names(result: &TxnResult) -> BTreeSet<&'static str> {
    result.findings.keys().map(|k| k.name()).collect()
}

fn corpus() -> Option<PathBuf> {
    let path = std::env::var_os("ELENCH_CORPUS")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/corpus")), PathBuf::from);
    let found = path.is_dir();
    if !found {
        eprintln!("skipped: no corpus at {}", path.display());
    }
    found.then_some(path)
}
