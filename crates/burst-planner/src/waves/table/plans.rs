//! What is tabulated: the plans of branches and of regions.

/// Whether the edges from the fork, and those to the join, have ends that share no rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Apart {
    pub(super) entry: bool,
    pub(super) exit: bool,
}

impl Apart {
    pub(super) const NONE: Self = Self { entry: false, exit: false };
    pub(super) const BOTH: Self = Self { entry: true, exit: true };
    pub(super) const ALL: [Self; 4] =
        [Self::NONE, Self { entry: true, exit: false }, Self { entry: false, exit: true }, Self::BOTH];

    pub(super) fn index(self) -> usize {
        usize::from(self.entry) + 2 * usize::from(self.exit)
    }
}

/// The plans of a branch by its width, ascending; for one pair of options of fork and join.
#[derive(Debug, Clone)]
pub(super) struct ByWidth<F> {
    /// What no plan of a smaller width has as good.
    pub(super) useful: Vec<(usize, F)>,
    /// All of exactly this width; only where that matters.
    pub(super) exact: Vec<(usize, F)>,
}

impl<F> Default for ByWidth<F> {
    fn default() -> Self {
        Self { useful: Vec::new(), exact: Vec::new() }
    }
}

/// The plans of a branch by the options of fork and join, row by row.
pub(super) struct BranchFronts<F> {
    /// As first of its wave, by what is apart because of what the region is nested in.
    pub(super) first: [Vec<ByWidth<F>>; 4],
    /// As another of its wave.
    pub(super) other: Vec<ByWidth<F>>,
    /// Whether the branch has no layers.
    pub(super) is_skip: bool,
}

/// The plans of a region within a width, by the options of fork and join, row by row: all of them, and those of exactly
/// this width.
pub(super) struct RegionFronts<F> {
    pub(super) columns: usize,
    pub(super) fronts: Vec<[F; 2]>,
}
