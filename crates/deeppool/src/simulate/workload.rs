use gpu_mux::Workload;

use super::steps::RankClass;
use super::{BackgroundCosts, SimulateOptions, expected};
use crate::Error;
use crate::costs::Costs;
use crate::program::Program;

/// What one rank's device does in every iteration, for [`Workload::simulate`] and `mux-bench`: an iteration of the rank's
/// program, whose communication waits for its partners for as long as it does when the foreground runs by itself on
/// [undisturbed](super::undisturbed) devices, and an iteration of the background.
///
/// # Errors
/// When there is no such rank, the profile lacks a time that is needed, or the program can never end.
pub fn workload(
    program: &Program,
    costs: &Costs<'_>,
    rank: usize,
    background: &BackgroundCosts,
) -> Result<Workload, Error> {
    let ranks = program.world();
    let classes = expected(program, RankClass::of_ranks(program, costs)?, &SimulateOptions::default())?;
    let has_rank =
        |class: &RankClass<'_>| class.programs.iter().any(|program| program.stands_for.contains(&rank));
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
