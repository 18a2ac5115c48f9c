//! Max-min fair rates.

/// Tolerance for rounding, as a fraction: sums of demands up to this much above a capacity do not
/// exceed it.
pub(super) const TOLERANCE: f64 = 1e-9;

/// Computes the max-min fair rates of flows on links: no rate can be raised without lowering one
/// that is not larger. Keeps its memory for the next problem.
///
/// The algorithm is progressive filling (D. Bertsekas, R. Gallager, "Data Networks", 2nd edition,
/// 6.5.2): all rates rise together; a flow stops at its maximum rate, or when one of its links is
/// full. A flow uses a link in proportion to its rate, by a factor.
#[derive(Debug, Clone, Default)]
pub(super) struct MaxMin {
    flows: Vec<FilledFlow>,
    links: Vec<FilledLink>,
    /// Uses in the order of the flows: the link and the factor.
    by_flow: Vec<(usize, f64)>,
    /// Flows of each link, as indices, one link after another.
    by_link: Vec<usize>,
    /// Indices of the flows in ascending order of their maximum rates.
    ascending: Vec<usize>,
}

#[derive(Debug, Clone, Copy)]
struct FilledFlow {
    max_rate: f64,
    /// Rate once it is final.
    rate: Option<f64>,
    /// End of its uses in `by_flow`.
    uses_end: usize,
}

#[derive(Debug, Clone, Copy)]
struct FilledLink {
    /// Capacity that the flows with a final rate leave, in bytes per second.
    free: f64,
    /// Sum of the factors of the flows whose rates still rise.
    factors: f64,
    /// Number of these flows.
    rising: usize,
    /// End of its flows in `by_link`.
    flows_end: usize,
}

impl MaxMin {
    /// Removes all flows and links.
    pub(super) fn clear(&mut self) {
        self.flows.clear();
        self.links.clear();
        self.by_flow.clear();
        self.by_link.clear();
    }

    /// Adds a link with a capacity in bytes per second. Links are numbered from 0.
    pub(super) fn add_link(&mut self, capacity: f64) {
        self.links.push(FilledLink { free: capacity, factors: 0.0, rising: 0, flows_end: 0 });
    }

    /// Adds a flow with its maximum rate, and the links that it uses with their factors. Flows are
    /// numbered from 0.
    pub(super) fn add_flow(&mut self, max_rate: f64, uses: impl Iterator<Item = (usize, f64)>) {
        self.by_flow.extend(uses);
        self.flows.push(FilledFlow { max_rate, rate: None, uses_end: self.by_flow.len() });
    }

    /// Computes all rates. O(rounds x links + uses + flows x log flows), with at most one round for
    /// each link and flow.
    pub(super) fn solve(&mut self) {
        self.prepare();
        let mut next = 0;
        loop {
            while self.ascending.get(next).is_some_and(|&flow| self.flows[flow].rate.is_some()) {
                next += 1;
            }
            let Some(&smallest) = self.ascending.get(next) else { return };
            let levels = self.links.iter().enumerate().filter(|(_, link)| link.rising > 0);
            let fullest = levels
                .map(|(index, link)| (index, link.free.max(0.0) / link.factors))
                .min_by(|a, b| a.1.total_cmp(&b.1));
            let max_rate = self.flows[smallest].max_rate;
            match fullest {
                Some((link, level)) if max_rate > level * (1.0 + TOLERANCE) => {
                    let begin = link.checked_sub(1).map_or(0, |before| self.links[before].flows_end);
                    for place in begin..self.links[link].flows_end {
                        let flow = self.by_link[place];
                        if self.flows[flow].rate.is_none() {
                            self.stop(flow, level);
                        }
                    }
                }
                _ => self.stop(smallest, max_rate),
            }
        }
    }

    /// Returns the rate of a flow, in bytes per second.
    pub(super) fn rate(&self, flow: usize) -> f64 {
        self.flows[flow].rate.unwrap_or(self.flows[flow].max_rate)
    }

    fn uses_begin(&self, flow: usize) -> usize {
        flow.checked_sub(1).map_or(0, |before| self.flows[before].uses_end)
    }

    /// Indexes the flows of each link, and sorts the flows by their maximum rates.
    fn prepare(&mut self) {
        for &(link, factor) in &self.by_flow {
            self.links[link].rising += 1;
            self.links[link].factors += factor;
        }
        let mut begin = 0;
        for link in &mut self.links {
            // The end moves up as the flows are added.
            link.flows_end = begin;
            begin += link.rising;
        }
        self.by_link.resize(self.by_flow.len(), 0);
        for flow in 0..self.flows.len() {
            for place in self.uses_begin(flow)..self.flows[flow].uses_end {
                let link = &mut self.links[self.by_flow[place].0];
                self.by_link[link.flows_end] = flow;
                link.flows_end += 1;
            }
        }
        self.ascending.clear();
        self.ascending.extend(0..self.flows.len());
        let flows = &self.flows;
        self.ascending.sort_by(|&a, &b| flows[a].max_rate.total_cmp(&flows[b].max_rate));
    }

    /// Makes the rate of a flow final.
    fn stop(&mut self, flow: usize, rate: f64) {
        self.flows[flow].rate = Some(rate);
        for place in self.uses_begin(flow)..self.flows[flow].uses_end {
            let (link, factor) = self.by_flow[place];
            let link = &mut self.links[link];
            link.free -= rate * factor;
            link.factors -= factor;
            link.rising -= 1;
        }
    }
}
