//! Which injectors can work here, whatever a scenario asks of them, and how to get the others?

use serde::Serialize;

use super::tool::{Reach, is_there, version, words};
use super::{Probe, Readiness, clock, tc};

/// One line of the capability matrix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Capability {
    /// What was found.
    #[serde(flatten)]
    pub probe: Probe,
    /// The privilege that it takes.
    pub privilege: &'static str,
    /// What the kernel has to have.
    pub kernel: &'static str,
}

/// The whole matrix.
pub fn capabilities() -> Vec<Capability> {
    let of = |probe: Probe| {
        let (privilege, kernel) = match probe.injector {
            "process" => ("same user as the victim, or root", "-"),
            "command" => ("the script's", "-"),
            "nft" => ("CAP_NET_ADMIN, or sudo -n", "nf_tables"),
            "iptables" => ("CAP_NET_ADMIN, or sudo -n", "xtables"),
            "tc" => ("CAP_NET_ADMIN, or sudo -n", "sch_prio, sch_netem, cls_u32"),
            "disk" => ("to write to the mount", "-"),
            "clock" => ("to write the file that the victim reads", "-"),
            "chaos-mesh" => ("kubeconfig: create and delete in the namespace", "the cluster's"),
            "aws-fis" => ("credentials: fis:StartExperiment, fis:StopExperiment", "-"),
            _ => ("none", "-"),
        };
        Capability { probe, privilege, kernel }
    };
    probes().into_iter().map(of).collect()
}

/// Every injector, probed without touching anything.
fn probes() -> Vec<Probe> {
    let reach = Reach::of(None);
    let of = |injector, state, version| Probe { injector, state, version };
    let own = || Some(env!("CARGO_PKG_VERSION").to_string());
    let tool = |injector, program: &str, package: &str, trial: &[&str], asked: &[&str]| {
        of(injector, reach.readiness(program, package, trial), version(&words(asked)))
    };
    let there = |injector, program: &str, how: &str, asked: &[&str]| {
        let state = if is_there(program) { Readiness::Ready } else { Readiness::Missing(how.to_string()) };
        of(injector, state, version(&words(asked)))
    };
    let netem = match reach.readiness("tc", "iproute2", &["tc", "qdisc", "show", "dev", "lo"]) {
        Readiness::Ready => {
            tc::kernel_has("netem", &["delay", "1ms"]).map_or_else(Readiness::Missing, |()| Readiness::Ready)
        }
        other => other,
    };
    let faketime = match clock::library() {
        Some(_) => Readiness::Ready,
        None => Readiness::Missing("libfaketime is not there: install the Debian package faketime".into()),
    };
    let asks = "it is asked when a scenario names its `url`";
    vec![
        of("process", Readiness::Ready, own()),
        of("command", Readiness::Ready, own()),
        of("proxy", Readiness::Ready, own()),
        of("toxiproxy", Readiness::Ready, Some(asks.into())),
        tool("nft", "nft", "nftables", &["nft", "list", "tables"], &["nft", "--version"]),
        tool("iptables", "iptables", "iptables", &["iptables", "-S"], &["iptables", "--version"]),
        of("tc", netem, version(&words(&["tc", "-V"]))),
        of("clock", faketime, clock::library().map(|p| p.display().to_string())),
        there(
            "disk",
            "mountpoint",
            "`mountpoint` is not there: install the Debian package util-linux",
            &["mountpoint", "-V"],
        ),
        there(
            "chaos-mesh",
            "kubectl",
            "`kubectl` is not there: install it, and Chaos Mesh in the cluster",
            &["kubectl", "version", "--client"],
        ),
        there("aws-fis", "aws", "`aws` is not there: install the Debian package awscli", &["aws", "--version"]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::injector::NAMES;

    #[test]
    fn every_injector_is_told_of_and_what_is_missing_says_how_to_get_it() {
        let probes = probes();
        let names: Vec<&str> = probes.iter().map(|p| p.injector).collect();
        assert!(NAMES.iter().all(|name| names.contains(name)) && names.len() == NAMES.len(), "{names:?}");
        for probe in probes {
            if let Readiness::Missing(how) = probe.state {
                assert!(how.contains("install") || how.contains("modprobe"), "{how}");
            }
        }
    }
}
