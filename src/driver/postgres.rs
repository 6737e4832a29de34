//! PostgreSQL, by its own protocol (version 3, simple queries).
//!
//! A transaction is one `BEGIN … COMMIT`, statement by statement. Whatever goes wrong before `COMMIT` is sent did not happen: the
//! server rolls back what it is not told to commit. An error in answer to `COMMIT` did not happen either; silence after it is
//! unknown.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use bytes::BytesMut;
use elench_formats::Value;
use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::{backend::Message, frontend};

use super::operations::{Kind, Mop, Operation, transaction};
use super::{Answer, Broken, Driver, Session, Target};

/// Balance of an account at the beginning.
pub const BALANCE: i64 = 100;

/// The system.
#[derive(Debug)]
pub struct Postgres {
    target: Target,
    begin: String,
}

impl Postgres {
    pub(super) fn new(target: Target) -> Result<Postgres, String> {
        let level = target.isolation.as_deref().unwrap_or("serializable");
        let known = ["read committed", "repeatable read", "serializable"];
        let name = level.replace(['-', '_'], " ").to_lowercase();
        if !known.contains(&name.as_str()) {
            return Err(format!("PostgreSQL has no isolation level `{level}`: there are {}", known.join(", ")));
        }
        let begin = format!("BEGIN ISOLATION LEVEL {}", name.to_uppercase());
        Ok(Postgres { target, begin })
    }

    fn wire(&self, endpoint: &str) -> Result<Wire, String> {
        let option = |name| self.target.option(name);
        let user = option("user").unwrap_or("postgres");
        let database = option("database").unwrap_or("postgres");
        Wire::connect(endpoint, self.target.timeout, user, option("password").unwrap_or(""), database)
            .map_err(|e| format!("{endpoint}: {e}"))
    }
}

impl Driver for Postgres {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::ListAppend, Kind::RwRegister, Kind::Bank]
    }

    fn prepare(&self, kind: Kind, keys: u64) -> Result<(), String> {
        let endpoint = self.target.endpoints.first().ok_or("no endpoint")?;
        let mut wire = self.wire(endpoint)?;
        let statements = match kind {
            Kind::ListAppend => vec![
                "DROP TABLE IF EXISTS elench_lists".to_string(),
                "CREATE TABLE elench_lists (k bigint PRIMARY KEY, v text NOT NULL)".to_string(),
            ],
            Kind::RwRegister => vec![
                "DROP TABLE IF EXISTS elench_registers".to_string(),
                "CREATE TABLE elench_registers (k bigint PRIMARY KEY, v bigint NOT NULL)".to_string(),
            ],
            Kind::Bank => vec![
                "DROP TABLE IF EXISTS elench_accounts".to_string(),
                "CREATE TABLE elench_accounts (k bigint PRIMARY KEY, v bigint NOT NULL)".to_string(),
                format!(
                    "INSERT INTO elench_accounts SELECT k, {BALANCE} FROM generate_series(0, {}) k",
                    keys.max(1) - 1
                ),
            ],
            other => return Err(format!("the postgres driver does not do {}", other.name())),
        };
        for statement in statements {
            match wire.query(&statement) {
                Ok(Reply::Rows(..)) => {}
                Ok(Reply::Error(why)) => return Err(format!("{statement}: {why}")),
                Err(e) => return Err(format!("{statement}: {e}")),
            }
        }
        Ok(())
    }

    fn connect(&self, client: u64) -> Result<Box<dyn Session>, String> {
        let endpoints = &self.target.endpoints;
        let endpoint = &endpoints[client as usize % endpoints.len()];
        let wire = self.wire(endpoint)?;
        Ok(Box::new(Connection { wire, begin: self.begin.clone(), node: endpoint.clone() }))
    }
}

struct Connection {
    wire: Wire,
    begin: String,
    node: String,
}

/// A transaction that came to an end before it was told to commit.
enum Stopped {
    Said(String),
    Broken(io::Error),
}

impl Connection {
    /// A statement within a transaction.
    fn step(&mut self, statement: &str) -> Result<Vec<Vec<Option<String>>>, Stopped> {
        match self.wire.query(statement) {
            Ok(Reply::Rows(rows, _)) => Ok(rows),
            Ok(Reply::Error(why)) => Err(Stopped::Said(why)),
            Err(e) => Err(Stopped::Broken(e)),
        }
    }

    fn transact(&mut self, work: impl FnOnce(&mut Self) -> Result<Value, Stopped>) -> Result<Answer, Broken> {
        let begin = self.begin.clone();
        match self.step(&begin).and_then(|_| work(self)) {
            Ok(value) => self.commit(value),
            Err(Stopped::Broken(e)) => Err(Broken::before(e)),
            Err(Stopped::Said(why)) => match self.wire.query("ROLLBACK") {
                Ok(_) => Ok(Answer::Fail(why)),
                Err(e) => Err(Broken::before(format!("{why}; {e}"))),
            },
        }
    }

    fn commit(&mut self, value: Value) -> Result<Answer, Broken> {
        match self.wire.query("COMMIT") {
            Ok(Reply::Rows(_, tag)) if tag == "COMMIT" => Ok(Answer::Ok(value)),
            Ok(Reply::Rows(_, tag)) => Ok(Answer::Fail(format!("rolled back: {tag}"))),
            Ok(Reply::Error(why)) if certainly_not(&why) => Ok(Answer::Fail(why)),
            Ok(Reply::Error(why)) => Ok(Answer::Info(why)),
            Err(e) => Err(Broken::after(e)),
        }
    }

    fn lists(&mut self, mops: &[Mop]) -> Result<Value, Stopped> {
        let mut reads = Vec::new();
        for mop in mops {
            match mop {
                Mop::Read(key) => {
                    let rows = self.step(&format!("SELECT v FROM elench_lists WHERE k = {key}"))?;
                    let text = rows.into_iter().next().and_then(|row| row.into_iter().next()).flatten();
                    let elements = text.iter().flat_map(|t| t.split(',')).filter_map(|e| e.parse().ok());
                    reads.push(Value::Vector(elements.map(Value::Int).collect()));
                }
                Mop::Write(key, value) => {
                    self.step(&format!(
                        "INSERT INTO elench_lists AS l VALUES ({key}, '{value}') \
                         ON CONFLICT (k) DO UPDATE SET v = l.v || ',' || EXCLUDED.v"
                    ))?;
                }
            }
        }
        Ok(transaction("append", mops, &reads))
    }

    fn registers(&mut self, mops: &[Mop]) -> Result<Value, Stopped> {
        let mut reads = Vec::new();
        for mop in mops {
            match mop {
                Mop::Read(key) => {
                    let rows = self.step(&format!("SELECT v FROM elench_registers WHERE k = {key}"))?;
                    reads.push(number(rows.first().and_then(|row| row.first())));
                }
                Mop::Write(key, value) => {
                    self.step(&format!(
                        "INSERT INTO elench_registers VALUES ({key}, {value}) ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v"
                    ))?;
                }
            }
        }
        Ok(transaction("w", mops, &reads))
    }

    fn balances(&mut self) -> Result<Value, Stopped> {
        let rows = self.step("SELECT k, v FROM elench_accounts ORDER BY k")?;
        Ok(Value::map(rows.iter().map(|row| (number(row.first()), number(row.get(1)))).collect()))
    }

    /// Reads both, then writes both: right where transactions are, wrong where an update may be lost.
    fn transfer(&mut self, from: u64, to: u64, amount: i64, said: Value) -> Result<Value, Stopped> {
        let read = |me: &mut Self, key: u64| -> Result<i64, Stopped> {
            let rows = me.step(&format!("SELECT v FROM elench_accounts WHERE k = {key}"))?;
            number(rows.first().and_then(|row| row.first()))
                .as_int()
                .ok_or_else(|| Stopped::Said(format!("there is no account {key}")))
        };
        let (a, b) = (read(self, from)?, read(self, to)?);
        if a < amount {
            return Err(Stopped::Said("insufficient funds".into()));
        }
        self.step(&format!("UPDATE elench_accounts SET v = {} WHERE k = {from}", a - amount))?;
        self.step(&format!("UPDATE elench_accounts SET v = {} WHERE k = {to}", b + amount))?;
        Ok(said)
    }
}

fn number(cell: Option<&Option<String>>) -> Value {
    cell.and_then(Option::as_ref).and_then(|t| t.parse().ok()).map_or(Value::Nil, Value::Int)
}

/// Did the server say that nothing was committed? Classes 40 (rolled back), 23 (a constraint), 25 (no such state), 57014 (cancelled).
fn certainly_not(why: &str) -> bool {
    ["40001", "40P01", "23", "25P02", "57014"].iter().any(|code| why.starts_with(code))
}

impl Session for Connection {
    fn request(&mut self, operation: &Operation) -> Result<Answer, Broken> {
        match operation {
            Operation::Lists(mops) => self.transact(|me| me.lists(mops)),
            Operation::Registers(mops) => self.transact(|me| me.registers(mops)),
            Operation::Balances => self.transact(Connection::balances),
            Operation::Transfer { from, to, amount } => {
                let said = operation.value();
                self.transact(|me| me.transfer(*from, *to, *amount, said))
            }
            other => Ok(Answer::Fail(format!("the postgres driver does not do {}", other.f()))),
        }
    }

    fn node(&self) -> &str {
        &self.node
    }
}

/// What a query came to: rows and the command's tag, or an error with its SQLSTATE first.
enum Reply {
    Rows(Vec<Vec<Option<String>>>, String),
    Error(String),
}

/// A connection.
struct Wire {
    stream: TcpStream,
    inward: BytesMut,
    outward: BytesMut,
}

/// Bytes that one answer may have.
const MOST: usize = 64 << 20;

fn odd(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

impl Wire {
    fn connect(endpoint: &str, timeout: Duration, user: &str, password: &str, database: &str) -> io::Result<Wire> {
        let address = endpoint.to_socket_addrs()?.next().ok_or_else(|| odd("no address"))?;
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        let mut wire = Wire { stream, inward: BytesMut::new(), outward: BytesMut::new() };
        let parameters = [("user", user), ("database", database), ("client_encoding", "UTF8")];
        frontend::startup_message(parameters, &mut wire.outward)?;
        wire.send()?;
        wire.authenticate(user, password)?;
        Ok(wire)
    }

    fn authenticate(&mut self, user: &str, password: &str) -> io::Result<()> {
        let mut scram = None;
        loop {
            match self.receive()? {
                Message::AuthenticationOk
                | Message::ParameterStatus(_)
                | Message::BackendKeyData(_)
                | Message::NoticeResponse(_) => continue,
                Message::ReadyForQuery(_) => return Ok(()),
                Message::AuthenticationCleartextPassword => {
                    frontend::password_message(password.as_bytes(), &mut self.outward)?;
                }
                Message::AuthenticationMd5Password(body) => {
                    let hash = md5_hash(user.as_bytes(), password.as_bytes(), body.salt());
                    frontend::password_message(hash.as_bytes(), &mut self.outward)?;
                }
                Message::AuthenticationSasl(body) => {
                    let offered: Vec<String> = body.mechanisms().map(|m| Ok(m.to_string())).collect()?;
                    if !offered.iter().any(|m| m == SCRAM_SHA_256) {
                        return Err(odd(format!(
                            "the server asks for {}, this knows {SCRAM_SHA_256}",
                            offered.join(", ")
                        )));
                    }
                    let new = ScramSha256::new(password.as_bytes(), ChannelBinding::unsupported());
                    frontend::sasl_initial_response(SCRAM_SHA_256, new.message(), &mut self.outward)?;
                    scram = Some(new);
                }
                Message::AuthenticationSaslContinue(body) => {
                    let scram = scram.as_mut().ok_or_else(|| odd("an answer to nothing"))?;
                    scram.update(body.data())?;
                    frontend::sasl_response(scram.message(), &mut self.outward)?;
                }
                Message::AuthenticationSaslFinal(body) => {
                    scram.as_mut().ok_or_else(|| odd("an answer to nothing"))?.finish(body.data())?;
                    continue;
                }
                Message::ErrorResponse(body) => return Err(odd(error_text(&body)?)),
                _ => return Err(odd("the server asks for an authentication that this does not know")),
            }
            self.send()?;
        }
    }

    fn query(&mut self, statement: &str) -> io::Result<Reply> {
        frontend::query(statement, &mut self.outward)?;
        self.send()?;
        let (mut rows, mut tag, mut error) = (Vec::new(), String::new(), None);
        loop {
            match self.receive()? {
                Message::DataRow(body) => {
                    let buffer = body.buffer();
                    let cell = |range: Option<std::ops::Range<usize>>| {
                        Ok(range.map(|r| String::from_utf8_lossy(&buffer[r]).into_owned()))
                    };
                    rows.push(body.ranges().map(cell).collect()?);
                }
                Message::CommandComplete(body) => tag = body.tag()?.to_string(),
                Message::ErrorResponse(body) => error = Some(error_text(&body)?),
                Message::ReadyForQuery(_) => {
                    return Ok(error.map_or(Reply::Rows(rows, tag), Reply::Error));
                }
                _ => {}
            }
        }
    }

    fn send(&mut self) -> io::Result<()> {
        let bytes = self.outward.split();
        self.stream.write_all(&bytes)
    }

    fn receive(&mut self) -> io::Result<Message> {
        loop {
            if let Some(message) = Message::parse(&mut self.inward)? {
                return Ok(message);
            }
            if self.inward.len() > MOST {
                return Err(odd("an answer of too many bytes"));
            }
            let mut buffer = [0; 8192];
            match self.stream.read(&mut buffer)? {
                0 => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
                n => self.inward.extend_from_slice(&buffer[..n]),
            }
        }
    }
}

fn error_text(body: &postgres_protocol::message::backend::ErrorResponseBody) -> io::Result<String> {
    let (mut code, mut message) = (String::new(), String::new());
    let mut fields = body.fields();
    while let Some(field) = fields.next()? {
        let value = String::from_utf8_lossy(field.value_bytes()).into_owned();
        match field.type_() {
            b'C' => code = value,
            b'M' => message = value,
            _ => {}
        }
    }
    Ok(format!("{code}: {message}"))
}
