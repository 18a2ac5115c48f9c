//! Networks shipped with the Python package `onnx`. They are found in the folder
//! `onnx/backend/test/data/light` named by the environment variable `ONNX_LIGHT_MODELS`, or in an
//! installed package.

use std::path::{Path, PathBuf};
use std::process::Command;

use layer_graph::{Layer, LayerGraph, LayerKind, onnx, zoo};

/// File name, number of learned parameters, and multiply-adds of the convolutions and linear layers
/// for one sample.
///
/// The figures were computed with the package's own shape inference: parameters are the elements of
/// the weights and biases of `Conv` and `Gemm` and of the scale and shift of `BatchNormalization`;
/// multiply-adds are the output elements times the weight elements of one output channel. The
/// parameters of `AlexNet`, DenseNet-121, ResNet-50, `SqueezeNet` 1.1 and VGG-19 equal the
/// published ones.
const NETWORKS: [(&str, usize, u64); 9] = [
    ("bvlc_alexnet", 60_965_224, 654_560_384),
    ("densenet121", 7_978_856, 2_834_161_664),
    ("inception_v1", 6_998_552, 1_431_556_352),
    ("inception_v2", 11_194_984, 2_018_851_840),
    ("resnet50", 25_557_032, 4_089_184_256),
    ("shufflenet", 1_393_320, 124_664_528),
    ("squeezenet", 1_235_496, 349_151_936),
    ("vgg19", 143_667_240, 19_632_062_464),
    ("zfnet512", 87_250_536, 1_481_727_008),
];

/// Returns the folder of the files, or the reason why it is missing.
pub(crate) fn folder() -> Result<PathBuf, String> {
    if let Some(folder) = std::env::var_os("ONNX_LIGHT_MODELS") {
        return Ok(folder.into());
    }
    let script = "import onnx, os; print(os.path.dirname(onnx.__file__))";
    let python = Command::new("python3").args(["-c", script]).output();
    match python {
        Ok(output) if output.status.success() => {
            let package = String::from_utf8_lossy(&output.stdout);
            Ok(PathBuf::from(package.trim()).join("backend/test/data/light"))
        }
        _ => Err("ONNX_LIGHT_MODELS is not set, and Python has no package `onnx`".into()),
    }
}

fn import(folder: &Path, name: &str) -> onnx::Imported {
    let file = folder.join(format!("light_{name}.onnx"));
    onnx::from_vec(name, std::fs::read(file).expect(name)).expect(name)
}

fn is_product(layer: &Layer) -> bool {
    matches!(layer.kind(), LayerKind::Conv2d(_) | LayerKind::Linear(_))
}

fn multiply_adds(layer: &Layer) -> u64 {
    let weight = &layer.parameters()[0];
    layer.output_shape().elements() as u64 * weight.dims[1..].iter().product::<usize>() as u64
}

#[test]
fn published_networks_have_the_expected_sizes() {
    let folder = match folder() {
        Ok(folder) => folder,
        Err(why) => return println!("SKIPPED: {why}"),
    };
    for (name, parameters, expected) in NETWORKS {
        let imported = import(&folder, name);
        let network = imported.graph;
        assert_eq!(network.parameter_count(), parameters, "parameters of {name}");
        let counted: u64 = network
            .layers()
            .map(|(_, layer)| layer)
            .filter(|layer| is_product(layer))
            .map(multiply_adds)
            .sum();
        assert_eq!(counted, expected, "multiply-adds of {name}");

        let (loss, layer) = network.layers().next_back().expect("layers");
        assert_eq!(*layer.kind(), LayerKind::CROSS_ENTROPY, "the end of {name}");
        let scores = network.producers(loss)[0];
        assert_eq!(network.layer(scores).output_shape().dims(), [1000], "classes of {name}");
        let unused = network.layers().filter(|&(id, _)| network.consumers(id).is_empty()).count();
        assert_eq!(unused, 1, "ends of {name}");
        assert_eq!(LayerGraph::from_json(&network.to_json()).expect(name), network);
    }
}

/// Returns kind, parameters and operations of the layers that have parameters, sorted.
fn inventory(network: &LayerGraph) -> Vec<(&'static str, usize, u64)> {
    let layers = network.layers().map(|(_, layer)| layer).filter(|layer| layer.parameter_count() > 0);
    let mut layers: Vec<_> =
        layers.map(|layer| (layer.kind().label(), layer.parameter_count(), layer.forward_flops())).collect();
    layers.sort_unstable();
    layers
}

#[test]
fn imported_networks_equal_those_of_the_zoo() {
    let folder = match folder() {
        Ok(folder) => folder,
        Err(why) => return println!("SKIPPED: {why}"),
    };
    for (file, model) in [("vgg19", "vgg19"), ("resnet50", "resnet-50")] {
        let imported = import(&folder, file).graph;
        let ours = zoo::model(model).expect("in the zoo");
        assert_eq!(inventory(&imported), inventory(&ours), "{file}");
    }
    // Compare ResNet-50 including the layers without parameters.
    let imported = import(&folder, "resnet50").graph;
    let ours = zoo::model("resnet-50").expect("in the zoo");
    assert_eq!(imported.len(), ours.len());
    assert_eq!(imported.forward_flops(), ours.forward_flops());
    assert_eq!(imported.activation_bytes(), ours.activation_bytes());
}
