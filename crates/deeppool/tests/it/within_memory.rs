//! Plans within memory limits, compared with brute force over checkpoints and micro-batches.

use collectives::LinkModel;
use deeppool::Error;
use deeppool::burst_planner::ProofBudget;
use deeppool::costs::Costs;
use deeppool::job::Job;
use deeppool::plan::{Mode, PlanRequest};
use deeppool::planning::{find_plan, plan_within_memory};
use deeppool::program::{LowerOptions, possible_checkpoints};
use layer_engine::Role;
use layer_graph::{LayerGraph, zoo};
use layer_profile::{DeviceModel, ProfileTable};

/// Networks and their batches. The first ones are planned by default, all with `DEEPPOOL_CASES=10`.
const NETWORKS: [(&str, usize); 10] = [
    ("digits-cnn", 256),
    ("vgg11", 64),
    ("resnet-18", 64),
    ("resnet-34", 64),
    ("vgg16", 64),
    ("resnet-50", 64),
    ("gpt2", 8),
    ("vit-b-16", 64),
    ("inception-v3", 64),
    ("wrn-101-2", 32),
];
/// Relative tolerance on several GPUs, where both plans are found by a heuristic search.
const TOLERANCE: f64 = 5e-3;
/// Fractions of the memory without a limit.
const FRACTIONS: [f64; 3] = [0.8, 0.5, 0.3];
/// Distances of the checkpoints on several GPUs.
const DISTANCES: [usize; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];

struct Case {
    network: LayerGraph,
    batch: usize,
    profile: ProfileTable,
    link: LinkModel,
}

impl Case {
    fn new(name: &str, batch: usize) -> Self {
        let network = match name {
            "gpt2" => zoo::gpt2_of_blocks(3).unwrap(),
            name => zoo::model(name).unwrap(),
        };
        let sizes: Vec<usize> = (1..=batch).collect();
        let profile = DeviceModel::named("a100").unwrap().profile(&network, &sizes).unwrap();
        Self { network, batch, profile, link: LinkModel::named("dgx-a100").unwrap() }
    }

    fn job(&self, batch: usize, lowering: LowerOptions) -> Job<'_> {
        Job::new(Costs::new(&self.network, &self.profile, &self.link), batch, lowering)
    }

    fn has_batch_norm(&self) -> bool {
        self.network.layers().any(|(_, layer)| Role::Statistics.elements(layer, 0) > 0)
    }

    /// Returns the minimum time with all checkpoints of one distance and 1, 2, 4 or 8
    /// micro-batches, and the distance and the micro-batches. A distance of 0 is no checkpoints.
    fn brute_force(&self, request: &PlanRequest) -> Option<(f64, usize, usize)> {
        let possible = possible_checkpoints(&self.network);
        let distances = (0..=possible.len())
            .filter(|distance| request.gpus == 1 || *distance == 0 || DISTANCES.contains(distance));
        let mut best: Option<(f64, usize, usize)> = None;
        for distance in distances {
            let names: Vec<String> = match distance {
                0 => Vec::new(),
                distance => {
                    let chosen = possible.iter().skip(distance - 1).step_by(distance);
                    chosen.map(|&id| self.network.layer(id).name().to_owned()).collect()
                }
            };
            for micro_batches in [1, 2, 4, 8] {
                if micro_batches > 1 && self.has_batch_norm() {
                    break;
                }
                let options =
                    LowerOptions::default().with_checkpoints(names.clone()).with_micro_batches(micro_batches);
                let Ok(plan) = find_plan(&self.job(self.batch, options), request) else { continue };
                if best.is_none_or(|(best_us, ..)| plan.iteration_us < best_us) {
                    best = Some((plan.iteration_us, distance, micro_batches));
                }
            }
        }
        best
    }
}

fn request(gpus: usize, limit_bytes: Option<u64>) -> PlanRequest {
    PlanRequest::new(gpus, Mode::Burst { amplification: 2.0 })
        .with_proof(ProofBudget::Off)
        .with_memory_limit(limit_bytes)
}

#[test]
fn plans_within_limits_are_no_slower_than_brute_force() {
    let count = std::env::var("DEEPPOOL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1);
    let mut slower = Vec::new();
    let mut planned = 0;
    println!("network, batch, GPUs, limit GB, unlimited ms");
    println!("    : plan ms, micro-batches, checkpoints; brute force ms, distance, micro-batches");
    for &(name, batch) in NETWORKS.iter().take(count) {
        let case = Case::new(name, batch);
        let job = case.job(batch, LowerOptions::default());
        for gpus in [1, 4] {
            let free = find_plan(&job, &request(gpus, None)).unwrap();
            for fraction in FRACTIONS {
                let limit = (free.memory_peak_bytes.unwrap() as f64 * fraction) as u64;
                let request = request(gpus, Some(limit));
                let brute_force = case.brute_force(&request);
                let found = plan_within_memory(&job, &request);
                let (limit_gb, free_ms) = (limit as f64 / 1e9, free.iteration_us / 1e3);
                let row = format!("{name}, {batch}, {gpus}, {limit_gb:.4}, {free_ms:.3}");
                match (found, brute_force) {
                    (Ok((job, plan)), best) => {
                        planned += 1;
                        assert!(plan.memory_peak_bytes.unwrap() <= limit, "{row}");
                        let (best_us, distance, cut) = best.unwrap_or((f64::INFINITY, 0, 0));
                        println!(
                            "{row}: {:.3}, {}, {}; {:.3}, {distance}, {cut}",
                            plan.iteration_us / 1e3,
                            job.lowering().micro_batches,
                            job.lowering().checkpoints.len(),
                            best_us / 1e3,
                        );
                        let tolerance = if gpus == 1 { 1e-9 } else { TOLERANCE };
                        if plan.iteration_us > best_us * (1.0 + tolerance) {
                            slower.push(format!("{row}: {} > {best_us}", plan.iteration_us));
                        }
                    }
                    (Err(error), Some(best)) => slower.push(format!("{row}: {best:?}, and {error}")),
                    (Err(error), None) => println!("{row}: {error}"),
                }
            }
        }
    }
    assert!(planned >= count, "{planned} plans are within their limits");
    assert!(slower.is_empty(), "{slower:#?}");
}

#[test]
fn the_largest_batch_of_the_error_fits_and_the_next_ones_do_not() {
    for (name, batch, gpus) in
        [("resnet-18", 64, 1), ("vgg11", 61, 1), ("vgg11", 63, 1), ("resnet-18", 50, 4)]
    {
        let case = Case::new(name, batch);
        let mode = Mode::DataParallel;
        let plan = |batch: usize, limit: Option<u64>| {
            let request = PlanRequest::new(gpus, mode).with_memory_limit(limit);
            plan_within_memory(&case.job(batch, LowerOptions::default()), &request)
        };
        // A batch cannot be cut into equal micro-batches if it is odd.
        let free = plan(batch / 2, None).unwrap().1.memory_peak_bytes.unwrap();
        let limit_bytes = (free as f64 * 0.6) as u64;
        let limit = Some(limit_bytes);
        let error = plan(batch, limit).unwrap_err();
        let Error::BatchTooLarge { largest, .. } = error else { panic!("{name}: {error}") };
        assert!((1..batch).contains(&largest), "{name}: {largest}");
        let (_, fits) = plan(largest, limit).unwrap();
        assert!(fits.memory_peak_bytes.unwrap() <= limit_bytes, "{name}");
        for next in (largest + 1..batch).take(4) {
            assert!(plan(next, limit).is_err(), "{name}: {next} of {largest} fits, too");
        }
    }
}
