//! Split layers of a network that is too large for data parallelism.

use std::time::Instant;

use collectives::LinkModel;
use deeppool::burst_planner::ProofBudget;
use deeppool::costs::Costs;
use deeppool::job::Job;
use deeppool::plan::{Mode, PlanRequest};
use deeppool::planning::{find_plan, plan_within_memory};
use deeppool::program::LowerOptions;
use layer_graph::{
    Embedding, GraphError, LayerGraph, LayerKind, LayerNorm, Linear, MultiHeadAttention, PositionEmbedding,
    Shape, Split,
};
use layer_profile::{DataSheet, DeviceModel, ProfileTable};

const GPUS: usize = 8;
const BATCH: usize = 8;
const FEATURES: usize = 4096;
const CONTEXT: usize = 1024;
const VOCABULARY: usize = 50_257;

/// Returns a decoder of blocks of 4,096 features for sequences of 1,024 tokens. The embedding and
/// the head share their weight. 32 blocks have 6.6 G parameters.
fn decoder(blocks: usize) -> Result<LayerGraph, GraphError> {
    let mut net = LayerGraph::new("decoder", Shape::features(CONTEXT))?;
    let input = net.input();
    let tokens = net.add("tokens", Embedding::new(VOCABULARY, FEATURES), [input])?;
    let mut x = net.add("positions", PositionEmbedding::new(CONTEXT), [tokens])?;
    for block in 0..blocks {
        let mut then =
            |name: &str, kind: LayerKind, from: &[_]| net.add(format!("block{block}.{name}"), kind, from);
        let y = then("norm1", LayerNorm::default().into(), &[x])?;
        let y = then("qkv", Linear::new(3 * FEATURES).into(), &[y])?;
        let y = then("attention", MultiHeadAttention::new(32, true).into(), &[y])?;
        let y = then("projection", Linear::new(FEATURES).into(), &[y])?;
        x = then("add1", LayerKind::Add, &[x, y])?;
        let y = then("norm2", LayerNorm::default().into(), &[x])?;
        let y = then("up", Linear::new(4 * FEATURES).into(), &[y])?;
        let y = then("gelu", LayerKind::GeluTanh, &[y])?;
        let y = then("down", Linear::new(FEATURES).into(), &[y])?;
        x = then("add2", LayerKind::Add, &[x, y])?;
    }
    let x = net.add("norm", LayerNorm::default(), [x])?;
    let head = net.add_tied("head", Linear::new(VOCABULARY).without_bias(), [x], tokens)?;
    net.add("loss", LayerKind::CROSS_ENTROPY, [head])?;
    Ok(net)
}

/// A decoder of 32 blocks is planned with `DEEPPOOL_BLOCKS=32`.
#[test]
fn splits_fit_a_decoder_that_data_parallelism_does_not() {
    let blocks = std::env::var("DEEPPOOL_BLOCKS").ok().and_then(|blocks| blocks.parse().ok()).unwrap_or(2);
    let network = decoder(blocks).unwrap();
    let device = DeviceModel::named("a100-80gb").unwrap();
    let profile: ProfileTable = device.profile(&network, &[1, 2, 3, 4, 8]).unwrap();
    let link = LinkModel::named("dgx-a100").unwrap();
    let job = Job::new(Costs::new(&network, &profile, &link), BATCH, LowerOptions::default());
    // The memory of the GPU for 32 blocks, and its share for fewer of them.
    let limit_bytes = DataSheet::A100_80GB.usable_bytes() * blocks as u64 / 32;
    println!("{} parameters, limit {:.2} GB", network.parameter_count(), limit_bytes as f64 / 1e9);
    for micro_batches in [1, 2, 4, 8] {
        let options = LowerOptions::default().with_micro_batches(micro_batches);
        let job = Job::new(Costs::new(&network, &profile, &link), BATCH, options);
        let request = PlanRequest::new(GPUS, Mode::DataParallel).with_memory_limit(Some(limit_bytes));
        println!("{micro_batches} micro-batches: {:?}", find_plan(&job, &request).err());
        assert!(find_plan(&job, &request).is_err());
    }
    let mode = Mode::Burst { amplification: f64::INFINITY };
    let request =
        PlanRequest::new(GPUS, mode).with_proof(ProofBudget::Off).with_memory_limit(Some(limit_bytes));
    let begin = Instant::now();
    let (job, plan) = plan_within_memory(&job, &request.with_splits(Split::ALL.to_vec())).unwrap();
    println!(
        "planned in {:.1} s: {:.3} ms, {:.2} GB, {} micro-batches, {} checkpoints, {:?}",
        begin.elapsed().as_secs_f64(),
        plan.iteration_us / 1e3,
        plan.memory_peak_bytes.unwrap() as f64 / 1e9,
        job.lowering().micro_batches,
        job.lowering().checkpoints.len(),
        plan.layers.iter().map(|layer| (&layer.name, layer.gpus, layer.division)).collect::<Vec<_>>(),
    );
    assert!(plan.memory_peak_bytes.unwrap() <= limit_bytes);
}
