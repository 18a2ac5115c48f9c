//! Ablation of the planner's search: what each of its parts contributes.
//!
//! ```text
//! cargo run --release -p deeppool --example ablation [SEEDS]
//! ```
//!
//! Asks 96 questions (8 networks and batches, 4 links, 3 numbers of GPUs), one with shared
//! parameters, one with long branches and two with little memory, each with 8 limits on
//! amplification. A plan's time is the median over the seeds, 3 by default. Prints a table with a
//! row for the whole search and for the search without each part. The columns compare plan times
//! with those of the whole search: the maximum and the mean increase, the number of questions with
//! a plan that is slower by more than 0.1%, the evaluations relative to the whole search, and the
//! time of the searches in seconds.

use std::time::{Duration, Instant};

use collectives::LinkModel;
use deeppool::Error;
use deeppool::burst_planner::{Frontier, Part, SearchOptions, frontier};
use deeppool::costs::{Costs, shard_sizes};
use deeppool::job::{Job, JobCosts, plan_problem};
use deeppool::plan::GpuCounts;
use deeppool::program::LowerOptions;
use layer_graph::zoo;
use layer_profile::DeviceModel;

/// Networks with their batches.
const WORKLOADS: [(&str, usize); 8] = [
    ("vgg16", 32),
    ("vgg16", 64),
    ("wrn-101-2", 16),
    ("wrn-101-2", 32),
    ("inception-v3", 32),
    ("inception-v3", 64),
    ("resnet-50", 64),
    ("vit-b-16", 32),
];
/// Limits on amplification.
const LIMITS: [f64; 8] = [1.05, 1.1, 1.25, 1.5, 2.0, 2.5, 4.0, 8.0];
/// An increase of the plan time by less, relatively, does not count.
const SAME: f64 = 1e-3;

/// A planning question, for all limits.
struct Question {
    model: &'static str,
    batch: usize,
    link: LinkModel,
    gpus: usize,
    memory_limit_bytes: Option<u64>,
}

/// Answers of a search to all questions.
#[derive(Default)]
struct Answers {
    /// By question and limit: the iteration time, microseconds; infinity if no plan was found.
    times_us: Vec<[f64; LIMITS.len()]>,
    evaluations: u64,
    time: Duration,
}

fn questions() -> Result<Vec<Question>, Error> {
    let hosts = LinkModel::dgx_a100().between_hosts(4, LinkModel::ethernet_100g())?;
    let links = [
        LinkModel::dgx_a100().with_max_members(None),
        LinkModel::ethernet_25g(),
        LinkModel::ethernet_100g(),
        hosts,
    ];
    let mut questions = Vec::new();
    for (model, batch) in WORKLOADS {
        for link in &links {
            for gpus in [4, 8, 16] {
                questions.push(Question { model, batch, link: link.clone(), gpus, memory_limit_bytes: None });
            }
        }
    }
    for (model, memory_limit_bytes) in [
        ("big-lstm", None),
        ("gnmt-in-chunks", None),
        ("wrn-101-2", Some(4_000_000_000)),
        ("vgg16", Some(3_500_000_000)),
    ] {
        let link = LinkModel::dgx_a100();
        questions.push(Question { model, batch: 32, link, gpus: 8, memory_limit_bytes });
    }
    Ok(questions)
}

fn answers(questions: &[Question], options: &SearchOptions) -> Result<Answers, Error> {
    let mut answers = Answers::default();
    for question in questions {
        let network = zoo::model(question.model)?;
        let profile =
            DeviceModel::named("a100")?.profile(&network, &shard_sizes(question.batch, question.gpus))?;
        let costs = Costs::new(&network, &profile, &question.link);
        let job = Job::new(costs, question.batch, LowerOptions::default());
        let counts = GpuCounts::default().for_batch(question.batch, question.gpus);
        let mut problem = plan_problem(&job, question.gpus, &counts)?;
        problem.memory_limit_bytes = question.memory_limit_bytes;
        let begun = Instant::now();
        let found = frontier(&problem, JobCosts::new(&job), options);
        answers.time += begun.elapsed();
        let time_us = |limit| {
            let plan = found.as_ref().ok().and_then(|found| found.fastest_within(limit).ok());
            plan.map_or(f64::INFINITY, |plan| plan.time.iteration_us)
        };
        answers.times_us.push(LIMITS.map(time_us));
        answers.evaluations += found.as_ref().map_or(0, Frontier::evaluations);
    }
    Ok(answers)
}

/// Returns the answers with the median of the plan times over the seeds `0..seeds`, and all
/// evaluations.
fn median(questions: &[Question], without: &[Part], seeds: u32) -> Result<Answers, Error> {
    let mut all = Vec::new();
    for seed in 0..seeds {
        let mut options = SearchOptions::default();
        options.without = without.to_vec();
        options.seed = seed;
        all.push(answers(questions, &options)?);
    }
    let time_us = |question: usize, limit: usize| {
        let mut times: Vec<f64> = all.iter().map(|answers| answers.times_us[question][limit]).collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    Ok(Answers {
        times_us: (0..questions.len())
            .map(|question| std::array::from_fn(|limit| time_us(question, limit)))
            .collect(),
        evaluations: all.iter().map(|answers| answers.evaluations).sum(),
        time: all.iter().map(|answers| answers.time).sum(),
    })
}

fn print_row(name: &str, whole: &Answers, other: &Answers) {
    let mut changes = Vec::new();
    let mut slower = 0;
    for (before, after) in whole.times_us.iter().zip(&other.times_us) {
        let of_question: Vec<f64> = (0..LIMITS.len())
            .filter(|&limit| before[limit].is_finite())
            .map(|limit| after[limit] / before[limit] - 1.0)
            .collect();
        slower += usize::from(of_question.iter().any(|&change| change > SAME));
        changes.extend(of_question);
    }
    changes.sort_by(f64::total_cmp);
    let mean = changes.iter().map(|change| change.min(1.0)).sum::<f64>() / changes.len() as f64;
    let worst = match changes.last() {
        Some(change) if change.is_finite() => format!("{:.1}%", change * 100.0),
        _ => "no plan".to_owned(),
    };
    println!(
        "| {name} | {worst} | {:.2}% | {slower} | {:.2} | {:.1} |",
        mean * 100.0,
        other.evaluations as f64 / whole.evaluations as f64,
        other.time.as_secs_f64()
    );
}

fn main() -> Result<(), Error> {
    let seeds: u32 = match std::env::args().nth(1).map(|text| (text.parse(), text)) {
        None => 3,
        Some((Ok(seeds @ 1..), _)) => seeds,
        Some((_, text)) => {
            eprintln!("`{text}` is no number of seeds: expected 1 or more");
            std::process::exit(2);
        }
    };
    let questions = questions()?;
    println!("| without | worst | mean | slower questions of {} | evaluations | seconds |", questions.len());
    println!("|---|---|---|---|---|---|");
    let whole = median(&questions, &[], seeds)?;
    print_row("nothing", &whole, &whole);
    for part in Part::ALL {
        print_row(&format!("{part:?}"), &whole, &median(&questions, &[part], seeds)?);
    }
    Ok(())
}
