//! How fast is a `test.jepsen` read? `cargo run --release -p elench-formats --example jepsen_speed -- FILE [SECONDS]`

use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("name a test.jepsen")?;
    let seconds: f64 = args.next().map_or(Ok(2.0), |s| s.parse())?;
    let bytes = std::fs::read(&path)?;
    let (start, before, mut rounds, mut events) = (Instant::now(), processor_seconds(), 0u32, 0);
    let mut best = Duration::MAX;
    while start.elapsed().as_secs_f64() < seconds {
        let round = Instant::now();
        events = elench_formats::jepsen::read(&bytes, &mut |_| Ok(()))?.events;
        best = best.min(round.elapsed());
        rounds += 1;
    }
    let mean = (processor_seconds() - before) / f64::from(rounds);
    let speed = |seconds: f64| bytes.len() as f64 / 1e6 / seconds;
    println!("{path}: {} bytes, {events} events, {rounds} rounds", bytes.len());
    println!(
        "one thread: mean {:.0} MB a second of processor time, best by the clock {:.0} MB/s, {:.1} M events/s",
        speed(mean),
        speed(best.as_secs_f64()),
        events as f64 / best.as_secs_f64() / 1e6
    );
    Ok(())
}

/// Processor time of this process as Linux counts it: in hundredths of a second.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|n| n.parse::<f64>().ok()).sum::<f64>() / 100.0
}
