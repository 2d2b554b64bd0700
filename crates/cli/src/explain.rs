//! `oncebox explain`: the page of an error.

use std::process::ExitCode;

use oncebox::Code;
use serde_json::json;

use crate::fault::fault;
use crate::ops::screen::{Screen, Tone};
use crate::pages::page;

/// The page of an error.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Its code: OB0102. Without one, all codes are listed.
    code: Option<String>,
    /// Answer with JSON.
    #[arg(long)]
    json: bool,
}

#[allow(clippy::print_stdout, reason = "this is what was asked for")]
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Some(asked) = &args.code else {
        if args.json {
            let codes: Vec<_> = Code::ALL.map(|code| json!({ "code": code.to_string(), "title": code.title() })).into();
            println!("{}", serde_json::Value::from(codes));
        } else {
            let screen = Screen::stdout();
            for code in Code::ALL {
                println!("{}  {}", screen.paint(Tone::Head, &code.to_string()), code.title());
            }
        }
        return Ok(ExitCode::SUCCESS);
    };
    let unknown = || {
        let says = format!("there is no code `{asked}`; `oncebox explain` lists them all");
        fault(Code::CommandLine, says)
    };
    let code = Code::from_name(asked).ok_or_else(unknown)?;
    if args.json {
        println!("{}", json!({ "code": code.to_string(), "title": code.title(), "page": page(code) }));
    } else {
        println!("{}", page(code).trim_end());
    }
    Ok(ExitCode::SUCCESS)
}
