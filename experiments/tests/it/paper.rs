//! Figures in style `paper`: SVG and PDF.

use std::path::Path;
use std::process::Command;

fn run(experiment: &str, folder: &Path, style: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_experiments"))
        .args([
            experiment,
            "--model",
            "digits-cnn",
            "--batch",
            "64",
            "--gpus",
            "4",
            "--style",
            style,
            "--out",
        ])
        .arg(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let is_for_paper = style == "paper";
    assert_eq!(text.contains(".pdf"), is_for_paper && cfg!(feature = "pdf"), "{text}");
    assert_eq!(text.contains("--features pdf"), is_for_paper && cfg!(not(feature = "pdf")), "{text}");
}

#[cfg(feature = "pdf")]
fn contains(content: &[u8], words: &str) -> bool {
    content.windows(words.len()).any(|window| window == words.as_bytes())
}

#[cfg(feature = "pdf")]
#[test]
fn pdf_has_its_provenance_and_equal_bytes_in_every_run() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [first, second] = folders.each_ref().map(|folder| {
        run("throughput", folder.path(), "paper");
        run("partition", folder.path(), "paper");
        let files = ["throughput.svg", "throughput.pdf", "partition-digits-cnn.pdf"];
        files.map(|name| std::fs::read(folder.path().join(name)).unwrap())
    });
    assert!(first == second, "two runs give the same bytes");
    let [_, pdf, _] = first;
    assert!(pdf.starts_with(b"%PDF-"));
    assert!(pdf.trim_ascii_end().ends_with(b"%%EOF"));
    for words in [
        "/Title (Throughput of one training job and of background jobs (simulated))",
        "/Subject (simulated on 4 GPUs: layer times of device model a100",
        concat!("/Creator (experiments ", env!("CARGO_PKG_VERSION"), ")"),
        // Text is text, in an embedded font.
        "DejaVuSans",
        "/FontFile2",
    ] {
        assert!(contains(&pdf, words), "{words}");
    }
    assert!(!contains(&pdf, "CreationDate"));
}

#[cfg(not(feature = "pdf"))]
#[test]
fn without_feature_pdf_there_is_svg_and_a_note() {
    let folder = tempfile::tempdir().unwrap();
    run("throughput", folder.path(), "paper");
    assert!(folder.path().join("throughput.svg").exists());
    assert!(!folder.path().join("throughput.pdf").exists());
}

#[test]
fn style_screen_writes_no_pdf() {
    let folder = tempfile::tempdir().unwrap();
    run("throughput", folder.path(), "screen");
    assert!(folder.path().join("throughput.svg").exists());
    assert!(!folder.path().join("throughput.pdf").exists());
}
