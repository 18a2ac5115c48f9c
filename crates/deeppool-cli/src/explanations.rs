//! Why each layer has its GPU count, as a table.

use burst_planner::{Alternative, Explanation};
use deeppool::planning::{RunAlternative, RunExplanation};

use super::output::{micros, say, table};

/// Shows what each layer could do instead: the GPU count, and how much longer, costlier and over the limit the plan would be.
pub(crate) fn print_explanations(explanations: &[Explanation], limit: Option<f64>) {
    let header = [
        "layers",
        "",
        "GPUs",
        "faster on",
        "iteration",
        "GPU time",
        "amplification",
        "cheaper on",
        "iteration",
        "GPU time",
    ];
    let mut shown = table(&header);
    let alone = |one: &Explanation| one.faster.is_none() && one.cheaper.is_none();
    // In long networks most layers have nothing to gain alone: neighbours of which that is true share a row.
    for run in explanations.chunk_by(|a, b| alone(a) && alone(b) && a.gpus == b.gpus) {
        let (first, last) = (&run[0], &run[run.len() - 1]);
        let name =
            if run.len() == 1 { first.node.clone() } else { format!("{} .. {}", first.node, last.node) };
        let [gpus, iteration, gpu_time] = changes(first.faster.as_ref());
        let amplification = match (&first.faster, limit) {
            (Some(Alternative { amplification, breaks_limit: Some(true), .. }), Some(limit)) => {
                format!("{amplification:.3} > {limit}")
            }
            (Some(faster), _) => format!("{:.3}", faster.amplification),
            (None, _) => String::new(),
        };
        let [cheaper_gpus, slower, saved] = changes(first.cheaper.as_ref());
        let own = [name, run.len().to_string(), first.gpus.to_string()];
        let instead = [gpus, iteration, gpu_time, amplification, cheaper_gpus, slower, saved];
        shown.add_row(own.into_iter().chain(instead));
    }
    say!("\nWhat each layer could do instead, all others as they are\n{shown}");
}

fn changes(alternative: Option<&Alternative>) -> [String; 3] {
    let Some(one) = alternative else { return ["-".into(), String::new(), String::new()] };
    [one.gpus.to_string(), signed(one.iteration_delta_us), signed(one.gpu_time_delta_us)]
}

fn signed(delta_us: f64) -> String {
    let sign = if delta_us < 0.0 { '-' } else { '+' };
    format!("{sign}{}", micros(delta_us.abs()))
}

/// Shows what runs of layers could do instead.
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
        let own = [name, run.layers.to_string(), run.gpus.to_string()].into_iter();
        shown.add_row(own.chain(cells(run.more)).chain([amplification]).chain(cells(run.fewer)));
    }
    say!("\nWhat layers on the same ranks could do instead, all others as they are\n{shown}");
}
