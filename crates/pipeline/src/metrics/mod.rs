//! What a running pipeline tells of itself over HTTP: `/metrics` for Prometheus, `/healthz` and `/readyz`.
//!
//! ```text
//!  Overview (counters of this process, what waits in the store) ──▶ families ──▶ text ──▶ GET /metrics
//!                                                               └─▶ health ────────────▶ GET /readyz
//! ```
//!
//! A scrape touches no store and no broker: it tells what was seen a few seconds ago. Names, labels and what to alert on are
//! listed in `docs/metrics.md`.

mod backlog;
mod families;
mod health;
mod server;
mod text;

pub use health::Health;
pub(crate) use server::{Door, serve};
