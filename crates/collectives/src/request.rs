//! Handles of started operations.

use std::time::Duration;

use crate::Result;

/// A started operation, which owns its buffers until it is waited for.
///
/// Several requests may be outstanding and may be tested and waited for in any order. Dropping a
/// request releases its buffers but does not cancel the operation: the other ranks complete it.
pub trait Request {
    /// Buffers returned on completion: one, both ([`Exchanged`]), those of a redistribution
    /// ([`RedistributionBuffers`]), or `()` for an operation without buffers.
    type Output;

    /// Returns whether the operation is complete. Never blocks, but may do a bounded part of the
    /// operation's work (at most one rank's share).
    ///
    /// # Errors
    /// The error of the operation, if it failed; the same one on every call.
    fn test(&mut self) -> Result<bool>;

    /// Waits for completion for at most `limit`, and returns whether the operation is complete.
    /// After `false` it continues and can be waited for again.
    ///
    /// # Errors
    /// The error of the operation, if it failed.
    fn wait_timeout(&mut self, limit: Duration) -> Result<bool>;

    /// Waits for completion and returns the buffers.
    ///
    /// # Errors
    /// The error of the operation, if it failed. The buffers are then lost.
    fn wait(self) -> Result<Self::Output>;
}

/// Both buffers of an operation that reads one buffer and fills another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exchanged<B> {
    /// Buffer that was read, unchanged.
    pub send: B,
    /// Buffer that was filled.
    pub receive: B,
}

/// The buffers of a [redistribution](crate::Communicator::start_redistribution) on one rank.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RedistributionBuffers<B> {
    /// The rank's box of the source layout, which is read.
    pub input: B,
    /// The rank's box of the target layout, which is filled.
    pub output: B,
    /// Memory for what the rank sends and for what it receives, of the
    /// [lengths](crate::Redistribution::packed_len) that these need.
    pub packed: [B; 2],
}

/// Implements [`Request`] for a backend's three wrappers of its pending operation: one for
/// operations on one buffer, one for operations on two, and one for operations without buffers. The
/// pending operation has the inherent methods `test`, `wait_until` and `wait`, and returns both
/// buffers. `@impl` implements it for one type with the field of its pending operation and the body
/// of `wait`.
macro_rules! impl_requests {
    ($one:ident, $two:ident, $none:ident, buffers: $buffer:ident) => {
        $crate::request::impl_requests!(@impl [T: Element] $one<T>, $buffer<T>, 0, |request| {
            request.0.wait().map(|buffers| buffers.receive)
        });
        $crate::request::impl_requests!(@impl [T: Element] $two<T>, Exchanged<$buffer<T>>, 0, |request| {
            request.0.wait()
        });
        $crate::request::impl_requests!(@impl [] $none, (), 0, |request| request.0.wait().map(|_buffers| ()));
    };
    (@impl [$($generics:tt)*] $request:ty, $output:ty, $pending:tt, |$self:ident| $wait:expr) => {
        impl<$($generics)*> Request for $request {
            type Output = $output;

            fn test(&mut self) -> Result<bool> {
                self.$pending.test()
            }

            fn wait_timeout(&mut self, limit: Duration) -> Result<bool> {
                self.$pending.wait_until(Instant::now().checked_add(limit))
            }

            fn wait(self) -> Result<$output> {
                let $self = self;
                $wait
            }
        }
    };
}
pub(crate) use impl_requests;
