//! Published traces are read, wrong ones refused, and the generator is like what it was fitted to.

use cluster_scheduler::trace::{self, TraceJob};

use crate::data;

fn philly(text: &str) -> String {
    trace::philly("jobs.csv", text.as_bytes()).unwrap_err().to_string()
}

#[test]
fn wrong_traces_are_refused_with_line_and_column() {
    let header = "# Philly\ntimestamp,duration,num_gpus\n2017-10-06 00:00:00,60,1\n";
    for (line, message) in [
        (
            "2017-10-06 00:00:01,abc,1",
            "jobs.csv: line 4, column 2 (`duration`): `abc`, expected seconds from 1 on",
        ),
        (
            "2017-10-06 00:00:01,60,0",
            "jobs.csv: line 4, column 3 (`num_gpus`): `0`, expected a number of GPUs from 1 on",
        ),
        ("2017-10-06 00:00:01,60", "jobs.csv: line 4, column 3 (`num_gpus`): the line ends before it"),
        (
            "6.10.2017,60,1",
            "jobs.csv: line 4, column 1 (`timestamp`): `6.10.2017`, expected a time such as `2017-10-06 12:00:00`",
        ),
        (
            "2017-10-05 00:00:00,60,1",
            "jobs.csv: line 4, column 1 (`timestamp`): `2017-10-05 00:00:00` is earlier than the line before",
        ),
    ] {
        assert_eq!(philly(&format!("{header}{line}\n")), message);
    }
    assert_eq!(
        philly("timestamp,num_gpus\n"),
        "jobs.csv: line 1, column 3 (`duration`): no such column in the header, which is `timestamp,num_gpus`"
    );
    let gavel = "arrival_s,model,batch,gpus,steps\n0,LM,5,1,10\n-1,LM,5,1,10\n";
    assert_eq!(
        trace::gavel_jobs("gavel.csv", gavel.as_bytes()).unwrap_err().to_string(),
        "gavel.csv: line 3, column 1 (`arrival_s`): `-1`, expected seconds from 0 on"
    );
    let speeds = "gpu_type,model,batch,gpus,steps_per_s\nv100,LM,5,1,NaN\n";
    assert_eq!(
        trace::gavel_speeds("speeds.csv", speeds.as_bytes()).unwrap_err().to_string(),
        "speeds.csv: line 2, column 5 (`steps_per_s`): `NaN`, expected steps a second from 0 on"
    );
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let bytes: &[u8] = b"timestamp,duration,num_gpus\n\xff\xfe,1,1\n";
    let error = trace::philly("jobs.csv", bytes).unwrap_err().to_string();
    assert!(error.starts_with("jobs.csv: line 2, "), "{error}");
}

#[test]
fn gavels_trace_is_read() {
    let Some(input) = data::open("gavel_msr_seed0.csv.gz") else { return };
    assert_eq!(trace::gavel_jobs("gavel_msr_seed0.csv.gz", input).unwrap().len(), 15_264);
}

/// What the generator draws is like Philly's jobs: gaps, sizes, and GPU hours by size.
#[test]
fn synthetic_jobs_are_like_phillys() {
    let Some(input) = data::open("philly_jobs.csv.gz") else { return };
    let real = trace::philly("philly_jobs.csv.gz", input).unwrap();
    assert_eq!(real.len(), 82_247);
    let drawn = trace::synthetic(real.len(), 3);
    let (real, drawn) = (Summary::of(&real), Summary::of(&drawn));
    println!("{real:?}\n{drawn:?}");
    for (what, real, drawn, tolerance) in [
        ("median gap", real.median_gap, drawn.median_gap, 0.2),
        ("median duration", real.median, drawn.median, 0.05),
        ("mean duration", real.mean, drawn.mean, 0.15),
        ("jobs on one GPU", real.single, drawn.single, 0.01),
        ("GPU hours", real.hours, drawn.hours, 0.2),
        ("part of the hours on several GPUs", real.wide_hours, drawn.wide_hours, 0.05),
    ] {
        let off = drawn / real - 1.0;
        assert!(off.abs() <= tolerance, "{what}: {drawn}, Philly has {real}: off by {:.1}%", off * 100.0);
    }
}

#[derive(Debug)]
struct Summary {
    median_gap: f64,
    median: f64,
    mean: f64,
    single: f64,
    hours: f64,
    wide_hours: f64,
}

impl Summary {
    fn of(jobs: &[TraceJob]) -> Self {
        let mut durations: Vec<f64> = jobs.iter().map(|job| job.duration.as_secs_f64()).collect();
        durations.sort_by(f64::total_cmp);
        let mut gaps: Vec<f64> = jobs
            .windows(2)
            .map(|pair| pair[1].arrival.checked_sub(pair[0].arrival).unwrap().as_secs_f64())
            .collect();
        gaps.sort_by(f64::total_cmp);
        let hours = |job: &TraceJob| job.duration.as_secs_f64() * job.gpus as f64 / 3600.0;
        let all: f64 = jobs.iter().map(hours).sum();
        Self {
            median_gap: gaps[gaps.len() / 2],
            median: durations[durations.len() / 2],
            mean: durations.iter().sum::<f64>() / jobs.len() as f64,
            single: jobs.iter().filter(|job| job.gpus == 1).count() as f64 / jobs.len() as f64,
            hours: all,
            wide_hours: jobs.iter().filter(|job| job.gpus > 1).map(hours).sum::<f64>() / all,
        }
    }
}
