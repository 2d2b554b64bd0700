//! Secrets that stand in the file itself.

use std::collections::BTreeSet;

use oncebox::address::{Address, AddressError};
use toml::de::{DeTable, DeValue};

use super::finding::{Finding, Severity};

/// Lines with a secret that does not come from the environment. The secret itself is nowhere in what is said.
pub(super) fn secrets(text: &str) -> Vec<Finding> {
    // What is not TOML has been refused before; what can be read of it is read.
    let (file, _) = DeTable::parse_recoverable(text);
    let mut found = BTreeSet::new();
    in_table(file.get_ref(), Place::Settings, &mut |at, what| {
        let before = text.as_bytes().get(..at).unwrap_or(text.as_bytes());
        found.insert((1 + before.iter().filter(|byte| **byte == b'\n').count(), what));
    });
    found.into_iter().map(|(line, what)| finding(line, what)).collect()
}

fn finding(line: usize, what: &str) -> Finding {
    let evidence = format!("line {line} holds a {what}");
    let fix = format!(
        "write ${{NAME}} in its place and set NAME in the environment; change the {what} if the file was shared"
    );
    Finding::new("file.secret", Severity::Warning, "file", evidence, fix)
}

/// What a value belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Settings,
    /// What is emitted is called as the user's messages have it: `token` may be anything there.
    Messages,
}

type Tell<'t> = &'t mut dyn FnMut(usize, &'static str);

fn in_table(table: &DeTable<'_>, place: Place, tell: Tell<'_>) {
    for (name, value) in table {
        let name: &str = name.get_ref();
        let place = if name == "emit" { Place::Messages } else { place };
        in_value(name, value.get_ref(), value.span().start, place, tell);
    }
}

fn in_value(name: &str, value: &DeValue<'_>, at: usize, place: Place, tell: Tell<'_>) {
    match value {
        DeValue::String(text) => {
            let named = secret_name(name).filter(|_| place == Place::Settings && is_written_out(text));
            if let Some(what) = named.or_else(|| in_addresses(text)) {
                tell(at, what);
            }
        }
        DeValue::Array(values) => {
            values.iter().for_each(|value| in_value(name, value.get_ref(), value.span().start, place, tell));
        }
        DeValue::Table(table) => in_table(table, place, tell),
        _ => {}
    }
}

/// Whether a value is there, and no part of it comes from the environment. (`$${` is a literal `${`.)
fn is_written_out(value: &str) -> bool {
    !value.is_empty() && !value.replace("$${", "").contains("${")
}

/// What a setting of this name holds, if it is a secret: `ssl.keystore.password`, `client-secret`, `access_key`. `key` alone
/// is no secret: consumers have one. Neither is where a secret lies: `ssl.key.location`.
fn secret_name(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let parts: Vec<&str> = name.split(['.', '_', '-']).collect();
    let (last, before) = parts.split_last()?;
    let ends = |words: &[&str]| words.iter().any(|word| last.ends_with(word));
    if ends(&["password", "passwd", "passphrase", "pwd"]) {
        Some("password")
    } else if ends(&["secret", "credentials", "authorization"]) {
        Some("secret")
    } else if ends(&["token", "jwt"]) {
        Some("token")
    } else if (*last == "key" && !before.is_empty())
        || (*last == "pem" && before.last() == Some(&"key"))
        || ends(&["apikey", "accesskey", "privatekey", "secretkey"])
    {
        Some("key")
    } else {
        None
    }
}

/// A secret in one of the addresses of a text. Each begins with a scheme and ends at a blank, a quote, or a comma before the
/// next.
fn in_addresses(text: &str) -> Option<&'static str> {
    let marked = marked(text);
    let is_in_scheme = |c: char| c.is_ascii_alphanumeric();
    let starts: Vec<usize> =
        marked.match_indices("://").map(|(at, _)| marked[..at].trim_end_matches(is_in_scheme).len()).collect();
    starts.iter().enumerate().find_map(|(n, start)| {
        let end = starts.get(n + 1).copied().unwrap_or(marked.len());
        let address = marked.get(*start..end)?.split(['"', '\'', ' ', '\n']).next()?;
        in_address(address.trim_end_matches(','))
    })
}

/// Stands for a variable. A character that is nothing to anyone but us.
const VARIABLE: char = '\u{f8ff}';

/// The text with a mark in the place of each variable, so that it can be read like one without.
fn marked(text: &str) -> String {
    let mut marked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        marked.push_str(&rest[..at]);
        let is_literal = rest[..at].ends_with('$');
        rest = match rest[at..].find('}').filter(|_| !is_literal) {
            Some(end) => {
                marked.push(VARIABLE);
                &rest[at + end + 1..]
            }
            None => {
                marked.push_str("${");
                &rest[at + 2..]
            }
        };
    }
    marked + rest
}

/// Without a port that is a variable, which no reader takes for one.
fn without_port(text: &str) -> String {
    let mut text = text.to_owned();
    for end in ["/", ",", "?"] {
        text = text.replace(&format!(":{VARIABLE}{end}"), end);
    }
    text.strip_suffix(&format!(":{VARIABLE}")).map_or(text.clone(), str::to_owned)
}

/// Who connects: a password behind a `:`, or the token of a server that knows no other user; and parameters.
fn in_address(text: &str) -> Option<&'static str> {
    let is_written_out = |part: &str| !part.is_empty() && !part.contains(VARIABLE);
    let address = match Address::read(&without_port(text)) {
        Ok(address) => address,
        // A password with a `/` in it that was not written as %2F is taken for a port that is none.
        Err(AddressError::Host) if text.contains('@') => return Some("password"),
        Err(_) => return None,
    };
    let is_token = address.password().is_none() && ["nats", "tls"].contains(&address.scheme());
    if address.password().is_some_and(is_written_out) {
        return Some("password");
    }
    if is_token && address.user().is_some_and(is_written_out) {
        return Some("token");
    }
    let parameters = address.parameters();
    parameters.iter().filter(|(_, value)| is_written_out(value)).find_map(|(name, _)| secret_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Vec<String> {
        let found = secrets(text);
        assert!(!format!("{found:?}").contains("CANARY"), "{found:?}");
        found.into_iter().map(|one| one.evidence).collect()
    }

    #[test]
    fn a_password_in_the_file_is_found_by_its_line_and_not_shown() {
        let text = "[store]\nurl = \"postgres://u:CANARY@h/d\"\n[kafka]\n\"sasl.password\" = \"CANARY\"\n";
        assert_eq!(said(text), ["line 2 holds a password", "line 4 holds a password"]);
    }

    #[test]
    fn every_form_of_an_address_is_looked_into() {
        for (address, what) in [
            ("postgres://h/d?password=CANARY", "password"),
            ("postgres://h/d?user=u&sslpassword=CANARY", "password"),
            ("postgres://u:${P}@h/d?sslmode=require&password=CANARY", "password"),
            ("nats://CANARY@h/s", "token"),
            ("tls://CANARY@h:4222/s", "token"),
            ("nats://${T}@a:4222,nats://CANARY@b:4222", "token"),
            ("nats://u:CANARY@h/s", "password"),
            ("amqp://u:a/CANARY@h/q", "password"),
            ("amqp://u:$${CANARY}@h/q", "password"),
            ("http://h/p?api_key=CANARY", "key"),
        ] {
            assert_eq!(said(&format!("x = \"{address}\"\n")), [format!("line 1 holds a {what}")], "{address}");
        }
    }

    #[test]
    fn every_setting_that_is_called_like_a_secret_is_one() {
        for (name, what) in [
            ("\"ssl.keystore.password\"", "password"),
            ("\"ssl.key.password\"", "password"),
            ("ssl.key.password", "password"),
            ("\"sasl.oauthbearer.client.secret\"", "secret"),
            ("\"ssl.key.pem\"", "key"),
            ("\"ssl.keystore.key\"", "key"),
            ("access_key", "key"),
            ("Auth-Token", "token"),
            ("apiKey", "key"),
        ] {
            assert_eq!(said(&format!("[kafka]\n{name} = 'CANARY'\n")), [format!("line 2 holds a {what}")], "{name}");
        }
        assert_eq!(said("kafka = { a = \"b\", \"sasl.password\" = \"CANARY\" }"), ["line 1 holds a password"]);
        assert_eq!(said("[kafka]\n\"ssl.key.pem\" = \"\"\"\nCANARY\n\"\"\"\n"), ["line 2 holds a key"]);
    }

    #[test]
    fn what_comes_from_the_environment_or_is_none_is_not() {
        let text = "url = \"postgres://u:${PASSWORD}@h/d?password=${P}\"\n# amqp://a:b@h\nnats = \"nats://h:4222/s\"\n\
                    x = \"http://u@h\"\n\"sasl.password\" = \"${P}\"\nt = \"nats://${TOKEN}@h/s\"\n\
                    key = \"message-id\"\n\"ssl.key.location\" = \"/etc/key.pem\"\n\"ssl.certificate.pem\" = \"x\"\n\
                    \"sasl.username\" = \"app\"\npassword = \"\"\ny = \"nats://h:4222/s@x\"\n\
                    p = \"postgres://u:${P}@${HOST}:${PORT}/${DB}?port=${PORT}\"\nq = \"kafka://h:${A},h:${B}\"\n\
                    z = \"postgres://h/d?sslkey=/etc/k&application_name=a:b@c\"\n\
                    emit = [{ type = \"e\", topic = \"t\", key = \"{id}\", payload = { token = \"{token}\", secret = \"none\" } }]\n\
                    sql = \"update users set password = :password\"\n";
        assert_eq!(said(text), Vec::<String>::new());
    }
}
