//! What comes of the bytes of one connection, one way, under its toxics?
//!
//! A lane is a queue of chunks, each with the moment from which it may go on, and the rules of the toxics that pace, cut, hold or end it.
//! It knows no sockets and asks no clock: it is told what came and what time it is, and says what to do next. So chunks that are delayed
//! travel at the same time, as on a long line, and tests need no waiting. Memory is bounded by [`WINDOW`]: then nothing more is read, and
//! the sender feels it, as with TCP's own window. O(toxics) a chunk.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::record::{Clock, Record};
use super::share::mix;
use super::toxic::{Kind, Stream, Toxic};

/// Bytes that a lane holds before it reads no more.
pub(super) const WINDOW: usize = 256 << 10;
/// What a bandwidth lets through at once: what it would in this time.
const BURST: Duration = Duration::from_millis(10);

/// How a source ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It closed.
    Closed,
    /// It broke, or reset.
    Broke,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Deliver up to so many bytes of the front.
    Write(usize),
    /// Nothing before this moment, or before something comes.
    Wait(Option<Instant>),
    /// Everything is delivered, and the source ended so.
    Pass(Ending),
    /// A toxic closes the connection.
    Close,
    /// A toxic resets it.
    Reset,
}

struct Chunk {
    bytes: Vec<u8>,
    at: usize,
    due: Instant,
}

/// A toxic at work.
struct Active {
    toxic: Arc<Toxic>,
    /// Where its line stands in the record.
    slot: Option<usize>,
    /// Since when it is there.
    since: Instant,
    /// When the first data came that it resets.
    struck: Option<Instant>,
    /// Bytes that it let through.
    passed: u64,
    /// When it lets through more.
    free_at: Instant,
    /// Did data wait for that?
    waited: bool,
}

/// One way of a connection.
pub(super) struct Lane {
    stream: Stream,
    clock: Clock,
    seed: u64,
    drawn: u64,
    queue: VecDeque<Chunk>,
    queued: usize,
    last_due: Instant,
    ending: Option<(Ending, Instant)>,
    actives: Vec<Active>,
}

impl Lane {
    /// A new one, without toxics.
    pub(super) fn new(stream: Stream, clock: Clock, seed: u64, now: Instant) -> Lane {
        Lane {
            stream,
            clock,
            seed: mix(seed, stream as u64),
            drawn: 0,
            queue: VecDeque::new(),
            queued: 0,
            last_due: now,
            ending: None,
            actives: Vec::new(),
        }
    }

    /// Does it take more?
    pub(super) fn takes(&self) -> bool {
        self.ending.is_none() && self.queued < WINDOW
    }

    /// The toxics of this way among those that its connection has from now on. One that stays keeps what it counted; when no latency
    /// is left, what was delayed goes at once.
    pub(super) fn set(&mut self, toxics: &[Arc<Toxic>], now: Instant, record: &mut Record) {
        let mut before = std::mem::take(&mut self.actives);
        let down = |t: &Toxic| t.kind == Kind::Down;
        for toxic in toxics.iter().filter(|t| t.stream == self.stream && !down(t)) {
            if let Some(i) = before.iter().position(|a| a.toxic == *toxic) {
                self.actives.push(before.swap_remove(i));
                continue;
            }
            let (queued, at_ms) = (self.queued as u64, self.clock.ms(now));
            let mut active = Active {
                toxic: Arc::clone(toxic),
                slot: None,
                since: now,
                struck: None,
                passed: 0,
                free_at: now,
                waited: false,
            };
            match toxic.kind {
                Kind::Timeout { .. } if queued > 0 => record.note(&mut active.slot, toxic, at_ms, queued, 1),
                Kind::ResetPeer { .. } if queued > 0 => {
                    active.struck = Some(now);
                    record.note(&mut active.slot, toxic, at_ms, queued, 0);
                }
                _ => {}
            }
            self.actives.push(active);
        }
        if !self.actives.iter().any(|a| matches!(a.toxic.kind, Kind::Latency { .. })) {
            self.queue.iter_mut().for_each(|chunk| chunk.due = chunk.due.min(now));
            self.last_due = now;
        }
    }

    /// Takes what came.
    pub(super) fn push(&mut self, bytes: Vec<u8>, now: Instant, record: &mut Record) {
        let (n, at_ms) = (bytes.len() as u64, self.clock.ms(now));
        let mut due = now;
        for active in &mut self.actives {
            let toxic = &active.toxic;
            match toxic.kind {
                Kind::Latency { latency, jitter } => {
                    let delay = around(latency * 1000, jitter * 1000, mix(self.seed, self.drawn));
                    self.drawn += 1;
                    due += Duration::from_micros(delay);
                    record.note(&mut active.slot, toxic, at_ms, n, u64::from(delay > 0));
                }
                Kind::Timeout { .. } => record.note(&mut active.slot, toxic, at_ms, n, 1),
                Kind::ResetPeer { .. } => {
                    active.struck.get_or_insert(now);
                    record.note(&mut active.slot, toxic, at_ms, n, 0);
                }
                _ => {}
            }
        }
        self.last_due = self.last_due.max(due);
        self.queued += bytes.len();
        self.queue.push_back(Chunk { bytes, at: 0, due: self.last_due });
    }

    /// Takes that the source ended.
    pub(super) fn end(&mut self, how: Ending, now: Instant) {
        self.ending.get_or_insert((how, now));
    }

    /// What to do now.
    pub(super) fn next(&mut self, now: Instant, record: &mut Record) -> Next {
        if let Some(next) = self.ended_by_toxic(now, record) {
            return next;
        }
        if let Some(until) = self.held() {
            return Next::Wait(until);
        }
        let Some(front) = self.queue.front() else { return self.pass(now, record) };
        if front.due > now {
            return Next::Wait(Some(front.due));
        }
        let mut size = front.bytes.len() - front.at;
        for active in &mut self.actives {
            if active.free_at > now {
                active.waited = true;
                return Next::Wait(Some(active.free_at));
            }
            let most = match active.toxic.kind {
                Kind::Bandwidth { rate } => rate.saturating_mul(BURST.as_millis() as u64).max(1),
                Kind::LimitData { bytes } => bytes - active.passed,
                Kind::Slicer { average_size, size_variation, .. } => {
                    self.drawn += 1;
                    around(average_size, size_variation, mix(self.seed, self.drawn)).max(1)
                }
                _ => continue,
            };
            size = size.min(usize::try_from(most).unwrap_or(usize::MAX));
        }
        Next::Write(size)
    }

    /// A limit that is used up, a time that is over, a reset that is due.
    fn ended_by_toxic(&mut self, now: Instant, record: &mut Record) -> Option<Next> {
        let queued = self.queued as u64;
        let at_ms = self.clock.ms(now);
        for active in &mut self.actives {
            let ms = Duration::from_millis;
            let next = match active.toxic.kind {
                Kind::Timeout { timeout: after @ 1.. } => (now >= active.since + ms(after)).then_some(Next::Close),
                Kind::ResetPeer { timeout } => active.struck.filter(|at| now >= *at + ms(timeout)).map(|_| Next::Reset),
                Kind::LimitData { bytes } => {
                    (active.passed >= bytes && active.passed + queued > 0).then_some(Next::Close)
                }
                _ => None,
            };
            if next.is_some() {
                record.note(&mut active.slot, &active.toxic, at_ms, 0, 1);
                return next;
            }
        }
        None
    }

    /// Until when everything is held, if it is; the inner `None`: for as long as the toxic stays.
    fn held(&self) -> Option<Option<Instant>> {
        let ms = Duration::from_millis;
        let holds = self.actives.iter().filter_map(|active| match active.toxic.kind {
            Kind::Timeout { timeout: 0 } => Some(None),
            Kind::Timeout { timeout } => Some(Some(active.since + ms(timeout))),
            Kind::ResetPeer { timeout } => active.struck.map(|at| Some(at + ms(timeout))),
            _ => None,
        });
        holds.reduce(|a, b| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        })
    }

    fn pass(&mut self, now: Instant, record: &mut Record) -> Next {
        let Some((how, at)) = self.ending else { return Next::Wait(None) };
        let at_ms = self.clock.ms(now);
        let mut until = at;
        for active in &mut self.actives {
            if let Kind::SlowClose { delay: delay @ 1.. } = active.toxic.kind {
                until += Duration::from_millis(delay);
                if !std::mem::replace(&mut active.waited, true) {
                    record.note(&mut active.slot, &active.toxic, at_ms, 0, 1);
                }
            }
        }
        if until > now { Next::Wait(Some(until)) } else { Next::Pass(how) }
    }

    /// The bytes at the front.
    pub(super) fn front(&self) -> &[u8] {
        self.queue.front().map_or(&[], |chunk| &chunk.bytes[chunk.at..])
    }

    /// Takes that so many bytes of the front were delivered.
    pub(super) fn wrote(&mut self, n: usize, now: Instant, record: &mut Record) {
        let Some(front) = self.queue.front_mut() else { return };
        let n = n.min(front.bytes.len() - front.at);
        front.at += n;
        let cut = front.at < front.bytes.len();
        if !cut {
            self.queue.pop_front();
        }
        self.queued -= n;
        match self.stream {
            Stream::Upstream => record.upstream_bytes += n as u64,
            Stream::Downstream => record.downstream_bytes += n as u64,
        }
        let at_ms = self.clock.ms(now);
        for active in &mut self.actives {
            let acts = match active.toxic.kind {
                Kind::Bandwidth { rate } => {
                    let micros = (n as u64 * 1000).div_ceil(rate);
                    active.free_at = active.free_at.max(now) + Duration::from_micros(micros);
                    u64::from(std::mem::take(&mut active.waited))
                }
                Kind::Slicer { delay, .. } => {
                    active.free_at = now + Duration::from_micros(delay);
                    u64::from(std::mem::take(&mut active.waited) || cut)
                }
                Kind::LimitData { .. } => 0,
                _ => continue,
            };
            active.passed += n as u64;
            record.note(&mut active.slot, &active.toxic, at_ms, n as u64, acts);
        }
    }

    /// Forgets what it holds: there is nobody left to deliver it to.
    pub(super) fn discard(&mut self, now: Instant) {
        self.queue.clear();
        self.queued = 0;
        self.end(Ending::Broke, now);
    }
}

/// A number within so much of another, by a random one; never below 0.
fn around(middle: u64, by: u64, random: u64) -> u64 {
    if by == 0 {
        return middle;
    }
    (middle + random % (2 * by + 1)).saturating_sub(by)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Rig {
        lane: Lane,
        record: Record,
        start: Instant,
    }

    fn rig(kinds: &[Kind]) -> Rig {
        let start = Instant::now();
        let record = Record {
            id: 1,
            from: String::new(),
            opened_ms: 0.0,
            closed_ms: None,
            chosen: true,
            upstream_bytes: 0,
            downstream_bytes: 0,
            faults: Vec::new(),
            end: None,
        };
        let lane = Lane::new(Stream::Upstream, Clock(start), 7, start);
        let mut rig = Rig { lane, record, start };
        rig.set(kinds, 0);
        rig
    }

    impl Rig {
        fn at(&self, ms: u64) -> Instant {
            self.start + Duration::from_millis(ms)
        }

        fn set(&mut self, kinds: &[Kind], ms: u64) {
            let toxics: Vec<_> = kinds.iter().map(|k| Arc::new(Toxic::new(*k, Stream::Upstream))).collect();
            self.lane.set(&toxics, self.at(ms), &mut self.record);
        }

        fn push(&mut self, n: usize, ms: u64) {
            self.lane.push(vec![b'x'; n], self.at(ms), &mut self.record);
        }

        fn next(&mut self, ms: u64) -> Next {
            self.lane.next(self.at(ms), &mut self.record)
        }

        /// Delivers all that may go at a time; the sizes of the pieces.
        fn drain(&mut self, ms: u64) -> Vec<usize> {
            let mut pieces = Vec::new();
            while let Next::Write(n) = self.next(ms) {
                assert!(n > 0, "a write of nothing would go on for ever");
                self.lane.wrote(n, self.at(ms), &mut self.record);
                pieces.push(n);
            }
            pieces
        }

        fn acts(&self) -> u64 {
            self.record.faults.iter().map(|f| f.acts).sum()
        }
    }

    #[test]
    fn delayed_chunks_travel_at_the_same_time_and_in_order() {
        let mut rig = rig(&[Kind::Latency { latency: 100, jitter: 0 }]);
        rig.push(10, 0);
        rig.push(20, 5);
        assert_eq!(rig.next(99), Next::Wait(Some(rig.at(100))));
        assert_eq!(rig.drain(100), [10]);
        assert_eq!(rig.drain(105), [20], "not at 205");
        assert_eq!((rig.acts(), rig.record.faults[0].bytes, rig.record.upstream_bytes), (2, 30, 30));
    }

    #[test]
    fn jitter_stays_within_its_bounds_and_never_reorders() {
        let mut rig = rig(&[Kind::Latency { latency: 50, jitter: 20 }]);
        for ms in 0..500 {
            rig.push(1, ms);
        }
        let dues: Vec<Instant> = rig.lane.queue.iter().map(|c| c.due).collect();
        assert!(dues.is_sorted());
        for (ms, due) in dues.iter().enumerate() {
            assert!(*due >= rig.at(ms as u64 + 30) && *due <= rig.at(ms as u64 + 70), "{ms}");
        }
        let spread: std::collections::BTreeSet<_> = dues.iter().zip(0..).map(|(d, ms)| *d - rig.at(ms)).collect();
        assert!(spread.len() > 50, "{}", spread.len());
    }

    #[test]
    fn jitter_larger_than_the_latency_never_makes_data_come_before_it_was_sent() {
        assert!((0..1000).map(|n| around(5, 50, mix(3, n))).all(|d| d <= 55));
        assert!((0..1000).map(|n| around(5, 50, mix(3, n))).any(|d| d == 0));
    }

    #[test]
    fn when_latency_is_removed_what_was_late_goes_at_once() {
        let mut rig = rig(&[Kind::Latency { latency: 10_000, jitter: 0 }]);
        rig.push(10, 0);
        rig.set(&[], 50);
        rig.push(5, 50);
        assert_eq!(rig.drain(50), [10, 5]);
    }

    #[test]
    fn a_bandwidth_is_never_exceeded_after_its_first_burst() {
        let mut rig = rig(&[Kind::Bandwidth { rate: 10 }]);
        rig.push(5_000, 0);
        let mut sent = 0;
        for ms in 0..=600 {
            sent += rig.drain(ms).iter().sum::<usize>() as u64;
            assert!(sent <= 10 * ms + 100, "{sent} bytes in {ms} ms");
        }
        assert_eq!(sent, 5_000, "10 bytes a millisecond are 6,000 by now");
        assert!(rig.acts() > 40, "it waited {} times", rig.acts());
    }

    #[test]
    fn a_slicer_cuts_within_its_bounds() {
        let mut rig = rig(&[Kind::Slicer { average_size: 10, size_variation: 3, delay: 0 }]);
        rig.push(1_000, 0);
        let pieces = rig.drain(0);
        assert_eq!(pieces.iter().sum::<usize>(), 1_000);
        assert!(pieces[..pieces.len() - 1].iter().all(|n| (7..=13).contains(n)), "{pieces:?}");
        assert!(pieces.iter().collect::<std::collections::BTreeSet<_>>().len() > 3);
        assert_eq!(rig.acts(), pieces.len() as u64 - 1, "the last piece is cut from nothing");
    }

    #[test]
    fn a_slicer_waits_between_pieces() {
        let mut rig = rig(&[Kind::Slicer { average_size: 10, size_variation: 0, delay: 2_000 }]);
        rig.push(30, 0);
        assert_eq!((rig.drain(0), rig.drain(1), rig.drain(2), rig.drain(4)), (vec![10], vec![], vec![10], vec![10]));
    }

    #[test]
    fn a_limit_lets_exactly_its_bytes_through_and_then_closes() {
        let mut rig = rig(&[Kind::LimitData { bytes: 25 }]);
        rig.push(10, 0);
        assert_eq!(rig.drain(0), [10]);
        assert_eq!(rig.next(0), Next::Wait(None));
        rig.push(40, 1);
        assert_eq!(rig.drain(1), [15]);
        assert_eq!((rig.acts(), rig.record.upstream_bytes), (1, 25));
        assert_eq!(rig.next(1), Next::Close);
    }

    #[test]
    fn a_limit_of_nothing_closes_when_something_comes() {
        let mut rig = rig(&[Kind::LimitData { bytes: 0 }]);
        assert_eq!(rig.next(0), Next::Wait(None));
        rig.push(1, 0);
        assert_eq!(rig.next(0), Next::Close);
    }

    #[test]
    fn a_timeout_holds_everything_even_the_end_and_gives_it_back_when_removed() {
        let mut rig = rig(&[Kind::Timeout { timeout: 0 }]);
        rig.push(10, 0);
        rig.lane.end(Ending::Closed, rig.at(1));
        assert_eq!(rig.next(1_000_000), Next::Wait(None));
        rig.set(&[], 2_000_000);
        assert_eq!(rig.drain(2_000_000), [10]);
        assert_eq!(rig.next(2_000_000), Next::Pass(Ending::Closed));
    }

    #[test]
    fn a_timeout_closes_after_its_time_whether_or_not_something_came() {
        for come in [false, true] {
            let mut rig = rig(&[Kind::Timeout { timeout: 100 }]);
            if come {
                rig.push(10, 50);
            }
            assert_eq!(rig.next(99), Next::Wait(Some(rig.at(100))));
            assert_eq!(rig.next(100), Next::Close);
        }
    }

    #[test]
    fn a_reset_strikes_only_when_data_comes_and_delivers_none_of_it() {
        let mut rig = rig(&[Kind::ResetPeer { timeout: 20 }]);
        assert_eq!(rig.next(1_000), Next::Wait(None));
        rig.push(10, 1_000);
        assert_eq!(rig.next(1_000), Next::Wait(Some(rig.at(1_020))));
        assert_eq!(rig.next(1_020), Next::Reset);
        assert_eq!((rig.record.upstream_bytes, rig.acts()), (0, 1));
    }

    #[test]
    fn a_slow_close_delays_the_end_and_nothing_else() {
        let mut rig = rig(&[Kind::SlowClose { delay: 100 }]);
        rig.push(10, 0);
        assert_eq!(rig.drain(0), [10]);
        rig.lane.end(Ending::Closed, rig.at(10));
        assert_eq!(rig.next(50), Next::Wait(Some(rig.at(110))));
        assert_eq!(rig.next(110), Next::Pass(Ending::Closed));
        assert_eq!(rig.acts(), 1);
    }

    #[test]
    fn toxics_of_several_kinds_all_hold() {
        let mut rig = rig(&[
            Kind::Latency { latency: 100, jitter: 0 },
            Kind::Slicer { average_size: 4, size_variation: 0, delay: 0 },
            Kind::LimitData { bytes: 10 },
        ]);
        rig.push(50, 0);
        assert!(rig.drain(99).is_empty());
        assert_eq!(rig.drain(100), [4, 4, 2]);
        assert_eq!(rig.next(100), Next::Close);
    }

    #[test]
    fn a_full_lane_takes_no_more() {
        let mut rig = rig(&[Kind::Timeout { timeout: 0 }]);
        while rig.lane.takes() {
            rig.push(16 << 10, 0);
        }
        assert!(rig.lane.queued >= WINDOW && rig.lane.queued < WINDOW + (16 << 10));
    }

    #[test]
    fn what_a_toxic_that_stays_has_counted_stays_when_others_change() {
        let mut rig = rig(&[Kind::LimitData { bytes: 25 }]);
        rig.push(20, 0);
        rig.drain(0);
        rig.set(&[Kind::LimitData { bytes: 25 }, Kind::Latency { latency: 1, jitter: 0 }], 10);
        rig.push(20, 10);
        assert_eq!(rig.drain(11), [5]);
        assert_eq!(rig.next(11), Next::Close);
    }
}
