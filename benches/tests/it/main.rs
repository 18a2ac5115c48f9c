//! Tests of the commands `coll-bench` and `mux-bench`, and of the kernels of `mux-bench`.

mod coll_bench;
mod command;
mod kernels;
mod mux_bench;
mod readers;
