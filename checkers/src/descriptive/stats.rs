//! How many operations of each function ended how? One pass over the columns, O(n).

use std::collections::HashMap;

use elench_formats::History;
use elench_formats::history::Status;

use super::exceptions::{class_of, error};

/// Client operations of one function, by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionCounts {
    /// The function's name; `None` where operations have none.
    pub f: Option<String>,
    /// Indexed by the code of [`Status`].
    pub counts: [u64; 4],
    /// Of a function that never succeeded: why not, as far as its operations say.
    pub never_ok: Option<String>,
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
    let mut errors: HashMap<usize, HashMap<String, u64>> = HashMap::new();
    let never = |code: usize| counts[code][Status::Ok as usize] == 0;
    if seen.iter().any(|&code| never(code)) {
        for op in history.clients() {
            let code = op.f_code().map_or(functions, usize::from);
            if let Some(error) = error(&op).filter(|_| never(code)) {
                *errors.entry(code).or_default().entry(class_of(error)).or_default() += 1;
            }
        }
    }
    let line = |code: usize| FunctionCounts {
        f: (code < functions).then(|| history.functions().get(code as u32).to_string()),
        counts: counts[code],
        never_ok: never(code).then(|| reason(&counts[code], errors.get(&code))),
    };
    Stats { by_f: seen.into_iter().map(line).collect() }
}

/// Why no operation of a function succeeded: how they ended instead, and what they most often say.
fn reason(counts: &[u64; 4], errors: Option<&HashMap<String, u64>>) -> String {
    let ends =
        [(Status::Fail, "failed"), (Status::Info, "ended with an unknown outcome"), (Status::Pending, "never ended")];
    let ends: Vec<String> = ends
        .iter()
        .filter(|(status, _)| counts[*status as usize] > 0)
        .map(|(status, how)| format!("{} {how}", counts[*status as usize]))
        .collect();
    let most = errors.and_then(|classes| classes.iter().max_by_key(|&(class, n)| (*n, std::cmp::Reverse(class))));
    match most {
        Some((class, n)) => format!("{}; most often {class} ({n})", ends.join(", ")),
        None => format!("{}; no operation says why", ends.join(", ")),
    }
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
        let line = |f: &str, counts, never_ok| FunctionCounts { f: Some(f.into()), counts, never_ok };
        let never = "1 ended with an unknown outcome; no operation says why".to_string();
        assert_eq!(stats.by_f, [line("read", [1, 0, 0, 1], None), line("write", [0, 0, 1, 0], Some(never))]);
        assert_eq!(stats.never_ok().map(|f| f.f.as_deref()).collect::<Vec<_>>(), [Some("write")]);
    }

    #[test]
    fn a_function_without_an_acknowledgement_is_told_with_what_its_operations_most_often_say() {
        let text = br#"
            {:type :invoke, :process 0, :f :cas, :value 1} {:type :fail, :process 0, :f :cas, :value 1, :error [:refused "n1"]}
            {:type :invoke, :process 0, :f :cas, :value 1} {:type :info, :process 0, :f :cas, :value 1, :error :timeout}
            {:type :invoke, :process 1, :f :cas, :value 1} {:type :fail, :process 1, :f :cas, :value 1, :error [:refused "n2"]}
        "#;
        let h = elench_formats::open::open_bytes(text, &Default::default()).unwrap();
        let told = stats(&h).by_f[0].never_ok.clone();
        assert_eq!(told.as_deref(), Some("2 failed, 1 ended with an unknown outcome; most often :refused (2)"));
    }

    /// `stats-test` of the reference, with invocations. The reference calls it invalid; it proves nothing wrong, so it is told and
    /// makes no verdict.
    #[test]
    fn the_references_case_of_a_function_without_an_acknowledgement_is_described() {
        let text = "invoke 1 foo / ok 1 / invoke 2 foo / fail 2 / invoke 3 bar / info 3 / invoke 4 bar / fail 4 / invoke 5 bar / fail 5";
        let h = history(text).unwrap();
        let stats = stats(&h);
        assert_eq!(stats.never_ok().map(|f| f.f.as_deref()).collect::<Vec<_>>(), [Some("bar")]);
    }
}
