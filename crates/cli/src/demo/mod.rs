//! `oncebox demo`: real worker processes, killed with SIGKILL at random crash points while messages, duplicates and
//! reordering pass through; then an independent count of the effects.
//!
//! ```text
//!  feed ─▶ queue in the store ─▶ workers (processes) ─▶ business table ─▶ verdict
//!                                   ▲
//!                        fleet: starts, kills, starts again
//! ```

mod feed;
mod fleet;
mod picture;
mod shop;
mod verdict;
pub(crate) mod worker;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use tokio::time::Instant;

use feed::Feed;
use fleet::Fleet;
use picture::Picture;
use shop::Shop;
use verdict::Verdict;

/// Kill workers while messages pass, then count the effects.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// How many messages to send. Each is delivered several times.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    messages: u32,
    /// Repeats a run's messages, duplicates and crash points; the timing stays the machine's.
    #[arg(long)]
    seed: Option<u64>,
    /// Where to run it: `sqlite:PATH` or a PostgreSQL URL. By default a SQLite file in a temporary folder.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// How many worker processes run at a time.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=32))]
    workers: u16,
    /// Print the verdict as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Workers are left alone after this long, so that the run ends.
const KILL_FOR: Duration = Duration::from_secs(35);

/// After this long the verdict is given on what is there.
const GIVE_UP: Duration = Duration::from_secs(180);

/// How often the picture is drawn and the table looked at.
const FRAME: Duration = Duration::from_millis(150);

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(0..1_000_000));
    let shop = Shop::open(args.store.as_deref(), seed).await?;
    let feed = Feed::new(args.messages, seed);
    let mut picture = Picture::new(&args, &shop, seed);
    let ended = watch(&args, seed, &shop, &feed, &mut picture).await;
    picture.end();
    let tally = ended?;
    let verdict = Verdict::count(&shop, &feed, tally).await.context("cannot count the effects")?;
    shop.close().await;
    verdict.print(args.json)?;
    Ok(if verdict.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs until the queue is empty and everything sent, or it takes too long.
async fn watch(
    args: &Args,
    seed: u64,
    shop: &Shop,
    feed: &Feed,
    picture: &mut Picture,
) -> anyhow::Result<fleet::Tally> {
    let started = Instant::now();
    let mut fleet = Fleet::start(shop, args.workers, seed)?;
    let mut sending = std::pin::pin!(feed.send(shop));
    let mut sent = false;
    let mut frame = tokio::time::interval(FRAME);
    loop {
        tokio::select! {
            result = &mut sending, if !sent => {
                result.context("cannot send the messages")?;
                sent = true;
            }
            event = fleet.next_event() => fleet.react(event?, started.elapsed() < KILL_FOR)?,
            _ = frame.tick() => {
                let state = shop.state().await.context("cannot read the business table")?;
                picture.draw(fleet.tally(), state.effects, started.elapsed());
                if sent && state.queued == 0 || started.elapsed() > GIVE_UP {
                    break;
                }
            }
            _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
        }
    }
    fleet.finish().await
}
