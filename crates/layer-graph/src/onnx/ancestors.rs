//! Search for the nodes that a value depends on. A *value* is a named tensor of the file, which a
//! node computes, the file stores or the model takes as input.

use std::collections::{HashMap, HashSet};

use super::node::Node;

/// Returns the positions in `nodes` of the nodes that the value of this name depends on, including
/// those that compute constants.
pub(super) fn ancestors(nodes: &[Node<'_>], value: &str) -> HashSet<usize> {
    // If two nodes define the same value, both are kept: the importer reports the error.
    let mut producers = HashMap::<_, Vec<_>>::new();
    for (i, node) in nodes.iter().enumerate() {
        for output in node.outputs() {
            producers.entry(output).or_default().push(i);
        }
    }
    let mut needed = HashSet::new();
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        for &producer in producers.get(value).into_iter().flatten() {
            if needed.insert(producer) {
                open.extend(nodes[producer].inputs());
            }
        }
    }
    needed
}
