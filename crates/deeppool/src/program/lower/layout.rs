//! Layouts of values on ranks. They divide the samples of a micro-batch among ranks, and the work
//! on each range of samples among the parts of a layer. A *lowered* rank is one for which a program
//! is built: the first of each class of equal ranks. Its *place* is its index among them.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use collectives::{Layout, Redistribution};
use layer_engine::{Shard, Storage};
use layer_graph::{TensorView, Values};

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

/// A layout of layers on ranks, for the samples of a micro-batch: a grid of ranges of samples and
/// parts of layers. Layers with the same ranks and number of parts share one. Layouts are equal if
/// they are the same object.
pub(super) struct SharedLayout {
    /// Unique number of the layout.
    id: usize,
    /// The samples of each rank, relative to the micro-batch, including ranks for which no program
    /// is built. All parts of a layer have the same samples.
    pub(super) layout: Layout,
    /// Number of parts: ranks with the same samples, which are consecutive.
    pub(super) parts: usize,
    /// The layout's lowered ranks.
    shards: Vec<PlacedShard>,
}

/// The samples and the part of a lowered rank.
struct PlacedShard {
    place: usize,
    /// Relative to the micro-batch.
    samples: Range<usize>,
    part: usize,
}

impl SharedLayout {
    /// Returns the places of the layout's lowered ranks, with their shards of the global batch. The
    /// micro-batch begins at sample `first` of the global batch.
    pub(super) fn shards(&self, first: usize) -> impl Iterator<Item = (usize, Shard)> + '_ {
        self.shards.iter().map(move |one| {
            (one.place, Shard { first: first + one.samples.start, samples: one.samples.len() })
        })
    }

    /// Returns the places of the layout's lowered ranks.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> + '_ {
        self.shards.iter().map(|one| one.place)
    }
}

impl PartialEq for SharedLayout {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

/// Where a tensor lies: on the ranks of a layout, of which each holds the values of its samples.
#[derive(Clone, PartialEq)]
pub(super) struct TensorLayout {
    pub(super) of: Rc<SharedLayout>,
    /// Share of a sample that each part holds: [`Values::Copies`] if there is one part.
    pub(super) values: Values,
}

impl TensorLayout {
    /// Creates the layout of a tensor of whose samples each part holds `values`.
    pub(super) fn new(of: Rc<SharedLayout>, values: Values) -> Self {
        let values = if of.parts == 1 { Values::Copies } else { values };
        Self { of, values }
    }

    /// Returns the lowered ranks, with the number of elements that each holds.
    pub(super) fn elements(&self, view: TensorView) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.of.shards.iter().map(move |one| {
            (one.place, one.samples.len() * view.part_elements(self.values, self.of.parts, one.part))
        })
    }

    /// Returns the number of terms whose sum is the tensor.
    pub(super) fn terms(&self) -> usize {
        if self.values == Values::Addends { self.of.parts } else { 1 }
    }

    /// Returns the boxes that the ranks hold, as [`tensor_boxes`] does.
    fn boxes(&self, view: TensorView, terms: usize) -> Result<Layout, Error> {
        let of = &self.of;
        tensor_boxes((of.layout.samples(), terms, view), (of.layout.ranks(), of.parts), self.values)
    }
}

/// Returns the boxes that ranks hold of an array with the dimensions samples, positions, outer ones
/// of a position, and units. `parts` consecutive ranks have the same samples, and hold `values` of
/// them. With several `terms` these are the outermost dimension, of which each part of a tensor of
/// addends holds one, and all other ranks all.
///
/// # Errors
/// [`Error::Collectives`] if the number of ranks is not a multiple of the parts, or one is
/// repeated.
pub(crate) fn tensor_boxes(
    (samples, terms, view): (usize, usize, TensorView),
    (ranks, parts): (&[usize], usize),
    values: Values,
) -> Result<Layout, Error> {
    let ranges = ranks.len() / parts.max(1);
    let (divided, ranks) = match values {
        Values::Copies => ([1, ranges, 1, 1, 1], ranks.to_vec()),
        Values::Ranges => ([1, ranges, 1, 1, parts], ranks.to_vec()),
        Values::Addends => ([parts, ranges, 1, 1, 1], by_part(ranks, parts)),
        Values::Positions => ([1, ranges, parts, 1, 1], ranks.to_vec()),
    };
    let TensorView { positions, outer, units, .. } = view;
    let (extents, skipped) = ([terms, samples, positions, outer / positions, units], usize::from(terms == 1));
    Ok(Layout::grid(&extents[skipped..], &divided[skipped..], &ranks)?)
}

/// Returns the view in which a tensor moves between layouts of these parts and values. Scalars of
/// 32 bits move. Elements of 16 bits move as pairs of units, if a unit has an odd number of them
/// and each range an even number of units.
pub(crate) fn view_of_scalars(view: TensorView, storage: Storage, sides: [(usize, Values); 2]) -> TensorView {
    let is_even = |(parts, values): (usize, Values)| {
        let ranges = if values == Values::Ranges { parts } else { 1 };
        view.units % (2 * ranges) == 0
    };
    if storage == Storage::Bf16 && view.inner % 2 == 1 && sides.into_iter().all(is_even) {
        TensorView { units: view.units / 2, inner: 2 * view.inner, ..view }
    } else {
        view
    }
}

/// Returns the ranks of each part, one part after another.
pub(super) fn by_part(ranks: &[usize], parts: usize) -> Vec<usize> {
    (0..parts).flat_map(|part| ranks.iter().skip(part).step_by(parts).copied()).collect()
}

/// Cache of all layouts, and of the redistributions between them.
#[derive(Default)]
pub(super) struct Layouts {
    /// Layouts, by number of samples and of parts, and ranks.
    known: HashMap<(usize, usize), HashMap<Vec<usize>, Rc<SharedLayout>>>,
    count: usize,
    /// Redistributions between layouts.
    redistributions: HashMap<RedistributionKey, Arc<Redistribution>>,
}

/// Both layouts by id and values, and the view of a sample, unless only samples are divided.
type RedistributionKey = ([(usize, Values); 2], Option<TensorView>);

impl Layouts {
    /// Returns the layout that divides `samples` samples evenly over these ranks, in their order.
    /// `parts` consecutive ranks have the same samples. It is created on first use.
    ///
    /// # Errors
    /// [`Error::Collectives`] if there are no ranks, one is repeated, or their number is not a
    /// multiple of `parts`.
    pub(super) fn even(
        &mut self,
        samples: usize,
        (ranks, parts): (&[usize], usize),
        lowered: &Lowered,
    ) -> Result<Rc<SharedLayout>, Error> {
        let of_samples = self.known.entry((samples, parts)).or_default();
        if let Some(known) = of_samples.get(ranks) {
            return Ok(Rc::clone(known));
        }
        let layout = Layout::grid(&[samples], &[ranks.len() / parts.max(1)], ranks)?;
        let shards = layout.shards().enumerate().filter_map(|(index, (rank, samples))| {
            Some(PlacedShard { place: lowered.places[rank]?, samples, part: index % parts.max(1) })
        });
        let layout = Rc::new(SharedLayout { id: self.count, shards: shards.collect(), parts, layout });
        self.count += 1;
        of_samples.insert(ranks.to_vec(), Rc::clone(&layout));
        Ok(layout)
    }

    /// Returns the movement of a tensor from one layout to another, and the number of elements of
    /// its items. Addends become consecutive on each rank. `view` is that of a sample. It is
    /// computed on first use.
    ///
    /// # Errors
    /// [`Error::Collectives`] if the layouts have different numbers of samples.
    pub(super) fn redistribution(
        &mut self,
        from: &TensorLayout,
        to: &TensorLayout,
        view: TensorView,
    ) -> Result<(Arc<Redistribution>, usize), Error> {
        let is_divided = [from, to].iter().any(|side| side.of.parts > 1);
        let sides = [from, to].map(|side| (side.of.id, side.values));
        let key = (sides, is_divided.then_some(view));
        let item_elements = if is_divided { view.inner } else { view.elements() };
        if let Some(known) = self.redistributions.get(&key) {
            return Ok((Arc::clone(known), item_elements));
        }
        let redistribution = if is_divided {
            let terms = from.terms();
            Redistribution::new(&from.boxes(view, terms)?, &to.boxes(view, terms)?)?
        } else {
            Redistribution::new(&from.of.layout, &to.of.layout)?
        };
        let redistribution = Arc::new(redistribution);
        self.redistributions.insert(key, Arc::clone(&redistribution));
        Ok((redistribution, item_elements))
    }
}
