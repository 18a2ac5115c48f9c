use std::time::Duration;

use gpu_mux::{Iteration, Kernel, Step, StepWork};

use crate::Error;
use crate::costs::{Costs, KernelCost};
use crate::program::{CollectiveId, CollectiveOp, Op, Program, RankProgram};

/// A rank's program as its device sees it: the steps that take time, and what each of them waits for on the other lane.
///
/// Every collective takes time, if only that of waiting for its ranks.
#[derive(Debug, Clone)]
pub(super) struct RankSteps {
    pub(super) iteration: Iteration,
    /// By step of the iteration: the step of the program, and the collective that it is.
    pub(super) origins: Vec<(usize, Option<CollectiveId>)>,
}

impl RankSteps {
    /// The steps of every rank.
    ///
    /// [`Error::Program`] for collectives that could not end, because a rank takes no part in one or comes to them in
    /// another order than the program's.
    pub(super) fn of_ranks(program: &Program, costs: &Costs<'_>) -> Result<Vec<Self>, Error> {
        let ranks = program.ranks.iter().map(|rank| Self::new(program, rank, costs));
        let ranks = ranks.collect::<Result<Vec<_>, Error>>()?;
        for (rank, steps) in ranks.iter().enumerate() {
            let comes_to = steps.origins.iter().filter_map(|(_, collective)| Some(collective.as_ref()?.0));
            let all = program.collectives.iter().enumerate();
            let takes_part = all.filter(|(_, collective)| collective.ranks.contains(&rank));
            if !comes_to.eq(takes_part.map(|(id, _)| id)) {
                let expected = "the collectives that it takes part in, in the program's order";
                return Err(Error::Program(format!("rank {rank} does not come to {expected}")));
            }
        }
        Ok(ranks)
    }

    fn new(program: &Program, rank: &RankProgram, costs: &Costs<'_>) -> Result<Self, Error> {
        let mut steps = Vec::new();
        let mut origins = Vec::new();
        // By lane: its last step that takes time, and what the steps since then wait for on the other lane.
        let mut last: [Option<usize>; 2] = [None; 2];
        let mut waits: [Option<usize>; 2] = [None; 2];
        // By step of the program: the last step of its lane that takes time, up to and with it. Since a lane
        // keeps its order, waiting for that is waiting for the step.
        let mut ends_with: Vec<Option<usize>> = Vec::with_capacity(rank.steps.len());
        for (index, step) in rank.steps.iter().enumerate() {
            let lane = step.lane();
            let others = step.after.iter().filter(|after| rank.steps[after.0].lane() != lane);
            let latest = others.filter_map(|after| ends_with[after.0]).max();
            waits[lane as usize] = waits[lane as usize].max(latest);
            if let Some(work) = work(program, rank.rank, &step.op, costs)? {
                let collective = if let Op::Collective(id) = step.op { Some(id) } else { None };
                last[lane as usize] = Some(steps.len());
                steps.push(Step { name: step.label.clone(), work, after: waits[lane as usize].take() });
                origins.push((index, collective));
            }
            ends_with.push(last[lane as usize]);
        }
        Ok(Self { iteration: Iteration { samples: program.batch, steps }, origins })
    }

    /// The same steps, with how long after the communication before it the partners of each communication come.
    pub(super) fn expecting(mut self, partners: &[Duration]) -> Self {
        for (step, &expected) in self.iteration.steps.iter_mut().zip(partners) {
            if let StepWork::Communication { partners_after, .. } = &mut step.work {
                *partners_after = expected;
            }
        }
        self
    }
}

fn work(program: &Program, rank: usize, op: &Op, costs: &Costs<'_>) -> Result<Option<StepWork>, Error> {
    if let Op::Collective(id) = op {
        let collective = &program.collectives[id.0];
        let receives = match &collective.op {
            CollectiveOp::Redistribute { redistribution, .. } => redistribution.sent_bytes(rank, 1) == 0,
            CollectiveOp::Broadcast { .. } => collective.ranks.first() != Some(&rank),
            CollectiveOp::AllReduce { .. } => false,
        };
        let transfer = costs.collective(&collective.op, collective.ranks.len());
        return Ok(Some(StepWork::Communication { transfer, partners_after: Duration::ZERO, receives }));
    }
    let costs = costs.kernels(op)?;
    Ok(if costs.is_empty() { None } else { Some(StepWork::Compute(kernels(&costs)?)) })
}

/// Kernels as a device sees them.
pub(super) fn kernels(costs: &[KernelCost]) -> Result<Vec<Kernel>, Error> {
    costs
        .iter()
        .map(|cost| Ok(Kernel::new(cost.takes, cost.share, cost.memory)?.in_waves(cost.waves)))
        .collect()
}
