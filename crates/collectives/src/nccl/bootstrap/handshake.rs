//! Proving to each other that both ends know the job's token, without sending it.
//!
//! ```text
//! rank 0 -> peer   MAGIC, nonce
//! peer -> rank 0   MAGIC, rank, size, nonce, HMAC(token, "peer" + both nonces + rank + size)
//! rank 0 -> peer   verdict, detail,          HMAC(token, "rank 0" + both nonces + verdict + detail)
//! ```
//!
//! Fresh nonces make a recorded exchange worthless. What follows is neither encrypted nor signed: like NCCL's own
//! traffic it is for networks where nobody alters packets.

use std::io::{self, Read, Write};

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// What both ends say first: this protocol, and its version.
const MAGIC: [u8; 8] = *b"collct\x00\x01";

type Nonce = [u8; 32];
type Proof = [u8; 32];

/// What rank 0 thinks of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Welcome,
    WrongToken,
    /// The peer's world has another size than this.
    WrongSize(u32),
    /// There is no such rank in a world of this size.
    NoSuchRank(u32),
    /// The rank is here already.
    Duplicate,
}

/// How a handshake failed.
#[derive(Debug)]
pub(super) enum Broken {
    /// The connection ended, or took too long: perhaps worth another try.
    Connection(io::Error),
    /// The other end speaks something else.
    Stranger,
    /// The other end does not know the token.
    Impostor,
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Connection(error)
    }
}

impl Verdict {
    fn code(self) -> (u8, u32) {
        match self {
            Self::Welcome => (0, 0),
            Self::WrongToken => (1, 0),
            Self::WrongSize(size) => (2, size),
            Self::NoSuchRank(size) => (3, size),
            Self::Duplicate => (4, 0),
        }
    }

    fn from_code(code: u8, detail: u32) -> Option<Self> {
        Some(match code {
            0 => Self::Welcome,
            1 => Self::WrongToken,
            2 => Self::WrongSize(detail),
            3 => Self::NoSuchRank(detail),
            4 => Self::Duplicate,
            _ => return None,
        })
    }

    /// Why the peer with this rank and this idea of the world's size is refused.
    pub(super) fn reason(self, rank: u32, size: u32) -> String {
        match self {
            Self::Welcome => "it is welcome".to_owned(),
            Self::WrongToken => "its job token (COLLECTIVES_JOB_TOKEN) is not rank 0's".to_owned(),
            Self::WrongSize(expected) => format!("its world has {size} ranks and rank 0's has {expected}"),
            Self::NoSuchRank(expected) => format!("there is no rank {rank} in a world of {expected}"),
            Self::Duplicate => format!("rank {rank} is there already"),
        }
    }
}

/// Rank 0's half: gives the peer's rank, its idea of the world's size, and the verdict that it was told.
/// `judge` is asked about peers that know the token.
pub(super) fn receive(
    stream: &mut (impl Read + Write),
    token: &str,
    judge: impl FnOnce(u32, u32) -> Verdict,
) -> Result<(u32, u32, Verdict), Broken> {
    let nonce = fresh()?;
    stream.write_all(&[&MAGIC[..], &nonce].concat())?;
    read_magic(stream)?;
    let (rank, size) = (read_number(stream)?, read_number(stream)?);
    let (their_nonce, proof): (Nonce, Proof) = (read(stream)?, read(stream)?);
    let claim = peer_proof(token, &nonce, &their_nonce, rank, size)?;
    // Compares in constant time.
    let verdict = if claim.verify_slice(&proof).is_ok() { judge(rank, size) } else { Verdict::WrongToken };
    let (code, detail) = verdict.code();
    let proof = server_proof(token, &nonce, &their_nonce, code, detail)?.finalize().into_bytes();
    stream.write_all(&[&[code], &detail.to_be_bytes()[..], &proof].concat())?;
    Ok((rank, size, verdict))
}

/// The peer's half: gives rank 0's verdict.
pub(super) fn introduce(
    stream: &mut (impl Read + Write),
    token: &str,
    rank: u32,
    size: u32,
) -> Result<Verdict, Broken> {
    read_magic(stream)?;
    let their_nonce: Nonce = read(stream)?;
    let nonce = fresh()?;
    let proof = peer_proof(token, &their_nonce, &nonce, rank, size)?.finalize().into_bytes();
    stream.write_all(&[&MAGIC[..], &rank.to_be_bytes(), &size.to_be_bytes(), &nonce, &proof].concat())?;
    let [code] = read(stream)?;
    let detail = read_number(stream)?;
    let proof: Proof = read(stream)?;
    let verdict = Verdict::from_code(code, detail).ok_or(Broken::Stranger)?;
    // Whoever has another token cannot prove that it is so.
    if verdict != Verdict::WrongToken
        && server_proof(token, &their_nonce, &nonce, code, detail)?.verify_slice(&proof).is_err()
    {
        return Err(Broken::Impostor);
    }
    Ok(verdict)
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

fn read_magic(stream: &mut impl Read) -> Result<(), Broken> {
    if read::<8>(stream)? == MAGIC { Ok(()) } else { Err(Broken::Stranger) }
}
