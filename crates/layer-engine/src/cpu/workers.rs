use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::iter::{IndexedParallelIterator, IntoParallelRefMutIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;

use crate::EngineError;

/// Threads that several engines share, so that the ranks of one process keep its cores busy and no more.
///
/// ```
/// use layer_engine::{CpuEngine, ThreadPool};
///
/// let pool = ThreadPool::new(2)?;
/// // Two ranks, each of which may use both threads while the other has nothing to compute.
/// let engines = [(); 2].map(|()| CpuEngine::<f32>::sharing(&pool, 2));
/// # Ok::<(), layer_engine::EngineError>(())
/// ```
#[derive(Debug, Clone)]
pub struct ThreadPool(Arc<rayon::ThreadPool>);

impl ThreadPool {
    /// A pool of this many threads.
    ///
    /// # Errors
    /// [`EngineError::Threads`] when `threads` is 0 or the system refuses them.
    pub fn new(threads: usize) -> Result<Self, EngineError> {
        if threads == 0 {
            return Err(EngineError::Threads { threads, problem: "at least one is needed".into() });
        }
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|index| format!("layer-engine-{index}"))
            .build()
            .map(|pool| Self(Arc::new(pool)))
            .map_err(|error| EngineError::Threads { threads, problem: error.to_string() })
    }

    /// Number of threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.0.current_num_threads()
    }
}

/// The threads that a kernel spreads its work over.
///
/// Work is cut into chunks by the kernel, never by the number of threads, wherever the cut could change a rounding.
/// Without a pool every chunk runs on the calling thread, one after another, and nothing is allocated.
#[derive(Debug, Clone)]
pub(super) struct Workers {
    pool: Option<Arc<rayon::ThreadPool>>,
    threads: usize,
}

impl Workers {
    /// The calling thread alone.
    pub(super) fn single() -> Self {
        Self { pool: None, threads: 1 }
    }

    /// A pool of this many threads; one is the calling thread alone.
    pub(super) fn pool(threads: usize) -> Result<Self, EngineError> {
        if threads == 1 { Ok(Self::single()) } else { Ok(Self::of(&ThreadPool::new(threads)?, threads)) }
    }

    /// So many threads of a pool, or all of them where it has fewer; one is the calling thread alone.
    pub(super) fn of(pool: &ThreadPool, threads: usize) -> Self {
        if threads <= 1 {
            return Self::single();
        }
        Self { pool: Some(Arc::clone(&pool.0)), threads: threads.min(pool.threads()) }
    }

    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    /// Of so many chunks, the fewest that a thread takes at a time: no more threads than these workers may use share them,
    /// where the pool has more.
    fn least(&self, pool: &rayon::ThreadPool, chunks: usize) -> usize {
        if self.threads < pool.current_num_threads() { chunks.div_ceil(self.threads) } else { 1 }
    }

    /// Calls `body` with the number of every task and the slot of the thread that does it. There may be more slots than
    /// threads, and must be one.
    pub(super) fn share<S: Send>(&self, tasks: usize, slots: &mut [S], body: impl Fn(usize, &mut S) + Sync) {
        match (&self.pool, slots) {
            (_, []) => debug_assert_eq!(tasks, 0, "a thread needs a slot"),
            (Some(pool), slots) if tasks > 1 && slots.len() > 1 => {
                let next = AtomicUsize::new(0);
                pool.install(|| {
                    slots.par_iter_mut().with_max_len(1).for_each(|slot| {
                        loop {
                            let task = next.fetch_add(1, Ordering::Relaxed);
                            if task >= tasks {
                                break;
                            }
                            body(task, slot);
                        }
                    });
                });
            }
            (_, [slot, ..]) => (0..tasks).for_each(|task| body(task, slot)),
        }
    }

    /// Calls `body` with the number and the content of every chunk of `size` elements.
    pub(super) fn chunks<A: Send>(&self, a: &mut [A], size: usize, body: impl Fn(usize, &mut [A]) + Sync) {
        let size = size.max(1);
        match &self.pool {
            Some(pool) if a.len() > size => {
                let least = self.least(pool, a.len().div_ceil(size));
                let chunks = a.par_chunks_mut(size).enumerate().with_min_len(least);
                pool.install(|| chunks.for_each(|(index, a)| body(index, a)));
            }
            _ => a.chunks_mut(size).enumerate().for_each(|(index, a)| body(index, a)),
        }
    }

    /// Calls `body` with the number of every pair of chunks, `a_size` elements of `a` with `b_size` of `b`, and their
    /// content. Ends with the shorter of both.
    pub(super) fn chunk_pairs<A: Send, B: Send>(
        &self,
        (a, a_size): (&mut [A], usize),
        (b, b_size): (&mut [B], usize),
        body: impl Fn(usize, &mut [A], &mut [B]) + Sync,
    ) {
        let (a_size, b_size) = (a_size.max(1), b_size.max(1));
        match &self.pool {
            Some(pool) if a.len() > a_size => {
                let least = self.least(pool, a.len().div_ceil(a_size));
                let pairs = a.par_chunks_mut(a_size).zip(b.par_chunks_mut(b_size)).enumerate();
                pool.install(|| pairs.with_min_len(least).for_each(|(index, (a, b))| body(index, a, b)));
            }
            _ => {
                let pairs = a.chunks_mut(a_size).zip(b.chunks_mut(b_size));
                pairs.enumerate().for_each(|(index, (a, b))| body(index, a, b));
            }
        }
    }
}
