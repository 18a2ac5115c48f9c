//! Environment of the blocks of a launch.

use crate::{Memory, Options, decode::DecodedKernel};

/// State shared by all blocks of a launch.
pub(crate) struct LaunchEnvironment<'l> {
    /// Name of the kernel.
    pub(crate) name: &'l str,
    /// Decoded kernel.
    pub(crate) decoded: &'l DecodedKernel,
    /// Number and name of each source file.
    pub(super) sources: &'l [(u64, String)],
    /// Memory of the device.
    pub(crate) memory: &'l Memory,
    /// Number of blocks along x, y and z.
    pub(crate) grid: [u32; 3],
    /// Number of threads of a block along x, y and z.
    pub(crate) block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub(crate) dynamic_shared_bytes: u32,
    /// Declared and dynamic shared memory of a block, in bytes.
    pub(crate) shared_bytes: u64,
    /// Parameter memory: the arguments at the offsets of their parameters, in bytes.
    pub(crate) parameters: &'l [u8],
    /// Options of the launch, such as the checks to perform.
    pub(crate) options: &'l Options,
    /// Vector instructions of the processor that executes the launch.
    pub(crate) arch: pulp::Arch,
}

impl LaunchEnvironment<'_> {
    /// Returns the number of threads in a block.
    pub(crate) fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    /// Returns the index along each axis (x, y, z) of the thread with the given number in its
    /// block.
    pub(crate) fn thread(&self, number: u32) -> [u32; 3] {
        split(number.into(), self.block)
    }

    /// Returns the name of the source file with the given number, or an empty string if there is
    /// none.
    pub(crate) fn source(&self, number: u64) -> String {
        self.sources
            .iter()
            .find(|(other, _)| *other == number)
            .map_or_else(String::new, |(_, name)| name.clone())
    }
}

/// Splits a number, in which x varies fastest, into indices along x, y and z. `sides` is the length
/// of each axis.
pub(super) fn split(number: u64, sides: [u32; 3]) -> [u32; 3] {
    let [x, y] = [sides[0], sides[1]].map(u64::from);
    [(number % x) as u32, (number / x % y) as u32, (number / x / y) as u32]
}
