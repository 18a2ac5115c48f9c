//! Text tables in the style of the OSU micro-benchmarks: one for each operation and group size.

use collectives::CollectiveKind;
use comfy_table::Table;

use crate::coll::backend::Wait;
use crate::coll::{CollOperation, CollReport, CollRow, size};
use crate::table::aligned;

/// Formats all tables with their headings, which contain `conditions`, a line on the samples.
pub(crate) fn format(report: &CollReport, conditions: &str) -> String {
    let same_table = |a: &CollRow, b: &CollRow| a.op == b.op && a.ranks == b.ranks;
    let tables = report.rows.chunk_by(same_table).map(|rows| {
        let (op, ranks) = (rows[0].op, rows[0].ranks);
        let elements = match op {
            CollOperation::Collective(CollectiveKind::AllReduce | CollectiveKind::ReduceScatter) => {
                ", sum of f32"
            }
            CollOperation::Collective(CollectiveKind::Barrier) => "",
            CollOperation::Collective(_) => ", f32",
            CollOperation::Redistribution => " of a matrix from rows to columns, f32",
        };
        let machine = &report.machine;
        let spins = rows.iter().any(|row| row.wait.as_deref() == Some(Wait::Spin.name()));
        let note = if spins && ranks > machine.cores {
            "# more ranks than cores: ranks that spin give their core away between polls\n"
        } else {
            ""
        };
        format!(
            "# coll-bench: {op}{elements}, {ranks} ranks, {}, {} cores\n# {conditions}\n{note}{}",
            machine.processor,
            machine.cores,
            table(rows)
        )
    });
    tables.collect::<Vec<_>>().join("\n\n")
}

fn table(rows: &[CollRow]) -> String {
    let with_copy = rows.iter().any(|row| row.copy_us.is_some());
    let with_strided = rows.iter().any(|row| row.strided_copy_us.is_some());
    let with_peer = rows.iter().any(|row| row.speedup_over_open_mpi.is_some());
    let mut header = vec!["size", "backend", "wait", "median (us)", "p10 (us)", "p90 (us)", "bus (GB/s)"];
    if with_copy {
        header.extend(["copy (us)", "copy/this"]);
    }
    if with_strided {
        header.push("strided (us)");
    }
    if with_peer {
        header.push("open-mpi/this");
    }
    let mut table = Table::new();
    table.set_header(header);
    for (i, row) in rows.iter().enumerate() {
        let is_first = i == 0 || rows[i - 1].bytes != row.bytes;
        let mut cells = vec![
            if is_first { size::format(row.bytes) } else { String::new() },
            row.backend.clone(),
            row.wait.clone().unwrap_or_else(|| "-".to_owned()),
            format_us(row.time_us),
            format_us(row.time_p10_us),
            format_us(row.time_p90_us),
            optional(row.bus_bandwidth_gb_s),
        ];
        if with_copy {
            cells.push(row.copy_us.map_or_else(|| "-".to_owned(), format_us));
            cells.push(optional(row.copy_bound_share));
        }
        if with_strided {
            cells.push(row.strided_copy_us.map_or_else(|| "-".to_owned(), format_us));
        }
        if with_peer {
            cells.push(optional(row.speedup_over_open_mpi));
        }
        table.add_row(cells);
    }
    aligned(table, 1..=2)
}

/// Formats a time in microseconds with two decimals.
pub(crate) fn format_us(us: f64) -> String {
    format!("{us:.2}")
}

fn optional(figure: Option<f64>) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.2}"))
}
