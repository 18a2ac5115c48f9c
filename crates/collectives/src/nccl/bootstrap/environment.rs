//! Rank, device and address of rank 0, from the environment variables of torchrun and one of this
//! crate.

use std::net::IpAddr;

use crate::{Error, Result};

/// Variable of rank 0's port, if it is not the one after torchrun's.
const PORT_VARIABLE: &str = "COLLECTIVES_PORT";

/// Place of this process in the world: its rank, its device and rank 0's endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::nccl) struct Environment {
    /// Number of this rank in the world.
    pub(in crate::nccl) rank: usize,
    /// Number of ranks of the world.
    pub(in crate::nccl) size: usize,
    /// Number of this rank's device on its host, from 0.
    pub(in crate::nccl) device: usize,
    /// Address at which rank 0 listens.
    pub(in crate::nccl) endpoint: Endpoint,
}

/// Address at which rank 0 of a job listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::nccl) struct Endpoint {
    /// Name or IP address of rank 0's host.
    pub(in crate::nccl) host: String,
    /// TCP port at which rank 0 listens.
    pub(in crate::nccl) port: u16,
}

impl Endpoint {
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
        let unavailable = |reason: String| Error::Unavailable { backend: "NCCL", reason };
        let text = |name: &str| {
            variable(name).filter(|value| !value.is_empty()).ok_or_else(|| {
                unavailable(format!(
                    "{name} is not set: start with torchrun, or set RANK, WORLD_SIZE, LOCAL_RANK, \
                     MASTER_ADDR and MASTER_PORT"
                ))
            })
        };
        let number = |name: &str| -> Result<usize> {
            let value = text(name)?;
            value.parse().map_err(|_| unavailable(format!("{name} is {value:?}: it must be a number from 0")))
        };
        let (rank, size, device) = (number("RANK")?, number("WORLD_SIZE")?, number("LOCAL_RANK")?);
        if rank >= size {
            return Err(unavailable(format!(
                "RANK is {rank} in a WORLD_SIZE of {size}: ranks are numbered from 0"
            )));
        }
        // A single rank does not connect.
        if size == 1 && variable("MASTER_ADDR").is_none() {
            let endpoint = Endpoint { host: "localhost".to_owned(), port: 0 };
            return Ok(Self { rank, size, device, endpoint });
        }
        let host = text("MASTER_ADDR")?;
        let port = match variable(PORT_VARIABLE) {
            Some(_) => number(PORT_VARIABLE)?,
            None => number("MASTER_PORT")?.saturating_add(1),
        };
        let port = u16::try_from(port).ok().filter(|&port| port > 0).ok_or_else(|| {
            unavailable(format!(
                "there is no port {port}: {PORT_VARIABLE}, or MASTER_PORT + 1, must be 1 to 65535"
            ))
        })?;
        Ok(Self { rank, size, device, endpoint: Endpoint { host, port } })
    }
}
