//! What was found as a table.

use comfy_table::{CellAlignment, Table, presets};

use super::Scale;

impl Scale {
    /// What was asked, and what the answers come to.
    pub(super) fn printed(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_header([
            "model\n".into(),
            "GPUs\n".into(),
            "batch\n".into(),
            "fastest partition\nsamples/s (GPUs)".into(),
            format!("FG of BP+Col at limit {}\nover fastest partition", self.amplification_limit),
            "its total\nover DP".into(),
            "fastest BP over\nfastest partition".into(),
            "BP+Col over partition,\ntotals at its speed".to_owned(),
            "BP+Col at 0.95 of the fastest FG:\ntotal over DP (ceiling)".into(),
        ]);
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"));
        for row in &self.rows {
            table.add_row([
                row.model.clone(),
                row.gpus.to_string(),
                row.batch.to_string(),
                format!("{:.0} ({})", row.partition_foreground_samples_per_s, row.partition_gpus),
                format!("{:.2}", row.limited_foreground_over_partition),
                format!("{:.2}", row.limited_total_over_dp),
                format!("{:.2}", row.fastest_over_partition),
                ratio(row.total_over_partition_at_its_fastest),
                format!("{} ({:.2})", ratio(row.total_over_dp_at_095), row.ceiling_over_dp_at_095),
            ]);
        }
        let table: Vec<String> = table.to_string().lines().map(|line| line.trim_end().to_owned()).collect();
        format!(
            "Burst parallelism against static partitions on clusters ({})\n\
             simulated: layer times of device model {} (modelled), link model {}; the background trains the same network on\n\
             batches of 8; FG is the foreground, a partition is DP on some GPUs and background on the others, DP is on all;\n\
             plans keep the memory of the GPUs, with the background's where it shares them\n\n{}\n",
            self.experiment,
            self.device,
            self.link,
            table.join("\n")
        )
    }
}
