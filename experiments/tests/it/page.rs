//! The page of all experiments.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// Options of a small network.
pub(crate) const SMALL: [&str; 6] = ["--model", "digits-cnn", "--batch", "64", "--gpus", "4"];

/// Runs all experiments on a small network into a folder, with more options, and returns the JSON
/// that the command prints. The command line does not name the folder.
pub(crate) fn write_page(folder: &Path, options: &[&str]) -> Vec<u8> {
    let output = Command::new(env!("CARGO_BIN_EXE_experiments"))
        .arg("all")
        .args(SMALL)
        .args(["--style", "paper", "--json", "--out", "."])
        .args(options)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

/// Files in a folder, by name.
pub(crate) fn files_in(folder: &Path) -> HashMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let visible = entries.filter(|entry| entry.file_type().unwrap().is_file());
    visible
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
        .collect()
}

/// Contents of files by name.
type Files = HashMap<String, Vec<u8>>;

/// Files and printed JSON of one run of all experiments, which the tests share.
pub(crate) fn shared() -> &'static (Files, Vec<u8>) {
    static SHARED: OnceLock<(Files, Vec<u8>)> = OnceLock::new();
    SHARED.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let json = write_page(folder.path(), &[]);
        (files_in(folder.path()), json)
    })
}

fn files() -> &'static HashMap<String, Vec<u8>> {
    &shared().0
}

fn csv_of(experiment: &str) -> &'static [u8] {
    &files()[&format!("{experiment}.csv")]
}

fn page() -> &'static str {
    std::str::from_utf8(&files()["index.html"]).unwrap()
}

/// Returns whether a layer of the plan with all splits is split.
fn has_splits() -> bool {
    let mut reader = csv::Reader::from_reader(csv_of("plans"));
    let mut rows = reader.deserialize::<HashMap<String, String>>().map(Result::unwrap);
    rows.any(|row| !row["split"].is_empty())
}

#[test]
fn page_is_self_contained_and_has_every_number() {
    let page = page();
    for outside in ["http://", "https://", "src=", "@import", "<script", "<link"] {
        let namespace = page.matches("http://www.w3.org/2000/svg").count();
        let found = page.matches(outside).count();
        assert!(found == 0 || outside == "http://" && found == namespace, "{outside} in the page");
    }
    for experiment in ["layers", "throughput", "limits", "plans", "partition", "qos"] {
        assert!(page.contains(&format!("<section id=\"{experiment}\"")), "{experiment}");
        assert!(page.contains(&format!("experiments -- {experiment} --model digits-cnn")), "its command");
        // Every record of the CSV file is a row of a table.
        for record in csv::Reader::from_reader(csv_of(experiment)).records() {
            let record = record.unwrap();
            let cells = record.iter().collect::<Vec<_>>();
            let (first, others) = (cells[0], cells[1..].join("</td><td>"));
            let row = format!("<tr><th scope=\"row\">{first}</th><td>{others}</td></tr>");
            assert!(page.contains(&row), "{row}");
        }
    }
    assert_eq!(page.matches("<svg").count(), 6 + usize::from(has_splits()));
    assert!(!page.contains("throughput-cluster"), "clusters are left out if another network is given");
    // Each bar and point of the figures has a title.
    let rows = |experiment: &str| {
        let mut reader = csv::Reader::from_reader(csv_of(experiment));
        reader.deserialize::<HashMap<String, String>>().map(Result::unwrap).collect::<Vec<_>>()
    };
    let bars = [rows("throughput"), rows("qos")].into_iter().flatten().map(|row| {
        let drawn = |field: &str| usize::from(row[field].parse::<f64>().unwrap() > 0.0);
        drawn("foreground_samples_per_s") + drawn("background_samples_per_s")
    });
    // There are two lines of BP+Col and one of BP.
    let by_limit = rows("limits").into_iter().map(|row| match row["mode"].as_str() {
        "bp+col" => 2,
        mode => usize::from(mode == "bp"),
    });
    // Plans with all splits are drawn if a layer is split.
    let is_drawn = |row: &HashMap<String, String>| row["all_splits"] == "false" || has_splits();
    let stretches = rows("plans").into_iter().filter(is_drawn).map(|row| row["ranks"].split(' ').count());
    let of_rows = bars.sum::<usize>() + by_limit.sum::<usize>() + stretches.sum::<usize>();
    let values = page.matches("<title>").count() - 1;
    assert_eq!(values, of_rows + rows("layers").len() + rows("partition").len());
}

#[test]
fn downloads_equal_the_files() {
    let page = page();
    let links = page.split("<a download=\"").skip(1).map(|link| {
        let (name, rest) = link.split_once("\" href=\"data:").unwrap();
        let (_, rest) = rest.split_once(";base64,").unwrap();
        (name, BASE64_STANDARD.decode(rest.split_once('"').unwrap().0).unwrap())
    });
    let mut names = Vec::new();
    for (name, content) in links {
        assert!(content == files()[name], "{name}");
        names.push(name);
    }
    let mut figures =
        vec!["layers", "throughput", "limits", "plans-digits-cnn", "partition-digits-cnn", "qos"];
    figures.extend(has_splits().then_some("plans-digits-cnn-all-splits"));
    let extensions: &[&str] = if cfg!(feature = "pdf") { &["svg", "pdf"] } else { &["svg"] };
    for name in figures.iter().flat_map(|name| extensions.iter().map(move |end| format!("{name}.{end}"))) {
        assert!(names.contains(&name.as_str()), "{name}");
    }
    assert_eq!(names.len(), 6 + extensions.len() * figures.len());
}

#[test]
fn page_states_the_origin_of_its_numbers() {
    let page = page();
    let (_, rest) = page.split_once("<section id=\"rests-on\"").unwrap();
    let (rest, sections) = rest.split_once("</section>").unwrap();
    for words in
        ["no section of this page", "device model a100 (modelled, ", "within", "link model", "Not modelled"]
    {
        assert!(rest.contains(words), "{words}");
    }
    // Each section begins with the origin, outside of folded parts.
    for section in sections.split("<section id=").skip(1) {
        let (_, shown) = section.split_once("<p>From: ").unwrap();
        let (line, _) = shown.split_once("</p>").unwrap();
        assert!(line.contains("device model a100"), "{line}");
    }
}

#[test]
fn elements_are_closed() {
    let page = page();
    for element in [
        "section", "table", "thead", "tbody", "tr", "th", "td", "svg", "details", "pre", "main", "div",
        "title",
    ] {
        let opened =
            page.matches(&format!("<{element}>")).count() + page.matches(&format!("<{element} ")).count();
        let closed = page.matches(&format!("</{element}>")).count();
        assert_eq!(opened, closed, "{element}");
    }
}
