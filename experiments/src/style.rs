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

/// Blue of the palette by M. Okabe and K. Ito, "Color Universal Design", 2008, whose colours are
/// distinguishable with any colour vision.
pub(crate) const BLUE: RGBColor = RGBColor(0, 114, 178);
/// Orange of the same palette.
pub(crate) const ORANGE: RGBColor = RGBColor(230, 159, 0);
/// Vermilion of the same palette.
pub(crate) const VERMILION: RGBColor = RGBColor(213, 94, 0);
/// Bluish green of the same palette.
pub(crate) const GREEN: RGBColor = RGBColor(0, 158, 115);
/// Reddish purple of the same palette.
pub(crate) const PURPLE: RGBColor = RGBColor(204, 121, 167);
/// Sky blue of the same palette.
pub(crate) const SKY: RGBColor = RGBColor(86, 180, 233);
/// Dark grey of texts, axes and reference lines.
pub(crate) const INK: RGBColor = RGBColor(40, 40, 40);
/// Medium grey of lines and points to compare others with.
pub(crate) const GREY: RGBColor = RGBColor(120, 120, 120);
/// Light grey of grid lines and legend borders.
pub(crate) const GRID: RGBColor = RGBColor(225, 225, 225);

/// Returns a colour in SVG notation, such as `#0072B2`.
pub(crate) fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// Wraps a line between words after at most `width` letters. Longer words stay whole.
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
