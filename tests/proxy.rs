//! The dead man's switch and the built-in proxy are different processes: what is left of a fault when the run hangs, or is killed?

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use elench::experiment::injector::proxy::Spec;
use elench::experiment::injector::proxy::toxic::{Kind, Stream, Toxic};
use elench::experiment::injector::{Cap, Fault, Injector};
use elench::experiment::switch::{Armed, Journal, State, arm};

const LONG: Duration = Duration::from_secs(20);
/// Says to the test below that it is the run that will be killed, and where its journal lies.
const ROLE: &str = "ELENCH_TEST_PROXY_RUN";

fn free() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut buffer = [0; 64];
                while let Ok(n @ 1..) = socket.read(&mut buffer) {
                    if socket.write_all(&buffer[..n]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// A run up to the injection of a blackhole.
fn run(listen: &str, upstream: &str, journal: &Path, within: Duration) -> (Box<dyn Injector>, Armed) {
    let spec = Spec {
        listen: listen.into(),
        upstream: upstream.into(),
        toxics: vec![Toxic::new(Kind::Timeout { timeout: 0 }, Stream::Upstream)],
        seed: 1,
        api: None,
    };
    let mut injector = Fault::Proxy(spec).prepare(Cap { percent: 100 }).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_elench"));
    let armed = arm(program, &Journal::new("r1", injector.undo(), within), journal).unwrap();
    injector.inject().unwrap();
    (injector, armed)
}

fn client(listen: &str) -> TcpStream {
    let socket = TcpStream::connect(listen).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket
}

fn settled(journal: &Path) -> Journal {
    let until = Instant::now() + LONG;
    loop {
        let read = Journal::read(journal).unwrap();
        if read.state != State::Armed && read.log.len() >= 2 {
            return read;
        }
        assert!(Instant::now() < until, "the switch did not fire: {read:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn when_a_run_hangs_the_switch_takes_the_toxics_off_its_proxy() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("r1.json");
    let listen = free();
    let (mut injector, armed) = run(&listen, &echo(), &journal, Duration::from_millis(500));
    let mut socket = client(&listen);
    let start = Instant::now();
    socket.write_all(b"held").unwrap();
    let mut back = [0; 4];
    // Nobody here mends: only the switch can let this through.
    socket.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"held");
    let settled = settled(&journal);
    assert_eq!(settled.state, State::Reverted, "after {:?}: {settled:?}", start.elapsed());
    assert!(settled.log[0].who.contains("timer"), "{settled:?}");
    assert_eq!(injector.observe().unwrap().states["toxics"], "none");
    drop(armed);
}

#[test]
fn when_a_run_is_killed_its_proxy_and_the_fault_are_gone_and_the_switch_says_so() {
    if let Ok(task) = std::env::var(ROLE) {
        let mut words = task.split(' ');
        let mut word = || words.next().unwrap();
        let _kept = run(word(), word(), Path::new(word()), Duration::from_secs(60));
        println!("\ninjected");
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("r1.json");
    let listen = free();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "when_a_run_is_killed_its_proxy_and_the_fault_are_gone_and_the_switch_says_so",
            "--nocapture",
        ])
        .env(ROLE, format!("{listen} {} {}", echo(), journal.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line == "injected")), "the run did not get that far");
    let mut socket = client(&listen);
    socket.write_all(b"held").unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let end = socket.read(&mut [0; 4]);
    assert!(matches!(&end, Ok(0)) || end.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset));
    let settled = settled(&journal);
    assert_eq!(settled.state, State::Reverted, "{settled:?}");
    assert!(settled.log[0].who.contains("the run was gone"), "{settled:?}");
    assert!(settled.log[0].done[0].how.contains("the fault with it"), "{settled:?}");
    assert_eq!(TcpStream::connect(&listen).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}
