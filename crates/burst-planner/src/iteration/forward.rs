//! The forward pass.

use super::{Event, Lanes, Layout, MovedOutput, ProgramCosts, Recorder, Run, later, run_step};

impl<P: ProgramCosts, R: Recorder> Run<'_, '_, P, R> {
    /// Simulates the forward pass of one micro-batch.
    pub(super) fn forward_pass(&mut self) {
        let program = self.program;
        for &node in &*program.ordered.nodes {
            let node = node as usize;
            let group = self.group(node);
            let has_transfers = self.lanes.has_transfers[node];
            let arrived = if has_transfers { self.gather_inputs(node) } else { 0.0 };
            let synchronized = program.tensors.synchronized[node].forward;
            if synchronized > 0 {
                self.synchronize(Event::SynchronizeForward(node), group, synchronized, |_| arrived);
            }
            let times = self.costs.steps(node, group).map(|steps| steps.forward_us);
            let step = (Event::Forward(node), self.members(group));
            let Lanes { classes, compute, forward, sent, .. } = &mut *self.lanes;
            let ends = &mut forward[node * *classes..];
            run_step(self.recorder, compute, ends, step, later(arrived, sent[node]), times);
            // The output of a fork is sent to all branches at once, in their order.
            if has_transfers {
                if let consumers @ [_, _, ..] = program.ordered.consumers(node) {
                    for &consumer in consumers {
                        self.output_in(node, program.tensors.inputs[consumer as usize]);
                    }
                }
            }
        }
    }

    /// Returns the time when all inputs of a node from other layouts are available. Inputs in the
    /// layout in which they are computed are available once the lane is free.
    fn gather_inputs(&mut self, node: usize) -> f64 {
        let layout = self.program.tensors.inputs[node];
        let mut arrived = 0.0;
        for &producer in self.program.ordered.producers(node) {
            arrived = later(arrived, self.output_in(producer as usize, layout));
        }
        arrived
    }

    /// Moves a node's output to a layout, if it is not there yet. Returns the time when it arrives,
    /// 0 in the layout in which it is computed.
    #[inline]
    fn output_in(&mut self, node: usize, layout: Layout) -> f64 {
        let own = self.program.tensors.outputs[node];
        if own == layout { 0.0 } else { self.move_output(node, own, layout) }
    }

    fn move_output(&mut self, node: usize, own: Layout, layout: Layout) -> f64 {
        if let Some(moved) = self.lanes.moved[node].iter().find(|moved| moved.layout == layout) {
            return moved.at;
        }
        let forward = node * self.lanes.classes;
        // An all-reduce replaces the addends by their sum.
        let tensors = self.program.tensors;
        let summed = self.lanes.moved[node].iter().find(|moved| tensors.is_all_reduced(own, moved.layout));
        let (own, summed) = summed.map_or((own, None), |moved| (moved.layout, Some(moved.at)));
        let at = self.transfer(Event::Activations(node), node, own, layout, |lanes, class| {
            summed.unwrap_or(lanes.forward[forward + usize::from(class)])
        });
        if tensors.are_added_up(own, layout) {
            self.wait_on(layout, at);
        }
        self.lanes.moved[node].push(MovedOutput { layout, at });
        at
    }
}
