//! The events of the gradients of parameters: buckets, and the work after the backward pass.

use std::collections::BTreeMap;

use super::{Bucket, EventWriter, Events, NodeEvents};

impl EventWriter<'_> {
    pub(super) fn fill_bucket(&mut self, node: usize, known: &mut NodeEvents) {
        let (ranks, users, parts) = (self.holders(node), self.users(node), self.sum_groups(node));
        let is_own = |bucket: &Bucket| bucket.ranks == ranks && bucket.parts == parts;
        let place = known.buckets.iter().position(is_own).unwrap_or_else(|| {
            let (ranks, nodes) = (ranks.clone(), Vec::new());
            known.buckets.push(Bucket { ranks, parts, bytes: 0, nodes, ready: BTreeMap::new() });
            known.buckets.len() - 1
        });
        for &rank in &ranks {
            let here: Vec<usize> =
                users.iter().copied().filter(|&user| self.ranks(user).contains(&rank)).collect();
            let ready = match here[..] {
                [only] => vec![known.gradients[&(only, rank)]],
                _ => self.computed_last(&[rank]),
            };
            known.buckets[place].ready.entry(rank).or_default().extend(ready);
        }
        let whole_bytes = self.problem.nodes[node].gradient_bytes;
        let bytes = self.split(node).map_or(whole_bytes, |split| split.gradient_bytes);
        let bucket = &mut known.buckets[place];
        bucket.nodes.push(node);
        bucket.bytes = bucket.bytes.saturating_add(bytes);
        if self.problem.gradients.overlap && bucket.bytes >= self.problem.gradients.bucket_bytes {
            let full = known.buckets.remove(place);
            self.reduce_bucket(&full, known);
        }
    }

    fn reduce_bucket(&mut self, bucket: &Bucket, known: &mut NodeEvents) {
        let after = bucket.ready.values().flatten().copied().collect();
        let sum = self.reduce(bucket.bytes, &bucket.ranks, bucket.parts, after);
        for &node in &bucket.nodes {
            for (&rank, ready) in &bucket.ready {
                known.reduced.insert((node, rank), sum.map_or_else(|| ready.clone(), |sum| vec![sum]));
            }
        }
    }

    pub(super) fn finish(&mut self, known: &mut NodeEvents) {
        let all: Vec<usize> = (0..self.problem.gpus).collect();
        // Without overlap a rank communicates once it has computed all gradients.
        let passed = |writer: &Self, rank: usize| {
            if writer.problem.gradients.overlap { Vec::new() } else { writer.computed_last(&[rank]) }
        };
        let passed: Vec<Events> = all.iter().map(|&rank| passed(self, rank)).collect();
        for mut bucket in std::mem::take(&mut known.buckets) {
            for (&rank, ready) in &mut bucket.ready {
                ready.extend(&passed[rank]);
            }
            self.reduce_bucket(&bucket, known);
        }
        if self.problem.gradients.clip_norm {
            let here =
                |rank: usize| known.reduced.iter().filter(move |((_, r), _)| *r == rank).flat_map(|(_, e)| e);
            let ranks: Vec<usize> = all.iter().copied().filter(|&rank| here(rank).next().is_some()).collect();
            let after = ranks.iter().flat_map(|&rank| here(rank).copied()).collect();
            self.synchronize(4, &ranks, 1, after);
        }
        let order = self.arrangement.order.clone();
        for &node in order.iter().rev() {
            if !self.owns_parameters(node) {
                continue;
            }
            let holders = self.holders(node);
            for (place, &rank) in holders.iter().enumerate() {
                let us = self.steps(node, place, holders.len()).update_us;
                self.compute(rank, us, known.reduced[&(node, rank)].clone());
            }
        }
        let losses = order.iter().copied().filter(|&node| self.consumers(node).is_empty());
        for loss in losses.filter(|_| self.problem.gradients.metrics_bytes > 0).collect::<Vec<_>>() {
            let ranks = self.ranks(loss).to_vec();
            let ready = |&rank: &usize| [vec![known.forward[&(loss, rank)]], passed[rank].clone()].concat();
            let after = ranks.iter().flat_map(ready).collect();
            self.reduce(self.problem.gradients.metrics_bytes, &ranks, self.sum_groups(loss), after);
        }
    }
}
