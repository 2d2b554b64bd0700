//! `${NAME}` in the file.

use oncebox::address::encode;

/// Where variables come from.
pub trait Environment {
    /// The value of a variable.
    fn get(&self, name: &str) -> Option<String>;
}

/// The environment of this process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessEnvironment;

impl Environment for ProcessEnvironment {
    fn get(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}

impl<F: Fn(&str) -> Option<String>> Environment for F {
    fn get(&self, name: &str) -> Option<String> {
        self(name)
    }
}

impl dyn Environment + '_ {
    /// Replaces each `${NAME}`; `$${` is a literal `${`. A complaint names the variable and never a value.
    pub(super) fn expand(&self, text: &str) -> Result<String, String> {
        self.expand_each(text, |expanded, _, value, _| {
            expanded.push_str(value);
            Ok(())
        })
    }

    /// The same in an address: a variable that begins it is taken as it is, because it holds an address or its scheme; any
    /// other is the part where it stands, whatever its characters mean in an address.
    pub(super) fn expand_address(&self, text: &str) -> Result<String, String> {
        self.expand_each(text, |expanded, name, value, rest| {
            match Part::at(expanded, rest) {
                Part::Verbatim => expanded.push_str(value),
                Part::Host if is_host(value) => expanded.push_str(value),
                // The folder of a socket is written like this where a host stands.
                Part::Host if value.starts_with('/') => expanded.push_str(&encode(value)),
                Part::Host => {
                    return Err(format!(
                        "`{name}` stands for the host and holds what no host and port has; give user, password and path \
                         variables of their own, or put the whole address into one"
                    ));
                }
                Part::Encoded => expanded.push_str(&encode(value)),
            }
            Ok(())
        })
    }

    /// What is wrong with the text that `text` expands to, without the values of its variables: they may be secrets.
    pub(super) fn conceal(&self, text: &str, reason: String) -> String {
        let mut values = Vec::new();
        let _ = self.expand_each(text, |_, _, value, _| {
            values.push(value.to_owned());
            Ok(())
        });
        let is_told = |value: &String| !value.is_empty() && (reason.contains(value) || reason.contains(&encode(value)));
        if values.iter().any(is_told) {
            return format!("`{text}` means nothing here with its variables in place");
        }
        reason
    }

    /// `put` gets what is expanded so far, a variable's name and value, and what follows it.
    fn expand_each(
        &self,
        text: &str,
        mut put: impl FnMut(&mut String, &str, &str, &str) -> Result<(), String>,
    ) -> Result<String, String> {
        let mut expanded = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let (before, hole) = rest.split_at(at);
            if let Some(before) = before.strip_suffix('$') {
                expanded.push_str(before);
                expanded.push_str("${");
                rest = &hole[2..];
                continue;
            }
            expanded.push_str(before);
            let Some(end) = hole.find('}') else { return Err("a `${` is never closed".to_owned()) };
            let name = &hole[2..end];
            let value = self.get(name).ok_or_else(|| format!("the environment has no `{name}`; set it"))?;
            rest = &hole[end + 1..];
            put(&mut expanded, name, &value, rest)?;
        }
        expanded.push_str(rest);
        Ok(expanded)
    }
}

/// What a variable stands for in an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The beginning of an address, or a part of what is none: the file of SQLite, the name of a queue.
    Verbatim,
    Host,
    /// A user, a password, a name in the path, the value of a parameter.
    Encoded,
}

impl Part {
    fn at(expanded: &str, rest: &str) -> Self {
        let Some((scheme, so_far)) = expanded.split_once("://") else { return Self::Verbatim };
        if scheme.eq_ignore_ascii_case("sqlite") {
            return Self::Verbatim;
        }
        let is_behind_host = so_far.contains(['/', '?', '#']);
        if is_behind_host || before_path(rest).contains('@') { Self::Encoded } else { Self::Host }
    }
}

/// What follows in the same part of an address as the hosts. Names of variables are no part of it.
fn before_path(mut rest: &str) -> String {
    let mut authority = String::new();
    while let Some(at) = rest.find(['/', '?', '#', '$']) {
        authority.push_str(&rest[..at]);
        let name = rest[at..].strip_prefix("${").and_then(|hole| hole.split_once('}'));
        match name {
            Some((_, after)) => rest = after,
            None if rest[at..].starts_with('$') => rest = &rest[at + 1..],
            None => return authority,
        }
    }
    authority + rest
}

/// Hosts, ports and commas.
fn is_host(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[],".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_expanded_once() {
        let environment = |name: &str| (name == "PASSWORD").then(|| "s${x}".to_owned());
        let environment: &dyn Environment = &environment;
        assert_eq!(environment.expand("a${PASSWORD}b"), Ok("as${x}b".to_owned()));
        assert_eq!(environment.expand("$${PASSWORD} costs 5$"), Ok("${PASSWORD} costs 5$".to_owned()));
        assert!(environment.expand("${HOME}").unwrap_err().contains("`HOME`"));
        assert!(environment.expand("${PASSWORD").is_err());
        let concealed = environment.conceal("a${PASSWORD}", "`as${x}` is nothing".to_owned());
        assert_eq!(concealed, "`a${PASSWORD}` means nothing here with its variables in place");
        assert_eq!(environment.conceal("a", "`a` is nothing".to_owned()), "`a` is nothing");
    }

    fn expanded(text: &str, value: &str) -> Result<String, String> {
        let environment = |name: &str| match name {
            "X" => Some(value.to_owned()),
            "USER" => Some("a@b".to_owned()),
            _ => None,
        };
        let environment: &dyn Environment = &environment;
        environment.expand_address(text)
    }

    #[test]
    fn a_variable_in_an_address_is_the_part_where_it_stands() {
        for (text, value, expected) in [
            ("${X}", "postgres://u:a%40b@h/d?x=1", "postgres://u:a%40b@h/d?x=1"),
            ("${X}/orders", "amqp://u:p@h/v", "amqp://u:p@h/v/orders"),
            ("${X}://h/d", "postgres", "postgres://h/d"),
            ("postgres://u:${X}@h/d", "a@b/c:d?e#f%", "postgres://u:a%40b%2Fc%3Ad%3Fe%23f%25@h/d"),
            ("postgres://${X}:p@h/d", "a@b", "postgres://a%40b:p@h/d"),
            ("postgres://u:x@${X}@h/d", "y", "postgres://u:x@y@h/d"),
            ("postgres://${USER}:${X}@h/d", "}/{", "postgres://a%40b:%7D%2F%7B@h/d"),
            ("postgres://${X}:${USER}@h/d", "@", "postgres://%40:a%40b@h/d"),
            ("nats://${X}@a,b/s", "to:ken", "nats://to%3Aken@a,b/s"),
            ("kafka://${X}/t", "a:9092,b,[::1]:3", "kafka://a:9092,b,[::1]:3/t"),
            ("postgres://u@${X}/d", "/run/postgresql", "postgres://u@%2Frun%2Fpostgresql/d"),
            ("amqp://h/${X}/q", "/", "amqp://h/%2F/q"),
            ("amqp://h/v/${X}", "a@b?", "amqp://h/v/a%40b%3F"),
            ("postgres://h/d?password=${X}", "a&b=c+d", "postgres://h/d?password=a%26b%3Dc%2Bd"),
            ("sqlite://${X}/shop.db", "/var/lib/a b", "sqlite:///var/lib/a b/shop.db"),
            ("queue:${X}", "a/b", "queue:a/b"),
            ("amqp://u:$${X}@h/q", "", "amqp://u:${X}@h/q"),
        ] {
            assert_eq!(expanded(text, value).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_host_is_not_looked_up_as_one() {
        for value in ["u:CANARY@h", "h/CANARY", "CANARY h", "h?CANARY", "CANAR\u{e9}Y", "100%CANARY"] {
            let complaint = expanded("amqp://${X}/v/q", value).unwrap_err();
            assert!(complaint.contains("`X`") && !complaint.contains("CANAR"), "{complaint}");
        }
        assert_eq!(expanded("amqp://u:${X}", "p@h"), expanded("amqp://${X}", "p@h"), "no host follows");
    }
}
