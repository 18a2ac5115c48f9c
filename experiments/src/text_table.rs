//! Tables for terminals.

use std::ops::RangeBounds;

use comfy_table::{CellAlignment, Row, Table, presets};

/// Returns an empty table without lines between cells. The columns with indices in `numbers` are
/// right-aligned.
pub(crate) fn text_table(header: impl Into<Row>, numbers: impl RangeBounds<usize>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    for (place, column) in table.column_iter_mut().enumerate() {
        if numbers.contains(&place) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Returns the table's lines without trailing spaces.
pub(crate) fn printed(table: &Table) -> String {
    table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}
