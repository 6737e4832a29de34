//! Does every read of all accounts show a state that transfers can have left?
//!
//! Transfers move money and make none: whatever they did, the balances add up to the same total, no account is overdrawn (unless
//! allowed), each has a balance, and there is no account that nobody opened. Each rule that a read breaks is counted, so that a
//! read may be an instance of several kinds.
//!
//! **What is not told is taken from the history, and said.** *Total:* what most reads show, the first of them where equally
//! many show another. Reads that disagree cannot all be right, so a violation found this way is one; a total that is wrong from the first to
//! the last read is not found (`--total` finds it). After an operation that is neither read nor transfer is invoked, which may make money, totals are
//! compared with `--total` alone. *Accounts:* those of the reads that ended before the first transfer began, and those that transfers name;
//! without such a read this rule is not judged. Accounts are compared by name, as JSON writes the account `0` as `"0"`.
//! A read that leaves accounts out counts as if they were empty; one with a nil balance has no total.
//!
//! O(balances read). Memory: 64 bytes a total seen and an account, 5 a distinct transfer. The rules are those of Jepsen's `bank`, which reports
//! only the first that a read breaks.

use std::collections::BTreeMap;
use std::sync::Arc;

use elench_formats::columns::{Scalar, ValueRef};
use elench_formats::history::OpRef;
use elench_formats::{History, Value};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

use super::{Online, State, acknowledged, check};
use crate::findings::{Example, Fact, Findings, Incremental, Table};
use crate::named::{ByName, Tally, is_any};
use crate::outcome::{OpId, Status, Why};

/// What is told of a bank.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// What all balances add up to.
    pub total: Option<i128>,
    /// Names of all accounts.
    pub accounts: Option<Vec<String>>,
    /// May an account be overdrawn?
    pub negative_balances: bool,
}

/// Checks each key of a history.
pub fn bank(history: &History, rules: &Rules, examples: usize) -> Findings {
    check(history, examples, &Bank::new(rules, examples))
}

/// Checks while a history is written.
pub fn online(rules: &Rules, examples: usize) -> Box<dyn Incremental> {
    Online::new(Bank::new(rules, examples), examples)
}

const READS: [&str; 5] = ["read", "read-all", "balances", "snapshot", "r"];
const TRANSFERS: [&str; 1] = ["transfer"];

/// What the name of an operation says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    Reads,
    Transfers,
    Other,
}

fn means(name: &str) -> Means {
    match () {
        () if is_any(name, &READS) => Means::Reads,
        () if is_any(name, &TRANSFERS) => Means::Transfers,
        () => Means::Other,
    }
}

/// One balance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Balance {
    Of(i128),
    Nil,
    /// Not a whole number.
    Odd,
}

/// Reads that have something in common.
#[derive(Clone, Debug)]
struct Reads {
    count: u64,
    first: u64,
    last: u64,
    ops: Vec<u64>,
}

impl Reads {
    fn of(op: u64) -> Reads {
        Reads { count: 1, first: op, last: op, ops: vec![op] }
    }

    fn add(&mut self, op: u64, keep: usize) {
        self.count += 1;
        self.last = op;
        if self.ops.len() < keep {
            self.ops.push(op);
        }
    }
}

/// An account by its number.
#[derive(Clone, Debug)]
struct Account {
    name: Box<str>,
    /// Told, read before any transfer, or named by one.
    opened: bool,
    reads: Option<Reads>,
}

/// First, last and worst offender against a rule.
#[derive(Clone, Copy, Debug)]
struct Offenders {
    first: u64,
    last: u64,
    worst: u64,
    by: i128,
}

#[derive(Clone)]
struct Bank {
    rules: Arc<Rules>,
    found: Findings,
    tally: Tally,
    names: ByName<Means>,
    accounts: Vec<Account>,
    by_name: HashMap<Box<str>, u32, FixedState>,
    totals: BTreeMap<i128, Reads>,
    offenders: BTreeMap<&'static str, Offenders>,
    transferred: bool,
    /// Transfers looked at, by the ids of their texts.
    transfers: HashSet<u32, FixedState>,
    /// Reads that ended before the first transfer began.
    initial_reads: u64,
    /// The function of an operation that may make money.
    makes_money: Option<String>,
    untotalled: u64,
}

impl Bank {
    fn new(rules: &Rules, examples: usize) -> Self {
        let mut bank = Bank {
            rules: Arc::new(rules.clone()),
            found: Findings::new(examples),
            tally: Tally::default(),
            names: ByName::new(means, Means::Other),
            accounts: Vec::new(),
            by_name: HashMap::default(),
            totals: BTreeMap::new(),
            offenders: BTreeMap::new(),
            transferred: false,
            transfers: HashSet::default(),
            initial_reads: 0,
            makes_money: None,
            untotalled: 0,
        };
        rules.accounts.iter().flatten().for_each(|name| bank.open(name));
        bank
    }

    fn account(&mut self, name: &str) -> usize {
        if let Some(&known) = self.by_name.get(name) {
            return known as usize;
        }
        self.by_name.insert(name.into(), self.accounts.len() as u32);
        self.accounts.push(Account { name: name.into(), opened: false, reads: None });
        self.accounts.len() - 1
    }

    fn open(&mut self, name: &str) {
        let at = self.account(name);
        self.accounts[at].opened = true;
    }

    fn named_in_transfer(&mut self, op: &OpRef<'_>) {
        // Equal texts have equal ids: one look at each is enough.
        let seen = matches!(op.input(), ValueRef::Text(id) if !self.transfers.insert(id));
        if self.rules.accounts.is_some() || seen {
            return;
        }
        let value = super::atoms::tree(op, op.input());
        for field in ["from", "to", "source", "destination"] {
            if let Some(account) = value.get(field) {
                let text = account.to_edn();
                self.open(bare(&text));
            }
        }
        // `[from to amount]`.
        if let Some([from, to, _]) = value.as_vector() {
            let (from, to) = (from.to_edn(), to.to_edn());
            self.open(bare(&from));
            self.open(bare(&to));
        }
    }

    fn offend(&mut self, kind: &'static str, op: u64, by: i128) {
        let all = self.offenders.entry(kind).or_insert(Offenders { first: op, last: op, worst: op, by });
        all.last = op;
        if by > all.by {
            (all.worst, all.by) = (op, by);
        }
    }

    fn read(&mut self, op: &OpRef<'_>) {
        let id = op.index();
        let mut read: Vec<(usize, Balance)> = Vec::new();
        let known = balances(op, |name, balance| {
            let account = self.account(name);
            read.push((account, balance));
        });
        if !known {
            let why = format!("{} returned no balances", OpId(id));
            return self.found.undecided(Why::Other(why));
        }
        let initial = !self.transferred && self.rules.accounts.is_none() && self.makes_money.is_none();
        self.initial_reads += u64::from(initial);
        let (mut total, mut odd, mut nils, mut negative) = (0i128, false, Vec::new(), Vec::new());
        for &(account, balance) in &read {
            self.accounts[account].opened |= initial;
            match balance {
                Balance::Of(n) => {
                    total += n;
                    if n < 0 && !self.rules.negative_balances {
                        negative.push((account, n));
                    }
                }
                Balance::Nil => nils.push(account),
                Balance::Odd => odd = true,
            }
            self.seen(account, id);
        }
        if odd {
            let why = format!("{} returned a balance that is no whole number", OpId(id));
            self.found.undecided(Why::Other(why));
        } else if nils.is_empty() {
            self.total(id, total);
        }
        self.nils(id, &nils);
        self.overdrawn(id, &negative);
    }

    fn seen(&mut self, account: usize, op: u64) {
        let keep = self.found.examples();
        match &mut self.accounts[account].reads {
            Some(reads) => reads.add(op, keep),
            reads => *reads = Some(Reads::of(op)),
        }
    }

    fn total(&mut self, op: u64, total: i128) {
        if self.rules.total.is_none() && self.makes_money.is_some() {
            self.untotalled += 1;
            return;
        }
        let keep = self.found.examples();
        self.totals.entry(total).and_modify(|reads| reads.add(op, keep)).or_insert_with(|| Reads::of(op));
    }

    fn nils(&mut self, op: u64, nils: &[usize]) {
        if nils.is_empty() {
            return;
        }
        let names = self.names(nils.iter().copied());
        self.found
            .violation("nil-balance", || Example::new([OpId(op)], format!("{} shows no balance of {names}", OpId(op))));
        self.offend("nil-balance", op, nils.len() as i128);
    }

    fn overdrawn(&mut self, op: u64, negative: &[(usize, i128)]) {
        let Some(&(account, worst)) = negative.iter().min_by_key(|(_, n)| *n) else { return };
        let name = self.accounts[account].name.clone();
        self.found.violation("negative-balance", || {
            let more = if negative.len() > 1 { format!(", and {} more", negative.len() - 1) } else { String::new() };
            Example::new([OpId(op)], format!("{} shows {worst} in account {name}{more}", OpId(op)))
        });
        self.offend("negative-balance", op, -worst);
    }

    fn names(&self, accounts: impl Iterator<Item = usize>) -> String {
        let names: Vec<&str> = accounts.take(8).map(|at| &*self.accounts[at].name).collect();
        names.join(", ")
    }

    /// The total, and where it is from.
    fn expected(&self) -> Option<(i128, String)> {
        if let Some(total) = self.rules.total {
            return Some((total, "as told".into()));
        }
        let all: u64 = self.totals.values().map(|reads| reads.count).sum();
        let most = self.totals.iter().max_by_key(|(_, reads)| (reads.count, std::cmp::Reverse(reads.first)));
        most.map(|(&total, reads)| {
            (total, format!("assumed, as {} of {all} reads show it (first {})", reads.count, OpId(reads.first)))
        })
    }

    fn judge_totals(&mut self, expected: i128) {
        let wrong: Vec<(i128, Reads)> =
            std::mem::take(&mut self.totals).into_iter().filter(|(total, _)| *total != expected).collect();
        let mut examples: Vec<(u64, i128)> =
            wrong.iter().flat_map(|(total, reads)| reads.ops.iter().map(|&op| (op, *total))).collect();
        examples.sort_unstable();
        let mut examples = examples.into_iter();
        for (total, reads) in &wrong {
            for _ in 0..reads.count {
                self.found.violation("wrong-total", || {
                    let (op, total) = examples.next().unwrap_or((reads.first, *total));
                    Example::new([OpId(op)], format!("{} shows balances of {total} in all, not {expected}", OpId(op)))
                });
            }
            for op in [reads.first, reads.last] {
                self.offend_unordered("wrong-total", op, (total - expected).abs());
            }
        }
    }

    fn judge_accounts(&mut self) {
        let unopened = self.accounts.iter().filter(|account| !account.opened);
        let strange: Vec<(Box<str>, Reads)> =
            unopened.filter_map(|account| Some((account.name.clone(), account.reads.clone()?))).collect();
        for (name, reads) in strange {
            let mut ops = reads.ops.iter();
            for _ in 0..reads.count {
                self.found.violation("unexpected-account", || {
                    let op = OpId(ops.next().copied().unwrap_or(reads.first));
                    Example::new([op], format!("{op} shows account {name}, which nobody opened"))
                });
            }
            for op in [reads.first, reads.last] {
                self.offend_unordered("unexpected-account", op, reads.count as i128);
            }
        }
    }

    /// As [`offend`](Self::offend), of reads in no order.
    fn offend_unordered(&mut self, kind: &'static str, op: u64, by: i128) {
        let all = self.offenders.entry(kind).or_insert(Offenders { first: op, last: op, worst: op, by });
        (all.first, all.last) = (all.first.min(op), all.last.max(op));
        if by > all.by {
            (all.worst, all.by) = (op, by);
        }
    }

    fn table(&self) -> Table {
        let row = |(kind, o): (&&'static str, &Offenders)| {
            let op = |id: u64| Fact::Int(id.into());
            vec![Fact::Text(kind.to_string()), op(o.first), op(o.last), op(o.worst), Fact::Int(o.by)]
        };
        Table {
            columns: ["rule", "first op", "last op", "worst op", "by"].map(String::from).to_vec(),
            rows: self.offenders.iter().map(row).collect(),
        }
    }
}

impl State for Bank {
    fn invoked(&mut self, op: &OpRef<'_>) {
        let means = self.names.of(op);
        if means == Means::Transfers {
            self.transferred = true;
            self.named_in_transfer(op);
        } else if means == Means::Other && self.makes_money.is_none() {
            self.makes_money = Some(op.f().unwrap_or("nil").to_string());
        }
    }

    fn completed(&mut self, op: &OpRef<'_>) {
        self.tally.count(op);
        if acknowledged(op) && self.names.of(op) == Means::Reads {
            self.read(op);
        }
    }

    fn violated(&self) -> Option<&'static str> {
        let wrong = match self.rules.total {
            Some(total) => self.totals.keys().any(|&t| t != total),
            None => self.totals.len() > 1,
        };
        wrong.then_some("wrong-total").or_else(|| self.found.violations().next().map(|(kind, _)| kind))
    }

    fn finish(mut self) -> Findings {
        self.tally.tell(&mut self.found.coverage);
        let reads = |((f, status), n): (&(String, Status), &u64)| {
            if *status == Status::Ok && READS.contains(&f.replace('_', "-").as_str()) { *n } else { 0 }
        };
        let no_account_read = self.accounts.iter().all(|account| account.reads.is_none());
        if no_account_read || self.found.coverage.ops.iter().map(reads).sum::<u64>() == 0 {
            self.found.undecided(Why::NoEvidence);
        }
        if let Some((total, from)) = self.expected() {
            self.found.fact("total", Fact::Int(total));
            self.found.fact("total is", Fact::Text(from));
            self.judge_totals(total);
        }
        if let Some(f) = self.makes_money.take().filter(|_| self.untotalled > 0) {
            let why =
                format!("totals after the first `{f}` cannot be judged: it may make money (--total N tells the total)");
            self.found.undecided(Why::Other(why));
        }
        let judged = self.rules.accounts.is_some() || self.initial_reads > 0;
        let accounts = match (self.rules.accounts.is_some(), judged) {
            (true, _) => "as told",
            (_, true) => "those read before the first transfer began, and those that transfers name",
            _ => "not judged: no read ended before the first transfer began (--accounts names them)",
        };
        self.found.fact("accounts", Fact::Text(accounts.into()));
        if judged {
            self.judge_accounts();
        }
        if !self.offenders.is_empty() {
            let table = self.table();
            self.found.fact("offenders", Fact::Table(table));
        }
        self.found
    }
}

/// Without the quotes of a string or the colon of a keyword.
fn bare(text: &str) -> &str {
    match text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(inner) => inner,
        None => text.strip_prefix(':').unwrap_or(text),
    }
}

/// Gives each account's name and balance. False where the read returned no such thing.
fn balances(op: &OpRef<'_>, mut each: impl FnMut(&str, Balance)) -> bool {
    match op.output() {
        ValueRef::Text(id) => {
            let text = op.text(id);
            flat(text, &mut each) || nested(text, &mut each)
        }
        ValueRef::List(list) => {
            // Balances by the account's place.
            for (place, scalar) in list.iter().enumerate() {
                let balance = match scalar {
                    Scalar::Int(n) => Balance::Of(n.into()),
                    Scalar::Nil => Balance::Nil,
                    Scalar::Text(_) => Balance::Odd,
                };
                each(&place.to_string(), balance);
            }
            true
        }
        _ => false,
    }
}

fn nested(text: &str, each: &mut impl FnMut(&str, Balance)) -> bool {
    let Ok(Value::Map(entries)) = elench_formats::edn::parse(text) else { return false };
    for (name, balance) in &entries {
        let name = name.to_edn();
        let balance = match balance {
            Value::Nil => Balance::Nil,
            other => number(&other.to_edn()),
        };
        each(bare(&name), balance);
    }
    true
}

fn number(text: &str) -> Balance {
    match text.strip_suffix('N').unwrap_or(text).parse() {
        _ if text == "nil" => Balance::Nil,
        Ok(n) => Balance::Of(n),
        Err(_) => Balance::Odd,
    }
}

/// A map whose keys and values are plain words, read without building it. False, and nothing given, where it is another.
fn flat(text: &str, each: &mut impl FnMut(&str, Balance)) -> bool {
    let Some(inner) = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else { return false };
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.:+,\" /?!*".contains(&b);
    if !inner.bytes().all(plain) {
        return false;
    }
    let words = || inner.split([' ', ',']).filter(|word| !word.is_empty());
    // A string with a blank in it would be cut in two.
    if words().any(|word| word.bytes().filter(|&b| b == b'"').count() == 1) || words().count() % 2 != 0 {
        return false;
    }
    let mut words = words();
    while let (Some(name), Some(balance)) = (words.next(), words.next()) {
        each(bare(name), number(balance));
    }
    true
}

#[cfg(test)]
mod tests {
    use elench_formats::notation::history as notation;

    use super::super::testing::{self, Event, FAULTS, Object, both, oks, op_of, run, seeds, shows};
    use super::*;
    use crate::linear::tests::Random;

    fn found(text: &str, rules: &Rules) -> Findings {
        let h = notation(text).unwrap();
        both(&h, bank(&h, rules, 8), online(rules, 8))
    }

    #[test]
    fn a_read_of_no_account_proves_nothing() {
        for text in ["invoke 0 read / ok 0 read {}", "invoke 0 read / ok 0 read []"] {
            let found = found(text, &Rules::default());
            assert!(!found.is_valid() && !found.is_invalid(), "{text}: {found:?}");
        }
    }

    fn kinds(found: &Findings) -> Vec<(&'static str, u64)> {
        found.violations().map(|(name, kind)| (name, kind.count)).collect()
    }

    struct Accounts(Vec<i64>);

    impl Object for Accounts {
        fn next(&mut self, random: &mut Random, _: u64) -> (&'static str, String) {
            if random.chance(500) {
                return ("read", "nil".into());
            }
            let n = self.0.len() as u64;
            (
                "transfer",
                format!("{{:from {}, :to {}, :amount {}}}", random.below(n), random.below(n), 1 + random.below(5)),
            )
        }

        fn apply(&mut self, _: u64, f: &'static str, value: &str) -> Option<String> {
            if f == "read" {
                let all: Vec<String> = self.0.iter().enumerate().map(|(i, n)| format!("{i} {n}")).collect();
                return Some(format!("{{{}}}", all.join(", ")));
            }
            let value = elench_formats::edn::parse(value).unwrap();
            let of = |name| value.get(name).and_then(Value::as_int).unwrap();
            let (from, to, amount) = (of("from") as usize, of("to") as usize, of("amount"));
            if self.0[from] < amount {
                return None;
            }
            self.0[from] -= amount;
            self.0[to] += amount;
            Some(value.to_edn())
        }
    }

    fn a_run(random: &mut Random) -> Vec<Event> {
        let n = 1 + random.below(4) as usize;
        let mut accounts = Accounts((0..n).map(|_| random.below(12) as i64).collect());
        let clients = 1 + random.below(4);
        run(random, &mut accounts, clients, 60, FAULTS)
    }

    #[test]
    fn a_bank_that_keeps_its_rules_is_never_accused() {
        let mut valid = 0;
        for mut random in seeds(1000) {
            let log = a_run(&mut random);
            if log.is_empty() {
                continue;
            }
            let h = testing::history(&log);
            let found = both(&h, bank(&h, &Rules::default(), 3), online(&Rules::default(), 3));
            assert_eq!(kinds(&found), [], "{log:#?}");
            assert_eq!(found.is_valid(), !oks(&log, "read").is_empty());
            valid += u64::from(found.is_valid());
        }
        assert!(valid > 500, "{valid}");
    }

    /// The rules as they read, for each read by itself.
    fn naive(log: &[Event], rules: &Rules) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for at in oks(log, "read") {
            let Ok(Value::Map(read)) = elench_formats::edn::parse(&log[at].value) else { panic!() };
            let mut broken = |kind, n: usize| *counts.entry(kind).or_default() += n as u64;
            let accounts = rules.accounts.as_ref().unwrap();
            broken("unexpected-account", read.iter().filter(|(k, _)| !accounts.contains(&k.to_edn())).count());
            broken("nil-balance", usize::from(read.iter().any(|(_, v)| *v == Value::Nil)));
            let numbers: Vec<i64> = read.iter().filter_map(|(_, v)| v.as_int()).collect();
            let whole = numbers.len() == read.len();
            broken(
                "wrong-total",
                usize::from(whole && i128::from(numbers.iter().sum::<i64>()) != rules.total.unwrap()),
            );
            broken("negative-balance", usize::from(!rules.negative_balances && numbers.iter().any(|&n| n < 0)));
        }
        counts.retain(|_, n| *n > 0);
        counts
    }

    #[test]
    fn every_broken_rule_is_counted_as_one_by_one() {
        for mut random in seeds(1000) {
            let mut log = Vec::new();
            for _ in 0..random.below(6) {
                let mut cells: Vec<String> = (0..random.below(4))
                    .map(|i| {
                        let nil = random.chance(200);
                        let n = random.below(9) as i64 - 3;
                        format!("{i} {}", if nil { "nil".into() } else { n.to_string() })
                    })
                    .collect();
                if random.chance(100) {
                    cells.push("\"a b\" 1".into());
                }
                testing::then(&mut log, "read", "nil", &format!("{{{}}}", cells.join(", ")), "");
            }
            if log.is_empty() {
                continue;
            }
            let rules = Rules {
                total: Some(4),
                accounts: Some(vec!["0".into(), "1".into()]),
                negative_balances: random.chance(300),
            };
            let h = testing::history(&log);
            let found = both(&h, bank(&h, &rules, 3), online(&rules, 3));
            let counts: BTreeMap<_, _> = kinds(&found).into_iter().collect();
            assert_eq!(counts, naive(&log, &rules), "{log:#?}");
        }
    }

    #[test]
    fn each_mutation_of_a_read_is_named_and_the_read_is_shown() {
        let mut done = BTreeMap::new();
        for mut random in seeds(600) {
            let mut log = a_run(&mut random);
            let reads = oks(&log, "read");
            if reads.len() < 3 {
                continue;
            }
            let total: i128 = testing_total(&log[reads[0]].value);
            let at = reads[random.below(reads.len() as u64) as usize];
            let rules = Rules {
                total: Some(total),
                accounts: Some((0..4).map(|n| n.to_string()).collect()),
                ..Rules::default()
            };
            let (kind, value) = match random.below(4) {
                0 => ("wrong-total", format!("{{0 {}}}", total + 1)),
                1 => ("negative-balance", format!("{{0 {}, 1 -1}}", total + 1)),
                2 => ("nil-balance", "{0 nil}".into()),
                _ => ("unexpected-account", format!("{{77 {total}}}")),
            };
            log[at].value = value;
            let h = testing::history(&log);
            let found = both(&h, bank(&h, &rules, 3), online(&rules, 3));
            assert_eq!(kinds(&found), [(kind, 1)], "{log:#?}");
            assert!(shows(&found, kind, op_of(&log, at)), "{found:?}");
            *done.entry(kind).or_insert(0) += 1;
        }
        assert!(done.len() == 4 && done.values().all(|&n| n > 20), "{done:?}");
    }

    fn testing_total(value: &str) -> i128 {
        let Ok(Value::Map(read)) = elench_formats::edn::parse(value) else { panic!() };
        read.iter().filter_map(|(_, v)| v.as_int()).map(i128::from).sum()
    }

    #[test]
    fn a_read_that_breaks_two_rules_is_reported_for_both() {
        let found = found("invoke 0 read / ok 0 read {0 101, 1 -2}", &Rules { total: Some(100), ..Rules::default() });
        assert_eq!(kinds(&found), [("negative-balance", 1), ("wrong-total", 1)]);
    }

    #[test]
    fn reads_that_disagree_prove_a_wrong_total_without_being_told_it_and_the_odd_one_is_named() {
        let found = found(
            "invoke 0 read / ok 0 read {0 9, 1 0} / invoke 0 read / ok 0 read {0 10, 1 0} / invoke 0 read / ok 0 read {0 5, 1 5}",
            &Rules::default(),
        );
        assert_eq!(kinds(&found), [("wrong-total", 1)]);
        assert!(shows(&found, "wrong-total", OpId(0)));
        assert_eq!(found.fact_of("total"), Some(&Fact::Int(10)));
    }

    #[test]
    fn an_operation_that_may_make_money_leaves_totals_undecided_unless_the_total_is_told() {
        let text = "invoke 0 read / ok 0 read {0 9} / invoke 0 deposit 1 / ok 0 / invoke 0 read / ok 0 read {0 10}";
        let untold = found(text, &Rules::default());
        assert!(!untold.is_valid() && !untold.is_invalid(), "{untold:?}");
        assert_eq!(kinds(&found(text, &Rules { total: Some(9), ..Rules::default() })), [("wrong-total", 1)]);
    }

    #[test]
    fn an_account_from_nowhere_is_unexpected_and_one_that_a_transfer_names_is_not() {
        let read = |n| {
            format!(
                "invoke 0 read / ok 0 read {{0 9}} / invoke 0 transfer {{:from 0, :to 1, :amount 1}} / ok 0 / invoke 0 read / ok 0 read {{0 8, {n} 1}}"
            )
        };
        assert_eq!(kinds(&found(&read(1), &Rules::default())), []);
        assert_eq!(kinds(&found(&read(2), &Rules::default())), [("unexpected-account", 1)]);
        let late = "invoke 1 transfer {:from 0, :to 1, :amount 1} / invoke 0 read / ok 0 read {0 9, 7 1}";
        assert_eq!(kinds(&found(late, &Rules::default())), []);
    }

    #[test]
    fn balances_that_are_no_whole_numbers_are_undecided_and_a_tagged_literal_does_no_harm() {
        for value in ["{0 1.5}", "{0 #money 10}", "7", "{0 {1 2}}"] {
            let found = found(&format!("invoke 0 read / ok 0 read {value}"), &Rules::default());
            assert!(!found.is_valid() && !found.is_invalid(), "{value}: {found:?}");
        }
        let tagged =
            found("invoke 0 read / ok 0 read {#acc 0 10, \"b c\" 0}", &Rules { total: Some(11), ..Rules::default() });
        assert_eq!(kinds(&tagged), [("wrong-total", 1)]);
    }

    #[test]
    fn without_a_read_nothing_is_known() {
        let found = found("invoke 0 transfer {:from 0, :to 1, :amount 1} / ok 0", &Rules::default());
        assert!(!found.is_valid() && !found.is_invalid());
    }
}
