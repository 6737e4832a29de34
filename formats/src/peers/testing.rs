//! What the tests of these readers share.

use super::{Facts, Sink};
use crate::error::Result;
use crate::event::{EventBatch, Process};
use std::path::PathBuf;

/// All that a reader produced: an event a line, `process type value {extras}`.
pub(super) fn events(read: impl FnOnce(Sink<'_>) -> Result<Facts>) -> Result<(Vec<String>, Facts)> {
    let mut events = vec![];
    let facts = read(&mut |batch| {
        assert!(batch.len() <= super::BATCH_EVENTS && batch.len().is_multiple_of(2));
        events.extend((0..batch.len()).map(|row| event(batch, row)));
        Ok(())
    })?;
    Ok((events, facts))
}

fn event(batch: &EventBatch, row: usize) -> String {
    let Process::Client(process) = batch.process[row] else { panic!("a session is a client") };
    assert_eq!(batch.f[row].map(|f| batch.texts.get(f)), Some("txn"));
    assert_eq!((batch.index[row], batch.time[row]), (crate::event::NONE, crate::event::NONE));
    let mut out = format!("{process} {} ", batch.kind[row].name());
    batch.write_edn(batch.value[row], &mut out);
    for extra in batch.extras.iter().filter(|extra| extra.row as usize == row) {
        out.push_str(&format!(" :{} ", batch.texts.get(extra.name)));
        batch.write_edn(extra.value, &mut out);
    }
    out
}

/// The places of all events.
pub(super) fn places(read: impl FnOnce(Sink<'_>) -> Result<Facts>) -> Vec<u64> {
    let mut places = vec![];
    read(&mut |batch| {
        places.extend_from_slice(&batch.place);
        Ok(())
    })
    .unwrap();
    places
}

/// The files of a folder of the corpus and of its folders, or none with a word about it when it is not there.
pub(super) fn corpus(folder: &str) -> Vec<PathBuf> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/corpus");
    let root = std::env::var("ELENCH_CORPUS").unwrap_or_else(|_| default.into());
    let (mut folders, mut files) = (vec![PathBuf::from(root).join("peers").join(folder)], vec![]);
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            eprintln!("skipped: {} is not there", folder.display());
            continue;
        };
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    files
}
