//! Layer times of an A100 published with the original `DeepPool`, as observations.
//!
//! - Rows are matched to layers by position. The published backward time of a convolution or linear
//!   layer is charged to the following `ReLU`, so the two layers are one observation backward and
//!   two forward.
//! - A bottleneck of WRN-101-2 is one row, compared with the sum of its layers. The first
//!   convolution of the published network has no normalisation.
//! - The rows of Inception-V3 are convolutions without bias, and pools. They do not include the
//!   normalisation and activation that follow each convolution in this workspace's network.
//! - The backward pass of the last linear layer was not published.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use layer_graph::{Layer, LayerGraph, zoo};
use layer_profile::{Direction, Observations, PublishedProfile};
use serde::Deserialize;

/// Name of the network, file of its published times, and the profile in that file.
const NETWORKS: [(&str, &str, &str); 3] = [
    ("vgg16", "vgg16.json", "profile/A100_vgg.prof"),
    ("wrn-101-2", "wrn101_2.json", "profile/A100_wrn.prof"),
    ("inception-v3", "inception_v3.json", "profile/A100_inception.prof"),
];

#[derive(Deserialize)]
struct Document {
    records: Vec<Record>,
}

/// Published times of a layer.
#[derive(Deserialize)]
struct Record {
    source_file: String,
    layer_kind: String,
    batch: usize,
    input_dim: Vec<usize>,
    /// Absent in files of percentiles.
    forward_us: Option<f64>,
    backward_us: Option<f64>,
}

/// Returns all rows of the three networks. `source` describes them.
///
/// # Errors
/// If a file cannot be read, or does not match its network.
pub(super) fn observations(source: &str, folder: &Path) -> anyhow::Result<Observations> {
    let mut observations = Observations::new(source);
    for (model, file, profile) in NETWORKS {
        let network = zoo::model(model)?;
        let path = folder.join(file);
        let cannot_read = || format!("cannot read {}", path.display());
        let text = std::fs::read_to_string(&path).with_context(cannot_read)?;
        let document: Document = serde_json::from_str(&text).with_context(cannot_read)?;
        let mut batches = BTreeMap::<usize, Vec<&Record>>::new();
        for record in document.records.iter().filter(|record| record.source_file == profile) {
            batches.entry(record.batch).or_default().push(record);
        }
        for (batch, records) in batches {
            add(&mut observations, &network, batch, &records)
                .with_context(|| format!("{}: batch {batch}", path.display()))?;
        }
    }
    Ok(observations)
}

fn add(
    observations: &mut Observations,
    network: &LayerGraph,
    batch: usize,
    records: &[&Record],
) -> anyhow::Result<()> {
    let mut layers = network.layers().map(|(_, layer)| layer).peekable();
    let mut records = records.iter().peekable();
    while let Some(record) = records.next() {
        let first = layers.find(|layer| record.is_of(layer));
        let first = first.with_context(|| format!("no layer for a row of `{}`", record.layer_kind))?;
        ensure!(
            record.input_dim == first.input_shapes()[0].dims(),
            "the input of `{}` has other dimensions",
            first.name()
        );
        let mut covered = vec![first];
        if record.layer_kind == BOTTLENECK {
            let block = first.name().trim_end_matches("conv1");
            while layers.peek().is_some_and(|layer| layer.name().starts_with(block)) {
                covered.extend(layers.next());
            }
        }
        let row = first.name();
        let forward: Vec<_> = covered.iter().map(|&layer| (layer, Direction::Forward)).collect();
        observations.add(network.name(), row, batch, &forward, microseconds(record.forward_us)?);

        let mut backward = microseconds(record.backward_us)?;
        if let Some(relu) = records.next_if(|next| next.layer_kind.starts_with("ReLU")) {
            let layer = layers.find(|layer| relu.is_of(layer)).context("no layer for a row of a ReLU")?;
            let forward = microseconds(relu.forward_us)?;
            observations.add(network.name(), row, batch, &[(layer, Direction::Forward)], forward);
            backward += microseconds(relu.backward_us)?;
            covered.push(layer);
        } else if record.layer_kind == "linear" {
            // The backward pass of the last layer was charged to a loss that was not published.
            continue;
        }
        let work: Vec<_> = covered.iter().map(|&layer| (layer, Direction::Backward)).collect();
        observations.add(network.name(), row, batch, &work, backward);
    }
    Ok(())
}

/// Kind of the rows that cover a residual block.
const BOTTLENECK: &str = "ResnetBottleneck";

impl Record {
    /// Returns whether the row begins with a layer of this kind.
    fn is_of(&self, layer: &Layer) -> bool {
        if self.layer_kind == BOTTLENECK {
            return layer.name().strip_suffix("conv1").is_some_and(|block| block.ends_with('.'));
        }
        PublishedProfile::layer_label(&self.layer_kind) == Some(layer.kind().label())
    }
}

fn microseconds(us: Option<f64>) -> anyhow::Result<Duration> {
    let us = us.context("a row without the time of a pass")?;
    Duration::try_from_secs_f64(us / 1e6).context("a time that is none")
}

#[cfg(test)]
mod tests {
    use layer_profile::DeviceModel;

    use super::*;

    #[test]
    fn a100_model_is_within_8_percent_of_the_sums_of_published_layer_times() -> anyhow::Result<()> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/a100-profiles");
        if !folder.is_dir() {
            println!("SKIPPED: the published A100 profiles are not beside the workspace");
            return Ok(());
        }
        let errors = DeviceModel::named("a100")?.errors(&observations("published", &folder)?);
        let batches: Vec<_> = errors.iter().map(|network| network.whole.len()).collect();
        assert_eq!(batches, [9, 8, 23], "batches of VGG-16, WRN-101-2 and Inception-V3");
        for network in &errors {
            println!("{}: {:.3}, layers {:.3}", network.network, network.max_error(), network.median());
            assert!(
                network.max_error() < 0.08 && network.median() < 0.07,
                "{}: {:?}",
                network.network,
                network.whole
            );
        }
        Ok(())
    }
}
