//! Published tables of nccl-tests, read from `shared/data/published` beside the workspace, and
//! their division into rows to which the built-in link models are fitted and rows that check them.

use std::path::{Path, PathBuf};

use collectives::{Algorithm, CollectiveKind, LinkModel};

/// Table of all sources, by row.
const TABLES: &str = "nccl_tests.csv";
/// Table of VIA-Research/vTrain: all-reduces on 2 to 8 GPUs of a host of A100 and of V100.
const BY_GPUS: &str = "nccl_allreduce_by_gpus.csv";

/// Tables to which the built-in link models are fitted: name of the link model, level of links,
/// start of the source, number of GPUs and maximum number of bytes. All other rows check the
/// models.
///
/// A machine is fitted to one source that measured it from few to many bytes, and, if the bandwidth
/// of a group depends on its size, to further group sizes. Of A100 hosts these are 8 GPUs (all
/// collectives) and the smallest group; of V100 hosts the groups that one, two and six rings
/// connect, of which two is a special case (five GPUs). The groups between them and all other
/// sources are held out. Machines with a single table have no rows to check them.
pub(crate) const FITTED: [(&str, usize, &str, usize, u64); 12] = [
    ("dgx-a100", 0, "microsoft/superbenchmark", 8, u64::MAX),
    ("dgx-a100", 0, "vtrain", 2, u64::MAX),
    ("dgx1-v100", 0, "vtrain", 2, u64::MAX),
    ("dgx1-v100", 0, "vtrain", 5, u64::MAX),
    ("dgx1-v100", 0, "vtrain", 8, u64::MAX),
    ("dgx-h100", 0, "aws-samples/awsome-distributed-training (aws-batch)", 8, u64::MAX),
    ("aws-p5", 1, "aws-samples/awsome-distributed-training", 16, u64::MAX),
    ("aws-p4de", 1, "aws-samples/awsome-distributed-training", 16, u64::MAX),
    // Larger sizes of this table are erratic.
    ("dgx-a100-pod", 1, "OCI GPU-cluster tutorial", 16, 8 << 20),
    ("slingshot-200g", 0, "CSCS Alps", 2, u64::MAX),
    ("ec2-25g-efa", 0, "aws-samples/aws-do-eks (karpenter)", 2, u64::MAX),
    ("ec2-25g-tcp", 0, "aws-samples/aws-do-eks (karpenter)", 2, u64::MAX),
];

/// Parts of notes that name a fault of the measured system.
const FAULTS: [&str; 3] = ["badly tuned", "erratic", "too slow"];

/// Measured time of one size.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// Repository or page.
    pub(crate) source: String,
    pub(crate) gpus: usize,
    pub(crate) collective: CollectiveKind,
    pub(crate) bytes: u64,
    /// Time out of place, in microseconds.
    pub(crate) us: f64,
    pub(crate) note: String,
    /// Name of the built-in link model of the system.
    pub(crate) link: &'static str,
}

impl Row {
    /// Returns the time by a link model, in microseconds.
    pub(crate) fn modelled_us(&self, link: &LinkModel) -> f64 {
        link.cost(self.collective, self.gpus, self.bytes).as_secs_f64() * 1e6
    }

    /// Returns the built-in link model of the system, without reductions in the switch if they were
    /// disabled.
    pub(crate) fn link_model(&self) -> LinkModel {
        let link = LinkModel::named(self.link).expect("a built-in link model");
        let only_rings = ["NVLS_ENABLE=0", "NVLS off"].iter().any(|part| self.note.contains(part));
        if only_rings { link.with_algorithm(Algorithm::Ring) } else { link }
    }

    /// Relative error of the built-in link model.
    pub(crate) fn relative_error(&self) -> f64 {
        self.modelled_us(&self.link_model()) / self.us - 1.0
    }

    /// Index in [`FITTED`] of the table with this row.
    pub(crate) fn fitted_table(&self) -> Option<usize> {
        FITTED.iter().position(|&(link, _, source, gpus, max_bytes)| {
            link == self.link
                && self.source.starts_with(source)
                && gpus == self.gpus
                && self.bytes <= max_bytes
        })
    }

    /// Returns whether the note names a fault.
    pub(crate) fn is_faulty(&self) -> bool {
        FAULTS.iter().any(|fault| self.note.contains(fault))
    }
}

/// Returns the folder of the tables, beside a checkout that has it.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/published")
}

/// Reads all rows of both files. `None`, with a message, without the folder.
pub(crate) fn rows() -> Option<Vec<Row>> {
    let folder = folder();
    if !folder.is_dir() {
        println!("SKIPPED: there are no published tables in {}", folder.display());
        return None;
    }
    let tables = |name: &str| {
        let text = std::fs::read_to_string(folder.join(name)).expect("a readable table");
        let mut lines = text.lines().filter(|line| !line.starts_with('#')).map(fields);
        let header = lines.next().expect("a header");
        lines.map(|line| header.iter().cloned().zip(line).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    let mut rows = Vec::new();
    for line in tables(TABLES) {
        let of = |name: &str| value(&line, name);
        let collective = match of("collective") {
            "all_reduce" => CollectiveKind::AllReduce,
            "all_gather" => CollectiveKind::AllGather,
            "reduce_scatter" => CollectiveKind::ReduceScatter,
            "broadcast" => CollectiveKind::Broadcast,
            "sendrecv" => CollectiveKind::Send,
            "alltoall" => CollectiveKind::AllToAll,
            other => panic!("{other}"),
        };
        let hosts = number(of("hosts"));
        rows.push(Row {
            source: of("source").into(),
            gpus: number(of("gpus")),
            collective,
            bytes: number(of("size_bytes")),
            us: number(of("oop_us")),
            note: of("note").into(),
            link: link_of(of("system"), of("gpu"), hosts, of("network")),
        });
    }
    for line in tables(BY_GPUS) {
        let of = |name: &str| value(&line, name);
        rows.push(Row {
            source: "vtrain".into(),
            gpus: number(of("gpus")),
            collective: CollectiveKind::AllReduce,
            bytes: number(of("size_bytes")),
            us: number(of("oop_us")),
            note: String::new(),
            link: link_of("", &of("gpu").to_uppercase(), 1, ""),
        });
    }
    Some(rows)
}

/// Returns the name of the built-in link model of a system.
fn link_of(system: &str, gpu: &str, hosts: usize, network: &str) -> &'static str {
    match (hosts, gpu.get(..4).unwrap_or_default()) {
        (1, "V100") => "dgx1-v100",
        (1, "A100" | "A800") => "dgx-a100",
        (1, "H100") => "dgx-h100",
        (1, "H200") => "dgx-h200",
        (_, "V100") => "dgx1-v100-ib100",
        _ if system.starts_with("AWS p4d") => "aws-p4de",
        _ if system.starts_with("AWS p5") => "aws-p5",
        (_, "A100") => "dgx-a100-pod",
        (_, "H100" | "H200") => "dgx-h100-pod",
        (_, "GH20") => "slingshot-200g",
        _ if network.contains("EFA") => "ec2-25g-efa",
        _ if network.contains("TCP") => "ec2-25g-tcp",
        _ => panic!("no link model for {system}"),
    }
}

/// Returns the fields of a line of CSV.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            _ => fields.last_mut().expect("a field").push(letter),
        }
    }
    fields
}

fn value<'a>(line: &'a [(String, String)], name: &str) -> &'a str {
    &line.iter().find(|(column, _)| column == name).expect(name).1
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().ok().expect(text)
}
