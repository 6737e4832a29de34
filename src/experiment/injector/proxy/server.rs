//! The proxy: a listener that gives each connection a thread, and the toxics that all of them are under.
//!
//! What is set is a *generation*: a list of toxics, and for each connection which of them are its own. A change makes a new generation
//! and drops the writing end of the old one's pipe, which wakes every thread that waits with it. When it returns, whatever comes through
//! falls under the new one.
//!
//! A share never reaches above the cap that the proxy was started with, nor do more than that share of the connections that are there
//! at once get hit, but one may always be. What is hit by any toxic is hit by the one with the largest share, so that several toxics do
//! not add up.
//!
//! A proxy that is down stays bound to its port and only stops listening. So connecting is refused, and the system gives the port to
//! nobody who asks for any: a client that tries again and again could else be given the port that it tries, and meet itself.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, PipeReader, PipeWriter};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Backlog, Shutdown, listen, shutdown};

use super::connection::{Connection, reset, serve};
use super::record::{Change, Clock, Counters, MAX_CHANGES, MAX_RECORDS, Record, Timeline};
use super::share::Ration;
use super::toxic::{Kind, Toxic};

/// Connections at once.
const MAX_CONNECTIONS: usize = 2048;
/// Bytes of a thread's stack.
const STACK: usize = 128 << 10;

/// Locks, also after a panic of another thread: what is behind is sums and lists.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is set at one time.
#[derive(Debug)]
pub(super) struct Generation {
    /// Counts changes.
    pub(super) number: u64,
    /// Must every connection end?
    pub(super) stopped: bool,
    /// Hangs up when there is a newer one.
    pub(super) changed: PipeReader,
}

/// What is set for one connection.
#[derive(Debug)]
pub(super) struct Mine {
    pub(super) generation: Arc<Generation>,
    pub(super) toxics: Arc<Vec<Arc<Toxic>>>,
}

struct Live {
    connection: Arc<Connection>,
    toxics: Arc<Vec<Arc<Toxic>>>,
}

struct State {
    generation: Arc<Generation>,
    /// Its end wakes all that wait with the generation.
    alarm: PipeWriter,
    toxics: Vec<Arc<Toxic>>,
    share: f64,
    seed: u64,
    /// Which connections are hit at all,
    ration: Ration,
    /// and which of these by each toxic.
    rations: Vec<Ration>,
    listening: bool,
    last_id: u64,
    live: BTreeMap<u64, Live>,
    ended: Vec<Record>,
    sums: Counters,
    changes: Vec<Change>,
    left_out: u64,
}

/// What the threads of a proxy share.
pub(super) struct Shared {
    upstream: String,
    listener: TcpListener,
    address: SocketAddr,
    clock: Clock,
    started_unix_ns: u64,
    cap: f64,
    seed: AtomicU64,
    number: AtomicU64,
    state: Mutex<State>,
}

impl Shared {
    pub(super) fn upstream(&self) -> &str {
        &self.upstream
    }

    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed.load(Ordering::Relaxed)
    }

    pub(super) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// What is set for a connection.
    pub(super) fn mine(&self, id: u64) -> Mine {
        let state = lock(&self.state);
        let toxics = state.live.get(&id).map_or_else(Arc::default, |live| Arc::clone(&live.toxics));
        Mine { generation: Arc::clone(&state.generation), toxics }
    }

    /// Changes the toxics as a function says, and starts a new generation.
    fn change(&self, edit: impl FnOnce(&mut State) -> Result<(), String>) -> Result<(), String> {
        let mut state = lock(&self.state);
        if state.generation.stopped {
            return Err("the proxy is stopped".into());
        }
        edit(&mut state)?;
        let chosen = state.choose(self.cap);
        self.renew(&mut state, false).map_err(|e| format!("the toxics could not be changed: {e}"))?;
        let change = Change {
            at_ms: self.clock.ms(Instant::now()),
            toxics: state.toxics.iter().map(|t| (**t).clone()).collect(),
            share: state.share.min(self.cap),
            chosen,
        };
        if state.changes.len() < MAX_CHANGES {
            state.changes.push(change);
        } else {
            state.left_out += 1;
        }
        let open = !state.is_down(self.cap);
        self.listen(&mut state, open)
    }

    fn renew(&self, state: &mut State, stopped: bool) -> io::Result<()> {
        let (changed, alarm) = io::pipe()?;
        let number = state.generation.number + 1;
        state.generation = Arc::new(Generation { number, stopped, changed });
        self.seed.store(state.seed, Ordering::Relaxed);
        self.number.store(number, Ordering::Release);
        // Only now: who wakes must find the new one.
        state.alarm = alarm;
        Ok(())
    }

    /// Opens or closes the door. The port stays ours either way.
    fn listen(&self, state: &mut State, open: bool) -> Result<(), String> {
        if state.listening == open {
            return Ok(());
        }
        use std::os::fd::AsRawFd;
        let done = match open {
            true => Backlog::new(1024).and_then(|backlog| listen(&self.listener, backlog)),
            false => shutdown(self.listener.as_raw_fd(), Shutdown::Read),
        };
        state.listening ^= done.is_ok();
        done.map_err(|e| format!("{}: cannot {}: {e}", self.address, if open { "listen again" } else { "go down" }))
    }

    /// Lists a client that came, or says that it is one too many.
    fn admit(&self, from: SocketAddr) -> Option<Arc<Connection>> {
        let mut state = lock(&self.state);
        if state.generation.stopped || state.live.len() >= MAX_CONNECTIONS {
            state.sums.overflow += 1;
            return None;
        }
        state.last_id += 1;
        let id = state.last_id;
        let toxics = state.toxics_of_next();
        let record = Record {
            id,
            from: from.to_string(),
            opened_ms: self.clock.ms(Instant::now()),
            closed_ms: None,
            chosen: !toxics.is_empty(),
            upstream_bytes: 0,
            downstream_bytes: 0,
            faults: Vec::new(),
            end: None,
        };
        let connection = Arc::new(Connection { id, record: Mutex::new(record) });
        state.live.insert(id, Live { connection: Arc::clone(&connection), toxics: Arc::new(toxics) });
        Some(connection)
    }

    fn dismiss(&self, connection: &Connection, end: &'static str) {
        let mut state = lock(&self.state);
        state.live.remove(&connection.id);
        let mut record = lock(&connection.record).clone();
        record.closed_ms = Some(self.clock.ms(Instant::now()));
        record.end = Some(end);
        state.sums.add(&record);
        if state.ended.len() < MAX_RECORDS {
            state.ended.push(record);
        } else {
            state.left_out += 1;
        }
    }
}

impl State {
    /// Chooses anew among the connections that are there.
    fn choose(&mut self, cap: f64) -> Vec<u64> {
        let share_of = |toxic: &Toxic| toxic.toxicity.min(self.share).min(cap);
        let most = self.toxics.iter().map(|t| share_of(t)).fold(0.0, f64::max);
        self.ration = Ration::new(most, self.seed);
        let of_hit = |toxic: &Toxic| if most > 0.0 { share_of(toxic) / most } else { 0.0 };
        let part = |(i, toxic): (usize, &Arc<Toxic>)| Ration::new(of_hit(toxic), self.seed.wrapping_add(1 + i as u64));
        self.rations = self.toxics.iter().enumerate().map(part).collect();
        let ids: Vec<u64> = self.live.keys().copied().collect();
        let mut chosen = self.ration.begin(&ids);
        chosen.sort_unstable();
        let parts: Vec<BTreeSet<u64>> =
            self.rations.iter_mut().map(|ration| ration.begin(&chosen).into_iter().collect()).collect();
        for (id, live) in &mut self.live {
            let mine = self.toxics.iter().zip(&parts).filter(|(_, part)| part.contains(id));
            live.toxics = Arc::new(mine.map(|(toxic, _)| Arc::clone(toxic)).collect());
            lock(&live.connection.record).chosen |= !live.toxics.is_empty();
        }
        chosen
    }

    /// The toxics of the connection that comes next.
    fn toxics_of_next(&mut self) -> Vec<Arc<Toxic>> {
        let hit = self.live.values().filter(|live| !live.toxics.is_empty()).count() as u64;
        let room = hit < self.ration.allowed(self.live.len() as u64 + 1);
        if !self.ration.next(room) {
            return Vec::new();
        }
        let mine = self.toxics.iter().zip(&mut self.rations);
        mine.filter_map(|(toxic, ration)| ration.next(true).then(|| Arc::clone(toxic))).collect()
    }

    /// Is everybody to be refused?
    fn is_down(&self, cap: f64) -> bool {
        let share = self.share.min(cap);
        share >= 1.0 && self.toxics.iter().any(|t| t.kind == Kind::Down && t.toxicity >= 1.0)
    }
}

struct Owner {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        {
            let mut state = lock(&self.shared.state);
            let _ = self.shared.renew(&mut state, true);
        }
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        // Connections end by themselves; they are waited for, but not for long, so that ports are free when this returns.
        let until = Instant::now() + Duration::from_secs(1);
        while !lock(&self.shared.state).live.is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A TCP fault proxy that runs until its last handle is dropped. Without toxics it only forwards, and counts.
#[derive(Clone)]
pub struct Proxy {
    owner: Arc<Owner>,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proxy({} -> {})", self.listen(), self.upstream())
    }
}

impl Proxy {
    /// Starts one on an address (port 0: any that is free), for a server named as `host:port`. The server need not be there yet.
    ///
    /// # Errors
    /// It cannot listen there.
    pub fn start(listen: &str, upstream: &str) -> io::Result<Proxy> {
        Proxy::start_capped(listen, upstream, 1.0)
    }

    /// As [`Proxy::start`], with the largest share of connections that may ever be hit, 0 to 1.
    ///
    /// # Errors
    /// As of [`Proxy::start`].
    pub fn start_capped(listen: &str, upstream: &str, cap: f64) -> io::Result<Proxy> {
        let listener = bind(listen)?;
        listener.set_nonblocking(true)?;
        let (changed, alarm) = io::pipe()?;
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let state = State {
            generation: Arc::new(Generation { number: 0, stopped: false, changed }),
            alarm,
            toxics: Vec::new(),
            share: 1.0,
            seed: 0,
            ration: Ration::new(0.0, 0),
            rations: Vec::new(),
            listening: true,
            last_id: 0,
            live: BTreeMap::new(),
            ended: Vec::new(),
            sums: Counters::default(),
            changes: Vec::new(),
            left_out: 0,
        };
        let shared = Arc::new(Shared {
            upstream: upstream.to_string(),
            address: listener.local_addr()?,
            listener,
            clock: Clock(Instant::now()),
            started_unix_ns: u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX),
            cap: cap.clamp(0.0, 1.0),
            seed: AtomicU64::new(0),
            number: AtomicU64::new(0),
            state: Mutex::new(state),
        });
        let theirs = Arc::clone(&shared);
        let acceptor = std::thread::Builder::new().name("proxy".into()).spawn(move || accept(&theirs))?;
        Ok(Proxy { owner: Arc::new(Owner { shared, acceptor: Some(acceptor) }) })
    }

    /// Where it listens.
    pub fn listen(&self) -> SocketAddr {
        self.owner.shared.address
    }

    /// Where it forwards to.
    pub fn upstream(&self) -> &str {
        &self.owner.shared.upstream
    }

    /// The largest share of connections that may be hit.
    pub fn cap(&self) -> f64 {
        self.owner.shared.cap
    }

    /// Puts toxics in the place of those that are there, for a share of the connections, 0 to 1, that a seed chooses: those that
    /// are there, and those that come.
    ///
    /// # Errors
    /// A value that makes no sense, two toxics of one name, or the system does not let it listen again.
    pub fn set(&self, toxics: &[Toxic], toxicity: f64, seed: u64) -> Result<(), String> {
        self.owner.shared.change(|state| {
            toxics.iter().try_for_each(Toxic::check)?;
            if !(0.0..=1.0).contains(&toxicity) {
                return Err(format!("`toxicity` is a share from 0 to 1, not {toxicity}"));
            }
            let names: BTreeSet<&str> = toxics.iter().map(|t| t.name.as_str()).collect();
            if names.len() != toxics.len() {
                return Err("toxics of one proxy have different names".into());
            }
            state.toxics = toxics.iter().cloned().map(Arc::new).collect();
            state.share = toxicity;
            state.seed = seed;
            Ok(())
        })
    }

    /// Changes the list of toxics, as one step against everybody else who does.
    ///
    /// # Errors
    /// What the change says; then nothing is changed.
    pub fn update(&self, edit: impl FnOnce(&mut Vec<Toxic>) -> Result<(), String>) -> Result<(), String> {
        self.owner.shared.change(|state| {
            let mut toxics: Vec<Toxic> = state.toxics.iter().map(|t| (**t).clone()).collect();
            edit(&mut toxics)?;
            toxics.iter().try_for_each(Toxic::check)?;
            // What stays the same stays the same one: it goes on counting.
            let same = |toxic: Toxic| state.toxics.iter().find(|t| ***t == toxic).cloned().unwrap_or(Arc::new(toxic));
            state.toxics = toxics.into_iter().map(same).collect();
            Ok(())
        })
    }

    /// Removes all toxics: what was held back or late is delivered, and who was refused may come again.
    ///
    /// # Errors
    /// The system does not let it listen again.
    pub fn clear(&self) -> Result<(), String> {
        self.set(&[], 1.0, 0)
    }

    /// What is set.
    pub fn toxics(&self) -> Vec<Toxic> {
        lock(&self.owner.shared.state).toxics.iter().map(|t| (**t).clone()).collect()
    }

    /// How many faults are there: toxics, or a door that is closed without one, as it could not be opened again.
    pub fn faults(&self) -> usize {
        let state = lock(&self.owner.shared.state);
        state.toxics.len().max(usize::from(!state.listening))
    }

    /// May anybody come? Not while the proxy is down, for some or for all.
    pub fn is_enabled(&self) -> bool {
        let state = lock(&self.owner.shared.state);
        state.listening && !state.toxics.iter().any(|t| t.kind == Kind::Down)
    }

    /// Sums since the start. O(connections that are there).
    pub fn counters(&self) -> Counters {
        let state = lock(&self.owner.shared.state);
        let mut sums = state.sums.clone();
        sums.live = state.live.len() as u64;
        state.live.values().for_each(|live| sums.add(&lock(&live.connection.record)));
        sums
    }

    /// Everything that is known, connection by connection.
    pub fn timeline(&self) -> Timeline {
        let counters = self.counters();
        let state = lock(&self.owner.shared.state);
        let live = state.live.values().map(|live| lock(&live.connection.record).clone());
        let mut connections: Vec<Record> = state.ended.iter().cloned().chain(live).collect();
        connections.sort_by_key(|record| record.id);
        Timeline {
            listen: self.listen().to_string(),
            upstream: self.upstream().to_string(),
            started_unix_ns: self.owner.shared.started_unix_ns,
            changes: state.changes.clone(),
            connections,
            left_out: state.left_out,
            counters,
        }
    }
}

/// Binds by port: only a port that was asked for by number stays bound while nobody listens on it.
fn bind(listen: &str) -> io::Result<TcpListener> {
    let address = listen.to_socket_addrs()?.next();
    let address =
        address.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{listen} does not resolve")))?;
    if address.port() != 0 {
        return TcpListener::bind(address);
    }
    let mut last = None;
    for _ in 0..16 {
        let free = TcpListener::bind(address)?.local_addr()?;
        match TcpListener::bind(free) {
            Ok(listener) => return Ok(listener),
            Err(e) => last = Some(e),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::from(io::ErrorKind::AddrInUse)))
}

fn accept(shared: &Arc<Shared>) {
    loop {
        let (generation, listening) = {
            let state = lock(&shared.state);
            (Arc::clone(&state.generation), state.listening)
        };
        if generation.stopped {
            return;
        }
        let mut fds = vec![PollFd::new(generation.changed.as_fd(), PollFlags::POLLIN)];
        if listening {
            fds.push(PollFd::new(shared.listener.as_fd(), PollFlags::POLLIN));
        }
        let _ = poll(&mut fds, PollTimeout::NONE);
        while let Some((socket, from)) = next_client(shared) {
            welcome(shared, socket, from);
        }
    }
}

fn next_client(shared: &Shared) -> Option<(TcpStream, SocketAddr)> {
    match shared.listener.accept() {
        Ok(client) => Some(client),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock || e.kind() == io::ErrorKind::InvalidInput => None,
        Err(_) => {
            // No more files or memory: better late than in a hot loop.
            lock(&shared.state).sums.overflow += 1;
            std::thread::sleep(Duration::from_millis(10));
            None
        }
    }
}

fn welcome(shared: &Arc<Shared>, socket: TcpStream, from: SocketAddr) {
    let Some(connection) = shared.admit(from) else {
        reset(&socket);
        return;
    };
    let (theirs, its) = (Arc::clone(shared), Arc::clone(&connection));
    let job = move || {
        let end = serve(&theirs, &its, socket);
        theirs.dismiss(&its, end);
    };
    if std::thread::Builder::new().name("proxied".into()).stack_size(STACK).spawn(job).is_err() {
        lock(&shared.state).sums.overflow += 1;
        shared.dismiss(&connection, "the system gave no thread");
    }
}
