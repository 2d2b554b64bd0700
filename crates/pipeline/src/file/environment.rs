//! `${NAME}` in the file.

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
        self.expand_noting(text, &mut Vec::new())
    }

    /// What is wrong with the text that `text` expands to, without the values of its variables: they may be secrets.
    pub(super) fn conceal(&self, text: &str, reason: String) -> String {
        let mut values = Vec::new();
        let _ = self.expand_noting(text, &mut values);
        if values.iter().any(|value| !value.is_empty() && reason.contains(value.as_str())) {
            return format!("`{text}` means nothing here with its variables in place");
        }
        reason
    }

    fn expand_noting(&self, text: &str, values: &mut Vec<String>) -> Result<String, String> {
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
            expanded.push_str(&value);
            values.push(value);
            rest = &hole[end + 1..];
        }
        expanded.push_str(rest);
        Ok(expanded)
    }
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
}
