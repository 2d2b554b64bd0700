//! `oncebox doctor`: everything that a file names, examined.

use std::path::PathBuf;
use std::process::ExitCode;

use oncebox::{Code, Guarantee};
use oncebox_pipeline::doctor::{Finding, Report, examine};
use oncebox_pipeline::file::{Pipeline, ProcessEnvironment};
use serde_json::json;

use crate::fault::fault;

/// Examine everything that a file names, and say what to mend. Exits with 1 if something must be.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file.
    #[arg(long, short, default_value = "oncebox.toml")]
    file: PathBuf,
    /// Exit with 1 unless every consumer can promise this.
    #[arg(long, value_enum)]
    require: Option<Required>,
    /// Answer with JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Required {
    /// Once, whoever sends or delivers it again.
    EffectivelyOnce,
    /// Once, whatever the broker delivers again.
    OncePerSending,
    /// Once or more often.
    AtLeastOnce,
}

impl Required {
    fn guarantee(self) -> Guarantee {
        match self {
            Self::EffectivelyOnce => Guarantee::EffectivelyOnce,
            Self::OncePerSending => Guarantee::OncePerSending,
            Self::AtLeastOnce => Guarantee::AtLeastOnce,
        }
    }
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let pipeline = Pipeline::open(&args.file, &ProcessEnvironment)?;
    let unread = |error| fault(Code::FileUnusable, format!("cannot read {}: {error}", args.file.display()));
    let text = std::fs::read_to_string(&args.file).map_err(unread)?;
    let report = examine(&pipeline, &text).await;
    let required = args.require.map(Required::guarantee);
    let unasked: Vec<&str> = pipeline
        .consumers
        .iter()
        .map(|spec| spec.name.as_str())
        .filter(|name| !report.promises.iter().any(|promised| promised.consumer == *name))
        .collect();
    let weak = required.is_some_and(|required| report.weaker_than(required).next().is_some() || !unasked.is_empty());
    let answer = if args.json {
        // What each consumer could promise by itself is not given by a file that does not run, or loses what it promises.
        json(&report, required, !weak && !report.has_errors())?
    } else {
        super::lines::broken(&told(&report, required, &unasked))
    };
    super::print(&answer)?;
    if weak || report.has_errors() {
        return Err(fault(Code::DoctorFound, "something must be mended; the report says what, and how"));
    }
    Ok(ExitCode::SUCCESS)
}

fn json(report: &Report, required: Option<Guarantee>, given: bool) -> anyhow::Result<String> {
    let finding = |one: &Finding| {
        json!({ "check": one.check, "severity": one.severity.name(), "about": one.about, "evidence": one.evidence,
                "fix": one.fix })
    };
    let promise = |one: &oncebox_pipeline::doctor::Promised| json!({ "consumer": one.consumer, "guarantee": one.guarantee.to_string(), "because": one.because });
    let findings: Vec<serde_json::Value> = report.findings.iter().map(finding).collect();
    let promises: Vec<serde_json::Value> = report.promises.iter().map(promise).collect();
    let required = required.map(|required| json!({ "guarantee": required.to_string(), "given": given }));
    Ok(serde_json::to_string(&json!({ "findings": findings, "promises": promises, "required": required }))?)
}

fn told(report: &Report, required: Option<Guarantee>, unasked: &[&str]) -> String {
    let mut text = String::new();
    for one in &report.findings {
        text += &format!("{}: {} ({})\n  {}\n  fix: {}\n", one.severity, one.about, one.check, one.evidence, one.fix);
    }
    for one in &report.promises {
        text += &format!("consumer {} handles each message {}\n", one.consumer, one.guarantee);
    }
    if report.findings.is_empty() {
        text += "nothing was found\n";
    }
    let Some(required) = required else { return text };
    for one in report.weaker_than(required) {
        let because = one.because.as_deref().unwrap_or_default();
        text += &format!("consumer {} can't promise {required}; its weakest link: {because}\n", one.consumer);
    }
    if report.has_errors() {
        text += &format!("this file can't promise {required} before the errors above are mended\n");
    }
    for name in unasked {
        text += &format!("nobody knows what consumer {name} can promise before the errors above are mended\n");
    }
    text
}
