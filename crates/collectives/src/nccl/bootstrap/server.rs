//! Rank 0's end: lets the job's ranks in, and keeps what they leave for each other.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::environment::{Meeting, Token};
use super::handshake::{self, Broken, Verdict};
use super::meetings::Meetings;
use super::wire::{self, Act, Reply, Request, Within};

/// How long somebody who connects may take to introduce itself.
const INTRODUCTION: Duration = Duration::from_secs(5);
/// How many may be at it at a time, beside the job's own ranks.
const STRANGERS: usize = 64;
/// How many refusals are remembered.
const REMEMBERED: usize = 16;
/// How long rank 0 stays after a failure, so that the others learn from it who is to blame, and do not blame rank 0.
const FAREWELL: Duration = Duration::from_secs(2);

/// Listens until it is dropped; after a failure, until the others have gone or have had time to ask.
#[derive(Debug)]
pub(super) struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
}

#[derive(Debug)]
struct Shared {
    token: Token,
    size: usize,
    state: Mutex<State>,
    /// Somebody has gone.
    gone: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By the numbers of their connections.
    connections: HashMap<u64, TcpStream>,
    accepted: u64,
    present: BTreeSet<usize>,
    departed: BTreeSet<usize>,
    refused: Vec<String>,
    meetings: Meetings,
    given_up: bool,
    failed: bool,
    closed: bool,
}

impl Server {
    /// Listens where the ranks meet. Only on this host if that is all that they need.
    pub(super) fn listen(meeting: &Meeting, size: usize) -> io::Result<Self> {
        let listener = if meeting.is_loopback() {
            TcpListener::bind((meeting.host.as_str(), meeting.port))?
        } else {
            // A name may stand for several addresses of this host, and for another one here than elsewhere.
            let everywhere: [SocketAddr; 2] =
                [(Ipv6Addr::UNSPECIFIED, meeting.port).into(), (Ipv4Addr::UNSPECIFIED, meeting.port).into()];
            TcpListener::bind(&everywhere[..])?
        };
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            token: meeting.token.clone(),
            size,
            state: Mutex::default(),
            gone: Condvar::new(),
        });
        let server = Self { shared: Arc::clone(&shared), address };
        thread::Builder::new()
            .name("collectives-accept".to_owned())
            .spawn(move || shared.accept(&listener))?;
        Ok(server)
    }

    /// Rank 0's own requests.
    pub(super) fn request(&self, request: &Request) -> Reply {
        self.shared.lock().answer(request)
    }

    /// Who was not let in, and why; the last few.
    pub(super) fn refused(&self) -> Vec<String> {
        self.shared.lock().refused.clone()
    }

    /// Tells everybody who still waits that it is in vain.
    pub(super) fn give_up(&self) {
        let mut state = self.shared.lock();
        (state.given_up, state.failed) = (true, true);
    }

    /// Something has gone wrong: the others will want to know what.
    pub(super) fn failed(&self) {
        self.shared.lock().failed = true;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let limit = Instant::now() + FAREWELL;
        while state.failed && !state.present.is_empty() {
            let left = limit.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.shared.gone.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.closed = true;
        for connection in state.connections.values() {
            let _ = connection.shutdown(Shutdown::Both);
        }
        drop(state);
        // Wakes the thread that accepts. If that fails, the thread has ended or ends with the process.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_millis(100));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        loop {
            let accepted = listener.accept();
            let mut state = self.lock();
            if state.closed {
                return;
            }
            let Ok((stream, from)) = accepted else {
                drop(state);
                // Out of file descriptors, most likely.
                thread::sleep(Duration::from_millis(10));
                continue;
            };
            if state.connections.len() >= self.size + STRANGERS {
                continue;
            }
            // A copy to shut it down with.
            let Ok(copy) = stream.try_clone() else { continue };
            state.accepted += 1;
            let number = state.accepted;
            state.connections.insert(number, copy);
            drop(state);
            let shared = Arc::clone(self);
            let served = thread::Builder::new().name("collectives-serve".to_owned()).spawn(move || {
                shared.serve(&stream, from);
                shared.lock().connections.remove(&number);
            });
            if served.is_err() {
                self.lock().connections.remove(&number);
            }
        }
    }

    /// Talks to one peer until it goes, or is told that the others do not come.
    fn serve(&self, stream: &TcpStream, from: SocketAddr) {
        let Some(rank) = self.admit(stream, from) else { return };
        let _ = self.converse(stream);
        let mut state = self.lock();
        state.present.remove(&rank);
        state.departed.insert(rank);
        drop(state);
        self.gone.notify_all();
    }

    fn converse(&self, mut stream: &TcpStream) -> io::Result<()> {
        stream.set_read_timeout(None)?;
        loop {
            let request = Request::decode(&wire::receive(&mut stream)?)?;
            let reply = self.lock().answer(&request);
            if request.act == Act::Leave {
                continue;
            }
            wire::send(&mut stream, &reply.encode())?;
            if matches!(reply, Reply::GivenUp(_)) {
                return Ok(());
            }
        }
    }

    /// The rank of a peer that belongs to the job and is not here yet.
    fn admit(&self, stream: &TcpStream, from: SocketAddr) -> Option<usize> {
        let mut admitted = None;
        let judge = |rank: u32, size: u32| {
            let (verdict, mut state) = (self.judge(rank, size), self.lock());
            if verdict != Verdict::Welcome {
                return verdict;
            }
            let rank = rank as usize;
            // Rank 0 is this process.
            if rank == 0 || !state.present.insert(rank) {
                return Verdict::Duplicate;
            }
            state.departed.remove(&rank);
            admitted = Some(rank);
            verdict
        };
        let mut limited = Within::new(stream, Instant::now() + INTRODUCTION);
        let greeted = stream
            .set_nodelay(true)
            .map_err(Broken::from)
            .and_then(|()| handshake::receive(&mut limited, self.token.secret(), judge));
        let reason = match greeted {
            Ok((_, _, Verdict::Welcome)) => return admitted,
            // It may not be the rank that it says.
            Ok((rank, size, verdict)) => format!("rank {rank}: {}", verdict.reason(rank, size)),
            Err(Broken::Connection(error)) => format!("it did not introduce itself: {error}"),
            Err(Broken::Stranger | Broken::Impostor) => "it speaks another protocol".to_owned(),
        };
        let mut state = self.lock();
        if let Some(rank) = admitted {
            state.present.remove(&rank);
        }
        if state.refused.len() < REMEMBERED {
            state.refused.push(format!("{from}: {reason}"));
        }
        None
    }

    fn judge(&self, rank: u32, size: u32) -> Verdict {
        let expected = u32::try_from(self.size).unwrap_or(u32::MAX);
        if size != expected {
            Verdict::WrongSize(expected)
        } else if rank >= expected {
            Verdict::NoSuchRank(expected)
        } else {
            Verdict::Welcome
        }
    }
}

impl State {
    fn answer(&mut self, request: &Request) -> Reply {
        match self.meetings.answer(request, &self.departed) {
            Reply::Missing(missing) if self.given_up => Reply::GivenUp(missing),
            reply => reply,
        }
    }
}
