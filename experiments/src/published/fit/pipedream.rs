//! Convolutions and linear layers of a V100 in FP32 measured by `PipeDream`'s profiler
//! (`layers_pipedream.csv.gz`), as observations.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use layer_graph::{Conv2d, LayerGraph, LayerKind, Linear, Shape};
use layer_profile::{Direction, Observations};

use crate::published::sheet::Sheet;

const FILE: &str = "layers_pipedream.csv.gz";
/// Networks whose layers are used: `VGG-16`, AlexNet and `ResNeXt` are left out of the fit.
const NETWORKS: [&str; 4] = ["resnet18", "resnet50", "densenet121", "squeezenet1_0"];
/// Time that hooks and synchronisation add to a pass of a layer.
const OVERHEAD_MS: f64 = 0.07;
/// Minimum time of a pass: the overhead is a large part of shorter ones.
const MIN_MS: f64 = 0.5;

/// Adds the passes of the layers.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn add(observations: &mut Observations, folder: &Path) -> anyhow::Result<()> {
    let columns = ["network", "batch", "node", "layer", "fw_ms", "bw_ms", "activation_bytes"];
    let sheet = Sheet::open(folder, FILE, &columns)?;
    let mut sheet = sheet.with_context(|| format!("{}: no such file", folder.join(FILE).display()))?;
    while sheet.next()? {
        // The second node may hold the wait for the input.
        if !NETWORKS.contains(&sheet.text("network")?) || sheet.count("node")? <= 2 {
            continue;
        }
        let batch = sheet.count("batch")?;
        let Some((kind, input)) = layer(&sheet, batch)? else { continue };
        let mut net = LayerGraph::new("PipeDream", input)?;
        let id = net.add("layer", kind, [net.input()]).map_err(|error| sheet.bad("layer", error))?;
        for (pass, column) in [(Direction::Forward, "fw_ms"), (Direction::Backward, "bw_ms")] {
            let ms: f64 = sheet.text(column)?.parse().map_err(|_| sheet.bad(column, "expected a number"))?;
            if ms >= MIN_MS {
                let time = Duration::from_secs_f64((ms - OVERHEAD_MS) / 1e3);
                let network = format!("PipeDream's {}", sheet.text("network")?);
                let row = format!("line {}, {column}", sheet.line());
                observations.add(&network, &row, batch, &[(net.layer(id), pass)], time);
            }
        }
    }
    Ok(())
}

/// Returns the layer of a row, such as `Conv2d(64, 128, (3, 3), (2, 2), (1, 1))`, with the shape of
/// its input. `None` for other kinds of layers.
fn layer(sheet: &Sheet, batch: usize) -> anyhow::Result<Option<(LayerKind, Shape)>> {
    let text = sheet.text("layer")?;
    let numbers: Vec<usize> =
        text.split(|letter: char| !letter.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
    let outputs = sheet.count("activation_bytes")? / 4 / batch.max(1);
    if text.starts_with("Conv2d(") && !text.contains("groups") {
        // The first digit is that of the name.
        let [_, inputs, channels, height, width, down, across, ref padding @ ..] = numbers[..] else {
            return Ok(None);
        };
        let mut conv = Conv2d::new(channels, 1).without_bias();
        (conv.kernel, conv.stride) = ([height, width], [down, across]);
        conv.padding = padding.try_into().unwrap_or([0, 0]);
        let side = ((outputs / channels.max(1)) as f64).sqrt().round() as usize;
        return Ok(Some((conv.into(), Shape::image(inputs, side * down, side * across))));
    }
    if let (true, [inputs, outputs, ..]) = (text.starts_with("Linear("), &numbers[..]) {
        return Ok(Some((Linear::new(*outputs).into(), Shape::features(*inputs))));
    }
    Ok(None)
}
