//! Integration tests of the emulator's public interface.

// Arithmetic is tested bit by bit and with negated comparisons.
#![allow(
    clippy::approx_constant,
    clippy::cast_lossless,
    clippy::cast_possible_wrap,
    clippy::double_comparisons,
    clippy::float_cmp,
    clippy::format_collect,
    clippy::format_push_string,
    clippy::items_after_statements,
    clippy::neg_cmp_op_on_partial_ord,
    clippy::nonminimal_bool,
    clippy::precedence,
    clippy::type_complexity,
    clippy::unnested_or_patterns
)]

mod compilers;
mod faults;
mod forms;
mod fuzz;
mod gpu;
mod mutations;
mod programs;
mod training;
