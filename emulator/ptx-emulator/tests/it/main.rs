//! The emulator as its users see it.

// Tests of arithmetic: bits are compared, and comparisons are negated, since that is what they are about.
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
