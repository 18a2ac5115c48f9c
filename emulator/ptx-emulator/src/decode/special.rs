//! Special registers and other values initialised at launch. An axis is 0 for x, 1 for y and 2 for
//! z. A lane is one of the 32 threads of a warp; in a mask, bit *l* stands for lane *l*.

use crate::operations::Kind;

/// Special register of PTX, which holds a value of the thread or of the launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SpecialRegister {
    /// Index of the thread in its block along an axis (`%tid`).
    Thread(usize),
    /// Number of threads of a block along an axis (`%ntid`).
    Threads(usize),
    /// Index of the block in the grid along an axis (`%ctaid`).
    Block(usize),
    /// Number of blocks of the grid along an axis (`%nctaid`).
    Blocks(usize),
    /// Index of the thread in its warp (`%laneid`).
    Lane,
    /// Index of the warp in its block (`%warpid`).
    Warp,
    /// Number of warps of a block (`%nwarpid`).
    Warps,
    /// Mask of the own lane (`%lanemask_eq`).
    LanesEqual,
    /// Mask of the lanes below the own one (`%lanemask_lt`).
    LanesLess,
    /// Mask of the own lane and those below (`%lanemask_le`).
    LanesLessOrEqual,
    /// Mask of the lanes above the own one (`%lanemask_gt`).
    LanesGreater,
    /// Mask of the own lane and those above (`%lanemask_ge`).
    LanesGreaterOrEqual,
    /// Index of the multiprocessor, always 0 (`%smid`).
    Processor,
    /// Number of multiprocessors, always 1 (`%nsmid`).
    Processors,
    /// Number of the launch, always 0 (`%gridid`).
    Grid,
    /// Declared and dynamic shared memory of a block, in bytes (`%total_smem_size`).
    SharedBytes,
    /// Dynamic shared memory of a block, in bytes (`%dynamic_smem_size`).
    DynamicSharedBytes,
}

impl SpecialRegister {
    /// Returns the special register with a name such as `%tid.x`, or `None` if there is none.
    pub(crate) fn find(name: &str) -> Option<Self> {
        let axis = |name: &str| ["x", "y", "z"].iter().position(|axis| *axis == name);
        if let Some((register, side)) = name.split_once('.') {
            let axis = axis(side)?;
            return Some(match register {
                "%tid" => Self::Thread(axis),
                "%ntid" => Self::Threads(axis),
                "%ctaid" => Self::Block(axis),
                "%nctaid" => Self::Blocks(axis),
                _ => return None,
            });
        }
        Some(match name {
            "%laneid" => Self::Lane,
            "%warpid" => Self::Warp,
            "%nwarpid" => Self::Warps,
            "%lanemask_eq" => Self::LanesEqual,
            "%lanemask_lt" => Self::LanesLess,
            "%lanemask_le" => Self::LanesLessOrEqual,
            "%lanemask_gt" => Self::LanesGreater,
            "%lanemask_ge" => Self::LanesGreaterOrEqual,
            "%smid" => Self::Processor,
            "%nsmid" => Self::Processors,
            "%gridid" => Self::Grid,
            "%total_smem_size" => Self::SharedBytes,
            "%dynamic_smem_size" => Self::DynamicSharedBytes,
            _ => return None,
        })
    }

    /// Returns the kind of the register that holds the value.
    pub(crate) fn kind(self) -> Kind {
        if self == Self::Grid { Kind::D } else { Kind::W }
    }
}
