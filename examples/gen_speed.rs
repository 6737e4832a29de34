//! How many operations a second of processor time are generated? One line a workload: `gen_speed [OPS]`.

use std::time::Instant;

use elench_generate::{GenOptions, Isolation, Workload, generate};

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
    let (wall, cpu) = (Instant::now(), cpu_seconds());
    match generate(options, &mut |_| Ok(())) {
        Err(e) => println!("{what}: {e}"),
        Ok(g) => {
            let rate = |seconds: f64| g.ops as f64 / seconds / 1e6;
            let (wall, cpu) = (wall.elapsed().as_secs_f64(), cpu_seconds().zip(cpu).map(|(end, start)| end - start));
            let cpu = cpu.map_or("?".into(), |s| format!("{:.2}", rate(s)));
            println!(
                "{what}: {cpu} M a CPU second ({:.2} M by the wall clock), {} things held",
                rate(wall),
                g.peak_held
            );
        }
    }
}

/// Time that this thread was on a processor, where the system says so: others may share the machine.
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    stat.split(' ').next()?.parse::<f64>().ok().map(|ns| ns / 1e9)
}
