//! Execution of one block of threads.

use super::{
    barrier::Barriers,
    context::{BlockContext, WarpFault},
    environment::LaunchEnvironment,
    interpreter::{Pause, TimeSlice},
    local::LocalMemory,
    order::ShuffleRng,
    shared::SharedMemory,
    warp::{Warp, lowest_lane},
};
use crate::{
    Fault, FaultKind,
    decode::SpecialRegister,
    operations::{LANES, Registers},
};

/// Number of instructions in the time slice of a warp. Another warp may wait for it, so slices are
/// finite.
const SLICE_INSTRUCTIONS: u64 = 1 << 14;

/// Executor of blocks, one at a time, on one host thread.
pub(crate) struct BlockExecutor<'l> {
    environment: &'l LaunchEnvironment<'l>,
    warps: Vec<Warp>,
    context: BlockContext<'l>,
}

impl<'l> BlockExecutor<'l> {
    /// Creates an executor. Constants are written to the registers once, since instructions never
    /// change them.
    pub(crate) fn new(environment: &'l LaunchEnvironment<'l>) -> Self {
        let decoded = environment.decoded;
        let threads = environment.threads();
        let warps = (0..threads.div_ceil(LANES as u32))
            .map(|index| {
                let mut registers = Registers::new(decoded.words, decoded.words64, decoded.predicates);
                for &(slot, value) in &decoded.constant_words {
                    registers.words[usize::from(slot)] = [value; LANES];
                }
                for &(slot, value) in &decoded.constant_words64 {
                    registers.words64[usize::from(slot)] = [value; LANES];
                }
                Warp::new(index, registers)
            })
            .collect();
        let options = environment.options;
        let context = BlockContext {
            environment,
            accesses: &decoded.accesses,
            shared: SharedMemory::new(
                environment.shared_bytes,
                options.check_uninitialised,
                options.check_races,
            ),
            local: LocalMemory::new(threads as usize, decoded.local_bytes),
            barriers: Barriers::default(),
            last_allocations: vec![0; decoded.accesses.len()],
        };
        Self { environment, warps, context }
    }

    /// Executes the block with the index `block` (x, y, z) and returns the number of executed warp
    /// instructions. `number` is the same index as one number, with x fastest; it selects the
    /// random order of warps. On failure, returns the fault that ended the block.
    pub(crate) fn run(&mut self, block: [u32; 3], number: u64) -> Result<u64, Box<Fault>> {
        let threads = self.environment.threads();
        self.context.shared.reset();
        self.context.barriers.reset();
        for warp in &mut self.warps {
            for &(slot, special) in &self.environment.decoded.specials {
                set_special(warp, slot, special, block, self.environment);
            }
            let count = (threads - warp.index * 32).min(32);
            warp.start(u32::MAX >> (32 - count));
        }
        let mut shuffle = self.environment.options.seed.map(|seed| ShuffleRng::new(seed, number + 1));
        let mut order: Vec<_> = (0..self.warps.len()).collect();
        loop {
            if let Some(shuffle) = &mut shuffle {
                shuffle.shuffle(&mut order);
            }
            let mut all_wait = true;
            for &index in &order {
                if self.warps[index].live == 0 {
                    continue;
                }
                // Slices of different lengths, so that warps do not stay in step.
                let slice = shuffle
                    .as_mut()
                    .map_or(SLICE_INSTRUCTIONS, |shuffle| 16 + shuffle.below(SLICE_INSTRUCTIONS));
                let executed: u64 = self.warps.iter().map(|warp| warp.executed).sum();
                let limit = self.environment.options.max_instructions;
                let left = limit.saturating_sub(executed).min(slice);
                let warp = &mut self.warps[index];
                let context = &mut self.context;
                let result = self.environment.arch.dispatch(TimeSlice { warp, context, instructions: left });
                let pause = result.map_err(|fault| self.fault(block, index, fault))?;
                if pause == Pause::SliceEnded && left < slice {
                    let kind = FaultKind::Watchdog { instructions: limit };
                    let (at, lane) = (self.position(index), lowest_lane(self.warps[index].live));
                    return Err(self.fault(block, index, WarpFault { kind, at, lane }));
                }
                all_wait &= pause == Pause::Blocked;
            }
            let released = self.context.barriers.release(&mut self.warps);
            if self.warps.iter().all(|warp| warp.live == 0) {
                return Ok(self.warps.iter().map(|warp| warp.executed).sum());
            }
            if all_wait && !released {
                return Err(self.deadlock(block));
            }
        }
    }

    /// Returns an instruction that lanes of a warp are at.
    fn position(&self, index: usize) -> usize {
        let warp = &self.warps[index];
        warp.waiting.first().map_or_else(|| warp.max_position(), |waiting| waiting.at.saturating_sub(1))
    }

    #[allow(clippy::unnecessary_box_returns)] // As `LaunchError` holds it.
    fn deadlock(&self, block: [u32; 3]) -> Box<Fault> {
        let stalled = self.warps.iter().enumerate().find_map(|(index, warp)| {
            let group = warp.stalled()?;
            Some((index, group.at, group.lanes, "lanes of its warp"))
        });
        let waiting = self.warps.iter().enumerate().find_map(|(index, warp)| {
            let waiting = warp.waiting.first()?;
            Some((index, waiting.at - 1, waiting.lanes, "a barrier of the block"))
        });
        let (index, at, lanes, waits_for) = stalled.or(waiting).unwrap_or((0, 0, 1, "nothing"));
        self.fault(
            block,
            index,
            WarpFault { kind: FaultKind::Deadlock { waits_for }, at, lane: lowest_lane(lanes) },
        )
    }

    #[allow(clippy::unnecessary_box_returns)] // As `LaunchError` holds it.
    fn fault(&self, block: [u32; 3], warp: usize, fault: WarpFault) -> Box<Fault> {
        let location =
            self.environment.decoded.locations[fault.at.min(self.environment.decoded.locations.len() - 1)];
        let source = location.source.map(|(file, line)| (self.environment.source(file), line));
        Box::new(Fault {
            kind: fault.kind,
            kernel: self.environment.name.to_owned(),
            block,
            thread: self.environment.thread(warp as u32 * 32 + fault.lane as u32),
            ptx_line: location.line,
            source,
        })
    }
}

fn set_special(
    warp: &mut Warp,
    slot: u16,
    special: SpecialRegister,
    block: [u32; 3],
    environment: &LaunchEnvironment<'_>,
) {
    let index = warp.index;
    let of_lane = |lane: u32| -> u32 {
        match special {
            SpecialRegister::Thread(axis) => environment.thread(index * 32 + lane)[axis],
            SpecialRegister::Threads(axis) => environment.block[axis],
            SpecialRegister::Block(axis) => block[axis],
            SpecialRegister::Blocks(axis) => environment.grid[axis],
            SpecialRegister::Lane => lane,
            SpecialRegister::Warp => index,
            SpecialRegister::Warps => environment.threads().div_ceil(32),
            SpecialRegister::LanesEqual => 1 << lane,
            SpecialRegister::LanesLess => (1 << lane) - 1,
            SpecialRegister::LanesLessOrEqual => u32::MAX >> (31 - lane),
            SpecialRegister::LanesGreater => !(u32::MAX >> (31 - lane)),
            SpecialRegister::LanesGreaterOrEqual => u32::MAX << lane,
            SpecialRegister::Processors => 1,
            SpecialRegister::Processor | SpecialRegister::Grid => 0,
            SpecialRegister::SharedBytes => environment.shared_bytes as u32,
            SpecialRegister::DynamicSharedBytes => environment.dynamic_shared_bytes,
        }
    };
    let values = std::array::from_fn(|lane| of_lane(lane as u32));
    match special {
        SpecialRegister::Grid => warp.registers.words64[usize::from(slot)] = values.map(u64::from),
        _ => warp.registers.words[usize::from(slot)] = values,
    }
}
