//! Tests of the commands `coll-bench`, `mux-bench` and `op-bench`, and of the kernels of
//! `mux-bench`.

mod coll_bench;
mod command;
mod kernels;
mod mux_bench;
mod op_bench;
mod readers;
