//! Plans as graphs for Graphviz.

use std::fmt::Write;

use deeppool::job::PlannerNodes;
use deeppool::plan::ExecutionPlan;
use layer_graph::LayerGraph;

use super::output::{micros, ranks};

/// Returns a plan of a network in the DOT language: layers with their ranks and splits, and bold
/// edges between layers with different ranks or splits.
pub(crate) fn dot(network: &LayerGraph, plan: &ExecutionPlan) -> String {
    let mut text = String::from("digraph plan {\n");
    let amplification = plan.amplification;
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "  label=\"iteration {}, amplification {amplification:.3}\";",
        micros(plan.iteration_us)
    );
    text += "  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\"];\n";
    for (index, layer) in plan.layers.iter().enumerate() {
        let plural = if layer.gpus == 1 { "" } else { "s" };
        let name = layer.name.replace('\\', "\\\\").replace('"', "\\\"");
        let split = layer.split().map_or(String::new(), |split| format!("\\nsplit {split}"));
        let shade = 0.6 * layer.gpus as f64 / plan.gpus as f64;
        let _ = writeln!(
            text,
            "  n{index} [label=\"{name}\\n{} GPU{plural}, rank{plural} {}{split}\", \
             fillcolor=\"0.58 {shade:.3} 1.0\"];",
            layer.gpus,
            ranks(&layer.ranks)
        );
    }
    let nodes = PlannerNodes::new(network);
    for &id in nodes.layers() {
        let from = nodes.node(id).0;
        let mut consumers: Vec<usize> =
            network.consumers(id).iter().map(|&(consumer, _)| nodes.node(consumer).0).collect();
        consumers.dedup();
        for to in consumers {
            let moves = !plan.layers[from].is_placed_as(&plan.layers[to]);
            let style = if moves { " [style=bold]" } else { "" };
            let _ = writeln!(text, "  n{from} -> n{to}{style};");
        }
    }
    text + "}\n"
}
