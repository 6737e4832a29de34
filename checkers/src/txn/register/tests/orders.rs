//! Is an order found wherever there is one, and nowhere else?

use std::collections::HashSet;

use super::*;

/// Up to eight transactions on two keys, each of its own process. Each takes effect at once while it is open; then what one of
/// every second history read may be another value of the key.
fn crowd(random: &mut Random) -> Vec<Small> {
    let count = 3 + random.below(6) as usize;
    let mut txns: Vec<Small> = Vec::new();
    let (mut there, mut written, mut event) = ([0u64; 2], [0u64; 2], 0);
    let mut waiting: Vec<usize> = (0..count).collect();
    let (mut open, mut done) = (Vec::new(), Vec::new());
    for process in 0..count {
        let mops = (0..1 + random.below(3)).map(|_| (random.below(2) == 0, random.below(2) as usize, 0)).collect();
        let status = if random.below(10) == 0 { "info" } else { "ok" };
        txns.push(Small { mops, status, process, invoke: 0, complete: 0 });
    }
    let lazy = 1 + random.below(3);
    while !waiting.is_empty() || !open.is_empty() || !done.is_empty() {
        let action = random.below(3 + lazy);
        if action >= 2 && !waiting.is_empty() {
            let txn = waiting.remove(0);
            txns[txn].invoke = event;
            open.push(txn);
        } else if action == 0 && !open.is_empty() {
            let txn: usize = open.swap_remove(random.below(open.len() as u64) as usize);
            for (write, key, value) in &mut txns[txn].mops {
                written[*key] += u64::from(*write);
                there[*key] = if *write { written[*key] } else { there[*key] };
                *value = there[*key];
            }
            done.push(txn);
        } else if action == 1 && !done.is_empty() {
            let txn: usize = done.swap_remove(random.below(done.len() as u64) as usize);
            txns[txn].complete = event;
        }
        event += 1;
    }
    if random.below(2) == 0 {
        let reads: Vec<(usize, usize)> = (0..count)
            .flat_map(|t| (0..txns[t].mops.len()).map(move |m| (t, m)))
            .filter(|&(t, m)| !txns[t].mops[m].0)
            .collect();
        if !reads.is_empty() {
            let (t, m) = reads[random.below(reads.len() as u64) as usize];
            let key = txns[t].mops[m].1;
            txns[t].mops[m].2 = random.below(written[key] + 1);
        }
    }
    txns
}

/// Does any order of all that were acknowledged, and of some that were not, explain all reads?
fn has_order(txns: &[Small], real_time: bool) -> bool {
    let mut seen = HashSet::new();
    let mut open = vec![(0u32, [0u64; 2])];
    while let Some((ran, state)) = open.pop() {
        let waits = |&t: &usize| ran >> t & 1 == 0;
        let acknowledged = || (0..txns.len()).filter(waits).filter(|&t| txns[t].status == "ok");
        if acknowledged().next().is_none() {
            return true;
        }
        for t in (0..txns.len()).filter(waits) {
            if real_time && acknowledged().any(|other| txns[other].complete < txns[t].invoke) {
                continue;
            }
            let next = applied(&txns[t], state).map(|state| (ran | 1 << t, state));
            open.extend(next.filter(|&next| seen.insert(next)));
        }
    }
    false
}

/// What the search finds.
fn searched(history: &History, real_time: bool) -> Option<Vec<Txn>> {
    let mut arena = Arena::default();
    let txns = Txns::read(history, Workload::Register, &mut arena);
    let (entries, clock) = (Entries::new(&txns), Clock::new(&txns));
    let mut resolved = Resolved::new(&txns, &entries, &clock);
    let (keep, budget) = (Keep { real_time, process: false }, Budget::unlimited());
    serial::order(Question { txns: &txns, clock: &clock, keep, ranks: None, budget: &budget }, &mut resolved)
}

fn seed_and_runs(usual: u64) -> (Random, u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let (seed, runs) = (number("ELENCH_SEED").unwrap_or(0xc0ffee), number("ELENCH_RUNS").unwrap_or(1));
    println!("ELENCH_SEED={seed}");
    (Random(seed.max(1)), runs * usual)
}

#[test]
fn among_eight_transactions_an_order_is_found_exactly_where_brute_force_finds_one() {
    let (mut random, runs) = seed_and_runs(3_000);
    let (mut ordered, mut unordered) = (0, 0);
    for _ in 0..runs {
        let txns = crowd(&mut random);
        let history = recorded(&txns);
        for real_time in [true, false] {
            let explained = has_order(&txns, real_time);
            let found = searched(&history, real_time);
            assert_eq!(found.is_some(), explained, "in real time: {real_time}, {txns:#?}");
            ordered += u32::from(explained);
            unordered += u32::from(!explained);
        }
    }
    eprintln!("{ordered} with an order, {unordered} without one");
    assert!(unordered > 100 && ordered > unordered);
}

/// A strictly serializable history as long runs are: keys of which each is used half as often as the one before, some transactions
/// that fail, and some whose end is unknown, and that took effect or did not.
fn busy(random: &mut Random, count: u64, clients: u64) -> History {
    struct Client {
        process: u64,
        mops: Mops,
        done: bool,
    }
    let mut open: Vec<Option<Client>> = (0..clients).map(|_| None).collect();
    let mut processes: Vec<u64> = (0..clients).collect();
    let mut there = [0u64; 12];
    let (mut text, mut value, mut invoked, mut next) = (String::new(), 0, 0, clients);
    let write = |text: &mut String, kind: &str, client: &Client| {
        write!(text, "{{:type :{kind}, :process {}, :f :txn, :value [", client.process).unwrap();
        for &(is_write, key, value) in &client.mops {
            match (is_write, value) {
                (false, 0) => write!(text, "[:r {key} nil]").unwrap(),
                (false, _) => write!(text, "[:r {key} {value}]").unwrap(),
                (true, _) => write!(text, "[:w {key} {value}]").unwrap(),
            }
        }
        text.push_str("]}\n");
    };
    while invoked < count || open.iter().any(Option::is_some) {
        let at = random.below(clients) as usize;
        match &mut open[at] {
            place @ None if invoked < count => {
                let mops = (0..1 + random.below(4)).map(|_| {
                    value += 1;
                    (random.below(2) == 0, (random.below(1 << 11) + 1).trailing_zeros() as usize, value)
                });
                let client = Client { process: processes[at], mops: mops.collect(), done: false };
                write(&mut text, "invoke", &client);
                *place = Some(client);
                invoked += 1;
            }
            None => {}
            Some(client) if !client.done => {
                let fate = random.below(200);
                client.done = true;
                if fate > 4 {
                    for (write, key, value) in client.mops.iter_mut() {
                        match write {
                            true => there[*key] = *value,
                            false => *value = there[*key],
                        }
                    }
                }
                if fate < 6 {
                    write(&mut text, if fate < 4 { "fail" } else { "info" }, client);
                    open[at] = None;
                    if fate >= 4 {
                        (processes[at], next) = (next, next + 1);
                    }
                }
            }
            Some(client) => {
                write(&mut text, "ok", client);
                open[at] = None;
            }
        }
    }
    open_bytes(text.as_bytes(), &OpenOptions::default()).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

#[test]
fn a_long_strictly_serializable_history_is_shown_to_be_one_by_an_order() {
    let (mut random, runs) = seed_and_runs(12);
    let mut shown = 0;
    for round in 0..runs {
        let clients = [3, 8, 15, 20, 30, 40, 100][round as usize % 7];
        let history = busy(&mut random, 1_000, clients);
        let result = check_rw_register(&history, &Options::default(), Assumptions::default(), &Budget::unlimited());
        assert_eq!(result.kinds(), AnomalySet::EMPTY, "{round}");
        holds(&history, Assumptions::default(), None, true, &result);
        shown += u64::from(result.order.is_some());
        eprintln!("{round}: {clients} clients, {}", if result.order.is_some() { "an order" } else { "none" });
    }
    eprintln!("{shown} of {runs} shown by an order");
    assert!(shown * 10 >= runs * 9);
}

#[test]
fn a_cycle_through_long_processes_has_a_step_for_each() {
    let mut txns = vec!["0 ok [[:r x 1]]"];
    txns.extend(["0 ok [[:r q nil]]"; 60]);
    txns.extend(["0 ok [[:w z 1]]", "1 ok [[:r z 1]]"]);
    txns.extend(["1 ok [[:r q nil]]"; 60]);
    txns.push("1 ok [[:w x 1]]");
    let history = sequence(&txns);
    let options = Options { real_time: false, ..Options::default() };
    let result = check_rw_register(&history, &options, Assumptions::default(), &Budget::unlimited());
    holds(&history, Assumptions::default(), None, false, &result);
    let Explained::Cycle(cycle) = &result.findings[&Anomaly::G1cProcess].examples[0] else { panic!("no cycle") };
    assert_eq!(cycle.steps.len(), 4, "{}", result.findings[&Anomaly::G1cProcess].examples[0].text());
}

#[test]
fn a_g0_in_doubt_hides_no_g0_that_needs_the_order_of_a_process() {
    // The first, which may have been rolled back, and the second overwrite each other; the second, third and fourth make a cycle by themselves.
    let history = sequence(&[
        "5 info [[:w a 1][:w b 2]]",
        "0 ok [[:w x 2][:w a 2][:w b 1]]",
        "0 ok [[:w y 1]]",
        "1 ok [[:w y 2][:w x 1]]",
        "2 ok [[:r a 1]]",
        "2 ok [[:r a 2]]",
        "2 ok [[:r b 1]]",
        "2 ok [[:r b 2]]",
        "2 ok [[:r x 1]]",
        "2 ok [[:r x 2]]",
        "2 ok [[:r y 1]]",
        "2 ok [[:r y 2]]",
    ]);
    let with = Assumptions { sequential_keys: true, ..Assumptions::default() };
    let options = Options { real_time: false, ..Options::default() };
    let result = check_rw_register(&history, &options, with, &Budget::unlimited());
    holds(&history, with, None, false, &result);
    assert!(result.doubtful.contains(Anomaly::G0), "{:?}", result.kinds());
    let under = |name| result.outcome(Demand::models(&[Model::from_name(name).unwrap()]));
    assert!(under("strong-session-PL-1").is_invalid());
    assert!(!under("read-uncommitted").is_invalid() && !under("read-uncommitted").is_valid());
}
