//! Layers of the operators of one forward pass and its loss.

use std::collections::{BTreeMap, HashMap, HashSet};

use layer_graph::{LayerGraph, LayerKind};

use super::align::{Target, Unit, align, is_of_product, is_product, operator_name};
use super::events::Events;
use super::host::Host;
use crate::ProfileError;

/// Maximum number of operators times layers of a forward pass.
const MAX_PAIRS: usize = 1 << 26;

/// Layers of a network, without its input.
pub(super) struct Layers<'a> {
    model: &'a str,
    targets: Vec<Target<'a>>,
    has_opaque: bool,
}

impl<'a> Layers<'a> {
    /// Returns the layers of a network.
    pub(super) fn of(network: &'a LayerGraph) -> Self {
        let layers = network.computing_layers();
        let targets = layers.map(|(_, layer)| Target { name: layer.name(), kind: layer.kind() });
        let has_opaque = network.opaque_layers().next().is_some();
        Self { model: network.name(), targets: targets.collect(), has_opaque }
    }

    /// Returns the number of layers.
    pub(super) fn len(&self) -> usize {
        self.targets.len()
    }

    /// Returns the layer of each operator, an index in [`Host::operators`], of a forward pass and
    /// its loss, in the order of their start. Operators between two layers belong to one of them.
    ///
    /// # Errors
    /// [`ProfileError::TraceMismatch`] if the operators are not those of the network.
    pub(super) fn of_operators(
        &self,
        trace: &Events,
        host: &Host,
        operators: &[usize],
    ) -> Result<Vec<usize>, ProfileError> {
        let forward = Forward::new(trace, host, operators);
        if forward.units.len().saturating_mul(self.len()) > MAX_PAIRS {
            let problem = format!(
                "a forward pass has {} operators, and the network {} layers: expected at most {MAX_PAIRS} \
                 pairs",
                operators.len(),
                self.len()
            );
            return Err(self.mismatch(problem));
        }
        let assigned = if host.is_marked { self.by_paths(&forward) } else { self.by_order(&forward) };
        self.check(&forward, &assigned)?;
        let filled = forward.fill(&assigned);
        Ok(forward.unit_of.iter().map(|&unit| filled[unit]).collect())
    }

    fn by_order(&self, forward: &Forward<'_>) -> Vec<Option<usize>> {
        align(&forward.units, &self.targets, false)
    }

    /// Assigns units to the layers of the modules that they are marked with.
    ///
    /// The module of a layer is the innermost one whose path begins the layer's name. Units of a
    /// module without layers belong to the module that contains it.
    fn by_paths(&self, forward: &Forward<'_>) -> Vec<Option<usize>> {
        let known = forward.paths();
        let mut layers: HashMap<&str, Vec<usize>> = HashMap::new();
        for (i, target) in self.targets.iter().enumerate() {
            let mut path = target.name;
            while !known.contains(path) && !path.is_empty() {
                path = path.rsplit_once('.').map_or("", |(parent, _)| parent);
            }
            layers.entry(path).or_default().push(i);
        }
        let mut units: BTreeMap<&str, Vec<(usize, Unit)>> = BTreeMap::new();
        for (i, unit) in forward.units.iter().enumerate() {
            let own = forward.path(forward.calls[i]);
            let mut call = forward.calls[i];
            while let Some(inner) = call.filter(|_| !layers.contains_key(forward.path(call))) {
                call = forward.host.calls[inner].parent;
            }
            let path = forward.path(call);
            let is_module = path == own && !path.is_empty();
            units.entry(path).or_default().push((i, Unit { is_module, ..unit.clone() }));
        }
        let mut assigned = vec![None; forward.units.len()];
        for (path, units) in units {
            let own = layers.get(path).map_or(&[][..], Vec::as_slice);
            let targets: Vec<Target<'_>> = own.iter().map(|&layer| self.targets[layer]).collect();
            let (places, units): (Vec<usize>, Vec<Unit>) = units.into_iter().unzip();
            for (place, layer) in places.into_iter().zip(align(&units, &targets, true)) {
                assigned[place] = layer.map(|layer| own[layer]);
            }
        }
        assigned
    }

    /// Checks that no layer is recurrent, that all layers with parameters have operators, and, in a
    /// network without opaque layers, that all operators with parameters have layers.
    fn check(&self, forward: &Forward<'_>, assigned: &[Option<usize>]) -> Result<(), ProfileError> {
        let mut recurrent =
            self.targets.iter().filter(|target| matches!(target.kind, LayerKind::Recurrence(_)));
        if let Some(target) = recurrent.next() {
            return Err(self.mismatch(format!(
                "one operator computes its layer `{}` with other layers of a module, among which its \
                 time cannot be divided",
                target.name
            )));
        }
        let mut is_covered = vec![false; self.len()];
        for &layer in assigned.iter().flatten() {
            is_covered[layer] = true;
        }
        let missing = self.targets.iter().zip(&is_covered);
        let mut missing = missing.filter(|(target, is_covered)| !**is_covered && is_of_product(target.kind));
        if let Some((target, _)) = missing.next() {
            return Err(self.mismatch(format!(
                "no operator computes its layer `{}` ({})",
                target.name,
                target.kind.label()
            )));
        }
        let mut extra = forward.units.iter().zip(assigned).filter_map(|(unit, layer)| match layer {
            None => unit.names.iter().find(|name| is_product(name)),
            Some(_) => None,
        });
        match extra.next().filter(|_| !self.has_opaque) {
            Some(name) => {
                let count = 1 + extra.count();
                Err(self.mismatch(format!("{count} operators are of none of its layers, such as `{name}`")))
            }
            None => Ok(()),
        }
    }

    fn mismatch(&self, problem: String) -> ProfileError {
        ProfileError::TraceMismatch { network: self.model.into(), problem }
    }
}

/// Operators of a forward pass, grouped into units.
struct Forward<'a> {
    trace: &'a Events,
    host: &'a Host,
    units: Vec<Unit>,
    /// Innermost module call of each unit.
    calls: Vec<Option<usize>>,
    /// Unit of each operator.
    unit_of: Vec<usize>,
}

impl<'a> Forward<'a> {
    /// Groups successive operators of a module without submodules, except if several of them have
    /// parameters. All other operators are units alone.
    fn new(trace: &'a Events, host: &'a Host, operators: &[usize]) -> Self {
        let name = |operator: usize| operator_name(trace.name(&trace.all[host.operators[operator].event]));
        let mut products: HashMap<usize, usize> = HashMap::new();
        for &operator in operators {
            if let Some(call) = host.operators[operator].call.filter(|_| is_product(name(operator))) {
                *products.entry(call).or_default() += 1;
            }
        }
        let is_one = |call: &usize| {
            !host.calls[*call].has_children && products.get(call).copied().unwrap_or_default() < 2
        };
        let mut forward = Self { trace, host, units: Vec::new(), calls: Vec::new(), unit_of: Vec::new() };
        for &operator in operators {
            let call = host.operators[operator].call;
            let is_module = call.as_ref().is_some_and(is_one);
            match forward.units.last_mut() {
                Some(unit) if is_module && forward.calls.last() == Some(&call) => {
                    unit.names.push(name(operator).to_owned());
                }
                _ => {
                    let is_inner = call.is_some_and(|call| host.calls[call].parent.is_some());
                    forward.units.push(Unit { names: vec![name(operator).to_owned()], is_module, is_inner });
                    forward.calls.push(call);
                }
            }
            forward.unit_of.push(forward.units.len() - 1);
        }
        forward
    }

    /// Returns the path of the module of a marked call; empty outside of all calls.
    fn path(&self, call: Option<usize>) -> &'a str {
        call.map_or("", |call| self.host.module(self.trace, call))
    }

    /// Returns the paths of all modules that are called in this forward pass.
    fn paths(&self) -> HashSet<&'a str> {
        let mut paths = HashSet::new();
        for &call in &self.calls {
            let mut call = call;
            while let Some(inner) = call {
                if !paths.insert(self.path(call)) {
                    break;
                }
                call = self.host.calls[inner].parent;
            }
        }
        paths
    }

    /// Returns the layer of each unit: the given one, or that of the nearest unit in the same call
    /// of a submodule, or of the previous one. Without any layer, it is the first one.
    fn fill(&self, assigned: &[Option<usize>]) -> Vec<usize> {
        let mut of_call: HashMap<Option<usize>, Vec<usize>> = HashMap::new();
        for (i, layer) in assigned.iter().enumerate() {
            if layer.is_some() {
                of_call.entry(self.calls[i]).or_default().push(i);
            }
        }
        let first = assigned.iter().flatten().next().copied().unwrap_or_default();
        let mut previous = first;
        let mut filled = Vec::with_capacity(assigned.len());
        for (i, layer) in assigned.iter().enumerate() {
            let is_inner = self.calls[i].is_some_and(|call| self.host.calls[call].parent.is_some());
            let near = of_call.get(&self.calls[i]).filter(|_| is_inner).and_then(|units| {
                let next = units.partition_point(|&unit| unit < i);
                let near = units[next.saturating_sub(1)..].iter().take(2);
                near.min_by_key(|&&unit| unit.abs_diff(i)).and_then(|&unit| assigned[unit])
            });
            let chosen = layer.or(near).unwrap_or(previous);
            previous = layer.unwrap_or(previous);
            filled.push(chosen);
        }
        filled
    }
}
