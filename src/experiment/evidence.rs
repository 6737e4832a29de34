//! What a run leaves behind: a directory of its own that says by itself what happened, and that nobody changes afterwards.
//!
//! Every artifact is written below `.elench/evidence/<run-id>/` and listed in `manifest.json` with its kind, size, SHA-256 and the time it was
//! captured. Once the verdict is recorded the directory is sealed: files and directory lose their write bits, and
//! [`verify`] finds any byte that was changed, any file that is missing, and any that was added.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use chrono::{SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use crate::verdict::Classified;

/// The file that lists all others.
pub const MANIFEST: &str = "manifest.json";

/// What a manifest holds: a public contract.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of this form.
    pub version: u32,
    /// The run.
    pub run_id: String,
    /// The scenario's name.
    pub scenario: String,
    /// The verdict, its tier, and what led to it.
    pub verdict: Classified,
    /// Did the steady state hold?
    pub steady_state: String,
    /// What was asserted, and whether it held.
    pub assertions: Vec<Assertion>,
    /// Where it ran: versions, machine, kernel, command line.
    pub environment: Json,
    /// Every file, by path.
    pub artifacts: Vec<Artifact>,
}

/// Something asserted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assertion {
    /// What.
    pub name: String,
    /// Whether it held; `None`: not to be told.
    pub held: Option<bool>,
    /// What was looked at.
    pub detail: String,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Its path below the run's directory.
    pub path: String,
    /// What it is: `hypothesis`, `steady-state`, `landing`, `history`, `check`, …
    pub kind: String,
    /// Bytes.
    pub bytes: u64,
    /// SHA-256, in hexadecimal.
    pub sha256: String,
    /// When it was captured, UTC.
    pub captured_at: String,
}

/// Now, in UTC, as everything in evidence and ledger writes it.
pub fn now() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// The evidence of a run that is under way.
#[derive(Debug)]
pub struct Evidence {
    dir: PathBuf,
    run_id: String,
    artifacts: Vec<Artifact>,
}

fn cannot(path: &Path) -> impl FnOnce(io::Error) -> String {
    let path = path.display().to_string();
    move |e| format!("{path}: cannot write: {e}")
}

impl Evidence {
    /// A new directory for a run.
    ///
    /// # Errors
    /// It is there already, or cannot be made.
    pub fn create(home: &Path, run_id: &str) -> Result<Evidence, String> {
        let dir = home.join("evidence").join(run_id);
        fs::create_dir_all(home.join("evidence")).map_err(cannot(&dir))?;
        fs::create_dir(&dir).map_err(cannot(&dir))?;
        Ok(Evidence { dir, run_id: run_id.to_string(), artifacts: Vec::new() })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes a file, to the disk itself.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write(&mut self, kind: &str, name: &str, bytes: &[u8]) -> Result<(), String> {
        whole(&self.dir, name, bytes)?;
        self.list(kind, name)
    }

    /// Writes a document.
    ///
    /// # Errors
    /// As of [`Evidence::write`].
    pub fn json<T: Serialize>(&mut self, kind: &str, name: &str, value: &T) -> Result<(), String> {
        let mut bytes = serde_json::to_vec_pretty(value).map_err(|e| format!("{name}: {e}"))?;
        bytes.push(b'\n');
        self.write(kind, name, &bytes)
    }

    /// Lists a file that somebody else wrote into the directory. A later listing of the same name takes the place of an earlier one.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn list(&mut self, kind: &str, name: &str) -> Result<(), String> {
        let path = self.dir.join(name);
        let (bytes, sha256) = hash(&path).map_err(|e| format!("{}: cannot read: {e}", path.display()))?;
        self.artifacts.retain(|a| a.path != name);
        self.artifacts.push(Artifact {
            path: name.to_string(),
            kind: kind.to_string(),
            bytes,
            sha256,
            captured_at: now(),
        });
        Ok(())
    }

    /// Copies a file in.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub fn adopt(&mut self, kind: &str, name: &str, from: &Path) -> Result<(), String> {
        let path = self.dir.join(name);
        fs::copy(from, &path).map_err(|e| format!("{}: cannot copy to {}: {e}", from.display(), path.display()))?;
        self.list(kind, name)
    }

    /// Writes the manifest and takes the write bits away.
    ///
    /// # Errors
    /// What the file system says.
    pub fn seal(
        mut self,
        scenario: &str,
        verdict: Classified,
        steady_state: &str,
        assertions: Vec<Assertion>,
        environment: Json,
    ) -> Result<Manifest, String> {
        self.artifacts.sort_by(|a, b| a.path.cmp(&b.path));
        let manifest = Manifest {
            version: 1,
            run_id: self.run_id,
            scenario: scenario.to_string(),
            verdict,
            steady_state: steady_state.to_string(),
            assertions,
            environment,
            artifacts: self.artifacts,
        };
        let mut bytes = serde_json::to_vec_pretty(&manifest).map_err(|e| format!("{MANIFEST}: {e}"))?;
        bytes.push(b'\n');
        whole(&self.dir, MANIFEST, &bytes)?;
        for name in manifest.artifacts.iter().map(|a| a.path.as_str()).chain([MANIFEST]) {
            let path = self.dir.join(name);
            fs::set_permissions(&path, Permissions::from_mode(0o444)).map_err(cannot(&path))?;
        }
        fs::set_permissions(&self.dir, Permissions::from_mode(0o555)).map_err(cannot(&self.dir))?;
        Ok(manifest)
    }
}

/// Writes a file so that it is there whole or not at all, also when the run is killed now.
fn whole(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), String> {
    let (path, next) = (dir.join(name), dir.join(format!("{name}.next")));
    let mut file = File::create(&next).map_err(cannot(&next))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(cannot(&next))?;
    fs::rename(&next, &path).and_then(|()| File::open(dir)?.sync_all()).map_err(cannot(&path))
}

/// Bytes and SHA-256 of a file, streamed.
fn hash(path: &Path) -> io::Result<(u64, String)> {
    let mut file = File::open(path)?;
    let (mut hasher, mut buffer, mut bytes) = (Sha256::new(), vec![0; 1 << 16], 0);
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            n => {
                hasher.update(&buffer[..n]);
                bytes += n as u64;
            }
        }
    }
    let hex = hasher.finalize().iter().map(|b| format!("{b:02x}")).collect();
    Ok((bytes, hex))
}

/// The manifest of a run's directory.
///
/// # Errors
/// It is not there, or none.
pub fn manifest(dir: &Path) -> Result<Manifest, String> {
    let path = dir.join(MANIFEST);
    let text = fs::read_to_string(&path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound if dir.is_dir() => {
            let names =
                fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.file_name().to_string_lossy().into_owned());
            let mut names: Vec<String> = names.collect();
            names.sort();
            format!(
                "{}: the run did not come to an end, so nothing is sealed; there is {}",
                dir.display(),
                names.join(", ")
            )
        }
        io::ErrorKind::NotFound => format!("{}: there is no such run", dir.display()),
        _ => format!("{}: cannot read: {e}", path.display()),
    })?;
    serde_json::from_str(&text).map_err(|e| format!("{}: is no manifest: {e}", path.display()))
}

/// SHA-256 of the manifest itself, in hexadecimal.
///
/// # Errors
/// It cannot be read.
pub fn sum_of_manifest(dir: &Path) -> Result<String, String> {
    let path = dir.join(MANIFEST);
    hash(&path).map(|(_, sum)| sum).map_err(|e| format!("{}: cannot read: {e}", path.display()))
}

/// Recomputes every hash, and gives what is not as the manifest says; empty when all is.
///
/// # Errors
/// There is no manifest.
pub fn verify(dir: &Path) -> Result<Vec<String>, String> {
    let manifest = manifest(dir)?;
    let mut wrong = Vec::new();
    for artifact in &manifest.artifacts {
        match hash(&dir.join(&artifact.path)) {
            Err(e) => wrong.push(format!("{}: cannot read: {e}", artifact.path)),
            Ok((bytes, _)) if bytes != artifact.bytes => {
                wrong.push(format!("{}: {bytes} bytes, the manifest says {}", artifact.path, artifact.bytes));
            }
            Ok((_, sha256)) if sha256 != artifact.sha256 => {
                wrong.push(format!("{}: SHA-256 is {sha256}, the manifest says {}", artifact.path, artifact.sha256));
            }
            Ok(_) => {}
        }
    }
    let listed = |name: &str| name == MANIFEST || manifest.artifacts.iter().any(|a| a.path == name);
    for entry in fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !listed(&name) {
            wrong.push(format!("{name}: is not in the manifest"));
        }
    }
    wrong.sort();
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;

    fn sealed(home: &Path) -> PathBuf {
        let mut evidence = Evidence::create(home, "r1").unwrap();
        evidence.json("hypothesis", "hypothesis.json", &serde_json::json!({ "a": 1 })).unwrap();
        evidence.write("log", "rollback.log", b"fine\n").unwrap();
        let dir = evidence.dir().to_path_buf();
        let verdict = Classified { verdict: Verdict::PassSmoke, tier: None, because: vec![] };
        evidence.seal("s", verdict, "held", vec![], Json::Null).unwrap();
        dir
    }

    fn unseal(dir: &Path) {
        fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
        for entry in fs::read_dir(dir).unwrap() {
            fs::set_permissions(entry.unwrap().path(), Permissions::from_mode(0o644)).unwrap();
        }
    }

    #[test]
    fn what_was_sealed_verifies_and_every_kind_of_change_is_found() {
        let home = tempfile::tempdir().unwrap();
        let dir = sealed(home.path());
        assert_eq!(verify(&dir).unwrap(), Vec::<String>::new());
        assert_eq!(fs::metadata(dir.join("rollback.log")).unwrap().permissions().mode() & 0o222, 0);
        unseal(&dir);
        fs::write(dir.join("rollback.log"), b"fain\n").unwrap();
        assert!(verify(&dir).unwrap()[0].contains("SHA-256"));
        fs::write(dir.join("rollback.log"), b"fine\nmore").unwrap();
        assert!(verify(&dir).unwrap()[0].contains("bytes"));
        fs::remove_file(dir.join("rollback.log")).unwrap();
        assert!(verify(&dir).unwrap()[0].contains("cannot read"));
        fs::write(dir.join("rollback.log"), b"fine\n").unwrap();
        fs::write(dir.join("new.txt"), b"").unwrap();
        assert_eq!(verify(&dir).unwrap(), ["new.txt: is not in the manifest"]);
    }

    #[test]
    fn a_run_has_a_directory_of_its_own() {
        let home = tempfile::tempdir().unwrap();
        Evidence::create(home.path(), "r1").unwrap();
        assert!(Evidence::create(home.path(), "r1").is_err());
        assert!(verify(&home.path().join("evidence/r1")).unwrap_err().contains("did not come to an end"));
        assert!(verify(&home.path().join("evidence/r2")).unwrap_err().contains("no such run"));
    }
}
