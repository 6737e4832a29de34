//! Checks a list-append history and says what was found, and how long it took: `list_append FILE [MORE…]`.

use std::time::Instant;

use elench_checkers::Budget;
use elench_checkers::txn::{Options, check_list_append, verify};
use elench_formats::open::{OpenOptions, open};

fn main() {
    for file in std::env::args().skip(1) {
        let history = match open(&file, &OpenOptions::default(), &|_, _| {}) {
            Ok(history) => history,
            Err(e) => {
                eprintln!("{e}");
                continue;
            }
        };
        let (start, cpu) = (Instant::now(), cpu());
        let result = check_list_append(&history, &Options::default(), &Budget::unlimited());
        println!("{file}: {:.1?}, {:.0} ms of CPU, {:?}", start.elapsed(), 1000.0 * (self::cpu() - cpu), result.sizes);
        for (kind, finding) in &result.findings {
            println!("  {kind}: {}", finding.count);
            for example in finding.examples.iter().take(1) {
                println!("    {}", example.text());
            }
        }
        if let Some(order) = &result.order {
            println!("  valid; its order of {}: {:?}", order.len(), verify::order(&history, order, true));
        }
    }
}

/// Seconds of CPU that this process has used.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let own = stat.split(' ').next().and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0);
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of = |dir: std::fs::DirEntry| std::fs::read_to_string(dir.path().join("schedstat")).ok();
    let all: f64 = tasks.filter_map(of).filter_map(|s| s.split(' ').next()?.parse::<f64>().ok()).sum();
    own.max(all) / 1e9
}
