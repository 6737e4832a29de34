//! Which of the files in a Jepsen store directory holds the history?
//!
//! A run's folder has the history up to four times: `history.edn`, `test.jepsen` (or, in older runs, `test.fressian`) and
//! the listing `history.txt`. The EDN is what people look at and what other tools read, so it comes first, unless it
//! was cut off; the binary form of a run that crashed is read as far as it goes, and the listing has neither times nor
//! further fields. A test's own folder holds no files but runs, and a link to the latest.

use crate::error::{ReadError, Result};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// How much of the end of a `history.edn` is looked at to tell whether it is whole.
const TAIL: u64 = 1 << 20;

/// A file that a history can be read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `history.edn`
    Edn(PathBuf),
    /// `test.jepsen`
    Jepsen(PathBuf),
    /// `test.fressian`
    Fressian(PathBuf),
    /// `history.txt`
    Listing(PathBuf),
}

impl Source {
    /// The file.
    pub fn path(&self) -> &Path {
        match self {
            Source::Edn(p) | Source::Jepsen(p) | Source::Fressian(p) | Source::Listing(p) => p,
        }
    }
}

/// What stands in the folder of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreDir {
    /// The folder, after following a link to the latest run.
    pub dir: PathBuf,
    /// `history.edn`
    pub history_edn: Option<PathBuf>,
    /// Does `history.edn` end where an operation ends?
    pub history_edn_whole: bool,
    /// `test.jepsen`
    pub test_jepsen: Option<PathBuf>,
    /// `test.fressian`
    pub test_fressian: Option<PathBuf>,
    /// `history.txt`
    pub history_txt: Option<PathBuf>,
    /// `results.edn`
    pub results_edn: Option<PathBuf>,
}

impl StoreDir {
    /// Where to read the history from: the EDN when it is whole, else the binary forms, else a cut-off EDN, else the
    /// listing.
    pub fn history(&self) -> Option<Source> {
        let edn = || self.history_edn.clone().map(Source::Edn);
        let whole = if self.history_edn_whole { edn() } else { None };
        whole
            .or_else(|| self.test_jepsen.clone().map(Source::Jepsen))
            .or_else(|| self.test_fressian.clone().map(Source::Fressian))
            .or_else(edn)
            .or_else(|| self.history_txt.clone().map(Source::Listing))
    }

    fn look(dir: &Path) -> Result<StoreDir> {
        // A file that is empty was created and never written.
        let find = |name: &str| Some(dir.join(name)).filter(|p| p.metadata().is_ok_and(|m| m.is_file() && m.len() > 0));
        let history_edn = find("history.edn");
        let history_edn_whole = match &history_edn {
            Some(path) => ends_whole(path).map_err(|e| ReadError::from(e).in_file(&path.to_string_lossy()))?,
            None => false,
        };
        Ok(StoreDir {
            dir: dir.to_path_buf(),
            history_edn,
            history_edn_whole,
            test_jepsen: find("test.jepsen"),
            test_fressian: find("test.fressian"),
            history_txt: find("history.txt"),
            results_edn: find("results.edn"),
        })
    }
}

/// Finds what there is to read in a store directory: a run's folder, or a test's (or the whole store's) folder with a
/// link to its latest run or with only one run.
pub fn locate(dir: &Path) -> Result<StoreDir> {
    let named = dir.to_string_lossy();
    if !dir.is_dir() {
        return Err(ReadError::new("this is not a directory").in_file(&named));
    }
    let here = StoreDir::look(dir)?;
    if here.history().is_some() {
        return Ok(here);
    }
    for link in ["latest", "current"] {
        let run = StoreDir::look(&dir.join(link))?;
        if run.history().is_some() {
            return Ok(run);
        }
    }
    let mut runs = runs_below(dir).map_err(|e| ReadError::from(e).in_file(&named))?;
    match (runs.len(), runs.pop()) {
        (1, Some(run)) => Ok(run),
        (n, Some(last)) => Err(ReadError::new(format!("there are {n} runs here and no link to the latest"))
            .in_file(&named)
            .hint(format!("name one of them, such as {}", last.dir.display()))),
        (_, None) => Err(ReadError::new("there is no history here")
            .in_file(&named)
            .hint("a run's folder holds history.edn, test.jepsen, test.fressian or history.txt; give one, or a file")),
    }
}

fn runs_below(dir: &Path) -> std::io::Result<Vec<StoreDir>> {
    let mut runs = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir()
            && let Ok(run) = StoreDir::look(&path)
            && run.history().is_some()
        {
            runs.push(run);
        }
    }
    runs.sort_by(|a, b| a.dir.cmp(&b.dir));
    Ok(runs)
}

/// Does the file end where an operation ends? Its last line must close as many brackets as it opens; one enclosing
/// vector over many lines must end with its bracket.
fn ends_whole(path: &Path) -> std::io::Result<bool> {
    let mut file = File::open(path)?;
    let mut head = [0; 64];
    let n = file.read(&mut head)?;
    let first = head[..n].iter().copied().find(|b| !b.is_ascii_whitespace());
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut tail = Vec::new();
    file.take(TAIL).read_to_end(&mut tail)?;
    let tail = tail.trim_ascii();
    Ok(match (first, tail.last()) {
        (Some(b'['), last) => last == Some(&b']'),
        (Some(b'('), last) => last == Some(&b')'),
        (_, Some(b'}')) => balanced(tail.rsplit(|&b| b == b'\n').next().unwrap_or_default()),
        _ => false,
    })
}

/// Do the brackets of a line of EDN balance? Those in strings and those that are characters do not count.
fn balanced(line: &[u8]) -> bool {
    let (mut open, mut in_string) = (0i64, false);
    let mut bytes = line.iter();
    while let Some(b) = bytes.next() {
        match b {
            b'\\' => {
                bytes.next();
            }
            b'"' => in_string = !in_string,
            b'{' | b'[' | b'(' if !in_string => open += 1,
            b'}' | b']' | b')' if !in_string => open -= 1,
            _ => {}
        }
    }
    open == 0 && !in_string
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn write(dir: &Path, name: &str, text: &str) {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join(name), text).unwrap();
    }

    #[test]
    fn a_whole_edn_comes_first_and_a_cut_one_after_the_binary() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "history.edn", "{:type :ok, :value \"}\"}\n{:type :ok, :value [1 2]}\n");
        write(dir.path(), "test.jepsen", "JEPSEN");
        write(dir.path(), "history.txt", "0\t:ok\t:read\t1\n");
        write(dir.path(), "results.edn", "{:valid? true}");
        let found = locate(dir.path()).unwrap();
        assert_eq!(found.history(), Some(Source::Edn(dir.path().join("history.edn"))));
        assert!(found.results_edn.is_some());
        for cut in
            ["{:type :ok, :value [1 2]}\n{:type :ok, :value {1 2}", "{:type :ok, :value \"}", "[{:type :ok}\n{:a 1}"]
        {
            write(dir.path(), "history.edn", cut);
            let found = locate(dir.path()).unwrap();
            assert_eq!(found.history(), Some(Source::Jepsen(dir.path().join("test.jepsen"))), "{cut}");
        }
        fs::remove_file(dir.path().join("test.jepsen")).unwrap();
        assert_eq!(locate(dir.path()).unwrap().history(), Some(Source::Edn(dir.path().join("history.edn"))));
        write(dir.path(), "history.edn", "");
        assert_eq!(locate(dir.path()).unwrap().history(), Some(Source::Listing(dir.path().join("history.txt"))));
    }

    #[test]
    fn a_test_folder_leads_to_its_latest_run_or_to_its_only_one() {
        let dir = tempfile::tempdir().unwrap();
        assert!(locate(dir.path()).unwrap_err().to_string().contains("no history here"));
        assert!(locate(&dir.path().join("none")).is_err());
        write(&dir.path().join("20250623T194200.476Z"), "test.jepsen", "JEPSEN");
        assert_eq!(locate(dir.path()).unwrap().dir, dir.path().join("20250623T194200.476Z"));
        write(&dir.path().join("20250624T194200.476Z"), "test.fressian", "x");
        let several = locate(dir.path()).unwrap_err();
        assert!(several.to_string().contains("2 runs") && several.hint.contains("20250624"), "{several}");
        write(&dir.path().join("latest"), "history.edn", "{:type :ok}\n");
        assert_eq!(locate(dir.path()).unwrap().dir, dir.path().join("latest"));
    }
}
