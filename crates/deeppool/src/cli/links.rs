//! Which links go with a device.

use anyhow::bail;
use collectives::LinkModel;
use layer_profile::DataSheet;

/// The links between devices of this name, where no others are asked for: those of a DGX A100 for the GPUs of the data sheets,
/// under their short names or those that CUDA reports, and shared memory for processors.
pub(crate) fn default_link(device: &str) -> anyhow::Result<LinkModel> {
    if is_known_gpu(device) {
        Ok(LinkModel::dgx_a100())
    } else if device == "cpu-core" || is_processor(device) {
        Ok(LinkModel::shared_memory())
    } else {
        let names = LinkModel::names().join(", ");
        bail!("it is not known how devices such as `{device}` are linked: give --link NAME, one of {names}")
    }
}

/// Such as `h200`, `NVIDIA A100-SXM4-80GB` and `Tesla V100-SXM2-16GB`.
fn is_known_gpu(device: &str) -> bool {
    let mut words = device.split(|letter: char| !letter.is_alphanumeric());
    let by_cuda = matches!(words.next(), Some("NVIDIA" | "Tesla"));
    let has_sheet = |name: &str| DataSheet::named(name).is_ok();
    has_sheet(device) || (by_cuda && words.any(|word| has_sheet(&word.to_ascii_lowercase())))
}

/// Engines on a processor name it with their number of threads: `AMD EPYC 7763 64-Core Processor, 2 threads`.
fn is_processor(device: &str) -> bool {
    let count = device.rsplit_once(", ").and_then(|(_, threads)| threads.split_once(" thread"));
    count.is_some_and(|(count, plural)| count.parse::<usize>().is_ok() && matches!(plural, "" | "s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_the_links_of_their_kind() {
        let link = |device| default_link(device).map(|link| link.name().to_owned()).ok();
        for gpu in [
            "a100",
            "v100",
            "NVIDIA A100-SXM4-80GB",
            "NVIDIA H100 80GB HBM3",
            "NVIDIA H200",
            "Tesla V100-SXM2-16GB",
        ] {
            assert_eq!(link(gpu).as_deref(), Some("dgx-a100"), "{gpu}");
        }
        for processor in ["cpu-core", "x86_64, 1 thread", "Intel(R) Xeon(R) CPU @ 2.20GHz, 16 threads"] {
            assert_eq!(link(processor).as_deref(), Some("shared-memory"), "{processor}");
        }
        for unknown in ["NVIDIA GH200 480GB", "NVIDIA A10", "my-h200", "board, many threads", ""] {
            assert_eq!(link(unknown), None, "{unknown}");
        }
    }
}
