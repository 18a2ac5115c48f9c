//! Layouts of values on ranks. They divide the samples of a micro-batch among ranks, and all layers
//! with the same ranks share one. A *lowered* rank is one for which a program is built: the
//! first of each class of equal ranks. Its *place* is its index among them.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use collectives::{Layout, Redistribution};
use layer_engine::Shard;

use crate::Error;

/// The places of the lowered ranks.
pub(super) struct Lowered {
    /// Place of each lowered rank, by rank.
    places: Vec<Option<usize>>,
}

impl Lowered {
    /// Creates the table for ranks `0..world`. `ranks` are the lowered ranks, by place.
    pub(super) fn new(world: usize, ranks: impl Iterator<Item = usize>) -> Self {
        let mut places = vec![None; world];
        for (place, rank) in ranks.enumerate() {
            places[rank] = Some(place);
        }
        Self { places }
    }

    /// Returns the places of those of the given ranks that are lowered, in the order of `ranks`.
    pub(super) fn places(&self, ranks: &[usize]) -> Vec<usize> {
        ranks.iter().filter_map(|&rank| self.places[rank]).collect()
    }
}

/// A layout of the samples of a micro-batch that layers share. Layouts are equal if they are the
/// same object.
pub(super) struct SharedLayout {
    /// Unique number of the layout.
    id: usize,
    /// The samples of each rank, relative to the micro-batch, including ranks for which no program
    /// is built.
    pub(super) layout: Layout,
    /// Places of its lowered ranks, with their samples.
    shards: Vec<(usize, Range<usize>)>,
}

impl SharedLayout {
    /// Returns the places of the layout's lowered ranks, with their shards of the global batch. The
    /// micro-batch begins at sample `first` of the global batch.
    pub(super) fn shards(&self, first: usize) -> impl Iterator<Item = (usize, Shard)> + '_ {
        self.shards.iter().map(move |(place, samples)| {
            (*place, Shard { first: first + samples.start, samples: samples.len() })
        })
    }

    /// Returns the places of the layout's lowered ranks.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> + '_ {
        self.shards.iter().map(|&(place, _)| place)
    }
}

impl PartialEq for SharedLayout {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

/// Cache of all layouts, and of the redistributions between them.
#[derive(Default)]
pub(super) struct Layouts {
    /// Even layouts, by number of samples and ranks.
    even: HashMap<usize, HashMap<Vec<usize>, Rc<SharedLayout>>>,
    count: usize,
    /// Redistributions, by the ids of the two layouts.
    redistributions: HashMap<(usize, usize), Arc<Redistribution>>,
}

impl Layouts {
    /// Returns the layout that divides `samples` samples evenly over these ranks, in their order.
    /// It is created on first use.
    ///
    /// # Errors
    /// [`Error::Collectives`] if there are no ranks or one is repeated.
    pub(super) fn even(
        &mut self,
        samples: usize,
        ranks: &[usize],
        lowered: &Lowered,
    ) -> Result<Rc<SharedLayout>, Error> {
        let of_samples = self.even.entry(samples).or_default();
        if let Some(known) = of_samples.get(ranks) {
            return Ok(Rc::clone(known));
        }
        let layout = Layout::even(samples, ranks)?;
        let shards = layout.shards().filter_map(|(rank, samples)| Some((lowered.places[rank]?, samples)));
        let layout = Rc::new(SharedLayout { id: self.count, shards: shards.collect(), layout });
        self.count += 1;
        of_samples.insert(ranks.to_vec(), Rc::clone(&layout));
        Ok(layout)
    }

    /// Returns the movement of samples from one layout to another. It is computed on first use.
    ///
    /// # Errors
    /// [`Error::Collectives`] if the layouts have different numbers of samples.
    pub(super) fn redistribution(
        &mut self,
        from: &SharedLayout,
        to: &SharedLayout,
    ) -> Result<Arc<Redistribution>, Error> {
        let ids = (from.id, to.id);
        if let Some(known) = self.redistributions.get(&ids) {
            return Ok(Arc::clone(known));
        }
        let redistribution = Arc::new(Redistribution::new(&from.layout, &to.layout)?);
        self.redistributions.insert(ids, Arc::clone(&redistribution));
        Ok(redistribution)
    }
}
