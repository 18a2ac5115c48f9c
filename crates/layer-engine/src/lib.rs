//! Runs one layer of a network forward and backward: an engine trait, and deterministic CPU kernels on gemm.
