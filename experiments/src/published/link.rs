//! Link models of the machines of published measurements.

use std::time::Duration;

use collectives::LinkModel;

use super::machine::Gpu;

/// Number of GPUs of a DGX-2.
const DGX2_GPUS: usize = 16;
/// Bandwidth of the six NVLink 2 of a V100 in one direction, in bytes per second.
const NVLINK_2_BYTES_PER_S: f64 = 150e9;
/// Fraction of NVLink's bandwidth that all-reduces achieve through NVSwitch: that of 8 A100
/// (<https://github.com/NVIDIA/nccl-tests/issues/175>).
const ACHIEVED: f64 = 232.54 / 300.0;

/// Links between the GPUs of one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Host {
    /// Eight V100 in a hybrid cube mesh, as in a DGX-1.
    CubeMesh,
    /// Sixteen V100 on NVSwitch, as in a DGX-2.
    Dgx2,
    /// Eight A100 or H100 on NVSwitch.
    NvSwitch,
}

impl Host {
    /// Returns the usual host of a GPU.
    pub(super) fn of(gpu: Gpu) -> Self {
        match gpu {
            Gpu::V100 => Self::CubeMesh,
            Gpu::V100OfDgx2 => Self::Dgx2,
            Gpu::A100 | Gpu::A10080Gb | Gpu::H100 => Self::NvSwitch,
        }
    }
}

/// Links between hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Fabric {
    /// One adapter of 100 Gb/s a host.
    OneEdr,
    /// Four adapters of 100 Gb/s a host, as in a DGX-1.
    FourEdr,
    /// 1,600 Gb/s a host, as the eight adapters of 200 Gb/s of a DGX A100.
    EightHdr,
    /// The number of adapters is not stated.
    Unknown,
}

/// Returns the link model of `gpus` GPUs: inside a host if `fabric` is `None`, and between hosts
/// otherwise.
///
/// The links of a DGX-2 are assumed: the bandwidth of NVLink 2 times the fraction that 8 A100
/// achieve, a startup time of 10 us and a latency of 1.5 us.
///
/// # Errors
/// The reason in words if there is no model, for a table of what cannot be predicted.
pub(super) fn link_of(
    gpu: Gpu,
    host: Host,
    fabric: Option<Fabric>,
    gpus: usize,
) -> Result<LinkModel, String> {
    let name = match (fabric, host, gpu) {
        (Some(Fabric::Unknown), ..) => return Err("the links between hosts are not stated".into()),
        (Some(_), Host::Dgx2, _) => return Err("no link model of several DGX-2".into()),
        (Some(Fabric::OneEdr), Host::CubeMesh, _) => "dgx1-v100-ib100",
        (Some(_), Host::CubeMesh, _) => "dgx1-v100-pod",
        (Some(_), Host::NvSwitch, Gpu::H100) => "dgx-h100-pod",
        (Some(_), Host::NvSwitch, _) => "dgx-a100-pod",
        (None, Host::Dgx2, _) => return dgx2(gpus),
        (None, Host::CubeMesh, _) => "dgx1-v100",
        (None, Host::NvSwitch, Gpu::H100) => "dgx-h100",
        (None, Host::NvSwitch, _) => "dgx-a100",
    };
    let link = LinkModel::named(name).map_err(|error| error.to_string())?;
    link.check_ranks(gpus).map_err(|error| error.to_string())?;
    Ok(link)
}

fn dgx2(gpus: usize) -> Result<LinkModel, String> {
    let (startup, latency) = (Duration::from_micros(10), Duration::from_nanos(1_500));
    let link = LinkModel::new("dgx-2 (assumed)", startup, latency, ACHIEVED * NVLINK_2_BYTES_PER_S);
    let link = link.map_err(|error| error.to_string())?.with_max_members(Some(DGX2_GPUS));
    link.check_ranks(gpus).map_err(|error| error.to_string())?;
    Ok(link)
}
