//! Messages of an authenticated connection: requests to the store at rank 0, and its replies. In a
//! *gather*, each of the given ranks puts a value under the same key and gets the values of all.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Maximum length of a message: values of a few hundred bytes from some thousand ranks.
const MAX_MESSAGE_BYTES: usize = 1 << 22;

/// Action that a request asks of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Put a value and reply at once with the state of the gather. The sender repeats the request
    /// while the reply is `StoreReply::Missing`.
    Gather,
    /// Put a value, without a reply.
    Put,
    /// Remove the value after a time-out. If all members have put their values meanwhile, reply
    /// with them instead.
    Withdraw,
}

/// Request of a rank to the store, about one gather.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoreRequest {
    /// Action of the store.
    pub(super) action: Action,
    /// Name of the gather, the same on all members.
    pub(super) key: String,
    /// Index of the sender in `members`.
    pub(super) place: usize,
    /// Ranks of the world that take part in the gather.
    pub(super) members: Vec<usize>,
    /// Value that the sender puts. Empty for a withdrawal.
    pub(super) value: Vec<u8>,
}

/// State of a gather, sent as the reply to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StoreReply {
    /// Values of all members, in their order.
    All(Vec<Vec<u8>>),
    /// Ranks of the world that have put no value yet.
    Missing(Vec<usize>),
    /// Ranks of the world that have put no value, after rank 0 has stopped waiting for all ranks to
    /// connect.
    GivenUp(Vec<usize>),
    /// Ranks of the world that have withdrawn their values. All members have put one.
    Withdrawn(Vec<usize>),
    /// Rank of the world that has disconnected without putting a value.
    Departed(usize),
}

/// Sends one message, preceded by its length in bytes as a `u32`. An error if the connection fails
/// or the length exceeds a `u32`.
pub(super) fn send(stream: &mut impl Write, message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), message].concat())
}

/// Receives the next message, without its length. An error if the connection ends or the message is
/// too long.
pub(super) fn receive(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > MAX_MESSAGE_BYTES {
        return Err(malformed());
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message)?;
    Ok(message)
}

impl StoreRequest {
    /// Encodes the request as a message.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_number(&mut bytes, self.action as usize);
        put_bytes(&mut bytes, self.key.as_bytes());
        put_number(&mut bytes, self.place);
        put_ranks(&mut bytes, &self.members);
        put_bytes(&mut bytes, &self.value);
        bytes
    }

    /// Decodes a message of [`encode`](Self::encode). An error if it is malformed.
    pub(super) fn decode(bytes: &[u8]) -> io::Result<Self> {
        let mut reader = Reader(bytes);
        let action = match reader.number()? {
            0 => Action::Gather,
            1 => Action::Put,
            2 => Action::Withdraw,
            _ => return Err(malformed()),
        };
        let key = String::from_utf8(reader.bytes()?.to_vec()).map_err(|_| malformed())?;
        let (place, members, value) = (reader.number()?, reader.ranks()?, reader.bytes()?.to_vec());
        if place >= members.len() {
            return Err(malformed());
        }
        Ok(Self { action, key, place, members, value })
    }
}

impl StoreReply {
    /// Encodes the reply as a message.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::All(values) => {
                put_number(&mut bytes, 0);
                put_number(&mut bytes, values.len());
                for value in values {
                    put_bytes(&mut bytes, value);
                }
            }
            Self::Missing(ranks) => {
                put_number(&mut bytes, 1);
                put_ranks(&mut bytes, ranks);
            }
            Self::GivenUp(ranks) => {
                put_number(&mut bytes, 2);
                put_ranks(&mut bytes, ranks);
            }
            Self::Departed(rank) => {
                put_number(&mut bytes, 3);
                put_number(&mut bytes, *rank);
            }
            Self::Withdrawn(ranks) => {
                put_number(&mut bytes, 4);
                put_ranks(&mut bytes, ranks);
            }
        }
        bytes
    }

    /// Decodes a message of [`encode`](Self::encode). An error if it is malformed.
    pub(super) fn decode(bytes: &[u8]) -> io::Result<Self> {
        let mut reader = Reader(bytes);
        Ok(match reader.number()? {
            0 => {
                let count = reader.number()?;
                Self::All((0..count).map(|_| Ok(reader.bytes()?.to_vec())).collect::<io::Result<_>>()?)
            }
            1 => Self::Missing(reader.ranks()?),
            2 => Self::GivenUp(reader.ranks()?),
            3 => Self::Departed(reader.number()?),
            4 => Self::Withdrawn(reader.ranks()?),
            _ => return Err(malformed()),
        })
    }
}

fn put_number(bytes: &mut Vec<u8>, number: usize) {
    bytes.extend_from_slice(&(number as u64).to_be_bytes());
}

fn put_bytes(bytes: &mut Vec<u8>, value: &[u8]) {
    put_number(bytes, value.len());
    bytes.extend_from_slice(value);
}

fn put_ranks(bytes: &mut Vec<u8>, ranks: &[usize]) {
    put_number(bytes, ranks.len());
    for &rank in ranks {
        put_number(bytes, rank);
    }
}

/// Reader of the fields of a message.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> io::Result<usize> {
        let bytes = self.take(8)?.try_into().map_err(|_| malformed())?;
        usize::try_from(u64::from_be_bytes(bytes)).map_err(|_| malformed())
    }

    fn bytes(&mut self) -> io::Result<&'a [u8]> {
        let length = self.number()?;
        self.take(length)
    }

    fn ranks(&mut self) -> io::Result<Vec<usize>> {
        let count = self.number()?;
        // Read one by one, so that a large count allocates nothing.
        (0..count).map(|_| self.number()).collect()
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a malformed message")
}

/// Connection whose reads and writes fail after a deadline, even if the other end keeps sending
/// slowly.
pub(super) struct DeadlineStream<'a> {
    stream: &'a TcpStream,
    limit: Instant,
}

impl<'a> DeadlineStream<'a> {
    /// Limits a connection to the deadline `limit`.
    pub(super) fn new(stream: &'a TcpStream, limit: Instant) -> Self {
        Self { stream, limit }
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.limit.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for DeadlineStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for DeadlineStream<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
