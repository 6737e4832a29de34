//! Which peer's history is this?
//!
//! Told by the first few kilobytes, however they are cut off: every line or field in them must be one of the format's,
//! and enough of them must be there that no other format of ours could be meant.

use super::json::Json;
use super::lines::Lines;
use super::{awdit, chronos, cobra, dbcop, plume};
use std::path::Path;

/// The formats of other checkers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerFormat {
    /// Plume's and PolySI's text.
    Plume,
    /// AWDIT's text.
    Awdit,
    /// dbcop's bincode.
    DbcopBincode,
    /// dbcop's JSON.
    DbcopJson,
    /// The JSON of Chronos and Aion.
    Chronos,
    /// A directory of Cobra's logs.
    Cobra,
}

/// As many lines tell a text well enough.
const LINES: usize = 100;

/// Tells a file by its first bytes; a few kilobytes are enough.
pub fn sniff(head: &[u8]) -> Option<PeerFormat> {
    if is_dbcop_bincode(head) {
        return Some(PeerFormat::DbcopBincode);
    }
    match head.trim_ascii_start().first()? {
        b'{' if is_dbcop_json(head) => Some(PeerFormat::DbcopJson),
        b'[' if is_chronos(head) => Some(PeerFormat::Chronos),
        b'r' | b'w' | b'-' | b'=' => text(head),
        _ => None,
    }
}

/// Tells a directory by what lies in it.
pub fn sniff_directory(directory: &Path) -> Option<PeerFormat> {
    let logs = cobra::logs(directory).ok()?;
    let begins_with_start = |log: &std::path::PathBuf| {
        let mut tag = [0];
        let file = std::fs::File::open(log);
        file.is_ok_and(|mut file| std::io::Read::read_exact(&mut file, &mut tag).is_ok() && tag == *b"S")
    };
    logs.iter().any(begins_with_start).then_some(PeerFormat::Cobra)
}

fn text(head: &[u8]) -> Option<PeerFormat> {
    let whole = head.iter().rposition(|&byte| byte == b'\n').map_or(head, |end| &head[..end]);
    let (mut plume, mut awdit, mut accesses) = (true, true, false);
    let mut input: &[u8] = whole;
    let mut lines = Lines::new(&mut input);
    for _ in 0..LINES {
        let Some((_, line)) = lines.next().ok()? else { break };
        plume &= plume::is_line(line);
        match awdit::Line::parse(line) {
            Some(awdit::Line::Access(..)) => accesses = true,
            Some(_) => {}
            None => awdit = false,
        }
    }
    match (plume, awdit && accesses) {
        (true, _) => Some(PeerFormat::Plume),
        (false, true) => Some(PeerFormat::Awdit),
        (false, false) => None,
    }
}

fn is_dbcop_bincode(head: &[u8]) -> bool {
    let Ok(header) = dbcop::header(head) else { return false };
    let small = [header.nodes, header.variables, header.transactions, header.events].iter().all(|&n| n < 1 << 32);
    small && is_time(header.start) && is_time(header.end)
}

/// Does it begin as `2019-04-02T02:27:36`?
fn is_time(text: &str) -> bool {
    let pattern = b"dddd-dd-ddTdd:dd:dd";
    let fits = |(&byte, &wanted): (&u8, &u8)| if wanted == b'd' { byte.is_ascii_digit() } else { byte == wanted };
    text.len() >= pattern.len() && text.len() < 64 && text.as_bytes().iter().zip(pattern).all(fits)
}

fn is_dbcop_json(head: &[u8]) -> bool {
    let seen = seen(&mut Json::head(head), &["params", "data", "info", "start", "end"]);
    let says = |word: &str| memchr::memmem::find(head, word.as_bytes()).is_some();
    let transactions = seen.contains(&"data") && says("\"events\"") && says("\"committed\"");
    seen.contains(&"params") && seen.len() > 1 || transactions
}

fn is_chronos(head: &[u8]) -> bool {
    let mut fields = vec![];
    // The text may end anywhere: what was seen until then counts.
    let _ = Json::head(head).items(|json| {
        fields = seen(json, &chronos::FIELDS);
        Err(json.fail("one is enough"))
    });
    let timed = fields.contains(&"sts") || fields.contains(&"cts");
    let named = fields.contains(&"tid") || fields.contains(&"sid");
    fields.contains(&"ops") && (timed || named) || timed && named
}

/// The names of these fields that an object has, as far as the text goes.
fn seen(json: &mut Json<'_>, names: &'static [&'static str]) -> Vec<&'static str> {
    let mut seen = vec![];
    let _ = json.fields(names, |json, name| {
        if !name.is_empty() && !seen.contains(&name) {
            seen.push(name);
        }
        json.skip()
    });
    seen
}

#[cfg(test)]
mod tests {
    use super::super::testing::corpus;
    use super::*;

    #[test]
    fn each_format_is_told_by_its_beginning() {
        let cases: [(&[u8], PeerFormat); 10] = [
            (b"r(5,0,1,7)\nw(6,2,1,-1)\nr(5,", PeerFormat::Plume),
            (b"w(1,2,3,4)", PeerFormat::Plume),
            (b"w 0 0\nr 1 0\n=====\nr 0", PeerFormat::Awdit),
            (b"-----\n=====\nr 0 1\n", PeerFormat::Awdit),
            (br#"{"params": {"id": 0, "n_node": 3}, "info": "gener"#, PeerFormat::DbcopJson),
            (br#"{"data": [[{"events": [["w", 1, 0]], "committed": true}, {"ev"#, PeerFormat::DbcopJson),
            (br#"[{"tid": 67, "sid": 19, "sts": {"p": 1, "l"#, PeerFormat::Chronos),
            (br#"[ {"cts": {"l": 0, "p": "320316486"}, "ops": [{"k": 313, "t""#, PeerFormat::Chronos),
            (br#"[{"ops": [], "sid": 1}]"#, PeerFormat::Chronos),
            (b"w 0 1", PeerFormat::Awdit),
        ];
        for (head, format) in cases {
            assert_eq!(sniff(head), Some(format), "{}", String::from_utf8_lossy(head));
        }
    }

    #[test]
    fn other_texts_are_not_taken_for_a_peers() {
        let others: [&[u8]; 14] = [
            b"",
            b"\n\n",
            b"[]",
            b"{}",
            b"[1, 2]",
            b"{:process 0, :type :invoke}",
            b"[{:process 0}]",
            b"-----\n=====\n",
            br#"{"data": [1, 2]}"#,
            br#"[{"type": "invoke", "process": 0}]"#,
            br#"{"index": 0, "type": "invoke"}"#,
            b"read 0 1\n",
            b"w(1,2,3,4)\nhello\n",
            b"\x00\x00\x00\x00",
        ];
        for head in others {
            assert_eq!(sniff(head), None, "{}", String::from_utf8_lossy(head));
        }
    }

    #[test]
    fn a_directory_is_told_by_its_logs() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(sniff_directory(directory.path()), None);
        std::fs::write(directory.path().join("T0.log"), b"INFO started").unwrap();
        assert_eq!(sniff_directory(directory.path()), None);
        std::fs::write(directory.path().join("T1.log"), b"S\0\0\0\0\0\0\0\x01").unwrap();
        assert_eq!(sniff_directory(directory.path()), Some(PeerFormat::Cobra));
        assert_eq!(sniff_directory(Path::new("/no/such/place")), None);
    }

    #[test]
    fn every_file_of_the_corpus_is_told_from_its_first_kilobyte() {
        for (folder, format) in [("dbcop", PeerFormat::DbcopBincode), ("awdit-tests", PeerFormat::Awdit)] {
            for path in corpus(folder) {
                let bytes = std::fs::read(&path).unwrap();
                assert_eq!(sniff(bytes.get(..1024).unwrap_or(&bytes)), Some(format), "{}", path.display());
            }
        }
    }
}
