//! Which gradients are reduced together, and in which order.

/// Sorts gradients into buckets, each for one group of ranks and about one size, as they come out of the backward pass.
///
/// Small messages waste the links, and one message for everything cannot start before the backward pass ends: buckets lie
/// in between (S. Li et al., "`PyTorch` Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020).
///
/// A program for many ranks adds the gradients of all of them, in one order. So every rank that does the same gets the
/// same buckets in the same order, and groups that overlap agree on who comes first without talking about it.
///
/// ```
/// use collectives::Bucketing;
///
/// let mut bucketing = Bucketing::new(1_000);
/// assert_eq!(bucketing.add(&[0, 1], "conv2", 600), None);
/// assert_eq!(bucketing.add(&[0], "norm", 10), None);
/// let full = bucketing.add(&[0, 1], "conv1", 500).expect("1,100 bytes are enough");
/// assert_eq!((full.gradients, full.bytes), (vec!["conv2", "conv1"], 1_100));
/// assert_eq!(bucketing.finish()[0].ranks, [0]);
/// ```
#[derive(Debug, Clone)]
pub struct Bucketing<G> {
    bucket_bytes: u64,
    /// In the order of their first gradients; no two of one group.
    open: Vec<Bucket<G>>,
}

/// Gradients that are reduced together.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bucket<G> {
    /// Who holds them.
    pub ranks: Vec<usize>,
    /// What was added, in that order.
    pub gradients: Vec<G>,
    /// How large they are together.
    pub bytes: u64,
}

impl<G> Bucketing<G> {
    /// Buckets are full as soon as they hold `bucket_bytes`. A gradient is never divided.
    #[must_use]
    pub fn new(bucket_bytes: u64) -> Self {
        Self { bucket_bytes, open: Vec::new() }
    }

    /// Adds a gradient of `bytes`, held by `ranks`, and gives its bucket if that is full now. O(open buckets).
    pub fn add(&mut self, ranks: &[usize], gradient: G, bytes: u64) -> Option<Bucket<G>> {
        let index = self.open.iter().position(|bucket| bucket.ranks == ranks).unwrap_or_else(|| {
            self.open.push(Bucket { ranks: ranks.to_vec(), gradients: Vec::new(), bytes: 0 });
            self.open.len() - 1
        });
        let bucket = &mut self.open[index];
        bucket.gradients.push(gradient);
        bucket.bytes = bucket.bytes.saturating_add(bytes);
        (bucket.bytes >= self.bucket_bytes).then(|| self.open.remove(index))
    }

    /// The buckets that did not fill, in the order of their first gradients.
    #[must_use]
    pub fn finish(self) -> Vec<Bucket<G>> {
        self.open
    }
}
