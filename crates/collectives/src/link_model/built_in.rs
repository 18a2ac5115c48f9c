//! Built-in link models of common machines and networks. A *host* is a machine, a *rank* one of its
//! GPUs, processes or threads.

use std::time::Duration;

use super::{Level, LinkModel};
use crate::{Error, Result};

const BUILT_IN: [fn() -> LinkModel; 10] = [
    LinkModel::dgx_a100,
    LinkModel::dgx_h100,
    LinkModel::dgx_h200,
    LinkModel::dgx_a100_pod,
    LinkModel::dgx_h100_pod,
    LinkModel::a100_100gbe,
    LinkModel::ethernet_10g,
    LinkModel::ethernet_25g,
    LinkModel::ethernet_100g,
    LinkModel::threads_of_one_host,
];

/// Fraction of payload in a TCP stream over IPv4 and full Ethernet frames. A frame of 1500 bytes
/// takes 1538 bytes on the wire with its preamble and gap; 1448 of them are payload (20 bytes are
/// IP's, 32 are TCP's with time stamps, 38 are Ethernet's).
const TCP_PAYLOAD: f64 = 1448.0 / 1538.0;
/// Fraction of NVLink 3's data-sheet bandwidth that all-reduces achieve: 232.54 of 300 GB/s, the
/// bus bandwidth of nccl-tests on 8 A100 of one host
/// (<https://github.com/NVIDIA/nccl-tests/issues/175>).
const NVLINK_3_ACHIEVED: f64 = 232.54 / 300.0;
/// Fraction of NVLink 4's data-sheet bandwidth that all-reduces achieve: 370 of 450 GB/s, after the
/// protocol's overhead, according to one of NCCL's authors
/// (<https://github.com/NVIDIA/nccl-tests/issues/212>).
const NVLINK_4_ACHIEVED: f64 = 370.0 / 450.0;
/// Fraction of InfiniBand HDR's bandwidth that all-reduces achieve: at best 96 of 100 GB/s, with
/// four adapters a host of 8 A100 (<https://github.com/NVIDIA/nccl-tests/issues/119>). Assumed for
/// NDR, too.
const INFINIBAND_ACHIEVED: f64 = 0.96;

/// Number of GPUs of a host with NVSwitch.
const GPUS_PER_HOST: usize = 8;
/// Number of hosts of the largest DGX SuperPOD with DGX A100 in its reference architecture: 7
/// scalable units of 20 hosts.
const A100_POD_HOSTS: usize = 140;
/// Number of hosts of the largest DGX SuperPOD with DGX H100: 64 scalable units of 32 hosts.
const H100_POD_HOSTS: usize = 2_048;

impl LinkModel {
    /// Returns the model of eight A100 GPUs on NVSwitch in one DGX A100.
    ///
    /// The bandwidth is the data sheet's (600 GB/s a GPU in both directions, so 300 GB/s in one)
    /// times 0.775, the fraction that nccl-tests achieve
    /// (<https://github.com/NVIDIA/nccl-tests/issues/175>). Startup time (10 us an operation) and
    /// latency (1.5 us a step) are assumptions: a small ring all-reduce on 8 GPUs takes 10 + 14 x
    /// 1.5 = 31 us, within NCCL's usual range of 20 to 40 us. (The cost model of the DeepPool
    /// artifact charges 40 us for any transfer.)
    #[must_use]
    pub fn dgx_a100() -> Self {
        nvswitch("dgx-a100", 300e9 * NVLINK_3_ACHIEVED)
    }

    /// Returns the model of eight H100 GPUs on NVSwitch in one DGX H100.
    ///
    /// The bandwidth is the data sheet's (fourth-generation NVLink: 900 GB/s a GPU in both
    /// directions, so 450 GB/s in one) times 0.822, the fraction that NCCL achieves
    /// (<https://github.com/NVIDIA/nccl-tests/issues/212>). Startup time and latency are assumed to
    /// be those of [`dgx_a100`](LinkModel::dgx_a100). Reductions in the switch (NVLink SHARP),
    /// which move about half of the bytes, are not modelled.
    #[must_use]
    pub fn dgx_h100() -> Self {
        nvswitch("dgx-h100", 450e9 * NVLINK_4_ACHIEVED)
    }

    /// Returns the model of eight H200 GPUs on NVSwitch in one DGX H200. Its data sheet specifies
    /// the links of [`dgx_h100`](LinkModel::dgx_h100): 900 GB/s a GPU.
    #[must_use]
    pub fn dgx_h200() -> Self {
        nvswitch("dgx-h200", 450e9 * NVLINK_4_ACHIEVED)
    }

    /// Returns the model of up to 140 [DGX A100](LinkModel::dgx_a100) with eight adapters of 200
    /// Gbit/s each (InfiniBand HDR), one a GPU: the compute fabric of a DGX SuperPOD (NVIDIA DGX
    /// SuperPOD reference architecture, 2020), without oversubscription.
    ///
    /// The bandwidth of an adapter is the standard's, 25 GB/s in one direction, times 0.96, the
    /// best fraction that nccl-tests achieved (<https://github.com/NVIDIA/nccl-tests/issues/119>).
    /// Startup time (10 us) and latency (2.5 us) are assumptions.
    #[must_use]
    pub fn dgx_a100_pod() -> Self {
        let adapter = infiniband(200e9).with_adapters(8).with_max_members(Some(A100_POD_HOSTS));
        of_hosts("dgx-a100-pod", Self::dgx_a100(), adapter)
    }

    /// Returns the model of up to 2,048 [DGX H100](LinkModel::dgx_h100) with eight adapters of 400
    /// Gbit/s each (InfiniBand NDR; NVIDIA DGX SuperPOD reference architecture with DGX H100,
    /// 2023). The rest is as in [`dgx_a100_pod`](LinkModel::dgx_a100_pod).
    #[must_use]
    pub fn dgx_h100_pod() -> Self {
        let adapter = infiniband(400e9).with_adapters(8).with_max_members(Some(H100_POD_HOSTS));
        of_hosts("dgx-h100-pod", Self::dgx_h100(), adapter)
    }

    /// Returns the model of any number of hosts of eight A100 GPUs, connected inside as in a [DGX
    /// A100](LinkModel::dgx_a100), with one port of [100 Gbit/s Ethernet](LinkModel::ethernet_100g)
    /// a host, as in many cloud instances.
    #[must_use]
    pub fn a100_100gbe() -> Self {
        of_hosts("a100-100gbe", Self::dgx_a100(), Self::ethernet_100g())
    }

    /// Returns the model of any number of hosts with one rank and one 10 Gbit/s Ethernet port each,
    /// under TCP.
    ///
    /// The bandwidth is the standard's (IEEE 802.3ae) times the fraction of payload in a full
    /// frame, 94.1%: 1.18 GB/s in each direction. Startup time (20 us) and latency (25 us, through
    /// both systems' kernels and one switch) are assumptions.
    #[must_use]
    pub fn ethernet_10g() -> Self {
        ethernet("ethernet-10g", 10e9)
    }

    /// Returns the model of any number of hosts with one rank and one 25 Gbit/s Ethernet port each
    /// (IEEE 802.3by): 2.94 GB/s of payload. The rest is as in
    /// [`ethernet_10g`](LinkModel::ethernet_10g).
    #[must_use]
    pub fn ethernet_25g() -> Self {
        ethernet("ethernet-25g", 25e9)
    }

    /// Returns the model of any number of hosts with one rank and one 100 Gbit/s Ethernet port each
    /// (IEEE 802.3ba): 11.8 GB/s of payload, assuming that TCP saturates the port. The rest is as
    /// in [`ethernet_10g`](LinkModel::ethernet_10g).
    #[must_use]
    pub fn ethernet_100g() -> Self {
        ethernet("ethernet-100g", 100e9)
    }

    /// Returns the model of ranks that are threads of one process and share the host's memory.
    ///
    /// Assumptions: 1 us startup time, 0.8 us latency, 8 GB/s. Measured all-reduces of 1 KiB to 4
    /// MiB by this crate's threads, two to four of them on two busy cores of an Intel Xeon, differ
    /// from the model by 27% in the median and by at most 44%, because one bandwidth cannot
    /// represent both caches and memory. On the same cores when idle, the fit is 6 us startup time
    /// and 14 GB/s. For another machine, measure with `coll-bench --ranks 2,3,4 --backend threads
    /// --wait park -o measured.json` and fit with `coll-bench fit measured.json`.
    #[must_use]
    pub fn threads_of_one_host() -> Self {
        let level = Level::new(Duration::from_micros(1), Duration::from_nanos(800), 8e9);
        Self::of("shared-memory", level).with_relative_error(0.44)
    }

    /// Returns the built-in model of this name, one of [`LinkModel::names`].
    ///
    /// # Errors
    /// [`Error::UnknownLink`], with the known names.
    pub fn named(name: &str) -> Result<Self> {
        BUILT_IN
            .iter()
            .map(|build| build())
            .find(|link| link.name == name)
            .ok_or_else(|| Error::UnknownLink { name: name.to_owned(), known: Self::names() })
    }

    /// Returns the names of the built-in models.
    #[must_use]
    pub fn names() -> Vec<String> {
        BUILT_IN.iter().map(|build| build().name).collect()
    }
}

fn nvswitch(name: &str, bandwidth_bytes_per_s: f64) -> LinkModel {
    let (startup, latency) = (Duration::from_micros(10), Duration::from_nanos(1_500));
    LinkModel::of(name, Level::new(startup, latency, bandwidth_bytes_per_s))
        .with_max_members(Some(GPUS_PER_HOST))
}

/// Returns the model of hosts with one rank and one InfiniBand adapter each.
fn infiniband(bits_per_s: f64) -> LinkModel {
    let (startup, latency) = (Duration::from_micros(10), Duration::from_nanos(2_500));
    LinkModel::of("infiniband", Level::new(startup, latency, bits_per_s / 8.0 * INFINIBAND_ACHIEVED))
}

fn ethernet(name: &str, bits_per_s: f64) -> LinkModel {
    let (startup, latency) = (Duration::from_micros(20), Duration::from_micros(25));
    LinkModel::of(name, Level::new(startup, latency, bits_per_s / 8.0 * TCP_PAYLOAD))
}

fn of_hosts(name: &str, host: LinkModel, network: LinkModel) -> LinkModel {
    host.joined_by(GPUS_PER_HOST, network).with_name(name)
}
