//! SVG figures of the experiments.
//!
//! In style `screen`, a figure has a header with its title and the origin of its data; in style
//! `paper`, both are only in the SVG's `<desc>`. A *mark* is an SVG element that shows one value,
//! such as a bar or a dot.

use plotters::chart::{MeshStyle, SeriesLabelStyle};
use plotters::coord::combinators::LogCoord;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::coord::{CoordTranslate, Shift};
use plotters::prelude::*;

use crate::style::{GRID, INK, Style, wrapped};

/// Drawing area of an SVG image, in pixels.
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Left margin of the header in pixels.
const LEFT: i32 = 22;
/// Top of the header's small print in pixels.
const PRINT_TOP: u32 = 44;
/// Height of a line of the small print in pixels.
const PRINT_LINE: u32 = 17;
/// Width of a letter of the small print in pixels: an upper estimate of the average.
const PRINT_LETTER: u32 = 7;
const BELOW_HEADER: u32 = 8;

/// A drawn figure of an experiment.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    /// Suffix of the stem of the figure's file names. Empty if the experiment has one figure.
    pub(crate) suffix: String,
    /// Title, as in the header.
    pub(crate) title: String,
    /// Origin of the data: simulated, measured or published, and by which models; one line each.
    pub(crate) provenance: Vec<String>,
    /// The SVG document.
    pub(crate) svg: String,
    /// Groups of marks with their tooltips; empty if the figure has none.
    pub(crate) marks: Vec<Marks>,
}

/// A group of marks with the same tag and colour.
#[derive(Debug, Clone)]
pub(crate) struct Marks {
    /// Start of each mark's line in the SVG, such as `<rect`.
    pub(crate) tag: &'static str,
    /// Text that each mark's line contains, such as its colour `#0072B2`; empty if the tag
    /// suffices.
    pub(crate) contains: String,
    /// Number of elements with that tag and text that belong to the legend. They precede the marks
    /// in the SVG and have no tooltip.
    pub(crate) legend: usize,
    /// Tooltip of each mark, in drawing order.
    pub(crate) values: Vec<String>,
}

impl Figure {
    /// Draws a figure. `body` draws into an area of `width` x `height` pixels; in style `screen`
    /// the header adds to the height.
    ///
    /// # Errors
    /// If drawing fails.
    pub(crate) fn draw(
        title: String,
        provenance: Vec<String>,
        (width, height): (u32, u32),
        style: Style,
        body: impl FnOnce(&Area<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let most = (width.saturating_sub(2 * LEFT.unsigned_abs()) / PRINT_LETTER) as usize;
        let print: Vec<String> = provenance.iter().flat_map(|line| wrapped(line, most)).collect();
        let header = match style {
            Style::Screen => PRINT_TOP + PRINT_LINE * print.len() as u32 + BELOW_HEADER,
            Style::Paper => 0,
        };
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, (width, header + height)).into_drawing_area();
            root.fill(&WHITE)?;
            if style == Style::Screen {
                root.draw(&Text::new(
                    title.clone(),
                    (LEFT, 16),
                    ("sans-serif", 20).into_font().style(FontStyle::Bold).color(&INK),
                ))?;
                for (index, line) in print.into_iter().enumerate() {
                    let area =
                        root.clone().shrink((0, PRINT_TOP + PRINT_LINE * index as u32), (width, PRINT_LINE));
                    area.draw(&Text::new(line, (LEFT, 0), text(13)))?;
                }
            }
            body(&root.clone().shrink((0, header), (width, height)))?;
            root.present()?;
        }
        let svg = described(&svg, &title, &provenance);
        Ok(Self { suffix: String::new(), title, provenance, svg, marks: Vec::new() })
    }

    /// Returns the figure with the given groups of marks.
    pub(crate) fn with_marks(self, marks: Vec<Marks>) -> Self {
        Self { marks, ..self }
    }

    /// Returns the figure with the given suffix of its file names, for an experiment with several
    /// figures.
    pub(crate) fn with_suffix(self, suffix: &str) -> Self {
        Self { suffix: suffix.into(), ..self }
    }

    /// Returns the stem of the figure's file names: `stem` of the experiment, or `stem-suffix` for
    /// one of several figures.
    pub(crate) fn stem(&self, stem: &str) -> String {
        if self.suffix.is_empty() { stem.into() } else { format!("{stem}-{}", self.suffix) }
    }

    /// Returns the SVG document with a `<title>` in each mark, which browsers show as a tooltip.
    pub(crate) fn svg_with_tooltips(&self) -> String {
        let mut values: Vec<_> = self.marks.iter().map(|marks| (marks.legend, marks.values.iter())).collect();
        let line = |line: &str| {
            for (marks, (legend, values)) in self.marks.iter().zip(&mut values) {
                if line.starts_with(marks.tag) && line.contains(&marks.contains) {
                    if *legend > 0 {
                        *legend -= 1;
                    } else if let (Some(value), Some(open)) = (values.next(), line.strip_suffix("/>")) {
                        let tag = marks.tag.trim_start_matches('<');
                        return format!("{open}><title>{}</title></{tag}>\n", escaped(value));
                    }
                    break;
                }
            }
            format!("{line}\n")
        };
        self.svg.lines().map(line).collect()
    }
}

/// Returns the text style of the figures: dark grey sans-serif of `size` pixels.
pub(crate) fn text(size: i32) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", size)).color(&INK)
}

/// Returns a chart builder with room for a title above, and for the labels of an axis at the left
/// and of one below.
pub(crate) fn titled_chart<'a, 'b>(area: &'a Area<'b>) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut chart = ChartBuilder::on(area);
    chart.margin_top(28).margin_left(8).margin_right(22).margin_bottom(6);
    chart.set_label_area_size(LabelAreaPosition::Left, 48).set_label_area_size(LabelAreaPosition::Bottom, 44);
    chart
}

/// Chart on two logarithmic axes.
pub(crate) type LogChart<'a, 'b> =
    ChartContext<'a, SVGBackend<'b>, Cartesian2d<LogCoord<f64>, LogCoord<f64>>>;

/// Draws two logarithmic axes with the same range, which holds all positive `values`, and a dashed
/// line where both are equal. `names` are the names of the axes: x and y.
///
/// # Errors
/// If drawing fails.
pub(crate) fn comparison_chart<'a, 'b>(
    area: &'a Area<'b>,
    values: &[f64],
    names: [&str; 2],
) -> anyhow::Result<LogChart<'a, 'b>> {
    let positive = || values.iter().copied().filter(|value| *value > 0.0);
    let (min, max) = (positive().fold(f64::INFINITY, f64::min), positive().fold(0.0, f64::max));
    let (min, max) = if max > 0.0 { (min * 0.8, max * 1.25) } else { (1.0, 10.0) };
    let mut chart = ChartBuilder::on(area)
        .margin(16)
        .set_label_area_size(LabelAreaPosition::Left, 62)
        .set_label_area_size(LabelAreaPosition::Bottom, 46)
        .build_cartesian_2d((min..max).log_scale(), (min..max).log_scale())?;
    axes(&mut chart.configure_mesh())
        .x_desc(names[0])
        .y_desc(names[1])
        .x_label_formatter(&|value| format!("{value:.0}"))
        .y_label_formatter(&|value| format!("{value:.0}"))
        .draw()?;
    chart.draw_series(DashedLineSeries::new([(min, min), (max, max)], 4, 4, INK.stroke_width(1)))?;
    Ok(chart)
}

/// Configures axes and grid in the style of all charts.
pub(crate) fn axes<'m, 'a, 'b, X, Y, DB>(
    mesh: &'m mut MeshStyle<'a, 'b, X, Y, DB>,
) -> &'m mut MeshStyle<'a, 'b, X, Y, DB>
where
    X: Ranged + ValueFormatter<X::ValueType>,
    Y: Ranged + ValueFormatter<Y::ValueType>,
    DB: DrawingBackend,
{
    mesh.bold_line_style(GRID)
        .light_line_style(WHITE)
        .axis_style(INK)
        .label_style(text(12))
        .axis_desc_style(text(13))
}

/// Configures the legend of a chart with named series, and places it at `position`.
pub(crate) fn series_names<'m, 'a, 'b, DB: DrawingBackend + 'a, CT: CoordTranslate>(
    labels: &'m mut SeriesLabelStyle<'a, 'b, DB, CT>,
    position: SeriesLabelPosition,
) -> &'m mut SeriesLabelStyle<'a, 'b, DB, CT> {
    labels.position(position).background_style(WHITE.mix(0.85)).border_style(GRID).label_font(text(13))
}

/// Draws a legend entry at the left of an area: a dot of a colour, and its label.
///
/// # Errors
/// If drawing fails.
pub(crate) fn dot_entry(area: &Area<'_>, color: RGBColor, label: &str) -> anyhow::Result<()> {
    area.draw(&Circle::new((6, 8), 4, color.filled()))?;
    area.draw(&Text::new(label, (18, 1), text(13)))?;
    Ok(())
}

/// Returns the SVG with a description of its content and origin, for screen readers.
fn described(svg: &str, title: &str, provenance: &[String]) -> String {
    let description = escaped(&format!("{title}. {}", provenance.join(". ")));
    match svg.split_once('\n') {
        Some((open, rest)) => format!("{open}\n<desc>{description}</desc>\n{rest}"),
        None => svg.into(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
