//! A plan as a graph for Graphviz.

use std::fmt::Write;

use super::timeline::{SpanWork, timeline};
use crate::{Plan, PlanProblem, Result};

/// A plan in the DOT language, for `dot -Tsvg`.
///
/// A node shows its name, GPU count and time, and is the darker the more GPUs it has; ranks and wave where branches run at
/// once. An edge shows the time of its transfer unless it takes none. Times are microseconds.
///
/// # Errors
/// What [`timeline`] reports.
///
/// # Example
/// ```
/// use burst_planner::{NodeOption, Plan, PlanProblem, export};
///
/// let mut problem = PlanProblem::new(2);
/// let conv = problem.add_node("conv", [NodeOption::new(1, 80.0), NodeOption::new(2, 41.0)]);
/// let fc = problem.add_node("fc", [NodeOption::new(1, 20.0)]);
/// problem.add_edge(conv, fc, vec![vec![0.0], vec![5.0]]);
/// let dot = export::dot(&problem, &Plan::from_choice(&problem, vec![1, 0])?)?;
/// assert!(dot.contains(r#"n0 [label="conv\n2 GPUs, 41.0 us""#));
/// assert!(dot.contains(r#"n0 -> n1 [label="5.0 us"]"#));
/// # Ok::<(), burst_planner::Error>(())
/// ```
pub fn dot(problem: &PlanProblem, plan: &Plan) -> Result<String> {
    let mut transfer_us = vec![0.0; problem.edges.len()];
    for span in timeline(problem, plan)? {
        if let SpanWork::Edge(edge) = span.work {
            transfer_us[edge] = span.duration_us;
        }
    }

    let mut text = String::from("digraph plan {\n");
    let _ = writeln!(
        text,
        "  label=\"iteration {:.1} us, amplification {:.3}\";",
        plan.totals.iteration_us, plan.totals.amplification
    );
    text += "  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\"];\n";
    text += "  edge [fontname=\"sans-serif\", fontsize=10];\n";
    for (index, node) in plan.assignments.iter().enumerate() {
        let plural = if node.gpus == 1 { "" } else { "s" };
        let _ = write!(
            text,
            "  n{index} [label=\"{}\\n{} GPU{plural}, {:.1} us",
            escaped(&node.name),
            node.gpus,
            node.time_us
        );
        if let Some(wave) = node.wave {
            let ranks = &node.ranks;
            let _ = match ranks.len() {
                1 => write!(text, "\\nrank {}, wave {wave}", ranks.start),
                _ => write!(text, "\\nranks {} to {}, wave {wave}", ranks.start, ranks.end - 1),
            };
        }
        let _ = writeln!(text, "\", fillcolor=\"{}\"];", colour(node.gpus, problem.gpus));
    }
    for (edge, us) in problem.edges.iter().zip(&transfer_us) {
        let label = if *us > 0.0 { format!(" [label=\"{us:.1} us\"]") } else { String::new() };
        let _ = writeln!(text, "  n{} -> n{}{label};", edge.from.0, edge.to.0);
    }
    text += "}\n";
    Ok(text)
}

/// Blue as hue, saturation and value, pale enough to read black text on it.
fn colour(gpus: usize, available: usize) -> String {
    let share = (gpus as f64).ln() / (available.max(2) as f64).ln();
    format!("0.580 {:.3} 1.000", 0.05 + 0.65 * share)
}

/// As text of a label between quotes, where a backslash starts an escape and an ampersand an entity.
fn escaped(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for letter in name.chars() {
        match letter {
            '\\' => text += "\\\\",
            '"' => text += "\\\"",
            '&' => text += "&amp;",
            '\n' => text += "\\n",
            // Graphviz ends a text at a NUL, and shows no other control character.
            letter if letter.is_control() => text.push(' '),
            letter => text.push(letter),
        }
    }
    text
}
