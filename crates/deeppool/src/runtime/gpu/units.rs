//! Launch units: the groups of operations of a program that are launched together.

use gpu_mux::Lane;

use crate::program::{BufferId, Op, RankProgram, StepId};

/// A launch unit: operations of a program that are launched together as one tasklet in every
/// iteration. A unit is identified by its index in the launch order of the iteration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unit {
    /// The operations that the unit launches.
    pub(super) work: UnitWork,
    /// Index of the unit on the other lane that must end before this one starts; `None` if there is
    /// none. Units of the same lane run in launch order.
    pub(super) after: Option<usize>,
}

/// The operations of a launch unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum UnitWork {
    /// Sets the launch context of the iteration: seed, iteration and learning rate.
    Begin,
    /// Copies the samples of a step to the device: the step, and the buffer that it writes.
    Load(StepId, BufferId),
    /// Launches the kernels of these steps, in this order. Only the first may depend on a unit of
    /// the communication lane.
    Compute(Vec<StepId>),
    /// Starts the collective of this step.
    Collective(StepId),
    /// Copies this buffer to the host at the end of the iteration. It has the loss and the number
    /// of correctly classified samples.
    Metrics(BufferId),
}

impl Unit {
    /// Returns the lane of the unit: communication for a collective, compute for everything else.
    pub(super) fn lane(&self) -> Lane {
        match self.work {
            UnitWork::Collective(_) => Lane::Communication,
            _ => Lane::Compute,
        }
    }

    /// Returns the steps of the program that the unit launches; empty for `Begin` and `Metrics`.
    pub(super) fn steps(&self) -> &[StepId] {
        match &self.work {
            UnitWork::Compute(steps) => steps,
            UnitWork::Load(step, _) | UnitWork::Collective(step) => std::slice::from_ref(step),
            UnitWork::Begin | UnitWork::Metrics(_) => &[],
        }
    }
}

/// Returns the launch units of a program, in launch order. `metrics` is the buffer with loss and
/// number of correct samples; `None` if the rank has none. `has_kernel` returns whether a compute
/// step has a kernel.
///
/// The first and the last unit are on the compute lane. Communication without a dependency in its
/// own iteration waits for the first unit, which has to wait for the communication of the previous
/// iteration: so iterations do not overlap on one rank.
pub(super) fn units(
    program: &RankProgram,
    metrics: Option<BufferId>,
    has_kernel: impl Fn(StepId) -> bool,
) -> Vec<Unit> {
    let step = |id: StepId| &program.steps[id.0];
    let is_launched =
        |id: StepId| matches!(step(id).op, Op::LoadBatch { .. } | Op::Collective(_)) || has_kernel(id);
    let launches = program.launches(is_launched);
    let mut units = vec![Unit { work: UnitWork::Begin, after: None }];
    // Unit of each launch.
    let mut unit_of = Vec::with_capacity(launches.len());
    // The unit that can take further steps: no communication waits for a part of it.
    let mut open: Option<usize> = None;
    for launch in &launches {
        let after = launch.after.map(|other| unit_of[other]);
        let unit = match step(launch.step).op {
            Op::Collective(_) => {
                open = open.filter(|open| after != Some(*open));
                Unit { work: UnitWork::Collective(launch.step), after: after.or(Some(0)) }
            }
            Op::LoadBatch { .. } => {
                open = None;
                let buffer = step(launch.step).writes[0];
                Unit { work: UnitWork::Load(launch.step, buffer), after }
            }
            _ => {
                if let (Some(place), None) = (open, after) {
                    if let UnitWork::Compute(steps) = &mut units[place].work {
                        steps.push(launch.step);
                    }
                    unit_of.push(place);
                    continue;
                }
                open = Some(units.len());
                Unit { work: UnitWork::Compute(vec![launch.step]), after }
            }
        };
        unit_of.push(units.len());
        units.push(unit);
    }
    if let Some(buffer) = metrics {
        let is_writer = |unit: &Unit| unit.steps().iter().any(|id| step(*id).writes.contains(&buffer));
        let writer = units.iter().rposition(is_writer);
        let after = writer.filter(|&writer| units[writer].lane() == Lane::Communication);
        units.push(Unit { work: UnitWork::Metrics(buffer), after });
    }
    units
}

/// Divides each `Compute` unit into units that are launched one after another. `parts` receives the
/// steps of a unit and returns at least one part: its steps, with a value for its launch, such as a
/// graph. Other units are returned unchanged, with `None`. A unit that waited for a divided one
/// waits for its last part.
pub(super) fn divide<W, E>(
    units: &[Unit],
    mut parts: impl FnMut(&[StepId]) -> Result<Vec<(Vec<StepId>, W)>, E>,
) -> Result<Vec<(Unit, Option<W>)>, E> {
    let mut divided = Vec::with_capacity(units.len());
    // Last part of each unit.
    let mut ends_at = Vec::with_capacity(units.len());
    for unit in units {
        let mut after = unit.after.map(|other: usize| ends_at[other]);
        if let UnitWork::Compute(steps) = &unit.work {
            for (steps, work) in parts(steps)? {
                let unit = Unit { work: UnitWork::Compute(steps), after: after.take() };
                divided.push((unit, Some(work)));
            }
        } else {
            divided.push((Unit { work: unit.work.clone(), after }, None));
        }
        ends_at.push(divided.len() - 1);
    }
    Ok(divided)
}
