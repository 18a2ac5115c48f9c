//! Placement of jobs beside other jobs, while placements are planned. The *host* is the job to
//! which the GPUs were assigned, the *guest* the job that runs in its idle time. Jobs are given by
//! the indices of their entries. The *target* of a job is its planned placement.

use rustc_hash::FxHashMap;

use super::entry::{Assignment, Entry, ExecutionChoice};
use crate::policy::Sharing;
use crate::sharing::{cycle, hosting, in_gaps, in_slots, slowed};
use crate::table::{RowId, Table};
use crate::{GpuId, GpuType};

/// Cache of the durations of shared executions, by host, GPU of the host, and guest.
#[derive(Debug, Default)]
pub(super) struct PairCache {
    slots: FxHashMap<(RowId, usize, RowId), Option<Slot>>,
    cycles: FxHashMap<(RowId, RowId), Option<u64>>,
}

/// A job beside another on one GPU.
#[derive(Debug, Clone, Copy)]
struct Slot {
    /// Duration of its iterations.
    iteration: u64,
    /// Cost for the comparison of slots; smaller is better.
    cost: u64,
}

/// Hosts on several GPUs, by GPU type and count, and by execution.
type Gangs = FxHashMap<(GpuType, usize), Vec<(RowId, Vec<usize>)>>;

/// GPUs with identical slots: the same execution, and the same position in it if its parts do not
/// rotate.
struct Group {
    row: RowId,
    place: usize,
    gpu_type: GpuType,
    /// Hosts and GPUs, the next one last. GPUs taken in the meantime are skipped.
    free: Vec<(usize, GpuId)>,
}

/// GPUs of placed jobs (hosts) on which other jobs (guests) can be placed as well.
pub(super) struct SharedPlaces<'a> {
    table: &'a Table,
    sharing: Sharing,
    entries: &'a mut [Entry],
    pairs: &'a mut PairCache,
    groups: Vec<Group>,
    /// Hosts on several GPUs, by execution and number of GPUs, the next one last.
    gangs: Gangs,
    /// Whether each GPU has a second job, or its host shares all of its GPUs.
    is_taken: Vec<bool>,
    /// Groups in increasing order of cost, by execution on one GPU.
    best: FxHashMap<RowId, Vec<usize>>,
}

/// Returns whether other jobs may be placed beside a job.
fn has_room(sharing: Sharing, assignment: &Assignment) -> bool {
    match sharing {
        Sharing::Pairs { .. } => assignment.gpus.len() == 1,
        Sharing::None | Sharing::Iterations { .. } | Sharing::Gaps { .. } => assignment.gpus.len() > 1,
    }
}

impl<'a> SharedPlaces<'a> {
    /// Creates the places on the GPUs of `hosts`, given in order of preference. Hosts without a
    /// target are ignored. `gpus` is the number of GPUs of the cluster.
    pub(super) fn new(
        table: &'a Table,
        sharing: Sharing,
        hosts: &[usize],
        entries: &'a mut [Entry],
        gpus: usize,
        pairs: &'a mut PairCache,
    ) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        let mut known: FxHashMap<(RowId, usize), usize> = FxHashMap::default();
        let mut gangs = Gangs::default();
        for &host in hosts.iter().rev() {
            let Some(assignment) = &entries[host].target else { continue };
            if !has_room(sharing, assignment) {
                continue;
            }
            let rotates = table.at(assignment.row).rotates;
            for (place, &gpu) in assignment.gpus.iter().enumerate() {
                let place = if rotates { 0 } else { place };
                let group = *known.entry((assignment.row, place)).or_insert_with(|| {
                    let group =
                        Group { row: assignment.row, place, gpu_type: assignment.gpu_type, free: Vec::new() };
                    groups.push(group);
                    groups.len() - 1
                });
                groups[group].free.push((host, gpu));
            }
            if matches!(sharing, Sharing::Iterations { .. }) {
                let of_size = gangs.entry((assignment.gpu_type, assignment.gpus.len())).or_default();
                match of_size.iter_mut().find(|(row, _)| *row == assignment.row) {
                    Some((_, hosts)) => hosts.push(host),
                    None => of_size.push((assignment.row, vec![host])),
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

    /// Whether no place for a guest is left. May be `false` although all remaining places have been
    /// taken: these are removed when they are next examined.
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
        if let Some((host, gpu)) =
            previous.and_then(|assignment| Some((assignment.beside?, *assignment.gpus.first()?)))
        {
            let group = self.entries[host].target.as_ref().and_then(|assignment| {
                let place = assignment.gpus.binary_search(&gpu).ok()?;
                let place = if self.table.at(assignment.row).rotates { 0 } else { place };
                has_room(self.sharing, assignment).then_some((assignment.row, place, assignment.gpu_type))
            });
            if let Some((row, place, gpu_type)) = group.filter(|_| self.is_open(host, gpu)) {
                if gpu_type == choice.gpu_type {
                    if let Some(Slot { iteration, .. }) = self.in_slot(row, place, choice) {
                        self.assign_beside(guest, choice, host, vec![gpu], iteration);
                        return true;
                    }
                }
            }
        }
        let order = if let Some(order) = self.best.get(&choice.row) {
            order.clone()
        } else {
            let mut by_cost: Vec<(u64, usize)> = Vec::new();
            for group in 0..self.groups.len() {
                let Group { row, place, gpu_type, .. } = self.groups[group];
                let slot = (gpu_type == choice.gpu_type).then(|| self.in_slot(row, place, choice));
                by_cost.extend(slot.flatten().map(|slot| (slot.cost, group)));
            }
            by_cost.sort_unstable();
            let order: Vec<usize> = by_cost.into_iter().map(|(_, group)| group).collect();
            self.best.insert(choice.row, order.clone());
            order
        };
        for group in order {
            while let Some((host, gpu)) = self.groups[group].free.pop() {
                if self.is_open(host, gpu) {
                    let Group { row, place, .. } = self.groups[group];
                    if let Some(Slot { iteration, .. }) = self.in_slot(row, place, choice) {
                        self.assign_beside(guest, choice, host, vec![gpu], iteration);
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Places a job beside a host with the same number of GPUs.
    fn place_gang(&mut self, guest: usize, choice: ExecutionChoice, previous: Option<&Assignment>) -> bool {
        let Sharing::Iterations { .. } = self.sharing else { return false };
        let was_beside = previous.and_then(|assignment| assignment.beside);
        let rows: Vec<RowId> = match self.gangs.get(&(choice.gpu_type, choice.gpus)) {
            Some(of_size) => of_size.iter().map(|(row, _)| *row).collect(),
            None => return false,
        };
        let mut best: Option<(u64, usize)> = None;
        for (at, &row) in rows.iter().enumerate() {
            let Some(cycle) = self.cycle(row, choice.row) else { continue };
            let host = self.table.at(row).iteration;
            // The saved time relative to the two iterations in sequence.
            let saved = (host + choice.iteration - cycle) as f64 / (host + choice.iteration) as f64;
            let saved = (saved * 1e9) as u64;
            while let Some(&host) = self.hosts_of(&choice, at).last() {
                if self.is_all_open(host) {
                    break;
                }
                self.hosts_of(&choice, at).pop();
            }
            if self.hosts_of(&choice, at).is_empty() {
                continue;
            }
            if best.is_none_or(|(max_saved, _)| saved > max_saved) {
                best = Some((saved, at));
            }
        }
        let Some((_, at)) = best else { return false };
        let hosts = self.hosts_of(&choice, at);
        let stays = was_beside.and_then(|host| hosts.iter().position(|&other| other == host));
        let host = match stays {
            Some(position) => Some(hosts.remove(position)),
            None => hosts.pop(),
        };
        let Some(host) = host.filter(|&host| self.is_all_open(host)) else { return false };
        let Some(assignment) = self.entries[host].target.clone() else { return false };
        let Some(cycle) = self.cycle(assignment.row, choice.row) else { return false };
        self.assign_beside(guest, choice, host, assignment.gpus, cycle);
        true
    }

    fn hosts_of(&mut self, choice: &ExecutionChoice, at: usize) -> &mut Vec<usize> {
        &mut self.gangs.entry((choice.gpu_type, choice.gpus)).or_default()[at].1
    }

    fn is_open(&self, host: usize, gpu: GpuId) -> bool {
        self.entries[host].target.is_some() && !self.is_taken[gpu.index()]
    }

    fn is_all_open(&self, host: usize) -> bool {
        let assignment = self.entries[host].target.as_ref();
        assignment.is_some_and(|assignment| assignment.gpus.iter().all(|gpu| !self.is_taken[gpu.index()]))
    }

    fn assign_beside(
        &mut self,
        guest: usize,
        choice: ExecutionChoice,
        host: usize,
        gpus: Vec<GpuId>,
        iteration: u64,
    ) {
        for gpu in &gpus {
            self.is_taken[gpu.index()] = true;
        }
        let overlap = self.overlap();
        if let Some(assignment) = &mut self.entries[host].target {
            let alone = self.table.at(assignment.row);
            assignment.iteration =
                match self.table.pair_speeds_of_rows(assignment.gpu_type, assignment.row, choice.row) {
                    Some([part, _]) if matches!(self.sharing, Sharing::Pairs { .. }) => {
                        slowed(alone.iteration, part)
                    }
                    _ if gpus.len() > 1 => iteration,
                    _ => hosting(alone, overlap),
                };
        }
        let ExecutionChoice { gpu_type, mode, row, .. } = choice;
        let spread = self.entries[host].target.as_ref().is_some_and(|assignment| assignment.spread);
        self.entries[guest].target =
            Some(Assignment { gpus, gpu_type, spread, mode, row, beside: Some(host), iteration });
    }

    fn overlap(&self) -> f64 {
        match self.sharing {
            Sharing::None | Sharing::Pairs { .. } => 0.0,
            Sharing::Iterations { overlap } | Sharing::Gaps { overlap, .. } => overlap,
        }
    }

    fn in_slot(&mut self, host: RowId, place: usize, guest: ExecutionChoice) -> Option<Slot> {
        let (table, sharing, row) = (self.table, self.sharing, guest.row);
        *self.pairs.slots.entry((host, place, row)).or_insert_with(|| {
            let (execution, time) = (table.at(host), guest.iteration);
            let fastest = |iteration: u64| Slot { iteration, cost: iteration };
            match sharing {
                Sharing::None => None,
                Sharing::Iterations { overlap } => in_slots(execution, place, time, overlap).map(fastest),
                Sharing::Gaps { efficiency, overlap } => {
                    in_gaps(execution, place, time, efficiency, overlap).map(fastest)
                }
                Sharing::Pairs { min_speed_sum } => {
                    let [one, other] = table.pair_speeds_of_rows(guest.gpu_type, host, row)?;
                    // In a better pair, both jobs lose less.
                    let cost = ((2.0 - one - other) * 1e9) as u64;
                    (one + other >= min_speed_sum).then(|| Slot { iteration: slowed(time, other), cost })
                }
            }
        })
    }

    fn cycle(&mut self, host: RowId, guest: RowId) -> Option<u64> {
        let (table, overlap) = (self.table, self.overlap());
        let pair = self.pairs.cycles.entry((host, guest));
        *pair.or_insert_with(|| cycle(table.at(host), table.at(guest), overlap))
    }
}
