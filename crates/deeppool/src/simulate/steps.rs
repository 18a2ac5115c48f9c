//! The steps that a rank's device runs, and the classes of ranks whose steps are equal. The
//! partners of a rank at a collective are the other ranks of the collective.

use std::time::Duration;

use gpu_mux::{Communication, Iteration, Kernel, StepWork, WorkloadStep};

use super::times::ProgramTimes;
use crate::Error;
use crate::costs::{Costs, KernelCost};
use crate::program::{Collective, CollectiveId, CollectiveOp, Op, Program, RankProgram, Step};

/// The work of a rank's program on its virtual device: the steps that take time, each with the step
/// on the other lane that it waits for.
///
/// Every collective is a step, since it may wait for other ranks.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RankSteps {
    /// The collectives, and the other steps that take time, in launch order.
    pub(super) iteration: Iteration,
    /// For each step of `iteration`, the index of the step in the rank's program, and, if it is a
    /// collective, the id of the collective.
    pub(super) origins: Vec<(usize, Option<CollectiveId>)>,
}

/// Ranks that run the same steps for the same times, which are simulated once.
#[derive(Debug, Clone)]
pub(super) struct RankClass<'a> {
    /// The steps that each rank of the class runs.
    pub(super) steps: RankSteps,
    /// Programs of the ranks of the class. One program may represent several ranks.
    pub(super) programs: Vec<&'a RankProgram>,
    /// Number of ranks of the class.
    pub(super) ranks: usize,
    /// The numbers of the ranks.
    pub(super) represented_ranks: Vec<usize>,
    /// For each distributed background job that the ranks are members of, its index and the class
    /// of its members.
    pub(super) members: Vec<(usize, usize)>,
}

impl<'a> RankClass<'a> {
    /// Returns the maximum memory of a rank of the class, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.programs.iter().map(|program| program.total_bytes()).max().unwrap_or_default()
    }

    /// Returns the classes of a program's ranks, sorted by their first rank.
    ///
    /// # Errors
    /// [`Error::Program`] for collectives that can never end, because a rank takes no part in one,
    /// or issues them in another order than the program's. [`Error::Profile`] if the profile lacks
    /// a time.
    pub(super) fn of_ranks(
        program: &'a Program,
        costs: &Costs<'_>,
        times: &ProgramTimes,
    ) -> Result<Vec<Self>, Error> {
        let transfers = program.collectives.iter().zip(&times.transfers);
        let transfers: Vec<Transfer> =
            transfers.map(|(collective, &takes)| Transfer::new(collective, takes)).collect();
        let takes_part = collectives_by_rank(program)?;
        let mut classes: Vec<Self> = Vec::new();
        for (rank, times) in program.ranks.iter().zip(&times.steps) {
            let steps = RankSteps::new(program, rank, &transfers, (costs, times))?;
            let comes_to = || steps.origins.iter().filter_map(|(_, collective)| Some(collective.as_ref()?.0));
            let other =
                rank.represented_ranks.iter().find(|rank| !comes_to().eq(takes_part[**rank].iter().copied()));
            if let Some(rank) = other {
                let expected = "the collectives that it takes part in, in the program's order";
                return Err(Error::Program(format!("rank {rank} does not issue {expected}")));
            }
            match classes.iter_mut().find(|class| class.steps == steps) {
                Some(class) => {
                    class.programs.push(rank);
                    class.ranks += rank.represented_ranks.len();
                    class.represented_ranks.extend(&rank.represented_ranks);
                }
                None => {
                    classes.push(Self {
                        steps,
                        programs: vec![rank],
                        ranks: rank.represented_ranks.len(),
                        represented_ranks: rank.represented_ranks.clone(),
                        members: Vec::new(),
                    });
                }
            }
        }
        Ok(classes)
    }

    /// Divides the classes, so that the ranks of a class also run the same steps of the same
    /// distributed background jobs. `members_of` returns for a rank the index of each of its jobs
    /// with the index of its class in the job.
    pub(super) fn divided(
        classes: Vec<Self>,
        members_of: impl Fn(usize) -> Vec<(usize, usize)>,
    ) -> Vec<Self> {
        let mut divided: Vec<Self> = Vec::new();
        for class in classes {
            let first = divided.len();
            for &rank in &class.represented_ranks {
                let members = members_of(rank);
                match divided[first..].iter_mut().find(|class| class.members == members) {
                    Some(class) => class.represented_ranks.push(rank),
                    None => divided.push(Self { represented_ranks: vec![rank], members, ..class.clone() }),
                }
            }
            divided[first..].iter_mut().for_each(|class| class.ranks = class.represented_ranks.len());
        }
        divided
    }

    /// Sets the expected wait of each communication step: the time from the end of the rank's
    /// previous communication to the arrival of its last partner. `partners` has one time per step
    /// of the iteration; those of compute steps are ignored.
    pub(super) fn with_partner_waits(mut self, partners: &[Duration]) -> Self {
        for (step, &expected) in self.steps.iteration.steps.iter_mut().zip(partners) {
            if let StepWork::Communication { partners_after, .. } = &mut step.work {
                *partners_after = expected;
            }
        }
        self
    }
}

/// Returns the collectives of each rank, ascending.
fn collectives_by_rank(program: &Program) -> Result<Vec<Vec<usize>>, Error> {
    let ranks = program.world();
    let represented_ranks = program.ranks.iter().flat_map(|rank| &rank.represented_ranks);
    let of_collectives = program.collectives.iter().flat_map(|collective| &collective.ranks);
    if let Some(&rank) = represented_ranks.chain(of_collectives).find(|&&rank| rank >= ranks) {
        return Err(Error::NoSuchRank { rank, ranks });
    }
    let mut by_rank = vec![Vec::new(); ranks];
    for (id, collective) in program.collectives.iter().enumerate() {
        for &rank in &collective.ranks {
            by_rank[rank].push(id);
        }
    }
    Ok(by_rank)
}

/// A collective in the device model.
struct Transfer {
    takes: Duration,
    all_reduces: bool,
    /// The receiving ranks, ascending; empty for an all-reduce.
    receivers: Vec<usize>,
}

impl Transfer {
    fn new(collective: &Collective, takes: Duration) -> Self {
        let mut receivers = match &collective.op {
            CollectiveOp::Redistribute { redistribution, .. } => {
                redistribution.moves().iter().map(|m| m.to_rank).collect()
            }
            CollectiveOp::Broadcast { .. } => {
                collective.groups().flat_map(|group| group.get(1..).unwrap_or_default()).copied().collect()
            }
            CollectiveOp::AllReduce { .. } => Vec::new(),
        };
        receivers.sort_unstable();
        receivers.dedup();
        let all_reduces = matches!(collective.op, CollectiveOp::AllReduce { .. });
        Self { takes, all_reduces, receivers }
    }

    /// Returns what a rank does in the collective: all-reduce, receive or only send.
    fn of(&self, rank: usize) -> Communication {
        match self.receivers.binary_search(&rank) {
            _ if self.all_reduces => Communication::AllReduce,
            Ok(_) => Communication::Receive,
            Err(_) => Communication::Send,
        }
    }
}

impl RankSteps {
    fn new(
        program: &Program,
        rank: &RankProgram,
        transfers: &[Transfer],
        (costs, times): (&Costs<'_>, &[Duration]),
    ) -> Result<Self, Error> {
        let steps = rank.steps.iter().zip(times);
        let works = steps.map(|(step, &takes)| work(rank, &step.op, transfers, (costs, takes)));
        let mut works = works.collect::<Result<Vec<_>, Error>>()?;
        let launches = rank.launches(|step| works[step.0].is_some());
        let mut steps = Vec::with_capacity(launches.len());
        let mut origins = Vec::with_capacity(launches.len());
        for launch in launches {
            let (index, Step { op, label, .. }) = (launch.step.0, &rank.steps[launch.step.0]);
            let Some(work) = works[index].take() else { continue };
            steps.push(WorkloadStep { name: label.clone(), work, after: launch.after });
            origins.push((index, if let Op::Collective(id) = op { Some(*id) } else { None }));
        }
        Ok(Self { iteration: Iteration { samples: program.batch, steps }, origins })
    }
}

fn work(
    rank: &RankProgram,
    op: &Op,
    transfers: &[Transfer],
    (costs, takes): (&Costs<'_>, Duration),
) -> Result<Option<StepWork>, Error> {
    if let Op::Collective(id) = op {
        let no_such = || {
            Error::Program(format!("rank {} issues a collective #{} that does not exist", rank.rank, id.0))
        };
        let transfer = transfers.get(id.0).ok_or_else(no_such)?;
        return Ok(Some(StepWork::Communication {
            transfer: transfer.takes,
            partners_after: Duration::ZERO,
            communication: transfer.of(rank.rank),
        }));
    }
    let costs = costs.kernels(rank, op, takes);
    Ok(if costs.is_empty() { None } else { Some(StepWork::Compute(kernels(&costs)?)) })
}

/// Converts kernel costs to kernels of the virtual device, in the same order.
///
/// # Errors
/// [`Error::Mux`] for a cost that is out of range.
pub(super) fn kernels(costs: &[KernelCost]) -> Result<Vec<Kernel>, Error> {
    costs
        .iter()
        .map(|cost| Ok(Kernel::new(cost.duration, cost.share, cost.memory)?.in_waves(cost.waves)))
        .collect()
}
