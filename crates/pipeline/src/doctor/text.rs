//! Secrets that stand in the file itself.

use super::finding::{Finding, Severity};

/// Settings of clients whose values are secrets.
const SECRET_FIELDS: [&str; 3] = ["sasl.password", "ssl.key.password", "ssl.key.pem"];

/// Lines with a password that does not come from the environment.
pub(super) fn secrets(text: &str) -> Vec<Finding> {
    text.lines().enumerate().filter(|(_, line)| has_secret(line)).map(|(at, _)| finding(at + 1)).collect()
}

fn finding(line: usize) -> Finding {
    let evidence = format!("line {line} holds a password");
    let fix = "write ${NAME} in its place and set NAME in the environment; change the password if the file was shared";
    Finding::new("file.secret", Severity::Warning, "file", evidence, fix)
}

fn has_secret(line: &str) -> bool {
    let line = line.trim_start();
    if line.starts_with('#') {
        return false;
    }
    let literal = |value: &str| !value.is_empty() && !value.contains("${");
    let in_a_field = SECRET_FIELDS.iter().any(|field| {
        let name = line.split('=').next().unwrap_or_default();
        name.contains(field) && line.split_once('=').is_some_and(|(_, value)| literal(value.trim().trim_matches('"')))
    });
    in_a_field || line.split("://").skip(1).any(|rest| password(rest).is_some_and(literal))
}

/// What stands between `:` and `@` before the host.
fn password(after_scheme: &str) -> Option<&str> {
    let end = after_scheme.find(['"', '\'', ' ']).unwrap_or(after_scheme.len());
    let (user, _) = after_scheme[..end].rsplit_once('@')?;
    Some(user.split_once(':')?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_the_file_is_found_by_its_line_and_not_shown() {
        let text = "[store]\nurl = \"postgres://u:CANARY@h/d\"\n[kafka]\n\"sasl.password\" = \"CANARY\"\n";
        let found = secrets(text);
        assert_eq!(
            found.iter().map(|one| one.evidence.as_str()).collect::<Vec<_>>(),
            ["line 2 holds a password", "line 4 holds a password"]
        );
        assert!(!format!("{found:?}").contains("CANARY"));
    }

    #[test]
    fn what_comes_from_the_environment_or_is_none_is_not() {
        let text = "url = \"postgres://u:${PASSWORD}@h/d\"\n# amqp://a:b@h\nurl = \"nats://h:4222/s\"\nx = \"http://u@h\"\n\
                    \"sasl.password\" = \"${P}\"\n";
        assert_eq!(secrets(text), []);
    }
}
