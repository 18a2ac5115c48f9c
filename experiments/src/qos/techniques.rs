use super::settings::{BURST, DATA_PARALLEL, LONG_PIECES, ONE_QUEUE, SLOW_HOST, SMALL_KERNELS};
use crate::row::Row;

/// A technique of sharing, and where it is judged.
pub(super) struct Technique {
    /// The policies without it and with it.
    without: &'static str,
    with: &'static str,
    matters: Finding,
    does_not: Finding,
}

/// A setting, and why a technique matters in it, or does not.
struct Finding {
    setting: &'static str,
    why: &'static str,
}

const fn at(setting: &'static str, why: &'static str) -> Finding {
    Finding { setting, why }
}

/// In the order in which the default adds them, and then those that it does without.
pub(super) const TECHNIQUES: [Technique; 10] = [
    Technique {
        without: "naive",
        with: "+ stream priority",
        matters: at(BURST, "kernels of both jobs fill a GPU: whose blocks go first decides who waits"),
        does_not: at(
            SMALL_KERNELS,
            "small kernels find room beside each other: what slows the foreground is the memory's bandwidth, which has no priorities",
        ),
    },
    Technique {
        without: "+ stream priority",
        with: "+ captured graphs",
        matters: at(
            SLOW_HOST,
            "one host launches for both jobs: kernel by kernel it cannot keep the background's stream full, and a graph is one launch",
        ),
        does_not: at(BURST, "kernels are longer than it takes to launch them, so the host is ahead anyway"),
    },
    Technique {
        without: "+ captured graphs",
        with: "+ bounded pieces",
        matters: at(
            ONE_QUEUE,
            "nothing passes a launch whose kernels have not all begun: the shorter that is, the sooner comes the foreground's",
        ),
        does_not: at(
            BURST,
            "each stream has a queue of its own: the foreground runs between two waves of thread blocks of any piece",
        ),
    },
    Technique {
        without: "+ bounded pieces",
        with: "+ pieces in flight",
        matters: at(ONE_QUEUE, "every piece that is launched already delays the foreground"),
        does_not: at(BURST, "pieces that wait in a queue of their own do not delay the foreground"),
    },
    Technique {
        without: "+ pieces in flight",
        with: "+ foreground ahead",
        matters: at(
            ONE_QUEUE,
            "what the foreground launches ahead stands before the background's pieces: less of it lets them in, at the foreground's cost",
        ),
        does_not: at(BURST, "four tasklets hide what launching takes as well as a whole iteration does"),
    },
    Technique {
        without: "+ foreground ahead",
        with: "+ not beside compute",
        matters: at(
            SMALL_KERNELS,
            "half of the time is idle: the background has enough of it, and takes no bandwidth from compute",
        ),
        does_not: at(
            LONG_PIECES,
            "a kernel that began in idle time runs on for milliseconds when the foreground is back",
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
            "a GPU that is idle waits for a receive, which is queued all the while: nothing is left for the background",
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
    /// Whether it is judged in this setting by this policy.
    pub(super) fn asks(&self, setting: &str, policy: &str) -> bool {
        let judged = self.matters.setting == setting || self.does_not.setting == setting;
        judged && (self.without == policy || self.with == policy)
    }

    /// Its name, and what it changes in both settings, with the reason.
    pub(super) fn findings(&self, rows: &[Row]) -> Vec<String> {
        let change = |finding: &Finding, does: &str| {
            let row = |policy: &str| {
                rows.iter().find(|row| {
                    row.setting.as_deref() == Some(finding.setting) && row.policy.as_deref() == Some(policy)
                })
            };
            let (without, with) = (row(self.without)?, row(self.with)?);
            let figures = |row: &Row| {
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
