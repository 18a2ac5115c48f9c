//! Names of layers, taken from the exporter's modules if the file has them. A *module* is an
//! `nn.Module` of PyTorch, with its full name, such as `layer1.0.conv1`; a *scope* is a module that
//! a node belongs to.
//!
//! PyTorch writes them in two ways. The newer exporter stores a list of scopes in a node's
//! metadata, such as `['', 'layer1', 'layer1.0', 'layer1.0.conv1', 'conv2d_1']`. The older exporter
//! uses them as the node's name: `/layer1/layer1.0/conv1/Conv`. Parameters have the names of the
//! state dictionary, such as `layer1.0.conv1.weight`, unless folding replaced them.

use std::collections::HashSet;

use super::node::Node;

/// Metadata key under which the newer exporter stores the scopes of a node.
const SCOPES: &str = "pkg.torch.onnx.name_scopes";

/// Full names of the modules that contain other modules.
pub(super) struct ParentModules(HashSet<String>);

impl ParentModules {
    /// Collects for all nodes the modules that contain their innermost module.
    pub(super) fn of(nodes: &[Node<'_>]) -> Self {
        let outer = |node: &Node<'_>| {
            let mut modules = modules(*node);
            modules.pop();
            modules
        };
        Self(nodes.iter().flat_map(outer).collect())
    }

    /// Returns candidate names for the layer of a node, at least one, in order of preference:
    ///
    /// 1. the module of its parameters,
    /// 2. the innermost module it belongs to, followed by the operator if that module contains
    ///    others,
    /// 3. the name of the node, or `layer` if it has none, only if there is neither.
    ///
    /// `parameters` are the names of the constants that the node reads. They are more reliable than
    /// scopes: a convolution with a folded batch normalisation has the scopes of the latter.
    pub(super) fn layer_names<'a>(
        &self,
        node: Node<'a>,
        mut parameters: impl Iterator<Item = &'a str>,
    ) -> Vec<String> {
        // `nn.MultiheadAttention` has its input projection's weight as `in_proj_weight`.
        let module = |name: &'a str| {
            let projection = name.strip_suffix("_weight").filter(|name| name.ends_with(".in_proj"));
            name.strip_suffix(".weight").or(projection)
        };
        let of_parameters = parameters.find_map(module).map(str::to_owned);
        let of_scopes = modules(node).pop().map(|module| {
            let is_parent = self.0.contains(&module);
            if is_parent { format!("{module}.{}", node.operator().to_lowercase()) } else { module }
        });
        let names: Vec<String> = of_parameters.into_iter().chain(of_scopes).collect();
        match node.name() {
            _ if !names.is_empty() => names,
            "" => vec!["layer".to_owned()],
            name => vec![name.to_owned()],
        }
    }
}

/// Returns the full name of the innermost module that a node belongs to.
pub(super) fn module(node: Node<'_>) -> Option<String> {
    modules(node).pop()
}

/// Returns the full names of the modules that a node belongs to, outermost first.
fn modules(node: Node<'_>) -> Vec<String> {
    node.metadata(SCOPES).map_or_else(|| in_path(node), in_list)
}

/// Parses a list in Python notation, whose last entry is the node itself.
fn in_list(list: &str) -> Vec<String> {
    let mut scopes: Vec<_> = list.split('\'').skip(1).step_by(2).map(str::to_owned).collect();
    scopes.pop();
    scopes.retain(|scope| !scope.is_empty());
    scopes
}

/// Parses the name of a node that is a path ending in the operator.
fn in_path(node: Node<'_>) -> Vec<String> {
    let Some((path, last)) = node.name().strip_prefix('/').and_then(|name| name.rsplit_once('/')) else {
        return Vec::new();
    };
    let operator = node.operator();
    let is_numbered = |rest: &str| {
        rest.is_empty()
            || rest.strip_prefix('_').is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()))
    };
    if !last.strip_prefix(&*operator).is_some_and(is_numbered) {
        return Vec::new();
    }
    let mut modules = Vec::<String>::new();
    let mut parent = "";
    for part in path.split('/') {
        // A member of a `Sequential` repeats the name of the container: `layer1/layer1.0`.
        let own = part.strip_prefix(parent).and_then(|rest| rest.strip_prefix('.')).unwrap_or(part);
        modules.push(modules.last().map_or_else(|| own.to_owned(), |outer| format!("{outer}.{own}")));
        parent = part;
    }
    modules
}
