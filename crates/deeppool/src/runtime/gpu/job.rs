//! A job on a GPU as a sequence of tasklets. A *launch unit* is a group of operations that are
//! launched together as one tasklet. A *rotation* is the iterations after which the roles of
//! partial backpropagation repeat, each with its own program.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use gpu_mux::cuda::{CudaDevice, Work};
use gpu_mux::{JobId, Lane, Policy, Tasklet, TaskletId};
use layer_engine::LaunchContext;

use super::Gpu;
use super::graphs::{capture, uncaptured};
use super::launch_table::LaunchTable;
use super::units::{LoadedSamples, MAX_RUNNING_ITERATIONS, Unit, UnitWork};
use crate::Error;
use crate::program::{IterationSchedule, StepId};
use crate::runtime::identity::Identity;
use crate::runtime::{BatchSource, Iterations, LossMetrics, Observer, TimeSpan};

/// Number of iterations in which each program is launched kernel by kernel, before it is captured.
/// The last one gives the durations of steps.
const WARM_UP: u64 = 2;

/// A job on a GPU: it offers the launch units of its iterations to the multiplexer's driver as
/// tasklets. The first iterations are launched kernel by kernel and timed; then the kernels are
/// captured into CUDA graphs.
#[derive(Debug)]
pub(super) struct Job {
    id: JobId,
    /// The loaded program and the state that it was created for.
    created_for: (Identity, Identity),
    /// Programs of the rotation.
    programs: Vec<JobProgram>,
    /// The order in which they are executed.
    schedule: IterationSchedule,
    /// Number of iterations that are launched kernel by kernel, before all programs are captured.
    warm_up: u64,
    is_captured: bool,
    /// Number of completed iterations of this job.
    done: u64,
    /// The iteration and the unit that are offered next.
    next: (u64, usize),
    /// Next unused tasklet number.
    number: u64,
    /// Offered tasklets that have not finished, oldest first.
    in_flight: VecDeque<Offered>,
    /// The last communication tasklet of the previous iteration.
    last_communication: Option<TaskletId>,
    /// The tasklet of each launch of the iteration that is being offered.
    offered: Vec<TaskletId>,
    /// Number of finished units of the oldest running iteration.
    finished: usize,
}

/// One of the programs of a rotation.
#[derive(Debug)]
struct JobProgram {
    table: LaunchTable,
    /// The units that are launched: those of the table, without graphs and with one compute step
    /// each, and later with graphs.
    launches: Vec<Unit>,
    /// Durations of steps that were launched alone.
    took: HashMap<StepId, Duration>,
}

#[derive(Debug, Clone, Copy)]
struct Offered {
    number: u64,
    iteration: u64,
    launch: usize,
}

impl Job {
    /// Creates a job with a launch table for each program of the rotation, in the order of the
    /// programs.
    pub(super) fn new<S, O>(
        id: JobId,
        tables: Vec<LaunchTable>,
        iterations: &Iterations<'_, Gpu, S, O>,
    ) -> Self {
        let schedule = iterations.loaded.schedule;
        let programs = tables.into_iter().map(|table| JobProgram {
            launches: uncaptured(&table.units),
            table,
            took: HashMap::new(),
        });
        Self {
            id,
            created_for: identities(iterations),
            programs: programs.collect(),
            schedule,
            warm_up: schedule.iterations_until_each(iterations.context.iteration, WARM_UP),
            is_captured: false,
            done: 0,
            next: (iterations.context.iteration, 0),
            number: 0,
            in_flight: VecDeque::new(),
            last_communication: None,
            offered: Vec::new(),
            finished: 0,
        }
    }

    fn program_of(&self, iteration: u64) -> usize {
        self.schedule.program_of(iteration)
    }

    fn iteration(&self, iteration: u64) -> &JobProgram {
        &self.programs[self.program_of(iteration)]
    }

    /// Returns whether the job was created for the loaded program and the state of these
    /// iterations.
    pub(super) fn belongs_to<S, O>(&self, iterations: &Iterations<'_, Gpu, S, O>) -> bool {
        self.created_for == identities(iterations)
    }

    /// Continues with the first of these iterations. All previously offered iterations must have
    /// ended.
    pub(super) fn begin<S, O>(&mut self, iterations: &Iterations<'_, Gpu, S, O>) {
        self.next = (iterations.context.iteration, 0);
    }

    /// Returns the index of the iteration after the last one of which a unit was offered.
    pub(super) fn end_of_offered(&self) -> u64 {
        let (iteration, place) = self.next;
        iteration + u64::from(place > 0)
    }

    /// The identifier of the job in the multiplexer.
    pub(super) fn id(&self) -> JobId {
        self.id
    }

    /// Returns the lane of the tasklet in flight with this number.
    ///
    /// # Errors
    /// [`Error::UnknownTasklet`] if it is not in flight.
    pub(super) fn lane(&self, number: u64) -> Result<Lane, Error> {
        let Offered { iteration, launch, .. } = self.in_flight[self.place_in_flight(number)?];
        Ok(self.iteration(iteration).launches[launch].lane())
    }

    fn place_in_flight(&self, number: u64) -> Result<usize, Error> {
        let place = self.in_flight.iter().position(|offered| offered.number == number);
        place.ok_or(Error::UnknownTasklet { tasklet: TaskletId { job: self.id, number } })
    }

    /// The launch table of the first program.
    pub(super) fn launch_table(&self) -> &LaunchTable {
        &self.programs[0].table
    }

    /// Removes and returns the cause of a failed launch; `None` if none is stored.
    pub(super) fn take_failure(&self) -> Option<Error> {
        self.programs.iter().find_map(|program| program.table.failure.take())
    }

    /// Returns the label of the first step of the oldest unfinished tasklet; `None` if there is
    /// none.
    pub(super) fn in_flight<S, O>(&self, iterations: &Iterations<'_, Gpu, S, O>) -> Option<String> {
        let Offered { iteration, launch, .. } = *self.in_flight.front()?;
        let step = self.iteration(iteration).launches.get(launch)?.first_step();
        Some(step.map_or("the copies of samples".into(), |step| {
            iterations.loaded.iteration(iteration).program.steps[step.0].label.clone()
        }))
    }

    /// Returns the next tasklet of the job with its operations, and records it as offered. `None`
    /// if all iterations are offered, if [`MAX_RUNNING_ITERATIONS`] have not finished, or if the
    /// kernels must be captured first. Samples are loaded into host memory here.
    ///
    /// # Errors
    /// The error of the source of samples, and [`Error::Program`] if it returns another number of
    /// values than the step needs.
    pub(super) fn offer<S: BatchSource, O: Observer>(
        &mut self,
        iterations: &mut Iterations<'_, Gpu, S, O>,
        policy: &Policy,
    ) -> Result<Option<(Tasklet, Work)>, Error> {
        let (iteration, place) = self.next;
        let ended = iterations.context.iteration;
        let is_warm =
            !policy.captured_graphs || self.is_captured || self.done + (iteration - ended) < self.warm_up;
        if iteration >= iterations.end
            || iteration >= ended + MAX_RUNNING_ITERATIONS
            || (place == 0 && !is_warm)
        {
            return Ok(None);
        }
        let context = LaunchContext { iteration, ..iterations.context };
        let program = self.program_of(iteration);
        let JobProgram { table, launches, .. } = &self.programs[program];
        let unit = &launches[place];
        if let UnitWork::Load(samples) = &unit.work {
            load(samples, iterations, iteration)?;
        }
        let work = table.work_of(unit, context);
        let estimate = if let UnitWork::Graph { estimate, .. } = unit.work { Some(estimate) } else { None };
        let before = if place == 0 { self.last_communication.take() } else { None };
        let after = before.or(unit.after.map(|other| self.offered[other]));
        // Its index among the launches of all programs.
        let before: usize = self.programs[..program].iter().map(|program| program.launches.len()).sum();
        let site = u32::try_from(before + place).ok().filter(|_| self.is_captured);
        let tasklet = Tasklet::new(self.id, self.number).estimated(estimate).after(after).at_site(site);
        let tasklet = if let UnitWork::Collective(_, _, communication) = unit.work {
            self.last_communication = Some(tasklet.id);
            tasklet.communicating(communication)
        } else {
            tasklet
        };
        for step in unit.steps() {
            iterations.observer.started(step);
        }
        self.offered.push(tasklet.id);
        self.in_flight.push_back(Offered { number: self.number, iteration, launch: place });
        self.number += 1;
        self.next.1 += 1;
        if self.next.1 == launches.len() {
            self.next = (iteration + 1, 0);
            self.offered.clear();
        }
        Ok(Some((tasklet, work)))
    }

    /// Records that the tasklet with this number has finished, with its duration `took` and its
    /// time interval `ran`. With the last tasklet of an iteration, the observer receives the
    /// metrics of its losses. After the iterations that are timed, the
    /// kernels are captured.
    ///
    /// # Errors
    /// [`Error::UnknownTasklet`] for a number that is not in flight. The error of the observer or
    /// of the capture.
    pub(super) fn finish<S: BatchSource, O: Observer>(
        &mut self,
        iterations: &mut Iterations<'_, Gpu, S, O>,
        number: u64,
        (took, ran): (Duration, TimeSpan),
        device: &mut CudaDevice,
        policy: &Policy,
    ) -> Result<(), Error> {
        let place = self.place_in_flight(number)?;
        let Offered { iteration, launch, .. } = self.in_flight[place];
        self.in_flight.remove(place);
        let program = self.program_of(iteration);
        let JobProgram { launches, took: known, .. } = &mut self.programs[program];
        let unit = &launches[launch];
        let steps = unit.steps();
        if !steps.is_empty() {
            iterations.observer.ended(&steps, ran);
        }
        if let UnitWork::Compute(_) = &unit.work {
            known.extend(unit.first_step().map(|step| (step, took)));
        }
        if unit.lane() == Lane::Compute {
            iterations.computed += steps.len();
        }
        self.finished += 1;
        if self.finished == self.iteration(iterations.context.iteration).launches.len() {
            self.finish_iteration(iterations, ran.ended)?;
            if policy.captured_graphs && !self.is_captured && self.done >= self.warm_up {
                self.capture(device, policy)?;
            }
        }
        Ok(())
    }

    fn finish_iteration<S, O: Observer>(
        &mut self,
        iterations: &mut Iterations<'_, Gpu, S, O>,
        at: Instant,
    ) -> Result<(), Error> {
        let iteration = iterations.context.iteration;
        let network = &iterations.loaded.network;
        let of_unit = |unit: &Unit| match &unit.work {
            UnitWork::Metrics(loss, staged) => {
                let metrics = staged.host_of(iteration).with(|host| [host[0], host[1]]);
                Some(LossMetrics::new(*loss, network.layer(*loss), metrics))
            }
            _ => None,
        };
        let metrics: Vec<LossMetrics> =
            self.iteration(iteration).launches.iter().filter_map(of_unit).collect();
        iterations.context.iteration += 1;
        iterations.computed = 0;
        self.finished = 0;
        self.done += 1;
        iterations.observer.finished_iteration(iteration, &metrics, at)
    }

    fn capture(&mut self, device: &mut CudaDevice, policy: &Policy) -> Result<(), Error> {
        for JobProgram { table, launches, took } in &mut self.programs {
            let took = |step: StepId| took.get(&step).copied().unwrap_or_default();
            *launches = capture(device, self.id, policy, table, took)?;
        }
        self.is_captured = true;
        Ok(())
    }
}

/// Copies the samples of an iteration to the staging buffer.
fn load<S: BatchSource, O: Observer>(
    samples: &LoadedSamples,
    iterations: &mut Iterations<'_, Gpu, S, O>,
    iteration: u64,
) -> Result<(), Error> {
    let LoadedSamples { part, samples, elements, storage, staged, .. } = samples;
    iterations.load(iteration, *part, (samples.clone(), elements.clone()))?;
    let scalars = storage.pack(&iterations.staging);
    staged.host_of(iteration).with(|host| {
        if host.len() != scalars.len() {
            let got = scalars.len();
            return Err(Error::Program(format!("{} numbers are needed, and {got} were loaded", host.len())));
        }
        host.copy_from_slice(&scalars);
        Ok(())
    })
}

/// Returns the identities of the loaded program and the state of iterations.
fn identities<S, O>(iterations: &Iterations<'_, Gpu, S, O>) -> (Identity, Identity) {
    (iterations.loaded.identity, iterations.state.identity)
}
