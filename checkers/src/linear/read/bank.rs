//! Banks: `transfer {:from a :to b :amount n}` (or `[a b n]`), `read` of a map of balances.

use elench_formats::{History, Value as Edn};

use super::{Call, Reader, Said, field, no_initial, spelled};
use crate::linear::Operation;
use crate::model::{Bank, BankOp, Value};

pub(super) struct Accounts<'a> {
    values: super::Values<'a>,
    initial: Option<Vec<(Value, i128)>>,
    overdrafts: bool,
    given: bool,
}

const OVERDRAFTS: [&str; 3] = ["negative-balances?", "negative-balances", "overdrafts"];

impl<'a> Accounts<'a> {
    /// Balances at first: a map from accounts to numbers, in which `:negative-balances? true` allows overdrafts.
    pub(super) fn new(history: &'a History, initial: &Edn) -> Result<Self, String> {
        let mut values = super::Values::numbered(history);
        let wanted = || no_initial(initial, "a map from accounts to balances");
        let (balances, overdrafts) = match initial {
            Edn::Nil => (None, false),
            Edn::Map(entries) => {
                let is_account = |key: &Edn| key.as_name().is_none_or(|name| !OVERDRAFTS.contains(&name));
                let accounts = entries.iter().filter(|(key, _)| is_account(key));
                let balances: Result<Vec<(Value, i128)>, String> = accounts
                    .map(|(name, n)| Ok((account(&mut values, name), i128::from(n.as_int().ok_or_else(wanted)?))))
                    .collect();
                (Some(balances?).filter(|b| !b.is_empty()), field(initial, &OVERDRAFTS) == Some(&Edn::Bool(true)))
            }
            _ => return Err(wanted()),
        };
        let given = balances.is_some();
        Ok(Accounts { values, initial: balances, overdrafts, given })
    }

    fn transfer(&mut self, argument: &Edn) -> Option<BankOp> {
        let parts = match argument {
            Edn::Vector(parts) => parts.iter().collect::<Vec<_>>(),
            map => vec![
                field(map, &["from", "source"])?,
                field(map, &["to", "target", "destination"])?,
                field(map, &["amount", "n"])?,
            ],
        };
        let [from, to, amount] = parts[..] else { return None };
        Some(BankOp::Transfer(account(&mut self.values, from), account(&mut self.values, to), amount.as_int()?))
    }
}

/// An account. Names of JSON objects are texts, whatever their accounts are elsewhere.
fn account(values: &mut super::Values<'_>, name: &Edn) -> Value {
    let number = if let Edn::Str(text) = name { text.parse().ok().map(Edn::Int) } else { None };
    values.edn(number.as_ref().unwrap_or(name))
}

impl Reader for Accounts<'_> {
    type Model = Bank;

    fn read(&mut self, call: &Call<'_>) -> Result<Option<Said<BankOp>>, String> {
        match &*spelled(call.f) {
            "transfer" => {
                let argument = call.input();
                let op = self.transfer(&argument);
                let wanted = "a transfer needs {:from account, :to account, :amount n}";
                Said::of(op.ok_or_else(|| format!("{wanted}, not {}", argument.to_edn()))?)
            }
            "read" | "read-all" | "balances" => {
                let output = call.output();
                let Edn::Map(entries) = &output else {
                    return match output {
                        Edn::Nil => Ok(None),
                        other => Err(format!("a read returns a map of balances, not {}", other.to_edn())),
                    };
                };
                let balances: Option<Vec<(Value, i128)>> = entries
                    .iter()
                    .map(|(name, n)| Some((account(&mut self.values, name), i128::from(n.as_int()?))))
                    .collect();
                let balances = balances.ok_or_else(|| format!("a balance in {} is no number", output.to_edn()))?;
                Said::of(BankOp::read(balances))
            }
            _ => Err(call.none_of("a bank")),
        }
    }

    fn model(&self, _ops: &[Operation<BankOp>]) -> Bank {
        let mut bank = Bank::new(self.initial.clone());
        if self.overdrafts {
            bank = bank.with_overdrafts();
        }
        match self.values.names() {
            Some(names) => bank.with_names(names),
            None => bank,
        }
    }

    fn assumptions(&self) -> Vec<String> {
        if self.given {
            return Vec::new();
        }
        vec![
            "the balances at first are not known, so the first read in an order says them (--initial gives them)"
                .into(),
        ]
    }
}
