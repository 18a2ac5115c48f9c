//! Exported programs: the document contains the whole program, which can be rebuilt from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use collectives::{Layout, Redistribution};
use deeppool::program::{
    BatchPart, BufferId, BufferSpec, Collective, CollectiveId, CollectiveOp, Contents, Lane, LowerOptions,
    Op, Placement, Program, RankProgram, Step, StepId, lower_for_simulation, lower_training,
};
use layer_engine::{Pass, Precision, Role, Sgd, Shard, Signature, Storage};
use layer_graph::{LayerGraph, LayerId, zoo};
use serde_json::Value;

fn role(label: &str) -> Role {
    match label.split_once('.') {
        Some(("input", slot)) => Role::Input(slot.parse().unwrap()),
        Some(("input_gradient", slot)) => Role::InputGradient(slot.parse().unwrap()),
        _ => match label {
            "labels" => Role::Labels,
            "parameters" => Role::Parameters,
            "statistics" => Role::Statistics,
            "output" => Role::Output,
            "saved" => Role::Saved,
            "moments" => Role::Moments,
            "gradient_moments" => Role::GradientMoments,
            "metrics" => Role::Metrics,
            "output_gradient" => Role::OutputGradient,
            "parameter_gradient" => Role::ParameterGradient,
            other => panic!("{other}"),
        },
    }
}

struct DocumentReader<'a>(&'a LayerGraph);

fn number(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(number).collect()
}

fn roles(value: &Value) -> Vec<Role> {
    list(value).iter().map(|label| role(label.as_str().unwrap())).collect()
}

fn storage(value: &Value) -> Storage {
    match value.get("storage").and_then(Value::as_str) {
        None => Storage::Scalar,
        Some("bf16") => Storage::Bf16,
        Some(other) => panic!("{other}"),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn shard(value: &Value) -> Shard {
    let [first, end] = numbers(value)[..] else { panic!("{value}") };
    Shard { first, samples: end - first }
}

fn layout(value: &Value) -> Layout {
    let counts: Vec<(usize, usize)> =
        list(value).iter().map(|held| (number(&held["rank"]), shard(&held["samples"]).samples)).collect();
    Layout::from_counts(&counts).unwrap()
}

impl DocumentReader<'_> {
    fn layer(&self, value: &Value) -> LayerId {
        self.0.find(value["layer"].as_str().unwrap()).unwrap()
    }

    fn program(&self, document: &Value) -> Program {
        Program {
            iterations: 1,
            batch: number(&document["batch"]),
            precision: match document.get("precision").and_then(Value::as_str) {
                None => Precision::F32,
                Some("bf16") => Precision::Bf16,
                Some(other) => panic!("{other}"),
            },
            ranks: list(&document["ranks"]).iter().map(|rank| self.rank(rank)).collect(),
            collectives: list(&document["collectives"]).iter().map(collective).collect(),
        }
    }

    fn rank(&self, document: &Value) -> RankProgram {
        let rank = number(&document["rank"]);
        RankProgram {
            rank,
            represented_ranks: vec![rank],
            parts: BTreeMap::new(),
            buffers: list(&document["buffers"]).iter().map(|buffer| self.buffer(buffer)).collect(),
            state_buffers: number(&document["state_buffers"]),
            arena_elements: number(&document["arena_elements"]),
            steps: list(&document["steps"]).iter().map(|step| self.step(step)).collect(),
            later_iterations: Vec::new(),
        }
    }

    fn buffer(&self, document: &Value) -> BufferSpec {
        let contents = match document["contents"].as_str().unwrap() {
            "operand" => {
                let role = role(document["role"].as_str().unwrap());
                Contents::Operand(self.layer(document), role)
            }
            "master" => Contents::Master(self.layer(document)),
            "velocity" => Contents::Velocity(self.layer(document)),
            "constant" => Contents::Constant(document["value"].as_f64().unwrap()),
            "moved" => Contents::Moved(self.layer(document)),
            "squared_norm" => Contents::SquaredNorm,
            other => panic!("{other}"),
        };
        let offset = document.get("offset").map(number);
        BufferSpec { elements: number(&document["elements"]), storage: storage(document), contents, offset }
    }

    fn step(&self, document: &Value) -> Step {
        let pass = || match document["pass"].as_str().unwrap() {
            "forward_moments" => Pass::ForwardMoments,
            "forward" => Pass::Forward,
            "forward_in_place" => Pass::ForwardInPlace,
            "recompute" => Pass::Recompute,
            "backward_moments" => Pass::BackwardMoments,
            "backward" => Pass::Backward,
            "backward_in_place" => Pass::BackwardInPlace,
            "backward_parameters" => Pass::BackwardParameters,
            other => panic!("{other}"),
        };
        let samples = || shard(&document["samples"]);
        let ids = |value: &Value| numbers(value).into_iter().map(BufferId).collect::<Vec<_>>();
        let (mut reads, writes) = (ids(&document["reads"]), ids(&document["writes"]));
        let op = match document["op"].as_str().unwrap() {
            "load_batch" if document["part"] == "features" => {
                Op::LoadBatch { part: BatchPart::Features, shard: samples() }
            }
            "load_batch" => Op::LoadBatch { part: BatchPart::Labels, shard: samples() },
            "forward" => Op::Forward { layer: self.layer(document), pass: pass(), shard: samples() },
            "backward" => Op::Backward { layer: self.layer(document), pass: pass(), shard: samples() },
            "accumulate_gradient" if reads.contains(&writes[0]) => Op::AddGradient,
            "accumulate_gradient" => Op::SumGradients,
            "collective" => Op::Collective(CollectiveId(number(&document["collective"]))),
            "squared_norm" => Op::SquaredNorm,
            "optimizer_step" => Op::OptimizerStep {
                layer: self.layer(document),
                rule: Sgd {
                    momentum: document["momentum"].as_f64().unwrap(),
                    weight_decay: document["weight_decay"].as_f64().unwrap(),
                    clip_norm: document.get("clip_norm").map(|norm| norm.as_f64().unwrap()),
                },
            },
            other => panic!("{other}"),
        };
        if op == Op::AddGradient {
            assert_eq!(reads.remove(0), writes[0]);
        }
        let step = Step {
            op,
            label: document["label"].as_str().unwrap().into(),
            after: numbers(&document["after"]).into_iter().map(StepId).collect(),
            reads,
            writes,
        };
        assert_eq!(document["lane"] == "communication", step.lane() == Lane::Communication);
        if let Op::Forward { layer, pass, .. } | Op::Backward { layer, pass, .. } = step.op {
            let signature = Signature::of(self.0.layer(layer), pass).unwrap();
            assert_eq!(roles(&document["read_roles"]), signature.reads);
            assert_eq!(roles(&document["write_roles"]), signature.writes);
        }
        step
    }
}

fn collective(document: &Value) -> Collective {
    let op = match document["op"].as_str().unwrap() {
        "all_reduce" => CollectiveOp::AllReduce { elements: number(&document["elements"]) },
        "broadcast" => CollectiveOp::Broadcast { elements: number(&document["elements"]) },
        "redistribute" => {
            let (source, target) = (layout(&document["source"]), layout(&document["target"]));
            let redistribution = Redistribution::new(&source, &target).unwrap();
            let moves = list(&document["moves"]).iter();
            let moves = moves.map(|one| (number(&one["from"]), number(&one["to"]), shard(&one["samples"])));
            let expected = redistribution.moves().iter().map(|one| {
                let samples = Shard { first: one.samples().start, samples: one.samples().len() };
                (one.from_rank, one.to_rank, samples)
            });
            assert!(moves.eq(expected));
            CollectiveOp::Redistribute {
                redistribution: Arc::new(redistribution),
                item_elements: number(&document["sample_elements"]),
                storage: storage(document),
            }
        }
        other => panic!("{other}"),
    };
    let label = document["label"].as_str().unwrap().into();
    Collective { op, ranks: numbers(&document["ranks"]), groups: 1, label }
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Returns a placement with branches on different ranks, shards without samples, and permuted
/// ranks.
pub(crate) fn scattered(network: &LayerGraph) -> Placement {
    let sets = [vec![0, 1, 2, 3], vec![2, 0], vec![3], vec![1, 2, 3]];
    let ranks = (1..network.len()).map(|layer| sets[layer % sets.len()].clone()).collect();
    Placement::new(network, 4, ranks).unwrap()
}

#[test]
fn exported_documents_rebuild_the_program() {
    let sgd = Sgd { momentum: 0.9, weight_decay: 1e-4, clip_norm: Some(1.5) };
    for (model, batch, options) in [
        ("digits-cnn", 8, LowerOptions::default()),
        ("digits-cnn", 3, LowerOptions::default().with_optimizer(sgd)),
        ("digits-cnn", 8, LowerOptions::default().with_micro_batches(3)),
        ("digits-cnn", 8, LowerOptions::default().with_checkpoints(vec!["conv3".into()])),
        ("resnet-18", 4, LowerOptions::default().with_sync_batch_norm(true)),
        ("gpt2", 4, LowerOptions::default().with_overlap_all_reduce(false)),
        ("digits-cnn", 8, LowerOptions::default().with_precision(Precision::Bf16)),
    ] {
        let network = zoo::model(model).unwrap();
        let program = lower_training(&network, &scattered(&network), batch, &options).unwrap();
        let document = read(&program.to_json(&network, None).unwrap());
        assert_eq!(document["schema"], "deeppool/program/v3");
        assert_eq!(number(&document["world"]), 4);
        let again = DocumentReader(&network).program(&document);
        assert_eq!(again, program, "{model}");
    }
}

#[test]
fn exported_layers_have_the_ranks_of_the_placement() {
    let network = zoo::model("digits-cnn").unwrap();
    let placement = scattered(&network);
    let program = lower_training(&network, &placement, 8, &LowerOptions::default()).unwrap();
    let document = read(&program.to_json(&network, None).unwrap());
    for ((id, layer), described) in network.layers().zip(list(&document["layers"])) {
        assert_eq!(described["name"], layer.name());
        assert_eq!(numbers(&described["ranks"]), placement.ranks(id));
        assert_eq!(number(&described["parameters"]), layer.parameter_count());
        assert_eq!(numbers(&described["sample_shape"]), layer.output_shape().dims());
    }
}

#[test]
fn export_of_one_rank_has_all_collectives() {
    let network = zoo::model("digits-cnn").unwrap();
    let program = lower_training(&network, &scattered(&network), 8, &LowerOptions::default()).unwrap();
    let (all, one) = (program.to_json(&network, None).unwrap(), program.to_json(&network, Some(2)).unwrap());
    let (all, one) = (read(&all), read(&one));
    assert_eq!(one["collectives"], all["collectives"]);
    assert_eq!(one["layers"], all["layers"]);
    assert_eq!(list(&one["ranks"]), [all["ranks"][2].clone()]);
}

#[test]
fn invalid_exports_are_rejected() {
    let (network, other) = (zoo::model("digits-cnn").unwrap(), zoo::model("vgg11").unwrap());
    let placement = Placement::first_ranks(&network, 4, &vec![4; network.len() - 1]).unwrap();
    let program = lower_training(&network, &placement, 8, &LowerOptions::default()).unwrap();
    let problem = program.to_json(&network, Some(4)).unwrap_err().to_string();
    assert!(problem.contains("rank 4"), "{problem}");
    let of_other =
        lower_training(&other, &Placement::single(&other).unwrap(), 8, &LowerOptions::default()).unwrap();
    assert!(of_other.to_json(&network, None).unwrap_err().to_string().contains("another network"));
    let simulated = lower_for_simulation(&network, &placement, 8, &LowerOptions::default()).unwrap();
    assert!(simulated.to_json(&network, None).unwrap_err().to_string().contains("simulation"));
}
