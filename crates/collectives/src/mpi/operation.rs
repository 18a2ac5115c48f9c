//! One operation on its way: first the headers, then the data.

use std::time::{Duration, Instant};

use super::engine::Lane;
use super::group::GroupState;
use super::header::{Header, verdict};
use super::library::{Failure, NAME};
use super::transfer::{Buffers, Transfer};
use super::work::Work;
use crate::{Call, Error, Result};

/// How long an operation that is overdue may still complete: a rank that did not poll for long finds its deadline
/// passed although everyone is there. It is also the time in which the others answer.
pub(super) const GRACE: Duration = Duration::from_millis(200);

/// What this rank has started and nobody has finished.
#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) group: usize,
    pub(super) lane: Lane,
    pub(super) call: Call,
    pub(super) started: Instant,
    /// When it was first found to be overdue.
    pub(super) overdue_since: Option<Instant>,
    /// Nobody will ask for its buffers.
    pub(super) abandoned: bool,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// Not all headers have come.
    Checking { own: (usize, Header), others: Vec<Receipt>, work: Option<Work> },
    /// The data moves.
    Moving(Transfer),
}

/// Another member's header, on its way or here.
#[derive(Debug)]
pub(super) struct Receipt {
    pub(super) member: usize,
    pub(super) transfer: Transfer,
}

/// How far a poll got.
#[derive(Debug)]
pub(super) enum Progress {
    /// Something is missing.
    Waiting,
    /// The operation is complete.
    Complete(Buffers),
}

impl UnderWay {
    /// An operation whose header is sent, and those of the others expected.
    pub(super) fn checking(
        group: usize,
        lane: Lane,
        own: (usize, Header),
        others: Vec<Receipt>,
        work: Option<Work>,
    ) -> Self {
        let call = own.1.call.clone();
        Self::new(group, lane, call, Phase::Checking { own, others, work })
    }

    /// An operation that begins without a check.
    pub(super) fn unchecked(group: usize, lane: Lane, call: Call, transfer: Transfer) -> Self {
        Self::new(group, lane, call, Phase::Moving(transfer))
    }

    fn new(group: usize, lane: Lane, call: Call, phase: Phase) -> Self {
        Self { group, lane, call, started: Instant::now(), overdue_since: None, abandoned: false, phase }
    }

    /// Whether its data has not begun to move, so that what comes after it in its lane has to wait.
    pub(super) fn holds_its_lane(&self) -> bool {
        matches!(self.phase, Phase::Checking { .. })
    }

    /// Whether all that this rank needs to know of the others' calls has come.
    pub(super) fn headers_are_here(&mut self, group: &GroupState) -> Result<bool> {
        let Phase::Checking { others, .. } = &mut self.phase else { return Ok(true) };
        for receipt in others {
            if !receipt.transfer.test().map_err(|failure| failure.error(group.world_rank(), &self.call))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Does what can be done without waiting, with all headers here.
    pub(super) fn advance(&mut self, group: &GroupState) -> Result<Progress> {
        let library_error = |failure: Failure, call: &Call| failure.error(group.world_rank(), call);
        if let Phase::Checking { own, others, work } = &mut self.phase {
            let not_understood = || Failure("a header of another version of this crate".into());
            let mut headers = vec![own.clone()];
            for receipt in others.iter() {
                let header = receipt.transfer.words().and_then(Header::decode);
                let header = header.filter(|header| header.sequence == own.1.sequence);
                let header = header.ok_or_else(|| library_error(not_understood(), &self.call))?;
                headers.push((receipt.member, header));
            }
            headers.sort_by_key(|(member, _)| *member);
            if let Some(error) = verdict(&headers, &group.members) {
                return Err(error);
            }
            // A call without work has a fault, which is in the verdict.
            let Some(work) = work.take() else { return Ok(Progress::Waiting) };
            // Whoever has all headers knows that everyone has come.
            if work.is_barrier() {
                return Ok(Progress::Complete(work.into_buffers()));
            }
            let transfer = Transfer::start_work(group.comm, work)
                .map_err(|failure| library_error(failure, &self.call))?;
            self.phase = Phase::Moving(transfer);
        }
        let Phase::Moving(transfer) = &mut self.phase else { return Ok(Progress::Waiting) };
        if !transfer.test().map_err(|failure| library_error(failure, &self.call))? {
            return Ok(Progress::Waiting);
        }
        Ok(transfer.take_buffers().map_or(Progress::Waiting, Progress::Complete))
    }

    /// The members whose headers have not come; `None` if the data moves, which says nothing about single members.
    pub(super) fn missing(&mut self) -> Option<Vec<usize>> {
        match &mut self.phase {
            Phase::Checking { others, .. } => {
                let absent = others.iter_mut().filter_map(|receipt| {
                    (!receipt.transfer.test().unwrap_or(false)).then_some(receipt.member)
                });
                Some(absent.collect())
            }
            Phase::Moving(_) => None,
        }
    }
}

impl Failure {
    /// As this rank's error.
    pub(super) fn error(self, rank: usize, call: &Call) -> Error {
        Error::Library { backend: NAME, rank, call: call.clone(), message: self.0 }
    }
}
