//! GPU-sharing techniques and their effects.

use super::settings::{BURST, DATA_PARALLEL, LONG_PIECES, ONE_QUEUE, SLOW_HOST, SMALL_KERNELS};
use crate::row::ReportRow;

/// A GPU-sharing technique, with a setting in which it matters and one in which it does not.
pub(super) struct Technique {
    /// Names of the policies without and with the technique.
    without: &'static str,
    with: &'static str,
    matters: TechniqueEffect,
    does_not: TechniqueEffect,
}

/// A setting, and the reason why a technique matters in it or does not.
struct TechniqueEffect {
    setting: &'static str,
    why: &'static str,
}

const fn at(setting: &'static str, why: &'static str) -> TechniqueEffect {
    TechniqueEffect { setting, why }
}

/// Techniques: first those that the default policy adds to the policy `naive`, in the order of
/// addition, then those that it does not use.
pub(super) const TECHNIQUES: [Technique; 10] = [
    Technique {
        without: "naive",
        with: "+ stream priority",
        matters: at(BURST, "kernels of both jobs fill a GPU: whose blocks go first decides who waits"),
        does_not: at(
            SMALL_KERNELS,
            "small kernels run side by side: contention for memory bandwidth, which has no priorities, \
             slows the foreground",
        ),
    },
    Technique {
        without: "+ stream priority",
        with: "+ captured graphs",
        matters: at(
            SLOW_HOST,
            "one host launches for both jobs: kernel by kernel it cannot keep the background's stream \
             full, but a graph is one launch",
        ),
        does_not: at(BURST, "kernels are longer than it takes to launch them, so the host is ahead anyway"),
    },
    Technique {
        without: "+ captured graphs",
        with: "+ bounded pieces",
        matters: at(
            ONE_QUEUE,
            "a launch waits until all kernels of earlier launches have begun: after shorter pieces the \
             foreground begins sooner",
        ),
        does_not: at(
            BURST,
            "each stream has its own queue: the foreground runs between two waves of thread blocks of \
             any piece",
        ),
    },
    Technique {
        without: "+ bounded pieces",
        with: "+ pieces in flight",
        matters: at(ONE_QUEUE, "every piece that is launched already delays the foreground"),
        does_not: at(BURST, "pieces in another queue do not delay the foreground"),
    },
    Technique {
        without: "+ pieces in flight",
        with: "+ foreground ahead",
        matters: at(
            ONE_QUEUE,
            "launches of the foreground queue up before the background's pieces: with fewer of them the \
             background runs more, at the foreground's cost",
        ),
        does_not: at(BURST, "four tasklets hide the launch time as well as a whole iteration does"),
    },
    Technique {
        without: "+ foreground ahead",
        with: "+ not beside compute",
        matters: at(
            SMALL_KERNELS,
            "half of the time is idle: it suffices for the background, which takes no bandwidth from compute",
        ),
        does_not: at(
            LONG_PIECES,
            "a kernel that began in idle time runs for milliseconds after the foreground is back",
        ),
    },
    Technique {
        without: "+ not beside compute",
        with: "+ gap fitting",
        matters: at(BURST, "a piece that would end after the gap is not launched in it"),
        does_not: at(DATA_PARALLEL, "there are no gaps to fit into, and nothing is launched"),
    },
    Technique {
        without: "default",
        with: "default, withheld beside communication",
        matters: at(
            BURST,
            "an idle GPU waits for a receive, which is queued all the time: no time is left for the \
             background",
        ),
        does_not: at(DATA_PARALLEL, "the background runs beside nothing, with it or without"),
    },
    Technique {
        without: "default",
        with: "default, micro-batches of 2",
        matters: at(
            LONG_PIECES,
            "kernels of 2 samples are short enough to fit into gaps that those of 64 overrun",
        ),
        does_not: at(BURST, "kernels of 8 samples fit already: smaller ones only use the GPU less well"),
    },
    Technique {
        without: "default",
        with: "feedback",
        matters: at(
            ONE_QUEUE,
            "estimates know nothing of a shared queue; the foreground's slow-down is measured",
        ),
        does_not: at(BURST, "estimates are right: the foreground is hardly ever slow"),
    },
];

impl Technique {
    /// Returns whether the technique's findings need the row of a policy in a setting, both given
    /// by name.
    pub(super) fn uses(&self, setting: &str, policy: &str) -> bool {
        let judged = self.matters.setting == setting || self.does_not.setting == setting;
        judged && (self.without == policy || self.with == policy)
    }

    /// Returns the technique's name, and its effect in both settings with the reasons. Settings
    /// without rows are left out.
    pub(super) fn findings(&self, rows: &[ReportRow]) -> Vec<String> {
        let change = |finding: &TechniqueEffect, does: &str| {
            let row = |policy: &str| {
                rows.iter().find(|row| {
                    row.setting.as_deref() == Some(finding.setting) && row.policy.as_deref() == Some(policy)
                })
            };
            let (without, with) = (row(self.without)?, row(self.with)?);
            let figures = |row: &ReportRow| {
                let slowdown =
                    |figure: Option<f64>| figure.map_or_else(|| "-".into(), |figure| format!("{figure:.3}"));
                let (median, p99) = (row.foreground_slowdown_median, row.foreground_slowdown_p99);
                format!(
                    "{} (p99 {}) with {:.0} BG samples/s",
                    slowdown(median),
                    slowdown(p99),
                    row.background_samples_per_s
                )
            };
            let (setting, why) = (finding.setting, finding.why);
            let (without, with) = (figures(without), figures(with));
            Some(format!("    {does:8} {setting}: FG slowdown {without} -> {with}.\n             {why}."))
        };
        let heading = format!("  {} (without it: {})", self.with.trim_start_matches("+ "), self.without);
        let findings = [change(&self.matters, "matters"), change(&self.does_not, "does not")];
        std::iter::once(heading).chain(findings.into_iter().flatten()).collect()
    }
}
