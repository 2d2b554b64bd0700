//! `[metrics]`: where this process tells what it does.

use std::net::SocketAddr;
use std::time::Duration;

use super::table::Field;

/// Where metrics and health are served.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MetricsSpec {
    /// The address.
    pub listen: SocketAddr,
    /// A backlog that does not shrink for this long makes `/readyz` say so.
    pub stuck_after: Duration,
    /// Where it stands in the file.
    pub line: usize,
}

/// The default of `stuck_after`.
const STUCK_AFTER: Duration = Duration::from_secs(300);

pub(super) fn read(field: &Field<'_>) -> Option<MetricsSpec> {
    let table = field.table("[metrics]")?;
    let listen = table.required("listen").and_then(|listen| listen.read(address));
    let stuck_after = table.field("stuck_after").map_or(Some(STUCK_AFTER), |after| {
        let duration = after.duration()?;
        if duration < Duration::from_secs(10) {
            after.mistake("shorter than 10s says nothing of a backlog");
        }
        Some(duration)
    });
    let line = table.line;
    table.finish();
    Some(MetricsSpec { listen: listen?, stuck_after: stuck_after?, line })
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "it is no address; write IP:port, such as 127.0.0.1:9464".to_owned())
}
