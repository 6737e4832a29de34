use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use tiny_http::{Method, Response, Server};

use super::*;
use crate::experiment::front::split;
use crate::experiment::injector::Fault;
use crate::experiment::injector::proxy::toxic::Stream;
use crate::experiment::injector::proxy::{Api, Proxy};

type Heard = Arc<Mutex<Vec<String>>>;

/// A server that writes down every request, and answers as a function says.
fn recorder(answer: impl Fn(&Method, &str) -> (u16, String) + Send + 'static) -> (String, Heard, Arc<Server>) {
    let server = Arc::new(Server::http("127.0.0.1:0").unwrap());
    let url = format!("http://{}", server.server_addr().to_ip().unwrap());
    let heard = Heard::default();
    let (theirs, listener) = (Arc::clone(&heard), Arc::clone(&server));
    std::thread::spawn(move || {
        for mut request in listener.incoming_requests() {
            let mut body = String::new();
            request.as_reader().read_to_string(&mut body).unwrap();
            let line = format!("{} {} {body}", request.method(), request.url());
            theirs.lock().unwrap().push(line.trim().to_string());
            let (status, text) = answer(request.method(), request.url());
            let _ = request.respond(Response::from_string(text).with_status_code(status));
        }
    });
    (url, heard, server)
}

fn spec(url: &str, upstream: &str, toxics: Vec<Toxic>) -> Spec {
    Spec { url: url.into(), proxy: "db".into(), upstream: upstream.into(), toxics }
}

fn latency(ms: u64, toxicity: f64) -> Toxic {
    Toxic { toxicity, ..Toxic::new(Kind::Latency { latency: ms, jitter: 0 }, Stream::Downstream) }
}

fn remote(spec: &Spec, percent: u8) -> Remote {
    Remote::prepare(spec, Cap { percent }).unwrap()
}

fn said(shown: Json) -> (String, Heard, Arc<Server>) {
    recorder(move |method, url| match (method, url) {
        (Method::Get, "/proxies/db") => (200, shown.to_string()),
        (Method::Get, "/version") => (200, r#"{"version": "2.9.0"}"#.into()),
        (Method::Post, _) => (200, "{}".into()),
        _ => (404, "{}".into()),
    })
}

#[test]
fn values_that_the_server_would_take_are_refused_before_anything_is_sent() {
    let (url, heard, server) = said(json!({"upstream": "127.0.0.1:1"}));
    for toxic in ["latency: -5", "latency: 5\ntoxicity: 7", "latency: 5\ntoxicity: -0.5", "latency: 5\njitter: -1"] {
        let text = format!(
            "---\ninjector: toxiproxy\nurl: {url}\nproxy: db\nupstream: 127.0.0.1:1\ntoxic: latency\n{toxic}\n---\n"
        );
        let (entries, _) = split(&text).unwrap();
        let mut wrong = Vec::new();
        assert!(Fault::take(&mut Fields::new("fault", &entries, 1), &mut wrong).is_none(), "{toxic}");
        assert_eq!(wrong.len(), 1, "{wrong:?}");
    }
    for toxic in [latency(5, 7.0), latency(5, -1.0), latency(u64::MAX, 1.0)] {
        Remote::prepare(&spec(&url, "127.0.0.1:1", vec![toxic]), Cap { percent: 100 }).unwrap_err();
    }
    let down = vec![Toxic::new(Kind::Down, Stream::Upstream)];
    let why = Remote::prepare(&spec(&url, "127.0.0.1:1", down), Cap { percent: 99 }).unwrap_err();
    assert!(why.contains("down for everybody"), "{why}");
    assert!(heard.lock().unwrap().is_empty());
    server.unblock();
}

#[test]
fn what_is_sent_is_capped_and_is_what_the_plan_says() {
    let (url, heard, server) = said(json!({"upstream": "127.0.0.1:1"}));
    let mut injector = remote(&spec(&url, "127.0.0.1:1", vec![latency(5, 0.9)]), 25);
    let plan = injector.plan();
    injector.inject().unwrap();
    let heard = heard.lock().unwrap();
    assert_eq!(heard[0], "GET /proxies/db");
    let (path, body) = heard[1].strip_prefix("POST ").unwrap().split_once(' ').unwrap();
    assert_eq!(path, "/proxies/db/toxics");
    let expected = json!({
        "name": "elench_latency_downstream", "type": "latency", "stream": "downstream", "toxicity": 0.25,
        "attributes": {"latency": 5, "jitter": 0},
    });
    assert_eq!(serde_json::from_str::<Json>(body).unwrap(), expected);
    assert_eq!(plan, [format!("POST {url}/proxies/db/toxics {body}")]);
    server.unblock();
}

#[test]
fn both_ways_together_hit_the_share_and_not_twice_of_it() {
    let each = per_way(0.36, 2);
    assert!((1.0 - (1.0 - each) * (1.0 - each) - 0.36).abs() < 1e-9);
    assert_eq!((per_way(1.0, 2), per_way(0.36, 1)), (1.0, 0.36));
}

#[test]
fn a_proxy_before_another_server_than_the_judged_one_is_left_alone() {
    let (url, heard, server) = said(json!({"upstream": "db.prod.example:5432"}));
    let mut injector = remote(&spec(&url, "127.0.0.1:5432", vec![latency(5, 1.0)]), 100);
    let Readiness::Missing(why) = injector.probe().state else { panic!("it is ready") };
    assert!(why.contains("stands before db.prod.example:5432"), "{why}");
    injector.inject().unwrap_err();
    assert!(heard.lock().unwrap().iter().all(|line| line.starts_with("GET ")));
    server.unblock();
}

#[test]
fn a_server_that_is_not_there_or_has_no_such_proxy_is_missing() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let away = remote(&spec(&format!("http://{nobody}"), "127.0.0.1:1", vec![latency(5, 1.0)]), 100);
    let Readiness::Missing(why) = away.probe().state else { panic!("it is ready") };
    assert!(why.contains("toxiproxy-server"), "{why}");
    assert!(!away.undo().carry_out()[0].gone, "a server that does not answer proves nothing");
    let (url, _heard, server) = recorder(|_, url| match url {
        "/version" => (200, "2.1.4".into()),
        _ => (404, "{}".into()),
    });
    let probe = remote(&spec(&url, "127.0.0.1:1", vec![latency(5, 1.0)]), 100).probe();
    assert_eq!(probe.version.as_deref(), Some("2.1.4"));
    assert!(matches!(probe.state, Readiness::Missing(why) if why.contains("no proxy `db`")));
    server.unblock();
}

#[test]
fn a_server_that_took_another_value_than_it_was_given_has_not_landed() {
    for (listed, landed) in [(5, true), (7, false)] {
        let toxics = json!([{
            "name": "elench_latency_downstream", "type": "latency", "stream": "downstream", "toxicity": 1,
            "attributes": {"latency": listed, "jitter": 0},
        }]);
        let (url, _heard, server) = said(json!({"upstream": "127.0.0.1:1", "enabled": true, "toxics": toxics}));
        let mut injector = remote(&spec(&url, "127.0.0.1:1", vec![latency(5, 1.0)]), 100);
        let during = injector.observe().unwrap();
        let mut before = during.clone();
        before.states.insert("elench_latency_downstream".into(), ABSENT.into());
        let (found, words) = injector.landed(&before, &during);
        assert_eq!(found, landed, "{words}");
        assert!(words.contains("does not tell bytes"), "{words}");
        assert!(!injector.landed(&during, &during).0, "it was there before");
        server.unblock();
    }
}

#[test]
fn where_the_server_tells_bytes_they_must_have_moved() {
    let labels = r#"{direction="downstream",listener="127.0.0.1:7",proxy="db",upstream="127.0.0.1:1"}"#;
    let metrics = |n: u64| {
        format!(
            "# TYPE toxiproxy_proxy_received_bytes_total counter\n\
             toxiproxy_proxy_received_bytes_total{labels} {n}\n\
             toxiproxy_proxy_received_bytes_total{{direction=\"downstream\",proxy=\"db2\"}} 1e+09\n\
             toxiproxy_proxy_sent_bytes_total{labels} 77\n"
        )
    };
    assert_eq!(received(&metrics(1200), "db"), BTreeMap::from([("upstream", 0.0), ("downstream", 1200.0)]));
    let observed = |state: &str, bytes: f64| Observation {
        states: BTreeMap::from([("elench_latency_downstream".into(), state.into())]),
        counters: BTreeMap::from([("bytes downstream".into(), bytes), ("bytes upstream".into(), bytes)]),
    };
    let injector = remote(&spec("http://127.0.0.1:1", "127.0.0.1:1", vec![latency(5, 1.0)]), 100);
    let before = observed(ABSENT, 10.0);
    assert!(injector.landed(&before, &observed(AS_ASKED, 20.0)).0);
    let (landed, words) = injector.landed(&before, &observed(AS_ASKED, 10.0));
    assert!(!landed, "nothing went through the proxy: {words}");
}

/// Our own proxy speaks the same API, so it stands for the server here.
#[test]
fn a_toxic_comes_is_seen_and_is_deleted_as_often_as_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = listener.local_addr().unwrap().to_string();
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
    let proxy = Proxy::start("127.0.0.1:0", &upstream).unwrap();
    let api = Api::start("127.0.0.1:0", "db", &proxy, false).unwrap();
    let through = || {
        let mut socket = TcpStream::connect(proxy.listen())?;
        socket.write_all(b"x")?;
        socket.read_exact(&mut [0; 1])
    };
    for toxics in [vec![latency(1, 1.0)], vec![Toxic::new(Kind::Down, Stream::Upstream)]] {
        let mut injector = remote(&spec(&api.url(), &upstream, toxics), 100);
        assert_eq!(injector.probe().state, Readiness::Ready);
        let undo: Undo = serde_json::from_str(&serde_json::to_string(&injector.undo()).unwrap()).unwrap();
        let before = injector.observe().unwrap();
        injector.inject().unwrap();
        let down = injector.toxics[0].kind == Kind::Down;
        assert_eq!(through().is_err(), down);
        let during = injector.observe().unwrap();
        let (landed, words) = injector.landed(&before, &during);
        assert!(landed, "{words}");
        for _ in 0..2 {
            let done = undo.carry_out();
            assert!(done.iter().all(|d| d.gone), "{done:?}");
        }
        assert!(proxy.toxics().is_empty());
        assert_eq!(injector.observe().unwrap().states, before.states);
        through().unwrap();
    }
}

#[test]
fn a_server_that_keeps_the_toxic_has_not_mended() {
    let (url, heard, server) = recorder(|_, _| (200, "{}".into()));
    let injector = remote(&spec(&url, "127.0.0.1:1", vec![latency(5, 1.0)]), 100);
    let done = injector.undo().carry_out();
    assert!(!done[0].gone && done[0].how.contains("should be that"), "{done:?}");
    let of_toxic = "/proxies/db/toxics/elench_latency_downstream";
    assert_eq!(*heard.lock().unwrap(), [format!("DELETE {of_toxic}"), format!("GET {of_toxic}")]);
    server.unblock();
}
