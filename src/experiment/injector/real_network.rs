//! `nft` and `iptables` on a real kernel: in network namespaces that the test makes, with real packets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use super::cut::{Action, Spec, tests::spec};
use super::tool::{tag, words};
use super::undo::run;
use super::{Cap, Fault, Injector, Observation};
use crate::experiment::switch::Journal;

/// How long a connection may take.
const SOON: Duration = Duration::from_millis(400);

/// Two network namespaces, joined by a pair of devices; gone when this is.
struct Net {
    a: String,
    b: String,
}

const A: &str = "10.231.77.1";
const B: &str = "10.231.77.2";

impl Net {
    /// `None`, loudly, where this machine does not allow it.
    fn make() -> Option<Net> {
        let id = tag();
        let net = Net { a: format!("elt-{id}-a"), b: format!("elt-{id}-b") };
        let made = net.set_up(&id[..6]);
        if let Err(why) = made {
            eprintln!("SKIPPED: no network namespaces here: {why}");
            return None;
        }
        Some(net)
    }

    fn set_up(&self, id: &str) -> Result<(), String> {
        let (va, vb) = (format!("va{id}"), format!("vb{id}"));
        let (net_a, net_b) = (format!("{A}/24"), format!("{B}/24"));
        let commands: [&[&str]; 9] = [
            &["nft", "--version"],
            &["iptables", "--version"],
            &["ip", "netns", "add", &self.a],
            &["ip", "netns", "add", &self.b],
            &["ip", "-n", &self.a, "link", "add", &va, "type", "veth", "peer", "name", &vb, "netns", &self.b],
            &["ip", "-n", &self.a, "address", "add", &net_a, "dev", &va],
            &["ip", "-n", &self.b, "address", "add", &net_b, "dev", &vb],
            &["ip", "-n", &self.a, "link", "set", &va, "up"],
            &["ip", "-n", &self.b, "link", "set", &vb, "up"],
        ];
        commands.iter().try_for_each(|argv| run(&words(argv)).map(|_| ()))?;
        run(&words(&["ip", "-n", &self.a, "link", "set", "lo", "up"])).map(|_| ())
    }

    /// Everything that is set up in the first namespace, without counters.
    fn rules(&self) -> String {
        let nft = run(&words(&["ip", "netns", "exec", &self.a, "nft", "-s", "list", "ruleset"])).unwrap();
        let legacy = run(&words(&["ip", "netns", "exec", &self.a, "iptables", "-S"])).unwrap();
        format!("{nft}\n{legacy}")
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in [&self.a, &self.b] {
            let _ = run(&words(&["ip", "netns", "delete", name]));
        }
    }
}

/// Does something in a network namespace, on a thread of its own. Sockets that it makes stay there.
fn inside<T: Send>(netns: &str, f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let entered = scope.spawn(|| {
            let file = std::fs::File::open(format!("/run/netns/{netns}")).unwrap();
            // SAFETY: the descriptor is open, and only the network of this thread, which ends after `f`, changes.
            let rc = unsafe { nix::libc::setns(file.as_raw_fd(), nix::libc::CLONE_NEWNET) };
            assert_eq!(rc, 0, "setns");
            f()
        });
        entered.join().unwrap()
    })
}

/// A server that answers each connection with what it reads, until the namespace is gone.
fn serve(netns: &str, address: &str) {
    let listener = inside(netns, || TcpListener::bind(address).unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().take(64) {
            let Ok(mut stream) = stream else { return };
            let _ = stream.set_read_timeout(Some(SOON));
            let mut byte = [0];
            if stream.read_exact(&mut byte).is_ok() {
                let _ = stream.write_all(&byte);
            }
        }
    });
}

fn reaches(netns: &str, address: &str) -> bool {
    let address: SocketAddr = address.parse().unwrap();
    inside(netns, || {
        let Ok(mut stream) = TcpStream::connect_timeout(&address, SOON) else { return false };
        stream.set_read_timeout(Some(SOON)).unwrap();
        let mut byte = [0];
        stream.write_all(b"x").is_ok() && stream.read_exact(&mut byte).is_ok() && byte == *b"x"
    })
}

/// A socket at an address. One that was closed may live on for a moment in a child that another test has forked.
fn bound(netns: &str, address: &str) -> UdpSocket {
    inside(netns, || {
        let mut tries = (0..100).map(|_| {
            let socket = UdpSocket::bind(address);
            std::thread::sleep(Duration::from_millis(if socket.is_ok() { 0 } else { 20 }));
            socket
        });
        tries.find_map(Result::ok).expect("the address is free")
    })
}

/// How many of so many datagrams arrive.
fn datagrams(from: (&str, &str), to: (&str, &str), n: usize) -> usize {
    let receiver = bound(to.0, to.1);
    receiver.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let sender = bound(from.0, from.1);
    let mut arrived = 0;
    let mut buffer = [0; 16];
    for _ in 0..n {
        // What a rule drops on its way out is an error of the sender, and a datagram that does not arrive.
        let _ = sender.send_to(b"x", to.1);
        receiver.set_nonblocking(true).unwrap();
        while receiver.recv(&mut buffer).is_ok() {
            arrived += 1;
        }
    }
    receiver.set_nonblocking(false).unwrap();
    while receiver.recv(&mut buffer).is_ok() {
        arrived += 1;
    }
    arrived
}

fn both(spec: &Spec, percent: u8) -> Vec<Box<dyn Injector>> {
    let cap = Cap { percent };
    [Fault::Nft(spec.clone()), Fault::Iptables(spec.clone())].iter().map(|f| f.prepare(cap).unwrap()).collect()
}

fn within(netns: &str, mut spec: Spec) -> Spec {
    spec.netns = Some(netns.into());
    spec
}

/// Injects, does something, and takes it back twice. Gives what was observed before and during.
fn under(injector: &mut dyn Injector, during: impl FnOnce()) -> (Observation, Observation) {
    assert_eq!(injector.probe().state, super::Readiness::Ready);
    let undo = injector.undo();
    let before = injector.observe().unwrap();
    injector.inject().unwrap();
    during();
    let seen = injector.observe().unwrap();
    for _ in 0..2 {
        let done = undo.carry_out();
        assert!(done.iter().all(|d| d.gone), "{done:?}");
    }
    assert_eq!(injector.observe().unwrap().states["rules"], "absent");
    (before, seen)
}

#[test]
fn a_full_cut_blocks_both_ways_counts_and_leaves_no_trace() {
    let Some(net) = Net::make() else { return };
    let others = "table inet theirs { chain c { type filter hook input priority 5; tcp dport 9 drop; }; }";
    run(&words(&["ip", "netns", "exec", &net.a, "nft", others])).unwrap();
    run(&words(&["ip", "netns", "exec", &net.a, "iptables", "-A", "INPUT", "-s", "10.9.9.9", "-j", "DROP"])).unwrap();
    for chain in ["OUTPUT", "FORWARD"] {
        // iptables makes its built-in chains when they are first used, and leaves them there, empty.
        run(&words(&["ip", "netns", "exec", &net.a, "iptables", "-P", chain, "ACCEPT"])).unwrap();
    }
    let (a, b) = (format!("{A}:7001"), format!("{B}:7000"));
    serve(&net.a, &a);
    serve(&net.b, &b);
    let rules = net.rules();
    for mut injector in both(&within(&net.a, spec(Action::Full, &[A], &[B])), 50) {
        assert!(reaches(&net.a, &b) && reaches(&net.b, &a), "before");
        let (before, seen) = under(&mut *injector, || {
            assert!(!reaches(&net.a, &b), "from the victim");
            assert!(!reaches(&net.b, &a), "to the victim");
        });
        let (landed, words) = injector.landed(&before, &seen);
        assert!(landed, "{words}");
        assert!(seen.counters["packets"] >= 2.0 && seen.counters["bytes"] > seen.counters["packets"], "{seen:?}");
        assert!(reaches(&net.a, &b) && reaches(&net.b, &a), "after");
        let (before, seen) = under(&mut *injector, || assert!(!reaches(&net.a, &b), "a second time"));
        assert!(injector.landed(&before, &seen).0);
        assert_eq!(net.rules(), rules, "what others set up stays as it was, and nothing is added");
    }
}

#[test]
fn a_one_way_cut_blocks_one_direction_only() {
    let Some(net) = Net::make() else { return };
    let (a, b) = (format!("{A}:7101"), format!("{B}:7100"));
    serve(&net.a, &a);
    serve(&net.b, &b);
    for mut injector in both(&within(&net.a, spec(Action::OneWay, &[A], &[&b])), 50) {
        let (before, seen) = under(&mut *injector, || {
            assert!(!reaches(&net.a, &b));
            assert!(reaches(&net.b, &a), "the other direction and other ports stay open");
        });
        assert!(injector.landed(&before, &seen).0);
    }
    for mut injector in both(&within(&net.a, spec(Action::OneWay, &[A], &[B])), 50) {
        under(&mut *injector, || {
            let (a, b) = (format!("{A}:7103"), format!("{B}:7103"));
            assert_eq!(datagrams((&net.a, &a), (&net.b, &b), 5), 0);
            assert_eq!(datagrams((&net.b, &b), (&net.a, &a), 5), 5);
        });
    }
}

#[test]
fn a_partial_cut_leaves_the_other_peer_reachable() {
    let Some(net) = Net::make() else { return };
    let second = "10.231.77.3";
    let device = format!("vb{}", &net.a[4..10]);
    run(&words(&["ip", "-n", &net.b, "address", "add", "10.231.77.3/24", "dev", &device])).unwrap();
    let (first, other) = (format!("{B}:7200"), format!("{second}:7200"));
    serve(&net.b, &first);
    serve(&net.b, &other);
    for mut injector in both(&within(&net.a, spec(Action::Partial, &[A], &[B, second])), 50) {
        under(&mut *injector, || {
            assert!(!reaches(&net.a, &first));
            assert!(reaches(&net.a, &other));
        });
    }
}

#[test]
fn rules_in_the_wrong_chain_count_nothing_and_have_not_landed() {
    let Some(net) = Net::make() else { return };
    let b = format!("{B}:7300");
    serve(&net.b, &b);
    let mut spec = within(&net.a, spec(Action::Full, &[A], &[B]));
    spec.hook = Some(super::cut::Hook::Forward);
    for mut injector in both(&spec, 50) {
        let (before, seen) = under(&mut *injector, || assert!(reaches(&net.a, &b), "nothing is blocked"));
        let (landed, words) = injector.landed(&before, &seen);
        assert!(!landed && words.contains("0 -> 0"), "{words}");
    }
}

#[test]
fn a_random_cut_drops_its_share_and_judges_each_packet_once() {
    let Some(net) = Net::make() else { return };
    const N: usize = 1000;
    for (from, to, place) in [(A, B, &net.b), ("127.0.0.1:7401", "127.0.0.1:7400", &net.a)] {
        let mut spec = within(&net.a, spec(Action::Random, &[from], &[to]));
        spec.protocol = Some("udp".into());
        for mut injector in both(&spec, 50) {
            let mut arrived = 0;
            let (before, seen) = under(&mut *injector, || {
                let host = |text: &str, port: u16| format!("{}:{port}", text.split(':').next().unwrap());
                arrived = datagrams((&net.a, &host(from, 7401)), (place, &host(to, 7400)), N);
            });
            assert!(injector.landed(&before, &seen).0);
            // Half of a thousand, give or take ten standard deviations.
            assert!((340..=660).contains(&arrived), "{arrived}");
            assert_eq!(seen.counters["packets judged"], N as f64);
            assert_eq!(seen.counters["packets"], (N - arrived) as f64);
        }
    }
}

#[test]
fn a_cut_in_a_namespace_that_is_gone_is_gone() {
    let Some(net) = Net::make() else { return };
    for mut injector in both(&within(&net.a, spec(Action::Full, &[A], &[B])), 50) {
        injector.inject().unwrap();
        let again = injector.inject().unwrap_err();
        assert!(!again.0.is_empty(), "a second cut of the same name is refused");
        run(&words(&["ip", "netns", "delete", &net.a])).unwrap();
        assert!(injector.undo().carry_out().iter().all(|d| d.gone));
        run(&words(&["ip", "netns", "add", &net.a])).unwrap();
        assert!(injector.undo().carry_out().iter().all(|d| d.gone), "a new one of that name holds no rules");
    }
}

#[test]
fn addresses_of_both_families_are_cut() {
    let Some(net) = Net::make() else { return };
    let (six, four) = ("[::1]:7500", "127.0.0.1:7500");
    serve(&net.a, six);
    serve(&net.a, four);
    let both_families = spec(Action::Full, &["::1", "127.0.0.1"], &[six, four]);
    for mut injector in both(&within(&net.a, both_families), 100) {
        assert!(reaches(&net.a, six) && reaches(&net.a, four), "before");
        let (before, seen) = under(&mut *injector, || {
            assert!(!reaches(&net.a, six));
            assert!(!reaches(&net.a, four));
        });
        let (landed, words) = injector.landed(&before, &seen);
        assert!(landed, "{words}");
        assert!(reaches(&net.a, six) && reaches(&net.a, four), "after");
    }
}

#[test]
fn a_journal_on_disk_reverts_a_cut_whose_run_is_gone() {
    let Some(net) = Net::make() else { return };
    let b = format!("{B}:7600");
    serve(&net.b, &b);
    let dir = tempfile::tempdir().unwrap();
    for mut injector in both(&within(&net.a, spec(Action::Full, &[A], &[B])), 50) {
        let path = dir.path().join("undo.json");
        Journal::new("r1", injector.undo(), Duration::from_secs(60)).write(&path).unwrap();
        injector.inject().unwrap();
        drop(injector);
        assert!(!reaches(&net.a, &b));
        let mut journal = Journal::read(&path).unwrap();
        assert!(journal.revert("switch: the run was gone"), "{:?}", journal.log);
        assert!(reaches(&net.a, &b));
    }
}

#[test]
fn a_revert_that_was_cut_short_is_carried_to_its_end() {
    let Some(net) = Net::make() else { return };
    let spec = Fault::Iptables(within(&net.a, spec(Action::Full, &[A], &[B])));
    let mut injector = spec.prepare(Cap { percent: 50 }).unwrap();
    let undo = injector.undo();
    let super::undo::Step::Drop { commands, .. } = &undo.steps[0] else { panic!("iptables drops a chain") };
    for done_before in 0..commands.len() {
        injector.inject().unwrap();
        for argv in &commands[..done_before] {
            run(argv).unwrap();
        }
        assert_eq!(injector.observe().unwrap().states["rules"], "present");
        assert!(undo.carry_out()[0].gone, "after {done_before} commands");
        assert_eq!(injector.observe().unwrap().states["rules"], "absent");
    }
}
