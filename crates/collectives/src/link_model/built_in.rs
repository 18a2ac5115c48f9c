//! Links whose figures are known, or assumed.

use std::time::Duration;

use super::{Level, LinkModel};
use crate::{Error, Result};

const BUILT_IN: [fn() -> LinkModel; 7] = [
    LinkModel::dgx_a100,
    LinkModel::dgx_h100,
    LinkModel::dgx_h200,
    LinkModel::ethernet_10g,
    LinkModel::ethernet_25g,
    LinkModel::ethernet_100g,
    LinkModel::shared_memory,
];

/// Of a stream over TCP and IPv4 in full Ethernet frames: 1448 of the 1538 bytes that a frame of 1500 takes on the wire
/// with its preamble and gap are payload (20 bytes are IP's, 32 TCP's with its time stamps, 38 Ethernet's).
const TCP_PAYLOAD: f64 = 1448.0 / 1538.0;

impl LinkModel {
    /// Eight A100 GPUs on NVSwitch in one DGX A100.
    ///
    /// The bandwidth is the data sheet's: 600 GB/s a GPU in both directions, so 300 GB/s in one. Startup (10 us) and
    /// latency (1.5 us) are assumptions: together they give 31 us for a small all-reduce on 8 GPUs, in the range of
    /// 20 to 40 us usual for NCCL. (The cost model of the DeepPool artifact charges 40 us for any transfer.)
    #[must_use]
    pub fn dgx_a100() -> Self {
        nvswitch("dgx-a100", 300e9)
    }

    /// Eight H100 GPUs on NVSwitch in one DGX H100.
    ///
    /// The bandwidth is the data sheet's (fourth-generation NVLink): 900 GB/s a GPU in both directions, so 450 GB/s in
    /// one. Startup and latency are assumed to be those of [`dgx_a100`](LinkModel::dgx_a100). Reductions in the switch
    /// (NVLink SHARP), which move about half of the bytes, are not modelled.
    #[must_use]
    pub fn dgx_h100() -> Self {
        nvswitch("dgx-h100", 450e9)
    }

    /// Eight H200 GPUs on NVSwitch in one DGX H200, whose data sheet gives the links of
    /// [`dgx_h100`](LinkModel::dgx_h100): 900 GB/s a GPU.
    #[must_use]
    pub fn dgx_h200() -> Self {
        nvswitch("dgx-h200", 450e9)
    }

    /// One 10 Gbit/s Ethernet port a host, under TCP.
    ///
    /// The bandwidth is the standard's (IEEE 802.3ae) times the share of a full frame that is payload, 94.1%: 1.18 GB/s
    /// in each direction. Startup (20 us) and latency (25 us, through both systems' kernels and one switch) are
    /// assumptions.
    #[must_use]
    pub fn ethernet_10g() -> Self {
        ethernet("ethernet-10g", 10e9)
    }

    /// One 25 Gbit/s Ethernet port a host (IEEE 802.3by): 2.94 GB/s of payload; all else as in
    /// [`ethernet_10g`](LinkModel::ethernet_10g).
    #[must_use]
    pub fn ethernet_25g() -> Self {
        ethernet("ethernet-25g", 25e9)
    }

    /// One 100 Gbit/s Ethernet port a host (IEEE 802.3ba): 11.8 GB/s of payload; all else as in
    /// [`ethernet_10g`](LinkModel::ethernet_10g). That TCP fills it is an assumption as well.
    #[must_use]
    pub fn ethernet_100g() -> Self {
        ethernet("ethernet-100g", 100e9)
    }

    /// Ranks that are threads of one process.
    ///
    /// Round figures (1 us startup, 0.8 us latency, 8 GB/s) near those that `coll-bench fit` found for all-reduces of 1 KiB
    /// to 4 MiB by this crate's threads, two to four of them on two cores of an Intel Xeon beside other programs: 27% off in
    /// the median, 44% at worst, since one bandwidth cannot tell caches from memory. On the same cores to themselves 14 GB/s and
    /// 6 us of startup fit, and on another machine they are assumptions: `coll-bench --ranks 2,3,4 --backend threads
    /// --wait park -o measured.json` measures there, and `coll-bench fit measured.json` fits.
    #[must_use]
    pub fn shared_memory() -> Self {
        Self::of(
            "shared-memory",
            Level {
                startup: Duration::from_micros(1),
                latency: Duration::from_nanos(800),
                bandwidth_bytes_per_s: 8e9,
            },
        )
    }

    /// A built-in link by its name: one of [`LinkModel::names`].
    ///
    /// # Errors
    /// A name that is not known; the error lists those that are.
    pub fn named(name: &str) -> Result<Self> {
        BUILT_IN
            .iter()
            .map(|build| build())
            .find(|link| link.name == name)
            .ok_or_else(|| Error::UnknownLink { name: name.to_owned(), known: Self::names() })
    }

    /// The names of the built-in links.
    #[must_use]
    pub fn names() -> Vec<String> {
        BUILT_IN.iter().map(|build| build().name).collect()
    }
}

fn nvswitch(name: &str, bandwidth_bytes_per_s: f64) -> LinkModel {
    let (startup, latency) = (Duration::from_micros(10), Duration::from_nanos(1_500));
    LinkModel::of(name, Level { startup, latency, bandwidth_bytes_per_s })
}

fn ethernet(name: &str, bits_per_s: f64) -> LinkModel {
    let (startup, latency) = (Duration::from_micros(20), Duration::from_micros(25));
    LinkModel::of(name, Level { startup, latency, bandwidth_bytes_per_s: bits_per_s / 8.0 * TCP_PAYLOAD })
}
