//! Placement of jobs beside other jobs, while placements are planned. The *owner* is the job to
//! which the GPUs were assigned, the *guest* the job that runs in its idle time. Jobs are given by
//! the indices of their entries. The *target* of a job is its planned placement.

use rustc_hash::FxHashMap;

use super::entry::{Assignment, Entry, ExecutionChoice};
use crate::policy::Sharing;
use crate::sharing::{cycle, in_pieces, in_whole_iterations, owner_iteration, slowed};
use crate::table::{ExecutionId, Table};
use crate::{GpuId, GpuType};

/// Cache of the durations of shared executions, by owner, GPU of the owner, and guest.
#[derive(Debug, Default)]
pub(super) struct PairCache {
    guest_options: FxHashMap<(ExecutionId, usize, ExecutionId), Option<GuestOption>>,
    cycles: FxHashMap<(ExecutionId, ExecutionId), Option<u64>>,
}

/// Speed of a guest on one GPU of an owner.
#[derive(Debug, Clone, Copy)]
struct GuestOption {
    /// Duration of the guest's iterations in nanoseconds.
    iteration: u64,
    /// Number by which the places for a guest are compared; smaller is better.
    cost: u64,
}

/// Owners on several GPUs, by GPU type and count, and by execution.
type Gangs = FxHashMap<(GpuType, usize), Vec<(ExecutionId, Vec<usize>)>>;

/// GPUs on which a guest has the same iteration time: GPUs of the same execution and, if its busy
/// times do not rotate among the GPUs, at the same position in it.
struct Group {
    execution_id: ExecutionId,
    place: usize,
    gpu_type: GpuType,
    /// Owners and GPUs, the next one last. GPUs taken in the meantime are skipped.
    free: Vec<(usize, GpuId)>,
}

/// GPUs of placed jobs (owners) on which other jobs (guests) can be placed as well.
pub(super) struct SharedPlaces<'a> {
    table: &'a Table,
    sharing: Sharing,
    entries: &'a mut [Entry],
    pairs: &'a mut PairCache,
    groups: Vec<Group>,
    /// Owners on several GPUs, by execution and number of GPUs, the next one last.
    gangs: Gangs,
    /// Whether each GPU has a second job, or its owner shares all of its GPUs.
    is_taken: Vec<bool>,
    /// Groups in increasing order of cost, by execution on one GPU.
    best: FxHashMap<ExecutionId, Vec<usize>>,
}

/// Returns whether other jobs may be placed beside a job.
fn has_room(sharing: Sharing, assignment: &Assignment) -> bool {
    match sharing {
        Sharing::Pairs { .. } => assignment.gpus.len() == 1,
        Sharing::None | Sharing::Iterations { .. } | Sharing::IdlePeriods { .. } => assignment.gpus.len() > 1,
    }
}

impl<'a> SharedPlaces<'a> {
    /// Creates the places on the GPUs of `owners`, given in order of preference. Owners without a
    /// target are ignored. `gpus` is the number of GPUs of the cluster.
    pub(super) fn new(
        table: &'a Table,
        sharing: Sharing,
        owners: &[usize],
        entries: &'a mut [Entry],
        gpus: usize,
        pairs: &'a mut PairCache,
    ) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        let mut known: FxHashMap<(ExecutionId, usize), usize> = FxHashMap::default();
        let mut gangs = Gangs::default();
        for &owner in owners.iter().rev() {
            let Some(assignment) = &entries[owner].target else { continue };
            if !has_room(sharing, assignment) {
                continue;
            }
            let rotates = table.at(assignment.execution_id).rotates;
            for (place, &gpu) in assignment.gpus.iter().enumerate() {
                let place = if rotates { 0 } else { place };
                let group = *known.entry((assignment.execution_id, place)).or_insert_with(|| {
                    let group = Group {
                        execution_id: assignment.execution_id,
                        place,
                        gpu_type: assignment.gpu_type,
                        free: Vec::new(),
                    };
                    groups.push(group);
                    groups.len() - 1
                });
                groups[group].free.push((owner, gpu));
            }
            if matches!(sharing, Sharing::Iterations { .. }) {
                let of_size = gangs.entry((assignment.gpu_type, assignment.gpus.len())).or_default();
                match of_size.iter_mut().find(|(execution_id, _)| *execution_id == assignment.execution_id) {
                    Some((_, owners)) => owners.push(owner),
                    None => of_size.push((assignment.execution_id, vec![owner])),
                }
            }
        }
        Self {
            table,
            sharing,
            entries,
            pairs,
            groups,
            gangs,
            is_taken: vec![false; gpus],
            best: FxHashMap::default(),
        }
    }

    /// Whether no place for a guest is left. It may also be `false` if all remaining places have
    /// been taken, because taken places are removed only when they are next examined.
    pub(super) fn is_full(&self) -> bool {
        self.groups.iter().all(|group| group.free.is_empty())
    }

    /// Whether the job at `index` has no target, so that it waits for GPUs.
    pub(super) fn waits(&self, index: usize) -> bool {
        self.entries[index].target.is_none()
    }

    /// Places the job `guest` beside another one: at its `previous` place if possible, otherwise
    /// where it is fastest. It remains without a target if there is no place.
    pub(super) fn place(&mut self, guest: usize, previous: Option<&Assignment>) {
        let options = self.entries[guest].options.clone();
        for choice in options {
            let found = if choice.gpus == 1 {
                self.place_alone(guest, choice, previous)
            } else {
                self.place_gang(guest, choice, previous)
            };
            if found {
                return;
            }
        }
    }

    /// Places a one-GPU job.
    fn place_alone(&mut self, guest: usize, choice: ExecutionChoice, previous: Option<&Assignment>) -> bool {
        if let Some((owner, gpu)) =
            previous.and_then(|assignment| Some((assignment.beside?, *assignment.gpus.first()?)))
        {
            let group = self.entries[owner].target.as_ref().and_then(|assignment| {
                let place = assignment.gpus.binary_search(&gpu).ok()?;
                let place = if self.table.at(assignment.execution_id).rotates { 0 } else { place };
                has_room(self.sharing, assignment).then_some((
                    assignment.execution_id,
                    place,
                    assignment.gpu_type,
                ))
            });
            if let Some((execution_id, place, gpu_type)) = group.filter(|_| self.is_open(owner, gpu)) {
                if gpu_type == choice.gpu_type {
                    if let Some(GuestOption { iteration, .. }) =
                        self.in_idle_period(execution_id, place, choice)
                    {
                        self.assign_beside(guest, choice, owner, vec![gpu], iteration);
                        return true;
                    }
                }
            }
        }
        let order = if let Some(order) = self.best.get(&choice.execution_id) {
            order.clone()
        } else {
            let mut by_cost: Vec<(u64, usize)> = Vec::new();
            for group in 0..self.groups.len() {
                let Group { execution_id, place, gpu_type, .. } = self.groups[group];
                let option =
                    (gpu_type == choice.gpu_type).then(|| self.in_idle_period(execution_id, place, choice));
                by_cost.extend(option.flatten().map(|option| (option.cost, group)));
            }
            by_cost.sort_unstable();
            let order: Vec<usize> = by_cost.into_iter().map(|(_, group)| group).collect();
            self.best.insert(choice.execution_id, order.clone());
            order
        };
        for group in order {
            while let Some((owner, gpu)) = self.groups[group].free.pop() {
                if self.is_open(owner, gpu) {
                    let Group { execution_id, place, .. } = self.groups[group];
                    if let Some(GuestOption { iteration, .. }) =
                        self.in_idle_period(execution_id, place, choice)
                    {
                        self.assign_beside(guest, choice, owner, vec![gpu], iteration);
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Places a job beside an owner with the same number of GPUs.
    fn place_gang(&mut self, guest: usize, choice: ExecutionChoice, previous: Option<&Assignment>) -> bool {
        let Sharing::Iterations { .. } = self.sharing else { return false };
        let was_beside = previous.and_then(|assignment| assignment.beside);
        let execution_ids: Vec<ExecutionId> = match self.gangs.get(&(choice.gpu_type, choice.gpus)) {
            Some(of_size) => of_size.iter().map(|(execution_id, _)| *execution_id).collect(),
            None => return false,
        };
        let mut best: Option<(u64, usize)> = None;
        for (at, &execution_id) in execution_ids.iter().enumerate() {
            let Some(cycle) = self.cycle(execution_id, choice.execution_id) else { continue };
            let owner = self.table.at(execution_id).iteration;
            // The saved time relative to the two iterations in sequence.
            let saved = (owner + choice.iteration - cycle) as f64 / (owner + choice.iteration) as f64;
            let saved = (saved * 1e9) as u64;
            while let Some(&owner) = self.owners_of(&choice, at).last() {
                if self.is_all_open(owner) {
                    break;
                }
                self.owners_of(&choice, at).pop();
            }
            if self.owners_of(&choice, at).is_empty() {
                continue;
            }
            if best.is_none_or(|(max_saved, _)| saved > max_saved) {
                best = Some((saved, at));
            }
        }
        let Some((_, at)) = best else { return false };
        let owners = self.owners_of(&choice, at);
        let stays = was_beside.and_then(|owner| owners.iter().position(|&other| other == owner));
        let owner = match stays {
            Some(position) => Some(owners.remove(position)),
            None => owners.pop(),
        };
        let Some(owner) = owner.filter(|&owner| self.is_all_open(owner)) else { return false };
        let Some(assignment) = self.entries[owner].target.clone() else { return false };
        let Some(cycle) = self.cycle(assignment.execution_id, choice.execution_id) else { return false };
        self.assign_beside(guest, choice, owner, assignment.gpus, cycle);
        true
    }

    fn owners_of(&mut self, choice: &ExecutionChoice, at: usize) -> &mut Vec<usize> {
        &mut self.gangs.entry((choice.gpu_type, choice.gpus)).or_default()[at].1
    }

    fn is_open(&self, owner: usize, gpu: GpuId) -> bool {
        self.entries[owner].target.is_some() && !self.is_taken[gpu.index()]
    }

    fn is_all_open(&self, owner: usize) -> bool {
        let assignment = self.entries[owner].target.as_ref();
        assignment.is_some_and(|assignment| assignment.gpus.iter().all(|gpu| !self.is_taken[gpu.index()]))
    }

    fn assign_beside(
        &mut self,
        guest: usize,
        choice: ExecutionChoice,
        owner: usize,
        gpus: Vec<GpuId>,
        iteration: u64,
    ) {
        for gpu in &gpus {
            self.is_taken[gpu.index()] = true;
        }
        let overlap = self.overlap();
        if let Some(assignment) = &mut self.entries[owner].target {
            let alone = self.table.at(assignment.execution_id);
            assignment.iteration = match self.table.pair_speeds_of_executions(
                assignment.gpu_type,
                assignment.execution_id,
                choice.execution_id,
            ) {
                Some([part, _]) if matches!(self.sharing, Sharing::Pairs { .. }) => {
                    slowed(alone.iteration, part)
                }
                _ if gpus.len() > 1 => iteration,
                _ => owner_iteration(alone, overlap),
            };
        }
        let ExecutionChoice { gpu_type, mode, execution_id, .. } = choice;
        let spread = self.entries[owner].target.as_ref().is_some_and(|assignment| assignment.spread);
        self.entries[guest].target =
            Some(Assignment { gpus, gpu_type, spread, mode, execution_id, beside: Some(owner), iteration });
    }

    fn overlap(&self) -> f64 {
        match self.sharing {
            Sharing::None | Sharing::Pairs { .. } => 0.0,
            Sharing::Iterations { overlap } | Sharing::IdlePeriods { overlap, .. } => overlap,
        }
    }

    fn in_idle_period(
        &mut self,
        owner: ExecutionId,
        place: usize,
        guest: ExecutionChoice,
    ) -> Option<GuestOption> {
        let (table, sharing, execution_id) = (self.table, self.sharing, guest.execution_id);
        *self.pairs.guest_options.entry((owner, place, execution_id)).or_insert_with(|| {
            let (execution, time) = (table.at(owner), guest.iteration);
            let fastest = |iteration: u64| GuestOption { iteration, cost: iteration };
            match sharing {
                Sharing::None => None,
                Sharing::Iterations { overlap } => {
                    in_whole_iterations(execution, place, time, overlap).map(fastest)
                }
                Sharing::IdlePeriods { efficiency, overlap } => {
                    in_pieces(execution, place, time, efficiency, overlap).map(fastest)
                }
                Sharing::Pairs { min_speed_sum } => {
                    let [one, other] =
                        table.pair_speeds_of_executions(guest.gpu_type, owner, execution_id)?;
                    // In a better pair, both jobs lose less.
                    let cost = ((2.0 - one - other) * 1e9) as u64;
                    (one + other >= min_speed_sum)
                        .then(|| GuestOption { iteration: slowed(time, other), cost })
                }
            }
        })
    }

    fn cycle(&mut self, owner: ExecutionId, guest: ExecutionId) -> Option<u64> {
        let (table, overlap) = (self.table, self.overlap());
        let pair = self.pairs.cycles.entry((owner, guest));
        *pair.or_insert_with(|| cycle(table.at(owner), table.at(guest), overlap))
    }
}
