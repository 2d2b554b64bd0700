//! `oncebox parked`: messages that are set aside.

mod acts;
mod dry_run;
mod looks;

use std::path::PathBuf;
use std::process::ExitCode;

use oncebox::Fingerprinter;
use oncebox::quarantine::QuarantineStore;
use oncebox_admin::{Admin, Filter, Matching, Meant};
use oncebox_pipeline::file::Pipeline;

use super::{At, By, To, on_store};

/// Messages that are set aside.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    at: At,
    #[command(subcommand)]
    verb: Verb,
}

/// Which messages: all that match, not a page of them.
#[derive(Clone, Debug, clap::Args)]
struct Which {
    /// The consumer.
    consumer: String,
    /// Which of its messages: `class = permanent and type = payment.* and age > 2h`.
    #[arg(default_value = "all")]
    filter: String,
}

/// The same for what can't be undone: nobody means all by saying nothing.
#[derive(Clone, Debug, clap::Args)]
struct Chosen {
    /// The consumer.
    consumer: String,
    /// Which of its messages: `class = permanent and type = payment.* and age > 2h`, or `all`.
    filter: String,
}

impl From<Chosen> for Which {
    fn from(Chosen { consumer, filter }: Chosen) -> Self {
        Self { consumer, filter }
    }
}

impl Which {
    /// For those who look: nothing is counted first.
    async fn matching<S: QuarantineStore>(&self, admin: &Admin<S>) -> anyhow::Result<Matching> {
        Ok(admin.matching(&self.consumer, Filter::parse(&self.filter).map_err(oncebox_admin::Error::from)?).await?)
    }

    async fn meant<S: QuarantineStore>(&self, admin: &Admin<S>) -> anyhow::Result<Meant> {
        Ok(admin.meant(&self.consumer, Filter::parse(&self.filter).map_err(oncebox_admin::Error::from)?).await?)
    }
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Count them by cause, the largest group first.
    Groups(Which),
    /// List them, oldest first.
    List {
        #[command(flatten)]
        which: Which,
        /// After this row.
        #[arg(long, default_value_t = 0)]
        after: i64,
        /// So many at most.
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show one.
    Show {
        /// Its number.
        row: i64,
        /// With its headers and its payload, which may hold secrets.
        #[arg(long)]
        payload: bool,
    },
    /// Say what a replay would do with each.
    Plan {
        #[command(flatten)]
        which: Which,
        /// As with `replay --force`.
        #[arg(long)]
        force: bool,
        /// Tell of so many messages one by one; with --dry-run, run so many.
        #[arg(long, default_value_t = 50)]
        limit: usize,
        /// Run the statements of the file over each, and roll back what they wrote.
        #[arg(long)]
        dry_run: bool,
    },
    /// Make them due again, through the same claim as any other delivery.
    Replay {
        #[command(flatten)]
        which: Chosen,
        #[command(flatten)]
        by: By,
        #[command(flatten)]
        how: acts::How,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
    /// Replace the payload of one and replay it; the old one is superseded.
    Edit {
        /// Its number.
        row: i64,
        /// A file with the new payload.
        payload: PathBuf,
        #[command(flatten)]
        by: By,
        /// Leave it set aside.
        #[arg(long)]
        keep: bool,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
    /// Give them up, for good.
    Discard {
        #[command(flatten)]
        which: Chosen,
        #[command(flatten)]
        by: By,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
    /// Write a note on them.
    Note {
        /// The consumer.
        consumer: String,
        /// Which of its messages.
        filter: String,
        /// The note; absent, it is removed.
        #[arg(long)]
        note: Option<String>,
        #[command(flatten)]
        by: By,
    },
    /// Write them out as JSON Lines, payloads included.
    Export(Which),
}

impl Verb {
    /// Whose messages it is about, if it says so.
    fn consumer(&self) -> Option<&str> {
        match self {
            Self::Groups(which) | Self::Export(which) => Some(&which.consumer),
            Self::List { which, .. } | Self::Plan { which, .. } => Some(&which.consumer),
            Self::Replay { which, .. } | Self::Discard { which, .. } => Some(&which.consumer),
            Self::Note { consumer, .. } => Some(consumer),
            Self::Show { .. } | Self::Edit { .. } => None,
        }
    }
}

/// With what the file says of a consumer: how it makes keys, what it can read, how it counts versions.
pub(super) fn as_consumer<S: QuarantineStore>(
    mut admin: Admin<S>,
    pipeline: Option<&Pipeline>,
    consumer: Option<&str>,
) -> Admin<S> {
    let specs = pipeline.iter().flat_map(|pipeline| &pipeline.consumers);
    let Some(spec) = specs.into_iter().find(|spec| Some(spec.name.as_str()) == consumer) else { return admin };
    let (key, fingerprinter) = (spec.key.clone(), Fingerprinter::new(spec.content()));
    admin = admin.identified_by(move |message| Ok((key.key(message, None)?, fingerprinter.fingerprint(message))));
    if let Some(versioned) = spec.versioned().and_then(Result::ok) {
        admin = admin.versioned_by(versioned);
    }
    let spec = spec.clone();
    admin.readable_by(move |message| spec.can_read(message))
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let pipeline = args.at.pipeline()?;
    let to = match args.verb {
        Verb::Groups(_) | Verb::List { .. } | Verb::Show { .. } | Verb::Export(_) => To::Look,
        Verb::Plan { dry_run, .. } if !dry_run => To::Look,
        // A dry run writes, before it rolls back.
        _ => To::Act,
    };
    let store = args.at.open(to).await?;
    on_store!(store, |store| act(Admin::new(store), &args.at, pipeline.as_ref(), args.verb).await)
}

async fn act<S: QuarantineStore>(
    admin: Admin<S>,
    at: &At,
    pipeline: Option<&Pipeline>,
    verb: Verb,
) -> anyhow::Result<ExitCode> {
    let admin = as_consumer(admin, pipeline, verb.consumer());
    match verb {
        Verb::Groups(which) => looks::groups(&admin, at, &which).await?,
        Verb::List { which, after, limit } => looks::list(&admin, at, &which, after, limit).await?,
        Verb::Show { row, payload } => looks::show(&admin, at, row, payload).await?,
        Verb::Plan { which, force, limit, dry_run: true } => {
            dry_run::plan(&admin, at, pipeline, &which, force, limit).await?;
        }
        Verb::Plan { which, force, limit, dry_run: false } => looks::plan(&admin, at, &which, force, limit).await?,
        Verb::Export(which) => looks::export(&admin, &which).await?,
        Verb::Replay { which, by, how, yes } => return acts::replay(&admin, at, &which.into(), &by, &how, yes).await,
        Verb::Edit { row, payload, by, keep, yes } => {
            let edit = acts::Edit { row, payload, keep };
            acts::edit(admin, at, pipeline, &edit, &by, yes).await?;
        }
        Verb::Discard { which, by, yes } => acts::discard(&admin, at, &which.into(), &by, yes).await?,
        Verb::Note { consumer, filter, note, by } => {
            acts::note(&admin, at, &Which { consumer, filter }, note.as_deref(), &by).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
