//! Faults as scenarios declare them: what is read, and what is complained of.

use super::{Cap, Fault};
use crate::experiment::front::{Fields, split};
use crate::verdict::blame::FaultClass;

fn take(yaml: &str) -> Result<Fault, String> {
    let text = format!("---\n{yaml}\n---\n");
    let (entries, _) = split(&text).map_err(|c| c.to_string())?;
    let mut fields = Fields::new("fault", &entries, 1);
    let mut wrong = Vec::new();
    let fault = Fault::take(&mut fields, &mut wrong);
    fields.finish(&mut wrong);
    let said = wrong.iter().map(|c| c.what.clone()).collect::<Vec<_>>().join("; ");
    fault.filter(|_| wrong.is_empty()).ok_or(said)
}

#[test]
fn every_fault_is_read_and_knows_its_name_and_class() {
    for (yaml, name, class) in [
        (
            "injector: nft\naction: full\nfrom: 10.0.0.1\nto: [10.0.0.2, '10.0.0.3:80']\nnetns: n1",
            "nft",
            FaultClass::Partition,
        ),
        (
            "injector: iptables\naction: random\nfrom: [10.0.0.1]\nto: [10.0.0.2]\nshare_pct: 12.5\nprotocol: udp\nhook: output",
            "iptables",
            FaultClass::Network,
        ),
        (
            "injector: tc\ndev: eth0\nto: [10.0.0.2]\ndelay_ms: 100\njitter_ms: 10\nloss_pct: 1\nrate_kbit: 512",
            "tc",
            FaultClass::Network,
        ),
        ("injector: process\naction: restart\npids: [4711]\nstart: [db]\ncheck: [ping]", "process", FaultClass::Crash),
        ("injector: clock\nfile: [/run/n1.rc]\noffset_sec: -30\nread: date +%s", "clock", FaultClass::Pause),
        ("injector: disk\nmount: /mnt/db\nmax_mb: 64", "disk", FaultClass::Disk),
        (
            "injector: chaos-mesh\ncontext: kind-test\nkind: NetworkChaos\nlabels: [app=web]\nspec:\n  action: partition\n  delay: {latency: 90ms}",
            "chaos-mesh",
            FaultClass::Partition,
        ),
        ("injector: chaos-mesh\ncontext: kind-test\nfile: x.yaml", "chaos-mesh", FaultClass::None),
        ("injector: aws-fis\ntemplate: EXT12ab\nregion: eu-west-1\nvictim: ./state.sh", "aws-fis", FaultClass::None),
    ] {
        let fault = take(yaml).unwrap_or_else(|e| panic!("{yaml}: {e}"));
        assert_eq!(fault.name(), name);
        assert_eq!(fault.class(), class, "{yaml}");
        assert_eq!(serde_json::to_value(&fault).unwrap()["injector"], name, "as evidence tells it");
    }
}

#[test]
fn what_is_wrong_with_a_fault_is_named() {
    for (yaml, said) in [
        ("injector: ntf", "did you mean `nft`"),
        ("injector: process\naction: restart\npids: [4711]\nstart: [db]", "`fault.check` is missing"),
        ("injector: nft\naction: all\nfrom: a\nto: b", "full, one-way, partial, random"),
        ("injector: nft\naction: full\nfrom: a", "`fault.to` is missing"),
        ("injector: nft\naction: partial\nfrom: a\nto: b", "two hosts"),
        ("injector: nft\naction: full\nfrom: a\nto: b\nshare_pct: 3", "only for `action: random`"),
        ("injector: nft\naction: random\nfrom: a\nto: b\nshare_pct: 0", "0.01 to 100"),
        ("injector: nft\naction: full\nfrom: a\nto: b\nhook: prerouting", "input, output or forward"),
        ("injector: nft\naction: full\nfrom: a\nto: b\nnetns: 'a; reboot'", "network namespace"),
        ("injector: nft\naction: full\nfrom: a\nto: b\nprotcol: tcp", "did you mean `protocol`"),
        ("injector: tc\ndev: eth0\nto: a", "nothing would happen"),
        ("injector: tc\ndev: eth0\ndelay_ms: 5", "`fault.to` is missing"),
        ("injector: tc\ndev: eth0\nto: a\ndelay_ms: -5", "above 0"),
        ("injector: tc\ndev: eth0\nto: a\nloss_pct: 101", "100 at most"),
        ("injector: tc\ndev: eth0\nto: a\nreorder_pct: 10", "needs `delay_ms`"),
        ("injector: clock\nfile: n1.rc\noffset_sec: 30", "whole paths"),
        ("injector: clock\nfile: /run/n1.rc\noffset_sec: 0.1", "too small"),
        ("injector: disk", "`fault.mount` is missing"),
        ("injector: chaos-mesh\ncontext: c\nkind: Schedule\nlabels: [a=b]", "is one of PodChaos"),
        ("injector: chaos-mesh\ncontext: c\nkind: PodChaos", "names the pods"),
        ("injector: chaos-mesh\nkind: PodChaos\nlabels: [a=b]", "`fault.context` is missing"),
        ("injector: chaos-mesh\ncontext: c\nkind: PodChaos\nlabels: [a=b]\nfile: x", "one of them"),
        ("injector: aws-fis\ntemplate: 'EXT1 --x'", "no id"),
    ] {
        let complaint = take(yaml).expect_err(yaml);
        assert!(complaint.contains(said), "{yaml}: {complaint}");
    }
}

#[test]
fn an_undo_is_known_before_anything_is_touched_and_goes_to_disk_and_back() {
    for yaml in [
        "injector: nft\naction: full\nfrom: 127.0.0.1:7\nto: 127.0.0.1:9",
        "injector: iptables\naction: full\nfrom: 127.0.0.1:7\nto: '[::1]:9'\n",
        "injector: tc\ndev: lo\nto: 127.0.0.1:9\ndelay_ms: 100",
        "injector: clock\nfile: /run/elench-never.rc\noffset_sec: 30",
        "injector: chaos-mesh\ncontext: none\nkind: PodChaos\nlabels: [app=web]",
    ] {
        let prepared = take(yaml).unwrap().prepare(Cap { percent: 50 });
        let Ok(injector) = prepared else {
            assert!(yaml.contains("[::1]"), "families do not mix: {yaml}");
            continue;
        };
        let undo = injector.undo();
        assert!(!undo.steps.is_empty() && !undo.what.is_empty() && !injector.plan().is_empty());
        let text = serde_json::to_string(&undo).unwrap();
        assert_eq!(serde_json::from_str::<super::undo::Undo>(&text).unwrap(), undo);
    }
}
