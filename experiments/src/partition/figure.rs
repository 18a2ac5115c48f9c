//! Figures of foreground against total throughput, with a point for each way to share the GPUs, and
//! lines for the *envelopes*: the maximum total throughput if ways may alternate in time.

use deeppool::compare::{Envelope, SharingMode};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::totals::{partitions, sharing, split_sharing};
use super::{NetworkPartition, Partition, PartitionRow, Way};
use crate::canvas::{Figure, Marks, axes, series_names, text};
use crate::style::{BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, Style, VERMILION, hex};

/// Colours of the ways, in drawing order. Later points cover earlier ones: data parallelism is also
/// a burst plan.
const WAYS: [(Way, RGBColor); 8] = [
    (Way(SharingMode::Burst, true), GREEN),
    (Way(SharingMode::BurstCollocated, true), PURPLE),
    (Way(SharingMode::Burst, false), ORANGE),
    (Way(SharingMode::BurstCollocated, false), VERMILION),
    (Way(SharingMode::DataParallel, false), SKY),
    (Way(SharingMode::DataParallelCollocated, false), BLUE),
    (Way(SharingMode::Partition, false), BLACK),
    (Way(SharingMode::Background, false), GREY),
];
const SIZE: (u32, u32) = (900, 540);
/// Top of the axis relative to the highest point, which leaves room for the labels of the speeds.
const ROOM: f64 = 1.16;
/// Width of a letter of these labels in pixels.
const LETTER: i32 = 6;

/// Draws the figure of one network.
///
/// # Errors
/// If drawing fails.
pub(super) fn draw(found: &Partition, network: &NetworkPartition, style: Style) -> anyhow::Result<Figure> {
    let NetworkPartition { title, batch, rows, totals, .. } = network;
    let heading = format!(
        "{title}, batch {batch}, on {} GPUs: foreground against total throughput (simulated)",
        found.gpus
    );
    let note = "lines: what taking turns gives; bars: what the models are known to be off by; dashed: \
                parts of DP's speed, \
                with BP+Col over the best partition there";
    let provenance = [&found.provenance[..], &[note.to_owned()]].concat();
    let figure = Figure::draw(heading, provenance, SIZE, style, |body| {
        let max = |rate: fn(&PartitionRow) -> f64| rows.iter().map(rate).fold(1e-9, f64::max);
        let right =
            max(|row| row.foreground_max_samples_per_s.unwrap_or(row.foreground_samples_per_s)) * 1.06;
        let top = max(|row| row.total_max_samples_per_s.unwrap_or(row.total_samples_per_s)) * ROOM;
        let mut chart = ChartBuilder::on(body)
            .margin(14)
            .set_label_area_size(LabelAreaPosition::Left, 78)
            .set_label_area_size(LabelAreaPosition::Bottom, 46)
            .build_cartesian_2d(0.0..right, 0.0..top)?;
        axes(&mut chart.configure_mesh())
            .x_desc("foreground (samples/s)")
            .y_desc("foreground and background (samples/s)")
            .x_label_formatter(&|rate| format!("{rate:.0}"))
            .y_label_formatter(&|rate| format!("{rate:.0}"))
            .draw()?;
        for at in totals {
            let ends = [0.0, top].map(|total| (at.foreground_samples_per_s, total));
            chart.draw_series(DashedLineSeries::new(ends, 3, 4, GREY.stroke_width(1)))?;
        }
        for (index, at) in totals.iter().enumerate() {
            // Labels alternate between two lines, since neighbours are close.
            let label = match at.shared_over_partition {
                Some(over) => format!("{}: {over:.2}", at.foreground_over_dp),
                None => at.foreground_over_dp.to_string(),
            };
            let style = text(12).pos(Pos::new(HPos::Right, VPos::Top));
            let below = if index % 2 == 0 { 2 } else { 17 };
            // A white background covers a neighbour's line.
            let room = [(-4 - LETTER * i32::try_from(label.len())?, below), (-2, below + 13)];
            let label = EmptyElement::at((at.foreground_samples_per_s, top))
                + Rectangle::new(room, WHITE.filled())
                + Text::new(label, (-3, below), style);
            chart.draw_series([label])?;
        }
        let lines: [(Envelope, RGBColor); 3] =
            [(partitions(rows), BLACK), (split_sharing(rows), PURPLE), (sharing(rows), VERMILION)];
        for (envelope, color) in lines {
            chart.draw_series([PathElement::new(envelope.corners().to_vec(), color.stroke_width(1))])?;
        }
        for (way, color) in WAYS {
            let points: Vec<&PartitionRow> = rows.iter().filter(|row| row.is(way)).collect();
            if points.is_empty() {
                continue;
            }
            let bar = color.mix(0.35).stroke_width(1);
            for row in &points {
                let (x, y) = (row.foreground_samples_per_s, row.total_samples_per_s);
                if let Some((min, max)) = row.total_min_samples_per_s.zip(row.total_max_samples_per_s) {
                    chart.draw_series([PathElement::new(vec![(x, min), (x, max)], bar)])?;
                }
                let range = row.foreground_min_samples_per_s.zip(row.foreground_max_samples_per_s);
                if let Some((min, max)) = range {
                    chart.draw_series([PathElement::new(vec![(min, y), (max, y)], bar)])?;
                }
            }
            let dot = |row: &&PartitionRow| {
                Circle::new((row.foreground_samples_per_s, row.total_samples_per_s), 4, color.filled())
            };
            chart
                .draw_series(points.iter().map(dot))?
                .label(way.to_string())
                .legend(move |at| Circle::new((at.0 + 10, at.1), 4, color.filled()));
        }
        series_names(&mut chart.configure_series_labels(), SeriesLabelPosition::LowerRight).draw()?;
        Ok(())
    })?;
    Ok(figure.with_marks(WAYS.map(|(way, color)| marks(rows, way, color)).into()).with_suffix(&network.model))
}

/// Returns the descriptions of a way's points.
fn marks(rows: &[PartitionRow], way: Way, color: RGBColor) -> Marks {
    let value = |row: &PartitionRow| {
        let (foreground, total) = (row.foreground_samples_per_s, row.total_samples_per_s);
        let on = if way.0 == SharingMode::Background {
            String::new()
        } else {
            format!(" on {} GPUs", row.foreground_gpus)
        };
        format!("{way}{on}: foreground {foreground:.0}, with background {total:.0} samples/s")
    };
    let values = rows.iter().filter(|row| row.is(way)).map(value).collect();
    // The legend is drawn after all points, so that none of the first marks belongs to it.
    Marks { tag: "<circle", contains: hex(color), legend: 0, values }
}
