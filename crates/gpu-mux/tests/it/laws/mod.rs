//! Properties of the policy for random event sequences and random policies.

mod world;

use gpu_mux::{JobId, MuxEvent};
use proptest::prelude::*;
use world::{Action, JOBS, Lifecycle, State, World, actions, policies, us};

fn background_jobs() -> impl Iterator<Item = JobId> {
    (0..JOBS).map(JobId::background)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// While the events are processed, every launch is checked: its order, the limit in flight, the
    /// rules that withhold background, and that no decision delays the foreground.
    #[test]
    fn every_tasklet_is_launched_once_in_order(policy in policies(), actions in actions()) {
        let mut world = World::after(policy, &actions);
        // All jobs are resumed and no more foreground arrives, so every remaining tasklet must be
        // launched.
        (0..JOBS).for_each(|job| world.resume(job));
        for _ in 0..=4 * world.tasklets.len() {
            world.obey();
            for id in world.in_flight() {
                world.finish(id, us(1));
            }
            let next = world.wake.unwrap_or(world.now);
            world.advance(next.saturating_sub(world.now));
        }
        prop_assert!(
            world.tasklets.iter().all(|(_, state)| matches!(state, State::Done | State::Lost)),
            "some tasklets were never launched"
        );
        for job in background_jobs().chain([JobId::FOREGROUND]) {
            let done: Vec<_> = world.select(job, State::Done).map(|tasklet| tasklet.id).collect();
            let launched = world.launched(job);
            prop_assert!(launched.len() >= done.len() && launched.is_sorted());
        }
    }

    #[test]
    fn the_same_events_give_the_same_commands(policy in policies(), actions in actions()) {
        prop_assert_eq!(World::after(policy, &actions).commands, World::after(policy, &actions).commands);
    }

    /// The launches of the foreground do not depend on what the background offers, or whether it
    /// finishes.
    #[test]
    fn foreground_launches_do_not_depend_on_background(policy in policies(), actions in actions()) {
        // Only foreground tasklets finish, so the background stalls.
        let simulate = |with_background: bool| {
            let mut world = World::new(policy);
            for action in &actions {
                match action {
                    Action::Finish(pick, took) => {
                        let in_flight: Vec<_> =
                            world.in_flight().into_iter().filter(|id| id.job.is_foreground()).collect();
                        if !in_flight.is_empty() {
                            world.finish(*pick.get(&in_flight), *took);
                        }
                    }
                    action if with_background || !action.is_about_background() => world.act(action),
                    _ => {}
                }
            }
            world.launched(JobId::FOREGROUND).len()
        };
        prop_assert_eq!(simulate(true), simulate(false));
    }

    #[test]
    fn paused_jobs_launch_nothing(policy in policies(), actions in actions()) {
        let mut world = World::after(policy, &actions);
        (0..JOBS).for_each(|job| world.pause(job));
        let launched = |world: &World| -> usize {
            background_jobs().map(|job| world.launched(job).len()).sum()
        };
        let before = launched(&world);
        for _ in 0..10 {
            world.obey();
            world.in_flight().into_iter().for_each(|id| world.finish(id, us(1)));
            world.advance(us(1000));
        }
        prop_assert_eq!(launched(&world), before);
        prop_assert!(background_jobs().all(|job| world.mux.in_flight(job) == 0));
    }

    /// With the foreground idle, a waiting background tasklet is launched after a bounded number of
    /// the requested wake-ups.
    #[test]
    fn background_progresses_while_the_foreground_is_idle(policy in policies(), actions in actions()) {
        let mut world = World::after(policy, &actions);
        let foreground = |world: &World| {
            let in_state = |state| world.select(JobId::FOREGROUND, state).next().is_some();
            in_state(State::Waiting) || in_state(State::InFlight)
        };
        while foreground(&world) {
            world.obey();
            for id in world.in_flight() {
                world.finish(id, us(1));
            }
        }
        let waits = |world: &World| {
            background_jobs()
                .any(|job| !world.job(job).paused && world.select(job, State::Waiting).next().is_some())
        };
        for _ in 0..1000 {
            world.obey();
            if !waits(&world) || world.background_in_flight().next().is_some() {
                return Ok(());
            }
            let wake = world.wake;
            prop_assert!(wake.is_some(), "nothing is in flight and no wake-up was requested");
            world.advance(wake.unwrap_or_default().saturating_sub(world.now));
        }
        prop_assert!(false, "never launched");
    }

    /// No wake-up is requested if nothing could be launched then.
    #[test]
    fn idle_multiplexer_requests_no_wake_up(policy in policies(), actions in actions()) {
        let mut world = World::after(policy, &actions);
        background_jobs().for_each(|job| world.tell(MuxEvent::Failed(job)));
        world.jobs.iter_mut().for_each(|job| job.lifecycle = Lifecycle::Failed);
        world.tasklets.retain(|(tasklet, _)| tasklet.id.job.is_foreground());
        let commands = world.commands.len();
        world.obey();
        world.commands[commands..].iter().for_each(|command| {
            assert!(matches!(command, gpu_mux::MuxCommand::Launch(_)), "{command:?}");
        });
    }
}
