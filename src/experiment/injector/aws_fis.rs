//! Starts an experiment of AWS Fault Injection Service, with the `aws` command: from a template that is registered there, never from one
//! made here.
//!
//! The template's own selection is held against the cap before it is started: `PERCENT(n)`, `COUNT(n)` and `ALL` of listed resources must not
//! hit more than the blast radius allows; a number of resources found by tags cannot be checked, and is refused. An experiment bears a
//! tag of the run, so that whoever reverts finds it without having seen its id, and stops it.
//!
//! That an action is `completed` proves nothing: emulators, and actions whose target resolved to nothing, say so while every
//! instance runs on. So this injector looks at the victims itself: at the state of EC2 instances that the template lists, and at what the
//! scenario's `victim` command prints. Without a change there, the fault has not landed. Tool: `aws` (Debian: awscli).

use serde::Serialize;
use serde_json::Value as Json;

use super::tool::{can_start, json_of, tag, version, words};
use super::undo::{Step, Undo, run};
use super::{Cap, Failed, Injector, Observation, Probe, Readiness};
use crate::experiment::front::{Complaint, Fields};
use crate::verdict::blame::FaultClass;

/// What a scenario says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spec {
    /// The template's id.
    pub template: String,
    /// The region.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The profile of credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The endpoint, where it is not AWS itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Prints the victim's state: what it prints must change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub victim: Vec<String>,
}

impl Spec {
    pub(super) fn take(fields: &mut Fields<'_>, wrong: &mut Vec<Complaint>) -> Option<Spec> {
        let template = fields.text("template", wrong);
        let is_id = |t: &String| !t.is_empty() && t.chars().all(|c| c.is_ascii_alphanumeric());
        if !template.as_ref().is_some_and(is_id) {
            wrong.push(fields.wrong("template", None, "is missing, or no id of a registered experiment template"));
        }
        let mut word = |key: &'static str| {
            let word = fields.text(key, wrong);
            if word.as_deref().is_some_and(|w| w.is_empty() || w.starts_with('-')) {
                wrong.push(fields.wrong(key, None, "is a name"));
            }
            word
        };
        let (region, profile, endpoint) = (word("region"), word("profile"), word("endpoint"));
        let victim = fields.texts("victim", wrong).unwrap_or_default();
        let victim = match victim.as_slice() {
            [line] => ["sh", "-c", line].map(String::from).to_vec(),
            _ => victim,
        };
        Some(Spec { template: template?, region, profile, endpoint, victim })
    }

    pub(super) fn class(&self) -> FaultClass {
        FaultClass::None
    }
}

/// States of an experiment that may still break something.
const ACTIVE: &str = "['pending','initiating','running','stopping']";
/// Stops every experiment that a query names: `$1` is the query, the rest the command.
const STOP: &str = r#"query=$1; shift; for id in $("$@" list-experiments --query "$query" --output text); do "$@" stop-experiment --id "$id"; done"#;

/// The injector.
#[derive(Debug)]
pub struct Fis {
    spec: Spec,
    cap: Cap,
    program: Vec<String>,
    tag: String,
    /// EC2 instances that the template lists; or why it could not be read.
    template: Result<Vec<String>, String>,
    experiment: Option<String>,
    /// How often it was started: AWS answers a token that it knows with the old experiment.
    starts: u32,
}

impl Fis {
    pub(super) fn prepare(spec: &Spec, cap: Cap) -> Result<Fis, String> {
        Fis::with(spec, cap, vec!["aws".into()])
    }

    fn with(spec: &Spec, cap: Cap, program: Vec<String>) -> Result<Fis, String> {
        let tag = format!("elench-{}", tag());
        let template = Err("the template was not read".into());
        let mut fis = Fis { spec: spec.clone(), cap, program, tag, template, experiment: None, starts: 0 };
        if can_start(&fis.program) {
            match fis.fetch() {
                Ok(template) => {
                    let victims = checked(&template, cap)?;
                    if victims.is_empty() && spec.victim.is_empty() {
                        return Err(format!(
                            "the template {} lists no EC2 instances by their ARNs, so there is no victim to look at, and that an action is `completed` proves nothing: name a `victim` command that prints the victim's state, which must change",
                            spec.template
                        ));
                    }
                    fis.template = Ok(victims);
                }
                Err(why) => fis.template = Err(why),
            }
        }
        Ok(fis)
    }

    fn aws(&self, service: &str, rest: &[&str]) -> Vec<String> {
        let mut out = self.program.clone();
        let mut flag = |name: &str, value: &Option<String>| {
            out.extend(value.iter().flat_map(|v| [name.to_string(), v.clone()]));
        };
        flag("--region", &self.spec.region);
        flag("--profile", &self.spec.profile);
        flag("--endpoint-url", &self.spec.endpoint);
        out.push(service.into());
        out.extend(words(rest));
        out
    }

    fn ask(&self, service: &str, rest: &[&str]) -> Result<Json, String> {
        let argv: Vec<&str> = rest.iter().copied().chain(["--output", "json"]).collect();
        json_of(&self.aws(service, &argv))
    }

    fn fetch(&self) -> Result<Json, String> {
        let answer = self.ask("fis", &["get-experiment-template", "--id", &self.spec.template])?;
        Ok(answer["experimentTemplate"].clone())
    }

    /// What `list-experiments` is asked for: something of each of our experiments that is active.
    fn query(&self, what: &str) -> String {
        format!("experiments[?tags.elench=='{}' && contains({ACTIVE}, state.status)].{what}", self.tag)
    }

    fn start(&self) -> Vec<String> {
        let tags = format!("elench={}", self.tag);
        let token = format!("{}-{}", self.tag, self.starts);
        let of = ["--experiment-template-id", &self.spec.template, "--client-token", &token, "--tags", &tags];
        let argv: Vec<&str> = ["start-experiment"].into_iter().chain(of).chain(["--output", "json"]).collect();
        self.aws("fis", &argv)
    }

    /// States of the victims, by name.
    fn victims(&self, out: &mut Observation) -> Result<(), String> {
        let ids = self.template.as_ref().map_or(&[][..], Vec::as_slice);
        if !ids.is_empty() {
            let argv: Vec<&str> =
                ["describe-instances", "--instance-ids"].into_iter().chain(ids.iter().map(String::as_str)).collect();
            for (id, state) in instances(&self.ask("ec2", &argv)?) {
                out.states.insert(format!("victim {id}"), state);
            }
        }
        if !self.spec.victim.is_empty() {
            out.states.insert("victim's own word".into(), run(&self.spec.victim)?.trim().to_string());
        }
        Ok(())
    }
}

/// Instances and their states.
fn instances(answer: &Json) -> Vec<(String, String)> {
    let list = |json: &Json| json.as_array().cloned().unwrap_or_default();
    let text = |json: &Json| json.as_str().unwrap_or_default().to_string();
    let all = list(&answer["Reservations"]).into_iter().flat_map(|r| list(&r["Instances"]));
    all.map(|i| (text(&i["InstanceId"]), text(&i["State"]["Name"]))).collect()
}

/// Does a template keep to the cap? Gives the EC2 instances that it lists.
fn checked(template: &Json, cap: Cap) -> Result<Vec<String>, String> {
    let targets = template["targets"].as_object().filter(|t| !t.is_empty());
    let targets = targets.ok_or("the template has no targets, so there is nothing that it hits")?;
    let mut ids = Vec::new();
    for (name, target) in targets {
        let arns: Vec<&str> =
            target["resourceArns"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
        let mode = target["selectionMode"].as_str().unwrap_or("ALL");
        within(mode, arns.len(), cap).map_err(|why| format!("target `{name}` of the template: {why}"))?;
        if target["resourceType"] == "aws:ec2:instance" {
            ids.extend(arns.iter().filter_map(|arn| arn.rsplit('/').next()).map(String::from));
        }
    }
    Ok(ids)
}

/// Does a selection, of so many listed resources (0: found by tags), keep to the cap?
fn within(mode: &str, listed: usize, cap: Cap) -> Result<(), String> {
    let number = |kind: &str| mode.strip_prefix(kind)?.strip_suffix(')')?.trim().parse::<usize>().ok();
    let allowed = cap.of(listed);
    let most = cap.percent;
    if cap.percent == 100 {
        return Ok(());
    }
    if let Some(share) = number("PERCENT(") {
        let fine = share <= usize::from(most);
        return if fine { Ok(()) } else { Err(format!("{mode} is above the blast radius of {most} %")) };
    }
    let count = if mode == "ALL" { Some(listed) } else { number("COUNT(") };
    match count {
        None => Err(format!("the selection `{mode}` is none that is known")),
        Some(_) if listed == 0 => {
            Err(format!("{mode} of resources found by tags cannot be held against {most} %: use PERCENT({most})"))
        }
        Some(n) if n <= allowed => Ok(()),
        Some(n) => {
            Err(format!("{n} of {listed} resources are above the blast radius of {most} %: {allowed} may be hit"))
        }
    }
}

impl Injector for Fis {
    fn probe(&self) -> Probe {
        let state = if !can_start(&self.program) {
            Readiness::Missing("`aws` is not there: install the Debian package awscli".into())
        } else {
            match &self.template {
                Ok(_) => Readiness::Ready,
                Err(why)
                    if ["credentials", "AccessDenied", "ExpiredToken", "Unauthorized", "UnrecognizedClient"]
                        .iter()
                        .any(|w| why.contains(w)) =>
                {
                    Readiness::Unprivileged(why.clone())
                }
                Err(why) => Readiness::Missing(why.clone()),
            }
        };
        let mut ask = self.program.clone();
        ask.push("--version".into());
        Probe { injector: "aws-fis", state, version: version(&ask) }
    }

    fn plan(&self) -> Vec<String> {
        vec![self.start().join(" ")]
    }

    fn undo(&self) -> Undo {
        let mut stop = words(&["sh", "-c", STOP, "elench", &self.query("id")]);
        stop.extend(self.aws("fis", &[]));
        let step = Step::Drop {
            commands: vec![stop],
            list: self.aws("fis", &["list-experiments", "--query", &self.query("tags.elench"), "--output", "text"]),
            name: self.tag.clone(),
            place: None,
        };
        Undo { what: format!("experiments of AWS FIS with the tag elench={}", self.tag), steps: vec![step] }
    }

    fn inject(&mut self) -> Result<(), Failed> {
        // It may have been changed since it was looked at.
        let template = self.fetch().map_err(Failed)?;
        self.template = Ok(checked(&template, self.cap).map_err(Failed)?);
        let start = self.start();
        self.starts += 1;
        let answer = json_of(&start).map_err(Failed)?;
        let id = answer["experiment"]["id"].as_str().ok_or_else(|| Failed("aws named no experiment".into()))?;
        self.experiment = Some(id.to_string());
        Ok(())
    }

    fn observe(&mut self) -> Result<Observation, Failed> {
        let mut out = Observation::default();
        out.states.insert("experiment".into(), "absent".into());
        if let Some(id) = &self.experiment {
            let answer = self.ask("fis", &["get-experiment", "--id", id]).map_err(Failed)?;
            let experiment = &answer["experiment"];
            let status = |json: &Json| json["status"].as_str().unwrap_or("unknown").to_string();
            out.states.insert("experiment".into(), status(&experiment["state"]));
            for (name, action) in experiment["actions"].as_object().into_iter().flatten() {
                out.states.insert(format!("action {name}"), status(&action["state"]));
            }
        }
        self.victims(&mut out).map_err(Failed)?;
        Ok(out)
    }

    fn landed(&self, before: &Observation, during: &Observation) -> (bool, String) {
        let acts = |(name, state): &(&String, &String)| {
            name.starts_with("action ") && matches!(state.as_str(), "running" | "completed")
        };
        let acted = during.states.iter().any(|pair| acts(&pair));
        let victims: Vec<(&String, &String)> =
            during.states.iter().filter(|(name, _)| name.starts_with("victim")).collect();
        if victims.is_empty() {
            return (false, "no victim was looked at: name a `victim` command that prints its state".into());
        }
        let was = |name: &str| before.states.get(name).cloned().unwrap_or_else(|| "unknown".into());
        let changed = victims.iter().any(|(name, is)| before.states.get(*name).is_some_and(|was| was != *is));
        let mut said: Vec<String> = victims.iter().map(|(name, is)| format!("{name}: {} -> {is}", was(name))).collect();
        let others = during.states.iter().filter(|(name, _)| !name.starts_with("victim"));
        said.extend(others.map(|(name, state)| format!("{name}: {state}")));
        (acted && changed, said.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// An `aws` that keeps an experiment and an instance in a directory and records how it is called. Like emulators, it completes every
    /// action at once; whether the instance stops is another matter.
    fn shim(dir: &Path) -> Vec<String> {
        let script = r#"#!/bin/sh
here=$(dirname "$0")
echo "$*" >> "$here/calls"
case "$*" in
  --version) echo "aws-cli/0.0 shim" ;;
  *get-experiment-template*) cat "$here/template" ;;
  *start-experiment*) echo running > "$here/experiment"; [ ! -e "$here/stops" ] || echo stopped > "$here/instance"
    echo '{"experiment":{"id":"EXP1","state":{"status":"initiating"}}}' ;;
  *stop-experiment*) [ -e "$here/stuck" ] || echo stopped > "$here/experiment" ;;
  *list-experiments*tags.elench\ --output*) [ "$(cat "$here/experiment" 2>/dev/null)" != running ] || sed -n 's/.*--tags elench=\(elench-[0-9a-f]*\).*/\1/p' "$here/calls" ;;
  *list-experiments*) [ "$(cat "$here/experiment" 2>/dev/null)" != running ] || echo EXP1 ;;
  *get-experiment\ *) echo '{"experiment":{"id":"EXP1","state":{"status":"completed"},"actions":{"stop":{"actionId":"aws:ec2:stop-instances","state":{"status":"completed","reason":"Action was completed."}}}}}' ;;
  *describe-instances*) echo '{"Reservations":[{"Instances":[{"InstanceId":"i-0a","State":{"Code":16,"Name":"'$(cat "$here/instance")'"}}]}]}' ;;
  *) echo "the shim does not know $*" >&2; exit 1 ;;
esac
"#;
        let path = dir.join("aws");
        std::fs::write(&path, script).unwrap();
        std::fs::write(dir.join("instance"), "running\n").unwrap();
        template(dir, "COUNT(1)", &["i-0a", "i-0b", "i-0c"]);
        // Not run as a program itself: a child that another test has forked may still hold it open.
        vec!["sh".into(), path.display().to_string()]
    }

    fn template(dir: &Path, mode: &str, ids: &[&str]) {
        let arns: Vec<String> = ids.iter().map(|id| format!("arn:aws:ec2:eu-west-1:1:instance/{id}")).collect();
        let target = serde_json::json!({
            "resourceType": "aws:ec2:instance", "resourceArns": arns, "selectionMode": mode });
        let whole = serde_json::json!({ "experimentTemplate": { "id": "EXT1", "targets": { "db": target } } });
        std::fs::write(dir.join("template"), whole.to_string()).unwrap();
    }

    fn spec() -> Spec {
        Spec {
            template: "EXT1".into(),
            region: Some("eu-west-1".into()),
            profile: None,
            endpoint: Some("http://127.0.0.1:9".into()),
            victim: vec![],
        }
    }

    fn fis(dir: &Path) -> Fis {
        Fis::with(&spec(), Cap { percent: 34 }, shim(dir)).unwrap()
    }

    fn run_once(fis: &mut Fis) -> (bool, String) {
        let before = fis.observe().unwrap();
        fis.inject().unwrap();
        let during = fis.observe().unwrap();
        assert_eq!(during.states["action stop"], "completed");
        fis.landed(&before, &during)
    }

    #[test]
    fn a_completed_action_whose_instance_runs_on_has_not_landed() {
        let dir = tempfile::tempdir().unwrap();
        let mut fis = fis(dir.path());
        assert_eq!(fis.probe().state, Readiness::Ready);
        let (landed, words) = run_once(&mut fis);
        assert!(!landed && words.contains("victim i-0a: running -> running"), "{words}");
    }

    #[test]
    fn an_instance_that_stops_has_landed() {
        let dir = tempfile::tempdir().unwrap();
        let mut fis = fis(dir.path());
        std::fs::write(dir.path().join("stops"), "").unwrap();
        let (landed, words) = run_once(&mut fis);
        assert!(landed, "{words}");
    }

    #[test]
    fn without_a_victim_nothing_is_started_and_with_its_own_word_it_can_land() {
        let dir = tempfile::tempdir().unwrap();
        let program = shim(dir.path());
        let tagged = serde_json::json!({ "experimentTemplate": { "targets": { "t": {
            "resourceType": "aws:ecs:task", "resourceTags": { "env": "test" }, "selectionMode": "PERCENT(30)" } } } });
        std::fs::write(dir.path().join("template"), tagged.to_string()).unwrap();
        let why = Fis::with(&spec(), Cap { percent: 34 }, program.clone()).unwrap_err();
        assert!(why.contains("name a `victim` command"), "{why}");
        std::fs::write(dir.path().join("stops"), "").unwrap();
        let victim = ["cat", dir.path().join("instance").to_str().unwrap()].map(String::from).to_vec();
        std::fs::write(dir.path().join("instance"), "running").unwrap();
        let mut seeing = Fis::with(&Spec { victim, ..spec() }, Cap { percent: 34 }, program).unwrap();
        assert!(run_once(&mut seeing).0);
    }

    #[test]
    fn a_revert_finds_the_experiment_by_its_tag_and_stops_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut fis = fis(dir.path());
        // As it is journalled: before anything was started.
        let undo = fis.undo();
        assert!(undo.carry_out()[0].gone, "nothing was started");
        fis.inject().unwrap();
        std::fs::write(dir.path().join("stuck"), "").unwrap();
        assert!(!undo.carry_out()[0].gone, "it still runs");
        std::fs::remove_file(dir.path().join("stuck")).unwrap();
        for _ in 0..2 {
            assert!(undo.carry_out()[0].gone);
        }
        let calls = std::fs::read_to_string(dir.path().join("calls")).unwrap();
        assert!(calls.contains("stop-experiment --id EXP1"), "{calls}");
        assert!(calls.lines().filter(|l| *l != "--version").all(|l| l.contains("--endpoint-url http://127.0.0.1:9")));
    }

    #[test]
    fn a_template_above_the_cap_is_refused_and_one_that_was_changed_is_not_started() {
        let dir = tempfile::tempdir().unwrap();
        let mut fis = fis(dir.path());
        template(dir.path(), "ALL", &["i-0a", "i-0b", "i-0c"]);
        let why = fis.inject().unwrap_err().0;
        assert!(why.contains("blast radius"), "{why}");
        let why = Fis::with(&spec(), Cap { percent: 34 }, fis.program.clone()).unwrap_err();
        assert!(why.contains("`db`") && why.contains("1 may be hit"), "{why}");
        let calls = std::fs::read_to_string(dir.path().join("calls")).unwrap();
        assert!(!calls.contains("start-experiment"), "{calls}");
    }

    #[test]
    fn each_selection_is_held_against_the_cap() {
        let cap = Cap { percent: 34 };
        for (mode, listed, fine) in [
            ("PERCENT(34)", 0, true),
            ("PERCENT(35)", 0, false),
            ("COUNT(1)", 3, true),
            ("COUNT(2)", 3, false),
            ("COUNT(1)", 0, false),
            ("ALL", 0, false),
            ("ALL", 1, true),
            ("ALL", 2, false),
            ("SOME", 3, false),
        ] {
            assert_eq!(within(mode, listed, cap).is_ok(), fine, "{mode} of {listed}");
        }
        assert!(within("ALL", 0, Cap { percent: 100 }).is_ok());
        assert!(checked(&serde_json::json!({ "targets": {} }), cap).is_err());
    }

    #[test]
    fn a_missing_command_is_missing_and_missing_credentials_are_a_privilege() {
        let gone = Fis::with(&spec(), Cap { percent: 34 }, vec!["/no/such/aws".into()]).unwrap();
        assert!(matches!(gone.probe().state, Readiness::Missing(how) if how.contains("awscli")));
        let dir = tempfile::tempdir().unwrap();
        let program = shim(dir.path());
        std::fs::write(dir.path().join("aws"), "#!/bin/sh\necho 'Unable to locate credentials' >&2\nexit 253\n")
            .unwrap();
        let nobody = Fis::with(&spec(), Cap { percent: 34 }, program).unwrap();
        assert!(matches!(nobody.probe().state, Readiness::Unprivileged(_)));
    }

    /// moto, serving FIS and EC2 on loopback; gone when this is.
    struct Moto {
        child: std::process::Child,
        endpoint: String,
    }

    /// The real command, as nobody.
    const AWS: [&str; 4] = ["env", "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "aws"];

    impl Moto {
        /// `None`, loudly, without moto or the AWS CLI. A moto in another place is found by `PYTHONPATH`.
        fn start() -> Option<Moto> {
            let has = "import moto.server; from moto.fis.models import FISBackend; FISBackend.start_experiment";
            let found = run(&words(&["python3", "-c", has])).and_then(|_| run(&words(&["aws", "--version"])));
            if let Err(why) = found {
                let last = why.lines().last().unwrap_or_default();
                eprintln!("SKIPPED: no moto with FIS (5.2.5) and AWS CLI here: {last}");
                return None;
            }
            let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let child = std::process::Command::new("python3")
                .args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()])
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null())
                .spawn()
                .unwrap();
            let moto = Moto { child, endpoint: format!("http://127.0.0.1:{port}") };
            for _ in 0..300 {
                if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                    return Some(moto);
                }
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            panic!("moto did not listen within 30 s");
        }

        fn aws(&self, rest: &[&str]) -> String {
            let here = ["--region", "eu-west-1", "--endpoint-url", &self.endpoint];
            let argv: Vec<&str> = AWS.iter().chain(&here).chain(rest).copied().collect();
            run(&words(&argv)).unwrap().trim().to_string()
        }

        /// Three instances, and a template that stops so many of them.
        fn set_up(&self, mode: &str) -> (Vec<String>, String) {
            let ids = self.aws(&[
                "ec2",
                "run-instances",
                "--image-id",
                "ami-12c6146b",
                "--count",
                "3",
                "--query",
                "Instances[].InstanceId",
                "--output",
                "text",
            ]);
            let ids: Vec<String> = ids.split_whitespace().map(String::from).collect();
            let arns: Vec<String> =
                ids.iter().map(|id| format!("arn:aws:ec2:eu-west-1:123456789012:instance/{id}")).collect();
            let whole = serde_json::json!({
                "clientToken": tag(), "description": "stop", "roleArn": "arn:aws:iam::123456789012:role/fis",
                "stopConditions": [{ "source": "none" }],
                "targets": { "db": { "resourceType": "aws:ec2:instance", "resourceArns": arns, "selectionMode": mode } },
                "actions": { "stop": { "actionId": "aws:ec2:stop-instances", "targets": { "Instances": "db" } } } });
            let template = self.aws(&[
                "fis",
                "create-experiment-template",
                "--cli-input-json",
                &whole.to_string(),
                "--query",
                "experimentTemplate.id",
                "--output",
                "text",
            ]);
            (ids, template)
        }
    }

    impl Drop for Moto {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    #[test]
    fn moto_completes_an_action_while_every_instance_runs_and_that_has_not_landed() {
        let Some(moto) = Moto::start() else { return };
        let (ids, template) = moto.set_up("COUNT(1)");
        let spec = Spec { template, endpoint: Some(moto.endpoint.clone()), ..spec() };
        let cap = Cap { percent: 34 };
        let mut fis = Fis::with(&spec, cap, words(&AWS)).unwrap();
        assert_eq!(fis.probe().state, Readiness::Ready);
        let undo = fis.undo();
        let before = fis.observe().unwrap();
        assert_eq!(before.states[&format!("victim {}", ids[0])], "running");
        fis.inject().unwrap();
        let during = (0..8)
            .map(|_| fis.observe().unwrap())
            .find(|o| o.states.get("action stop").is_some_and(|s| s == "completed"))
            .expect("moto completes what it starts");
        let (landed, said) = fis.landed(&before, &during);
        assert!(!landed && said.contains("running -> running") && said.contains("completed"), "{said}");
        assert!(undo.carry_out()[0].gone);
        moto.aws(&["ec2", "stop-instances", "--instance-ids", &ids[0]]);
        let stopped = fis.observe().unwrap();
        assert!(fis.landed(&before, &stopped).0, "the victim's side can show it");
        fis.inject().unwrap();
        assert!(undo.carry_out()[0].gone, "one that runs is found by its tag and stopped");
        let why = Fis::with(&spec, Cap { percent: 10 }, words(&AWS)).map(|f| f.template);
        assert!(why.is_ok(), "one of three is the least that can be hit");
        let (_, all) = moto.set_up("ALL");
        let why = Fis::with(&Spec { template: all, ..spec }, cap, words(&AWS)).unwrap_err();
        assert!(why.contains("blast radius"), "{why}");
    }
}
