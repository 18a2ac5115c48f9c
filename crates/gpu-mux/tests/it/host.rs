//! The outcomes of a run, and the callbacks of the host.

use std::time::Duration;

use gpu_mux::{
    Device, DeviceParameters, Driver, Error, Finished, Host, JobId, Kernel, Policy, RunOutcome, Tasklet,
    VirtualDevice, VirtualWork,
};

/// A virtual device that fails to launch background.
struct NoBackground(VirtualDevice);

impl Device for NoBackground {
    type Work = VirtualWork;
    type Error = Error;

    fn now(&self) -> Duration {
        self.0.now()
    }

    fn launch(&mut self, tasklet: &Tasklet, work: VirtualWork) -> Result<(), Error> {
        if tasklet.id.job.is_foreground() { self.0.launch(tasklet, work) } else { Err(Error::Stalled) }
    }

    fn finished(&mut self) -> Result<Option<Finished>, Error> {
        self.0.finished()
    }

    fn wait(&mut self, until: Option<Duration>) -> Result<(), Error> {
        self.0.wait(until)
    }
}

/// Offers three kernels of each of two jobs at once.
#[derive(Default)]
struct Both {
    offered: u64,
    finished: Vec<(JobId, u64)>,
    wanted: usize,
    caught_up: usize,
    failed: Vec<JobId>,
    ends_on_failure: bool,
}

impl<D: Device<Work = VirtualWork, Error = Error>> Host<D> for Both {
    type Error = Error;

    fn offer(&mut self) -> Option<(Tasklet, VirtualWork)> {
        let number = self.offered / 2;
        let job = [JobId::FOREGROUND, JobId::BACKGROUND][self.offered as usize % 2];
        let kernel = Kernel::new(Duration::from_micros(100), 1.0, 0.5).unwrap();
        self.offered = (self.offered + 1).min(7);
        (number < 3 && self.offered < 7).then(|| (Tasklet::new(job, number), VirtualWork::graph([kernel])))
    }

    fn finish(&mut self, finished: Finished, _: &mut Driver<D>) -> Result<(), Error> {
        self.finished.push((finished.tasklet.job, finished.tasklet.number));
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.finished.len() >= self.wanted
    }

    fn caught_up(&mut self, _: &mut Driver<D>) -> Result<(), Error> {
        self.caught_up += 1;
        Ok(())
    }

    fn background_failed(&mut self, job: JobId, error: &Error) -> Result<(), Error> {
        self.failed.push(job);
        if self.ends_on_failure { Err(error.clone()) } else { Ok(()) }
    }
}

fn bare() -> VirtualDevice {
    VirtualDevice::new(DeviceParameters::a100().without_overheads()).unwrap()
}

#[test]
fn run_ends_when_done_at_the_time_limit_or_when_stalled() {
    let mut driver = Driver::new(Policy::default(), bare());
    let mut host = Both { wanted: 100, ..Both::default() };
    assert_eq!(driver.run(&mut host, Some(Duration::from_micros(150))).unwrap(), RunOutcome::TimeLimit);
    assert_eq!((driver.device().now(), host.finished.len()), (Duration::from_micros(150), 1));
    assert!(host.caught_up >= 2);
    host.wanted = 2;
    assert_eq!(driver.run(&mut host, None).unwrap(), RunOutcome::Done);
    assert_eq!(host.finished.len(), 2);
    host.wanted = 100;
    assert_eq!(driver.run(&mut host, None).unwrap(), RunOutcome::Stalled);
    assert_eq!(host.finished.len(), 6);
    assert!(driver.is_idle() && host.failed.is_empty());
}

#[test]
fn failed_background_is_reported_once_and_the_foreground_continues() {
    let mut driver = Driver::new(Policy::default(), NoBackground(bare()));
    let mut host = Both { wanted: 100, ..Both::default() };
    assert_eq!(driver.run(&mut host, None).unwrap(), RunOutcome::Stalled);
    assert_eq!(host.finished, [0, 1, 2].map(|number| (JobId::FOREGROUND, number)));
    assert_eq!(host.failed, [JobId::BACKGROUND]);
    assert_eq!(driver.background_failures(), [(JobId::BACKGROUND, Error::Stalled)]);

    let mut driver = Driver::new(Policy::default(), NoBackground(bare()));
    let mut host = Both { wanted: 100, ends_on_failure: true, ..Both::default() };
    assert_eq!(driver.run(&mut host, None), Err(Error::Stalled));
}
