//! Precision of products and convolutions, and checks that both share.

use crate::{Address, Buffer, Error, Result, Stream};

/// Alignment of operands and workspaces, in bytes.
pub(crate) const ALIGNMENT: u64 = 16;

/// Precision of a product or convolution. Sums are f32 in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Numerics {
    /// f32 elements, multiplied as f32.
    F32,
    /// f32 elements, rounded to TF32 (10 bits of mantissa) and multiplied by tensor cores.
    Tf32,
    /// bf16 elements.
    Bf16,
}

impl Numerics {
    /// Returns the size of an element, in bytes.
    #[must_use]
    pub fn element_bytes(self) -> usize {
        match self {
            Self::F32 | Self::Tf32 => 4,
            Self::Bf16 => 2,
        }
    }
}

/// Returns the value as a `T`, the type of the library's argument.
///
/// # Errors
/// [`Error::Invalid`] for zero, and for a value that `T` does not have.
pub(crate) fn positive<T: TryFrom<usize>>(name: &str, value: usize) -> Result<T> {
    T::try_from(value)
        .ok()
        .filter(|_| value > 0)
        .ok_or_else(|| Error::Invalid(format!("{name} of {value} is not positive or too large")))
}

/// Checks the address of an operand.
///
/// # Errors
/// [`Error::Invalid`] if it is zero or not aligned.
pub(crate) fn check_address(name: &str, address: u64) -> Result<()> {
    if address != 0 && address.is_multiple_of(ALIGNMENT) {
        return Ok(());
    }
    Err(Error::Invalid(format!("{name} at {address:#x} is not aligned to {ALIGNMENT} bytes")))
}

/// Prepares the use of a workspace by work that is enqueued into `stream` next and needs `needed`
/// bytes. Returns the address, which is zero if no workspace is needed.
///
/// # Errors
/// [`Error::Invalid`] if it is too small, not aligned or of another device.
pub(crate) fn use_workspace(workspace: &Buffer<u8>, needed: usize, stream: &Stream) -> Result<u64> {
    if needed == 0 {
        return Ok(0);
    }
    let bytes = workspace.len();
    if bytes < needed {
        return Err(Error::Invalid(format!("the workspace has {bytes} bytes and {needed} are needed")));
    }
    let address = Address::from(workspace);
    check_address("the workspace", address.value())?;
    address.use_in(stream).map(|()| address.value())
}
