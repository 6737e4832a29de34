//! How many operations a second are generated? One line a workload: `gen_speed [OPS]`.

use std::time::Instant;

use elench::generate::{GenOptions, Isolation, Workload, generate};

fn main() {
    let ops = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(3_000_000);
    for workload in Workload::ALL {
        report(workload.name(), &GenOptions { ops, ..GenOptions::new(workload) });
    }
    let snapshot = GenOptions { ops, isolation: Isolation::Snapshot, ..GenOptions::new(Workload::ListAppend) };
    report("list-append, snapshot", &snapshot);
    let many = GenOptions {
        ops,
        clients: 1000,
        keys: 100_000,
        skew: 1.0,
        independent: true,
        info: 0.001,
        fail: 0.05,
        ..GenOptions::new(Workload::Register)
    };
    report("register, 1000 clients, 100000 skewed keys", &many);
}

fn report(what: &str, options: &GenOptions) {
    let start = Instant::now();
    match generate(options, &mut |_| Ok(())) {
        Err(e) => println!("{what}: {e}"),
        Ok(g) => {
            let rate = g.ops as f64 / start.elapsed().as_secs_f64() / 1e6;
            println!("{what}: {rate:.2} M operations a second, at most {} things held", g.peak_held);
        }
    }
}
