//! Jobs that do as they are told, and write down what happened.

use std::cell::RefCell;
use std::collections::VecDeque;

use gpu_mux::{Error, Job, JobState, Upcoming};

/// What a scripted job does next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Step {
    /// Has a tasklet, and runs it.
    Go,
    /// One poll in vain.
    Wait,
    /// One poll in vain, for communication.
    Communicate,
    /// Has a tasklet, at a place in the program.
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

/// Follows its script, and is finished at the end of it.
pub(crate) struct Scripted<'a> {
    name: char,
    steps: VecDeque<Step>,
    announced: Option<Step>,
    log: &'a RefCell<String>,
}

impl<'a> Scripted<'a> {
    pub(crate) fn new(name: char, steps: &[Step], log: &'a RefCell<String>) -> Self {
        Self { name, steps: steps.iter().copied().collect(), announced: None, log }
    }
}

impl Job for Scripted<'_> {
    type Error = JobError;

    fn poll(&mut self) -> Result<JobState, JobError> {
        let step = match self.announced {
            Some(step) => step,
            None => match self.steps.pop_front() {
                None => return Ok(JobState::Finished),
                Some(step) => step,
            },
        };
        match step {
            Step::Wait => return Ok(JobState::Waiting),
            Step::Communicate => return Ok(JobState::Communicating(Upcoming::at_site(1000))),
            Step::FailToPoll => return Err(JobError::Scripted),
            Step::PanicInPoll => panic!("{} does not like to be asked", self.name),
            Step::Go | Step::At(_) | Step::FailToRun | Step::PanicInRun => self.announced = Some(step),
        }
        Ok(match step {
            Step::At(upcoming) => JobState::Ready(upcoming),
            _ => JobState::READY,
        })
    }

    fn run(&mut self) -> Result<(), JobError> {
        self.log.borrow_mut().push(self.name);
        match self.announced.take() {
            Some(Step::Go | Step::At(_)) => Ok(()),
            Some(Step::PanicInRun) => panic!("{} does not like to run", self.name),
            _ => Err(JobError::Scripted),
        }
    }
}
