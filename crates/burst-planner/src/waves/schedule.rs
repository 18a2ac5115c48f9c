//! Which branches run at once, as plain data, and the check that it makes sense.

use std::collections::BTreeMap;

use super::region::Region;
use crate::{Error, NodeId, PlanProblem, Result};

/// Which branches run at the same time. The default runs all branches one after another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schedule {
    /// The regions some of whose branches run at the same time, in any order, each once. The branches of a region that is not listed run
    /// one after another.
    pub regions: Vec<RegionSchedule>,
}

/// The waves of one region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionSchedule {
    /// The node where the region's branches part.
    pub fork: NodeId,
    /// The node where they meet.
    pub join: NodeId,
    /// The waves in the order in which they run. A wave is a list of branches, indices into [`Region::branches`], that run at the
    /// same time on ranks of their own; the next one begins when all of them have ended. Every branch is in exactly one wave.
    /// The first branch of a wave is on the region's first ranks, the others on the next ones in the order given.
    pub waves: Vec<Vec<usize>>,
}

impl Schedule {
    /// The waves of each region, in the order of `regions`.
    ///
    /// # Errors
    /// [`Error::NoSuchRegion`], [`Error::BadWaves`].
    pub(crate) fn waves(&self, problem: &PlanProblem, regions: &[Region]) -> Result<Vec<Vec<Vec<usize>>>> {
        let number: BTreeMap<(NodeId, NodeId), usize> =
            regions.iter().enumerate().map(|(index, region)| ((region.fork, region.join), index)).collect();
        let mut waves: Vec<Option<Vec<Vec<usize>>>> = vec![None; regions.len()];
        for scheduled in &self.regions {
            let Some(&index) = number.get(&(NodeId(scheduled.fork.0), NodeId(scheduled.join.0))) else {
                let name = |node: usize| match problem.nodes.get(node) {
                    Some(node) => node.name.clone(),
                    None => format!("number {node}"),
                };
                return Err(Error::NoSuchRegion {
                    fork: name(scheduled.fork.0),
                    join: name(scheduled.join.0),
                });
            };
            let fault = match waves[index] {
                Some(_) => Some("the region is listed twice".into()),
                None => fault(&scheduled.waves, regions[index].branches.len()),
            };
            if let Some(message) = fault {
                let (fork, join) = regions[index].names(problem);
                return Err(Error::BadWaves { fork, join, message });
            }
            waves[index] = Some(scheduled.waves.clone());
        }
        let serial = |region: &Region| (0..region.branches.len()).map(|branch| vec![branch]).collect();
        Ok(waves
            .into_iter()
            .zip(regions)
            .map(|(waves, region)| waves.unwrap_or_else(|| serial(region)))
            .collect())
    }
}

impl Region {
    /// Names of fork and join.
    pub(crate) fn names(&self, problem: &PlanProblem) -> (String, String) {
        (problem.nodes[self.fork.0].name.clone(), problem.nodes[self.join.0].name.clone())
    }
}

/// Why the waves do not hold every branch once, if so.
fn fault(waves: &[Vec<usize>], branches: usize) -> Option<String> {
    let mut seen = vec![false; branches];
    for (index, wave) in waves.iter().enumerate() {
        if wave.is_empty() {
            return Some(format!("wave {index} has no branches"));
        }
        for &branch in wave {
            match seen.get_mut(branch) {
                None => return Some(format!("branch {branch} does not exist, there are {branches}")),
                Some(true) => return Some(format!("branch {branch} is listed twice")),
                Some(unseen) => *unseen = true,
            }
        }
    }
    seen.iter().position(|seen| !seen).map(|branch| format!("branch {branch} is missing"))
}
