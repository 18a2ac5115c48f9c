//! Collectives in a program document.

use collectives::{Layout, Redistribution, Region};
use layer_engine::Storage;
use serde::Serialize;

use super::storage_label;
use crate::program::{Collective, CollectiveOp};

#[derive(Serialize)]
pub(super) struct CollectiveDocument<'a> {
    label: &'a str,
    ranks: &'a [usize],
    /// Absent for one group.
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<usize>,
    #[serde(flatten)]
    op: OpDocument<'a>,
}

#[derive(Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum OpDocument<'a> {
    AllReduce { elements: usize },
    Broadcast { elements: usize },
    Redistribute(RedistributionDocument<'a>),
}

#[derive(Serialize)]
struct RedistributionDocument<'a> {
    #[serde(flatten)]
    array: ArrayDocument<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    storage: Option<&'static str>,
    source: Vec<HeldDocument>,
    target: Vec<HeldDocument>,
    moves: Vec<MoveDocument>,
}

/// The array of which items move.
#[derive(Serialize)]
#[serde(untagged)]
enum ArrayDocument<'a> {
    /// Its items are samples.
    Samples { sample_elements: usize },
    /// Its items are parts of samples.
    Items { extents: &'a [usize], item_elements: usize },
}

/// The items that a rank holds.
#[derive(Serialize)]
struct HeldDocument {
    rank: usize,
    #[serde(flatten)]
    items: ItemsDocument,
}

#[derive(Serialize)]
struct MoveDocument {
    from: usize,
    to: usize,
    #[serde(flatten)]
    items: ItemsDocument,
}

/// A box of items as half-open ranges of the (micro-)batch, and of further dimensions.
#[derive(Serialize)]
#[serde(untagged)]
enum ItemsDocument {
    Samples { samples: [usize; 2] },
    Box { ranges: Vec<[usize; 2]> },
}

pub(super) fn collective(collective: &Collective) -> CollectiveDocument<'_> {
    let op = match &collective.op {
        CollectiveOp::AllReduce { elements } => OpDocument::AllReduce { elements: *elements },
        CollectiveOp::Broadcast { elements } => OpDocument::Broadcast { elements: *elements },
        CollectiveOp::Redistribute { redistribution, item_elements, storage } => {
            OpDocument::Redistribute(redistribute(redistribution, *item_elements, *storage))
        }
    };
    let groups = (collective.groups > 1).then_some(collective.groups);
    CollectiveDocument { label: &collective.label, ranks: &collective.ranks, groups, op }
}

fn redistribute(
    redistribution: &Redistribution,
    item_elements: usize,
    storage: Storage,
) -> RedistributionDocument<'_> {
    let array = match redistribution.source().extents() {
        [] | [_] => ArrayDocument::Samples { sample_elements: item_elements },
        extents => ArrayDocument::Items { extents, item_elements },
    };
    let moves = redistribution.moves().iter();
    RedistributionDocument {
        array,
        storage: storage_label(storage),
        source: held(redistribution.source()),
        target: held(redistribution.target()),
        moves: moves
            .map(|one| MoveDocument {
                from: one.from_rank,
                to: one.to_rank,
                items: ItemsDocument::new(&one.region),
            })
            .collect(),
    }
}

fn held(layout: &Layout) -> Vec<HeldDocument> {
    let regions = layout.regions();
    regions.map(|(rank, region)| HeldDocument { rank, items: ItemsDocument::new(&region) }).collect()
}

impl ItemsDocument {
    fn new(region: &Region) -> Self {
        let range = |range: &std::ops::Range<usize>| [range.start, range.end];
        match region.ranges() {
            [samples] => Self::Samples { samples: range(samples) },
            ranges => Self::Box { ranges: ranges.iter().map(range).collect() },
        }
    }
}
