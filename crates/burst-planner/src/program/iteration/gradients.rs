//! Gradients of parameters: buckets while the backward pass goes on, and what comes after it.

use super::{Bucket, Class, Event, GroupId, Member, Prices, Recorder, Run};

impl<P: Prices, R: Recorder> Run<'_, '_, P, R> {
    /// The gradient of a node's own parameters is there on all ranks that hold them.
    pub(super) fn add_to_bucket(&mut self, node: usize) {
        let program = self.program;
        let group = program.parameter_groups[node];
        let users = &program.structure.users[node];
        let place = self.lanes.buckets.iter().position(|bucket| bucket.group == group);
        let place = place.unwrap_or_else(|| {
            let mut bucket = self.lanes.spare.pop().unwrap_or_default();
            bucket.ready.clear();
            bucket.ready.resize(self.lanes.classes, 0.0);
            bucket.nodes.clear();
            self.lanes.buckets.push(Bucket { group, bytes: 0, ..bucket });
            self.lanes.buckets.len() - 1
        });
        let is_shared = users.len() > 1;
        for &Member { class, .. } in self.members(group) {
            if !is_shared {
                let ready = self.lanes.reduced[self.at(node, class)];
                let bucket = &mut self.lanes.buckets[place].ready[usize::from(class)];
                *bucket = bucket.max(ready);
                continue;
            }
            let is_on =
                |user: &&usize| self.members(self.group(**user)).iter().any(|member| member.class == class);
            let mut here = users.iter().filter(is_on);
            let ready = match (here.next(), here.next()) {
                (Some(&only), None) => self.lanes.reduced[self.at(only, class)],
                // Summed up in the compute lane.
                _ => self.lanes.compute[usize::from(class)],
            };
            let bucket = &mut self.lanes.buckets[place].ready[usize::from(class)];
            *bucket = bucket.max(ready);
        }
        let bucket = &mut self.lanes.buckets[place];
        bucket.nodes.push(node as u32);
        bucket.bytes = bucket.bytes.saturating_add(program.nodes[node].gradient_bytes);
        if program.gradients.overlap && bucket.bytes >= program.gradients.bucket_bytes {
            let full = self.lanes.buckets.remove(place);
            self.reduce_bucket(&full);
            self.lanes.spare.push(full);
        }
    }

    fn reduce_bucket(&mut self, bucket: &Bucket) {
        let Bucket { group, bytes, nodes, ready } = bucket;
        let end = self.reduce(Event::Reduce(nodes), *group, *bytes, |_, class| ready[usize::from(class)]);
        for &node in nodes {
            for &Member { class, .. } in self.members(*group) {
                let at = self.at(node as usize, class);
                self.lanes.reduced[at] = end.unwrap_or(ready[usize::from(class)]);
            }
        }
    }

    /// What comes after the backward pass: buckets that are not full, the norm, the optimiser, the metrics.
    pub(super) fn finish(&mut self) {
        let program = self.program;
        self.lanes.passed.clear();
        let passed = self.lanes.compute.iter().map(|&end| if program.gradients.overlap { 0.0 } else { end });
        self.lanes.passed.extend(passed);
        let mut buckets = std::mem::take(&mut self.lanes.buckets);
        for bucket in &mut buckets {
            for (ready, &passed) in bucket.ready.iter_mut().zip(&self.lanes.passed) {
                *ready = ready.max(passed);
            }
            self.reduce_bucket(bucket);
        }
        self.lanes.spare.append(&mut buckets);
        self.lanes.buckets = buckets;
        if let Some(group) = program.all_parameters {
            self.norm(group);
        }
        for &node in program.order.iter().rev() {
            let node = node as usize;
            if program.structure.users[node].is_empty() {
                continue;
            }
            let (times, row) = (self.prices.steps(node, self.group(node)), node * self.lanes.classes);
            for &Member { class, share } in self.members(program.parameter_groups[node]) {
                let reduced = self.lanes.reduced[row + usize::from(class)];
                let start = reduced.max(self.lanes.compute[usize::from(class)]);
                let end = start + times[share as usize].update_us;
                self.computed(Event::Update(node), class, start, end);
            }
        }
        let mut nodes = program.order.iter().rev().map(|&node| node as usize);
        let loss = nodes.find(|&node| program.structure.consumers[node].is_empty());
        if let Some(loss) = loss.filter(|_| program.gradients.metrics_bytes > 0) {
            let (group, bytes) = (self.group(loss), program.gradients.metrics_bytes);
            self.reduce(Event::Metrics, group, bytes, |run, class| {
                run.lanes.forward[run.at(loss, class)].max(run.lanes.passed[usize::from(class)])
            });
        }
    }

    /// All ranks with parameters learn the norm of all gradients, which each node adds to on one of its ranks.
    fn norm(&mut self, group: GroupId) {
        let end = self.reduce(Event::Norm, group, 4, |run, class| {
            run.all_reduced(class).max(run.lanes.compute[usize::from(class)])
        });
        for &Member { class, .. } in self.members(group) {
            let ready = end.unwrap_or_else(|| self.all_reduced(class));
            let lane = &mut self.lanes.compute[usize::from(class)];
            *lane = lane.max(ready);
        }
    }

    /// When the gradients of all parameters on a class are reduced.
    fn all_reduced(&self, class: Class) -> f64 {
        let program = self.program;
        let is_here = |node: &usize| {
            let members = self.members(program.parameter_groups[*node]);
            !program.structure.users[*node].is_empty() && members.iter().any(|member| member.class == class)
        };
        let reduced =
            (0..program.nodes.len()).filter(is_here).map(|node| self.lanes.reduced[self.at(node, class)]);
        reduced.fold(0.0, f64::max)
    }
}
