//! Flows that share links, in virtual time. Times are nanoseconds since virtual time 0.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::flow::{Flow, FlowId};
use super::max_min::{MaxMin, TOLERANCE};
use crate::{Error, Result};

/// Links with capacities, and the [flows](Flow) that share them, in virtual time.
///
/// The rates of flows are max-min fair: no rate can be raised without lowering one that is not
/// larger. No flow exceeds its maximum rate, and no link its capacity. Rates change only when a
/// flow starts or ends, and only those of flows that are connected to it by contended links.
///
/// Flows of one owner do not slow each other down. If they would exceed the capacity of a link
/// together, their use of this link is scaled down to its capacity, since the durations of an
/// owner's transfers alone are given.
///
/// An event takes O(uses of the flow x log flows), plus the max-min fair rates of the connected
/// flows. Times are whole nanoseconds, rounded up.
///
/// ```
/// use std::time::Duration;
/// use collectives::{Flow, FlowNetwork};
///
/// let ms = Duration::from_millis;
/// // One link of 1 MB/s. Each flow sends 1,000 bytes over it, which takes 1 ms alone.
/// let mut network = FlowNetwork::new(&[1e6])?;
/// let flow = Flow::new(ms(1), 1_000.0, &[(0, 1_000.0)])?;
/// let first = network.start(ms(0), flow.clone())?;
/// let second = network.start(ms(0), flow.with_owner(1))?;
/// assert_eq!(network.next_end(), Some(ms(2)));
/// assert_eq!(network.advance(ms(5)), [(ms(2), first), (ms(2), second)]);
/// # Ok::<(), collectives::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct FlowNetwork {
    now: u64,
    links: Vec<Link>,
    flows: BTreeMap<FlowId, ActiveFlow>,
    /// Ends of the flows at their present rates.
    ends: BTreeSet<(u64, FlowId)>,
    started: u64,
    /// Flows that have ended and were not returned yet.
    ended: Vec<(Duration, FlowId)>,
    max_min: MaxMin,
}

#[derive(Debug, Clone)]
struct Link {
    capacity: f64,
    /// Active flows on the link, sorted by owner, each with its demand: its load at its maximum
    /// rate, in bytes per second.
    demands: Vec<Demand>,
    /// Whether the flows of several owners would exceed the capacity.
    is_contended: bool,
    /// Whether the flows of one owner would exceed the capacity.
    is_scaled: bool,
    /// Bytes that were sent over the link.
    carried: f64,
    /// Number of the link in the present problem of max-min fair rates.
    number: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
struct Demand {
    owner: usize,
    flow: FlowId,
    bytes_per_s: f64,
}

#[derive(Debug, Clone)]
struct ActiveFlow {
    flow: Flow,
    /// Load of each of its links, in bytes per second.
    loads: Vec<f64>,
    /// Time since which it has its present rate.
    since: u64,
    /// Transfer time at the maximum rate that was left at `since`, in nanoseconds.
    left: f64,
    /// Fraction of the maximum rate.
    fraction: f64,
    end: u64,
}

/// Tolerance for rounding, in nanoseconds.
const ROUNDING: f64 = 1e-6;

impl FlowNetwork {
    /// Creates links with the given capacities, in bytes per second, at virtual time 0.
    ///
    /// # Errors
    /// [`Error::BadFlow`] for a capacity that is not positive and finite.
    pub fn new(capacities: &[f64]) -> Result<Self> {
        let link = |&capacity: &f64| {
            if !(capacity.is_finite() && capacity > 0.0) {
                return Err(Error::BadFlow { reason: format!("a link of {capacity} bytes/s") });
            }
            Ok(Link {
                capacity,
                demands: Vec::new(),
                is_contended: false,
                is_scaled: false,
                carried: 0.0,
                number: None,
            })
        };
        Ok(Self {
            now: 0,
            links: capacities.iter().map(link).collect::<Result<_>>()?,
            flows: BTreeMap::new(),
            ends: BTreeSet::new(),
            started: 0,
            ended: Vec::new(),
            max_min: MaxMin::default(),
        })
    }

    /// Current virtual time.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.now)
    }

    /// Starts a flow at virtual time `at`; a time in the past counts as now. Flows that end before
    /// are returned by the next [`advance`](Self::advance).
    ///
    /// # Errors
    /// [`Error::BadFlow`] for a flow over a link that does not exist.
    pub fn start(&mut self, at: Duration, flow: Flow) -> Result<FlowId> {
        if let Some((link, _)) = flow.uses().find(|&(link, _)| link >= self.links.len()) {
            let reason = format!("a flow over link {link} of {}", self.links.len());
            return Err(Error::BadFlow { reason });
        }
        self.run_to(nanos(at));
        let id = FlowId(self.started);
        self.started += 1;
        let (now, alone) = (self.now, nanos(flow.alone()));
        for (link, factor) in flow.uses() {
            let demands = &mut self.links[link].demands;
            let bytes_per_s = factor * flow.max_rate();
            let place = demands.partition_point(|of| (of.owner, of.flow) < (flow.owner(), id));
            demands.insert(place, Demand { owner: flow.owner(), flow: id, bytes_per_s });
        }
        let (end, loads) = (now.saturating_add(alone), vec![0.0; flow.uses().len()]);
        let changed = flow.clone();
        self.flows.insert(id, ActiveFlow { flow, loads, since: now, left: alone as f64, fraction: 1.0, end });
        self.ends.insert((end, id));
        self.reallocate(&changed, Some(id));
        Ok(id)
    }

    /// Returns the virtual time of the next end of a flow, if no other flow starts before. `None`
    /// if there is no flow.
    #[must_use]
    pub fn next_end(&self) -> Option<Duration> {
        let pending = self.ended.first().map(|&(at, _)| at);
        pending.or_else(|| self.ends.first().map(|&(end, _)| Duration::from_nanos(end)))
    }

    /// Advances the virtual time to `to` and returns the flows that have ended, with the times of
    /// their ends, in the order of these times and then of their starts.
    pub fn advance(&mut self, to: Duration) -> Vec<(Duration, FlowId)> {
        self.run_to(nanos(to));
        std::mem::take(&mut self.ended)
    }

    /// Returns the fraction of its maximum rate that a flow has now. `None` if it has ended.
    #[must_use]
    pub fn fraction(&self, flow: FlowId) -> Option<f64> {
        self.flows.get(&flow).map(|active| active.fraction)
    }

    /// Returns the present load of a link, in bytes per second; 0 for a link that does not exist.
    #[must_use]
    pub fn load(&self, link: usize) -> f64 {
        let demands = self.links.get(link).map_or(&[][..], |link| &link.demands);
        demands.iter().map(|of| self.flows.get(&of.flow).map_or(0.0, |active| active.load(link))).sum()
    }

    /// Returns the number of bytes that were sent over a link until now; 0 for a link that does not
    /// exist.
    #[must_use]
    pub fn carried_bytes(&self, link: usize) -> f64 {
        let Some(of) = self.links.get(link) else { return 0.0 };
        let of_flow = |demand: &Demand| {
            let active = self.flows.get(&demand.flow)?;
            Some(active.load(link) * seconds(self.now - active.since))
        };
        of.carried + of.demands.iter().filter_map(of_flow).sum::<f64>()
    }

    fn run_to(&mut self, to: u64) {
        while let Some(&(end, id)) = self.ends.first().filter(|&&(end, _)| end <= to) {
            self.now = self.now.max(end);
            self.ended.push((Duration::from_nanos(self.now), id));
            self.end(id);
        }
        self.now = self.now.max(to);
    }

    fn end(&mut self, id: FlowId) {
        let Some(mut active) = self.flows.remove(&id) else { return };
        self.ends.remove(&(active.end, id));
        active.settle(self.now, &mut self.links);
        for (link, _) in active.flow.uses() {
            self.links[link].demands.retain(|of| of.flow != id);
        }
        self.reallocate(&active.flow, None);
    }

    /// Computes new rates after a flow has started, whose id is given, or ended.
    fn reallocate(&mut self, changed: &Flow, started: Option<FlowId>) {
        // The flows that are connected with the changed one by contended links, and these links.
        let (mut flows, mut links): (Vec<FlowId>, Vec<usize>) = (started.into_iter().collect(), Vec::new());
        for (link, _) in changed.uses() {
            let of = &mut self.links[link];
            let before = (of.is_contended, of.is_scaled);
            (of.is_contended, of.is_scaled) = of.exceeds_capacity();
            if before != (false, false) || of.is_contended || of.is_scaled {
                flows.extend(of.demands.iter().map(|of| of.flow));
            }
        }
        flows.sort_unstable();
        flows.dedup();
        let mut known: BTreeSet<FlowId> = flows.iter().copied().collect();
        let mut next = 0;
        while let Some(id) = flows.get(next) {
            next += 1;
            for (link, _) in self.flows[id].flow.uses() {
                let of = &mut self.links[link];
                if of.is_contended && of.number.is_none() {
                    of.number = Some(links.len());
                    links.push(link);
                    flows.extend(of.demands.iter().map(|of| of.flow).filter(|&id| known.insert(id)));
                }
            }
        }
        self.max_min.clear();
        for &link in &links {
            self.max_min.add_link(self.links[link].capacity);
        }
        for id in &flows {
            let (flow, links) = (&self.flows[id].flow, &self.links);
            let uses = flow.uses().filter_map(|(link, factor)| {
                let of = &links[link];
                Some((of.number?, factor * of.scale(flow.owner())))
            });
            self.max_min.add_flow(flow.max_rate(), uses);
        }
        self.max_min.solve();
        for (number, &id) in flows.iter().enumerate() {
            self.set_rate(id, self.max_min.rate(number));
        }
        for link in links {
            self.links[link].number = None;
        }
    }

    /// Sets the rate of a connection of a flow, in bytes per second.
    fn set_rate(&mut self, id: FlowId, rate: f64) {
        let Some(active) = self.flows.get_mut(&id) else { return };
        active.settle(self.now, &mut self.links);
        let owner = active.flow.owner();
        for ((link, factor), load) in active.flow.uses().zip(&mut active.loads) {
            *load = rate * factor * self.links[link].scale(owner);
        }
        let max_rate = active.flow.max_rate();
        let fraction = if max_rate > 0.0 { (rate / max_rate).min(1.0) } else { 1.0 };
        if fraction.to_bits() == active.fraction.to_bits() {
            return;
        }
        active.fraction = fraction;
        self.ends.remove(&(active.end, id));
        active.end = self.now.saturating_add((active.left / fraction - ROUNDING).ceil() as u64);
        self.ends.insert((active.end, id));
    }
}

impl Link {
    /// Returns whether the flows of several owners, and those of one owner, would exceed the
    /// capacity.
    fn exceeds_capacity(&self) -> (bool, bool) {
        let (mut demand, mut is_scaled) = (0.0, false);
        for of_owner in self.demands.chunk_by(|a, b| a.owner == b.owner).map(total) {
            demand += of_owner.min(self.capacity);
            is_scaled |= of_owner > self.capacity;
        }
        (demand > self.capacity * (1.0 + TOLERANCE), is_scaled)
    }

    /// Returns the factor by which the flows of an owner use the link less, so that they do not
    /// exceed its capacity together.
    fn scale(&self, owner: usize) -> f64 {
        if !self.is_scaled {
            return 1.0;
        }
        let begin = self.demands.partition_point(|of| of.owner < owner);
        let len = self.demands[begin..].iter().take_while(|of| of.owner == owner).count();
        let demand = total(&self.demands[begin..begin + len]);
        if demand > self.capacity { self.capacity / demand } else { 1.0 }
    }
}

/// Returns the sum of demands, in bytes per second.
fn total(demands: &[Demand]) -> f64 {
    demands.iter().map(|of| of.bytes_per_s).sum()
}

impl ActiveFlow {
    /// Accounts for the bytes sent until `now`.
    fn settle(&mut self, now: u64, links: &mut [Link]) {
        let elapsed = now - self.since;
        if elapsed == 0 {
            return;
        }
        for ((link, _), load) in self.flow.uses().zip(&self.loads) {
            links[link].carried += load * seconds(elapsed);
        }
        self.left = (self.left - elapsed as f64 * self.fraction).max(0.0);
        self.since = now;
    }

    /// Returns the load of a link, in bytes per second.
    fn load(&self, link: usize) -> f64 {
        let place = self.flow.uses().position(|(used, _)| used == link);
        place.map_or(0.0, |place| self.loads[place])
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// Returns a duration in nanoseconds. Above 584 years it is clamped.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
