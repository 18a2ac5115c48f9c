//! Figure of a comparison of ways to share GPUs: total throughput by foreground throughput, both in
//! samples per second.

use deeppool::compare::{Comparison, Point, SharingMode};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Colour of partitions and their envelope. The colours of modes, except grey, are by M. Okabe and
/// K. Ito, "Color Universal Design", 2008: colour-blind readers can distinguish them.
const PARTITION: RGBColor = RGBColor(0, 0, 0);
/// Colour of burst plans with background jobs, and of the envelope of the modes that share GPUs.
const SHARING: RGBColor = RGBColor(213, 94, 0);
/// Modes with their colours, in drawing order. Later points cover earlier ones, because data
/// parallelism is also a burst plan.
const WAYS: [(SharingMode, RGBColor); 6] = [
    (SharingMode::Burst, RGBColor(230, 159, 0)),
    (SharingMode::BurstCollocated, SHARING),
    (SharingMode::DataParallel, RGBColor(86, 180, 233)),
    (SharingMode::DataParallelCollocated, RGBColor(0, 114, 178)),
    (SharingMode::Partition, PARTITION),
    (SharingMode::Background, RGBColor(120, 120, 120)),
];
/// Colour of text and axes.
const INK: RGBColor = RGBColor(40, 40, 40);
/// Colour of grid lines.
const GRID: RGBColor = RGBColor(225, 225, 225);
/// Width and height of the image, in pixels.
const SIZE: (u32, u32) = (900, 620);
/// Height of the header with the title, in pixels.
const HEADER: u32 = 96;
/// Position (x, y) of the lower right corner of the note below the chart, in pixels from the upper
/// left corner of the part below the header.
const NOTE_END: (i32, i32) = (876, 520);

/// Returns an SVG image of all points with their error ranges, and of the envelopes of partitions
/// and of the modes that share GPUs. `origin` are the lines below the title.
///
/// # Errors
/// If drawing fails.
pub(crate) fn svg(comparison: &Comparison, origin: &[String]) -> anyhow::Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (header, body) = root.split_vertically(HEADER);
        let text = |size: i32| TextStyle::from(("sans-serif", size)).color(&INK);
        let title = "Foreground against total throughput (simulated)";
        header.draw(&Text::new(title, (22, 14), text(20)))?;
        for (line, top) in origin.iter().zip((42..).step_by(17)) {
            header.draw(&Text::new(line.clone(), (22, top), text(12)))?;
        }
        let most = |range: fn(&Point) -> f64| comparison.points.iter().map(range).fold(1e-9, f64::max) * 1.06;
        let right =
            most(|point| point.foreground_range.map_or(point.foreground_samples_per_s, |[_, most]| most));
        let top = most(|point| point.total_range.map_or(point.total_samples_per_s(), |[_, most]| most));
        let mut chart = ChartBuilder::on(&body)
            .margin(14)
            .set_label_area_size(LabelAreaPosition::Left, 78)
            .set_label_area_size(LabelAreaPosition::Bottom, 46)
            .build_cartesian_2d(0.0..right, 0.0..top)?;
        chart
            .configure_mesh()
            .x_desc("foreground (samples/s)")
            .y_desc("foreground and background (samples/s)")
            .x_label_formatter(&|rate| format!("{rate:.0}"))
            .y_label_formatter(&|rate| format!("{rate:.0}"))
            .bold_line_style(GRID)
            .light_line_style(WHITE)
            .axis_style(INK)
            .label_style(text(12))
            .axis_desc_style(text(13))
            .draw()?;
        let lines =
            [(comparison.envelope(&[SharingMode::Partition]), PARTITION), (comparison.sharing(), SHARING)];
        for (envelope, color) in lines {
            chart.draw_series([PathElement::new(envelope.corners().to_vec(), color.stroke_width(1))])?;
        }
        for (way, color) in WAYS {
            let points: Vec<&Point> = comparison.points.iter().filter(|point| point.mode == way).collect();
            if points.is_empty() {
                continue;
            }
            let bar = color.mix(0.35).stroke_width(1);
            for point in &points {
                let at = (point.foreground_samples_per_s, point.total_samples_per_s());
                if let Some([least, most]) = point.total_range {
                    chart.draw_series([PathElement::new(vec![(at.0, least), (at.0, most)], bar)])?;
                }
                if let Some([least, most]) = point.foreground_range {
                    chart.draw_series([PathElement::new(vec![(least, at.1), (most, at.1)], bar)])?;
                }
            }
            let dot = |point: &&Point| {
                let at = (point.foreground_samples_per_s, point.total_samples_per_s());
                Circle::new(at, 4, color.filled())
            };
            chart
                .draw_series(points.iter().map(dot))?
                .label(way.to_string())
                .legend(move |at| Circle::new((at.0 + 10, at.1), 4, color.filled()));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::MiddleLeft)
            .background_style(WHITE.mix(0.85))
            .border_style(GRID)
            .label_font(text(13))
            .draw()?;
        let note = "lines: what taking turns gives; bars: what times may be off by";
        let style = text(11).pos(Pos::new(HPos::Right, VPos::Bottom));
        body.draw(&Text::new(note, NOTE_END, style))?;
        root.present()?;
    }
    Ok(svg)
}
