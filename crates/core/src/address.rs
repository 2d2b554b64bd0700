//! Addresses of stores and brokers: the one place that reads them and shows them.
//!
//! An address holds a password, so a reader that misjudges where a part ends shows the password, or looks it up as a host.
//! Everything that needs a part of an address takes it from here. What can't be read is refused without a word of it, and
//! what is shown is a list of what may be: scheme, hosts, ports and path.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use url::Url;

/// What has no meaning of its own anywhere in an address.
const LITERAL: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// No store's and no broker's scheme is longer. What is longer may be a secret in the wrong place.
const SCHEME_MAX: usize = 16;

/// Stands for the real scheme while a text is parsed: some, such as `http`, have rules of their own.
const NEUTRAL: &str = "address";

/// `text` as one part of an address, be it a user, a password, a name in the path or the value of a parameter: whatever
/// reads the address gets exactly `text`.
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, LITERAL).to_string()
}

/// An address such as `amqp://user:password@host:5672/vhost`, or one with several hosts: `nats://user:password@a,b:4223`.
///
/// `Display` and `Debug` show scheme, hosts, ports and path: neither user nor password nor parameters.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    scheme: String,
    user: Option<String>,
    password: Option<String>,
    hosts: Vec<Host>,
    /// As it was written, without the first `/`.
    path: String,
    /// As it was written, without the `?`.
    query: Option<String>,
}

/// A host, and its port if one was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// A name or an IP address, without brackets.
    pub name: String,
    /// The port, if it was written.
    pub port: Option<u16>,
}

/// Why a text is no address. Holds no part of the text: it may be a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// There is no `scheme://`.
    #[error("it is no address")]
    NotAnAddress,
    /// The host or the port can't be read.
    #[error(
        "its host or port cannot be read; a special character in a user or password is written as %XX (/ is %2F, @ is %40)"
    )]
    Host,
    /// An `@` behind the host: the password has probably a `/`.
    #[error("an `@` stands behind its host; write it as %40, and a `/` in a user or password as %2F")]
    At,
    /// A second `://`: a list of addresses, or one inside of another.
    #[error("`://` stands in it twice; several hosts go into one address, with commas: scheme://host:port,host:port")]
    Several,
    /// A `#`.
    #[error("a `#` stands in it; write it as %23")]
    Fragment,
    /// A `%` without two digits.
    #[error("a `%` is not followed by two digits; write %25 for a literal one")]
    Percent,
    /// Not UTF-8 once `%XX` are undone.
    #[error("it is not UTF-8 once its %XX are undone")]
    NotUtf8,
    /// A line break, a tab or the like.
    #[error("a line break or another control character stands in it; write it as %XX")]
    Control,
}

impl Address {
    /// Reads an address. Blanks around it are ignored.
    pub fn read(text: &str) -> Result<Self, AddressError> {
        let text = text.trim_matches(|c: char| c.is_ascii_whitespace());
        if text.contains(char::is_control) {
            return Err(AddressError::Control);
        }
        let (scheme, rest) = text.split_once("://").ok_or(AddressError::NotAnAddress)?;
        let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.len() <= SCHEME_MAX
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
        if !is_scheme {
            return Err(AddressError::NotAnAddress);
        }
        if is_list(rest) {
            return Err(AddressError::Several);
        }
        let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        // No parser of URLs knows several hosts: each is read on its own, and the rest with the first of them.
        let (user, list) = authority.rsplit_once('@').map_or(("", authority), |(user, list)| (user, list));
        let hosts = Host::read_list(list).ok_or(AddressError::Host)?;
        let first = list.split(',').next().unwrap_or_default().trim();
        let at = if authority.contains('@') { "@" } else { "" };
        let url = Url::parse(&format!("{NEUTRAL}://{user}{at}{first}{tail}")).map_err(|_| AddressError::Host)?;
        if url.fragment().is_some() {
            return Err(AddressError::Fragment);
        }
        // Then what stands before it may be a password, wherever the address seems to say that its host ends.
        if tail.contains('@') {
            return Err(AddressError::At);
        }
        if tail.contains("://") {
            return Err(AddressError::Several);
        }
        let (path, query) = tail.split_once('?').map_or((tail, None), |(path, query)| (path, Some(query)));
        check_percents(user)?;
        check_percents(path)?;
        check_percents(query.unwrap_or_default())?;
        // The parser drops a `:` with nothing behind it, which is an empty password.
        let password = url.password().or_else(|| user.contains(':').then_some(""));
        let has_user = !url.username().is_empty() || password.is_some();
        decode(path)?;
        Ok(Self {
            scheme: scheme.to_ascii_lowercase(),
            user: if has_user { Some(decode(url.username())?) } else { None },
            password: password.map(decode).transpose()?,
            hosts,
            path: path.strip_prefix('/').unwrap_or(path).to_owned(),
            query: query.map(str::to_owned),
        })
    }

    /// What stands before `://`, in small letters.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The user, decoded.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The password, decoded.
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// The hosts: none in `postgres:///database`.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The path as it was written, without its first `/`: `%2f` is not undone.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// One name in the path, decoded.
    pub fn name(part: &str) -> Result<String, AddressError> {
        check_percents(part)?;
        decode(part)
    }

    /// What stands behind `?`, decoded.
    pub fn parameters(&self) -> Vec<(String, String)> {
        let pairs = url::form_urlencoded::parse(self.query.as_deref().unwrap_or_default().as_bytes());
        pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
    }

    /// The same with another path, written as in an address.
    #[must_use]
    pub fn with_path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// The whole address, secrets and all: for a client, never to be shown.
    pub fn for_client(&self) -> String {
        let mut text = format!("{}://", self.scheme);
        if let Some(user) = &self.user {
            text.push_str(&encode(user));
        }
        if let Some(password) = &self.password {
            text.push(':');
            text.push_str(&encode(password));
        }
        if self.user.is_some() {
            text.push('@');
        }
        text.push_str(&self.place());
        if let Some(query) = &self.query {
            text.push('?');
            text.push_str(query);
        }
        text
    }

    /// Hosts, ports and path.
    fn place(&self) -> String {
        let slash = if self.path.is_empty() && !(self.hosts.is_empty()) { "" } else { "/" };
        format!("{}{slash}{}", Host::list(&self.hosts), self.path)
    }
}

/// Scheme, hosts, ports and path.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.place())
    }
}

/// As `Display`.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

impl Host {
    /// Reads `host`, `host:port` and `[::1]:port` with commas between them; an empty list has no hosts.
    pub fn read_list(list: &str) -> Option<Vec<Self>> {
        if list.is_empty() {
            return Some(Vec::new());
        }
        list.split(',').map(|host| Self::read(host.trim())).collect()
    }

    fn read(text: &str) -> Option<Self> {
        // What belongs to another part of an address is no host. A `:` with no port behind it may be that of another `://`.
        if text.is_empty()
            || text.ends_with(':')
            || text.contains(['/', '?', '#', '@', '\\'])
            || text.contains(char::is_whitespace)
        {
            return None;
        }
        check_percents(text).ok()?;
        let url = Url::parse(&format!("{NEUTRAL}://{text}")).ok()?;
        let name = url.host_str().filter(|name| !name.is_empty())?;
        let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        Some(Self { name: name.to_owned(), port: url.port() })
    }

    /// Hosts with commas between them.
    pub fn list(hosts: &[Self]) -> String {
        hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }
}

/// `host`, `host:port` or `[::1]:port`.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.contains(':') {
            true => write!(f, "[{}]", self.name)?,
            false => f.write_str(&self.name)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// Whether another address follows behind a comma: `a:4222,nats://b:4222`. A URL would take its scheme for a host.
fn is_list(rest: &str) -> bool {
    let is_in_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let before = rest.split_once("://").map(|(before, _)| before);
    before.is_some_and(|before| before.trim_end_matches(is_in_scheme).ends_with(',') && !before.ends_with(','))
}

fn decode(text: &str) -> Result<String, AddressError> {
    let text = percent_decode_str(text).decode_utf8().map_err(|_| AddressError::NotUtf8)?;
    Ok(text.into_owned())
}

/// A `%` that begins nothing would be taken as itself by some clients and refused by others.
fn check_percents(text: &str) -> Result<(), AddressError> {
    let digits = |rest: &str| rest.as_bytes().get(..2).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    match text.split('%').skip(1).all(digits) {
        true => Ok(()),
        false => Err(AddressError::Percent),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Address {
        Address::read(text).unwrap()
    }

    #[test]
    fn the_parts_of_an_address_are_read() {
        let address = read(" AMQP://ada:s%2Fe%40c@h.example:5673/shop/a%2Fb?heartbeat=5&x=a+b%26c\n");
        assert_eq!((address.scheme(), address.user(), address.password()), ("amqp", Some("ada"), Some("s/e@c")));
        assert_eq!(address.hosts(), [Host { name: "h.example".into(), port: Some(5673) }]);
        assert_eq!((address.path(), Address::name("a%2Fb")), ("shop/a%2Fb", Ok("a/b".into())));
        assert_eq!(
            address.parameters(),
            [("heartbeat".to_owned(), "5".to_owned()), ("x".to_owned(), "a b&c".to_owned())]
        );
        assert_eq!(address.to_string(), "amqp://h.example:5673/shop/a%2Fb");
        assert_eq!(format!("{address:?}"), "Address(amqp://h.example:5673/shop/a%2Fb)");
    }

    #[test]
    fn every_form_comes_back_as_it_was_meant() {
        for text in [
            "nats://u:p@a:1,b,[::1]:3/s",
            "nats://token@a",
            "nats://u:@a",
            "postgres:///d?host=%2Frun",
            "postgres://%2Frun%2Fpostgresql/d",
            "amqp://h/%2f",
            "kafka://a,b:9093/t",
        ] {
            assert_eq!(read(text).for_client(), text);
            assert_eq!(read(&read(text).for_client()), read(text));
        }
        assert_eq!(read("nats://u:@a").password(), Some(""));
        assert_eq!(read("nats://[::1]:4222").hosts()[0].name, "::1");
        assert_eq!(read("postgres://u:a@b@h/d").password(), Some("a@b"), "the last @ before the path ends the user");
    }

    #[test]
    fn what_is_mangled_is_refused_without_a_word_of_it() {
        use AddressError::{At, Control, Fragment, Host, NotAnAddress, NotUtf8, Percent};
        for (text, expected) in [
            ("CANARY", NotAnAddress),
            ("://CANARY", NotAnAddress),
            ("CANARY CANARY://h", NotAnAddress),
            ("CANARYCANARYCANARY://h", NotAnAddress),
            ("amqp://u:CAN/ARY@h/v", Host),
            ("amqp://u:CAN?ARY@h/v", Host),
            ("amqp://u:CAN#ARY@h/v", Host),
            ("amqp://u:12/CANARY@h/v", At),
            ("amqp://u:12?CANARY@h/v", At),
            ("postgres://app@h/d?password=a@CANARY", At),
            ("amqp://u:12#CANARY@h/v", Fragment),
            ("amqp://u:CANARY/v", Host),
            ("postgres://app:CANARY\u{e9}db/shop", Host),
            ("postgres://u:CANARY@h:port/d", Host),
            ("postgres://u:CANARY@[bad/d", Host),
            ("postgres://u:CANARY@/d", Host),
            ("postgres://u:CANARY%@h/d", Percent),
            ("postgres://u:CANARY%zz@h/d", Percent),
            ("postgres://u:%ff@h/d", NotUtf8),
            ("postgres://u:CAN\tARY@h/d", Control),
            ("nats://u:CANARY@a,/s", Host),
            ("nats://a,CANARY b/s", Host),
        ] {
            let error = Address::read(text).unwrap_err();
            assert_eq!(error, expected, "{text}");
            assert!(!format!("{error} {error:?}").contains("CANARY"));
        }
    }

    #[test]
    fn a_list_of_addresses_is_no_host() {
        use AddressError::{Host, Several};
        for (text, expected) in [
            ("nats://a:4222,nats://b:4222", Several),
            ("nats://a,nats://b/s", Several),
            ("kafka://a:9092/t,kafka://b:9092/t", Several),
            ("kafka://a:9092,,kafka://b:9092", Several),
            ("amqp://h/v?x=1,amqp://i/v", Several),
            ("nats://u:CANARY@a,nats://u:CANARY@b", Several),
            ("postgres://h/d://CANARY", Several),
            ("amqp://u:1://CANARY@h/v", Host),
            ("nats://a:,b", Host),
            ("nats://a,b:", Host),
            ("nats://[::1]:", Host),
        ] {
            let error = Address::read(text).unwrap_err();
            assert_eq!(error, expected, "{text}");
            assert!(!error.to_string().contains("CANARY"));
        }
        assert_eq!(super::Host::read_list("a:9092,b:"), None);
    }

    /// Every printable character of ASCII, by itself and all together, and others.
    fn secrets() -> Vec<String> {
        let printable = (' '..='~').collect::<String>();
        let others = ["", "%41", "a%", "é", "日本", "\u{1f980}", "a\tb\n", "..", "user:pass", "://", "${X}"];
        let single = printable.chars().map(String::from).collect::<Vec<_>>();
        [single, vec![printable], others.map(str::to_owned).to_vec()].concat()
    }

    fn arrives(secret: &str) {
        let part = encode(secret);
        for scheme in ["postgres", "amqp", "nats", "kafka", "http"] {
            let address = read(&format!("{scheme}://{part}:{part}@h:1,i:2/{part}/{part}?password={part}&x=1"));
            for address in [read(&address.for_client()), address] {
                assert_eq!((address.user(), address.password()), (Some(secret), Some(secret)));
                assert_eq!(Host::list(address.hosts()), "h:1,i:2");
                let names: Vec<_> = address.path().split('/').map(|part| Address::name(part).unwrap()).collect();
                assert_eq!(names, [secret, secret]);
                assert_eq!(address.parameters()[0], ("password".to_owned(), secret.to_owned()));
                assert_eq!(address.parameters()[1].0, "x");
            }
        }
    }

    #[test]
    fn every_printable_character_arrives_in_every_part() {
        secrets().iter().for_each(|secret| arrives(secret));
    }

    proptest! {
        #[test]
        fn any_text_arrives_in_every_part(secret in any::<String>()) {
            arrives(&secret);
        }

        #[test]
        fn no_text_makes_the_reader_panic_or_moves_a_password_into_what_is_shown(before in "[a-z:@/?#%,\\[\\] ]{0,8}", after in ".{0,8}") {
            let text = format!("amqp://u:{before}CANARY{after}@h/v");
            if let Ok(address) = Address::read(&text) {
                prop_assert!(!format!("{address} {address:?}").contains("CANARY"), "{address}");
            }
        }
    }
}
