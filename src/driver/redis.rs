//! Redis, by its own protocol (RESP2).
//!
//! Clients go to the first endpoint that says it is a master, and leave it when it says that it is none any more. A command that was sent and not answered is unknown; an answer that is
//! an error did not happen, but for those by which a server says that it may have done it and could not tell others (`NOREPLICAS`).

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};

use elench_formats::Value;

use super::operations::{Kind, Operation, keyed};
use super::{Answer, Broken, Driver, Session, Target};

/// Names that all keys of a run begin with.
const SPACE: &str = "elench:";
/// Sets a key to a new value if it holds the old one, as one step.
const CAS: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2]) return 1 else return 0 end";

/// The system.
#[derive(Debug)]
pub struct Redis {
    target: Target,
}

impl Redis {
    pub(super) fn new(target: Target) -> Redis {
        Redis { target }
    }

    /// Connects to one endpoint.
    fn to(&self, endpoint: &str) -> io::Result<Wire> {
        let mut wire = Wire::connect(endpoint, self.target.timeout)?;
        if let Some(password) = self.target.option("password") {
            wire.ask(&["AUTH", password])?.good()?;
        }
        Ok(wire)
    }

    /// The first endpoint that is a master.
    fn master(&self) -> Result<(Wire, String), String> {
        let mut why = Vec::new();
        for endpoint in &self.target.endpoints {
            let role = self.to(endpoint).and_then(|mut wire| {
                let role = wire.ask(&["ROLE"])?.good()?;
                Ok((wire, role))
            });
            match role {
                Ok((wire, Reply::Many(parts))) if parts.first() == Some(&Reply::Bulk("master".into())) => {
                    return Ok((wire, endpoint.clone()));
                }
                Ok(_) => why.push(format!("{endpoint}: is no master")),
                Err(e) => why.push(format!("{endpoint}: {e}")),
            }
        }
        Err(why.join("; "))
    }
}

impl Driver for Redis {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Register, Kind::CasRegister, Kind::Set, Kind::Queue]
    }

    fn prepare(&self, _: Kind, keys: u64) -> Result<(), String> {
        let (mut wire, _) = self.master()?;
        let names = (0..keys).map(|k| format!("{SPACE}{k}")).chain(["set", "queue"].map(|n| format!("{SPACE}{n}")));
        for name in names {
            wire.ask(&["DEL", &name]).and_then(Reply::good).map_err(|e| format!("DEL {name}: {e}"))?;
        }
        Ok(())
    }

    fn connect(&self, _: u64) -> Result<Box<dyn Session>, String> {
        let (wire, node) = self.master()?;
        Ok(Box::new(Connection { wire, node }))
    }
}

struct Connection {
    wire: Wire,
    node: String,
}

impl Connection {
    fn ask(&mut self, words: &[&str]) -> Result<Reply, Broken> {
        self.wire.ask(words).map_err(Broken::after)
    }
}

/// What an answer that is an error says of the command.
fn refused(error: String) -> Answer {
    if error.starts_with("NOREPLICAS") || error.starts_with("UNKNOWN") {
        return Answer::Info(error);
    }
    Answer::Fail(error)
}

fn int(text: &str) -> Value {
    text.parse().map_or_else(|_| Value::str(text), Value::Int)
}

impl Session for Connection {
    fn request(&mut self, operation: &Operation) -> Result<Answer, Broken> {
        let of = |key: &u64| format!("{SPACE}{key}");
        let (set, queue) = (format!("{SPACE}set"), format!("{SPACE}queue"));
        let (reply, said) = match operation {
            Operation::Read(key) => (self.ask(&["GET", &of(key)])?, Value::Nil),
            Operation::Write(key, value) => (self.ask(&["SET", &of(key), &value.to_string()])?, operation.value()),
            Operation::Cas(key, old, new) => {
                let reply = self.ask(&["EVAL", CAS, "1", &of(key), &old.to_string(), &new.to_string()])?;
                if reply == Reply::Int(0) {
                    return Ok(Answer::Fail("it held another value".into()));
                }
                (reply, operation.value())
            }
            Operation::Add(value) => (self.ask(&["SADD", &set, &value.to_string()])?, operation.value()),
            Operation::ReadSet => (self.ask(&["SMEMBERS", &set])?, Value::Nil),
            Operation::Enqueue(value) => (self.ask(&["LPUSH", &queue, &value.to_string()])?, operation.value()),
            Operation::Dequeue => (self.ask(&["RPOP", &queue])?, Value::Nil),
            Operation::Drain => return self.drain(&queue),
            other => return Ok(Answer::Fail(format!("the redis driver does not do {}", other.f()))),
        };
        Ok(match (operation, reply) {
            // A server that has become a replica is none to stay with: what it would answer to reads is another server's past.
            (_, Reply::Error(error)) if error.starts_with("READONLY") => return Err(Broken::before(error)),
            (_, Reply::Error(error)) => refused(error),
            (Operation::Read(key), Reply::Bulk(text)) => Answer::Ok(keyed(*key, int(&text))),
            (Operation::Read(key), Reply::Nil) => Answer::Ok(keyed(*key, Value::Nil)),
            (Operation::ReadSet, Reply::Many(parts)) => Answer::Ok(Value::Vector(elements(&parts))),
            (Operation::Dequeue, Reply::Bulk(text)) => Answer::Ok(int(&text)),
            (Operation::Dequeue, Reply::Nil) => Answer::Fail("empty".into()),
            (Operation::Write(..), Reply::Simple(_))
            | (Operation::Cas(..) | Operation::Add(_) | Operation::Enqueue(_), Reply::Int(_)) => Answer::Ok(said),
            (_, other) => Answer::Info(format!("an answer that is none: {other:?}")),
        })
    }

    fn node(&self) -> &str {
        &self.node
    }
}

fn elements(parts: &[Reply]) -> Vec<Value> {
    parts.iter().filter_map(|p| if let Reply::Bulk(text) = p { Some(int(text)) } else { None }).collect()
}

impl Connection {
    /// Takes one after the other, so that what was taken before the connection broke is known.
    fn drain(&mut self, queue: &str) -> Result<Answer, Broken> {
        let mut taken = Vec::new();
        loop {
            match self.ask(&["RPOP", queue])? {
                Reply::Bulk(text) => taken.push(int(&text)),
                Reply::Nil => return Ok(Answer::Ok(Value::Vector(taken))),
                other => return Ok(Answer::Info(format!("{other:?}"))),
            }
        }
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reply {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(String),
    Nil,
    Many(Vec<Reply>),
}

impl Reply {
    fn good(self) -> io::Result<Reply> {
        if let Reply::Error(why) = self { Err(io::Error::other(why)) } else { Ok(self) }
    }
}

/// A connection.
struct Wire {
    reader: BufReader<TcpStream>,
}

/// Bytes of one text, elements of one list, lists within lists.
const MOST_BYTES: i64 = 64 << 20;
const MOST_PARTS: i64 = 16 << 20;
const DEEPEST: u32 = 8;

fn odd(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

impl Wire {
    fn connect(endpoint: &str, timeout: std::time::Duration) -> io::Result<Wire> {
        let address = endpoint.to_socket_addrs()?.next().ok_or_else(|| odd("no address"))?;
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Wire { reader: BufReader::new(stream) })
    }

    fn ask(&mut self, words: &[&str]) -> io::Result<Reply> {
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.reader.get_mut().write_all(text.as_bytes())?;
        self.reply(0)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.reader.by_ref().take(MOST_BYTES as u64).read_line(&mut line)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
        }
        Ok(line.trim_end_matches(['\r', '\n']).to_string())
    }

    fn reply(&mut self, depth: u32) -> io::Result<Reply> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| odd("an empty answer"))?;
        let number = || rest.parse::<i64>().map_err(|_| odd(format!("`{line}` is no answer")));
        match kind {
            "+" => Ok(Reply::Simple(rest.to_string())),
            "-" => Ok(Reply::Error(rest.to_string())),
            ":" => Ok(Reply::Int(number()?)),
            "$" => match number()? {
                -1 => Ok(Reply::Nil),
                n @ 0..=MOST_BYTES => {
                    let mut bytes = vec![0; n as usize + 2];
                    self.reader.read_exact(&mut bytes)?;
                    bytes.truncate(n as usize);
                    Ok(Reply::Bulk(String::from_utf8_lossy(&bytes).into_owned()))
                }
                n => Err(odd(format!("a text of {n} bytes"))),
            },
            "*" => match number()? {
                -1 => Ok(Reply::Nil),
                n @ 0..=MOST_PARTS if depth < DEEPEST => {
                    let mut parts = Vec::new();
                    for _ in 0..n {
                        parts.push(self.reply(depth + 1)?);
                    }
                    Ok(Reply::Many(parts))
                }
                n => Err(odd(format!("a list of {n} at depth {depth}"))),
            },
            _ => Err(odd(format!("`{line}` is no answer"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    /// A server that is a master when it is asked, and answers everything else so.
    fn server(answer: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = socket.read(&mut buffer) {
                let role = String::from_utf8_lossy(&buffer[..n]).contains("ROLE");
                let said = if role { "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n" } else { answer };
                socket.write_all(said.as_bytes()).unwrap();
            }
        });
        address
    }

    fn add_to(answer: &'static str) -> Result<Answer, Broken> {
        let target = Target {
            endpoints: vec![server(answer)],
            timeout: Duration::from_secs(5),
            isolation: None,
            options: vec![],
        };
        Redis::new(target).connect(0).unwrap().request(&Operation::Add(1))
    }

    #[test]
    fn a_client_leaves_a_server_that_became_a_replica_and_knows_that_nothing_was_written() {
        let demoted = add_to("-READONLY You can't write against a read only replica.\r\n");
        assert!(matches!(demoted, Err(Broken { sent: false, .. })), "{demoted:?}");
        assert!(matches!(add_to("-OOM command not allowed\r\n"), Ok(Answer::Fail(_))));
        assert!(matches!(add_to("-NOREPLICAS Not enough good replicas to write.\r\n"), Ok(Answer::Info(_))));
        assert!(matches!(add_to(":1\r\n"), Ok(Answer::Ok(_))));
    }
}
