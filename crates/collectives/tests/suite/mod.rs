//! Laws of every backend. All ranks of a group check a law together, each on its own thread or
//! process.
//!
//! A backend implements [`Ranks`] and [`Carries`] (on host memory by [`host_memory!`]), and a test
//! binary checks the laws of [`for_each_law!`] on its groups. Floats are small whole numbers, so
//! that sums are exact in any order.
#![allow(unsafe_code, reason = "views of arenas")]
#![allow(clippy::cast_possible_wrap, reason = "ranks and samples are small numbers")]

mod case;
mod collectives;
mod groups;
mod messages;
mod mistakes;
mod redistribution;
mod requests;

use ::collectives::{Communicator, Element, Group, HostArena, HostBuffer, bf16, f16};

pub(crate) use case::{Case, cases};
pub(crate) use collectives::*;
pub(crate) use groups::*;
pub(crate) use messages::*;
pub(crate) use mistakes::*;
pub(crate) use redistribution::*;
pub(crate) use requests::*;

/// A rank of a backend under test.
pub(crate) trait Ranks: Group + Clone + Send + Sync {
    /// Whether ranks compare their calls.
    const CHECKS: bool;

    /// Whether half-precision numbers can be reduced.
    const REDUCES_HALF: bool;

    /// Creates a queue for this thread's operations.
    fn queue(&self) -> Self::Queue;
}

/// [`Ranks`] whose buffers of `T` can be filled and read.
pub(crate) trait Carries<T: Element>: Ranks + Communicator<T> {
    /// Creates a buffer with these values.
    fn buffer(&self, values: &[T]) -> Self::Buffer;

    /// Returns the values of a buffer.
    fn values(&self, buffer: &Self::Buffer) -> Vec<T>;
}

/// A backend that supports all element types.
pub(crate) trait Subject:
    Carries<f32> + Carries<f64> + Carries<i32> + Carries<i64> + Carries<u8> + Carries<f16> + Carries<bf16>
{
}

impl<C> Subject for C where
    C: Carries<f32> + Carries<f64> + Carries<i32> + Carries<i64> + Carries<u8> + Carries<f16> + Carries<bf16>
{
}

/// Implements the suite's traits for a communicator on host memory. Buffers of an odd length are
/// views.
macro_rules! host_memory {
    ($communicator:ty, checks: $checks:literal, reduces_half: $reduces_half:literal) => {
        impl suite::Ranks for $communicator {
            const CHECKS: bool = $checks;
            const REDUCES_HALF: bool = $reduces_half;

            fn queue(&self) {}
        }

        impl<T: collectives::Element> suite::Carries<T> for $communicator {
            fn buffer(&self, values: &[T]) -> collectives::HostBuffer<T> {
                suite::host_buffer(values)
            }

            fn values(&self, buffer: &collectives::HostBuffer<T>) -> Vec<T> {
                buffer.to_vec()
            }
        }
    };
}
pub(crate) use host_memory;

/// Creates a buffer in host memory: a view in the middle of an arena if the length is odd.
pub(crate) fn host_buffer<T: Element>(values: &[T]) -> HostBuffer<T> {
    if values.len() % 2 == 0 {
        return values.to_vec().into();
    }
    let arena = HostArena::new(values.len() + 2).expect("there is memory");
    // SAFETY: the only view.
    let mut view = unsafe { arena.view(1, values.len()) }.expect("it is inside the arena");
    view.copy_from_slice(values);
    view
}

/// Calls a macro with the names of all laws: first those for any memory, then those for host
/// memory.
macro_rules! for_each_law {
    ($macro:ident) => {
        $macro! {
            any memory {
                all_reduce_matches_the_serial_reduction
                reduce_scatter_returns_chunks_of_the_reduction
                reduce_scatter_then_all_gather_is_all_reduce
                broadcast_copies_the_root
                all_gather_concatenates
                all_to_all_v_transposes
                no_rank_passes_a_barrier_before_the_last_arrives
                messages_arrive_in_order_with_their_tag
                requests_complete_in_any_order
                a_dropped_request_does_not_affect_others
                split_groups_by_color_and_orders_by_key
                listed_groups_are_independent
                groups_nest
                threads_of_a_rank_use_separate_groups
                a_different_call_is_a_mismatch_on_all
                a_wrong_buffer_length_of_one_rank_is_an_error_on_all
                ranks_out_of_range_are_errors
            }
            host memory {
                redistribution_and_its_reverse_move_every_sample
                boxes_move_between_grids
                a_buffer_is_returned_in_place
            }
        }
    };
}
pub(crate) use for_each_law;

/// A number type that represents small whole numbers exactly.
pub(crate) trait Number: Element {
    /// Converts a small whole number.
    fn small(value: u8) -> Self;
}

macro_rules! number {
    ($($type:ty: $from:expr),*) => {
        $(impl Number for $type {
            fn small(value: u8) -> Self {
                $from(value)
            }
        })*
    };
}

number!(
    f32: f32::from,
    f64: f64::from,
    i32: i32::from,
    i64: i64::from,
    u8: u8::from,
    f16: f16::from,
    bf16: bf16::from
);

/// Calls a function for each element type: `every_type!(function(arguments))`.
macro_rules! every_type {
    ($law:ident($($argument:expr),*)) => {{
        $law::<f32, C>($($argument),*)?;
        $law::<f64, C>($($argument),*)?;
        $law::<i32, C>($($argument),*)?;
        $law::<i64, C>($($argument),*)?;
        $law::<u8, C>($($argument),*)?;
        $law::<f16, C>($($argument),*)?;
        $law::<bf16, C>($($argument),*)?;
    }};
}
pub(crate) use every_type;

/// Returns a rank's input: numbers below 16, so that sums over 8 ranks are exact in every type.
fn input<T: Number>(rank: usize, len: usize) -> Vec<T> {
    (0..len).map(|i| T::small(digit(rank, i))).collect()
}

fn digit(rank: usize, i: usize) -> u8 {
    let bits = (rank as u64 * 7_919 + i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (bits >> 60) as u8
}
