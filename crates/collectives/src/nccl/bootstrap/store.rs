//! A rank's connection to the others, by way of rank 0.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::{Mutex, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use super::environment::Meeting;
use super::handshake::{self, Broken, Verdict};
use super::server::Server;
use super::wire::{self, Act, Reply, Request, Within};
use crate::nccl::pause::poll_until;
use crate::{Error, Result, WaitStrategy};

/// How long one attempt to connect may take, and rank 0 to answer.
const ATTEMPT: Duration = Duration::from_secs(2);
/// How long rank 0 may take to answer once it knows this rank.
const ANSWER: Duration = Duration::from_secs(10);
/// How long it may take longer than a rank has time, so that an answer on its way is not lost.
const GRACE: Duration = Duration::from_secs(1);
/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(50);

/// Where the ranks of a job leave values for each other. Rank 0 has it for all, and has to outlive the others.
#[derive(Debug)]
pub(in crate::nccl) struct Store {
    address: String,
    end: End,
}

#[derive(Debug)]
enum End {
    /// There is nobody to meet.
    Alone,
    Server(Server),
    /// One question at a time; `None` once the connection has broken.
    Peer(Mutex<Option<TcpStream>>),
}

/// Why a meeting did not come about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::nccl) enum Unmet {
    /// These ranks of the world did not come within this time.
    TimedOut { missing: Vec<usize>, waited: Duration },
    /// This rank of the world was there once, and is gone.
    Departed(usize),
    /// These ranks of the world came and waited in vain before this one came.
    GivenUp(Vec<usize>),
}

impl Store {
    /// Rank 0 opens the place where the ranks meet; the others come to it, again and again until `timeout` has passed.
    ///
    /// # Errors
    /// A rank 0 that cannot listen, is not there, or refuses this rank.
    pub(in crate::nccl) fn join(
        meeting: &Meeting,
        rank: usize,
        size: usize,
        timeout: Duration,
    ) -> Result<Self> {
        meeting.check(size)?;
        let address = meeting.address();
        let end = if size == 1 {
            End::Alone
        } else if rank == 0 {
            End::Server(Server::listen(meeting, size).map_err(|error| Error::Unavailable {
                backend: "NCCL",
                reason: format!(
                    "rank 0 cannot listen at {address}: {error}; COLLECTIVES_PORT sets another port"
                ),
            })?)
        } else {
            End::Peer(Mutex::new(Some(connect(meeting, rank, size, timeout)?)))
        };
        Ok(Self { address, end })
    }

    /// Leaves `value` at `key` for all `members` (ranks of the world, this one at `place`), and gives what all of them
    /// left, in their order. The value stays, also when not all come within `timeout`.
    pub(in crate::nccl) fn meet(
        &self,
        key: &str,
        members: &[usize],
        place: usize,
        value: &[u8],
        timeout: Duration,
    ) -> std::result::Result<Vec<Vec<u8>>, Unmet> {
        self.ask_until(&request(Act::Ask, key, members, place, value), timeout)
    }

    /// As [`meet`](Self::meet), but either all members that come get all values, or none: a rank that comes later than
    /// this one waits learns that it is in vain.
    pub(in crate::nccl) fn agree(
        &self,
        key: &str,
        members: &[usize],
        place: usize,
        value: &[u8],
        timeout: Duration,
    ) -> std::result::Result<Vec<Vec<u8>>, Unmet> {
        self.meet(key, members, place, value, timeout).or_else(|unmet| {
            if matches!(unmet, Unmet::GivenUp(_)) {
                return Err(unmet);
            }
            let withdrawal = request(Act::Withdraw, key, members, place, &[]);
            let limit = Instant::now().checked_add(GRACE);
            match poll_until(WaitStrategy::Park, limit, || self.ask_once(&withdrawal, limit)) {
                // The last one has come in this moment, and the others go on.
                Ok(Some(Reply::All(values))) => Ok(values),
                _ => Err(unmet),
            }
        })
    }

    /// Leaves an empty value at `key` and does not wait for anything. Whether it went out: another thread may be talking.
    pub(in crate::nccl) fn leave(&self, key: &str, members: &[usize], place: usize) -> bool {
        let request = request(Act::Leave, key, members, place, &[]);
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

    fn ask_until(&self, request: &Request, timeout: Duration) -> std::result::Result<Vec<Vec<u8>>, Unmet> {
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
            Ok(Some(Reply::GivenUp(missing))) => Err(Unmet::TimedOut { missing, waited: started.elapsed() }),
            Ok(Some(Reply::Departed(rank))) => Err(Unmet::Departed(rank)),
            Ok(Some(Reply::Withdrawn(ranks))) => Err(Unmet::GivenUp(ranks)),
            Err(error) if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => {
                Err(Unmet::TimedOut { missing: vec![0], waited: started.elapsed() })
            }
            Err(_) => Err(Unmet::Departed(0)),
        })?;
        met.ok_or_else(|| Unmet::TimedOut { missing: last_missing, waited: started.elapsed() })
    }

    /// Something has gone wrong that the other ranks will ask about: rank 0 stays a moment longer.
    pub(in crate::nccl) fn failed(&self) {
        if let End::Server(server) = &self.end {
            server.failed();
        }
    }

    /// The failure of the first meeting as an error; on rank 0 the others learn of it.
    pub(in crate::nccl) fn start_failed(&self, unmet: Unmet, waited: Duration) -> Error {
        let (missing, waited) = match unmet {
            Unmet::TimedOut { missing, waited } => (missing, waited),
            Unmet::Departed(rank) => (vec![rank], waited),
            Unmet::GivenUp(ranks) => (ranks, waited),
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

    /// An answer, soon after `limit` at the latest; `None` while another thread is talking.
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

/// Talks over the connection, unless another thread does. It is given up after an error: an answer that comes later would
/// be taken for the next question's.
fn with<T>(
    connection: &Mutex<Option<TcpStream>>,
    talk: impl FnOnce(&TcpStream) -> io::Result<T>,
) -> io::Result<Option<T>> {
    let mut connection = match connection.try_lock() {
        Ok(connection) => connection,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return Ok(None),
    };
    let said = talk(connection.as_ref().ok_or(io::ErrorKind::NotConnected)?);
    if said.is_err() {
        *connection = None;
    }
    said.map(Some)
}

fn request(act: Act, key: &str, members: &[usize], place: usize, value: &[u8]) -> Request {
    Request { act, key: key.to_owned(), place, members: members.to_vec(), value: value.to_vec() }
}

/// A connection to a rank 0 that knows the token.
fn connect(meeting: &Meeting, rank: usize, size: usize, timeout: Duration) -> Result<TcpStream> {
    let address = meeting.address();
    let refused = |reason: String| Error::Refused { rank, address: address.clone(), reason };
    let number = |ranks: usize| u32::try_from(ranks).map_err(|_| refused("too many ranks".to_owned()));
    let (rank_number, size_number) = (number(rank)?, number(size)?);
    let started = Instant::now();
    loop {
        let attempt = Instant::now() + ATTEMPT.min(timeout.saturating_sub(started.elapsed()).max(RETRY));
        let greeted = dial(meeting, attempt).map_err(Broken::from).and_then(|stream| {
            let mut limited = Within::new(&stream, attempt);
            let verdict =
                handshake::introduce(&mut limited, meeting.token.secret(), rank_number, size_number)?;
            Ok((stream, verdict))
        });
        match greeted {
            Ok((stream, Verdict::Welcome)) => return Ok(stream),
            Ok((_, verdict)) => return Err(refused(verdict.reason(rank_number, size_number))),
            Err(Broken::Stranger) => {
                return Err(refused(
                    "something else listens there; COLLECTIVES_PORT sets another port".to_owned(),
                ));
            }
            Err(Broken::Impostor) => {
                return Err(refused("who listens there does not know the job's token".to_owned()));
            }
            // Rank 0 may still be on its way, or be flooded.
            Err(Broken::Connection(_)) if started.elapsed() + RETRY < timeout => thread::sleep(RETRY),
            Err(Broken::Connection(error)) => {
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

fn dial(meeting: &Meeting, limit: Instant) -> io::Result<TcpStream> {
    let addresses: Vec<_> = (meeting.host.as_str(), meeting.port).to_socket_addrs()?.collect();
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
