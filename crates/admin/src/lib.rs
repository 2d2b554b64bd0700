//! What operators of Oncebox do: look at messages that are parked, and replay, edit, annotate, export or discard them.
//!
//! [`Admin`] is the one set of operations behind the command line and the console: a button never does what a command
//! can't. Which messages are meant is said in one [language](filter), and each operation acts on everything that
//! matches, not on a page. What an operator does is in the audit log, in the same transaction.
//!
//! ```
//! # async fn example() -> Result<(), oncebox_admin::Error> {
//! use oncebox_admin::{Actor, Admin, DriveOptions, Filter, ReplayOptions};
//! use oncebox_core::memory::MemoryStore;
//!
//! let admin = Admin::new(MemoryStore::new());
//! let meant = admin.meant("invoices", Filter::parse("class = permanent and age > 2h")?).await?;
//! let plan = admin.plan(&meant, false).await?;
//! println!("{} of {} will be applied", plan.will_run(), meant.messages);
//!
//! let ada = Actor::new("ada", "the bank's certificate is valid again")?;
//! let replay = admin.start_replay(&meant, &ReplayOptions::default(), &ada).await?;
//! let end = admin.drive(replay.id, &ada, &DriveOptions::default()).await?;
//! println!("{} done, {} failed", end.done, end.failed);
//! # Ok(())
//! # }
//! ```
//!
//! # What it does not do
//!
//! It runs no handler. A replay makes messages due; the consumer's own runner applies them, through the same claim as
//! any other delivery. A [dry run](Admin::dry_run) needs someone who has the handler: a consumer's `dry_runner`.
//!
//! # Reading order
//!
//! [`filter`], then `meant` (what an operation acts on), `forecast` and `plan`, `replay` and `drive`.

mod actor;
mod admin;
mod checkpoint;
mod discard;
mod drive;
mod dry_run;
mod edit;
mod error;
mod export;
pub mod filter;
mod forecast;
mod groups;
mod journal;
mod life;
mod meant;
mod note;
mod outbox;
mod pace;
mod plan;
mod replay;
mod retention;
mod standings;
mod status;
mod view;

pub use actor::Actor;
pub use admin::{Admin, Identify, Readable};
pub use checkpoint::Checkpoint;
pub use discard::Acted;
pub use drive::DriveOptions;
pub use dry_run::{DryRunReport, DryRunResult, DryRunStep, FailedFor};
pub use edit::{AfterEdit, Edited};
pub use error::Error;
pub use filter::{Filter, FilterError};
pub use forecast::Forecast;
pub use groups::Group;
pub use journal::AuditView;
pub use life::{ArchivedView, Deeds, DeliveryView, Life, LifeAt, QueuedView, RecordView, Sought};
pub use meant::{Matching, Meant};
pub use outbox::{OutboxListing, OutboxView, WhichRows};
pub use plan::{Plan, Planned};
pub use replay::{ReplayOptions, ReplayView};
pub use retention::{Removal, RetentionDone, RetentionPlan};
pub use status::{ConsumerStatus, LaneStatus, ProcessStatus, RelayStatus, Status};
pub use view::ParkedView;
