//! The order in which a rank's steps are launched on a device with one queue per lane.

use super::{RankProgram, StepId};

/// A launched step, as an entry of the list of [`RankProgram::launches`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// Index of the step in the program.
    pub step: StepId,
    /// Index, in the list of launches, of the launch on the other lane that must end before this
    /// one starts: the last one that the step depends on. `None` if it depends on none, or an
    /// earlier launch on its lane waits for it.
    pub after: Option<usize>,
}

impl RankProgram {
    /// Returns the steps that are launched, in the order of the program. `is_launched` returns
    /// whether a step has work to launch. Each launch names at most one launch on the other lane to
    /// wait for: a lane runs in order, so waiting for the last of several dependencies is waiting
    /// for all.
    ///
    /// If a step is not launched, the next step on its lane waits for its dependencies.
    #[must_use]
    pub fn launches(&self, is_launched: impl Fn(StepId) -> bool) -> Vec<Launch> {
        let mut launches: Vec<Launch> = Vec::new();
        // For each lane, its last launch, and the launch on the other lane that its later steps
        // wait for.
        let mut last: [Option<usize>; 2] = [None; 2];
        let mut waits: [Option<usize>; 2] = [None; 2];
        // For each lane, the last launch on the other lane that has ended when its last launch
        // starts.
        let mut waited: [Option<usize>; 2] = [None; 2];
        // For each step, the last launch on its lane up to and including it.
        let mut ends_with: Vec<Option<usize>> = Vec::with_capacity(self.steps.len());
        for (index, step) in self.steps.iter().enumerate() {
            let lane = step.lane() as usize;
            let others = step.after.iter().filter(|after| self.steps[after.0].lane() as usize != lane);
            waits[lane] = waits[lane].max(others.filter_map(|after| ends_with[after.0]).max());
            if is_launched(StepId(index)) {
                last[lane] = Some(launches.len());
                let after = waits[lane].take().filter(|&after| Some(after) > waited[lane]);
                waited[lane] = waited[lane].max(after);
                launches.push(Launch { step: StepId(index), after });
            }
            ends_with.push(last[lane]);
        }
        launches
    }
}
