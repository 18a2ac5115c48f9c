//! The page in Chromium, on a phone and on a screen, light and dark.

use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::page::write_page;

const SIZES: [(u32, u32); 2] = [(390, 844), (1280, 900)];
/// Colour schemes and the page's background in each.
const SCHEMES: [(&str, [u8; 3]); 2] = [("light", [0xff, 0xff, 0xff]), ("dark", [0x16, 0x17, 0x1a])];

/// Observations of the page in a frame.
#[derive(Debug, Deserialize)]
struct Seen {
    /// Width of the frame and of its content, in pixels.
    width: u32,
    content_width: u32,
    background: String,
    sections: Vec<String>,
    /// Levels of the headings.
    headings: Vec<u32>,
    /// Number of requested files.
    requests: u32,
    /// Scrolling elements that are not reachable by keyboard or have no name.
    out_of_reach: Vec<String>,
}

/// Script that unfolds the page in each frame and prints the observations as JSON.
const LOOK: &str = "
addEventListener('load', () => {
  const seen = [...document.querySelectorAll('iframe')].map(frame => {
    const [page, view] = [frame.contentDocument, frame.contentWindow];
    page.querySelectorAll('details').forEach(details => details.open = true);
    const scrolls = element => /auto|scroll/.test(view.getComputedStyle(element).overflowX);
    const isOutOfReach = element => element.tabIndex < 0 || !element.ariaLabel;
    return {
      width: page.documentElement.clientWidth,
      content_width: page.documentElement.scrollWidth,
      background: view.getComputedStyle(page.body).backgroundColor,
      sections: [...page.querySelectorAll('section')].map(section => section.id),
      headings: [...page.querySelectorAll('h1, h2, h3, h4')].map(heading => Number(heading.tagName[1])),
      requests: view.performance.getEntriesByType('resource').length,
      out_of_reach: [...page.body.querySelectorAll('*')].filter(scrolls).filter(isOutOfReach)
        .map(element => `${element.tagName} ${element.className}`),
    };
  });
  document.body.innerHTML = `<pre>${JSON.stringify(seen)}</pre>`;
});";

/// Returns the browser that `EXPERIMENTS_BROWSER` names.
fn chromium() -> Option<String> {
    let found = std::env::var("EXPERIMENTS_BROWSER").ok();
    if found.is_none() {
        println!("SKIPPED: EXPERIMENTS_BROWSER names no Chromium");
    }
    found
}

/// Opens a file and returns the browser's output.
fn open(chromium: &str, file: &Path, flags: &[&str]) -> String {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new(chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(flags)
        .arg(format!("file://{}", file.display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns a frame of the page with exact size, whatever the minimum width of a window, and with
/// its own colour scheme.
fn frame((width, height): (u32, u32), scheme: &str, part: &str) -> String {
    let style =
        format!("width: {width}px; height: {height}px; color-scheme: {scheme}; border: 0; display: block");
    format!("<iframe src=\"index.html{part}\" style=\"{style}\"></iframe>\n")
}

fn write_frames(file: &Path, frames: &str, script: &str) {
    let style = "body { margin: 0; overflow: hidden }";
    std::fs::write(file, format!("<!doctype html><style>{style}</style>{frames}<script>{script}</script>"))
        .unwrap();
}

#[test]
fn page_fits_its_width_and_is_reachable_by_keyboard() {
    let Some(chromium) = chromium() else { return };
    let folder = tempfile::tempdir().unwrap();
    write_page(folder.path(), &[]);
    let all = SIZES.map(|size| SCHEMES.map(|scheme| (size, scheme)));
    let frames: String =
        all.as_flattened().iter().map(|&(size, (scheme, _))| frame(size, scheme, "")).collect();
    let file = folder.path().join("frames.html");
    write_frames(&file, &frames, LOOK);
    let dom = open(&chromium, &file, &["--dump-dom"]);
    let json = dom
        .split_once("<pre>")
        .and_then(|(_, rest)| rest.split_once("</pre>"))
        .unwrap_or_else(|| panic!("{dom}"))
        .0;
    let seen: Vec<Seen> = serde_json::from_str(json).unwrap();
    assert_eq!(seen.len(), all.as_flattened().len());
    for (seen, &((width, _), (scheme, [red, green, blue]))) in seen.iter().zip(all.as_flattened()) {
        let at = format!("{width} pixels, {scheme}: {seen:?}");
        assert!(seen.width <= width && seen.content_width <= seen.width, "scrolls sideways at {at}");
        assert_eq!(seen.background, format!("rgb({red}, {green}, {blue})"), "{at}");
        assert_eq!(
            seen.sections,
            ["rests-on", "layers", "throughput", "limits", "plans", "partition", "qos"]
        );
        assert_eq!((seen.requests, &seen.out_of_reach[..]), (0, &[][..]), "{at}");
        assert_eq!(seen.headings[..2], [1, 2]);
        assert!(seen.headings.windows(2).all(|pair| pair[1] <= pair[0] + 1), "{at}");
    }
}

#[test]
fn page_is_drawn_in_its_colours() {
    let Some(chromium) = chromium() else { return };
    let folder = tempfile::tempdir().unwrap();
    write_page(folder.path(), &[]);
    for (size, (scheme, paper)) in SIZES.into_iter().flat_map(|size| SCHEMES.map(|scheme| (size, scheme))) {
        let (file, image) = (folder.path().join("frame.html"), folder.path().join("frame.png"));
        write_frames(&file, &frame(size, scheme, "#throughput"), "");
        let screenshot = format!("--screenshot={}", image.display());
        open(&chromium, &file, &[&screenshot, &format!("--window-size={},{}", size.0, size.1)]);
        let pixels = pixels(&image);
        let of_paper = pixels.iter().filter(|&&pixel| pixel == paper).count();
        // The page is not blank, and the figures have their colours.
        let share = of_paper as f64 / pixels.len() as f64;
        assert!((0.2..0.98).contains(&share), "{size:?} {scheme}: {share} of it is background");
        let is_blue = |[red, _, blue]: [u8; 3]| blue > red.saturating_add(60);
        let blue = pixels.iter().filter(|&&pixel| is_blue(pixel)).count();
        assert!(blue > 2000, "{size:?} {scheme}: {blue} blue pixels");
    }
}

/// Returns red, green and blue of all pixels.
fn pixels(image: &Path) -> Vec<[u8; 3]> {
    let mut reader = png::Decoder::new(std::fs::File::open(image).unwrap()).read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size()];
    let info = reader.next_frame(&mut bytes).unwrap();
    let pixels = bytes[..info.buffer_size()].chunks_exact(info.color_type.samples());
    pixels.map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect()
}
