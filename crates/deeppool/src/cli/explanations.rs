//! Why each layer has its GPU count, as a table.

use burst_planner::{Alternative, Explanation};

use super::output::{micros, table};

/// Shows what each layer could do instead: the GPU count, and how much longer, costlier and over the limit the plan would be.
pub(crate) fn print_explanations(explanations: &[Explanation], limit: Option<f64>) {
    let header = [
        "layer",
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
    for explanation in explanations {
        let [gpus, iteration, gpu_time] = changes(explanation.faster.as_ref());
        let amplification = match (&explanation.faster, limit) {
            (Some(Alternative { amplification, breaks_limit: Some(true), .. }), Some(limit)) => {
                format!("{amplification:.3} > {limit}")
            }
            (Some(faster), _) => format!("{:.3}", faster.amplification),
            (None, _) => String::new(),
        };
        let [cheaper_gpus, slower, saved] = changes(explanation.cheaper.as_ref());
        let own = [explanation.node.clone(), explanation.gpus.to_string()];
        let instead = [gpus, iteration, gpu_time, amplification, cheaper_gpus, slower, saved];
        shown.add_row(own.into_iter().chain(instead));
    }
    println!("\nWhat each layer could do instead, all others as they are\n{shown}");
}

fn changes(alternative: Option<&Alternative>) -> [String; 3] {
    let Some(one) = alternative else { return ["-".into(), String::new(), String::new()] };
    [one.gpus.to_string(), signed(one.iteration_delta_us), signed(one.gpu_time_delta_us)]
}

fn signed(delta_us: f64) -> String {
    let sign = if delta_us < 0.0 { '-' } else { '+' };
    format!("{sign}{}", micros(delta_us.abs()))
}
