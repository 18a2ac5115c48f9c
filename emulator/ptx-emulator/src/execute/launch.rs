//! Execution of a launch: all blocks of a grid, in parallel on the host's cores.

use super::{
    block::BlockExecutor,
    environment::{LaunchEnvironment, split},
    order::ShuffleRng,
};
use crate::{
    Dimensions, Fault, LaunchError, Memory, Options, decode::DecodedKernel, memory::MAX_SHARED_BYTES,
};
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Launch request: the kernel, its arguments and options.
pub(crate) struct LaunchRequest<'l> {
    /// Name of the kernel.
    pub(crate) name: &'l str,
    /// Decoded kernel.
    pub(crate) decoded: &'l DecodedKernel,
    /// Number and name of each source file.
    pub(crate) sources: &'l [(u64, String)],
    /// Dimensions of the grid and of a block, and dynamic shared memory.
    pub(crate) dimensions: Dimensions,
    /// Parameter memory: the arguments at the offsets of their parameters, in bytes.
    pub(crate) parameters: &'l [u8],
    /// Options of the launch, such as the checks to perform.
    pub(crate) options: &'l Options,
}

/// Executes all blocks of a launch and returns the number of executed warp instructions.
///
/// # Errors
/// Returns an error if a device does not accept the launch, or if a block faults. Of several
/// faults, that of the first block in launch order is returned.
pub(crate) fn launch(request: &LaunchRequest<'_>, memory: &Memory) -> Result<u64, LaunchError> {
    let &LaunchRequest { name, decoded, sources, dimensions, parameters, options } = request;
    let shared_bytes = check(name, decoded, dimensions)?;
    let Dimensions { grid, block, dynamic_shared_bytes } = dimensions;
    let arch = pulp::Arch::new();
    let environment = LaunchEnvironment {
        name,
        decoded,
        sources,
        memory,
        grid,
        block,
        dynamic_shared_bytes,
        shared_bytes,
        parameters,
        options,
        arch,
    };
    let blocks: u64 = grid.iter().map(|&side| u64::from(side)).product();
    let order = options.seed.map(|seed| {
        let mut order: Vec<_> = (0..blocks).collect();
        ShuffleRng::new(seed, 0).shuffle(&mut order);
        order
    });
    let first_fault = AtomicU64::new(u64::MAX);
    let run = |executor: &mut BlockExecutor<'_>, position: u64| -> Result<u64, (u64, Box<Fault>)> {
        if position > first_fault.load(Relaxed) {
            return Ok(0);
        }
        let number = order.as_ref().map_or(position, |order| order[position as usize]);
        executor.run(split(number, grid), number).map_err(|fault| {
            first_fault.fetch_min(position, Relaxed);
            (position, fault)
        })
    };
    let earlier = |a: Result<u64, (u64, Box<Fault>)>, b| match (a, b) {
        (Ok(a), Ok(b)) => Ok(a + b),
        (Err(a), Err(b)) => Err(if a.0 < b.0 { a } else { b }),
        (Err(error), _) | (_, Err(error)) => Err(error),
    };
    let result = if blocks == 1 {
        run(&mut BlockExecutor::new(&environment), 0)
    } else {
        let all = (0..blocks).into_par_iter();
        all.map_init(|| BlockExecutor::new(&environment), run).reduce(|| Ok(0), earlier)
    };
    result.map_err(|(_, fault)| LaunchError::Fault(fault))
}

/// Checks that a device accepts a launch of the kernel `name`, and returns the shared memory of a
/// block in bytes. It is an error if the dimensions or the shared memory exceed a limit of the
/// device or of the kernel.
pub(crate) fn check(name: &str, decoded: &DecodedKernel, dimensions: Dimensions) -> Result<u64, LaunchError> {
    let Dimensions { grid, block, dynamic_shared_bytes } = dimensions;
    let invalid = |reason: String| Err(LaunchError::Dimensions { grid, block, reason });
    let threads: u64 = block.iter().map(|&side| u64::from(side)).product();
    if grid.contains(&0) || block.contains(&0) {
        return invalid("a side is 0".to_owned());
    }
    if grid[0] > i32::MAX as u32 || grid[1] > 65535 || grid[2] > 65535 {
        return invalid("a grid has at most 2147483647 x 65535 x 65535 blocks".to_owned());
    }
    if threads > 1024 || block[0] > 1024 || block[1] > 1024 || block[2] > 64 {
        return invalid("a block has at most 1024 threads, 64 along z".to_owned());
    }
    if let Some(max) = decoded.max_threads.filter(|max| threads > *max) {
        return invalid(format!("kernel {name} is compiled for at most {max} threads"));
    }
    if let Some(required) = decoded.required_block.filter(|required| *required != block.map(u64::from)) {
        return invalid(format!("kernel {name} is compiled for blocks of {required:?} threads"));
    }
    let bytes = decoded.shared_bytes + u64::from(dynamic_shared_bytes);
    if bytes > MAX_SHARED_BYTES {
        return Err(LaunchError::SharedMemory { kernel: name.to_owned(), bytes, limit: MAX_SHARED_BYTES });
    }
    Ok(bytes)
}
