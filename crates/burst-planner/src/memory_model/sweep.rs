//! The sweep over all buffers of an arrangement, in the order of the steps.

use super::positions::{Position, Positions};
use super::{Held, MemoryModel, NORM_BYTES};
use crate::costs::NodeMemory;
use crate::groups::Slot;
use crate::splits::{Layout, group_of};

/// The sweep over the buffers, in the order of the steps.
pub(super) struct Sweep<'m, F> {
    /// The arrangement.
    pub(super) model: &'m MemoryModel<'m>,
    /// Positions of the steps.
    pub(super) positions: &'m Positions,
    /// By class: the first position after all compute steps that the next received buffer waits
    /// for. Collectives run concurrently with compute steps, in their own order, and a rank that
    /// only receives may write the buffer as soon as its previous collective has ended.
    pub(super) received_from: Vec<Position>,
    /// Receives every buffer.
    pub(super) add: F,
}

impl<F: FnMut(Held)> Sweep<'_, F> {
    /// Calls `add` for every buffer.
    pub(super) fn run(mut self) {
        for &node in self.model.order {
            self.held(node as usize);
            self.output(node as usize);
            self.saved(node as usize);
        }
        self.samples();
        for &node in self.model.order.iter().rev() {
            let node = node as usize;
            if self.model.structure.needs_gradient[node] {
                self.output_gradient(node);
                self.parameter_gradient(node);
            }
        }
        self.buckets();
        let end = self.positions.end;
        if let (Some(group), Some(&last)) = (self.model.all_parameters, self.model.order.last()) {
            self.everywhere(group, last as usize, NORM_BYTES, [end, end]);
        }
    }

    /// Adds a buffer of each rank of a group, whose size depends on the samples of the rank.
    fn part(&mut self, group: Slot, node: usize, alive: [Position; 2], part: impl Fn(&NodeMemory) -> u64) {
        for member in self.model.classes.members(group) {
            let bytes = part(self.model.memory(node, group, member.shard_size));
            (self.add)(Held { class: member.class, node, bytes, alive });
        }
    }

    /// Adds a buffer of the same size on each rank of a group.
    fn everywhere(&mut self, group: Slot, node: usize, bytes: u64, alive: [Position; 2]) {
        for member in self.model.classes.members(group) {
            (self.add)(Held { class: member.class, node, bytes, alive });
        }
    }

    /// Adds a buffer of a node's output or its gradient on each rank of a layout.
    fn tensor(&mut self, layout: Layout, node: usize, alive: [Position; 2]) {
        for member in self.model.classes.members(group_of(layout)) {
            let bytes = self.model.cache.output_bytes(node, layout, member.shard_size);
            (self.add)(Held { class: member.class, node, bytes, alive });
        }
    }

    /// Adds what is in use during the whole iteration, and during the node's steps.
    fn held(&mut self, node: usize) {
        let whole = [0, self.positions.end];
        let group = self.model.groups[node];
        let state_bytes = self.model.tensors.state_bytes[node];
        self.everywhere(self.model.parameter_groups[node], node, state_bytes, whole);
        self.part(group, node, whole, |memory| memory.held_bytes);
        let forward = self.positions.forward(node);
        let backward = self.positions.backward[node];
        self.part(group, node, [forward; 2], |memory| memory.step_bytes);
        if self.model.structure.needs_gradient[node] {
            self.part(group, node, [backward; 2], |memory| memory.step_bytes);
        }
        if let Some(repeated) = self.positions.repeated[node] {
            self.part(group, node, [repeated; 2], |memory| memory.step_bytes);
        }
    }

    /// Adds the output of a node, and its copies in other layouts.
    fn output(&mut self, node: usize) {
        let (model, positions) = (self.model, self.positions);
        let (own, consumers) = (model.tensors.outputs[node], &model.structure.consumers[node]);
        let forward = positions.forward(node);
        let reads_own =
            model.structure.needs_gradient[node] && model.problem.nodes[node].backward_reads.output;
        let layout = |consumer: usize| model.tensors.inputs[consumer];
        // An all-reduce is in place.
        let is_here = |layout: Layout| layout == own || model.tensors.is_all_reduced(own, layout);
        let here = |&&consumer: &&usize| is_here(layout(consumer));
        // A node that several others read is sent to all of them at once.
        let sent = |consumer: usize| match consumers.len() {
            1 => Positions::arrival(positions.place[consumer]),
            _ => forward + 1,
        };
        let last_sent = consumers.iter().filter(|consumer| !here(consumer)).map(|&consumer| sent(consumer));
        let last_sent = last_sent.max().unwrap_or(forward);
        if let Some(repeated) = self.positions.repeated[node] {
            // The first value is dead after the forward steps of its consumers.
            let read = consumers.iter().map(|&consumer| self.positions.forward(consumer)).max();
            let read_again = consumers.iter().map(|&consumer| model.last_read(consumer, positions));
            let used = if reads_own { positions.backward[node] } else { repeated };
            let last = read_again.max().unwrap_or(repeated).max(used);
            self.tensor(own, node, [forward, read.unwrap_or(forward)]);
            self.tensor(own, node, [repeated, last]);
        } else {
            let read =
                consumers.iter().filter(here).map(|&consumer| model.last_read(consumer, positions)).max();
            let used = if reads_own { self.positions.backward[node] } else { forward };
            let last = read.unwrap_or(forward).max(used).max(last_sent);
            self.tensor(own, node, [forward, last]);
        }
        for (index, &consumer) in consumers.iter().enumerate() {
            let to = layout(consumer);
            if is_here(to) || consumers[..index].iter().any(|&earlier| layout(earlier) == to) {
                continue;
            }
            let readers = consumers[index..].iter().filter(|&&reader| layout(reader) == to);
            let last = readers.map(|&reader| model.last_read(reader, positions)).max().unwrap_or(forward);
            self.received(node, (own, to), (forward, sent(consumer)), last);
        }
    }

    /// Adds a copy of a node's output or gradient that is moved from one layout to another: `sent`
    /// are the positions at which it was computed and at which it is sent. Addends are received one
    /// by one and then added up.
    fn received(
        &mut self,
        node: usize,
        (from, to): (Layout, Layout),
        (computed, sent): (Position, Position),
        last: Position,
    ) {
        let model = self.model;
        for member in model.classes.members(group_of(from)) {
            let ready = &mut self.received_from[usize::from(member.class)];
            *ready = (*ready).max(computed + 1);
        }
        let addends =
            if model.tensors.are_added_up(from, to) { model.cache.parts(group_of(from)) as u64 } else { 0 };
        for member in model.classes.members(group_of(to)) {
            let class = member.class;
            let first = self.received_from[usize::from(class)].min(sent);
            let bytes = model.cache.output_bytes(node, to, member.shard_size);
            let last = last.max(sent);
            if addends > 0 {
                let bytes = bytes.saturating_mul(addends);
                (self.add)(Held { class, node, bytes, alive: [first, sent] });
            }
            let first = if addends > 0 { sent } else { first };
            (self.add)(Held { class, node, bytes, alive: [first, last] });
        }
    }

    /// Adds the other values that the forward step saves.
    fn saved(&mut self, node: usize) {
        let (group, forward) = (self.model.groups[node], self.positions.forward(node));
        let saved = |memory: &NodeMemory| memory.saved_bytes;
        let is_read =
            self.model.structure.needs_gradient[node] && self.model.problem.nodes[node].backward_reads.saved;
        let backward = if is_read { self.positions.backward[node] } else { forward };
        match self.positions.repeated[node] {
            Some(repeated) => {
                self.part(group, node, [forward; 2], saved);
                self.part(group, node, [repeated, backward.max(repeated)], saved);
            }
            None => self.part(group, node, [forward, backward], saved),
        }
    }

    /// Adds the loaded samples: once on each group, for all nodes that read them.
    fn samples(&mut self) {
        let mut loaded: Vec<(Slot, usize, [Position; 2])> = Vec::new();
        for &node in self.model.order {
            let node = node as usize;
            let group = self.model.groups[node];
            if self.model.cache.memory(node, group).iter().all(|memory| memory.samples_bytes == 0) {
                continue;
            }
            let (first, last) = (self.positions.forward(node), self.model.last_read(node, self.positions));
            match loaded.iter_mut().find(|of_group| of_group.0 == group) {
                Some((_, _, alive)) => alive[1] = alive[1].max(last),
                None => loaded.push((group, node, [first, last])),
            }
        }
        for (group, node, alive) in loaded {
            self.part(group, node, alive, |memory| memory.samples_bytes);
        }
    }

    /// Adds the gradient of a node's output, with the parts of it that its consumers compute.
    fn output_gradient(&mut self, node: usize) {
        let model = self.model;
        let (own, consumers) = (model.tensors.output_gradients[node], &model.structure.consumers[node]);
        let [summed, moved, joined] = [0, 1, 2].map(|later| self.positions.collected[node] + later);
        let backward = self.positions.backward[node];
        let layout = |consumer: usize| model.tensors.input_gradients[consumer];
        let is_first = |index: usize| {
            let own = layout(consumers[index]);
            consumers[..index].iter().all(|&earlier| layout(earlier) != own)
        };
        let layouts = (0..consumers.len()).filter(|&index| is_first(index)).count();
        for index in (0..consumers.len()).filter(|&index| is_first(index)) {
            let part = layout(consumers[index]);
            let of_layout = consumers[index..].iter().filter(|&&consumer| layout(consumer) == part);
            let count = of_layout.clone().count();
            let mut computed = summed;
            // An all-reduce is in place.
            let is_here = part == own || model.tensors.is_all_reduced(part, own);
            // The last position of the gradient in this layout.
            let last = match (is_here, layouts) {
                (true, 1) => backward,
                (true, _) => joined,
                (false, _) => moved,
            };
            for &consumer in of_layout {
                let first = self.positions.backward[consumer];
                if count == 1 {
                    computed = first;
                }
                self.tensor(part, node, [first, if count == 1 { last } else { summed }]);
            }
            if count > 1 {
                self.tensor(part, node, [summed, last]);
            }
            if !is_here {
                let last = if layouts == 1 { backward } else { joined };
                self.received(node, (part, own), (computed, moved), last);
            }
        }
        if layouts > 1 {
            self.tensor(own, node, [joined, backward]);
        }
    }

    /// Adds the gradients of the parameters that a node uses, and their sums.
    fn parameter_gradient(&mut self, node: usize) {
        let model = self.model;
        let of_node = &model.problem.nodes[node];
        let owner = of_node.parameters_of.map_or(node, |owner| owner.0);
        let users = &model.structure.users[owner];
        if users.is_empty() {
            return;
        }
        let micro_batches = model.problem.micro_batches.get();
        let bytes = model.tensors.gradient_bytes[owner];
        let (backward, summed, end) =
            (self.positions.backward[node], self.positions.summed[owner], self.positions.end);
        for member in model.classes.members(model.groups[node]) {
            let class = member.class;
            let here = users.iter().filter(|&&user| model.is_in(model.groups[user], class)).count();
            let is_sum = micro_batches > 1 || here > 1;
            let alive = [backward, if is_sum { summed } else { end }];
            (self.add)(Held { class, node, bytes, alive });
        }
        if owner != node || (users.len() == 1 && micro_batches == 1) {
            return;
        }
        for holder in model.classes.members(model.parameter_groups[node]) {
            let class = holder.class;
            let here = users.iter().filter(|&&user| model.is_in(model.groups[user], class)).count();
            let mut hold = |alive| (self.add)(Held { class, node, bytes, alive });
            // The sum over the previous micro-batches, to which the gradient is added in place.
            if micro_batches > 1 {
                hold([0, end]);
            }
            if here > 1 {
                hold([summed, if micro_batches > 1 { summed } else { end }]);
            }
        }
    }

    /// Adds the memory of buckets before their gradients are computed, and the sums of metrics over
    /// micro-batches.
    fn buckets(&mut self) {
        let model = self.model;
        let gradients = &model.problem.gradients;
        let mut filling: Vec<(Slot, u64, Vec<usize>)> = Vec::new();
        for &node in model.order.iter().rev() {
            let node = node as usize;
            if model.structure.users[node].is_empty() {
                continue;
            }
            let group = model.parameter_groups[node];
            let place = filling.iter().position(|bucket| bucket.0 == group).unwrap_or_else(|| {
                filling.push((group, 0, Vec::new()));
                filling.len() - 1
            });
            let (_, bytes, nodes) = &mut filling[place];
            nodes.push(node);
            *bytes = bytes.saturating_add(model.tensors.gradient_bytes[node]);
            if gradients.overlap && *bytes >= gradients.bucket_bytes {
                let (group, _, nodes) = filling.remove(place);
                self.bucket(group, &nodes);
            }
        }
        for (group, _, nodes) in filling {
            self.bucket(group, &nodes);
        }
        if model.problem.micro_batches.get() > 1 {
            let nodes = model.order.iter().map(|&node| node as usize);
            for loss in nodes.filter(|&node| model.structure.consumers[node].is_empty()) {
                let bytes = gradients.metrics_bytes.saturating_mul(2);
                self.everywhere(model.groups[loss], loss, bytes, [0, self.positions.end]);
            }
        }
    }

    /// Adds the memory of a bucket's gradients, given by their nodes, from the first of them until
    /// each is computed: the gradients that are reduced together lie one after another. Sums over
    /// micro-batches have their memory in the whole iteration.
    fn bucket(&mut self, group: Slot, nodes: &[usize]) {
        let model = self.model;
        if model.cache.len(group) == 1 || model.problem.micro_batches.get() > 1 {
            return;
        }
        for member in model.classes.members(group) {
            let class = member.class;
            let computed = |&node: &usize| {
                let mut here = model.structure.users[node]
                    .iter()
                    .filter(|&&user| model.is_in(model.groups[user], class));
                match (here.next(), here.next()) {
                    (Some(&user), None) => self.positions.backward[user],
                    _ => self.positions.summed[node],
                }
            };
            let first = nodes.iter().map(computed).min().unwrap_or_default();
            for &node in nodes {
                let end = computed(&node);
                if end > first {
                    let bytes = model.tensors.gradient_bytes[node];
                    (self.add)(Held { class, node, bytes, alive: [first, end - 1] });
                }
            }
        }
    }
}
