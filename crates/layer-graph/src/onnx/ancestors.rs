//! Search for the nodes that a value depends on.

use std::collections::{HashMap, HashSet};

use super::node::Node;

/// Returns the positions of the nodes that a value depends on, including those that compute
/// constants.
pub(super) fn ancestors(nodes: &[Node<'_>], value: &str) -> HashSet<usize> {
    // If two nodes define the same value, both are kept: the importer reports the error.
    let mut makers = HashMap::<_, Vec<_>>::new();
    for (i, node) in nodes.iter().enumerate() {
        for made in node.outputs() {
            makers.entry(made).or_default().push(i);
        }
    }
    let mut wanted = HashSet::new();
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        for &maker in makers.get(value).into_iter().flatten() {
            if wanted.insert(maker) {
                open.extend(nodes[maker].inputs());
            }
        }
    }
    wanted
}
