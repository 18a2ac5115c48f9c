//! What the figures have in common.

use clap::ValueEnum;
use plotters::style::RGBColor;

/// What a figure is drawn for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Style {
    /// With a header that says what it shows and is from.
    #[default]
    Screen,
    /// Without a header: a caption has it, and the file's description.
    Paper,
}

/// Blue and orange of M. Okabe and K. Ito, "Color Universal Design", 2008: told apart with any colour vision.
pub(crate) const BLUE: RGBColor = RGBColor(0, 114, 178);
pub(crate) const ORANGE: RGBColor = RGBColor(230, 159, 0);
/// Others of the same source.
pub(crate) const VERMILION: RGBColor = RGBColor(213, 94, 0);
pub(crate) const GREEN: RGBColor = RGBColor(0, 158, 115);
pub(crate) const PURPLE: RGBColor = RGBColor(204, 121, 167);
pub(crate) const SKY: RGBColor = RGBColor(86, 180, 233);
pub(crate) const INK: RGBColor = RGBColor(40, 40, 40);
pub(crate) const GREY: RGBColor = RGBColor(120, 120, 120);
pub(crate) const GRID: RGBColor = RGBColor(225, 225, 225);

/// A colour as SVG images have it, such as `#0072B2`.
pub(crate) fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// Wraps a line at this number of letters; longer words stay whole.
pub(crate) fn wrapped(line: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in line.split(' ') {
        match lines.last_mut() {
            Some(last) if last.len() + 1 + word.len() <= most => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
