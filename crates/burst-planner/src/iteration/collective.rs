//! Collectives: they start when all their ranks are ready, and end on all ranks at once. A *group*
//! is a list of ranks, given by its slot: its index among the groups of the arrangement. Times are
//! in microseconds since the start of the simulation.

use super::{Class, Event, Lanes, Layout, Member, ProgramCosts, Recorder, Run, Slot, later};
use crate::splits::group_of;

impl<P: ProgramCosts, R: Recorder> Run<'_, '_, P, R> {
    /// Simulates moving the output of node `producer`, or its gradient, between layouts. `ready`
    /// returns the time from which a rank of `from` can send. It starts when all of them are ready
    /// and the communication lanes of the ranks of both are free. Returns the end.
    pub(super) fn transfer(
        &mut self,
        event: Event<'_>,
        producer: usize,
        from: Layout,
        to: Layout,
        ready: impl Fn(&Lanes, Class) -> f64,
    ) -> f64 {
        let mut start = 0.0;
        for &Member { class, .. } in self.members(group_of(from)) {
            start = later(start, ready(self.lanes, class));
            self.add_member(class);
        }
        for &Member { class, .. } in self.members(group_of(to)) {
            self.add_member(class);
        }
        let takes = self.duration(|costs| costs.transfer(producer, from, to));
        self.communicate(event, start, takes)
    }

    /// Simulates an all-reduce of `bytes` bytes over a group between the ranks with the same part,
    /// replicas included. `ready` returns the time from which a rank can take part. It starts when
    /// all of them are ready and their communication lanes are free. Returns the end, or `None` if
    /// each part has a single rank.
    pub(super) fn reduce(
        &mut self,
        event: Event<'_>,
        group: Slot,
        bytes: u64,
        ready: impl Fn(&Self, Class) -> f64,
    ) -> Option<f64> {
        if self.costs.size(group) < 2 {
            return None;
        }
        let mut start = 0.0;
        for &Member { class, .. } in self.members(group) {
            start = later(start, ready(self, class));
            self.lanes.members.push(class);
        }
        let takes = self.duration(|costs| costs.reduce(bytes, group));
        Some(self.communicate(event, start, takes))
    }

    /// Simulates an all-reduce of `bytes` bytes over a group that starts when the compute lanes are
    /// free, at the times of `ready` or later, and makes the compute lanes wait for its end.
    /// Returns the end, or 0 if each part has a single rank.
    pub(super) fn synchronize(
        &mut self,
        event: Event<'_>,
        group: Slot,
        bytes: u64,
        ready: impl Fn(Class) -> f64,
    ) -> f64 {
        let end = self.reduce(event, group, bytes, |run, class| {
            later(ready(class), run.lanes.compute[usize::from(class)].free_us)
        });
        let end = end.unwrap_or(0.0);
        for &Member { class, .. } in self.members(group) {
            self.lanes.compute[usize::from(class)].wait(end);
        }
        end
    }

    /// Makes the next compute step of the ranks of a layout wait until `ready`.
    pub(super) fn wait_on(&mut self, layout: Layout, ready: f64) {
        for &Member { class, .. } in self.members(group_of(layout)) {
            self.lanes.compute[usize::from(class)].wait(ready);
        }
    }

    /// Returns the duration of the next collective: that of the previous iteration, or that of
    /// `query` in the first one.
    fn duration(&mut self, query: impl FnOnce(&mut P) -> f64) -> f64 {
        let lanes = &mut *self.lanes;
        let duration = lanes.durations.get(lanes.next_duration).copied().unwrap_or_else(|| {
            let queried = query(self.costs);
            lanes.durations.push(queried);
            queried
        });
        lanes.next_duration += 1;
        duration
    }

    /// Adds a class to the next collective, unless it is a member already.
    #[inline]
    fn add_member(&mut self, class: Class) {
        if !std::mem::replace(&mut self.lanes.is_member[usize::from(class)], true) {
            self.lanes.members.push(class);
        }
    }

    /// Runs a collective of the classes that were added. It starts when all their lanes are free,
    /// at `start` or later. Returns its end.
    fn communicate(&mut self, event: Event<'_>, start: f64, takes: f64) -> f64 {
        let lanes = &mut *self.lanes;
        let free = lanes.members.iter().map(|&class| lanes.communication[usize::from(class)].free_us);
        let start = free.fold(start, later);
        let end = start + takes;
        for &class in &lanes.members {
            let class = usize::from(class);
            lanes.communication[class].run(start, end);
            lanes.is_member[class] = false;
        }
        self.recorder.collective(event, &lanes.members, start, end);
        lanes.members.clear();
        end
    }
}
