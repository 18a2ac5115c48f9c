//! Tests of the rendezvous: ranks that connect, ranks that are missing, and processes that are
//! refused.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::handshake::{self, Admission, HandshakeError};
use super::store::dial_any;
use super::wire::{Action, StoreReply, StoreRequest};
use super::{Endpoint, GatherError, Store, Token};
use crate::{Error, Result};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(700);

fn endpoint(token: &str) -> Endpoint {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    Endpoint {
        host: "127.0.0.1".to_owned(),
        port: free.local_addr().unwrap().port(),
        token: Token::new(token),
    }
}

/// Connects a rank, as at the start of a job.
fn start(endpoint: &Endpoint, rank: usize, size: usize, timeout: Duration) -> Result<Store> {
    let store = Store::join(endpoint, rank, size, timeout)?;
    let everyone: Vec<usize> = (0..size).collect();
    match store.gather("start", &everyone, rank, &[], timeout) {
        Ok(_) => Ok(store),
        Err(gather_error) => Err(store.start_error(gather_error, timeout)),
    }
}

/// Connects the listed ranks of a world, each on a thread.
fn start_all(endpoint: &Endpoint, ranks: &[usize], size: usize, timeout: Duration) -> Vec<Result<Store>> {
    thread::scope(|scope| {
        let threads: Vec<_> =
            ranks.iter().map(|&rank| scope.spawn(move || start(endpoint, rank, size, timeout))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn refusal(outcome: Result<Store>) -> String {
    match outcome.unwrap_err() {
        Error::Refused { reason, .. } => reason,
        other => panic!("refused for another reason: {other}"),
    }
}

/// Connects without a handshake when rank 0 listens.
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
    let endpoint = endpoint("secret");
    let stores: Vec<Store> =
        start_all(&endpoint, &[0, 1, 2, 3], 4, LONG).into_iter().map(Result::unwrap).collect();
    for (round, members) in [vec![0, 1, 2, 3], vec![3, 1], vec![2], vec![1, 2, 0]].iter().enumerate() {
        let key = format!("round {round}");
        let values = thread::scope(|scope| {
            let (key, stores) = (&key, &stores);
            let threads: Vec<_> = members
                .iter()
                .enumerate()
                .map(|(place, &rank)| {
                    scope.spawn(move || stores[rank].gather(key, members, place, &[rank as u8; 3], LONG))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect::<Vec<_>>()
        });
        let expected: Vec<Vec<u8>> = members.iter().map(|&rank| vec![rank as u8; 3]).collect();
        assert!(values.iter().all(|values| *values == expected));
    }
}

#[test]
fn silent_and_malformed_connections_do_not_block_ranks() {
    let endpoint = endpoint("secret");
    let strangers = thread::scope(|scope| {
        let world = scope.spawn(|| start_all(&endpoint, &[0, 1, 2], 3, LONG));
        let mut silent: Vec<TcpStream> = (0..40).map(|_| visitor(&endpoint)).collect();
        for (i, stream) in silent.iter_mut().enumerate().skip(20) {
            let garbage: Vec<u8> = (0..200).map(|byte| (byte * 31 + i * 7) as u8).collect();
            let _ = stream.write_all(&garbage[..i * 5]);
        }
        assert!(world.join().unwrap().iter().all(Result::is_ok));
        silent
    });
    assert_eq!(strangers.len(), 40);
}

#[test]
fn a_wrong_token_is_refused_and_the_right_one_is_admitted_later() {
    let right = endpoint("secret");
    let wrong = Endpoint { token: Token::new("guess"), ..right.clone() };
    thread::scope(|scope| {
        let first = scope.spawn(|| start(&right, 0, 2, LONG));
        assert!(refusal(start(&wrong, 1, 2, LONG)).contains("its job token (COLLECTIVES_JOB_TOKEN)"));
        assert!(start(&right, 1, 2, LONG).is_ok());
        assert!(first.join().unwrap().is_ok());
    });
}

#[test]
fn refused_peers_are_listed_in_rank_0s_error() {
    let right = endpoint("secret");
    let wrong = Endpoint { token: Token::new("guess"), ..right.clone() };
    let error = thread::scope(|scope| {
        let first = scope.spawn(|| start(&right, 0, 3, Duration::from_secs(2)));
        let second = scope.spawn(|| start(&right, 1, 3, LONG));
        drop(visitor(&right));
        assert!(refusal(start(&wrong, 2, 3, LONG)).contains("token"));
        assert!(refusal(start(&right, 2, 4, LONG)).contains("its world has 4 ranks and rank 0's has 3"));
        assert!(refusal(start(&right, 7, 3, LONG)).contains("there is no rank 7 in a world of 3"));
        // Either of the two connections of rank 1 may be the later one.
        let other = start(&right, 1, 3, LONG);
        let twin = second.join().unwrap();
        let twins = [other.unwrap_err(), twin.unwrap_err()];
        assert!(
            twins.iter().any(|error| error.to_string().contains("rank 1 is already connected")),
            "{twins:?}"
        );
        assert!(twins.iter().any(|error| matches!(error, Error::Rendezvous { .. })), "{twins:?}");
        first.join().unwrap().unwrap_err()
    });
    let Error::Rendezvous { missing, refused, .. } = &error else { panic!("{error}") };
    assert_eq!(missing, &[2]);
    for reason in
        ["rank 2: its job token", "rank 2: its world has 4", "rank 7: there is no", "rank 1: rank 1 is"]
    {
        assert!(refused.iter().any(|line| line.contains(reason)), "{reason}: {refused:?}");
    }
    assert_eq!(error.to_string().lines().count(), 1);
}

#[test]
fn a_second_rank_0_is_refused() {
    let endpoint = endpoint("secret");
    let _first = Store::join(&endpoint, 0, 2, LONG).unwrap();
    let second = Store::join(&endpoint, 0, 2, LONG).unwrap_err().to_string();
    assert!(second.contains("rank 0 cannot listen at 127.0.0.1:") && second.contains("COLLECTIVES_PORT"));
    let admission = handshake::authenticate(&mut visitor(&endpoint), "secret", 0, 2).unwrap();
    assert_eq!(admission, Admission::Duplicate);
}

#[test]
fn all_ranks_report_the_missing_ranks() {
    let endpoint = endpoint("");
    let outcomes = thread::scope(|scope| {
        let others = scope.spawn(|| start_all(&endpoint, &[1, 4], 5, LONG));
        let mut outcomes = start_all(&endpoint, &[0], 5, SHORT);
        outcomes.extend(others.join().unwrap());
        outcomes
    });
    for outcome in outcomes {
        let error = outcome.unwrap_err();
        let Error::Rendezvous { missing, waited, .. } = &error else { panic!("{error}") };
        assert_eq!(missing, &[2, 3]);
        // Rank 0 informs the others, whose own time-out is far.
        assert!(*waited < LONG / 2);
        assert!(error.to_string().starts_with("ranks [2, 3] did not connect to 127.0.0.1:"), "{error}");
    }
}

#[test]
fn an_absent_rank_0_is_reported_as_missing() {
    let error = start(&endpoint(""), 1, 2, SHORT).unwrap_err();
    assert!(matches!(&error, Error::Rendezvous { missing, .. } if missing == &[0]), "{error}");
}

#[test]
fn connecting_to_a_silent_rank_0_times_out() {
    let endpoint = endpoint("");
    let _silent = TcpListener::bind((endpoint.host.as_str(), endpoint.port)).unwrap();
    let error = start(&endpoint, 1, 2, SHORT).unwrap_err();
    assert!(matches!(&error, Error::Rendezvous { missing, .. } if missing == &[0]), "{error}");
}

/// Runs `answer` in place of rank 0, and returns the reason for which a peer refuses it.
fn impersonate_rank_0(answer: impl FnOnce(TcpStream) + Send) -> String {
    let endpoint = endpoint("secret");
    let listener = TcpListener::bind((endpoint.host.as_str(), endpoint.port)).unwrap();
    thread::scope(|scope| {
        scope.spawn(move || answer(listener.accept().unwrap().0));
        refusal(start(&endpoint, 1, 2, LONG))
    })
}

#[test]
fn rank_0_must_know_the_token() {
    let reason = impersonate_rank_0(|mut stream| {
        stream.write_all(b"collct\x00\x01").unwrap();
        stream.write_all(&[7; 32]).unwrap();
        stream.read_exact(&mut [0; 80]).unwrap();
        stream.write_all(&[0; 37]).unwrap();
    });
    assert!(reason.contains("does not know the job's token"), "{reason}");
}

#[test]
fn another_service_at_the_port_is_detected() {
    let reason =
        impersonate_rank_0(|mut stream| stream.write_all(b"HTTP/1.1 400 Bad StoreRequest\r\n\r\n").unwrap());
    assert!(reason.contains("another service listens there; set COLLECTIVES_PORT"), "{reason}");
}

/// A connection that records sent bytes.
struct Recorded(TcpStream, Vec<u8>);

impl Read for Recorded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Recorded {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.0.write(buffer)?;
        self.1.extend_from_slice(&buffer[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Runs one handshake. Returns the bytes sent by the peer and by rank 0, and rank 0's outcome.
fn run_handshake(
    peer: impl FnOnce(&mut Recorded) + Send,
) -> (Vec<u8>, Vec<u8>, std::result::Result<Admission, HandshakeError>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::scope(|scope| {
        let peer = scope.spawn(move || {
            let mut stream = Recorded(TcpStream::connect(address).unwrap(), Vec::new());
            peer(&mut stream);
            stream.1
        });
        let mut stream = Recorded(listener.accept().unwrap().0, Vec::new());
        let outcome = handshake::receive(&mut stream, "a long secret", |_, _| Admission::Admitted);
        drop(stream.0);
        (peer.join().unwrap(), stream.1, outcome.map(|(_, _, admission)| admission))
    })
}

#[test]
fn the_token_is_never_sent_and_a_replayed_handshake_is_refused() {
    let introduce = |stream: &mut Recorded| {
        assert_eq!(handshake::authenticate(stream, "a long secret", 1, 2).unwrap(), Admission::Admitted);
    };
    let (by_peer, by_rank_0, outcome) = run_handshake(introduce);
    assert_eq!(outcome.unwrap(), Admission::Admitted);
    for sent in [&by_peer, &by_rank_0] {
        assert!(!sent.windows(13).any(|window| window == b"a long secret"));
    }
    let (_, _, outcome) = run_handshake(|stream| {
        stream.write_all(&by_peer).unwrap();
        stream.0.read_exact(&mut [0; 40 + 37]).unwrap();
    });
    assert_eq!(outcome.unwrap(), Admission::WrongToken);
}

#[test]
fn gathers_report_a_disconnected_rank_at_once() {
    let endpoint = endpoint("");
    let mut stores = start_all(&endpoint, &[0, 1, 2], 3, LONG);
    drop(stores.remove(2));
    for (rank, store) in stores.iter().enumerate() {
        let met = store.as_ref().unwrap().gather("later", &[0, 1, 2], rank, &[], LONG);
        assert_eq!(met, Err(GatherError::Departed(2)));
    }
    drop(stores.remove(0));
    let met = stores[0].as_ref().unwrap().gather("last", &[0, 1], 1, &[], LONG);
    assert_eq!(met, Err(GatherError::Departed(0)));
}

#[test]
fn gathers_report_the_missing_ranks() {
    let stores = start_all(&endpoint(""), &[0, 1, 2, 3], 4, LONG);
    let gather_error = stores[1].as_ref().unwrap().gather("some", &[3, 1, 0], 1, &[], SHORT).unwrap_err();
    assert!(
        matches!(&gather_error, GatherError::TimedOut { missing, .. } if missing == &[3, 0]),
        "{gather_error:?}"
    );
}

proptest! {
    #[test]
    fn decoding_any_bytes_does_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = StoreRequest::decode(&bytes);
        let _ = StoreReply::decode(&bytes);
    }

    #[test]
    fn messages_survive_a_round_trip(
        key in ".{0,20}",
        members in proptest::collection::vec(0_usize..1000, 1..9),
        value in proptest::collection::vec(any::<u8>(), 0..200),
        action in prop::sample::select(vec![Action::Gather, Action::Put, Action::Withdraw]),
    ) {
        let place = members.len() - 1;
        let request = StoreRequest { action, key, place, members: members.clone(), value: value.clone() };
        prop_assert_eq!(StoreRequest::decode(&request.encode()).unwrap(), request);
        let replies = [
            StoreReply::All(vec![value, vec![]]),
            StoreReply::Missing(members.clone()),
            StoreReply::GivenUp(members.clone()),
            StoreReply::Withdrawn(members),
            StoreReply::Departed(7),
        ];
        for reply in replies {
            prop_assert_eq!(StoreReply::decode(&reply.encode()).unwrap(), reply);
        }
    }
}

#[test]
fn an_unreachable_rank_0_is_reported_with_the_cause() {
    for (host, reason) in [("127.0.0.1", "refused"), ("no-such-host.invalid", "lookup")] {
        let endpoint = Endpoint { host: host.to_owned(), ..endpoint("secret") };
        let error = start(&endpoint, 1, 2, SHORT).unwrap_err().to_string();
        assert!(error.starts_with("ranks [0] did not connect to ") && error.contains(reason), "{error}");
    }
}

#[test]
fn a_silent_address_leaves_time_for_the_next_one() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    // Until the backlog is full.
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
        waiting.push(stream);
        if waiting.len() > 900 {
            return println!("SKIPPED: the system accepts every connection");
        }
    }
    let open = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let _listens = TcpListener::bind(open).unwrap();
    dial_any(&[address, open], Instant::now() + SHORT).unwrap();
}

#[test]
fn a_gather_from_a_silent_rank_0_times_out() {
    let endpoint = endpoint("secret");
    let listener = TcpListener::bind((endpoint.host.as_str(), endpoint.port)).unwrap();
    thread::scope(|scope| {
        let silent = scope.spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            handshake::receive(&mut stream, "secret", |_, _| Admission::Admitted).unwrap();
            stream
        });
        let store = Store::join(&endpoint, 1, 2, LONG).unwrap();
        let _silent = silent.join().unwrap();
        let started = Instant::now();
        let gather_error = store.gather("some", &[0, 1], 1, &[], SHORT).unwrap_err();
        assert!(
            matches!(&gather_error, GatherError::TimedOut { missing, .. } if missing == &[0]),
            "{gather_error:?}"
        );
        assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
    });
}

#[test]
fn a_rank_that_timed_out_is_not_reported_as_missing() {
    let stores = start_all(&endpoint(""), &[0, 1, 2], 3, LONG);
    let agree =
        |rank: usize| stores[rank].as_ref().unwrap().gather_all_or_none("some", &[0, 1, 2], rank, &[], SHORT);
    let first = agree(1).unwrap_err();
    assert!(matches!(&first, GatherError::TimedOut { missing, .. } if missing == &[0, 2]), "{first:?}");
    // The rank that timed out took part: it is not missing.
    let second = agree(2).unwrap_err();
    assert!(matches!(&second, GatherError::TimedOut { missing, .. } if missing == &[0]), "{second:?}");
    assert_eq!(agree(0), Err(GatherError::GivenUp(vec![1, 2])));
    // All ranks have got the error, so the next gather starts anew.
    let third = agree(0).unwrap_err();
    assert!(matches!(&third, GatherError::TimedOut { missing, .. } if missing == &[1, 2]), "{third:?}");
}

#[test]
fn a_value_put_without_waiting_is_gathered_later() {
    let stores = start_all(&endpoint(""), &[0, 1, 2], 3, LONG);
    let store = |rank: usize| stores[rank].as_ref().unwrap();
    for other in 0..2000 {
        assert!(store(1).put(&format!("other {other}"), &[0, 1], 1));
    }
    // The answer implies that all earlier messages have arrived.
    store(1).gather("until now", &[1], 0, &[], LONG).unwrap();
    assert!(store(1).put("some", &[0, 1, 2], 1) && store(0).put("some", &[0, 1, 2], 0));
    assert_eq!(store(2).gather("some", &[0, 1, 2], 2, &[], LONG), Ok(vec![vec![]; 3]));
}

#[test]
fn debug_output_does_not_show_the_token() {
    let endpoint = endpoint("hunter2");
    let store = Store::join(&endpoint, 0, 2, LONG).unwrap();
    for shown in [format!("{endpoint:?}"), format!("{store:?}")] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
