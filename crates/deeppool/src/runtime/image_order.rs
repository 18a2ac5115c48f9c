//! Orders of the elements of images and filters in the buffers of a job.

use std::time::Duration;

use layer_engine::{ImageLayout, Precision};
use layer_graph::LayerGraph;
use serde_json::json;

/// Order of the elements of images and filters in the buffers of a job, with the reason for it. It
/// is the same on all ranks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ImageOrder {
    /// The order.
    pub layout: ImageLayout,
    /// Time of the kernels on images of one iteration, summed over all ranks: with channels first,
    /// and with channels last. `None` if they were not timed.
    pub times: Option<[Duration; 2]>,
    /// Reason of the order, such as `configured`.
    pub reason: String,
}

impl ImageOrder {
    /// Returns a given order.
    #[must_use]
    pub fn configured(layout: ImageLayout) -> Self {
        Self::untimed(layout, "configured")
    }

    /// Returns an order that was not timed.
    pub(crate) fn untimed(layout: ImageLayout, reason: impl Into<String>) -> Self {
        Self { layout, times: None, reason: reason.into() }
    }

    /// Returns the order with the lesser time. Channels come first unless they take 2% longer.
    #[cfg(feature = "cuda")]
    pub(crate) fn fastest([first, last]: [Duration; 2]) -> Self {
        let is_last = first.as_secs_f64() > 1.02 * last.as_secs_f64();
        let (layout, reason) = if is_last {
            (ImageLayout::ChannelsLast, "fastest")
        } else {
            (ImageLayout::ChannelsFirst, "fastest, or not slower by 2%")
        };
        Self { layout, times: Some([first, last]), reason: reason.into() }
    }

    /// Returns the order of a job that does not depend on times; `None` if it does. Channels come
    /// first if layers are split: parts of images are ranges of channels. Otherwise the `requested`
    /// order is taken. Without one, channels come first without convolutions, and in
    /// precisions without tensor cores, for which cuDNN prefers this order.
    pub(crate) fn known(
        network: &LayerGraph,
        is_split: bool,
        precision: Precision,
        requested: Option<ImageLayout>,
    ) -> Option<Self> {
        if is_split {
            return Some(Self::untimed(ImageLayout::ChannelsFirst, "layers are split"));
        }
        if let Some(layout) = requested {
            return Some(Self::configured(layout));
        }
        let reason = if !matches!(precision, Precision::Tf32 | Precision::Bf16) {
            "no tensor cores"
        } else if !network.layers().any(|(_, layer)| layer.kind().is_convolution()) {
            "no convolutions"
        } else {
            return None;
        };
        Some(Self::untimed(ImageLayout::ChannelsFirst, reason))
    }

    /// Returns the order as one line of text.
    pub(crate) fn to_line(&self) -> String {
        let nanos = self.times.map(|times| times.map(|time| time.as_nanos() as u64));
        json!([self.layout == ImageLayout::ChannelsLast, nanos, self.reason]).to_string()
    }

    /// Parses a line of [`to_line`](Self::to_line); `None` if it is none.
    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let (is_last, nanos, reason) = serde_json::from_str::<(bool, Option<[u64; 2]>, String)>(line).ok()?;
        let layout = if is_last { ImageLayout::ChannelsLast } else { ImageLayout::ChannelsFirst };
        Some(Self { layout, times: nanos.map(|nanos| nanos.map(Duration::from_nanos)), reason })
    }
}

#[cfg(test)]
mod tests {
    use layer_graph::zoo;

    use super::*;

    #[test]
    #[cfg(feature = "cuda")]
    fn channels_come_first_unless_they_are_slower_by_two_percent() {
        let layout = |first, last| {
            let order = ImageOrder::fastest([first, last].map(Duration::from_micros));
            assert_eq!(ImageOrder::from_line(&order.to_line()).as_ref(), Some(&order));
            order.layout
        };
        assert_eq!(layout(1020, 1000), ImageLayout::ChannelsFirst);
        assert_eq!(layout(1021, 1000), ImageLayout::ChannelsLast);
        assert_eq!(layout(0, 0), ImageLayout::ChannelsFirst);
        assert_eq!(ImageOrder::from_line("own"), None);
    }

    #[test]
    fn only_networks_with_convolutions_on_tensor_cores_need_times() {
        let [images, text] = ["resnet-18", "gpt2"].map(|name| zoo::model(name).unwrap());
        let known = |network, precision| {
            ImageOrder::known(network, false, precision, None).map(|order| (order.layout, order.reason))
        };
        let first = |reason: &str| Some((ImageLayout::ChannelsFirst, reason.to_owned()));
        assert_eq!(known(&images, Precision::F32), first("no tensor cores"));
        assert_eq!(known(&text, Precision::Bf16), first("no convolutions"));
        assert_eq!(known(&images, Precision::Bf16), None);
        assert_eq!(known(&images, Precision::Tf32), None);
        let configured =
            ImageOrder::known(&images, false, Precision::F32, Some(ImageLayout::ChannelsLast)).unwrap();
        assert_eq!((configured.layout, configured.times), (ImageLayout::ChannelsLast, None));
    }
}
