use std::collections::VecDeque;
use std::time::Duration;

use gpu_mux::{Awaits, Exchange};

use super::SimulateOptions;
use super::rank::Rank;
use super::steps::RankSteps;
use crate::Error;
use crate::program::{CollectiveId, Program};

/// All ranks in one virtual time. Each has a device of its own; they meet in collectives, and nowhere else.
pub(super) struct Machine<'a> {
    program: &'a Program,
    pub(super) ranks: Vec<Rank<'a>>,
    /// By rank: when something happens next on its device.
    next: Vec<Option<Duration>>,
    /// By collective.
    meetings: Vec<Meeting>,
    /// What ranks have come to and nobody has looked at.
    exchanges: VecDeque<(usize, CollectiveId, Exchange)>,
}

/// The ranks that have come to a collective, or are done with it. A rank does not come to it again before it is over.
#[derive(Debug, Clone, Default)]
struct Meeting {
    /// In the order in which they came.
    came: Vec<(usize, Exchange)>,
    done: usize,
}

impl<'a> Machine<'a> {
    pub(super) fn new(
        program: &'a Program,
        steps: &'a [RankSteps],
        options: &SimulateOptions,
    ) -> Result<Self, Error> {
        let ranks = program.ranks.iter().zip(steps).map(|(rank, steps)| Rank::new(rank, steps, options));
        let ranks = ranks.collect::<Result<Vec<_>, Error>>()?;
        Ok(Self {
            program,
            next: vec![None; ranks.len()],
            ranks,
            meetings: vec![Meeting::default(); program.collectives.len()],
            exchanges: VecDeque::new(),
        })
    }

    /// Runs all iterations, and gives the time at which the last of them has ended. The background runs until then.
    ///
    /// A device is only brought to a moment at which something happens on it, the earliest first, so that it is never
    /// ahead of another that could still tell it something.
    pub(super) fn run(&mut self) -> Result<Duration, Error> {
        for rank in 0..self.ranks.len() {
            self.advance(rank, Duration::ZERO)?;
        }
        self.meet()?;
        while !self.ranks.iter().all(Rank::is_done) {
            let next = (0..self.ranks.len()).filter_map(|rank| Some((self.next[rank]?, rank))).min();
            let (now, rank) = next.ok_or(gpu_mux::Error::Stalled)?;
            self.advance(rank, now)?;
            self.meet()?;
        }
        let end = self.ranks.iter().map(Rank::end).max().unwrap_or_default();
        for rank in 0..self.ranks.len() {
            self.advance(rank, end)?;
        }
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
            let meeting = &mut self.meetings[collective.0];
            match exchange.awaits {
                Awaits::Partners => {
                    meeting.came.push((rank, exchange));
                    if meeting.came.len() == everybody {
                        self.begin(collective)?;
                    }
                }
                Awaits::End => {
                    meeting.done += 1;
                    if meeting.done == everybody {
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
        let (now, before) = (latest.next().unwrap_or_default(), latest.next().unwrap_or_default());
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
