//! How fast is a `test.jepsen` read? `cargo run --release -p elench-formats --example jepsen_speed -- FILE [SECONDS]`

use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("name a test.jepsen")?;
    let seconds: f64 = args.next().map_or(Ok(2.0), |s| s.parse())?;
    let bytes = std::fs::read(&path)?;
    let (start, mut rounds, mut events) = (Instant::now(), 0u32, 0);
    let mut best = Duration::MAX;
    while start.elapsed().as_secs_f64() < seconds {
        let round = Instant::now();
        events = elench_formats::jepsen::read(&bytes, &mut |_| Ok(()))?.events;
        best = best.min(round.elapsed());
        rounds += 1;
    }
    let mean = start.elapsed().as_secs_f64() / f64::from(rounds);
    let speed = |seconds: f64| bytes.len() as f64 / 1e6 / seconds;
    println!("{path}: {} bytes, {events} events, {rounds} rounds", bytes.len());
    println!(
        "one thread: mean {:.0} MB/s, best {:.0} MB/s, best {:.1} M events/s",
        speed(mean),
        speed(best.as_secs_f64()),
        events as f64 / best.as_secs_f64() / 1e6
    );
    Ok(())
}
