//! Messages of an authenticated connection: requests to the store, and its replies.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// No message is longer: a value of a few hundred bytes from each of some thousand ranks.
const LONGEST: usize = 1 << 22;

/// What a rank asks of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// Puts its value and asks for those of all members. May be repeated.
    Gather,
    /// Puts its value, without an answer.
    Put,
    /// Times out and takes its value back, unless all others have put theirs by now: then these are the answer.
    Withdraw,
}

/// A rank's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) act: Act,
    /// The key of the gather.
    pub(super) key: String,
    /// The sender's place among them.
    pub(super) place: usize,
    /// The world's ranks that take part.
    pub(super) members: Vec<usize>,
    pub(super) value: Vec<u8>,
}

/// The state of a gather.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    /// The values of all members, in the order of their places.
    All(Vec<Vec<u8>>),
    /// These ranks of the world have put none.
    Missing(Vec<usize>),
    /// They have put none, and rank 0 has timed out.
    GivenUp(Vec<usize>),
    /// All have put values, but these have withdrawn theirs.
    Withdrawn(Vec<usize>),
    /// This one has disconnected.
    Departed(usize),
}

/// One message, a `u32` with its length before it.
pub(super) fn send(stream: &mut impl Write, message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), message].concat())
}

/// The next message.
pub(super) fn receive(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > LONGEST {
        return Err(malformed());
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message)?;
    Ok(message)
}

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_number(&mut bytes, self.act as usize);
        put_bytes(&mut bytes, self.key.as_bytes());
        put_number(&mut bytes, self.place);
        put_ranks(&mut bytes, &self.members);
        put_bytes(&mut bytes, &self.value);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> io::Result<Self> {
        let mut unread = Unread(bytes);
        let act = match unread.number()? {
            0 => Act::Gather,
            1 => Act::Put,
            2 => Act::Withdraw,
            _ => return Err(malformed()),
        };
        let key = String::from_utf8(unread.bytes()?.to_vec()).map_err(|_| malformed())?;
        let (place, members, value) = (unread.number()?, unread.ranks()?, unread.bytes()?.to_vec());
        if place >= members.len() {
            return Err(malformed());
        }
        Ok(Self { act, key, place, members, value })
    }
}

impl Reply {
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
        let mut unread = Unread(bytes);
        Ok(match unread.number()? {
            0 => {
                let count = unread.number()?;
                Self::All((0..count).map(|_| Ok(unread.bytes()?.to_vec())).collect::<io::Result<_>>()?)
            }
            1 => Self::Missing(unread.ranks()?),
            2 => Self::GivenUp(unread.ranks()?),
            3 => Self::Departed(unread.number()?),
            4 => Self::Withdrawn(unread.ranks()?),
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

/// What is left of a message.
struct Unread<'a>(&'a [u8]);

impl<'a> Unread<'a> {
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
        // One at a time: a count alone allocates nothing.
        (0..count).map(|_| self.number()).collect()
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a malformed message")
}

/// A connection that fails once a moment has passed, however slowly the other end goes on.
pub(super) struct Within<'a> {
    stream: &'a TcpStream,
    limit: Instant,
}

impl<'a> Within<'a> {
    pub(super) fn new(stream: &'a TcpStream, limit: Instant) -> Self {
        Self { stream, limit }
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.limit.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Within<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for Within<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
