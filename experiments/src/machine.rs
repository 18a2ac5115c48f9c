//! Description of the machine on which something was measured.

use std::fmt;
use std::process::Command;

/// Origin of measured values: the machine and the version of this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Machine {
    /// Model name of the processor.
    pub(crate) processor: String,
    /// Number of cores that this process may use.
    pub(crate) cores: usize,
    /// Git commit of the sources, with `-dirty` if they are modified; `unknown` outside a clone.
    pub(crate) commit: String,
}

impl Machine {
    /// Reads the processor and the cores of this machine, and the commit of the sources.
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

/// Returns the model name of this machine's processor and the number of cores that this process may
/// use. The name is the architecture on systems without `/proc/cpuinfo`.
pub(crate) fn hardware() -> (String, usize) {
    let table = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processor = processor(&table).unwrap_or(std::env::consts::ARCH).to_owned();
    (processor, std::thread::available_parallelism().map_or(1, usize::from))
}

/// Returns the model name of the first processor in `/proc/cpuinfo`. Other systems have no such
/// file.
fn processor(table: &str) -> Option<&str> {
    let mut fields = table.lines().filter_map(|line| line.split_once(':'));
    let (_, model) = fields.find(|(name, _)| name.trim() == "model name")?;
    Some(model.trim())
}

/// Returns the output of `git describe` in the folder of the sources.
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
    fn processor_is_first_of_cpuinfo() {
        let table = "processor\t: 0\nmodel\t\t: 143\nmodel name\t: A Processor @ 2 GHz \nmodel name\t: B\n";
        assert_eq!(processor(table), Some("A Processor @ 2 GHz"));
        assert_eq!(processor("processor : 0\n"), None);
    }
}
