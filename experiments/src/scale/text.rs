//! Results as a table, and the way with the larger total throughput by number of GPUs.

use super::{Scale, ScaleRow, Series};
use crate::text_table::{printed, text_table};

/// Relative difference below which totals count as equal.
const TOLERANCE: f64 = 0.01;

/// Way with the larger total, at a foreground speed of 0.9 of the fastest partition's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Winner {
    Sharing,
    Partition,
    Neither,
}

impl Winner {
    fn of(row: &ScaleRow) -> Self {
        match row.total_over_partition_at_09 {
            Some(over) if over > 1.0 + TOLERANCE => Self::Sharing,
            Some(over) if over < 1.0 - TOLERANCE => Self::Partition,
            _ => Self::Neither,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Sharing => "BP+Col gives more than any partition",
            Self::Partition => "a partition gives more than BP+Col",
            Self::Neither => "BP+Col and the best partition give the same, within 1%,",
        }
    }
}

impl Scale {
    /// Formats the origin of the numbers, the table and the findings.
    pub(super) fn printed(&self) -> String {
        let mut table = text_table(
            [
                "model\n".into(),
                "GPUs\n".into(),
                "batch\n".into(),
                "DP\nsamples/s".into(),
                "fastest partition\nsamples/s (GPUs)".into(),
                "fastest BP over\nfastest partition".into(),
                "BP+Col over partition,\nat its speed".to_owned(),
                "\nat 0.9 of it".into(),
                "all splits: fastest BP\nover partition".into(),
                "BP+Col over partition,\nat 0.9 of its speed".into(),
                "BP+Col at 0.95 of the fastest FG:\ntotal over DP (ceiling)".into(),
                format!("FG of BP+Col at limit {}\nover fastest partition", self.amplification_limit),
                "its total\nover DP".into(),
            ],
            1..,
        );
        let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"));
        for (title, rows) in self.networks() {
            for row in rows {
                table.add_row([
                    title.to_owned(),
                    row.gpus.to_string(),
                    row.batch.to_string(),
                    format!("{:.0}", row.dp_foreground_samples_per_s),
                    format!("{:.0} ({})", row.partition_foreground_samples_per_s, row.partition_gpus),
                    format!("{:.2}", row.fastest_over_partition),
                    ratio(row.total_over_partition_at_its_fastest),
                    ratio(row.total_over_partition_at_09),
                    format!("{:.2}", row.split_fastest_over_partition),
                    ratio(row.split_total_over_partition_at_09),
                    format!("{} ({:.2})", ratio(row.total_over_dp_at_095), row.ceiling_over_dp_at_095),
                    format!("{:.2}", row.limited_foreground_over_partition),
                    format!("{:.2}", row.limited_total_over_dp),
                ]);
            }
        }
        let table = printed(&table);
        format!(
            "Burst parallelism against static partitions by the number of GPUs ({})\n{}\n\
             FG is the foreground; DP is on all GPUs, or as many as there are samples\n\n{}\n\n{}\n",
            self.header.experiment,
            self.provenance().join("\n"),
            table,
            self.summary().join("\n"),
        )
    }

    /// Returns the findings, one line each: the way with the larger total throughput by number of
    /// GPUs, and the cases without a plan that fits in memory.
    pub(super) fn summary(&self) -> Vec<String> {
        let of_series = |title: &str, rows: &[ScaleRow], series: Series| {
            let rows = self.series(rows, series);
            let spans = rows.chunk_by(|a, b| Winner::of(a) == Winner::of(b));
            let spans = spans.map(span).collect::<Vec<_>>().join("; ");
            let faster = max_of(&rows, "burst plan", |row| row.fastest_over_partition)?;
            let split = max_of(&rows, "burst plan with all splits", |row| row.split_fastest_over_partition)?;
            Some(format!("{title}, {}: {spans}. {faster}. {split}.", series.about(self.fixed_batch)))
        };
        let heading = "Foreground and background together, with a foreground of at least 0.9 of the \
                       fastest partition's:";
        let lines = self
            .networks()
            .flat_map(|(title, rows)| Series::ALL.map(|series| of_series(title, rows, series)))
            .flatten();
        let room = (!self.without_room.is_empty()).then(|| {
            format!("Left out because no plan fits in memory, by GPUs: {}.", self.without_room.join(", "))
        });
        std::iter::once(heading.to_owned()).chain(lines).chain(room).collect()
    }
}

/// Describes the maximum speed of burst plans relative to the fastest partition.
fn max_of(rows: &[&ScaleRow], plan: &str, over_partition: fn(&ScaleRow) -> f64) -> Option<String> {
    let fastest = rows.iter().max_by(|a, b| over_partition(a).total_cmp(&over_partition(b)))?;
    let (over, gpus) = (over_partition(fastest), fastest.gpus);
    Some(if over > 1.0 + TOLERANCE {
        format!("The fastest {plan} is up to {over:.2} times as fast as any partition (on {gpus} GPUs)")
    } else {
        format!("No {plan} is faster than the fastest partition by more than 1%")
    })
}

/// Describes consecutive rows with the same winner.
fn span(rows: &[&ScaleRow]) -> String {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return String::new() };
    let on = if first.gpus == last.gpus {
        format!("on {} GPU{}", first.gpus, if first.gpus == 1 { "" } else { "s" })
    } else {
        format!("on {} to {} GPUs", first.gpus, last.gpus)
    };
    let winner = Winner::of(first);
    let factor = |row: &&&ScaleRow| row.total_over_partition_at_09.map_or(0.0, |over| over.ln().abs());
    let max = rows.iter().max_by(|a, b| factor(a).total_cmp(&factor(b)));
    match max.and_then(|row| Some((row.total_over_partition_at_09?, row.gpus))) {
        Some((over, gpus)) if winner != Winner::Neither => {
            format!("{on} {} (at most {:.2} times, on {gpus})", winner.words(), over.max(1.0 / over))
        }
        _ => format!("{on} {}", winner.words().trim_end_matches(',')),
    }
}
