//! Reader of commands in documentation pages.

/// Returns the fenced blocks of a kind.
pub(crate) fn blocks(page: &str, kind: &str) -> Vec<String> {
    let fence = format!("```{kind}\n");
    let ends = |block: &str| block.split_once("```").unwrap().0.to_owned();
    page.split(&fence).skip(1).map(ends).collect()
}

/// Returns the commands in console blocks.
pub(crate) fn commands(page: &str) -> Vec<String> {
    let lines = blocks(page, "console").concat().replace("\\\n", " ");
    lines.lines().map(|line| line.strip_prefix("$ ").unwrap().to_owned()).collect()
}

/// Reads a file of the repository.
pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}
