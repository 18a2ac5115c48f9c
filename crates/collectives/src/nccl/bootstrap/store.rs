//! A rank's connection to the others, by way of rank 0.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::environment::Meeting;
use super::handshake::{self, Broken, Verdict};
use super::server::Server;
use super::wire::{self, Reply, Request, Within};
use crate::nccl::pause::poll_until;
use crate::{Error, Result, WaitStrategy};

/// How long one attempt to connect may take, and rank 0 to answer.
const ATTEMPT: Duration = Duration::from_secs(2);
/// How long rank 0 may take to answer once it knows this rank.
const ANSWER: Duration = Duration::from_secs(10);
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
    /// left, in their order.
    pub(in crate::nccl) fn meet(
        &self,
        key: &str,
        members: &[usize],
        place: usize,
        value: &[u8],
        timeout: Duration,
    ) -> std::result::Result<Vec<Vec<u8>>, Unmet> {
        let request =
            Request { key: key.to_owned(), place, members: members.to_vec(), value: value.to_vec() };
        let started = Instant::now();
        let mut last_missing = Vec::new();
        // Parks whatever the ranks do elsewhere: the answer comes from a socket.
        let met =
            poll_until(WaitStrategy::Park, started.checked_add(timeout), || match self.ask(&request) {
                Ok(Reply::All(values)) => Ok(Some(values)),
                Ok(Reply::Missing(missing)) => {
                    last_missing = missing;
                    Ok(None)
                }
                Ok(Reply::GivenUp(missing)) => Err(Unmet::TimedOut { missing, waited: started.elapsed() }),
                Ok(Reply::Departed(rank)) => Err(Unmet::Departed(rank)),
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
        };
        let refused = match &self.end {
            End::Server(server) => {
                server.give_up();
                server.refused()
            }
            End::Alone | End::Peer(_) => Vec::new(),
        };
        Error::Rendezvous { address: self.address.clone(), missing, waited, refused }
    }

    fn ask(&self, request: &Request) -> io::Result<Reply> {
        match &self.end {
            End::Alone => Ok(Reply::All(vec![request.value.clone()])),
            End::Server(server) => Ok(server.request(request)),
            End::Peer(connection) => {
                let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
                let stream = connection.as_ref().ok_or(io::ErrorKind::NotConnected)?;
                let reply = ask(stream, request);
                if reply.is_err() {
                    // An answer that comes later would be taken for the next question's.
                    *connection = None;
                }
                reply
            }
        }
    }
}

fn ask(stream: &TcpStream, request: &Request) -> io::Result<Reply> {
    let mut stream = Within::new(stream, Instant::now() + ANSWER);
    wire::send(&mut stream, &request.encode())?;
    Reply::decode(&wire::receive(&mut stream)?)
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
            let verdict = handshake::introduce(&mut limited, &meeting.token, rank_number, size_number)?;
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
            Err(Broken::Connection(_)) => {
                return Err(Error::Rendezvous {
                    address,
                    missing: vec![0],
                    waited: started.elapsed(),
                    refused: Vec::new(),
                });
            }
        }
    }
}

fn dial(meeting: &Meeting, limit: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in (meeting.host.as_str(), meeting.port).to_socket_addrs()? {
        let left = limit.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
