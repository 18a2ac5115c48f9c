//! The nodes of a file that its output depends on.

use std::collections::{HashMap, HashSet};

use super::node::Node;

/// Positions of the nodes that a value depends on, those that make constants included.
pub(super) fn ancestors(nodes: &[Node<'_>], value: &str) -> HashSet<usize> {
    // Where two nodes make the same value, both are kept, so that the importer finds the error.
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
