//! Environment of the blocks of a launch.

use crate::{Memory, Options, decode::Program};

/// State shared by all blocks of a launch.
pub(crate) struct LaunchEnvironment<'l> {
    pub(crate) name: &'l str,
    pub(crate) program: &'l Program,
    pub(super) sources: &'l [(u64, String)],
    pub(crate) memory: &'l Memory,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) dynamic_shared_bytes: u32,
    pub(crate) shared_bytes: u64,
    pub(crate) parameters: &'l [u8],
    pub(crate) options: &'l Options,
    pub(crate) arch: pulp::Arch,
}

impl LaunchEnvironment<'_> {
    /// Returns the number of threads in a block.
    pub(crate) fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    /// Returns the index of a thread along each axis.
    pub(crate) fn thread(&self, number: u32) -> [u32; 3] {
        split(number.into(), self.block)
    }

    pub(crate) fn source(&self, number: u64) -> String {
        self.sources
            .iter()
            .find(|(other, _)| *other == number)
            .map_or_else(String::new, |(_, name)| name.clone())
    }
}

/// Splits a linear index into indices along each axis.
pub(super) fn split(number: u64, sides: [u32; 3]) -> [u32; 3] {
    let [x, y] = [sides[0], sides[1]].map(u64::from);
    [(number % x) as u32, (number / x % y) as u32, (number / x / y) as u32]
}
