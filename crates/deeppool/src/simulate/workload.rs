//! The work of one rank of a simulation, for the benchmark of multiplexer policies.

use gpu_mux::Workload;

use super::steps::RankClass;
use super::times::ProgramTimes;
use super::{BackgroundCosts, SimulateOptions, with_partner_waits};
use crate::Error;
use crate::costs::Costs;
use crate::program::Program;

/// Returns the work of the device of rank `rank` in every iteration, for [`Workload::simulate`] and
/// `mux-bench`: an iteration of the rank's program and an iteration of the background.
/// Each communication step waits for other ranks as long as it would if the foreground ran alone on
/// [undisturbed](super::undisturbed) devices.
///
/// # Errors
/// [`Error::NoSuchRank`] if the program has no such rank. [`Error::Profile`] if the profile lacks a
/// time. [`Error::Program`] if the program can never end.
pub fn workload(
    program: &Program,
    costs: &Costs<'_>,
    rank: usize,
    background: &BackgroundCosts,
) -> Result<Workload, Error> {
    let ranks = program.world();
    let classes = RankClass::of_ranks(program, costs, &ProgramTimes::new(program, costs)?)?;
    let (classes, _) = with_partner_waits(program, classes, &SimulateOptions::default())?;
    let has_rank = |class: &RankClass<'_>| {
        class.programs.iter().any(|program| program.represented_ranks.contains(&rank))
    };
    let class = classes.into_iter().find(has_rank).ok_or(Error::NoSuchRank { rank, ranks })?;
    let name = format!(
        "rank {rank} of {ranks} that train {} with batch {} on {}; background with batch {}",
        costs.network().name(),
        program.batch,
        costs.profile().device(),
        background.batch(),
    );
    Ok(Workload { name, foreground: class.steps.iteration, background: background.iteration().clone() })
}
