//! Hybrid parallelism: plans of equal workers with several GPUs each. A worker holds one replica of
//! the network and has an equal part of the batch.

use burst_planner::{Arrangement, Evaluator, Frontier, PlanProblem, evaluate_arrangements};

use super::search::{check_size, search};
use crate::Error;
use crate::job::{Job, JobCosts, plan_problem};
use crate::plan::{PlanRequest, PlannedWorker};

/// The equal workers of a job.
#[derive(Debug, Clone)]
pub(super) struct Workers<'a> {
    /// The job of one worker: the same network with its part of the batch.
    job: Job<'a>,
    gpus: usize,
    replicas: usize,
}

impl<'a> Workers<'a> {
    /// Returns the workers of a request; `None` if it requests none.
    ///
    /// # Errors
    /// [`Error::Setting`] if they cannot share the batch evenly, or with partial backpropagation.
    pub(super) fn of(job: &Job<'a>, request: &PlanRequest) -> Result<Option<Self>, Error> {
        let Some(gpus) = request.worker_gpus.filter(|&gpus| gpus > 0) else { return Ok(None) };
        let replicas = request.gpus / gpus;
        let samples = job.micro_batch()?;
        if samples % replicas != 0 {
            let cut = if samples < job.batch() { " in a micro-batch" } else { "" };
            return Err(Error::Setting {
                setting: "the batch",
                expected: "a multiple of the number of workers",
                got: format!("{samples} samples{cut} for {replicas} of them"),
            });
        }
        if let Some(partial) = &job.lowering().partial {
            return Err(Error::Setting {
                setting: "partial backpropagation",
                expected: "none with workers",
                got: format!("{} parts", partial.parts()),
            });
        }
        let job = job.with_batch(job.batch() / replicas);
        Ok(Some(Self { job, gpus, replicas }))
    }

    /// Searches for plans of one worker, then evaluates each of them with all workers. `whole` is
    /// the job of all workers. Returns the planning problem of all workers and the Pareto frontier.
    ///
    /// # Errors
    /// As [`find_frontier`](super::find_frontier).
    pub(super) fn frontier(
        &self,
        whole: &Job<'a>,
        request: &PlanRequest,
    ) -> Result<(PlanProblem, Frontier), Error> {
        let counts = self.counts(request)?;
        check_size(self.job.costs().network().len(), counts.len(), request.gpus)?;
        let of_all: Vec<usize> = counts.iter().map(|count| count * self.replicas).collect();
        let mut problem = plan_problem(whole, request.gpus, &of_all)?;
        problem.memory_limit_bytes = request.memory_limit_bytes;
        let found = self.worker_candidates(request, &counts)?;
        let found = found.iter().map(|found| found.replicated(self.gpus, self.replicas));
        let found = found.collect::<Result<Vec<_>, _>>()?;
        let frontier = evaluate_arrangements(&problem, JobCosts::new(whole), found, &request.stop)?;
        Ok((problem, frontier))
    }

    /// Returns the GPU counts of a layer within one worker. With several workers all shards of a
    /// layer have the same size, so that each worker has its own samples.
    fn counts(&self, request: &PlanRequest) -> Result<Vec<usize>, Error> {
        let samples = self.job.micro_batch()?;
        let mut counts = request.gpu_counts.for_batch(samples, self.gpus);
        counts.retain(|count| self.replicas == 1 || samples % count == 0);
        if counts.is_empty() {
            return Err(Error::Setting {
                setting: "GPU counts of a worker",
                expected: "at most its number of GPUs, and divisors of its number of samples",
                got: format!(
                    "{} where it has {} of them and {samples} samples",
                    request.gpu_counts, self.gpus
                ),
            });
        }
        Ok(counts)
    }

    /// Returns candidate arrangements for one worker: data parallelism on each GPU count, and the
    /// results of two searches, one with all-reduces over all workers and one with all-reduces
    /// within a worker. The first has the right costs, but neither finds all good arrangements.
    fn worker_candidates(&self, request: &PlanRequest, counts: &[usize]) -> Result<Vec<Arrangement>, Error> {
        let problem = self.problem(counts, request.memory_limit_bytes)?;
        let data_parallel = counts.iter().map(|&count| Arrangement::data_parallel(&problem, count));
        let mut found = data_parallel.collect::<Result<Vec<_>, _>>()?;
        // With one GPU per worker there is nothing to search.
        let replicas = [self.replicas, 1].into_iter().take(if self.replicas > 1 { 2 } else { 1 });
        for replicas in replicas.filter(|_| self.gpus > 1) {
            let costs = JobCosts::new(&self.job).on_counts(counts.to_vec()).replicated(self.gpus, replicas);
            let searched = search(&problem, costs, request)?;
            found.extend(searched.plans().iter().map(|point| point.arrangement.clone()));
        }
        Ok(found)
    }

    fn problem(&self, counts: &[usize], memory_limit_bytes: Option<u64>) -> Result<PlanProblem, Error> {
        let mut problem = plan_problem(&self.job, self.gpus, counts)?;
        problem.memory_limit_bytes = memory_limit_bytes;
        Ok(problem)
    }

    /// Returns the times of one worker alone. `of_all` is the arrangement of all workers.
    ///
    /// # Errors
    /// [`Error::Profile`] if the profile lacks a time.
    pub(super) fn times_of_one(&self, of_all: &Arrangement) -> Result<PlannedWorker, Error> {
        let of_first = |ranks: &Vec<usize>| ranks[..ranks.len() / self.replicas].to_vec();
        let of_one = Arrangement { ranks: of_all.ranks.iter().map(of_first).collect(), ..of_all.clone() };
        let mut counts: Vec<usize> = of_one.ranks.iter().map(Vec::len).collect();
        counts.sort_unstable();
        counts.dedup();
        let problem = self.problem(&counts, None)?;
        let mut evaluator = Evaluator::new(&problem, JobCosts::new(&self.job))?;
        Ok(PlannedWorker {
            gpus: self.gpus,
            replicas: self.replicas,
            iteration_us: evaluator.evaluate(&of_one)?.iteration_us,
            single_gpu_us: evaluator.single_gpu_us()?,
        })
    }
}
