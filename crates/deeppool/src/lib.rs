//! Burst-parallel training: plan, simulate and train networks whose layers each have their own number of GPUs.
