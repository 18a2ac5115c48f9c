//! The commands `coll-bench` and `mux-bench` as their users see them, and the kernels of `mux-bench`.

mod coll_bench;
mod command;
mod kernels;
mod mux_bench;
