//! A key-value store at rank 0, as PyTorch's `TCPStore` is, by which ranks exchange values.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::{Mutex, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use super::environment::Endpoint;
use super::handshake::{self, Admission, HandshakeError};
use super::server::Server;
use super::wire::{self, Act, Reply, Request, Within};
use crate::nccl::pause::poll_until;
use crate::{Error, Result, WaitStrategy};

/// How long one attempt to connect may take, and rank 0 to answer.
const ATTEMPT: Duration = Duration::from_secs(2);
/// How long rank 0 may take to answer once this rank is connected.
const ANSWER: Duration = Duration::from_secs(10);
/// How much longer than a rank's time-out it may take, so that a late answer is not lost.
const GRACE: Duration = Duration::from_secs(1);
/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(50);

/// Where the ranks of a job exchange values. Rank 0 serves it, and has to outlive the others.
#[derive(Debug)]
pub(in crate::nccl) struct Store {
    address: String,
    end: End,
}

#[derive(Debug)]
enum End {
    /// A world of one rank.
    Alone,
    Server(Server),
    /// One request at a time; `None` once the connection has broken.
    Peer(Mutex<Option<TcpStream>>),
}

/// Why a gather failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::nccl) enum GatherError {
    /// These ranks of the world did not take part within this time.
    TimedOut { missing: Vec<usize>, waited: Duration },
    /// This rank of the world has disconnected.
    Departed(usize),
    /// These ranks of the world had timed out before this one took part.
    GivenUp(Vec<usize>),
}

impl Store {
    /// Rank 0 listens; the others connect to it, again and again until `timeout` has passed.
    ///
    /// # Errors
    /// A rank 0 that cannot listen, is not there, or refuses this rank.
    pub(in crate::nccl) fn join(
        endpoint: &Endpoint,
        rank: usize,
        size: usize,
        timeout: Duration,
    ) -> Result<Self> {
        endpoint.check(size)?;
        let address = endpoint.address();
        let end = if size == 1 {
            End::Alone
        } else if rank == 0 {
            End::Server(Server::listen(endpoint, size).map_err(|error| Error::Unavailable {
                backend: "NCCL",
                reason: format!(
                    "rank 0 cannot listen at {address}: {error}; COLLECTIVES_PORT sets another port"
                ),
            })?)
        } else {
            End::Peer(Mutex::new(Some(connect(endpoint, rank, size, timeout)?)))
        };
        Ok(Self { address, end })
    }

    /// An all-gather: puts `value` under `key` for all `members` (ranks of the world, this one at `place`), and gives the
    /// values of all of them, in their order. The value stays, also when not all take part within `timeout`.
    pub(in crate::nccl) fn gather(
        &self,
        key: &str,
        members: &[usize],
        place: usize,
        value: &[u8],
        timeout: Duration,
    ) -> std::result::Result<Vec<Vec<u8>>, GatherError> {
        self.ask_until(&request(Act::Gather, key, members, place, value), timeout)
    }

    /// As [`gather`](Self::gather), but either all members that take part get all values, or none: a rank that comes after this
    /// one has timed out gets an error at once.
    pub(in crate::nccl) fn gather_all_or_none(
        &self,
        key: &str,
        members: &[usize],
        place: usize,
        value: &[u8],
        timeout: Duration,
    ) -> std::result::Result<Vec<Vec<u8>>, GatherError> {
        self.gather(key, members, place, value, timeout).or_else(|unmet| {
            if matches!(unmet, GatherError::GivenUp(_)) {
                return Err(unmet);
            }
            let withdrawal = request(Act::Withdraw, key, members, place, &[]);
            let limit = Instant::now().checked_add(GRACE);
            match poll_until(WaitStrategy::Park, limit, || self.ask_once(&withdrawal, limit)) {
                // The last member has just come, and the others go on.
                Ok(Some(Reply::All(values))) => Ok(values),
                _ => Err(unmet),
            }
        })
    }

    /// Puts an empty value under `key` without waiting. Whether it was sent: another thread may be using the connection.
    pub(in crate::nccl) fn put(&self, key: &str, members: &[usize], place: usize) -> bool {
        let request = request(Act::Put, key, members, place, &[]);
        match &self.end {
            End::Alone => true,
            End::Server(server) => {
                server.request(&request);
                true
            }
            End::Peer(connection) => with(connection, |stream| {
                wire::send(&mut Within::new(stream, Instant::now() + GRACE), &request.encode())
            })
            .is_ok_and(|sent| sent.is_some()),
        }
    }

    fn ask_until(
        &self,
        request: &Request,
        timeout: Duration,
    ) -> std::result::Result<Vec<Vec<u8>>, GatherError> {
        let started = Instant::now();
        let limit = started.checked_add(timeout);
        let mut last_missing = Vec::new();
        // Parks whatever the ranks do elsewhere: the answer comes from a socket.
        let met = poll_until(WaitStrategy::Park, limit, || match self.ask_once(request, limit) {
            Ok(Some(Reply::All(values))) => Ok(Some(values)),
            Ok(Some(Reply::Missing(missing))) => {
                last_missing = missing;
                Ok(None)
            }
            Ok(None) => Ok(None),
            Ok(Some(Reply::GivenUp(missing))) => {
                Err(GatherError::TimedOut { missing, waited: started.elapsed() })
            }
            Ok(Some(Reply::Departed(rank))) => Err(GatherError::Departed(rank)),
            Ok(Some(Reply::Withdrawn(ranks))) => Err(GatherError::GivenUp(ranks)),
            Err(error) if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => {
                Err(GatherError::TimedOut { missing: vec![0], waited: started.elapsed() })
            }
            Err(_) => Err(GatherError::Departed(0)),
        })?;
        met.ok_or_else(|| GatherError::TimedOut { missing: last_missing, waited: started.elapsed() })
    }

    /// An operation has failed that other ranks will ask about: rank 0 keeps serving a moment longer.
    pub(in crate::nccl) fn failed(&self) {
        if let End::Server(server) = &self.end {
            server.failed();
        }
    }

    /// The failure of the first endpoint as an error; rank 0 reports it to the others.
    pub(in crate::nccl) fn start_failed(&self, unmet: GatherError, waited: Duration) -> Error {
        let (missing, waited) = match unmet {
            GatherError::TimedOut { missing, waited } => (missing, waited),
            GatherError::Departed(rank) => (vec![rank], waited),
            GatherError::GivenUp(ranks) => (ranks, waited),
        };
        let refused = match &self.end {
            End::Server(server) => {
                server.give_up();
                server.refused()
            }
            End::Alone | End::Peer(_) => Vec::new(),
        };
        Error::Rendezvous { address: self.address.clone(), missing, waited, refused, cause: None }
    }

    /// An answer, soon after `limit` at the latest; `None` while another thread uses the connection.
    fn ask_once(&self, request: &Request, limit: Option<Instant>) -> io::Result<Option<Reply>> {
        match &self.end {
            End::Alone => Ok(Some(Reply::All(vec![request.value.clone()]))),
            End::Server(server) => Ok(Some(server.request(request))),
            End::Peer(connection) => with(connection, |stream| {
                let now = Instant::now();
                let patience =
                    limit.map_or(ANSWER, |limit| limit.saturating_duration_since(now) + GRACE).min(ANSWER);
                let mut stream = Within::new(stream, now + patience);
                wire::send(&mut stream, &request.encode())?;
                Reply::decode(&wire::receive(&mut stream)?)
            }),
        }
    }
}

/// Uses the connection, unless another thread does. It is closed after an error: a late answer would be taken for that to
/// the next request.
fn with<T>(
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

fn request(act: Act, key: &str, members: &[usize], place: usize, value: &[u8]) -> Request {
    Request { act, key: key.to_owned(), place, members: members.to_vec(), value: value.to_vec() }
}

/// A connection to a rank 0 that has proved that it knows the token.
fn connect(endpoint: &Endpoint, rank: usize, size: usize, timeout: Duration) -> Result<TcpStream> {
    let address = endpoint.address();
    let refused = |reason: String| Error::Refused { rank, address: address.clone(), reason };
    let number = |ranks: usize| u32::try_from(ranks).map_err(|_| refused("too many ranks".to_owned()));
    let (rank_number, size_number) = (number(rank)?, number(size)?);
    let started = Instant::now();
    loop {
        let attempt = Instant::now() + ATTEMPT.min(timeout.saturating_sub(started.elapsed()).max(RETRY));
        let handshake = dial(endpoint, attempt).map_err(HandshakeError::from).and_then(|stream| {
            let mut limited = Within::new(&stream, attempt);
            let admission =
                handshake::authenticate(&mut limited, endpoint.token.secret(), rank_number, size_number)?;
            Ok((stream, admission))
        });
        match handshake {
            Ok((stream, Admission::Admitted)) => return Ok(stream),
            Ok((_, admission)) => return Err(refused(admission.reason(rank_number, size_number))),
            Err(HandshakeError::UnknownProtocol) => {
                return Err(refused(
                    "something else listens there; COLLECTIVES_PORT sets another port".to_owned(),
                ));
            }
            Err(HandshakeError::WrongToken) => {
                return Err(refused("who listens there does not know the job's token".to_owned()));
            }
            // Rank 0 may not have started yet, or have too many pending connections.
            Err(HandshakeError::Connection(_)) if started.elapsed() + RETRY < timeout => thread::sleep(RETRY),
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

/// The first that answers. Each has its share of the time that is left, so that a silent one leaves some to the others.
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
