//! Collective communication over subgroups of ranks, sample redistribution, and what both cost.
