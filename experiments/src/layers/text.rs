//! Results of the experiment `layers` as text.

use super::{LayerRow, Layers};
use crate::text_table::{printed, text_table};

impl Layers {
    /// Formats the origin of the times, a line for each layer with its speed-up by GPU count, and
    /// the findings.
    pub(super) fn printed(&self) -> String {
        let counts: Vec<usize> =
            self.by_layer().next().unwrap_or_default().iter().map(|row| row.gpus).collect();
        let header = ["layer".to_owned(), "kind".into(), "on one GPU".into()];
        let counts_header = counts.iter().skip(1).map(|count| format!("{count} GPUs"));
        let mut table = text_table(header.into_iter().chain(counts_header), 2..);
        for rows in self.by_layer() {
            let [alone, more @ ..] = rows else { continue };
            let cells = [alone.layer.clone(), alone.kind.into(), format!("{:.0} us", alone.step_us())];
            table.add_row(cells.into_iter().chain(more.iter().map(|row| format!("{:.2}", row.speedup))));
        }
        let table = printed(&table);
        format!(
            "Speed-up of each layer of {} on more GPUs ({})\n{}\n\n{}\n\n{}\n",
            self.model,
            self.header.experiment,
            self.origin(),
            table,
            self.summary().join("\n"),
        )
    }

    /// Returns the findings, one line each: the speed-up of all layers together on the maximum
    /// number of GPUs, and its spread. Empty without layers.
    pub(super) fn summary(&self) -> Vec<String> {
        let largest: Vec<&LayerRow> = self.by_layer().filter_map(<[LayerRow]>::last).collect();
        let alone_us: f64 = self.by_layer().filter_map(<[LayerRow]>::first).map(LayerRow::step_us).sum();
        let (Some(first), largest_us) =
            (largest.first(), largest.iter().map(|row| row.step_us()).sum::<f64>())
        else {
            return Vec::new();
        };
        let by_speedup = |row: &&&LayerRow| row.speedup;
        let fastest = largest.iter().max_by(|a, b| by_speedup(a).total_cmp(&by_speedup(b)));
        let slowest = largest.iter().min_by(|a, b| by_speedup(a).total_cmp(&by_speedup(b)));
        let named = |row: Option<&&LayerRow>| {
            row.map_or_else(String::new, |row| format!("{} {:.2}", row.layer, row.speedup))
        };
        let half = largest.iter().filter(|row| row.speedup < first.gpus as f64 / 2.0);
        let half_us: f64 = half.clone().map(|row| row.step_us()).sum();
        vec![
            format!(
                "On {} GPUs all layers one after another are {:.2} times as fast as on one: from {} to {}.",
                first.gpus,
                alone_us / largest_us,
                named(slowest),
                named(fastest),
            ),
            format!(
                "{} of {} layers, with {:.0}% of the time there, use less than half of these GPUs. A burst \
                 plan gives the \
                 rest to other jobs.",
                half.count(),
                largest.len(),
                100.0 * half_us / largest_us,
            ),
        ]
    }
}
