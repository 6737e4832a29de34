//! placeholder
pub(crate) fn chunk_bytes(_c: &crate::history::Chunk) -> usize {
    0
}
