//! Repeats the fits of the built-in link models to published tables of nccl-tests, and prints their
//! constants in the format `deeppool/link/v1`.
//!
//!     cargo run --release -p collectives --example fit_links
//!
//! Each table contributes the mean of |e| + 4 e^2 over its rows, where e is the logarithm of
//! modelled / measured time. A pattern search minimizes the sum over the tables of a link: it
//! multiplies one constant at a time by a factor, and keeps what is better. It starts at rounded
//! constants of NCCL's tuning model and finds a local minimum.

#[expect(dead_code, reason = "the tests use more of it")]
#[path = "../tests/published/mod.rs"]
mod tables;

use collectives::LinkModel;
use tables::{FITTED, Row, rows};

/// Algorithm, protocol, startup time, latency (both in microseconds) and fraction of the bandwidth
/// at which the search starts. Zeros and fractions of 1 are fixed, and so are latencies between
/// hosts.
type Start = (&'static str, &'static str, f64, f64, f64);

/// Function from a constant to the fractions of the bandwidth of groups of 2, 3, ... members.
type ByMembers = fn(f64) -> Vec<f64>;

/// Link model to fit.
struct Link {
    name: &'static str,
    /// Model of the hosts that it connects. `None` for a single level.
    host: Option<&'static str>,
    /// Bandwidth in bytes per second at which the search starts, and whether it is fitted.
    bandwidth: (f64, bool),
    adapters: usize,
    /// Fractions of the bandwidth by a fitted constant, with its start.
    by_members: Option<(ByMembers, f64)>,
    variants: &'static [Start],
}

const LINKS: [Link; 8] = [
    Link {
        name: "dgx-a100",
        host: None,
        bandwidth: (240e9, true),
        adapters: 1,
        by_members: Some((|part| (2..=8).map(|members| 1.0 - part / f64::from(members)).collect(), 0.33)),
        variants: &[
            ("ring", "ll", 34.0, 0.05, 0.12),
            ("ring", "ll128", 45.0, 1.5, 0.4),
            ("ring", "simple", 55.0, 2.5, 0.85),
            ("ring", "simple", 100.0, 0.0, 1.0),
        ],
    },
    Link {
        name: "dgx1-v100",
        host: None,
        bandwidth: (6.0 * 22.0e9, true),
        adapters: 1,
        // Rings of GPUs 0..2 to 0..8. Those of five GPUs pass GPU 0 twice.
        by_members: Some((|part| [1.0, 2.0, 4.0, 2.0 * part, 2.0, 4.0, 6.0].map(|r| r / 6.0).to_vec(), 0.8)),
        variants: &[("ring", "simple", 20.0, 5.0, 1.0)],
    },
    Link {
        name: "dgx-h100",
        host: None,
        bandwidth: (370e9, false),
        adapters: 1,
        by_members: None,
        variants: &[
            ("ring", "ll", 13.0, 0.05, 0.3),
            ("ring", "ll128", 18.0, 0.3, 0.6),
            ("switch", "simple", 60.0, 0.0, 0.74),
        ],
    },
    Link {
        name: "aws-p5",
        host: Some("dgx-h100"),
        bandwidth: (50e9, false),
        adapters: 8,
        by_members: None,
        variants: &[
            ("tree", "ll", 45.0, 5.0, 0.02),
            ("tree", "ll128", 60.0, 8.5, 0.1),
            ("tree", "simple", 100.0, 14.0, 0.9),
        ],
    },
    Link {
        name: "aws-p4de",
        host: Some("dgx-a100"),
        bandwidth: (12.5e9, false),
        adapters: 4,
        by_members: None,
        variants: &[
            ("tree", "ll", 100.0, 5.0, 0.02),
            ("tree", "ll128", 150.0, 8.5, 0.1),
            ("tree", "simple", 200.0, 14.0, 0.5),
            ("tree", "simple", 300.0, 14.0, 0.9),
        ],
    },
    Link {
        name: "dgx-a100-pod",
        host: Some("dgx-a100"),
        bandwidth: (24e9, false),
        adapters: 8,
        by_members: None,
        variants: &[("tree", "ll", 0.0, 5.0, 0.01), ("tree", "ll128", 60.0, 8.5, 0.2)],
    },
    Link {
        name: "slingshot-200g",
        host: None,
        bandwidth: (25e9, false),
        adapters: 1,
        by_members: None,
        variants: &[("tree", "ll128", 250.0, 8.5, 0.3), ("tree", "simple", 300.0, 14.0, 1.0)],
    },
    Link {
        name: "ec2-25g-efa",
        host: None,
        bandwidth: (3.125e9, false),
        adapters: 1,
        by_members: None,
        variants: &[
            ("tree", "ll", 60.0, 5.0, 0.2),
            ("tree", "ll128", 70.0, 8.5, 0.4),
            ("tree", "simple", 200.0, 14.0, 0.9),
        ],
    },
];

/// The link of the same instances over TCP.
const TCP: Link = Link { name: "ec2-25g-tcp", ..LINKS[7] };

/// Number of passes over the constants, factor of the first changes as a logarithm, and that of the
/// last ones.
const PASSES: usize = 400;
const FIRST_STEP: f64 = 0.3;
const LAST_STEP: f64 = 1e-3;

impl Link {
    /// Returns the constants at which the search starts, and for each whether it is fixed.
    fn start(&self) -> Vec<(f64, bool)> {
        let (bandwidth, fitted) = self.bandwidth;
        let of_group = self.by_members.map_or((1.0, true), |(_, start)| (start, false));
        let mut constants = vec![(bandwidth, !fitted), of_group];
        for &(algorithm, _, startup, latency, achieved) in self.variants {
            let fixed_latency = latency == 0.0 || algorithm == "tree";
            constants.extend([
                (startup, startup == 0.0),
                (latency, fixed_latency),
                (achieved, achieved >= 1.0),
            ]);
        }
        constants
    }

    /// Returns the level as a document, and the model of the link with it. `None` for invalid
    /// constants, such as a fraction above 1.
    fn model(&self, constants: &[f64]) -> Option<(String, LinkModel)> {
        let by_members = self.by_members.map_or_else(Vec::new, |(fractions, _)| fractions(constants[1]));
        let variants = self.variants.iter().zip(constants[2..].chunks_exact(3)).map(|(start, constants)| {
            format!(
                r#"{{"algorithm": "{}", "protocol": "{}", "startup_us": {}, "latency_us": {},
"achieved": {}}}"#,
                start.0, start.1, constants[0], constants[1], constants[2]
            )
        });
        let variants = variants.collect::<Vec<_>>().join(",\n");
        let document = format!(
            r#"{{"schema": "deeppool/link/v1", "name": "fitted", "levels": [{{
"startup_us": 0, "latency_us": 0,
"bandwidth_bytes_per_s": {}, "achieved_by_members": {by_members:?}, "variants": [
{variants}]}}]}}"#,
            constants[0]
        );
        let level = LinkModel::from_json(&document).ok()?.with_adapters(self.adapters);
        let link = match self.host {
            None => level,
            Some(host) => LinkModel::named(host).ok()?.between_hosts(8, level).ok()?.pipelined(),
        };
        Some((document, link))
    }

    /// Fits the constants to the tables. Returns the document of the level, the loss, and the loss
    /// of the built-in model.
    fn fit(&self, rows: &[Row]) -> Option<(String, f64, f64)> {
        let tables: Vec<Vec<&Row>> = by_collective(self.name, rows);
        let loss_of = |link: &LinkModel| tables.iter().map(|table| loss(link, table)).sum::<f64>();
        let loss_at = |logarithms: &[f64]| {
            let constants: Vec<f64> = logarithms.iter().map(|logarithm| logarithm.exp()).collect();
            self.model(&constants).map_or(f64::INFINITY, |(_, link)| loss_of(&link))
        };
        let start = self.start();
        let mut at: Vec<f64> = start.iter().map(|(constant, _)| constant.ln()).collect();
        let mut steps: Vec<f64> =
            start.iter().map(|&(_, fixed)| if fixed { 0.0 } else { FIRST_STEP }).collect();
        let mut best = loss_at(&at);
        for _ in 0..PASSES {
            for index in 0..at.len() {
                let step = steps[index];
                if step == 0.0 {
                    continue;
                }
                let better = [step, -step].into_iter().find_map(|change| {
                    let mut changed = at.clone();
                    changed[index] += change;
                    let loss = loss_at(&changed);
                    (loss < best - 1e-9).then_some((changed, loss))
                });
                if let Some((changed, loss)) = better {
                    (at, best) = (changed, loss);
                    steps[index] *= 1.3;
                } else {
                    steps[index] *= 0.6;
                }
            }
            if steps.iter().all(|&step| step < LAST_STEP) {
                break;
            }
        }
        let constants: Vec<f64> = at.iter().map(|logarithm| logarithm.exp()).collect();
        let built_in = LinkModel::named(self.name).ok()?;
        Some((self.model(&constants)?.0, best, loss_of(&built_in)))
    }
}

/// Returns the tables to which a link is fitted, by table and collective.
fn by_collective<'a>(link: &str, rows: &'a [Row]) -> Vec<Vec<&'a Row>> {
    let mut tables = Vec::new();
    for index in (0..FITTED.len()).filter(|&index| FITTED[index].0 == link) {
        for collective in collectives::CollectiveKind::ALL {
            let of_table = |row: &&Row| row.fitted_table() == Some(index) && row.collective == collective;
            let table: Vec<&Row> = rows.iter().filter(of_table).collect();
            if !table.is_empty() {
                tables.push(table);
            }
        }
    }
    tables
}

fn loss(link: &LinkModel, table: &[&Row]) -> f64 {
    let of_row = |row: &&Row| {
        let error = (row.modelled_us(link) / row.us).ln();
        error.abs() + 4.0 * error * error
    };
    table.iter().map(of_row).sum::<f64>() / table.len() as f64
}

fn main() {
    let Some(rows) = rows() else { return };
    for link in LINKS.iter().chain([&TCP]) {
        match link.fit(&rows) {
            Some((document, fitted, built_in)) => {
                println!("{}: loss {fitted:.4}, built in {built_in:.4}\n{document}\n", link.name);
            }
            None => println!("{}: no valid constants", link.name),
        }
    }
}
