//! The plan of a replay: what would become of each message.

use std::collections::BTreeMap;

use oncebox_core::quarantine::{ParkedRow, Quarantine, QuarantineStore};
use serde::Serialize;

use crate::admin::{Admin, PAGE};
use crate::error::Error;
use crate::forecast::{Forecast, Judge, Limits, Said};
use crate::meant::Meant;

/// What would become of the messages if they were replayed now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Plan {
    /// How many messages get which forecast; those that none gets are left out.
    pub forecasts: BTreeMap<Forecast, u64>,
    /// Why the first message that would not run would not.
    pub first_refusal: Option<String>,
}

/// What would become of one message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Planned {
    /// Its number.
    pub row: i64,
    /// What its producer called it.
    pub id: Option<String>,
    /// What it says it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// What would become of it.
    pub forecast: Forecast,
    /// The same as a sentence.
    pub sentence: String,
}

impl Plan {
    /// How many get this forecast.
    pub fn count(&self, forecast: Forecast) -> u64 {
        self.forecasts.get(&forecast).copied().unwrap_or(0)
    }

    /// How many a replay would revive.
    pub fn will_run(&self) -> u64 {
        self.forecasts.iter().filter(|(forecast, _)| forecast.runs()).map(|(_, count)| count).sum()
    }
}

impl<S: QuarantineStore> Admin<S> {
    /// Plans a replay: counts what would become of each message. `force`: of those that are refused otherwise, too.
    pub async fn plan(&self, meant: &Meant, force: bool) -> Result<Plan, Error> {
        self.plan_each(meant, force, |_| {}).await
    }

    /// The same, and tells of each message.
    pub async fn plan_each(
        &self,
        meant: &Meant,
        force: bool,
        mut each: impl FnMut(Planned) + Send,
    ) -> Result<Plan, Error> {
        let mut plan = Plan::default();
        let consumer = meant.consumer.name.as_str();
        let standings = self.standings(meant, force).await?;
        let mut judge = self.judge(Limits::default(), force);
        let mut after = 0;
        while let Some(page) = self.page_to_judge(meant, &mut after, &mut judge).await? {
            for (row, said) in page {
                let is_meant = meant.includes(&row);
                let forecast = standings.refine(row.row, judge.next(&row, is_meant, said));
                if !is_meant {
                    continue;
                }
                *plan.forecasts.entry(forecast).or_default() += 1;
                let planned = planned(&row, forecast, judge.sentence(&row, forecast, said, consumer));
                if plan.first_refusal.is_none() && !forecast.runs() {
                    plan.first_refusal = Some(planned.sentence.clone());
                }
                each(planned);
            }
        }
        Ok(plan)
    }

    /// The next messages with what the store knows of each, for a judge that has seen all before them.
    pub(crate) async fn page_to_judge(
        &self,
        meant: &Meant,
        after: &mut i64,
        judge: &mut Judge<'_>,
    ) -> Result<Option<Vec<(ParkedRow, Said)>>, Error> {
        if *after >= meant.until {
            return Ok(None);
        }
        let mut tx = self.begin().await?;
        judge.limits = Self::limits(&mut tx, meant.consumer.id).await?;
        let mut page = tx.page(meant.consumer.id, *after, PAGE).await?;
        let said = Self::said(&mut tx, meant.consumer.id, &page, judge.limits, |row| meant.includes(row)).await?;
        self.end(tx).await;
        let Some(last) = page.last() else { return Ok(None) };
        *after = last.row;
        for row in &mut page {
            // What stands before the page was looked at already, and some of it would be revived.
            row.is_held_up = false;
        }
        Ok(Some(page.into_iter().zip(said).collect()))
    }
}

fn planned(row: &ParkedRow, forecast: Forecast, sentence: String) -> Planned {
    let id = row.message.id.as_ref().map(|id| id.as_str().to_owned());
    Planned { row: row.row, id, kind: row.message.kind.clone(), forecast, sentence }
}
