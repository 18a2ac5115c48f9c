//! A started operation.

use std::time::Duration;

use crate::Result;

/// An operation that was started and owns its buffers until it is waited for.
///
/// Several requests may be outstanding at a time and may be tested and waited for in any order. Dropping a request
/// gives up its buffers, not the operation: the other ranks still complete.
pub trait Request {
    /// The buffers, given back on completion.
    type Output;

    /// Whether the operation is complete. Never blocks, but may do a bounded piece of the operation's work (at most
    /// one rank's part).
    ///
    /// Fails when the operation failed, and then fails the same way each time.
    fn test(&mut self) -> Result<bool>;

    /// Waits for completion, at most for `limit`; whether it came. Running out of this limit is no failure: the
    /// operation goes on and can be waited for again.
    fn wait_timeout(&mut self, limit: Duration) -> Result<bool>;

    /// Waits for completion and gives the buffers back. When the operation fails, they are lost.
    fn wait(self) -> Result<Self::Output>;
}

/// A started [redistribution](crate::Communicator::start_redistribution).
pub trait RedistributionRequest {
    /// Where the samples arrive.
    type Buffer;

    /// Whether all samples have arrived; never blocks.
    ///
    /// # Errors
    /// When the operation failed.
    fn test(&mut self) -> Result<bool>;

    /// Waits, and writes the caller's shard of the target partition to `output`, which has to be of its length.
    ///
    /// # Errors
    /// When the operation failed, and an `output` of another length.
    fn wait_into(self, output: &mut Self::Buffer) -> Result<()>;
}

/// Both buffers of an operation that reads one and fills another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exchanged<B> {
    /// What was sent, unchanged.
    pub send: B,
    /// What was received.
    pub receive: B,
}

/// Makes [`Request`]s of a backend's three wrappers of its `Pending<T>`: of one buffer, of two, and of none. `Pending` has
/// the inherent methods `test`, `wait_until` and `wait`, and gives both buffers back.
macro_rules! requests {
    ($one:ident, $two:ident, $none:ident, buffers: $buffer:ident) => {
        $crate::request::requests!(@impl [T: Element] $one<T>, $buffer<T>, |buffers| buffers.receive);
        $crate::request::requests!(@impl [T: Element] $two<T>, Exchanged<$buffer<T>>, |buffers| buffers);
        $crate::request::requests!(@impl [] $none, (), |_buffers| ());
    };
    (@impl [$($generics:tt)*] $request:ty, $output:ty, |$buffers:ident| $of_both:expr) => {
        impl<$($generics)*> Request for $request {
            type Output = $output;

            fn test(&mut self) -> Result<bool> {
                self.0.test()
            }

            fn wait_timeout(&mut self, limit: Duration) -> Result<bool> {
                self.0.wait_until(Instant::now().checked_add(limit))
            }

            fn wait(self) -> Result<$output> {
                self.0.wait().map(|$buffers| $of_both)
            }
        }
    };
}
pub(crate) use requests;
