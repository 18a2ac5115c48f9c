//! Built-in link models of common machines and networks. A *host* is a machine, a *rank* one of its
//! GPUs, processes or threads.

use std::time::Duration;

use super::protocol::{Protocol, Variant};
use super::{Algorithm, Level, LinkModel};
use crate::{Error, Result};

const BUILT_IN: [fn() -> LinkModel; 18] = [
    LinkModel::dgx_a100,
    LinkModel::dgx_h100,
    LinkModel::dgx_h200,
    LinkModel::dgx1_v100,
    LinkModel::dgx_a100_pod,
    LinkModel::dgx_h100_pod,
    LinkModel::dgx1_v100_pod,
    LinkModel::dgx1_v100_ib100,
    LinkModel::aws_p4de,
    LinkModel::aws_p5,
    LinkModel::a100_100gbe,
    LinkModel::slingshot_200g,
    LinkModel::ec2_25g_efa,
    LinkModel::ec2_25g_tcp,
    LinkModel::ethernet_10g,
    LinkModel::ethernet_25g,
    LinkModel::ethernet_100g,
    LinkModel::threads_of_one_host,
];

/// Fraction of payload in a TCP stream over IPv4 and full Ethernet frames. A frame of 1500 bytes
/// takes 1538 bytes on the wire with its preamble and gap; 1448 of them are payload (20 bytes are
/// IP's, 32 are TCP's with time stamps, 38 are Ethernet's).
const TCP_PAYLOAD: f64 = 1448.0 / 1538.0;
/// Bandwidth of large rings of A100 on NVSwitch in bytes per second, of 300 GB/s in the data sheet.
const A100_BYTES_PER_S: f64 = 239.4e9;
/// Fractions of it that rings of 2 to 8 A100 achieve: `1 - 0.336 / members`.
const A100_BY_MEMBERS: [f64; 7] = [0.832, 0.888, 0.916, 0.933, 0.944, 0.952, 0.958];
/// Rings on NVLink 3 and NVSwitch.
const A100_VARIANTS: [Variant; 4] = [
    variant(Protocol::LowLatency, Algorithm::Ring, 34.0, 0.1, 0.0961),
    variant(Protocol::LowLatency128, Algorithm::Ring, 43.1, 2.59, 0.418),
    variant(Protocol::Simple, Algorithm::Ring, 33.6, 6.89, 0.907),
    variant(Protocol::Simple, Algorithm::Ring, 106.0, 0.0, 1.0),
];
/// Bandwidth of rings of H100 on NVSwitch in bytes per second: 370 of 450 GB/s, after the
/// protocol's overhead, according to one of NCCL's authors
/// (<https://github.com/NVIDIA/nccl-tests/issues/212>).
const H100_BYTES_PER_S: f64 = 370e9;
/// Rings on NVLink 4, and reductions in the NVSwitch. The startup time of the full-bandwidth ring
/// is that of the A100.
const H100_VARIANTS: [Variant; 4] = [
    variant(Protocol::LowLatency, Algorithm::Ring, 15.2, 0.18, 0.389),
    variant(Protocol::LowLatency128, Algorithm::Ring, 28.0, 0.01, 0.709),
    variant(Protocol::Simple, Algorithm::Switch, 65.8, 0.0, 0.695),
    variant(Protocol::Simple, Algorithm::Ring, 106.0, 0.0, 1.0),
];
/// Bandwidth of one ring of V100 in bytes per second, of 25 GB/s in the data sheet: a link in each
/// direction.
const V100_RING_BYTES_PER_S: f64 = 22.58e9;
/// Number of rings of GPUs 0 to 7 of a DGX-1.
const V100_RINGS: f64 = 6.0;
/// Fractions of the bandwidth of six rings that GPUs `0..2` to `0..8` of a DGX-1 achieve: 1, 2, 4,
/// 2, 2 and 4 rings. Those of five GPUs pass GPU 0 twice and achieve 0.822 of two rings.
const V100_BY_MEMBERS: [f64; 7] =
    [1.0 / 6.0, 2.0 / 6.0, 4.0 / 6.0, 0.822 * 2.0 / 6.0, 2.0 / 6.0, 4.0 / 6.0, 1.0];
/// Rings on NVLink 2. The variant of the lowest latency is that of the A100.
const V100_VARIANTS: [Variant; 2] = [
    variant(Protocol::LowLatency, Algorithm::Ring, 34.0, 0.1, 0.171),
    variant(Protocol::Simple, Algorithm::Ring, 15.1, 7.93, 1.0),
];
/// Latency of a hop between hosts in microseconds, by protocol: those of trees in NCCL's own tuning
/// model (`src/graph/tuning.cc`).
const HOP_US: [f64; 3] = [5.0, 8.5, 14.0];
/// Fraction of InfiniBand HDR's bandwidth that all-reduces achieve: at best 96 of 100 GB/s, with
/// four adapters a host of 8 A100 (<https://github.com/NVIDIA/nccl-tests/issues/119>). Assumed for
/// EDR and NDR, too.
const INFINIBAND_ACHIEVED: f64 = 0.96;
/// Bandwidth of a host with the protocol LL over InfiniBand or RoCE, in bytes per second.
const INFINIBAND_LL_BYTES_PER_S: f64 = 2.3e9;

/// Number of GPUs of a host with NVSwitch.
const GPUS_PER_HOST: usize = 8;
/// Number of hosts of the largest DGX SuperPOD with DGX A100 in its reference architecture: 7
/// scalable units of 20 hosts.
const A100_POD_HOSTS: usize = 140;
/// Number of hosts of the largest DGX SuperPOD with DGX H100: 64 scalable units of 32 hosts.
const H100_POD_HOSTS: usize = 2_048;

impl LinkModel {
    /// Returns the model of eight V100 GPUs in one DGX-1, with NVLink 2 in a hybrid cube mesh.
    ///
    /// GPUs have one or two links to four others, and none to the rest. The bandwidth of a group is
    /// that of the rings that fit on its links: one ring of GPUs 0 and 1, two of 0 to 2, four of 0
    /// to 3, two of 0 to 4 and of 0 to 5, four of 0 to 6, and six of all, with 22.6 GB/s each. A
    /// group of `n` GPUs is modelled as GPUs `0..n`, in the order of the devices. Other groups may
    /// have other links: GPUs 0 and 3 have two.
    ///
    /// Fitted to nccl-tests of all-reduces of 1 MiB to 1 GiB on 2, 5 and 8 GPUs
    /// (VIA-Research/vTrain). On 4 and 7 GPUs, which were not fitted, the median error is 3% and
    /// nine tenths of the errors are within 5%. NCCL is slower than the model by up to 27% for 5 to
    /// 13 MiB on 8 GPUs. Smaller messages are assumed to start as on a
    /// [DGX A100](LinkModel::dgx_a100).
    #[must_use]
    pub fn dgx1_v100() -> Self {
        let mut level = level_of(V100_RINGS * V100_RING_BYTES_PER_S, &V100_VARIANTS);
        level.by_members = V100_BY_MEMBERS.to_vec();
        host("dgx1-v100", level).with_relative_error(0.05)
    }

    /// Returns the model of eight A100 GPUs on NVSwitch in one DGX A100.
    ///
    /// Fitted to nccl-tests of 8 GPUs, 4 bytes to 8 GiB (all-reduce, all-gather, reduce-scatter and
    /// broadcast; test data of microsoft/superbenchmark), and to all-reduces of 1 MiB to 1 GiB on 2
    /// GPUs (VIA-Research/vTrain). Rings achieve 229 GB/s on 8 GPUs, of 300 GB/s in the data sheet.
    ///
    /// The median error of tables that were not fitted, on 2 to 8 GPUs of four other sources, is
    /// 4%, and nine tenths of the errors are within 13%. The sources differ by more for 2 to 16
    /// MiB: an all-reduce of 4 MiB on 8 GPUs takes 95 to 135 us in them.
    #[must_use]
    pub fn dgx_a100() -> Self {
        let mut level = level_of(A100_BYTES_PER_S, &A100_VARIANTS);
        level.by_members = A100_BY_MEMBERS.to_vec();
        host("dgx-a100", level).with_relative_error(0.13)
    }

    /// Returns the model of eight H100 GPUs on NVSwitch in one DGX H100.
    ///
    /// All-reduces of many bytes are reduced in the switch (NVLS). Fitted to nccl-tests of
    /// all-reduces of 8 bytes to 16 GiB on 8 GPUs of an AWS p5.48xlarge
    /// (aws-samples/awsome-distributed-training). The bandwidth of rings, 370 of 450 GB/s, is that
    /// of NCCL's authors (<https://github.com/NVIDIA/nccl-tests/issues/212>).
    ///
    /// Of a table of 8 H200, which was not fitted, times from 4 MiB differ by at most 19%, and
    /// those of 4 to 8 GPUs at 8 GiB by at most 6%. The same table has 39 us below 1 MiB, where the
    /// model has 16 to 23 us: its program calls NCCL from Python.
    #[must_use]
    pub fn dgx_h100() -> Self {
        nvswitch_4("dgx-h100")
    }

    /// Returns the model of eight H200 GPUs on NVSwitch in one DGX H200. Its data sheet specifies
    /// the links of [`dgx_h100`](LinkModel::dgx_h100): 900 GB/s a GPU in both directions.
    #[must_use]
    pub fn dgx_h200() -> Self {
        // A few rows below 2 MiB take up to twice as long.
        nvswitch_4("dgx-h200").with_relative_error(0.5)
    }

    /// Returns the model of any number of [DGX-1](LinkModel::dgx1_v100) with four adapters of 100
    /// Gbit/s each (InfiniBand EDR), as in the data sheet of the DGX-1. The network is modelled as
    /// in [`dgx_a100_pod`](LinkModel::dgx_a100_pod).
    #[must_use]
    pub fn dgx1_v100_pod() -> Self {
        of_hosts("dgx1-v100-pod", Self::dgx1_v100(), infiniband(100e9, 4))
    }

    /// Returns the model of any number of hosts of eight V100 GPUs, connected inside as in a
    /// [DGX-1](LinkModel::dgx1_v100), with one adapter of 100 Gbit/s a host (InfiniBand EDR). The
    /// network is modelled as in [`dgx_a100_pod`](LinkModel::dgx_a100_pod).
    #[must_use]
    pub fn dgx1_v100_ib100() -> Self {
        of_hosts("dgx1-v100-ib100", Self::dgx1_v100(), infiniband(100e9, 1))
    }

    /// Returns the model of up to 140 [DGX A100](LinkModel::dgx_a100) with eight adapters of 200
    /// Gbit/s each (InfiniBand HDR), one a GPU: the compute fabric of a DGX SuperPOD (NVIDIA DGX
    /// SuperPOD reference architecture, 2020), without oversubscription.
    ///
    /// Operations between hosts use all levels of links at once ([`pipelined`](Self::pipelined)).
    /// The bandwidth of an adapter is the standard's, 25 GB/s in one direction, times 0.96, the
    /// best fraction that nccl-tests achieved (<https://github.com/NVIDIA/nccl-tests/issues/119>).
    /// The latency of a hop is NCCL's own estimate, 5 us at least. The protocols of low latency
    /// achieve the bandwidths of nccl-tests up to 8 MiB on two hosts of 8 A100 with RoCE (OCI
    /// BM.GPU4.8). The startup time of the protocol of full bandwidth is that of
    /// [`aws_p5`](LinkModel::aws_p5).
    ///
    /// Not fitted: two hosts take 3% more than the model for 10 GiB, and 32 hosts take 16 to 24%
    /// less for 4 to 128 bytes (NVIDIA/nccl#652).
    #[must_use]
    pub fn dgx_a100_pod() -> Self {
        let adapters = infiniband(200e9, 8).with_max_members(Some(A100_POD_HOSTS));
        of_hosts("dgx-a100-pod", Self::dgx_a100(), adapters).with_relative_error(0.33)
    }

    /// Returns the model of up to 2,048 [DGX H100](LinkModel::dgx_h100) with eight adapters of 400
    /// Gbit/s each (InfiniBand NDR; NVIDIA DGX SuperPOD reference architecture with DGX H100,
    /// 2023). The rest is as in [`dgx_a100_pod`](LinkModel::dgx_a100_pod).
    ///
    /// Not fitted: two hosts of H100 or H200 with 400 GB/s of RoCE (OCI) differ from the model by
    /// at most 3% for 1 to 16 GiB. 16 hosts of H100 take 25% more for 8 to 2,048 bytes
    /// (NVIDIA/nccl#1469).
    #[must_use]
    pub fn dgx_h100_pod() -> Self {
        let adapters = infiniband(400e9, 8).with_max_members(Some(H100_POD_HOSTS));
        of_hosts("dgx-h100-pod", Self::dgx_h100(), adapters).with_relative_error(0.22)
    }

    /// Returns the model of any number of AWS p4de.24xlarge: hosts of eight A100, connected inside
    /// as in a [DGX A100](LinkModel::dgx_a100), with four EFA adapters of 100 Gbit/s.
    ///
    /// The network is fitted to nccl-tests of all-reduces of 8 bytes to 2 GiB on two hosts
    /// (aws-samples/awsome-distributed-training): it starts in 120 us and achieves 0.846 of the
    /// bandwidth. The same hosts with an older NCCL took 35% more than the model for 1 GiB
    /// (NVIDIA/nccl#527).
    #[must_use]
    pub fn aws_p4de() -> Self {
        let variants = [
            variant(Protocol::LowLatency, Algorithm::Tree, 116.7, HOP_US[0], 0.010),
            variant(Protocol::LowLatency128, Algorithm::Tree, 139.2, HOP_US[1], 0.213),
            variant(Protocol::Simple, Algorithm::Tree, 195.6, HOP_US[2], 0.367),
            variant(Protocol::Simple, Algorithm::Tree, 685.1, HOP_US[2], 0.846),
        ];
        of_hosts("aws-p4de", Self::dgx_a100(), network(100e9, 4, &variants))
    }

    /// Returns the model of any number of AWS p5.48xlarge: hosts of eight H100, connected inside as
    /// in a [DGX H100](LinkModel::dgx_h100), with 32 EFA adapters of 100 Gbit/s, four a GPU.
    ///
    /// The network is fitted to nccl-tests of all-reduces of 8 bytes to 16 GiB on two hosts
    /// (aws-samples/awsome-distributed-training). Of another table of two hosts, which was not
    /// fitted (aws-samples/aws-do-eks), the median error is 5% and nine tenths of the errors are
    /// within 12%.
    #[must_use]
    pub fn aws_p5() -> Self {
        let variants = [
            variant(Protocol::LowLatency, Algorithm::Tree, 44.9, HOP_US[0], 0.002),
            variant(Protocol::LowLatency128, Algorithm::Tree, 77.9, HOP_US[1], 0.256),
            variant(Protocol::Simple, Algorithm::Tree, 254.7, HOP_US[2], 0.9),
        ];
        of_hosts("aws-p5", Self::dgx_h100(), network(400e9, 8, &variants)).with_relative_error(0.12)
    }

    /// Returns the model of any number of hosts of eight A100 GPUs, connected inside as in a [DGX
    /// A100](LinkModel::dgx_a100), with one port of [100 Gbit/s Ethernet](LinkModel::ethernet_100g)
    /// a host, as in many cloud instances. Operations between hosts use all levels of links at once
    /// ([`pipelined`](Self::pipelined)).
    #[must_use]
    pub fn a100_100gbe() -> Self {
        of_hosts("a100-100gbe", Self::dgx_a100(), Self::ethernet_100g())
    }

    /// Returns the model of any number of hosts with one rank and one Slingshot adapter of 200
    /// Gbit/s each. Fitted to nccl-tests of all-reduces of 1 to 128 MiB on two GH200 (documentation
    /// of CSCS Alps), from which it differs by at most 12%. Nothing else was compared.
    #[must_use]
    pub fn slingshot_200g() -> Self {
        network(
            200e9,
            1,
            &[
                variant(Protocol::LowLatency128, Algorithm::Tree, 185.2, HOP_US[1], 0.307),
                variant(Protocol::Simple, Algorithm::Tree, 251.6, HOP_US[2], 1.0),
            ],
        )
        .with_name("slingshot-200g")
    }

    /// Returns the model of any number of EC2 instances with one GPU and one EFA adapter of 25
    /// Gbit/s each. Fitted to nccl-tests of all-reduces of 4 bytes to 1 GiB on two instances
    /// (aws-samples/aws-do-eks; their type is not stated, 25 Gbit/s is inferred), from which it
    /// differs by 1% in the median and by up to 31% between 1 and 4 MiB, where NCCL's choice of
    /// protocols is poor.
    #[must_use]
    pub fn ec2_25g_efa() -> Self {
        network(
            25e9,
            1,
            &[
                variant(Protocol::LowLatency, Algorithm::Tree, 60.3, HOP_US[0], 0.215),
                variant(Protocol::LowLatency128, Algorithm::Tree, 54.5, HOP_US[1], 0.291),
                variant(Protocol::Simple, Algorithm::Tree, 670.9, HOP_US[2], 0.909),
            ],
        )
        .with_name("ec2-25g-efa")
    }

    /// Returns the model of the instances of [`ec2_25g_efa`](LinkModel::ec2_25g_efa) with NCCL's
    /// TCP sockets instead of EFA, fitted to a table of the same source, from which it differs by
    /// 2% in the median and by at most 14%. Sockets achieve 0.64 of the bandwidth.
    #[must_use]
    pub fn ec2_25g_tcp() -> Self {
        network(
            25e9,
            1,
            &[
                variant(Protocol::LowLatency, Algorithm::Tree, 95.4, HOP_US[0], 0.118),
                variant(Protocol::LowLatency128, Algorithm::Tree, 207.7, HOP_US[1], 0.551),
                variant(Protocol::Simple, Algorithm::Tree, 312.9, HOP_US[2], 0.639),
            ],
        )
        .with_name("ec2-25g-tcp")
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

/// Returns a variant with its startup time and latency in microseconds.
const fn variant(
    protocol: Protocol,
    algorithm: Algorithm,
    startup_us: f64,
    latency_us: f64,
    achieved: f64,
) -> Variant {
    Variant { protocol, algorithm, startup_s: startup_us / 1e6, latency_s: latency_us / 1e6, achieved }
}

/// Returns a level with variants. A barrier takes their minimum startup time, and a hop of the
/// first one a step.
fn level_of(bytes_per_s: f64, variants: &[Variant]) -> Level {
    let startup_s = variants.iter().map(|variant| variant.startup_s).min_by(f64::total_cmp);
    let latency_s = variants.first().map(|variant| variant.latency_s);
    let [startup, latency] = [startup_s, latency_s].map(|time| Duration::from_secs_f64(time.unwrap_or(0.0)));
    let mut level = Level::new(startup, latency, bytes_per_s);
    level.variants = variants.to_vec();
    level
}

fn host(name: &str, level: Level) -> LinkModel {
    LinkModel::of(name, level).with_max_members(Some(GPUS_PER_HOST))
}

fn nvswitch_4(name: &str) -> LinkModel {
    host(name, level_of(H100_BYTES_PER_S, &H100_VARIANTS)).with_relative_error(0.15)
}

/// Returns the model of hosts with one rank each, whose adapters have the given bandwidth together.
/// A rank uses one of `adapters` equal parts.
fn network(bits_per_s: f64, adapters: usize, variants: &[Variant]) -> LinkModel {
    LinkModel::of("network", level_of(bits_per_s / 8.0, variants)).with_adapters(adapters)
}

/// Returns the model of hosts with one rank and the given number of InfiniBand adapters each.
fn infiniband(bits_per_s: f64, adapters: usize) -> LinkModel {
    let bytes_per_s = bits_per_s / 8.0 * INFINIBAND_ACHIEVED;
    let low_latency = INFINIBAND_LL_BYTES_PER_S / (bytes_per_s * adapters as f64);
    let variants = [
        variant(Protocol::LowLatency, Algorithm::Tree, 0.0, HOP_US[0], low_latency),
        variant(Protocol::LowLatency128, Algorithm::Tree, 27.7, HOP_US[1], 0.173),
        variant(Protocol::Simple, Algorithm::Tree, 254.7, HOP_US[2], 1.0),
    ];
    LinkModel::of("infiniband", level_of(bytes_per_s, &variants)).with_adapters(adapters)
}

fn ethernet(name: &str, bits_per_s: f64) -> LinkModel {
    let (startup, latency) = (Duration::from_micros(20), Duration::from_micros(25));
    LinkModel::of(name, Level::new(startup, latency, bits_per_s / 8.0 * TCP_PAYLOAD))
}

fn of_hosts(name: &str, host: LinkModel, network: LinkModel) -> LinkModel {
    host.joined_by(GPUS_PER_HOST, network).with_name(name).pipelined()
}
