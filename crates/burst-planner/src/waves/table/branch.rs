//! What one branch can be, from every option of its fork to every option of its join.

use super::front::{Front, Layer, Times};
use super::plans::{Apart, BranchFronts, ByWidth, RegionFronts};
use super::solve::Outermost;
use super::trace::{Entry, NOTHING};
use crate::waves::region::{Branch, Link, Region};
use crate::{NodeOption, Result};

/// Plans that use no more than a width: all of them (none where widths do not matter), and those of exactly this width.
type Within<F> = [F; 2];

impl<F: Front> Outermost<'_, F> {
    /// # Errors
    /// [`Error::TooManyLabels`](crate::Error::TooManyLabels).
    pub(super) fn branch(
        &mut self,
        region: usize,
        index: usize,
        possible: &[Apart],
    ) -> Result<BranchFronts<F>> {
        let regions = self.regions;
        let (outer, branch) = (&regions[region], &regions[region].branches[index]);
        let mark = self.traces.len();
        let mut fronts =
            BranchFronts { first: Default::default(), other: Vec::new(), is_skip: branch.nodes.is_empty() };
        for apart in Apart::ALL {
            let is_first = possible.contains(&apart);
            if !is_first && apart != Apart::BOTH {
                continue;
            }
            let found = self.between(outer, branch, apart)?;
            let mut placed = |is_first: bool| {
                let entry = Entry::Placed { region: region as u32, branch: index as u32, is_first };
                let trace = self.traces.push(entry);
                let mut placed = found.clone();
                for (_, front) in
                    placed.iter_mut().flat_map(|widths| widths.useful.iter_mut().chain(&mut widths.exact))
                {
                    front.append(trace, &mut self.traces);
                }
                placed
            };
            if is_first {
                fronts.first[apart.index()] = placed(true);
            }
            if apart == Apart::BOTH {
                fronts.other = placed(false);
            }
        }
        let all = fronts.first.iter_mut().flatten().chain(&mut fronts.other);
        let all = all.flat_map(|widths| widths.useful.iter_mut().chain(&mut widths.exact));
        self.traces.keep_only(mark, all.flat_map(|(_, front)| front.traces()));
        self.check_labels()?;
        Ok(fronts)
    }

    /// All pairs of options of fork and join.
    fn between(&mut self, outer: &Region, branch: &Branch, apart: Apart) -> Result<Vec<ByWidth<F>>> {
        let joins = self.problem.nodes[outer.join.0].options.len();
        let forks = self.problem.nodes[outer.fork.0].options.len();
        let mut found: Vec<ByWidth<F>> = vec![ByWidth::default(); forks * joins];
        let is_nested = outer.parent.is_some();
        let has_nested = branch.links.iter().any(|link| matches!(link, Link::Region(_)));
        let exactly = is_nested || has_nested || F::BY_RANK;
        for fork in 0..forks {
            for width in 0..self.counts.len() {
                if branch.nodes.is_empty() && width > 0 {
                    continue;
                }
                let last = self.along(branch, apart.entry, fork, width, exactly)?;
                for join in 0..joins {
                    let link = branch.links.len() - 1;
                    let apart = Apart { entry: apart.entry && link == 0, exit: apart.exit };
                    let [_, mut front] = self.follow(&last, branch.links[link], join, apart, width)?;
                    front.settle(&mut self.traces);
                    front.thin(self.tolerance.step);
                    let widths = &mut found[fork * joins + join];
                    let gpus = if branch.nodes.is_empty() { 0 } else { self.counts[width] };
                    if exactly && is_nested {
                        widths.exact.push((gpus, front.clone()));
                    }
                    if !F::BY_RANK {
                        widths.useful.iter().for_each(|(_, smaller)| front.drop_dominated_by(smaller));
                    }
                    widths.useful.push((gpus, front));
                }
            }
        }
        Ok(found)
    }

    /// The plans from an option of the fork to each option of the branch's last node.
    fn along(
        &mut self,
        branch: &Branch,
        entry: bool,
        fork: usize,
        width: usize,
        exactly: bool,
    ) -> Result<Vec<(usize, Within<F>)>> {
        let gpus = self.counts[width];
        let one = F::one(Times::default(), NOTHING, self.ranks);
        // A skip connection is as wide as it can be.
        let start =
            if exactly && !branch.nodes.is_empty() { [one, F::default()] } else { [F::default(), one] };
        let mut states = vec![(fork, start)];
        for (position, &node) in branch.nodes.iter().enumerate() {
            let apart = Apart { entry: entry && position == 0, exit: false };
            let mut next = Vec::new();
            for (option, chosen) in self.problem.nodes[node.0].options.iter().enumerate() {
                if chosen.gpus > gpus {
                    continue;
                }
                let mut within = self.follow(&states, branch.links[position], option, apart, width)?;
                let layer = self.layer(node.0, option, chosen);
                if chosen.gpus == gpus && exactly {
                    within[1] = within[0].clone();
                }
                if within.iter().any(|front| front.len() > self.most) {
                    return Err(self.too_many_labels());
                }
                for front in &mut within {
                    front.settle(&mut self.traces);
                    front.add_layer(&layer, &mut self.traces);
                }
                if within.iter().any(|front| !front.is_empty()) {
                    next.push((option, within));
                }
            }
            states = next;
        }
        Ok(states)
    }

    /// From all plans, by the option of the node where they end, over a link to an option of the next node.
    fn follow(
        &self,
        plans: &[(usize, Within<F>)],
        link: Link,
        option: usize,
        apart: Apart,
        width: usize,
    ) -> Result<Within<F>> {
        let mut next = Within::<F>::default();
        for (previous, within) in plans {
            match link {
                Link::Edge(edge) => {
                    if let Some(times) = self.transfer(edge, *previous, option, apart) {
                        for (next, front) in next.iter_mut().zip(within) {
                            next.unite(front, times);
                        }
                    }
                }
                Link::Region(inner) => {
                    let Some(RegionFronts { columns, fronts }) = self.nested(inner, width, apart) else {
                        continue;
                    };
                    let [all, exact] = &fronts[previous * columns + option];
                    let most = self.most;
                    let step = self.tolerance.step;
                    let fits = next[0].unite_sums(&within[0], all, step, most)
                        && next[1].unite_sums(&within[1], all, step, most)
                        && next[1].unite_sums(&within[0], exact, step, most);
                    if !fits {
                        return Err(self.too_many_labels());
                    }
                }
            }
        }
        Ok(next)
    }

    fn layer(&mut self, node: usize, option: usize, chosen: &NodeOption) -> Layer {
        let time_us = chosen.total_us();
        Layer {
            times: Times { time_us, gpu_us: chosen.gpus as f64 * time_us },
            gpus: chosen.gpus,
            memory_bytes: chosen.memory_bytes.unwrap_or(0),
            trace: self.traces.push(Entry::Option { node: node as u32, option: option as u32 }),
        }
    }

    /// What an edge costs; `None` where that is not known.
    fn transfer(&self, edge: usize, from: usize, to: usize, apart: Apart) -> Option<Times> {
        let edge = &self.problem.edges[edge];
        let gpus = |node: usize, option: usize| self.problem.nodes[node].options[option].gpus;
        let (producer, consumer) = (gpus(edge.from.0, from), gpus(edge.to.0, to));
        let (time_us, gpus) = if apart == Apart::NONE {
            (edge.transfer_us[from][to], producer.max(consumer))
        } else {
            (edge.transfer_disjoint_us.as_ref()?[from][to], producer + consumer)
        };
        Some(Times { time_us, gpu_us: gpus as f64 * time_us })
    }
}
