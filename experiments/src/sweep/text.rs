//! Results of the experiment `sweep` as text.

use super::Sweep;
use super::findings::{AGREEMENT, ViolationCount};

/// Line on the origin of the numbers.
pub(super) const ORIGIN: &str =
    "layer times of device model a100 (modelled); each plan simulated alone; times within 1e-6 are the same";

impl Sweep {
    /// Formats the origin of the numbers, and the number of violations of each property.
    pub(super) fn printed(&self) -> String {
        let found = &self.findings;
        let percent = |part: f64| format!("{:.4}%", part * 100.0);
        let mut lines = vec![
            format!("Planned against simulated ({})", self.experiment),
            ORIGIN.into(),
            String::new(),
            format!("grid points: {}, without a plan within the limit: {}", found.pairs, found.without_plan),
            format!(
                "largest |simulated / planned - 1|: {} (law: at most {})",
                percent(found.disagreements.worst),
                percent(AGREEMENT)
            ),
        ];
        let counts = [
            ("planned and simulated farther apart than that", &found.disagreements),
            ("a looser limit is slower", &found.looser_slower),
            ("more GPUs are slower", &found.more_gpus_slower),
            ("slower than DP under a limit that it keeps", &found.slower_than_dp),
        ];
        lines.extend(counts.map(|(what, count)| line(what, count)));
        lines.push(format!("above the lower bound: {} at the median", percent(found.median_gap)));
        if !self.is_reproducible {
            lines.push("the time for proofs is limited: lower bounds depend on the machine".into());
        }
        lines.join("\n") + "\n"
    }
}

fn line(what: &str, count: &ViolationCount) -> String {
    let worst = match &count.worst_pair {
        Some(pair) if count.violations > 0 => format!("; at worst {:+.4}%: {pair}", count.worst * 100.0),
        _ => String::new(),
    };
    format!("{what}: {} of {}{worst}", count.violations, count.checked)
}
