//! Exporting parked messages as JSON Lines.

use std::io::Write;

use oncebox_core::quarantine::QuarantineStore;

use crate::admin::Admin;
use crate::error::Error;
use crate::meant::Matching;
use crate::view::ParkedView;

impl<S: QuarantineStore> Admin<S> {
    /// Writes messages as JSON, one to a line, and answers how many. A payload that is JSON stands there as it is;
    /// another as `payload_base64`. Changes nothing.
    pub async fn export(&self, which: impl Into<Matching>, out: &mut (impl Write + Send)) -> Result<u64, Error> {
        let matching: Matching = which.into();
        let (mut after, mut written) = (0, 0);
        loop {
            let page = self.page(matching.consumer.id, after).await?;
            let Some(last) = page.last() else { break };
            after = last.row;
            for row in page.iter().filter(|row| matching.includes(row)) {
                let view = ParkedView::new(row, matching.consumer.name.as_str());
                let mut line = serde_json::to_vec(&view).map_err(std::io::Error::from)?;
                line.push(b'\n');
                out.write_all(&line)?;
                written += 1;
            }
        }
        out.flush()?;
        Ok(written)
    }
}
