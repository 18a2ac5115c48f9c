//! Plans of training problems from elsewhere.

use burst_planner::TrainingPoint;
use deeppool::plan::Mode;
use deeppool::problem::{TrainingAnswer, points};

use super::output::{byte_size, gpus, micros, ranks, say, table};
use super::problem::print_frontier;

/// Says what a plan of such a problem takes.
pub(crate) fn show_training(answer: &TrainingAnswer) {
    let TrainingAnswer {
        question,
        problem,
        point,
        single_gpu_us,
        memory_peak_bytes,
        lower_bound_us,
        frontier,
        ..
    } = answer;
    let TrainingPoint { time, arrangement } = point;
    say!("plan of the problem, {}", gpus(problem.gpus));
    let limit = match question.mode {
        Mode::Burst { amplification } => format!(" (limit {amplification})"),
        Mode::DataParallel => " (data parallel, no limit)".into(),
        Mode::Deadline { .. } | Mode::Knee => String::new(),
    };
    let deadline = match question.mode {
        Mode::Deadline { iteration_us } => format!(" (deadline {})", micros(iteration_us)),
        _ => String::new(),
    };
    say!(
        "iteration {}{deadline}, {:.2} times as fast as one GPU; amplification {:.3}{limit}",
        micros(time.iteration_us),
        single_gpu_us / time.iteration_us,
        time.gpu_time_us / single_gpu_us,
    );
    if let (Some(bound_us), Some(gap)) = (*lower_bound_us, answer.gap()) {
        let limit = if question.limit().is_some() { "within the limit" } else { "of this amplification" };
        let (bound, above) = (micros(bound_us), 100.0 * gap);
        say!("no plan {limit} is faster than {bound}: this one is at most {above:.1}% above the best");
    }
    if *memory_peak_bytes > 0 {
        say!("memory of the fullest GPU: {}", byte_size(*memory_peak_bytes));
    }
    // In the order in which ranks come to them.
    let mut shown = table(&["node", "GPUs", "ranks"]);
    for &node in &arrangement.order {
        let on = &arrangement.ranks[node];
        shown.add_row([problem.nodes[node].name.clone(), on.len().to_string(), ranks(on)]);
    }
    say!("\n{shown}");
    if let Some(frontier) = frontier {
        print_frontier(points(frontier));
    }
}
