/// How the pixels of images become features: divided by the largest value, less the channel's mean, divided by its
/// standard deviation. A table for each channel, because there are only 256 values.
pub(super) struct Standardiser {
    channels: Vec<[f32; 256]>,
}

impl Standardiser {
    /// For pixels from 0 to `largest`, and the `(mean, standard deviation)` of each channel after the division.
    pub(super) fn new(largest: u8, channels: &[(f32, f32)]) -> Self {
        let table = |&(mean, deviation): &(f32, f32)| {
            std::array::from_fn(|pixel| (pixel as f32 / f32::from(largest) - mean) / deviation)
        };
        Self { channels: channels.iter().map(table).collect() }
    }

    /// Appends the features of one image, whose channels lie one after another.
    pub(super) fn append(&self, image: &[u8], features: &mut Vec<f32>) {
        let plane = (image.len() / self.channels.len()).max(1);
        for (pixels, table) in image.chunks_exact(plane).zip(&self.channels) {
            features.extend(pixels.iter().map(|&pixel| table[usize::from(pixel)]));
        }
    }
}
