//! How fast are EDN histories read? `edn_speed THREADS FILE…` reads each file, plain, from memory, several times and
//! prints megabytes per CPU second, megabytes per second and events per second of the fastest time.

use std::time::{Duration, Instant};

use elench_formats::edn::events;

const ROUNDS: usize = 7;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let threads: usize = arguments.next().ok_or("usage: edn_speed THREADS FILE…")?.parse()?;
    for file in arguments {
        let bytes = std::fs::read(&file)?;
        let mut best = (Duration::MAX, Duration::MAX, 0);
        for _ in 0..ROUNDS {
            let (cpu, wall, mut count) = (cpu_time(), Instant::now(), 0);
            events::read(&mut &bytes[..], threads, &mut |batch| {
                count += batch.len();
                Ok(())
            })?;
            best = best.min((cpu_time() - cpu, wall.elapsed(), count));
        }
        let (cpu, wall, count) = best;
        let megabytes = bytes.len() as f64 / 1e6;
        println!(
            "{file}: {megabytes:.1} MB, {:.0} MB per CPU second, {:.0} MB/s, {:.1} million events/s",
            megabytes / cpu.as_secs_f64(),
            megabytes / wall.as_secs_f64(),
            count as f64 / 1e6 / wall.as_secs_f64(),
        );
    }
    Ok(())
}

/// CPU time of all threads, from the sum of what the kernel ran them (Linux), else zero.
fn cpu_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let nanos = tasks.filter_map(|task| {
        let stat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        stat.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}
