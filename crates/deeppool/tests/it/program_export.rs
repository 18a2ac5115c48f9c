//! Exported programs: the document contains the whole program, which can be rebuilt from it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use collectives::{Layout, Redistribution};
use deeppool::program::{
    BatchPart, BufferId, BufferSpec, Collective, CollectiveId, CollectiveOp, Contents, Lane, LowerOptions,
    Op, Placement, Program, RankProgram, Step, StepId, lower_for_simulation, lower_training,
};
use layer_engine::{Pass, Precision, Role, Sgd, Shard, Signature, Storage};
use layer_graph::{
    Division, Layer, LayerGraph, LayerId, LayerPart, NetworkSplits, Shape, Split, TensorBox, zoo,
};
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

/// Returns the box of items as a range of each dimension.
fn items(value: &Value) -> Vec<Range<usize>> {
    match value.get("samples") {
        Some(samples) => vec![range(samples)],
        None => list(&value["ranges"]).iter().map(range).collect(),
    }
}

fn range(value: &Value) -> Range<usize> {
    let [start, end] = numbers(value)[..] else { panic!("{value}") };
    start..end
}

fn tensor_box(value: &Value) -> TensorBox {
    TensorBox { dims: numbers(&value["dims"]), ranges: list(&value["ranges"]).iter().map(range).collect() }
}

/// Returns the layout in which ranks hold the given boxes: a grid of ranges of each dimension.
fn layout(value: &Value, extents: &[usize]) -> Layout {
    let held: Vec<(usize, Vec<Range<usize>>)> =
        list(value).iter().map(|held| (number(&held["rank"]), items(held))).collect();
    if extents.len() == 1 {
        let counts: Vec<(usize, usize)> = held.iter().map(|(rank, of)| (*rank, of[0].len())).collect();
        return Layout::from_counts(&counts).unwrap();
    }
    let ranks: Vec<usize> = held.iter().map(|(rank, _)| *rank).collect();
    // The first box of each row of the grid has the ranges that later dimensions begin with.
    let cuts: Vec<Vec<Range<usize>>> = (0..extents.len())
        .map(|dim| {
            let first = &held[0].1;
            let row = held.iter().filter(|(_, of)| (0..extents.len()).all(|i| i == dim || of[i] == first[i]));
            let mut cuts: Vec<Range<usize>> = row.map(|(_, of)| of[dim].clone()).collect();
            cuts.dedup();
            cuts
        })
        .collect();
    let parts: Vec<usize> = cuts.iter().map(Vec::len).collect();
    let layout = Layout::grid(extents, &parts, &ranks).unwrap();
    cuts.into_iter().enumerate().fold(layout, |layout, (dim, cuts)| layout.with_ranges(dim, cuts).unwrap())
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
            ranks: list(&document["ranks"]).iter().map(|rank| self.rank(rank, &document["layers"])).collect(),
            collectives: list(&document["collectives"]).iter().map(collective).collect(),
        }
    }

    /// Returns the parts that a rank runs. Their descriptions are checked.
    fn parts(&self, rank: usize, layers: &Value) -> BTreeMap<LayerId, Arc<LayerPart>> {
        let splits = NetworkSplits::new(self.0);
        let mut parts = BTreeMap::new();
        for layer in list(layers).iter().filter(|layer| layer.get("split").is_some()) {
            let id = self.0.find(layer["name"].as_str().unwrap()).unwrap();
            let described = list(&layer["parts"]);
            let split = layer["split"].as_str().unwrap().parse().unwrap();
            let division = Division { split, parts: described.len() };
            for (index, one) in described.iter().enumerate() {
                let part = splits.part(id, division, index).unwrap();
                let dims = part.layer.input_shapes().iter().map(Shape::dims);
                assert!(list(&one["inputs"]).iter().map(numbers).eq(dims));
                assert_eq!(numbers(&one["output"]), part.layer.output_shape().dims());
                assert_eq!(one["op"], serde_json::to_value(part.layer.kind()).unwrap());
                let draws = part.layer.kind().draws_by_element();
                assert_eq!(one.get("random_box").map(tensor_box), draws.then(|| part.layer.random_box()));
                let is_loss = part.layer.kind().is_loss();
                let mean_positions = one.get("mean_positions").map(number);
                assert_eq!(mean_positions, is_loss.then(|| part.layer.mean_positions()));
                let tensors = [
                    ("parameters", part.layer.parameters(), &part.parameters),
                    ("statistics", part.layer.statistics(), &part.statistics),
                ];
                for (key, tensors, boxes) in tensors {
                    let shapes = tensors.into_iter().map(|tensor| tensor.dims);
                    assert!(list(&one[key]).iter().map(|one| numbers(&one["shape"])).eq(shapes));
                    assert!(list(&one[key]).iter().map(tensor_box).eq(boxes.iter().cloned()));
                }
                if numbers(&one["ranks"]).contains(&rank) {
                    parts.insert(id, Arc::new(part));
                }
            }
        }
        parts
    }

    fn rank(&self, document: &Value, layers: &Value) -> RankProgram {
        let rank = number(&document["rank"]);
        RankProgram {
            rank,
            represented_ranks: vec![rank],
            parts: self.parts(rank, layers),
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
            "packed" => Contents::Packed(self.layer(document)),
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
            "load_batch" => {
                let is_features = document["part"] == "features";
                let part = if is_features { BatchPart::Features } else { BatchPart::Labels };
                let (network, last) = (self.0, self.0.layers().next_back().unwrap().1);
                let input = network.layer(network.input()).output_shape().elements();
                let all = 0..if is_features { input } else { last.label_count() };
                let elements = document.get("elements").map_or(all, range);
                Op::LoadBatch { part, shard: samples(), elements }
            }
            "forward" => Op::Forward { layer: self.layer(document), pass: pass(), shard: samples() },
            "backward" => Op::Backward { layer: self.layer(document), pass: pass(), shard: samples() },
            "accumulate_gradient" if reads.contains(&writes[0]) => Op::AddGradient,
            "accumulate_gradient" => Op::SumGradients,
            "sum_addends" => Op::SumAddends { terms: number(&document["terms"]) },
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
            let samples = || list(&document["source"]).iter().map(|held| items(held)[0].end).max();
            let extents =
                document.get("extents").map_or_else(|| vec![samples().unwrap_or_default()], numbers);
            let (source, target) =
                (layout(&document["source"], &extents), layout(&document["target"], &extents));
            let redistribution = Redistribution::new(&source, &target).unwrap();
            let moves = list(&document["moves"]).iter();
            let moves = moves.map(|one| (number(&one["from"]), number(&one["to"]), items(one)));
            let expected = redistribution.moves().iter();
            assert!(moves.eq(expected.map(|one| (one.from_rank, one.to_rank, one.region.ranges().to_vec()))));
            let unit = if document.get("extents").is_some() { "item_elements" } else { "sample_elements" };
            CollectiveOp::Redistribute {
                redistribution: Arc::new(redistribution),
                item_elements: number(&document[unit]),
                storage: storage(document),
            }
        }
        other => panic!("{other}"),
    };
    let label = document["label"].as_str().unwrap().into();
    let groups = document.get("groups").map_or(1, number);
    Collective { op, ranks: numbers(&document["ranks"]), groups, label }
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
        assert_eq!(document["schema"], "deeppool/program/v5");
        assert_eq!(number(&document["world"]), 4);
        let again = DocumentReader(&network).program(&document);
        assert_eq!(again, program, "{model}");
    }
}

#[test]
fn exported_documents_rebuild_split_layers() {
    let by_features = Division { split: Split::Features, parts: 2 };
    let by_inputs = Division { split: Split::Inputs, parts: 2 };
    let copies = Division { split: Split::Copies, parts: 2 };
    let digits = [
        ("conv2_3x3", by_features),
        ("conv3", by_inputs),
        ("fc1", by_features),
        ("dropout", by_features),
        ("fc2", Division { split: Split::Inputs, parts: 4 }),
    ];
    let gpt2 = [
        ("block1.ln_1", copies),
        ("block1.self_attention.in_proj", by_features),
        ("block1.self_attention", by_features),
        ("block1.self_attention.out_proj", by_inputs),
    ];
    let by_positions = Division { split: Split::Positions, parts: 2 };
    let transformer = zoo::model("gpt2").unwrap();
    let splits = NetworkSplits::new(&transformer);
    let has_positions = |&(id, _): &(LayerId, &Layer)| splits.max_parts(id, Split::Positions) > 1;
    let of_positions: Vec<(&str, Division)> =
        transformer.layers().filter(has_positions).map(|(_, layer)| (layer.name(), by_positions)).collect();
    for (model, divisions, ranks) in [
        ("digits-cnn", &digits[..], [2, 0, 3, 1]),
        ("digits-cnn", &digits[..], [0, 1, 2, 3]),
        ("gpt2", &gpt2[..], [0, 1, 2, 3]),
        ("gpt2", &of_positions[..], [2, 0, 3, 1]),
    ] {
        let network = zoo::model(model).unwrap();
        let placement = Placement::new(&network, 4, vec![ranks.to_vec(); network.len() - 1]).unwrap();
        let divisions = divisions.iter().map(|&(name, division)| (network.find(name).unwrap(), division));
        let placement = placement.with_divisions(&network, divisions).unwrap();
        let options = LowerOptions::default().with_micro_batches(2);
        let program = lower_training(&network, &placement, 6, &options).unwrap();
        let document = read(&program.to_json(&network, None).unwrap());
        assert_eq!(DocumentReader(&network).program(&document), program, "{model}");
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
