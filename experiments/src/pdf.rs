//! Figures as one-page PDF files with the same bytes on every machine.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Context;
use pdf_writer::{Content, Finish, Name, Pdf, Rect, Ref, TextStr};
use svg2pdf::ConversionOptions;
use svg2pdf::usvg::fontdb::{Database, Source};
use svg2pdf::usvg::{Options, Tree};

use crate::canvas::Figure;

/// Font of `sans-serif` text. Its letters are about as wide as those of browsers' default fonts.
const FAMILY: &str = "DejaVu Sans";
const IMAGE: Name<'static> = Name(b"Figure");
/// Points per pixel: a pixel is 1/96 inch and a point 1/72 inch.
const POINTS_PER_PIXEL: f32 = 0.75;

/// Returns the figure as a PDF with selectable text. Title, origin and program are document
/// properties. The document has no date, so that equal figures give equal files.
///
/// # Errors
/// If the SVG cannot be converted; the message contains the title.
pub(crate) fn pdf(figure: &Figure) -> anyhow::Result<Vec<u8>> {
    let failed = || format!("the figure {:?} as PDF", figure.title);
    let tree = Tree::from_str(&figure.svg, &options()).with_context(failed)?;
    let (image, image_ref) = svg2pdf::to_chunk(&tree, ConversionOptions::default())
        .map_err(|error| anyhow::anyhow!("{error}"))
        .with_context(failed)?;
    let mut next = Ref::new(1);
    let [catalog, pages, page, content, properties] = std::array::from_fn(|_| next.bump());
    let mut refs = HashMap::new();
    let image = image.renumber(|old| *refs.entry(old).or_insert_with(|| next.bump()));
    let image_ref = *refs.entry(image_ref).or_insert_with(|| next.bump());

    let size = tree.size();
    let (width, height) = (size.width() * POINTS_PER_PIXEL, size.height() * POINTS_PER_PIXEL);
    let mut pdf = Pdf::new();
    let mut root = pdf.catalog(catalog);
    root.pages(pages).lang(TextStr("en"));
    root.viewer_preferences().display_doc_title(true);
    root.finish();
    pdf.pages(pages).kids([page]).count(1);
    let mut sheet = pdf.page(page);
    sheet.parent(pages).media_box(Rect::new(0.0, 0.0, width, height)).contents(content);
    sheet.resources().x_objects().pair(IMAGE, image_ref);
    sheet.finish();
    // The image is one point wide and high.
    let mut drawing = Content::new();
    drawing.transform([width, 0.0, 0.0, height, 0.0, 0.0]).x_object(IMAGE);
    pdf.stream(content, &drawing.finish());
    pdf.extend(&image);
    pdf.document_info(properties)
        .title(TextStr(&figure.title))
        .subject(TextStr(&figure.provenance.join(". ")))
        .creator(TextStr(concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION"))))
        .producer(TextStr("svg2pdf"));
    Ok(with_names_in_order(&pdf.finish()))
}

/// Sorts the names in each resource list, since svg2pdf writes them in a random order. Only whole
/// lines of a list change places, so that the cross-reference table stays valid.
fn with_names_in_order(pdf: &[u8]) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = pdf.split_inclusive(|&byte| byte == b'\n').collect();
    for list in lines.chunk_by_mut(|a, b| is_name(a) && is_name(b)) {
        list.sort_unstable();
    }
    lines.concat()
}

/// Returns whether a line assigns a name to an object, such as `/gs7 12 0 R`.
fn is_name(line: &[u8]) -> bool {
    let words: Vec<&[u8]> = line.trim_ascii().split(|&byte| byte == b' ').collect();
    let [name, object, b"0", b"R"] = words[..] else { return false };
    let Some((b'/', name)) = name.split_first() else { return false };
    let digits = name.iter().skip_while(|byte| byte.is_ascii_lowercase());
    name.first().is_some_and(u8::is_ascii_lowercase)
        && digits.chain(object).all(u8::is_ascii_digit)
        && name.last().is_some_and(u8::is_ascii_digit)
}

/// Returns conversion options with a bundled font, since system fonts differ between machines.
/// There is one font for all weights: svg2pdf writes several in a random order.
fn options() -> Options<'static> {
    let mut fonts = Database::new();
    fonts.load_font_source(Source::Binary(Arc::new(dejavu::sans_condensed::regular())));
    fonts.set_sans_serif_family(FAMILY);
    Options { fontdb: Arc::new(fonts), ..Options::default() }
}
