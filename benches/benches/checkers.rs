//! What do the checkers of deliveries, sessions and invariants cost, in processor time and memory, beside decoding what they read?
//!
//! A history of each shape is written as Parquet. For each checker of it the program starts itself anew: the child decodes the file,
//! passes once over the columns, checks once, and says what each took, and by how much memory grew while checking. All on one thread.
//!
//! Prints a table, and writes it to `results/checkers.tsv`. Words after `--` choose shapes and checkers. 10^7 operations with
//! ELENCH_BENCH_LARGE=1. Linux only.

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;

use elench_benches::process::{circumstances, reset_peak, status_bytes, trim};
use elench_benches::shapes::{SHAPES, Shape, pass};
use elench_benches::{cpu_time, large, measuring};
use elench_formats::open::{Format, OpenOptions, open};
use elench_formats::write::{Target, to_file};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The first argument of a child.
const CHILD: &str = "--measure";
const HEADER: &str = "shape\tchecker\toperations\telements\tdecode_ns_per_op\tpass_ns_per_op\tcheck_ns_per_op\tcheck_by_decode\t\
                      peak_bytes_per_op\tpeak_bytes_per_element\tfault_found\n";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, child, shape, checker, path] = arguments.as_slice()
        && child == CHILD
    {
        return measure_here(shape.parse()?, checker.parse()?, path);
    }
    let words: Vec<&String> = arguments.iter().skip(1).filter(|word| !word.starts_with('-')).collect();
    let asked = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    let size = match (measuring(), large()) {
        (false, _) => 2_000,
        (true, false) => 1_000_000,
        (true, true) => 10_000_000,
    };
    let mut lines = String::new();
    print!("{HEADER}");
    for (s, shape) in SHAPES.iter().enumerate() {
        let chosen = |c: &usize| asked(&format!("{}/{}", shape.name, shape.checkers[*c].name));
        let chosen: Vec<usize> = (0..shape.checkers.len()).filter(chosen).collect();
        if chosen.is_empty() {
            continue;
        }
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("history.parquet");
        to_file(&shape.history(size)?, Target::Parquet, &path)?;
        trim();
        for c in chosen {
            let line = measure(shape, s, c, &path)?;
            print!("{line}");
            lines += &line;
        }
    }
    if measuring() && words.is_empty() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
        std::fs::write(results.join("checkers.tsv"), format!("# {}\n{HEADER}{lines}", circumstances()))?;
    }
    Ok(())
}

fn measure(shape: &Shape, s: usize, c: usize, path: &Path) -> Result<String> {
    let mut child = Command::new(std::env::current_exe()?);
    child.env("RAYON_NUM_THREADS", "1").args([CHILD, &s.to_string(), &c.to_string()]).arg(path);
    let output = child.output()?;
    let (said, failed) = (String::from_utf8(output.stdout)?, String::from_utf8_lossy(&output.stderr).into_owned());
    let name = shape.checkers[c].name;
    if !output.status.success() || said.is_empty() {
        return Err(format!("{} {name}: {failed}", shape.name).into());
    }
    Ok(format!("{}\t{name}\t{said}", shape.name))
}

fn measure_here(shape: usize, checker: usize, path: &str) -> Result<()> {
    let options = OpenOptions { format: Some(Format::Parquet), threads: 1, ..OpenOptions::default() };
    let start = cpu_time();
    let history = open(path, &options, &|_, _| {})?;
    let decode = (cpu_time() - start).as_secs_f64();
    let start = cpu_time();
    black_box(pass(&history));
    let passed = (cpu_time() - start).as_secs_f64();
    trim();
    reset_peak()?;
    let (held, start) = (status_bytes("VmRSS:")?, cpu_time());
    let right = (SHAPES[shape].checkers[checker].run)(&history);
    let check = (cpu_time() - start).as_secs_f64();
    let peak = status_bytes("VmHWM:")?.saturating_sub(held) as f64;
    let (operations, elements) = (history.len() as f64, SHAPES[shape].elements(history.len() as u64));
    let each = |seconds: f64| format!("{:.1}", seconds * 1e9 / operations);
    println!(
        "{operations}\t{elements}\t{}\t{}\t{}\t{:.2}\t{:.1}\t{:.1}\t{}",
        each(decode),
        each(passed),
        each(check),
        check / decode,
        peak / operations,
        peak / elements as f64,
        if right { "no" } else { "yes" }
    );
    Ok(())
}
