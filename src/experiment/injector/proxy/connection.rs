//! One connection: a thread that waits on both sockets, and moves bytes through two lanes.
//!
//! The thread sleeps until a socket is ready, a lane's time has come, or the toxics change, which the end of a pipe tells it that all
//! threads of a generation share. Before it takes anything it looks whether the toxics are still the same, so that bytes that come after
//! a change fall under what was changed.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{setsockopt, sockopt::Linger};
use nix::sys::time::TimeSpec;

use super::lane::{Ending, Lane, Next};
use super::record::{Record, UNREACHABLE};
use super::server::{Mine, Shared, lock};
use super::toxic::{Kind, Stream};

/// How long the server may take to accept.
const CONNECT: Duration = Duration::from_secs(10);
/// Bytes read at once.
const CHUNK: usize = 16 << 10;

/// What proxy and connection both know.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: u64,
    pub(super) record: Mutex<Record>,
}

/// Makes a socket's closing a reset: what is not delivered is lost, and the other side learns it at once.
pub(super) fn reset(socket: &TcpStream) {
    let _ = setsockopt(socket, Linger, &nix::libc::linger { l_onoff: 1, l_linger: 0 });
}

/// Reaches the server.
pub(super) fn connect(upstream: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, format!("{upstream} does not resolve"));
    for address in upstream.to_socket_addrs()?.collect::<Vec<SocketAddr>>() {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(socket) => return Ok(socket),
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// Serves a connection to its end, and says how it ended.
pub(super) fn serve(shared: &Shared, connection: &Connection, client: TcpStream) -> &'static str {
    if let Some(down) = shared.mine(connection.id).toxics.iter().find(|t| t.kind == Kind::Down) {
        reset(&client);
        lock(&connection.record).note(&mut None, down, shared.clock().ms(Instant::now()), 0, 1);
        return "turned away as the proxy is down for it";
    }
    let Ok(server) = connect(shared.upstream()) else {
        reset(&client);
        return UNREACHABLE;
    };
    let ready = |s: &TcpStream| s.set_nonblocking(true).and_then(|()| s.set_nodelay(true)).is_ok();
    if !ready(&client) || !ready(&server) {
        reset(&client);
        return "its sockets could not be set up";
    }
    let now = Instant::now();
    let lane = |stream| Lane::new(stream, shared.clock(), shared.seed() ^ connection.id, now);
    let mut pair = Pair {
        shared,
        connection,
        sides: [Side { socket: client, shut: false, dead: false }, Side { socket: server, shut: false, dead: false }],
        lanes: [lane(Stream::Upstream), lane(Stream::Downstream)],
        mine: shared.mine(connection.id),
    };
    let end = pair.adopt().unwrap_or_else(|| pair.run());
    if end.resets() {
        pair.sides.iter().for_each(|side| reset(&side.socket));
    }
    end.words()
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Closed,
    Broke,
    ClosedByToxic,
    ResetByToxic,
    Down,
    Stopped,
    Failed,
}

impl End {
    fn words(self) -> &'static str {
        match self {
            End::Closed => "closed by client and server",
            End::Broke => "broken by client or server",
            End::ClosedByToxic => "closed by a toxic",
            End::ResetByToxic => "reset by a toxic",
            End::Down => "closed as the proxy went down",
            End::Stopped => "closed as the proxy was stopped",
            End::Failed => "the system could not wait for its sockets",
        }
    }

    fn resets(self) -> bool {
        matches!(self, End::Broke | End::ResetByToxic | End::Failed)
    }
}

struct Side {
    socket: TcpStream,
    /// Was it told that nothing more comes?
    shut: bool,
    /// Is nothing more to be read from or written to it?
    dead: bool,
}

/// Lane i reads from side i and writes to the other.
struct Pair<'a> {
    shared: &'a Shared,
    connection: &'a Connection,
    sides: [Side; 2],
    lanes: [Lane; 2],
    mine: Mine,
}

impl Pair<'_> {
    fn run(&mut self) -> End {
        loop {
            let now = Instant::now();
            let mut due: Option<Instant> = None;
            let mut blocked = [false; 2];
            let dead = [self.sides[0].dead, self.sides[1].dead];
            for way in (0..2).filter(|w| !dead[1 - w]) {
                match self.deliver(way, now) {
                    Ok(Delivered::Until(at)) => due = due.into_iter().chain(at).min(),
                    Ok(Delivered::Blocked) => blocked[way] = true,
                    Err(end) => return end,
                }
            }
            if self.sides.iter().all(|side| side.shut || side.dead) {
                let broke = self.sides.iter().any(|side| side.dead);
                return if broke { End::Broke } else { End::Closed };
            }
            let Ok(ready) = self.wait(due, blocked) else { return End::Failed };
            if self.shared.number() != self.mine.generation.number {
                self.mine = self.shared.mine(self.connection.id);
                if let Some(end) = self.adopt() {
                    return end;
                }
            }
            for way in (0..2).filter(|way| ready[*way]) {
                self.fill(way);
            }
        }
    }

    /// Takes over what a new generation says of this connection.
    fn adopt(&mut self) -> Option<End> {
        if self.mine.generation.stopped {
            return Some(End::Stopped);
        }
        let now = Instant::now();
        let record = &mut *lock(&self.connection.record);
        if let Some(down) = self.mine.toxics.iter().find(|t| t.kind == Kind::Down) {
            record.note(&mut None, down, self.shared.clock().ms(now), 0, 1);
            return Some(End::Down);
        }
        self.lanes.iter_mut().for_each(|lane| lane.set(&self.mine.toxics, now, record));
        None
    }

    /// Moves what may go now.
    fn deliver(&mut self, way: usize, now: Instant) -> Result<Delivered, End> {
        let record = &mut *lock(&self.connection.record);
        let (lane, to) = (&mut self.lanes[way], 1 - way);
        loop {
            match lane.next(now, record) {
                Next::Wait(at) => return Ok(Delivered::Until(at)),
                Next::Close => return Err(End::ClosedByToxic),
                Next::Reset => return Err(End::ResetByToxic),
                Next::Pass(Ending::Broke) => return Err(End::Broke),
                Next::Pass(Ending::Closed) => {
                    let side = &mut self.sides[to];
                    if !side.shut {
                        side.shut = true;
                        let _ = side.socket.shutdown(Shutdown::Write);
                    }
                    return Ok(Delivered::Until(None));
                }
                Next::Write(n) => {
                    let front = lane.front();
                    match (&self.sides[to].socket).write(&front[..n.min(front.len())]) {
                        Ok(n) => lane.wrote(n, now, record),
                        Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(Delivered::Blocked),
                        Err(e) if e.kind() == ErrorKind::Interrupted => {}
                        Err(_) => {
                            // Nobody is left to deliver to; that the other side learns of it goes through its own lane.
                            self.sides[to].dead = true;
                            lane.discard(now);
                            self.lanes[to].end(Ending::Broke, now);
                            return Ok(Delivered::Until(Some(now)));
                        }
                    }
                }
            }
        }
    }

    /// Waits until a socket is ready, a moment has come, or the toxics change; which sides have something to read.
    fn wait(&self, until: Option<Instant>, blocked: [bool; 2]) -> nix::Result<[bool; 2]> {
        let mut fds = Vec::with_capacity(3);
        let mut which = Vec::with_capacity(2);
        for (side, blocked_way) in [(0, blocked[1]), (1, blocked[0])] {
            let mut events = PollFlags::empty();
            events.set(PollFlags::POLLIN, self.lanes[side].takes());
            events.set(PollFlags::POLLOUT, blocked_way);
            // A socket of which nothing is wanted would still wake us for ever once it hung up.
            if !events.is_empty() && !self.sides[side].dead {
                fds.push(PollFd::new(self.sides[side].socket.as_fd(), events));
                which.push(side);
            }
        }
        fds.push(PollFd::new(self.mine.generation.changed.as_fd(), PollFlags::POLLIN));
        let timeout = until.map(|at| TimeSpec::from(at.saturating_duration_since(Instant::now())));
        match ppoll(&mut fds, timeout, None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(e),
        }
        let mut ready = [false; 2];
        let any = PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR;
        for (fd, side) in fds.iter().zip(&which) {
            ready[*side] = fd.revents().is_some_and(|r| r.intersects(any)) && self.lanes[*side].takes();
        }
        Ok(ready)
    }

    /// Reads what a side has.
    fn fill(&mut self, way: usize) {
        let mut buffer = [0; CHUNK];
        let now = Instant::now();
        match (&self.sides[way].socket).read(&mut buffer) {
            Ok(0) => self.lanes[way].end(Ending::Closed, now),
            Ok(n) => {
                let record = &mut *lock(&self.connection.record);
                self.lanes[way].push(buffer[..n].to_vec(), now, record);
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => {
                self.sides[way].dead = true;
                self.lanes[way].end(Ending::Broke, now);
                self.lanes[1 - way].discard(now);
            }
        }
    }
}

enum Delivered {
    /// Nothing more goes before this moment.
    Until(Option<Instant>),
    /// The socket takes no more.
    Blocked,
}
