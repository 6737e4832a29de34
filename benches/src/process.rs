//! What does the system know of this process and machine?

use std::error::Error;
use std::process::Command;

/// A quantity of `/proc/self/status`, such as `VmHWM:`, in bytes.
///
/// # Errors
/// Where there is no such file (elsewhere than on Linux), or no such quantity in it.
pub fn status_bytes(label: &str) -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line =
        status.lines().find_map(|line| line.strip_prefix(label)).ok_or("this system has no /proc/self/status")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

/// From now on `VmHWM:` is the peak of what comes after this.
///
/// # Errors
/// Elsewhere than on Linux.
pub fn reset_peak() -> Result<(), Box<dyn Error>> {
    Ok(std::fs::write("/proc/self/clear_refs", "5")?)
}

/// Gives back what was freed, so that what is taken from now on shows.
pub fn trim() {
    // SAFETY: the call takes and returns numbers, and any thread may make it at any time.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Machine, profile, load and date.
pub fn circumstances() -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map_or("?", |m| m.1);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("?").to_string();
    let date =
        Command::new("date").args(["-u", "+%F"]).output().map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    let date = date.unwrap_or_default();
    format!("{model}, {cores} cores; profile {}; load {load}; {}", profile(), date.trim())
}

/// The profile that this was built with, by the directory that it lies in.
fn profile() -> String {
    let name = |exe: std::path::PathBuf| Some(exe.ancestors().nth(2)?.file_name()?.to_string_lossy().into_owned());
    std::env::current_exe().ok().and_then(name).unwrap_or_default()
}
