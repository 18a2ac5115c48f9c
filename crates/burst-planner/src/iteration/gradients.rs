//! Gradients of parameters: buckets during the backward pass, and the work after it. A *bucket* has
//! the gradients of several nodes on the same ranks, which are all-reduced together.

use super::{Bucket, Class, Event, Lanes, Member, ProgramCosts, Recorder, Run, Slot, later, run_step};

impl<P: ProgramCosts, R: Recorder> Run<'_, '_, P, R> {
    /// Adds the gradient of the parameters that a node owns to the bucket of their ranks.
    /// All-reduces the bucket if it is full and gradients are reduced during the backward pass.
    pub(super) fn add_to_bucket(&mut self, node: usize) {
        let program = self.program;
        let group = program.parameter_groups[node];
        let place = self.lanes.buckets.iter().position(|bucket| bucket.group == group);
        let place = place.unwrap_or_else(|| {
            let mut bucket = self.lanes.spare.pop().unwrap_or_default();
            bucket.nodes.clear();
            bucket.summed.clear();
            self.lanes.buckets.push(Bucket { group, bytes: 0, ..bucket });
            self.lanes.buckets.len() - 1
        });
        if program.structure.users[node].len() > 1 {
            self.sum_of_users(node, place);
        }
        let bucket = &mut self.lanes.buckets[place];
        bucket.nodes.push(node as u32);
        bucket.bytes = bucket.bytes.saturating_add(program.tensors.gradient_bytes[node]);
        if program.gradients.overlap && bucket.bytes >= program.gradients.bucket_bytes {
            let full = self.lanes.buckets.remove(place);
            self.reduce_bucket(&full);
            self.lanes.spare.push(full);
        }
    }

    /// Records in a bucket when the ranks have the gradient of parameters with several users.
    fn sum_of_users(&mut self, node: usize, place: usize) {
        let program = self.program;
        let users = &program.structure.users[node];
        let summed = &mut self.lanes.buckets[place].summed;
        summed.resize(self.lanes.classes, 0.0);
        for &Member { class, .. } in program.classes.members(program.parameter_groups[node]) {
            let is_on = |user: &&usize| {
                program.classes.members(program.groups[**user]).iter().any(|member| member.class == class)
            };
            let mut here = users.iter().filter(is_on);
            let ready = match (here.next(), here.next()) {
                (Some(&only), None) => self.lanes.backward[only * self.lanes.classes + usize::from(class)],
                // Summed in the compute lane.
                _ => self.lanes.compute[usize::from(class)].free_us,
            };
            let bucket = &mut summed[usize::from(class)];
            *bucket = later(*bucket, ready);
        }
    }

    /// All-reduces a bucket, at the [`backward_end`](super::Lanes::backward_end) time of each class
    /// or later.
    fn reduce_bucket(&mut self, bucket: &Bucket) {
        let Bucket { group, bytes, nodes, summed } = bucket;
        // Backward steps on the same ranks end one after another: the last one is the latest.
        let users = &self.program.structure.users;
        let last = nodes.iter().rev().map(|&node| node as usize).find(|&node| users[node].len() < 2);
        let ready = |run: &Self, class: Class| {
            let computed = last.map_or(0.0, |last| run.lanes.backward[run.at(last, class)]);
            let summed = summed.get(usize::from(class)).copied().unwrap_or(0.0);
            later(later(computed, summed), run.lanes.backward_end[usize::from(class)])
        };
        // Without a collective, a rank has the whole gradient when it has computed it.
        let end = self.reduce(Event::Reduce(nodes), *group, *bytes, ready).unwrap_or(0.0);
        for &node in nodes {
            self.lanes.reduced[node as usize] = end;
        }
    }

    /// Simulates the work after the backward pass: the all-reduces of the remaining buckets, of the
    /// norm and of the metrics, and the updates.
    pub(super) fn finish(&mut self) {
        let program = self.program;
        if !program.gradients.overlap {
            for (end, lane) in self.lanes.backward_end.iter_mut().zip(&self.lanes.compute) {
                *end = lane.free_us;
            }
        }
        let mut buckets = std::mem::take(&mut self.lanes.buckets);
        for bucket in &buckets {
            self.reduce_bucket(bucket);
        }
        self.lanes.spare.append(&mut buckets);
        self.lanes.buckets = buckets;
        if let Some(group) = program.all_parameters {
            self.norm(group);
        }
        for &node in program.ordered.nodes.iter().rev() {
            let node = node as usize;
            if program.structure.users[node].is_empty() {
                continue;
            }
            let times = self.costs.steps(node, self.group(node)).map(|steps| steps.update_us);
            // The size of a rank's shard is that of its range of samples, which the parts share.
            let has_own = program.parameter_groups[node] == program.sum_groups[node];
            let holders = if has_own { self.group(node) } else { program.parameter_groups[node] };
            let step = (Event::Update(node), self.members(holders));
            let Lanes { compute, reduced, .. } = &mut *self.lanes;
            run_step(self.recorder, compute, &mut [], step, reduced[node], times);
        }
        if program.gradients.metrics_bytes == 0 {
            return;
        }
        for &loss in program.ordered.nodes.iter() {
            let loss = loss as usize;
            if !program.structure.consumers[loss].is_empty() {
                continue;
            }
            let (group, bytes) = (program.sum_groups[loss], program.gradients.metrics_bytes);
            self.reduce(Event::Metrics, group, bytes, |run, class| {
                later(run.lanes.forward[run.at(loss, class)], run.lanes.backward_end[usize::from(class)])
            });
        }
    }

    /// All-reduces the norm of all gradients over the ranks with parameters. Each node contributes
    /// on one of its ranks.
    fn norm(&mut self, group: Slot) {
        let end = self.reduce(Event::Norm, group, 4, |run, class| {
            later(run.all_reduced(class), run.lanes.compute[usize::from(class)].free_us)
        });
        for &Member { class, .. } in self.members(group) {
            let ready = end.unwrap_or_else(|| self.all_reduced(class));
            self.lanes.compute[usize::from(class)].wait(ready);
        }
    }

    /// Returns the time when the gradients of all parameters on a class are reduced.
    fn all_reduced(&self, class: Class) -> f64 {
        let program = self.program;
        let is_here = |node: &usize| {
            let members = self.members(program.parameter_groups[*node]);
            !program.structure.users[*node].is_empty() && members.iter().any(|member| member.class == class)
        };
        let reduced = (0..program.groups.len()).filter(is_here).map(|node| self.lanes.reduced[node]);
        reduced.fold(0.0, later)
    }
}
