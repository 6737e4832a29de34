//! Where the further fields of an event go: columns of their own for `:error`, `:node`, `:key` and `:fault_epoch`, else
//! beside the operation.

use super::{At, HistoryBuilder, NO_TEXT, Remap, intern, map_id, open_chunk};
use crate::error::Result;
use crate::event::{Cell, EventBatch, TextId};
use crate::history::CHUNK_ROWS;

impl HistoryBuilder {
    /// Puts an event's further fields where they belong.
    pub(super) fn fields(
        &mut self,
        e: &At<'_>,
        remap: &mut Remap,
        row: u64,
        extras: std::ops::Range<usize>,
        invocation: bool,
    ) -> Result<()> {
        let (at, r) = (row as usize / CHUNK_ROWS, row as usize % CHUNK_ROWS);
        for extra in &e.batch.extras[extras] {
            let name = map_id(&mut remap.names, extra.name, &e.batch.texts, &mut self.shared.names)?;
            if name == self.special.key && self.key_field(e, remap, row, extra.value)? {
                continue;
            }
            if name == self.special.node && !invocation {
                // A node that is a plain string stands in its column alone; any other kind is kept beside, too.
                if let Some((plain, exact)) = self.plain_string(e.batch, extra.value)? {
                    open_chunk(&mut self.chunks, at)?.node.set(r, plain);
                    if exact && !self.invoke_nodes {
                        continue;
                    }
                }
            }
            let text = self.cell_text(e, remap, extra.value)?;
            let is_epoch = name == self.special.fault_epoch;
            if is_epoch && extra.value != Cell::Nil {
                self.shared.meta.epochs_recorded = true;
                let plain = match self.plain_string(e.batch, extra.value)? {
                    Some((plain, _)) => plain,
                    None => intern(&mut self.shared.names, self.shared.texts.get(text))?,
                };
                open_chunk(&mut self.chunks, at)?.fault_epoch.set(r, plain);
                continue;
            }
            if name == self.special.node && invocation {
                self.invoke_nodes = true;
                let plain = self.plain_string(e.batch, extra.value)?;
                let chunk = open_chunk(&mut self.chunks, at)?;
                chunk.node.set(r, plain.map_or(NO_TEXT, |(p, _)| p));
            }
            let chunk = open_chunk(&mut self.chunks, at)?;
            if name == self.special.error && !invocation {
                chunk.error.set(r, text);
            } else if invocation {
                chunk.invoke_extra.push((r as u32, name, text));
            } else {
                chunk.extra.push((r as u32, name, text));
            }
        }
        Ok(())
    }

    /// A name's id for a string (exactly so) or keyword (not exactly).
    fn plain_string(&mut self, batch: &EventBatch, value: Cell) -> Result<Option<(TextId, bool)>> {
        let Cell::Text(id) = value else { return Ok(None) };
        let text = batch.texts.get(id);
        if let Some(keyword) = text.strip_prefix(':') {
            return Ok(Some((intern(&mut self.shared.names, keyword)?, false)));
        }
        let Some(inner) = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')) else { return Ok(None) };
        if inner.contains(['\\', '"']) {
            return Ok(None);
        }
        Ok(Some((intern(&mut self.shared.names, inner)?, true)))
    }

    pub(super) fn cell_text(&mut self, e: &At<'_>, remap: &mut Remap, cell: Cell) -> Result<TextId> {
        if let Cell::Text(id) = cell {
            return map_id(&mut remap.texts, id, &e.batch.texts, &mut self.shared.texts);
        }
        let mut text = String::new();
        e.batch.write_edn(cell, &mut text);
        intern(&mut self.shared.texts, &text)
    }
}
