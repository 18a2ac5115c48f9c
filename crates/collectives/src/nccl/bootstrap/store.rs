//! A key-value store at rank 0, similar to PyTorch's `TCPStore`. In a *gather*, each of the given
//! ranks puts a value under the same key, and gets the values of all.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::{Mutex, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use super::environment::Endpoint;
use super::handshake::{self, Admission, HandshakeError};
use super::server::Server;
use super::wire::{self, Action, DeadlineStream, StoreReply, StoreRequest};
use crate::nccl::polling::poll_until;
use crate::{Error, Result, WaitStrategy};

/// Maximum duration of one attempt to connect, including rank 0's answer.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time until rank 0 answers a request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time beyond a rank's time-out in which an answer is still received.
const GRACE_PERIOD: Duration = Duration::from_secs(1);
/// Interval between two attempts to connect.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Handle of the store on one rank. Rank 0 serves the store and must outlive the others.
#[derive(Debug)]
pub(in crate::nccl) struct Store {
    address: String,
    connection: Connection,
}

/// This rank's connection to the store.
#[derive(Debug)]
enum Connection {
    /// None, because the world has one rank.
    Local,
    /// This rank is rank 0.
    Server(Server),
    /// Connection to rank 0, for one request at a time. `None` after it has broken.
    Peer(Mutex<Option<TcpStream>>),
}

/// Cause of a failed gather.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::nccl) enum GatherError {
    /// The ranks `missing` of the world did not take part within the time `waited`.
    TimedOut { missing: Vec<usize>, waited: Duration },
    /// This rank of the world has disconnected without taking part.
    Departed(usize),
    /// These ranks of the world had timed out before this one took part.
    GivenUp(Vec<usize>),
}

impl Store {
    /// Makes rank 0 listen at the endpoint and the others connect to it, with retries until
    /// `timeout`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if rank 0 cannot listen, [`Error::Rendezvous`] if it does not answer,
    /// [`Error::Refused`] if it refuses this rank.
    pub(in crate::nccl) fn join(
        endpoint: &Endpoint,
        rank: usize,
        size: usize,
        timeout: Duration,
    ) -> Result<Self> {
        endpoint.check(size)?;
        let address = endpoint.address();
        let connection = if size == 1 {
            Connection::Local
        } else if rank == 0 {
            Connection::Server(Server::listen(endpoint, size).map_err(|error| Error::Unavailable {
                backend: "NCCL",
                reason: format!(
                    "rank 0 cannot listen at {address}: {error}; set COLLECTIVES_PORT to another port"
                ),
            })?)
        } else {
            Connection::Peer(Mutex::new(Some(connect(endpoint, rank, size, timeout)?)))
        };
        Ok(Self { address, connection })
    }

    /// All-gathers values: puts `value` under `key` for all `members` (ranks of the world; this
    /// rank is at index `place`), and returns the values of all of them, in their order. The value
    /// remains in the store even after a time-out.
    ///
    /// # Errors
    /// `GatherError::TimedOut` if values are missing after `timeout` or rank 0 does not answer, and
    /// the other variants as they say.
    pub(in crate::nccl) fn gather(
        &self,
        key: &str,
        members: &[usize],
        place: usize,
        value: &[u8],
        timeout: Duration,
    ) -> std::result::Result<Vec<Vec<u8>>, GatherError> {
        self.request_until(&request(Action::Gather, key, members, place, value), timeout)
    }

    /// Like [`gather`](Self::gather), but either all members that take part get all values, or
    /// none: a rank that takes part after this one has timed out gets `GatherError::GivenUp` at
    /// once.
    ///
    /// # Errors
    /// As [`gather`](Self::gather).
    pub(in crate::nccl) fn gather_all_or_none(
        &self,
        key: &str,
        members: &[usize],
        place: usize,
        value: &[u8],
        timeout: Duration,
    ) -> std::result::Result<Vec<Vec<u8>>, GatherError> {
        self.gather(key, members, place, value, timeout).or_else(|gather_error| {
            if matches!(gather_error, GatherError::GivenUp(_)) {
                return Err(gather_error);
            }
            let withdrawal = request(Action::Withdraw, key, members, place, &[]);
            let limit = Instant::now().checked_add(GRACE_PERIOD);
            match poll_until(WaitStrategy::Park, limit, || self.try_request(&withdrawal, limit)) {
                // The last member has just arrived, and the others have continued.
                Ok(Some(StoreReply::All(values))) => Ok(values),
                _ => Err(gather_error),
            }
        })
    }

    /// Puts an empty value under `key` without waiting for other members. Returns `false` if it was
    /// not sent, because another thread uses the connection or it is broken.
    pub(in crate::nccl) fn put(&self, key: &str, members: &[usize], place: usize) -> bool {
        let request = request(Action::Put, key, members, place, &[]);
        match &self.connection {
            Connection::Local => true,
            Connection::Server(server) => {
                server.request(&request);
                true
            }
            Connection::Peer(connection) => with_stream(connection, |stream| {
                wire::send(&mut DeadlineStream::new(stream, Instant::now() + GRACE_PERIOD), &request.encode())
            })
            .is_ok_and(|sent| sent.is_some()),
        }
    }

    fn request_until(
        &self,
        request: &StoreRequest,
        timeout: Duration,
    ) -> std::result::Result<Vec<Vec<u8>>, GatherError> {
        let started = Instant::now();
        let limit = started.checked_add(timeout);
        let mut last_missing = Vec::new();
        // Always parks, because the answer comes from a socket.
        let gathered = poll_until(WaitStrategy::Park, limit, || match self.try_request(request, limit) {
            Ok(Some(StoreReply::All(values))) => Ok(Some(values)),
            Ok(Some(StoreReply::Missing(missing))) => {
                last_missing = missing;
                Ok(None)
            }
            Ok(None) => Ok(None),
            Ok(Some(StoreReply::GivenUp(missing))) => {
                Err(GatherError::TimedOut { missing, waited: started.elapsed() })
            }
            Ok(Some(StoreReply::Departed(rank))) => Err(GatherError::Departed(rank)),
            Ok(Some(StoreReply::Withdrawn(ranks))) => Err(GatherError::GivenUp(ranks)),
            Err(error) if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => {
                Err(GatherError::TimedOut { missing: vec![0], waited: started.elapsed() })
            }
            Err(_) => Err(GatherError::Departed(0)),
        })?;
        gathered.ok_or_else(|| GatherError::TimedOut { missing: last_missing, waited: started.elapsed() })
    }

    /// Records that an operation has failed. Rank 0 then keeps serving the store when it is
    /// dropped, for at most 2 s, because the other ranks will ask about the failure. Other ranks do
    /// nothing.
    pub(in crate::nccl) fn record_failure(&self) {
        if let Connection::Server(server) = &self.connection {
            server.record_failure();
        }
    }

    /// Converts a failure of the first gather, in which all ranks take part, into an error.
    /// `waited` is the time since the start. On rank 0, the other ranks get the error too.
    pub(in crate::nccl) fn start_error(&self, gather_error: GatherError, waited: Duration) -> Error {
        let (missing, waited) = match gather_error {
            GatherError::TimedOut { missing, waited } => (missing, waited),
            GatherError::Departed(rank) => (vec![rank], waited),
            GatherError::GivenUp(ranks) => (ranks, waited),
        };
        let refused = match &self.connection {
            Connection::Server(server) => {
                server.give_up();
                server.refused()
            }
            Connection::Local | Connection::Peer(_) => Vec::new(),
        };
        Error::Rendezvous { address: self.address.clone(), missing, waited, refused, cause: None }
    }

    /// Sends a request and waits for the answer, until shortly after `limit`. Returns `None` while
    /// another thread uses the connection.
    fn try_request(&self, request: &StoreRequest, limit: Option<Instant>) -> io::Result<Option<StoreReply>> {
        match &self.connection {
            Connection::Local => Ok(Some(StoreReply::All(vec![request.value.clone()]))),
            Connection::Server(server) => Ok(Some(server.request(request))),
            Connection::Peer(connection) => with_stream(connection, |stream| {
                let now = Instant::now();
                let timeout = limit
                    .map_or(ANSWER_TIMEOUT, |limit| limit.saturating_duration_since(now) + GRACE_PERIOD)
                    .min(ANSWER_TIMEOUT);
                let mut stream = DeadlineStream::new(stream, now + timeout);
                wire::send(&mut stream, &request.encode())?;
                StoreReply::decode(&wire::receive(&mut stream)?)
            }),
        }
    }
}

/// Uses the connection, unless another thread does. Closes it after an error, because a late answer
/// would be mistaken for that to the next request.
fn with_stream<T>(
    connection: &Mutex<Option<TcpStream>>,
    exchange: impl FnOnce(&TcpStream) -> io::Result<T>,
) -> io::Result<Option<T>> {
    let mut connection = match connection.try_lock() {
        Ok(connection) => connection,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return Ok(None),
    };
    let result = exchange(connection.as_ref().ok_or(io::ErrorKind::NotConnected)?);
    if result.is_err() {
        *connection = None;
    }
    result.map(Some)
}

fn request(action: Action, key: &str, members: &[usize], place: usize, value: &[u8]) -> StoreRequest {
    StoreRequest { action, key: key.to_owned(), place, members: members.to_vec(), value: value.to_vec() }
}

/// Connects to a rank 0 that proves that it knows the token.
fn connect(endpoint: &Endpoint, rank: usize, size: usize, timeout: Duration) -> Result<TcpStream> {
    let address = endpoint.address();
    let refused = |reason: String| Error::Refused { rank, address: address.clone(), reason };
    let number = |ranks: usize| u32::try_from(ranks).map_err(|_| refused("too many ranks".to_owned()));
    let (rank_number, size_number) = (number(rank)?, number(size)?);
    let started = Instant::now();
    loop {
        let remaining = timeout.saturating_sub(started.elapsed()).max(RETRY_INTERVAL);
        let attempt = Instant::now() + ATTEMPT_TIMEOUT.min(remaining);
        let handshake = dial(endpoint, attempt).map_err(HandshakeError::from).and_then(|stream| {
            let mut limited = DeadlineStream::new(&stream, attempt);
            let admission =
                handshake::authenticate(&mut limited, endpoint.token.secret(), rank_number, size_number)?;
            Ok((stream, admission))
        });
        match handshake {
            Ok((stream, Admission::Admitted)) => return Ok(stream),
            Ok((_, admission)) => return Err(refused(admission.reason(rank_number, size_number))),
            Err(HandshakeError::UnknownProtocol) => {
                return Err(refused(
                    "another service listens there; set COLLECTIVES_PORT to another port".to_owned(),
                ));
            }
            Err(HandshakeError::WrongToken) => {
                return Err(refused(
                    "the process that listens there does not know the job's token".to_owned(),
                ));
            }
            // Rank 0 may not have started yet, or may have too many pending connections.
            Err(HandshakeError::Connection(_)) if started.elapsed() + RETRY_INTERVAL < timeout => {
                thread::sleep(RETRY_INTERVAL);
            }
            Err(HandshakeError::Connection(error)) => {
                return Err(Error::Rendezvous {
                    address,
                    missing: vec![0],
                    waited: started.elapsed(),
                    refused: Vec::new(),
                    cause: Some(error.to_string()),
                });
            }
        }
    }
}

fn dial(endpoint: &Endpoint, limit: Instant) -> io::Result<TcpStream> {
    let addresses: Vec<_> = (endpoint.host.as_str(), endpoint.port).to_socket_addrs()?.collect();
    dial_any(&addresses, limit)
}

/// Connects to the first address that answers, before `limit`. The remaining time is divided
/// equally, so that a silent address leaves time for the others. Returns the last error if none
/// answers.
pub(super) fn dial_any(addresses: &[SocketAddr], limit: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for (tried, address) in addresses.iter().enumerate() {
        let untried = u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        let share = limit.saturating_duration_since(Instant::now()) / untried;
        if share.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(address, share) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
