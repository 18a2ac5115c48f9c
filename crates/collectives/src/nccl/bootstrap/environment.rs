//! Rank, device and address of rank 0, from the environment variables of torchrun and two of this
//! crate. The *token* of a job is a secret text that all its ranks know. An *endpoint* is the
//! address at which rank 0 listens.

use std::fmt;
use std::net::IpAddr;

use crate::{Error, Result};

/// Variable of rank 0's port, if it is not the one after torchrun's.
const PORT_VARIABLE: &str = "COLLECTIVES_PORT";
/// Variable of the secret that a job's ranks share.
const TOKEN_VARIABLE: &str = "COLLECTIVES_JOB_TOKEN";

/// Place of this process in the world: its rank, its device and rank 0's endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::nccl) struct Environment {
    /// Number of this rank in the world.
    pub(in crate::nccl) rank: usize,
    /// Number of ranks of the world.
    pub(in crate::nccl) size: usize,
    /// Number of this rank's device on its host, from 0.
    pub(in crate::nccl) device: usize,
    /// Address of rank 0, and the job's token.
    pub(in crate::nccl) endpoint: Endpoint,
}

/// Address at which rank 0 of a job listens, and the job's token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::nccl) struct Endpoint {
    /// Name or IP address of rank 0's host.
    pub(in crate::nccl) host: String,
    /// TCP port at which rank 0 listens.
    pub(in crate::nccl) port: u16,
    /// Token of the job. Empty if it has none.
    pub(in crate::nccl) token: Token,
}

/// Secret of a job, possibly empty. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::nccl) struct Token(String);

impl Token {
    /// Creates a token. An empty text means no token.
    pub(in crate::nccl) fn new(token: impl Into<String>) -> Self {
        Self(token.into())
    }

    /// Returns the secret.
    pub(super) fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "..." })
    }
}

impl Endpoint {
    /// Checks that other jobs cannot connect to the endpoint: it needs a token if other hosts can
    /// reach it. A world of `size` 1 does not connect.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if other hosts can reach the endpoint and it has no token.
    pub(in crate::nccl) fn check(&self, size: usize) -> Result<()> {
        if size <= 1 || self.is_loopback() || !self.token.secret().is_empty() {
            return Ok(());
        }
        Err(unavailable(format!(
            "{} can be reached by other jobs: set {TOKEN_VARIABLE} to the same secret on every rank",
            self.host
        )))
    }

    /// Whether only this host can reach the endpoint. The only accepted name is `localhost`,
    /// because hosts may resolve other names differently.
    pub(super) fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
    }

    /// Returns `host:port`, with brackets around an IPv6 address.
    pub(super) fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl Environment {
    /// Reads the place of this process from environment variables. `variable` returns the value of
    /// the variable of a name, or `None` if it is not set.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if a variable is missing or invalid.
    pub(in crate::nccl) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let number = |name: &str| -> Result<usize> {
            let value = variable(name).ok_or_else(|| {
                unavailable(format!(
                    "{name} is not set: start with torchrun, or set RANK, WORLD_SIZE, LOCAL_RANK, \
                     MASTER_ADDR and MASTER_PORT"
                ))
            })?;
            value.parse().map_err(|_| unavailable(format!("{name} is {value:?}: it must be a number from 0")))
        };
        let (rank, size, device) = (number("RANK")?, number("WORLD_SIZE")?, number("LOCAL_RANK")?);
        if rank >= size {
            return Err(unavailable(format!(
                "RANK is {rank} in a WORLD_SIZE of {size}: ranks are numbered from 0"
            )));
        }
        let token = Token::new(variable(TOKEN_VARIABLE).unwrap_or_default());
        // A single rank does not connect.
        if size == 1 && variable("MASTER_ADDR").is_none() {
            let endpoint = Endpoint { host: "localhost".to_owned(), port: 0, token };
            return Ok(Self { rank, size, device, endpoint });
        }
        let host = variable("MASTER_ADDR")
            .filter(|host| !host.is_empty())
            .ok_or_else(|| unavailable("MASTER_ADDR is not set: set it to the host of rank 0".to_owned()))?;
        let port = match variable(PORT_VARIABLE) {
            Some(_) => number(PORT_VARIABLE)?,
            None => number("MASTER_PORT")?.saturating_add(1),
        };
        let port = u16::try_from(port).ok().filter(|&port| port > 0).ok_or_else(|| {
            unavailable(format!(
                "there is no port {port}: {PORT_VARIABLE}, or MASTER_PORT + 1, must be 1 to 65535"
            ))
        })?;
        let endpoint = Endpoint { host, port, token };
        endpoint.check(size)?;
        Ok(Self { rank, size, device, endpoint })
    }
}

fn unavailable(reason: String) -> Error {
    Error::Unavailable { backend: "NCCL", reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TORCHRUN: [(&str, &str); 5] = [
        ("RANK", "3"),
        ("WORLD_SIZE", "4"),
        ("LOCAL_RANK", "1"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "29500"),
    ];

    fn read(changes: &[(&str, &str)]) -> Result<Environment> {
        Environment::read(|name| {
            let found = changes.iter().chain(&TORCHRUN).find(|(key, _)| *key == name)?;
            (found.1 != "-").then(|| found.1.to_owned())
        })
    }

    fn complaint(changes: &[(&str, &str)]) -> String {
        let message = read(changes).unwrap_err().to_string();
        assert_eq!(message.lines().count(), 1, "{message}");
        message
    }

    #[test]
    fn the_variables_of_torchrun_are_sufficient() {
        let found = read(&[]).unwrap();
        let endpoint = Endpoint { host: "127.0.0.1".to_owned(), port: 29501, token: Token::new("") };
        assert_eq!(found, Environment { rank: 3, size: 4, device: 1, endpoint });
        assert_eq!(read(&[("COLLECTIVES_PORT", "700")]).unwrap().endpoint.port, 700);
        assert_eq!(read(&[("COLLECTIVES_JOB_TOKEN", "s")]).unwrap().endpoint.token.secret(), "s");
        assert_eq!(read(&[("MASTER_ADDR", "::1")]).unwrap().endpoint.address(), "[::1]:29501");
        assert!(read(&[("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "-")]).is_ok());
    }

    #[test]
    fn a_bad_variable_is_named() {
        for name in ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"] {
            assert!(complaint(&[(name, "-")]).contains(&format!("{name} is not set")));
        }
        assert!(complaint(&[("RANK", "first")]).contains(r#"RANK is "first""#));
        assert!(complaint(&[("RANK", "4")]).contains("RANK is 4 in a WORLD_SIZE of 4"));
        assert!(complaint(&[("MASTER_PORT", "65535")]).contains("no port 65536"));
        assert!(complaint(&[("COLLECTIVES_PORT", "0")]).contains("no port 0"));
    }

    #[test]
    fn the_token_is_not_shown() {
        let found = read(&[("COLLECTIVES_JOB_TOKEN", "hunter2")]).unwrap();
        assert!(!format!("{found:?}").contains("hunter2"), "{found:?}");
    }

    #[test]
    fn a_reachable_endpoint_requires_a_token() {
        for host in ["10.0.0.1", "node-0", "::"] {
            assert!(complaint(&[("MASTER_ADDR", host)]).contains("set COLLECTIVES_JOB_TOKEN"));
            assert!(read(&[("MASTER_ADDR", host), ("COLLECTIVES_JOB_TOKEN", "secret")]).is_ok());
        }
        assert!(read(&[("MASTER_ADDR", "localhost")]).is_ok());
    }
}
