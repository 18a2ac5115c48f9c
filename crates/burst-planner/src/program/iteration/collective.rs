//! Collectives: all their ranks meet, and end together.

use super::{Class, Event, GroupId, Lanes, Member, Prices, Recorder, Run};

impl<P: Prices, R: Recorder> Run<'_, '_, P, R> {
    /// Moves samples between groups. Ranks that have them arrive when they are `ready`, the others when their lane is free.
    pub(super) fn transfer(
        &mut self,
        event: Event<'_>,
        producer: usize,
        from: GroupId,
        to: GroupId,
        ready: impl Fn(&Lanes, Class) -> f64,
    ) -> f64 {
        let mut start = 0.0_f64;
        for &Member { class, .. } in self.members(from) {
            start = start.max(ready(self.lanes, class));
            self.meet(class);
        }
        for &Member { class, .. } in self.members(to) {
            self.meet(class);
        }
        let takes = self.prices.transfer(producer, from, to);
        self.communicate(event, start, takes)
    }

    /// Sums over a group, if it has more than one rank.
    pub(super) fn reduce(
        &mut self,
        event: Event<'_>,
        group: GroupId,
        bytes: u64,
        ready: impl Fn(&Self, Class) -> f64,
    ) -> Option<f64> {
        if self.prices.size(group) < 2 {
            return None;
        }
        let mut start = 0.0_f64;
        for &Member { class, .. } in self.members(group) {
            start = start.max(ready(self, class));
            self.meet(class);
        }
        let takes = self.prices.reduce(bytes, group);
        Some(self.communicate(event, start, takes))
    }

    pub(super) fn synchronize(
        &mut self,
        event: Event<'_>,
        group: GroupId,
        bytes: u64,
        ready: impl Fn(&Self, Class) -> f64,
    ) {
        let end = self.reduce(event, group, bytes, |run, class| {
            ready(run, class).max(run.lanes.compute[usize::from(class)])
        });
        for &Member { class, .. } in self.members(group) {
            let lane = &mut self.lanes.compute[usize::from(class)];
            *lane = lane.max(end.unwrap_or(0.0));
        }
    }

    fn meet(&mut self, class: Class) {
        if !std::mem::replace(&mut self.lanes.is_meeting[usize::from(class)], true) {
            self.lanes.meeting.push(class);
        }
    }

    /// A collective of the classes that have been told to [`meet`](Self::meet), which starts when all their lanes are free,
    /// not before `start`. Its end.
    fn communicate(&mut self, event: Event<'_>, start: f64, takes: f64) -> f64 {
        let lanes = &mut *self.lanes;
        let free = lanes.meeting.iter().map(|&class| lanes.communication[usize::from(class)]);
        let start = free.fold(start, f64::max);
        let end = start + takes;
        for &class in &lanes.meeting {
            let class = usize::from(class);
            lanes.communication[class] = end;
            lanes.transferred[class].add(start, end);
            lanes.is_meeting[class] = false;
        }
        self.recorder.collective(event, &lanes.meeting, start, end);
        lanes.meeting.clear();
        end
    }
}
