//! Jobs that follow a script and log what they run.

use std::cell::RefCell;
use std::collections::VecDeque;

use gpu_mux::{Error, JobState, PolledJob, Upcoming};

/// A step of a scripted job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ScriptStep {
    /// Has a tasklet and runs it.
    Go,
    /// Is not ready for one poll.
    Wait,
    /// Communicates for one poll.
    Communicate,
    /// Has a tasklet with this site and estimate.
    At(Upcoming),
    FailToPoll,
    FailToRun,
    PanicInPoll,
    PanicInRun,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum JobError {
    Scripted,
    Driver,
}

impl From<Error> for JobError {
    fn from(_: Error) -> Self {
        Self::Driver
    }
}

/// A job that follows its script and then finishes, or repeats one step forever.
pub(crate) struct Scripted<'a> {
    name: char,
    steps: VecDeque<ScriptStep>,
    repeated: Option<ScriptStep>,
    announced: Option<ScriptStep>,
    log: &'a RefCell<String>,
}

impl<'a> Scripted<'a> {
    pub(crate) fn new(name: char, steps: &[ScriptStep], log: &'a RefCell<String>) -> Self {
        Self { name, steps: steps.iter().copied().collect(), repeated: None, announced: None, log }
    }

    pub(crate) fn repeating(name: char, step: ScriptStep, log: &'a RefCell<String>) -> Self {
        Self { repeated: Some(step), ..Self::new(name, &[], log) }
    }
}

impl PolledJob for Scripted<'_> {
    type Error = JobError;

    fn poll(&mut self) -> Result<JobState, JobError> {
        let step = match self.announced {
            Some(step) => step,
            None => match self.steps.pop_front().or(self.repeated) {
                None => return Ok(JobState::Finished),
                Some(step) => step,
            },
        };
        match step {
            ScriptStep::Wait => return Ok(JobState::Waiting),
            ScriptStep::Communicate => return Ok(JobState::Communicating(Upcoming::at_site(1000))),
            ScriptStep::FailToPoll => return Err(JobError::Scripted),
            ScriptStep::PanicInPoll => panic!("{} panics in poll", self.name),
            ScriptStep::Go | ScriptStep::At(_) | ScriptStep::FailToRun | ScriptStep::PanicInRun => {
                self.announced = Some(step);
            }
        }
        Ok(match step {
            ScriptStep::At(upcoming) => JobState::Ready(upcoming),
            _ => JobState::READY,
        })
    }

    fn run(&mut self) -> Result<(), JobError> {
        self.log.borrow_mut().push(self.name);
        match self.announced.take() {
            Some(ScriptStep::Go | ScriptStep::At(_)) => Ok(()),
            Some(ScriptStep::PanicInRun) => panic!("{} panics in run", self.name),
            _ => Err(JobError::Scripted),
        }
    }
}
