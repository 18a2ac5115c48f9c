//! Why each node of a plan has the option that it has.

use serde::{Deserialize, Serialize};

use crate::search::{ROUNDING, tolerant};
use crate::totals::chosen_options;
use crate::{Error, Plan, PlanProblem, Result, Schedule, Totals, evaluate, evaluate_schedule, layout};

/// What one node could do instead, with all others as they are.
///
/// Without a [`faster`](Self::faster) and a [`cheaper`](Self::cheaper) alternative nothing is to be won by changing this
/// node alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Explanation {
    /// The node's name.
    pub node: String,
    /// Index of the option that it takes.
    pub option: usize,
    /// Its GPU count.
    pub gpus: usize,
    /// Of the options with which an iteration is shorter, the one that pays least GPU time for each microsecond saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faster: Option<Alternative>,
    /// Of the options that take less GPU time, the one with which an iteration gets least longer for each GPU-microsecond
    /// saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cheaper: Option<Alternative>,
}

/// Another option of a node, and what the plan would then cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Alternative {
    /// Index of the option.
    pub option: usize,
    /// Its GPU count.
    pub gpus: usize,
    /// How much longer an iteration takes, transfers to and from the neighbours included, microseconds; negative when it
    /// is shorter.
    pub iteration_delta_us: f64,
    /// How much more GPU time it takes, GPU-microseconds; negative when it is less.
    pub gpu_time_delta_us: f64,
    /// The amplification of the whole plan with it.
    pub amplification: f64,
    /// Whether that is more than the limit, to 1e-9 relative; `None` without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breaks_limit: Option<bool>,
}

/// Says for each node, in node order, what its next faster and its next cheaper option would cost.
///
/// One node is changed at a time; all others keep their options, and the schedule stays what it is. Options that do
/// not fit, into a wave or into the memory limit, are no alternatives. Changes within 1e-11 relative of the plan's times
/// count as none. Of alternatives with the same price, the one that gains most is taken, then the first.
///
/// In the fastest plan within a limit every faster alternative breaks the limit: that is why it was not taken. A plan may
/// well improve by changing two nodes at once where changing either does not pay, say because of the transfer between them.
///
/// `limit` is one on the amplification of the whole plan. Costs are those of [`evaluate_schedule`]: an all-reduce counts
/// in full, also for a plan in which it overlaps. Time: each option of each node takes one [`evaluate`], or, where branches
/// run at once, one [`evaluate_schedule`] and, with a memory limit, one [`layout`](fn@layout).
///
/// # Errors
/// What [`PlanProblem::validate`] and [`evaluate_schedule`] report.
///
/// # Example
/// ```
/// use burst_planner::{NodeOption, PlanProblem, SearchOptions, explain, fastest};
///
/// let mut problem = PlanProblem::new(8);
/// problem.add_node("conv", [NodeOption::new(1, 800.0), NodeOption::new(8, 110.0)]);
/// problem.add_node("fc", [NodeOption::new(1, 90.0), NodeOption::new(8, 60.0)]);
/// let plan = fastest(&problem, 1.25, &SearchOptions::default())?;
/// let explanations = explain(&problem, &plan, Some(1.25))?;
///
/// // `fc` could run on 8 GPUs: 30 us less, for 8 * 60 - 90 GPU-microseconds more than there is room for.
/// let faster = explanations[1].faster.as_ref().expect("there are 8 GPUs");
/// assert_eq!((faster.gpus, faster.iteration_delta_us, faster.gpu_time_delta_us), (8, -30.0, 390.0));
/// assert_eq!(faster.breaks_limit, Some(true));
/// assert_eq!(explanations[1].cheaper, None);
/// # Ok::<(), burst_planner::Error>(())
/// ```
pub fn explain(problem: &PlanProblem, plan: &Plan, limit: Option<f64>) -> Result<Vec<Explanation>> {
    let Plan { choice, schedule, .. } = plan;
    let totals = evaluate_schedule(problem, choice, schedule)?;
    let options = chosen_options(problem, choice)?;
    let mut changed = choice.clone();
    let mut explanations = Vec::with_capacity(choice.len());
    for (index, node) in problem.nodes.iter().enumerate() {
        let mut alternatives = Vec::new();
        for option in (0..node.options.len()).filter(|&option| option != choice[index]) {
            changed[index] = option;
            let Some(with_it) = totals_if_it_fits(problem, &changed, schedule)? else { continue };
            let amplification = with_it.amplification;
            alternatives.push(Alternative {
                option,
                gpus: node.options[option].gpus,
                iteration_delta_us: delta(with_it.iteration_us, totals.iteration_us),
                gpu_time_delta_us: delta(with_it.gpu_time_us, totals.gpu_time_us),
                amplification,
                breaks_limit: limit.map(|limit| amplification > tolerant(limit)),
            });
        }
        changed[index] = choice[index];
        let changes = |one: &Alternative| (one.iteration_delta_us, one.gpu_time_delta_us);
        explanations.push(Explanation {
            node: node.name.clone(),
            option: choice[index],
            gpus: options[index].gpus,
            faster: best_value(&alternatives, |one| (-changes(one).0, changes(one).1)),
            cheaper: best_value(&alternatives, |one| (-changes(one).1, changes(one).0)),
        });
    }
    Ok(explanations)
}

/// The totals of a choice, or nothing when the schedule or the memory limit does not allow it.
fn totals_if_it_fits(problem: &PlanProblem, choice: &[usize], schedule: &Schedule) -> Result<Option<Totals>> {
    // Without waves the sums are simple, and the graph need not be searched for regions each time.
    let is_serial = schedule.regions.is_empty();
    let totals =
        if is_serial { evaluate(problem, choice) } else { evaluate_schedule(problem, choice, schedule) };
    let totals = match totals {
        Err(Error::WaveTooWide { .. } | Error::NoDisjointTransfer { .. }) => return Ok(None),
        totals => totals?,
    };
    let Some(limit) = problem.memory_limit_bytes else { return Ok(Some(totals)) };
    let held = if is_serial {
        let options = chosen_options(problem, choice)?;
        options.iter().map(|option| option.memory_bytes.unwrap_or(0)).fold(0, u64::saturating_add)
    } else {
        layout(problem, choice, schedule)?.memory_bytes.into_iter().max().unwrap_or(0)
    };
    Ok((held <= limit).then_some(totals))
}

fn delta(new: f64, old: f64) -> f64 {
    if (new - old).abs() <= ROUNDING * old { 0.0 } else { new - old }
}

/// Of the alternatives with a gain, the one that costs least for it.
fn best_value(
    alternatives: &[Alternative],
    gain_and_cost: impl Fn(&Alternative) -> (f64, f64),
) -> Option<Alternative> {
    let worth = alternatives.iter().filter(|one| gain_and_cost(one).0 > 0.0);
    let best = worth.min_by(|a, b| {
        let [(gain, cost), (other_gain, other_cost)] = [gain_and_cost(a), gain_and_cost(b)];
        (cost / gain).total_cmp(&(other_cost / other_gain)).then(other_gain.total_cmp(&gain))
    });
    best.cloned()
}
