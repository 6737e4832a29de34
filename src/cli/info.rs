//! `elench info`.

use std::io::{self, Write};

use elench_checkers::descriptive::stats;
use elench_checkers::weak::{Weakness, weaknesses};
use elench_checkers::workload::{Workload, guess};
use elench_formats::History;
use elench_formats::history::{KeyForm, Status};
use serde_json::{Value as Json, json};

use super::args::InfoArgs;
use super::progress::Reading;
use super::{Exit, Stop};
use crate::report::{counted, nanoseconds, outcomes, span, summary, thousands};

/// Says what is in each history.
pub(super) fn run(args: &InfoArgs) -> Result<Exit, Stop> {
    let mut exit = Exit::Passed;
    for name in &args.histories {
        let opened = {
            let bar = Reading::new(name);
            elench_formats::open::open(name, &args.read.options(), &|read, total| bar.tell(read, total))
        };
        match opened {
            Ok(history) => {
                let info = Info::of(name, &history);
                let text = if args.json { format!("{}\n", info.document()) } else { info.human() };
                io::stdout().write_all(text.as_bytes())?;
            }
            Err(e) => {
                eprintln!("elench: {e}");
                exit = Exit::Bad;
            }
        }
    }
    Ok(exit)
}

struct Info<'a> {
    name: &'a str,
    history: &'a History,
    workload: Workload,
    weak: Vec<Weakness>,
    processes: u64,
    nodes: Vec<String>,
    nemesis: u64,
}

impl<'a> Info<'a> {
    fn of(name: &'a str, history: &'a History) -> Self {
        let mut processes: Vec<i64> = history.clients().filter_map(|op| op.process()).collect();
        processes.sort_unstable();
        processes.dedup();
        let mut nodes: Vec<String> = Vec::new();
        for op in history.clients() {
            if let Some(node) = op.node()
                && !nodes.iter().any(|n| n == node)
            {
                nodes.push(node.to_string());
            }
        }
        nodes.sort_unstable();
        Info {
            name,
            history,
            workload: guess(history),
            weak: weaknesses(history),
            processes: processes.len() as u64,
            nodes,
            nemesis: history.ops().filter(|op| !op.is_client()).count() as u64,
        }
    }

    fn suggestion(&self) -> String {
        let keys = if self.history.meta().keys == KeyForm::Tuple { " --independent" } else { "" };
        if let Some(model) = self.workload.model {
            return format!("elench check --model {model}{keys} {}", self.name);
        }
        let fits = |entry: &&crate::battery::Entry| entry.info.judges && entry.workloads.contains(&self.workload.name);
        if let Some(entry) = crate::battery::entries().find(fits) {
            return format!("elench check --checker {}{keys} {}", entry.info.name, self.name);
        }
        format!("elench check --checker stats --checker exceptions {}", self.name)
    }

    fn human(&self) -> String {
        let history = self.history;
        let mut out = format!("{}\n  history    {}\n", self.name, summary(history));
        let mut line = |label: &str, text: &str| out.push_str(&format!("  {label:<10} {text}\n"));
        line("workload", &format!("{} ({})", self.workload.name, self.workload.why));
        for f in &stats(history).by_f {
            line("f", &format!("{:<12} {}", f.f.as_deref().unwrap_or("nil"), outcomes(&f.counts)));
        }
        line("processes", &thousands(self.processes));
        if !self.nodes.is_empty() {
            line("nodes", &self.nodes.join(", "));
        }
        let meta = history.meta();
        match meta.keys {
            KeyForm::None if meta.key_reason.is_empty() => {}
            KeyForm::None => line("keys", &format!("none lifted: {}", meta.key_reason)),
            form => {
                line(
                    "keys",
                    &format!("{} ({}): {}", thousands(history.key_index().len() as u64), form.name(), meta.key_reason),
                );
            }
        }
        if self.nemesis > 0 {
            line("nemesis", &counted(self.nemesis, "operation"));
        }
        for w in history.faults().iter().take(10) {
            let time = |t: Option<i64>| t.map_or("?".into(), nanoseconds);
            let end = if w.end.is_some() { time(w.end_time) } else { "the end".into() };
            line("fault", &format!("{:<20} {} – {end}  {}", w.label, time(w.start_time), shortened(&w.value)));
        }
        if history.faults().len() > 10 {
            line("fault", &format!("and {} more", thousands(history.faults().len() as u64 - 10)));
        }
        for note in meta.notes.iter().chain(&meta.repairs).chain(&meta.doubts).chain(&meta.partial) {
            line("note", note);
        }
        for w in &self.weak {
            line(
                "weak",
                &format!("{}: {} ({}, first: op {})", w.field, w.what, counted(w.count, "operation"), w.first),
            );
        }
        line("memory", &format!("{} bytes of columns", thousands(history.memory() as u64)));
        line("check with", &self.suggestion());
        out
    }

    fn document(&self) -> Json {
        let history = self.history;
        let counts = history.counts();
        json!({
            "history": self.name,
            "format": history.meta().container.as_ref().unwrap_or(&history.meta().format),
            "source_format": history.meta().format,
            "workload": self.workload.name,
            "workload_reason": self.workload.why,
            "ops": {
                "ok": counts[Status::Ok as usize],
                "fail": counts[Status::Fail as usize],
                "info": counts[Status::Info as usize] + counts[Status::Pending as usize],
                "pending": counts[Status::Pending as usize],
            },
            "by_f": stats(history).by_f.iter().map(|f| json!({
                "f": f.f, "ok": f.counts[0], "fail": f.counts[1], "info": f.counts[2] + f.counts[3],
            })).collect::<Vec<_>>(),
            "processes": self.processes,
            "nodes": self.nodes,
            "nemesis_ops": self.nemesis,
            "keys": {
                "form": history.meta().keys.name(),
                "count": history.key_index().len(),
                "reason": history.meta().key_reason,
            },
            "order": history.meta().order.name(),
            "real_time": history.meta().real_time,
            "span_ns": span(history),
            "faults": history.faults().iter().map(|w| json!({
                "label": w.label, "f": w.f, "actor": w.actor, "value": w.value,
                "start": w.start, "end": w.end, "start_time": w.start_time, "end_time": w.end_time,
            })).collect::<Vec<_>>(),
            "weak": self.weak.iter().map(|w| json!({
                "field": w.field, "what": w.what, "count": w.count, "first": w.first,
            })).collect::<Vec<_>>(),
            "notes": history.meta().notes,
            "repairs": history.meta().repairs,
            "doubts": history.meta().doubts,
            "partial": history.meta().partial,
            "memory_bytes": history.memory(),
            "suggested": self.suggestion(),
        })
    }
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= 60 { text.to_string() } else { text.chars().take(57).collect::<String>() + "…" }
}
