//! Comparison of losses, and plans that no search would find.

use std::path::Path;

#[cfg(feature = "mpi")]
use layer_graph::{Division, NetworkSplits, Split, zoo};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::command::json;

/// Writes `randomN.json`: a plan of `digits-cnn` with random ranks in random order for each layer.
pub(crate) fn random_plan(folder: &Path, ranks: usize) {
    let plan = "plan --model digits-cnn --device cpu-core --batch 32 --mode dp";
    let mut plan = json(folder, &format!("{plan} --gpus {ranks} --json"));
    let mut random = ChaCha8Rng::seed_from_u64(ranks as u64);
    for layer in plan["layers"].as_array_mut().unwrap() {
        let mut left: Vec<usize> = (0..ranks).collect();
        let count = 1 + random.next_u32() as usize % ranks;
        let taken = (0..count).map(|_| left.swap_remove(random.next_u32() as usize % left.len()));
        layer["ranks"] = taken.collect();
        layer["gpus"] = count.into();
    }
    std::fs::write(folder.join(format!("random{ranks}.json")), plan.to_string()).unwrap();
}

/// Writes `splitsN.json`: a plan of `digits-cnn` with random ranks in random order and a random
/// split for each layer.
#[cfg(feature = "mpi")]
pub(crate) fn random_split_plan(folder: &Path, ranks: usize) {
    let plan = "plan --model digits-cnn --device cpu-core --batch 32 --mode dp";
    let mut plan = json(folder, &format!("{plan} --gpus {ranks} --json"));
    let network = zoo::model("digits-cnn").unwrap();
    let splits = NetworkSplits::new(&network);
    let mut random = ChaCha8Rng::seed_from_u64(ranks as u64);
    let mut below = |limit: usize| random.next_u32() as usize % limit;
    for (layer, (id, _)) in plan["layers"].as_array_mut().unwrap().iter_mut().zip(network.computing_layers())
    {
        let mut possible = splits.splits(id);
        possible.retain(|&split| !splits.divides_input(id, split));
        let mut left: Vec<usize> = (0..ranks).collect();
        let mut count = 1 + below(ranks);
        if !possible.is_empty() {
            let split = possible[below(possible.len())];
            let units = splits.max_parts(id, split);
            // The time of a plan is known for parts of equal size.
            let is_even = |&parts: &usize| split == Split::Copies || units % parts == 0;
            let even: Vec<usize> = (2..=ranks.min(units)).filter(is_even).collect();
            let parts = even[below(even.len())];
            count = parts * (1 + below(ranks / parts));
            layer["division"] = serde_json::to_value(Division { split, parts }).unwrap();
        }
        layer["ranks"] = (0..count).map(|_| left.swap_remove(below(left.len()))).collect();
        layer["gpus"] = count.into();
    }
    std::fs::write(folder.join(format!("splits{ranks}.json")), plan.to_string()).unwrap();
}

/// Writes `workers.json`: a plan of two workers of two GPUs, whose layers alternate between the
/// GPUs of a worker.
#[cfg(feature = "mpi")]
pub(crate) fn plan_of_workers(folder: &Path) {
    let plan = "plan --model digits-cnn --device cpu-core --batch 32 --gpus 4 --worker-gpus 2 --gpu-counts 1";
    let mut plan = json(folder, &format!("{plan} --json"));
    for (index, layer) in plan["layers"].as_array_mut().unwrap().iter_mut().enumerate() {
        layer["ranks"] = [index % 2, index % 2 + 2].into_iter().collect();
    }
    std::fs::write(folder.join("workers.json"), plan.to_string()).unwrap();
}

/// Returns the largest relative difference.
#[cfg(any(feature = "mpi", feature = "cuda"))]
pub(crate) fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs() / a.abs().max(b.abs())).fold(0.0, f64::max)
}
