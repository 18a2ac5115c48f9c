//! Errors of operations whose ranks are missing, end, or pass wrong arguments.

use std::sync::Barrier;
use std::time::Duration;

use super::{LONG, SHORT, blank, download, run, run_all, stream, upload};
use crate::{Communicator, Departure, ElementType, Error, Group, Operation, ReduceOp};

/// Returns the errors of all ranks but the last for a call that the last one does not make.
fn errors_without_the_last_rank<C: Send>(
    call: impl Fn(&super::NcclCommunicator) -> crate::Result<C> + Sync,
) -> Vec<Error> {
    let failed = Barrier::new(3);
    let outcomes = run(&[0, 1, 2], 3, SHORT, |ranks| {
        let ranks = ranks.unwrap();
        let error = (ranks.rank() != 2).then(|| call(&ranks).err());
        failed.wait();
        error.map(|error| error.expect("a call that lacks a rank fails"))
    });
    outcomes.into_iter().flatten().collect()
}

#[test]
fn a_collective_names_a_missing_rank() {
    let errors = errors_without_the_last_rank(|ranks| {
        let mut stream = stream(ranks);
        let mut buffer = upload(&[1.0_f32; 4], ranks);
        ranks.all_reduce(&mut buffer, ReduceOp::Sum, &mut stream)
    });
    assert_eq!(errors.len(), 2);
    for error in errors {
        let Error::TimedOut { missing, call, waited } = &error else { panic!("{error}") };
        assert_eq!((missing.as_slice(), call.element), (&[2][..], Some(ElementType::F32)));
        assert_eq!(call.operation, Operation::AllReduce { count: 4, op: ReduceOp::Sum });
        assert!(*waited >= SHORT && *waited < LONG);
    }
}

#[test]
fn a_split_or_group_names_a_missing_rank() {
    for error in errors_without_the_last_rank(|ranks| ranks.split(Some(0), 0)) {
        let Error::TimedOut { missing, call, .. } = &error else { panic!("{error}") };
        assert_eq!((missing.as_slice(), &call.operation), (&[2][..], &Operation::Split));
    }
    for error in errors_without_the_last_rank(|ranks| ranks.group(&[2, 0, 1])) {
        let Error::TimedOut { missing, call, .. } = &error else { panic!("{error}") };
        assert_eq!(missing, &[2]);
        assert_eq!(call.operation, Operation::Group { ranks: vec![2, 0, 1] });
    }
}

#[test]
fn a_receive_without_a_sender_names_the_sender() {
    let outcomes = run(&[0, 1], 2, SHORT, |ranks| {
        let ranks = ranks.unwrap();
        let mut stream = stream(&ranks);
        let mut buffer = blank::<i32>(3, &ranks);
        if ranks.rank() == 0 { Ok(()) } else { ranks.receive(&mut buffer, 0, 9, &mut stream) }
    });
    let error = outcomes[1].as_ref().unwrap_err();
    let Error::TimedOut { missing, call, .. } = error else { panic!("{error}") };
    assert_eq!(
        (missing.as_slice(), &call.operation),
        (&[0][..], &Operation::Receive { count: 3, from: 0, tag: 9 })
    );
}

#[test]
fn a_rank_whose_process_ends_is_named() {
    let outcomes = run(&[0, 1, 2], 3, Duration::from_secs(1), |ranks| {
        let ranks = ranks.unwrap();
        let mut stream = stream(&ranks);
        let mut buffer = upload(&[1_u8], &ranks);
        if ranks.rank() == 1 { Ok(()) } else { ranks.broadcast(&mut buffer, 0, &mut stream) }
    });
    for outcome in [&outcomes[0], &outcomes[2]] {
        let error = outcome.as_ref().unwrap_err();
        assert!(matches!(error, Error::RankFailed { rank: 1, how: Departure::Lost, .. }), "{error}");
    }
}

#[test]
fn a_failed_group_stays_failed_and_others_are_unaffected() {
    let failed = Barrier::new(2);
    run(&[0, 1], 2, SHORT, |ranks| {
        let ranks = ranks.unwrap();
        let other = ranks.group(&[0, 1]).unwrap();
        let mut stream = stream(&ranks);
        if ranks.rank() == 0 {
            let mut buffer = upload(&[1.0_f32], &ranks);
            let first = ranks.all_reduce(&mut buffer, ReduceOp::Sum, &mut stream).unwrap_err();
            let second = ranks.start_barrier(&mut stream).unwrap_err();
            assert_eq!(first, second);
            assert_eq!(ranks.split(None, 0).unwrap_err(), first);
        }
        failed.wait();
        let mut buffer = upload(&[2.0_f32], &ranks);
        other.all_reduce(&mut buffer, ReduceOp::Sum, &mut stream).unwrap();
        assert_eq!(download(&buffer, &ranks), [4.0]);
    });
}

#[test]
fn wrong_arguments_fail_at_once() {
    run_all(1, |ranks| {
        let mut stream = stream(&ranks);
        let wrong = [
            ranks.all_gather(&mut blank::<f64>(2, &ranks), &mut blank(3, &ranks), &mut stream).unwrap_err(),
            ranks
                .reduce_scatter(
                    &mut blank::<f64>(3, &ranks),
                    &mut blank(2, &ranks),
                    ReduceOp::Min,
                    &mut stream,
                )
                .unwrap_err(),
        ];
        for error in wrong {
            assert!(matches!(error, Error::WrongLength { rank: 0, .. }), "{error}");
        }
        let mut buffer = upload(&[1_u8], &ranks);
        let root = ranks.broadcast(&mut buffer, 1, &mut stream).unwrap_err();
        assert_eq!(root, Error::NoSuchRank { rank: 1, size: 1 });
        let own = ranks.send(&mut upload(&[1_u8], &ranks), 0, 0, &mut stream).unwrap_err();
        assert!(matches!(own, Error::Unsupported { backend: "NCCL", .. }), "{own}");
        assert_eq!(ranks.group(&[0, 0]).unwrap_err(), Error::DuplicateRank { rank: 0 });
        let color = ranks.split(Some(u32::MAX), 0).unwrap_err().to_string();
        assert!(color.contains("a color is at most 2147483647"), "{color}");
        let counts = ranks
            .all_to_all_v(&mut upload(&[1_u8], &ranks), &[2], &mut blank(1, &ranks), &[1], &mut stream)
            .unwrap_err();
        assert!(matches!(counts, Error::WrongLength { buffer: "send buffer", .. }), "{counts}");
    });
}
