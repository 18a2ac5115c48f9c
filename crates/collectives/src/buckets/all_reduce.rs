//! Reduces gradients while the backward pass goes on.

use std::fmt;
use std::ops::Range;

use super::Bucketing;
use crate::partition::check_distinct;
use crate::{Communicator, Element, Error, ReduceOp, Request, Result};

/// A gradient that several ranks hold and sum up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gradient {
    /// Who holds it, as ranks of the communicator.
    pub ranks: Vec<usize>,
    /// How many elements it has.
    pub elements: usize,
}

/// What is wrong with a gradient that a rank gave, or did not give.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GradientFault {
    /// There are only so many.
    Unknown {
        /// How many there are.
        gradients: usize,
    },
    /// Others hold it.
    Elsewhere {
        /// Who holds it.
        ranks: Vec<usize>,
    },
    /// It was given before in this iteration.
    Twice,
    /// It has another length.
    WrongLength {
        /// Elements that it should have.
        expected: usize,
        /// Elements that were given.
        actual: usize,
    },
    /// It was not given in this iteration.
    Missing,
    /// With it, its bucket is larger than any memory.
    TooLarge,
}

impl fmt::Display for GradientFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { gradients } => write!(f, "there are {gradients} gradients"),
            Self::Elsewhere { ranks } => write!(f, "only the ranks {ranks:?} hold it"),
            Self::Twice => f.write_str("it was given before"),
            Self::WrongLength { expected, actual } => {
                write!(f, "it has {expected} elements, and {actual} were given")
            }
            Self::Missing => f.write_str("it was not given"),
            Self::TooLarge => f.write_str("its bucket is larger than any memory"),
        }
    }
}

/// Sums gradients over the ranks that hold them, in buckets, while the backward pass still computes others.
///
/// Each iteration, a rank gives each of its gradients when it is [`ready`](Self::ready), in any order, and then
/// [`finish`](Self::finish)es. A bucket is on its way as soon as all its gradients and all earlier buckets are ready: all
/// ranks start their buckets in one order, which follows from the list of gradients alone, so that overlapping groups
/// cannot wait for each other in a circle. Give the list in the order of the backward pass, last layers first.
///
/// After a failed all-reduce the ranks may have come differently far: every later call gives the same error, and a new
/// one on the same communicator starts afresh, in groups of its own.
///
/// ```
/// use collectives::{BucketedAllReduce, Gradient, Group, ThreadWorld};
///
/// // A large layer on both ranks, a small one on rank 0 only.
/// let gradients =
///     [Gradient { ranks: vec![0, 1], elements: 1_000 }, Gradient { ranks: vec![0], elements: 10 }];
/// let sums = ThreadWorld::new(2).run(|ranks| {
///     let mut all_reduce = BucketedAllReduce::<f32, _>::new(&ranks, &gradients, 1 << 20)?;
///     all_reduce.ready(0, &[1.5; 1_000], &mut ())?;
///     if ranks.rank() == 0 {
///         all_reduce.ready(1, &[2.0; 10], &mut ())?;
///     }
///     let mut sums = Vec::new();
///     all_reduce.finish(|gradient, sum| sums.push((gradient, sum[0])))?;
///     Ok::<_, collectives::Error>(sums)
/// });
/// assert_eq!(sums, [Ok(vec![(0, 3.0), (1, 2.0)]), Ok(vec![(0, 3.0)])]);
/// ```
pub struct BucketedAllReduce<T: Element, C: Communicator<T, Buffer = Vec<T>>> {
    rank: usize,
    gradients: Vec<Gradient>,
    /// Where each gradient lies; `None` for those of other ranks.
    places: Vec<Option<Place>>,
    given: Vec<bool>,
    /// This rank's buckets, in the order of their start.
    buckets: Vec<Pending<T, C>>,
    /// How many have been started in this iteration.
    started: usize,
    /// Why nothing can be reduced any more.
    failure: Option<Error>,
}

#[derive(Debug, Clone)]
struct Place {
    bucket: usize,
    elements: Range<usize>,
}

struct Pending<T: Element, C: Communicator<T>> {
    group: C,
    gradients: Vec<usize>,
    elements: usize,
    /// How many gradients have not been given in this iteration.
    missing: usize,
    /// Kept from iteration to iteration; away while the operation has it.
    buffer: Vec<T>,
    request: Option<C::Request>,
}

impl<T: Element, C: Communicator<T, Buffer = Vec<T>>> BucketedAllReduce<T, C> {
    /// Makes the buckets, of `bucket_bytes` or a little more, and their groups. Collective: all ranks of `communicator`
    /// call it with the same arguments.
    ///
    /// # Errors
    /// More elements in a bucket than memory can have; a rank that there is not or that is listed twice; whatever
    /// [`Group::split`](crate::Group::split) and [`Group::group`](crate::Group::group) give.
    pub fn new(communicator: &C, gradients: &[Gradient], bucket_bytes: u64) -> Result<Self> {
        let rank = communicator.rank();
        let mut bucketing = Bucketing::new(bucket_bytes);
        let mut all = Vec::new();
        for (index, gradient) in gradients.iter().enumerate() {
            if let Some(&rank) = gradient.ranks.iter().find(|&&rank| rank >= communicator.size()) {
                return Err(Error::NoSuchRank { rank, size: communicator.size() });
            }
            check_distinct(&gradient.ranks)?;
            let bytes = (gradient.elements as u64).saturating_mul(size_of::<T>() as u64);
            all.extend(bucketing.add(&gradient.ranks, index, bytes));
        }
        all.extend(bucketing.finish());

        let too_large = all.iter().find(|bucket| bucket.bytes > isize::MAX as u64);
        if let Some(gradient) = too_large.and_then(|bucket| bucket.gradients.last()) {
            return Err(Error::BadGradient { rank, gradient: *gradient, fault: GradientFault::TooLarge });
        }
        // Groups of its own, whose operations match no others.
        let key = i32::try_from(rank).unwrap_or(i32::MAX);
        let Some(communicator) = communicator.split(Some(0), key)? else {
            return Err(Error::NotAMember { rank, ranks: Vec::new() });
        };

        let mut places = vec![None; gradients.len()];
        let mut buckets = Vec::new();
        for bucket in all.into_iter().filter(|bucket| bucket.ranks.contains(&rank)) {
            let mut end = 0;
            for &gradient in &bucket.gradients {
                let start = end;
                end += gradients[gradient].elements;
                places[gradient] = Some(Place { bucket: buckets.len(), elements: start..end });
            }
            buckets.push(Pending {
                group: communicator.group(&bucket.ranks)?,
                missing: bucket.gradients.len(),
                gradients: bucket.gradients,
                elements: end,
                buffer: Vec::new(),
                request: None,
            });
        }
        let given = vec![false; gradients.len()];
        Ok(Self { rank, gradients: gradients.to_vec(), places, given, buckets, started: 0, failure: None })
    }

    /// Takes a copy of this rank's part of a gradient, starts the buckets that can start now, and gives those under way a
    /// chance to proceed. Never waits.
    ///
    /// # Errors
    /// A gradient that is not this rank's, was given before or has another length; whatever the all-reduce gives.
    pub fn ready(&mut self, gradient: usize, values: &[T], queue: &mut C::Queue) -> Result<()> {
        self.check()?;
        let Some(place) = self.places.get(gradient) else {
            return Err(self.fault(gradient, GradientFault::Unknown { gradients: self.places.len() }));
        };
        let Some(Place { bucket, elements }) = place.clone() else {
            let ranks = self.gradients[gradient].ranks.clone();
            return Err(self.fault(gradient, GradientFault::Elsewhere { ranks }));
        };
        if self.given[gradient] {
            return Err(self.fault(gradient, GradientFault::Twice));
        }
        if values.len() != elements.len() {
            let (expected, actual) = (elements.len(), values.len());
            return Err(self.fault(gradient, GradientFault::WrongLength { expected, actual }));
        }
        let bucket = &mut self.buckets[bucket];
        bucket.buffer.resize(bucket.elements, T::default());
        bucket.buffer[elements].copy_from_slice(values);
        bucket.missing -= 1;
        self.given[gradient] = true;

        let outcome = self.start_what_is_complete(queue);
        self.keep(outcome)?;
        self.poll()
    }

    /// Gives the buckets under way a chance to proceed, on backends where that takes the caller's help. Never waits.
    ///
    /// # Errors
    /// Whatever the all-reduce gives.
    pub fn poll(&mut self) -> Result<()> {
        self.check()?;
        let mut requests =
            self.buckets[..self.started].iter_mut().filter_map(|bucket| bucket.request.as_mut());
        let outcome = requests.try_for_each(|request| request.test().map(|_| ()));
        self.keep(outcome)
    }

    /// Waits for all sums, hands each of this rank's gradients with its sum to `take`, and is ready for the next
    /// iteration.
    ///
    /// # Errors
    /// A gradient that was not given in this iteration: it can still be given. Whatever the all-reduce gives.
    pub fn finish(&mut self, take: impl FnMut(usize, &[T])) -> Result<()> {
        self.check()?;
        let missing = (0..self.places.len()).find(|&g| self.places[g].is_some() && !self.given[g]);
        if let Some(missing) = missing {
            return Err(self.fault(missing, GradientFault::Missing));
        }
        let outcome = self.collect(take);
        self.keep(outcome)
    }

    fn start_what_is_complete(&mut self, queue: &mut C::Queue) -> Result<()> {
        while let Some(next) = self.buckets.get_mut(self.started).filter(|bucket| bucket.missing == 0) {
            let buffer = std::mem::take(&mut next.buffer);
            next.request = Some(next.group.start_all_reduce(buffer, ReduceOp::Sum, queue)?);
            self.started += 1;
        }
        Ok(())
    }

    /// Waits for all buckets and makes them ready for the next iteration.
    fn collect(&mut self, mut take: impl FnMut(usize, &[T])) -> Result<()> {
        for bucket in &mut self.buckets {
            if let Some(request) = bucket.request.take() {
                bucket.buffer = request.wait()?;
            }
            bucket.missing = bucket.gradients.len();
            for &gradient in &bucket.gradients {
                if let Some(place) = &self.places[gradient] {
                    take(gradient, &bucket.buffer[place.elements.clone()]);
                }
            }
        }
        self.started = 0;
        self.given.fill(false);
        Ok(())
    }

    fn check(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    fn keep(&mut self, outcome: Result<()>) -> Result<()> {
        if let Err(failure) = &outcome {
            self.failure = Some(failure.clone());
        }
        outcome
    }

    fn fault(&self, gradient: usize, fault: GradientFault) -> Error {
        Error::BadGradient { rank: self.rank, gradient, fault }
    }
}
