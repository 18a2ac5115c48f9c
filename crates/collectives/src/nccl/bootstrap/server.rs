//! Rank 0's end of the connections: accepts the job's ranks (*peers*), and serves the store. The
//! *store* keeps values by key; in a *gather*, each of the given ranks puts a value under the same
//! key and gets the values of all.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::environment::{Endpoint, Token};
use super::gathers::Gathers;
use super::handshake::{self, Admission, HandshakeError};
use super::wire::{self, Action, DeadlineStream, StoreReply, StoreRequest};

/// Maximum duration of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of pending handshakes, in addition to those of the job's own ranks.
const MAX_PENDING_HANDSHAKES: usize = 64;
/// Maximum number of refusals in the error message.
const MAX_REFUSALS: usize = 16;
/// Time for which rank 0 keeps serving after a failure, so that the others learn which rank is
/// missing and do not report rank 0.
const LINGER: Duration = Duration::from_secs(2);

/// Server of the store on rank 0. It listens until it is dropped. After a failure, the drop waits
/// until the others have disconnected or [`LINGER`] has passed.
#[derive(Debug)]
pub(super) struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
}

#[derive(Debug)]
struct Shared {
    token: Token,
    size: usize,
    state: Mutex<ServerState>,
    /// Notified when a peer has disconnected.
    peer_left: Condvar,
}

#[derive(Debug, Default)]
struct ServerState {
    /// Open connections by their numbers.
    connections: HashMap<u64, TcpStream>,
    accepted: u64,
    present: BTreeSet<usize>,
    departed: BTreeSet<usize>,
    refused: Vec<String>,
    gathers: Gathers,
    given_up: bool,
    failed: bool,
    closed: bool,
}

impl Server {
    /// Starts to listen for the other ranks of a world of `size` ranks, and returns without waiting
    /// for them. If the endpoint is a loopback address, the server listens at that address only,
    /// otherwise at the endpoint's port on all addresses of the host.
    ///
    /// # Errors
    /// An I/O error if the port is in use or no thread can be started.
    pub(super) fn listen(endpoint: &Endpoint, size: usize) -> io::Result<Self> {
        let listener = if endpoint.is_loopback() {
            TcpListener::bind((endpoint.host.as_str(), endpoint.port))?
        } else {
            // A name may have several addresses on this host, and other addresses elsewhere.
            let any_address: [SocketAddr; 2] = [
                (Ipv6Addr::UNSPECIFIED, endpoint.port).into(),
                (Ipv4Addr::UNSPECIFIED, endpoint.port).into(),
            ];
            TcpListener::bind(&any_address[..])?
        };
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            token: endpoint.token.clone(),
            size,
            state: Mutex::default(),
            peer_left: Condvar::new(),
        });
        let server = Self { shared: Arc::clone(&shared), address };
        thread::Builder::new()
            .name("collectives-accept".to_owned())
            .spawn(move || shared.accept(&listener))?;
        Ok(server)
    }

    /// Executes a request of rank 0 itself. Returns the store's reply without waiting for other
    /// ranks: `StoreReply::Missing` if values are missing, so that the caller repeats the request
    /// until all are there.
    pub(super) fn request(&self, request: &StoreRequest) -> StoreReply {
        self.shared.lock().answer(request)
    }

    /// Returns the peers that were refused so far, each as `address: reason`. At most 16 are kept.
    pub(super) fn refused(&self) -> Vec<String> {
        self.shared.lock().refused.clone()
    }

    /// Records that rank 0 has stopped waiting for all ranks to connect. From now on, the reply to
    /// a request with missing values is `StoreReply::GivenUp` instead of `StoreReply::Missing`. As
    /// after `record_failure`, the drop of the server waits for the others.
    pub(super) fn give_up(&self) {
        let mut state = self.shared.lock();
        (state.given_up, state.failed) = (true, true);
    }

    /// Records that an operation has failed. The drop of the server then waits until the other
    /// ranks have disconnected, for at most 2 s, because they will ask which rank is missing.
    pub(super) fn record_failure(&self) {
        self.shared.lock().failed = true;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let limit = Instant::now() + LINGER;
        while state.failed && !state.present.is_empty() {
            let left = limit.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.shared.peer_left.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.closed = true;
        for connection in state.connections.values() {
            let _ = connection.shutdown(Shutdown::Both);
        }
        drop(state);
        // Wakes the accepting thread. If that fails, the thread has ended or ends with the process.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_millis(100));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, ServerState> {
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
                // Most likely no file descriptor is left.
                thread::sleep(Duration::from_millis(10));
                continue;
            };
            if state.connections.len() >= self.size + MAX_PENDING_HANDSHAKES {
                continue;
            }
            // Used to shut the connection down.
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

    /// Serves one peer until it disconnects, or until the start has failed.
    fn serve(&self, stream: &TcpStream, from: SocketAddr) {
        let Some(rank) = self.admit(stream, from) else { return };
        let _ = self.serve_requests(stream);
        let mut state = self.lock();
        state.present.remove(&rank);
        state.departed.insert(rank);
        drop(state);
        self.peer_left.notify_all();
    }

    fn serve_requests(&self, mut stream: &TcpStream) -> io::Result<()> {
        stream.set_read_timeout(None)?;
        loop {
            let request = StoreRequest::decode(&wire::receive(&mut stream)?)?;
            let reply = self.lock().answer(&request);
            if request.action == Action::Put {
                continue;
            }
            wire::send(&mut stream, &reply.encode())?;
            if matches!(reply, StoreReply::GivenUp(_)) {
                return Ok(());
            }
        }
    }

    /// Returns the rank of a peer that belongs to the job and is not connected yet.
    fn admit(&self, stream: &TcpStream, from: SocketAddr) -> Option<usize> {
        let mut admitted = None;
        let check_peer = |rank: u32, size: u32| {
            let (admission, mut state) = (self.check_peer(rank, size), self.lock());
            if admission != Admission::Admitted {
                return admission;
            }
            let rank = rank as usize;
            // Rank 0 is this process.
            if rank == 0 || !state.present.insert(rank) {
                return Admission::Duplicate;
            }
            state.departed.remove(&rank);
            admitted = Some(rank);
            admission
        };
        let mut limited = DeadlineStream::new(stream, Instant::now() + HANDSHAKE_TIMEOUT);
        let handshake = stream
            .set_nodelay(true)
            .map_err(HandshakeError::from)
            .and_then(|()| handshake::receive(&mut limited, self.token.secret(), check_peer));
        let reason = match handshake {
            Ok((_, _, Admission::Admitted)) => return admitted,
            // The peer may not be the rank that it claims to be.
            Ok((rank, size, admission)) => format!("rank {rank}: {}", admission.reason(rank, size)),
            Err(HandshakeError::Connection(error)) => format!("it did not complete the handshake: {error}"),
            Err(HandshakeError::UnknownProtocol | HandshakeError::WrongToken) => {
                "it uses another protocol".to_owned()
            }
        };
        let mut state = self.lock();
        if let Some(rank) = admitted {
            state.present.remove(&rank);
        }
        if state.refused.len() < MAX_REFUSALS {
            state.refused.push(format!("{from}: {reason}"));
        }
        None
    }

    fn check_peer(&self, rank: u32, size: u32) -> Admission {
        let expected = u32::try_from(self.size).unwrap_or(u32::MAX);
        if size != expected {
            Admission::WrongSize(expected)
        } else if rank >= expected {
            Admission::NoSuchRank(expected)
        } else {
            Admission::Admitted
        }
    }
}

impl ServerState {
    fn answer(&mut self, request: &StoreRequest) -> StoreReply {
        match self.gathers.answer(request, &self.departed) {
            StoreReply::Missing(missing) if self.given_up => StoreReply::GivenUp(missing),
            reply => reply,
        }
    }
}
