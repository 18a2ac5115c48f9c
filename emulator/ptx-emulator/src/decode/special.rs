//! Special registers and other values initialised at launch.

use crate::operations::Kind;

/// Initial value of a register, by thread or for the whole launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Special {
    Thread(usize),
    Threads(usize),
    Block(usize),
    Blocks(usize),
    Lane,
    Warp,
    Warps,
    LanesEqual,
    LanesLess,
    LanesLessOrEqual,
    LanesGreater,
    LanesGreaterOrEqual,
    Processor,
    Processors,
    Grid,
    SharedBytes,
    DynamicSharedBytes,
}

impl Special {
    /// Returns the special register with the given name.
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

    /// Returns the kind of register that holds the value.
    pub(crate) fn kind(self) -> Kind {
        if self == Self::Grid { Kind::D } else { Kind::W }
    }
}
