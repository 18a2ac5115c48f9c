//! Conversion of pixels to features.

/// Conversion of pixels to features: a pixel is divided by the maximum value, minus the channel's
/// mean, divided by the channel's standard deviation. The results are tabulated for each channel.
pub(super) struct Standardiser {
    channels: Vec<[f32; 256]>,
}

impl Standardiser {
    /// Creates the tables for pixels from 0 to `largest`. `channels` are the mean and the standard
    /// deviation of each channel after the division by `largest`.
    pub(super) fn new(largest: u8, channels: &[(f32, f32)]) -> Self {
        let table = |&(mean, deviation): &(f32, f32)| {
            std::array::from_fn(|pixel| (pixel as f32 / f32::from(largest) - mean) / deviation)
        };
        Self { channels: channels.iter().map(table).collect() }
    }

    /// Appends the features of one image to `features`. The pixels are given channel by channel.
    pub(super) fn append(&self, image: &[u8], features: &mut Vec<f32>) {
        let plane = (image.len() / self.channels.len()).max(1);
        for (pixels, table) in image.chunks_exact(plane).zip(&self.channels) {
            features.extend(pixels.iter().map(|&pixel| table[usize::from(pixel)]));
        }
    }
}
