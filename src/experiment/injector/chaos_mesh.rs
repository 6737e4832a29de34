//! Breaks pods of a Kubernetes cluster through Chaos Mesh, with `kubectl`.
//!
//! A scenario gives a whole object of Chaos Mesh in a file, or a kind with its `spec`. Either way the object that is applied has a name of its
//! own, and its `mode` and `value` are capped: at most the share of the matching pods that the blast radius allows. A mode that the cap
//! cannot bound (`all`, `fixed`) becomes `fixed-percent`; `one` stays, as nothing hits less. Kinds without pods to select, and schedules and
//! workflows, which make other objects, are refused.
//!
//! Landing is the object's own word, so one side only: conditions `Selected` and `AllInjected`, and records of what was injected.
//! Reverting deletes the object and looks that it is gone; Chaos Mesh holds it back until the fault is taken back. The context of kubeconfig
//! is named in the scenario, so that a revert reaches the same cluster. Tool: `kubectl`.

use std::fs::File;
use std::io::Read;

use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use super::tool::{can_start, is_name, json_of, tag, words};
use super::undo::{Step, Undo, run, run_fed};
use super::{Cap, Failed, Injector, Observation, Probe, Readiness};
use crate::experiment::front::{Complaint, Datum, Fields, Node, documents};
use crate::verdict::blame::FaultClass;

/// Kinds that select pods, so that a cap can bound them.
const KINDS: [&str; 10] = [
    "PodChaos",
    "NetworkChaos",
    "IOChaos",
    "TimeChaos",
    "StressChaos",
    "HTTPChaos",
    "DNSChaos",
    "KernelChaos",
    "JVMChaos",
    "BlockChaos",
];
/// Bytes of a file.
const MAX_BYTES: u64 = 1 << 20;

/// What a scenario says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spec {
    /// The cluster: a context of kubeconfig.
    pub context: String,
    /// The namespace of the object, and of its pods where a template names no other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// A file that holds the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Or its kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// the labels of its pods, as `name=value`,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// `fixed-percent` or `random-max-percent`,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// and whatever else its `spec` holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<Json>,
}

impl Spec {
    pub(super) fn take(fields: &mut Fields<'_>, wrong: &mut Vec<Complaint>) -> Option<Spec> {
        let context = fields.text("context", wrong).filter(|c| !c.trim().is_empty() && !c.starts_with('-'));
        if context.is_none() {
            wrong.push(fields.wrong("context", None, "is missing: the context of kubeconfig that names the cluster"));
        }
        let namespace = fields.text("namespace", wrong);
        if namespace.as_deref().is_some_and(|n| !is_name(n)) {
            wrong.push(fields.wrong("namespace", None, "is the name of a namespace"));
        }
        let (file, kind) = (fields.text("file", wrong), fields.text("kind", wrong));
        let labels = fields.texts("labels", wrong).unwrap_or_default();
        let mode = fields.text("mode", wrong);
        let node = fields.get("spec");
        let spec = node.map(|n| to_json(&n.datum));
        if file.is_some() == kind.is_some() {
            wrong.push(fields.wrong("file", None, "or `kind` says what is applied: one of them"));
        }
        if kind.as_deref().is_some_and(|k| !KINDS.contains(&k)) {
            wrong.push(fields.wrong("kind", None, format_args!("is one of {}", KINDS.join(", "))));
        }
        if file.is_some() && (!labels.is_empty() || mode.is_some() || spec.is_some()) {
            wrong.push(fields.wrong("file", None, "holds the whole object: labels, mode and spec stand in it"));
        }
        if kind.is_some()
            && (labels.is_empty() || labels.iter().any(|l| l.split_once('=').is_none_or(|p| p.0.is_empty())))
        {
            wrong.push(fields.wrong("labels", None, "names the pods, each as name=value"));
        }
        if mode.as_deref().is_some_and(|m| m != "fixed-percent" && m != "random-max-percent") {
            wrong.push(fields.wrong("mode", None, "is fixed-percent or random-max-percent"));
        }
        if spec.as_ref().is_some_and(|s| !s.is_object()) {
            wrong.push(fields.wrong("spec", node, "is a map"));
        }
        Some(Spec { context: context?, namespace, file, kind, labels, mode, spec })
    }

    pub(super) fn class(&self) -> FaultClass {
        match self.kind.as_deref() {
            Some("PodChaos" | "KernelChaos" | "JVMChaos") => FaultClass::Crash,
            Some("NetworkChaos") if self.action() == Some("partition") => FaultClass::Partition,
            Some("NetworkChaos" | "HTTPChaos" | "DNSChaos") => FaultClass::Network,
            Some("IOChaos" | "BlockChaos") => FaultClass::Disk,
            Some("TimeChaos" | "StressChaos") => FaultClass::Pause,
            _ => FaultClass::None,
        }
    }

    fn action(&self) -> Option<&str> {
        self.spec.as_ref()?["action"].as_str()
    }

    /// The object before it is capped.
    fn object(&self) -> Result<Json, String> {
        let Some(file) = &self.file else { return Ok(self.template()) };
        match contents(file)?.as_slice() {
            [one] => Ok(to_json(&one.datum)),
            many => Err(format!("{file}: holds {} objects, and an experiment has one fault", many.len())),
        }
    }

    fn template(&self) -> Json {
        let labels: Map<String, Json> = self
            .labels
            .iter()
            .filter_map(|l| l.split_once('='))
            .map(|(name, value)| (name.to_string(), Json::from(value)))
            .collect();
        let mut spec = self.spec.clone().unwrap_or_else(|| json!({}));
        let mut selector = json!({ "labelSelectors": labels });
        if let Some(namespace) = &self.namespace {
            selector["namespaces"] = json!([namespace]);
        }
        spec["selector"] = selector;
        spec["mode"] = json!(self.mode.as_deref().unwrap_or("fixed-percent"));
        json!({ "apiVersion": "chaos-mesh.org/v1alpha1", "kind": self.kind, "metadata": {}, "spec": spec })
    }
}

/// The objects of a file.
///
/// # Errors
/// It cannot be read, is too large, or no YAML.
pub(in crate::experiment) fn contents(file: &str) -> Result<Vec<Node>, String> {
    let cannot = |e| format!("{file}: cannot read: {e}");
    let mut text = String::new();
    let opened = File::open(file).map_err(cannot)?;
    opened.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(cannot)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(format!("{file}: has more than {MAX_BYTES} bytes"));
    }
    documents(&text).map_err(|c| format!("{file}: line {}: {}", c.line.saturating_sub(1), c.what))
}

/// Recursion is bounded by the parser, which refuses deep nesting.
fn to_json(datum: &Datum) -> Json {
    match datum {
        Datum::Nil => Json::Null,
        Datum::Bool(b) => json!(b),
        Datum::Int(n) => json!(n),
        Datum::Real(x) => json!(x),
        Datum::Text(text) => json!(text),
        Datum::List(items) => items.iter().map(|n| to_json(&n.datum)).collect(),
        Datum::Map(entries) => Json::Object(entries.iter().map(|(k, n)| (k.clone(), to_json(&n.datum))).collect()),
    }
}

/// Makes a selection hit no more than the cap. `part` is a `spec`, or the `target` in it.
fn capped(part: &mut Json, cap: Cap) -> Result<(), String> {
    if part["selector"].as_object().is_none_or(Map::is_empty) {
        return Err("the object has no `selector`, so it would hit every pod".into());
    }
    let value = match &part["value"] {
        Json::String(text) => text.trim().parse::<f64>().ok(),
        other => other.as_f64(),
    };
    let most = f64::from(cap.percent);
    match part["mode"].as_str() {
        Some("one") => {}
        Some("fixed-percent" | "random-max-percent") => {
            let share = value.unwrap_or(most).min(most).floor();
            if share < 1.0 {
                return Err("`value` of the object is a share in percent, from 1 on".into());
            }
            part["value"] = json!(format!("{share}"));
        }
        Some("all" | "fixed") => {
            part["mode"] = json!("fixed-percent");
            part["value"] = json!(cap.percent.to_string());
        }
        other => {
            return Err(format!("`mode: {}` of the object is none that Chaos Mesh knows", other.unwrap_or("nothing")));
        }
    }
    Ok(())
}

/// The object as it is applied.
fn prepared(mut object: Json, namespace: Option<&str>, name: &str, cap: Cap) -> Result<Json, String> {
    if !object["apiVersion"].as_str().is_some_and(|v| v.starts_with("chaos-mesh.org/")) {
        return Err("the object is none of Chaos Mesh: its apiVersion begins with chaos-mesh.org/".into());
    }
    let kind = object["kind"].as_str().unwrap_or_default();
    if !KINDS.contains(&kind) {
        return Err(format!("an object of kind `{kind}` cannot be capped; those of {} can", KINDS.join(", ")));
    }
    if !object["spec"].is_object() {
        return Err("the object has no `spec`".into());
    }
    capped(&mut object["spec"], cap)?;
    let both = matches!(object["spec"]["direction"].as_str(), Some("both" | "from"));
    if both && object["spec"]["target"].is_object() {
        capped(&mut object["spec"]["target"], cap)?;
    }
    let held = object["metadata"]["namespace"].as_str().map(String::from);
    let namespace = namespace.map(String::from).or(held).unwrap_or_else(|| "default".into());
    if !is_name(&namespace) {
        return Err(format!("`{namespace}` is no name of a namespace"));
    }
    object["metadata"] =
        json!({ "name": name, "namespace": namespace, "labels": { "app.kubernetes.io/managed-by": "elench" } });
    Ok(object)
}

/// The injector.
#[derive(Debug)]
pub struct Mesh {
    program: Vec<String>,
    object: Json,
    name: String,
    namespace: String,
    /// As kubectl names it: `podchaos.chaos-mesh.org`.
    resource: String,
}

impl Mesh {
    pub(super) fn prepare(spec: &Spec, cap: Cap) -> Result<Mesh, String> {
        // A revert after a reboot reads the same configuration.
        let mut program = match std::env::var("KUBECONFIG") {
            Ok(path) if !path.is_empty() => vec!["env".to_string(), format!("KUBECONFIG={path}")],
            _ => Vec::new(),
        };
        program.push("kubectl".into());
        Mesh::with(spec, cap, program)
    }

    fn with(spec: &Spec, cap: Cap, mut program: Vec<String>) -> Result<Mesh, String> {
        let name = format!("elench-{}", tag());
        let object = prepared(spec.object()?, spec.namespace.as_deref(), &name, cap)?;
        let text = |json: &Json| json.as_str().unwrap_or_default().to_string();
        let namespace = text(&object["metadata"]["namespace"]);
        let resource = format!("{}.chaos-mesh.org", text(&object["kind"]).to_lowercase());
        program.extend(["--context".into(), spec.context.clone(), "--request-timeout=5s".into()]);
        Ok(Mesh { program, object, name, namespace, resource })
    }

    fn argv(&self, rest: &[&str]) -> Vec<String> {
        self.program.iter().cloned().chain(words(rest)).collect()
    }

    fn state(&self) -> Readiness {
        if !can_start(&self.program) {
            return Readiness::Missing("`kubectl` is not there: see https://kubernetes.io/docs/tasks/tools/".into());
        }
        match run(&self.argv(&["api-resources", "--api-group=chaos-mesh.org", "-o", "name"])) {
            Err(why) => return Readiness::Missing(why),
            Ok(list) if !list.lines().any(|l| l.trim() == self.resource) => {
                return Readiness::Missing(format!(
                    "the cluster knows no {}: install Chaos Mesh (https://chaos-mesh.org/docs/)",
                    self.resource
                ));
            }
            Ok(_) => {}
        }
        for verb in ["create", "delete"] {
            let may = run(&self.argv(&["auth", "can-i", verb, &self.resource, "-n", &self.namespace]));
            if !may.is_ok_and(|said| said.trim() == "yes") {
                let why = format!("{} may not be made and deleted in namespace {}", self.resource, self.namespace);
                return Readiness::Unprivileged(why);
            }
        }
        Readiness::Ready
    }

    fn get(&self) -> Result<Option<Json>, String> {
        let argv = ["get", &self.resource, &self.name, "-n", &self.namespace, "-o", "json", "--ignore-not-found"];
        json_of(&self.argv(&argv)).map(|json| Some(json).filter(|json| !json.is_null()))
    }

    fn events(&self) -> Result<Json, String> {
        let field = format!("involvedObject.name={}", self.name);
        json_of(&self.argv(&["get", "events", "-n", &self.namespace, "--field-selector", &field, "-o", "json"]))
    }
}

/// What an object and its events tell.
fn told(object: Option<&Json>, events: &Json) -> Observation {
    let mut out = Observation::default();
    out.states.insert("object".into(), if object.is_some() { "present" } else { "absent" }.into());
    for condition in list(object.map(|o| &o["status"]["conditions"])) {
        let text = |key: &str| condition[key].as_str().unwrap_or_default().to_string();
        out.states.insert(text("type"), text("status"));
    }
    let records = list(object.map(|o| &o["status"]["experiment"]["containerRecords"]));
    let injected = records.iter().filter(|r| r["phase"] == "Injected" || r["injectedCount"].as_u64().unwrap_or(0) > 0);
    out.counters.insert("injected".into(), injected.count() as f64);
    out.counters.insert("selected".into(), records.len() as f64);
    for event in list(Some(&events["items"])) {
        let name = format!("event {}", event["reason"].as_str().unwrap_or_default());
        *out.counters.entry(name).or_insert(0.0) += event["count"].as_f64().unwrap_or(1.0);
    }
    out
}

fn list(json: Option<&Json>) -> &[Json] {
    json.and_then(Json::as_array).map_or(&[], Vec::as_slice)
}

impl Injector for Mesh {
    fn probe(&self) -> Probe {
        let version = run(&self.argv(&["version", "--client"])).ok();
        let version = version.and_then(|text| text.lines().next().map(String::from));
        Probe { injector: "chaos-mesh", state: self.state(), version }
    }

    fn plan(&self) -> Vec<String> {
        vec![format!("{} <<'EOF'\n{:#}\nEOF", self.argv(&["apply", "-f", "-"]).join(" "), self.object)]
    }

    fn undo(&self) -> Undo {
        let (resource, namespace) = (self.resource.as_str(), self.namespace.as_str());
        let delete = ["delete", resource, &self.name, "-n", namespace, "--ignore-not-found", "--timeout=8s"];
        let step = Step::Drop {
            commands: vec![self.argv(&delete)],
            list: self.argv(&["get", resource, "-n", namespace, "-o", "name"]),
            name: self.name.clone(),
            place: None,
        };
        Undo { what: format!("the object {resource} {}", self.name), steps: vec![step] }
    }

    fn inject(&mut self) -> Result<(), Failed> {
        run_fed(&self.argv(&["apply", "-f", "-"]), Some(&self.object.to_string())).map(|_| ()).map_err(Failed)
    }

    fn observe(&mut self) -> Result<Observation, Failed> {
        let object = self.get().map_err(Failed)?;
        let events = self.events().map_err(Failed)?;
        Ok(told(object.as_ref(), &events))
    }

    fn landed(&self, before: &Observation, during: &Observation) -> (bool, String) {
        let state = |o: &Observation, name: &str| o.states.get(name).cloned().unwrap_or_else(|| "unknown".into());
        let injected = during.counters.get("injected").copied().unwrap_or(0.0);
        let landed = state(before, "object") == "absent"
            && state(during, "Selected") == "True"
            && state(during, "AllInjected") == "True"
            && injected >= 1.0;
        let selected = during.counters.get("selected").copied().unwrap_or(0.0);
        let said = format!(
            "object: {} -> {}, Selected: {}, AllInjected: {}, injected into {injected} of {selected}",
            state(before, "object"),
            state(during, "object"),
            state(during, "Selected"),
            state(during, "AllInjected")
        );
        (landed, said)
    }

    fn trace(&self) -> Option<(&'static str, Json)> {
        // JSON is YAML.
        Some(("chaos-mesh-spec.yaml", self.object.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::tool::is_there;
    use super::*;

    /// A `kubectl` that keeps one object in a directory and records how it is called.
    fn shim(dir: &Path) -> Vec<String> {
        let script = r#"#!/bin/sh
here=$(dirname "$0")
echo "$*" >> "$here/calls"
case "$*" in
  *" api-resources "*) echo podchaos.chaos-mesh.org; echo networkchaos.chaos-mesh.org ;;
  *" can-i "*) cat "$here/may" 2>/dev/null || echo yes ;;
  *" version "*) echo "Client Version: v0.0-shim" ;;
  *" apply "*) cat > "$here/object" ;;
  *" delete "*) [ -e "$here/stuck" ] || rm -f "$here/object" ;;
  *" get events "*) cat "$here/events" 2>/dev/null || echo '{"items":[]}' ;;
  *" -o name"*) [ ! -e "$here/object" ] || echo "podchaos.chaos-mesh.org/$(sed 's/.*"name":"\([^"]*\)".*/\1/' "$here/object")" ;;
  *" get "*) [ ! -e "$here/object" ] || cat "$here/status" ;;
  *) echo "the shim does not know $*" >&2; exit 1 ;;
esac
"#;
        let path = dir.join("kubectl");
        std::fs::write(&path, script).unwrap();
        // Not run as a program itself: a child that another test has forked may still hold it open.
        vec!["sh".into(), path.display().to_string()]
    }

    fn pod_kill() -> Spec {
        Spec {
            context: "kind-test".into(),
            namespace: Some("shop".into()),
            file: None,
            kind: Some("PodChaos".into()),
            labels: vec!["app=web".into()],
            mode: None,
            spec: Some(json!({ "action": "pod-kill" })),
        }
    }

    fn mesh(dir: &Path, percent: u8) -> Mesh {
        Mesh::with(&pod_kill(), Cap { percent }, shim(dir)).unwrap()
    }

    /// What Chaos Mesh 2.6 writes into an object's status.
    fn status(dir: &Path, selected: &str, all_injected: &str, phase: &str) {
        let text = json!({ "status": {
            "conditions": [
                { "type": "Selected", "status": selected }, { "type": "AllInjected", "status": all_injected },
                { "type": "AllRecovered", "status": "False" }, { "type": "Paused", "status": "False" } ],
            "experiment": { "desiredPhase": "Run", "containerRecords": [
                { "id": "shop/web-1/web", "selectorKey": ".", "phase": phase, "injectedCount": i32::from(phase == "Injected") } ] } } });
        std::fs::write(dir.join("status"), text.to_string()).unwrap();
    }

    #[test]
    fn a_template_is_applied_observed_and_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let mut mesh = mesh(dir.path(), 30);
        assert_eq!(mesh.probe().state, Readiness::Ready);
        let before = mesh.observe().unwrap();
        mesh.inject().unwrap();
        let applied: Json = serde_json::from_str(&std::fs::read_to_string(dir.path().join("object")).unwrap()).unwrap();
        assert_eq!(applied["spec"]["mode"], "fixed-percent");
        assert_eq!(applied["spec"]["value"], "30");
        assert_eq!(applied["spec"]["selector"], json!({ "namespaces": ["shop"], "labelSelectors": { "app": "web" } }));
        status(dir.path(), "True", "True", "Injected");
        std::fs::write(dir.path().join("events"), r#"{"items":[{"reason":"Applied","count":1}]}"#).unwrap();
        let during = mesh.observe().unwrap();
        assert_eq!(during.counters["event Applied"], 1.0);
        let (landed, words) = mesh.landed(&before, &during);
        assert!(landed, "{words}");
        for _ in 0..2 {
            assert!(mesh.undo().carry_out().iter().all(|d| d.gone));
        }
        assert!(!dir.path().join("object").exists());
        let calls = std::fs::read_to_string(dir.path().join("calls")).unwrap();
        assert!(calls.lines().all(|l| l.starts_with("--context kind-test ")), "one cluster: {calls}");
    }

    #[test]
    fn an_object_that_was_applied_and_injected_nothing_has_not_landed() {
        let dir = tempfile::tempdir().unwrap();
        let mut mesh = mesh(dir.path(), 30);
        let before = mesh.observe().unwrap();
        mesh.inject().unwrap();
        for (selected, all, phase) in [
            ("False", "False", "Not Injected"),
            ("True", "False", "Not Injected"),
            ("True", "True", "Not Injected"),
            ("True", "False", "Injected"),
        ] {
            status(dir.path(), selected, all, phase);
            let during = mesh.observe().unwrap();
            assert!(!mesh.landed(&before, &during).0, "{selected} {all} {phase}");
        }
    }

    #[test]
    fn an_object_that_stays_after_its_deletion_is_not_gone() {
        let dir = tempfile::tempdir().unwrap();
        let mut mesh = mesh(dir.path(), 30);
        mesh.inject().unwrap();
        std::fs::write(dir.path().join("stuck"), "").unwrap();
        assert!(!mesh.undo().carry_out()[0].gone);
        std::fs::remove_file(dir.path().join("stuck")).unwrap();
        assert!(mesh.undo().carry_out()[0].gone);
    }

    #[test]
    fn a_cluster_that_forbids_or_lacks_it_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let mut mesh = mesh(dir.path(), 30);
        std::fs::write(dir.path().join("may"), "no\n").unwrap();
        assert!(matches!(mesh.probe().state, Readiness::Unprivileged(_)));
        mesh.resource = "iochaos.chaos-mesh.org".into();
        assert!(matches!(mesh.probe().state, Readiness::Missing(how) if how.contains("install Chaos Mesh")));
        mesh.program[0] = "/no/such/kubectl".into();
        assert!(matches!(mesh.probe().state, Readiness::Missing(how) if how.contains("kubernetes.io")));
    }

    #[test]
    fn no_mode_hits_more_than_the_cap() {
        let with = |mode: &str, value: Json| {
            let mut part = json!({ "selector": { "namespaces": ["x"] }, "mode": mode, "value": value });
            capped(&mut part, Cap { percent: 30 }).map(|()| format!("{} {}", part["mode"], part["value"]))
        };
        assert_eq!(with("all", Json::Null).unwrap(), r#""fixed-percent" "30""#);
        assert_eq!(with("fixed", json!("5")).unwrap(), r#""fixed-percent" "30""#);
        assert_eq!(with("fixed-percent", json!("80")).unwrap(), r#""fixed-percent" "30""#);
        assert_eq!(with("random-max-percent", json!(20)).unwrap(), r#""random-max-percent" "20""#);
        assert_eq!(with("one", Json::Null).unwrap(), r#""one" null"#);
        assert!(with("everything", Json::Null).is_err());
        assert!(with("fixed-percent", json!("0")).is_err());
        assert!(capped(&mut json!({ "mode": "one" }), Cap { percent: 30 }).is_err(), "no selector");
    }

    #[test]
    fn a_file_holds_one_object_of_a_kind_that_can_be_capped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.yaml");
        let head = "apiVersion: chaos-mesh.org/v1alpha1\nmetadata: {name: mine, namespace: a}\n";
        let of = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let spec = Spec { kind: None, spec: None, labels: vec![], namespace: None, ..pod_kill() };
            let spec = Spec { file: Some(path.display().to_string()), ..spec };
            Mesh::with(&spec, Cap { percent: 10 }, vec!["kubectl".into()])
        };
        let body = "spec:\n  action: delay\n  mode: all\n  direction: both\n  selector: {namespaces: [a]}\n  target: {mode: all, selector: {namespaces: [b]}}\n  delay: {latency: 90ms}\n";
        let mesh = of(&format!("{head}kind: NetworkChaos\n{body}")).unwrap();
        assert_eq!(mesh.object["spec"]["value"], "10");
        assert_eq!(mesh.object["spec"]["target"]["value"], "10", "both sides are perturbed");
        assert_eq!(mesh.object["spec"]["delay"]["latency"], "90ms");
        assert_eq!((mesh.namespace.as_str(), mesh.resource.as_str()), ("a", "networkchaos.chaos-mesh.org"));
        assert!(mesh.name.starts_with("elench-"), "no object of that name is anybody else's");
        for wrong in [
            format!("{head}kind: Schedule\n{body}"),
            format!("{head}kind: AWSChaos\n{body}"),
            format!("apiVersion: v1\nkind: PodChaos\n{body}"),
            format!("{head}kind: PodChaos\n{body}---\n{head}kind: PodChaos\n{body}"),
            format!("{head}kind: PodChaos\n"),
            "a: [".into(),
        ] {
            assert!(of(&wrong).is_err(), "{wrong}");
        }
    }

    /// A cluster on loopback that the real kubectl talks to; gone when this is.
    struct Cluster {
        child: std::process::Child,
        port: u16,
        requests: std::io::BufReader<std::process::ChildStdout>,
        home: tempfile::TempDir,
    }

    impl Cluster {
        /// `None`, loudly, without kubectl or Python.
        fn start() -> Option<Cluster> {
            use std::io::BufRead;
            if !is_there("kubectl") || !is_there("python3") {
                eprintln!("SKIPPED: no kubectl and python3 here");
                return None;
            }
            let mut child = std::process::Command::new("python3")
                .args(["-c", include_str!("fake_cluster.py")])
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::null())
                .spawn()
                .unwrap();
            let mut requests = std::io::BufReader::new(child.stdout.take().unwrap());
            let mut line = String::new();
            requests.read_line(&mut line).unwrap();
            let port = line.trim().parse().unwrap();
            let home = tempfile::tempdir().unwrap();
            let config = json!({ "apiVersion": "v1", "kind": "Config",
                "clusters": [{ "name": "c", "cluster": { "server": format!("http://127.0.0.1:{port}") } }],
                "users": [{ "name": "u", "user": {} }],
                "contexts": [{ "name": "kind-test", "context": { "cluster": "c", "user": "u" } }] });
            std::fs::write(home.path().join("config"), config.to_string()).unwrap();
            Some(Cluster { child, port, requests, home })
        }

        fn kubectl(&self) -> Vec<String> {
            let home = self.home.path().display();
            vec!["env".into(), format!("HOME={home}"), format!("KUBECONFIG={home}/config"), "kubectl".into()]
        }

        /// Does what the controller of Chaos Mesh does.
        fn inject_all(&self) {
            use std::io::{Read, Write};
            let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.port)).unwrap();
            stream.write_all(b"POST /control HTTP/1.0\r\nContent-Length: 0\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.contains("200"), "{answer}");
        }

        /// What it was asked so far.
        fn end(mut self) -> String {
            use std::io::Read;
            self.child.kill().unwrap();
            let mut asked = String::new();
            self.requests.read_to_string(&mut asked).unwrap();
            asked
        }
    }

    impl Drop for Cluster {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    #[test]
    fn the_real_kubectl_applies_observes_and_deletes() {
        let Some(cluster) = Cluster::start() else { return };
        let mut mesh = Mesh::with(&pod_kill(), Cap { percent: 30 }, cluster.kubectl()).unwrap();
        assert_eq!(mesh.probe().state, Readiness::Ready);
        let before = mesh.observe().unwrap();
        mesh.inject().unwrap();
        let applied = mesh.observe().unwrap();
        assert_eq!(applied.states["object"], "present");
        assert!(!mesh.landed(&before, &applied).0, "kubectl's success proves nothing");
        cluster.inject_all();
        let during = mesh.observe().unwrap();
        let (landed, words) = mesh.landed(&before, &during);
        assert!(landed, "{words}");
        for _ in 0..2 {
            let done = mesh.undo().carry_out();
            assert!(done[0].gone, "{done:?}");
        }
        assert_eq!(mesh.observe().unwrap().states["object"], "absent");
        let (undo, asked) = (mesh.undo(), cluster.end());
        assert_eq!(asked.lines().filter(|l| l.starts_with("POST /apis/chaos-mesh.org/")).count(), 1, "{asked}");
        assert!(!undo.carry_out()[0].gone, "a cluster that does not answer proves nothing");
    }
}
