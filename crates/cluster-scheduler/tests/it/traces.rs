//! Published traces are read, invalid ones are refused, and the generator matches its source.

use std::time::Duration;

use cluster_scheduler::trace::{self, TraceJob};
use cluster_scheduler::{
    Allocation, Arrival, Cluster, Execution, GpuType, Job, JobId, Mode, Policy, SimulationOptions, Table,
    simulate,
};

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
            "jobs.csv: line 4, column 1 (`timestamp`): `6.10.2017`, \
             expected a time such as `2017-10-06 12:00:00`",
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
fn wrong_throughputs_are_refused_with_line_and_column() {
    let pairs = |line: &str| {
        let header = "gpus,model_a,batch_a,model_b,batch_b,a_alone,b_alone,a_shared,b_shared\n";
        trace::gavel_pairs("pairs.csv", format!("{header}{line}\n").as_bytes()).unwrap_err().to_string()
    };
    assert_eq!(
        pairs("1,LM,5,LM,10,0,2,1,1"),
        "pairs.csv: line 2, column 6 (`a_alone`): `0`, expected steps a second, more than 0"
    );
    assert_eq!(
        pairs("1,LM,5,LM,10,1,2,1,x"),
        "pairs.csv: line 2, column 9 (`b_shared`): `x`, expected steps a second from 0 on"
    );
    let steps = |line: &str| {
        let header = "model,kind,placement_or_nodes,replicas,local_batch,step_s,sync_s\n";
        trace::pollux_steps("steps.csv", format!("{header}{line}\n").as_bytes()).unwrap_err().to_string()
    };
    for (line, message) in [
        (
            "bert,placement,12,4,8,1,0",
            "3 (`placement_or_nodes`): `12`, expected a digit a node that add up to 4 GPUs",
        ),
        (
            "bert,placement,1x,2,8,1,0",
            "3 (`placement_or_nodes`): `1x`, expected a digit a node that add up to 2 GPUs",
        ),
        (
            "bert,scalability,3,2,8,1,0",
            "3 (`placement_or_nodes`): `3`, expected a number of nodes, up to that of GPUs",
        ),
        ("bert,other,1,1,8,1,0", "2 (`kind`): `other`, expected `placement` or `scalability`"),
        ("bert,placement,1,1,8,1,1.5", "7 (`sync_s`): `1.5`, expected seconds, no more than the step's"),
        ("bert,placement,1,1,8,inf,0", "6 (`step_s`): `inf`, expected seconds, more than 0"),
    ] {
        assert_eq!(steps(line), format!("steps.csv: line 2, column {message}"));
    }
}

/// Reads Gavel's pairs into a table, including clipped ones.
#[test]
fn gavels_pairs_are_read() {
    let (Some(pairs), Some(speeds)) = (data::open("gavel_v100_pairs.csv"), data::open("gavel_alone.csv"))
    else {
        return;
    };
    let pairs = trace::gavel_pairs("pairs", pairs).unwrap();
    assert!(pairs.len() == 330 && pairs.iter().all(|pair| pair.gpus == 1));
    let clipped = pairs.iter().filter(|pair| pair.looks_clipped()).count();
    assert_eq!(clipped, 69, "as the file says, about 80");
    let mut table = Table::new();
    for speed in trace::gavel_speeds("speeds", speeds).unwrap() {
        table.kind(&speed.kind);
    }
    let added = trace::add_pairs(&mut table, GpuType(0), &pairs);
    let together = |one: &str, other: &str| {
        table.pair_speeds(GpuType(0), table.find(one).unwrap(), table.find(other).unwrap()).unwrap()
    };
    let [resnet, transformer] = together("ResNet-18 batch 16", "Transformer batch 32");
    assert!((resnet - 1.0).abs() < 1e-4 && (transformer - 0.64224).abs() < 1e-4);
    let turned = together("Transformer batch 32", "ResNet-18 batch 16");
    assert_eq!(turned.map(f64::to_bits), [transformer, resnet].map(f64::to_bits));
    assert!(added > 300, "{added}");
}

/// Pollux' step times: a job spread over more nodes than necessary is slower if it synchronizes
/// much.
#[test]
fn pollux_step_times_are_read() {
    let Some(steps) = data::open("pollux_step_times.csv.gz") else { return };
    let steps = trace::pollux_steps("steps", steps).unwrap();
    assert_eq!(steps.len(), 7103);
    let table = trace::pollux_table(&steps, &[1, 2, 4, 8, 16], GpuType(0)).unwrap();
    assert_eq!(table.kinds().count(), 6);
    let of = |model: &str, gpus: usize, spread: bool| {
        let allocation = Allocation { gpu_type: GpuType(0), gpus, spread };
        table.execution(table.find(model).unwrap(), allocation, Mode::DataParallel).unwrap()
    };
    let ratio = |model: &str| {
        of(model, 4, true).iteration().as_secs_f64() / of(model, 4, false).iteration().as_secs_f64()
    };
    println!("4 GPUs spread by 4 on one node: bert {:.2}, imagenet {:.2}", ratio("bert"), ratio("imagenet"));
    assert!(ratio("bert") > 1.3 && (0.9..1.1).contains(&ratio("imagenet")));
    let packed = of("bert", 4, false);
    assert!(
        (packed.iteration().as_secs_f64() - 0.95712).abs() < 1e-9,
        "the largest batch on 4 GPUs of a node"
    );
    assert!(
        (packed.idle_periods().next().unwrap().as_secs_f64() - 0.092_868).abs() < 1e-9,
        "its synchronization"
    );
}

#[test]
fn extreme_durations_are_refused() {
    let layers = [(Duration::MAX, Duration::MAX); 3];
    assert_eq!(cluster_scheduler::spb::part_times(&layers, 2), [Duration::MAX; 2]);
    let spb = Execution::spb(4, &layers, Duration::MAX, 2).unwrap_err().to_string();
    assert!(spb.contains("expected more than 0, up to 3 years"), "{spb}");
    // Three years an iteration, and 2^60 iterations or the latest possible arrival.
    let mut table = Table::new();
    let kind = table.kind("slow");
    let execution = Execution::full(1, Duration::from_secs(3 * 365 * 86_400)).unwrap();
    table.set(kind, GpuType(0), Mode::DataParallel, execution);
    let cluster = Cluster::uniform("a", 1, 1).unwrap();
    for (at, iterations) in [(Duration::ZERO, 1 << 60), (Duration::MAX, 1), (Duration::ZERO, 300)] {
        for policy in [Policy::fifo(), Policy::srtf(), Policy::least_attained_service()] {
            let arrivals = [Arrival { at, id: JobId(0), job: Job::new(kind, iterations, 1) }];
            let result = simulate(&cluster, &table, &policy, &arrivals, &SimulationOptions::default());
            let error = result.unwrap_err().to_string();
            assert!(error.contains("584 years"), "{error}");
        }
    }
}

#[test]
fn invalid_utf8_is_refused() {
    let bytes: &[u8] = b"timestamp,duration,num_gpus\n\xff\xfe,1,1\n";
    let error = trace::philly("jobs.csv", bytes).unwrap_err().to_string();
    assert!(error.starts_with("jobs.csv: line 2, "), "{error}");
}

#[test]
fn gavels_trace_is_read() {
    let Some(input) = data::open("gavel_msr_seed0.csv.gz") else { return };
    assert_eq!(trace::gavel_jobs("gavel_msr_seed0.csv.gz", input).unwrap().len(), 15_264);
}

/// The generated jobs match Philly's in gaps, sizes, and GPU hours by size.
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
