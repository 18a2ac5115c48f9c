//! Lifetimes of the buffers of a rank.
//!
//! A buffer holds a *value* from the step that overwrites it to the last step that reads or updates
//! that value. The two lanes of a rank run concurrently, so the order of two steps is known only if
//! they are on the same lane or the dependencies imply it.

use layer_engine::Pass;

use super::buckets::buckets;
use crate::program::{BufferId, BufferSpec, Contents, Lane, Op, RankProgram, Step, StepId};

/// Number of steps of each lane, compute first: the steps up to a point of time.
type Progress = [u32; 2];

/// The time in which a buffer holds one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Value {
    /// The steps that have certainly finished when the first step that uses the value starts.
    born: Progress,
    /// The steps that must have finished before another value may take the memory: up to the last
    /// use on each lane, 0 for a lane without a use.
    dies: Progress,
    /// Positions of the first and of the last use among the steps of all iterations.
    pub(super) steps: [u32; 2],
}

impl Value {
    /// Returns the time in which memory holds either of two values or both.
    fn joined(self, other: Self) -> Self {
        Self {
            born: [0, 1].map(|lane| self.born[lane].min(other.born[lane])),
            dies: [0, 1].map(|lane| self.dies[lane].max(other.dies[lane])),
            steps: [self.steps[0].min(other.steps[0]), self.steps[1].max(other.steps[1])],
        }
    }

    /// Returns whether the value is dead before the other one is born.
    pub(super) fn precedes(&self, other: &Self) -> bool {
        self.dies[0] <= other.born[0] && self.dies[1] <= other.born[1]
    }
}

/// Lifetime of a buffer: its values in their order. Each precedes the next one. Empty for a buffer
/// that no step uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Lifetime {
    pub(super) values: Vec<Value>,
}

impl Lifetime {
    /// Returns the lifetime of memory that several buffers share as a whole: it is in use while any
    /// of them is. O(values x log values).
    fn union<'l>(lifetimes: impl Iterator<Item = &'l Self>) -> Self {
        let mut values: Vec<Value> = lifetimes.flat_map(|lifetime| &lifetime.values).copied().collect();
        values.sort_unstable_by_key(|value| value.steps);
        let mut union: Vec<Value> = Vec::new();
        for mut value in values {
            while let Some(&last) = union.last().filter(|last| !last.precedes(&value)) {
                value = last.joined(value);
                union.pop();
            }
            union.push(value);
        }
        Self { values: union }
    }

    /// Returns whether each value is dead before the next one is born. O(values).
    #[cfg(feature = "train")]
    pub(super) fn is_ordered(&self) -> bool {
        self.values.windows(2).all(|pair| pair[0].precedes(&pair[1]))
    }

    /// Returns whether the two buffers may hold values at the same time. O(values).
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let (mut own, mut others) = (self.values.iter().peekable(), other.values.iter().peekable());
        while let (Some(value), Some(other)) = (own.peek(), others.peek()) {
            if value.precedes(other) {
                own.next();
            } else if other.precedes(value) {
                others.next();
            } else {
                return true;
            }
        }
        false
    }

    /// The steps that have finished when the first value is born; all without a value.
    pub(super) fn born(&self) -> [u32; 2] {
        self.values.first().map_or([u32::MAX; 2], |value| value.born)
    }

    /// The steps that must have finished when the last value is dead; none without a value.
    pub(super) fn dies(&self) -> [u32; 2] {
        self.values.last().map_or([0; 2], |value| value.dies)
    }

    /// Returns whether the buffer holds a value at a step, given by its position, if the steps run
    /// in their order.
    pub(super) fn is_alive_at(&self, step: u32) -> bool {
        self.values.iter().any(|value| (value.steps[0]..=value.steps[1]).contains(&step))
    }

    /// Position of the first use; `u32::MAX` without one.
    pub(super) fn first_step(&self) -> u32 {
        self.values.first().map_or(u32::MAX, |value| value.steps[0])
    }
}

#[cfg(test)]
impl Lifetime {
    /// A lifetime from a step to a later one: of the lane with more steps, if the other lane waits
    /// for it. With `again`, that number of steps later there is another value.
    pub(super) fn of_steps(start: Progress, length: u32, again: Option<u32>) -> Self {
        let value = |later: u32| {
            let born = start.map(|start| start + later);
            let last = born[0] + length;
            let dies = if length % 2 == 0 { [last, born[1] + 1] } else { [last, 0] };
            Value { born, dies, steps: [born[0], last] }
        };
        Self { values: [0].into_iter().chain(again).map(value).collect() }
    }
}

/// The steps of one iteration. All have finished before the next iteration starts.
#[derive(Debug, Clone, Copy)]
pub(in crate::program) struct IterationSteps<'p> {
    pub(in crate::program) steps: &'p [Step],
    /// Id of the first step: the ids in `Step::after` count from the start of the program.
    pub(in crate::program) first_id: usize,
}

impl<'p> IterationSteps<'p> {
    /// Returns the iterations of a program. `later` has the first step of each but the first.
    pub(in crate::program) fn of(steps: &'p [Step], later: &'p [StepId]) -> impl Iterator<Item = Self> {
        let starts = std::iter::once(0).chain(later.iter().map(|id| id.0));
        let ends = later.iter().map(|id| id.0).chain([steps.len()]);
        starts
            .zip(ends)
            .map(|(first_id, end)| Self { steps: steps.get(first_id..end).unwrap_or_default(), first_id })
    }
}

/// Computes the times in which the buffers of a rank's programs, which have the same buffers, need
/// their memory: see [`memory_lifetimes`].
pub(super) fn lifetimes_of(programs: &[&RankProgram]) -> Vec<Lifetime> {
    let Some(first) = programs.first() else { return Vec::new() };
    let iterations = programs.iter().flat_map(|one| IterationSteps::of(&one.steps, &one.later_iterations));
    memory_lifetimes(&first.buffers, first.state_buffers, &iterations.collect::<Vec<_>>())
}

/// Computes the times in which the buffers of a rank need their memory, by buffer id: their
/// lifetimes, and for each buffer of a bucket the union of those of the bucket. O(steps +
/// dependencies + operands).
pub(super) fn memory_lifetimes(
    buffers: &[BufferSpec],
    state_buffers: usize,
    iterations: &[IterationSteps<'_>],
) -> Vec<Lifetime> {
    let mut lifetimes = lifetimes(buffers, state_buffers, iterations);
    for bucket in buckets(buffers, iterations.iter().flat_map(|iteration| iteration.steps)) {
        let whole = Lifetime::union(bucket.iter().filter_map(|id| lifetimes.get(id.0)));
        for id in bucket {
            if let Some(lifetime) = lifetimes.get_mut(id.0) {
                lifetime.clone_from(&whole);
            }
        }
    }
    lifetimes
}

/// Computes the lifetimes of the buffers of a rank, by buffer id. State, which is kept, has none.
/// O(steps + dependencies + operands).
pub(super) fn lifetimes(
    buffers: &[BufferSpec],
    state_buffers: usize,
    iterations: &[IterationSteps<'_>],
) -> Vec<Lifetime> {
    let mut lifetimes = vec![Lifetime::default(); buffers.len()];
    let mut started: Progress = [0; 2];
    let mut position = 0;
    for iteration in iterations {
        let iteration_start = position;
        // The steps of the previous iterations have finished.
        let mut before = [started; 2];
        // For each step of the iteration, the progress when it has finished.
        let mut finished: Vec<Progress> = Vec::with_capacity(iteration.steps.len());
        for step in iteration.steps {
            let lane = usize::from(step.lane() == Lane::Communication);
            let mut born = before[lane];
            for earlier in step.after.iter().filter_map(|id| id.0.checked_sub(iteration.first_id)) {
                if let Some(implied) = finished.get(earlier) {
                    born = [born[0].max(implied[0]), born[1].max(implied[1])];
                }
            }
            started[lane] += 1;
            let mut after = born;
            after[lane] = started[lane];
            before[lane] = after;
            finished.push(after);
            for (id, is_overwritten) in uses(buffers, step) {
                let Some(lifetime) = lifetimes.get_mut(id.0).filter(|_| id.0 >= state_buffers) else {
                    continue;
                };
                let values = &mut lifetime.values;
                let is_new = values.last().is_none_or(|value| value.steps[0] < iteration_start);
                if is_overwritten || is_new {
                    values.push(Value { born, dies: [0; 2], steps: [position; 2] });
                }
                if let Some(value) = values.last_mut() {
                    value.dies[lane] = started[lane];
                    value.steps[1] = position;
                }
            }
            position += 1;
        }
    }
    for (spec, lifetime) in buffers.iter().zip(&mut lifetimes).skip(state_buffers) {
        if spec.is_permanent() {
            let steps = [0, u32::MAX];
            lifetime.values = vec![Value { born: [0; 2], dies: [u32::MAX; 2], steps }];
        }
    }
    lifetimes
}

/// Returns the buffers that a step uses, and whether it overwrites the buffer without reading it.
fn uses<'s>(buffers: &'s [BufferSpec], step: &'s Step) -> impl Iterator<Item = (BufferId, bool)> + 's {
    let overwrites = |id: BufferId| match step.op {
        // A redistribution overwrites; other collectives work in place.
        Op::Collective(_) => {
            let is_target = |contents| matches!(contents, Contents::Moved(_) | Contents::Packed(_));
            buffers.get(id.0).is_some_and(|buffer| is_target(buffer.contents))
        }
        Op::AddGradient | Op::ScaleGradient { .. } | Op::OptimizerStep { .. } => false,
        Op::Forward { pass: Pass::ForwardInPlace, .. } | Op::Backward { pass: Pass::BackwardInPlace, .. } => {
            step.writes.first() != Some(&id)
        }
        Op::LoadBatch { .. }
        | Op::Forward { .. }
        | Op::Backward { .. }
        | Op::SumGradients
        | Op::SumAddends { .. }
        | Op::SquaredNorm => !step.reads.contains(&id),
    };
    let reads = step.reads.iter().map(|&id| (id, false));
    let writes = step.writes.iter().map(move |&id| (id, overwrites(id)));
    reads.chain(writes)
}
