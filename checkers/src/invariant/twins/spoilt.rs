//! Runs of objects that do right, spoiled in one place: each kind is then told, with the operation that was spoiled.

use std::collections::BTreeSet;

use elench_formats::build::Lift;

use super::super::fairness::{GroupBy, fairness};
use super::super::final_state::final_state;
use super::super::testing::{Event, FAULTS, Faults, Object, oks, op_of, run, shows, then};
use super::super::{causal_reverse, locks, long_fork};
use super::*;
use crate::expr::Expr;
use crate::findings::Findings;

fn kinds(found: &Findings) -> Vec<&'static str> {
    found.violations().map(|(name, _)| name).collect()
}

/// One of these, if there is any.
fn any<T: Clone>(random: &mut Random, all: &[T]) -> Option<T> {
    (!all.is_empty()).then(|| all[random.below(all.len() as u64) as usize].clone())
}

/// A lock that hands out growing tokens, none so low that a lower one is no token at all: zero says that there is none.
struct Fenced {
    holder: Option<u64>,
    token: u64,
}

impl Object for Fenced {
    fn next(&mut self, random: &mut Random, _: u64) -> (&'static str, String) {
        (one_of(random, &["acquire", "release"]), "nil".into())
    }

    fn apply(&mut self, process: u64, f: &'static str, _: &str) -> Option<String> {
        match (f, self.holder) {
            ("acquire", None) => {
                (self.holder, self.token) = (Some(process), self.token + 1 + process % 3);
                Some(format!("{{:token {}}}", self.token))
            }
            ("release", Some(holder)) if holder == process => {
                self.holder = None;
                Some("nil".into())
            }
            _ => None,
        }
    }
}

#[test]
fn a_token_that_does_not_grow_is_told_wherever_it_is_handed_out() {
    let mut spoilt = 0;
    for mut random in seeds(500) {
        let mut log = run(&mut random, &mut Fenced { holder: None, token: 10 }, 3, 80, Faults { crash: 20, fail: 30 });
        let grants = oks(&log, "acquire");
        let token = |log: &[Event], at: usize| edn(&log[at].value).get("token").unwrap().as_int().unwrap();
        let pairs: Vec<(usize, usize)> = grants
            .iter()
            .flat_map(|&a| grants.iter().map(move |&b| (a, b)))
            .filter(|&(a, b)| a < op_of(&log, b).0 as usize && log[a].process != log[b].process)
            .collect();
        let Some((before, at)) = any(&mut random, &pairs) else { continue };
        spoilt += 1;
        let low = token(&log, before) - random.below(3) as i64;
        log[at].value = format!("{{:token {low}}}");
        let h = history(&log);
        let found = both(&h, locks::locks(&h, locks::Locks::One, 1000), locks::online(locks::Locks::One, 1000));
        assert_eq!(kinds(&found), ["fencing-token"], "{log:#?}");
        assert!(shows(&found, "fencing-token", op_of(&log, at)), "{log:#?}\n{found:#?}");
    }
    assert!(spoilt > 200, "{spoilt}");
}

/// What a client called, and whether it was granted, once that is known.
type Asked = (&'static str, Option<bool>);

/// A lease that lasts from when it is granted, on a clock that counts events; clients overlap.
fn leases(random: &mut Random, ttl: usize) -> Vec<Event> {
    let mut log: Vec<Event> = Vec::new();
    let mut clients: Vec<(u64, Option<Asked>)> = (0..3).map(|p| (p, None)).collect();
    let mut held: Option<(u64, usize)> = None;
    for _ in 0..60 {
        let at = random.below(3) as usize;
        let (process, open) = clients[at];
        let event = |kind, f| Event { kind, process, f, value: format!("{{:ttl {ttl}}}"), extra: String::new() };
        clients[at].1 = match open {
            None => {
                let f = one_of(random, &["acquire", "renew"]);
                log.push(event("invoke", f));
                Some((f, None))
            }
            Some((f, None)) => {
                let mine = held.is_some_and(|(holder, until)| holder == process && log.len() < until);
                let free = held.is_none_or(|(_, until)| log.len() >= until);
                let grants = mine || free && f == "acquire";
                if grants {
                    held = Some((process, log.len() + ttl));
                }
                Some((f, Some(grants)))
            }
            Some((f, Some(granted))) => {
                if random.chance(100) {
                    log.push(event("info", f));
                    clients[at].0 += 3;
                } else {
                    log.push(event(if granted { "ok" } else { "fail" }, f));
                }
                None
            }
        };
    }
    log
}

#[test]
fn a_renewal_is_told_wherever_it_comes_after_all_its_ends_and_never_before() {
    let (mut spoilt, mut renewed) = (0, 0);
    for mut random in seeds(500) {
        let ttl = 6 + random.below(10) as usize;
        let mut log = leases(&mut random, ttl);
        let check = |log: &[Event]| {
            let h = history(log);
            both(&h, locks::locks(&h, locks::Locks::One, 1000), locks::online(locks::Locks::One, 1000))
        };
        let found = check(&log);
        assert_eq!(kinds(&found), [] as [&str; 0], "ttl {ttl} {log:#?}\n{found:#?}");
        renewed += oks(&log, "renew").len();
        // Whoever holds a grant and calls nothing waits until it is over, and renews it all the same.
        let ended = |p: u64| log.iter().rev().find(|e| e.process == p).filter(|e| e.kind == "ok");
        let holders: Vec<u64> = log.iter().map(|e| e.process).filter(|p| ended(*p).is_some()).collect();
        let Some(process) = any(&mut random, &holders) else { continue };
        spoilt += 1;
        for _ in 0..ttl + random.below(4) as usize {
            let refused = |kind| Event { kind, process: 900, f: "acquire", value: "nil".into(), extra: String::new() };
            log.extend([refused("invoke"), refused("fail")]);
        }
        let late = |kind| Event { kind, process, f: "renew", value: format!("{{:ttl {ttl}}}"), extra: String::new() };
        log.extend([late("invoke"), late("ok")]);
        let found = check(&log);
        assert_eq!(kinds(&found), ["held-past-end"], "ttl {ttl} {log:#?}\n{found:#?}");
        assert!(shows(&found, "held-past-end", op_of(&log, log.len() - 1)), "{log:#?}\n{found:#?}");
    }
    assert!(spoilt > 100 && renewed > 500, "{spoilt} {renewed}");
}

/// Rows, each written once.
#[derive(Default)]
struct Table(BTreeSet<u64>, u64);

impl Object for Table {
    fn next(&mut self, random: &mut Random, _: u64) -> (&'static str, String) {
        if random.chance(400) {
            return ("read", "nil".into());
        }
        self.1 += 1;
        ("write", self.1.to_string())
    }

    fn apply(&mut self, _: u64, f: &'static str, value: &str) -> Option<String> {
        if f == "write" {
            self.0.insert(value.parse().unwrap());
            return Some(value.into());
        }
        let shown: Vec<String> = self.0.iter().map(u64::to_string).collect();
        Some(format!("#{{{}}}", shown.join(" ")))
    }
}

#[test]
fn what_a_read_shows_before_it_is_written_is_unexpected_whoever_writes_it_then() {
    let mut spoilt = 0;
    for mut random in seeds(500) {
        let mut log = run(&mut random, &mut Table::default(), 4, 60, FAULTS);
        let writes = (0..log.len()).filter(|&i| log[i].kind == "invoke" && log[i].f == "write");
        let reads = oks(&log, "read");
        let pairs: Vec<(usize, usize)> =
            writes.flat_map(|w| reads.iter().map(move |&r| (r, w))).filter(|(r, w)| r < w).collect();
        let Some((read, write)) = any(&mut random, &pairs) else { continue };
        spoilt += 1;
        log[read].value = log[read].value.replace('}', &format!(" {}}}", log[write].value));
        let h = history(&log);
        let found = both(&h, causal_reverse::causal_reverse(&h, 1000), causal_reverse::online(1000));
        assert_eq!(kinds(&found), ["unexpected"], "{log:#?}");
        let shown = |at| shows(&found, "unexpected", op_of(&log, at));
        assert!(shown(read) && shown(write), "{log:#?}\n{found:#?}");
    }
    assert!(spoilt > 300, "{spoilt}");
}

/// Pairs of keys, each key written once.
#[derive(Default)]
struct Pairs(BTreeSet<u64>, u64);

impl Object for Pairs {
    fn next(&mut self, random: &mut Random, _: u64) -> (&'static str, String) {
        if random.chance(350) || self.1 == 0 {
            self.1 += 1;
            return ("write", format!("[[:w {} 1]]", self.1 - 1));
        }
        let pair = 2 * random.below(self.1.div_ceil(2));
        ("read", format!("[[:r {pair} nil] [:r {} nil]]", pair + 1))
    }

    fn apply(&mut self, _: u64, f: &'static str, value: &str) -> Option<String> {
        let keys = keys_of(value);
        if f == "write" {
            self.0.extend(keys);
            return Some(value.into());
        }
        let read = |key: u64| format!("[:r {key} {}]", if self.0.contains(&key) { "1" } else { "nil" });
        Some(format!("[{} {}]", read(keys[0]), read(keys[1])))
    }
}

fn keys_of(value: &str) -> Vec<u64> {
    edn(value).as_vector().unwrap().iter().map(|mop| mop.as_vector().unwrap()[1].as_int().unwrap() as u64).collect()
}

#[test]
fn a_read_of_a_group_that_is_spoiled_otherwise_than_by_a_fork_is_named_for_it() {
    let mut spoilt = [0; 3];
    for mut random in seeds(900) {
        let mut log = run(&mut random, &mut Pairs::default(), 4, 80, FAULTS);
        let reads = oks(&log, "read");
        let which = random.below(3) as usize;
        let kind = ["aborted-effect", "unexpected", "unrepeatable-read"][which];
        // A read, and what becomes of it.
        let mut ways: Vec<(usize, String)> = Vec::new();
        for &at in &reads {
            let value = &log[at].value;
            for key in keys_of(value) {
                let (nil, one) = (format!("[:r {key} nil]"), format!("[:r {key} 1]"));
                let failed =
                    || log[..at].iter().any(|e| e.kind == "fail" && e.f == "write" && keys_of(&e.value) == [key]);
                // What was there before the record began is nobody's fault, and it may have been where no write is known.
                let written = || log.iter().any(|e| e.kind == "ok" && e.f == "write" && keys_of(&e.value) == [key]);
                match which {
                    0 if value.contains(&nil) && failed() => ways.push((at, value.replace(&nil, &one))),
                    1 if written() => {
                        ways.push((at, value.replace(&nil, &one).replace(&one, &format!("[:r {key} 7]"))))
                    }
                    2 if value.contains(&one) => ways.push((at, value.replace("]]", &format!("] {nil}]")))),
                    _ => {}
                }
            }
        }
        let Some((at, value)) = any(&mut random, &ways) else { continue };
        spoilt[which] += 1;
        log[at].value = value;
        let h = history(&log);
        let found = both(&h, long_fork::long_fork(&h, 1000), long_fork::online(1000));
        assert!(shows(&found, kind, op_of(&log, at)), "{kind} {at} {log:#?}\n{found:#?}");
        let others: Vec<&str> = kinds(&found).into_iter().filter(|k| *k != kind && *k != "long-fork").collect();
        assert!(others.is_empty(), "{kind} {others:?} {log:#?}");
    }
    assert!(spoilt.iter().all(|n| *n > 60), "{spoilt:?}");
}

/// Clients that take turns: in each round every one calls once and is answered, so that none waits longer than the rest take, and none fails
/// more often than in every fourth round.
fn turns(random: &mut Random, clients: u64, rounds: u64) -> Vec<Event> {
    let mut log = Vec::new();
    let offset = random.below(4);
    for round in 0..rounds {
        for kind in ["invoke", "ok"] {
            let mut order: Vec<u64> = (0..clients).collect();
            (1..order.len()).rev().for_each(|i| order.swap(i, random.below(i as u64 + 1) as usize));
            for process in order {
                let fails = (round + process + offset).is_multiple_of(4) && random.chance(700);
                let kind = if kind == "ok" && fails { ["fail", "ok"][random.below(2) as usize] } else { kind };
                log.push(Event { kind, process, f: "write", value: "1".into(), extra: String::new() });
            }
        }
    }
    log
}

#[test]
fn what_is_shared_fairly_satisfies_every_formula_and_one_client_that_fares_worse_breaks_its_own() {
    let mut spoilt = [0; 3];
    for mut random in seeds(400) {
        let (clients, rounds) = (2 + random.below(4), 4 * (1 + random.below(4)));
        let log = turns(&mut random, clients, rounds);
        let most = 2 * clients - 1;
        let slow = format!("max(group.latency) <= {most}ns");
        let rules = [
            slow.as_str(),
            "group.errors <= 25%",
            "worst.count == best.count",
            "2 * worst.throughput >= best.throughput",
            "spread.count <= 1%",
            "errors <= 25% and groups > 1",
        ];
        let check = |log: &[Event], rules: &[&str]| {
            let rules: Vec<Expr> = rules.iter().map(|rule| Expr::parse(rule).unwrap()).collect();
            fairness(&history(log), &GroupBy::Process, &rules, 1000)
        };
        let found = check(&log, &rules);
        assert!(found.is_valid(), "{clients} {rounds} {log:#?}\n{found:#?}");
        let mut worse = log.clone();
        let who = random.below(clients);
        let which = random.below(3) as usize;
        let mut shown = None;
        match which {
            0 => {
                // Its last answer comes late.
                let Some(at) = worse.iter().rposition(|e| e.process == who && e.kind == "ok") else { continue };
                let began = op_of(&worse, at);
                let late = worse.remove(at);
                worse.retain({
                    let mut i = 0;
                    move |e| {
                        i += 1;
                        e.process != who || i <= at
                    }
                });
                for _ in 0..=clients {
                    then(&mut worse, "write", "1", "1", "");
                }
                worse.push(late);
                shown = Some(began);
            }
            1 => worse
                .iter_mut()
                .filter(|e| e.process == who && e.kind == "ok")
                .take(rounds as usize / 2)
                .for_each(|e| e.kind = "fail"),
            _ => {
                let half = worse.len() / 2;
                let mut i = 0;
                worse.retain(|e| {
                    i += 1;
                    e.process != who || i <= half
                });
            }
        }
        let found = check(&worse, &[rules[which]]);
        assert!(found.is_invalid(), "{} {worse:#?}\n{found:#?}", rules[which]);
        if let Some(op) = shown {
            assert!(shows(&found, "fairness", op), "{op} {worse:#?}\n{found:#?}");
        }
        spoilt[which] += 1;
    }
    assert!(spoilt.iter().all(|n| *n > 60), "{spoilt:?}");
}

/// A register of values below five.
#[derive(Default)]
struct Small(u64);

impl Object for Small {
    fn next(&mut self, random: &mut Random, _: u64) -> (&'static str, String) {
        match random.below(2) {
            0 => ("read", "nil".into()),
            _ => ("write", random.below(5).to_string()),
        }
    }

    fn apply(&mut self, _: u64, f: &'static str, value: &str) -> Option<String> {
        if f == "write" {
            self.0 = value.parse().unwrap();
        }
        Some(self.0.to_string())
    }
}

#[test]
fn an_end_within_the_rules_satisfies_them_and_one_without_is_told_with_its_read() {
    for mut random in seeds(500) {
        let mut object = Small::default();
        let mut log = run(&mut random, &mut object, 4, 60, FAULTS);
        let value = object.0;
        let rules = [
            "final >= 0 and final < 5".to_string(),
            format!("final == {value}"),
            format!("not (final == {})", value + 1),
        ];
        let rules: Vec<Expr> = rules.iter().map(|rule| Expr::parse(rule).unwrap()).collect();
        then(&mut log, "read", "nil", &value.to_string(), "");
        let found = final_state(&history(&log), &[], &rules, 1000);
        assert!(found.is_valid(), "{log:#?}\n{found:#?}");
        let last = log.len() - 1;
        log[last].value = (5 + random.below(3)).to_string();
        let found = final_state(&history_lifting(&log, Lift::Never), &[], &rules[..2], 1000);
        assert_eq!((kinds(&found), found.count("final-state")), (vec!["final-state"], 2), "{log:#?}");
        assert!(shows(&found, "final-state", op_of(&log, last)), "{found:#?}");
    }
}

#[test]
fn transfers_keep_a_dump_within_its_rules_and_money_that_appears_does_not() {
    let mut log = Vec::new();
    then(&mut log, "read", "nil", "1", "");
    let h = history(&log);
    let rules = ["sum(final.accounts) == 30", "accounts.a >= 0 and accounts.b >= 0 and accounts.c >= 0"];
    let rules: Vec<Expr> = rules.iter().map(|rule| Expr::parse(rule).unwrap()).collect();
    for mut random in seeds(300) {
        let mut accounts = [10i64; 3];
        for _ in 0..random.below(20) {
            let (from, to) = (random.below(3) as usize, random.below(3) as usize);
            let amount = random.below(accounts[from] as u64 + 1) as i64;
            accounts[from] -= amount;
            accounts[to] += amount;
        }
        let dump = |[a, b, c]: [i64; 3]| edn(&format!("{{:accounts {{:a {a} :b {b} :c {c}}}}}"));
        let of = |dump: Value| final_state(&h, &[("dump".into(), dump)], &rules, 9);
        let found = of(dump(accounts));
        assert!(found.is_valid(), "{accounts:?} {found:#?}");
        let mut more = accounts;
        more[random.below(3) as usize] += 1 + random.below(5) as i64;
        assert_eq!((of(dump(more)).count("final-state"), of(dump(more)).is_invalid()), (1, true), "{more:?}");
        let mut debt = accounts;
        let (from, to) = (random.below(3) as usize, random.below(3) as usize);
        debt[from] -= 40;
        debt[to] += 40;
        assert_eq!(of(dump(debt)).is_invalid(), from != to, "{debt:?}");
    }
}
