//! May this be done at all? Refusals, in the order of the specification, before any injector is started; nothing switches them off.
//!
//! What is not known to be harmless is production: only loopback, addresses of network namespaces that the run made, and what the
//! configuration lists as sandbox or staging are not. A name is judged by its tokens and by every address that it resolves to; one that does
//! not resolve cannot be judged, so it is production. What a fault's own parameters name (an upstream, a host to cut off) is judged like
//! the target.

use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::config::{Config, Listed};
use super::context::{self, Written, host};
use super::front::Datum;
use super::injector::{Probe, Readiness};
use super::scenario::{Draft, SINGLE_SHARD, Trust};
use super::{Code, Refusal};

/// What the perimeter knows of the place.
pub struct Place<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// Rules of the domain.
    pub rules: &'a [Written],
    /// Addresses inside network namespaces that this run made.
    pub own_addresses: &'a [IpAddr],
    /// Where evidence and ledger lie.
    pub home: &'a Path,
    /// Minute of the day, UTC.
    pub minute: u16,
    /// Addresses of a name.
    pub resolve: &'a dyn Fn(&str) -> Vec<IpAddr>,
}

/// Addresses of a name, as the system resolves it.
pub fn resolve(name: &str) -> Vec<IpAddr> {
    (name, 0).to_socket_addrs().map(|list| list.map(|a| a.ip()).collect()).unwrap_or_default()
}

/// Refusals 1 to 5, from what is written alone.
///
/// # Errors
/// The first refusal.
pub fn judge(draft: &Draft<'_>, place: &Place<'_>) -> Result<(), Refusal> {
    let trust = draft.text("trust_level").as_deref().and_then(Trust::from_name);
    if trust != Some(Trust::ProductionAuthorized)
        && let Some(why) = production(draft, place)
    {
        let why = format!("{why}; `trust_level: production-authorized` with a `change-ticket` allows it");
        return Err(Refusal::new(Code::ProdUnauthorized, why));
    }
    if trust == Some(Trust::ProductionAuthorized) && draft.text("change-ticket").is_none() {
        let why = "`trust_level: production-authorized` needs a `change-ticket` that says who approved it";
        return Err(Refusal::new(Code::ProdUnauthorized, why));
    }
    blast_radius(draft)?;
    if draft.text("steady_state").is_none() {
        return Err(Refusal::new(Code::NoSteadyState, "`steady_state` is missing: what must hold, over SLIs"));
    }
    if !matches!(draft.get("rollback_after_sec"), Some(Datum::Int(1..))) {
        let why = "`rollback_after_sec` is missing or no number from 1 on: the fault must be gone by then";
        return Err(Refusal::new(Code::NoSteadyState, why));
    }
    if let Some(why) = draft.unreadable() {
        let why = format!("`fault.file`: {why}; what cannot be read cannot be held to any rule");
        return Err(Refusal::new(Code::ContextConflict, why));
    }
    own_evidence(draft, place)?;
    context::judge(place.rules, draft, place.minute)
}

/// Refusals 6 and 7, from what an injector found here.
///
/// # Errors
/// The outer: the injector is missing. `Ok(Some(reason))`: it is to be skipped for want of a privilege.
pub fn ready(probe: &Probe) -> Result<Option<String>, Refusal> {
    match &probe.state {
        Readiness::Ready => Ok(None),
        Readiness::Missing(how) => {
            Err(Refusal::new(Code::InjectorMissing, format!("injector {}: {how}", probe.injector)))
        }
        Readiness::Unprivileged(what) => Ok(Some(format!("insufficient-privilege: {what}"))),
    }
}

fn blast_radius(draft: &Draft<'_>) -> Result<(), Refusal> {
    let refuse = |why: String| Err(Refusal::new(Code::BlastRadiusInvalid, why));
    match draft.get("blast_radius_pct") {
        None => refuse("`blast_radius_pct` is missing: the share that may be hit, 1 to 100".into()),
        Some(Datum::Int(100)) if draft.text("target_class").as_deref() != Some(SINGLE_SHARD) => {
            refuse(format!("`blast_radius_pct: 100` is only for `target_class: {SINGLE_SHARD}`"))
        }
        Some(Datum::Int(1..=100)) => Ok(()),
        Some(Datum::Int(n)) => refuse(format!("`blast_radius_pct` is a whole number from 1 to 100, not {n}")),
        Some(other) => refuse(format!("`blast_radius_pct` is a whole number from 1 to 100, not {}", other.kind())),
    }
}

/// Why the target, or something that the fault names, is production.
fn production(draft: &Draft<'_>, place: &Place<'_>) -> Option<String> {
    let Some(target) = draft.text("target") else {
        return Some("`target` is missing, so it cannot be shown not to be production".into());
    };
    let fields = draft.fault_fields();
    let of_template = target.rsplit('/').next().map(String::from);
    let own = is_production(&target, place).map(|why| format!("`target: {target}` {why}"));
    // Load is no less of a burden than a fault, and drivers write.
    let loaded = || {
        draft
            .endpoints()
            .into_iter()
            .find_map(|(key, address)| is_production(&address, place).map(|why| format!("`{key}: {address}` {why}")))
    };
    own.or_else(loaded).or_else(|| {
        fields.iter().find_map(|(key, value)| {
            let why = match key.rsplit('.').next().unwrap_or(key) {
                "context" => is_cluster_of_production(value, place),
                // Where the target is the template's own ARN, that was judged.
                "template" if target.starts_with("arn:") && of_template.as_ref() == Some(value) => None,
                "template" => is_template_of_production(value, place),
                _ if names_pods(key) => context::names_of(key, value).into_iter().find_map(token),
                _ if names_a_host(key, value) => is_production(value, place),
                _ => None,
            };
            why.map(|why| format!("`fault.{key}: {value}` {why}"))
        })
    })
}

/// Does a parameter of a fault say which pods it hits?
fn names_pods(key: &str) -> bool {
    key.contains("selector.") || matches!(key.rsplit('.').next(), Some("namespace" | "namespaces" | "labels"))
}

/// Does a parameter of a fault name something on a network? By its key, or because it reads like an address.
fn names_a_host(key: &str, value: &str) -> bool {
    let last = key.rsplit('.').next().unwrap_or(key);
    let keys = [
        "upstream",
        "host",
        "hosts",
        "from",
        "to",
        "url",
        "address",
        "endpoint",
        "listen",
        "destination",
        "externalTargets",
    ];
    let address = host(value).parse::<IpAddr>().is_ok();
    (keys.contains(&last) && !value.is_empty()) || address || value.starts_with("arn:") || value.contains("://")
}

/// The word in a name that says production.
fn token(name: &str) -> Option<String> {
    let word = name
        .split(|c: char| !c.is_ascii_alphanumeric())
        .map(str::to_lowercase)
        .find(|t| matches!(t.as_str(), "prod" | "production" | "prd" | "live"))?;
    Some(format!("bears the token `{word}`"))
}

/// A cluster is known by the context of kubeconfig that reaches it.
fn is_cluster_of_production(context: &str, place: &Place<'_>) -> Option<String> {
    if let Some(why) = token(context) {
        return Some(why);
    }
    let listed = place.config.of_name(&format!("kube:{context}")).or_else(|| place.config.of_name(context));
    match listed {
        Some(Listed::Sandbox | Listed::Staging) => None,
        Some(Listed::Production) => Some("is listed as production".into()),
        None => Some(format!("is a cluster that .elench/config.toml does not list: sandbox = [\"kube:{context}\"]")),
    }
}

fn is_template_of_production(template: &str, place: &Place<'_>) -> Option<String> {
    match place.config.of_name(template) {
        Some(Listed::Sandbox | Listed::Staging) => None,
        Some(Listed::Production) => Some("is listed as production".into()),
        None => Some(format!(
            "is an experiment template whose account nobody knows: let `target` be its ARN (arn:aws:fis:REGION:ACCOUNT:experiment-template/{template}) and list that in .elench/config.toml as sandbox or staging"
        )),
    }
}

fn is_production(target: &str, place: &Place<'_>) -> Option<String> {
    let name = host(target);
    if let Some(why) = token(target) {
        return Some(why);
    }
    let listed = place.config.of_name(target).or_else(|| place.config.of_name(name));
    match listed {
        Some(Listed::Production) => return Some("is listed as production".into()),
        Some(Listed::Sandbox | Listed::Staging) => return None,
        None => {}
    }
    if target.starts_with("arn:") || target.starts_with("kube:") {
        return Some("is not listed in .elench/config.toml as sandbox or staging".into());
    }
    let addresses = match name.parse::<IpAddr>() {
        Ok(address) => vec![address],
        Err(_) => (place.resolve)(name),
    };
    if addresses.is_empty() {
        return Some("does not resolve, so it cannot be shown not to be production".into());
    }
    addresses.into_iter().find_map(|address| {
        let address = address.to_canonical();
        match place.config.of_address(address) {
            Some(Listed::Production) => Some(format!("is {address}, which is listed as production")),
            Some(Listed::Sandbox | Listed::Staging) => None,
            None if address.is_loopback() || place.own_addresses.contains(&address) => None,
            None => Some(format!(
                "is {address}, which is neither loopback nor listed in .elench/config.toml as sandbox or staging (a sandbox is listed by a line such as sandbox = [\"{address}\"])"
            )),
        }
    })
}

/// Would the fault reach our own evidence or ourselves?
fn own_evidence(draft: &Draft<'_>, place: &Place<'_>) -> Result<(), Refusal> {
    let home = place.home.canonicalize().unwrap_or_else(|_| place.home.to_path_buf());
    let ours = i64::from(std::process::id());
    for (key, value) in draft.fault_fields() {
        let path = Path::new(&value);
        let touches = path.is_absolute() && {
            let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
            home.starts_with(&path) || path.starts_with(&home)
        };
        let last = key.rsplit('.').next().unwrap_or(&key);
        let mount = matches!(last, "mount" | "device" | "dir" | "path" | "file");
        // A file system may be mounted elsewhere, too, or be named by a directory beside ours.
        let shared = last == "mount" && path.metadata().is_ok_and(|m| device_of(&home) == Some(m.dev()));
        if (touches && mount) || shared {
            let why = format!("`fault.{key}: {value}` reaches the evidence of Elench itself, at {}", home.display());
            return Err(Refusal::new(Code::ContextConflict, why));
        }
        if last == "pids" && value.parse() == Ok(ours) {
            return Err(Refusal::new(Code::ContextConflict, format!("`fault.{key}: {value}` is Elench itself")));
        }
    }
    Ok(())
}

/// The device that a path lies on, or would lie on once it is made.
fn device_of(path: &Path) -> Option<u64> {
    path.ancestors().find_map(|p| p.metadata().ok()).map(|m| m.dev())
}

#[cfg(test)]
mod tests;
