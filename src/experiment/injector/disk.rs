//! Fills a file system, so that writes fail for want of room.
//!
//! A filler file takes every block that is left, allocated and not written where the file system can do that; removing the file is the
//! revert. The directory named must be where a file system is mounted, so that what is filled is what was meant, and no more than `max_mb` is
//! taken: a file system with more room is refused before anything is written. The perimeter refuses the mount that holds the evidence.
//! The blast radius of a full disk is that one mount; there is no share of it.
//!
//! Landing is a write through the same path: it succeeded before, and fails with ENOSPC now. What was written is read back and compared.
//!
//! Slow writes, and synced writes that are lost at a crash, would take a file system of our own between the system and its disk, by FUSE.
//! The crate `fuser` gives the protocol, not the file system: forty operations with their inodes, handles and locks would have to pass through
//! rightly, or the layer's own bugs would be taken for the system's. That is left out. Tool: none.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statvfs::statvfs;
use serde::Serialize;

use super::tool::{is_there, tag, words};
use super::undo::{Step, Undo};
use super::{Cap, Failed, Injector, Observation, Probe, Readiness};
use crate::experiment::front::{Complaint, Fields};
use crate::verdict::blame::FaultClass;

/// Room that may be taken where a scenario does not say.
const MAX_MB: u64 = 1024;
/// What a probe writes.
const PROBE_BYTES: usize = 64 << 10;

/// What a scenario says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spec {
    /// Where the file system is mounted.
    pub mount: String,
    /// Megabytes that may be taken.
    pub max_mb: u64,
}

impl Spec {
    pub(super) fn take(fields: &mut Fields<'_>, wrong: &mut Vec<Complaint>) -> Option<Spec> {
        let mount = fields.text("mount", wrong).filter(|m| Path::new(m).is_absolute());
        if mount.is_none() {
            wrong.push(fields.wrong("mount", None, "is missing: the whole path where a file system is mounted"));
        }
        let max_mb = fields.count("max_mb", wrong).unwrap_or(MAX_MB);
        Some(Spec { mount: mount?, max_mb })
    }

    pub(super) fn class(&self) -> FaultClass {
        FaultClass::Disk
    }
}

/// The injector.
#[derive(Debug)]
pub struct Disk {
    mount: PathBuf,
    max_bytes: u64,
    filler: PathBuf,
    probe: PathBuf,
}

/// How a write went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrote {
    /// It was read back as it was written.
    Whole,
    /// There was no room.
    NoRoom,
    /// It was read back otherwise.
    Changed,
}

impl Disk {
    pub(super) fn prepare(spec: &Spec, _cap: Cap) -> Result<Disk, String> {
        let mount = PathBuf::from(&spec.mount);
        let mount = mount.canonicalize().map_err(|e| format!("{}: {e}", spec.mount))?;
        if mount == Path::new("/") {
            return Err("the root file system is not filled: the machine itself lives on it".into());
        }
        let device =
            |path: &Path| std::fs::metadata(path).map(|m| m.dev()).map_err(|e| format!("{}: {e}", path.display()));
        let parent = mount.parent().unwrap_or(Path::new("/"));
        if device(&mount)? == device(parent)? {
            return Err(format!("{} is not where a file system is mounted", mount.display()));
        }
        let id = tag();
        let file = |kind: &str| mount.join(format!(".elench-{kind}-{id}"));
        let (filler, probe) = (file("filler"), file("probe"));
        Ok(Disk { mount, max_bytes: spec.max_mb << 20, filler, probe })
    }

    /// Bytes that are free, those kept for root included.
    fn free(&self) -> Result<u64, String> {
        let stat = statvfs(&self.mount).map_err(|e| format!("{}: {e}", self.mount.display()))?;
        Ok(stat.blocks_free() * stat.fragment_size())
    }

    fn fill(&self) -> Result<(), String> {
        let name = |e: &dyn std::fmt::Display| format!("{}: {e}", self.filler.display());
        let file = OpenOptions::new().write(true).create_new(true).open(&self.filler).map_err(|e| name(&e))?;
        let mut size = 0;
        let mut chunk: u64 = 64 << 20;
        // Others may free or take room meanwhile: the size is bounded by `max_bytes`, the rounds by the halving of chunks.
        while chunk >= 512 && size < self.max_bytes {
            let want = chunk.min(self.max_bytes - size);
            match grow(&file, size, want) {
                Ok(()) => size += want,
                Err(Errno::ENOSPC | Errno::EDQUOT) => chunk /= 2,
                Err(Errno::EINTR) => {}
                Err(e) => return Err(name(&e)),
            }
        }
        file.sync_all().or_else(|e| if e.raw_os_error() == Some(Errno::ENOSPC as i32) { Ok(()) } else { Err(name(&e)) })
    }

    /// Writes through the same path that the system writes by, syncs, reads back, and takes the file away.
    fn try_write(&self) -> Result<Wrote, String> {
        let outcome = write_and_read(&self.probe);
        let _ = std::fs::remove_file(&self.probe);
        match outcome {
            Ok(true) => Ok(Wrote::Whole),
            Ok(false) => Ok(Wrote::Changed),
            Err(e) if matches!(Errno::from_raw(e.raw_os_error().unwrap_or(0)), Errno::ENOSPC | Errno::EDQUOT) => {
                Ok(Wrote::NoRoom)
            }
            Err(e) => Err(format!("{}: {e}", self.probe.display())),
        }
    }
}

/// Allocates, or writes where the file system cannot allocate.
fn grow(file: &File, from: u64, bytes: u64) -> Result<(), Errno> {
    let offset = |n: u64| i64::try_from(n).map_err(|_| Errno::EFBIG);
    match fallocate(file, FallocateFlags::empty(), offset(from)?, offset(bytes)?) {
        Err(Errno::EOPNOTSUPP) => {}
        done => return done,
    }
    let errno = |e: std::io::Error| Errno::from_raw(e.raw_os_error().unwrap_or(Errno::EIO as i32));
    let mut file = file;
    file.seek(SeekFrom::Start(from)).map_err(errno)?;
    let block = vec![0x5a_u8; 1 << 16];
    let mut left = bytes;
    while left > 0 {
        let n = left.min(block.len() as u64) as usize;
        file.write_all(&block[..n]).map_err(errno)?;
        left -= n as u64;
    }
    Ok(())
}

fn write_and_read(path: &Path) -> std::io::Result<bool> {
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
    let text: Vec<u8> = (0..PROBE_BYTES).map(|i| (i * 31 % 251) as u8).collect();
    file.write_all(&text)?;
    file.sync_all()?;
    file.seek(SeekFrom::Start(0))?;
    let mut back = Vec::with_capacity(text.len());
    file.read_to_end(&mut back)?;
    Ok(back == text)
}

impl Injector for Disk {
    fn probe(&self) -> Probe {
        let free = self.free();
        let state = if !is_there("mountpoint") {
            Readiness::Missing("`mountpoint` is not there: install the Debian package util-linux".into())
        } else if nix::unistd::access(&self.mount, nix::unistd::AccessFlags::W_OK).is_err() {
            Readiness::Unprivileged(format!("{} may not be written to", self.mount.display()))
        } else {
            match free {
                Err(why) => Readiness::Missing(why),
                Ok(free) if free > self.max_bytes => Readiness::Missing(format!(
                    "{} has {} MB of room, and `max_mb` allows {}: take a smaller file system, or allow more",
                    self.mount.display(),
                    free >> 20,
                    self.max_bytes >> 20
                )),
                Ok(_) => Readiness::Ready,
            }
        };
        Probe { injector: "disk", state, version: None }
    }

    fn plan(&self) -> Vec<String> {
        let bytes = self.free().unwrap_or(0).min(self.max_bytes);
        vec![format!("fallocate -l {bytes} {}", self.filler.display())]
    }

    fn undo(&self) -> Undo {
        // Where the mount is gone, nobody can see whether the filler lies on what was mounted.
        let check = r#"mountpoint -q "$1" && ! test -e "$2""#;
        let remove = |file: &Path| {
            let (mount, file) = (self.mount.display().to_string(), file.display().to_string());
            let argv = words(&["rm", "-f", "--", &file]);
            Step::Run { argv, check: words(&["sh", "-c", check, "elench", &mount, &file]) }
        };
        let steps = vec![remove(&self.filler), remove(&self.probe)];
        Undo { what: format!("what fills {}", self.mount.display()), steps }
    }

    fn inject(&mut self) -> Result<(), Failed> {
        let free = self.free().map_err(Failed)?;
        if free > self.max_bytes {
            return Err(Failed(format!("{} has {free} bytes of room, more than allowed", self.mount.display())));
        }
        self.fill().map_err(Failed)
    }

    fn observe(&mut self) -> Result<Observation, Failed> {
        let mut out = Observation::default();
        let stat = statvfs(&self.mount).map_err(|e| Failed(format!("{}: {e}", self.mount.display())))?;
        out.counters.insert("bytes available".into(), (stat.blocks_available() * stat.fragment_size()) as f64);
        let filler = std::fs::metadata(&self.filler).map_or(0, |m| m.blocks() * 512);
        out.counters.insert("bytes of the filler".into(), filler as f64);
        let word = match self.try_write().map_err(Failed)? {
            Wrote::Whole => "reads back",
            Wrote::NoRoom => "ENOSPC",
            Wrote::Changed => "reads back otherwise",
        };
        out.states.insert("a write".into(), word.into());
        Ok(out)
    }

    fn landed(&self, before: &Observation, during: &Observation) -> (bool, String) {
        let of = |o: &Observation| o.states.get("a write").cloned().unwrap_or_else(|| "unknown".into());
        let (was, is) = (of(before), of(during));
        (was == "reads back" && is == "ENOSPC", format!("a write through {}: {was} -> {is}", self.mount.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::injector::undo::run;

    /// A file system of four megabytes in memory, gone when this is.
    struct Mounted(tempfile::TempDir);

    impl Mounted {
        fn make() -> Option<Mounted> {
            let dir = tempfile::tempdir().unwrap();
            let argv = ["mount", "-t", "tmpfs", "-o", "size=4m", "elench-test", dir.path().to_str().unwrap()];
            match run(&argv.map(String::from)) {
                Ok(_) => Some(Mounted(dir)),
                Err(why) => {
                    eprintln!("SKIPPED: no file system can be mounted here: {why}");
                    None
                }
            }
        }

        fn disk(&self, max_mb: u64) -> Disk {
            let spec = Spec { mount: self.0.path().display().to_string(), max_mb };
            Disk::prepare(&spec, Cap { percent: 50 }).unwrap()
        }
    }

    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = run(&["umount", self.0.path().to_str().unwrap()].map(String::from));
        }
    }

    #[test]
    fn a_full_disk_refuses_writes_and_the_revert_makes_room_again() {
        let Some(place) = Mounted::make() else { return };
        let mut disk = place.disk(16);
        assert_eq!(disk.probe().state, Readiness::Ready);
        let before = disk.observe().unwrap();
        disk.inject().unwrap();
        let during = disk.observe().unwrap();
        let (landed, words) = disk.landed(&before, &during);
        assert!(landed, "{words}");
        assert_eq!(during.counters["bytes available"], 0.0);
        let refused = std::fs::write(place.0.path().join("db"), [1; 8192]).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::ENOSPC as i32));
        let _ = std::fs::remove_file(place.0.path().join("db"));
        for _ in 0..2 {
            assert!(disk.undo().carry_out().iter().all(|d| d.gone));
        }
        assert_eq!(disk.observe().unwrap(), before);
        assert_eq!(std::fs::read_dir(place.0.path()).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn a_filler_on_what_is_no_longer_mounted_is_not_known_to_be_gone() {
        let Some(place) = Mounted::make() else { return };
        let mut disk = place.disk(16);
        disk.inject().unwrap();
        run(&["umount", place.0.path().to_str().unwrap()].map(String::from)).unwrap();
        assert!(!disk.undo().carry_out()[0].gone);
    }

    #[test]
    fn more_room_than_is_allowed_is_refused_and_nothing_is_written() {
        let Some(place) = Mounted::make() else { return };
        let mut disk = place.disk(1);
        assert!(matches!(disk.probe().state, Readiness::Missing(how) if how.contains("max_mb")));
        assert!(disk.inject().is_err());
        assert_eq!(std::fs::read_dir(place.0.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_of_another_file_system_and_the_root_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let refused =
            |mount: &str| Disk::prepare(&Spec { mount: mount.into(), max_mb: 1 }, Cap { percent: 50 }).unwrap_err();
        assert!(refused(dir.path().to_str().unwrap()).contains("not where a file system is mounted"));
        assert!(refused("/").contains("root"));
        assert!(refused("/no/such/place").contains("No such file"));
    }

    #[test]
    fn a_disk_that_was_full_before_has_not_been_filled_by_us() {
        let Some(place) = Mounted::make() else { return };
        std::fs::write(place.0.path().join("full"), vec![1; 4 << 20]).unwrap();
        let mut disk = place.disk(16);
        let before = disk.observe().unwrap();
        disk.inject().unwrap();
        let seen = disk.observe().unwrap();
        assert!(!disk.landed(&before, &seen).0);
    }
}
