//! Grouping of gradients into buckets that are reduced together. A bucket is open until it is full
//! or the backward pass ends.

/// Groups gradients into buckets of about one size, one group of ranks each, in the order of the
/// backward pass.
///
/// Small messages waste bandwidth, and a single message for all gradients cannot start before the
/// backward pass ends. Buckets are a compromise (S. Li et al., "`PyTorch` Distributed: Experiences
/// on Accelerating Data Parallel Training", VLDB 2020).
///
/// Every rank adds the gradients of all ranks in the same order. Therefore all ranks compute the
/// same buckets in the same order without communication, even for overlapping groups.
///
/// ```
/// use collectives::Bucketing;
///
/// let mut bucketing = Bucketing::new(1_000);
/// assert_eq!(bucketing.add(vec![0, 1], "conv2", 600), None);
/// assert_eq!(bucketing.add(vec![0], "norm", 10), None);
/// let full = bucketing.add(vec![0, 1], "conv1", 500).expect("1,100 bytes are enough");
/// assert_eq!((full.gradients, full.bytes), (vec!["conv2", "conv1"], 1_100));
/// assert_eq!(bucketing.finish()[0].group, [0]);
/// ```
///
/// `R` is the list of ranks that hold a gradient, or another description of them. `G` identifies a
/// gradient.
#[derive(Debug, Clone)]
pub struct Bucketing<R, G> {
    bucket_bytes: u64,
    /// Open buckets in the order of their first gradients, at most one for each group.
    open: Vec<Bucket<R, G>>,
}

/// Gradients that are reduced together, by ranks that `R` describes. `G` identifies a gradient.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bucket<R, G> {
    /// Ranks that hold the gradients and all-reduce the bucket, as given to `Bucketing::add`.
    pub group: R,
    /// Gradients in the order in which they were added.
    pub gradients: Vec<G>,
    /// Total size of the gradients in bytes, on each rank.
    pub bytes: u64,
}

impl<R: PartialEq, G> Bucketing<R, G> {
    /// Creates a bucketing whose buckets are full when they hold at least `bucket_bytes`. A
    /// gradient is never divided.
    #[must_use]
    pub fn new(bucket_bytes: u64) -> Self {
        Self { bucket_bytes, open: Vec::new() }
    }

    /// Adds a gradient of `bytes` bytes, held by the ranks of `group`, to the open bucket of these
    /// ranks, and returns the bucket if it is now full. `None` if the bucket stays open. O(open
    /// buckets).
    pub fn add(&mut self, group: R, gradient: G, bytes: u64) -> Option<Bucket<R, G>> {
        let known = self.open.iter().position(|bucket| bucket.group == group);
        let index = known.unwrap_or_else(|| {
            self.open.push(Bucket { group, gradients: Vec::new(), bytes: 0 });
            self.open.len() - 1
        });
        let bucket = &mut self.open[index];
        bucket.gradients.push(gradient);
        bucket.bytes = bucket.bytes.saturating_add(bytes);
        (bucket.bytes >= self.bucket_bytes).then(|| self.open.remove(index))
    }

    /// Returns the buckets that are not full, in the order of their first gradients. They are the
    /// last to be reduced.
    #[must_use]
    pub fn finish(self) -> Vec<Bucket<R, G>> {
        self.open
    }
}
