//! Tests of the emulated driver through its public interfaces. They run one after the other.

mod cublaslt;
mod cudarc;
mod cudnn;
mod execution;
mod nccl;
mod ordering;
mod readme;
mod rules;
