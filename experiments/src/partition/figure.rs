//! Foreground speed against total throughput: a point a way to share, and what taking turns gives.

use deeppool::compare::{Envelope, SharingMode};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::totals::{partitions, sharing};
use super::{OfNetwork, Partition, Row};
use crate::canvas::{Figure, Marks, axes, series_names, text};
use crate::style::{BLUE, GREY, ORANGE, SKY, Style, VERMILION, hex};

/// Points that are drawn later cover those before them: data parallelism is a burst plan, too.
const WAYS: [(SharingMode, RGBColor); 6] = [
    (SharingMode::Burst, ORANGE),
    (SharingMode::BurstCollocated, VERMILION),
    (SharingMode::DataParallel, SKY),
    (SharingMode::DataParallelCollocated, BLUE),
    (SharingMode::Partition, BLACK),
    (SharingMode::Background, GREY),
];
const SIZE: (u32, u32) = (900, 540);
/// How far above the highest point the axis goes, for what stands at the speeds.
const ROOM: f64 = 1.16;
/// Pixels of a letter of that.
const LETTER: i32 = 6;

pub(super) fn draw(found: &Partition, network: &OfNetwork, style: Style) -> anyhow::Result<Figure> {
    let OfNetwork { title, batch, rows, totals, .. } = network;
    let heading = format!(
        "{title}, batch {batch}, on {} GPUs: foreground against total throughput (simulated)",
        found.gpus
    );
    let note = "lines: what taking turns gives; bars: what the models are known to be off by; dashed: parts of DP's speed, \
                with BP+Col over the best partition there";
    let provenance = [&found.provenance[..], &[note.to_owned()]].concat();
    let figure = Figure::draw(heading, provenance, SIZE, style, |body| {
        let most = |rate: fn(&Row) -> f64| rows.iter().map(rate).fold(1e-9, f64::max);
        let right =
            most(|row| row.foreground_most_samples_per_s.unwrap_or(row.foreground_samples_per_s)) * 1.06;
        let top = most(|row| row.total_most_samples_per_s.unwrap_or(row.total_samples_per_s)) * ROOM;
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
            // In two lines: neighbours are close.
            let label = match at.shared_over_partition {
                Some(over) => format!("{}: {over:.2}", at.foreground_over_dp),
                None => at.foreground_over_dp.to_string(),
            };
            let style = text(12).pos(Pos::new(HPos::Right, VPos::Top));
            let below = if index % 2 == 0 { 2 } else { 17 };
            // On white: the line of a neighbour may pass there.
            let room = [(-4 - LETTER * i32::try_from(label.len())?, below), (-2, below + 13)];
            let label = EmptyElement::at((at.foreground_samples_per_s, top))
                + Rectangle::new(room, WHITE.filled())
                + Text::new(label, (-3, below), style);
            chart.draw_series([label])?;
        }
        let lines: [(Envelope, RGBColor); 2] = [(partitions(rows), BLACK), (sharing(rows), VERMILION)];
        for (envelope, color) in lines {
            chart.draw_series([PathElement::new(envelope.corners().to_vec(), color.stroke_width(1))])?;
        }
        for (way, color) in WAYS {
            let points: Vec<&Row> = rows.iter().filter(|row| row.is(way)).collect();
            if points.is_empty() {
                continue;
            }
            let bar = color.mix(0.35).stroke_width(1);
            for row in &points {
                let (x, y) = (row.foreground_samples_per_s, row.total_samples_per_s);
                if let Some((least, most)) = row.total_least_samples_per_s.zip(row.total_most_samples_per_s) {
                    chart.draw_series([PathElement::new(vec![(x, least), (x, most)], bar)])?;
                }
                let range = row.foreground_least_samples_per_s.zip(row.foreground_most_samples_per_s);
                if let Some((least, most)) = range {
                    chart.draw_series([PathElement::new(vec![(least, y), (most, y)], bar)])?;
                }
            }
            let dot = |row: &&Row| {
                Circle::new((row.foreground_samples_per_s, row.total_samples_per_s), 4, color.filled())
            };
            chart
                .draw_series(points.iter().map(dot))?
                .label(way.to_string())
                .legend(move |at| Circle::new((at.0 + 10, at.1), 4, color.filled()));
        }
        series_names(&mut chart.configure_series_labels(), SeriesLabelPosition::LowerLeft).draw()?;
        Ok(())
    })?;
    Ok(figure
        .with_marks(WAYS.map(|(way, color)| marks(rows, way, color)).into())
        .one_of_several(&network.model))
}

/// What the points of a way are.
fn marks(rows: &[Row], way: SharingMode, color: RGBColor) -> Marks {
    let value = |row: &Row| {
        let (foreground, total) = (row.foreground_samples_per_s, row.total_samples_per_s);
        let on = if row.is(SharingMode::Background) {
            String::new()
        } else {
            format!(" on {} GPUs", row.foreground_gpus)
        };
        format!("{way}{on}: foreground {foreground:.0}, with background {total:.0} samples/s")
    };
    let values = rows.iter().filter(|row| row.is(way)).map(value).collect();
    // The legend is drawn after all points.
    Marks { tag: "<circle", contains: hex(color), legend: 0, values }
}
