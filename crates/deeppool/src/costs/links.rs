//! The default link model of a device.

use collectives::LinkModel;
use layer_profile::DataSheet;

use crate::Error;

/// Returns the default link model of `gpus` devices with the given name.
///
/// For a GPU with a data sheet it is the DGX of that GPU, or a pod of DGX hosts if one host has too
/// few GPUs. The name is the short name of the data sheet, such as `a100`, or the name that CUDA
/// reports. For a processor it is shared memory. `PCIe` cards have no default: their links depend
/// on the server.
///
/// # Errors
/// [`Error::UnknownLinks`] for any other device.
pub fn default_link(device: &str, gpus: usize) -> Result<LinkModel, Error> {
    let enough = |host: LinkModel, pod: fn() -> LinkModel| {
        if host.check_ranks(gpus).is_ok() { host } else { pod() }
    };
    match DataSheet::of_device(device).filter(|_| !is_card(device)) {
        Some(DataSheet::H100) => Ok(enough(LinkModel::dgx_h100(), LinkModel::dgx_h100_pod)),
        Some(DataSheet::H200) => Ok(enough(LinkModel::dgx_h200(), LinkModel::dgx_h100_pod)),
        Some(DataSheet::V100 | DataSheet::V100_32GB) => {
            Ok(enough(LinkModel::dgx1_v100(), LinkModel::dgx1_v100_pod))
        }
        Some(_) => Ok(enough(LinkModel::dgx_a100(), LinkModel::dgx_a100_pod)),
        None if matches!(device, "cpu-core" | "processor") || is_processor(device) => {
            Ok(LinkModel::threads_of_one_host())
        }
        None => Err(Error::UnknownLinks { device: device.into() }),
    }
}

/// Returns whether the name is that of a card for a slot, such as `NVIDIA A100-PCIE-40GB`, `NVIDIA
/// H100 PCIe` or `NVIDIA H100 NVL`.
fn is_card(device: &str) -> bool {
    let mut words = device.split(|letter: char| !letter.is_alphanumeric());
    words.any(|word| word.eq_ignore_ascii_case("pcie") || word == "NVL")
}

/// Returns whether the name is that of a processor. Engines add their number of threads to it: `AMD
/// EPYC 7763 64-Core Processor, 2 threads`.
fn is_processor(device: &str) -> bool {
    let count = device.rsplit_once(", ").and_then(|(_, threads)| threads.split_once(" thread"));
    count.is_some_and(|(count, plural)| count.parse::<usize>().is_ok() && matches!(plural, "" | "s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_the_links_of_their_kind() {
        let link = |device| default_link(device, 8).map(|link| link.name().to_owned()).ok();
        for (gpu, expected) in [
            ("a100", "dgx-a100"),
            ("v100", "dgx1-v100"),
            ("v100-32gb", "dgx1-v100"),
            ("h100", "dgx-h100"),
            ("h200", "dgx-h200"),
            ("NVIDIA A100-SXM4-80GB", "dgx-a100"),
            ("NVIDIA H100 80GB HBM3", "dgx-h100"),
            ("NVIDIA H200", "dgx-h200"),
            ("Tesla V100-SXM2-16GB", "dgx1-v100"),
        ] {
            assert_eq!(link(gpu).as_deref(), Some(expected), "{gpu}");
        }
        for (gpu, pod) in [
            ("v100", "dgx1-v100-pod"),
            ("a100", "dgx-a100-pod"),
            ("h100", "dgx-h100-pod"),
            ("h200", "dgx-h100-pod"),
        ] {
            assert_eq!(default_link(gpu, 9).map(|link| link.name().to_owned()).ok().as_deref(), Some(pod));
        }
        for processor in ["cpu-core", "x86_64, 1 thread", "Intel(R) Xeon(R) CPU @ 2.20GHz, 16 threads"] {
            assert_eq!(link(processor).as_deref(), Some("shared-memory"), "{processor}");
        }
        for card in [
            "NVIDIA A100-PCIE-40GB",
            "NVIDIA A100 80GB PCIe",
            "NVIDIA H100 PCIe",
            "NVIDIA H100 NVL",
            "Tesla V100-PCIE-16GB",
        ] {
            let error = default_link(card, 8).unwrap_err().to_string();
            assert!(error.contains(card) && error.contains("name a link model, one of "), "{error}");
        }
        for unknown in ["NVIDIA GH200 480GB", "NVIDIA A10", "my-h200", "board, many threads", ""] {
            assert_eq!(link(unknown), None, "{unknown}");
        }
    }
}
