//! Layouts of values on ranks, one for all layers with the same partition.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use collectives::{Partition, Redistribution};
use layer_engine::Shard;

use crate::Error;

/// The ranks for which programs are built, one per class of equal ranks. The place of such a rank
/// is its index among them.
pub(super) struct Lowered {
    /// Place of each lowered rank, by rank.
    places: Vec<Option<usize>>,
}

impl Lowered {
    /// Creates the table for `world` ranks. `ranks` are those for which programs are built, by
    /// place.
    pub(super) fn new(world: usize, ranks: impl Iterator<Item = usize>) -> Self {
        let mut places = vec![None; world];
        for (place, rank) in ranks.enumerate() {
            places[rank] = Some(place);
        }
        Self { places }
    }

    /// Returns the places of those of the given ranks that are lowered.
    pub(super) fn places(&self, ranks: &[usize]) -> Vec<usize> {
        ranks.iter().filter_map(|&rank| self.places[rank]).collect()
    }
}

/// A division of the samples of a micro-batch among ranks.
pub(super) struct Layout {
    /// Unique number of the layout.
    id: usize,
    /// The samples of each rank, including ranks for which no program is built.
    pub(super) partition: Partition,
    /// Places of its lowered ranks, with their samples.
    shards: Vec<(usize, Range<usize>)>,
}

impl Layout {
    /// The places of its lowered ranks, with their shards in a micro-batch that begins at sample
    /// `first`.
    pub(super) fn shards(&self, first: usize) -> impl Iterator<Item = (usize, Shard)> + '_ {
        self.shards.iter().map(move |(place, samples)| {
            (*place, Shard { first: first + samples.start, samples: samples.len() })
        })
    }

    /// The places of its lowered ranks.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> + '_ {
        self.shards.iter().map(|&(place, _)| place)
    }
}

impl PartialEq for Layout {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

/// All layouts so far, and the redistributions between them.
#[derive(Default)]
pub(super) struct Layouts {
    /// Even layouts, by number of samples and ranks.
    even: HashMap<usize, HashMap<Vec<usize>, Rc<Layout>>>,
    count: usize,
    /// Redistributions, by the ids of the two layouts.
    redistributions: HashMap<(usize, usize), Arc<Redistribution>>,
}

impl Layouts {
    /// Returns the even partition of the given number of samples over these ranks.
    pub(super) fn even(
        &mut self,
        samples: usize,
        ranks: &[usize],
        lowered: &Lowered,
    ) -> Result<Rc<Layout>, Error> {
        let of_samples = self.even.entry(samples).or_default();
        if let Some(known) = of_samples.get(ranks) {
            return Ok(Rc::clone(known));
        }
        let partition = Partition::even(samples, ranks)?;
        let shards = partition.shards().filter_map(|(rank, samples)| Some((lowered.places[rank]?, samples)));
        let layout = Rc::new(Layout { id: self.count, shards: shards.collect(), partition });
        self.count += 1;
        of_samples.insert(ranks.to_vec(), Rc::clone(&layout));
        Ok(layout)
    }

    /// Returns the redistribution from one layout to another. It is computed once and cached.
    pub(super) fn redistribution(
        &mut self,
        from: &Layout,
        to: &Layout,
    ) -> Result<Arc<Redistribution>, Error> {
        let ids = (from.id, to.id);
        if let Some(known) = self.redistributions.get(&ids) {
            return Ok(Arc::clone(known));
        }
        let redistribution = Arc::new(Redistribution::new(&from.partition, &to.partition)?);
        self.redistributions.insert(ids, Arc::clone(&redistribution));
        Ok(redistribution)
    }
}
