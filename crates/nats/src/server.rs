//! Where the server is.

use std::fmt;

use async_nats::{ConnectOptions, ServerAddr};
use oncebox_core::address::{Address, Host};

/// A NATS server: its address (`nats://host:4222`, or several with commas between), or a client of your own, for
/// certificates and whatever else a client can be told.
///
/// An address may hold a user and a password (`nats://user:password@host`) or a token (`nats://token@host`), with special
/// characters as `%XX`. All addresses of a list belong to one cluster, so whoever connects is the same for all of them and
/// need be written only once.
///
/// `Debug` and `Display` show hosts and ports, never a user or a password.
#[derive(Clone)]
pub struct Server(pub(crate) At);

#[derive(Clone)]
pub(crate) enum At {
    Address(String),
    Client(async_nats::Client),
}

/// Who connects, as the server asks for it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credentials {
    None,
    Token(String),
    User { name: String, password: String },
}

/// What an address says.
pub(crate) struct Target {
    /// Without the credentials: the client library does not send what stands here, and may log it.
    pub(crate) servers: Vec<ServerAddr>,
    pub(crate) credentials: Credentials,
}

/// What NATS listens on if nothing else is said.
const PORT: u16 = 4222;

impl Server {
    /// The addresses, if they can be read. The complaint holds no part of them.
    pub(crate) fn target(text: &str) -> Result<Target, String> {
        let mut target = Target { servers: Vec::new(), credentials: Credentials::None };
        for address in Self::addresses(text)? {
            let found = Credentials::of(&address);
            if found != Credentials::None {
                if target.credentials != Credentials::None && target.credentials != found {
                    return Err(
                        "the addresses name different users; write user and password, or the token, once".into()
                    );
                }
                target.credentials = found;
            }
            for host in address.hosts() {
                let host = Host { port: host.port.or(Some(PORT)), ..host.clone() };
                let server = format!("{}://{host}", address.scheme()).parse();
                target.servers.push(server.map_err(|_| "its scheme is none of NATS; write nats:// or tls://")?);
            }
        }
        if target.servers.is_empty() {
            return Err("it names no host; write nats://host:port".to_owned());
        }
        Ok(target)
    }

    /// `nats://a,b`, `nats://a,nats://b` and `a,b`: what has no scheme of its own belongs to the address before it.
    fn addresses(text: &str) -> Result<Vec<Address>, String> {
        let mut texts: Vec<String> = Vec::new();
        for part in text.split(',') {
            match texts.last_mut() {
                Some(last) if !part.contains("://") => *last = format!("{last},{part}"),
                None if !part.contains("://") => texts.push(format!("nats://{part}")),
                _ => texts.push(part.to_owned()),
            }
        }
        texts.iter().map(|text| Address::read(text).map_err(|error| error.to_string())).collect()
    }
}

impl Credentials {
    fn of(address: &Address) -> Self {
        match (address.user(), address.password()) {
            (Some(name), Some(password)) => Self::User { name: name.to_owned(), password: password.to_owned() },
            (Some(token), None) => Self::Token(token.to_owned()),
            (None, _) => Self::None,
        }
    }

    pub(crate) fn apply(self, options: ConnectOptions) -> ConnectOptions {
        match self {
            Self::None => options,
            Self::Token(token) => options.token(token),
            Self::User { name, password } => options.user_and_password(name, password),
        }
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
        let Ok(target) = Self::target(text) else { return f.write_str("an address that cannot be read") };
        for (n, address) in target.servers.iter().enumerate() {
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

    #[test]
    fn who_connects_is_read_and_kept_out_of_what_the_client_may_log() {
        let user = |name: &str, password: &str| Credentials::User { name: name.into(), password: password.into() };
        for (text, credentials, servers) in [
            ("a:4333", Credentials::None, "nats://a:4333"),
            ("nats://ada:s%40%2F%2C@a", user("ada", "s@/,"), "nats://a:4222"),
            ("nats://ada:s,e@a,b:1", user("ada", "s,e"), "nats://a:4222 nats://b:1"),
            ("tls://to%3Aken@a,b", Credentials::Token("to:ken".into()), "tls://a:4222 tls://b:4222"),
            ("nats://ada:@a", user("ada", ""), "nats://a:4222"),
            ("nats://a, nats://u:p@b,tls://u:p@[::1]:3", user("u", "p"), "nats://a:4222 nats://b:4222 tls://[::1]:3"),
        ] {
            let target = Server::target(text).unwrap();
            assert!(target.credentials == credentials, "{text}");
            let shown: Vec<_> = target.servers.into_iter().map(|server| server.into_inner().to_string()).collect();
            assert_eq!(shown.join(" "), servers);
        }
        for text in ["nats://u:CANARY@a,nats://v:CANARY@b", "ftp://CANARY@a", "nats://u:CAN/ARY@a", "nats://", ""] {
            assert!(!Server::target(text).err().unwrap().contains("CANARY"), "{text}");
        }
    }

    #[test]
    fn every_printable_character_of_a_secret_is_sent() {
        let printable: String = (' '..='~').chain("é日\u{1f980}\n".chars()).collect();
        let each = printable.chars().map(String::from);
        for secret in each.chain([printable.clone()]) {
            let part = oncebox_core::address::encode(&secret);
            let target = Server::target(&format!("nats://{part}:{part}@a,b")).unwrap();
            assert!(target.credentials == Credentials::User { name: secret.clone(), password: secret.clone() });
            let target = Server::target(&format!("nats://{part}@a,b")).unwrap();
            assert!(target.credentials == Credentials::Token(secret));
        }
    }
}
