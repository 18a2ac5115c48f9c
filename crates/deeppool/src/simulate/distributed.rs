//! A background job on several ranks, by the times of its steps. Its *members* are the ranks on
//! which it has steps.

use std::time::Duration;

use gpu_mux::Iteration;

use super::steps::RankClass;
use super::times::ProgramTimes;
use super::{SimulateOptions, simulate};
use crate::Error;
use crate::batch::check_batch;
use crate::costs::Costs;
use crate::job::Job;
use crate::plan::ExecutionPlan;
use crate::program::{Collective, CollectiveOp, LowerOptions, LoweredTraining, Placement};

/// One background job on a set of ranks, with a program and collectives of its own.
///
/// It shares the ranks' devices with the foreground and with other background jobs. Its collectives
/// run in [gang windows](gpu_mux::Gangs).
#[derive(Debug, Clone, PartialEq)]
pub struct DistributedBackground {
    name: String,
    batch: usize,
    ranks: Vec<usize>,
    /// The classes of equal members, which run the same steps.
    pub(super) classes: Vec<MemberClass>,
    /// The collectives of an iteration.
    pub(super) collectives: Vec<MemberCollective>,
    iteration_alone: Duration,
}

/// Members that run the same steps for the same times.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MemberClass {
    /// The members, ascending.
    pub(super) ranks: Vec<usize>,
    /// Steps of an iteration.
    pub(super) iteration: Iteration,
    /// Index of the collective of each step; `None` for compute.
    pub(super) collectives: Vec<Option<usize>>,
    /// Maximum memory of a member, in bytes.
    pub(super) memory_bytes: u64,
}

/// A collective of a distributed background job.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MemberCollective {
    /// Ranks that take part, ascending.
    pub(super) ranks: Vec<usize>,
    /// Time of the transfer.
    pub(super) takes: Duration,
    /// Part of that time which does not depend on the number of bytes.
    pub(super) latency: Duration,
}

impl MemberCollective {
    fn new(collective: &Collective, costs: &Costs<'_>) -> Self {
        let takes = costs.collective_time(collective);
        let smallest = match &collective.op {
            CollectiveOp::AllReduce { .. } | CollectiveOp::Redistribute { .. } => {
                CollectiveOp::AllReduce { elements: 1 }
            }
            CollectiveOp::Broadcast { .. } => CollectiveOp::Broadcast { elements: 1 },
        };
        let latency = costs.collective_time(&Collective { op: smallest, ..collective.clone() });
        let mut ranks = collective.ranks.clone();
        ranks.sort_unstable();
        Self { ranks, takes, latency: latency.min(takes) }
    }
}

impl DistributedBackground {
    /// Creates a data-parallel job with a global batch of `batch` samples on `ranks`, of which each
    /// has a part of the samples. Of more ranks than samples, only the first ones are members.
    ///
    /// # Errors
    /// [`Error::EmptyBatch`] for an empty batch, [`Error::Setting`] for more than 2^20 samples,
    /// [`Error::Placement`] without ranks or with a rank that is given twice,
    /// [`Error::Collectives`] for a rank beyond the links, and [`Error::Profile`] if the profile
    /// lacks a time.
    pub fn data_parallel(costs: &Costs<'_>, batch: usize, ranks: &[usize]) -> Result<Self, Error> {
        check_batch(batch)?;
        let network = costs.network();
        let layers = network.computing_layers().len();
        let ranks = &ranks[..ranks.len().min(batch)];
        let world = ranks.iter().max().map_or(1, |last| last + 1);
        let placement = Placement::new(network, world, vec![ranks.to_vec(); layers])?;
        let lowering = LowerOptions::default();
        Self::new(costs, &LoweredTraining::new(network, placement, batch, lowering))
    }

    /// Creates a job by a plan of `job`, whose rank i is the i-th of `ranks`.
    ///
    /// # Errors
    /// [`Error::Placement`] for fewer ranks than the plan has, or a rank that is given twice.
    /// Otherwise as [`Job::placement`] and [`data_parallel`](Self::data_parallel).
    pub fn by_plan(job: &Job<'_>, plan: &ExecutionPlan, ranks: &[usize]) -> Result<Self, Error> {
        let placement = job.placement(plan)?.on_ranks(ranks)?;
        let network = job.costs().network();
        Self::new(job.costs(), &LoweredTraining::new(network, placement, job.batch(), job.lowering().clone()))
    }

    fn new(costs: &Costs<'_>, training: &LoweredTraining<'_>) -> Result<Self, Error> {
        costs.link().check_ranks(training.placement().world())?;
        let program = training.for_simulation()?;
        let times = ProgramTimes::new(program, costs)?;
        let classes = RankClass::of_ranks(program, costs, &times)?;
        let member_class = |class: RankClass<'_>| {
            let memory_bytes = class.memory_bytes();
            let mut ranks: Vec<usize> =
                class.programs.iter().flat_map(|program| &program.represented_ranks).copied().collect();
            ranks.sort_unstable();
            let collectives = class.steps.origins.iter().map(|(_, collective)| collective.map(|id| id.0));
            MemberClass {
                ranks,
                collectives: collectives.collect(),
                iteration: class.steps.iteration,
                memory_bytes,
            }
        };
        let classes = classes.into_iter().filter(|class| !class.steps.iteration.steps.is_empty());
        let classes: Vec<MemberClass> = classes.map(member_class).collect();
        let mut ranks: Vec<usize> = classes.iter().flat_map(|class| &class.ranks).copied().collect();
        ranks.sort_unstable();
        let alone = simulate(program, costs, &SimulateOptions::default().with_iterations(3))?;
        Ok(Self {
            name: costs.network().name().into(),
            batch: program.batch * program.iterations.max(1),
            ranks,
            classes,
            collectives: program
                .collectives
                .iter()
                .map(|collective| MemberCollective::new(collective, costs))
                .collect(),
            iteration_alone: alone.iteration,
        })
    }

    /// Returns the name of the network.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of samples of an iteration, over all members.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Returns the members: the ranks on which the job has steps, ascending.
    #[must_use]
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// Returns the duration of an iteration on devices without a foreground.
    #[must_use]
    pub fn iteration_alone(&self) -> Duration {
        self.iteration_alone
    }

    /// Returns the samples per second, over all members, on devices without a foreground.
    #[must_use]
    pub fn samples_per_s_alone(&self) -> f64 {
        self.batch as f64 / self.iteration_alone.as_secs_f64()
    }

    /// Whether the members communicate.
    #[must_use]
    pub fn has_collectives(&self) -> bool {
        !self.collectives.is_empty()
    }

    /// Returns the memory that the job needs on a rank, in bytes; 0 on a rank that is no member.
    #[must_use]
    pub fn memory_bytes(&self, rank: usize) -> u64 {
        let class = self.classes.iter().find(|class| class.ranks.binary_search(&rank).is_ok());
        class.map_or(0, |class| class.memory_bytes)
    }

    /// Returns the index of the class of a member; `None` for another rank.
    pub(super) fn class_of(&self, rank: usize) -> Option<usize> {
        self.classes.iter().position(|class| class.ranks.binary_search(&rank).is_ok())
    }
}
