//! *Gang windows*: the rule by which the collectives of distributed background jobs share devices
//! with the foreground. A *gang* is the set of ranks of one distributed background job, its
//! *members*. A member has *arrived* when its part of the job's next collective can run. A *grant*
//! is the statement of a member's multiplexer that the collective fits into its current idle
//! period. Times are measured from an epoch common to all ranks.

use std::time::Duration;

use crate::{Error, GangId};

/// Event that a member reports to [`Gangs`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GangEvent {
    /// A member's part of the gang's next collective can run.
    Arrive {
        /// Gang of the collective.
        gang: GangId,
        /// Rank of the member.
        rank: usize,
    },
    /// A member's multiplexer [grants](crate::Multiplexer::grant) the gang's next collective. A
    /// later grant replaces it. Ignored if the member has not arrived, because the collective has
    /// been launched in the meantime.
    Grant {
        /// Gang of the collective.
        gang: GangId,
        /// Rank of the member.
        rank: usize,
        /// Latest start of the collective; `None` if no end of the idle period is predicted.
        until: Option<Duration>,
    },
    /// A member's grant ends, because its multiplexer has decided otherwise.
    Refuse {
        /// Gang of the collective.
        gang: GangId,
        /// Rank of the member.
        rank: usize,
    },
    /// All grants of a rank end, because its foreground computes. The foreground does not wait for
    /// a reply.
    Withdraw {
        /// The rank.
        rank: usize,
    },
    /// A collective that was launched has finished on a member.
    Finish {
        /// Gang of the collective.
        gang: GangId,
        /// Rank of the member.
        rank: usize,
    },
    /// The gang has failed: none of its collectives is launched any more, and its members no longer
    /// occupy ranks.
    Fail(GangId),
}

/// Coordinator of all gangs, as a state machine without a clock, a thread or a device.
///
/// It launches a collective on all members at once when all of them have arrived, each has a grant
/// that has not expired, and no other gang's collective runs on any of their ranks. Until then the
/// collective holds nothing: a grant does not keep the foreground or other background work from the
/// device. No gang therefore waits while it holds what another one waits for, and the collectives
/// of all gangs are launched in one order on all ranks.
///
/// Of several gangs, the one whose last launch is the oldest goes first. If only the collectives of
/// others keep it from being launched, its ranks are reserved for it until they end.
///
/// A member launches a collective when it is told, also if its foreground has returned in the
/// meantime: otherwise the other members would wait. The delay is at most one collective, which is
/// cut to the policy's [bound](crate::Policy::background_piece).
///
/// An event and a poll take O(g log g + m) for g gangs with m members in all.
///
/// ```
/// use gpu_mux::{GangEvent, Gangs};
/// use std::time::Duration;
///
/// let mut gangs = Gangs::new(4);
/// let gang = gangs.add([0, 2])?;
/// for rank in [0, 2] {
///     assert_eq!(gangs.poll_launch(), None);
///     gangs.handle(Duration::ZERO, GangEvent::Arrive { gang, rank })?;
///     gangs.handle(Duration::ZERO, GangEvent::Grant { gang, rank, until: None })?;
/// }
/// assert_eq!(gangs.poll_launch(), Some(gang));
/// # Ok::<(), gpu_mux::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Gangs {
    now: Duration,
    /// Gang whose collective runs on each rank.
    running: Vec<Option<GangId>>,
    by_id: Vec<Gang>,
    /// Number of launches so far.
    launches: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Gang {
    members: Vec<Member>,
    failed: bool,
    /// Number of launches of all gangs up to the gang's last one.
    last_launch: u64,
    outcome: GangOutcome,
    /// Time at which the last member arrived at the next collective.
    complete_since: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Member {
    rank: usize,
    arrived: bool,
    /// Latest start of the collective under the rank's grant, [`Duration::MAX`] if it has no end.
    grant: Option<Duration>,
    /// Whether the gang's last collective runs on the rank.
    runs: bool,
}

/// Statistics of a gang.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct GangOutcome {
    /// Number of launched collectives: common windows that were long enough.
    pub launched: u64,
    /// Number of grants that a foreground ended before the collective could be launched, though all
    /// members had arrived.
    pub withdrawn: u64,
    /// Sum of the times from the last member's arrival at a collective to its launch.
    pub waited: Duration,
}

impl Gangs {
    /// Creates a coordinator of ranks 0 to `ranks` - 1 without gangs.
    #[must_use]
    pub fn new(ranks: usize) -> Self {
        Self { now: Duration::ZERO, running: vec![None; ranks], by_id: Vec::new(), launches: 0 }
    }

    /// Adds a gang with these ranks as members.
    ///
    /// # Errors
    /// [`Error::BadGang`] if there are none, one is given twice, or one does not exist.
    pub fn add(&mut self, members: impl IntoIterator<Item = usize>) -> Result<GangId, Error> {
        let mut ranks: Vec<usize> = members.into_iter().collect();
        ranks.sort_unstable();
        let is_valid = ranks.windows(2).all(|pair| pair[0] < pair[1])
            && ranks.last().is_some_and(|&last| last < self.running.len());
        if !is_valid {
            return Err(Error::BadGang { members: ranks, ranks: self.running.len() });
        }
        let member = |rank| Member { rank, arrived: false, grant: None, runs: false };
        self.by_id.push(Gang {
            members: ranks.into_iter().map(member).collect(),
            failed: false,
            last_launch: 0,
            outcome: GangOutcome::default(),
            complete_since: None,
        });
        Ok(GangId(self.by_id.len() - 1))
    }

    /// Handles an event at `now`. A refused event changes nothing.
    ///
    /// # Errors
    /// [`Error::TimeWentBack`] if `now` is before the last event. [`Error::NotAMember`] for a rank
    /// that is no member of the gang, that has arrived already, or that has no collective to
    /// finish.
    pub fn handle(&mut self, now: Duration, event: GangEvent) -> Result<(), Error> {
        if now < self.now {
            return Err(Error::TimeWentBack { now, last: self.now });
        }
        match event {
            GangEvent::Arrive { gang, rank } => {
                let place = self.member(gang, rank, |member| !member.arrived)?;
                let gang = &mut self.by_id[gang.0];
                gang.members[place].arrived = true;
                if gang.is_complete() {
                    gang.complete_since = Some(now);
                }
            }
            GangEvent::Grant { gang, rank, until } => {
                let place = self.member(gang, rank, |_| true)?;
                let member = &mut self.by_id[gang.0].members[place];
                // Without an arrival, the collective has been launched before the grant came.
                member.grant = member.arrived.then_some(until.unwrap_or(Duration::MAX));
            }
            GangEvent::Refuse { gang, rank } => {
                let place = self.member(gang, rank, |_| true)?;
                self.by_id[gang.0].members[place].grant = None;
            }
            GangEvent::Withdraw { rank } => {
                for gang in &mut self.by_id {
                    let is_complete = gang.is_complete();
                    let of_rank = gang.members.iter_mut().find(|member| member.rank == rank);
                    let withdrawn = of_rank.and_then(|member| member.grant.take()).is_some();
                    gang.outcome.withdrawn += u64::from(withdrawn && is_complete);
                }
            }
            GangEvent::Finish { gang, rank } => {
                if self.by_id.get(gang.0).is_some_and(|gang| gang.failed) {
                    return Ok(());
                }
                let place = self.member(gang, rank, |member| member.runs)?;
                self.by_id[gang.0].members[place].runs = false;
                self.running[rank] = None;
            }
            GangEvent::Fail(gang) => {
                let failed = self.by_id.get_mut(gang.0).ok_or(Error::NotAMember { gang, rank: None })?;
                failed.failed = true;
                failed.members.iter_mut().for_each(|member| member.runs = false);
                self.running.iter_mut().filter(|running| **running == Some(gang)).for_each(|running| {
                    *running = None;
                });
            }
        }
        self.now = now;
        Ok(())
    }

    /// Returns the next gang whose collective is to be launched on all its members, as of the last
    /// event's time; `None` if there is none.
    pub fn poll_launch(&mut self) -> Option<GangId> {
        let now = self.now;
        let mut granted: Vec<usize> =
            (0..self.by_id.len()).filter(|&gang| self.by_id[gang].is_granted(now)).collect();
        granted.sort_by_key(|&gang| (self.by_id[gang].last_launch, gang));
        let mut taken: Vec<bool> = self.running.iter().map(Option::is_some).collect();
        for index in granted {
            let ranks = || self.by_id[index].members.iter().map(|member| member.rank);
            if ranks().all(|rank| !taken[rank]) {
                self.launch(index);
                return Some(GangId(index));
            }
            ranks().for_each(|rank| taken[rank] = true);
        }
        None
    }

    /// Returns the ranks of a gang, ascending; none for an unknown gang.
    pub fn members(&self, gang: GangId) -> impl Iterator<Item = usize> {
        self.by_id.get(gang.0).into_iter().flat_map(|gang| gang.members.iter().map(|member| member.rank))
    }

    /// Returns whether all members of a gang have arrived at its next collective and have finished
    /// the one before. Only then does a grant matter.
    #[must_use]
    pub fn awaits_grants(&self, gang: GangId) -> bool {
        self.by_id.get(gang.0).is_some_and(Gang::awaits_grants)
    }

    /// Returns the statistics of a gang; `None` for an unknown gang.
    #[must_use]
    pub fn outcome(&self, gang: GangId) -> Option<GangOutcome> {
        self.by_id.get(gang.0).map(|gang| gang.outcome)
    }

    fn launch(&mut self, index: usize) {
        self.launches += 1;
        let gang = &mut self.by_id[index];
        gang.last_launch = self.launches;
        gang.outcome.launched += 1;
        let waited =
            gang.complete_since.take().map_or(Duration::ZERO, |since| self.now.saturating_sub(since));
        gang.outcome.waited = gang.outcome.waited.saturating_add(waited);
        for member in &mut gang.members {
            (member.arrived, member.grant, member.runs) = (false, None, true);
            self.running[member.rank] = Some(GangId(index));
        }
    }

    /// Returns the index of a member that satisfies a condition.
    fn member(&self, gang: GangId, rank: usize, is: impl Fn(&Member) -> bool) -> Result<usize, Error> {
        let found = self
            .by_id
            .get(gang.0)
            .and_then(|gang| gang.members.iter().position(|member| member.rank == rank && is(member)));
        found.ok_or(Error::NotAMember { gang, rank: Some(rank) })
    }
}

impl Gang {
    /// Whether all members have arrived.
    fn is_complete(&self) -> bool {
        self.members.iter().all(|member| member.arrived)
    }

    fn awaits_grants(&self) -> bool {
        !self.failed && self.members.iter().all(|member| member.arrived && !member.runs)
    }

    /// Whether all members have arrived and their grants hold at `now`.
    fn is_granted(&self, now: Duration) -> bool {
        let holds = |member: &Member| member.grant.is_some_and(|until| now <= until);
        self.awaits_grants() && self.members.iter().all(holds)
    }
}
