//! Rank 0's end of the connections: accepts the other ranks (*peers*), and serves the store.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::environment::Endpoint;
use super::message::{self, MAGIC, malformed, read_number, slot};

/// Maximum time for which rank 0 waits for an introduction.
const INTRODUCTION_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of refusals in the error message.
const MAX_REFUSALS: usize = 16;
/// Time for which rank 0 keeps serving after a failure, so that the others learn which rank is
/// missing and do not report rank 0.
const LINGER: Duration = Duration::from_secs(2);
/// Maximum number of keys. Most are those of announced operations that completed, which no rank
/// gathers. The oldest key is removed first; if it is in use, its members put their values again.
const MAX_KEYS: usize = 4096;

/// Server of the store on rank 0. It listens until it is dropped. After a failure, the drop waits
/// until the others have disconnected or [`LINGER`] has passed.
#[derive(Debug)]
pub(super) struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
}

#[derive(Debug)]
struct Shared {
    size: usize,
    state: Mutex<ServerState>,
    /// Notified when a peer has disconnected.
    peer_left: Condvar,
}

#[derive(Debug, Default)]
struct ServerState {
    /// Connections by ranks.
    peers: BTreeMap<usize, TcpStream>,
    departed: BTreeSet<usize>,
    /// Refused processes, each as `address: reason`.
    refused: Vec<String>,
    gathers: HashMap<Vec<u8>, Gather>,
    /// Keys of gathers, in their order. Keys that were removed may remain.
    keys: VecDeque<Vec<u8>>,
    given_up: bool,
    failed: bool,
    closed: bool,
}

#[derive(Debug)]
struct Gather {
    /// Slots of the members.
    slots: Vec<Vec<u8>>,
    /// Members that have received all values.
    served: BTreeSet<usize>,
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
        let shared = Arc::new(Shared { size, state: Mutex::default(), peer_left: Condvar::new() });
        let server = Self { shared: Arc::clone(&shared), address };
        let accept = move || shared.accept(&listener);
        thread::Builder::new().name("collectives-accept".to_owned()).spawn(accept)?;
        Ok(server)
    }

    /// Executes a request of rank 0 itself. Returns the slots of the members without waiting for
    /// other ranks.
    pub(super) fn request(&self, request: &[Vec<u8>]) -> io::Result<Vec<Vec<u8>>> {
        self.shared.lock().answer(request)
    }

    /// Records that rank 0 has stopped waiting for all ranks to connect, which the others are told
    /// when they ask. Returns the refused processes, each as `address: reason`. As after
    /// [`record_failure`](Self::record_failure), the drop waits for the others.
    pub(super) fn give_up(&self) -> Vec<String> {
        let mut state = self.shared.lock();
        (state.given_up, state.failed) = (true, true);
        state.refused.clone()
    }

    /// Records that an operation has failed. The drop of the server then waits until the other
    /// ranks have disconnected, for at most 2 s, because they will ask which rank is missing.
    pub(super) fn record_failure(&self) {
        self.shared.lock().failed = true;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let lingers = |state: &mut ServerState| state.failed && !state.peers.is_empty();
        let waited = self.shared.peer_left.wait_timeout_while(self.shared.lock(), LINGER, lingers);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.closed = true;
        for connection in state.peers.values() {
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
            if self.lock().closed {
                return;
            }
            let shared = Arc::clone(self);
            let served = accepted.and_then(|(stream, from)| {
                let serve = move || shared.serve(&stream, from);
                thread::Builder::new().name("collectives-serve".to_owned()).spawn(serve)
            });
            if served.is_err() {
                // Most likely no file descriptor or thread is left. The peer tries again.
                thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// Serves one peer until it disconnects, or until the start has failed.
    fn serve(&self, stream: &TcpStream, from: SocketAddr) {
        let admitted = self.admit(stream);
        if let Ok(rank) = admitted {
            let _ = self.serve_requests(stream);
            let mut state = self.lock();
            state.peers.remove(&rank);
            state.departed.insert(rank);
            self.peer_left.notify_all();
        }
        let mut state = self.lock();
        if let Some(reason) = admitted.err().filter(|_| state.refused.len() < MAX_REFUSALS) {
            state.refused.push(format!("{from}: {reason}"));
        }
    }

    fn serve_requests(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_read_timeout(None)?;
        loop {
            let request = message::receive(stream)?;
            let reply = self.lock().answer(&request)?;
            if request.get(2).is_some_and(|slot| slot.first() == Some(&slot::ANNOUNCED)) {
                continue;
            }
            message::send(stream, &reply)?;
            if reply.iter().any(|slot| slot[0] == slot::GIVEN_UP) {
                return Ok(());
            }
        }
    }

    /// Returns the rank of a peer that belongs to the job and is not connected yet.
    ///
    /// # Errors
    /// The reason for which the peer is refused, which it is told if it has introduced itself.
    fn admit(&self, stream: &TcpStream) -> Result<usize, String> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::InvalidData => "it uses another protocol".to_owned(),
            _ => format!("it did not introduce itself: {error}"),
        };
        let introduction = || {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(INTRODUCTION_TIMEOUT))?;
            stream.set_write_timeout(Some(INTRODUCTION_TIMEOUT))?;
            match message::receive(stream)?.as_slice() {
                [magic, rank, size] if magic == MAGIC => Ok((read_number(rank)?, read_number(size)?)),
                _ => Err(malformed()),
            }
        };
        let (rank, size) = introduction().map_err(failed)?;
        if let Err(reason) = self.register(rank, size, stream) {
            let _ = message::send(stream, &[MAGIC, reason.as_bytes()]);
            // The peer may not be the rank that it claims to be.
            return Err(format!("rank {rank}: {reason}"));
        }
        message::send(stream, &[MAGIC]).map_err(|error| {
            self.lock().peers.remove(&rank);
            failed(error)
        })?;
        Ok(rank)
    }

    fn register(&self, rank: usize, size: usize, stream: &TcpStream) -> Result<(), String> {
        let (expected, mut state) = (self.size, self.lock());
        if state.closed {
            return Err("rank 0 has ended".to_owned());
        } else if size != expected {
            return Err(format!("its world has {size} ranks and rank 0's has {expected}"));
        } else if rank >= expected {
            return Err(format!("there is no rank {rank} in a world of {expected}"));
        } else if rank == 0 || state.peers.contains_key(&rank) {
            return Err(format!("rank {rank} is already connected"));
        }
        // Used to shut the connection down.
        let copy = stream.try_clone().map_err(|error| format!("rank 0 cannot serve it: {error}"))?;
        state.peers.insert(rank, copy);
        state.departed.remove(&rank);
        Ok(())
    }
}

impl ServerState {
    /// Executes a request of one rank and returns the slots of the members at once, without waiting
    /// for values that are missing. An error if the request is malformed.
    fn answer(&mut self, request: &[Vec<u8>]) -> io::Result<Vec<Vec<u8>>> {
        let [key, place, slot, members @ ..] = request else { return Err(malformed()) };
        let (place, action) = (read_number(place)?, *slot.first().ok_or_else(malformed)?);
        let members = members.iter().map(|rank| read_number(rank)).collect::<io::Result<Vec<_>>>()?;
        if !self.gathers.contains_key(key) {
            self.keys.push_back(key.clone());
            if self.keys.len() > MAX_KEYS {
                self.keys.pop_front().map(|oldest| self.gathers.remove(&oldest));
            }
            let slots = vec![vec![slot::MISSING]; members.len()];
            self.gathers.insert(key.clone(), Gather { slots, served: BTreeSet::new() });
        }
        let gather = self.gathers.get_mut(key).filter(|gather| gather.slots.len() == members.len());
        let gather = gather.filter(|_| place < members.len()).ok_or_else(malformed)?;
        let has_all = |slots: &[Vec<u8>]| slots.iter().all(|slot| slot[0] == slot::PUT);
        if action != slot::WITHDRAWN || !has_all(&gather.slots) {
            gather.slots[place].clone_from(slot);
            if action == slot::ANNOUNCED {
                gather.slots[place][0] = slot::PUT;
            }
        }
        let reply = gather.slots.clone();
        if has_all(&reply) {
            if action != slot::ANNOUNCED {
                gather.served.insert(place);
            }
        } else if reply.iter().all(|slot| [slot::PUT, slot::WITHDRAWN].contains(&slot[0])) {
            // Later ranks are refused at once.
            gather.slots[place] = vec![slot::WITHDRAWN];
        }
        // The last member removes the key, so that it can be used again.
        let is_withdrawn = gather.slots.iter().all(|slot| slot[0] == slot::WITHDRAWN);
        if is_withdrawn || gather.served.len() == members.len() {
            self.gathers.remove(key);
        }
        let state = |(slot, rank): (Vec<u8>, usize)| match slot[0] {
            slot::MISSING if self.departed.contains(&rank) => vec![slot::DEPARTED],
            slot::MISSING if self.given_up => vec![slot::GIVEN_UP],
            _ => slot,
        };
        Ok(reply.into_iter().zip(members).map(state).collect())
    }
}
