//! Prints the layers of a network of the zoo with their shapes, parameters and operations.
//!
//!     cargo run -p layer-graph --example layers -- resnet-50

use layer_graph::{GraphError, zoo};

fn main() -> Result<(), GraphError> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "digits-cnn".into());
    let network = zoo::model(&name)?;
    println!("{:32} {:24} {:>16} {:>12} {:>14}", "layer", "kind", "output", "parameters", "MFLOP forward");
    for (id, layer) in network.layers() {
        println!(
            "{:32} {:24} {:>16} {:>12} {:>14.3}",
            layer.name(),
            layer.kind().label(),
            layer.output_shape().to_string(),
            network.own_parameter_count(id),
            layer.forward_flops() as f64 / 1e6,
        );
    }
    println!(
        "\n{}: {} parameters, {:.3} GFLOP forward and {:.3} backward a sample",
        network.name(),
        network.parameter_count(),
        network.forward_flops() as f64 / 1e9,
        network.backward_flops() as f64 / 1e9,
    );
    Ok(())
}
