//! Memory of an arrangement, by node and rank class.
//!
//! A *group* is a list of ranks, a *slot* the index of a group among those of the arrangement. A
//! *class* is a set of ranks that do identical work. Nodes are given by their indices in the
//! problem.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::cost_cache::CostCache;
use crate::costs::{NodeMemory, ShardSize};
use crate::groups::{Class, Classes, Slot};
use crate::problem::ProblemGraph;
use crate::recompute::Recomputation;
use crate::{Node, PlanProblem};

/// Size of the norm of all gradients, bytes.
const NORM_BYTES: u64 = 4;

/// Memory of an arrangement: the problem with the groups of its nodes.
pub(crate) struct MemoryModel<'a> {
    /// The problem.
    pub(crate) problem: &'a PlanProblem,
    /// Graph of the problem.
    pub(crate) structure: &'a ProblemGraph,
    /// Cached memory of nodes on each group.
    pub(crate) cache: &'a CostCache<'a>,
    /// Rank classes of the arrangement.
    pub(crate) classes: &'a Classes,
    /// By node: the slot of the list of ranks that it runs on.
    pub(crate) groups: &'a [Slot],
    /// By node: the slot of the list of ranks that hold the parameters that it owns; the slot of
    /// its own list if it owns none.
    pub(crate) parameter_groups: &'a [Slot],
    /// Slot of the list of all ranks that hold parameters, if the norm of all gradients is needed.
    pub(crate) all_parameters: Option<Slot>,
    /// Nodes whose forward step is repeated in the backward pass.
    pub(crate) recomputation: &'a Recomputation,
    /// Indices of all nodes in the order of the forward pass.
    pub(crate) order: &'a [u32],
}

/// Returns an upper bound of the memory of any rank, bytes: the memory of a rank that has all
/// nodes, with all copies. `maximum` has for each node the maximum of each of its memory sizes on a
/// rank. O(nodes).
pub(crate) fn max_held_bytes(problem: &PlanProblem, structure: &ProblemGraph, maximum: &[NodeMemory]) -> u64 {
    let shares_memory = !problem.checkpoints.is_empty();
    let of_node = |(node, memory): (usize, &NodeMemory)| {
        let consumers = structure.consumers[node].len() as u64;
        // For each list of consumers: a copy, the sum of their gradients there, and that gradient
        // here; and the sum of all.
        let copies = if shares_memory { 4 * consumers + 3 } else { 3 * consumers + 1 };
        let saved_bytes = if shares_memory { memory.saved_bytes } else { 0 };
        let Node { state_bytes, gradient_bytes, .. } = problem.nodes[node];
        // The sum of several users' gradients, a bucket, and the sums over micro-batches.
        let gradients = if problem.micro_batches.get() > 1 { 5 } else { 2 };
        [
            memory.held_bytes,
            memory.samples_bytes,
            saved_bytes,
            memory.output_bytes.saturating_mul(copies),
            state_bytes,
            gradient_bytes.saturating_mul(gradients),
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    };
    let others = NORM_BYTES.saturating_add(problem.gradients.metrics_bytes.saturating_mul(2));
    maximum.iter().enumerate().map(of_node).fold(others, u64::saturating_add)
}

impl MemoryModel<'_> {
    /// Calls `add` for every buffer with its rank class, the node that it is for, and its size in
    /// bytes. O((nodes + edges) x classes).
    pub(crate) fn for_each_buffer(&self, mut add: impl FnMut(Class, usize, u64)) {
        let mut loaded: Vec<Slot> = Vec::new();
        for (node, &group) in self.groups.iter().enumerate() {
            let loads = !loaded.contains(&group) && self.loads(node, group);
            if loads {
                loaded.push(group);
            }
            for member in self.classes.members(group) {
                add(member.class, node, self.own(node, member.shard_size));
            }
            if loads {
                self.add_part(group, node, &mut add, |memory| memory.samples_bytes);
            }
            self.add_state(node, &mut add);
            if !self.recomputation.is_local(node) {
                self.add_copies(node, &mut add);
            }
        }
        self.add_shared(&mut add);
        self.add_buckets(&mut add);
        self.add_sums(&mut add);
        if let (Some(group), Some(&last)) = (self.all_parameters, self.order.last()) {
            self.everywhere(group, last as usize, NORM_BYTES, &mut add);
        }
    }

    fn loads(&self, node: usize, group: Slot) -> bool {
        self.cache.memory(node, group).iter().any(|memory| memory.samples_bytes > 0)
    }

    /// Adds a part of a node's memory on a group.
    fn add_part(
        &self,
        group: Slot,
        node: usize,
        add: &mut impl FnMut(Class, usize, u64),
        part: impl Fn(&NodeMemory) -> u64,
    ) {
        let memory = self.cache.memory(node, group);
        for member in self.classes.members(group) {
            add(member.class, node, part(&memory[member.shard_size as usize]));
        }
    }

    /// Returns the memory of a node on a member of its group that no other buffer is counted for:
    /// without what is in memory shared by segments.
    fn own(&self, node: usize, shard_size: ShardSize) -> u64 {
        let group = self.groups[node];
        let memory = |node: usize| self.cache.memory(node, group)[shard_size as usize];
        let NodeMemory { held_bytes, saved_bytes, output_bytes, .. } = memory(node);
        let left =
            if self.recomputation.is_local(node) { saved_bytes.saturating_add(output_bytes) } else { 0 };
        let producers = self.structure.producers[node].iter().copied();
        let gradients = producers.filter(|&producer| self.has_local_gradient(producer));
        let gradients =
            gradients.map(|producer| memory(producer).output_bytes).fold(left, u64::saturating_add);
        held_bytes.saturating_sub(gradients)
    }

    fn has_local_gradient(&self, node: usize) -> bool {
        self.recomputation.is_local(node) && self.structure.needs_gradient[node]
    }

    /// Adds the memory that the segments between checkpoints share: as many buffers as any segment
    /// needs, each of the maximum size over the segments by descending size.
    fn add_shared(&self, add: &mut impl FnMut(Class, usize, u64)) {
        // By class and segment: its buffers and their nodes.
        let mut segments: BTreeMap<(Class, usize), Vec<(u64, usize)>> = BTreeMap::new();
        for node in (0..self.groups.len()).filter(|&node| self.recomputation.is_local(node)) {
            let consumers = self.structure.consumers[node].len();
            let gradients = match consumers {
                _ if !self.has_local_gradient(node) => 0,
                1 => 1,
                // The gradients of each of them, and their sum.
                several => several + 1,
            };
            let memory = self.cache.memory(node, self.groups[node]);
            for member in self.classes.members(self.groups[node]) {
                let NodeMemory { saved_bytes, output_bytes, .. } = memory[member.shard_size as usize];
                let segment = segments.entry((member.class, self.recomputation.segment(node))).or_default();
                segment.push((saved_bytes, node));
                segment.extend(std::iter::repeat_n((output_bytes, node), 1 + gradients));
            }
        }
        let mut pieces: BTreeMap<Class, Vec<(u64, usize)>> = BTreeMap::new();
        for ((class, _), mut segment) in segments {
            segment.sort_unstable_by_key(|&piece| Reverse(piece));
            let pieces = pieces.entry(class).or_default();
            pieces.resize(pieces.len().max(segment.len()), (0, 0));
            for (piece, other) in pieces.iter_mut().zip(segment) {
                *piece = (*piece).max(other);
            }
        }
        for (class, pieces) in pieces {
            for (bytes, node) in pieces {
                add(class, node, bytes);
            }
        }
    }

    fn everywhere(&self, group: Slot, node: usize, bytes: u64, add: &mut impl FnMut(Class, usize, u64)) {
        for member in self.classes.members(group) {
            add(member.class, node, bytes);
        }
    }

    /// Adds parameters and optimizer state, and the sum of gradients if several nodes use the
    /// parameters on a rank.
    fn add_state(&self, node: usize, add: &mut impl FnMut(Class, usize, u64)) {
        let of_node = &self.problem.nodes[node];
        self.everywhere(self.parameter_groups[node], node, of_node.state_bytes, add);
        let users = &self.structure.users[node];
        if users.len() < 2 {
            return;
        }
        for holder in self.classes.members(self.parameter_groups[node]) {
            let is_here = |user: &&usize| {
                self.classes.members(self.groups[**user]).iter().any(|member| member.class == holder.class)
            };
            if users.iter().filter(is_here).count() > 1 {
                add(holder.class, node, of_node.gradient_bytes);
            }
        }
    }

    /// Adds copies of the output on the ranks of consumers, and the gradients that come from them.
    fn add_copies(&self, node: usize, add: &mut impl FnMut(Class, usize, u64)) {
        let own = self.groups[node];
        let consumers = &self.structure.consumers[node];
        let group_of = |consumer: &usize| self.groups[*consumer];
        let output = |memory: &NodeMemory| memory.output_bytes;
        let mut parts = 0;
        for (place, consumer) in consumers.iter().enumerate() {
            let group = group_of(consumer);
            if consumers[..place].iter().any(|earlier| group_of(earlier) == group) {
                continue;
            }
            parts += 1;
            if group != own {
                self.add_part(group, node, add, output);
            }
            if !self.structure.needs_gradient[node] {
                continue;
            }
            let is_sum = consumers[place + 1..].iter().any(|later| group_of(later) == group);
            if is_sum {
                self.add_part(group, node, add, output);
            }
            if group != own {
                self.add_part(own, node, add, output);
            }
        }
        if parts > 1 && self.structure.needs_gradient[node] {
            self.add_part(own, node, add, output);
        }
    }

    /// Adds the sums of gradients over micro-batches: the previous sum, a summand and the next sum.
    fn add_sums(&self, add: &mut impl FnMut(Class, usize, u64)) {
        let micro_batches = self.problem.micro_batches.get();
        if micro_batches == 1 {
            return;
        }
        for (node, users) in self.structure.users.iter().enumerate().filter(|(_, users)| !users.is_empty()) {
            let gradient_bytes = self.problem.nodes[node].gradient_bytes;
            for holder in self.classes.members(self.parameter_groups[node]) {
                let is_here = |user: &usize| {
                    self.classes.members(self.groups[*user]).iter().any(|member| member.class == holder.class)
                };
                let mut here = users.iter().filter(|user| is_here(user));
                // The gradient is then in the user's own buffer, which needs no sum.
                let is_other = !is_here(&node) && here.next().is_some() && here.next().is_none();
                let more = if is_other && micro_batches > 2 { 3 } else { 2 };
                add(holder.class, node, gradient_bytes.saturating_mul(more));
            }
        }
        let mut nodes = self.order.iter().rev().map(|&node| node as usize);
        if let Some(loss) = nodes.find(|&node| self.structure.consumers[node].is_empty()) {
            let bytes = self.problem.gradients.metrics_bytes.saturating_mul(2);
            self.everywhere(self.groups[loss], loss, bytes, add);
        }
    }

    /// Adds the buffers into which gradients are copied to be reduced together.
    fn add_buckets(&self, add: &mut impl FnMut(Class, usize, u64)) {
        let gradients = &self.problem.gradients;
        let mut filling: Vec<(Slot, u64, Vec<usize>)> = Vec::new();
        let mut reduce = |group: Slot, nodes: &[usize]| {
            if nodes.len() > 1 && self.cache.len(group) > 1 {
                for &node in nodes {
                    self.everywhere(group, node, self.problem.nodes[node].gradient_bytes, add);
                }
            }
        };
        for &node in self.order.iter().rev() {
            let node = node as usize;
            if self.structure.users[node].is_empty() {
                continue;
            }
            let group = self.parameter_groups[node];
            let place = filling.iter().position(|bucket| bucket.0 == group).unwrap_or_else(|| {
                filling.push((group, 0, Vec::new()));
                filling.len() - 1
            });
            let (_, bytes, nodes) = &mut filling[place];
            nodes.push(node);
            *bytes = bytes.saturating_add(self.problem.nodes[node].gradient_bytes);
            if gradients.overlap && *bytes >= gradients.bucket_bytes {
                let (group, _, nodes) = filling.remove(place);
                reduce(group, &nodes);
            }
        }
        for (group, _, nodes) in filling {
            reduce(group, &nodes);
        }
    }
}
