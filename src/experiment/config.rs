//! What `.elench/config.toml` says of the systems that may be broken here.
//!
//! ```toml
//! sandbox = ["db-1.test", "10.1.0.0/16", "kube:kind-local"]
//! staging = ["*.staging.example.net", "arn:aws:fis:*:123456789012:*"]
//! production = ["10.1.9.9"]
//! page = ["/usr/local/bin/page", "--team", "storage"]
//! ```
//!
//! An entry is a name, a name with `*`, an address, a network in CIDR form, `kube:CONTEXT`, or an ARN with `*`.

use std::net::IpAddr;
use std::path::Path;

use serde_json::{Value as Json, json};
use toml::de::{DeTable, DeValue};

/// How a target is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// As a sandbox.
    Sandbox,
    /// As staging.
    Staging,
    /// As production, whatever else it looks like.
    Production,
}

/// The configuration of a place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// What may be broken at will.
    pub sandbox: Vec<String>,
    /// What may be broken with care.
    pub staging: Vec<String>,
    /// What is production.
    pub production: Vec<String>,
    /// The command that calls a person when a rollback failed; nothing is appended to it but the path of the injector's spec.
    pub page: Vec<String>,
}

impl Config {
    /// Reads `config.toml`; a file that is not there lists nothing.
    ///
    /// # Errors
    /// A file that cannot be read, no TOML, an unknown key or a value of another kind.
    pub fn read(path: &Path) -> Result<Config, String> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Config::default()),
            Err(e) => return Err(format!("{}: cannot read: {e}", path.display())),
        };
        Config::parse(&text).map_err(|why| format!("{}: {why}", path.display()))
    }

    /// From its text.
    ///
    /// # Errors
    /// As of [`Config::read`].
    pub fn parse(text: &str) -> Result<Config, String> {
        let table = DeTable::parse(text).map_err(|e| e.to_string())?;
        let mut config = Config::default();
        for (key, value) in table.get_ref() {
            let known = ["sandbox", "staging", "production", "page"];
            let field = match key.get_ref().as_ref() {
                "sandbox" => &mut config.sandbox,
                "staging" => &mut config.staging,
                "production" => &mut config.production,
                "page" => &mut config.page,
                other => {
                    let hint = super::front::nearest(other, &known).unwrap_or("sandbox, staging, production or page");
                    return Err(format!("`{other}` is no key of the configuration; there is {hint}"));
                }
            };
            let text = |value: &DeValue<'_>| value.as_str().map(String::from);
            let texts = value.get_ref().as_array().map(|list| list.iter().map(|v| text(v.get_ref())).collect());
            let texts: Option<Vec<String>> = texts.unwrap_or_default();
            *field = texts.ok_or_else(|| format!("`{}` is a list of texts", key.get_ref()))?;
        }
        Ok(config)
    }

    /// How a name is listed; production first.
    pub fn of_name(&self, name: &str) -> Option<Listed> {
        self.listed(|entry| glob(entry, name))
    }

    /// How an address is listed; production first.
    pub fn of_address(&self, address: IpAddr) -> Option<Listed> {
        let address = address.to_canonical();
        self.listed(|entry| within(entry, address))
    }

    fn listed(&self, holds: impl Fn(&str) -> bool) -> Option<Listed> {
        let lists = [
            (&self.production, Listed::Production),
            (&self.staging, Listed::Staging),
            (&self.sandbox, Listed::Sandbox),
        ];
        lists.into_iter().find(|(list, _)| list.iter().any(|entry| holds(entry))).map(|(_, listed)| listed)
    }

    /// For a manifest.
    pub fn to_json(&self) -> Json {
        json!({ "sandbox": self.sandbox, "staging": self.staging, "production": self.production, "page": self.page })
    }
}

/// Does a text match a pattern in which `*` stands for anything? Case does not count. O(n·m) at worst.
pub fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.to_lowercase(), text.to_lowercase());
    let mut parts = pattern.split('*');
    let Some(rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut rest = rest;
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Is an address the one named, or of the network named?
fn within(entry: &str, address: IpAddr) -> bool {
    let Some((network, bits)) = entry.split_once('/') else {
        return entry.parse::<IpAddr>().is_ok_and(|a| a == address);
    };
    let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>()) else { return false };
    match (network, address) {
        (IpAddr::V4(n), IpAddr::V4(a)) if bits <= 32 => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            n.to_bits() & mask == a.to_bits() & mask
        }
        (IpAddr::V6(n), IpAddr::V6(a)) if bits <= 128 => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            n.to_bits() & mask == a.to_bits() & mask
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_match_names_addresses_and_networks() {
        let config = Config::parse(
            "sandbox = [\"db-1.test\", \"10.1.0.0/16\"]\nstaging = [\"*.staging.example\"]\nproduction = [\"10.1.9.9\"]",
        )
        .unwrap();
        assert_eq!(config.of_name("DB-1.test"), Some(Listed::Sandbox));
        assert_eq!(config.of_name("a.staging.example"), Some(Listed::Staging));
        assert_eq!(config.of_name("staging.example.com"), None);
        assert_eq!(config.of_address("10.1.2.3".parse().unwrap()), Some(Listed::Sandbox));
        assert_eq!(config.of_address("10.1.9.9".parse().unwrap()), Some(Listed::Production), "production wins");
        assert_eq!(config.of_address("10.2.0.1".parse().unwrap()), None);
        assert_eq!(config.of_address("::1".parse().unwrap()), None);
    }

    #[test]
    fn stars_stand_for_anything_and_nothing_else_does() {
        for (pattern, text, holds) in [
            ("*", "", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "abc", true),
            ("a*c", "ab", false),
            ("ab", "abc", false),
            ("a*b*c", "axxbyyc", true),
            ("a*a", "a", false),
            ("arn:aws:fis:*:1:*", "arn:aws:fis:eu-1:1:experiment/x", true),
        ] {
            assert_eq!(glob(pattern, text), holds, "{pattern} {text}");
        }
    }

    #[test]
    fn an_unknown_key_or_a_wrong_value_is_an_error() {
        assert!(Config::parse("sandbx = []").unwrap_err().contains("sandbox"));
        assert!(Config::parse("sandbox = [1]").unwrap_err().contains("list of texts"));
        assert!(Config::parse("sandbox = \"x\"").is_err());
    }
}
