//! Sums numbers in the idle periods of a job that is ready at every third poll.

use std::task::Poll;

use gpu_mux::{CpuDriver, Error, Policy, job_fn};

fn main() -> Result<(), Error> {
    let (mut polls, mut steps) = (0, 0);
    let next = || {
        polls += 1;
        match polls {
            31.. => Poll::Ready(None),
            poll if poll % 3 == 0 => Poll::Ready(Some(poll)),
            _ => Poll::Pending,
        }
    };
    let mut foreground = job_fn(next, |_poll| -> Result<(), Error> {
        steps += 1;
        Ok(())
    });
    let (mut numbers, mut sum) = (1..=1000_u64, 0);
    let mut background = job_fn(
        || Poll::Ready(numbers.next()),
        |number| -> Result<(), Error> {
            sum += number;
            Ok(())
        },
    );
    let mut driver = CpuDriver::new(Policy::default());
    driver.add(&mut background);
    let usage = driver.run(&mut foreground)?;
    println!("{steps} foreground steps, a sum of {sum} in their gaps: {usage:#?}");
    assert_eq!(steps, 10);
    assert_eq!(usage.foreground_tasklets, steps);
    assert!(sum > 0 && usage.background_tasklets > 0, "nothing ran in the gaps");
    Ok(())
}
