//! Valid histories from a simulated broker, and what becomes of them when they are spoiled.
//!
//! The broker appends a transaction's messages when it commits, with a marker that takes an offset, or only the marker when it
//! aborts; consumers poll runs of what is committed from where they are, and go back when their transactions abort; groups are rebalanced.
//! Clients learn offsets, do not learn them, or hear of nothing at all.

use super::*;
use crate::outcome::OpId;

#[derive(Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// A micro-operation, as completed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Mop {
    Send(usize, Option<i64>, i64),
    /// By partition, offsets and values.
    Poll(Vec<(usize, Vec<(i64, i64)>)>),
}

#[derive(Clone, Debug)]
pub(super) enum Did {
    Mops(Vec<Mop>),
    Assign(Vec<usize>),
    /// Assigns, and begins at the beginning.
    Seek(Vec<usize>),
    Subscribe(Vec<usize>),
    /// Throws its client away.
    Crash,
}

/// In place of a partition that moved: nobody says which.
pub(super) const SOME: usize = usize::MAX;

/// In place of an end: there is none.
pub(super) const NEVER: usize = usize::MAX;

#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) process: i64,
    pub(super) did: Did,
    pub(super) status: Status,
    pub(super) rebalanced: Vec<usize>,
    /// Places on a line of events.
    pub(super) invoke: usize,
    pub(super) complete: usize,
}

impl Op {
    pub(super) fn mops(&self) -> &[Mop] {
        if let Did::Mops(mops) = &self.did { mops } else { &[] }
    }

    fn mops_mut(&mut self) -> &mut Vec<Mop> {
        match &mut self.did {
            Did::Mops(mops) => mops,
            _ => unreachable!("asked only of sends and polls"),
        }
    }

    fn f(&self) -> &'static str {
        match &self.did {
            Did::Assign(_) | Did::Seek(_) => "assign",
            Did::Subscribe(_) => "subscribe",
            Did::Crash => "crash",
            Did::Mops(mops) if mops.iter().all(|m| matches!(m, Mop::Send(..))) => "send",
            Did::Mops(mops) if mops.iter().all(|m| matches!(m, Mop::Poll(_))) => "poll",
            Did::Mops(_) => "txn",
        }
    }

    fn value(&self, completed: bool) -> String {
        let mut out = String::from("[");
        match &self.did {
            Did::Crash => {}
            Did::Assign(keys) | Did::Seek(keys) | Did::Subscribe(keys) => {
                keys.iter().for_each(|k| out.push_str(&format!("{k} ")))
            }
            Did::Mops(mops) => mops.iter().for_each(|mop| match mop {
                Mop::Send(k, Some(offset), v) if completed => out.push_str(&format!("[:send {k} [{offset} {v}]] ")),
                Mop::Send(k, _, v) => out.push_str(&format!("[:send {k} {v}] ")),
                Mop::Poll(all) if completed => {
                    out.push_str("[:poll {");
                    for (k, messages) in all {
                        let pairs: String = messages.iter().map(|(o, v)| format!("[{o} {v}]")).collect();
                        out.push_str(&format!("{k} [{pairs}] "));
                    }
                    out.push_str("}] ");
                }
                Mop::Poll(_) => out.push_str("[:poll] "),
            }),
        }
        out + "]"
    }
}

pub(super) fn text(ops: &[Op]) -> String {
    let mut events: Vec<(usize, String)> = Vec::new();
    for op in ops {
        let (f, p) = (op.f(), op.process);
        let (sent, got) = (op.value(false), op.value(true));
        let seek = if matches!(op.did, Did::Seek(_)) { ":seek-to-beginning? true " } else { "" };
        events.push((
            op.invoke,
            format!("{{:type :invoke :process {p} :time {} :f :{f} :value {sent} {seek}}}\n", op.invoke),
        ));
        if op.complete == NEVER {
            continue;
        }
        let status = match op.status {
            Status::Ok => "ok",
            Status::Fail => "fail",
            Status::Info => "info",
        };
        let log = match op.rebalanced[..] {
            [] => String::new(),
            _ if op.rebalanced.contains(&SOME) => ":rebalance-log [{:type :lost}]".into(),
            _ => format!(":rebalance-log [{{:keys {:?}}}]", op.rebalanced),
        };
        events.push((
            op.complete,
            format!("{{:type :{status} :process {p} :time {} :f :{f} :value {got} {seek}{log}}}\n", op.complete),
        ));
    }
    events.sort();
    events.into_iter().map(|(_, text)| text).collect()
}

pub(super) fn history(ops: &[Op]) -> History {
    edn(&text(ops))
}

/// The event index of each operation's invocation.
pub(super) fn ids(ops: &[Op]) -> Vec<OpId> {
    let mut events: Vec<usize> = ops.iter().flat_map(|op| [op.invoke, op.complete]).collect();
    events.sort_unstable();
    ops.iter().map(|op| OpId(events.binary_search(&op.invoke).unwrap() as u64)).collect()
}

struct Consumer {
    subscribed: bool,
    keys: Vec<usize>,
    at: Vec<usize>,
    process: i64,
    free_at: usize,
}

/// The broker's partitions: offsets and values of what is committed, in order.
struct Broker {
    logs: Vec<Vec<(i64, i64)>>,
    next: Vec<i64>,
    values: i64,
    /// So many of the first messages of each partition have been polled by operations that were acknowledged.
    polled: Vec<usize>,
}

impl Broker {
    fn commit(&mut self, random: &mut Random, sends: &[(usize, i64)], commits: bool) -> Vec<i64> {
        let mut offsets = Vec::new();
        let mut markers = Vec::new();
        for &(k, v) in sends {
            let offset = self.next[k];
            self.next[k] += 1;
            offsets.push(offset);
            if commits {
                self.logs[k].push((offset, v));
            }
            markers.push(k);
        }
        markers.sort_unstable();
        markers.dedup();
        for k in markers {
            self.next[k] += if random.one_in(9) { 1_000_000_000 } else { random.below(3) as i64 };
        }
        offsets
    }
}

/// Operations that a correct broker may give, each taking effect at one point between its ends.
pub(super) fn valid(random: &mut Random, count: usize) -> Vec<Op> {
    let partitions = 1 + random.below(3);
    let clients = 1 + random.below(4);
    let mut broker = Broker {
        logs: vec![Vec::new(); partitions],
        next: vec![0; partitions],
        values: 0,
        polled: vec![0; partitions],
    };
    let assigns_only = random.below(2) == 0;
    let mut consumers: Vec<Consumer> = (0..clients as i64)
        .map(|process| Consumer {
            subscribed: false,
            keys: (0..partitions).filter(|_| random.below(4) > 0).collect(),
            at: vec![0; partitions],
            process,
            free_at: 0,
        })
        .collect();
    let mut ops: Vec<Op> = Vec::new();
    for i in 0..count {
        // Each takes effect later than the one before; an operation reaches some way before and behind.
        let effect = 1000 * (i + 1);
        let who = random.below(clients);
        let early = random.below(3000).min(effect - 1);
        let invoke = (effect - early).max(consumers[who].free_at + 1);
        if invoke >= effect {
            continue;
        }
        let complete = effect + 1 + random.below(3000);
        let status = match random.below(8) {
            0 => Status::Fail,
            1 => Status::Info,
            _ => Status::Ok,
        };
        let mut op = Op {
            process: consumers[who].process,
            did: Did::Mops(vec![]),
            status,
            rebalanced: vec![],
            invoke,
            complete,
        };
        let happens = match status {
            Status::Ok => true,
            Status::Fail => false,
            Status::Info => random.below(2) == 0,
        };
        if random.one_in(6) || consumers[who].keys.is_empty() && random.one_in(2) {
            assign(random, &mut consumers[who], &mut op, happens, partitions, assigns_only);
        } else {
            transact(random, &mut broker, &mut consumers[who], &mut op, happens);
        }
        consumers[who].free_at = complete;
        if op.status == Status::Info {
            // A crashed client is replaced.
            let process = consumers[who].process + clients as i64;
            let free_at = consumers[who].free_at;
            let keys = (0..partitions).filter(|_| random.below(4) > 0).collect();
            consumers[who] = Consumer { subscribed: false, keys, at: vec![0; partitions], process, free_at };
        }
        ops.push(op);
    }
    // Ends of events are told apart.
    let mut places: Vec<(usize, usize, bool)> = Vec::new();
    for (i, op) in ops.iter().enumerate() {
        places.push((op.invoke, i, false));
        places.push((op.complete, i, true));
    }
    places.sort_unstable();
    for (place, (_, i, end)) in places.into_iter().enumerate() {
        if end { ops[i].complete = place } else { ops[i].invoke = place }
    }
    ops
}

fn assign(random: &mut Random, consumer: &mut Consumer, op: &mut Op, happens: bool, partitions: usize, assigns: bool) {
    let keys: Vec<usize> = (0..partitions).filter(|_| random.below(3) > 0).collect();
    op.did = if assigns || random.one_in(2) { Did::Assign(keys.clone()) } else { Did::Subscribe(keys.clone()) };
    if happens {
        consumer.subscribed = matches!(op.did, Did::Subscribe(_));
        for k in 0..partitions {
            // A partition that is left is begun anew; one given by a group may stand anywhere.
            if !keys.contains(&k) || consumer.subscribed && random.one_in(3) {
                consumer.at[k] = 0;
            }
        }
        consumer.keys = keys;
    }
}

fn transact(random: &mut Random, broker: &mut Broker, consumer: &mut Consumer, op: &mut Op, happens: bool) {
    let (polls, sends) = [(true, false), (false, true), (true, true)][random.below(3)];
    let mut written: Vec<(usize, i64)> = Vec::new();
    let mut mops = Vec::new();
    let mut at = consumer.at.clone();
    for _ in 0..1 + random.below(3) {
        if polls && (!sends || random.one_in(2)) {
            if consumer.subscribed && random.one_in(6) && !consumer.keys.is_empty() {
                let k = consumer.keys[random.below(consumer.keys.len())];
                // A group goes on at what some consumer of it committed.
                at[k] = random.below(broker.polled[k] + 1);
                op.rebalanced.push(k);
            }
            let mut all = Vec::new();
            for &k in &consumer.keys {
                let log = &broker.logs[k];
                let take = random.below(4).min(log.len() - at[k]);
                if take > 0 || random.one_in(4) {
                    all.push((k, log[at[k]..at[k] + take].to_vec()));
                }
                at[k] += take;
            }
            mops.push(Mop::Poll(all));
        } else {
            let k = random.below(broker.logs.len());
            broker.values += 1;
            written.push((k, broker.values));
            mops.push(Mop::Send(k, None, broker.values));
        }
    }
    let offsets = broker.commit(random, &written, happens);
    let mut told = offsets.into_iter();
    let tells = op.status != Status::Info || random.one_in(2);
    for mop in &mut mops {
        if let Mop::Send(_, offset, _) = mop {
            *offset = told.next().filter(|_| tells && !random.one_in(8));
        }
    }
    if op.status == Status::Ok {
        for (polled, &at) in broker.polled.iter_mut().zip(&at) {
            *polled = at.max(*polled);
        }
        consumer.at = at;
    }
    op.did = Did::Mops(mops);
}

/// The first seed, and how many: so many times as usual as ELENCH_RUNS says.
pub(super) fn runs(usual: u64) -> (u64, u64) {
    (crate::linear::tests::seed(), usual * crate::linear::tests::more())
}

pub(super) fn checked(ops: &[Op]) -> Findings {
    check(&history(ops), &Options { examples: 1000, ..Options::default() }, &Budget::unlimited())
}

#[test]
fn no_history_of_a_correct_broker_is_accused() {
    let (first, count) = runs(2_500);
    let (mut valid_ones, mut skips, mut messages) = (0, 0, 0);
    for seed in (0..count).map(|i| first.wrapping_add(i)) {
        let ops = valid(&mut Random::new(seed + 1), 6 + seed as usize % 20);
        let found = checked(&ops);
        let wrong: Vec<_> = found.violations().collect();
        assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}\n{}", text(&ops));
        valid_ones += u64::from(found.is_valid());
        skips += found.count("poll-skip") + found.count("nonmonotonic-poll");
        messages += ops.iter().flat_map(|op| op.mops()).filter(|m| matches!(m, Mop::Send(..))).count();
    }
    println!("{valid_ones} of {count} valid, {skips} allowed skips, {messages} messages");
    assert!(valid_ones > count / 4 && skips > 0, "{valid_ones} {skips}");
}

/// Spoils a valid history so that one kind must be found; gives the operation that bears it. None where this history has no place for it.
fn spoil(kind: &str, random: &mut Random, ops: &mut [Op]) -> Option<usize> {
    let n = ops.len();
    let from = random.below(n);
    let places = (0..n).map(|i| (i + from) % n).collect::<Vec<_>>();
    let subscribed: Vec<bool> = places
        .iter()
        .map(|&i| ops.iter().any(|o| o.process == ops[i].process && matches!(o.did, Did::Subscribe(_))))
        .collect();
    let fresh = 1_000_000;
    for (&i, &subscribed) in places.iter().zip(&subscribed) {
        let (ok, moved) = (ops[i].status == Status::Ok, !ops[i].rebalanced.is_empty());
        let Did::Mops(_) = &ops[i].did else { continue };
        match kind {
            "inconsistent-offsets" => {
                for mop in ops[i].mops_mut() {
                    if let Mop::Poll(all) = mop
                        && let Some((_, v)) = all.iter_mut().flat_map(|(_, m)| m).next()
                    {
                        *v = fresh;
                        // The true value must be known of that offset by another operation.
                        return known_elsewhere(ops, i).then_some(i);
                    }
                }
            }
            "duplicate" => {
                for mop in ops[i].mops_mut() {
                    if let Mop::Poll(all) = mop
                        && let Some((_, messages)) = all.iter_mut().find(|(_, m)| !m.is_empty())
                        && let Some(&(o, v)) = messages.last()
                    {
                        messages.push((o + 5_000_000_000_000, v));
                        return Some(i);
                    }
                }
            }
            "lost-write" if ok => {
                let sent = ops[i]
                    .mops()
                    .iter()
                    .filter_map(|m| match m {
                        Mop::Send(k, Some(o), v) => Some((*k, *o, *v)),
                        _ => None,
                    })
                    .collect::<Vec<_>>()
                    .first()
                    .copied();
                let Some(top) = sent else { continue };
                let beyond = |op: &Op| {
                    op.status == Status::Ok && op.mops().iter().any(|m| matches!(m, Mop::Poll(all) if all.iter().any(|(k, m)| *k == top.0 && m.iter().any(|(o, _)| *o > top.1))))
                };
                if ops.iter().any(beyond) {
                    for op in ops.iter_mut() {
                        if let Did::Mops(mops) = &mut op.did {
                            for mop in mops {
                                if let Mop::Poll(all) = mop {
                                    all.iter_mut().for_each(|(k, m)| m.retain(|(_, v)| *k != top.0 || *v != top.2));
                                }
                            }
                        }
                    }
                    return Some(i);
                }
            }
            "G1a" if ok => {
                let writer = ops.iter().position(|op| op.status == Status::Fail && op.f() == "send")?;
                let Mop::Send(k, _, v) = ops[writer].mops()[0] else { return None };
                ops[i].mops_mut().push(Mop::Poll(vec![(k, vec![(7_000_000_000_000, v)])]));
                return Some(i);
            }
            "unexpected" if ok => {
                let sent = ops.iter().any(|op| {
                    op.status == Status::Ok && op.mops().iter().any(|m| matches!(m, Mop::Send(0, Some(_), _)))
                });
                if sent {
                    ops[i].mops_mut().push(Mop::Poll(vec![(0, vec![(7_000_000_000_000, fresh)])]));
                    return Some(i);
                }
            }
            "precommitted-read" => {
                let sent =
                    ops[i].mops().iter().find_map(|m| if let Mop::Send(k, _, v) = m { Some((*k, *v)) } else { None });
                if let Some((k, v)) = sent {
                    ops[i].mops_mut().push(Mop::Poll(vec![(k, vec![(8_000_000_000_000, v)])]));
                    return Some(i);
                }
            }
            "int-nonmonotonic-poll" if !moved => {
                for mop in ops[i].mops_mut() {
                    if let Mop::Poll(all) = mop
                        && let Some((_, messages)) = all.iter_mut().find(|(_, m)| m.len() > 1)
                    {
                        messages.reverse();
                        return Some(i);
                    }
                }
            }
            "int-poll-skip" if !moved => {
                for mop in ops[i].mops_mut() {
                    if let Mop::Poll(all) = mop
                        && let Some((k, messages)) = all.iter_mut().find(|(_, m)| m.len() > 2)
                    {
                        let (k, gone) = (*k, messages.remove(1));
                        return stands(ops, k, gone.0).then_some(i);
                    }
                }
            }
            "nonmonotonic-poll" | "poll-skip" if !subscribed => {
                // The first message of a later poll again, or taken away.
                let Some(before) = previous(ops, i) else { continue };
                let Some((k, first)) = first_of(&ops[i]) else { continue };
                if !polls_key(&ops[before], k) || moved {
                    continue;
                }
                if kind == "poll-skip" {
                    let Mop::Poll(all) = &mut ops[i].mops_mut()[0] else { continue };
                    let Some((_, messages)) = all.iter_mut().find(|(key, m)| *key == k && m.len() > 1) else {
                        continue;
                    };
                    messages.remove(0);
                    return stands(ops, k, first.0).then_some(i);
                }
                let last = last_of(&ops[before], k)?;
                let Mop::Poll(all) = &mut ops[i].mops_mut()[0] else { continue };
                let (_, messages) = all.iter_mut().find(|(key, _)| *key == k)?;
                messages.insert(0, last);
                return Some(i);
            }
            "int-nonmonotonic-send" if ok && !moved => {
                let own = |told: bool| {
                    let is = |m: &usize| matches!(&ops[i].mops()[*m], Mop::Send(0, o, _) if o.is_some() || !told);
                    (0..ops[i].mops().len()).filter(is).collect::<Vec<_>>()
                };
                if let [a, b, ..] = own(false)[..]
                    && own(true).starts_with(&[a, b])
                {
                    // In the other order, as others may have polled them.
                    ops[i].mops_mut().swap(a, b);
                    return Some(i);
                }
            }
            "nonmonotonic-send" if ok => {
                let Some(before) = previous_send(ops, i) else { continue };
                if let (Mop::Send(_, a, _), Mop::Send(_, b, _)) =
                    (ops[before].mops()[0].clone(), ops[i].mops()[0].clone())
                    && let (Some(a), Some(b)) = (a, b)
                    && a < b
                {
                    let (first, second) = (ops[before].mops()[0].clone(), ops[i].mops()[0].clone());
                    ops[before].mops_mut()[0] = second;
                    ops[i].mops_mut()[0] = first;
                    return Some(i);
                }
            }
            _ => {}
        }
    }
    None
}

fn messages(op: &Op) -> impl Iterator<Item = (usize, i64, i64)> + '_ {
    op.mops().iter().flat_map(|m| match m {
        Mop::Poll(all) => all.iter().flat_map(|(k, m)| m.iter().map(|&(o, v)| (*k, o, v))).collect::<Vec<_>>(),
        Mop::Send(..) => vec![],
    })
}

/// Is an offset known to hold a message, from an acknowledged send or any poll?
fn stands(ops: &[Op], k: usize, offset: i64) -> bool {
    ops.iter().any(|op| {
        let sent = op.status == Status::Ok
            && op.mops().iter().any(|m| matches!(m, Mop::Send(key, Some(o), _) if *key == k && *o == offset));
        sent || messages(op).any(|(key, o, _)| key == k && o == offset)
    })
}

/// Does another operation say something else of the offset of the value that was made up?
fn known_elsewhere(ops: &[Op], i: usize) -> bool {
    let Some((k, o, _)) = messages(&ops[i]).find(|&(_, _, v)| v == 1_000_000) else { return false };
    let others: Vec<Op> = ops.iter().enumerate().filter(|&(j, _)| j != i).map(|(_, op)| op.clone()).collect();
    stands(&others, k, o)
}

/// The acknowledged poll of the same process just before, with nothing between.
fn previous(ops: &[Op], i: usize) -> Option<usize> {
    let own = (0..ops.len()).filter(|&j| ops[j].process == ops[i].process && ops[j].complete < ops[i].invoke);
    own.max_by_key(|&j| ops[j].complete)
        .filter(|&j| ops[j].status == Status::Ok && ops[j].f() == "poll" && ops[j].rebalanced.is_empty())
}

fn previous_send(ops: &[Op], i: usize) -> Option<usize> {
    let sends_first =
        |op: &Op| op.f() == "send" && op.mops().len() == 1 && matches!(op.mops()[0], Mop::Send(0, Some(_), _));
    let own = (0..ops.len()).filter(|&j| ops[j].process == ops[i].process && ops[j].complete < ops[i].invoke);
    own.max_by_key(|&j| ops[j].complete)
        .filter(|&j| ops[j].status == Status::Ok && sends_first(&ops[j]) && sends_first(&ops[i]))
}

fn first_of(op: &Op) -> Option<(usize, (i64, i64))> {
    match op.mops().first() {
        Some(Mop::Poll(all)) => all.iter().find_map(|(k, m)| m.first().map(|first| (*k, *first))),
        _ => None,
    }
}

fn polls_key(op: &Op, k: usize) -> bool {
    messages(op).any(|(key, ..)| key == k)
}

fn last_of(op: &Op, k: usize) -> Option<(i64, i64)> {
    messages(op).filter(|&(key, ..)| key == k).last().map(|(_, o, v)| (o, v))
}

#[test]
fn a_poll_of_what_is_sent_later_is_found_as_a_cycle() {
    let (first, count) = runs(1_500);
    let mut spoilt = 0;
    for seed in (0..count).map(|i| first.wrapping_add(i)) {
        let mut ops = valid(&mut Random::new(seed + 5), 10 + seed as usize % 30);
        let sends = |op: &Op| match op.mops() {
            [Mop::Send(k, Some(o), v), ..] if op.status == Status::Ok => Some((*k, *o, *v)),
            _ => None,
        };
        let place = ops.iter().enumerate().find_map(|(i, op)| {
            let later = |later: &&Op| later.invoke > op.complete && later.process != op.process;
            let polls = op.status == Status::Ok && op.f() == "poll";
            ops.iter().filter(later).find_map(sends).filter(|_| polls).map(|sent| (i, sent))
        });
        let Some((i, (k, o, v))) = place else { continue };
        spoilt += 1;
        ops[i].mops_mut().push(Mop::Poll(vec![(k, vec![(o, v)])]));
        let found = checked(&ops);
        let id = ids(&ops)[i];
        let cycles = found.violations().filter(|(kind, _)| kind.starts_with("G1c"));
        let shown = cycles.into_iter().any(|(_, all)| all.examples.iter().any(|e| e.ops.contains(&id)));
        assert!(shown, "seed {seed}: {id}: {found:#?}\n{}", text(&ops));
    }
    assert!(spoilt > count / 10, "{spoilt}");
}

#[test]
fn whatever_is_spoiled_is_found_and_named() {
    const KINDS: [&str; 13] = [
        "inconsistent-offsets",
        "duplicate",
        "lost-write",
        "G1a",
        "unexpected",
        "precommitted-read",
        "poll-skip",
        "nonmonotonic-poll",
        "nonmonotonic-send",
        "int-poll-skip",
        "int-nonmonotonic-poll",
        "int-nonmonotonic-send",
        "unseen",
    ];
    let (first, count) = runs(250);
    let mut spoilt = [0u64; KINDS.len()];
    for seed in (0..count).map(|i| first.wrapping_add(i)) {
        for (kind, spoilt) in KINDS.iter().zip(&mut spoilt) {
            let mut random = Random::new(seed + 1);
            let mut ops = valid(&mut random, 10 + seed as usize % 30);
            if ops.is_empty() {
                continue;
            }
            let (op, options) = if *kind == "unseen" {
                // An acknowledged send after everything else.
                let end = ops.iter().map(|op| op.complete).max().unwrap();
                let did = Did::Mops(vec![Mop::Send(0, None, 2_000_000)]);
                ops.push(Op {
                    process: 900,
                    did,
                    status: Status::Ok,
                    rebalanced: vec![],
                    invoke: end + 1,
                    complete: end + 2,
                });
                (Some(ops.len() - 1), Options { unseen: true, examples: 1000, ..Options::default() })
            } else {
                (spoil(kind, &mut random, &mut ops), Options { examples: 1000, ..Options::default() })
            };
            let Some(op) = op else { continue };
            *spoilt += 1;
            let found = check(&history(&ops), &options, &Budget::unlimited());
            let all =
                found.kinds().get(kind).unwrap_or_else(|| panic!("seed {seed}: no {kind}: {found:#?}\n{}", text(&ops)));
            assert_eq!(all.weight, Weight::Violation, "seed {seed}: {kind}\n{}", text(&ops));
            let id = ids(&ops)[op];
            assert!(
                all.examples.iter().any(|e| e.ops.contains(&id)),
                "seed {seed}: {kind} without {id}: {all:#?}\n{}",
                text(&ops)
            );
        }
    }
    println!("{:?}", KINDS.iter().zip(spoilt).collect::<Vec<_>>());
    for (kind, spoilt) in KINDS.iter().zip(spoilt) {
        assert!(spoilt * 100 > count, "seldom spoilt: {kind} {spoilt}");
    }
}
