//! A rank's steps as a device with one queue a lane takes them.

use super::{RankProgram, StepId};

/// A step in the order in which it is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// The step.
    pub step: StepId,
    /// The launch on the other lane, by its place in the list, whose end this one waits for: the last of all that the step
    /// depends on there.
    pub after: Option<usize>,
}

impl RankProgram {
    /// The steps that are launched on a device, in the order in which both lanes take them, each with the one other launch
    /// that it waits for: since a lane keeps its order, to wait for the last of many dependencies is to wait for all of them.
    ///
    /// Of a step that is not launched, because it has no work for a device, what comes after it on its lane waits for what it
    /// depends on.
    #[must_use]
    pub fn launches(&self, is_launched: impl Fn(StepId) -> bool) -> Vec<Launch> {
        let mut launches: Vec<Launch> = Vec::new();
        // By lane: its last launch, and what the steps since then wait for on the other lane.
        let mut last: [Option<usize>; 2] = [None; 2];
        let mut waits: [Option<usize>; 2] = [None; 2];
        // By step: the last launch of its lane, up to and with it.
        let mut ends_with: Vec<Option<usize>> = Vec::with_capacity(self.steps.len());
        for (index, step) in self.steps.iter().enumerate() {
            let lane = step.lane() as usize;
            let others = step.after.iter().filter(|after| self.steps[after.0].lane() as usize != lane);
            waits[lane] = waits[lane].max(others.filter_map(|after| ends_with[after.0]).max());
            if is_launched(StepId(index)) {
                last[lane] = Some(launches.len());
                launches.push(Launch { step: StepId(index), after: waits[lane].take() });
            }
            ends_with.push(last[lane]);
        }
        launches
    }
}
