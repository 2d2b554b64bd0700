//! Where the server is.

use std::fmt;

use async_nats::ServerAddr;

/// A NATS server: its address (`nats://host:4222`, or several with commas between), or a client of your own, for
/// credentials, certificates and whatever else a client can be told.
///
/// `Debug` and `Display` show hosts and ports, never a user or a password.
#[derive(Clone)]
pub struct Server(pub(crate) At);

#[derive(Clone)]
pub(crate) enum At {
    Address(String),
    Client(async_nats::Client),
}

impl Server {
    /// The addresses, if they can be read.
    pub(crate) fn addresses(text: &str) -> Option<Vec<ServerAddr>> {
        text.split(',').map(|address| address.trim().parse().ok()).collect()
    }
}

impl From<&str> for Server {
    fn from(address: &str) -> Self {
        Self(At::Address(address.to_owned()))
    }
}

impl From<String> for Server {
    fn from(address: String) -> Self {
        Self(At::Address(address))
    }
}

impl From<async_nats::Client> for Server {
    fn from(client: async_nats::Client) -> Self {
        Self(At::Client(client))
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match &self.0 {
            At::Address(text) => text,
            At::Client(_) => return f.write_str("a client of yours"),
        };
        // An allow-list: what is not host or port is not shown, wherever in the address it stands.
        let Some(addresses) = Self::addresses(text) else { return f.write_str("an address that cannot be read") };
        for (n, address) in addresses.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            write!(f, "{comma}{}:{}", address.host(), address.port())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hosts_and_ports_are_shown() {
        for (address, shown) in [
            ("nats://user:CANARY@a.example:4333", "a.example:4333"),
            ("nats://CANARY@a.example,tls://b.example:1", "a.example:4222,b.example:1"),
            ("nats://a.example/?password=CANARY", "a.example:4222"),
            ("not an address CANARY", "an address that cannot be read"),
        ] {
            let server = Server::from(address);
            assert_eq!(server.to_string(), shown);
            assert!(!format!("{server:?}").contains("CANARY"));
        }
    }
}
