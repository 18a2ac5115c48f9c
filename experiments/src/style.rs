//! Styles and colours of the figures.

use clap::ValueEnum;
use plotters::style::RGBColor;

/// Purpose of a figure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Style {
    /// For screens, with a header that shows the title and the origin of the data.
    #[default]
    Screen,
    /// For papers, without a header; title and origin are in the file's description.
    Paper,
}

/// Blue and orange of M. Okabe and K. Ito, "Color Universal Design", 2008, distinguishable with any
/// colour vision.
pub(crate) const BLUE: RGBColor = RGBColor(0, 114, 178);
pub(crate) const ORANGE: RGBColor = RGBColor(230, 159, 0);
/// Other colours of the same source.
pub(crate) const VERMILION: RGBColor = RGBColor(213, 94, 0);
pub(crate) const GREEN: RGBColor = RGBColor(0, 158, 115);
pub(crate) const PURPLE: RGBColor = RGBColor(204, 121, 167);
pub(crate) const SKY: RGBColor = RGBColor(86, 180, 233);
pub(crate) const INK: RGBColor = RGBColor(40, 40, 40);
pub(crate) const GREY: RGBColor = RGBColor(120, 120, 120);
pub(crate) const GRID: RGBColor = RGBColor(225, 225, 225);

/// Returns a colour in SVG notation, such as `#0072B2`.
pub(crate) fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// Wraps a line at `width` letters. Longer words stay whole.
pub(crate) fn wrapped(line: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in line.split(' ') {
        match lines.last_mut() {
            Some(last) if last.len() + 1 + word.len() <= width => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
