//! Messages between a rank and rank 0. A message is a list of fields, which are byte strings; its
//! length and those of its fields are sent as `u32`.
//!
//! ```text
//! introduction  MAGIC, rank, size              rank to rank 0, first
//! admission     MAGIC                          rank 0's answer; the reason follows if it refuses
//! request       key, place, slot, rank, ...    slot of member number `place` of these ranks
//! reply         slot, ...                      those of all members
//! ```
//!
//! A slot is the value of a member of a gather: a byte of the module [`slot`], and after
//! [`slot::PUT`] the value.

use std::io::{self, Read, Write};

/// First field of both ends' first messages: the protocol and its version.
pub(super) const MAGIC: &[u8] = b"collectives 2";

/// First bytes of slots.
pub(super) mod slot {
    /// The value follows.
    pub(crate) const PUT: u8 = 0;
    /// In requests: as `PUT` with an empty value, but the sender does not take part in the gather
    /// yet, and there is no reply.
    pub(crate) const ANNOUNCED: u8 = 1;
    /// The member has timed out. In requests: withdraw the value unless all members have put one.
    pub(crate) const WITHDRAWN: u8 = 2;
    /// There is no value yet.
    pub(crate) const MISSING: u8 = 3;
    /// There is no value, and the member has disconnected.
    pub(crate) const DEPARTED: u8 = 4;
    /// There is no value, and rank 0 has stopped waiting for all ranks to connect.
    pub(crate) const GIVEN_UP: u8 = 5;
}

/// Maximum length of a message: values of a few hundred bytes from some thousand ranks.
const MAX_BYTES: usize = 1 << 22;

/// Sends one message. An error if the connection fails or the message is too long.
pub(super) fn send(mut stream: impl Write, fields: &[impl AsRef<[u8]>]) -> io::Result<()> {
    let mut bytes = Vec::new();
    for field in fields.iter().map(AsRef::as_ref) {
        bytes.extend([&number(field.len())[..], field].concat());
    }
    if bytes.len() > MAX_BYTES {
        return Err(malformed());
    }
    stream.write_all(&[&number(bytes.len())[..], &bytes].concat())
}

/// Receives the next message. An error of the kind `InvalidData` if it is malformed, and another
/// error if the connection ends.
pub(super) fn receive(mut stream: impl Read) -> io::Result<Vec<Vec<u8>>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = read_number(&length)?;
    if length > MAX_BYTES {
        return Err(malformed());
    }
    let mut bytes = Vec::new();
    if stream.take(length as u64).read_to_end(&mut bytes)? < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let (mut rest, mut fields) = (bytes.as_slice(), Vec::new());
    while !rest.is_empty() {
        let (length, after) = rest.split_at_checked(4).ok_or_else(malformed)?;
        let (field, after) = after.split_at_checked(read_number(length)?).ok_or_else(malformed)?;
        fields.push(field.to_vec());
        rest = after;
    }
    Ok(fields)
}

/// Encodes a number of ranks or bytes. Numbers of more than four bytes become the largest one.
pub(super) fn number(number: usize) -> [u8; 4] {
    u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes()
}

/// Decodes a field of [`number`].
pub(super) fn read_number(field: &[u8]) -> io::Result<usize> {
    field.try_into().map(|bytes| u32::from_be_bytes(bytes) as usize).map_err(|_| malformed())
}

/// Returns the error for a malformed message.
pub(super) fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a malformed message")
}
