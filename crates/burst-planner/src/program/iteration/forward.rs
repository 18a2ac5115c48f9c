//! The forward pass.

use super::{Event, GroupId, Member, Moved, Prices, Recorder, Run};

impl<P: Prices, R: Recorder> Run<'_, '_, P, R> {
    pub(super) fn forward_pass(&mut self) {
        let program = self.program;
        for &node in program.order {
            let node = node as usize;
            let group = self.group(node);
            let producers = &program.structure.producers[node];
            if producers.iter().any(|&producer| self.group(producer) != group) {
                for producer in self.in_order(producers) {
                    self.output_on(producer, group);
                }
            }
            if let Some(bytes) = program.nodes[node].synchronized.filter(|bytes| bytes.forward > 0) {
                self.synchronize(Event::SynchronizeForward(node), group, bytes.forward, |run, _| {
                    run.inputs_there(node)
                });
            }
            let arrived = self.inputs_there(node);
            let times = self.prices.steps(node, group);
            let row = node * self.lanes.classes;
            for &Member { class, share } in self.members(group) {
                let start = arrived.max(self.lanes.compute[usize::from(class)]);
                let end = start + times[share as usize].forward_us;
                self.computed(Event::Forward(node), class, start, end);
                self.lanes.forward[row + usize::from(class)] = end;
            }
            let consumers = &program.structure.consumers[node];
            if consumers.len() > 1 {
                self.spread(node, consumers);
            }
        }
    }

    /// A fork's output goes to all branches at once, in the order in which they come.
    fn spread(&mut self, node: usize, consumers: &[usize]) {
        let own = self.group(node);
        if consumers.iter().all(|&consumer| self.group(consumer) == own) {
            return;
        }
        for consumer in self.in_order(consumers) {
            self.output_on(node, self.group(consumer));
        }
    }

    /// When all inputs of a node that come from other groups are there. Those that were computed on the same ranks are,
    /// once the lane is free.
    fn inputs_there(&self, node: usize) -> f64 {
        let group = self.group(node);
        let elsewhere = self.program.structure.producers[node]
            .iter()
            .copied()
            .filter(|&producer| self.group(producer) != group);
        let arrived = elsewhere.filter_map(|producer| {
            self.lanes.moved[producer].iter().find(|moved| moved.group == group).map(|moved| moved.at)
        });
        arrived.fold(0.0, f64::max)
    }

    /// Sees to it that a node's output is on a group; it is moved there once.
    fn output_on(&mut self, node: usize, group: GroupId) {
        let own = self.group(node);
        if own == group || self.lanes.moved[node].iter().any(|moved| moved.group == group) {
            return;
        }
        let forward = node * self.lanes.classes;
        let at = self.transfer(Event::Activations(node), node, own, group, |lanes, class| {
            lanes.forward[forward + usize::from(class)]
        });
        self.lanes.moved[node].push(Moved { group, at });
    }
}
