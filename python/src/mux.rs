//! The CPU driver of `gpu-mux`, for jobs that are Python objects.

use std::sync::Mutex;

use deeppool::gpu_mux::{self, JobState, Policy, PolledJob, Upcoming};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Error that ends a job.
#[derive(Debug)]
enum JobError {
    /// Exception of a method of the job.
    Python(PyErr),
    /// Error of the driver.
    Multiplexer(gpu_mux::Error),
}

impl From<gpu_mux::Error> for JobError {
    fn from(error: gpu_mux::Error) -> Self {
        Self::Multiplexer(error)
    }
}

impl From<PyErr> for JobError {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<JobError> for PyErr {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Python(error) => error,
            JobError::Multiplexer(error) => PyRuntimeError::new_err(error.to_string()),
        }
    }
}

/// A Python object with the methods `poll() -> (state, site)` and `run()`. The state is one of the
/// constants of [`CpuDriver`]; the site is a number that equal tasklets of all iterations share, or
/// `None`.
struct PythonJob(Py<PyAny>);

impl PolledJob for PythonJob {
    type Error = JobError;

    fn poll(&mut self) -> Result<JobState, JobError> {
        let (state, site): (u8, Option<u32>) =
            Python::attach(|py| self.0.call_method0(py, "poll").and_then(|polled| polled.extract(py)))?;
        let upcoming = Upcoming { site, estimate: None };
        Ok(match state {
            CpuDriver::FINISHED => JobState::Finished,
            CpuDriver::READY => JobState::Ready(upcoming),
            CpuDriver::COMMUNICATING => JobState::Communicating(upcoming),
            _ => JobState::Waiting,
        })
    }

    fn run(&mut self) -> Result<(), JobError> {
        Python::attach(|py| self.0.call_method0(py, "run"))?;
        Ok(())
    }
}

/// Driver that runs a foreground job on the calling thread, and background jobs while it waits, as
/// `gpu_mux::CpuDriver` does. Jobs are Python objects with the methods `poll` and `run`.
#[pyclass]
pub(crate) struct CpuDriver(Mutex<gpu_mux::CpuDriver<PythonJob>>);

#[pymethods]
impl CpuDriver {
    #[classattr]
    const FINISHED: u8 = 0;
    #[classattr]
    const READY: u8 = 1;
    #[classattr]
    const COMMUNICATING: u8 = 2;
    #[classattr]
    const WAITING: u8 = 3;

    #[new]
    fn new() -> Self {
        Self(Mutex::new(gpu_mux::CpuDriver::new(Policy::default())))
    }

    /// Adds a background job.
    fn add(&self, job: Py<PyAny>) {
        self.driver().add(PythonJob(job));
    }

    /// Runs a foreground job until it finishes. The average durations of its tasklets by site are
    /// kept for the next run.
    fn run(&self, py: Python<'_>, foreground: Py<PyAny>) -> PyResult<()> {
        py.detach(|| self.driver().run(&mut PythonJob(foreground)))?;
        Ok(())
    }

    /// Returns for each background job its number of tasklets, its busy time in seconds, and the
    /// error that ended it, if any.
    fn background(&self, py: Python<'_>) -> Vec<(u64, f64, Option<Py<PyAny>>)> {
        let driver = self.driver();
        let jobs = driver.background().iter().map(|job| {
            let error = match job.outcome() {
                Some(gpu_mux::JobOutcome::Failed(JobError::Python(error))) => {
                    Some(error.clone_ref(py).into_value(py).into_any())
                }
                _ => None,
            };
            (job.tasklets(), job.busy().as_secs_f64(), error)
        });
        jobs.collect()
    }
}

impl CpuDriver {
    fn driver(&self) -> std::sync::MutexGuard<'_, gpu_mux::CpuDriver<PythonJob>> {
        // A panic of a job does not leave the driver inconsistent: it updates its state before it
        // resumes the panic.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
