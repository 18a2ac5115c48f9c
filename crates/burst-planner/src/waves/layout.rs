//! Where everything runs under a schedule.

use std::ops::Range;

use super::reduce::of_valid;
use super::region::{Link, Region};
use super::schedule::Schedule;
use crate::totals::chosen_options;
use crate::{Error, NodeOption, PlanProblem, Result};

/// Where each node runs, and what that takes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Layout {
    /// The ranks of each node.
    pub ranks: Vec<Range<usize>>,
    /// For each node, the index of its wave in the innermost region that it belongs to; `None` outside of regions. Where no
    /// schedule says otherwise, each branch is a wave of its own.
    pub waves: Vec<Option<usize>>,
    /// What each rank of the problem holds: the sum over the nodes on it. An option that does not say its memory counts as
    /// zero.
    pub memory_bytes: Vec<u64>,
}

/// Lays out a choice of options under a schedule.
///
/// `choice[n]` is the index of the option that node `n` takes. The memory limit is not checked. Time
/// `O((nodes + edges) log(nodes + edges) + sum of the GPU counts)`.
///
/// # Errors
/// What [`PlanProblem::validate`] reports, [`Error::ChoiceLength`], [`Error::ChoiceOption`], [`Error::NoSuchRegion`],
/// [`Error::BadWaves`], [`Error::WaveTooWide`].
pub fn layout(problem: &PlanProblem, choice: &[usize], schedule: &Schedule) -> Result<Layout> {
    problem.validate()?;
    let options = chosen_options(problem, choice)?;
    let regions = of_valid(problem);
    let waves = schedule.waves(problem, &regions)?;
    let widths = widths(problem, &regions, &waves, &options)?;

    let mut layout = Layout {
        ranks: options.iter().map(|option| 0..option.gpus).collect(),
        waves: vec![None; problem.nodes.len()],
        memory_bytes: vec![0; problem.gpus],
    };
    let mut first_rank = vec![0; regions.len()];
    for (index, region) in regions.iter().enumerate() {
        for (wave, members) in waves[index].iter().enumerate() {
            let mut base = first_rank[index];
            for &member in members {
                let branch = &region.branches[member];
                for &node in &branch.nodes {
                    layout.ranks[node.0] = base..base + options[node.0].gpus;
                    layout.waves[node.0] = Some(wave);
                }
                for link in &branch.links {
                    if let Link::Region(inner) = *link {
                        first_rank[inner] = base;
                    }
                }
                base += widths[index][member];
            }
        }
    }
    for (ranks, option) in layout.ranks.iter().zip(&options) {
        for bytes in &mut layout.memory_bytes[ranks.clone()] {
            *bytes = bytes.saturating_add(option.memory_bytes.unwrap_or(0));
        }
    }
    Ok(layout)
}

/// The width of each branch of each region.
///
/// # Errors
/// [`Error::WaveTooWide`].
pub(super) fn widths(
    problem: &PlanProblem,
    regions: &[Region],
    waves: &[Vec<Vec<usize>>],
    options: &[&NodeOption],
) -> Result<Vec<Vec<usize>>> {
    let mut widths: Vec<Vec<usize>> = vec![Vec::new(); regions.len()];
    // Nested regions stand after those that they are nested in.
    for (index, region) in regions.iter().enumerate().rev() {
        let width = |branch: &super::Branch| {
            let nodes = branch.nodes.iter().map(|&node| options[node.0].gpus);
            let nested = branch.links.iter().map(|link| match *link {
                Link::Region(inner) => widths[inner].iter().copied().max().unwrap_or(0),
                Link::Edge(_) => 0,
            });
            nodes.chain(nested).max().unwrap_or(0)
        };
        widths[index] = region.branches.iter().map(width).collect();
    }
    for (index, region) in regions.iter().enumerate() {
        let available = region.parent.map_or(problem.gpus, |(outer, branch)| widths[outer][branch]);
        for (wave, members) in waves[index].iter().enumerate() {
            let gpus: usize = members.iter().map(|&branch| widths[index][branch]).sum();
            if gpus > available {
                let (fork, join) = region.names(problem);
                return Err(Error::WaveTooWide { fork, join, wave, gpus, available });
            }
        }
    }
    Ok(widths)
}
