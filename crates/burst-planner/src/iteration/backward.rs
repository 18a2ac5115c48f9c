//! The backward pass. A *group* is a list of ranks.

use super::{Event, GradientPart, Lanes, Layout, ProgramCosts, Recorder, Run, later, run_step};

impl<P: ProgramCosts, R: Recorder> Run<'_, '_, P, R> {
    /// Simulates the backward pass of a micro-batch. Gradients of parameters are reduced only if
    /// `is_last` is set: in the last micro-batch of an iteration.
    pub(super) fn backward_pass(&mut self, is_last: bool) {
        let program = self.program;
        for (place, &node) in program.ordered.nodes.iter().enumerate().rev() {
            for again in program.recomputation.before_backward(&program.ordered.nodes, place) {
                self.recompute(again);
            }
            let node = node as usize;
            if !program.structure.needs_gradient[node] {
                continue;
            }
            let group = self.group(node);
            let times = self.costs.steps(node, group).map(|steps| steps.backward_us);
            let step = (Event::Backward(node), self.members(group));
            let Lanes { classes, compute, backward, arrives, .. } = &mut *self.lanes;
            let ends = &mut backward[node * *classes..];
            run_step(self.recorder, compute, ends, step, arrives[node], times);
            let synchronized = program.tensors.synchronized[node].backward;
            if synchronized > 0 {
                let end = self.synchronize(Event::SynchronizeBackward(node), group, synchronized, |_| 0.0);
                self.lanes.synchronized[node] = end;
            }
            let has_transfers = self.lanes.has_transfers[node];
            let producers = if has_transfers { program.ordered.producers(node) } else { &[] };
            for &producer in producers.iter().rev() {
                let producer = producer as usize;
                // The first consumer in the order is the last one to compute its part of the
                // output's gradient.
                let is_complete = program.ordered.consumers(producer).first() == Some(&(node as u32));
                if is_complete && program.structure.needs_gradient[producer] {
                    self.gather_gradient(producer);
                }
            }
            if is_last && !program.structure.users[node].is_empty() {
                self.add_to_bucket(node);
            }
        }
    }

    /// Repeats the forward step of a node, whose inputs are available.
    fn recompute(&mut self, node: usize) {
        let group = self.group(node);
        let times = self.costs.steps(node, group).map(|steps| steps.forward_us);
        let step = (Event::Recompute(node), self.members(group));
        run_step(self.recorder, &mut self.lanes.compute, &mut [], step, 0.0, times);
    }

    /// Gathers the gradient of a node's output on its ranks, once all consumers have computed their
    /// parts. Parts in the same layout are summed there and move together.
    fn gather_gradient(&mut self, node: usize) {
        let program = self.program;
        let own = program.tensors.output_gradients[node];
        let consumers = program.ordered.consumers(node);
        let layout_of = |consumer: u32| program.tensors.input_gradients[consumer as usize];
        if consumers.iter().all(|&consumer| layout_of(consumer) == own) {
            return;
        }
        let mut parts = std::mem::take(&mut self.lanes.parts);
        // In the order of their backward steps.
        for &consumer in consumers.iter().rev() {
            let layout = layout_of(consumer);
            match parts.iter_mut().find(|part| part.layout == layout) {
                Some(part) => part.is_sum = true,
                None => parts.push(GradientPart { layout, consumer: consumer as usize, is_sum: false }),
            }
        }
        let (mut latest, mut is_sum) = (0.0, parts.len() > 1);
        for &part in &parts {
            if part.layout != own {
                latest = later(latest, self.move_gradient(node, part, own));
                is_sum |= program.tensors.are_added_up(part.layout, own);
            }
        }
        self.lanes.arrives[node] = latest;
        if is_sum {
            self.wait_on(own, latest);
        }
        parts.clear();
        self.lanes.parts = parts;
    }

    /// Returns the time when a part of the output's gradient has arrived in the layout that the
    /// node reads.
    fn move_gradient(&mut self, node: usize, part: GradientPart, own: Layout) -> f64 {
        let row = part.consumer * self.lanes.classes;
        self.transfer(Event::Gradient(node), node, part.layout, own, |lanes, class| {
            let class = usize::from(class);
            // A sum is a step of the compute lane, which keeps its order.
            if part.is_sum {
                lanes.compute[class].free_us
            } else {
                later(lanes.backward[row + class], lanes.synchronized[part.consumer])
            }
        })
    }
}
