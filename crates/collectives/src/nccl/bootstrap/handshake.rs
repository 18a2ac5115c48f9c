//! Mutual proof that both ends know the job's token, without sending it. The *peer* is the rank
//! that connects to rank 0.
//!
//! ```text
//! rank 0 -> peer  MAGIC, nonce
//! peer -> rank 0  MAGIC, rank, size, nonce, HMAC(token, "peer" + both nonces + rank + size)
//! rank 0 -> peer  admission, detail, HMAC(token, "rank 0" + both nonces + admission + detail)
//! ```
//!
//! Fresh nonces prevent the replay of a recorded handshake. Later messages are neither encrypted
//! nor signed: like NCCL's traffic, they require a network in which packets are not altered.

use std::io::{self, Read, Write};

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// First bytes of both ends: the protocol and its version.
const MAGIC: [u8; 8] = *b"collct\x00\x01";

type Nonce = [u8; 32];
type Proof = [u8; 32];

/// Answer of rank 0 to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// The peer is admitted.
    Admitted,
    /// The peer does not know the token.
    WrongToken,
    /// The peer's world has another size than rank 0's, which is given.
    WrongSize(u32),
    /// There is no such rank in rank 0's world, whose size is given.
    NoSuchRank(u32),
    /// The peer's rank is already connected.
    Duplicate,
}

/// Cause of a failed handshake.
#[derive(Debug)]
pub(super) enum HandshakeError {
    /// The connection failed or timed out. Another attempt may succeed.
    Connection(io::Error),
    /// The other end uses another protocol.
    UnknownProtocol,
    /// The other end does not know the token.
    WrongToken,
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        Self::Connection(error)
    }
}

impl Admission {
    fn code(self) -> (u8, u32) {
        match self {
            Self::Admitted => (0, 0),
            Self::WrongToken => (1, 0),
            Self::WrongSize(size) => (2, size),
            Self::NoSuchRank(size) => (3, size),
            Self::Duplicate => (4, 0),
        }
    }

    fn from_code(code: u8, detail: u32) -> Option<Self> {
        Some(match code {
            0 => Self::Admitted,
            1 => Self::WrongToken,
            2 => Self::WrongSize(detail),
            3 => Self::NoSuchRank(detail),
            4 => Self::Duplicate,
            _ => return None,
        })
    }

    /// Returns the reason for which a peer that claims this rank and world size is refused.
    pub(super) fn reason(self, rank: u32, size: u32) -> String {
        match self {
            Self::Admitted => "it is admitted".to_owned(),
            Self::WrongToken => "its job token (COLLECTIVES_JOB_TOKEN) is not rank 0's".to_owned(),
            Self::WrongSize(expected) => format!("its world has {size} ranks and rank 0's has {expected}"),
            Self::NoSuchRank(expected) => format!("there is no rank {rank} in a world of {expected}"),
            Self::Duplicate => format!("rank {rank} is already connected"),
        }
    }
}

/// Runs rank 0's part of the handshake. Returns the peer's rank, its world size, and the answer
/// that it was sent. `check_peer` is given the rank and world size of a peer that knows the token,
/// and decides whether it is admitted.
///
/// # Errors
/// `HandshakeError::Connection` or `HandshakeError::UnknownProtocol`. A wrong token is no error
/// here, but the answer `Admission::WrongToken`.
pub(super) fn receive(
    stream: &mut (impl Read + Write),
    token: &str,
    check_peer: impl FnOnce(u32, u32) -> Admission,
) -> Result<(u32, u32, Admission), HandshakeError> {
    let nonce = fresh()?;
    stream.write_all(&[&MAGIC[..], &nonce].concat())?;
    read_magic(stream)?;
    let (rank, size) = (read_number(stream)?, read_number(stream)?);
    let (their_nonce, proof): (Nonce, Proof) = (read(stream)?, read(stream)?);
    let claim = peer_proof(token, &nonce, &their_nonce, rank, size)?;
    // The comparison takes constant time.
    let admission =
        if claim.verify_slice(&proof).is_ok() { check_peer(rank, size) } else { Admission::WrongToken };
    let (code, detail) = admission.code();
    let proof = server_proof(token, &nonce, &their_nonce, code, detail)?.finalize().into_bytes();
    stream.write_all(&[&[code], &detail.to_be_bytes()[..], &proof].concat())?;
    Ok((rank, size, admission))
}

/// Runs the peer's part of the handshake, as rank `rank` of a world of `size` ranks. Returns rank
/// 0's answer.
///
/// # Errors
/// A `HandshakeError`; `HandshakeError::WrongToken` if rank 0 does not know the token.
pub(super) fn authenticate(
    stream: &mut (impl Read + Write),
    token: &str,
    rank: u32,
    size: u32,
) -> Result<Admission, HandshakeError> {
    read_magic(stream)?;
    let their_nonce: Nonce = read(stream)?;
    let nonce = fresh()?;
    let proof = peer_proof(token, &their_nonce, &nonce, rank, size)?.finalize().into_bytes();
    stream.write_all(&[&MAGIC[..], &rank.to_be_bytes(), &size.to_be_bytes(), &nonce, &proof].concat())?;
    let [code] = read(stream)?;
    let detail = read_number(stream)?;
    let proof: Proof = read(stream)?;
    let admission = Admission::from_code(code, detail).ok_or(HandshakeError::UnknownProtocol)?;
    // A peer with another token cannot verify this answer.
    if admission != Admission::WrongToken
        && server_proof(token, &their_nonce, &nonce, code, detail)?.verify_slice(&proof).is_err()
    {
        return Err(HandshakeError::WrongToken);
    }
    Ok(admission)
}

fn peer_proof(token: &str, server: &Nonce, peer: &Nonce, rank: u32, size: u32) -> io::Result<Hmac<Sha256>> {
    keyed(token, &[b"peer  ", server, peer, &rank.to_be_bytes(), &size.to_be_bytes()])
}

fn server_proof(
    token: &str,
    server: &Nonce,
    peer: &Nonce,
    code: u8,
    detail: u32,
) -> io::Result<Hmac<Sha256>> {
    keyed(token, &[b"rank 0", server, peer, &[code], &detail.to_be_bytes()])
}

fn keyed(token: &str, parts: &[&[u8]]) -> io::Result<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(token.as_bytes()).map_err(io::Error::other)?;
    for part in parts {
        mac.update(part);
    }
    Ok(mac)
}

fn fresh() -> io::Result<Nonce> {
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(nonce)
}

fn read<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_number(stream: &mut impl Read) -> io::Result<u32> {
    Ok(u32::from_be_bytes(read(stream)?))
}

fn read_magic(stream: &mut impl Read) -> Result<(), HandshakeError> {
    if read::<8>(stream)? == MAGIC { Ok(()) } else { Err(HandshakeError::UnknownProtocol) }
}
