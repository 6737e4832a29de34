//! `tc` netem on a real kernel: in a small guest of QEMU, as the kernels that tests run on often lack it.
//!
//! Optional, as it needs Debian's kernel, 70 MB to fetch. `ELENCH_GUEST` names the directory that it was unpacked into:
//!
//! ```text
//! apt-get install qemu-system-x86 busybox-static cpio redis-server iproute2
//! apt-get download "$(apt-cache depends linux-image-amd64 | awk '/Depends/ {print $2}')"
//! dpkg -x linux-image-*.deb guest
//! ELENCH_GUEST=$PWD/guest cargo test --test guest -- --nocapture
//! ```
//!
//! The guest is that kernel and an initial file system in memory: busybox, `tc`, `ip`, Redis, Elench and the libraries that they load. Its serial
//! line is what the test reads. It is emulated, which takes a minute or two.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// For how long a guest may run.
const PATIENCE: Duration = Duration::from_secs(400);

const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/usr/sbin:/usr/bin:/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp
for module in /modules/*; do insmod $module; done
ip link set lo up
redis-server --port 6379 --save '' --daemonize yes --dir /tmp > /dev/null
cd /tmp
# Busybox has a tc of its own, and prefers it.
netem() { /usr/sbin/tc -s qdisc show dev lo | grep -c netem; }
echo "GUEST before $(netem)"
elench run /delay.md
echo "GUEST run $?"
echo "GUEST after $(netem)"
elench run /delay.md 2> err & run=$!
for i in $(seq 600); do if grep -q 'fault is active' err; then break; fi; sleep 0.1; done
sleep 1
echo "GUEST during $(netem)"
/usr/sbin/tc -s qdisc show dev lo
kill -9 $run
sleep 4
echo "GUEST left $(netem)"
elench revert
echo "GUEST revert $?"
poweroff -f
"#;

const SCENARIO: &str = "---
name: delay
target: 127.0.0.1:6379
trust_level: sandbox
target_class: single-shard-sandbox
blast_radius_pct: 100
steady_state: \"error_rate < 0.9\"
rollback_after_sec: 30
fault: {injector: tc, dev: lo, to: \"127.0.0.1:6379\", delay_ms: 80, schedule: {after_sec: 5, for_sec: 8}}
landing:
  - {signal: sli, expr: \"p50_latency_ms during > p50_latency_ms before + 60\"}
workload: {driver: redis, kind: register, clients: 4, duration_sec: 40, rate: 50, options: {timeout_ms: 2000}}
history: {path: history.parquet}
checker: [{name: linear, model: register}]
budgets: {hardening: {ops: 200, faults: 1}}
---
Packets to Redis are late.
";

fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]).map(|d| d.join(program)).find(|p| p.is_file())
}

/// What a program loads, and itself.
fn with_libraries(program: &Path, files: &mut BTreeSet<PathBuf>) {
    let listed = Command::new("ldd").arg(program).output().unwrap();
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    files.extend(text.split_whitespace().filter(|w| w.starts_with('/')).map(PathBuf::from));
}

/// The first file below a directory whose name begins so.
fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    let mut todo = vec![dir.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for path in std::fs::read_dir(dir).ok()?.flatten().map(|e| e.path()) {
            if path.is_dir() && !path.is_symlink() {
                todo.push(path);
            } else if path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(name)) {
                return Some(path);
            }
        }
    }
    None
}

fn copy(from: &Path, root: &Path, to: &str) {
    let to = root.join(to.trim_start_matches('/'));
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    std::fs::copy(from, to).unwrap();
}

/// An initial file system, packed.
fn packed(kernel: &Path, dir: &Path) -> PathBuf {
    let root = dir.join("root");
    for empty in ["proc", "sys", "dev", "tmp", "etc", "sbin", "usr/bin", "usr/sbin"] {
        std::fs::create_dir_all(root.join(empty)).unwrap();
    }
    copy(&which("busybox").unwrap(), &root, "bin/busybox");
    let mut libraries = BTreeSet::new();
    for program in ["tc", "ip", "unshare", "redis-server"] {
        let path = which(program).unwrap();
        with_libraries(&path, &mut libraries);
        copy(&path, &root, &format!("usr/sbin/{program}"));
    }
    let elench = Path::new(env!("CARGO_BIN_EXE_elench"));
    with_libraries(elench, &mut libraries);
    copy(elench, &root, "usr/bin/elench");
    libraries.iter().for_each(|l| copy(l, &root, l.to_str().unwrap()));
    for (i, module) in ["sch_prio.ko", "sch_netem.ko", "cls_u32.ko"].iter().enumerate() {
        copy(&find(&kernel.join("lib/modules"), module).unwrap(), &root, &format!("modules/{i}-{module}"));
    }
    std::fs::write(root.join("delay.md"), SCENARIO).unwrap();
    std::fs::write(root.join("init"), INIT).unwrap();
    let script = "chmod 755 init && find . | cpio --quiet -o -H newc > ../initrd";
    assert!(Command::new("sh").args(["-c", script]).current_dir(&root).status().unwrap().success());
    dir.join("initrd")
}

/// Runs the guest until it switches itself off; what it printed.
fn boot(kernel: &Path, initrd: &Path) -> String {
    let image = find(&kernel.join("boot"), "vmlinuz-").unwrap();
    let mut child = Command::new("qemu-system-x86_64")
        // Emulated: where the test itself runs in a guest, KVM may be there and not work.
        .args(["-accel", "tcg", "-cpu", "max"])
        .args(["-m", "1024", "-smp", "2", "-nographic", "-no-reboot", "-nic", "none", "-kernel"])
        .arg(image)
        .arg("-initrd")
        .arg(initrd)
        .args(["-append", "console=ttyS0 quiet panic=-1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut line = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = line.read_to_end(&mut text);
        String::from_utf8_lossy(&text).replace('\r', "")
    });
    let until = Instant::now() + PATIENCE;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > until {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    reader.join().unwrap()
}

#[test]
fn netem_lands_on_a_real_kernel_and_is_gone_after_the_revert_and_after_a_kill() {
    let Some(kernel) = std::env::var_os("ELENCH_GUEST").map(PathBuf::from) else {
        eprintln!("SKIPPED: ELENCH_GUEST names no unpacked kernel: see the beginning of tests/guest.rs");
        return;
    };
    let needed = ["qemu-system-x86_64", "busybox", "cpio", "redis-server", "tc", "ip", "unshare", "ldd"];
    if let Some(missing) = needed.iter().find(|p| which(p).is_none()) {
        eprintln!("SKIPPED: {missing} is not installed: see the beginning of tests/guest.rs");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let told = boot(&kernel, &packed(&kernel, dir.path()));
    // The firmware leaves codes of a terminal on the first line.
    let said = |what: &str| told.lines().find_map(|l| l.split_once(&format!("GUEST {what} "))).map(|(_, n)| n.trim());
    assert_eq!(said("before"), Some("0"), "{told}");
    assert_eq!(said("run"), Some("0"), "{told}");
    assert!(told.contains("VERDICT: PASS-hardening") && told.contains("netem"), "{told}");
    assert_eq!(said("after"), Some("0"), "{told}");
    assert_eq!(said("during"), Some("1"), "{told}");
    assert_eq!(said("left"), Some("0"), "{told}");
    assert_eq!(said("revert"), Some("0"), "{told}");
}
