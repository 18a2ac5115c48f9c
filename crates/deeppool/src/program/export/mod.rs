//! Programs as JSON for executors in other languages: `deeppool/program/v5`.
//!
//! A document is the [`Program`] as it was lowered, with the names of layers instead of their ids.
//! It determines the order, the buffers and the collectives of every step.

mod collective;
mod parts;

use std::collections::BTreeMap;

use gpu_mux::Lane;
use layer_engine::{Pass, Precision, Role, Sgd, Shard, Signature, Storage};
use layer_graph::{LayerGraph, LayerId};
use serde::Serialize;

use self::collective::{CollectiveDocument, collective};
use self::parts::DivisionDocument;
use super::{BatchPart, BufferSpec, Contents, Op, Program, RankProgram, Step};
use crate::Error;

const SCHEMA: &str = "deeppool/program/v5";

#[derive(Serialize)]
struct ProgramDocument<'a> {
    schema: &'static str,
    model: &'a str,
    batch: usize,
    world: usize,
    /// Absent for single precision.
    #[serde(skip_serializing_if = "Option::is_none")]
    precision: Option<&'static str>,
    layers: Vec<LayerDocument<'a>>,
    collectives: Vec<CollectiveDocument<'a>>,
    ranks: Vec<RankDocument<'a>>,
}

#[derive(Serialize)]
struct LayerDocument<'a> {
    name: &'a str,
    kind: &'static str,
    inputs: Vec<&'a str>,
    sample_shape: &'a [usize],
    parameters: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters_of: Option<&'a str>,
    /// The ranks that run the layer, in the order of their samples and parts; empty for the input.
    ranks: Vec<usize>,
    #[serde(flatten)]
    division: Option<DivisionDocument<'a>>,
}

#[derive(Serialize)]
struct RankDocument<'a> {
    rank: usize,
    state_buffers: usize,
    arena_elements: usize,
    buffers: Vec<BufferDocument<'a>>,
    steps: Vec<StepDocument<'a>>,
}

#[derive(Serialize)]
struct BufferDocument<'a> {
    elements: usize,
    /// Number format of the elements; absent for single precision.
    #[serde(skip_serializing_if = "Option::is_none")]
    storage: Option<&'static str>,
    #[serde(flatten)]
    contents: ContentsDocument<'a>,
    /// Position in the arena, in scalars; absent for state.
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<usize>,
}

#[derive(Serialize)]
#[serde(tag = "contents", rename_all = "snake_case")]
enum ContentsDocument<'a> {
    Operand { layer: &'a str, role: String },
    Velocity { layer: &'a str },
    Master { layer: &'a str },
    Constant { value: f64 },
    Moved { layer: &'a str },
    Packed { layer: &'a str },
    SquaredNorm,
}

#[derive(Serialize)]
struct StepDocument<'a> {
    label: &'a str,
    lane: &'static str,
    #[serde(flatten)]
    op: OpDocument<'a>,
    after: Vec<usize>,
    reads: Vec<usize>,
    writes: Vec<usize>,
}

#[derive(Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum OpDocument<'a> {
    LoadBatch {
        part: &'static str,
        samples: [usize; 2],
        #[serde(skip_serializing_if = "Option::is_none")]
        elements: Option<[usize; 2]>,
    },
    Forward(PassDocument<'a>),
    Backward(PassDocument<'a>),
    AccumulateGradient,
    SumAddends {
        terms: usize,
    },
    ScaleGradient {
        sample_elements: usize,
        factors: Vec<(usize, f64)>,
    },
    Collective {
        collective: usize,
    },
    SquaredNorm,
    OptimizerStep {
        layer: &'a str,
        momentum: f64,
        weight_decay: f64,
        #[serde(skip_serializing_if = "Option::is_none")]
        clip_norm: Option<f64>,
    },
}

#[derive(Serialize)]
struct PassDocument<'a> {
    layer: &'a str,
    pass: &'static str,
    samples: [usize; 2],
    /// The layer's role of each buffer.
    read_roles: Vec<String>,
    write_roles: Vec<String>,
}

impl Program {
    /// Returns this program as a JSON document of the format `deeppool/program/v5`: with the steps
    /// of the given rank, or of all ranks for `None`, and with all collectives.
    ///
    /// - `layers`: by name the kind, the inputs, the shape of one sample of the output, and the
    ///   ranks in the order of their samples (`parameters_of` names the owner of shared
    ///   parameters). A split layer has its `split` and its `parts`. A part is a layer of another
    ///   shape, with the `ranks` that run it, the shapes of one sample of its `inputs` and
    ///   `output`, and its kind with options (`op`), as in a graph document. Each of its
    ///   `parameters` and `statistics` has a `shape` and the box of the whole layer's tensor that
    ///   it holds: the `ranges` of a row-major view with the dimensions `dims`. The part's tensors
    ///   are the first ones of the whole layer. The part of a dropout of elements has a
    ///   `random_box`, too, the box of its elements in the whole sample, because they are dropped
    ///   by their place in it; that of an attention with dropout has one of its weights (heads,
    ///   positions, key positions). The part of a loss has the number `mean_positions` by which the
    ///   sum over its positions is divided;
    /// - `collectives`, in the one order in which all ranks issue them: an `all_reduce` or a
    ///   `broadcast` (from the first rank) of the buffers that a step writes; a `redistribute` with
    ///   the samples that each rank holds before (`source`) and after (`target`), and the `moves`
    ///   between them. With `groups`, `ranks` are that many consecutive lists of the same length,
    ///   and each of them reduces on its own. A redistribution between split layers is of an array
    ///   with the dimensions `extents`, whose items have `item_elements` elements: samples,
    ///   positions, outer dimension of a position, and units; before them, if there are five, the
    ///   addends. It has `ranges` of each dimension in place of `samples`;
    /// - `ranks`: the `buffers` of each rank, of which the first `state_buffers` keep their
    ///   contents from iteration to iteration, and its `steps`, which refer to buffers, steps and
    ///   collectives by their indices. A step runs on its `lane`, in the order of the list, when
    ///   the steps in `after` have finished. A pass of a layer gives the role of each buffer
    ///   (`read_roles`, `write_roles`), such as `input.0` or `output_gradient`. A `load_batch` for
    ///   some positions has the range of the `elements` of each sample that it loads. The passes
    ///   `forward_in_place` and `backward_in_place` of a loss update the first buffer of `writes`
    ///   in place: the input of the loss becomes the gradient of the input. A `scale_gradient`
    ///   multiplies what it writes in place: each entry of `factors` is a number of samples and
    ///   their factor; a factor of 0 gives 0 for any previous value. An `accumulate_gradient`
    ///   writes the sum of what it reads, which may include what it writes. A `sum_addends` writes
    ///   the sum of the consecutive `terms` that it reads. The contents of a `packed` buffer are
    ///   temporary: items on the way between ranks. Each buffer but the
    ///   first `state_buffers` has an `offset` in an arena of `arena_elements` elements of single
    ///   precision; buffers with overlapping places never hold values at the same time. A buffer
    ///   with the `storage` `bf16` has two elements in the place of one: the first in the lower two
    ///   bytes, in little-endian order. An `optimizer_step` updates the parameters, the `master`
    ///   parameters in single precision if there are any, and the velocity. A collective that
    ///   writes several buffers may transfer them as one: they lie one after another in the arena,
    ///   each at the next multiple of 16 bytes.
    ///
    /// Samples are half-open ranges `[first, end]`: of the global batch in steps, of the
    /// (micro-)batch in redistributions.
    ///
    /// ```
    /// use deeppool::program::{LowerOptions, Placement, lower_training};
    /// use deeppool::layer_graph::zoo;
    ///
    /// let network = zoo::model("digits-cnn")?;
    /// let placement = Placement::single(&network)?;
    /// let program = lower_training(&network, &placement, 8, &LowerOptions::default())?;
    /// let document = program.to_json(&network, Some(0))?;
    /// assert!(document.starts_with(r#"{"schema":"deeppool/program/v5","model":"digits-cnn","#));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchRank`] for an unknown rank. [`Error::Program`] if the program is of another
    /// network or was lowered [for simulation](super::lower_for_simulation).
    pub fn to_json(&self, network: &LayerGraph, rank: Option<usize>) -> Result<String, Error> {
        let others =
            self.ranks.iter().flat_map(|one| one.represented_ranks.iter().filter(|&&rank| rank != one.rank));
        if let Some(&missing) = others.min() {
            self.of_rank(missing)?;
        }
        let ranks = match rank {
            Some(rank) => vec![self.of_rank(rank)?],
            None => self.ranks.iter().collect(),
        };
        let names = Names { network, names: network.layers().map(|(_, layer)| layer.name()).collect() };
        let document = ProgramDocument {
            schema: SCHEMA,
            model: network.name(),
            batch: self.batch,
            world: self.world(),
            precision: (self.precision != Precision::F32).then(|| self.precision.label()),
            layers: self.layers(network, &names)?,
            collectives: self.collectives.iter().map(collective).collect(),
            ranks: ranks.into_iter().map(|program| names.rank(program)).collect::<Result<_, _>>()?,
        };
        serde_json::to_string(&document).map_err(|error| Error::Program(error.to_string()))
    }

    fn layers<'a>(
        &'a self,
        network: &'a LayerGraph,
        names: &Names<'a>,
    ) -> Result<Vec<LayerDocument<'a>>, Error> {
        // The ranks of each layer, sorted by the first sample of their forward passes, by part, and
        // by rank if they have no samples.
        let mut runners: Vec<BTreeMap<(usize, usize, usize), &RankProgram>> =
            vec![BTreeMap::new(); network.len()];
        for program in &self.ranks {
            for step in &program.steps {
                if let Op::Forward { layer, shard, .. } = step.op {
                    let of_layer = runners.get_mut(layer.index()).ok_or_else(other_network)?;
                    let part = program.parts.get(&layer).map_or(0, |part| part.index);
                    of_layer.insert((shard.first, part, program.rank), program);
                }
            }
        }
        let layers = network.layers().zip(runners).map(|((id, layer), runners)| {
            let owner = network.parameter_owner(id);
            let mut ranks = Vec::new();
            for program in runners.values() {
                if !ranks.contains(&program.rank) {
                    ranks.push(program.rank);
                }
            }
            let parts = runners.values().filter_map(|program| Some((program.rank, program.parts.get(&id)?)));
            Ok(LayerDocument {
                name: layer.name(),
                kind: layer.kind().label(),
                inputs: network.producers(id).into_iter().map(|id| names.of(id)).collect::<Result<_, _>>()?,
                sample_shape: layer.output_shape().dims(),
                parameters: layer.parameter_count(),
                parameters_of: if owner == id { None } else { Some(names.of(owner)?) },
                ranks,
                division: DivisionDocument::new(parts.map(|(rank, part)| (rank, &**part))),
            })
        });
        layers.collect()
    }
}

/// Names of the layers, by layer id.
struct Names<'a> {
    network: &'a LayerGraph,
    names: Vec<&'a str>,
}

impl<'a> Names<'a> {
    fn of(&self, id: LayerId) -> Result<&'a str, Error> {
        self.names.get(id.index()).copied().ok_or_else(other_network)
    }

    fn rank<'p>(&self, program: &'p RankProgram) -> Result<RankDocument<'p>, Error>
    where
        'a: 'p,
    {
        Ok(RankDocument {
            rank: program.rank,
            state_buffers: program.state_buffers,
            arena_elements: program.arena_elements,
            buffers: program.buffers.iter().map(|spec| self.buffer(spec)).collect::<Result<_, _>>()?,
            steps: program.steps.iter().map(|step| self.step(program, step)).collect::<Result<_, _>>()?,
        })
    }

    fn buffer(&self, spec: &BufferSpec) -> Result<BufferDocument<'a>, Error> {
        let contents = match spec.contents {
            Contents::Operand(id, role) => {
                ContentsDocument::Operand { layer: self.of(id)?, role: role_label(role) }
            }
            Contents::Velocity(id) => ContentsDocument::Velocity { layer: self.of(id)? },
            Contents::Master(id) => ContentsDocument::Master { layer: self.of(id)? },
            Contents::Constant(value) => ContentsDocument::Constant { value },
            Contents::Moved(id) => ContentsDocument::Moved { layer: self.of(id)? },
            Contents::Packed(id) => ContentsDocument::Packed { layer: self.of(id)? },
            Contents::SquaredNorm => ContentsDocument::SquaredNorm,
        };
        let storage = storage_label(spec.storage);
        Ok(BufferDocument { elements: spec.elements, storage, contents, offset: spec.offset })
    }

    fn pass(
        &self,
        program: &RankProgram,
        (id, pass, shard): (LayerId, Pass, Shard),
    ) -> Result<PassDocument<'a>, Error> {
        let layer = self.of(id)?;
        let signature = Signature::of(program.layer(self.network, id), pass).ok_or_else(other_network)?;
        let labels = |roles: Vec<Role>| roles.into_iter().map(role_label).collect();
        Ok(PassDocument {
            layer,
            pass: pass_label(pass),
            samples: samples(shard),
            read_roles: labels(signature.reads),
            write_roles: labels(signature.writes),
        })
    }

    /// Returns the number of features or labels of a sample.
    fn sample_elements(&self, part: BatchPart) -> usize {
        match part {
            BatchPart::Features => self.network.sample_elements(),
            BatchPart::Labels => self.network.label_count(),
        }
    }

    fn step<'p>(&self, program: &RankProgram, step: &'p Step) -> Result<StepDocument<'p>, Error>
    where
        'a: 'p,
    {
        let op = match &step.op {
            Op::LoadBatch { part, shard, elements } => {
                let part_label = match part {
                    BatchPart::Features => "features",
                    BatchPart::Labels => "labels",
                };
                let elements =
                    (elements.len() < self.sample_elements(*part)).then_some([elements.start, elements.end]);
                OpDocument::LoadBatch { part: part_label, samples: samples(*shard), elements }
            }
            &Op::Forward { layer, pass, shard } => {
                OpDocument::Forward(self.pass(program, (layer, pass, shard))?)
            }
            &Op::Backward { layer, pass, shard } => {
                OpDocument::Backward(self.pass(program, (layer, pass, shard))?)
            }
            Op::SumAddends { terms } => OpDocument::SumAddends { terms: *terms },
            Op::SumGradients | Op::AddGradient => OpDocument::AccumulateGradient,
            Op::ScaleGradient { sample_elements, factors, .. } => {
                OpDocument::ScaleGradient { sample_elements: *sample_elements, factors: factors.clone() }
            }
            Op::Collective(id) => OpDocument::Collective { collective: id.0 },
            Op::SquaredNorm => OpDocument::SquaredNorm,
            &Op::OptimizerStep { layer, rule: Sgd { momentum, weight_decay, clip_norm } } => {
                OpDocument::OptimizerStep { layer: self.of(layer)?, momentum, weight_decay, clip_norm }
            }
        };
        // A sum in place reads the buffer that it writes.
        let sum = matches!(step.op, Op::AddGradient).then_some(&step.writes).into_iter().flatten();
        Ok(StepDocument {
            label: &step.label,
            lane: match step.lane() {
                Lane::Compute => "compute",
                Lane::Communication => "communication",
            },
            op,
            after: step.after.iter().map(|step| step.0).collect(),
            reads: sum.chain(&step.reads).map(|buffer| buffer.0).collect(),
            writes: step.writes.iter().map(|buffer| buffer.0).collect(),
        })
    }
}

fn samples(shard: Shard) -> [usize; 2] {
    [shard.first, shard.first + shard.samples]
}

fn storage_label(storage: Storage) -> Option<&'static str> {
    match storage {
        Storage::Scalar => None,
        Storage::Bf16 => Some("bf16"),
    }
}

fn pass_label(pass: Pass) -> &'static str {
    match pass {
        Pass::ForwardMoments => "forward_moments",
        Pass::Forward => "forward",
        Pass::ForwardInPlace => "forward_in_place",
        Pass::Recompute => "recompute",
        Pass::Infer => "infer",
        Pass::BackwardMoments => "backward_moments",
        Pass::Backward => "backward",
        Pass::BackwardInPlace => "backward_in_place",
        Pass::BackwardParameters => "backward_parameters",
    }
}

fn role_label(role: Role) -> String {
    let label = match role {
        Role::Input(slot) => return format!("input.{slot}"),
        Role::InputGradient(slot) => return format!("input_gradient.{slot}"),
        Role::Labels => "labels",
        Role::Parameters => "parameters",
        Role::Statistics => "statistics",
        Role::Output => "output",
        Role::Saved => "saved",
        Role::Moments => "moments",
        Role::GradientMoments => "gradient_moments",
        Role::Metrics => "metrics",
        Role::OutputGradient => "output_gradient",
        Role::ParameterGradient => "parameter_gradient",
    };
    label.into()
}

fn other_network() -> Error {
    Error::Program("it is of another network".into())
}
