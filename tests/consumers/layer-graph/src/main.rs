//! Builds LeNet-5 and ResNet-50, and lists the cost of LeNet-5's layers.

use layer_graph::{Conv2d, GraphError, LayerGraph, LayerKind, Linear, Pool2d, Shape, zoo};

fn main() -> Result<(), GraphError> {
    let mut net = LayerGraph::new("lenet5", Shape::image(1, 28, 28))?;
    let x = net.input();
    let x = net.add("conv1", Conv2d::new(6, 5).padding(2), [x])?;
    let x = net.add("relu1", LayerKind::Relu, [x])?;
    let x = net.add("pool1", LayerKind::MaxPool2d(Pool2d::new(2, 2)), [x])?;
    let x = net.add("conv2", Conv2d::new(16, 5), [x])?;
    let x = net.add("relu2", LayerKind::Relu, [x])?;
    let x = net.add("pool2", LayerKind::MaxPool2d(Pool2d::new(2, 2)), [x])?;
    let x = net.add("flatten", LayerKind::Flatten, [x])?;
    let x = net.add("fc1", Linear::new(120), [x])?;
    let x = net.add("relu3", LayerKind::Relu, [x])?;
    let x = net.add("fc2", Linear::new(84), [x])?;
    let x = net.add("relu4", LayerKind::Relu, [x])?;
    let x = net.add("fc3", Linear::new(10), [x])?;
    net.add("loss", LayerKind::CROSS_ENTROPY, [x])?;

    for (_, layer) in net.layers() {
        let shape = layer.output_shape().dims();
        println!(
            "{:8} {shape:?} {} parameters, {} FLOPs",
            layer.name(),
            layer.parameter_count(),
            layer.forward_flops()
        );
    }
    assert_eq!(net.parameter_count(), 61_706);
    assert_eq!(LayerGraph::from_json(&net.to_json())?, net);

    let resnet = zoo::model("resnet-50")?;
    println!("{}: {} parameters in {} layers", resnet.name(), resnet.parameter_count(), resnet.len());
    assert_eq!(resnet.parameter_count(), 25_557_032);

    // A filter larger than the image is an error.
    let error = net.add("conv3", Conv2d::new(1, 40), [net.input()]).unwrap_err();
    println!("error: {error}");
    Ok(())
}
