//! placeholder
use crate::error::*;
use crate::event::EventBatch;
use crate::history::*;
use std::io::Write;
use std::sync::Arc;
pub(crate) fn chunk_bytes(_c: &Chunk) -> usize {
    0
}
pub(crate) fn is_default_schema(_b: &[u8]) -> Result<bool> {
    Ok(false)
}
pub(crate) fn read_ipc(_m: Arc<memmap2::Mmap>) -> Result<History> {
    Err(ReadError::new("todo"))
}
pub(crate) fn read_parquet(_m: Arc<memmap2::Mmap>, _t: usize) -> Result<History> {
    Err(ReadError::new("todo"))
}
pub(crate) fn read_default_schema(
    _m: Arc<memmap2::Mmap>,
    _s: &mut dyn FnMut(&mut EventBatch) -> Result<()>,
) -> Result<()> {
    Ok(())
}
pub(crate) fn write_parquet(_h: &History, _o: &mut (dyn Write + Send)) -> Result<()> {
    Ok(())
}
pub(crate) fn write_ipc(_h: &History, _o: &mut (dyn Write + Send)) -> Result<()> {
    Ok(())
}
pub struct ParquetWriter; pub struct Plan; #[derive(Default)] pub struct WriteOptions { pub workload: Option<String>, pub compression: Option<u8> }
impl Plan { pub fn of(_h: &History) -> Plan { Plan } }
impl ParquetWriter { pub fn create(_p: &std::path::Path, _q: &Plan, _o: &WriteOptions) -> Result<Self> { Ok(Self) } pub fn write(&mut self, _h: &History) -> Result<()> { Ok(()) } pub fn finish(self) -> Result<()> { Ok(()) } }
