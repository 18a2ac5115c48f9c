//! Messages of an authenticated connection: requests to the store, and its replies.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Maximum length of a message: values of a few hundred bytes from some thousand ranks.
const MAX_MESSAGE_BYTES: usize = 1 << 22;

/// Action of a request to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Puts a value and asks for those of all members. May be repeated.
    Gather,
    /// Puts a value without an answer.
    Put,
    /// Removes the value after a time-out. If all other members have put theirs meanwhile, returns
    /// all values instead.
    Withdraw,
}

/// Request of a rank to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoreRequest {
    pub(super) action: Action,
    /// Key of the gather.
    pub(super) key: String,
    /// Index of the sender in `members`.
    pub(super) place: usize,
    /// Ranks of the world that take part.
    pub(super) members: Vec<usize>,
    /// Value that the sender contributes to the gather.
    pub(super) value: Vec<u8>,
}

/// State of a gather, sent as the reply to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StoreReply {
    /// Values of all members, in their order.
    All(Vec<Vec<u8>>),
    /// These ranks of the world have put no value.
    Missing(Vec<usize>),
    /// These ranks of the world have put no value, and rank 0 has timed out.
    GivenUp(Vec<usize>),
    /// All members have put values, but these ranks have withdrawn theirs.
    Withdrawn(Vec<usize>),
    /// This rank of the world has disconnected.
    Departed(usize),
}

/// Sends one message, preceded by its length as a `u32`.
pub(super) fn send(stream: &mut impl Write, message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), message].concat())
}

/// Receives the next message.
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
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_number(&mut bytes, self.action as usize);
        put_bytes(&mut bytes, self.key.as_bytes());
        put_number(&mut bytes, self.place);
        put_ranks(&mut bytes, &self.members);
        put_bytes(&mut bytes, &self.value);
        bytes
    }

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

/// A connection whose reads and writes fail after a deadline, even if the other end keeps sending
/// slowly.
pub(super) struct DeadlineStream<'a> {
    stream: &'a TcpStream,
    limit: Instant,
}

impl<'a> DeadlineStream<'a> {
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
