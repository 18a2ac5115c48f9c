//! Threads of the CPU engine. A *worker* is such a thread, not a group of GPUs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rayon::iter::{IndexedParallelIterator, IntoParallelRefMutIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;

use crate::EngineError;

/// A pool of threads that several engines share, so that the ranks of one process do not use more
/// threads than the machine has cores.
///
/// ```
/// use layer_engine::{CpuEngine, ThreadPool};
///
/// let pool = ThreadPool::new(2)?;
/// // Two ranks. Each can use both threads while the other has nothing to compute.
/// let engines = [(); 2].map(|()| CpuEngine::<f32>::sharing(&pool, 2));
/// # Ok::<(), layer_engine::EngineError>(())
/// ```
#[derive(Debug, Clone)]
pub struct ThreadPool(Arc<rayon::ThreadPool>);

impl ThreadPool {
    /// Creates a pool of `threads` threads.
    ///
    /// # Errors
    /// [`EngineError::Threads`] if `threads` is 0 or the operating system cannot start them.
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

    /// Returns the number of threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.0.current_num_threads()
    }
}

/// The threads that a kernel distributes its work over: at most a number of threads of a pool, or
/// the calling thread.
///
/// Wherever the division into chunks affects rounding, it is chosen by the kernel and does not
/// depend on the number of threads. Without a pool all chunks run on the calling thread in order,
/// and nothing is allocated.
#[derive(Debug, Clone)]
pub(super) struct Workers {
    pool: Option<Arc<rayon::ThreadPool>>,
    threads: usize,
    /// Workspace that the kernels of an engine and of its clones share, since they run one by one.
    workspace: Arc<Mutex<Vec<f32>>>,
}

impl Workers {
    /// Returns workers that consist of the calling thread.
    pub(super) fn single() -> Self {
        Self { pool: None, threads: 1, workspace: Arc::default() }
    }

    /// Creates a pool of `threads` threads; with one thread, the calling thread is used.
    ///
    /// # Errors
    /// [`EngineError::Threads`] if `threads` is 0 or the operating system cannot start them.
    pub(super) fn pool(threads: usize) -> Result<Self, EngineError> {
        if threads == 1 {
            Ok(Self::single())
        } else {
            Ok(Self::from_pool(&ThreadPool::new(threads)?, threads))
        }
    }

    /// Returns workers that use at most `threads` threads of a pool, or the calling thread if
    /// `threads` is 0 or 1.
    pub(super) fn from_pool(pool: &ThreadPool, threads: usize) -> Self {
        if threads <= 1 {
            return Self::single();
        }
        let (pool, threads) = (Some(Arc::clone(&pool.0)), threads.min(pool.threads()));
        Self { pool, threads, workspace: Arc::default() }
    }

    /// Returns the calling thread instead of these workers, with the same workspace. Allocates
    /// nothing.
    pub(super) fn calling_thread(&self) -> Self {
        Self { pool: None, threads: 1, workspace: Arc::clone(&self.workspace) }
    }

    /// Returns the workspace of the engine's kernels, of which nothing is kept between launches,
    /// with at least `elements` elements. It waits for a kernel that another thread runs.
    pub(super) fn workspace(&self, elements: usize) -> MutexGuard<'_, Vec<f32>> {
        let mut workspace = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        if workspace.len() < elements {
            workspace.resize(elements, 0.0);
        }
        workspace
    }

    /// Returns the number of threads, at least one.
    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    /// Returns the minimum number of chunks per thread. It keeps the work on `self.threads` threads
    /// if the pool has more.
    fn min_chunks(&self, pool: &rayon::ThreadPool, chunks: usize) -> usize {
        if self.threads < pool.current_num_threads() { chunks.div_ceil(self.threads) } else { 1 }
    }

    /// Calls `body` once for each task, with the index of the task and the workspace of the thread
    /// that runs it. `tasks` is the number of tasks. There must be at least one workspace; there
    /// may be more than threads.
    pub(super) fn run_tasks<S: Send>(
        &self,
        tasks: usize,
        workspaces: &mut [S],
        body: impl Fn(usize, &mut S) + Sync,
    ) {
        match (&self.pool, workspaces) {
            (_, []) => debug_assert_eq!(tasks, 0, "a thread needs a workspace"),
            (Some(pool), workspaces) if tasks > 1 && workspaces.len() > 1 => {
                let next = AtomicUsize::new(0);
                pool.install(|| {
                    workspaces.par_iter_mut().with_max_len(1).for_each(|workspace| {
                        loop {
                            let task = next.fetch_add(1, Ordering::Relaxed);
                            if task >= tasks {
                                break;
                            }
                            body(task, workspace);
                        }
                    });
                });
            }
            (_, [workspace, ..]) => (0..tasks).for_each(|task| body(task, workspace)),
        }
    }

    /// Calls `body` with the index and the content of each chunk of `size` elements of `a`. The
    /// last chunk may be shorter.
    pub(super) fn chunks<A: Send>(&self, a: &mut [A], size: usize, body: impl Fn(usize, &mut [A]) + Sync) {
        let size = size.max(1);
        match &self.pool {
            Some(pool) if a.len() > size => {
                let min_chunks = self.min_chunks(pool, a.len().div_ceil(size));
                let chunks = a.par_chunks_mut(size).enumerate().with_min_len(min_chunks);
                pool.install(|| chunks.for_each(|(index, a)| body(index, a)));
            }
            _ => a.chunks_mut(size).enumerate().for_each(|(index, a)| body(index, a)),
        }
    }

    /// Calls `body` with the index and the contents of each pair of chunks: `a_size` elements of
    /// `a` and `b_size` elements of `b`. Stops at the end of the shorter slice.
    pub(super) fn chunk_pairs<A: Send, B: Send>(
        &self,
        (a, a_size): (&mut [A], usize),
        (b, b_size): (&mut [B], usize),
        body: impl Fn(usize, &mut [A], &mut [B]) + Sync,
    ) {
        let (a_size, b_size) = (a_size.max(1), b_size.max(1));
        match &self.pool {
            Some(pool) if a.len() > a_size => {
                let min_chunks = self.min_chunks(pool, a.len().div_ceil(a_size));
                let pairs = a.par_chunks_mut(a_size).zip(b.par_chunks_mut(b_size)).enumerate();
                pool.install(|| pairs.with_min_len(min_chunks).for_each(|(index, (a, b))| body(index, a, b)));
            }
            _ => {
                let pairs = a.chunks_mut(a_size).zip(b.chunks_mut(b_size));
                pairs.enumerate().for_each(|(index, (a, b))| body(index, a, b));
            }
        }
    }
}
