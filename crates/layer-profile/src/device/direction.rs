/// Whether a layer's forward pass is timed, or its backward pass with all that belongs to it. (The passes that an engine runs are
/// `layer_engine::Pass`.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// The outputs from the inputs.
    Forward,
    /// The gradients of the inputs and of the parameters.
    Backward,
}
