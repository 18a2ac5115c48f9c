//! Table of the alternatives of each run of layers. A run is consecutive layers on the same ranks.

use deeppool::planning::{RunAlternative, RunExplanation};

use super::output::{micros, print_message, table};

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
        let own = [name, run.layers.to_string(), run.gpus.to_string()].into_iter();
        shown.add_row(own.chain(cells(run.more)).chain([amplification]).chain(cells(run.fewer)));
    }
    print_message!("\nWhat layers on the same ranks could do instead, all others as they are\n{shown}");
}
