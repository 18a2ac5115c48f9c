//! Results of the experiment `search-time` as text.

use super::SearchTime;
use super::case::{LIMIT, SearchTimeRow};
use crate::text_table::{printed, text_table};

impl SearchTime {
    /// Formats the origin of the times, and a line for each case.
    pub(super) fn printed(&self) -> String {
        let mut table = text_table(
            [
                "model",
                "batch",
                "GPUs",
                "seconds",
                "min",
                "max",
                "planned",
                "amplification",
                "above bound",
                "original",
                "ratio",
            ],
            1..,
        );
        for row in &self.rows {
            let [seconds, min, max] =
                [row.seconds, row.min_seconds, row.max_seconds].map(|seconds| format!("{seconds:.4}"));
            table.add_row([
                row.model.clone(),
                row.batch.to_string(),
                row.gpus.to_string(),
                seconds,
                min,
                max,
                format!("{:.3} ms", row.planned_iteration_us / 1e3),
                format!("{:.2}", row.amplification),
                row.gap.map_or_else(|| "-".into(), |gap| format!("{:.2}%", gap * 100.0)),
                original(row),
                row.over_original.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}")),
            ]);
        }
        let table = printed(&table);
        let provenance = self.provenance().join("\n");
        format!("Run time of the planner ({})\n{provenance}\n\n{}\n", self.experiment, table)
    }

    /// Returns the origin of the times, one line each.
    pub(super) fn provenance(&self) -> Vec<String> {
        let runs = self.rows.first().map_or(0, |row| row.runs);
        vec![
            format!(
                "measured on {}: wall time of a search on one core, median, minimum and maximum of {runs}",
                self.machine
            ),
            format!(
                "burst plans within amplification {LIMIT}, layer times of device model {} (modelled), \
                 links of a DGX A100, above 8 \
                 GPUs of a pod of them; above bound: planned time over the proved lower bound",
                self.device
            ),
            "original: seconds of its planner in Python on one core of another machine, with its own A100 \
             profiles, and the \
             batch (?: not recorded); its authors published no such time that we know of. ratio: our \
             seconds over those"
                .into(),
        ]
    }
}

fn original(row: &SearchTimeRow) -> String {
    let Some(seconds) = row.original_seconds else { return "not published".into() };
    let batch = row.original_batch.map_or_else(|| "?".into(), |batch| batch.to_string());
    format!("{seconds:.4} ({batch})")
}
