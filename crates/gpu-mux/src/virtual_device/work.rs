//! Work of the virtual device. *Partners* are the other devices that take part in a communication.

use std::sync::Arc;
use std::time::Duration;

use super::Kernel;
use crate::seconds::total;

/// Work that a [`VirtualDevice`](crate::VirtualDevice) runs for a tasklet. Cheap to clone.
#[derive(Debug, Clone, PartialEq)]
pub enum VirtualWork {
    /// Kernels that run one after another.
    Compute {
        /// Kernels in order. An empty list takes no time.
        kernels: Arc<[Kernel]>,
        /// Whether they are launched at once as a captured graph, instead of one by one.
        captured: bool,
    },
    /// A kernel that exchanges data with other devices. It holds its share of the device from its
    /// start to its end, including the time it waits for its partners.
    Communication {
        /// Duration of the transfer alone on a device, once all partners have arrived.
        transfer: Duration,
        /// Arrival of the other devices, before which the transfer cannot begin.
        partners: Partners,
    },
}

impl VirtualWork {
    /// Creates kernels that are launched one by one.
    #[must_use]
    pub fn kernels(kernels: impl Into<Arc<[Kernel]>>) -> Self {
        Self::Compute { kernels: kernels.into(), captured: false }
    }

    /// Creates kernels that are launched at once, as a captured graph.
    #[must_use]
    pub fn graph(kernels: impl Into<Arc<[Kernel]>>) -> Self {
        Self::Compute { kernels: kernels.into(), captured: true }
    }

    /// Returns the duration alone on a device with all dependencies complete and all partners
    /// present, without launch times and the time between kernels.
    #[must_use]
    pub fn time(&self) -> Duration {
        match self {
            Self::Compute { kernels, .. } => total(kernels.iter().map(Kernel::time)),
            Self::Communication { transfer, .. } => *transfer,
        }
    }
}

/// Arrival of the other devices that take part in a communication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partners {
    /// The partners have already arrived.
    Ready,
    /// The partners arrive this long after the end of the previous communication on the same
    /// stream, or after the device's epoch for the first one.
    After(Duration),
    /// The partners are simulated by the user of the device. They arrive at the time set with
    /// [`VirtualDevice::partners_arrive`](crate::VirtualDevice::partners_arrive), and the
    /// communication ends no earlier than the time set with
    /// [`VirtualDevice::partners_finish`](crate::VirtualDevice::partners_finish).
    External,
}

/// A step of a communication whose partners are [`Partners::External`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    /// Identifier of the communication.
    pub tasklet: crate::TaskletId,
    /// Time at which the communication reached this step, from the device's epoch.
    pub at: Duration,
    /// Event that the communication waits for.
    pub awaits: Awaits,
}

/// Event that a communication with external partners waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaits {
    /// The arrival of its partners. The communication is on the device.
    Partners,
    /// The end of its partners' transfers. Its own transfer is done.
    End,
}
