//! How many operations of each function ended how? One pass over the columns, O(n).

use elench_formats::History;
use elench_formats::history::Status;

/// Client operations of one function, by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionCounts {
    /// The function's name; `None` where operations have none.
    pub f: Option<String>,
    /// Indexed by the code of [`Status`].
    pub counts: [u64; 4],
}

impl FunctionCounts {
    /// All operations.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Those that ended so.
    pub fn with(&self, status: Status) -> u64 {
        self.counts[status as usize]
    }
}

/// Counts by function, in the order in which functions first occur.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// A line each function.
    pub by_f: Vec<FunctionCounts>,
}

impl Stats {
    /// Functions that were tried and never once succeeded: whoever reads a verdict should know.
    pub fn never_ok(&self) -> impl Iterator<Item = &FunctionCounts> {
        self.by_f.iter().filter(|f| f.with(Status::Ok) == 0)
    }
}

/// Counts the operations of clients by function and outcome.
pub fn stats(history: &History) -> Stats {
    let functions = history.functions().len();
    // One row more, for operations without a function.
    let mut counts = vec![[0u64; 4]; functions + 1];
    let mut seen = Vec::new();
    for chunk in history.chunks() {
        for (i, &status) in chunk.status().iter().enumerate() {
            if !chunk.is_client(i) {
                continue;
            }
            let code = chunk.f_code(i).map_or(functions, usize::from);
            if counts[code] == [0; 4] {
                seen.push(code);
            }
            counts[code][status as usize & 3] += 1;
        }
    }
    let name = |code: usize| (code < functions).then(|| history.functions().get(code as u32).to_string());
    Stats { by_f: seen.into_iter().map(|code| FunctionCounts { f: name(code), counts: counts[code] }).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use elench_formats::notation::history;

    #[test]
    fn operations_are_counted_by_function_and_outcome_and_the_nemesis_is_not() {
        let h = history("invoke 0 read / ok 0 read 1 / info nemesis kill / invoke 1 write 2 / info 1 / invoke 0 read")
            .unwrap();
        let stats = stats(&h);
        let line = |f: &str, counts| FunctionCounts { f: Some(f.into()), counts };
        assert_eq!(stats.by_f, [line("read", [1, 0, 0, 1]), line("write", [0, 0, 1, 0])]);
        assert_eq!(stats.never_ok().map(|f| f.f.as_deref()).collect::<Vec<_>>(), [Some("write")]);
    }
}
