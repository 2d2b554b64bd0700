//! `oncebox init`: a file to begin with, which runs as it is.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use oncebox::Code;

use crate::fault::fault;

const FILES: [(&str, &str); 2] =
    [("oncebox.toml", include_str!("starter/oncebox.toml")), ("schema.sql", include_str!("starter/schema.sql"))];

/// What to write where.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder.
    #[arg(default_value = ".")]
    folder: PathBuf,
}

#[allow(clippy::print_stderr, reason = "this is where the command talks")]
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some((name, _)) = FILES.iter().find(|(name, _)| args.folder.join(name).exists()) {
        let path = args.folder.join(name);
        return Err(refused(&path, "it is there already; move it away first"));
    }
    std::fs::create_dir_all(&args.folder).map_err(|error| refused(&args.folder, error))?;
    for (name, text) in FILES {
        write_new(&args.folder.join(name), text)?;
        eprintln!("wrote {}", args.folder.join(name).display());
    }
    eprintln!("\nnext:\n  oncebox run\n  oncebox send --repeat 1000 --duplicate-ratio 0.5    # in another terminal");
    Ok(ExitCode::SUCCESS)
}

fn write_new(path: &Path, text: &str) -> anyhow::Result<()> {
    let file = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| refused(path, error))
}

fn refused(path: &Path, why: impl std::fmt::Display) -> anyhow::Error {
    fault(Code::FileUnusable, format!("cannot write {}: {why}", path.display()))
}
