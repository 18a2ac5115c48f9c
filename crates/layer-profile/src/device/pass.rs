/// One direction of a layer's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pass {
    /// The outputs from the inputs.
    Forward,
    /// The gradients of the inputs and of the parameters.
    Backward,
}
