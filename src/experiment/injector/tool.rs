//! Which tools are there, and may they be used? Asked without ever prompting.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use super::Readiness;
use super::undo::{run, typed};

/// `CAP_NET_ADMIN`: rules and qdiscs.
const NET_ADMIN: u32 = 12;
/// `CAP_SYS_ADMIN`: entering network namespaces.
const SYS_ADMIN: u32 = 21;

/// Is a program there? One with a slash is a file; others are looked for in `PATH`.
pub(super) fn is_there(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Is the program of a command there, which may stand behind `env NAME=VALUE`?
pub(super) fn can_start(argv: &[String]) -> bool {
    argv.iter().find(|w| *w != "env" && !w.contains('=')).is_some_and(|program| is_there(program))
}

/// The JSON that a command prints; null where it prints nothing.
///
/// # Errors
/// Those of [`run`], and anything that is no JSON.
pub(super) fn json_of(argv: &[String]) -> Result<Json, String> {
    let text = run(argv)?;
    if text.trim().is_empty() {
        return Ok(Json::Null);
    }
    serde_json::from_str(&text).map_err(|e| format!("what `{}` printed is no JSON: {e}", typed(argv)))
}

/// A word that no other run uses, of eight hexadecimal digits.
pub(super) fn tag() -> String {
    let id = uuid::Uuid::new_v4().simple().to_string();
    id[..8].to_string()
}

/// Is a text a name that commands take as one: letters, digits, `-`, `_` and `.`, and no flag?
pub(super) fn is_name(text: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && text.len() <= 63 && !text.starts_with(['-', '.']) && text.chars().all(fine)
}

/// Words of a command.
pub(super) fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|w| (*w).to_string()).collect()
}

/// How commands of the network are run: with which privileges, and in which network namespace.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    prefix: Vec<String>,
    netns: Option<String>,
    lacks: Option<String>,
}

impl Reach {
    /// For this process, in a network namespace or in its own.
    pub(super) fn of(netns: Option<&str>) -> Reach {
        let needed: &[u32] = if netns.is_some() { &[NET_ADMIN, SYS_ADMIN] } else { &[NET_ADMIN] };
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let allowed = effective_capabilities(&status);
        let own = needed.iter().all(|bit| allowed >> bit & 1 == 1);
        let sudo = !own && is_there("sudo") && run(&words(&["sudo", "-n", "true"])).is_ok();
        let mut prefix = if sudo { words(&["sudo", "-n"]) } else { Vec::new() };
        if let Some(name) = netns {
            prefix.extend(words(&["ip", "netns", "exec", name]));
        }
        let lacks = (!own && !sudo).then(|| {
            let which = if netns.is_some() { "CAP_NET_ADMIN and CAP_SYS_ADMIN are" } else { "CAP_NET_ADMIN is" };
            format!("{which} needed, and `sudo -n` would ask: run as root, or let sudo run without a password")
        });
        Reach { prefix, netns: netns.map(String::from), lacks }
    }

    /// A command as it is run.
    pub(super) fn argv(&self, list: &[&str]) -> Vec<String> {
        self.prefix.iter().cloned().chain(words(list)).collect()
    }

    /// The file that is there as long as the network namespace is.
    pub(super) fn place(&self) -> Option<PathBuf> {
        self.netns.as_ref().map(|name| Path::new("/run/netns").join(name))
    }

    /// Can a program of a Debian package be run so? `trial` is a command that changes nothing and needs the privilege.
    pub(super) fn readiness(&self, program: &str, package: &str, trial: &[&str]) -> Readiness {
        if !is_there(program) {
            return Readiness::Missing(format!("`{program}` is not there: install the Debian package {package}"));
        }
        if self.netns.is_some() && !is_there("ip") {
            return Readiness::Missing("`ip` is not there: install the Debian package iproute2".into());
        }
        if let Some(why) = &self.lacks {
            return Readiness::Unprivileged(why.clone());
        }
        if let Some(place) = self.place().filter(|p| !p.exists()) {
            return Readiness::Missing(format!("there is no network namespace {}", place.display()));
        }
        match run(&self.argv(trial)) {
            Ok(_) => Readiness::Ready,
            Err(why) if why.contains("not permitted") || why.contains("ermission denied") => {
                Readiness::Unprivileged(why)
            }
            Err(why) => Readiness::Missing(why),
        }
    }
}

/// The set of capabilities that count now (`CapEff` of `/proc/PID/status`); none where the kernel does not say.
fn effective_capabilities(status: &str) -> u64 {
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

/// The first line of what a program says of its version.
pub(super) fn version(argv: &[String]) -> Option<String> {
    let text = run(argv).ok()?;
    text.lines().map(str::trim).find(|l| !l.is_empty()).map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_flags_and_hold_nothing_that_a_shell_reads() {
        assert!(is_name("n1") && is_name("veth-a.7"));
        for bad in ["", "-n", "a b", "a;b", "../x", "a/b", "$(x)"] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn a_missing_tool_names_its_package_and_a_missing_namespace_is_named() {
        let reach = Reach { prefix: vec![], netns: None, lacks: None };
        let Readiness::Missing(how) = reach.readiness("no-such-tool", "nftables", &["true"]) else { panic!() };
        assert!(how.contains("nftables"));
        let lacking = Reach { lacks: Some("CAP_NET_ADMIN".into()), ..reach.clone() };
        assert!(matches!(lacking.readiness("true", "x", &["true"]), Readiness::Unprivileged(_)));
        let elsewhere = Reach { netns: Some("never-was".into()), ..reach.clone() };
        assert!(matches!(elsewhere.readiness("true", "x", &["true"]), Readiness::Missing(_)));
        assert_eq!(reach.readiness("true", "x", &["true"]), Readiness::Ready);
    }

    #[test]
    fn only_capabilities_in_effect_count() {
        let status = "CapPrm:\t000001ffffffffff\nCapEff:\t0000000000001000\nCapBnd:\t000001ffffffffff\n";
        assert_eq!(effective_capabilities(status), 1 << NET_ADMIN);
        assert_eq!(effective_capabilities("CapEff:\tx"), 0);
        assert_eq!(effective_capabilities(""), 0);
    }

    #[test]
    fn tags_differ() {
        assert_ne!(tag(), tag());
        assert!(is_name(&tag()));
    }
}
