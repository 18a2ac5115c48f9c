//! Comparison of predicted and measured rankings, that is, which of data parallelism and the burst
//! plan is faster.

use std::fmt::{self, Write};

use serde::Serialize;

use super::row::{TrainingMode, ValidateRow};

/// Agreement of a predicted ranking of two plans with the measured one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RankingAgreement {
    /// The same plan is faster by prediction and by measurement.
    Right,
    /// Different plans are faster by prediction and by measurement.
    Wrong,
    /// The measured times of the plans differ by less than the range over the runs of one of them.
    TooClose,
    /// Both plans are data parallelism.
    SamePlan,
}

/// Data parallelism and the burst plan of one network on one machine, alone or beside background
/// work. Ratios are the time of data parallelism divided by that of the burst plan: above 1, the
/// burst plan is faster.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct PlanPairFinding {
    #[serde(skip)]
    run: usize,
    /// Description of the machine, with the version of this program.
    machine: String,
    model: String,
    has_background: bool,
    /// Ratio by the planner's evaluation, which does not model background work.
    planned_dp_over_bp: Option<f64>,
    predicted_dp_over_bp: f64,
    measured_dp_over_bp: f64,
    /// Range of the runs of one plan, the larger of the two, divided by the shorter measured time.
    measured_spread: f64,
    planned: Option<RankingAgreement>,
    predicted: RankingAgreement,
}

/// Returns the findings of each network on each machine, in the order of the rows: without
/// background work, and beside it.
pub(super) fn findings(rows: &[ValidateRow]) -> Vec<PlanPairFinding> {
    let pairs = [
        (TrainingMode::DataParallel, TrainingMode::Burst),
        (TrainingMode::DataParallelCollocated, TrainingMode::BurstCollocated),
    ];
    let groups =
        rows.chunk_by(|a, b| (a.run_and_machine(), a.network()) == (b.run_and_machine(), b.network()));
    let of_group = |group: &[ValidateRow]| {
        let find = |mode| group.iter().find(|row| row.mode == mode);
        pairs.map(|(dp, bp)| Some(PlanPairFinding::of(find(dp)?, find(bp)?)))
    };
    groups.flat_map(of_group).flatten().collect()
}

impl PlanPairFinding {
    fn of(dp: &ValidateRow, bp: &ValidateRow) -> Self {
        let (dp_us, bp_us) = (dp.measured_iteration_us, bp.measured_iteration_us);
        let spread_us = dp.spread_us().max(bp.spread_us());
        let measured = dp_us / bp_us;
        let ranking = |predicted: f64| {
            if dp.gpu_counts == bp.gpu_counts {
                RankingAgreement::SamePlan
            } else if (dp_us - bp_us).abs() < spread_us {
                RankingAgreement::TooClose
            } else if predicted.partial_cmp(&1.0) == measured.partial_cmp(&1.0) {
                RankingAgreement::Right
            } else {
                RankingAgreement::Wrong
            }
        };
        let planned = dp.planned_iteration_us.zip(bp.planned_iteration_us).map(|(dp, bp)| dp / bp);
        let predicted = dp.predicted_iteration_us / bp.predicted_iteration_us;
        let (run, machine) = dp.run_and_machine();
        Self {
            run,
            machine,
            model: dp.model.clone(),
            has_background: dp.mode.has_background(),
            planned_dp_over_bp: planned,
            predicted_dp_over_bp: predicted,
            measured_dp_over_bp: measured,
            measured_spread: spread_us / dp_us.min(bp_us),
            planned: planned.map(ranking),
            predicted: ranking(predicted),
        }
    }

    /// Returns the number of the invocation of this experiment (0 for the current one), and the
    /// description of the machine.
    pub(super) fn run_and_machine(&self) -> (usize, String) {
        (self.run, self.machine.clone())
    }

    /// Returns the agreement of the ranking by simulation with the measured one.
    pub(super) fn predicted(&self) -> RankingAgreement {
        self.predicted
    }
}

impl fmt::Display for PlanPairFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let beside = if self.has_background { "beside background" } else { "alone" };
        write!(f, "{}, {beside}: ", self.model)?;
        if self.predicted == RankingAgreement::SamePlan {
            return f.write_str("the burst plan is data parallelism, so there is nothing to rank");
        }
        let mut predictions = String::new();
        let named = [("planned", self.planned_dp_over_bp), ("simulated", Some(self.predicted_dp_over_bp))];
        for (name, ratio) in named {
            if let Some(ratio) = ratio {
                write!(predictions, ", {name} {ratio:.2}")?;
            }
        }
        let measured = self.measured_dp_over_bp;
        write!(f, "DP over BP: measured {measured:.2}{predictions}: ")?;
        if self.predicted == RankingAgreement::TooClose {
            let spread = self.measured_spread * 100.0;
            return write!(f, "too close to tell, since runs of one plan are {spread:.1}% apart");
        }
        let faster = if measured > 1.0 { "BP" } else { "DP" };
        let verdict = match (self.planned, self.predicted) {
            (Some(RankingAgreement::Right), RankingAgreement::Right) => "planned and simulated rightly",
            (Some(RankingAgreement::Wrong), RankingAgreement::Wrong) => "planned and simulated wrongly",
            (Some(RankingAgreement::Right), _) => "planned rightly, simulated wrongly",
            (Some(_), _) => "planned wrongly, simulated rightly",
            (None, RankingAgreement::Right) => "simulated rightly",
            (None, _) => "simulated wrongly",
        };
        write!(f, "{faster} is faster, {verdict}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a row with planned, simulated and measured times, the last with their range.
    fn row(
        mode: TrainingMode,
        gpu_counts: &str,
        planned_us: f64,
        predicted_us: f64,
        measured: (f64, f64),
    ) -> ValidateRow {
        let (measured_us, spread_us) = measured;
        ValidateRow {
            run: 0,
            machine: "a processor".into(),
            cores: 2,
            commit: "0123456".into(),
            model: "net".into(),
            batch: 8,
            gpus: 2,
            mode,
            gpu_counts: gpu_counts.into(),
            amplification_limit: None,
            amplification: 1.0,
            planned_iteration_us: (!mode.has_background()).then_some(planned_us),
            predicted_iteration_us: predicted_us,
            measured_iteration_us: measured_us,
            measured_min_us: measured_us - spread_us / 2.0,
            measured_max_us: measured_us + spread_us / 2.0,
            predicted_over_measured: predicted_us / measured_us,
            predicted_background_samples_per_s: 0.0,
            background_samples_per_s: 0.0,
            iteration_us: measured_us,
            foreground_samples_per_s: 1.0,
            foreground_slowdown: 1.0,
            runs: 5,
            iterations: 20,
        }
    }

    fn said(dp: ValidateRow, bp: ValidateRow) -> String {
        let found = findings(&[dp, bp]);
        assert_eq!(found.len(), 1);
        found[0].to_string()
    }

    #[test]
    fn rankings_agree_or_disagree_with_measured_times() {
        let dp = row(TrainingMode::DataParallel, "2x5", 100.0, 110.0, (120.0, 5.0));
        let slower = row(TrainingMode::Burst, "2x4 1x1", 130.0, 140.0, (150.0, 5.0));
        let faster = row(TrainingMode::Burst, "2x4 1x1", 90.0, 95.0, (80.0, 5.0));
        assert_eq!(
            said(dp.clone(), slower.clone()),
            "net, alone: DP over BP: measured 0.80, planned 0.77, simulated 0.79: DP is faster, planned \
             and simulated rightly"
        );
        assert_eq!(
            said(dp.clone(), faster.clone()),
            "net, alone: DP over BP: measured 1.50, planned 1.11, simulated 1.16: BP is faster, planned \
             and simulated rightly"
        );
        let measured = |row: &ValidateRow, measured_iteration_us| ValidateRow {
            measured_iteration_us,
            measured_min_us: measured_iteration_us,
            measured_max_us: measured_iteration_us,
            ..row.clone()
        };
        let wrongly = "planned and simulated wrongly";
        assert!(said(dp.clone(), measured(&slower, 80.0)).ends_with(&format!("BP is faster, {wrongly}")));
        assert!(said(dp.clone(), measured(&faster, 150.0)).ends_with(&format!("DP is faster, {wrongly}")));
        let mixed = ValidateRow { planned_iteration_us: Some(90.0), ..slower };
        assert!(said(dp, mixed).ends_with("DP is faster, planned wrongly, simulated rightly"));
    }

    #[test]
    fn plans_closer_than_their_runs_are_not_ranked() {
        let dp = row(TrainingMode::DataParallel, "2x5", 100.0, 110.0, (100.0, 2.0));
        let bp = row(TrainingMode::Burst, "2x4 1x1", 130.0, 140.0, (105.0, 6.0));
        assert_eq!(
            said(dp, bp),
            "net, alone: DP over BP: measured 0.95, planned 0.77, simulated 0.79: too close to tell, since \
             runs of one plan are \
             6.0% apart"
        );
    }

    #[test]
    fn equal_plans_are_not_ranked() {
        let dp = row(TrainingMode::DataParallel, "2x5", 100.0, 110.0, (100.0, 2.0));
        let bp = row(TrainingMode::Burst, "2x5", 100.0, 110.0, (150.0, 2.0));
        assert!(said(dp, bp).contains("nothing to rank"));
    }

    #[test]
    fn background_has_no_planned_ranking_and_machines_are_not_mixed() {
        let dp = row(TrainingMode::DataParallelCollocated, "2x5", 0.0, 100.0, (100.0, 1.0));
        let bp = row(TrainingMode::BurstCollocated, "2x4 1x1", 0.0, 90.0, (120.0, 1.0));
        assert!(
            said(dp.clone(), bp.clone()).ends_with("simulated 1.11: DP is faster, simulated wrongly"),
            "{dp:?}"
        );
        let elsewhere = ValidateRow { machine: "another".into(), ..bp.clone() };
        assert!(findings(&[dp.clone(), elsewhere]).is_empty());
        // Two runs on the same machine have two findings.
        let again = [&dp, &bp].map(|row| ValidateRow { run: 1, ..row.clone() });
        assert_eq!(findings(&[&[dp, bp][..], &again].concat()).len(), 2);
    }
}
