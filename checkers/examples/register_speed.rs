//! How fast are rw-register histories checked? `register_speed TRANSACTIONS [KEYS [CLIENTS [broken]]]` makes a strictly serializable
//! one, with one lost update in the middle if it is to be broken, and checks it under each assumption; `register_speed FILE` checks that one.

use std::fmt::Write;
use std::time::Instant;

use elench_checkers::Budget;
use elench_checkers::txn::Options;
use elench_checkers::txn::register::{Assumptions, check_rw_register};
use elench_formats::open::{OpenOptions, open, open_bytes};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, or: u64| args.get(i).map_or(Ok(or), |a| a.parse::<u64>());
    let opened = match number(0, 100_000) {
        Err(_) => open(&args[0], &OpenOptions::default(), &|_, _| {}),
        Ok(count) => {
            let (keys, clients) = (number(1, count / 30 + 1).unwrap_or(1), number(2, 20).unwrap_or(20));
            let text = history(count, keys, clients, args.get(3).is_some_and(|a| a == "broken"));
            open_bytes(text.as_bytes(), &OpenOptions::default())
        }
    };
    let history = match opened {
        Ok(history) => history,
        Err(error) => return eprintln!("{error}"),
    };
    for bits in [0, 1, 2, 4, 7] {
        let assumptions = Assumptions {
            wfr_keys: bits & 1 != 0,
            sequential_keys: bits & 2 != 0,
            linearizable_keys: bits & 4 != 0,
            ..Assumptions::default()
        };
        let start = Instant::now();
        let result = check_rw_register(&history, &Options::default(), assumptions, &Budget::unlimited());
        let peak = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let peak = peak.lines().find(|l| l.starts_with("VmHWM")).unwrap_or("").to_string();
        let order = if result.order.is_some() { "with an order" } else { "without one" };
        let used = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let ticks: u64 = used.split(' ').skip(13).take(2).filter_map(|t| t.parse::<u64>().ok()).sum();
        println!(
            "{} ms of CPU since the start, {assumptions:?} {:?} {:?} {order} {:?} {peak}",
            ticks * 10,
            start.elapsed(),
            result.kinds(),
            result.sizes
        );
    }
}

/// Each transaction takes effect at once, at its completion's place in the order; reads return what is there.
fn history(count: u64, keys: u64, clients: u64, broken: bool) -> String {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut below = |n: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % n
    };
    let mut state = vec![0u64; keys as usize];
    let mut open: Vec<Option<String>> = vec![None; clients as usize];
    let (mut text, mut done, mut value) = (String::new(), 0, 0);
    while done < count {
        if broken && done == count / 2 {
            let read = if state[0] == 0 { "nil".into() } else { state[0].to_string() };
            let both = [(clients, value + 1), (clients + 1, value + 2)];
            for kind in ["invoke", "ok"] {
                for (client, value) in both {
                    let mops = format!("[:r 0 {read}][:w 0 {value}]");
                    let _ = writeln!(text, "{{:type :{kind}, :process {client}, :f :txn, :value [{mops}]}}");
                }
            }
            (value, done) = (value + 2, done + 2);
            state[0] = value;
        }
        let client = below(clients);
        let place = &mut open[client as usize];
        let written = match place.take() {
            Some(mops) => {
                done += 1;
                writeln!(text, "{{:type :ok, :process {client}, :f :txn, :value [{mops}]}}")
            }
            None => {
                let mut mops = String::new();
                for _ in 0..1 + below(4) {
                    let key = below(keys) as usize;
                    if below(2) == 0 {
                        value += 1;
                        state[key] = value;
                        let _ = write!(mops, "[:w {key} {value}]");
                    } else if state[key] == 0 {
                        let _ = write!(mops, "[:r {key} nil]");
                    } else {
                        let _ = write!(mops, "[:r {key} {}]", state[key]);
                    }
                }
                let line = writeln!(text, "{{:type :invoke, :process {client}, :f :txn, :value [{mops}]}}");
                *place = Some(mops);
                line
            }
        };
        debug_assert!(written.is_ok());
    }
    text
}
