//! Sums over a run: consecutive blocks of a path on the same list of ranks.

use super::tables::Tables;

/// Sums over the blocks of a run whose last block is fixed, microseconds. Blocks are added at its
/// start.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_field_names, reason = "the unit is part of each name")]
pub(super) struct RunSums {
    /// Forward steps.
    pub(super) forward_us: f64,
    /// Backward steps.
    pub(super) backward_us: f64,
    /// Updates.
    pub(super) update_us: f64,
    /// All-reduces, without startup.
    pub(super) reduces_us: f64,
    /// Minimum time from the start of the backward steps to the end of the all-reduces, without the
    /// startup of the last one.
    pub(super) reduced_us: f64,
    /// The same until the gradient of the input is moved: without the first block and without
    /// gradients that may wait in a bucket.
    pub(super) reduced_before_us: f64,
    /// Startup of the last all-reduce.
    pub(super) startup_us: f64,
    /// Update after the last all-reduce.
    pub(super) last_update_us: f64,
    /// Computing with updates, GPU-microseconds.
    pub(super) computing_us: f64,
    /// Updates, GPU-microseconds.
    pub(super) updating_us: f64,
    /// Computing of branches, GPU-microseconds.
    pub(super) branches_us: f64,
    /// Forward steps and all-reduces, GPU-microseconds.
    pub(super) communicating_us: f64,
    /// Maximum over the blocks of the run of the GPU time of the steps of the later blocks and of
    /// the forward steps and all-reduces from this block back, which do not overlap,
    /// GPU-microseconds.
    pub(super) busy_gpu_us: f64,
}

/// Lower bounds for the times of a run's ranks, without the steps of the nodes after the run,
/// microseconds.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_field_names, reason = "the unit is part of each name")]
pub(super) struct RunTimes {
    /// Forward and backward steps, which the transfer of the input's gradient waits for.
    pub(super) steps_us: f64,
    /// Time from the transfer of the input to the end of the run's ranks.
    pub(super) cycle_us: f64,
    /// Time from the transfer of the input to the end of the forward steps.
    pub(super) forward_us: f64,
    /// Startup of the last all-reduce, and the update or the transfer after it.
    pub(super) after_reduce_us: f64,
}

impl RunSums {
    /// Adds a block before the first one. `end` is the place of the last block, `overlaps` is
    /// whether gradients are reduced during the backward pass. Returns `None` if the block cannot
    /// run on the range.
    pub(super) fn add(
        &mut self,
        tables: &Tables<'_>,
        (place, end): (usize, usize),
        range: usize,
        overlaps: bool,
    ) -> Option<()> {
        let option = tables.option(place, range)?;
        self.reduced_before_us = self.reduced_us - tables.ranges[range].bucket_us;
        if let Some((last, costs)) = &tables.branches[place] {
            if let Some(cost) = costs[range].filter(|_| *last <= end) {
                self.forward_us += cost.forward_us;
                self.backward_us += cost.backward_us;
                self.branches_us += cost.computing_us;
                // They can start before the backward steps of the path end.
                self.reduces_us += cost.reduce_us;
                self.reduced_us = self.reduced_us.max(self.reduces_us);
            }
        }
        self.forward_us += option.forward_us;
        self.backward_us += option.backward_us;
        self.update_us += option.update_us;
        let reduces_us = tables.ranges[range].gpus * option.reduce_us;
        self.communicating_us += option.forwarding_us + reduces_us;
        let steps_us = self.computing_us - self.updating_us + option.computing_us;
        self.busy_gpu_us = steps_us.max(self.busy_gpu_us + option.forwarding_us) + reduces_us;
        self.computing_us += option.computing_us + option.updating_us;
        self.updating_us += option.updating_us;
        if option.reduce_us > 0.0 {
            let is_reduced = self.reduces_us > 0.0;
            self.reduces_us += option.reduce_us;
            self.reduced_us = self.reduced_us.max(self.backward_us) + option.reduce_us;
            let is_other = tables.path.has_splits && is_reduced;
            // With several buckets, any of them can be the last one.
            let last_update_us = if is_other { self.last_update_us } else { f64::INFINITY };
            (self.startup_us, self.last_update_us) =
                (option.startup_us, option.update_us.min(last_update_us));
        }
        if !overlaps && self.reduces_us > 0.0 {
            self.reduced_us = self.backward_us + self.reduces_us;
        }
        Some(())
    }

    /// Returns the times of a run that starts at `place` on `range`.
    pub(super) fn times(
        &self,
        tables: &Tables<'_>,
        (place, range): (usize, usize),
        overlaps: bool,
    ) -> RunTimes {
        let (there_us, back_us) = tables.entering[place * tables.ranges.len() + range];
        let delayed_us = if place > 0 && overlaps {
            // The nodes of the block before can be on this list too.
            self.reduced_before_us - tables.moving(place, range, range).behind_us
        } else {
            0.0
        };
        let steps_us = self.forward_us + self.backward_us.max(delayed_us);
        let forward_us = there_us + self.forward_us;
        let after_reduce_us = self.startup_us + back_us.max(self.last_update_us);
        let cycle_us = (forward_us + self.reduced_us + after_reduce_us)
            .max(forward_us + self.backward_us + self.update_us)
            .max(there_us + steps_us + back_us);
        RunTimes { steps_us, cycle_us, forward_us, after_reduce_us }
    }

    /// Returns a part of the times of a run that does not get shorter when blocks are added.
    pub(super) fn growing_us(&self) -> f64 {
        self.forward_us + self.reduced_us.max(self.backward_us)
    }
}
