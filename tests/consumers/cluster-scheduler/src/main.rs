//! Schedules two jobs on two GPUs by events.

use std::time::Duration;

use cluster_scheduler::{
    Cluster, Command, Error, Event, Execution, GpuType, Job, JobId, Mode, Policy, Scheduler, Table,
};

fn main() -> Result<(), Error> {
    let mut table = Table::new();
    let kind = table.kind("network");
    table.set(kind, GpuType(0), Mode::DataParallel, Execution::full(2, Duration::from_millis(10))?);
    let cluster = Cluster::uniform("gpu", 1, 2)?;
    let mut scheduler = Scheduler::new(&cluster, &table, Policy::fifo())?;
    for number in 0..2 {
        scheduler.handle(Duration::ZERO, Event::Arrived(JobId(number), Job::new(kind, 100, 2)))?;
    }
    let commands = scheduler.decide()?;
    println!("{commands:?}");
    assert!(matches!(&commands[..], [Command::Run(first)] if first.job == JobId(0)));
    scheduler.handle(Duration::from_secs(1), Event::Ended(JobId(0), 100))?;
    let commands = scheduler.decide()?;
    assert!(matches!(&commands[..], [Command::Run(second)] if second.job == JobId(1)));
    Ok(())
}
