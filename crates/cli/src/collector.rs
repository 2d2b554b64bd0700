//! Spans to a collector: in batches, from a queue that drops what it has no room for, on a thread of its own.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use anyhow::Context as _;
use oncebox::Code;
use oncebox_pipeline::file::{Endpoint, TracesSpec};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, SpanData, SpanExporter,
};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::Layer;
use tracing_subscriber::registry::Registry;

/// Spans that wait for the collector; more are dropped, and no consumer waits.
const QUEUE_MAX: usize = 8192;
/// Spans that are sent at once.
const BATCH_MAX: usize = 512;
/// How long they wait for each other.
const DELAY: Duration = Duration::from_secs(1);
/// How long the collector has for an answer, and the last spans at the end.
const ANSWER: Duration = Duration::from_secs(3);

/// Sends what is left when it ends.
#[derive(Debug)]
pub(crate) struct Traces(SdkTracerProvider);

impl Traces {
    /// A collector, and the layer that makes spans for it.
    pub(crate) fn to(spec: &TracesSpec, which: Which) -> anyhow::Result<(Self, impl Layer<Registry> + Send + Sync)> {
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_endpoint(spec.endpoint.url())
            .with_timeout(ANSWER)
            .with_headers(Default::default())
            .build()
            .with_context(|| format!("cannot send traces to {}", spec.endpoint))?;
        let exporter = Told { exporter, endpoint: spec.endpoint.clone(), is_away: AtomicBool::new(false) };
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE_MAX)
            .with_max_export_batch_size(BATCH_MAX)
            .with_scheduled_delay(DELAY)
            .build();
        let here = match which {
            Which::Some => Sampler::TraceIdRatioBased(spec.ratio),
            Which::All => Sampler::AlwaysOn,
        };
        let provider = SdkTracerProvider::builder()
            .with_span_processor(BatchSpanProcessor::builder(exporter).with_batch_config(batches).build())
            .with_sampler(Sampler::ParentBased(Box::new(here)))
            .with_resource(Resource::builder_empty().with_service_name(service_name()).build())
            .build();
        let layer = tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("oncebox"))
            // Where in our source a span was made, and on which thread, helps nobody.
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_target(false)
            .with_level(false)
            // Nothing but these spans: what else is said within one is for the log.
            .with_filter(Targets::new().with_target(oncebox::trace::TARGET, tracing::Level::DEBUG));
        Ok((Self(provider), layer))
    }

    /// Sends what is left, for as long as a collector has to answer.
    pub(crate) async fn end(self) {
        let Self(provider) = self;
        // What it could not send was said.
        let _ = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(ANSWER)).await;
    }
}

/// Which of the traces that begin here are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// As many as the file says.
    Some,
    /// All: someone asked for them.
    All,
}

/// `OTEL_SERVICE_NAME` is everyone's way to name a process.
fn service_name() -> String {
    std::env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "oncebox".to_owned())
}

/// An exporter that says once that its collector is away, and once that it is back.
#[derive(Debug)]
struct Told {
    exporter: opentelemetry_otlp::SpanExporter,
    endpoint: Endpoint,
    is_away: AtomicBool,
}

impl SpanExporter for Told {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let sent = self.exporter.export(batch).await;
        // The exporter's own words may hold what the collector answered.
        match (self.is_away.swap(sent.is_err(), SeqCst), sent.is_err()) {
            (false, true) => tracing::warn!(
                code = %Code::CollectorAway,
                "traces cannot be sent to {}; spans are dropped until it takes them, and messages go on",
                self.endpoint
            ),
            (true, false) => tracing::info!("traces are sent to {} again", self.endpoint),
            _ => {}
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
