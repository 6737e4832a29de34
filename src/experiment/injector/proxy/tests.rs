use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use super::toxic::Stream;
use super::*;
use crate::experiment::front::split;
use crate::experiment::injector::Fault;
use crate::experiment::injector::undo::http;

/// How long a test waits for what must come.
const LONG: Duration = Duration::from_secs(20);
/// How long it watches that nothing comes.
const WATCH: Duration = Duration::from_millis(120);

fn server(serve: impl Fn(TcpStream) + Send + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            std::thread::spawn(move || serve(socket));
        }
    });
    address
}

/// Sends back what it gets; how each connection ended, and after how many bytes, is told.
fn echo() -> (SocketAddr, Receiver<(u64, io::Result<()>)>) {
    let (tell, told) = channel();
    (server(move |socket| send_back(socket, &tell)), told)
}

fn send_back(mut socket: TcpStream, tell: &Sender<(u64, io::Result<()>)>) {
    let mut buffer = [0; 4096];
    let mut sum = 0;
    let end = loop {
        match socket.read(&mut buffer) {
            Ok(0) => break Ok(()),
            Ok(n) => {
                sum += n as u64;
                if let Err(e) = socket.write_all(&buffer[..n]) {
                    break Err(e);
                }
            }
            Err(e) => break Err(e),
        }
    };
    let _ = tell.send((sum, end));
}

/// A proxy before an echo.
fn proxied() -> Proxy {
    Proxy::start("127.0.0.1:0", &echo().0.to_string()).unwrap()
}

fn client(proxy: &Proxy) -> TcpStream {
    connect(proxy).unwrap()
}

/// A connection that the proxy resets as soon as it comes may break before `connect` returns, or after.
fn connect(proxy: &Proxy) -> io::Result<TcpStream> {
    let socket = TcpStream::connect(proxy.listen())?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(LONG))?;
    Ok(socket)
}

/// Is a connection of its own, on which one byte goes there and back, broken? Waits until it is gone.
fn breaks(proxy: &Proxy) -> bool {
    let came = proxy.counters().connections;
    let broken = connect(proxy).and_then(|mut socket| exchange(&mut socket, b"x")).is_err();
    until("it came and is gone", || {
        let counters = proxy.counters();
        counters.connections > came && counters.live == 0
    });
    broken
}

fn set(proxy: &Proxy, kind: Kind, stream: Stream) {
    proxy.set(&[Toxic::new(kind, stream)], 1.0, 1).unwrap();
}

/// Sends, and reads as much back.
fn exchange(socket: &mut TcpStream, data: &[u8]) -> io::Result<Vec<u8>> {
    socket.write_all(data)?;
    let mut back = vec![0; data.len()];
    socket.read_exact(&mut back)?;
    Ok(back)
}

/// What comes while it is watched.
fn watched(socket: &mut TcpStream) -> Vec<u8> {
    socket.set_read_timeout(Some(WATCH)).unwrap();
    let mut buffer = [0; 4096];
    let mut seen = Vec::new();
    let until = Instant::now() + WATCH;
    while Instant::now() < until {
        match socket.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => seen.extend_from_slice(&buffer[..n]),
            Err(_) => break,
        }
    }
    socket.set_read_timeout(Some(LONG)).unwrap();
    seen
}

fn noise(n: usize) -> Vec<u8> {
    (0..n as u64).map(|i| super::share::mix(9, i) as u8).collect()
}

fn acts(proxy: &Proxy, toxic: &str) -> u64 {
    proxy.counters().of(toxic).acts
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "{what} did not come to hold");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn without_toxics_it_forwards_every_byte_both_ways_and_counts_them() {
    let proxy = proxied();
    let data = noise(3 << 20);
    let mut socket = client(&proxy);
    let mut sender = socket.try_clone().unwrap();
    let sent = data.clone();
    let writer = std::thread::spawn(move || {
        sender.write_all(&sent).unwrap();
        sender.shutdown(Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    socket.read_to_end(&mut back).unwrap();
    writer.join().unwrap();
    assert!(back == data, "{} bytes of {}", back.len(), data.len());
    until("the end", || proxy.counters().live == 0);
    let counters = proxy.counters();
    assert_eq!((counters.upstream_bytes, counters.downstream_bytes), (3 << 20, 3 << 20));
    assert_eq!((counters.connections, counters.chosen), (1, 0));
    assert!(counters.toxics.is_empty());
    let timeline = proxy.timeline();
    assert_eq!(timeline.connections[0].end, Some("closed by client and server"));
}

#[test]
fn latency_delays_each_way_by_as_much_as_it_says() {
    for (streams, least) in [(vec![Stream::Downstream], 60), (Stream::BOTH.to_vec(), 120)] {
        let proxy = proxied();
        let mut socket = client(&proxy);
        exchange(&mut socket, b"warm").unwrap();
        let toxics: Vec<Toxic> =
            streams.iter().map(|s| Toxic::new(Kind::Latency { latency: 60, jitter: 0 }, *s)).collect();
        proxy.set(&toxics, 1.0, 1).unwrap();
        let start = Instant::now();
        assert_eq!(exchange(&mut socket, b"hello").unwrap(), b"hello");
        assert!(start.elapsed() >= Duration::from_millis(least), "{:?}", start.elapsed());
        for toxic in &toxics {
            let tally = proxy.counters().of(&toxic.name);
            assert_eq!((tally.connections, tally.bytes), (1, 5));
            assert!(tally.acts >= 1);
        }
    }
}

#[test]
fn a_bandwidth_slows_a_large_answer() {
    let proxy = proxied();
    set(&proxy, Kind::Bandwidth { rate: 100 }, Stream::Downstream);
    let mut socket = client(&proxy);
    let data = noise(20_000);
    let start = Instant::now();
    assert!(exchange(&mut socket, &data).unwrap() == data);
    // 20,000 bytes at 100 a millisecond, of which the first 1,000 go at once and the last 1,000 end the wait.
    assert!(start.elapsed() >= Duration::from_millis(180), "{:?}", start.elapsed());
    assert!(acts(&proxy, "bandwidth_downstream") > 5);
    assert_eq!(proxy.counters().of("bandwidth_downstream").bytes, 20_000);
}

#[test]
fn a_reset_of_requests_is_seen_as_such_by_both_sides_and_nothing_reaches_the_server() {
    let (address, told) = echo();
    let proxy = Proxy::start("127.0.0.1:0", &address.to_string()).unwrap();
    set(&proxy, Kind::ResetPeer { timeout: 0 }, Stream::Upstream);
    let mut socket = client(&proxy);
    let error = exchange(&mut socket, b"hello").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let (bytes, end) = told.recv_timeout(LONG).unwrap();
    assert_eq!((bytes, end.unwrap_err().kind()), (0, ErrorKind::ConnectionReset));
    assert_eq!(acts(&proxy, "reset_peer_upstream"), 1);
}

#[test]
fn a_reset_of_answers_leaves_the_request_done() {
    let (address, told) = echo();
    let proxy = Proxy::start("127.0.0.1:0", &address.to_string()).unwrap();
    set(&proxy, Kind::ResetPeer { timeout: 0 }, Stream::Downstream);
    let mut socket = client(&proxy);
    assert_eq!(exchange(&mut socket, b"hello").unwrap_err().kind(), ErrorKind::ConnectionReset);
    let (bytes, end) = told.recv_timeout(LONG).unwrap();
    assert_eq!((bytes, end.unwrap_err().kind()), (5, ErrorKind::ConnectionReset));
}

#[test]
fn a_blackhole_lets_no_byte_through_and_gives_all_back_in_order_when_it_ends() {
    for stream in Stream::BOTH {
        let proxy = proxied();
        let mut socket = client(&proxy);
        exchange(&mut socket, b"warm").unwrap();
        let before = proxy.counters();
        set(&proxy, Kind::Timeout { timeout: 0 }, stream);
        let data = noise(50_000);
        socket.write_all(&data).unwrap();
        assert!(watched(&mut socket).is_empty(), "{stream:?}");
        until("the fault", || acts(&proxy, &format!("timeout_{}", stream.name())) > 0);
        let held = proxy.counters();
        assert_eq!(held.downstream_bytes, before.downstream_bytes);
        if stream == Stream::Upstream {
            assert_eq!(held.upstream_bytes, before.upstream_bytes);
        } else {
            until("one way is open", || proxy.counters().upstream_bytes > before.upstream_bytes);
        }
        proxy.clear().unwrap();
        let mut back = vec![0; data.len()];
        socket.read_exact(&mut back).unwrap();
        assert!(back == data);
        assert_eq!(exchange(&mut socket, b"again").unwrap(), b"again");
    }
}

#[test]
fn one_way_means_that_the_other_way_goes_on() {
    let address = server(|mut socket| {
        for n in 0..10_000u32 {
            if socket.write_all(&n.to_be_bytes()).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    let proxy = Proxy::start("127.0.0.1:0", &address.to_string()).unwrap();
    set(&proxy, Kind::Timeout { timeout: 0 }, Stream::Upstream);
    let mut socket = client(&proxy);
    socket.write_all(b"unheard").unwrap();
    let mut answers = [0; 80];
    socket.read_exact(&mut answers).unwrap();
    assert_eq!(answers[76..], 19u32.to_be_bytes());
    until("the request is held", || acts(&proxy, "timeout_upstream") > 0);
    let counters = proxy.counters();
    assert_eq!((counters.upstream_bytes, counters.of("timeout_upstream").bytes), (0, 7));
}

#[test]
fn a_timeout_closes_an_idle_connection_that_was_there_before() {
    let proxy = proxied();
    let mut socket = client(&proxy);
    exchange(&mut socket, b"warm").unwrap();
    let start = Instant::now();
    set(&proxy, Kind::Timeout { timeout: 80 }, Stream::Downstream);
    let end = socket.read(&mut [0; 1]);
    assert!(matches!(&end, Ok(0)) || end.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset));
    assert!(start.elapsed() >= Duration::from_millis(80));
    assert_eq!(acts(&proxy, "timeout_downstream"), 1);
}

#[test]
fn a_slicer_cuts_answers_and_loses_nothing() {
    let proxy = proxied();
    set(&proxy, Kind::Slicer { average_size: 64, size_variation: 32, delay: 2_000 }, Stream::Downstream);
    let mut socket = client(&proxy);
    let data = noise(4_000);
    let start = Instant::now();
    socket.write_all(&data).unwrap();
    let mut back = vec![0; data.len()];
    socket.read_exact(&mut back).unwrap();
    assert!(back == data);
    // 42 pieces at least, with 2 ms between them.
    assert!(start.elapsed() >= Duration::from_millis(80), "{:?}", start.elapsed());
    assert!(acts(&proxy, "slicer_downstream") >= 4_000 / 96 - 1);
}

#[test]
fn a_limit_delivers_its_bytes_and_ends_the_connection() {
    let proxy = proxied();
    set(&proxy, Kind::LimitData { bytes: 1_000 }, Stream::Downstream);
    let mut socket = client(&proxy);
    let data = noise(1_500);
    socket.write_all(&data).unwrap();
    let mut back = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = socket.read(&mut buffer) {
        back.extend_from_slice(&buffer[..n]);
    }
    assert!(back == data[..1_000], "{} bytes", back.len());
    until("the end", || proxy.counters().live == 0);
    let tally = proxy.counters().of("limit_data_downstream");
    assert_eq!((tally.acts, tally.bytes), (1, 1_000));
    assert_eq!(proxy.timeline().connections[0].end, Some("closed by a toxic"));
}

#[test]
fn a_slow_close_tells_the_client_later() {
    let address = server(|mut socket| drop(socket.write_all(b"bye")));
    let proxy = Proxy::start("127.0.0.1:0", &address.to_string()).unwrap();
    set(&proxy, Kind::SlowClose { delay: 90 }, Stream::Downstream);
    let start = Instant::now();
    let mut socket = client(&proxy);
    let mut back = Vec::new();
    socket.read_to_end(&mut back).unwrap();
    assert_eq!(back, b"bye");
    assert!(start.elapsed() >= Duration::from_millis(90));
    assert_eq!(acts(&proxy, "slow_close_downstream"), 1);
}

#[test]
fn a_proxy_that_is_down_refuses_everybody_and_comes_back_on_its_port() {
    let proxy = proxied();
    for _ in 0..3 {
        let mut there = client(&proxy);
        exchange(&mut there, b"warm").unwrap();
        set(&proxy, Kind::Down, Stream::Upstream);
        let end = there.read(&mut [0; 1]);
        assert!(matches!(&end, Ok(0)) || end.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset));
        for _ in 0..20 {
            let refused = TcpStream::connect(proxy.listen()).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        }
        proxy.clear().unwrap();
        assert_eq!(exchange(&mut client(&proxy), b"back").unwrap(), b"back");
    }
    assert_eq!(acts(&proxy, "down_upstream"), 3);
}

#[test]
fn a_door_that_cannot_be_opened_again_is_a_fault_that_is_still_there() {
    let proxy = proxied();
    let api = Api::start("127.0.0.1:0", "target", &proxy, true).unwrap();
    set(&proxy, Kind::Down, Stream::Upstream);
    let thief = TcpListener::bind(proxy.listen()).unwrap();
    assert!(proxy.clear().unwrap_err().contains("cannot listen again"));
    assert_eq!(ask(&api.url(), "POST", "/reset", "").0, 500);
    assert_eq!(ask(&api.url(), "GET", "/faults", "").1, json!({"active": 1}));
    assert_eq!(ask(&api.url(), "GET", "/proxies/target", "").1["enabled"], false);
    drop(thief);
    assert_eq!(ask(&api.url(), "POST", "/reset", "").0, 204);
    assert_eq!(ask(&api.url(), "GET", "/faults", "").1, json!({"active": 0}));
    assert_eq!(exchange(&mut client(&proxy), b"back").unwrap(), b"back");
}

#[test]
fn a_client_that_resets_is_told_to_the_server_as_a_reset() {
    let (address, told) = echo();
    let proxy = Proxy::start("127.0.0.1:0", &address.to_string()).unwrap();
    let mut socket = client(&proxy);
    exchange(&mut socket, b"warm").unwrap();
    super::connection::reset(&socket);
    drop(socket);
    assert_eq!(told.recv_timeout(LONG).unwrap().1.unwrap_err().kind(), ErrorKind::ConnectionReset);
    until("the end", || proxy.counters().live == 0);
    assert_eq!(proxy.timeline().connections[0].end, Some("broken by client or server"));
}

#[test]
fn an_end_that_a_blackhole_holds_back_reaches_the_server_only_after_it() {
    let (address, told) = echo();
    let proxy = Proxy::start("127.0.0.1:0", &address.to_string()).unwrap();
    let mut socket = client(&proxy);
    exchange(&mut socket, b"warm").unwrap();
    set(&proxy, Kind::Timeout { timeout: 0 }, Stream::Upstream);
    socket.write_all(b"late").unwrap();
    drop(socket);
    assert!(told.recv_timeout(WATCH).is_err(), "the server learnt of the end through a partition");
    proxy.clear().unwrap();
    let (bytes, _) = told.recv_timeout(LONG).unwrap();
    assert_eq!(bytes, 8, "what was sent before the end is delivered");
}

#[test]
fn a_server_that_is_not_there_is_a_reset_and_counted_as_no_fault() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = Proxy::start("127.0.0.1:0", &closed.to_string()).unwrap();
    assert!(breaks(&proxy));
    let counters = proxy.counters();
    assert_eq!((counters.unreachable, counters.connections), (1, 1));
    assert!(counters.toxics.is_empty());
}

#[test]
fn dropping_the_proxy_ends_its_connections_and_frees_its_port() {
    let proxy = proxied();
    let listen = proxy.listen();
    let mut socket = client(&proxy);
    exchange(&mut socket, b"warm").unwrap();
    drop(proxy);
    assert!(matches!(socket.read(&mut [0; 1]), Ok(0) | Err(_)));
    assert_eq!(TcpStream::connect(listen).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    TcpListener::bind(listen).unwrap();
}

#[test]
fn of_a_thousand_connections_the_share_is_hit_and_the_cap_never_exceeded() {
    let proxy = Proxy::start_capped("127.0.0.1:0", &echo().0.to_string(), 0.3).unwrap();
    // More is asked for than the cap allows.
    proxy.set(&[Toxic::new(Kind::ResetPeer { timeout: 0 }, Stream::Upstream)], 1.0, 42).unwrap();
    let mut hits = 0u64;
    for n in 1..=1000u64 {
        hits += u64::from(breaks(&proxy));
        assert!(hits <= (n * 3 / 10).max(1), "{hits} of {n}");
    }
    assert!(hits >= 299, "{hits} of 1000");
    let counters = proxy.counters();
    assert_eq!((counters.connections, counters.of("reset_peer_upstream").connections), (1000, hits));
    assert_eq!(counters.chosen, hits);
}

#[test]
fn of_connections_that_are_there_the_same_share_is_hit_and_no_more_at_once() {
    let proxy = Proxy::start_capped("127.0.0.1:0", &echo().0.to_string(), 0.34).unwrap();
    let mut sockets: Vec<TcpStream> = (0..10).map(|_| client(&proxy)).collect();
    sockets.iter_mut().for_each(|s| drop(exchange(s, b"warm").unwrap()));
    set(&proxy, Kind::Timeout { timeout: 0 }, Stream::Downstream);
    let stuck = |sockets: &mut Vec<TcpStream>| {
        sockets.iter_mut().for_each(|s| s.write_all(b"x").unwrap());
        sockets.iter_mut().filter_map(|s| watched(s).is_empty().then_some(())).count()
    };
    assert_eq!(stuck(&mut sockets), 3, "34 % of 10");
    let chosen = proxy.timeline().changes[0].chosen.clone();
    assert_eq!(chosen.len(), 3);
    // Others come and go: none of them may be hit while three of ten are.
    for _ in 0..30 {
        until("the last one is gone", || proxy.counters().live == 10);
        assert_eq!(exchange(&mut client(&proxy), b"x").unwrap(), b"x");
    }
    proxy.clear().unwrap();
    assert_eq!(stuck(&mut sockets), 0);
}

#[test]
fn toxics_of_different_shares_hit_within_each_other_and_do_not_add_up() {
    let proxy = Proxy::start_capped("127.0.0.1:0", &echo().0.to_string(), 0.5).unwrap();
    let wide = Toxic::new(Kind::Latency { latency: 1, jitter: 0 }, Stream::Upstream);
    let narrow = Toxic { toxicity: 0.25, ..Toxic::new(Kind::Latency { latency: 1, jitter: 0 }, Stream::Downstream) };
    proxy.set(&[wide, narrow], 1.0, 5).unwrap();
    for _ in 0..200 {
        exchange(&mut client(&proxy), b"x").unwrap();
        // One that lingers takes the room of the next.
        until("it is gone", || proxy.counters().live == 0);
    }
    until("the end", || proxy.counters().live == 0);
    let counters = proxy.counters();
    let (wide, narrow) = (counters.of("latency_upstream"), counters.of("latency_downstream"));
    assert!(wide.connections <= 100 && wide.connections >= 99, "{wide:?}");
    assert!(narrow.connections <= 50 && narrow.connections >= 48, "{narrow:?}");
    assert_eq!(counters.chosen, wide.connections);
}

#[test]
fn down_for_a_share_turns_away_that_share_and_serves_the_others() {
    let proxy = Proxy::start_capped("127.0.0.1:0", &echo().0.to_string(), 0.5).unwrap();
    set(&proxy, Kind::Down, Stream::Upstream);
    let failed = (0..100).filter(|_| breaks(&proxy)).count();
    assert!((49..=50).contains(&failed), "{failed}");
    assert_eq!(acts(&proxy, "down_upstream"), failed as u64);
}

#[test]
fn the_timeline_tells_which_fault_acted_on_how_many_bytes_of_which_connection_and_when() {
    let proxy = proxied();
    let mut socket = client(&proxy);
    exchange(&mut socket, b"warm").unwrap();
    set(&proxy, Kind::Latency { latency: 5, jitter: 0 }, Stream::Upstream);
    exchange(&mut socket, b"0123456789").unwrap();
    proxy.clear().unwrap();
    exchange(&mut socket, b"cold").unwrap();
    let timeline = serde_json::to_value(proxy.timeline()).unwrap();
    assert_eq!(timeline["upstream"], proxy.upstream());
    assert_eq!(timeline["changes"].as_array().unwrap().len(), 2);
    assert_eq!(timeline["changes"][0]["chosen"], json!([1]));
    assert_eq!(timeline["changes"][0]["toxics"][0]["name"], "latency_upstream");
    let connection = &timeline["connections"][0];
    assert_eq!((&connection["id"], &connection["chosen"]), (&json!(1), &json!(true)));
    assert_eq!((&connection["upstream_bytes"], &connection["downstream_bytes"]), (&json!(18), &json!(18)));
    let fault = &connection["faults"][0];
    assert_eq!((&fault["toxic"], &fault["bytes"]), (&json!("latency_upstream"), &json!(10)));
    let at = |json: &Json| json.as_f64().unwrap();
    assert!(at(&timeline["changes"][0]["at_ms"]) <= at(&fault["first_ms"]));
    assert!(at(&fault["last_ms"]) <= at(&timeline["changes"][1]["at_ms"]));
}

#[test]
fn values_that_make_no_sense_are_refused_and_leave_what_was_set() {
    let proxy = proxied();
    let fine = Toxic::new(Kind::Latency { latency: 1, jitter: 0 }, Stream::Upstream);
    proxy.set(std::slice::from_ref(&fine), 1.0, 1).unwrap();
    let with = |toxicity| Toxic { toxicity, ..fine.clone() };
    for wrong in [
        proxy.set(&[with(7.0)], 1.0, 1),
        proxy.set(&[with(-0.1)], 1.0, 1),
        proxy.set(&[with(f64::NAN)], 1.0, 1),
        proxy.set(std::slice::from_ref(&fine), 1.5, 1),
        proxy.set(&[fine.clone(), fine.clone()], 1.0, 1),
        proxy.set(&[Toxic::new(Kind::Bandwidth { rate: 0 }, Stream::Upstream)], 1.0, 1),
    ] {
        wrong.unwrap_err();
        assert_eq!(proxy.toxics(), std::slice::from_ref(&fine));
    }
}

// ---- as an injector

fn fault(yaml: &str) -> Result<Fault, Vec<String>> {
    let text = format!("---\n{yaml}\n---\n");
    let (entries, _) = split(&text).unwrap();
    let mut fields = Fields::new("fault", &entries, 1);
    let mut wrong = Vec::new();
    let fault = Fault::take(&mut fields, &mut wrong);
    if wrong.is_empty() {
        fields.finish(&mut wrong);
    }
    match fault {
        Some(fault) if wrong.is_empty() => Ok(fault),
        _ => Err(wrong.iter().map(ToString::to_string).collect()),
    }
}

fn built_in(upstream: &str, rest: &str, percent: u8) -> BuiltIn {
    let yaml = format!("injector: proxy\nlisten: 127.0.0.1:0\nupstream: {upstream}\n{rest}");
    let Fault::Proxy(spec) = fault(&yaml).unwrap() else { panic!("another injector") };
    BuiltIn::prepare(&spec, Cap { percent }).unwrap()
}

#[test]
fn a_scenario_says_what_is_wrong_with_its_toxic() {
    let head = "injector: proxy\nlisten: 127.0.0.1:7001\nupstream: 127.0.0.1:7002\n";
    for (rest, why) in [
        ("", "`fault.toxic` is missing"),
        ("toxic: latensy", "did you mean `latency`"),
        ("toxic: latency", "changes nothing"),
        ("toxic: latency\nlatency: -5", "`fault.latency` is a whole number from 0 on"),
        ("toxic: latency\nlatency: 5\ntoxicity: 7", "`fault.toxicity` is a share"),
        ("toxic: latency\nlatency: 5\ntoxicity: 0", "`fault.toxicity` is a share"),
        ("toxic: latency\nlatency: 5\nstream: sideways", "`fault.stream` is upstream, downstream or both"),
        ("toxic: latency\nlatency: 5\nrate: 5", "`fault.rate` is no key"),
        ("toxic: latency\nlatency: 90000000000", "at most"),
        ("toxic: bandwidth", "`rate` is at least 1"),
        ("toxic: slicer\naverage_size: 5\nsize_variation: 5", "less than `average_size`"),
        ("toxic: down\napi: 192.0.2.1:8474", "on loopback"),
        ("toxic: down\napi: evil.example:8474", "on loopback"),
    ] {
        let wrong = fault(&format!("{head}{rest}")).unwrap_err().join("; ");
        assert!(wrong.contains(why), "{rest}: {wrong}");
    }
    let wrong = fault("injector: proxy\nlisten: 7001\ntoxic: down").unwrap_err().join("; ");
    assert!(
        wrong.contains("`fault.listen` is `host:port`") && wrong.contains("`fault.upstream` is missing"),
        "{wrong}"
    );
}

#[test]
fn a_fault_lands_is_seen_and_is_taken_back_by_a_step_that_went_to_disk() {
    let mut injector = built_in(&echo().0.to_string(), "toxic: latency\nlatency: 40\nstream: both", 100);
    assert_eq!(injector.probe().state, Readiness::Ready);
    assert!(injector.plan()[0].contains("latency_upstream latency=40 jitter=0 of 100 %"), "{:?}", injector.plan());
    let text = serde_json::to_string(&injector.undo()).unwrap();
    let undo: Undo = serde_json::from_str(&text).unwrap();
    let mut socket = client(injector.proxy());
    exchange(&mut socket, b"before").unwrap();
    let before = injector.observe().unwrap();
    injector.inject().unwrap();
    let idle = injector.observe().unwrap();
    assert!(!injector.landed(&before, &idle).0, "that it is set proves nothing");
    let start = Instant::now();
    exchange(&mut socket, b"during").unwrap();
    assert!(start.elapsed() >= Duration::from_millis(80));
    let during = injector.observe().unwrap();
    let (landed, words) = injector.landed(&before, &during);
    assert!(landed && words.contains("on 6 bytes of 1 of 1 connections"), "{words}");
    for _ in 0..2 {
        let done = undo.carry_out();
        assert!(done.iter().all(|d| d.gone), "{done:?}");
        assert!(injector.proxy().toxics().is_empty());
    }
    exchange(&mut socket, b"after").unwrap();
    assert_eq!(
        injector.observe().unwrap().counters["latency_upstream: acts"],
        during.counters["latency_upstream: acts"]
    );
    let (name, trace) = injector.trace().unwrap();
    assert_eq!(name, "proxy-timeline.json");
    assert_eq!(trace["counters"]["toxics"]["latency_downstream"]["bytes"], 6);
}

#[test]
fn a_workload_that_goes_another_way_shows_that_the_fault_did_not_land() {
    let (address, _told) = echo();
    for toxic in ["toxic: latency\nlatency: 40", "toxic: down", "toxic: blackhole"] {
        let mut injector = built_in(&address.to_string(), toxic, 100);
        let before = injector.observe().unwrap();
        injector.inject().unwrap();
        let mut direct = TcpStream::connect(address).unwrap();
        exchange(&mut direct, b"bypass").unwrap();
        let during = injector.observe().unwrap();
        let (landed, words) = injector.landed(&before, &during);
        assert!(!landed && words.contains("no connection ever came"), "{words}");
        assert_eq!(during.counters["connections"], 0.0);
    }
}

#[test]
fn a_closed_door_that_clients_used_has_landed() {
    let mut injector = built_in(&echo().0.to_string(), "toxic: down", 100);
    exchange(&mut client(injector.proxy()), b"once").unwrap();
    until("it is gone", || injector.proxy().counters().live == 0);
    let before = injector.observe().unwrap();
    injector.inject().unwrap();
    let during = injector.observe().unwrap();
    let (landed, words) = injector.landed(&before, &during);
    assert!(landed && words.contains("new connections are refused"), "{words}");
    assert!(injector.undo().carry_out()[0].gone);
    let after = injector.observe().unwrap();
    assert_eq!(after.states["door"], "open");
    assert_eq!(after.counters["connections"], 1.0, "looking is no connection");
}

#[test]
fn the_cap_of_the_scenario_binds_whatever_its_toxicity_asks_for() {
    let mut injector = built_in(&echo().0.to_string(), "toxic: reset_peer\ntoxicity: 0.9\nstream: upstream", 20);
    injector.inject().unwrap();
    let failed = (0..100).filter(|_| breaks(injector.proxy())).count();
    assert!((19..=20).contains(&failed), "{failed}");
}

#[test]
fn when_elench_is_gone_so_is_the_fault_and_while_it_lives_silence_proves_nothing() {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let owner = Victim::of(child.id() as i32).unwrap();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let step = |owner| {
        Step::Http(Ask {
            method: "POST".into(),
            url: format!("http://{nobody}/reset"),
            body: String::new(),
            look: format!("http://{nobody}/faults"),
            gone: Gone::Holds { pointer: "/active".into(), value: json!(0) },
            owner,
        })
    };
    assert!(!step(None).carry_out().gone);
    assert!(!step(Some(owner)).carry_out().gone);
    child.kill().unwrap();
    until("it ended", || matches!(owner.state(), None | Some('Z')));
    assert!(step(Some(owner)).carry_out().gone);
    child.wait().unwrap();
    let done = step(Some(owner)).carry_out();
    assert!(done.gone && done.how.contains("the fault with it"), "{done:?}");
}

// ---- Toxiproxy's API

fn ask(url: &str, method: &str, path: &str, body: &str) -> (u16, Json) {
    let (status, text) = http(method, &format!("{url}{path}"), body).unwrap();
    (status, if text.is_empty() { Json::Null } else { serde_json::from_str(&text).unwrap() })
}

#[test]
fn a_client_of_toxiproxy_makes_a_proxy_poisons_it_and_cleans_up() {
    let (address, _told) = echo();
    let own = Proxy::start("127.0.0.1:0", &address.to_string()).unwrap();
    let api = Api::start("127.0.0.1:0", "target", &own, false).unwrap();
    let ask = |method: &str, path: &str, body: &str| ask(&api.url(), method, path, body);
    assert!(ask("GET", "/version", "").1["version"].as_str().unwrap().starts_with("elench"));
    let body = format!(r#"{{"name": "db one", "listen": "127.0.0.1:0", "upstream": "{address}"}}"#);
    let (status, made) = ask("POST", "/proxies", &body);
    assert_eq!(status, 201, "{made}");
    assert_eq!((&made["enabled"], &made["toxics"], &made["name"]), (&json!(true), &json!([]), &json!("db one")));
    assert_eq!(ask("POST", "/proxies", &body).0, 409);
    let listen: SocketAddr = made["listen"].as_str().unwrap().parse().unwrap();
    let list = ask("GET", "/proxies", "").1;
    assert_eq!(list.as_object().unwrap().keys().collect::<Vec<_>>(), ["db one", "target"]);

    let (status, toxic) =
        ask("POST", "/proxies/db%20one/toxics", r#"{"type": "latency", "attributes": {"latency": 50}}"#);
    assert_eq!(status, 200);
    let expected = json!({
        "name": "latency_downstream", "type": "latency", "stream": "downstream", "toxicity": 1.0,
        "attributes": {"latency": 50, "jitter": 0},
    });
    assert_eq!(toxic, expected);
    assert_eq!(ask("POST", "/proxies/db%20one/toxics", r#"{"type": "latency"}"#).0, 409);
    assert_eq!(ask("GET", "/proxies/db%20one/toxics/latency_downstream", "").1, expected);
    let through = || {
        let mut socket = TcpStream::connect(listen).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        let start = Instant::now();
        exchange(&mut socket, b"x").map(|_| start.elapsed())
    };
    assert!(through().unwrap() >= Duration::from_millis(50));

    let (status, toxic) =
        ask("POST", "/proxies/db%20one/toxics/latency_downstream", r#"{"attributes": {"jitter": 3}, "toxicity": 0.5}"#);
    assert_eq!((status, &toxic["toxicity"]), (200, &json!(0.5)));
    assert_eq!(toxic["attributes"], json!({"latency": 50, "jitter": 3}), "what is not named stays");
    assert_eq!(ask("GET", "/faults", "").1, json!({"active": 1}));
    assert_eq!(ask("DELETE", "/proxies/db%20one/toxics/latency_downstream", ""), (204, Json::Null));
    assert_eq!(ask("DELETE", "/proxies/db%20one/toxics/latency_downstream", "").0, 404);

    let (status, shown) = ask("POST", "/proxies/db%20one", r#"{"enabled": false}"#);
    assert_eq!((status, &shown["enabled"], &shown["toxics"]), (200, &json!(false), &json!([])));
    assert_eq!(TcpStream::connect(listen).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert_eq!(ask("POST", "/reset", ""), (204, Json::Null));
    through().unwrap();
    assert_eq!(ask("GET", "/proxies/db%20one/counters", "").1["connections"], 2);
    assert_eq!(ask("GET", "/proxies/db%20one/timeline", "").1["connections"].as_array().unwrap().len(), 2);
    assert_eq!(ask("DELETE", "/proxies/db%20one", "").0, 204);
    assert_eq!(ask("GET", "/proxies/db%20one", ""), (404, json!({"error": "proxy not found", "status": 404})));
}

#[test]
fn populating_again_changes_nothing() {
    let (address, _told) = echo();
    let own = Proxy::start("127.0.0.1:0", &address.to_string()).unwrap();
    let api = Api::start("127.0.0.1:0", "target", &own, false).unwrap();
    let first = ask(&api.url(), "POST", "/populate", &format!(r#"[{{"name": "a", "upstream": "{address}"}}]"#));
    assert_eq!(first.0, 201, "{first:?}");
    let made = &first.1["proxies"][0];
    let again = json!([{"name": "a", "upstream": made["upstream"], "listen": made["listen"]}]).to_string();
    assert_eq!(ask(&api.url(), "POST", "/populate", &again), first);
    let (status, said) = ask(&api.url(), "POST", "/populate", r#"[{"name": "b"}]"#);
    assert_eq!(
        (status, &said["error"], &said["proxies"]),
        (400, &json!("missing required field: upstream"), &json!([]))
    );
}

#[test]
fn the_api_refuses_what_makes_no_sense_and_what_nobody_judged() {
    let (address, _told) = echo();
    let own = Proxy::start_capped("127.0.0.1:0", &address.to_string(), 0.25).unwrap();
    let api = Api::start("127.0.0.1:0", "target", &own, false).unwrap();
    let toxics = "/proxies/target/toxics";
    for (method, path, body, status) in [
        ("POST", toxics, r#"{"type": "latency", "toxicity": 7}"#, 400),
        ("POST", toxics, r#"{"type": "latency", "toxicity": -1}"#, 400),
        ("POST", toxics, r#"{"type": "latency", "attributes": {"latency": -5}}"#, 400),
        ("POST", toxics, r#"{"type": "latency", "attributes": {"latency": 1.5}}"#, 400),
        ("POST", toxics, r#"{"type": "latency", "attributes": {"latency": "5"}}"#, 400),
        ("POST", toxics, r#"{"type": "latency", "stream": "sideways"}"#, 400),
        ("POST", toxics, r#"{"type": "bandwidth"}"#, 400),
        ("POST", toxics, r#"{"type": "nonsense"}"#, 400),
        ("POST", toxics, r#"{"type": "down"}"#, 400),
        ("POST", toxics, r#"{}"#, 400),
        ("POST", toxics, r#"{"#, 400),
        ("POST", "/proxies/nobody/toxics", r#"{"type": "latency"}"#, 404),
        ("POST", "/proxies/target/toxics/nobody", r#"{}"#, 404),
        ("POST", "/proxies/target", r#"{"enabled": false}"#, 403),
        ("POST", "/proxies/target", r#"{"enabled": 1}"#, 400),
        ("POST", "/proxies/target", r#"{"upstream": "127.0.0.1:1"}"#, 400),
        ("DELETE", "/proxies/target", "", 403),
        ("POST", "/proxies", r#"{"name": "x", "upstream": "192.0.2.1:80"}"#, 403),
        ("POST", "/proxies", r#"{"name": "x", "upstream": "db.prod.example:80"}"#, 403),
        ("POST", "/proxies", r#"{"name": "x", "upstream": "127.0.0.1:80", "listen": "0.0.0.0:0"}"#, 403),
        ("POST", "/proxies", r#"{"name": "x"}"#, 400),
        ("POST", "/proxies", r#"{"name": "x", "upstream": "127.0.0.1:1", "enabled": false}"#, 403),
        ("GET", "/nowhere", "", 404),
        ("DELETE", "/version", "", 405),
    ] {
        let (said, json) = ask(&api.url(), method, path, body);
        assert_eq!(said, status, "{method} {path} {body}: {json}");
        assert_eq!(json["status"], status);
        assert!(own.toxics().is_empty());
    }
    let (_, toxic) = ask(&api.url(), "POST", toxics, r#"{"type": "latency"}"#);
    assert_eq!(toxic["toxicity"], 0.25, "what is listed is what is set");
    assert_eq!(own.toxics()[0].toxicity, 0.25);
    let browser = minreq::post(format!("{}/reset", api.url())).with_header("User-Agent", "Mozilla/5.0").send().unwrap();
    assert_eq!((browser.status_code, own.toxics().len()), (403, 1));
}

#[test]
fn where_no_api_was_asked_for_it_reads_and_resets_only() {
    let injector = built_in(&echo().0.to_string(), "toxic: down", 100);
    let url = injector.api.url();
    let add = r#"{"type": "latency"}"#;
    assert_eq!(ask(&url, "POST", "/proxies/target/toxics", add).0, 403);
    assert_eq!(ask(&url, "POST", "/proxies/target", r#"{"enabled": false}"#).0, 403);
    assert_eq!(ask(&url, "GET", "/proxies/target", "").0, 200);
    assert_eq!(ask(&url, "POST", "/reset", "").0, 204);
    let asked = built_in(&echo().0.to_string(), "toxic: down\napi: 127.0.0.1:0", 100);
    assert_eq!(ask(&asked.api.url(), "POST", "/proxies/target/toxics", add).0, 200);
}
