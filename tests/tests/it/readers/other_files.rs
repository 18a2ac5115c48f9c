//! Files that are no JSON documents: ONNX, published profiles, data sets and weights.

use std::fs;
use std::path::Path;

use deeppool::data::{DataSource, Dataset};
use deeppool::train::Weights;
use layer_graph::{LayerGraph, LayerKind, Linear, Shape, onnx};
use layer_profile::PublishedProfile;
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use super::Reader;
use super::documents::of;

/// Readers of files that are no JSON documents.
pub(super) const OTHER_FILES: &[Reader] = &[
    Reader {
        name: "layer-graph/src/onnx/mod.rs:from_bytes",
        read: |nodes| of(onnx::from_bytes("net", &onnx_file(nodes)), node_count),
        ..ONNX
    },
    Reader {
        name: "layer-graph/src/onnx/mod.rs:from_vec",
        read: |nodes| of(onnx::from_vec("net", onnx_file(nodes)), node_count),
        ..ONNX
    },
    Reader {
        name: "layer-graph/src/onnx/mod.rs:from_vec_in",
        read: |nodes| of(onnx::from_vec_in("net", onnx_file(nodes), Path::new(".")), node_count),
        ..ONNX
    },
    Reader {
        name: "layer-profile/src/published/mod.rs:from_text",
        valid: "ReLU2d{\"inplace\":true}[@][4,2,2] 4.9 1205 3730",
        unusable: &[
            ("ReLU2d{\"inplace\":true}[@][4,2,2] 4.9 NaN 3730", "line @"),
            ("ReLU2d{\"inplace\":true}[@][4,2,2] 4.9 2e25 3730", "line @"),
            ("ReLU2d{\"inplace\":true}[@][4,2,2] 4.9 -5 3730", "line @"),
            ("ReLU2d{\"inplace\":true}[0][4,2,2] 4.9 1205 3730", "line @"),
            ("ReLU2d{\"inplace\":true,\"inplace\":false}[@][4,2,2] 4.9 1205 3730", "line @"),
            ("ReLU2d{\"inplace\":true}[@][4,2,2] 4.9 1205", "line @"),
            ("ReLU2d[@][4,2,2] 4.9 1205 3730", "line @"),
        ],
        max_records: 100,
        read: |rows| of(PublishedProfile::from_text(&rows.join("\n")), |profile| profile.batches().count()),
    },
    Reader {
        name: "deeppool/src/data/mnist.rs:load",
        valid: "3",
        unusable: &[("10", "sample # has label 10"), ("255", "sample # has label 255")],
        max_records: 100,
        read: |labels| {
            let labels: Vec<u8> = labels.iter().map(|label| label.parse().unwrap()).collect();
            let idx = |dims: &[u32], elements: &[u8]| {
                let header = [&[0x0800 | dims.len() as u32], dims].concat();
                header.iter().flat_map(|word| word.to_be_bytes()).chain(elements.iter().copied()).collect()
            };
            let count = labels.len() as u32;
            let pixels = vec![7; 4 * labels.len()];
            let files: [(&str, Vec<u8>); 4] = [
                ("train-images-idx3-ubyte", idx(&[count, 2, 2], &pixels)),
                ("train-labels-idx1-ubyte", idx(&[count], &labels)),
                ("t10k-images-idx3-ubyte", idx(&[1, 2, 2], &[7; 4])),
                ("t10k-labels-idx1-ubyte", idx(&[1], &[1])),
            ];
            in_folder(&files, |folder| of(Dataset::mnist(folder), |data| data.train().len()))
        },
    },
    Reader {
        name: "deeppool/src/data/cifar10.rs:load",
        valid: "3",
        unusable: &[("10", "sample # has label 10"), ("255", "sample # has label 255")],
        max_records: 100,
        read: |labels| {
            let record = |label: u8| [vec![label], vec![7; 3 * 32 * 32]].concat();
            let labels: Vec<u8> = labels.iter().map(|label| label.parse().unwrap()).collect();
            let train: Vec<u8> = labels.iter().flat_map(|&label| record(label)).collect();
            let names: Vec<String> = (2..=5).map(|number| format!("data_batch_{number}.bin")).collect();
            let mut files: Vec<(&str, Vec<u8>)> = names.iter().map(|name| (&**name, record(0))).collect();
            files.extend([("data_batch_1.bin", train), ("test_batch.bin", record(0))]);
            in_folder(&files, |folder| of(Dataset::cifar10(folder), |data| data.train().len() - 4))
        },
    },
    Reader {
        name: "deeppool/src/data/tensors.rs:load",
        valid: "1 0.5",
        unusable: &[
            ("1 NaN", "sample #"),
            ("1 inf", "sample #"),
            ("1 -inf", "sample #"),
            ("2 0.5", "sample #"),
            ("-1 0.5", "sample #"),
        ],
        max_records: 100,
        read: |samples| {
            let pairs = samples.iter().map(|sample| sample.split_once(' ').unwrap());
            let (labels, features): (Vec<&str>, Vec<&str>) = pairs.unzip();
            let labels: Vec<u8> =
                labels.iter().flat_map(|label| label.parse::<i64>().unwrap().to_le_bytes()).collect();
            let features: Vec<u8> =
                features.iter().flat_map(|feature| feature.parse::<f32>().unwrap().to_le_bytes()).collect();
            let file = tensors(&[
                ("train.inputs", Dtype::F32, &[samples.len(), 1], &features),
                ("train.labels", Dtype::I64, &[samples.len()], &labels),
                ("test.inputs", Dtype::F32, &[1, 1], &[0; 4]),
                ("test.labels", Dtype::I64, &[1], &[0; 8]),
            ]);
            let network = two_classes().map_err(|error| error.to_string())?;
            in_folder(&[("data", file)], |folder| {
                let source = DataSource::Tensors(folder.join("data"));
                of(Dataset::open(&source, &network), |data| data.train().len())
            })
        },
    },
    Reader {
        name: "deeppool/src/train/weights.rs:from_safetensors",
        valid: "F32 0.5",
        unusable: &[
            ("F64 0.5", "tensor `w#`"),
            ("I64 1", "tensor `w#`"),
            ("F32 NaN", "tensor `w#`"),
            ("F32 inf", "tensor `w#`"),
        ],
        // Tensors are sorted by name.
        max_records: 10,
        read: |records| {
            let names: Vec<String> = (0..records.len()).map(|index| format!("w{index}")).collect();
            let values: Vec<(Dtype, Vec<u8>)> = records.iter().map(|record| value(record)).collect();
            let all = names.iter().zip(&values);
            let all: Vec<Tensor<'_>> =
                all.map(|(name, (dtype, bytes))| (&**name, *dtype, &[1_usize][..], &bytes[..])).collect();
            of(Weights::from_safetensors("file", &tensors(&all)), |weights| weights.len())
        },
    },
];

/// Nodes of an ONNX file, one after another.
const ONNX: Reader = Reader {
    name: "",
    valid: "Relu v#",
    unusable: &[("Frobnicate v#", "`n#`"), ("Relu nowhere", "`nowhere`"), ("Add v#", "`n#`")],
    max_records: 100,
    read: |_| Err("there is no file".into()),
};

fn node_count(imported: onnx::Imported) -> usize {
    let onnx::Imported { graph, .. } = imported;
    // The input and the loss are no nodes of the file.
    graph.layers().count() - 2
}

/// Returns an ONNX file with these nodes in a chain, each an operator and its input.
fn onnx_file(nodes: &[String]) -> Vec<u8> {
    let text = |tag: u8, text: &str| message(tag, text.as_bytes());
    let mut graph = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        let (operator, input) = node.split_once(' ').unwrap();
        let output = format!("v{}", index + 1);
        let name = format!("n{index}");
        graph.extend(message(
            1,
            &[text(1, input), text(2, &output), text(3, &name), text(4, operator)].concat(),
        ));
    }
    // A value of two samples with four features: the type has the element type and the shape.
    let dims: Vec<u8> = [2, 4].into_iter().flat_map(|dim| message(1, &number(1, dim))).collect();
    let tensor = [number(1, 1), message(2, &dims)].concat();
    let value = |name: &str| [text(1, name), message(2, &message(1, &tensor))].concat();
    graph.extend(message(11, &value("v0")));
    graph.extend(message(12, &value(&format!("v{}", nodes.len()))));
    [message(8, &number(2, 17)), message(7, &graph)].concat()
}

/// Encodes a field with content of a length below 2^14 in Protobuf.
fn message(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = [(content.len() & 0x7f) as u8 | 0x80, (content.len() >> 7) as u8];
    [&[tag << 3 | 2], &length[..], content].concat()
}

/// Encodes a field with a number below 128 in Protobuf.
fn number(tag: u8, value: u8) -> Vec<u8> {
    vec![tag << 3, value]
}

/// Name, type, dimensions and bytes of a tensor.
type Tensor<'a> = (&'a str, Dtype, &'a [usize], &'a [u8]);

/// Returns a safetensors file.
fn tensors(all: &[Tensor<'_>]) -> Vec<u8> {
    let views = all.iter().map(|&(name, dtype, dims, bytes)| {
        (name.to_owned(), TensorView::new(dtype, dims.to_vec(), bytes).unwrap())
    });
    safetensors::serialize(views, None).unwrap()
}

/// Returns the type and the bytes of a number such as `F32 0.5`.
fn value(record: &str) -> (Dtype, Vec<u8>) {
    let (dtype, number) = record.split_once(' ').unwrap();
    match dtype {
        "F32" => (Dtype::F32, number.parse::<f32>().unwrap().to_le_bytes().to_vec()),
        "F64" => (Dtype::F64, number.parse::<f64>().unwrap().to_le_bytes().to_vec()),
        _ => (Dtype::I64, number.parse::<i64>().unwrap().to_le_bytes().to_vec()),
    }
}

/// Returns a linear classifier of one feature.
fn two_classes() -> Result<LayerGraph, layer_graph::GraphError> {
    let mut network = LayerGraph::new("net", Shape::features(1))?;
    let scores = network.add("fc", Linear::new(2), [network.input()])?;
    network.add("loss", LayerKind::CROSS_ENTROPY, [scores])?;
    Ok(network)
}

/// Calls a function with a folder that has these files.
fn in_folder<T>(files: &[(&str, Vec<u8>)], read: impl FnOnce(&Path) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        fs::write(folder.path().join(name), content).unwrap();
    }
    read(folder.path())
}
