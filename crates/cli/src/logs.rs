//! What the command says to stderr while it runs, and the spans that it sends elsewhere.

use oncebox_pipeline::file::Pipeline;
use tracing_subscriber::filter::{EnvFilter, FilterExt as _, FilterFn, filter_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::registry::{LookupSpan, Registry};
use tracing_subscriber::util::SubscriberInitExt as _;

#[cfg(feature = "otlp")]
use crate::collector::{Traces, Which};

/// How to log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogForm {
    /// For people.
    Text,
    /// For machines.
    Json,
}

impl LogForm {
    /// Runs what is needed to know where spans go, with logs.
    pub(crate) fn around<T>(self, run: impl FnOnce() -> T) -> T {
        tracing::subscriber::with_default(Registry::default().with(self.layer()), run)
    }

    fn layer<S>(self) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: tracing::Subscriber + for<'s> LookupSpan<'s>,
    {
        let chosen =
            EnvFilter::try_from_env("ONCEBOX_LOG").unwrap_or_else(|_| EnvFilter::new("info,lapin=off,async_nats=warn"));
        let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
        let filter = chosen.and(fit_to_log());
        match self {
            Self::Text => {
                let colour = std::io::IsTerminal::is_terminal(&std::io::stderr());
                log.with_ansi(colour).with_filter(filter).boxed()
            }
            Self::Json => log.json().with_filter(filter).boxed(),
        }
    }
}

/// Logs, and spans if the file says where to; until it ends.
#[derive(Debug)]
pub(crate) struct Telling {
    #[cfg(feature = "otlp")]
    traces: Option<Traces>,
}

impl Telling {
    /// Logs from here on, and sends as many spans as the file says.
    pub(crate) fn start(form: LogForm, pipeline: &Pipeline) -> anyhow::Result<Self> {
        #[cfg(feature = "otlp")]
        if let Some(spec) = &pipeline.traces {
            let (traces, spans) = Traces::to(spec, Which::Some)?;
            Registry::default().with(spans).with(form.layer()).init();
            tracing::info!("traces go to {}, {} of those that begin here", spec.endpoint, spec.ratio);
            return Ok(Self { traces: Some(traces) });
        }
        let _ = pipeline;
        Registry::default().with(form.layer()).init();
        Ok(Self {
            #[cfg(feature = "otlp")]
            traces: None,
        })
    }

    /// Sends every span: each was asked for. Logs what goes wrong with that.
    pub(crate) fn start_all(pipeline: &Pipeline) -> anyhow::Result<Self> {
        #[cfg(feature = "otlp")]
        if let Some(spec) = &pipeline.traces {
            let (traces, spans) = Traces::to(spec, Which::All)?;
            Registry::default().with(spans).with(LogForm::Text.layer()).init();
            return Ok(Self { traces: Some(traces) });
        }
        let _ = pipeline;
        Ok(Self {
            #[cfg(feature = "otlp")]
            traces: None,
        })
    }

    /// Sends what is left.
    pub(crate) async fn end(self) {
        #[cfg(feature = "otlp")]
        if let Some(traces) = self.traces {
            traces.end().await;
        }
    }
}

/// Clients of brokers and databases say below `info` what goes over the wire: passwords, payloads. Whatever is asked for,
/// only our own words come from there. A server's notices are the user's SQL speaking, and may quote anything.
fn fit_to_log() -> FilterFn {
    filter_fn(|about| {
        let ours = about.target().starts_with("oncebox");
        let is_span = about.target() == oncebox::trace::TARGET;
        let is_notice = about.target().starts_with("sqlx::postgres::notice");
        !is_span && !is_notice && (ours || *about.level() <= tracing::Level::INFO)
    })
}
