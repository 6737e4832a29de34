//! A row for every refusal, and their order.

use super::*;

fn nowhere(_: &str) -> Vec<IpAddr> {
    Vec::new()
}

fn place<'a>(config: &'a Config, resolve: &'a dyn Fn(&str) -> Vec<IpAddr>) -> Place<'a> {
    Place { config, rules: &[], own_addresses: &[], home: Path::new("/var/lib/app/.elench"), minute: 720, resolve }
}

const GOOD: &str = "name: x\ntarget: 127.0.0.1:5432\ntrust_level: sandbox\nblast_radius_pct: 30\nsteady_state: \"error_rate < 0.1\"\nrollback_after_sec: 30\n";

fn judged(front: &str) -> Result<(), Refusal> {
    judged_with(front, &Config::default(), &nowhere)
}

fn judged_with(front: &str, config: &Config, resolve: &dyn Fn(&str) -> Vec<IpAddr>) -> Result<(), Refusal> {
    let text = format!("---\n{front}---\n");
    judge(&Draft::parse(&text).unwrap(), &place(config, resolve))
}

fn code(front: &str) -> Code {
    judged(front).unwrap_err().code
}

fn without(key: &str) -> String {
    GOOD.lines().filter(|l| !l.starts_with(key)).map(|l| format!("{l}\n")).collect()
}

fn with(key: &str, value: &str) -> String {
    format!("{}{key}: {value}\n", without(key))
}

#[test]
fn loopback_goes_on_and_whatever_is_not_known_to_be_harmless_does_not() {
    assert_eq!(judged(GOOD), Ok(()));
    assert_eq!(judged(&with("target", "\"[::1]:80\"")), Ok(()));
    for target in [
        "10.0.0.5:80",
        "8.8.8.8",
        "db.example",
        "db-prod.test",
        "arn:aws:fis:eu-1:1:x",
        "kube:main/ns",
        "\"http://10.1.1.1/x\"",
    ] {
        assert_eq!(code(&with("target", target)), Code::ProdUnauthorized, "{target}");
    }
    assert_eq!(code(&without("target")), Code::ProdUnauthorized);
    assert_eq!(code(&with("trust_level", "staging").replace("127.0.0.1", "10.0.0.5")), Code::ProdUnauthorized);
}

#[test]
fn every_address_of_a_name_is_judged() {
    let config = Config::parse("sandbox = [\"10.1.0.0/16\"]").unwrap();
    let both = |_: &str| vec!["10.1.0.1".parse().unwrap(), "10.2.0.1".parse().unwrap()];
    let one = |_: &str| vec!["10.1.0.1".parse().unwrap()];
    let front = with("target", "db.test:80");
    assert_eq!(judged_with(&front, &config, &one), Ok(()));
    assert!(judged_with(&front, &config, &both).unwrap_err().why.contains("10.2.0.1"));
    let mapped = |_: &str| vec!["::ffff:10.2.0.1".parse().unwrap()];
    assert!(judged_with(&front, &config, &mapped).is_err());
}

#[test]
fn the_configuration_lists_and_tokens_of_production_stand_above_it() {
    let config = Config::parse(
        "sandbox = [\"arn:aws:fis:*\", \"kube:kind\", \"db.test\", \"db-live.test\"]\nproduction = [\"127.0.0.2\"]",
    )
    .unwrap();
    for target in ["arn:aws:fis:eu-1:1:x", "kube:kind", "db.test:80"] {
        assert_eq!(judged_with(&with("target", target), &config, &nowhere), Ok(()), "{target}");
    }
    assert!(judged_with(&with("target", "db-live.test"), &config, &nowhere).is_err());
    assert!(judged_with(&with("target", "127.0.0.2:1"), &config, &nowhere).is_err());
}

#[test]
fn what_a_fault_names_is_judged_like_the_target() {
    for fault in [
        "{injector: proxy, upstream: \"10.0.0.5:80\"}",
        "{injector: nft, hosts: [127.0.0.1, 10.0.0.5]}",
        "{injector: x, deep: {any: 10.0.0.5}}",
    ] {
        assert_eq!(code(&format!("{GOOD}fault: {fault}\n")), Code::ProdUnauthorized, "{fault}");
    }
    assert_eq!(judged(&format!("{GOOD}fault: {{injector: proxy, upstream: \"127.0.0.1:80\"}}\n")), Ok(()));
}

#[test]
fn production_needs_a_ticket_and_then_goes_on() {
    let authorized = with("trust_level", "production-authorized").replace("127.0.0.1:5432", "db-prod");
    assert_eq!(code(&authorized), Code::ProdUnauthorized);
    assert_eq!(code(&format!("{authorized}change-ticket: \"  \"\n")), Code::ProdUnauthorized);
    assert_eq!(judged(&format!("{authorized}change-ticket: CHG-7\n")), Ok(()));
}

#[test]
fn a_blast_radius_that_is_none_is_refused() {
    assert_eq!(code(&without("blast_radius_pct")), Code::BlastRadiusInvalid);
    for value in ["0", "101", "-5", "100", "\"30\"", "33.5", "[1]"] {
        assert_eq!(code(&with("blast_radius_pct", value)), Code::BlastRadiusInvalid, "{value}");
    }
    let all = format!("{}target_class: single-shard-sandbox\n", with("blast_radius_pct", "100"));
    assert_eq!(judged(&all), Ok(()));
}

#[test]
fn no_steady_state_and_no_timer_are_refused() {
    assert_eq!(code(&without("steady_state")), Code::NoSteadyState);
    assert_eq!(code(&with("steady_state", "\"\"")), Code::NoSteadyState);
    assert_eq!(code(&without("rollback_after_sec")), Code::NoSteadyState);
    assert_eq!(code(&with("rollback_after_sec", "0")), Code::NoSteadyState);
    assert_eq!(code(&with("rollback_after_sec", "soon")), Code::NoSteadyState);
}

#[test]
fn our_own_evidence_and_our_own_process_are_out_of_reach() {
    for fault in [
        "{injector: disk, mount: /var/lib}",
        "{injector: disk, mount: /}",
        "{injector: disk, path: /var/lib/app/.elench/evidence}",
    ] {
        assert_eq!(code(&format!("{GOOD}fault: {fault}\n")), Code::ContextConflict, "{fault}");
    }
    assert_eq!(judged(&format!("{GOOD}fault: {{injector: disk, mount: /mnt/other}}\n")), Ok(()));
    let own = format!("{GOOD}fault: {{injector: process, pids: [{}]}}\n", std::process::id());
    assert_eq!(code(&own), Code::ContextConflict);
}

#[test]
fn refusals_come_in_their_order_whatever_else_is_wrong() {
    let all_wrong = "target: db-prod\nnonsense: 1\nfault: {injector: disk, mount: /}\n";
    let steps = [
        ("", Code::ProdUnauthorized),
        ("trust_level: production-authorized\n", Code::ProdUnauthorized),
        ("change-ticket: CHG-1\n", Code::BlastRadiusInvalid),
        ("blast_radius_pct: 10\n", Code::NoSteadyState),
        ("steady_state: \"x < 1\"\n", Code::NoSteadyState),
        ("rollback_after_sec: 5\n", Code::ContextConflict),
    ];
    let mut front = all_wrong.to_string();
    for (more, expected) in steps {
        front.push_str(more);
        assert_eq!(code(&front), expected, "{front}");
    }
}

#[test]
fn a_missing_tool_is_an_error_and_a_missing_privilege_a_reason_to_skip() {
    let probe = |state| Probe { injector: "nft", state, version: None };
    assert_eq!(ready(&probe(Readiness::Ready)), Ok(None));
    assert_eq!(ready(&probe(Readiness::Missing("install nftables".into()))).unwrap_err().code, Code::InjectorMissing);
    let skipped = ready(&probe(Readiness::Unprivileged("CAP_NET_ADMIN".into()))).unwrap();
    assert_eq!(skipped.as_deref(), Some("insufficient-privilege: CAP_NET_ADMIN"));
}

#[test]
fn the_file_system_that_holds_our_evidence_is_out_of_reach_under_any_name() {
    let dir = tempfile::tempdir().unwrap();
    let (home, beside) = (dir.path().join(".elench"), dir.path().join("db"));
    std::fs::create_dir(&beside).unwrap();
    let config = Config::default();
    let filled = |mount: &str| {
        let text = format!("---\n{GOOD}fault: {{injector: disk, mount: {mount}}}\n---\n");
        judge(&Draft::parse(&text).unwrap(), &Place { home: &home, ..place(&config, &nowhere) })
    };
    let refusal = filled(&beside.display().to_string()).unwrap_err();
    assert_eq!(refusal.code, Code::ContextConflict, "the evidence would lie on the same file system");
    assert_eq!(filled("/proc"), Ok(()), "another file system");
}

#[test]
fn a_cluster_is_judged_by_its_context_and_what_is_selected_in_it_by_its_names() {
    let config = Config::parse("sandbox = [\"kube:kind\"]").unwrap();
    let of = |fault: &str| format!("{}fault: {{injector: chaos-mesh, {fault}}}\n", with("target", "kube:kind"));
    let judged = |fault: &str| judged_with(&of(fault), &config, &nowhere);
    assert_eq!(judged("context: kind, kind: PodChaos, namespace: shop, labels: [app=web]"), Ok(()));
    for (fault, why) in [
        ("context: main, kind: PodChaos, labels: [app=web]", "does not list: sandbox = [\"kube:main\"]"),
        ("context: kind, kind: PodChaos, namespace: shop-prod, labels: [app=web]", "`prod`"),
        ("context: kind, kind: PodChaos, labels: [env=production]", "`production`"),
        ("context: kind, file: /no/such/file", "cannot be held to any rule"),
    ] {
        let refusal = judged(fault).unwrap_err();
        assert!(refusal.why.contains(why), "{fault}: {refusal}");
    }
}

#[test]
fn a_manifest_is_judged_like_what_is_written_in_the_scenario() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.yaml");
    let config = Config::parse("sandbox = [\"kube:kind\"]").unwrap();
    let front = format!(
        "{}fault: {{injector: chaos-mesh, context: kind, file: {}}}\n",
        with("target", "kube:kind"),
        file.display()
    );
    let of = |rest: &str| {
        std::fs::write(&file, format!("kind: NetworkChaos\nmetadata: {{name: x}}\nspec:\n  mode: one\n{rest}"))
            .unwrap();
        judged_with(&front, &config, &nowhere)
    };
    assert_eq!(of("  selector: {namespaces: [shop], labelSelectors: {app: web}}\n"), Ok(()));
    for bad in [
        "  selector: {namespaces: [prod]}\n",
        "  selector: {labelSelectors: {env: production}}\n",
        "  selector: {pods: {live: [web-1]}}\n",
        "  selector: {namespaces: [shop]}\n  externalTargets: [8.8.8.8]\n",
        "  selector: {namespaces: [shop]}\n  target: {mode: all, selector: {namespaces: [shop-prd]}}\n",
    ] {
        assert_eq!(of(bad).unwrap_err().code, Code::ProdUnauthorized, "{bad}");
    }
}

#[test]
fn a_template_of_fis_is_judged_by_the_arn_that_is_the_target() {
    let config = Config::parse("sandbox = [\"arn:aws:fis:*:123456789012:*\"]").unwrap();
    let of = |target: &str, template: &str| {
        let front = format!("{}fault: {{injector: aws-fis, template: {template}}}\n", with("target", target));
        judged_with(&front, &config, &nowhere)
    };
    assert_eq!(of("arn:aws:fis:eu-1:123456789012:experiment-template/EXT1", "EXT1"), Ok(()));
    for (target, template) in [
        ("arn:aws:fis:eu-1:123456789012:experiment-template/EXT1", "EXT2"),
        ("127.0.0.1:80", "EXT1"),
        ("arn:aws:fis:eu-1:999999999999:experiment-template/EXT1", "EXT1"),
    ] {
        let refusal = of(target, template).unwrap_err();
        assert!(refusal.code == Code::ProdUnauthorized && refusal.why.contains("list"), "{refusal}");
    }
}

#[test]
fn where_a_workload_connects_is_judged_like_the_target() {
    for (rest, fine) in [
        ("workload: {driver: redis, endpoints: [\"127.0.0.1:1\", \"[::1]:2\"]}\n", true),
        ("workload: {driver: redis, endpoints: [\"127.0.0.1:1\", \"8.8.8.8:2\"]}\n", false),
        ("workload: {driver: redis, endpoints: db-prod}\n", false),
        ("arms:\n  - {name: a, workload: {driver: redis, endpoints: [\"10.0.0.9:1\"]}}\n", false),
    ] {
        assert_eq!(judged(&format!("{GOOD}{rest}")).is_ok(), fine, "{rest}");
    }
}
