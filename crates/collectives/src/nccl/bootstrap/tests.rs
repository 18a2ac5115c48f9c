//! Tests of the connections: the environment's variables, ranks that connect, ranks that are
//! missing, and processes that are refused.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::message::{self, MAGIC, number, slot};
use super::server::Server;
use super::{Endpoint, Environment, GatherError, Members, Store};
use crate::{Error, Result};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(700);

/// Reads torchrun's variables after changes; `-` is a variable that is not set.
fn read(changes: &[(&str, &str)]) -> Result<Environment> {
    let set = [("RANK", "3"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "1"), ("MASTER_ADDR", "127.0.0.1")];
    let set = [&set[..], &[("MASTER_PORT", "29500")]].concat();
    Environment::read(|name| {
        let value = changes.iter().chain(&set).find(|(key, _)| *key == name)?.1;
        (value != "-").then(|| value.to_owned())
    })
}

#[test]
fn the_variables_of_torchrun_are_sufficient() {
    let endpoint = Endpoint { host: "127.0.0.1".to_owned(), port: 29501 };
    assert_eq!(read(&[]).unwrap(), Environment { rank: 3, size: 4, device: 1, endpoint });
    assert_eq!(read(&[("COLLECTIVES_PORT", "700")]).unwrap().endpoint.port, 700);
    assert_eq!(read(&[("MASTER_ADDR", "::1")]).unwrap().endpoint.address(), "[::1]:29501");
    assert!(read(&[("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "-")]).is_ok());
    let is_loopback = |host| read(&[("MASTER_ADDR", host)]).unwrap().endpoint.is_loopback();
    assert!(["localhost", "127.0.0.1", "::1"].into_iter().all(is_loopback));
    assert!(!["10.0.0.1", "node-0", "::"].into_iter().any(is_loopback));
}

#[test]
fn a_bad_variable_is_named() {
    let unset = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"];
    let unset = unset.map(|name| (name, "-", format!("{name} is not set")));
    let wrong = [
        ("RANK", "first", r#"RANK is "first""#),
        ("RANK", "4", "RANK is 4 in a WORLD_SIZE of 4"),
        ("MASTER_PORT", "65535", "no port 65536"),
        ("COLLECTIVES_PORT", "0", "no port 0"),
    ];
    for (name, value, part) in unset.into_iter().chain(wrong.map(|(n, v, part)| (n, v, part.to_owned()))) {
        let message = read(&[(name, value)]).unwrap_err().to_string();
        assert!(message.contains(&part) && message.lines().count() == 1, "{message}");
    }
}

fn endpoint() -> Endpoint {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    Endpoint { host: "127.0.0.1".to_owned(), port: free.local_addr().unwrap().port() }
}

fn listener(endpoint: &Endpoint) -> TcpListener {
    TcpListener::bind((endpoint.host.as_str(), endpoint.port)).unwrap()
}

/// Connects the listed ranks of a world, each on a thread.
fn start_all(endpoint: &Endpoint, ranks: &[usize], size: usize, timeout: Duration) -> Vec<Result<Store>> {
    thread::scope(|scope| {
        let threads: Vec<_> = ranks
            .iter()
            .map(|&rank| scope.spawn(move || Store::join(endpoint, rank, size, timeout)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Connects all ranks of a world.
fn stores(size: usize) -> Vec<Store> {
    let ranks: Vec<usize> = (0..size).collect();
    start_all(&endpoint(), &ranks, size, LONG).into_iter().map(Result::unwrap).collect()
}

fn members<'a>(key: &'a str, ranks: &'a [usize], place: usize) -> Members<'a> {
    Members { key, ranks, place }
}

fn refusal(outcome: Result<Store>) -> String {
    match outcome.unwrap_err() {
        Error::Refused { reason, .. } => reason,
        other => panic!("refused for another reason: {other}"),
    }
}

fn missing(outcome: std::result::Result<Vec<Vec<u8>>, GatherError>) -> Vec<usize> {
    match outcome.unwrap_err() {
        GatherError::TimedOut { missing, .. } => missing,
        other => panic!("not a time-out: {other:?}"),
    }
}

/// Connects without an introduction when rank 0 listens.
fn visitor(endpoint: &Endpoint) -> TcpStream {
    let limit = Instant::now() + LONG;
    loop {
        match TcpStream::connect((endpoint.host.as_str(), endpoint.port)) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < limit, "{error}"),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn all_ranks_get_all_values_in_the_order_of_members() {
    let stores = stores(4);
    for (round, members) in [vec![0, 1, 2, 3], vec![3, 1], vec![2], vec![1, 2, 0]].iter().enumerate() {
        let key = format!("round {round}");
        let expected: Vec<Vec<u8>> = members.iter().map(|&rank| vec![rank as u8; 3]).collect();
        thread::scope(|scope| {
            for (place, &rank) in members.iter().enumerate() {
                let (key, store, expected) = (&key, &stores[rank], &expected);
                scope.spawn(move || {
                    let values = store.gather(self::members(key, members, place), &[rank as u8; 3], LONG);
                    assert_eq!(values.as_ref(), Ok(expected));
                });
            }
        });
    }
}

#[test]
fn silent_and_malformed_connections_do_not_block_ranks() {
    let endpoint = endpoint();
    thread::scope(|scope| {
        let world = scope.spawn(|| start_all(&endpoint, &[0, 1, 2], 3, LONG));
        let mut silent: Vec<TcpStream> = (0..40).map(|_| visitor(&endpoint)).collect();
        for (i, stream) in silent.iter_mut().enumerate().skip(20) {
            let garbage: Vec<u8> = (0..200).map(|byte| (byte * 31 + i * 7) as u8).collect();
            let _ = stream.write_all(&garbage[..i * 5]);
        }
        assert!(world.join().unwrap().iter().all(Result::is_ok));
    });
}

#[test]
fn refused_peers_are_listed_in_rank_0s_error() {
    let right = endpoint();
    let error = thread::scope(|scope| {
        let first = scope.spawn(|| Store::join(&right, 0, 3, Duration::from_secs(2)));
        let second = scope.spawn(|| Store::join(&right, 1, 3, LONG));
        drop(visitor(&right));
        visitor(&right).write_all(b"GET / HTTP/1.1").unwrap();
        assert!(
            refusal(Store::join(&right, 2, 4, LONG)).contains("its world has 4 ranks and rank 0's has 3")
        );
        assert!(refusal(Store::join(&right, 7, 3, LONG)).contains("there is no rank 7 in a world of 3"));
        // Either of the two connections of rank 1 may be the later one.
        let twins = [Store::join(&right, 1, 3, LONG), second.join().unwrap()].map(Result::unwrap_err);
        assert!(twins.iter().any(|error| error.to_string().contains("rank 1 is already connected")));
        assert!(twins.iter().any(|error| matches!(error, Error::Rendezvous { .. })), "{twins:?}");
        first.join().unwrap().unwrap_err()
    });
    let Error::Rendezvous { missing, refused, .. } = &error else { panic!("{error}") };
    assert_eq!(missing, &[2]);
    for reason in [
        "rank 2: its world has 4",
        "rank 7: there is no",
        "rank 1: rank 1 is",
        "it did not introduce itself",
        "it uses another protocol",
    ] {
        assert!(refused.iter().any(|line| line.contains(reason)), "{reason}: {refused:?}");
    }
    assert_eq!(error.to_string().lines().count(), 1);
}

#[test]
fn a_second_rank_0_is_refused() {
    let endpoint = endpoint();
    let _first = Server::listen(&endpoint, 2).unwrap();
    let second = Store::join(&endpoint, 0, 2, LONG).unwrap_err().to_string();
    assert!(second.contains("rank 0 cannot listen at 127.0.0.1:") && second.contains("COLLECTIVES_PORT"));
    let visitor = visitor(&endpoint);
    message::send(&visitor, &[MAGIC, &number(0), &number(2)]).unwrap();
    assert_eq!(message::receive(&visitor).unwrap(), [MAGIC, b"rank 0 is already connected"]);
}

#[test]
fn all_ranks_report_the_missing_ranks() {
    let endpoint = endpoint();
    let outcomes = thread::scope(|scope| {
        let others = scope.spawn(|| start_all(&endpoint, &[1, 4], 5, LONG));
        let mut outcomes = start_all(&endpoint, &[0], 5, SHORT);
        // Rank 0 informs the others, whose own time-out is far.
        outcomes.extend(others.join().unwrap());
        outcomes
    });
    for outcome in outcomes {
        let error = outcome.unwrap_err().to_string();
        assert!(error.starts_with("ranks [2, 3] did not connect to 127.0.0.1:"), "{error}");
    }
}

#[test]
fn an_unreachable_rank_0_is_reported_with_the_cause() {
    let here = endpoint();
    let elsewhere = Endpoint { host: "no-such-host.invalid".to_owned(), port: 1 };
    let silent = endpoint();
    let _silent = listener(&silent);
    for (endpoint, reason) in [(here, "refused"), (elsewhere, "lookup"), (silent, "unavailable")] {
        let error = Store::join(&endpoint, 1, 2, SHORT).unwrap_err().to_string();
        assert!(error.starts_with("ranks [0] did not connect to ") && error.contains(reason), "{error}");
    }
}

#[test]
fn another_service_at_the_port_is_detected() {
    for answer in [b"HTTP/1.1 400 Bad Request\r\n\r\n".as_slice(), &[0; 9]] {
        let endpoint = endpoint();
        let service = listener(&endpoint);
        let reason = thread::scope(|scope| {
            scope.spawn(move || {
                let stream = service.accept().unwrap().0;
                message::receive(&stream).unwrap();
                (&stream).write_all(answer).unwrap();
            });
            refusal(Store::join(&endpoint, 1, 2, LONG))
        });
        assert!(reason.contains("another service listens there; set COLLECTIVES_PORT"), "{reason}");
    }
}

#[test]
fn gathers_report_a_disconnected_rank_at_once() {
    let mut stores = stores(3);
    drop(stores.remove(2));
    for (rank, store) in stores.iter().enumerate() {
        let outcome = store.gather(members("later", &[0, 1, 2], rank), &[], LONG);
        assert_eq!(outcome, Err(GatherError::Departed(2)));
    }
    drop(stores.remove(0));
    assert_eq!(stores[0].gather(members("last", &[0, 1], 1), &[], LONG), Err(GatherError::Departed(0)));
}

#[test]
fn a_gather_from_a_silent_rank_0_times_out() {
    let endpoint = endpoint();
    let rank_0 = listener(&endpoint);
    thread::scope(|scope| {
        let silent = scope.spawn(move || {
            let stream = rank_0.accept().unwrap().0;
            message::receive(&stream).unwrap();
            message::send(&stream, &[MAGIC]).unwrap();
            message::receive(&stream).unwrap();
            message::send(&stream, &[[slot::PUT]; 2]).unwrap();
            stream
        });
        let store = Store::join(&endpoint, 1, 2, LONG).unwrap();
        let _silent = silent.join().unwrap();
        let started = Instant::now();
        assert_eq!(missing(store.gather(members("some", &[0, 1], 1), &[], SHORT)), [0]);
        assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
    });
}

#[test]
fn a_rank_that_timed_out_is_not_reported_as_missing() {
    let stores = stores(3);
    let agree = |rank: usize| stores[rank].gather_all_or_none(members("some", &[0, 1, 2], rank), &[], SHORT);
    assert_eq!(missing(agree(1)), [0, 2]);
    // The rank that timed out took part: it is not missing.
    assert_eq!(missing(agree(2)), [0]);
    assert_eq!(agree(0), Err(GatherError::GivenUp(vec![1, 2])));
    // All ranks have got the error, so the next gather starts anew.
    assert_eq!(missing(agree(0)), [1, 2]);
}

#[test]
fn an_announced_value_is_gathered_later() {
    let stores = stores(3);
    let ranks = [0, 1, 2];
    assert_eq!(missing(stores[1].gather(members("some", &[2, 1, 0], 1), &[], SHORT)), [2, 0]);
    // More than the store keeps.
    for other in 0..5000 {
        assert!(stores[1].announce(members(&format!("other {other}"), &ranks, 1)));
    }
    assert!(stores[1].announce(members("late", &ranks, 1)) && stores[0].announce(members("late", &ranks, 0)));
    for rank in [2, 0, 1] {
        assert_eq!(stores[rank].gather(members("late", &ranks, rank), &[], LONG), Ok(vec![vec![]; 3]));
    }
    assert_eq!(missing(stores[1].gather(members("late", &ranks, 1), &[], SHORT)), [0, 2]);
}

proptest! {
    #[test]
    fn malformed_messages_are_errors(
        bytes in proptest::collection::vec(any::<u8>(), 0..100),
        fields in proptest::collection::vec(proptest::collection::vec(0_u8..6, 0..6), 0..8),
    ) {
        let _ = message::receive([&number(bytes.len())[..], &bytes].concat().as_slice());
        let mut sent = Vec::new();
        message::send(&mut sent, &fields).unwrap();
        prop_assert_eq!(message::receive(sent.as_slice()).unwrap(), fields.clone());
        let server = Server::listen(&endpoint(), 2).unwrap();
        let members = fields.len().saturating_sub(3);
        prop_assert!(server.request(&fields).map_or(true, |slots| slots.len() == members));
    }
}
