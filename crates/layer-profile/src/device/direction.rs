//! Direction of a timed pass.

/// Direction of a timed pass. The backward direction includes all gradients. (The passes that an
/// engine runs are `layer_engine::Pass`.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Computes the outputs from the inputs.
    Forward,
    /// Computes the gradients of the inputs and of the parameters.
    Backward,
}
