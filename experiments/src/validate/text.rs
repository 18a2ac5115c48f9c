//! Results of the experiment `validate` as text.

use super::Validate;
use super::ranking::{PlanPairFinding, RankingAgreement};
use super::row::ValidateRow;
use crate::text_table::{printed, text_table};

const HEADER: [&str; 14] = [
    "model",
    "batch",
    "ranks",
    "mode",
    "layers by ranks",
    "planned",
    "simulated",
    "measured",
    "min",
    "max",
    "sim. / meas.",
    "slowdown",
    "BG simulated",
    "BG measured",
];

impl Validate {
    /// Formats a table for each invocation and machine, with the findings below it.
    pub(super) fn printed(&self) -> String {
        let introduction = format!(
            "Planned, simulated and measured ({})\n\
             Planned and simulated times are based on layer times measured on one core of the same machine \
             and on links \
             {} (modelled).\n\
             Measured times are the median, the minimum and the maximum of several runs in turns; the time \
             of a run is \
             the median of its iterations.\n\
             Slowdown and BG measured are measured. Times are in ms an iteration. Col and BG: {} on each \
             rank, in \
             samples/s of all ranks together\n",
            self.experiment, self.link, self.background
        );
        let machines = self.rows.chunk_by(|a, b| a.run_and_machine() == b.run_and_machine());
        let texts = std::iter::once(introduction).chain(machines.filter_map(|rows| self.of_machine(rows)));
        texts.collect::<Vec<_>>().join("\n")
    }

    /// Formats the rows of one run on one machine, and the findings.
    fn of_machine(&self, rows: &[ValidateRow]) -> Option<String> {
        let first = rows.first()?;
        let mut lines = vec![heading(first), String::new(), table(rows), String::new()];
        lines.extend(self.found(first).map(|finding| format!("* {finding}")));
        lines.extend([self.conclusion(rows), String::new()]);
        Some(lines.join("\n"))
    }

    /// Returns the findings of each invocation and machine, one line each.
    pub(super) fn summary(&self) -> Vec<String> {
        let machines = self.rows.chunk_by(|a, b| a.run_and_machine() == b.run_and_machine());
        let of_machine = |rows: &[ValidateRow]| {
            let findings = self.found(&rows[0]).map(ToString::to_string);
            let lines: Vec<String> =
                std::iter::once(heading(&rows[0])).chain(findings).chain([self.conclusion(rows)]).collect();
            lines
        };
        machines.flat_map(of_machine).collect()
    }

    /// Returns the findings of a row's run.
    fn found(&self, row: &ValidateRow) -> impl Iterator<Item = &PlanPairFinding> {
        let place = row.run_and_machine();
        self.findings.iter().filter(move |finding| finding.run_and_machine() == place)
    }

    /// Returns the number of pairs of plans ranked rightly, and the error of the simulated times.
    fn conclusion(&self, rows: &[ValidateRow]) -> String {
        let found: Vec<&PlanPairFinding> = rows.first().into_iter().flat_map(|row| self.found(row)).collect();
        format!("{}\n{}", counted(&found), errors(rows))
    }
}

/// Describes the machine and the number of runs.
fn heading(row: &ValidateRow) -> String {
    let ((_, machine), ValidateRow { runs, iterations, .. }) = (row.run_and_machine(), row);
    format!("{machine}; {runs} runs of {iterations} iterations")
}

fn table(rows: &[ValidateRow]) -> String {
    let mut table = text_table(HEADER, 5..);
    for row in rows {
        let ms = |us: f64| format!("{:.2}", us / 1e3);
        let background = |samples_per_s: f64| {
            if row.mode.has_background() { format!("{samples_per_s:.0}") } else { "-".into() }
        };
        table.add_row([
            row.model.clone(),
            row.batch.to_string(),
            row.gpus.to_string(),
            row.mode.label().into(),
            row.gpu_counts.clone(),
            row.planned_iteration_us.map_or_else(|| "-".into(), ms),
            ms(row.predicted_iteration_us),
            ms(row.measured_iteration_us),
            ms(row.measured_min_us),
            ms(row.measured_max_us),
            format!("{:.2}", row.predicted_over_measured),
            format!("{:.2}", row.foreground_slowdown),
            background(row.predicted_background_samples_per_s),
            background(row.background_samples_per_s),
        ]);
    }
    printed(&table)
}

/// Counts the pairs of plans by agreement of their ranking.
fn counted(findings: &[&PlanPairFinding]) -> String {
    let count = |ranking| findings.iter().filter(|finding| finding.predicted() == ranking).count();
    let (right, wrong) = (count(RankingAgreement::Right), count(RankingAgreement::Wrong));
    format!(
        "The simulation ranks {right} of {} pairs rightly, {wrong} wrongly; {} are too close to tell, {} \
         are one plan.",
        findings.len(),
        count(RankingAgreement::TooClose),
        count(RankingAgreement::SamePlan),
    )
}

/// Returns the range of simulated over measured times, alone and beside background.
fn errors(rows: &[ValidateRow]) -> String {
    let range = |has_background: bool| {
        let ratios = rows.iter().filter(|row| row.mode.has_background() == has_background);
        let ratios: Vec<f64> = ratios.map(|row| row.predicted_over_measured).collect();
        let (min, max) =
            (ratios.iter().fold(f64::INFINITY, |a, &b| a.min(b)), ratios.iter().fold(0.0, |a, &b| b.max(a)));
        format!("{min:.2} to {max:.2}")
    };
    format!("Simulated over measured: {} alone, {} beside background.", range(false), range(true))
}
