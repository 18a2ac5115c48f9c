//! The layers for people.

use super::{Layers, Row};
use crate::text_table::{printed, text_table};

impl Layers {
    /// A line a layer, with its speed-up by GPU count, and a summary.
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
            "How much faster each layer of {} is on more GPUs ({})\n{}\n\n{}\n\n{}\n",
            self.model,
            self.header.experiment,
            self.origin(),
            table,
            self.summary().join("\n"),
        )
    }

    /// All layers together, and how unlike they are, on the most GPUs.
    pub(super) fn summary(&self) -> Vec<String> {
        let most: Vec<&Row> = self.by_layer().filter_map(<[Row]>::last).collect();
        let alone_us: f64 = self.by_layer().filter_map(<[Row]>::first).map(Row::step_us).sum();
        let (Some(first), most_us) = (most.first(), most.iter().map(|row| row.step_us()).sum::<f64>()) else {
            return Vec::new();
        };
        let by_speedup = |row: &&&Row| row.speedup;
        let fastest = most.iter().max_by(|a, b| by_speedup(a).total_cmp(&by_speedup(b)));
        let slowest = most.iter().min_by(|a, b| by_speedup(a).total_cmp(&by_speedup(b)));
        let named = |row: Option<&&Row>| {
            row.map_or_else(String::new, |row| format!("{} {:.2}", row.layer, row.speedup))
        };
        let half = most.iter().filter(|row| row.speedup < first.gpus as f64 / 2.0);
        let half_us: f64 = half.clone().map(|row| row.step_us()).sum();
        vec![
            format!(
                "On {} GPUs all layers one after another are {:.2} times as fast as on one: from {} to {}.",
                first.gpus,
                alone_us / most_us,
                named(slowest),
                named(fastest),
            ),
            format!(
                "{} of {} layers, with {:.0}% of the time there, make use of less than half of these GPUs: what a burst plan \
                 gives to others.",
                half.count(),
                most.len(),
                100.0 * half_us / most_us,
            ),
        ]
    }
}
