//! Every order of events of gang windows: three ranks, two distributed background jobs, and
//! messages between the ranks and the coordinator that arrive later, in the order in which each
//! rank sent them.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use gpu_mux::{GangEvent, GangId, Gangs};

const RANKS: usize = 3;

/// A state of the ranks, the coordinator and the messages between them.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    gangs: Gangs,
    ranks: [Rank; RANKS],
    /// Collectives of each gang that still have to finish on each rank; 0 for other ranks.
    to_finish: Vec<[u8; RANKS]>,
}

#[derive(Clone, PartialEq, Eq, Hash, Default)]
struct Rank {
    /// Whether the foreground computes.
    busy: bool,
    /// Number of times that the foreground will compute again.
    returns: u8,
    /// Gangs at whose next collective the rank has arrived.
    arrived: Vec<GangId>,
    to_coordinator: VecDeque<GangEvent>,
    /// Launches that the coordinator has sent.
    launches: VecDeque<GangId>,
    /// Collective on the device.
    on_device: Option<GangId>,
}

impl State {
    fn new(members: &[Vec<usize>], collectives: u8, returns: u8) -> Self {
        let mut gangs = Gangs::new(RANKS);
        let mut to_finish = Vec::new();
        for ranks in members {
            gangs.add(ranks.iter().copied()).unwrap();
            to_finish.push(std::array::from_fn(|rank| if ranks.contains(&rank) { collectives } else { 0 }));
        }
        let rank = Rank { busy: returns > 0, returns: returns.saturating_sub(1), ..Rank::default() };
        Self { gangs, ranks: std::array::from_fn(|_| rank.clone()), to_finish }
    }

    fn gang_ids(&self) -> impl Iterator<Item = GangId> + use<> {
        (0..self.to_finish.len()).map(GangId)
    }

    fn runs_or_is_launched(&self, rank: usize, gang: GangId) -> bool {
        self.ranks[rank].on_device == Some(gang) || self.ranks[rank].launches.contains(&gang)
    }

    /// Returns all states that one event leads to.
    fn successors(&self) -> Vec<Self> {
        let mut after = Vec::new();
        let mut add = |change: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            change(&mut next);
            after.push(next);
        };
        for rank in 0..RANKS {
            let state = &self.ranks[rank];
            // The foreground computes and stops whatever has been granted or launched.
            if state.busy {
                add(&|next| next.foreground_stops(rank));
            } else if state.returns > 0 {
                add(&|next| next.foreground_computes(rank));
            }
            for gang in self.gang_ids() {
                let left = self.to_finish[gang.0][rank];
                let can_arrive = left > 0 && !state.arrived.contains(&gang);
                if can_arrive && !self.runs_or_is_launched(rank, gang) {
                    add(&|next| next.arrive(rank, gang));
                }
            }
            if !state.to_coordinator.is_empty() {
                add(&|next| next.deliver(rank));
            }
            if !state.launches.is_empty() {
                add(&|next| next.launch(rank));
            }
            if let Some(gang) = state.on_device.filter(|&gang| self.can_finish(gang, rank)) {
                add(&|next| next.finish(rank, gang));
            }
        }
        after
    }

    fn foreground_stops(&mut self, rank: usize) {
        let state = &mut self.ranks[rank];
        state.busy = false;
        let grants = state.arrived.iter().map(|&gang| GangEvent::Grant { gang, rank, until: None });
        state.to_coordinator.extend(grants);
    }

    fn foreground_computes(&mut self, rank: usize) {
        let state = &mut self.ranks[rank];
        (state.busy, state.returns) = (true, state.returns - 1);
        state.to_coordinator.push_back(GangEvent::Withdraw { rank });
    }

    fn arrive(&mut self, rank: usize, gang: GangId) {
        let state = &mut self.ranks[rank];
        state.arrived.push(gang);
        state.arrived.sort();
        state.to_coordinator.push_back(GangEvent::Arrive { gang, rank });
        if !state.busy {
            state.to_coordinator.push_back(GangEvent::Grant { gang, rank, until: None });
        }
    }

    fn deliver(&mut self, rank: usize) {
        let event = self.ranks[rank].to_coordinator.pop_front().unwrap();
        self.gangs.handle(Duration::ZERO, event).unwrap();
        while let Some(gang) = self.gangs.poll_launch() {
            for member in self.gangs.members(gang).collect::<Vec<_>>() {
                self.ranks[member].launches.push_back(gang);
            }
        }
    }

    fn launch(&mut self, rank: usize) {
        let state = &mut self.ranks[rank];
        let gang = state.launches.pop_front().unwrap();
        assert!(state.arrived.contains(&gang), "a rank was told to launch what it has not arrived at");
        assert_eq!(state.on_device, None, "two collectives of the background meet on a rank");
        state.arrived.retain(|arrived| *arrived != gang);
        state.on_device = Some(gang);
    }

    /// Whether a collective can finish on a rank: it is on the devices of all members, or has
    /// finished on them.
    fn can_finish(&self, gang: GangId, rank: usize) -> bool {
        let left = self.to_finish[gang.0][rank];
        self.gangs.members(gang).all(|member| {
            let of_member = self.to_finish[gang.0][member];
            of_member < left || (of_member == left && self.ranks[member].on_device == Some(gang))
        })
    }

    fn finish(&mut self, rank: usize, gang: GangId) {
        self.to_finish[gang.0][rank] -= 1;
        self.ranks[rank].on_device = None;
        self.ranks[rank].to_coordinator.push_back(GangEvent::Finish { gang, rank });
    }

    fn check_end(&self, members: &[Vec<usize>], collectives: u8) {
        let left = self.to_finish.iter().flatten().map(|&left| u32::from(left)).sum::<u32>();
        assert_eq!(left, 0, "{left} collectives of {members:?} can never end");
        for gang in self.gang_ids() {
            assert_eq!(self.gangs.outcome(gang).unwrap().launched, u64::from(collectives));
        }
    }
}

/// Visits every state that can be reached, and returns their number.
fn explore(members: &[Vec<usize>], collectives: u8, returns: u8) -> usize {
    let start = State::new(members, collectives, returns);
    let mut seen = HashSet::from([start.clone()]);
    let mut open = vec![start];
    while let Some(state) = open.pop() {
        let after = state.successors();
        if after.is_empty() {
            state.check_end(members, collectives);
        }
        for next in after {
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    seen.len()
}

#[test]
fn every_order_of_two_gangs_on_three_ranks_ends() {
    let pairs = [vec![0, 1], vec![1, 2]];
    let nested = [vec![0, 1, 2], vec![0, 1]];
    let equal = [vec![0, 1, 2], vec![0, 1, 2]];
    let single = [vec![0, 1, 2], vec![1]];
    for (members, collectives, returns) in
        [(&pairs, 1, 2), (&nested, 1, 1), (&equal, 1, 1), (&single, 1, 1), (&pairs, 2, 0), (&equal, 2, 0)]
    {
        let states = explore(members, collectives, returns);
        println!("{members:?}, {collectives} collectives, {returns} returns: {states} states");
        assert!(states > 100);
    }
}
