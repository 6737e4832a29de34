//! Is an order found wherever there is one, and nowhere else?

use std::collections::HashSet;

use super::*;

/// Up to eight transactions on one or two keys, each of its own process; of some histories most writes are blind, or many ends
/// unknown. Each takes effect at once while it is open; then what one of every second history read may be another value of the key.
pub(super) fn crowd(random: &mut Random) -> Vec<Small> {
    let count = 3 + random.below(6) as usize;
    let mut txns: Vec<Small> = Vec::new();
    let (mut there, mut written, mut event) = ([0u64; 2], [0u64; 2], 0);
    let mut waiting: Vec<usize> = (0..count).collect();
    let (mut open, mut done) = (Vec::new(), Vec::new());
    let keys = [1, 2, 2, 2][random.below(4) as usize];
    let (longest, writes) = (2 + random.below(3), 1 + random.below(3));
    let unknown = [10, 10, 3][random.below(3) as usize];
    for process in 0..count {
        let mut mop = |_| (random.below(4) < writes, random.below(keys) as usize, 0);
        let mops = (0..longest).map(&mut mop).collect::<Vec<_>>();
        let mops = mops[..1 + random.below(longest) as usize].to_vec();
        let status = if random.below(unknown) == 0 { "info" } else { "ok" };
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

/// Does any order of all that were acknowledged, and of some that were not, explain all reads? None writes a key after one of a later
/// rank, where there are ranks.
pub(super) fn has_order(txns: &[Small], real_time: bool, ranks: Option<&[u32]>) -> bool {
    let mut seen = HashSet::new();
    let mut open = vec![(0u32, [0u64; 2], [0u32; 2])];
    while let Some((ran, state, highest)) = open.pop() {
        let waits = |&t: &usize| ran >> t & 1 == 0;
        let acknowledged = || (0..txns.len()).filter(waits).filter(|&t| txns[t].status == "ok");
        if acknowledged().next().is_none() {
            return true;
        }
        for t in (0..txns.len()).filter(waits) {
            if real_time && acknowledged().any(|other| txns[other].complete < txns[t].invoke) {
                continue;
            }
            let rank = ranks.map(|ranks| ranks[t]).filter(|&rank| rank != NONE);
            let writes = || txns[t].mops.iter().filter(|m| m.0).map(|m| m.1);
            if writes().any(|key| rank.is_some_and(|rank| rank < highest[key])) {
                continue;
            }
            let mut highest = highest;
            writes().for_each(|key| highest[key] = rank.unwrap_or(highest[key]));
            let next = applied(&txns[t], state).map(|state| (ran | 1 << t, state, highest));
            open.extend(next.filter(|&next| seen.insert(next)));
        }
    }
    false
}

/// What the search finds.
fn searched(history: &History, real_time: bool, ranks: Option<&[u32]>) -> Option<Vec<Txn>> {
    let mut arena = Arena::default();
    let txns = Txns::read(history, Workload::Register, &mut arena);
    let (entries, clock) = (Entries::new(&txns), Clock::new(&txns));
    let mut resolved = Resolved::new(&txns, &entries, &clock);
    let (keep, budget) = (Keep { real_time, process: false }, Budget::unlimited());
    match serial::order(Question { txns: &txns, clock: &clock, keep, ranks, budget: &budget }, &mut resolved) {
        Answer::Order(order) => Some(order),
        Answer::Refuted | Answer::Unknown => None,
    }
}

pub(super) fn seed_and_runs(usual: u64) -> (Random, u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let (seed, runs) = (number("ELENCH_SEED").unwrap_or(0xc0ffee), number("ELENCH_RUNS").unwrap_or(1));
    println!("ELENCH_SEED={seed}");
    (Random(seed.max(1)), runs * usual)
}

#[test]
fn among_eight_transactions_an_order_is_found_exactly_where_brute_force_finds_one() {
    let (mut random, runs) = seed_and_runs(3_000);
    let (mut ordered, mut unordered) = (0, 0);
    for round in 0..runs {
        let txns = crowd(&mut random);
        let history = recorded(&txns);
        // Mostly as they completed, by which few orders are ruled out; some of no rank.
        let claimed = |random: &mut Random, t: &Small| match random.below(4) {
            0 => NONE,
            _ => (t.complete as u64 + random.below(4)) as u32,
        };
        let ranks: Vec<u32> = txns.iter().map(|t| claimed(&mut random, t)).collect();
        let ranks = (round % 3 == 0).then_some(&ranks[..]);
        for real_time in [true, false] {
            let explained = has_order(&txns, real_time, ranks);
            let found = searched(&history, real_time, ranks);
            assert_eq!(found.is_some(), explained, "in real time: {real_time}, ranks: {ranks:?}, {txns:#?}");
            ordered += u32::from(explained);
            unordered += u32::from(!explained);
        }
    }
    eprintln!("{ordered} with an order, {unordered} without one");
    assert!(unordered > 100 && ordered > unordered);
}

#[test]
fn a_write_of_no_rank_does_not_hide_that_others_are_out_of_order() {
    let writes = |process: usize| Small {
        mops: vec![(true, 0, process as u64 + 1)],
        status: "ok",
        process,
        invoke: 2 * process,
        complete: 2 * process + 1,
    };
    let history = recorded(&[writes(0), writes(1), writes(2)]);
    assert!(searched(&history, true, Some(&[3, NONE, 5])).is_some());
    assert!(searched(&history, true, Some(&[5, NONE, 3])).is_none());
    assert!(searched(&history, false, Some(&[5, NONE, 3])).is_some());
}

/// A strictly serializable history as long runs are: keys of which each is used half as often as the one before, some transactions
/// that fail, and some whose end is unknown, and that took effect or did not.
fn busy(random: &mut Random, count: u64, clients: u64, keys: u64) -> History {
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
                    (random.below(2) == 0, ((random.below(1 << 11) + 1).trailing_zeros() as u64 % keys) as usize, value)
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
    let (mut random, runs) = seed_and_runs(28);
    let mut shown = 0;
    for round in 0..runs {
        let clients = [3, 8, 15, 20, 30, 40, 100][round as usize % 7];
        let history = busy(&mut random, 1_000, clients, [12, 12, 3, 1][round as usize % 4]);
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
