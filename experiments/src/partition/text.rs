//! Results of the experiment `partition` as text.

use deeppool::compare::SharingMode;

use super::totals::Totals;
use super::{NetworkPartition, Partition, PartitionRow, Way};
use crate::text_table::{printed, text_table};

/// Ways with a column of their best single point. The columns of partitions and BP+Col combine
/// points.
const WAYS: [Way; 4] = [
    Way(SharingMode::DataParallel, false),
    Way(SharingMode::DataParallelCollocated, false),
    Way(SharingMode::Burst, false),
    Way(SharingMode::Burst, true),
];

impl Partition {
    /// Formats the origin of the numbers, a line for each network and foreground speed, and the
    /// findings.
    pub(super) fn printed(&self) -> String {
        let ways = WAYS.iter().map(|way| format!("{}\nFG + BG", way.to_string().replace(", ", ",\n")));
        let header =
            ["model\n".to_owned(), "FG over\nDP".into(), "FG\nsamples/s".into()].into_iter().chain(ways);
        let header = header.chain([
            "partition\nFG + BG".into(),
            "BP+Col\nFG + BG".into(),
            "BP+Col over\npartition".into(),
            "BP+Col,\nall splits\nFG + BG".into(),
            "all splits\nover\npartition".into(),
        ]);
        let mut table = text_table(header, 1..);
        let rate = |rate: Option<f64>| rate.map_or_else(|| "-".into(), |rate| format!("{rate:.0}"));
        for (index, network) in self.networks.iter().enumerate() {
            if index > 0 {
                table.add_row([""]);
            }
            for (index, at) in network.totals.iter().enumerate() {
                let name = match index {
                    0 => network.title.clone(),
                    1 => format!("batch {}", network.batch),
                    _ => String::new(),
                };
                let of_way = |way: &Way| rate(best(&network.rows, *way, at.foreground_samples_per_s));
                let cells =
                    [name, format!("{:.2}", at.foreground_over_dp), rate(Some(at.foreground_samples_per_s))];
                let ratio = |over: Option<f64>| over.map_or_else(|| "-".into(), |over| format!("{over:.2}"));
                let totals = [
                    rate(at.partition_samples_per_s),
                    rate(at.shared_samples_per_s),
                    ratio(at.shared_over_partition),
                    rate(at.split_shared_samples_per_s),
                    ratio(at.split_shared_over_partition),
                ];
                table.add_row(cells.into_iter().chain(WAYS.iter().map(of_way)).chain(totals));
            }
        }
        let table = printed(&table);
        format!(
            "Sharing all GPUs against static partitions ({})\n{}\n\n\
             FG + BG samples/s with at least the FG samples/s of the line (partitions take turns with each \
             other, \
             BP+Col with all but partitions):\n{}\n\n{}\n",
            self.header.experiment,
            self.provenance.join("\n"),
            table,
            self.summary().join("\n"),
        )
    }

    /// Returns the findings, one line each: the ratios of BP+Col to partitions, and the advice for
    /// each network.
    pub(super) fn summary(&self) -> Vec<String> {
        let ratios = |network: &NetworkPartition, over: fn(&Totals) -> Option<f64>| {
            let at = network.totals.iter();
            let at = at.filter_map(|at| Some(format!("{:.2} at {}", over(at)?, at.foreground_over_dp)));
            at.collect::<Vec<_>>().join(", ")
        };
        let over = |network: &NetworkPartition| {
            let samples = ratios(network, |at| at.shared_over_partition);
            let split = ratios(network, |at| at.split_shared_over_partition);
            format!("  {:12}  {samples}; all splits: {split}", network.title)
        };
        let heading =
            "FG + BG of BP+Col over the best partition, by the FG's speed as a part of DP's on all GPUs:";
        let advice = self.networks.iter().map(|network| format!("{}: {}", network.title, network.advice));
        std::iter::once(heading.into()).chain(self.networks.iter().map(over)).chain(advice).collect()
    }
}

/// Returns the maximum total throughput of a way's points with at least the given foreground
/// throughput.
fn best(rows: &[PartitionRow], way: Way, foreground: f64) -> Option<f64> {
    let is_as_fast =
        |row: &&PartitionRow| row.is(way) && row.foreground_samples_per_s >= foreground * (1.0 - 1e-9);
    rows.iter().filter(is_as_fast).map(|row| row.total_samples_per_s).reduce(f64::max)
}
