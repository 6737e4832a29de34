//! Any operations, as a user's table of transitions names them.

use elench_formats::Value as Edn;

use super::{Call, Reader, Said};
use crate::linear::Operation;
use crate::model::{Table, TableOp};

pub(super) struct Cells(pub(super) Table);

impl Reader for Cells {
    type Model = Table;

    fn read(&mut self, call: &Call<'_>) -> Result<Option<Said<TableOp>>, String> {
        if !self.0.has(call.f) {
            return Err(format!("no transition of the model is named `{}`", call.f));
        }
        let text = |value: Edn| -> Box<str> { value.to_edn().into() };
        let output = call.ok.then(|| text(call.output()));
        Said::of(TableOp { f: call.f.into(), input: text(call.input()), output })
    }

    fn model(&self, _ops: &[Operation<TableOp>]) -> Table {
        self.0.clone()
    }
}
