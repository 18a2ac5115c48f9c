//! The machine that something was measured on.

use std::fmt;
use std::process::Command;

/// What stands with figures that were measured: where, and with which version of this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Machine {
    /// The processor's model.
    pub(crate) processor: String,
    /// Cores that this process may use.
    pub(crate) cores: usize,
    /// The commit of the sources, `-dirty` where they are changed; `unknown` outside of a clone.
    pub(crate) commit: String,
}

impl Machine {
    /// This one.
    pub(crate) fn here() -> Self {
        let (processor, cores) = hardware();
        Self { processor, cores, commit: commit().unwrap_or_else(|| "unknown".into()) }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processor, cores, commit } = self;
        let plural = if *cores == 1 { "" } else { "s" };
        write!(f, "{processor}, {cores} core{plural}, commit {commit}")
    }
}

/// The model of this machine's processor, and the cores that this process may use.
pub(crate) fn hardware() -> (String, usize) {
    let table = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processor = processor(&table).unwrap_or(std::env::consts::ARCH).to_owned();
    (processor, std::thread::available_parallelism().map_or(1, usize::from))
}

/// The model of the first processor of the table `/proc/cpuinfo`. Other systems have no such table.
fn processor(table: &str) -> Option<&str> {
    let mut fields = table.lines().filter_map(|line| line.split_once(':'));
    let (_, model) = fields.find(|(name, _)| name.trim() == "model name")?;
    Some(model.trim())
}

/// As git describes the folder of the sources.
fn commit() -> Option<String> {
    let output = Command::new("git")
        .args(["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty", "--exclude=*"])
        .output()
        .ok()?;
    let described = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !described.is_empty()).then_some(described)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_the_first_of_the_table() {
        let table = "processor\t: 0\nmodel\t\t: 143\nmodel name\t: A Processor @ 2 GHz \nmodel name\t: B\n";
        assert_eq!(processor(table), Some("A Processor @ 2 GHz"));
        assert_eq!(processor("processor : 0\n"), None);
    }
}
