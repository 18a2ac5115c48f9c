//! Explanations of a plan: the alternatives of each run of layers, and the contents of the memory.
//! A run is consecutive layers on the same ranks with the same split.

use deeppool::planning::{RunAlternative, RunExplanation};
use deeppool::program::{FullestMoment, LayerMemory};
use layer_graph::LayerGraph;
use serde_json::{Value, json};

use super::output::{byte_size, micros, print_message, table};

/// Maximum number of rows in the table of the memory.
const MAX_MEMORY_ROWS: usize = 20;

/// Formats a difference in microseconds with its sign and a suitable unit.
fn signed(delta_us: f64) -> String {
    let sign = if delta_us < 0.0 { '-' } else { '+' };
    format!("{sign}{}", micros(delta_us.abs()))
}

/// Prints the alternatives of each run, a larger and a smaller GPU count, with their effect on
/// iteration time and GPU time. `limit` is the amplification limit of the plan, if it has one.
pub(crate) fn print_runs(runs: &[RunExplanation], limit: Option<f64>) {
    let header = [
        "layers",
        "",
        "GPUs",
        "more",
        "iteration",
        "GPU time",
        "amplification",
        "fewer",
        "iteration",
        "GPU time",
    ];
    let mut shown = table(&header);
    for run in runs {
        let name = if run.layers == 1 { run.first.clone() } else { format!("{} .. {}", run.first, run.last) };
        let cells = |instead: Option<RunAlternative>| {
            instead.map_or(["-".into(), String::new(), String::new()], |one| {
                [one.gpus.to_string(), signed(one.iteration_delta_us), signed(one.gpu_time_delta_us)]
            })
        };
        let amplification = match (run.more, limit) {
            (Some(more), Some(limit)) if more.amplification > limit => {
                format!("{:.3} > {limit}", more.amplification)
            }
            (Some(more), _) => format!("{:.3}", more.amplification),
            (None, _) => String::new(),
        };
        let name = match run.division {
            Some(division) => format!("{name} ({division})"),
            None => name,
        };
        let own = [name, run.layers.to_string(), run.gpus.to_string()].into_iter();
        shown.add_row(own.chain(cells(run.more)).chain([amplification]).chain(cells(run.fewer)));
    }
    print_message!("\nWhat layers on the same ranks could do instead, all others as they are\n{shown}");
}

/// Prints the contents of the memory of a rank at its fullest moment: the largest parts by layer
/// and kind, and the sum of the others.
pub(crate) fn print_moment(network: &LayerGraph, moment: &FullestMoment) {
    let mut shown = table(&["layer", "kind", "memory"]);
    let (first, rest) = moment.layers.split_at(moment.layers.len().min(MAX_MEMORY_ROWS));
    for part in first {
        shown.add_row([layer_name(network, part).to_owned(), part.kind.to_owned(), byte_size(part.bytes)]);
    }
    if !rest.is_empty() {
        let bytes = rest.iter().map(|part| part.bytes).sum();
        shown.add_row([format!("{} others", rest.len()), String::new(), byte_size(bytes)]);
    }
    let total = moment.layers.iter().map(|part| part.bytes).sum();
    print_message!(
        "\nMemory in use on rank {} at its fullest step, `{}`: {}\n{shown}",
        moment.rank,
        moment.step,
        byte_size(total)
    );
}

/// Returns the contents of the memory of a rank at its fullest moment as JSON.
pub(crate) fn moment_json(network: &LayerGraph, moment: &FullestMoment) -> Value {
    let part = |part: &LayerMemory| {
        let layer = part.layer.map(|id| network.layer(id).name());
        json!({"layer": layer, "kind": part.kind, "bytes": part.bytes})
    };
    let layers: Vec<Value> = moment.layers.iter().map(part).collect();
    json!({"rank": moment.rank, "step": moment.step, "layers": layers})
}

fn layer_name<'n>(network: &'n LayerGraph, part: &LayerMemory) -> &'n str {
    part.layer.map_or("(several layers)", |id| network.layer(id).name())
}
