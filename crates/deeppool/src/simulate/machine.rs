use std::collections::VecDeque;
use std::time::Duration;

use gpu_mux::{Awaits, Exchange};

use super::SimulateOptions;
use super::rank::Rank;
use super::steps::RankClass;
use crate::Error;
use crate::program::{CollectiveId, Program};

/// All ranks in one virtual time, those that do the same as one. Each has a device of its own; they meet in collectives,
/// and nowhere else.
pub(super) struct Machine<'a> {
    program: &'a Program,
    /// One of each class.
    pub(super) ranks: Vec<Rank<'a>>,
    /// By class: when something happens next on its device.
    next: Vec<Option<Duration>>,
    /// By collective.
    meetings: Vec<Meeting>,
    /// What classes have come to and nobody has looked at.
    exchanges: VecDeque<(usize, CollectiveId, Exchange)>,
}

/// Who has come to a collective, or is done with it. A rank does not come to it again before it is over.
#[derive(Debug, Clone, Default)]
struct Meeting {
    /// The classes in the order in which they came.
    came: Vec<(usize, Exchange)>,
    /// Their ranks.
    ranks_came: usize,
    ranks_done: usize,
}

/// From when to when everything goes on as it always does: all ranks have ended the iterations of the warm-up, but not
/// more than the last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) start: Duration,
    pub(super) end: Duration,
    pub(super) iterations: u32,
}

impl<'a> Machine<'a> {
    pub(super) fn new(
        program: &'a Program,
        classes: &'a [RankClass<'a>],
        options: &SimulateOptions,
    ) -> Result<Self, Error> {
        let ranks = classes.iter().enumerate().map(|(index, class)| Rank::new(index, class, options));
        let ranks = ranks.collect::<Result<Vec<_>, Error>>()?;
        Ok(Self {
            program,
            next: vec![None; ranks.len()],
            ranks,
            meetings: vec![Meeting::default(); program.collectives.len()],
            exchanges: VecDeque::new(),
        })
    }

    /// Runs all iterations, and gives the window of those after the warm-up. The background runs until then.
    pub(super) fn run(&mut self, warm_up: u32, iterations: u32) -> Result<Window, Error> {
        for rank in 0..self.ranks.len() {
            self.advance(rank, Duration::ZERO)?;
        }
        self.meet()?;
        let start = self.run_to(warm_up)?;
        self.ranks.iter_mut().for_each(Rank::end_warm_up);
        let end = self.run_to(iterations)?;
        Ok(Window { start, end, iterations: iterations - warm_up })
    }

    /// Goes on until all ranks have ended so many iterations, and gives that time, to which all are brought.
    ///
    /// A device is only brought to a moment at which something happens on it, the earliest first, so that it is never
    /// ahead of another that could still tell it something.
    fn run_to(&mut self, iterations: u32) -> Result<Duration, Error> {
        while !self.ranks.iter().all(|rank| rank.has_ended(iterations)) {
            let next = (0..self.ranks.len()).filter_map(|rank| Some((self.next[rank]?, rank))).min();
            let (now, rank) = next.ok_or(gpu_mux::Error::Stalled)?;
            self.advance(rank, now)?;
            self.meet()?;
        }
        let end = self.ranks.iter().filter_map(|rank| rank.ends().last()).max().copied().unwrap_or_default();
        for rank in 0..self.ranks.len() {
            self.advance(rank, end)?;
        }
        self.meet()?;
        Ok(end)
    }

    /// Brings a rank to this time; what it comes to at a collective waits in `exchanges`.
    fn advance(&mut self, rank: usize, now: Duration) -> Result<(), Error> {
        self.ranks[rank].advance(now, &mut self.exchanges)?;
        self.next[rank] = self.ranks[rank].next_event();
        Ok(())
    }

    /// Everything that collectives do now. Ranks that are told may come to the next ones at once.
    fn meet(&mut self) -> Result<(), Error> {
        while let Some((rank, collective, exchange)) = self.exchanges.pop_front() {
            let everybody = self.program.collectives[collective.0].ranks.len();
            let (ranks, meeting) = (self.ranks[rank].ranks(), &mut self.meetings[collective.0]);
            match exchange.awaits {
                Awaits::Partners => {
                    meeting.came.push((rank, exchange));
                    meeting.ranks_came += ranks;
                    if meeting.ranks_came == everybody {
                        self.begin(collective)?;
                    }
                }
                Awaits::End => {
                    meeting.ranks_done += ranks;
                    if meeting.ranks_done == everybody {
                        self.end(collective, exchange.at)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, collective: CollectiveId) -> Result<(), Error> {
        let came = self.meetings[collective.0].came.clone();
        // When the last rank has come, and the one before it, for which it had to wait itself.
        let mut latest = came.iter().rev().map(|(_, exchange)| exchange.at);
        let (now, mut before) = (latest.next().unwrap_or_default(), latest.next().unwrap_or_default());
        if came.last().is_some_and(|&(rank, _)| self.ranks[rank].ranks() > 1) {
            before = now;
        }
        for (place, &(rank, exchange)) in came.iter().enumerate() {
            let is_last = place + 1 == came.len();
            self.advance(rank, now)?;
            self.ranks[rank].begin_collective(exchange.tasklet, if is_last { before } else { now })?;
            self.next[rank] = self.ranks[rank].next_event();
        }
        Ok(())
    }

    fn end(&mut self, collective: CollectiveId, now: Duration) -> Result<(), Error> {
        let meeting = std::mem::take(&mut self.meetings[collective.0]);
        for (rank, exchange) in meeting.came {
            self.advance(rank, now)?;
            self.ranks[rank].end_collective(exchange.tasklet)?;
            self.next[rank] = self.ranks[rank].next_event();
        }
        Ok(())
    }
}
