//! The emulated driver, as programs see it: tests take turns with the one that the process has.

mod cudarc;
mod execution;
mod nccl;
mod ordering;
mod rules;
