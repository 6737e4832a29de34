//! What the fuzz targets do with bytes: read them, and hold readers to their promises.
//!
//! A target fails on a panic, a hang (libFuzzer's `-timeout`) or too much memory (`-rss_limit_mb`). What reads as a
//! history must also be written and read again as the same.

use std::io::Write;

use elench_formats::Format;
use elench_formats::build::Lift;
use elench_formats::open::{OpenOptions, open_bytes};

/// Arrow's crates panic on some damaged files; our readers catch that. libFuzzer's hook would end the process before they
/// can, so it is taken out; a panic that nobody catches still ends it.
fn let_readers_catch_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| std::panic::set_hook(Box::new(|_| {})));
}

/// Reads bytes as a format, strictly and leniently. The history, if it is one, must survive EDN.
pub fn open(format: &str, bytes: &[u8]) {
    let_readers_catch_panics();
    let format = Format::from_name(format);
    for lenient in [false, true] {
        let options = OpenOptions { format, lenient, threads: 1, lift: Lift::Auto };
        let Ok(history) = open_bytes(bytes, &options) else { continue };
        let mut text = Vec::new();
        elench_formats::write::edn::write(&history, &mut text).expect("a vector takes all");
        assert!(!text.is_empty());
    }
}

/// Reads bytes whose format is found by content.
pub fn detect(bytes: &[u8]) {
    let_readers_catch_panics();
    let _ = open_bytes(bytes, &OpenOptions { threads: 1, ..OpenOptions::default() });
}

/// A value that is read prints as itself.
pub fn edn_value(bytes: &[u8]) {
    let Ok(value) = elench_formats::edn::parse_bytes(bytes) else { return };
    let text = value.to_edn();
    let again = elench_formats::edn::parse(&text).expect("what was printed is read");
    assert_eq!(again, value);
    assert_eq!(again.to_edn(), text);
}

/// Mends the checksums of whatever blocks the bytes seem to hold, then reads them.
pub fn jepsen(bytes: &[u8]) {
    let mut file = bytes.to_vec();
    let mut at = 18usize;
    while let Some(header) = file.get(at..at + 28) {
        let length = i64::from_be_bytes(header[..8].try_into().expect("8 bytes"));
        let Some(end) = usize::try_from(length).ok().filter(|&l| l >= 28).and_then(|l| at.checked_add(l)) else { break };
        if end > file.len() {
            break;
        }
        file[at + 8..at + 12].fill(0);
        let mut crc = crc32fast::Hasher::new();
        crc.update(&file[at + 28..end]);
        crc.update(&file[at..at + 28]);
        file[at + 8..at + 12].copy_from_slice(&crc.finalize().to_be_bytes());
        at = end;
    }
    open("jepsen", &file);
}

/// Reads a directory with one log.
pub fn cobra(bytes: &[u8]) {
    let dir = std::env::temp_dir().join(format!("elench-fuzz-cobra-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a temporary directory");
    std::fs::File::create(dir.join("T0.log")).and_then(|mut f| f.write_all(bytes)).expect("a temporary file");
    let options = OpenOptions { format: Format::from_name("cobra"), threads: 1, ..OpenOptions::default() };
    let _ = elench_formats::open::open(&dir.display().to_string(), &options, &|_, _| {});
}
