//! Figure of the throughput of burst plans over that of partitions, by number of GPUs. A *series*
//! gives the global batch as a function of the number of GPUs.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Scale, ScaleRow, Series};
use crate::canvas::{Area, Figure, Marks, axes, dot_entry, text, titled_chart};
use crate::style::{BLUE, GREY, INK, ORANGE, SKY, Style, VERMILION, hex};

const PANEL: (u32, u32) = (450, 330);
const LEGEND: u32 = 106;

/// A line of the figure.
struct ScaleLine {
    label: &'static str,
    color: RGBColor,
    value: fn(&ScaleRow) -> Option<f64>,
}

const LINES: [ScaleLine; 5] = [
    ScaleLine {
        label: "foreground: fastest burst plan with all splits over the fastest partition",
        color: SKY,
        value: |row| Some(row.split_fastest_over_partition),
    },
    ScaleLine {
        label: "total: BP+Col with all splits over the best partition, with a foreground of 0.9 of the \
                fastest partition's",
        color: ORANGE,
        value: |row| row.split_total_over_partition_at_09,
    },
    ScaleLine {
        label: "foreground: fastest burst plan over the fastest partition",
        color: BLUE,
        value: |row| Some(row.fastest_over_partition),
    },
    ScaleLine {
        label: "total: BP+Col over the best partition, with a foreground of 0.9 of the fastest partition's",
        color: VERMILION,
        value: |row| row.total_over_partition_at_09,
    },
    ScaleLine {
        label: "foreground: DP on all GPUs over the fastest partition",
        color: GREY,
        value: |row| Some(row.dp_foreground_samples_per_s / row.partition_foreground_samples_per_s),
    },
];

/// Draws a panel for each series of batches, from the rows of one network. `title` is its display
/// name.
///
/// # Errors
/// If drawing fails.
pub(super) fn draw(found: &Scale, title: &str, rows: &[ScaleRow], style: Style) -> anyhow::Result<Figure> {
    let heading = format!(
        "{title} on 1 to {} GPUs: over static partitions (simulated)",
        rows.last().map_or(1, |row| row.gpus)
    );
    let size = (2 * PANEL.0, LEGEND + PANEL.1);
    let by_series = Series::ALL.map(|series| (series, found.series(rows, series)));
    let values = || {
        by_series
            .iter()
            .flat_map(|(_, rows)| rows)
            .flat_map(|row| LINES.iter().filter_map(|line| (line.value)(row)))
    };
    let range = values().fold(1.0, f64::min) * 0.95..values().fold(1.1, f64::max) * 1.05;
    let figure = Figure::draw(heading, found.provenance(), size, style, |root| {
        let (legend, body) = root.split_vertically(LEGEND);
        for (index, line) in LINES.iter().enumerate() {
            let area = legend.clone().shrink((22, 4 + 20 * index as u32), (2 * PANEL.0, 20));
            dot_entry(&area, line.color, line.label)?;
        }
        for (index, (series, rows)) in by_series.iter().enumerate() {
            let area = body.clone().shrink((index as u32 * PANEL.0, 0), PANEL);
            panel(&area, &series.about(found.fixed_batch), rows, range.clone())?;
        }
        Ok(())
    })?;
    let model = rows.first().map_or("", |row| row.model.as_str());
    let marks = LINES.iter().map(|line| Marks {
        tag: "<circle",
        contains: hex(line.color),
        legend: 1,
        values: by_series.iter().flat_map(|(_, rows)| rows).filter_map(|row| value(line, row)).collect(),
    });
    Ok(figure.with_marks(marks.collect()).with_suffix(model))
}

/// Returns the description of a point.
fn value(line: &ScaleLine, row: &ScaleRow) -> Option<String> {
    let value = (line.value)(row)?;
    Some(format!("{} GPUs, batch {}: {value:.2} ({})", row.gpus, row.batch, line.label))
}

fn panel(
    area: &Area<'_>,
    title: &str,
    rows: &[&ScaleRow],
    range: std::ops::Range<f64>,
) -> anyhow::Result<()> {
    let max_gpus = rows.iter().map(|row| row.gpus).max().unwrap_or(1).max(2) as f64;
    let mut chart =
        titled_chart(area).build_cartesian_2d((1.0..max_gpus).log_scale().base(2.0), range.clone())?;
    axes(&mut chart.configure_mesh())
        .x_desc("GPUs")
        .y_desc("ratio")
        .x_label_formatter(&|count| format!("{count:.0}"))
        .y_label_formatter(&|ratio| format!("{ratio:.1}"))
        .draw()?;
    chart.draw_series(DashedLineSeries::new([(1.0, 1.0), (max_gpus, 1.0)], 4, 4, INK.stroke_width(1)))?;
    let above = text(13).pos(Pos::new(HPos::Left, VPos::Bottom));
    chart.draw_series([EmptyElement::at((1.0, range.end)) + Text::new(title.to_owned(), (0, -8), above)])?;
    for line in LINES {
        let point = |row: &&ScaleRow| Some((row.gpus as f64, (line.value)(row)?));
        let points: Vec<(f64, f64)> = rows.iter().filter_map(point).collect();
        chart.draw_series([PathElement::new(points.clone(), line.color.stroke_width(1))])?;
        chart.draw_series(points.into_iter().map(|point| Circle::new(point, 4, line.color.filled())))?;
    }
    Ok(())
}
