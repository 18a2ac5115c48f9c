//! The choice of activation checkpoints for a memory limit.

use std::collections::HashSet;

use layer_engine::Role;
use layer_graph::LayerId;

use crate::Error;
use crate::job::{Job, estimated_single_gpu_bytes};
use crate::program::{LowerOptions, possible_checkpoints};

/// Fractions of all activations. For each fraction, only activations of the first layers, up to
/// this fraction of all, are recomputed.
const PARTS: [f64; 4] = [0.25, 0.5, 0.75, 1.0];
/// Numbers of segments of equal activations that checkpoints divide the network into. Infinity
/// makes every possible layer a checkpoint.
const SEGMENTS: [f64; 13] = [1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, f64::INFINITY];

/// Returns variants of the job that [recompute](LowerOptions::checkpoints) increasing parts of
/// their activations. Each has the candidate checkpoints that need the least memory on one GPU, and
/// needs less memory than the variant before. Empty if none needs less memory than the job, or if
/// the job has checkpoints already.
///
/// # Errors
/// [`Error::Profile`] if the profile lacks a time.
pub(super) fn with_recomputation<'a>(job: &Job<'a>) -> Result<Vec<Job<'a>>, Error> {
    if !job.lowering().checkpoints.is_empty() {
        return Ok(Vec::new());
    }
    let possible: HashSet<LayerId> = possible_checkpoints(job.costs().network()).into_iter().collect();
    let mut min_bytes = estimated_single_gpu_bytes(job)?;
    let mut found = Vec::new();
    for part in PARTS {
        let mut best = None;
        for checkpoints in checkpoints_up_to(job, part, &possible) {
            let job = job.with_lowering(LowerOptions { checkpoints, ..job.lowering().clone() });
            let bytes = estimated_single_gpu_bytes(&job)?;
            if bytes < min_bytes {
                min_bytes = bytes;
                best = Some(job);
            }
        }
        found.extend(best);
    }
    Ok(found)
}

/// Returns lists of checkpoints with about equal activations between neighbours, and none after the
/// first `part` of all activations.
fn checkpoints_up_to(job: &Job<'_>, part: f64, possible: &HashSet<LayerId>) -> Vec<Vec<String>> {
    let network = job.costs().network();
    let activation_elements = |id: LayerId| {
        let layer = network.layer(id);
        (Role::Output.elements(layer, 1) + Role::Saved.elements(layer, 1)) as f64
    };
    let all: f64 = network.layers().skip(1).map(|(id, _)| activation_elements(id)).sum();
    let mut lists = Vec::new();
    for segments in SEGMENTS {
        let (mut checkpoints, mut so_far, mut since) = (Vec::new(), 0.0, 0.0);
        for (id, layer) in network.layers().skip(1) {
            so_far += activation_elements(id);
            since += activation_elements(id);
            if so_far > part * all {
                break;
            }
            if since >= all / segments && possible.contains(&id) {
                checkpoints.push(layer.name().to_owned());
                since = 0.0;
            }
        }
        if !checkpoints.is_empty() && lists.last() != Some(&checkpoints) {
            lists.push(checkpoints);
        }
    }
    lists
}
