//! Which events does this history hold, when it may be longer than memory?
//!
//! The idea: read a block of some megabytes, guess where operations begin in it (a line that begins with a map), and
//! let every thread parse from one guess to the next. A guess is never trusted: the piece that begins at it counts
//! only if the piece before, itself beyond doubt, ended exactly there, between two operations. Otherwise, be it that
//! the guess lay in a string, a comment or a nested map, its events are thrown away and the text is parsed again from
//! where the last certain operation ended. So the events are those of a sequential reading whatever the text is, and
//! the guess only has to be right often.
//!
//! What encloses the operations (a vector, a list, a map with `:history`) is a stack that only the driver knows; pieces
//! stop at brackets that are not theirs. While the workers parse one block, the calling thread delivers the events of
//! the previous one and reads the next.
//!
//! Memory: two blocks, and the batches of two blocks; a single form may grow the block up to 256 MiB.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::sync::{Mutex, PoisonError};

use memchr::{memchr, memchr_iter};

use crate::edn::op::{Run, Shard, Stop};
use crate::edn::token::{BYTE_ORDER_MARK, Cursor, Fault, Scan, is_space, newlines};
use crate::error::{Place, ReadError, Result};
use crate::event::EventBatch;
use crate::value::MAX_DEPTH;

/// Bytes that a worker parses at a time.
const PIECE: usize = 1 << 20;
/// Bytes read at a time when one thread does everything.
const BLOCK: usize = 1 << 18;
/// Pieces in a block for each thread: more than one, as some pieces take longer than others.
const PIECES_PER_THREAD: usize = 2;
/// Text that a batch may keep when several threads, and so many batches, are at work.
const POOLED_TEXT: usize = 8 << 20;
/// The longest single form; beyond it no memory would be safe.
const MAX_FORM: usize = 256 << 20;

/// Reads a history in EDN and hands its events, in order, to `sink`, from the calling thread.
///
/// A history is operation maps one after the other, or one vector or list of them (nested ones are flattened), or a map
/// with such a vector under `:history`. Operations may be tagged. An event's place is the line where it begins.
///
/// The ids in a batch are good in that batch only: with several threads batches come with text pools of several
/// workers. A batch keeps its texts from one delivery to the next, until there are many (64 MB of them; 8 MB with
/// several threads): then a new batch, with an empty pool, takes its place.
///
/// ```
/// use elench_formats::edn::events;
///
/// let text = "{:process 0, :type :invoke, :f :read, :value nil}\n{:process 0, :type :ok, :f :read, :value 3}";
/// let mut count = 0;
/// events::read(&mut text.as_bytes(), 1, &mut |batch| {
///     count += batch.len();
///     Ok(())
/// })
/// .unwrap();
/// assert_eq!(count, 2);
/// ```
pub fn read(input: &mut dyn Read, threads: usize, sink: &mut dyn FnMut(&mut EventBatch) -> Result<()>) -> Result<()> {
    let threads = threads.max(1);
    let sizes = if threads == 1 {
        Sizes { block: BLOCK, piece: BLOCK, anywhere: false }
    } else {
        Sizes { block: threads * PIECES_PER_THREAD * PIECE, piece: PIECE, anywhere: false }
    };
    read_in_blocks(input, threads, sizes, sink)
}

/// As [`read`], but with blocks and pieces of any size and guesses at any byte, which are mostly wrong: for fuzzing.
#[doc(hidden)]
pub fn read_cut_anywhere(
    input: &mut dyn Read,
    threads: usize,
    block: usize,
    piece: usize,
    sink: &mut dyn FnMut(&mut EventBatch) -> Result<()>,
) -> Result<()> {
    let sizes = Sizes { block: block.max(1), piece: piece.max(1), anywhere: true };
    read_in_blocks(input, threads.max(1), sizes, sink)
}

/// How the input is cut up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Bytes read at a time.
    pub(crate) block: usize,
    /// Bytes between guesses.
    pub(crate) piece: usize,
    /// Are guesses made at any byte? They are then mostly wrong, which only tests want.
    pub(crate) anywhere: bool,
}

pub(crate) fn read_in_blocks(
    input: &mut dyn Read,
    threads: usize,
    sizes: Sizes,
    sink: &mut dyn FnMut(&mut EventBatch) -> Result<()>,
) -> Result<()> {
    let mut block = Block::default();
    block.append(input, sizes.block.max(BYTE_ORDER_MARK.len()))?;
    let driver = Driver::new(&block);
    if threads == 1 {
        read_alone(driver, block, input, sizes, sink)
    } else {
        read_together(driver, block, input, threads, sizes, sink)
    }
}

/// Bytes of the input that are in memory.
#[derive(Default)]
struct Block {
    /// They, and room for more.
    buffer: Vec<u8>,
    /// How many there are.
    len: usize,
    /// Is this the end of the input?
    last: bool,
}

/// Room before the bytes of a block for what the block before it left over.
const HEADROOM: usize = 64 << 10;

impl Block {
    fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    /// Reads so many more bytes, or all that are left.
    fn append(&mut self, input: &mut dyn Read, more: usize) -> Result<()> {
        let end = self.len + more;
        if self.buffer.is_empty() {
            // Pages that are not touched cost nothing.
            self.buffer = vec![0; end];
        } else if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        while self.len < end {
            match input.read(&mut self.buffer[self.len..end]) {
                Ok(0) => {
                    self.last = true;
                    break;
                }
                Ok(n) => self.len += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Forgets the bytes before this one.
    fn forget(&mut self, pos: usize) {
        self.buffer.copy_within(pos..self.len, 0);
        self.len -= pos;
    }

    /// A block with headroom, which [`Self::prepend`] needs.
    fn with_headroom(input: &mut dyn Read, len: usize, buffer: Vec<u8>) -> Result<Block> {
        let mut block = Block { buffer, len: HEADROOM, last: false };
        block.append(input, len)?;
        Ok(block)
    }

    /// Puts the rest of the block before in front of this one; where they now begin.
    fn prepend(&mut self, rest: &[u8]) -> usize {
        match HEADROOM.checked_sub(rest.len()) {
            Some(start) => {
                self.buffer[start..HEADROOM].copy_from_slice(rest);
                start
            }
            None => {
                self.buffer.splice(..HEADROOM, rest.iter().copied());
                self.len += rest.len() - HEADROOM;
                0
            }
        }
    }
}

/// Reads with this thread only.
fn read_alone(
    mut driver: Driver,
    mut block: Block,
    input: &mut dyn Read,
    sizes: Sizes,
    sink: &mut dyn FnMut(&mut EventBatch) -> Result<()>,
) -> Result<()> {
    let mut shard = Shard::default();
    loop {
        let end = block.bytes().len();
        driver.parse_to(&block, end, &mut shard, &mut |shard| shard.hand_over(&mut *sink))?;
        if block.last {
            return shard.hand_over(&mut *sink);
        }
        let more = driver.next_read(&block, sizes)?;
        block.forget(std::mem::take(&mut driver.pos));
        block.append(input, more)?;
    }
}

/// Reads with some threads beside this one, which delivers events and reads ahead.
fn read_together(
    mut driver: Driver,
    mut block: Block,
    input: &mut dyn Read,
    threads: usize,
    sizes: Sizes,
    sink: &mut dyn FnMut(&mut EventBatch) -> Result<()>,
) -> Result<()> {
    let pool = Pool::default();
    let mut ready = VecDeque::new();
    let mut spare = Vec::new();
    loop {
        let mut pieces = driver.pieces(&block, sizes);
        let queue = Mutex::new(pieces.iter_mut());
        let next = rayon::in_place_scope(|scope| -> Result<Option<Block>> {
            for _ in 0..threads {
                scope.spawn(|_| {
                    while let Some(piece) = { queue.lock().unwrap_or_else(PoisonError::into_inner).next() } {
                        piece.parse(&block, &pool);
                    }
                });
            }
            deliver_all(&mut ready, &pool, sink)?;
            if block.last {
                return Ok(None);
            }
            Block::with_headroom(input, sizes.block, std::mem::take(&mut spare)).map(Some)
        })?;
        driver.accept(pieces, &block, &pool, &mut ready)?;
        let Some(mut next) = next else { return deliver_all(&mut ready, &pool, sink) };
        let more = driver.next_read(&block, sizes)?;
        driver.pos = next.prepend(&block.bytes()[driver.pos..]);
        if !next.last && more > sizes.block {
            next.append(input, more - sizes.block)?;
        }
        spare = std::mem::replace(&mut block, next).buffer;
    }
}

fn deliver_all(
    ready: &mut VecDeque<Shard>,
    pool: &Pool,
    sink: &mut dyn FnMut(&mut EventBatch) -> Result<()>,
) -> Result<()> {
    while let Some(mut shard) = ready.pop_front() {
        shard.hand_over(&mut *sink)?;
        pool.give(shard);
    }
    Ok(())
}

/// Shards whose batches are empty.
#[derive(Default)]
struct Pool(Mutex<Vec<Shard>>);

impl Pool {
    fn take(&self) -> Shard {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn give(&self, mut shard: Shard) {
        if shard.batch.texts.text_bytes() > POOLED_TEXT {
            return;
        }
        shard.batch.clear_events();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(shard);
    }
}

/// The events from one guess to the next.
struct Piece {
    start: usize,
    limit: usize,
    first: bool,
    /// Their places count from line 0 at `start`.
    shards: Vec<Shard>,
    run: Run,
}

impl Piece {
    fn parse(&mut self, block: &Block, pool: &Pool) {
        let (mut pos, mut lines, mut any) = (self.start, 0, false);
        loop {
            let mut shard = pool.take();
            let run = shard.run(block.bytes(), pos..self.limit, block.last, self.first && !any, lines);
            pos = run.pos;
            lines += run.lines;
            any |= run.any;
            if shard.batch.is_empty() {
                pool.give(shard)
            } else {
                self.shards.push(shard)
            }
            if !matches!(run.stop, Ok(Stop::Full)) {
                self.run = Run { pos, lines, any, stop: run.stop };
                return;
            }
        }
    }
}

/// What is certain: where in the block we are, and what encloses us there.
struct Driver {
    pos: usize,
    /// The line of `pos`.
    line: u64,
    stack: Vec<Open>,
    /// Was there an event or a bracket yet?
    begun: bool,
    phase: Phase,
}

/// An opened bracket around events.
struct Open {
    bracket: u8,
    line: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Events, and brackets around them.
    Events,
    /// The entries of the outermost map after its history.
    RestOfMap,
    /// Nothing more may come.
    Done,
}

/// Can parsing go on in this block?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    On,
    /// The limit is reached.
    Limit,
    /// What comes next ends beyond the block.
    More,
}

impl Driver {
    fn new(block: &Block) -> Self {
        let pos = if block.bytes().starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        Driver { pos, line: 1, stack: Vec::new(), begun: false, phase: Phase::Events }
    }

    /// How much more to read: a block, and more where a block was not enough for one form, so that the time taken to
    /// parse the form again and again stays linear.
    fn next_read(&self, block: &Block, sizes: Sizes) -> Result<usize> {
        let rest = block.bytes().len() - self.pos;
        if rest > MAX_FORM {
            let what = format!("a single form is longer than {} MiB", MAX_FORM >> 20);
            return Err(ReadError::new(what).at(Place::Line(self.line)).hint("is a bracket or a quote not closed?"));
        }
        Ok(sizes.block.max(rest))
    }

    /// The block cut where events may begin. The first piece does begin where it says.
    fn pieces(&self, block: &Block, sizes: Sizes) -> Vec<Piece> {
        let end = block.bytes().len();
        let mut starts = vec![self.pos];
        let mut from = self.pos;
        while from.saturating_add(sizes.piece) < end {
            from += sizes.piece;
            let cut =
                if sizes.anywhere { Some(from) } else { guess(&block.bytes()[..end.min(from + sizes.piece)], from) };
            if let Some(cut) = cut {
                starts.push(cut);
                from = cut;
            }
        }
        let limits = starts.iter().skip(1).copied().chain([end]);
        let piece = |(start, limit)| Piece {
            start,
            limit,
            first: !self.begun && start == self.pos,
            shards: Vec::new(),
            run: Run { pos: start, lines: 0, any: false, stop: Ok(Stop::Limit) },
        };
        starts.iter().copied().zip(limits).map(piece).collect()
    }

    /// Takes over the pieces that began where certainty has come to, and parses again what lies between them.
    fn accept(&mut self, pieces: Vec<Piece>, block: &Block, pool: &Pool, ready: &mut VecDeque<Shard>) -> Result<()> {
        let mut flow = Flow::On;
        for piece in pieces {
            if flow != Flow::More && self.pos < piece.start {
                flow = self.parse_again(block, piece.start, pool, ready)?;
            }
            if flow == Flow::More || !self.confirms(&piece) {
                piece.shards.into_iter().for_each(|shard| pool.give(shard));
                continue;
            }
            for mut shard in piece.shards {
                shard.batch.place.iter_mut().for_each(|place| *place += self.line);
                ready.push_back(shard);
            }
            flow = self.follow(block, piece.run)?;
        }
        if flow != Flow::More {
            self.parse_again(block, block.bytes().len(), pool, ready)?;
        }
        Ok(())
    }

    fn confirms(&self, piece: &Piece) -> bool {
        self.pos == piece.start && self.phase == Phase::Events && piece.first != self.begun
    }

    fn parse_again(&mut self, block: &Block, limit: usize, pool: &Pool, ready: &mut VecDeque<Shard>) -> Result<Flow> {
        let mut shard = pool.take();
        let mut deliver = |shard: &mut Shard| {
            if !shard.batch.is_empty() {
                ready.push_back(std::mem::replace(shard, pool.take()));
            }
            Ok(())
        };
        let flow = self.parse_to(block, limit, &mut shard, &mut deliver)?;
        deliver(&mut shard)?;
        pool.give(shard);
        Ok(flow)
    }

    /// Parses all that begins before `limit`, and more where brackets are concerned. At the end of the input, sees to
    /// it that nothing is left open. Full batches go to `deliver`, which leaves an empty one.
    fn parse_to(
        &mut self,
        block: &Block,
        limit: usize,
        shard: &mut Shard,
        deliver: &mut dyn FnMut(&mut Shard) -> Result<()>,
    ) -> Result<Flow> {
        loop {
            let flow = match self.phase {
                Phase::Events => {
                    let run = shard.run(block.bytes(), self.pos..limit, block.last, !self.begun, self.line);
                    let full = matches!(run.stop, Ok(Stop::Full));
                    let flow = self.follow(block, run)?;
                    if full {
                        deliver(shard)?;
                    }
                    flow
                }
                Phase::RestOfMap => self.next_in_map(block)?,
                Phase::Done => self.nothing_more(block)?,
            };
            match flow {
                Flow::On => {}
                Flow::Limit if block.last && self.pos == block.bytes().len() => {
                    self.nothing_open()?;
                    return Ok(flow);
                }
                _ => return Ok(flow),
            }
        }
    }

    /// Goes behind a run, and over the bracket that it stopped at.
    fn follow(&mut self, block: &Block, run: Run) -> Result<Flow> {
        self.pos = run.pos;
        self.line += run.lines;
        self.begun |= run.any;
        match run.stop {
            Ok(Stop::Full) => Ok(Flow::On),
            Ok(Stop::Limit) => Ok(Flow::Limit),
            Ok(Stop::More) => Ok(Flow::More),
            Ok(Stop::History) => {
                self.begun = true;
                self.stack.push(Open { bracket: b'{', line: self.line });
                Ok(Flow::On)
            }
            Ok(Stop::Bracket) => self.bracket(block),
            Err(fault) => Err(fault.error(block.bytes(), self.pos, self.line)),
        }
    }

    fn bracket(&mut self, block: &Block) -> Result<Flow> {
        let bracket = block.bytes()[self.pos];
        if matches!(bracket, b'[' | b'(') {
            if self.stack.is_empty() && self.begun {
                return self.refuse("a vector or list begins after operations that stand alone");
            }
            if self.stack.len() >= MAX_DEPTH {
                return self.refuse("vectors around operations nest too deep");
            }
            self.stack.push(Open { bracket, line: self.line });
        } else {
            let opened = self.stack.pop();
            let expected = opened.as_ref().map(|open| closing(open.bracket));
            match (opened, expected) {
                (Some(_), Some(expected)) if expected == bracket => {}
                (Some(open), Some(expected)) => {
                    return self.refuse(&format!(
                        "here is a `{}` where a `{}` should close what line {} opened",
                        bracket as char, expected as char, open.line
                    ));
                }
                _ => return self.refuse(&format!("a `{}` closes nothing that is open here", bracket as char)),
            }
            self.phase = match self.stack.last() {
                None => Phase::Done,
                Some(open) if open.bracket == b'{' => Phase::RestOfMap,
                Some(_) => Phase::Events,
            };
        }
        self.pos += 1;
        self.begun = true;
        Ok(Flow::On)
    }

    fn refuse(&self, what: &str) -> Result<Flow> {
        Err(ReadError::new(what).at(Place::Line(self.line)).hint("are the brackets balanced?"))
    }

    /// Skips a form of the outermost map, or closes the map.
    fn next_in_map(&mut self, block: &Block) -> Result<Flow> {
        let mut at_end = false;
        let flow = self.step(block, |cursor| {
            cursor.skip_trivia(0)?;
            at_end = cursor.peek().is_none();
            match cursor.peek() {
                Some(b'}') => Ok(true),
                Some(_) => cursor.value_here(0).map(|_| false),
                None if cursor.last => Ok(true),
                None => Fault::end(cursor.pos, "map"),
            }
        })?;
        match flow {
            Flow::Limit if at_end => self.nothing_open().map(|()| flow),
            Flow::Limit => self.bracket(block),
            _ => Ok(flow),
        }
    }

    /// Sees to it that nothing but white space and comments is left.
    fn nothing_more(&mut self, block: &Block) -> Result<Flow> {
        self.step(block, |cursor| {
            cursor.skip_trivia(0)?;
            match cursor.peek() {
                None => Ok(true),
                Some(_) => Fault::bad(cursor.pos, "something follows after the end of the history"),
            }
        })
    }

    /// Goes where `step` goes: `Limit` when it says so, `More` when it runs out of bytes.
    fn step(&mut self, block: &Block, step: impl FnOnce(&mut Cursor<'_>) -> Scan<bool>) -> Result<Flow> {
        let mut cursor = Cursor::new(block.bytes(), self.pos, block.last);
        match step(&mut cursor) {
            Ok(there) => {
                self.line += newlines(&block.bytes()[self.pos..cursor.pos]);
                self.pos = cursor.pos;
                Ok(if there { Flow::Limit } else { Flow::On })
            }
            Err(fault) if !block.last && matches!(*fault, Fault::End { .. }) => Ok(Flow::More),
            Err(fault) => Err(fault.error(block.bytes(), self.pos, self.line)),
        }
    }

    fn nothing_open(&self) -> Result<()> {
        let Some(open) = self.stack.last() else { return Ok(()) };
        let what = match open.bracket {
            b'[' => "vector",
            b'(' => "list",
            _ => "map",
        };
        Err(ReadError::new(format!("the text ends inside a {what} that begins at line {}", open.line))
            .at(Place::Line(self.line))
            .hint("it is cut off, or a closing bracket is missing"))
    }
}

fn closing(open: u8) -> u8 {
    match open {
        b'[' => b']',
        b'(' => b')',
        _ => b'}',
    }
}

/// White space that a guess looks beyond.
const MAX_INDENT: usize = 64;

/// Where an event may begin at or after `from`: a line that begins with a map, else a map after a map.
fn guess(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = &bytes[from..];
    let after = |i: usize| from + i + 1 + rest[i + 1..].iter().take(MAX_INDENT).take_while(|&&b| is_space(b)).count();
    let lines = memchr_iter(b'\n', rest).map(after).find(|&at| begins_event(&bytes[at..]));
    lines.or_else(|| {
        let at = after(memchr(b'}', rest)?);
        begins_event(&bytes[at..]).then_some(at)
    })
}

fn begins_event(bytes: &[u8]) -> bool {
    match bytes {
        [b'{', ..] => true,
        [b'#', b, ..] => b.is_ascii_alphabetic(),
        _ => false,
    }
}
