//! Results as a table, and the worth of each way to divide layers.

use super::case::{ALL, SAMPLES};
use super::{Splits, SplitsRow};
use crate::text_table::{printed, text_table};

/// Relative difference below which times count as equal.
const TOLERANCE: f64 = 0.01;

impl Splits {
    /// Formats the origin of the numbers, the table and the findings.
    pub(super) fn printed(&self) -> String {
        let ways = self.ways.iter().map(|name| match name.as_str() {
            SAMPLES => "BP by\nsamples".into(),
            ALL => "BP, all\nsplits".into(),
            name => format!("with\n{name}"),
        });
        let header = ["model\n".to_owned(), "GPUs\n".into(), "DP\nms".into()].into_iter().chain(ways);
        let limit = self.amplification_limit;
        let header = header.chain([
            "all over\nDP".into(),
            "all over\nsamples".into(),
            format!("limit {limit}:\nsamples"),
            "\nall splits".into(),
            "split layers of\nBP, all splits".into(),
        ]);
        let mut table = text_table(header, 1..8 + self.ways.len());
        let ms = |row: Option<&SplitsRow>| {
            row.map_or_else(|| "-".into(), |row| format!("{:.2}", row.iteration_us / 1e3))
        };
        let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"));
        for rows in self.by_case() {
            let (dp, all) = (rows.first(), find(rows, ALL, false));
            let number = format!("{}", rows[0].gpus);
            let cells = [rows[0].model.clone(), number, ms(dp)];
            let ways = self.ways.iter().map(|name| ms(find(rows, name, false)));
            let split_layers = all.map(|row| match row.split_layers.as_str() {
                "" => format!("none of {}", row.layers),
                split_layers => format!("{split_layers} of {}", row.layers),
            });
            let last = [
                ratio(all.map(|row| row.times_as_fast_as_dp)),
                ratio(all.and_then(|row| row.times_as_fast_as_samples)),
                ms(find(rows, SAMPLES, true)),
                ms(find(rows, ALL, true)),
                split_layers.unwrap_or_default(),
            ];
            table.add_row(cells.into_iter().chain(ways).chain(last));
        }
        format!(
            "Burst plans with split layers, by the ways in which layers may be divided ({})\n{}\n\
             iteration times in ms; DP is on all GPUs, or as many as there are samples\n\n{}\n\n{}\n",
            self.header.experiment,
            self.provenance().join("\n"),
            printed(&table),
            self.summary().join("\n"),
        )
    }

    /// Returns the findings, one line each: the worth of each way alone and of all together, the
    /// splits that plans have, and the cases without a plan that fits in memory.
    pub(super) fn summary(&self) -> Vec<String> {
        let number = self.by_case().count();
        let mut lines = vec![format!(
            "Planned iteration time of burst plans with layers divided by samples only, over that with more \
             ways, by GPUs ({number} cases; modelled, not measured):"
        )];
        let more = self.ways.iter().filter(|name| name.as_str() != SAMPLES);
        for name in more.clone() {
            let title = if name == ALL { "all splits" } else { name };
            lines.push(format!("  {title:12}  {}", self.worth(name, false)));
        }
        let within = format!("all splits, within limit {}", self.amplification_limit);
        lines.push(format!("  {within}: {}", self.worth(ALL, true)));
        let plans: Vec<&SplitsRow> = self.by_case().filter_map(|rows| find(rows, ALL, false)).collect();
        let users = more.filter(|name| name.as_str() != ALL).map(|name| {
            let has =
                |row: &&&SplitsRow| row.split_layers.split(' ').any(|word| word.trim_matches(',') == name);
            format!("{name} in {}", plans.iter().filter(has).count())
        });
        let users = users.collect::<Vec<_>>().join(", ");
        lines.push(format!("Plans with all splits have layers split by {users} of {} plans.", plans.len()));
        lines.extend(self.missed());
        if !self.without_room.is_empty() {
            let cases = self.without_room.join(", ");
            lines.push(format!("Left out because no plan fits in memory, by GPUs: {cases}."));
        }
        lines
    }

    /// Names the cases in which a plan with one way besides samples is faster than the plan with
    /// all ways, which the search has then missed. `None` if there are none.
    fn missed(&self) -> Option<String> {
        let of_case = |rows: &[SplitsRow]| {
            let all = find(rows, ALL, false)?;
            let times = self.ways.iter().filter_map(|name| find(rows, name, false));
            let min_us = times.map(|row| row.iteration_us).fold(f64::INFINITY, f64::min);
            let ratio = all.iteration_us / min_us;
            (ratio > 1.0 + TOLERANCE).then(|| format!("{} on {} ({ratio:.2} times)", all.model, all.gpus))
        };
        let cases: Vec<String> = self.by_case().filter_map(of_case).collect();
        let heading = "The search is a heuristic; with all splits it misses a plan that is faster by more \
                       than 1%:";
        (!cases.is_empty()).then(|| format!("{heading} {}.", cases.join(", ")))
    }

    /// Describes the worth of a set of ways over all cases: the number of cases in which plans are
    /// faster, and the maximum ratio of each network with one.
    fn worth(&self, name: &str, is_limited: bool) -> String {
        let rows = self.by_case().filter_map(|rows| find(rows, name, is_limited));
        // Plans without split layers differ because the searches do.
        let split = rows.filter(|row| !row.split_layers.is_empty());
        let faster: Vec<(&SplitsRow, f64)> = split
            .filter_map(|row| Some((row, row.times_as_fast_as_samples?)))
            .filter(|(_, ratio)| *ratio > 1.0 + TOLERANCE)
            .collect();
        let max_of_network = |rows: &[(&SplitsRow, f64)]| {
            let max = rows.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
            Some((max.1, format!("{:.2} ({} on {})", max.1, max.0.model, max.0.gpus)))
        };
        let networks = faster.chunk_by(|(a, _), (b, _)| a.model == b.model);
        let mut max: Vec<(f64, String)> = networks.filter_map(max_of_network).collect();
        max.sort_by(|a, b| b.0.total_cmp(&a.0));
        match max.len() {
            0 => "no plan is faster by more than 1%".into(),
            _ => format!(
                "faster by more than 1% in {}; at most {}",
                faster.len(),
                max.into_iter().map(|(_, words)| words).collect::<Vec<_>>().join(", ")
            ),
        }
    }
}

/// Returns the burst plan of a case with the given ways: the fastest, or with `is_limited` the
/// fastest within the amplification limit.
pub(super) fn find<'a>(rows: &'a [SplitsRow], name: &str, is_limited: bool) -> Option<&'a SplitsRow> {
    let is_asked = |row: &&SplitsRow| {
        row.mode == "bp" && row.splits == name && row.amplification_limit.is_some() == is_limited
    };
    rows.iter().find(is_asked)
}
