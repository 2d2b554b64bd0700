//! The text that Prometheus reads: its exposition format, version 0.0.4.

use std::fmt::Write as _;

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The text, written family by family.
#[derive(Debug, Default)]
pub(super) struct Text(String);

/// One family, as it is written.
pub(super) struct Family<'t> {
    text: &'t mut String,
    name: &'static str,
}

impl Text {
    /// Begins a family. It is there even while it has no sample, so that whoever looks for its name finds it.
    pub(super) fn family(&mut self, name: &'static str, kind: Kind, help: &str) -> Family<'_> {
        // Writing into a String does not fail.
        let _ = writeln!(self.0, "# HELP {name} {}", help.replace('\\', "\\\\").replace('\n', "\\n"));
        let _ = writeln!(self.0, "# TYPE {name} {}", kind.name());
        Family { text: &mut self.0, name }
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }
}

impl Family<'_> {
    /// One sample.
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: impl Into<Number>) {
        self.suffixed("", labels, value.into());
    }

    /// A histogram: the upper end and the count of each bucket, the count of all, and their sum.
    pub(super) fn histogram(&mut self, labels: &[(&str, &str)], buckets: &[(f64, u64)], count: u64, sum: f64) {
        for (bound, below) in buckets {
            let bound = bound.to_string();
            let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            self.suffixed("_bucket", &labels, (*below).into());
        }
        let labels_of_all: Vec<(&str, &str)> = labels.iter().copied().chain([("le", "+Inf")]).collect();
        self.suffixed("_bucket", &labels_of_all, count.into());
        self.suffixed("_sum", labels, sum.into());
        self.suffixed("_count", labels, count.into());
    }

    fn suffixed(&mut self, suffix: &str, labels: &[(&str, &str)], value: Number) {
        let _ = write!(self.text, "{}{suffix}", self.name);
        for (at, (name, value)) in labels.iter().enumerate() {
            let begin = if at == 0 { '{' } else { ',' };
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.text, "{begin}{name}=\"{value}\"");
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{end} {}", value.0);
    }
}

/// A value as it is written.
pub(super) struct Number(String);

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self(value.to_string())
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self(value.to_string())
    }
}

impl From<bool> for Number {
    fn from(value: bool) -> Self {
        Self(u8::from(value).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_labels_stay_one_label() {
        let mut text = Text::default();
        let mut family = text.family("oncebox_x_total", Kind::Counter, "Help.");
        family.sample(&[("type", "a\"} 1\nb\\")], 3_u64);
        family.sample(&[], true);
        let expected = "# HELP oncebox_x_total Help.\n# TYPE oncebox_x_total counter\n\
                        oncebox_x_total{type=\"a\\\"} 1\\nb\\\\\"} 3\noncebox_x_total 1\n";
        assert_eq!(text.into_string(), expected);
    }

    #[test]
    fn a_histogram_ends_with_everything() {
        let mut text = Text::default();
        text.family("h", Kind::Histogram, "Help.").histogram(&[("c", "x")], &[(0.5, 1), (1.0, 2)], 3, 7.5);
        let expected = "# HELP h Help.\n# TYPE h histogram\nh_bucket{c=\"x\",le=\"0.5\"} 1\nh_bucket{c=\"x\",le=\"1\"} 2\n\
                        h_bucket{c=\"x\",le=\"+Inf\"} 3\nh_sum{c=\"x\"} 7.5\nh_count{c=\"x\"} 3\n";
        assert_eq!(text.into_string(), expected);
    }
}
