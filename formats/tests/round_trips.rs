//! What is written is read back as the same history, in every format that can be written, whatever its values.

#![allow(clippy::unwrap_used)]

use elench_formats::build::{BuildOptions, HistoryBuilder, Lift};
use elench_formats::event::{Event, EventBatch, EventType, MopNames, Process};
use elench_formats::history::{History, KeyForm, Order, same_operations};
use elench_formats::open::{OpenOptions, open_bytes};
use elench_formats::write::{Target, to_writer};
use elench_formats::{Format, Value};
use proptest::prelude::*;

/// A value that makes trouble.
fn hostile() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        Just(String::new()),
        Just("\u{0}\"\\\n\u{7f}\u{85}\u{2028}😀é".to_string()),
        Just("nil".to_string()),
        Just("~edn".to_string()),
        "\\PC{0,12}",
    ];
    let name = prop_oneof![Just("a"), Just("ns/name"), Just("r"), Just("append"), Just("x-1?"), Just("+")];
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(0), -3i64..4].prop_map(Value::Int),
        "-?[1-9][0-9]{19,200}".prop_map(|d| Value::integer(&d).unwrap()),
        any::<f64>().prop_map(Value::Float),
        prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-0.0), Just(1e300)].prop_map(Value::Float),
        (any::<i64>(), 2i64..1000).prop_map(|(n, d)| Value::ratio(&n.to_string(), &d.to_string()).unwrap()),
        "[1-9][0-9]{0,30}\\.[0-9]{1,30}".prop_map(|d| Value::Decimal(d.into())),
        prop_oneof![Just(10u32), Just(32), Just(0x41), Just(0xd800), Just(0x2028), Just(0x5b), 0x21u32..0x7f]
            .prop_map(Value::Char),
        text.prop_map(|s| Value::Str(s.into())),
        proptest::collection::vec(prop_oneof![Just(0xd800u16), Just(0xdc00), Just(0x61), any::<u16>()], 0..6)
            .prop_map(Value::utf16),
        name.clone().prop_map(Value::keyword),
        prop_oneof![Just("sym"), Just("ns/sym"), Just("-x")].prop_map(|s| Value::Symbol(s.into())),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::Vector),
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::set),
            proptest::collection::vec((inner.clone(), inner.clone()), 0..4).prop_map(Value::map),
            (prop_oneof![Just("inst"), Just("object"), Just("a.b/c")], inner.clone())
                .prop_map(|(tag, v)| Value::Tagged(tag.into(), Box::new(v))),
            (name.clone(), inner.clone(), inner)
                .prop_map(|(f, k, v)| { Value::Vector(vec![Value::Vector(vec![Value::keyword(f), k, v])]) }),
        ]
    })
}

/// Values that histories usually hold.
fn usual() -> impl Strategy<Value = Value> {
    let int = (-5i64..6).prop_map(Value::Int);
    let pair =
        (0i64..3, prop_oneof![Just(Value::Nil), int.clone()]).prop_map(|(k, v)| Value::Vector(vec![Value::Int(k), v]));
    let mop = (prop_oneof![Just("r"), Just("w"), Just("append")], 0i64..3, prop_oneof![Just(Value::Nil), int.clone()])
        .prop_map(|(f, k, v)| Value::Vector(vec![Value::keyword(f), Value::Int(k), v]));
    prop_oneof![
        3 => int.clone(),
        2 => Just(Value::Nil),
        2 => pair,
        2 => proptest::collection::vec(mop, 1..4).prop_map(Value::Vector),
        1 => proptest::collection::vec(int.clone(), 0..4).prop_map(Value::Vector),
        1 => proptest::collection::vec(int, 0..4).prop_map(Value::set),
    ]
}

#[derive(Clone, Debug)]
struct Step {
    process: u8,
    f: &'static str,
    kind: u8,
    value: Value,
    extra: Option<(&'static str, Value)>,
}

fn steps(value: impl Strategy<Value = Value> + Clone + 'static) -> impl Strategy<Value = Vec<Step>> {
    let f =
        prop_oneof![Just("read"), Just("write"), Just("cas"), Just("txn"), Just("odd name"), Just("nil"), Just("1")];
    let field = prop_oneof![
        Just("node"),
        Just("error"),
        Just("persist-to"),
        Just("\"a string\""),
        Just("'sym"),
        Just("[1 2]"),
        Just("n/s")
    ];
    let extra = proptest::option::weighted(0.3, (field, value.clone()));
    let step = (0u8..5, f, 0u8..3, value, extra).prop_map(|(process, f, kind, value, extra)| Step {
        process,
        f,
        kind,
        value,
        extra,
    });
    proptest::collection::vec(step, 0..40)
}

/// A well-formed history: each step invokes, or completes what its process has open. Process 4 is the nemesis.
fn build(steps: &[Step], indexed: bool, timed: bool, lift: Lift) -> History {
    let mut batch = EventBatch::default();
    let mut open: [Option<&'static str>; 5] = [None; 5];
    for (i, step) in steps.iter().enumerate() {
        let p = usize::from(step.process);
        let (kind, f) = match open[p].take() {
            _ if p == 4 => (EventType::Info, step.f),
            Some(f) => ([EventType::Ok, EventType::Fail, EventType::Info][usize::from(step.kind)], f),
            None => {
                open[p] = Some(step.f);
                (EventType::Invoke, step.f)
            }
        };
        let process = if p == 4 { Process::Actor(batch.name("nemesis")) } else { Process::Client(p as i64) };
        if let Some((name, value)) = &step.extra {
            let name = batch.name(name);
            let cell = batch.value(value, MopNames::Keywords);
            batch.extra(name, cell);
        }
        let f = batch.name(f);
        let value = batch.value(&step.value, MopNames::Keywords);
        batch.push(Event {
            place: i as u64 + 1,
            index: indexed.then_some(3 * i as i64),
            time: timed.then_some(10 * i as i64),
            kind,
            process,
            f: Some(f),
            value,
        });
    }
    let options = BuildOptions { lift, format: "test".into(), real_time: true, ..BuildOptions::default() };
    let mut builder = HistoryBuilder::new(options);
    builder.push(&batch).unwrap();
    builder.finish().unwrap()
}

fn through(h: &History, target: Target, format: Format) -> Result<History, String> {
    let mut bytes = Vec::new();
    to_writer(h, target, &mut bytes).map_err(|e| format!("not written: {e}"))?;
    let lift = if h.meta().keys == KeyForm::Tuple { Lift::Always } else { Lift::Never };
    let options = OpenOptions { format: Some(format), lift, threads: 1, lenient: false };
    open_bytes(&bytes, &options).map_err(|e| format!("not read: {e}\n{}", String::from_utf8_lossy(&bytes)))
}

fn survives(h: &History) -> Result<(), TestCaseError> {
    if h.is_empty() {
        return Ok(());
    }
    for (target, format) in [
        (Target::Edn, Format::Edn),
        (Target::Jsonl, Format::Json),
        (Target::Parquet, Format::Parquet),
        (Target::Arrow, Format::Arrow),
    ] {
        let back = through(h, target, format)
            .and_then(|back| same_operations(h, &back))
            .map_err(|e| format!("{}: {e}", target.name()));
        prop_assert!(back.is_ok(), "{}", back.unwrap_err());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::default())]

    #[test]
    fn usual_histories_survive_every_format(s in steps(usual().boxed()), indexed: bool, timed: bool) {
        survives(&build(&s, indexed, timed, Lift::Auto))?;
    }

    #[test]
    fn hostile_histories_survive_every_format(s in steps(hostile().boxed()), indexed: bool, timed: bool) {
        survives(&build(&s, indexed, timed, Lift::Never))?;
    }

    #[test]
    fn keyed_histories_survive_every_format(s in steps(prop_oneof![usual(), hostile()].boxed())) {
        let keyed: Vec<Step> = s.into_iter().map(|mut s| {
            if s.process != 4 {
                let key = i64::from(s.process);
                s.value = Value::Vector(vec![Value::Int(key), s.value]);
            }
            s
        }).collect();
        survives(&build(&keyed, true, true, Lift::Always))?;
    }

    #[test]
    fn the_default_schema_keeps_what_it_can_say(s in steps(usual().boxed())) {
        let clients: Vec<Step> = s.into_iter().filter(|s| s.process != 4 && s.f != "odd name").collect();
        let h = build(&clients, true, true, Lift::Never);
        if h.is_empty() {
            return Ok(());
        }
        for (target, format) in [(Target::Schema, Format::Schema), (Target::Csv, Format::Csv)] {
            let back = through(&h, target, format);
            prop_assert!(back.is_ok(), "{}", back.unwrap_err());
            let back = back.unwrap();
            prop_assert_eq!(back.meta().order, Order::Time);
            prop_assert_eq!(back.len(), h.len());
            for (a, b) in h.ops().zip(back.ops()) {
                prop_assert_eq!((a.process(), a.f(), a.status()), (b.process(), b.f(), b.status()));
                prop_assert_eq!((a.invoke_time(), a.complete_time()), (b.invoke_time(), b.complete_time()));
                let text = |op: &elench_formats::history::OpRef<'_>| {
                    let (mut input, mut output) = (String::new(), String::new());
                    op.write_invoke_value(&mut input);
                    op.write_complete_value(&mut output);
                    (input, output)
                };
                prop_assert_eq!(text(&a), text(&b), "{}", target.name());
                // In the schema a nil error or node is none.
                let told = |text: &&str| *text != "nil";
                let either = |op: &elench_formats::history::OpRef<'_>| {
                    let error = op.error().or_else(|| op.extra("error")).filter(told).map(str::to_string);
                    (error, op.node().or_else(|| op.extra("node")).filter(told).map(str::to_string))
                };
                for name in a.extras().chain(a.invoke_extras()).map(|(name, _)| name).filter(|n| !["error", "node"].contains(n)) {
                    prop_assert_eq!(a.extra(name), b.extra(name), "{} in {}", name, target.name());
                }
                prop_assert_eq!(either(&a), either(&b), "{}", target.name());
                let id = a.index().to_string();
                prop_assert_eq!(b.extra("op_id"), Some(id.as_str()));
            }
        }
    }
}
