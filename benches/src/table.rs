//! Tables for terminals.

use std::ops::RangeInclusive;

use comfy_table::{CellAlignment, Table, presets};

/// Formats a table without lines between cells. The columns with indices in `text_columns` are
/// aligned to the left, all others to the right.
pub(crate) fn aligned(mut table: Table, text_columns: RangeInclusive<usize>) -> String {
    table.load_preset(presets::NOTHING);
    for (i, column) in table.column_iter_mut().enumerate() {
        if !text_columns.contains(&i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}
