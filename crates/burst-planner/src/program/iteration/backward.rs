//! The backward pass.

use super::{Event, GroupId, Member, Prices, Recorder, Run};

impl<P: Prices, R: Recorder> Run<'_, '_, P, R> {
    pub(super) fn backward_pass(&mut self) {
        let program = self.program;
        for &node in program.order.iter().rev() {
            let node = node as usize;
            if !program.structure.needs_gradient[node] {
                continue;
            }
            let group = self.group(node);
            let times = self.prices.steps(node, group);
            let (row, arrives) = (node * self.lanes.classes, self.lanes.arrives[node]);
            for &Member { class, share } in self.members(group) {
                let start = arrives.max(self.lanes.compute[usize::from(class)]);
                let end = start + times[share as usize].backward_us;
                self.computed(Event::Backward(node), class, start, end);
                self.lanes.backward[row + usize::from(class)] = end;
                self.lanes.reduced[row + usize::from(class)] = end;
            }
            if let Some(bytes) = program.nodes[node].synchronized.filter(|bytes| bytes.backward > 0) {
                self.synchronize(Event::SynchronizeBackward(node), group, bytes.backward, |_, _| 0.0);
                for &Member { class, .. } in self.members(group) {
                    self.lanes.backward[row + usize::from(class)] = self.lanes.compute[usize::from(class)];
                }
            }
            let producers = &program.structure.producers[node];
            if let [producer] = producers[..] {
                self.part_computed(producer);
            } else {
                for producer in self.in_order(producers).into_iter().rev() {
                    self.part_computed(producer);
                }
            }
            if !program.structure.users[node].is_empty() {
                self.add_to_bucket(node);
            }
        }
    }

    /// A consumer of a node has computed its part of the gradient of the node's output.
    fn part_computed(&mut self, node: usize) {
        self.lanes.missing[node] -= 1;
        if self.lanes.missing[node] == 0 && self.program.structure.needs_gradient[node] {
            self.gather_gradient(node);
        }
    }

    /// Brings the gradient of a node's output to its ranks, once all consumers have computed their parts: parts on the same
    /// ranks are summed up there and move together.
    fn gather_gradient(&mut self, node: usize) {
        let program = self.program;
        let own = self.group(node);
        // In the order of their backward steps.
        let consumers = &program.structure.consumers[node];
        if consumers.iter().all(|&consumer| self.group(consumer) == own) {
            return;
        }
        let mut from: Vec<(GroupId, usize, usize)> = Vec::new();
        for consumer in self.in_order(consumers).into_iter().rev() {
            let group = self.group(consumer);
            match from.iter_mut().find(|(known, ..)| *known == group) {
                Some((_, _, parts)) => *parts += 1,
                None => from.push((group, consumer, 1)),
            }
        }
        let mut latest = 0.0_f64;
        for &(group, consumer, parts) in &from {
            if group != own {
                let first = consumer * self.lanes.classes;
                let end = self.transfer(Event::Gradient(node), node, group, own, |lanes, class| {
                    // A sum is a step of the compute lane, which keeps its order.
                    let class = usize::from(class);
                    if parts > 1 { lanes.compute[class] } else { lanes.backward[first + class] }
                });
                latest = latest.max(end);
            }
        }
        self.lanes.arrives[node] = latest;
        if from.len() > 1 {
            for &Member { class, .. } in self.members(own) {
                let lane = &mut self.lanes.compute[usize::from(class)];
                *lane = lane.max(latest);
            }
        }
    }
}
