//! What a choice of options costs under a schedule: the definition that searches are checked against.

use super::layout::widths;
use super::reduce::of_valid;
use super::region::{Link, Region};
use super::schedule::Schedule;
use crate::totals::chosen_options;
use crate::{Error, PlanProblem, Result, Totals, evaluate};

/// Adds up what `choice` costs under a schedule, where `choice[n]` is the index of the option that node `n` takes.
///
/// With the default schedule this is [`evaluate`]. The memory limit is not checked;
/// [`layout`](crate::layout) says what every rank holds. Time `O((nodes + edges) log(nodes + edges))`.
///
/// # Errors
/// What [`PlanProblem::validate`] reports, [`Error::ChoiceLength`], [`Error::ChoiceOption`], [`Error::NoSuchRegion`],
/// [`Error::BadWaves`], [`Error::WaveTooWide`], [`Error::NoDisjointTransfer`].
pub fn evaluate_schedule(problem: &PlanProblem, choice: &[usize], schedule: &Schedule) -> Result<Totals> {
    problem.validate()?;
    if schedule.regions.is_empty() {
        return evaluate(problem, choice);
    }
    let options = chosen_options(problem, choice)?;
    let regions = of_valid(problem);
    let waves = schedule.waves(problem, &regions)?;
    widths(problem, &regions, &waves, &options)?;
    let disjoint = disjoint_because_of(problem.edges.len(), &regions, &waves);

    let mut edge_us = Vec::with_capacity(problem.edges.len());
    let mut gpu_time_us: f64 = options.iter().map(|option| option.gpus as f64 * option.total_us()).sum();
    for (edge, disjoint) in problem.edges.iter().zip(&disjoint) {
        let (from, to) = (options[edge.from.0].gpus, options[edge.to.0].gpus);
        let (matrix, gpus) = match *disjoint {
            None => (&edge.transfer_us, from.max(to)),
            Some(region) => {
                let Some(matrix) = &edge.transfer_disjoint_us else {
                    let (fork, join) = regions[region].names(problem);
                    let name = |node: usize| problem.nodes[node].name.clone();
                    return Err(Error::NoDisjointTransfer {
                        fork,
                        join,
                        from: name(edge.from.0),
                        to: name(edge.to.0),
                    });
                };
                (matrix, from + to)
            }
        };
        let transfer_us = matrix[choice[edge.from.0]][choice[edge.to.0]];
        edge_us.push(transfer_us);
        gpu_time_us += gpus as f64 * transfer_us;
    }

    let mut is_inside = vec![false; problem.nodes.len()];
    let mut is_inside_edge = vec![false; problem.edges.len()];
    let mut region_us = vec![0.0; regions.len()];
    for (index, region) in regions.iter().enumerate().rev() {
        let branches = region.branches.iter().map(|branch| {
            let nodes = branch.nodes.iter().map(|&node| options[node.0].total_us());
            let links = branch.links.iter().map(|link| match *link {
                Link::Edge(edge) => edge_us[edge],
                Link::Region(inner) => region_us[inner],
            });
            nodes.chain(links).sum::<f64>()
        });
        let branch_us: Vec<f64> = branches.collect();
        let slowest = |wave: &Vec<usize>| wave.iter().map(|&branch| branch_us[branch]).fold(0.0, f64::max);
        region_us[index] = waves[index].iter().map(slowest).sum();
        for branch in &region.branches {
            branch.nodes.iter().for_each(|&node| is_inside[node.0] = true);
            for link in &branch.links {
                if let Link::Edge(edge) = *link {
                    is_inside_edge[edge] = true;
                }
            }
        }
    }
    let outer_nodes = options.iter().zip(&is_inside).filter(|(_, inside)| !**inside);
    let outer_edges = edge_us.iter().zip(&is_inside_edge).filter(|(_, inside)| !**inside);
    let outermost = regions.iter().zip(&region_us).filter(|(region, _)| region.parent.is_none());
    let iteration_us = outer_nodes.map(|(option, _)| option.total_us()).sum::<f64>()
        + outer_edges.map(|(us, _)| us).sum::<f64>()
        + outermost.map(|(_, us)| us).sum::<f64>();
    Ok(Totals { iteration_us, gpu_time_us, amplification: gpu_time_us / problem.single_gpu_time_us() })
}

/// For each edge whose ends share no rank, a region with a wave that says so.
fn disjoint_because_of(edges: usize, regions: &[Region], waves: &[Vec<Vec<usize>>]) -> Vec<Option<usize>> {
    let mut edge_disjoint = vec![None; edges];
    // Of the edges from the fork and of those to the join of each region, because of what it is nested in.
    let mut inherited = vec![[None; 2]; regions.len()];
    for (index, region) in regions.iter().enumerate() {
        for wave in &waves[index] {
            for (place, &member) in wave.iter().enumerate() {
                let [entry, exit] = if place == 0 { inherited[index] } else { [Some(index); 2] };
                let links = &region.branches[member].links;
                for (position, link) in links.iter().enumerate() {
                    let entry = entry.filter(|_| position == 0);
                    let exit = exit.filter(|_| position + 1 == links.len());
                    match *link {
                        Link::Edge(edge) => edge_disjoint[edge] = entry.or(exit),
                        Link::Region(inner) => inherited[inner] = [entry, exit],
                    }
                }
            }
        }
    }
    edge_disjoint
}
