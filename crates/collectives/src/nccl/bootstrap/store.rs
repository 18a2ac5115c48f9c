//! A rank's end of the connections: its handle of the store at rank 0.

use std::io::{self, ErrorKind};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Mutex, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use super::environment::Endpoint;
use super::message::{self, MAGIC, number, slot};
use super::server::Server;
use crate::nccl::polling::poll_until;
use crate::{Error, Result, WaitStrategy};

/// Maximum time for which one attempt waits for a connection, and then for rank 0's answer.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between two attempts to connect.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum time until rank 0 answers a request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time beyond a rank's time-out in which an answer is still received.
const GRACE_PERIOD: Duration = Duration::from_secs(1);

/// Handle of the store on one rank. Rank 0 serves the store and must outlive the others.
#[derive(Debug)]
pub(in crate::nccl) struct Store {
    connection: Connection,
}

/// Ranks of the world that gather values, and this rank among them.
#[derive(Debug, Clone, Copy)]
pub(in crate::nccl) struct Members<'a> {
    /// Name of the gather, the same on all members.
    pub(in crate::nccl) key: &'a str,
    /// Ranks of the world that take part.
    pub(in crate::nccl) ranks: &'a [usize],
    /// Index of this rank in `ranks`.
    pub(in crate::nccl) place: usize,
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

type Gathered = std::result::Result<Vec<Vec<u8>>, GatherError>;

impl Store {
    /// Makes rank 0 listen at the endpoint and the others connect to it, and waits until all ranks
    /// have.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if rank 0 cannot listen, [`Error::Refused`] if it refuses this rank,
    /// [`Error::Rendezvous`] if ranks do not connect within `timeout`. If rank 0 has timed out, the
    /// others get the error at once.
    pub(in crate::nccl) fn join(
        endpoint: &Endpoint,
        rank: usize,
        size: usize,
        timeout: Duration,
    ) -> Result<Self> {
        let (address, started) = (endpoint.address(), Instant::now());
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
        let store = Self { connection };
        let (members, left) = ((0..size).collect::<Vec<_>>(), timeout.saturating_sub(started.elapsed()));
        let everyone = Members { key: "start", ranks: &members, place: rank };
        let missing = match store.gather(everyone, &[], left) {
            Ok(_) => return Ok(store),
            Err(GatherError::TimedOut { missing, .. } | GatherError::GivenUp(missing)) => missing,
            Err(GatherError::Departed(rank)) => vec![rank],
        };
        let refused = match &store.connection {
            Connection::Server(server) => server.give_up(),
            Connection::Local | Connection::Peer(_) => Vec::new(),
        };
        Err(Error::Rendezvous { address, missing, waited: started.elapsed(), refused, cause: None })
    }

    /// All-gathers values: puts `value`, and returns the values of all members, in their order. The
    /// value remains in the store even after a time-out.
    ///
    /// # Errors
    /// `GatherError::TimedOut` if values are missing after `timeout` or rank 0 does not answer, and
    /// the other variants as they say.
    pub(in crate::nccl) fn gather(&self, members: Members<'_>, value: &[u8], timeout: Duration) -> Gathered {
        let started = Instant::now();
        let limit = started.checked_add(timeout);
        let request = members.request(&[&[slot::PUT], value].concat());
        let mut last_missing = Vec::new();
        // Always parks, because the answer comes from a socket.
        let gathered = poll_until(WaitStrategy::Park, limit, || {
            let slots = match self.try_request(&request, limit) {
                Ok(Some(slots)) => slots,
                Ok(None) => return Ok(None),
                Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) => {
                    return Err(GatherError::TimedOut { missing: vec![0], waited: started.elapsed() });
                }
                Err(_) => return Err(GatherError::Departed(0)),
            };
            let ranks_with = |state: u8| -> Vec<usize> {
                let slots = members.ranks.iter().zip(&slots);
                slots.filter(|(_, slot)| slot[0] == state).map(|(&rank, _)| rank).collect()
            };
            if let Some(&rank) = ranks_with(slot::DEPARTED).first() {
                return Err(GatherError::Departed(rank));
            }
            let (missing, withdrawn) = (ranks_with(slot::GIVEN_UP), ranks_with(slot::WITHDRAWN));
            if !missing.is_empty() {
                return Err(GatherError::TimedOut { missing, waited: started.elapsed() });
            }
            last_missing = ranks_with(slot::MISSING);
            if last_missing.is_empty() && !withdrawn.is_empty() {
                return Err(GatherError::GivenUp(withdrawn));
            }
            Ok(values(&slots))
        })?;
        gathered.ok_or_else(|| GatherError::TimedOut { missing: last_missing, waited: started.elapsed() })
    }

    /// Like [`gather`](Self::gather), but either all members that take part get all values, or
    /// none: a rank that takes part after this one has timed out gets `GatherError::GivenUp` at
    /// once.
    ///
    /// # Errors
    /// As [`gather`](Self::gather).
    pub(in crate::nccl) fn gather_all_or_none(
        &self,
        members: Members<'_>,
        value: &[u8],
        timeout: Duration,
    ) -> Gathered {
        self.gather(members, value, timeout).or_else(|gather_error| {
            if matches!(gather_error, GatherError::GivenUp(_)) {
                return Err(gather_error);
            }
            let withdrawal = members.request(&[slot::WITHDRAWN]);
            let limit = Instant::now().checked_add(GRACE_PERIOD);
            let reply = poll_until(WaitStrategy::Park, limit, || self.try_request(&withdrawal, limit));
            // There are all values if the last member has just arrived, and the others have
            // continued.
            reply.ok().flatten().and_then(|slots| values(&slots)).ok_or(gather_error)
        })
    }

    /// Puts an empty value without waiting for other members. Returns `false` if it was not sent,
    /// because another thread uses the connection or it is broken.
    pub(in crate::nccl) fn announce(&self, members: Members<'_>) -> bool {
        let announcement = members.request(&[slot::ANNOUNCED]);
        self.try_request(&announcement, Some(Instant::now())).is_ok_and(|reply| reply.is_some())
    }

    /// Records that an operation has failed. Rank 0 then keeps serving the store when it is
    /// dropped, for at most 2 s, because the other ranks will ask about the failure. Other ranks do
    /// nothing.
    pub(in crate::nccl) fn record_failure(&self) {
        if let Connection::Server(server) = &self.connection {
            server.record_failure();
        }
    }

    /// Sends a request and waits for the members' slots, until shortly after `limit`. An
    /// announcement has no reply. Returns `None` while another thread uses the connection.
    fn try_request(&self, request: &[Vec<u8>], limit: Option<Instant>) -> io::Result<Option<Vec<Vec<u8>>>> {
        let connection = match &self.connection {
            Connection::Local => return Ok(Some(vec![request[SLOT].clone()])),
            Connection::Server(server) => return server.request(request).map(Some),
            Connection::Peer(connection) => connection,
        };
        let mut connection = match connection.try_lock() {
            Ok(connection) => connection,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        let left = limit.map(|limit| limit.saturating_duration_since(Instant::now()) + GRACE_PERIOD);
        let timeout = left.unwrap_or(ANSWER_TIMEOUT).min(ANSWER_TIMEOUT);
        let stream = connection.as_ref().ok_or(ErrorKind::NotConnected)?;
        let exchange = || {
            stream.set_write_timeout(Some(timeout))?;
            message::send(stream, request)?;
            if request[SLOT] == [slot::ANNOUNCED] {
                return Ok(Some(Vec::new()));
            }
            stream.set_read_timeout(Some(timeout))?;
            let slots = message::receive(stream)?;
            let is_valid =
                slots.len() == request.len() - MEMBERS && slots.iter().all(|slot| !slot.is_empty());
            if is_valid { Ok(Some(slots)) } else { Err(message::malformed()) }
        };
        let reply = exchange();
        if reply.is_err() {
            // A late answer would be mistaken for that to the next request.
            *connection = None;
        }
        reply
    }
}

/// Index of the slot in a request.
const SLOT: usize = 2;
/// Index of the first member in a request.
const MEMBERS: usize = 3;

impl Members<'_> {
    fn request(&self, slot: &[u8]) -> Vec<Vec<u8>> {
        let fields = [self.key.as_bytes(), &number(self.place), slot].map(<[u8]>::to_vec);
        fields.into_iter().chain(self.ranks.iter().map(|&rank| number(rank).to_vec())).collect()
    }
}

/// Returns the values of all members, unless one is missing.
fn values(slots: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
    slots.iter().map(|slot| slot.strip_prefix(&[slot::PUT]).map(<[u8]>::to_vec)).collect()
}

/// Connects to rank 0, and introduces this rank as rank `rank` of a world of `size` ranks.
fn connect(endpoint: &Endpoint, rank: usize, size: usize, timeout: Duration) -> Result<TcpStream> {
    let address = endpoint.address();
    let started = Instant::now();
    loop {
        let left = timeout.saturating_sub(started.elapsed()).max(RETRY_INTERVAL).min(ATTEMPT_TIMEOUT);
        let attempt = || {
            let addresses: Vec<_> = (endpoint.host.as_str(), endpoint.port).to_socket_addrs()?.collect();
            // A silent address leaves time for the others.
            let share = left / addresses.len().max(1) as u32;
            let none = Err(ErrorKind::AddrNotAvailable.into());
            let stream = addresses.iter().fold(none, |dialed: io::Result<_>, address| {
                dialed.or_else(|_| TcpStream::connect_timeout(address, share))
            })?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(left))?;
            message::send(&stream, &[MAGIC, &number(rank), &number(size)])?;
            let answer = message::receive(&stream)?;
            match answer.split_first() {
                Some((magic, reason)) if magic == MAGIC => Ok((stream, reason.first().cloned())),
                _ => Err(message::malformed()),
            }
        };
        let reason = match attempt() {
            Ok((stream, None)) => return Ok(stream),
            Ok((_, Some(reason))) => String::from_utf8_lossy(&reason).into_owned(),
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                "another service listens there; set COLLECTIVES_PORT to another port".to_owned()
            }
            // Rank 0 may not have started yet.
            Err(_) if started.elapsed() + RETRY_INTERVAL < timeout => {
                thread::sleep(RETRY_INTERVAL);
                continue;
            }
            Err(error) => {
                let (missing, refused) = (vec![0], Vec::new());
                let (waited, cause) = (started.elapsed(), Some(error.to_string()));
                return Err(Error::Rendezvous { address, missing, waited, refused, cause });
            }
        };
        return Err(Error::Refused { rank, address, reason });
    }
}
