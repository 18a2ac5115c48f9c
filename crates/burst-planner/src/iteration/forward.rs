//! The forward pass.

use super::{Event, Lanes, MovedOutput, ProgramCosts, Recorder, Run, Slot, later, run_step};

impl<P: ProgramCosts, R: Recorder> Run<'_, '_, P, R> {
    /// Simulates the forward pass of one micro-batch.
    pub(super) fn forward_pass(&mut self) {
        let program = self.program;
        for &node in &*program.ordered.nodes {
            let node = node as usize;
            let group = self.group(node);
            let has_transfers = self.lanes.has_transfers[node];
            let arrived = if has_transfers { self.gather_inputs(node, group) } else { 0.0 };
            let synchronized = program.structure.synchronized[node].forward;
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
                        self.output_on(node, self.group(consumer as usize));
                    }
                }
            }
        }
    }

    /// Returns the time when all inputs of a node from other groups are available. Inputs from the
    /// same ranks are available once the lane is free.
    fn gather_inputs(&mut self, node: usize, group: Slot) -> f64 {
        let mut arrived = 0.0;
        for &producer in self.program.ordered.producers(node) {
            arrived = later(arrived, self.output_on(producer as usize, group));
        }
        arrived
    }

    /// Moves a node's output to a group, if it is not there yet. Returns the time when it arrives,
    /// 0 on the node's group.
    #[inline]
    fn output_on(&mut self, node: usize, group: Slot) -> f64 {
        let own = self.group(node);
        if own == group { 0.0 } else { self.move_output(node, own, group) }
    }

    fn move_output(&mut self, node: usize, own: Slot, group: Slot) -> f64 {
        if let Some(moved) = self.lanes.moved[node].iter().find(|moved| moved.group == group) {
            return moved.at;
        }
        let forward = node * self.lanes.classes;
        let at = self.transfer(Event::Activations(node), node, own, group, |lanes, class| {
            lanes.forward[forward + usize::from(class)]
        });
        self.lanes.moved[node].push(MovedOutput { group, at });
        at
    }
}
